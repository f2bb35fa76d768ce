// Decode, PFB FIR, and the first half of the transform of an oversampled bank, as pfb_fft.cu has it, for up to 32 taps: one block makes mid
// for TILE columns n2 and `run` successive groups, so that each sample is decoded once, and rows are read once.
// Grid (N2/TILE, runs), and one layer per transform.
//
// Spectra are COLUMN_HOP rows n1 apart, less than the N1 of a row of samples. A thread has the last TAPS rows of its columns in registers, and makes
// of them, row by row, every spectrum whose window ends in that row of its columns: one or more. What changes from spectrum to spectrum is where in the
// window the columns are, and with it their weights, which are in shared memory: in all, those of the block's own columns. Threads of different rows n1
// are at different spectra, but no further apart than the spectra of two rows. Time tells a spectrum's columns, so that the thread whose columns are n1 rows
// behind the first spectrum's begin leaves them in row n1 + rotation of the transform, which every spectrum of the run has for them.
//
// Warp specialisation: some warps filter, and transform.cuh has the others, which transform.
#include "geometry.cuh"
#include "transform.cuh"

constexpr int COLUMN_HOP = N1 / OVER * UNDER;
static_assert(OVER > 1 && N1 % OVER == 0, "a hop is whole rows n1");
static_assert(OVER <= 4 * UNDER && TAPS <= RING, "what threads make in a row is of two groups; its window is in the ring");

// Barrier of the threads that filter.
enum { FILTER = 6 };

// Weights of WIDTH adjacent columns, four at a time: EACH taps, each of which has its columns.
constexpr int EACH = 4 / WIDTH, FOURS = (TAPS + EACH - 1) / EACH;

// Row of a spectrum's last tap, counted from that of the first spectrum's, in columns that are `behind` rows n1 behind the first one's begin.
__device__ __forceinline__ constexpr int row_of(int spectrum, int behind) { return (spectrum * COLUMN_HOP + N1 - 1 - behind) / N1; }

// The spectrum that counts a sample for power: the last one that has it in its last tap.
__device__ __forceinline__ constexpr int counted_by(int row, int behind) { return (row * N1 + behind) / COLUMN_HOP; }

#if BASEBAND

// The power is that of the digitiser's samples, which are not here.
struct HopPower {
    __device__ __forceinline__ HopPower(BatchStats *, const Run &, int) {}
    __device__ __forceinline__ void begin(int) {}
    __device__ __forceinline__ void add(const Rows &, const Values &, const float2 (&)[WIDTH], int) {}
    __device__ __forceinline__ void end() {}
    __device__ __forceinline__ void finish() {}
};

#else

// Whether the spectra of RING rows are of two batches at most.
constexpr bool LONG_BATCHES = SPECTRA_PER_HEAP > RING * N1 / COLUMN_HOP + 1;

// The power of a run's spectra. Threads may be at spectra of two batches. What counts for which is chosen by values: arrays that are chosen would be
// in local memory.
struct HopPower : Power {
    const Run &run;
    int behind;
    int next;     // first spectrum of the next batch
    u64 ahead[2]; // of that one
    bool plain;   // whether all that threads add until the end counts, and is of the batch
    float2 squares;

    __device__ __forceinline__ HopPower(BatchStats *stats, const Run &run, int behind)
        : Power{stats, (run.group * GROUP + run.first) / SPECTRA_PER_HEAP, {0, 0}}, run(run), behind(behind),
          next((batch + 1) * SPECTRA_PER_HEAP - run.group * GROUP), ahead{0, 0} {}

    __device__ __forceinline__ void next_batch() {
        add_together();
        batch += 1;
        next += SPECTRA_PER_HEAP;
        sum[0] = ahead[0];
        sum[1] = ahead[1];
        ahead[0] = ahead[1] = 0;
    }

    // Of rows first .. first + RING - 1.
    __device__ __forceinline__ void begin(int first) {
        if (counted_by(first, 0) >= next && next < run.end) {
            next_batch();
        }
        plain = NARROW && counted_by(first, 0) >= run.first && counted_by(first + RING - 1, N1 - 1) < min(run.end, next);
        squares = make_float2(0.f, 0.f);
    }

    __device__ __forceinline__ void add(const Rows &rows, const Values &values, const float2 (&x)[WIDTH], int row) {
        if (NARROW && plain) {
#pragma unroll
            for (int c = 0; c < WIDTH; c++) {
                squares.x = fmaf(x[c].x, x[c].x, squares.x);
                squares.y = fmaf(x[c].y, x[c].y, squares.y);
            }
            return;
        }
        // Rare, but for wide samples.
        if (!LONG_BATCHES && counted_by(row, 0) >= next && next < run.end) {
            next_batch();
        }
        const int s = counted_by(row, behind);
        if (s >= run.first && s < run.end) {
            u64 squares[2] = {0, 0};
            rows.square(values, squares);
#pragma unroll
            for (int pol = 0; pol < 2; pol++) {
                sum[pol] += s < next ? squares[pol] : 0;
                ahead[pol] += s < next ? 0 : squares[pol];
            }
        }
    }

    __device__ __forceinline__ void end() {
        if (NARROW && plain) {
            sum[0] += u32(squares.x);
            sum[1] += u32(squares.y);
        }
    }

    __device__ __forceinline__ void finish() {
        if (next < run.end) {
            next_batch();
        }
        add_together();
    }
};

#endif

// Copies the weights of the block's columns, (four, row n1, c / WIDTH).
__device__ __forceinline__ void copy_weights(float4 *to, const float *__restrict__ weights) {
    for (int i = threadIdx.x; i < FOURS * FILTER_THREADS; i += FILTER_THREADS) {
        const int pair = i % FILTER_THREADS, first = i / FILTER_THREADS * EACH;
        const float *from = weights + pair / (TILE / WIDTH) * N2 + blockIdx.x * TILE + pair % (TILE / WIDTH) * WIDTH;
        float w[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int tap = first + j / WIDTH;
            w[j] = tap < TAPS ? __ldg(from + tap * N + j % WIDTH) : 0.f;
        }
        to[i] = make_float4(w[0], w[1], w[2], w[3]);
    }
}

// Makes the spectrum of WIDTH columns whose last row is in slot i.
__device__ __forceinline__ void make(int i, const float4 *weights, const float2 (&x)[RING][WIDTH], float2 (&y)[WIDTH]) {
#pragma unroll
    for (int c = 0; c < WIDTH; c++) {
        y[c] = make_float2(0.f, 0.f);
    }
#pragma unroll
    for (int four = 0; four < FOURS; four++) {
        const float4 w = weights[four * FILTER_THREADS];
        const float of[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int tap = four * EACH + j / WIDTH, c = j % WIDTH;
            if (tap < TAPS) {
                const float2 from = x[(i - (TAPS - 1) + tap + RING) % RING][c];
                y[c].x = fmaf(of[j], from.x, y[c].x);
                y[c].y = fmaf(of[j], from.y, y[c].y);
            }
        }
    }
}

__device__ __forceinline__ void filter(float2 *z, u32 *raw, float4 *table, const Input &input, const float *weights, BatchStats *stats, const Run &run) {
    const int behind = threadIdx.x / (TILE / WIDTH), c0 = threadIdx.x % (TILE / WIDTH) * WIDTH;
    const int n1 = (behind + input.rotation / N2) % N1;
    Rows rows(input, run, raw, behind, c0);
    // As in pfb_fft_run.
    auto copy = [&](int i) {
        rows.copy(i % DEPTH, i);
        if ((i + 1) % BATCH == 0) {
            commit_copies();
        }
    };
    auto load_behind = [&](int i) {
        copy(i + AHEAD * BATCH);
        if ((i + 1) % BATCH == 0) {
            rows.wait_for<AHEAD - 1>();
        }
        return rows.load((i + 1) % DEPTH);
    };
    copy_weights(table, weights);
    wait(FILTER, FILTER_THREADS);
    if constexpr (BASEBAND) {
        wait_for_previous();
    }
#pragma unroll
    for (int i = 0; i < AHEAD * BATCH; i++) {
        copy(i);
    }
    rows.wait_for<AHEAD - 1>();
    Values next = rows.load(0);
    constexpr int LEAD = TAPS - 1;
    float2 x[RING][WIDTH];
#pragma unroll
    for (int i = 0; i < LEAD; i++) {
        const Values values = next;
        next = load_behind(i);
#pragma unroll
        for (int c = 0; c < WIDTH; c++) {
            x[i][c] = rows.number(values, c);
        }
    }
    wait_for_previous();
    HopPower power(stats, run, behind);
    const int spectra = run.groups * GROUP, end = row_of(spectra - 1, 0) + 1;
    // The next spectrum of this thread, and how far behind its begin the columns are.
    int s = 0, within = behind;
    // Next groups to begin and to end, and when: the first and the last thread's row.
    int begun = 0, begins = 0, ended = 0, ends = row_of(GROUP - 1, 0);
    float2 *at = z + place(n1, c0);
    table += c0 / WIDTH;
#pragma unroll 1
    for (int first = 0; first < end; first += RING) {
        power.begin(first);
#pragma unroll
        for (int i = 0; i < RING; i++) {
            if (first + i >= end) {
                break;
            }
            if (first + i == begins && begun < run.groups) {
                wait(EMPTY + (begun & 1), ALL_THREADS);
                begun += 1;
                begins = row_of(begun * GROUP, N1 - 1);
            }
            const int last = (i + LEAD) % RING;
            const Values values = next;
            next = load_behind(i + LEAD);
#pragma unroll
            for (int c = 0; c < WIDTH; c++) {
                x[last][c] = rows.number(values, c);
            }
            power.add(rows, values, x[last], first + i);
            bool more;
            do {
                float2 y[WIDTH];
                make(last, table + within * (TILE / WIDTH), x, y);
                float2 *to = at + (s / GROUP & 1) * BUFFER + s % GROUP;
                if (s < spectra) {
#pragma unroll
                    for (int c = 0; c < WIDTH; c++) {
                        to[place(0, c)] = y[c];
                    }
                }
                s += 1;
                // The next spectrum's window ends in the same row, or in the next one.
                more = within >= COLUMN_HOP;
                within += more ? -COLUMN_HOP : N1 - COLUMN_HOP;
            } while (more);
            __syncwarp();
            if (first + i == ends) {
                arrive(FULL + (ended & 1), ALL_THREADS);
                ended += 1;
                ends = row_of(ended * GROUP + GROUP - 1, 0);
            }
        }
        rows.advance(RING);
        power.end();
    }
    wait_for_copies<0>();
    power.finish();
}

extern "C" __global__ void __launch_bounds__(FRONT_THREADS, FRONT_BLOCKS)
pfb_fft_hops(const Element *__restrict__ pol0, const Element *__restrict__ pol1, u64 offset0, u64 offset1,
             const float *__restrict__ weights, const float2 *__restrict__ roots, char *__restrict__ mid,
             BatchStats *stats, SpectraRange range, int groups) {
    extern __shared__ float2 between[]; // roots, then (buffer, column, spectrum), then rows of samples, then weights
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
        const long long lead = (long long)(run.group * GROUP - range.first) * HOP;
        const Input input = {{pol0, pol1}, {(long long)offset0 + lead, (long long)offset1 + lead}, range.input_ring, rotation(range.number + run.group * GROUP)};
        u32 *raw = reinterpret_cast<u32 *>(z + 2 * BUFFER);
        filter(z, raw, reinterpret_cast<float4 *>(raw + DEPTH * RAW_WORDS), input, weights, stats, run);
    } else {
        fewer_registers();
        transform(z, between, roots, mid + blockIdx.z * TRANSFORM_BYTES, range.ring, range.number, run);
    }
}
