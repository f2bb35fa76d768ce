// Asynchronous copies (cp.async) from global to shared memory, which need no registers and go on meanwhile. Before compute capability 8.0, they
// don't.
#pragma once

// 16 or 8 bytes, aligned to as many.
template <int BYTES> __device__ __forceinline__ void copy_async(void *to, const void *from) {
#if __CUDA_ARCH__ >= 800
    const u32 at = u32(__cvta_generic_to_shared(to));
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(at), "l"(from) : "memory");
    }
#else
    if constexpr (BYTES == 16) {
        *static_cast<uint4 *>(to) = *static_cast<const uint4 *>(from);
    } else {
        *static_cast<uint2 *>(to) = *static_cast<const uint2 *>(from);
    }
#endif
}

// What this thread has asked for since the last call is a batch.
__device__ __forceinline__ void commit_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most BATCHES of this thread's are under way. What other threads copied is there behind a barrier.
template <int BATCHES> __device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(BATCHES) : "memory");
#endif
}
