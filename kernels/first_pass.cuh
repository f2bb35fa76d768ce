// A row's points in shared memory, and its first pass there.
//
// Where FIRST is more than 32, LANES lanes of a warp share a transform of the first pass, which has the points p + LAST*j:
//
//   j = LANES*i + r, d = a + 32*b, lane r has all i:
//   output d = e^(-2*pi*i*32*p*b/N2) sum over r of e^(-2*pi*i*r*b/LANES) * y_r[a],
//   y_r[a] = e^(-2*pi*i*a*(p + LAST*r)/N2) sum over i of x[p + LAST*j] * e^(-2*pi*i*i*a/32)
//
// Of all y[a], lane r keeps a = KEPT*r .. KEPT*(r + 1) - 1, and the others send it theirs. The front end has multiplied x by e^(-2*pi*i*r*i/LANES),
// so that a lane's transform begins with what it keeps.
#pragma once
#include "copy.cuh"
#include "fft.cuh"
#include "mid.cuh"

// Radices of the passes.
constexpr int LAST = BACK_LAST;
constexpr int FIRST = N2 / LAST;
constexpr int KEPT = 32 / LANES;
static_assert(N2 >= 16 && KEPT % LANES == 0, "two passes; lanes' lines are apart by constants");
// Transforms of LAST points in a row.
constexpr int LINES = FIRST;

// Where a point of a row and a spectrum lies. Lines are in different banks if groups are small, and so are those that lanes keep. Points whose
// distance is whole lines, or within one line, are as far apart as the distance itself is from 0. Unsigned: that saves a third of a pass's instructions.
__device__ __forceinline__ constexpr u32 address(u32 row, u32 at, u32 g) {
    const u32 point = row * N2 + at;
    const u32 apart = BACK_GROUP < 16 ? point / LAST + (LANES > 1 ? point / (LAST * KEPT) : 0) : 0;
    return (point + apart) * BACK_GROUP + g;
}

constexpr int POINTS = address(2, 0, 0);

// Where k2 lies after both passes; a line has every LINES-th k2 from its own number on.
__device__ __forceinline__ int position(int k2) { return k2 % LINES * LAST + k2 / LINES; }

// Copies a group's part of both rows of mid to shared memory, each granule to where its numbers will be.
__device__ __forceinline__ void copy_rows(float2 *z, const char *group, int part, const int (&rows)[2]) {
    const int piece = threadIdx.x % 16, first = threadIdx.x / 16;
    constexpr int STEP = BACK_THREADS / 16; // granules
    static_assert(STEP * POINTS_PER_GRANULE % LAST == 0 || BACK_GROUP >= 16, "so that the distance in shared memory is constant");
    if (piece >= GRANULE / 16) {
        return;
    }
#pragma unroll
    for (int row = 0; row < 2; row++) {
        const char *from = group + (rows[row] * PARTS + part) * ROW + first * GRANULE + piece * 16;
        float2 *to = z + address(row, first * POINTS_PER_GRANULE, 0) + piece * 2;
#pragma unroll
        for (int granule = 0; granule < ROW / GRANULE; granule += STEP) {
            copy_async<16>(to + address(0, granule * POINTS_PER_GRANULE, 0), from + granule * GRANULE);
        }
    }
}

// The roots of the first pass, (output, point, lane).
__device__ __forceinline__ void copy_roots(float2 *to, const float2 *__restrict__ roots) {
    for (int i = threadIdx.x; i < N2; i += BACK_THREADS) {
        const int p = i / LANES % LAST, r = i % LANES, a = (i / (LAST * LANES) + KEPT * r) % 32;
        copy_async<8>(to + i, roots + a * (p + LAST * r) * N1);
    }
}

// The first pass, from granules to numbers in their places.
#if LOG_N2 >= 10
// A thread has one transform's points of its lane, always the same.
struct FirstPass {
    u32 g, r, p, row;
    float2 behind[LANES];

    __device__ __forceinline__ explicit FirstPass(const float2 *__restrict__ roots)
        : g(threadIdx.x % BACK_GROUP), r(threadIdx.x / BACK_GROUP % LANES), p(threadIdx.x / (BACK_GROUP * LANES) % LAST),
          row(threadIdx.x / (BACK_GROUP * LANES * LAST)) {
        static_assert(BACK_THREADS == 2 * LAST * LANES * BACK_GROUP && 32 % (LANES * BACK_GROUP) == 0, "one transform per thread");
#pragma unroll
        for (int b = 0; b < LANES; b++) {
            behind[b] = __ldg(roots + (32 * N1 * p * b + N / LANES * r * b) % N);
        }
    }

    __device__ __forceinline__ void run(float2 *z, const float2 *roots) const {
        const float2 *granules = z + address(row, r * LAST + p / POINTS_PER_GRANULE * POINTS_PER_GRANULE, 0);
        float2 v[32];
#pragma unroll
        for (int i = 0; i < 32; i++) {
            v[i] = load_mid(granules + address(0, i * LANES * LAST, 0), p % POINTS_PER_GRANULE * BACK_GROUP + g);
        }
        // The results take the granules' place.
        __syncthreads();
        Dft<32>::run(v);
        const float2 *root = roots + p * LANES + r;
#pragma unroll
        for (int i = 0; i < 32; i++) {
            v[i] = multiply(v[i], root[i * LAST * LANES]);
        }
        // What is KEPT*s behind is kept by the s-th lane behind this one.
#pragma unroll
        for (int s = 1; s < LANES; s++) {
            const u32 from = threadIdx.x % 32 - r * BACK_GROUP + (r + LANES - s) % LANES * BACK_GROUP;
#pragma unroll
            for (int i = 0; i < KEPT; i++) {
                float2 &x = v[KEPT * s + i];
                x = make_float2(__shfl_sync(~0u, x.x, from), __shfl_sync(~0u, x.y, from));
            }
        }
        float2 *to = z + address(row, KEPT * r * LAST + p, g);
#pragma unroll
        for (int i = 0; i < KEPT; i++) {
            float2 u[LANES];
#pragma unroll
            for (int s = 0; s < LANES; s++) {
                u[s] = v[KEPT * s + i];
            }
            Dft<LANES>::run(u);
#pragma unroll
            for (int b = 0; b < LANES; b++) {
                // Lanes count backwards.
                const float2 x = u[(LANES - b) % LANES];
                to[address(0, (i + 32 * b) * LAST, 0)] = b == 0 ? x : multiply(x, behind[b]);
            }
        }
    }
};
#else
struct FirstPass {
    __device__ __forceinline__ explicit FirstPass(const float2 *__restrict__) {}

    __device__ __forceinline__ void run(float2 *z, const float2 *roots) const {
        static_assert(LAST % POINTS_PER_GRANULE == 0, "a warp has whole granules");
#pragma unroll 1
        for (u32 item = threadIdx.x; item < 2 * LAST * BACK_GROUP; item += BACK_THREADS) {
            const u32 g = item % BACK_GROUP, p = item / BACK_GROUP % LAST, row = item / (BACK_GROUP * LAST);
            const float2 *granules = z + address(row, p / POINTS_PER_GRANULE * POINTS_PER_GRANULE, 0);
            float2 v[FIRST];
#pragma unroll
            for (int j = 0; j < FIRST; j++) {
                v[j] = load_mid(granules + address(0, j * LAST, 0), item % 32);
            }
            // The results take the granules' place.
            __syncwarp();
            Dft<FIRST>::run(v);
            float2 *to = z + address(row, p, g);
            const float2 *root = roots + p;
#pragma unroll
            for (int d = 0; d < FIRST; d++) {
                to[address(0, d * LAST, 0)] = d == 0 ? v[d] : multiply(v[d], root[d * LAST]);
            }
        }
    }
};
#endif
