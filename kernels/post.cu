// Everything behind a library's transform: the two polarisations are separated, corrected, quantised, counted, and
// stored as (batch, channel, spectrum, pol, re/im).
//
// z is (spectrum, k), in natural order. A block has TILE channels of GROUP spectra, reads along the channels and
// writes along the spectra. Grid (CHANNELS/TILE, groups).
#include "geometry.cuh"
#include "correct.cuh"

constexpr int PAIRS = TILE / 2;
static_assert(CHANNELS % TILE == 0, "whole blocks");

extern "C" __global__ void __launch_bounds__(BACK_THREADS, BACK_BLOCKS)
post(const float2 *__restrict__ z, const float4 *__restrict__ gains, const float4 *__restrict__ fine,
     u32 *__restrict__ out, BatchStats *stats, Stretch stretch, Stream stream) {
    __shared__ u32 tile[2][PAIRS][GROUP + 1]; // (odd channel, pair of channels, spectrum)
    const int group = stretch.first_group + blockIdx.y;
    const int first = blockIdx.x * TILE;
    const float2 *in = z + (long long)(group & (stretch.ring - 1)) * N * GROUP;

    // Two channels share a run of the dither's generator.
    for (int item = threadIdx.x; item < PAIRS * GROUP; item += BACK_THREADS) {
        const int pair = item % PAIRS, g = item / PAIRS;
        const int spectrum = group * GROUP + g;
        if (spectrum >= stream.limit) {
            break;
        }
        const float2 *bins = in + (long long)g * N;
        const int k = first + 2 * pair;
        const float4 a = __ldg(reinterpret_cast<const float4 *>(bins + k));
        const float2 b0 = __ldg(bins + (k == 0 ? 0 : N - k)), b1 = __ldg(bins + N - k - 1);
        const Correction correction(__ldg(&fine[spectrum]), stream, spectrum);
        const uint4 draws = correction.draws(k / 2);
        u32 saturated[2] = {};
        tile[0][pair][g] = correction.jones(make_float2(a.x, a.y), b0, __ldg(&gains[k]), k, draws.x, draws.y, saturated);
        tile[1][pair][g] =
            correction.jones(make_float2(a.z, a.w), b1, __ldg(&gains[k + 1]), k + 1, draws.z, draws.w, saturated);
        count(stats[spectrum / SPECTRA_PER_HEAP], saturated);
    }
    __syncthreads();
    for (int item = threadIdx.x; item < TILE * GROUP; item += BACK_THREADS) {
        const int odd = item / GROUP / PAIRS, pair = item / GROUP % PAIRS, g = item % GROUP;
        const int spectrum = group * GROUP + g;
        if (spectrum < stream.limit) {
            const long long channel = (long long)(spectrum / SPECTRA_PER_HEAP) * CHANNELS + first + 2 * pair + odd;
            out[channel * SPECTRA_PER_HEAP + spectrum % SPECTRA_PER_HEAP] = tile[odd][pair][g];
        }
    }
}
