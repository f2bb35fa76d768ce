// Decoding and the PFB FIR of WIDTH columns for a group of spectra, and the digitiser's power.
#pragma once
#include "columns.cuh"
#include "unpack.cuh"

constexpr int ROWS = TAPS + GROUP - 1;
// Rows that are loaded ahead of their use.
constexpr int AHEAD = 2;
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
};

// WIDTH adjacent columns of both polarisations, from the first row of the group on.
struct Columns {
    const u32 *word[2];
    Place place[2];
    const float *weights;

    __device__ __forceinline__ uint2 load(int pol, int row) const {
        const u32 *at = word[pol] + row * (N * BITS / 32);
        return make_uint2(__ldg(at), __ldg(at + 1));
    }

    // A group within one batch: without a branch, loads are far ahead of their use.
    __device__ __forceinline__ void whole(float2 (&y)[WIDTH][GROUP], GroupPower &power) const {
        uint2 words[AHEAD + 1][2];
        float w[TAPS][WIDTH];
        float2 squares = {};
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            words[i][0] = load(0, i);
            words[i][1] = load(1, i);
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            if (i < TAPS) {
                load_weights(weights + i * N, w[i]);
            }
            if (i + AHEAD < ROWS) {
                words[(i + AHEAD) % (AHEAD + 1)][0] = load(0, i + AHEAD);
                words[(i + AHEAD) % (AHEAD + 1)][1] = load(1, i + AHEAD);
            }
            const uint2 *now = words[i % (AHEAD + 1)];
#pragma unroll
            for (int c = 0; c < WIDTH; c++) {
                const float x0 = place[0].number(now[0], c), x1 = place[1].number(now[1], c);
#pragma unroll
                for (int g = 0; g < GROUP; g++) {
                    if (i >= g && i - g < TAPS) {
                        y[c][g].x = fmaf(w[i - g][c], x0, y[c][g].x);
                        y[c][g].y = fmaf(w[i - g][c], x1, y[c][g].y);
                    }
                }
                // The last taps of successive spectra tile the time axis.
                if (i < TAPS - 1) {
                    continue;
                }
                if constexpr (NARROW) {
                    squares.x = fmaf(x0, x0, squares.x);
                    squares.y = fmaf(x1, x1, squares.y);
                } else {
                    const int n0 = place[0].integer(now[0], c), n1 = place[1].integer(now[1], c);
                    power.sum[0] += u32(n0 * n0);
                    power.sum[1] += u32(n1 * n1);
                }
            }
        }
        power.sum[0] += u32(squares.x);
        power.sum[1] += u32(squares.y);
    }

    // Any group, and any number of taps.
    __device__ __forceinline__ void part(float2 (&y)[WIDTH][GROUP], GroupPower &power, int valid, int valid_end) const {
        // Weights of taps i, i - 1, ..., rotating. Where there is no such tap, the weight is zero.
        float w[GROUP][WIDTH] = {};
        power.enter(power.batch_of(valid));
#pragma unroll 1
        for (int outer = 0; outer < ROWS; outer += GROUP) {
#pragma unroll
            for (int inner = 0; inner < GROUP; inner++) {
                const int i = outer + inner;
                // Rows that no valid spectrum needs may not exist; any other will do.
                const int from = min(max(i, valid), valid_end + TAPS - 2);
                const uint2 now[2] = {load(0, from), load(1, from)};
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
                    const float x0 = place[0].number(now[0], c), x1 = place[1].number(now[1], c);
#pragma unroll
                    for (int g = 0; g < GROUP; g++) {
                        const float weight = w[(inner - g + GROUP) % GROUP][c];
                        y[c][g].x = fmaf(weight, x0, y[c][g].x);
                        y[c][g].y = fmaf(weight, x1, y[c][g].y);
                    }
                    if (counts) {
                        const int n0 = place[0].integer(now[0], c), n1 = place[1].integer(now[1], c);
                        power.sum[0] += u32(n0 * n0);
                        power.sum[1] += u32(n1 * n1);
                    }
                }
            }
        }
    }
};

// WIDTH columns through the filter, for all spectra of the group.
__device__ __forceinline__ void filter(const Columns &samples, bool whole, int valid, int valid_end, float2 (&y)[WIDTH][GROUP],
                                       GroupPower &power) {
    // More taps would make the code too long.
    if constexpr (TAPS <= 32) {
        if (whole) {
            samples.whole(y, power);
            return;
        }
    }
    samples.part(y, power, valid, valid_end);
}
