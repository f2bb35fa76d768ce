// As much of CUDA as the kernels need, on a CPU. What runs their threads is host.cpp; no header of C++'s library is here,
// since each kernel is compiled with this one, many times.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#define __device__
#define __constant__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

struct Dim { unsigned x, y, z; };
extern Dim threadIdx, blockIdx, gridDim;
extern unsigned char shared_memory[256 << 10];

template <typename T> T max(T a, T b) { return a < b ? b : a; }
template <typename T> T min(T a, T b) { return b < a ? b : a; }

template <typename T> T __ldg(const T *at) { return *at; }
template <typename T> T __ldcg(const T *at) { return *at; }

inline unsigned __float_as_uint(float x) {
    unsigned bits;
    memcpy(&bits, &x, 4);
    return bits;
}
inline float __uint_as_float(unsigned bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const uint64_t bytes = uint64_t(b) << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        result |= unsigned(bytes >> 8 * (selector >> 4 * i & 7) & 0xFF) << 8 * i;
    }
    return result;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return unsigned((uint64_t(high) << 32 | low) >> (shift & 31));
}
inline uint64_t __umul64hi(uint64_t a, uint64_t b) { return uint64_t((unsigned __int128)a * b >> 64); }
inline void __sincosf(float angle, float *s, float *c) {
    *s = sinf(angle);
    *c = cosf(angle);
}
template <typename T> T atomicAdd(T *at, T value) {
    const T before = *at;
    *at += value;
    return before;
}

// What host.cpp has.
void wait(int barrier, int threads);
void arrive(int barrier, int threads);
void __syncthreads();
void __syncwarp();
// Lanes of a warp meet where they exchange numbers, which orders nothing in memory.
void meet();
// What each lane of this thread's warp gives the others.
uint64_t *lanes();
unsigned warp_size();
struct Factors { unsigned a[4], b[2]; };
Factors *factors();
// Copies that go on meanwhile, as copy.cuh has them.
void copy_async(void *to, const void *from, unsigned bytes);
void commit_copies();
void wait_for_copies(unsigned batches);
template <int BYTES> void copy_async(void *to, const void *from) { copy_async(to, from, BYTES); }
template <int BATCHES> void wait_for_copies() { wait_for_copies(BATCHES); }
// 1 if every thread of every block came to its end, once in each turn to its barriers, wrote no more than `shared` bytes of shared memory,
// and no two raced; 2 if some raced, 0 otherwise.
int launch(Dim grid, unsigned threads, size_t shared, bool backwards, void (*kernel)(const void *), const void *arguments);

template <typename T> T __shfl_down_sync(unsigned, T value, int distance) {
    const unsigned lane = threadIdx.x % 32;
    lanes()[lane] = uint64_t(value);
    meet();
    const T other = lane + distance < 32 ? T(lanes()[lane + distance]) : value;
    meet();
    return other;
}

inline float __shfl_sync(unsigned, float value, int from) {
    lanes()[threadIdx.x % 32] = __float_as_uint(value);
    meet();
    const float other = __uint_as_float(unsigned(lanes()[from]));
    meet();
    return other;
}

inline float __shfl_xor_sync(unsigned, float value, int mask) { return __shfl_sync(~0u, value, int(threadIdx.x % 32) ^ mask); }

inline bool __any_sync(unsigned, bool any) {
    lanes()[threadIdx.x % 32] = any;
    meet();
    bool all = false;
    for (unsigned i = 0; i < warp_size(); i++) {
        all |= lanes()[i] != 0;
    }
    meet();
    return all;
}

// What tensor.cuh has.
inline void sum_lanes(float (&c)[4], unsigned lane, float x0, float x1, float x2, float x3) {
    const float x[4] = {x0, x1, x2, x3};
    for (int i = 0; i < 4; i++) {
        float sum = __uint_as_float(__float_as_uint(x[i]) & 0xFFFFE000u);
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        c[i] += threadIdx.x % 4 == lane ? sum : 0.f;
    }
}
inline void add_to(float4 *to, float4 x) { *to = {to->x + x.x, to->y + x.y, to->z + x.z, to->w + x.w}; }
inline unsigned halves(float low, float high) {
    const _Float16 both[2] = {_Float16(low), _Float16(high)};
    unsigned packed;
    memcpy(&packed, both, 4);
    return packed;
}
inline float half_of(unsigned packed, int which) {
    _Float16 both[2];
    memcpy(both, &packed, 4);
    return both[which];
}
inline void load_matrix(unsigned (&a)[4], const unsigned *row) {
    const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    lanes()[lane] = uintptr_t(row);
    meet();
    for (unsigned i = 0; i < 4; i++) {
        a[i] = reinterpret_cast<const unsigned *>(lanes()[8 * i + g])[t];
    }
    meet();
}
inline void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const Factors *const warp = factors();
    factors()[lane] = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
    meet();
    for (unsigned k = 0; k < 16; k++) {
        const unsigned pair = k % 8 / 2, upper = k / 8;
        for (unsigned i = 0; i < 4; i++) {
            const float left = half_of(warp[4 * g + pair].a[2 * upper + i / 2], k % 2);
            const float right = half_of(warp[4 * (2 * t + i % 2) + pair].b[upper], k % 2);
            c[i] += left * right;
        }
    }
    meet();
}
