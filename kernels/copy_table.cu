// Brings a small table from memory of the host, where the CPU wrote it, to the GPU's. A kernel on the stream that
// needs the table does not queue behind bulk copies, as a copy engine's work would. Nothing that is under way uses the table, so that
// it is brought while the kernel before this one ends.
#include "overlap.cuh"

extern "C" __global__ void copy_table(const uint4 *__restrict__ from, uint4 *__restrict__ to, int count) {
    let_next_begin();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        to[i] = from[i];
    }
    wait_for_previous();
}
