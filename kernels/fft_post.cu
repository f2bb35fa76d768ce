// The second half of the transform, and everything behind it: the two polarisations are separated, corrected for
// delay, phase and gain, dithered, quantised, counted, and stored as (batch, channel, spectrum, pol, re/im).
//
// A block has the rows k1 and N1 - k1 of mid for GROUP spectra, because Z[k] and Z[N - k] belong together:
// with k = k1 + N1*k2, N - k lies in row N1 - k1 at N2 - 1 - k2. Block 0 has rows 0 and N1/2, which are their own
// partners. Grid (N1/2, groups).
#include "geometry.cuh"
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

extern "C" __global__ void __launch_bounds__(BACK_THREADS, BACK_BLOCKS)
fft_post(const float2 *__restrict__ mid, const float2 *__restrict__ roots, const float4 *__restrict__ gains,
         const float4 *__restrict__ fine, u32 *__restrict__ out, BatchStats *stats, Stretch stretch, Stream stream) {
    extern __shared__ float2 z[]; // (row, position, spectrum)
    const int group = stretch.first_group + blockIdx.y;
    const int pair = blockIdx.x;
    const int row0 = pair, row1 = pair == 0 ? N1 / 2 : N1 - pair;
    const float2 *in = mid + (long long)(group & (stretch.ring - 1)) * N * GROUP;

    // A line is (row, spectrum).
    auto address = [](int line, int at) { return (line / GROUP * N2 + at) * GROUP + line % GROUP; };
    auto from_mid = [&](int line, int at) {
        const int row = line / GROUP == 0 ? row0 : row1;
        return __ldg(&in[(long long)(row * N2 + at) * GROUP + line % GROUP]);
    };
    auto load = [&](int line, int at) { return z[address(line, at)]; };
    auto store = [&](int line, int at, float2 value) { z[address(line, at)] = value; };
    constexpr int R = radix(N2);
    pass<N2, N2, BACK_THREADS>(2 * GROUP, roots, from_mid, store);
    __syncthreads();
    if constexpr (R < N2) {
        constexpr int SECOND = N2 / R;
        pass<N2, SECOND, BACK_THREADS>(2 * GROUP, roots, load, store);
        __syncthreads();
        if constexpr (radix(SECOND) < SECOND) {
            constexpr int THIRD = SECOND / radix(SECOND);
            static_assert(radix(THIRD) == THIRD, "three passes at most");
            pass<N2, THIRD, BACK_THREADS>(2 * GROUP, roots, load, store);
            __syncthreads();
        }
    }

    const int g = threadIdx.x % GROUP;
    const int spectrum = group * GROUP + g;
    if (spectrum >= stream.limit) {
        return;
    }
    const int batch = spectrum / SPECTRA_PER_HEAP;
    u32 *jones = out + (long long)batch * CHANNELS * SPECTRA_PER_HEAP + spectrum % SPECTRA_PER_HEAP;
    // Residual delay and phase of both polarisations, as radians per channel and radians; the delay is below a sample.
    const float4 at = __ldg(&fine[spectrum]);
    const float slope0 = at.x * (-3.14159265358979324f / CHANNELS), slope1 = at.y * (-3.14159265358979324f / CHANNELS);
    const float phase0 = reduce(at.z), phase1 = reduce(at.w);
#if DITHER
    const u64 t = stream.start + u64(spectrum) * N;
#endif
    u32 saturated0 = 0, saturated1 = 0;
    // Half of each row is below the Nyquist channel. A thread keeps its row, and steps through its k2.
    constexpr int STEP = BACK_THREADS / GROUP / 2;
    const int row = threadIdx.x / GROUP % 2;
    const int partner = pair == 0 ? row : 1 - row;
    const bool own = pair == 0 && row == 0;
    const float2 *here = &z[row * N2 * GROUP + g], *there = &z[partner * N2 * GROUP + g];
    static_assert(STEP > 0 && N2 / 2 % STEP == 0, "every thread has as many channels");
    const int first = threadIdx.x / (2 * GROUP) % STEP;
    const int k1 = row == 0 ? row0 : row1;
#pragma unroll 4
    for (int step = 0; step < N2 / 2; step += STEP) {
        const int k2 = step | first;
        const int k = k1 + N1 * k2;
        // The mirror of k2 has the complement of its digits, but in row 0.
        const int from = position<N2>(k2);
        const int mirror = own ? position<N2>((N2 - k2) % N2) : N2 - 1 - from;
        const float2 a = here[from * GROUP];
        const float2 b = there[mirror * GROUP];
        // Twice X0 = Z + conj Z', and 2i times X1 = Z - conj Z'; the gains have the factors.
        float2 x0 = make_float2(a.x + b.x, a.y - b.y);
        float2 x1 = make_float2(a.x - b.x, a.y + b.y);
        const float4 gain = __ldg(&gains[k]);
        const float centred = float(k - CHANNELS / 2);
        x0 = turn(multiply(x0, make_float2(gain.x, gain.y)), fmaf(slope0, centred, phase0));
        x1 = turn(multiply(x1, make_float2(gain.z, gain.w)), fmaf(slope1, centred, phase1));
#if DITHER
        const uint4 w = philox4x32_10(make_uint4(u32(t), u32(t >> 32), u32(k) / 2, stream.feng_id),
                                      u32(stream.seed), u32(stream.seed >> 32));
        const u32 d0 = k % 2 ? w.z : w.x, d1 = k % 2 ? w.w : w.y;
        x0 = make_float2(__fadd_rn(x0.x, uniform_low(d0)), __fadd_rn(x0.y, uniform_high(d0)));
        x1 = make_float2(__fadd_rn(x1.x, uniform_low(d1)), __fadd_rn(x1.y, uniform_high(d1)));
#endif
        const u32 q0 = quantise(x0.x, x0.y, saturated0);
        const u32 q1 = quantise(x1.x, x1.y, saturated1);
        jones[(long long)k * SPECTRA_PER_HEAP] = __byte_perm(q0, q1, 0x5410);
    }
    if (saturated0) {
        atomicAdd(&stats[batch].saturated[0], u64(saturated0));
    }
    if (saturated1) {
        atomicAdd(&stats[batch].saturated[1], u64(saturated1));
    }
}
