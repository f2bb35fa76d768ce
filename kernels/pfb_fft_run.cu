// Decode, PFB FIR, and the first half of the transform, as pfb_fft.cu has it, for up to 16 taps: one block makes mid
// for TILE columns n2 and `run` successive groups, so that each sample is decoded once, and rows are read once.
// Grid (N2/TILE, runs), and one layer per transform.
//
// The first FILTER_THREADS threads filter, WIDTH columns each; the others transform what these leave in one of two buffers.
#include "geometry.cuh"
#include "barrier.cuh"
#include "fft.cuh"
#include "mid.cuh"
#include "rows.cuh"

constexpr int ALL_THREADS = FRONT_THREADS;
constexpr int FFT_THREADS = ALL_THREADS - FILTER_THREADS;
static_assert(FILTER_THREADS % 32 == 0 && FFT_THREADS > 0 && FFT_THREADS % 32 == 0, "whole warps");
static_assert(TAPS <= RING && RING % GROUP == 0, "a spectrum's accumulator is free when its successor in the ring begins");
// Radices of the transform's passes.
constexpr int SECOND = N1 > 32 ? 8 : 1;
constexpr int FIRST = N1 / SECOND;
static_assert(FIRST <= 32, "two passes");

// Barriers: a buffer is full, or empty; one among the threads that transform.
enum { FULL = 1, EMPTY = 3, TRANSFORM = 5 };

// WIDTH adjacent columns.
struct Filter {
    float w[TAPS][WIDTH];
    float2 y[RING][WIDTH];

    // Adds column c of a row to the spectra that have it as one of their taps 0 .. taps - 1; newest is the one that it is tap 0 of.
    __device__ __forceinline__ void add(float2 x, int c, int newest, int taps) {
#pragma unroll
        for (int t = 0; t < TAPS; t++) {
            float2 &sum = y[(newest - t + RING) % RING][c];
            if (t == 0) {
                sum = make_float2(w[0][c] * x.x, w[0][c] * x.y);
            } else if (t < taps) {
                sum.x = fmaf(w[t][c], x.x, sum.x);
                sum.y = fmaf(w[t][c], x.y, sum.y);
            }
        }
    }
};

__device__ __forceinline__ void filter(float2 *z, u32 *raw, const Input &input, const float *weights, BatchStats *stats, const Run &run) {
    const int n1 = threadIdx.x / (TILE / WIDTH), c0 = threadIdx.x % (TILE / WIDTH) * WIDTH;
    const Rows rows(input, run, raw, n1, c0);
#pragma unroll
    for (int i = 0; i < DEPTH - 1; i++) {
        rows.copy(i, i);
    }
    Filter f;
    const int q = n1 * N2 + blockIdx.x * TILE + c0;
#pragma unroll
    for (int t = 0; t < TAPS; t++) {
        load_weights(weights + q + t * N, f.w[t]);
    }
    rows.wait_for<DEPTH - 2>();
    Values next = rows.load(0);
    // The taps of the first spectrum but the last.
#pragma unroll
    for (int i = 0; i < TAPS - 1; i++) {
        const Values values = next;
        rows.wait_for<DEPTH - 3>();
        next = rows.load((i + 1) % DEPTH);
        rows.copy((i + DEPTH - 1) % DEPTH, i + DEPTH - 1);
#pragma unroll
        for (int c = 0; c < WIDTH; c++) {
            f.add(rows.number(values, c), c, i, i + 1);
        }
    }
    RunPower power(stats, run);
    float2 *at = z + slot(n1, c0) * STRIDE;
#pragma unroll 1
    for (int first = 0; first < run.groups * GROUP; first += RING) {
        power.begin(first);
        float2 *to = at + (RING == GROUP ? (first / GROUP & 1) * COLUMNS * STRIDE : 0);
#pragma unroll
        for (int i = 0; i < RING; i++) {
            const int buffer = RING == GROUP ? first / GROUP & 1 : i / GROUP & 1;
            if (i % GROUP == 0) {
                if (i > 0 && first + i >= run.groups * GROUP) {
                    break;
                }
                wait(EMPTY + buffer, ALL_THREADS);
            }
            // The row of the last tap of spectrum first + i.
            constexpr int LEAD = TAPS - 1;
            const Values values = next;
            rows.wait_for<DEPTH - 3>();
            next = rows.load((i + LEAD + 1) % DEPTH);
            rows.copy((i + LEAD + DEPTH - 1) % DEPTH, first + i + LEAD + DEPTH - 1);
#pragma unroll
            for (int c = 0; c < WIDTH; c++) {
                const float2 x = rows.number(values, c);
                f.add(x, c, (i + LEAD) % RING, TAPS);
                power.add(x);
            }
            power.add(rows, values);
#pragma unroll
            for (int c = 0; c < WIDTH; c++) {
                to[((RING == GROUP ? 0 : (i / GROUP & 1) * COLUMNS) + c * (COLUMNS / WIDTH)) * STRIDE + i % GROUP] = f.y[i][c];
            }
            if (i % GROUP == GROUP - 1) {
                arrive(FULL + buffer, ALL_THREADS);
            }
        }
        power.end(rows, first);
    }
    wait_for_copies<0>();
    power.add_together();
}

__device__ __forceinline__ void transform(float2 *z, float2 *between, const float2 *__restrict__ roots, char *__restrict__ mid, int ring, const Run &run) {
    const int thread = threadIdx.x - FILTER_THREADS;
    // Roots of this block's columns, (k1, column), and of the first pass.
    for (int i = thread; i < COLUMNS; i += FFT_THREADS) {
        between[i] = __ldg(&roots[i / TILE * (blockIdx.x * TILE + i % TILE)]);
    }
    float2 *first_pass = between + COLUMNS;
    for (int i = thread; SECOND > 1 && i < N1; i += FFT_THREADS) {
        first_pass[i] = __ldg(&roots[i % SECOND * (i / SECOND) * N2]);
    }
    wait(TRANSFORM, FFT_THREADS);
#pragma unroll 1
    for (int i = 0; i < min(run.groups, 2); i++) {
        arrive(EMPTY + i, ALL_THREADS);
    }
#pragma unroll 1
    for (int i = 0; i < run.groups; i++) {
        float2 *from = z + (i & 1) * COLUMNS * STRIDE;
        wait(FULL + (i & 1), ALL_THREADS);
        if constexpr (SECOND > 1) {
#pragma unroll 1
            for (int item = thread; item < TILE * GROUP * SECOND; item += FFT_THREADS) {
                const int g = item % GROUP, c = item / GROUP % TILE, p = item / (GROUP * TILE);
                float2 v[FIRST];
#pragma unroll
                for (int j = 0; j < FIRST; j++) {
                    v[j] = from[slot(p + j * SECOND, c) * STRIDE + g];
                }
                Dft<FIRST>::run(v);
#pragma unroll
                for (int d = 0; d < FIRST; d++) {
                    from[slot(p + d * SECOND, c) * STRIDE + g] = d == 0 ? v[d] : multiply(v[d], first_pass[p + d * SECOND]);
                }
            }
            wait(TRANSFORM, FFT_THREADS);
        }
        constexpr int LAST = SECOND > 1 ? SECOND : FIRST, LINES = N1 / LAST;
        char *out = mid + ((run.group + i) & (ring - 1)) * GROUP_BYTES;
#pragma unroll 1
        for (int item = thread; item < TILE * GROUP * LINES; item += FFT_THREADS) {
            const int g = item % GROUP, c = item / GROUP % TILE, d = item / (GROUP * TILE);
            float2 v[LAST];
#pragma unroll
            for (int j = 0; j < LAST; j++) {
                v[j] = from[slot(d * LAST + j, c) * STRIDE + g];
            }
            Dft<LAST>::run(v);
            const int s = i * GROUP + g;
            if (s >= run.first && s < run.end) {
                // k1 = d + LINES * j
                const float2 *root = between + d * TILE + c;
                const MidColumn to(out, d, blockIdx.x * TILE + c, g);
#pragma unroll
                for (int j = 0; j < LAST; j++) {
                    to.store(j * LINES, multiply(v[j], root[j * LINES * TILE]));
                }
            }
        }
        if (i + 2 < run.groups) {
            arrive(EMPTY + (i & 1), ALL_THREADS);
        }
    }
}

extern "C" __global__ void __launch_bounds__(FRONT_THREADS, FRONT_BLOCKS)
pfb_fft_run(const Element *__restrict__ pol0, const Element *__restrict__ pol1, u64 offset0, u64 offset1,
            const float *__restrict__ weights, const float2 *__restrict__ roots, char *__restrict__ mid,
            BatchStats *stats, Stretch stretch, int groups) {
    extern __shared__ float2 z[]; // (buffer, column, spectrum), then roots, and rows of samples
    float2 *between = z + 2 * COLUMNS * STRIDE;
    Run run;
    run.group = stretch.first_group + blockIdx.y * groups;
    run.groups = min(groups, (stretch.end + GROUP - 1) / GROUP - run.group);
    run.first = max(stretch.first - run.group * GROUP, 0);
    run.end = min(stretch.end - run.group * GROUP, run.groups * GROUP);
    if (threadIdx.x < FILTER_THREADS) {
        // The offsets are those of the stretch's first spectrum; rows count from the run's first.
        const long long lead = (long long)(run.group * GROUP - stretch.first) * N;
        const Input input = {{pol0, pol1}, {(long long)offset0 + lead, (long long)offset1 + lead}, stretch.input_ring};
        filter(z, reinterpret_cast<u32 *>(between + COLUMNS + N1), input, weights, stats, run);
    } else {
        transform(z, between, roots, mid + blockIdx.z * TRANSFORM_BYTES, stretch.ring, run);
    }
}
