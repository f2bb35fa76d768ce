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
    const float cre = fminf(fmaxf(re, -127.f), 127.f);
    const float cim = fminf(fmaxf(im, -127.f), 127.f);
    // The mantissa of a number at 1.5 * 2^23 counts integers; the low byte is the two's complement.
    u32 qre = __float_as_uint(cre + 12582912.f);
    u32 qim = __float_as_uint(cim + 12582912.f);
    if (!(cre == re && cim == im)) {
        saturated += 1;
        qre = re == re ? qre : 0;
        qim = im == im ? qim : 0;
    }
    return __byte_perm(qre, qim, 0x0040);
}

// e^(i*pi*halves) times x.
__device__ __forceinline__ float2 turn(float2 x, float halves) {
    halves -= 2.f * rintf(0.5f * halves);
    float s, c;
    __sincosf(3.14159265358979324f * halves, &s, &c);
    return multiply(x, make_float2(c, s));
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
    // Residual delay and phase of both polarisations, as half turns per channel and half turns.
    const float4 at = __ldg(&fine[spectrum]);
    const float slope0 = at.x * (-1.f / CHANNELS), slope1 = at.y * (-1.f / CHANNELS);
    const float phase0 = at.z * 0.318309886183790672f, phase1 = at.w * 0.318309886183790672f;
#if DITHER
    const u64 t = stream.start + u64(spectrum) * N;
#endif
    u32 saturated0 = 0, saturated1 = 0;
    // Half of each row is below the Nyquist channel.
    for (int item = threadIdx.x / GROUP; item < N2; item += BACK_THREADS / GROUP) {
        const int row = item % 2, k2 = item / 2;
        const int k = (row == 0 ? row0 : row1) + N1 * k2;
        const int partner = pair == 0 ? row : 1 - row;
        const int mirror = pair == 0 && row == 0 ? (N2 - k2) % N2 : N2 - 1 - k2;
        const float2 a = z[(row * N2 + position<N2>(k2)) * GROUP + g];
        const float2 b = z[(partner * N2 + position<N2>(mirror)) * GROUP + g];
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
