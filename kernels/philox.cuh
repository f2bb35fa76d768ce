// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011), as dsp::dither has it.
#pragma once

__device__ __forceinline__ uint4 philox4x32_10(uint4 c, u32 key0, u32 key1) {
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const u64 p0 = u64(0xD2511F53u) * c.x;
        const u64 p1 = u64(0xCD9E8D57u) * c.z;
        c = make_uint4(u32(p1 >> 32) ^ c.y ^ key0, u32(p1), u32(p0 >> 32) ^ c.w ^ key1, u32(p0));
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return c;
}

// (d + 1/2)/2^16 - 1/2 of the low or the high half of a word; every step is exact.
__device__ __forceinline__ float uniform_low(u32 w) {
    return __uint_as_float((w << 16 >> 9) | 0x3F800000u) - (1.5f - 1.f / 131072.f);
}
__device__ __forceinline__ float uniform_high(u32 w) {
    return __uint_as_float((w >> 16 << 7) | 0x3F800000u) - (1.5f - 1.f / 131072.f);
}
