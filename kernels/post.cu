// Everything behind a library's transform: the two polarisations are separated, corrected, quantised, counted, and
// stored as (batch, channel, spectrum, pol, re/im).
//
// z is (group, transform, spectrum, k), in natural order. A block has TILE/2 channels below half of the band and those half a band above,
// for GROUP spectra, reads along the channels and writes along the spectra. Grid (CHANNELS/TILE, groups).
#include "geometry.cuh"
#include "correct.cuh"
#include "statistics.cuh"

constexpr int PAIRS = TILE / 2;
static_assert(CHANNELS % TILE == 0, "whole blocks");

extern "C" __global__ void __launch_bounds__(BACK_THREADS, BACK_BLOCKS)
post(const float2 *__restrict__ z, const float4 *__restrict__ gains, const float4 *__restrict__ fine,
     Quantised *__restrict__ out, BatchStats *stats, SpectraRange range, DitherOrigin origin
#if STATISTICS
     ,
     Statistics statistics
#endif
) {
    __shared__ Quantised tile[2][PAIRS][GROUP + 1]; // (half of the band, channel, spectrum)
    const int group = range.first_group + blockIdx.y;
    const int first = blockIdx.x * PAIRS;
    const float2 *in = z + (long long)(group & (range.ring - 1)) * SERIES * GROUP * N;

#if STATISTICS
    // A thread's items have the same pair of channels.
    static_assert(BACK_THREADS % PAIRS == 0, "whole rows of channels");
    float sums[2][SUMS] = {};
#endif
    for (int item = threadIdx.x; item < PAIRS * GROUP; item += BACK_THREADS) {
        const int c = item % PAIRS, g = item / PAIRS;
        const int spectrum = group * GROUP + g;
        if (spectrum >= range.end) {
            break;
        }
        const float2 *bins = in + (long long)g * N;
#if STATISTICS
        float4 delay = __ldg(&fine[spectrum]);
        // A delay that is not a number marks a spectrum that is not to count.
        const bool counts = delay.x == delay.x;
        delay = counts ? delay : make_float4(0, 0, 0, 0);
        const Correction correction(delay, origin, spectrum);
#else
        const Correction correction(__ldg(&fine[spectrum]), origin, spectrum);
#endif
        auto corrected = [&](int k) {
            // Narrowband begins with negative frequencies.
            const float2 *own = bins + (BASEBAND ? (k + N - CHANNELS / 2) % N : k);
            const float2 *other = BASEBAND ? own + GROUP * N : bins + (N - k) % N;
            return Jones(__ldg(own), __ldg(other), __ldg(&gains[k]), correction.angle(0, k), correction.angle(1, k));
        };
        const int k = first + c;
        Jones low = corrected(k), high = corrected(k + CHANNELS / 2);
#if STATISTICS
        if (counts) {
            low.add_to(sums[0]);
            high.add_to(sums[1]);
        }
#endif
#if DITHER
        const Draws4 draws = correction.draws(k, false);
        low.dither(draws.of(0));
        high.dither(draws.of(2));
#endif
        u32 clipped[2] = {};
#if STATISTICS
        clip(low, high, clipped, counts ? statistics.clipped + 2 * k : nullptr);
#else
        clip(low, high, clipped);
#endif
        tile[0][c][g] = low.quantised();
        tile[1][c][g] = high.quantised();
        count(stats[spectrum / SPECTRA_PER_HEAP], clipped);
    }
#if STATISTICS
    float *to = reinterpret_cast<float *>(statistics.sums) + SUMS * (first + threadIdx.x % PAIRS);
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        atomicAdd(to + i, sums[0][i]);
        atomicAdd(to + SUMS * (CHANNELS / 2) + i, sums[1][i]);
    }
#endif
    __syncthreads();
    for (int item = threadIdx.x; item < TILE * GROUP; item += BACK_THREADS) {
        const int half = item / GROUP / PAIRS, c = item / GROUP % PAIRS, g = item % GROUP;
        const int spectrum = group * GROUP + g;
        if (spectrum < range.end) {
            const long long channel = (long long)(spectrum / SPECTRA_PER_HEAP) * CHANNELS + first + c + half * (CHANNELS / 2);
            out[channel * SPECTRA_PER_HEAP + spectrum % SPECTRA_PER_HEAP] = tile[half][c][g];
        }
    }
}
