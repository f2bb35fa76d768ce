// The second half of the transform, and everything behind it: the two polarisations are separated, corrected for
// delay, phase and gain, dithered, quantised, counted, and stored as (batch, channel, spectrum, pol, re/im).
//
// A block has the rows k1 and N1 - k1 of mid for BACK_GROUP spectra, because Z[k] and Z[N - k] belong together:
// with k = k1 + N1*k2, N - k lies in row N1 - k1 at N2 - 1 - k2. Block 0 has rows 0 and N1/2, which are their own
// partners. For narrowband, a block has row k1 of either polarisation's transform.
// Grid (pairs of rows * GROUP/BACK_GROUP, as many as are resident at a time): each block has several groups, and
// copies the next one while it finishes one.
//
// A row's transform is made in place, by decimation in frequency: a pass of radix R takes the points p + j * L/R,
// transforms them, multiplies output d by e^(-2*pi*i*p*d/L), and leaves R transforms of L/R points. The last pass of
// both rows is made by one thread, so that it has whole pairs in registers.
#include "geometry.cuh"
#include "copy.cuh"
#include "correct.cuh"
#include "mid.cuh"

// Radices of the passes; the middle one is 1 where there are two.
constexpr int LAST = N2 >= 128 ? 16 : N2 >= 32 ? 8 : 4;
constexpr int FIRST = N2 / LAST <= 32 ? N2 / LAST : N2 >= 4096 ? 16 : 8;
constexpr int MIDDLE = N2 / LAST / FIRST;
// Transforms of LAST points in a row.
constexpr int LINES = N2 / LAST;
static_assert(N2 >= 16 && MIDDLE <= 16, "three passes");
static_assert(LINES * BACK_GROUP == BACK_THREADS, "a thread has one line of each row");

// Channels of a row in the lower half of the band, which are those of a line there; the upper half has as many. Wideband has
// them in the rows of a pair.
constexpr int ROW_HALF = CHANNELS / N1 / 2, LINE_HALF = ROW_HALF / LINES;
static_assert(LINE_HALF >= 1, "a line has channels in both halves");
// Rows whose channels a block finishes.
constexpr int OWN_ROWS = BASEBAND ? 1 : 2;

// Where a point of a row and a spectrum lies. The lines of the last pass are a bank apart if groups are small. Points whose distance is
// whole lines, or within one line, are as far apart as the distance itself is from 0. Unsigned: that saves a third of a pass's instructions.
__device__ __forceinline__ constexpr u32 address(u32 row, u32 at, u32 g) {
    const u32 point = row * N2 + at;
    return (BACK_GROUP < 16 ? point + point / LAST : point) * BACK_GROUP + g;
}

constexpr int POINTS = BACK_GROUP * (BACK_GROUP < 16 ? 2 * N2 + 2 * N2 / LAST : 2 * N2);

// The first k2 of a line of the last pass; the others follow at LINES from each other.
__device__ __forceinline__ int frequency(int line) { return line / MIDDLE + line % MIDDLE * FIRST; }

// Where k2 lies after all passes.
__device__ __forceinline__ int position(int k2) {
    return (k2 % FIRST * MIDDLE + k2 / FIRST % MIDDLE) * LAST + k2 / LINES;
}

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

// Successive turns of a block. The front end's blocks have had `run` successive groups each: the last of these come
// first, because most of them are still in the L2 cache. Turns are counted through the runs' last groups, then through those before; a block has every gridDim.y-th.
// Going on takes no division: that would be long to wait for.
struct Turns {
    int first, groups, run, runs;
    int step_runs, step_left; // from turn to turn
    int of, left;             // this turn's run, and how many of its groups are left behind this turn

    __device__ __forceinline__ Turns(const Stretch &stretch, int run)
        : first(stretch.first_group), groups((stretch.end + GROUP - 1) / GROUP - stretch.first_group), run(run),
          runs((groups + run - 1) / run), step_runs(int(gridDim.y) % runs), step_left(int(gridDim.y) / runs), of(int(blockIdx.y) % runs),
          left(run - 1 - int(blockIdx.y) / runs) {
        skip();
    }

    __device__ __forceinline__ bool over() const { return left < 0; }
    // Counted from the chunk's first.
    __device__ __forceinline__ int group() const { return first + of * run + left; }

    __device__ __forceinline__ void next() {
        step();
        skip();
    }

  private:
    __device__ __forceinline__ void step() {
        of += step_runs;
        left -= step_left;
        if (of >= runs) {
            of -= runs;
            left -= 1;
        }
    }

    // The last run may be short.
    __device__ __forceinline__ void skip() {
        while (!over() && of * run + left >= groups) {
            step();
        }
    }
};

extern "C" __global__ void __launch_bounds__(BACK_THREADS, BACK_BLOCKS)
fft_post(const char *__restrict__ mid, const float2 *__restrict__ roots, const float4 *__restrict__ gains,
         const float4 *__restrict__ fine, Quantised *__restrict__ out, BatchStats *stats, Stretch stretch, Stream stream, int run) {
    extern __shared__ float2 z[]; // (row, point, spectrum), at first in granules, and what follows
    float4 *gain = reinterpret_cast<float4 *>(z + POINTS); // of the channels of both rows, (row, place in a line, line)
    float4 *delays = gain + N2;                            // of this turn's and the next turn's spectra
    float2 *first_pass = reinterpret_cast<float2 *>(delays + 2 * BACK_GROUP); // roots, (output, point)
    float2 *second_pass = first_pass + N2;
    const int pair = blockIdx.x / PARTS, part = blockIdx.x % PARTS;
    const int rows[2] = {pair, BASEBAND ? N1 + pair : pair == 0 ? N1 / 2 : N1 - pair};
    // Rows that are their own partners.
    const bool alone = !BASEBAND && pair == 0;
    const int g = threadIdx.x % BACK_GROUP, line = threadIdx.x / BACK_GROUP;
    // Complement digits make the mirror: this line of the one row goes with that one of the other.
    const int lines[2] = {line, BASEBAND ? line : LINES - 1 - line};

    Turns turns(stretch, run);
    auto first_spectrum = [&] { return turns.group() * GROUP + part * BACK_GROUP; };
    auto copy = [&](int parity) {
        copy_rows(z, mid + (turns.group() & stretch.ring - 1) * GROUP_BYTES, part, rows);
        if (threadIdx.x < BACK_GROUP) {
            copy_async<16>(delays + parity * BACK_GROUP + threadIdx.x, fine + min(first_spectrum() + int(threadIdx.x), stretch.end - 1));
        }
        commit_copies();
    };
    for (int i = threadIdx.x; i < N2; i += BACK_THREADS) {
        copy_async<8>(first_pass + i, roots + i % (N2 / FIRST) * (i / (N2 / FIRST)) * N1);
    }
    for (int i = threadIdx.x; MIDDLE > 1 && i < MIDDLE * LAST; i += BACK_THREADS) {
        copy_async<8>(second_pass + i, roots + i % LAST * (i / LAST) * (N / (MIDDLE * LAST)));
    }
    if (turns.over()) {
        return;
    }
    copy(0);
    for (u32 i = threadIdx.x; i < OWN_ROWS * 2 * ROW_HALF; i += BACK_THREADS) {
        copy_async<16>(gain + i, gains + rows[i / (2 * ROW_HALF)] + N1 * (frequency(i % LINES) + i % (2 * ROW_HALF) / LINES * LINES));
    }
    commit_copies();

    u32 saturated[2] = {0, 0};
    int batch = 0, parity = 0;
#pragma unroll 1
    for (bool more = true; more;) {
        const int spectrum = first_spectrum() + g;
        const bool valid = spectrum < stretch.end;
        turns.next();
        more = !turns.over();
        wait_for_copies<0>();
        __syncthreads();
        constexpr int STEP = N2 / FIRST;
        static_assert(STEP % POINTS_PER_GRANULE == 0 && LAST % POINTS_PER_GRANULE == 0, "a warp has whole granules");
#pragma unroll 1
        for (u32 item = threadIdx.x; item < 2 * STEP * BACK_GROUP; item += BACK_THREADS) {
            const u32 g = item % BACK_GROUP, p = item / BACK_GROUP % STEP, row = item / (BACK_GROUP * STEP);
            const float2 *granules = z + address(row, p / POINTS_PER_GRANULE * POINTS_PER_GRANULE, 0);
            float2 v[FIRST];
#pragma unroll
            for (int j = 0; j < FIRST; j++) {
                v[j] = load_mid(granules + address(0, j * STEP, 0), item % 32);
            }
            // The results take the granules' place.
            __syncwarp();
            Dft<FIRST>::run(v);
            float2 *to = z + address(row, p, g);
            const float2 *root = first_pass + p;
#pragma unroll
            for (int d = 0; d < FIRST; d++) {
                to[address(0, d * STEP, 0)] = d == 0 ? v[d] : multiply(v[d], root[d * STEP]);
            }
        }
        __syncthreads();
        if constexpr (MIDDLE > 1) {
#pragma unroll 1
            for (u32 item = threadIdx.x; item < 2 * N2 / MIDDLE * BACK_GROUP; item += BACK_THREADS) {
                const u32 g = item % BACK_GROUP, p = item / BACK_GROUP % LAST, line = item / (BACK_GROUP * LAST);
                float2 *at = z + address(0, line * MIDDLE * LAST, g) + p * BACK_GROUP;
                const float2 *root = second_pass + p;
                float2 v[MIDDLE];
#pragma unroll
                for (int j = 0; j < MIDDLE; j++) {
                    v[j] = at[address(0, j * LAST, 0)];
                }
                Dft<MIDDLE>::run(v);
#pragma unroll
                for (int d = 0; d < MIDDLE; d++) {
                    at[address(0, d * LAST, 0)] = d == 0 ? v[d] : multiply(v[d], root[d * LAST]);
                }
            }
            __syncthreads();
        }
        float2 y[2][LAST];
        float2 *const ends[2] = {z + address(0, lines[0] * LAST, g), z + address(1, lines[1] * LAST, g)};
#pragma unroll
        for (int row = 0; row < 2; row++) {
#pragma unroll
            for (int j = 0; j < LAST; j++) {
                y[row][j] = ends[row][j * BACK_GROUP];
            }
        }
        const float4 delay = delays[parity * BACK_GROUP + g];
        parity ^= 1;
        __syncthreads();
        if (more && !alone) {
            copy(parity);
        }
        Dft<LAST>::run(y[0]);
        Dft<LAST>::run(y[1]);
        if (alone) {
            // Of each row, this thread has one line, whose mirror another thread has. It takes
            // that in place of the half that is above the Nyquist channel.
#pragma unroll
            for (int row = 0; row < 2; row++) {
#pragma unroll
                for (int j = 0; j < LAST; j++) {
                    ends[row][j * BACK_GROUP] = y[row][j];
                }
            }
            __syncthreads();
#pragma unroll
            for (int row = 0; row < 2; row++) {
#pragma unroll
                for (int d = 0; d < LAST / 2; d++) {
                    const int k2 = frequency(lines[row]) + d * LINES;
                    y[1 - row][LAST - 1 - d] = z[address(row, position(row == 0 ? (N2 - k2) % N2 : N2 - 1 - k2), g)];
                }
            }
            __syncthreads();
            if (more) {
                copy(parity);
            }
        }
        if (!valid) {
            continue;
        }
        if (spectrum / SPECTRA_PER_HEAP != batch) {
            count(stats[batch], saturated);
            batch = spectrum / SPECTRA_PER_HEAP;
        }
        const Correction correction(delay, stream, spectrum);
        Quantised *jones = out + (long long)batch * CHANNELS * SPECTRA_PER_HEAP + spectrum % SPECTRA_PER_HEAP;
#pragma unroll
        for (int row = 0; row < OWN_ROWS; row++) {
            // A line has every LINES-th k2, so that its channels are STEP apart.
            constexpr int STEP = N1 * LINES;
            const int k2 = frequency(lines[row]), k = rows[row] + N1 * k2;
            const float angle0 = correction.angle(0, k), angle1 = correction.angle(1, k);
            const float4 *own_gain = gain + row * 2 * ROW_HALF + lines[row];
            Quantised *to = jones + k * (long long)SPECTRA_PER_HEAP;
            // Channel k + d * STEP. The lower half of narrowband has negative frequencies, at the end of the transform.
            auto corrected = [&](int d) {
                const int at = !BASEBAND ? d : d < LINE_HALF ? d + LAST - LINE_HALF : d - LINE_HALF;
                return Jones(y[row][at], BASEBAND ? y[1][at] : y[1 - row][LAST - 1 - d], own_gain[d * LINES],
                             fmaf(correction.slope[0], float(d * STEP), angle0), fmaf(correction.slope[1], float(d * STEP), angle1));
            };
#pragma unroll
            for (int d = 0; d < LINE_HALF; d++) {
                Jones low = corrected(d), high = corrected(d + LINE_HALF);
                correction.dither(k + d * STEP, low, high);
                saturate(low, high, saturated);
                to[d * STEP * (long long)SPECTRA_PER_HEAP] = low.quantised();
                to[(d + LINE_HALF) * STEP * (long long)SPECTRA_PER_HEAP] = high.quantised();
            }
        }
    }
    count(stats[batch], saturated);
}
