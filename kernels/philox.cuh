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

// The draws of four channels, a quarter of the band apart, as dsp::dither has them: each has an upper byte from its channel's own word, and a lower one from
// the next two words.
struct Draws4 {
    u32 words[4];

    // By the counter of the lowest quarter's channel. `begin`, 0 or 1, is the quarter from which on `of` counts.
    __device__ __forceinline__ Draws4(uint4 counter, u32 begin) {
        const uint4 w = philox4x32_7(counter);
        const u32 all[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            words[i] = begin == 0 ? all[i] : all[(i + 1) % 4];
        }
    }

    // The draws of both parts of either polarisation, the real part's in the low half.
    __device__ __forceinline__ uint2 of(u32 quarter) const {
        const u32 lower = words[(quarter + 1) % 4] ^ words[(quarter + 2) % 4];
        return make_uint2(__byte_perm(lower, words[quarter], 0x5140), __byte_perm(lower, words[quarter], 0x7362));
    }
};

// x + (d + 1/2)/2^16 - 1/2, where d is the low or the high half of a word and x comes with UNIFORM_BIAS added:
// 2^23 + d is a number whose mantissa ends in d.
constexpr float UNIFORM_BIAS = -128.5f + 1.f / 131072.f;
__device__ __forceinline__ float add_low(float x, u32 w) {
    return fmaf(__uint_as_float(__byte_perm(w, 0x4B000000u, 0x7410)), 1.f / 65536.f, x);
}
__device__ __forceinline__ float add_high(float x, u32 w) {
    return fmaf(__uint_as_float(__byte_perm(w, 0x4B000000u, 0x7432)), 1.f / 65536.f, x);
}
