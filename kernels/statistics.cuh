// Sums over spectra, of the numbers before quantisation, for those who look at an engine: per channel |x|^2, |y|^2, |x|^4, |y|^4 and x*conj(y).
//
// A thread of the back end has one spectrum, and four lanes of a warp have the same channels of four spectra. What they have is summed by matrix
// products with ones, which take the 10 upper bits of each number's mantissa: what is cut off is made up for on the average (sum_statistics.cu).
// Each column of a product's result is that of other numbers, so that a thread comes to have a quarter of the sums of four. These stay in shared
// memory while the block lives: registers have no room.
#pragma once
#include "correct.cuh"
#include "tensor.cuh"

#if STATISTICS

// What is added to: a part for each block, (result, thread), so that nothing depends on their order, and per channel and polarisation how many
// numbers were clipped.
struct Statistics {
    float4 *sums;
    u64 *clipped;
};

// Of a channel: both powers, their squares, and both parts of the product.
constexpr int SUMS = 6;
// Whether a block has room to keep its sums. Where it has none, it adds to all memory.
constexpr bool HAS_ROOM = STATISTICS == 1;

// Sums of one thread's pairs of channels. A matrix product takes four numbers of each thread, and four products have a result in common.
template <int PAIRS> struct Sums {
    static constexpr int PRODUCTS = PAIRS * 2 * SUMS / 4;
    static constexpr int RESULTS = (PRODUCTS + 3) / 4;
    float4 *const kept, *const block;
    float result[4];

    // Where they are kept, and the block's part.
    __device__ __forceinline__ Sums(float4 *shared, const Statistics &statistics)
        : kept(shared + threadIdx.x), block(statistics.sums + (blockIdx.y * gridDim.x + blockIdx.x) * (RESULTS * BACK_THREADS) + threadIdx.x) {
        if constexpr (HAS_ROOM) {
#pragma unroll
            for (int i = 0; i < RESULTS; i++) {
                kept[i * BACK_THREADS] = make_float4(0, 0, 0, 0);
            }
        }
    }

    // The next four numbers of each thread; products are counted from 0.
    __device__ __forceinline__ void add(int product, float a, float b, float c, float d) {
        if (product % 4 == 0) {
            const float4 before = HAS_ROOM ? kept[product / 4 * BACK_THREADS] : make_float4(0, 0, 0, 0);
            result[0] = before.x, result[1] = before.y, result[2] = before.z, result[3] = before.w;
        }
        sum_lanes(result, product % 4, a, b, c, d);
        if (product % 4 == 3 || product == PRODUCTS - 1) {
            const float4 sum = make_float4(result[0], result[1], result[2], result[3]);
            if constexpr (!HAS_ROOM) {
                add_to(block + product / 4 * BACK_THREADS, sum);
            } else {
                kept[product / 4 * BACK_THREADS] = sum;
            }
        }
    }

    // Adds a pair of channels.
    __device__ __forceinline__ void add(int pair, const Jones &low, const Jones &high) {
        const float2 product0 = low.product(), product1 = high.product();
        const float p0 = low.power[0], p1 = low.power[1], q0 = high.power[0], q1 = high.power[1];
        add(3 * pair, p0, p1, p0 * p0, p1 * p1);
        add(3 * pair + 1, product0.x, product0.y, q0, q1);
        add(3 * pair + 2, q0 * q0, q1 * q1, product1.x, product1.y);
    }

    __device__ __forceinline__ void finish() const {
        if constexpr (HAS_ROOM) {
#pragma unroll
            for (int i = 0; i < RESULTS; i++) {
                // Not from the nearest cache: the kernel before this one, which overlaps with it, wrote this elsewhere.
                const float4 before = __ldcg(block + i * BACK_THREADS), sum = kept[i * BACK_THREADS];
                block[i * BACK_THREADS] = make_float4(before.x + sum.x, before.y + sum.y, before.z + sum.z, before.w + sum.w);
            }
        }
    }
};

#endif
