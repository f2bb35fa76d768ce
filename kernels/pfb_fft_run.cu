// Decode, PFB FIR, and the first half of the transform, as pfb_fft.cu has it, for up to 16 taps: one block makes mid
// for TILE columns n2 and `run` successive groups, so that each sample is decoded once, and rows are read once.
// Grid (N2/TILE, runs), and one layer per transform.
//
// The first FILTER_THREADS threads filter, WIDTH columns each; the others transform what these leave in one of two buffers.
#include "geometry.cuh"
#include "barrier.cuh"
#include "fft.cuh"
#include "mid.cuh"
#include "overlap.cuh"
#include "rows.cuh"

constexpr int ALL_THREADS = FRONT_THREADS;
constexpr int FFT_THREADS = ALL_THREADS - FILTER_THREADS;
static_assert(FILTER_THREADS % 32 == 0 && FFT_THREADS > 0 && FFT_THREADS % 32 == 0, "whole warps");
static_assert((FFT_THREADS & FFT_THREADS - 1) == 0, "a thread's later items are constants away");
static_assert(TAPS <= RING && RING % GROUP == 0, "a spectrum's accumulator is free when its successor in the ring begins");
// Radices of the transform's passes.
constexpr int SECOND = N1 > 32 ? 8 : 1;
constexpr int FIRST = N1 / SECOND;
constexpr int LAST = SECOND > 1 ? SECOND : FIRST, LINES = N1 / LAST;
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

// What one thread transforms at a time: a line of a column for a spectrum. A warp has whole granules. Sums of arguments without common bits
// give sums, so that what a thread has in later turns is a constant away from what it has in the first.
struct Item {
    int g, c, d;

    __device__ __forceinline__ constexpr explicit Item(u32 item)
        : g(spectrum_of(item / (BACK_GROUP * TILE) % PARTS, item % BACK_GROUP)), c(item / BACK_GROUP % TILE), d(item / (GROUP * TILE)) {}
};

__device__ __forceinline__ void transform(float2 *z, float2 *between, const float2 *__restrict__ roots, char *__restrict__ mid, int ring, u32 number, const Run &run) {
    const u32 thread = threadIdx.x - FILTER_THREADS;
    const Item own(thread);
    // Roots of this block's columns, (k1, column), and of the first pass.
    for (u32 i = thread; i < COLUMNS; i += FFT_THREADS) {
        between[i] = __ldg(&roots[root_of(i / TILE, blockIdx.x * TILE + i % TILE)]);
    }
    float2 *first_pass = between + COLUMNS;
    for (u32 i = thread; SECOND > 1 && i < N1; i += FFT_THREADS) {
        first_pass[i] = __ldg(&roots[i % SECOND * (i / SECOND) * N2]);
    }
    wait(TRANSFORM, FFT_THREADS);
    wait_for_previous();
#pragma unroll 1
    for (int i = 0; i < min(run.groups, 2); i++) {
        arrive(EMPTY + i, ALL_THREADS);
    }
#pragma unroll 1
    for (int i = 0; i < run.groups; i++) {
        float2 *from = z + (i & 1) * BUFFER;
        wait(FULL + (i & 1), ALL_THREADS);
        if constexpr (SECOND > 1) {
            float2 *points = from + place(own.d, own.c) + own.g;
            const float2 *root = first_pass + own.d;
#pragma unroll
            for (int turn = 0; turn < TILE * GROUP * SECOND / FFT_THREADS; turn++) {
                const Item more(turn * FFT_THREADS);
                const int at = place(more.d, more.c) + more.g;
                float2 v[FIRST];
#pragma unroll
                for (int j = 0; j < FIRST; j++) {
                    v[j] = points[at + place(j * SECOND, 0)];
                }
                Dft<FIRST>::run(v);
#pragma unroll
                for (int d = 0; d < FIRST; d++) {
                    points[at + place(d * SECOND, 0)] = d == 0 ? v[d] : multiply(v[d], root[more.d + d * SECOND]);
                }
            }
            wait(TRANSFORM, FFT_THREADS);
        }
        const float2 *points = from + place(own.d * LAST, own.c) + own.g;
        const float2 *root = between + own.d * TILE + own.c;
        const u32 drawn = Draws::place(number + (run.group + i) * GROUP + own.g, blockIdx.z * N2 + blockIdx.x * TILE + own.c);
        const MidNumber to(mid + ((run.group + i) & (ring - 1)) * GROUP_BYTES + granule(own.d, blockIdx.x * TILE + own.c, own.g), thread % 32);
#pragma unroll
        for (int turn = 0; turn < TILE * GROUP * LINES / FFT_THREADS; turn++) {
            const Item more(turn * FFT_THREADS);
            float2 v[LAST];
#pragma unroll
            for (int j = 0; j < LAST; j++) {
                v[j] = points[place(more.d * LAST, more.c) + more.g + place(j, 0)];
            }
            Dft<LAST>::run(v);
            const int s = i * GROUP + own.g + more.g;
            if (s >= run.first && s < run.end) {
                const Draws draws(drawn + Draws::place(more.g, more.c));
#pragma unroll
                for (int j = 0; j < LAST; j++) {
                    const int k1 = more.d + LINES * j;
                    to.store(granule(k1, more.c, more.g), multiply(v[j], root[k1 * TILE + more.c]), draws, j >= LAST / 2);
                }
            }
        }
        if (i + 2 < run.groups) {
            arrive(EMPTY + (i & 1), ALL_THREADS);
        }
    }
}

// Threads that filter take registers over from those that transform, in warps of four: of 128 each, if the filter is to have more.
#if FILTER_REGISTERS && defined(__CUDA_ARCH_FEAT_SM90_ALL)
static_assert(FILTER_THREADS == 256 && FFT_THREADS == 256 && FILTER_REGISTERS % 8 == 0 && FRONT_BLOCKS == 1, "two warp groups each");
__device__ __forceinline__ void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(FILTER_REGISTERS)); }
__device__ __forceinline__ void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(256 - FILTER_REGISTERS)); }
#else
__device__ __forceinline__ void more_registers() {}
__device__ __forceinline__ void fewer_registers() {}
#endif

extern "C" __global__ void __launch_bounds__(FRONT_THREADS, FRONT_BLOCKS)
pfb_fft_run(const Element *__restrict__ pol0, const Element *__restrict__ pol1, u64 offset0, u64 offset1,
            const float *__restrict__ weights, const float2 *__restrict__ roots, char *__restrict__ mid,
            BatchStats *stats, Stretch stretch, int groups) {
    extern __shared__ float2 between[]; // roots, then (buffer, column, spectrum), then rows of samples
    float2 *z = between + COLUMNS + N1;
    let_next_begin();
    Run run;
    run.group = stretch.first_group + blockIdx.y * groups;
    run.groups = min(groups, (stretch.end + GROUP - 1) / GROUP - run.group);
    run.first = max(stretch.first - run.group * GROUP, 0);
    run.end = min(stretch.end - run.group * GROUP, run.groups * GROUP);
    if (threadIdx.x < FILTER_THREADS) {
        more_registers();
        // The offsets are those of the stretch's first spectrum; rows count from the run's first.
        const long long lead = (long long)(run.group * GROUP - stretch.first) * N;
        const Input input = {{pol0, pol1}, {(long long)offset0 + lead, (long long)offset1 + lead}, stretch.input_ring};
        filter(z, reinterpret_cast<u32 *>(z + 2 * BUFFER), input, weights, stats, run);
    } else {
        fewer_registers();
        transform(z, between, roots, mid + blockIdx.z * TRANSFORM_BYTES, stretch.ring, stretch.number, run);
    }
}
