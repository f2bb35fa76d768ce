// Threads that write two buffers in turn, and threads that read them: the example by which races.hpp is held, and by which racecheck
// was seen to name hazards where none are (docs/gpu.md). With -DTOO_EARLY=1 writers write before they wait until a buffer has been read;
// with 2, readers read before they wait until one is full.
#include "barrier.cuh"

#ifndef TOO_EARLY
#define TOO_EARLY 0
#endif
enum { WRITERS = 64, THREADS = 128, FULL = 1, EMPTY = 3 };

extern "C" __global__ void two_buffers(int *out, int rounds) {
    extern __shared__ int z[]; // (buffer, thread)
    const int thread = threadIdx.x % WRITERS;
    for (int i = 0; i < rounds; i++) {
        const int buffer = i % 2;
        int *at = z + buffer * WRITERS;
        if (threadIdx.x < WRITERS) {
            if (TOO_EARLY == 1) {
                at[thread] = i;
            }
            if (i >= 2) {
                wait(EMPTY + buffer, THREADS);
            }
            if (TOO_EARLY != 1) {
                at[thread] = i;
            }
            arrive(FULL + buffer, THREADS);
        } else {
            int read = TOO_EARLY == 2 ? at[WRITERS - 1 - thread] : 0;
            wait(FULL + buffer, THREADS);
            if (TOO_EARLY != 2) {
                read = at[WRITERS - 1 - thread];
            }
            out[i * WRITERS + thread] = read;
            if (i + 2 < rounds) {
                arrive(EMPTY + buffer, THREADS);
            }
        }
    }
}
