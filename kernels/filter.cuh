// Decoding and the PFB FIR of one column for a group of spectra, and the digitiser's power.
#pragma once
#include "unpack.cuh"

constexpr int ROWS = TAPS + GROUP - 1;
// Sums of squares of a whole group are exact in single precision.
constexpr bool NARROW = (long long)GROUP << (2 * (BITS - 1)) <= 1 << 24;

// Sums of squares of a thread, for one batch at a time.
struct Power {
    BatchStats *stats;
    int group, batch;
    u64 sum[2];

    __device__ __forceinline__ int batch_of(int g) const { return (group * GROUP + g) / SPECTRA_PER_HEAP; }

    // Where the group has the end of a batch: rare, so that each thread may add its own.
    __device__ __forceinline__ void enter(int next) {
        if (next != batch) {
            atomicAdd(&stats[batch].power[0], sum[0]);
            atomicAdd(&stats[batch].power[1], sum[1]);
            sum[0] = sum[1] = 0;
            batch = next;
        }
    }

    // Adds up the warp.
    __device__ __forceinline__ void finish() {
#pragma unroll
        for (int pol = 0; pol < 2; pol++) {
            for (int lane = 16; lane > 0; lane /= 2) {
                sum[pol] += __shfl_down_sync(~0u, sum[pol], lane);
            }
            if (threadIdx.x % 32 == 0) {
                atomicAdd(&stats[batch].power[pol], sum[pol]);
            }
        }
    }

    // The last tap of spectrum g of the group: successive ones tile the time axis.
    __device__ __forceinline__ void add(int g, int x, int y) {
        enter(batch_of(g));
        sum[0] += u32(x * x);
        sum[1] += u32(y * y);
    }
};

// A column of both polarisations, from the first row of the group on.
struct Column {
    const u32 *word[2];
    Place place[2];
    const float *weights;

    // Row i holds tap i - g of spectrum g; `tap` holds the weights of taps i, i - 1, ..., rotating.
    template <bool FLAT>
    __device__ __forceinline__ float2 row(int i, int inner, int from, float2 (&y)[GROUP], float (&tap)[GROUP],
                                          u32 (&bits)[2]) const {
        constexpr int ROW_WORDS = N * BITS / 32;
        bits[0] = place[0].bits(word[0] + from * ROW_WORDS);
        bits[1] = place[1].bits(word[1] + from * ROW_WORDS);
        const float2 x = make_float2(place[0].number(bits[0]), place[1].number(bits[1]));
        tap[inner] = i < TAPS ? __ldg(weights + i * N) : 0.f;
#pragma unroll
        for (int g = 0; g < GROUP; g++) {
            // Where there is no such tap, the weight is zero; known early, it costs nothing.
            if (FLAT && (i < g || i - g >= TAPS)) {
                continue;
            }
            const float w = tap[(inner - g + GROUP) % GROUP];
            y[g].x = fmaf(w, x.x, y[g].x);
            y[g].y = fmaf(w, x.y, y[g].y);
        }
        return x;
    }
};

// One column through the filter, for all spectra of the group.
__device__ __forceinline__ void filter(const Column &samples, bool whole, int valid, int valid_end, float2 (&y)[GROUP],
                                       Power &power) {
    float tap[GROUP] = {};
    u32 bits[2];
    if (whole) {
        float2 squares = {};
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const float2 x = samples.row<true>(i, i % GROUP, i, y, tap, bits);
            if (i < TAPS - 1) {
                continue;
            }
            if constexpr (NARROW) {
                squares.x = fmaf(x.x, x.x, squares.x);
                squares.y = fmaf(x.y, x.y, squares.y);
            } else {
                const int x0 = samples.place[0].integer(bits[0]), x1 = samples.place[1].integer(bits[1]);
                power.sum[0] += u32(x0 * x0);
                power.sum[1] += u32(x1 * x1);
            }
        }
        power.sum[0] += u32(squares.x);
        power.sum[1] += u32(squares.y);
    } else {
        power.enter(power.batch_of(valid));
#pragma unroll 1
        for (int outer = 0; outer < ROWS; outer += GROUP) {
#pragma unroll
            for (int inner = 0; inner < GROUP; inner++) {
                const int i = outer + inner;
                // Rows that no valid spectrum needs may not exist; any other will do.
                const int from = min(max(i, valid), valid_end + TAPS - 2);
                samples.row<false>(i, inner, from, y, tap, bits);
                const int g = i - (TAPS - 1);
                if (g >= valid && g < valid_end) {
                    power.add(g, samples.place[0].integer(bits[0]), samples.place[1].integer(bits[1]));
                }
            }
        }
    }
}
