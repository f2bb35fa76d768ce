// Named barriers: barriers among some of a block's threads, numbered from 1. As with __syncthreads, what was written before is seen behind.
#pragma once

// Waits until `threads` threads have come, this one among them.
__device__ __forceinline__ void wait(int barrier, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Comes, and does not wait.
__device__ __forceinline__ void arrive(int barrier, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
