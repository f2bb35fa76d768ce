// Decode, mix, filter and subsample: packed samples to the input of narrowband's filter bank.
//
//   u[i] = e^(2*pi*i*m*S*i) * sum over l < L of g[l] * x[S*i + l],   g[l] = h[l] * e^(2*pi*i*m*l)
//
// (docs/decisions/0016; m is the mixer's frequency). OUTPUTS successive u are a row of a matrix product, whose columns are
// their real and imaginary parts:
//
//   row r, column (j, part):  sum over k of x[S*(OUTPUTS*r) + k] * part of g[k - S*j]
//
// Samples are integers, so that halves have them exactly; beyond 12 bits two halves do. The filter is the sum of two halves, each
// with 11 bits of it. Sums are in single precision.
//
//   BITS, SUBSAMPLING  digitiser bits per sample, S
//   DDC_TAPS           L
//   DDC_WARPS          warps of a block
//   DDC_TILES          matrices of 16 rows that each of them has
//
// Grid (blocks, 2): the second is the polarisation. Threads 32 * DDC_WARPS.
#define WIDTH 2
typedef unsigned int u32;
typedef unsigned long long u64;
#include "tensor.cuh"
#include "unpack.cuh"

constexpr int OUTPUTS = 4;
constexpr int STEP = OUTPUTS * SUBSAMPLING; // samples from row to row
constexpr int DEEP = (DDC_TAPS + STEP - SUBSAMPLING + 15) / 16;
constexpr int ROWS = 16 * DDC_TILES * DDC_WARPS;
constexpr int SAMPLES = (ROWS - 1) * STEP + 16 * DEEP; // that a block decodes
constexpr int THREADS = 32 * DDC_WARPS;
// Rows of a matrix are to lie in different banks: where they would not, the samples of each have words behind them.
constexpr int APART = STEP % 16 == 0 ? 8 : 0;
constexpr int PITCH = STEP + APART;
// Halves of a sample.
constexpr int PLANES = BITS > 12 ? 2 : 1;

// Turns of samples, two of each thread; shared memory has room for whole ones.
constexpr int TURNS = (SAMPLES + 2 * THREADS - 1) / (2 * THREADS);

// Turns of the mixer, in units of 2^-128: sums are exact, so that it does not matter where a launch begins.
struct Phase {
    u64 low, high;

    __device__ __forceinline__ Phase times(u32 i) const { return {low * i, high * i + __umul64hi(low, i)}; }

    __device__ __forceinline__ Phase plus(Phase other) const {
        const u64 sum = low + other.low;
        return {sum, high + other.high + (sum < low)};
    }
};

// A polarisation's part of a launch.
//
// Which u share a row must not depend on where a launch begins, or sums would be rounded otherwise: u[0]'s index is a multiple
// of OUTPUTS, and those before u[skip] are not wanted. Their samples may not exist.
struct Part {
    long long offset; // of u[0]'s first sample in the input
    Phase phase;      // there
    u32 at;           // index of u[0] in the ring, modulo anything
    int count;        // of u
    int skip;
    int unused;
};

constexpr int PLANE = (2 * THREADS * TURNS / STEP + 1) * PITCH;

// Words from a thread's samples to those of its next turn.
constexpr int WORDS = THREADS * 2 * BITS / 32;

// Blocks that a multiprocessor is to have registers for: as many as have room in 192 KiB.
constexpr int FITTING = (192 << 10) / (PLANES * PLANE * 2);
constexpr int BLOCKS = FITTING < 1 ? 1 : FITTING > 1280 / THREADS ? 1280 / THREADS : FITTING;

// Where sample i of the block lies among the halves.
__device__ __forceinline__ int place_of(int i) { return APART ? i + i / STEP * APART : i; }

// Whether rows begin at multiples of 16 bytes.
constexpr bool WHOLE = PITCH % 8 == 0;

// What one step of the products needs.
struct Operands {
    uint4 b;
    u32 a[DDC_TILES][PLANES][4];

    // `rows` are the warp's.
    __device__ __forceinline__ void load(const uint4 *__restrict__ filter, const u32 *rows, int step) {
        const int lane = threadIdx.x % 32;
        b = __ldg(filter + step * 32 + lane);
        // Sixteen columns lie within a row's samples, or rows lie one behind the other.
        const u32 *column = rows + place_of(16 * step) / 2;
#pragma unroll
        for (int tile = 0; tile < DDC_TILES; tile++) {
#pragma unroll
            for (int plane = 0; plane < PLANES; plane++) {
                const u32 *at = column + plane * (PLANE / 2) + 16 * tile * (PITCH / 2);
                if constexpr (WHOLE) {
                    load_matrix(a[tile][plane], at + lane % 16 * (PITCH / 2) + lane / 16 * 4);
                } else {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        a[tile][plane][i] = at[(lane / 4 + i % 2 * 8) * (PITCH / 2) + i / 2 * 4 + lane % 4];
                    }
                }
            }
        }
    }

    __device__ __forceinline__ void add_to(float (&sum)[DDC_TILES][4]) const {
#pragma unroll
        for (int plane = 0; plane < PLANES; plane++) {
#pragma unroll
            for (int tile = 0; tile < DDC_TILES; tile++) {
                multiply_add(sum[tile], a[tile][plane], b.x, b.y);
            }
#pragma unroll
            for (int tile = 0; tile < DDC_TILES; tile++) {
                multiply_add(sum[tile], a[tile][plane], b.z, b.w);
            }
        }
    }
};

// Decodes a block's samples from this thread's first word on, from none but words least .. last if CLAMPED.
template <bool CLAMPED>
__device__ __forceinline__ void decode(u32 *halves_of, const u32 *__restrict__ words, const Place &place, int least, int last) {
#pragma unroll 16
    for (int i = 0; i < TURNS; i++) {
        const u32 *word = words + (CLAMPED ? max(min(i * WORDS, last), least) : i * WORDS);
        const uint2 two = make_uint2(__ldg(word), __ldg(word + 1));
        // Where a turn has whole rows, these lie at the same distance each time.
        constexpr bool EVEN = 2 * THREADS % STEP == 0;
        const int at = (EVEN ? place_of(2 * threadIdx.x) + i * place_of(2 * THREADS) : place_of(2 * (threadIdx.x + i * THREADS))) / 2;
        const float x0 = place.number(two, 0), x1 = place.number(two, 1);
        if constexpr (PLANES == 1) {
            halves_of[at] = halves(x0, x1);
        } else {
            // Eight bits in each; multiples of 256 in the first.
            const float high0 = floorf(x0 * 0.00390625f) * 256.f, high1 = floorf(x1 * 0.00390625f) * 256.f;
            halves_of[at] = halves(high0, high1);
            halves_of[PLANE / 2 + at] = halves(x0 - high0, x1 - high1);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
ddc(const u32 *__restrict__ pol0, const u32 *__restrict__ pol1, const uint4 *__restrict__ filter, float scale, Phase advance,
    float2 *__restrict__ ring0, float2 *__restrict__ ring1, u32 mask, Part part0, Part part1) {
    extern __shared__ u32 halves_of[]; // (plane, sample / 2)
    const Part part = blockIdx.y == 0 ? part0 : part1;
    const int first = blockIdx.x * ROWS * OUTPUTS; // u
    if (first >= part.count) {
        return;
    }
    // As all threads together take whole words, a thread's samples lie in the same place each turn.
    const long long bit = (part.offset + (long long)first * SUBSAMPLING + 2 * threadIdx.x) * BITS;
    const Place place(int(bit & 31));
    const u32 *words = (blockIdx.y == 0 ? pol0 : pol1) + (bit >> 5);
    // What is before the first sample that any u needs, and behind the last, may not exist. Its words do not matter.
    const long long end = (part.offset + (long long)(part.count - 1) * SUBSAMPLING + DDC_TAPS) * BITS >> 5;
    const int last = (int)min(end - (bit >> 5), 1ll << 30), least = (int)max(-(bit >> 5), -(1ll << 30));
    if (least <= 0 && (TURNS - 1) * WORDS <= last) {
        decode<false>(halves_of, words, place, least, last);
    } else {
        decode<true>(halves_of, words, place, least, last);
    }
    __syncthreads();

    const int row = threadIdx.x / 32 * DDC_TILES * 16;
    const u32 *rows = halves_of + row * (PITCH / 2);
    float sum[DDC_TILES][4] = {};
    Operands operands[2];
    operands[0].load(filter, rows, 0);
#pragma unroll 2
    for (int step = 0; step < DEEP; step++) {
        if (step + 1 < DEEP) {
            operands[(step + 1) % 2].load(filter, rows, step + 1);
        }
        operands[step % 2].add_to(sum);
    }

    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float2 *ring = blockIdx.y == 0 ? ring0 : ring1;
    int i = first + (row + g) * OUTPUTS + t;
    Phase phase = part.phase.plus(advance.times(i));
    constexpr int FURTHER = 8 * OUTPUTS;
    const Phase further = advance.times(FURTHER);
#pragma unroll
    for (int half = 0; half < 2 * DDC_TILES; half++) {
        // Within half a turn, of which the upper bits are enough.
        const float angle = float(int(phase.high >> 32)) * 1.46291807926715968e-09f;
        float s, c;
        __sincosf(angle, &s, &c);
        const float re = sum[half / 2][half % 2 * 2] * scale, im = sum[half / 2][half % 2 * 2 + 1] * scale;
        if (i >= part.skip && i < part.count) {
            ring[part.at + i & mask] = make_float2(fmaf(re, c, -im * s), fmaf(re, s, im * c));
        }
        i += FURTHER;
        phase = phase.plus(further);
    }
}
