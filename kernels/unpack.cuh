// Packed samples: BITS bits each, two's complement, most significant bit first.
#pragma once

// Where a sample lies within its word. Rows are whole words, so that a column's place is the same in each.
struct Place {
    u32 bytes; // selector of the four bytes from the sample's first on, most significant first
    int bit;   // of the first of these bytes, 0 to 7

    __device__ __forceinline__ explicit Place(int shift) : bytes(0x0123 + (shift >> 3) * 0x1111), bit(shift & 7) {}

    // The bytes that hold the sample: with 16 bits at most, it ends within 23.
    __device__ __forceinline__ u32 bits(const u32 *__restrict__ word) const {
        return __byte_perm(__ldg(word), __ldg(word + 1), bytes);
    }

    __device__ __forceinline__ int integer(u32 bits) const { return int(bits << bit) >> (32 - BITS); }

    // The same, exactly, without the slow conversion: at 2^BITS the upper bits of the mantissa count integers.
    __device__ __forceinline__ float number(u32 bits) const {
        constexpr u32 mask = ((1u << BITS) - 1) << (23 - BITS);
        constexpr u32 biased = (127u + BITS) << 23 | 1u << 22; // flips the sign bit, too
        return __uint_as_float(((bits >> (9 - bit)) & mask) ^ biased) - 1.5f * float(1u << BITS);
    }
};
