// Rows of the input on their way through shared memory, AHEAD batches of BATCH rows ahead of their use, and the digitiser's power in them.
#pragma once
#include "columns.cuh"
#include "copy.cuh"
#include "input.cuh"

constexpr int FILTER_THREADS = COLUMNS / WIDTH;
// Spectra under way at a time; a loop over as many rows brings every accumulator back to its place.
constexpr int RING = TAPS > 16 ? 32 : 16;
// Rows are copied in batches, AHEAD of them while one is filtered.
constexpr int AHEAD = 3, BATCH = DEPTH / (AHEAD + 1);
static_assert(DEPTH % (AHEAD + 1) == 0 && RING % DEPTH == 0, "slots come back to their places, too");

// What a block does: spectra first .. end of its groups, counted from the first group's first.
struct Run {
    int group, groups;
    int first, end;
};

// Which rows some spectrum needs: others may not exist. Rows are counted from a place that moves on.
struct Needed {
    int first, last;

#if OVER > 1
    // Spectra are COLUMN_HOP rows n1 apart; row n1 is so far behind the first one's begin.
    static constexpr int COLUMN_HOP = N1 / OVER * UNDER;

    __device__ __forceinline__ Needed(const Run &run, int n1)
        : first((run.first * COLUMN_HOP + N1 - 1 - n1) / N1), last(((run.end - 1) * COLUMN_HOP + TAPS * N1 - 1 - n1) / N1) {}
    __device__ __forceinline__ bool operator()(int row) const { return row >= first && row <= last; }
#else
    __device__ __forceinline__ Needed(const Run &run, int) : first(run.first), last(run.end + TAPS - 2) {}
    // The first row of a run is one of its first group's.
    __device__ __forceinline__ bool operator()(int row) const { return (row >= GROUP - 1 || row >= first) && row <= last; }
#endif

    __device__ __forceinline__ void advance(int rows) {
        first -= rows;
        last -= rows;
    }
};

#if BASEBAND

constexpr int RAW_WORDS = 2 * COLUMNS;

// Each thread copies its own columns.
struct Rows {
    const float2 *numbers;
    u32 first, mask; // of this thread's first column in the row that is counted as 0; numbers in the ring, less one
    float2 *own;     // in slot 0; columns are FILTER_THREADS apart
    Needed needed;

    __device__ __forceinline__ Rows(const Input &input, const Run &run, u32 *raw, int n1, int c0)
        : numbers(input.numbers()), first(input.first() + n1 * N2 + blockIdx.x * TILE + c0), mask(input.ring - 1),
          own(reinterpret_cast<float2 *>(raw) + threadIdx.x), needed(run, n1) {}

    __device__ __forceinline__ void copy(int slot, int row) const {
        const u32 at = first + row * N;
        if (needed(row)) {
#pragma unroll
            for (int c = 0; c < WIDTH; c++) {
                copy_async<8>(own + slot * COLUMNS + c * FILTER_THREADS, numbers + (at + c & mask));
            }
        }
    }

    __device__ __forceinline__ void advance(int rows) {
        first += rows * N;
        needed.advance(rows);
    }

    // Waits until all but BATCHES are there.
    template <int BATCHES> __device__ __forceinline__ void wait_for() const { wait_for_copies<BATCHES>(); }

    __device__ __forceinline__ Values load(int slot) const {
        Values values;
#pragma unroll
        for (int c = 0; c < WIDTH; c++) {
            values.x[c] = own[slot * COLUMNS + c * FILTER_THREADS];
        }
        return values;
    }

    __device__ __forceinline__ float2 number(const Values &values, int c) const { return values.x[c]; }
};

// The power is that of the digitiser's samples, which are not here.
struct RunPower {
    __device__ __forceinline__ RunPower(BatchStats *, const Run &) {}
    __device__ __forceinline__ void begin(int) {}
    __device__ __forceinline__ void add(float2) {}
    __device__ __forceinline__ void add(const Rows &, const Values &) {}
    __device__ __forceinline__ void end(const Rows &, int) {}
    __device__ __forceinline__ void add_together() {}
};

#else

constexpr long long ROW_BYTES = (long long)N * BITS / 8;
constexpr int WARP_ROWS = 32 * WIDTH / TILE; // rows n1 of a warp
constexpr int PIECES = (127 + TILE * BITS + 127) / 128;
static_assert(WARP_ROWS >= 1 && N % 64 == 0 && WARP_ROWS * 2 * PIECES <= 32, "one piece per lane");
// Words between the rows n1 of a warp, such that they lie in different banks.
constexpr int PITCH = 8 * PIECES + (TILE == 8 ? 4 : TILE == 32 ? 12 : 0);
constexpr int WARP_WORDS = WARP_ROWS * PITCH;
constexpr int RAW_WORDS = FILTER_THREADS / 32 * WARP_WORDS;
// Sums of squares of a thread over RING rows are exact in single precision.
constexpr bool NARROW = (long long)WIDTH * RING << (2 * (BITS - 1)) <= 1 << 24;

// Each warp copies its own, in pieces of 16 bytes.
struct Rows {
    const u32 *word[2]; // of this thread's columns, in slot 0
    Place place[2];
    const u32 *packed[2]; // the same in row 0, where the input is
    const char *from;     // this lane's piece of the row that is counted as 0
    u32 *to;              // where it goes in slot 0
    Needed needed;

    // The row n1 that this lane copies a piece of.
    static __device__ __forceinline__ int piece_row() { return threadIdx.x / 32 * WARP_ROWS + threadIdx.x % 32 / (32 / WARP_ROWS); }

    // Of row n1 and the block's columns.
    static __device__ __forceinline__ long long bit(const Input &input, int pol, int n1) {
        return (input.offset[pol] + n1 * N2 + blockIdx.x * TILE) * BITS;
    }

    static __device__ __forceinline__ int place_of(const Input &input, int pol, int n1, int c0) {
        return int(bit(input, pol, n1) & 127) + c0 * BITS;
    }

    static __device__ __forceinline__ u32 *own(u32 *raw) { return raw + threadIdx.x / 32 * WARP_WORDS; }

    static __device__ __forceinline__ const u32 *word_of(const Input &input, u32 *raw, int pol, int n1, int c0) {
        return own(raw) + n1 % WARP_ROWS * PITCH + pol * PIECES * 4 + (place_of(input, pol, n1, c0) >> 5);
    }

    static __device__ __forceinline__ const u32 *packed_of(const Input &input, int pol, int n1, int c0) {
        return input.pol[pol] + ((bit(input, pol, n1) + c0 * BITS) >> 5);
    }

    __device__ __forceinline__ Rows(const Input &input, const Run &run, u32 *raw, int n1, int c0)
        : word{word_of(input, raw, 0, n1, c0), word_of(input, raw, 1, n1, c0)},
          place{Place(place_of(input, 0, n1, c0) & 31), Place(place_of(input, 1, n1, c0) & 31)},
          packed{packed_of(input, 0, n1, c0), packed_of(input, 1, n1, c0)}, from(nullptr), to(nullptr), needed(run, piece_row()) {
        // Lane (row n1 of the warp, polarisation, piece) copies that piece. A quarter of a warp, which asks for memory at a time, has whole rows.
        constexpr int EACH = 16 / WARP_ROWS;
        const int lane = threadIdx.x % 32, row = lane / (2 * EACH), pol = lane / EACH % 2, piece = lane % EACH;
        const long long bit = Rows::bit(input, pol, threadIdx.x / 32 * WARP_ROWS + row);
        // The last piece has some of the columns only where these begin late in the first.
        if (piece * 128 < int(bit & 127) + TILE * BITS) {
            const char *base = reinterpret_cast<const char *>(pol == 0 ? input.pol[0] : input.pol[1]);
            from = base + (bit >> 7) * 16 + piece * 16;
            to = own(raw) + row * PITCH + (pol * PIECES + piece) * 4;
        } else {
            needed.last = -1;
        }
    }

    __device__ __forceinline__ void copy(int slot, int row) const {
        if (needed(row)) {
            copy_async<16>(to + slot * RAW_WORDS, from + row * ROW_BYTES);
        }
    }

    __device__ __forceinline__ void advance(int rows) {
        from += rows * ROW_BYTES;
        needed.advance(rows);
    }

    // Waits until all but BATCHES are there, and for the warp, which is then done with the one before.
    template <int BATCHES> __device__ __forceinline__ void wait_for() const {
        wait_for_copies<BATCHES>();
        __syncwarp();
    }

    __device__ __forceinline__ Values load(int slot) const {
        Values values;
#pragma unroll
        for (int pol = 0; pol < 2; pol++) {
            const u32 *at = word[pol] + slot * RAW_WORDS;
            values.words[pol] = make_uint2(at[0], at[1]);
        }
        return values;
    }

    __device__ __forceinline__ float2 number(const Values &values, int c) const {
        return make_float2(place[0].number(values.words[0], c), place[1].number(values.words[1], c));
    }

    // Adds squares exactly.
    __device__ __forceinline__ void square(const Values &values, u64 (&sum)[2]) const {
#pragma unroll
        for (int c = 0; c < WIDTH; c++) {
            const int n0 = place[0].integer(values.words[0], c), n1 = place[1].integer(values.words[1], c);
            sum[0] += (long long)n0 * n0;
            sum[1] += (long long)n1 * n1;
        }
    }

    // A row from where the input is.
    __device__ __forceinline__ Values fetch(int row) const {
        const long long word = row * (ROW_BYTES / 4);
        Values values;
#pragma unroll
        for (int pol = 0; pol < 2; pol++) {
            values.words[pol] = make_uint2(__ldg(packed[pol] + word), __ldg(packed[pol] + word + 1));
        }
        return values;
    }
};

// The power of a run's spectra, which all threads go through together, RING at a time.
struct RunPower : Power {
    const Run &run;
    int next; // first spectrum of the next batch
    float2 squares;
    u64 exact[2];

    __device__ __forceinline__ RunPower(BatchStats *stats, const Run &run)
        : Power{stats, (run.group * GROUP + run.first) / SPECTRA_PER_HEAP, {0, 0}}, run(run),
          next((batch + 1) * SPECTRA_PER_HEAP - run.group * GROUP) {}

    __device__ __forceinline__ void next_batch() {
        add_together();
        batch += 1;
        next += SPECTRA_PER_HEAP;
    }

    __device__ __forceinline__ void begin(int first) {
        if (first == next) {
            next_batch();
        }
        squares = make_float2(0.f, 0.f);
        exact[0] = exact[1] = 0;
    }

    // Adds a number of a last tap, where that is exact.
    __device__ __forceinline__ void add(float2 x) {
        if constexpr (NARROW) {
            squares.x = fmaf(x.x, x.x, squares.x);
            squares.y = fmaf(x.y, x.y, squares.y);
        }
    }

    // Adds a row of last taps, where it was not.
    __device__ __forceinline__ void add(const Rows &rows, const Values &values) {
        if constexpr (!NARROW) {
            rows.square(values, exact);
        }
    }

    __device__ __forceinline__ void end(const Rows &rows, int first) {
        if (first >= run.first && first + RING <= run.end && first + RING <= next) {
            sum[0] += NARROW ? u32(squares.x) : exact[0];
            sum[1] += NARROW ? u32(squares.y) : exact[1];
            return;
        }
        // Rare, but for heaps of fewer than RING spectra.
#pragma unroll 1
        for (int s = max(first, run.first); s < min(first + RING, run.end); s++) {
            if (s == next) {
                next_batch();
            }
            rows.square(rows.fetch(s + TAPS - 1), sum);
        }
    }
};

#endif
