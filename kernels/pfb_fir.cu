// Decode and PFB FIR in front of a library's transform: packed samples to y, in natural order.
//
// y's real part is polarisation 0, its imaginary part polarisation 1; for narrowband, it is one polarisation.
// A thread makes WIDTH columns for GROUP spectra. Grid (N/WIDTH/FRONT_THREADS, groups), and one layer per transform. y is
// (group, transform, spectrum, q).
#include "geometry.cuh"
#include "filter.cuh"

static_assert(N / WIDTH % FRONT_THREADS == 0, "no thread is idle");

extern "C" __global__ void __launch_bounds__(FRONT_THREADS, FRONT_BLOCKS)
pfb_fir(const Element *__restrict__ pol0, const Element *__restrict__ pol1, u64 offset0, u64 offset1,
        const float *__restrict__ weights, float2 *__restrict__ out, BatchStats *stats, SpectraRange range) {
    const int group = range.first_group + blockIdx.y;
    const int q = (blockIdx.x * FRONT_THREADS + threadIdx.x) * WIDTH;
    // Spectra of the group that this range has, and its first row, as in pfb_fft.
    const int valid = max(range.first - group * GROUP, 0);
    const int valid_end = min(range.end - group * GROUP, GROUP);
    const long long lead = (long long)(group * GROUP - range.first) * HOP;

    GroupPower power(stats, group, valid);
    const bool whole = valid == 0 && valid_end == GROUP && power.batch_of(GROUP - 1) == power.batch;
#if OVER > 1
    const Input input = {{pol0, pol1}, {(long long)offset0 + lead, (long long)offset1 + lead}, range.input_ring, rotation(range.number + group * GROUP)};
#else
    const Input input = {{pol0, pol1}, {(long long)offset0 + lead, (long long)offset1 + lead}, range.input_ring};
#endif
    float2 y[WIDTH][GROUP] = {};
    filter(input, weights, q, whole, valid, valid_end, y, power);
    power.add_together();

    const long long first = ((long long)(group & (range.ring - 1)) * SERIES + blockIdx.z) * GROUP;
    float2 *spectra = out + first * N + q;
#pragma unroll
    for (int g = 0; g < GROUP; g++) {
        if (g >= valid && g < valid_end) {
#pragma unroll
            for (int c = 0; c < WIDTH; c++) {
                spectra[(long long)g * N + c] = y[c][g];
            }
        }
    }
}
