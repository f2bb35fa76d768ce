// The second half of the transform, and everything behind it: the two polarisations are separated, corrected for
// delay, phase and gain, dithered, quantised, counted, and stored as (batch, channel, spectrum, pol, re/im).
//
// A block has the rows k1 and N1 - k1 of mid for BACK_GROUP spectra, because Z[k] and Z[N - k] belong together:
// with k = k1 + N1*k2, N - k lies in row N1 - k1 at N2 - 1 - k2. Block 0 has rows 0 and N1/2, which are their own
// partners. For narrowband, a block has row k1 of either polarisation's transform.
// Grid (pairs of rows * GROUP/BACK_GROUP, as many as are resident at a time): each block has several groups, and
// copies the next one while it finishes one.
//
// A row's transform is made in place, in two passes, by decimation in frequency: the first takes the points p + LAST*j,
// transforms them, multiplies output d by e^(-2*pi*i*p*d/N2), and leaves FIRST transforms of LAST points. The last pass of
// both rows is made by one thread, so that it has whole pairs in registers. Where FIRST is more than 32, several lanes share a transform:
//
//   j = LANES*i + r, d = a + 32*b, lane r has all i:
//   x'[d] = e^(-2*pi*i*32*p*b/N2) sum over r of e^(-2*pi*i*r*b/LANES) * y_r[a],
//   y_r[a] = e^(-2*pi*i*a*(p + LAST*r)/N2) sum over i of x[p + LAST*j] * e^(-2*pi*i*i*a/32)
//
// Of each y, lane r keeps a = KEPT*r .. KEPT*(r + 1) - 1 and gets the others' there.
#include "geometry.cuh"
#include "copy.cuh"
#include "correct.cuh"
#include "mid.cuh"

// Radices of the passes.
constexpr int LAST = BACK_LAST;
constexpr int FIRST = N2 / LAST;
static_assert(N2 >= 16 && LANES <= 8, "two passes");
constexpr int KEPT = 32 / LANES;
// Transforms of LAST points in a row.
constexpr int LINES = FIRST;
static_assert(LINES * BACK_GROUP == BACK_THREADS, "a thread has one line of each row");

// Channels of a row in the lower half of the band, which are those of a line there; the upper half has as many. Wideband has
// them in the rows of a pair.
constexpr int ROW_HALF = CHANNELS / N1 / 2, LINE_HALF = ROW_HALF / LINES;
static_assert(LINE_HALF >= 1, "a line has channels in both halves");
// Rows whose channels a block finishes.
constexpr int OWN_ROWS = BASEBAND ? 1 : 2;

// Whether a block has both of two parts with adjacent spectra, one after the other, and stores them together. A row of channels then has to begin at
// an even spectrum.
constexpr int PARTS_EACH = PAIRED && SPECTRA_PER_HEAP % 2 == 0 ? 2 : 1;

// Two spectra of a channel.
struct alignas(2 * sizeof(Quantised)) Both {
    Quantised even, odd;
};

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
    // What a thread has quantised of the even spectrum, (channel, thread).
    Quantised *even = reinterpret_cast<Quantised *>(first_pass + N2) + threadIdx.x;
    constexpr int SHARES = PARTS / PARTS_EACH;
    const int pair = blockIdx.x / SHARES, first_part = blockIdx.x % SHARES * PARTS_EACH;
    const int rows[2] = {pair, BASEBAND ? N1 + pair : pair == 0 ? N1 / 2 : N1 - pair};
    // Rows that are their own partners.
    const bool alone = !BASEBAND && pair == 0;
    const int g = threadIdx.x % BACK_GROUP, line = threadIdx.x / BACK_GROUP;
    // Complement digits make the mirror: this line of the one row goes with that one of the other.
    const int lines[2] = {line, BASEBAND ? line : LINES - 1 - line};

    Turns turns(stretch, run);
    int part = first_part;
    auto spectrum_at = [&](int place) { return turns.group() * GROUP + int(spectrum_of(part, place)); };
    auto copy = [&](int parity) {
        copy_rows(z, mid + (turns.group() & stretch.ring - 1) * GROUP_BYTES, part, rows);
        if (threadIdx.x < BACK_GROUP) {
            copy_async<16>(delays + parity * BACK_GROUP + threadIdx.x, fine + min(spectrum_at(threadIdx.x), stretch.end - 1));
        }
        commit_copies();
    };
    for (int i = threadIdx.x; i < N2; i += BACK_THREADS) {
        const int p = i / LANES % LAST, r = i % LANES, a = (i / (LAST * LANES) + KEPT * r) % 32;
        copy_async<8>(first_pass + i, roots + a * (p + LAST * r) * N1);
    }
    const FirstPass own(roots);
    if (turns.over()) {
        return;
    }
    copy(0);
    for (u32 i = threadIdx.x; i < OWN_ROWS * 2 * ROW_HALF; i += BACK_THREADS) {
        copy_async<16>(gain + i, gains + rows[i / (2 * ROW_HALF)] + N1 * (i % (2 * ROW_HALF)));
    }
    commit_copies();

    u32 saturated[2] = {0, 0};
    int batch = 0, parity = 0;
#pragma unroll 1
    for (bool more = true; more;) {
        const int spectrum = spectrum_at(g);
        const bool valid = spectrum < stretch.end;
        const bool first_of_two = PARTS_EACH == 2 && part == first_part;
        part = first_of_two ? first_part + 1 : first_part;
        if (!first_of_two) {
            turns.next();
        }
        more = !turns.over();
        wait_for_copies<0>();
        __syncthreads();
        own.run(z, first_pass);
        __syncthreads();
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
                    const int k2 = lines[row] + d * LINES;
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
        // One of this thread's channels, at its spectrum.
        auto store = [&](Quantised *at, int channel, Quantised x) {
            if constexpr (PARTS_EACH == 1) {
                *at = x;
            } else if (first_of_two) {
                even[channel * BACK_THREADS] = x;
                // None follows the chunk's last.
                if (spectrum + 1 == stretch.end) {
                    *at = x;
                }
            } else {
                *reinterpret_cast<Both *>(at - 1) = Both{even[channel * BACK_THREADS], x};
            }
        };
#pragma unroll
        for (int row = 0; row < OWN_ROWS; row++) {
            // A line has every LINES-th k2, so that its channels are STEP apart.
            constexpr int STEP = N1 * LINES;
            const int k = rows[row] + N1 * lines[row];
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
                store(to + d * STEP * (long long)SPECTRA_PER_HEAP, row * 2 * LINE_HALF + d, low.quantised());
                store(to + (d + LINE_HALF) * STEP * (long long)SPECTRA_PER_HEAP, row * 2 * LINE_HALF + d + LINE_HALF, high.quantised());
            }
        }
    }
    count(stats[batch], saturated);
}
