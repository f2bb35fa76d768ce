// Decode, PFB FIR, and the first half of the transform.
//
// With n = N2*n1 + n2 and k = k1 + N1*k2 (reference: PFB FIR and FFT)
//
//   Z[k] = sum over n2 of e^(-2*pi*i*n2*k2/N2) * mid[k1][n2]
//   mid[k1][n2] = e^(-2*pi*i*n2*k1/N) * sum over n1 of y[N2*n1 + n2]*e^(-2*pi*i*n1*k1/N1)
//
// y's real part is polarisation 0, its imaginary part polarisation 1. One block makes mid for TILE columns n2
// and GROUP spectra; grid (N2/TILE, groups). mid is (group, k1, n2, spectrum).
#include "geometry.cuh"
#include "fft.cuh"
#include "unpack.cuh"

// An odd stride keeps the filter's stores and the transform's loads off each other's banks.
constexpr int STRIDE = GROUP + 1;
constexpr int COLUMNS = N1 * TILE;
static_assert(COLUMNS / WIDTH % FRONT_THREADS == 0, "no thread is idle");

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
    __device__ __forceinline__ void add(int g, u32 bits0, u32 bits1) {
        enter(batch_of(g));
#pragma unroll
        for (int c = 0; c < WIDTH; c++) {
            const int x = sample_int(bits0 << (c * BITS)), y = sample_int(bits1 << (c * BITS));
            sum[0] += u32(x * x);
            sum[1] += u32(y * y);
        }
    }
};

// A thread's columns of both polarisations, from the first row of the group on.
struct Columns {
    const u32 *word[2];
    int shift[2];
    const float *weights;

    // Row i holds tap i - g of spectrum g; `tap` holds the weights of taps i, i - 1, ..., rotating.
    template <bool FLAT>
    __device__ __forceinline__ void row(int i, int inner, int from, float2 (&y)[GROUP][WIDTH],
                                        float (&tap)[GROUP][WIDTH], u32 (&bits)[2]) const {
        constexpr int ROW_WORDS = N * BITS / 32;
        bits[0] = bits_at(word[0] + from * ROW_WORDS, shift[0]);
        bits[1] = bits_at(word[1] + from * ROW_WORDS, shift[1]);
        float2 x[WIDTH];
#pragma unroll
        for (int c = 0; c < WIDTH; c++) {
            x[c] = make_float2(sample_float(bits[0] << (c * BITS)), sample_float(bits[1] << (c * BITS)));
        }
        if constexpr (WIDTH == 2) {
            const float2 w = i < TAPS ? __ldg(reinterpret_cast<const float2 *>(weights + i * N)) : float2();
            tap[inner][0] = w.x;
            tap[inner][1] = w.y;
        } else {
            tap[inner][0] = i < TAPS ? __ldg(weights + i * N) : 0.f;
        }
#pragma unroll
        for (int g = 0; g < GROUP; g++) {
            // Where there is no such tap, the weight is zero; known early, it costs nothing.
            if (FLAT && (i < g || i - g >= TAPS)) {
                continue;
            }
#pragma unroll
            for (int c = 0; c < WIDTH; c++) {
                const float w = tap[(inner - g + GROUP) % GROUP][c];
                y[g][c].x = fmaf(w, x[c].x, y[g][c].x);
                y[g][c].y = fmaf(w, x[c].y, y[g][c].y);
            }
        }
    }
};

extern "C" __global__ void __launch_bounds__(FRONT_THREADS, FRONT_BLOCKS)
pfb_fft(const u32 *__restrict__ pol0, const u32 *__restrict__ pol1, u64 offset0, u64 offset1,
        const float *__restrict__ weights, const float2 *__restrict__ roots, float2 *__restrict__ mid,
        BatchStats *stats, Stretch stretch) {
    extern __shared__ float2 z[]; // (n1, column in tile, spectrum)
    const int group = stretch.first_group + blockIdx.y;
    const int column = blockIdx.x * TILE;
    // Spectra of the group that this stretch has. Their windows are rows valid to valid_end + TAPS - 2.
    const int valid = max(stretch.first - group * GROUP, 0);
    const int valid_end = min(stretch.end - group * GROUP, GROUP);
    // The offsets are those of the stretch's first spectrum; rows count from the group's first.
    const long long lead = (long long)(group * GROUP - stretch.first) * N;
    constexpr int ROWS = TAPS + GROUP - 1;

    Power power = {stats, group, 0, {0, 0}};
    power.batch = power.batch_of(valid);
    for (int item = threadIdx.x; item < COLUMNS / WIDTH; item += FRONT_THREADS) {
        const int n1 = item / (TILE / WIDTH);
        const int c = item % (TILE / WIDTH) * WIDTH;
        const int q = n1 * N2 + column + c;
        const long long bit0 = ((long long)offset0 + lead + q) * BITS;
        const long long bit1 = ((long long)offset1 + lead + q) * BITS;
        const Columns columns = {{pol0 + (bit0 >> 5), pol1 + (bit1 >> 5)}, {int(bit0 & 31), int(bit1 & 31)}, weights + q};
        float2 y[GROUP][WIDTH] = {};
        float tap[GROUP][WIDTH] = {};
        u32 bits[2];
        if (TAPS <= 32 && valid == 0 && valid_end == GROUP) {
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                columns.row<true>(i, i % GROUP, i, y, tap, bits);
                if (i >= TAPS - 1) {
                    power.add(i - (TAPS - 1), bits[0], bits[1]);
                }
            }
        } else {
#pragma unroll 1
            for (int outer = 0; outer < ROWS; outer += GROUP) {
#pragma unroll
                for (int inner = 0; inner < GROUP; inner++) {
                    const int i = outer + inner;
                    // Rows that no valid spectrum needs may not exist; any other will do.
                    const int from = min(max(i, valid), valid_end + TAPS - 2);
                    columns.row<false>(i, inner, from, y, tap, bits);
                    const int g = i - (TAPS - 1);
                    if (g >= valid && g < valid_end) {
                        power.add(g, bits[0], bits[1]);
                    }
                }
            }
        }
#pragma unroll
        for (int g = 0; g < GROUP; g++) {
#pragma unroll
            for (int d = 0; d < WIDTH; d++) {
                z[(n1 * TILE + c + d) * STRIDE + g] = y[g][d];
            }
        }
        if (item + FRONT_THREADS < COLUMNS / WIDTH) {
            power.enter(power.batch_of(valid));
        }
    }
    power.finish();
    __syncthreads();

    // A line is (column in tile, spectrum).
    auto address = [](int line, int n1) {
        return (n1 * TILE + line / GROUP) * STRIDE + line % GROUP;
    };
    auto load = [&](int line, int at) { return z[address(line, at)]; };
    if constexpr (radix(N1) < N1) {
        pass<N1, N1, FRONT_THREADS>(TILE * GROUP, roots, load, [&](int line, int at, float2 value) {
            z[address(line, at)] = value;
        });
        __syncthreads();
    }
    constexpr int LAST = radix(N1) < N1 ? N1 / radix(N1) : N1;
    static_assert(radix(LAST) == LAST, "two passes at most");
    float2 *out = mid + (long long)(group & (stretch.ring - 1)) * N * GROUP;
    pass<N1, LAST, FRONT_THREADS>(TILE * GROUP, roots, load, [&](int line, int at, float2 value) {
        const int k1 = frequency<N1>(at);
        const int n2 = column + line / GROUP;
        const int g = line % GROUP;
        if (g >= valid && g < valid_end) {
            out[(long long)(k1 * N2 + n2) * GROUP + g] = multiply(value, __ldg(&roots[n2 * k1]));
        }
    });
}
