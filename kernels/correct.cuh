// From the transform of both polarisations to bytes: separation, gain, delay, phase, dither, quantisation.
#pragma once
#include "fft.cuh"
#include "philox.cuh"

struct Stream {
    u64 start;     // timestamp of the chunk's first spectrum
    u64 seed;      // of the dither
    u32 feng_id;
    int limit;     // spectra from here on are discarded
};

// Clamps, rounds half to even, and counts. Returns re and im in the low two bytes.
__device__ __forceinline__ u32 quantise(float re, float im, u32 &saturated) {
    // Rare, and not so for what is not a number.
    if (!(fabsf(re) <= 127.f && fabsf(im) <= 127.f)) {
        saturated += 1;
        re = re == re ? fminf(fmaxf(re, -127.f), 127.f) : 0.f;
        im = im == im ? fminf(fmaxf(im, -127.f), 127.f) : 0.f;
    }
    // The mantissa of a number at 1.5 * 2^23 counts integers; the low byte is the two's complement.
    return __byte_perm(__float_as_uint(re + 12582912.f), __float_as_uint(im + 12582912.f), 0x0040);
}

// e^(i*angle) times x. Within a turn or so, the fast functions need no reduction.
__device__ __forceinline__ float2 turn(float2 x, float angle) {
    float s, c;
    __sincosf(angle, &s, &c);
    return multiply(x, make_float2(c, s));
}

// An angle within half a turn.
__device__ __forceinline__ float reduce(float angle) {
    return fmaf(rintf(angle * 0.159154943091895336f), -6.28318530717958648f, angle);
}

// Residual delay and phase of one spectrum, and its time.
struct Correction {
    // Radians per channel, and radians; the delay is below a sample.
    float slope[2], phase[2];
    u64 t, seed;
    u32 feng_id;

    __device__ __forceinline__ Correction(float4 fine, const Stream &stream, int spectrum)
        : slope{fine.x * (-3.14159265358979324f / CHANNELS), fine.y * (-3.14159265358979324f / CHANNELS)},
          phase{reduce(fine.z), reduce(fine.w)}, t(stream.start + u64(spectrum) * N), seed(stream.seed),
          feng_id(stream.feng_id) {}

    // The dither's draws for channels 2 * half (x and y, one per polarisation) and 2 * half + 1 (z and w).
    __device__ __forceinline__ uint4 draws(int half) const {
#if DITHER
        return philox4x32_10(make_uint4(u32(t), u32(t >> 32), u32(half), feng_id), u32(seed), u32(seed >> 32));
#else
        return make_uint4(0, 0, 0, 0);
#endif
    }

    // Channel k of both polarisations from a = Z[k] and b = Z[N - k], as pol 0 re, im, pol 1 re, im.
    __device__ __forceinline__ u32 jones(float2 a, float2 b, float4 gain, int k, u32 draw0, u32 draw1,
                                         u32 (&saturated)[2]) const {
        // Twice X0 = Z + conj Z', and 2i times X1 = Z - conj Z'; the gains have the factors.
        float2 x0 = make_float2(a.x + b.x, a.y - b.y);
        float2 x1 = make_float2(a.x - b.x, a.y + b.y);
        const float centred = float(k - CHANNELS / 2);
        x0 = turn(multiply(x0, make_float2(gain.x, gain.y)), fmaf(slope[0], centred, phase[0]));
        x1 = turn(multiply(x1, make_float2(gain.z, gain.w)), fmaf(slope[1], centred, phase[1]));
#if DITHER
        x0 = make_float2(__fadd_rn(x0.x, uniform_low(draw0)), __fadd_rn(x0.y, uniform_high(draw0)));
        x1 = make_float2(__fadd_rn(x1.x, uniform_low(draw1)), __fadd_rn(x1.y, uniform_high(draw1)));
#endif
        return __byte_perm(quantise(x0.x, x0.y, saturated[0]), quantise(x1.x, x1.y, saturated[1]), 0x5410);
    }
};

// Adds to what a batch counted.
__device__ __forceinline__ void count(BatchStats &stats, const u32 (&saturated)[2]) {
#pragma unroll
    for (int pol = 0; pol < 2; pol++) {
        if (saturated[pol]) {
            atomicAdd(&stats.saturated[pol], u64(saturated[pol]));
        }
    }
}
