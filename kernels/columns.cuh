// What both front ends have in common: a block's columns, their weights, and the digitiser's power.
#pragma once

constexpr int COLUMNS = N1 * TILE;
// Between the filter and the transform, a column's group of spectra. The odd stride has threads that store together, whose columns differ
// in the bits of one number, in different banks. So has the order of its lowest bits those that load together, 32/BACK_GROUP adjacent columns.
constexpr int STRIDE = GROUP + 1;
constexpr int ODD_COLUMNS = COLUMNS / 2 * STRIDE + (PAIRED ? 1 : BACK_GROUP % 16);
constexpr int BUFFER = COLUMNS * STRIDE + BACK_GROUP % 16;

// Where column n1 * TILE + c of the block begins. Sums of arguments without common bits give sums.
__device__ __forceinline__ constexpr int place(int n1, int c) {
    const u32 at = u32(n1) * (TILE / WIDTH) + u32(c) / WIDTH;
    const u32 reversed = at % 2 * 8 + at / 2 % 2 * 4 + at / 4 % 2 * 2 + at / 8 % 2;
    return int((at / 16 * 16 + reversed) * STRIDE + u32(c) % WIDTH * ODD_COLUMNS);
}

// One tap of WIDTH adjacent columns.
__device__ __forceinline__ void load_weights(const float *__restrict__ at, float (&w)[WIDTH]) {
    if constexpr (WIDTH == 2) {
        const float2 pair = __ldg(reinterpret_cast<const float2 *>(at));
        w[0] = pair.x;
        w[1] = pair.y;
    } else {
        w[0] = __ldg(at);
    }
}

// Sums of squares of a thread, for one batch at a time.
struct Power {
    BatchStats *stats;
    int batch;
    u64 sum[2];

    // Each thread adds its own: for where threads leave a batch at different times.
    __device__ __forceinline__ void add_alone() {
        atomicAdd(&stats[batch].power[0], sum[0]);
        atomicAdd(&stats[batch].power[1], sum[1]);
        sum[0] = sum[1] = 0;
    }

    // Adds up the warp.
    __device__ __forceinline__ void add_together() {
#pragma unroll
        for (int pol = 0; pol < 2; pol++) {
            for (int lane = 16; lane > 0; lane /= 2) {
                sum[pol] += __shfl_down_sync(~0u, sum[pol], lane);
            }
            if (threadIdx.x % 32 == 0) {
                atomicAdd(&stats[batch].power[pol], sum[pol]);
            }
            sum[pol] = 0;
        }
    }
};
