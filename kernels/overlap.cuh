// Programmatic dependent launch, from compute capability 9.0 on.
//
// let_next_begin() lets the next kernel of the stream begin once every block of this one has called it or is over; the next kernel's blocks take the
// places of those that are over. wait_for_previous() waits until the kernel before has ended, whose own wait was for the one before it, and until
// what it wrote is visible: a kernel calls it before it touches anything that the kernel before reads or writes. Copies and waits for events overlap
// with no kernel: they are over before any that follows begins. On older GPUs both functions do nothing, and kernels follow each other anyway.
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
