// The intermediate between front end and back end. Memory is what the front end waits for, so that a complex number has six
// bytes: its components are rounded to the upper 24 bits of single precision, which leaves them 16 significant ones.
// Rounding is stochastic: up or down by draws.
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

// Which part a group's spectrum is in, and where in it; and which spectrum that is. Sums of arguments without common bits give sums.
__device__ __forceinline__ constexpr u32 part_of(u32 g) { return PAIRED ? g / (2 * BACK_GROUP) * 2 + g % 2 : g / BACK_GROUP; }
__device__ __forceinline__ constexpr u32 place_in_part(u32 g) { return PAIRED ? g / 2 % BACK_GROUP : g % BACK_GROUP; }
__device__ __forceinline__ constexpr u32 spectrum_of(u32 part, u32 place) {
    return PAIRED ? part / 2 * 2 * BACK_GROUP + place * 2 + part % 2 : part * BACK_GROUP + place;
}

// Radix of the back end's last pass, and lanes that share a transform of its first: lane r has points r + LANES*i, 32 of them.
constexpr int BACK_LAST = N2 >= 128 ? 16 : N2 >= 32 ? 8 : 4;
constexpr int LANES = N2 / BACK_LAST > 32 ? N2 / BACK_LAST / 32 : 1;

// Number (k1, n2) has been multiplied with this root, of N: the transform's, and e^(-2*pi*i*r*i/LANES), by which a lane's transform begins
// with what the lane keeps.
__device__ __forceinline__ constexpr u32 root_of(u32 k1, u32 n2) {
    const u32 point = n2 / BACK_LAST, r = point % LANES, i = point / LANES;
    return (k1 * n2 + r * i % LANES * (N / LANES)) % N;
}

// Bytes from the group's begin to the granule of point n2 of row k1 for one spectrum. Sums of arguments without common bits give sums.
__device__ __forceinline__ constexpr int granule(u32 k1, u32 n2, u32 g) {
    return int((k1 * PARTS + part_of(g)) * ROW + (n2 * BACK_GROUP + place_in_part(g)) / 32 * GRANULE);
}

// Stochastic rounding: what is added to the lower byte of a component before it is cut off, 0 to 255, as if drawn: for each spectrum and column,
// for rows in the lower and the upper half, whose channels are to be combined, and for re and im. It is made of their numbers alone, so that
// launches, blocks and chunks may begin anywhere. With a constant half in its place, a tone that makes the same numbers in every spectrum makes
// the same errors, too, and these are tones (docs/decisions/0076).
struct Draws {
    u32 bytes;

    // Of a spectrum, counted from time 0, and a column n2, counted through the transforms. Sums of arguments give sums.
    static __device__ __forceinline__ constexpr u32 place(u32 spectrum, u32 column) { return spectrum * 0x9E3779B9u + column * 0x85EBCA6Bu; }

    __device__ __forceinline__ explicit Draws(u32 place) {
        const u32 mixed = (place ^ place >> 16) * 0x7FEB352Du;
        bytes = mixed ^ mixed >> 15;
    }

    __device__ __forceinline__ u32 re(bool upper) const { return upper ? bytes >> 24 : bytes >> 8 & 0xFF; }
    __device__ __forceinline__ u32 im(bool upper) const { return upper ? bytes >> 16 & 0xFF : bytes & 0xFF; }
};

// One number of a granule, and those as far from the begin of granules that are so many bytes further on.
struct MidNumber {
    char *high, *low;

    __device__ __forceinline__ MidNumber(char *granule, u32 at) : high(granule + 4 * at), low(granule + 128 + 2 * at) {}

    // `upper`: whether row k1 is in the upper half.
    __device__ __forceinline__ void store(int bytes, float2 x, const Draws &draws, bool upper) const {
        const u32 re = __float_as_uint(x.x) + draws.re(upper), im = __float_as_uint(x.y) + draws.im(upper);
        *reinterpret_cast<u32 *>(high + bytes) = __byte_perm(re, im, 0x7632);
        *reinterpret_cast<u16 *>(low + bytes) = u16(__byte_perm(re, im, 0x0051));
    }
};

// Number `at` of a granule.
__device__ __forceinline__ float2 load_mid(const void *granule, int at) {
    const u32 high = static_cast<const u32 *>(granule)[at];
    const u32 low = static_cast<const u16 *>(granule)[64 + at];
    return make_float2(__uint_as_float(__byte_perm(high, low, 0x1046)), __uint_as_float(__byte_perm(high, low, 0x3256)));
}
