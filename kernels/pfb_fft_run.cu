// Decode, PFB FIR, and the first half of the transform, as pfb_fft.cu has it, for up to 32 taps: one block makes mid
// for TILE columns n2 and `run` successive groups, so that each sample is decoded once, and rows are read once.
// Grid (N2/TILE, runs), and one layer per transform.
//
// Warp specialisation: some warps filter, and transform.cuh has the others, which transform.
#include "geometry.cuh"
#include "transform.cuh"

static_assert(OVER == 1, "pfb_fft_hops has the others");
static_assert(TAPS <= RING && RING % GROUP == 0, "a spectrum's accumulator is free when its successor in the ring begins");

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
    Rows rows(input, run, raw, n1, c0);
    // Sends for row i; it takes the place of one that all lanes had loaded when they last waited.
    auto copy = [&](int i) {
        rows.copy(i % DEPTH, i);
        if ((i + 1) % BATCH == 0) {
            commit_copies();
        }
    };
    // Row i + 1, while row i is filtered. Where a batch ends, the next one must be there.
    auto load_behind = [&](int i) {
        copy(i + AHEAD * BATCH);
        if ((i + 1) % BATCH == 0) {
            rows.wait_for<AHEAD - 1>();
        }
        return rows.load((i + 1) % DEPTH);
    };
    Filter f;
    const int q = n1 * N2 + blockIdx.x * TILE + c0;
#pragma unroll
    for (int t = 0; t < TAPS; t++) {
        load_weights(weights + q + t * N, f.w[t]);
    }
    // Numbers of narrowband come from another kernel, samples do not.
    if constexpr (BASEBAND) {
        wait_for_previous();
    }
#pragma unroll
    for (int i = 0; i < AHEAD * BATCH; i++) {
        copy(i);
    }
    rows.wait_for<AHEAD - 1>();
    Values next = rows.load(0);
    // The taps of the first spectrum but the last.
#pragma unroll
    for (int i = 0; i < TAPS - 1; i++) {
        const Values values = next;
        next = load_behind(i);
#pragma unroll
        for (int c = 0; c < WIDTH; c++) {
            f.add(rows.number(values, c), c, i, i + 1);
        }
    }
    wait_for_previous();
    RunPower power(stats, run);
    float2 *at = z + place(n1, c0);
#pragma unroll 1
    for (int first = 0; first < run.groups * GROUP; first += RING) {
        power.begin(first);
        float2 *to = at + (RING == GROUP ? (first / GROUP & 1) * BUFFER : 0);
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
            next = load_behind(i + LEAD);
#pragma unroll
            for (int c = 0; c < WIDTH; c++) {
                const float2 x = rows.number(values, c);
                f.add(x, c, (i + LEAD) % RING, TAPS);
                power.add(x);
            }
            power.add(rows, values);
#pragma unroll
            for (int c = 0; c < WIDTH; c++) {
                to[(RING == GROUP ? 0 : (i / GROUP & 1) * BUFFER) + place(0, c) + i % GROUP] = f.y[i][c];
            }
            if (i % GROUP == GROUP - 1) {
                arrive(FULL + buffer, ALL_THREADS);
            }
        }
        rows.advance(RING);
        power.end(rows, first);
    }
    wait_for_copies<0>();
    power.add_together();
}

extern "C" __global__ void __launch_bounds__(FRONT_THREADS, FRONT_BLOCKS)
pfb_fft_run(const Element *__restrict__ pol0, const Element *__restrict__ pol1, u64 offset0, u64 offset1,
            const float *__restrict__ weights, const float2 *__restrict__ roots, char *__restrict__ mid,
            BatchStats *stats, SpectraRange range, int groups) {
    extern __shared__ float2 between[]; // roots, then (buffer, column, spectrum), then rows of samples
    float2 *z = between + COLUMNS + N1;
    let_next_begin();
    Run run;
    run.group = range.first_group + blockIdx.y * groups;
    run.groups = min(groups, (range.end + GROUP - 1) / GROUP - run.group);
    run.first = max(range.first - run.group * GROUP, 0);
    run.end = min(range.end - run.group * GROUP, run.groups * GROUP);
    if (threadIdx.x < FILTER_THREADS) {
        more_registers();
        // The offsets are those of the range's first spectrum; rows count from the run's first.
        const long long lead = (long long)(run.group * GROUP - range.first) * N;
        const Input input = {{pol0, pol1}, {(long long)offset0 + lead, (long long)offset1 + lead}, range.input_ring};
        filter(z, reinterpret_cast<u32 *>(z + 2 * BUFFER), input, weights, stats, run);
    } else {
        fewer_registers();
        transform(z, between, roots, mid + blockIdx.z * TRANSFORM_BYTES, range.ring, range.number, run);
    }
}
