// The transform of the front ends with warp specialisation: the first FILTER_THREADS threads filter, WIDTH columns each;
// the others transform what these leave in one of two buffers.
#pragma once
#include "barrier.cuh"
#include "fft.cuh"
#include "mid.cuh"
#include "overlap.cuh"
#include "rows.cuh"

constexpr int ALL_THREADS = FRONT_THREADS;
constexpr int FFT_THREADS = ALL_THREADS - FILTER_THREADS;
static_assert(FILTER_THREADS % 32 == 0 && FFT_THREADS > 0 && FFT_THREADS % 32 == 0, "whole warps");
static_assert((FFT_THREADS & FFT_THREADS - 1) == 0, "a thread's later items are constants away");
// Radices of the transform's passes.
constexpr int SECOND = N1 > 32 ? 8 : 1;
constexpr int FIRST = N1 / SECOND;
constexpr int LAST = SECOND > 1 ? SECOND : FIRST, LINES = N1 / LAST;
static_assert(FIRST <= 32, "two passes");

// Named barriers: a buffer is full, or empty; one among the threads that transform.
enum { FULL = 1, EMPTY = 3, TRANSFORM = 5 };

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

// Threads that filter take registers over from those that transform (setmaxnreg), in warps of four: of 128 each, if the filter is to have more.
#if FILTER_REGISTERS && defined(__CUDA_ARCH_FEAT_SM90_ALL)
static_assert(FILTER_THREADS == 256 && FFT_THREADS == 256 && FILTER_REGISTERS % 8 == 0 && FRONT_BLOCKS == 1, "two warp groups each");
__device__ __forceinline__ void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(FILTER_REGISTERS)); }
__device__ __forceinline__ void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(256 - FILTER_REGISTERS)); }
#else
__device__ __forceinline__ void more_registers() {}
__device__ __forceinline__ void fewer_registers() {}
#endif
