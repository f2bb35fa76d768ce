// Successive kernels of a stream overlap at their ends: one may begin once every block of the one before it has let it or is over, and its
// blocks then take the places of those that are over. Before it touches what the one before it reads or writes, it waits for that one's end,
// whose own wait was for the one before. What is no kernel (copies, waits for events) is over before any that follows begins. From compute capability 9.0 on; before, kernels follow each other anyway.
#pragma once

__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
