// Packed samples: BITS bits each, two's complement, most significant bit first.
#pragma once

// Exponent BITS, and what flips the sign bit. A logic instruction (LOP3) takes one immediate, which is the mask. In the front ends for long runs
// this is in __constant__ memory: it is loaded to a register once, and a sample takes one LOP3. Elsewhere registers are short: this is an
// immediate, too, and a sample takes two.
#if DEPTH
__constant__
#else
constexpr
#endif
    u32 biased = (127u + BITS) << 23 | 1u << 22;

// Where WIDTH adjacent samples lie in two words. Rows are whole words, so that a column's place is the same in each.
struct Place {
    // Up to 12 bits, one window of 32 bits from a byte on holds both samples.
    static constexpr int WINDOWS = WIDTH * BITS + 7 <= 32 ? 1 : WIDTH;

    u32 bytes[WINDOWS]; // selectors of each window's bytes, most significant first
    int bit[WIDTH];     // of each sample's first bit in its window

    // The first sample begins `shift` bits into the first word.
    __device__ __forceinline__ explicit Place(int shift) {
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            const int from = shift + (WINDOWS == 1 ? 0 : i * BITS);
            // Bytes behind the eighth are not needed, but a selector has only three bits.
            if (i < WINDOWS) {
                bytes[i] = (0x0123 + (from >> 3) * 0x1111) & 0x7777;
            }
            bit[i] = (from & 7) + (WINDOWS == 1 ? i * BITS : 0);
        }
    }

    __device__ __forceinline__ u32 window(uint2 words, int i) const { return __byte_perm(words.x, words.y, bytes[i % WINDOWS]); }

    __device__ __forceinline__ int integer(uint2 words, int i) const {
        return int(window(words, i) << bit[i]) >> (32 - BITS);
    }

    // The same, exactly, without the slow conversion: at 2^BITS the upper bits of the mantissa count integers.
    __device__ __forceinline__ float number(uint2 words, int i) const {
        constexpr u32 mask = ((1u << BITS) - 1) << (23 - BITS);
        const u32 w = window(words, i);
        return __uint_as_float((__funnelshift_r(w, w, 9 - bit[i]) & mask) ^ biased) - 1.5f * float(1u << BITS);
    }
};
