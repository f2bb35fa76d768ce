// Threads that write two buffers in turn, and threads that read them: the example by which races.hpp is held, and by which racecheck
// was seen to name hazards where none are (docs/gpu.md). With -DLEFT_OUT=1 nothing tells the writers that a buffer has been read; with
// 2, readers do not wait until one is full.
#include "barrier.cuh"

#ifndef LEFT_OUT
#define LEFT_OUT 0
#endif
enum { WRITERS = 64, THREADS = 128, FULL = 1, EMPTY = 3 };

extern "C" __global__ void two_buffers(int *out, int groups) {
    extern __shared__ int z[]; // (buffer, thread)
    const int thread = threadIdx.x % WRITERS;
    for (int i = 0; i < groups; i++) {
        const int buffer = i % 2;
        int *at = z + buffer * WRITERS;
        if (threadIdx.x < WRITERS) {
            if (LEFT_OUT != 1 && i >= 2) {
                wait(EMPTY + buffer, THREADS);
            }
            at[thread] = i;
            if (LEFT_OUT != 2) {
                arrive(FULL + buffer, THREADS);
            }
        } else {
            if (LEFT_OUT != 2) {
                wait(FULL + buffer, THREADS);
            }
            out[i * WRITERS + thread] = at[WRITERS - 1 - thread];
            if (LEFT_OUT != 1 && i + 2 < groups) {
                arrive(EMPTY + buffer, THREADS);
            }
        }
    }
}
