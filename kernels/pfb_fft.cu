// Decode, PFB FIR, and the first half of the transform.
//
// With n = N2*n1 + n2 and k = k1 + N1*k2 (docs/decisions/0001)
//
//   Z[k] = sum over n2 of e^(-2*pi*i*n2*k2/N2) * mid[k1][n2]
//   mid[k1][n2] = e^(-2*pi*i*n2*k1/N) * sum over n1 of y[N2*n1 + n2]*e^(-2*pi*i*n1*k1/N1)
//
// y's real part is polarisation 0, its imaginary part polarisation 1; for narrowband, it is one polarisation. One block makes mid
// for TILE columns n2 and GROUP spectra; grid (N2/TILE, groups), and one layer per transform. mid.cuh has the layout of mid.
#include "geometry.cuh"
#include "fft.cuh"
#include "filter.cuh"
#include "mid.cuh"
#include "overlap.cuh"

// Of more than 32 rows n1, a thread filters FOLD at N1/FOLD from each other, and transforms these in registers.
constexpr int FOLD = N1 > 32 ? N1 / 32 : 1;
constexpr int LAST = N1 / FOLD;
constexpr int ITEMS = COLUMNS / FOLD / WIDTH;
static_assert(ITEMS % FRONT_THREADS == 0, "no thread is idle");

extern "C" __global__ void __launch_bounds__(FRONT_THREADS, FRONT_BLOCKS)
pfb_fft(const Element *__restrict__ pol0, const Element *__restrict__ pol1, u64 offset0, u64 offset1,
        const float *__restrict__ weights, const float2 *__restrict__ roots, char *__restrict__ mid,
        BatchStats *stats, SpectraRange range) {
    extern __shared__ float2 z[]; // (column, spectrum)
    const int group = range.first_group + blockIdx.y;
    const int column = blockIdx.x * TILE;
    // Spectra of the group that this range has. Their windows are rows valid to valid_end + TAPS - 2.
    const int valid = max(range.first - group * GROUP, 0);
    const int valid_end = min(range.end - group * GROUP, GROUP);
    // The offsets are those of the range's first spectrum; rows count from the group's first.
    const long long lead = (long long)(group * GROUP - range.first) * HOP;
#if OVER > 1
    const Input input = {{pol0, pol1}, {(long long)offset0 + lead, (long long)offset1 + lead}, range.input_ring, rotation(range.number + group * GROUP)};
#else
    const Input input = {{pol0, pol1}, {(long long)offset0 + lead, (long long)offset1 + lead}, range.input_ring};
#endif

    let_next_begin();
    wait_for_previous();
    GroupPower power(stats, group, valid);
    const bool whole = valid == 0 && valid_end == GROUP && power.batch_of(GROUP - 1) == power.batch;

    // The filter is long, and unrolling it gains nothing.
#pragma unroll 1
    for (int item = threadIdx.x; item < ITEMS; item += FRONT_THREADS) {
        float2 y[FOLD][WIDTH][GROUP] = {};
        const int row = item / (TILE / WIDTH), c0 = item % (TILE / WIDTH) * WIDTH;
#pragma unroll
        for (int fold = 0; fold < FOLD; fold++) {
            filter(input, weights, (row + fold * LAST) * N2 + column + c0, whole, valid, valid_end, y[fold], power);
        }
#pragma unroll
        for (int g = 0; g < GROUP; g++) {
#pragma unroll
            for (int c = 0; c < WIDTH; c++) {
                float2 v[FOLD];
#pragma unroll
                for (int fold = 0; fold < FOLD; fold++) {
                    v[fold] = y[fold][c][g];
                }
                Dft<FOLD>::run(v);
#pragma unroll
                for (int d = 0; d < FOLD; d++) {
                    if (d > 0) {
                        v[d] = multiply(v[d], __ldg(&roots[row * d * N2]));
                    }
                    z[place(row + d * LAST, c0 + c) + g] = v[d];
                }
            }
        }
    }
    power.add_together();
    __syncthreads();

    char *out = mid + (group & (range.ring - 1)) * GROUP_BYTES + blockIdx.z * TRANSFORM_BYTES;
#pragma unroll 1
    for (int item = threadIdx.x; item < TILE * GROUP * FOLD; item += FRONT_THREADS) {
        const int g = item % GROUP, c = item / GROUP % TILE, d = item / (GROUP * TILE);
        float2 v[LAST];
#pragma unroll
        for (int j = 0; j < LAST; j++) {
            v[j] = z[place(d * LAST + j, c) + g];
        }
        Dft<LAST>::run(v);
        if (g >= valid && g < valid_end) {
            const int n2 = column + c;
            const MidNumber to(out + granule(d, n2, g), (n2 * BACK_GROUP + place_in_part(g)) % 32);
            const Draws draws(Draws::place(range.number + group * GROUP + g, blockIdx.z * N2 + n2));
#pragma unroll
            for (int j = 0; j < LAST; j++) {
                const int k1 = d + FOLD * j;
                to.store(granule(j * FOLD, 0, 0), multiply(v[j], __ldg(&roots[root_of(k1, n2)])), draws, j >= LAST / 2);
            }
        }
    }
}
