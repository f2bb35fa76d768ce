// From the transform of both polarisations to bytes: separation, gain, delay, phase, dither, quantisation.
#pragma once
#include "fft.cuh"
#include "philox.cuh"

// What the dither of a chunk is drawn from.
struct DitherOrigin {
    u64 start; // timestamp of the chunk's first spectrum
    u32 feng_id;
    u32 unused;
};

// e^(i*angle) times x, plus `bias` in both components. Within a turn or so, the fast functions need no reduction.
__device__ __forceinline__ float2 turn(float2 x, float angle, float bias) {
    float s, c;
    __sincosf(angle, &s, &c);
    return make_float2(fmaf(x.x, c, fmaf(-x.y, s, bias)), fmaf(x.x, s, fmaf(x.y, c, bias)));
}

// An angle within half a turn.
__device__ __forceinline__ float reduce(float angle) {
    return fmaf(rintf(angle * 0.159154943091895336f), -6.28318530717958648f, angle);
}

// The largest magnitude of a part.
constexpr float LIMIT = OUT_BITS == 8 ? 127.f : 7.f;

// Clips, and counts. What is not a number becomes zero.
__device__ __forceinline__ void clamp(float2 &x, u32 &clipped) {
    clipped += !(fabsf(x.x) <= LIMIT && fabsf(x.y) <= LIMIT);
    x.x = x.x == x.x ? fminf(fmaxf(x.x, -LIMIT), LIMIT) : 0.f;
    x.y = x.y == x.y ? fminf(fmaxf(x.y, -LIMIT), LIMIT) : 0.f;
}

// A Jones vector on the wire: pol 0 re, im, pol 1 re, im; of four bits, the first is a byte's upper half.
#if OUT_BITS == 8
typedef u32 Quantised;
#else
typedef unsigned short Quantised;
#endif

// Rounds half to even. Returns re and im in the low two bytes.
__device__ __forceinline__ u32 round(float2 x) {
    // The mantissa of a number at 1.5 * 2^23 counts integers; the low byte is the two's complement.
    return __byte_perm(__float_as_uint(x.x + 12582912.f), __float_as_uint(x.y + 12582912.f), 0x0040);
}

// Both polarisations of one channel.
struct Jones {
    float2 x[2];
#if STATISTICS
    float power[2];
#endif

    // With the gains and the angles of channel k: from a = Z[k] and b = Z[N - k], or each polarisation's own.
    __device__ __forceinline__ Jones(float2 a, float2 b, float4 gain, float angle0, float angle1) {
        constexpr float bias = DITHER ? UNIFORM_BIAS : 0.f;
#if BASEBAND
        const float2 x0 = a, x1 = b;
#else
        // Twice X0 = Z + conj Z', and 2i times X1 = Z - conj Z'; the gains have the factors.
        const float2 x0 = make_float2(a.x + b.x, a.y - b.y), x1 = make_float2(a.x - b.x, a.y + b.y);
#endif
#if STATISTICS
        const float2 y0 = multiply(x0, make_float2(gain.x, gain.y)), y1 = multiply(x1, make_float2(gain.z, gain.w));
        power[0] = fmaf(y0.x, y0.x, y0.y * y0.y);
        power[1] = fmaf(y1.x, y1.x, y1.y * y1.y);
        x[0] = turn(y0, angle0, bias);
        x[1] = turn(y1, angle1, bias);
#else
        x[0] = turn(multiply(x0, make_float2(gain.x, gain.y)), angle0, bias);
        x[1] = turn(multiply(x1, make_float2(gain.z, gain.w)), angle1, bias);
#endif
    }

#if STATISTICS
    // x * conj(y), before dither.
    __device__ __forceinline__ float2 product() const {
        constexpr float bias = DITHER ? UNIFORM_BIAS : 0.f;
        const float2 a = make_float2(x[0].x - bias, x[0].y - bias), b = make_float2(x[1].x - bias, x[1].y - bias);
        return make_float2(fmaf(a.x, b.x, a.y * b.y), fmaf(a.y, b.x, -a.x * b.y));
    }

    __device__ __forceinline__ void add_to(float (&sums)[6]) const {
        const float2 both = product();
#pragma unroll
        for (int pol = 0; pol < 2; pol++) {
            sums[pol] += power[pol];
            sums[2 + pol] = fmaf(power[pol], power[pol], sums[2 + pol]);
        }
        sums[4] += both.x;
        sums[5] += both.y;
    }
#endif

    // Adds the four draws in two words.
    __device__ __forceinline__ void dither(uint2 draws) {
        x[0] = make_float2(add_low(x[0].x, draws.x), add_high(x[0].y, draws.x));
        x[1] = make_float2(add_low(x[1].x, draws.y), add_high(x[1].y, draws.y));
    }

    __device__ __forceinline__ bool fits() const {
        return (fabsf(x[0].x) <= LIMIT) & (fabsf(x[0].y) <= LIMIT) & (fabsf(x[1].x) <= LIMIT) & (fabsf(x[1].y) <= LIMIT);
    }

    __device__ __forceinline__ void clamp_both(u32 (&clipped)[2]) {
        clamp(x[0], clipped[0]);
        clamp(x[1], clipped[1]);
    }

    __device__ __forceinline__ Quantised quantised() const {
        const u32 bytes = __byte_perm(round(x[0]), round(x[1]), 0x5410);
#if OUT_BITS == 8
        return bytes;
#else
        const u32 nibbles = bytes << 4 & 0x00F000F0 | bytes >> 8 & 0x000F000F;
        return Quantised(nibbles | nibbles >> 8);
#endif
    }
};

// Residual delay and phase of one spectrum, and its time.
struct Correction {
    // Radians per channel, and radians.
    float slope[2], phase[2];
    u64 time;
    u32 feng_id;

    __device__ __forceinline__ Correction(float4 fine, const DitherOrigin &origin, int spectrum)
        : slope{fine.x * (-3.14159265358979324f / CHANNELS), fine.y * (-3.14159265358979324f / CHANNELS)},
          phase{reduce(fine.z), reduce(fine.w)}, time(origin.start + u64(spectrum) * (u64(HOP) * SUBSAMPLING)), feng_id(origin.feng_id) {}

    // The angle of channel k.
    __device__ __forceinline__ float angle(int pol, int k) const {
        return fmaf(slope[pol], float(k - CHANNELS / 2), phase[pol]);
    }

    // The draws of channel k, in the lower half, first, and of those one, two and three quarters of the band above it, around the band's end.
    // `lowest`: whether k is known to be in the lowest quarter.
    __device__ __forceinline__ Draws4 draws(u32 k, bool lowest) const {
        constexpr u32 QUARTER = CHANNELS / 4;
        const uint4 counter = make_uint4(u32(time), u32(time >> 32), lowest ? k : k % QUARTER, feng_id);
        return Draws4(counter, lowest ? 0 : k / QUARTER);
    }
};

// Clips and counts where it must.
__device__ __forceinline__ void clip(Jones &low, Jones &high, u32 (&clipped)[2]) {
    // Rare, and not so for what is not a number.
    if (!(low.fits() & high.fits())) {
        low.clamp_both(clipped);
        high.clamp_both(clipped);
    }
}

#if STATISTICS
// The same, counted by channel, too, from that of `low` on; not if there is none.
__device__ __forceinline__ void clip(Jones &low, Jones &high, u32 (&clipped)[2], u64 *channel) {
    if (!(low.fits() & high.fits())) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 of[2] = {};
            (half == 0 ? low : high).clamp_both(of);
#pragma unroll
            for (int pol = 0; pol < 2; pol++) {
                clipped[pol] += of[pol];
                if (of[pol] && channel) {
                    atomicAdd(channel + half * CHANNELS + pol, u64(1));
                }
            }
        }
    }
}
#endif

// Adds to what a batch counted, and starts anew.
__device__ __forceinline__ void count(BatchStats &stats, u32 (&clipped)[2]) {
#pragma unroll
    for (int pol = 0; pol < 2; pol++) {
        if (clipped[pol]) {
            atomicAdd(&stats.clipped[pol], u64(clipped[pol]));
        }
        clipped[pol] = 0;
    }
}
