// What the filters read: WIDTH adjacent columns of a row at a time.
#pragma once
#include "unpack.cuh"

#if BASEBAND

typedef float2 Element;

// What ddc.cu makes: for each polarisation a ring of complex numbers.
struct Values {
    float2 x[WIDTH];
};

#else

// Packed samples of both polarisations.
typedef u32 Element;

// The words that have them.
struct Values {
    uint2 words[2];
};

#endif

// Both polarisations, of which narrowband has one at a time. Offsets are numbers from the begin, of the first number of the range's first spectrum.
struct Input {
    const Element *pol[2];
    long long offset[2];
    int ring; // numbers in a ring, a power of two
#if OVER > 1
    int rotation; // of the group's first spectrum
#endif

#if BASEBAND
    __device__ __forceinline__ const float2 *numbers() const { return pol[blockIdx.z]; }
    __device__ __forceinline__ u32 first() const { return u32(offset[blockIdx.z]); }
#endif
};
