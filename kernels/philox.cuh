// Philox4x32-7 (Salmon, Moraes, Dror and Shaw, SC 2011), as dsp::dither has it.
#pragma once

// The product of two words. Left to itself, the compiler adds a zero to each product's upper half, a quarter of the generator's time.
__device__ __forceinline__ u64 wide(u32 a, u32 b) {
#ifdef __CUDA_ARCH__
    u64 product;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
    return product;
#else
    return u64(a) * b;
#endif
}

// The key is known when the kernel is compiled, so that each round's part of it costs nothing.
__device__ __forceinline__ uint4 philox4x32_7(uint4 c) {
#pragma unroll
    for (u32 round = 0; round < 7; round++) {
        const u64 p0 = wide(0xD2511F53u, c.x), p1 = wide(0xCD9E8D57u, c.z);
        const u32 key0 = u32(SEED_LOW) + round * 0x9E3779B9u, key1 = u32(SEED_HIGH) + round * 0xBB67AE85u;
        c = make_uint4(u32(p1 >> 32) ^ c.y ^ key0, u32(p1), u32(p0 >> 32) ^ c.w ^ key1, u32(p0));
    }
    return c;
}

// x + (d + 1/2)/2^16 - 1/2, where d is the low or the high half of a word and x comes with UNIFORM_BIAS added:
// 2^23 + d is a number whose mantissa ends in d.
constexpr float UNIFORM_BIAS = -128.5f + 1.f / 131072.f;
__device__ __forceinline__ float add_low(float x, u32 w) {
    return fmaf(__uint_as_float(__byte_perm(w, 0x4B000000u, 0x7410)), 1.f / 65536.f, x);
}
__device__ __forceinline__ float add_high(float x, u32 w) {
    return fmaf(__uint_as_float(__byte_perm(w, 0x4B000000u, 0x7432)), 1.f / 65536.f, x);
}
