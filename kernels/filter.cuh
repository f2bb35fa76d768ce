// Decoding and the PFB FIR of WIDTH columns for a group of spectra, and the digitiser's power.
#pragma once
#include "columns.cuh"
#include "input.cuh"

constexpr int ROWS = TAPS + GROUP - 1;
// Rows that are loaded ahead of their use.
constexpr int AHEAD = 2;

#if BASEBAND

// WIDTH adjacent columns, from the first row of the group on.
struct Source {
    const float2 *numbers;
    u32 first, mask; // of the first column in row 0; numbers in the ring, less one

    __device__ __forceinline__ Source(const Input &input, int q)
        : numbers(input.numbers()), first(input.first() + q), mask(input.ring - 1) {}

    __device__ __forceinline__ Values load(int row) const {
        Values values;
#pragma unroll
        for (int c = 0; c < WIDTH; c++) {
            values.x[c] = __ldg(numbers + (first + row * N + c & mask));
        }
        return values;
    }

    __device__ __forceinline__ float2 number(const Values &values, int c) const { return values.x[c]; }
};

// The power is that of the digitiser's samples, which are not here.
struct GroupPower {
    static constexpr int batch = 0;

    __device__ __forceinline__ GroupPower(BatchStats *, int, int) {}
    __device__ __forceinline__ int batch_of(int) const { return 0; }
    __device__ __forceinline__ void enter(int) {}
    __device__ __forceinline__ void add_together() {}
    __device__ __forceinline__ void add(const Source &, const Values &, int) {}

    struct Sum {
        __device__ __forceinline__ void add(GroupPower &, const Source &, const Values &, int, float2) {}
        __device__ __forceinline__ void end(GroupPower &) {}
    };
};

#else

// WIDTH adjacent columns of both polarisations, from the first row of the group on.
struct Source {
    const u32 *word[2];
    Place place[2];

    static __device__ __forceinline__ long long bit(const Input &input, int pol, int q) { return (input.offset[pol] + q) * BITS; }

    __device__ __forceinline__ Source(const Input &input, int q)
        : word{input.pol[0] + (bit(input, 0, q) >> 5), input.pol[1] + (bit(input, 1, q) >> 5)},
          place{Place(bit(input, 0, q) & 31), Place(bit(input, 1, q) & 31)} {}

    __device__ __forceinline__ Values load(int row) const {
        Values values;
#pragma unroll
        for (int pol = 0; pol < 2; pol++) {
            const u32 *at = word[pol] + row * (N * BITS / 32);
            values.words[pol] = make_uint2(__ldg(at), __ldg(at + 1));
        }
        return values;
    }

    __device__ __forceinline__ float2 number(const Values &values, int c) const {
        return make_float2(place[0].number(values.words[0], c), place[1].number(values.words[1], c));
    }

    __device__ __forceinline__ int integer(const Values &values, int pol, int c) const { return place[pol].integer(values.words[pol], c); }
};

// Sums of squares of a thread's part of a whole group are exact in single precision.
constexpr bool NARROW = (long long)WIDTH * GROUP << (2 * (BITS - 1)) <= 1 << 24;

// The power of a group's spectra, which may be of several batches.
struct GroupPower : Power {
    int group;

    __device__ __forceinline__ GroupPower(BatchStats *stats, int group, int first) : Power{stats, 0, {0, 0}}, group(group) {
        batch = batch_of(first);
    }

    __device__ __forceinline__ int batch_of(int g) const { return (group * GROUP + g) / SPECTRA_PER_HEAP; }

    // Where the group has the end of a batch, which is rare.
    __device__ __forceinline__ void enter(int next) {
        if (next != batch) {
            add_alone();
            batch = next;
        }
    }

    // Adds column c of a last tap.
    __device__ __forceinline__ void add(const Source &source, const Values &values, int c) {
        const int n0 = source.integer(values, 0, c), n1 = source.integer(values, 1, c);
        sum[0] += u32(n0 * n0);
        sum[1] += u32(n1 * n1);
    }

    // The same for a whole group, where it is exact in single precision.
    struct Sum {
        float2 squares = {};

        __device__ __forceinline__ void add(GroupPower &power, const Source &source, const Values &values, int c, float2 x) {
            if constexpr (NARROW) {
                squares.x = fmaf(x.x, x.x, squares.x);
                squares.y = fmaf(x.y, x.y, squares.y);
            } else {
                power.add(source, values, c);
            }
        }

        __device__ __forceinline__ void end(GroupPower &power) {
            power.sum[0] += u32(squares.x);
            power.sum[1] += u32(squares.y);
        }
    };
};

#endif

#if OVER > 1

// Rows that a group's windows reach, at most.
constexpr int GROUP_ROWS = ((GROUP - 1) * HOP + N - 1) / N + TAPS;

// WIDTH columns from column q on through the filter of an oversampled bank, for all spectra of the group. A sample is decoded once; its weight differs
// from spectrum to spectrum by where in the window it is.
__device__ __forceinline__ void filter(const Input &input, const float *weights, int q, bool, int valid, int valid_end,
                                       float2 (&y)[WIDTH][GROUP], GroupPower &power) {
    // From the first sample of the group's first spectrum to the first of this column.
    const int behind = (q - input.rotation) & N - 1;
    const Source source(input, behind);
    const int begin = valid * HOP, end = (valid_end - 1) * HOP + TAPS * N;
#pragma unroll 1
    for (int row = 0; row < GROUP_ROWS; row++) {
        const int at = behind + row * N;
        // What no valid spectrum needs may not exist.
        if (at < begin || at >= end) {
            continue;
        }
        const Values now = source.load(row);
        float2 x[WIDTH];
#pragma unroll
        for (int c = 0; c < WIDTH; c++) {
            x[c] = source.number(now, c);
        }
#pragma unroll
        for (int g = 0; g < GROUP; g++) {
            const int tap = at - g * HOP;
            if (u32(tap) < u32(TAPS * N)) {
                float w[WIDTH];
                load_weights(weights + tap, w);
#pragma unroll
                for (int c = 0; c < WIDTH; c++) {
                    y[c][g].x = fmaf(w[c], x[c].x, y[c][g].x);
                    y[c][g].y = fmaf(w[c], x[c].y, y[c][g].y);
                }
            }
        }
        // As many samples as spectra are apart, from the begin of the last tap on, tile the time axis.
        const int last = at - (TAPS - 1) * N, g_last = last / HOP;
        if (last >= 0 && g_last >= valid && g_last < valid_end) {
            power.enter(power.batch_of(g_last));
#pragma unroll
            for (int c = 0; c < WIDTH; c++) {
                power.add(source, now, c);
            }
        }
    }
    // All threads are to leave in the same batch.
    power.enter(power.batch_of(valid_end - 1));
}

#else

// A group within one batch: without a branch, loads are far ahead of their use.
__device__ __forceinline__ void filter_whole(const Source &source, const float *weights, float2 (&y)[WIDTH][GROUP], GroupPower &power) {
    Values values[AHEAD + 1];
    float w[TAPS][WIDTH];
    GroupPower::Sum sum;
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        values[i] = source.load(i);
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        if (i < TAPS) {
            load_weights(weights + i * N, w[i]);
        }
        if (i + AHEAD < ROWS) {
            values[(i + AHEAD) % (AHEAD + 1)] = source.load(i + AHEAD);
        }
        const Values &now = values[i % (AHEAD + 1)];
#pragma unroll
        for (int c = 0; c < WIDTH; c++) {
            const float2 x = source.number(now, c);
#pragma unroll
            for (int g = 0; g < GROUP; g++) {
                if (i >= g && i - g < TAPS) {
                    y[c][g].x = fmaf(w[i - g][c], x.x, y[c][g].x);
                    y[c][g].y = fmaf(w[i - g][c], x.y, y[c][g].y);
                }
            }
            // The last taps of successive spectra tile the time axis.
            if (i >= TAPS - 1) {
                sum.add(power, source, now, c, x);
            }
        }
    }
    sum.end(power);
}

// Any group, and any number of taps.
__device__ __forceinline__ void filter_part(const Source &source, const float *weights, float2 (&y)[WIDTH][GROUP], GroupPower &power,
                                            int valid, int valid_end) {
    // Weights of taps i, i - 1, ..., rotating. Where there is no such tap, the weight is zero.
    float w[GROUP][WIDTH] = {};
    power.enter(power.batch_of(valid));
#pragma unroll 1
    for (int outer = 0; outer < ROWS; outer += GROUP) {
#pragma unroll
        for (int inner = 0; inner < GROUP; inner++) {
            const int i = outer + inner;
            // Rows that no valid spectrum needs may not exist; any other will do.
            const Values now = source.load(min(max(i, valid), valid_end + TAPS - 2));
            const int g_last = i - (TAPS - 1);
            const bool counts = g_last >= valid && g_last < valid_end;
            if (counts) {
                power.enter(power.batch_of(g_last));
            }
            if (i < TAPS) {
                load_weights(weights + i * N, w[inner]);
            }
#pragma unroll
            for (int c = 0; c < WIDTH; c++) {
                w[inner][c] = i < TAPS ? w[inner][c] : 0.f;
                const float2 x = source.number(now, c);
#pragma unroll
                for (int g = 0; g < GROUP; g++) {
                    const float weight = w[(inner - g + GROUP) % GROUP][c];
                    y[c][g].x = fmaf(weight, x.x, y[c][g].x);
                    y[c][g].y = fmaf(weight, x.y, y[c][g].y);
                }
                if (counts) {
                    power.add(source, now, c);
                }
            }
        }
    }
}

// WIDTH columns from column q on through the filter, for all spectra of the group.
__device__ __forceinline__ void filter(const Input &input, const float *weights, int q, bool whole, int valid, int valid_end,
                                       float2 (&y)[WIDTH][GROUP], GroupPower &power) {
    const Source source(input, q);
    // More taps would make the code too long.
    if constexpr (TAPS <= 32) {
        if (whole) {
            filter_whole(source, weights + q, y, power);
            return;
        }
    }
    filter_part(source, weights + q, y, power, valid, valid_end);
}

#endif
