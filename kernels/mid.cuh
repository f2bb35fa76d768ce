// The intermediate between front end and back end. Memory is what the front end waits for, so that a complex number has six
// bytes: its components are rounded to the upper 24 bits of single precision, which leaves them 16 significant ones.
//
// A group is (transform, k1, part of BACK_GROUP spectra); each of these is a row of N2 points, (n2, spectrum), that a block of the back end
// reads as one piece. Every 32 numbers, a warp's, are a granule: 32 words with the upper halves of both components, then
// 32 halfwords with a lower byte of each.
#pragma once

typedef unsigned short u16;

constexpr int PARTS = GROUP / BACK_GROUP;
constexpr int GRANULE = 32 * 6;
constexpr int POINTS_PER_GRANULE = 32 / BACK_GROUP;
constexpr int ROW = N2 * BACK_GROUP / 32 * GRANULE; // bytes
constexpr long long TRANSFORM_BYTES = (long long)N1 * PARTS * ROW;
constexpr long long GROUP_BYTES = SERIES * TRANSFORM_BYTES;

// Point n2 of row k1 for one spectrum of a group, and those of the rows behind.
struct MidColumn {
    u32 *high;
    u16 *low;

    __device__ __forceinline__ MidColumn(char *group, int k1, int n2, int g) {
        const int at = n2 * BACK_GROUP + g % BACK_GROUP;
        char *granule = group + (k1 * PARTS + g / BACK_GROUP) * ROW + at / 32 * GRANULE;
        high = reinterpret_cast<u32 *>(granule) + at % 32;
        low = reinterpret_cast<u16 *>(granule + 128) + at % 32;
    }

    // Stores point n2 of the row that is `rows` further on.
    __device__ __forceinline__ void store(int rows, float2 x) const {
        const u32 re = __float_as_uint(x.x) + 0x80, im = __float_as_uint(x.y) + 0x80;
        high[rows * (PARTS * ROW / 4)] = __byte_perm(re, im, 0x7632);
        low[rows * (PARTS * ROW / 2)] = u16(__byte_perm(re, im, 0x0051));
    }
};

// Number `at` of a granule.
__device__ __forceinline__ float2 load_mid(const void *granule, int at) {
    const u32 high = static_cast<const u32 *>(granule)[at];
    const u32 low = static_cast<const u16 *>(granule)[64 + at];
    return make_float2(__uint_as_float(__byte_perm(high, low, 0x1046)), __uint_as_float(__byte_perm(high, low, 0x3256)));
}
