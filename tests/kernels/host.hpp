// As much of CUDA as the kernels need, on a CPU: a block's threads are coroutines that take turns at barriers.
//
// Shared memory is poisoned before each block. Threads run in the order of their numbers, or against it: a kernel whose
// output depends on that has a race.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <vector>

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

struct Dim { unsigned x = 0, y = 0, z = 0; };
inline Dim threadIdx, blockIdx, gridDim;
alignas(128) inline unsigned char shared_memory[256 << 10];

using std::max;
using std::min;

template <typename T> T __ldg(const T *at) { return *at; }
template <typename T> T __ldcg(const T *at) { return *at; }

inline unsigned __float_as_uint(float x) {
    unsigned bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}
inline float __uint_as_float(unsigned bits) {
    float x;
    std::memcpy(&x, &bits, 4);
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
    *s = std::sin(angle);
    *c = std::cos(angle);
}
template <typename T> T atomicAdd(T *at, T value) {
    const T before = *at;
    *at += value;
    return before;
}

// One block at a time.
struct Block {
    struct Thread {
        ucontext_t context;
        std::unique_ptr<char[]> stack;
        bool done = false;
        int barrier = -1; // that it waits at, in that turn of it
        unsigned turn = 0;
    };
    struct Barrier {
        unsigned come = 0, turn = 0;
    };

    static constexpr size_t STACK = 256 << 10;
    std::vector<Thread> threads;
    std::map<int, Barrier> barriers;
    std::vector<uint64_t> lanes; // what a warp exchanges
    std::vector<std::array<unsigned, 6>> factors; // of its matrix products
    ucontext_t scheduler;
    unsigned current = 0;
    std::function<void()> kernel;

    static Block *&running() {
        static Block *block = nullptr;
        return block;
    }

    void come(int barrier, unsigned expected) {
        Barrier &b = barriers[barrier];
        if (++b.come == expected) {
            b.come = 0;
            b.turn++;
        }
    }

    void wait(int barrier, unsigned expected) {
        Thread &me = threads[current];
        me.barrier = barrier;
        me.turn = barriers[barrier].turn;
        come(barrier, expected);
        if (barriers[barrier].turn == me.turn) {
            swapcontext(&me.context, &scheduler);
        }
        me.barrier = -1;
    }

    static void enter() {
        Block *block = running();
        block->kernel();
        block->threads[block->current].done = true;
        swapcontext(&block->threads[block->current].context, &block->scheduler);
    }

    // Whether all threads came to their end.
    bool run(unsigned count, bool backwards, std::function<void()> what) {
        kernel = std::move(what);
        threads = std::vector<Thread>(count);
        barriers.clear();
        lanes.assign(count, 0);
        factors.assign(count, {});
        running() = this;
        for (Thread &thread : threads) {
            thread.stack.reset(new char[STACK]);
            getcontext(&thread.context);
            thread.context.uc_stack.ss_sp = thread.stack.get();
            thread.context.uc_stack.ss_size = STACK;
            thread.context.uc_link = nullptr;
            makecontext(&thread.context, &Block::enter, 0);
        }
        for (bool any = true; any;) {
            any = false;
            for (unsigned i = 0; i < count; i++) {
                current = backwards ? count - 1 - i : i;
                Thread &thread = threads[current];
                if (thread.done || (thread.barrier >= 0 && barriers[thread.barrier].turn == thread.turn)) {
                    continue;
                }
                any = true;
                threadIdx.x = current;
                swapcontext(&scheduler, &thread.context);
            }
        }
        return std::all_of(threads.begin(), threads.end(), [](const Thread &t) { return t.done; });
    }

    // A warp's lanes meet.
    void warp() { wait(1000 + current / 32, std::min<size_t>(32, threads.size() - current / 32 * 32)); }
};

inline void wait(int barrier, int threads) {
    const unsigned x = threadIdx.x;
    Block::running()->wait(barrier, threads);
    threadIdx.x = x;
}
inline void arrive(int barrier, int threads) { Block::running()->come(barrier, threads); }
inline void __syncthreads() { wait(0, Block::running()->threads.size()); }
inline void __syncwarp() {
    const unsigned x = threadIdx.x;
    Block::running()->warp();
    threadIdx.x = x;
}
template <typename T> T __shfl_down_sync(unsigned, T value, int distance) {
    const unsigned x = threadIdx.x;
    auto &lanes = Block::running()->lanes;
    lanes[x] = uint64_t(value);
    __syncwarp();
    const T other = x % 32 + distance < 32 ? T(lanes[x + distance]) : value;
    __syncwarp();
    return other;
}

inline float __shfl_sync(unsigned, float value, int from) {
    const unsigned x = threadIdx.x;
    auto &lanes = Block::running()->lanes;
    lanes[x] = __float_as_uint(value);
    __syncwarp();
    const float other = __uint_as_float(unsigned(lanes[x / 32 * 32 + from]));
    __syncwarp();
    return other;
}

inline float __shfl_xor_sync(unsigned, float value, int mask) { return __shfl_sync(~0u, value, int(threadIdx.x % 32) ^ mask); }

inline bool __any_sync(unsigned, bool any) {
    const unsigned x = threadIdx.x;
    auto &lanes = Block::running()->lanes;
    lanes[x] = any;
    __syncwarp();
    bool all = false;
    for (unsigned i = 0; i < 32 && x / 32 * 32 + i < lanes.size(); i++) {
        all |= lanes[x / 32 * 32 + i] != 0;
    }
    __syncwarp();
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
    std::memcpy(&packed, both, 4);
    return packed;
}
inline float half_of(unsigned packed, int which) {
    _Float16 both[2];
    std::memcpy(both, &packed, 4);
    return both[which];
}
inline void load_matrix(unsigned (&a)[4], const unsigned *row) {
    const unsigned x = threadIdx.x, g = x % 32 / 4, t = x % 4;
    auto &lanes = Block::running()->lanes;
    lanes[x] = uintptr_t(row);
    __syncwarp();
    for (unsigned i = 0; i < 4; i++) {
        a[i] = reinterpret_cast<const unsigned *>(lanes[x / 32 * 32 + 8 * i + g])[t];
    }
    __syncwarp();
}
inline void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    const unsigned x = threadIdx.x, g = x % 32 / 4, t = x % 4;
    auto &factors = Block::running()->factors;
    factors[x] = {a[0], a[1], a[2], a[3], b0, b1};
    __syncwarp();
    const auto *warp = &factors[x / 32 * 32];
    for (unsigned k = 0; k < 16; k++) {
        const unsigned pair = k % 8 / 2, upper = k / 8;
        for (unsigned i = 0; i < 4; i++) {
            const float left = half_of(warp[4 * g + pair][2 * upper + i / 2], k % 2);
            const float right = half_of(warp[4 * (2 * t + i % 2) + pair][4 + upper], k % 2);
            c[i] += left * right;
        }
    }
    __syncwarp();
}

// Whether every thread of every block came to its end, and wrote no more than `shared` bytes of shared memory.
inline bool launch(Dim grid, unsigned threads, size_t shared, bool backwards, const std::function<void()> &kernel) {
    Block block;
    gridDim = grid;
    const unsigned blocks = grid.x * grid.y * grid.z;
    for (unsigned i = 0; i < blocks; i++) {
        const unsigned at = backwards ? blocks - 1 - i : i;
        blockIdx = {at % grid.x, at / grid.x % grid.y, at / grid.x / grid.y};
        std::memset(shared_memory, 0xFF, sizeof shared_memory);
        if (!block.run(threads, backwards, kernel)) {
            return false;
        }
        const auto beyond = [](unsigned char byte) { return byte != 0xFF; };
        if (std::any_of(shared_memory + shared, std::end(shared_memory), beyond)) {
            return false;
        }
    }
    return true;
}
