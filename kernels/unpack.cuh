// Packed samples: BITS bits each, two's complement, most significant bit first.
#pragma once

// The 32 bits that start `shift` bits (0 to 31) behind the first bit of word[0].
__device__ __forceinline__ u32 bits_at(const u32 *__restrict__ word, int shift) {
    const u32 high = __byte_perm(__ldg(word), 0, 0x0123);
    const u32 low = __byte_perm(__ldg(word + 1), 0, 0x0123);
    return __funnelshift_l(low, high, shift);
}

// The first sample of `bits`, as an integer.
__device__ __forceinline__ int sample_int(u32 bits) { return int(bits) >> (32 - BITS); }

// The same, exactly, without the slow conversion: the mantissa of a number at 2^23 counts integers.
__device__ __forceinline__ float sample_float(u32 bits) {
    constexpr u32 sign = 1u << (BITS - 1);
    const u32 biased = (bits >> (32 - BITS)) ^ sign;
    return __uint_as_float(biased | 0x4B000000u) - (8388608.f + float(sign));
}
