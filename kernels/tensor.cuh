// Matrix products of a warp, by tensor cores.
#pragma once

// Adds x0 .. x3, each summed over four lanes, to c of the one of them whose number is `lane`, from 0. Only 10 bits of the mantissas count.
__device__ __forceinline__ void sum_lanes(float (&c)[4], u32 lane, float x0, float x1, float x2, float x3) {
    const u32 g = threadIdx.x % 32 / 4;
#if __CUDA_ARCH__ >= 800
    const u32 b0 = g == 2 * lane ? 0x3F800000u : 0, b1 = g == 2 * lane + 1 ? 0x3F800000u : 0;
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(__float_as_uint(x0)), "r"(__float_as_uint(x2)), "r"(__float_as_uint(x1)), "r"(__float_as_uint(x3)), "r"(b0), "r"(b1));
#else
    const float x[4] = {x0, x1, x2, x3};
    for (int i = 0; i < 4; i++) {
        float sum = __uint_as_float(__float_as_uint(x[i]) & 0xFFFFE000u);
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        c[i] += threadIdx.x % 4 == lane ? sum : 0.f;
    }
#endif
}

// Adds to global memory.
__device__ __forceinline__ void add_to(float4 *to, float4 x) {
#if __CUDA_ARCH__ >= 900
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w) : "memory");
#else
    atomicAdd(&to->x, x.x);
    atomicAdd(&to->y, x.y);
    atomicAdd(&to->z, x.z);
    atomicAdd(&to->w, x.w);
#endif
}

// Two numbers as halves, the first in the lower one.
__device__ __forceinline__ u32 halves(float low, float high) {
    u32 packed;
    asm("{ .reg .f16 a, b; cvt.rn.f16.f32 a, %1; cvt.rn.f16.f32 b, %2; mov.b32 %0, {a, b}; }" : "=r"(packed) : "f"(low), "f"(high));
    return packed;
}

// Loads a for multiply_add. A thread gives the address of row lane % 16 from column lane / 16 * 8 on, a multiple of 16 bytes.
__device__ __forceinline__ void load_matrix(u32 (&a)[4], const u32 *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(u32(__cvta_generic_to_shared(row))));
}

// Adds a * b to c: 16 x 16 halves times 16 x 8 halves, in single precision.
//
// With g = lane / 4 and t = lane % 4, a thread has of a: row g columns 2t and 2t + 1, row g + 8 of the same, and both rows at
// columns 2t + 8 and 2t + 9; of b: column g rows 2t and 2t + 1, and 2t + 8 and 2t + 9; of c: row g columns 2t and 2t + 1, and row
// g + 8 of the same.
__device__ __forceinline__ void multiply_add(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}
