// Decode, PFB FIR, and the first half of the transform, as pfb_fft.cu has it, for up to 16 taps: one block makes mid
// for TILE columns n2 and `run` successive groups, so that each sample is decoded once, and rows are read once.
// Grid (N2/TILE, runs).
//
// The first FILTER_THREADS threads filter, WIDTH columns each; the others transform what these leave in one of two buffers.
#include "geometry.cuh"
#include "barrier.cuh"
#include "columns.cuh"
#include "copy.cuh"
#include "fft.cuh"
#include "mid.cuh"
#include "unpack.cuh"

constexpr int FILTER_THREADS = COLUMNS / WIDTH;
constexpr int ALL_THREADS = FRONT_THREADS;
constexpr int FFT_THREADS = ALL_THREADS - FILTER_THREADS;
static_assert(FILTER_THREADS % 32 == 0 && FFT_THREADS > 0 && FFT_THREADS % 32 == 0, "whole warps");
// Spectra under way at a time; a loop over as many rows brings every accumulator back to its place.
constexpr int RING = 16;
static_assert(TAPS <= RING && RING % GROUP == 0, "a spectrum's accumulator is free when its successor in the ring begins");
// Rows of samples wait in shared memory: each warp copies its own there, in pieces of 16 bytes, DEPTH - 1 ahead of their use.
constexpr long long ROW_BYTES = (long long)N * BITS / 8;
constexpr int WARP_ROWS = 32 * WIDTH / TILE; // rows n1 of a warp
constexpr int PIECES = (127 + TILE * BITS + 127) / 128;
static_assert(WARP_ROWS >= 1 && RING % DEPTH == 0 && N % 64 == 0 && WARP_ROWS * 2 * PIECES <= 32, "one piece per lane");
// Words between the rows n1 of a warp, such that they lie in different banks.
constexpr int PITCH = 8 * PIECES + (TILE == 8 ? 4 : TILE == 32 ? 12 : 0);
constexpr int WARP_WORDS = WARP_ROWS * PITCH;
constexpr int RAW_WORDS = FILTER_THREADS / 32 * WARP_WORDS;
// Sums of squares of a thread over RING rows are exact in single precision.
constexpr bool NARROW = (long long)WIDTH * RING << (2 * (BITS - 1)) <= 1 << 24;
// Radices of the transform's passes.
constexpr int SECOND = N1 > 32 ? 8 : 1;
constexpr int FIRST = N1 / SECOND;
static_assert(FIRST <= 32, "two passes");

// Barriers: a buffer is full, or empty; one among the threads that transform.
enum { FULL = 1, EMPTY = 3, TRANSFORM = 5 };

// What a block does: spectra first .. end of its groups, counted from the first group's first.
struct Run {
    int group, groups;
    int first, end;
};

// The power of a run's spectra, which all threads go through together.
struct RunPower : Power {
    int next; // first spectrum of the next batch

    __device__ __forceinline__ RunPower(BatchStats *stats, const Run &run)
        : Power{stats, (run.group * GROUP + run.first) / SPECTRA_PER_HEAP, {0, 0}},
          next((batch + 1) * SPECTRA_PER_HEAP - run.group * GROUP) {}

    __device__ __forceinline__ void next_batch() {
        add_together();
        batch += 1;
        next += SPECTRA_PER_HEAP;
    }
};

// The rows that a warp copies.
struct Rows {
    const char *from; // this lane's piece of row 0, or null
    u32 *to;          // where it goes in slot 0
    int first, last;  // rows that some spectrum needs: others may not exist, and any other will do

    __device__ __forceinline__ void copy(int slot, int row) const {
        if (from) {
            copy_async<16>(to + slot * RAW_WORDS, from + min(max(row, first), last) * ROW_BYTES);
        }
        commit_copies();
    }

    // Waits for the oldest row under way, and for the warp, which is then done with the one before.
    __device__ __forceinline__ void wait_oldest() const {
        wait_for_copies<DEPTH - 3>();
        __syncwarp();
    }
};

// WIDTH adjacent columns of both polarisations.
struct Filter {
    const u32 *word[2]; // in slot 0
    Place place[2];
    float w[TAPS][WIDTH];
    float2 y[RING][WIDTH];
    uint2 words[2]; // of the next row

    __device__ __forceinline__ void load(int slot) {
#pragma unroll
        for (int pol = 0; pol < 2; pol++) {
            const u32 *at = word[pol] + slot * RAW_WORDS;
            words[pol] = make_uint2(at[0], at[1]);
        }
    }

    // Adds a row to the spectra that have it as one of their taps 0 .. taps - 1; newest is the one that it is tap 0 of.
    __device__ __forceinline__ void row(uint2 words0, uint2 words1, int newest, int taps, float2 *squares) {
#pragma unroll
        for (int c = 0; c < WIDTH; c++) {
            const float x0 = place[0].number(words0, c), x1 = place[1].number(words1, c);
#pragma unroll
            for (int t = 0; t < TAPS; t++) {
                float2 &sum = y[(newest - t + RING) % RING][c];
                if (t == 0) {
                    sum = make_float2(w[0][c] * x0, w[0][c] * x1);
                } else if (t < taps) {
                    sum.x = fmaf(w[t][c], x0, sum.x);
                    sum.y = fmaf(w[t][c], x1, sum.y);
                }
            }
            if (squares) {
                squares->x = fmaf(x0, x0, squares->x);
                squares->y = fmaf(x1, x1, squares->y);
            }
        }
    }

    // The squares of a row exactly.
    __device__ __forceinline__ void square(uint2 words0, uint2 words1, u64 (&sum)[2]) const {
#pragma unroll
        for (int c = 0; c < WIDTH; c++) {
            const int n0 = place[0].integer(words0, c), n1 = place[1].integer(words1, c);
            sum[0] += (long long)n0 * n0;
            sum[1] += (long long)n1 * n1;
        }
    }
};

__device__ __forceinline__ void filter(float2 *z, u32 *raw, const u32 *pol0, const u32 *pol1, long long offset0, long long offset1,
                                       const float *weights, BatchStats *stats, const Run &run) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int n1 = threadIdx.x / (TILE / WIDTH), c0 = threadIdx.x % (TILE / WIDTH) * WIDTH;
    u32 *own = raw + warp * WARP_WORDS;

    // Lane (row n1 of the warp, polarisation, piece) copies that piece.
    const int copy_row = lane / (2 * PIECES), copy_pol = lane / PIECES % 2, piece = lane % PIECES;
    auto bit_of = [&](int pol, int row) { return ((pol == 0 ? offset0 : offset1) + row * N2 + blockIdx.x * TILE) * BITS; };
    auto base_of = [&](int pol) { return reinterpret_cast<const char *>(pol == 0 ? pol0 : pol1); };
    Rows rows = {nullptr, nullptr, run.first, run.end + TAPS - 2};
    if (copy_row < WARP_ROWS) {
        rows.from = base_of(copy_pol) + (bit_of(copy_pol, warp * WARP_ROWS + copy_row) >> 7) * 16 + piece * 16;
        rows.to = own + copy_row * PITCH + (copy_pol * PIECES + piece) * 4;
    }
#pragma unroll
    for (int i = 0; i < DEPTH - 1; i++) {
        rows.copy(i, i);
    }

    auto at_bit = [&](int pol) { return int(bit_of(pol, n1) & 127) + c0 * BITS; };
    auto word_of = [&](int pol) { return own + n1 % WARP_ROWS * PITCH + pol * PIECES * 4 + (at_bit(pol) >> 5); };
    Filter f = {{word_of(0), word_of(1)}, {Place(at_bit(0) & 31), Place(at_bit(1) & 31)}};
    const int q = n1 * N2 + blockIdx.x * TILE + c0;
#pragma unroll
    for (int t = 0; t < TAPS; t++) {
        load_weights(weights + q + t * N, f.w[t]);
    }
    wait_for_copies<DEPTH - 2>();
    __syncwarp();
    f.load(0);
    // The taps of the first spectrum but the last.
#pragma unroll
    for (int i = 0; i < TAPS - 1; i++) {
        const uint2 words0 = f.words[0], words1 = f.words[1];
        rows.wait_oldest();
        f.load((i + 1) % DEPTH);
        rows.copy((i + DEPTH - 1) % DEPTH, i + DEPTH - 1);
        f.row(words0, words1, i, i + 1, nullptr);
    }
    RunPower power(stats, run);
    float2 *at = z + slot(n1, c0) * STRIDE;
#pragma unroll 1
    for (int first = 0; first < run.groups * GROUP; first += RING) {
        if (first == power.next) {
            power.next_batch();
        }
        // Rows of this turn that count, and within one batch.
        const bool whole = first >= run.first && first + RING <= run.end && first + RING <= power.next;
        float2 squares = {0.f, 0.f};
        u64 exact[2] = {0, 0};
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
            const uint2 words0 = f.words[0], words1 = f.words[1];
            rows.wait_oldest();
            f.load((i + LEAD + 1) % DEPTH);
            rows.copy((i + LEAD + DEPTH - 1) % DEPTH, first + i + LEAD + DEPTH - 1);
            f.row(words0, words1, (i + LEAD) % RING, TAPS, NARROW ? &squares : nullptr);
            if constexpr (!NARROW) {
                f.square(words0, words1, exact);
            }
#pragma unroll
            for (int c = 0; c < WIDTH; c++) {
                to[((RING == GROUP ? 0 : (i / GROUP & 1) * COLUMNS) + c * (COLUMNS / WIDTH)) * STRIDE + i % GROUP] = f.y[i][c];
            }
            if (i % GROUP == GROUP - 1) {
                arrive(FULL + buffer, ALL_THREADS);
            }
        }
        if (whole) {
            power.sum[0] += NARROW ? u32(squares.x) : exact[0];
            power.sum[1] += NARROW ? u32(squares.y) : exact[1];
            continue;
        }
        // Rare.
        const u32 *row0 = pol0 + ((bit_of(0, n1) + c0 * BITS) >> 5), *row1 = pol1 + ((bit_of(1, n1) + c0 * BITS) >> 5);
#pragma unroll 1
        for (int s = max(first, run.first); s < min(first + RING, run.end); s++) {
            if (s == power.next) {
                power.next_batch();
            }
            const long long word = (s + TAPS - 1) * (ROW_BYTES / 4);
            f.square(make_uint2(__ldg(row0 + word), __ldg(row0 + word + 1)), make_uint2(__ldg(row1 + word), __ldg(row1 + word + 1)), power.sum);
        }
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
pfb_fft_run(const u32 *__restrict__ pol0, const u32 *__restrict__ pol1, u64 offset0, u64 offset1,
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
        filter(z, reinterpret_cast<u32 *>(between + COLUMNS + N1), pol0, pol1, (long long)offset0 + lead, (long long)offset1 + lead, weights, stats, run);
    } else {
        transform(z, between, roots, mid, stretch.ring, run);
    }
}
