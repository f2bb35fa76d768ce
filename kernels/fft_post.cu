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
// both rows is made by one thread, so that it has whole pairs in registers.
#include "geometry.cuh"
#include "copy.cuh"
#include "correct.cuh"
#include "first_pass.cuh"
#include "overlap.cuh"
#include "statistics.cuh"
#include "turns.cuh"

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

extern "C" __global__ void __launch_bounds__(BACK_THREADS, BACK_BLOCKS)
fft_post(const char *__restrict__ mid, const float2 *__restrict__ roots, const float4 *__restrict__ gains,
         const float4 *__restrict__ fine, Quantised *__restrict__ out, BatchStats *stats, SpectraRange range, DitherOrigin origin, int run
#if STATISTICS
         ,
         Statistics statistics
#endif
) {
    let_next_begin();
    extern __shared__ float2 z[]; // (row, point, spectrum), at first in granules, and what follows
    float4 *gain = reinterpret_cast<float4 *>(z + POINTS); // of the channels of both rows, (row, place in a line, line)
    float4 *delays = gain + N2;                            // of this turn's and the next turn's spectra
    float2 *first_roots = reinterpret_cast<float2 *>(delays + 2 * BACK_GROUP);
    // What a thread has quantised of the even spectrum, (channel, thread).
    Quantised *even = reinterpret_cast<Quantised *>(first_roots + N2) + threadIdx.x;
    constexpr int SHARES = PARTS / PARTS_EACH;
    const int pair = blockIdx.x / SHARES, first_part = blockIdx.x % SHARES * PARTS_EACH;
    const int rows[2] = {pair, BASEBAND ? N1 + pair : pair == 0 ? N1 / 2 : N1 - pair};
    // Rows that are their own partners.
    const bool alone = !BASEBAND && pair == 0;
    const int g = threadIdx.x % BACK_GROUP, line = threadIdx.x / BACK_GROUP;
    // Complement digits make the mirror: this line of the one row goes with that one of the other.
    const int lines[2] = {line, BASEBAND ? line : LINES - 1 - line};

    Turns turns(range, run);
    int part = first_part;
    auto spectrum_at = [&](int place) { return turns.group() * GROUP + int(spectrum_of(part, place)); };
    auto copy = [&](int parity) {
        copy_rows(z, mid + (turns.group() & range.ring - 1) * GROUP_BYTES, part, rows);
        if (threadIdx.x < BACK_GROUP) {
            copy_async<16>(delays + parity * BACK_GROUP + threadIdx.x, fine + min(spectrum_at(threadIdx.x), range.end - 1));
        }
        commit_copies();
    };
    copy_roots(first_roots, roots);
    const FirstPass first(roots);
#if STATISTICS
    Sums<OWN_ROWS * LINE_HALF> sums(reinterpret_cast<float4 *>(reinterpret_cast<char *>(first_roots + N2) + (PAIRED ? N2 * BACK_GROUP * 4 : 0)),
                                    statistics);
#endif
    wait_for_previous();
    if (turns.over()) {
        return;
    }
    copy(0);
    for (u32 i = threadIdx.x; i < OWN_ROWS * 2 * ROW_HALF; i += BACK_THREADS) {
        copy_async<16>(gain + i, gains + rows[i / (2 * ROW_HALF)] + N1 * (i % (2 * ROW_HALF)));
    }
    commit_copies();

    u32 clipped[2] = {0, 0};
    int batch = 0, parity = 0;
#pragma unroll 1
    for (bool more = true; more;) {
        const int spectrum = spectrum_at(g);
        const bool valid = spectrum < range.end;
        const bool first_of_two = PARTS_EACH == 2 && part == first_part;
        part = first_of_two ? first_part + 1 : first_part;
        if (!first_of_two) {
            turns.next();
        }
        more = !turns.over();
        wait_for_copies<0>();
        __syncthreads();
        first.run(z, first_roots);
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
#if STATISTICS
        float4 delay = delays[parity * BACK_GROUP + g];
#else
        const float4 delay = delays[parity * BACK_GROUP + g];
#endif
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
#if STATISTICS
        // A delay that is not a number marks a spectrum that is not to count; what is behind the end may be anything. All lanes take part in sums.
        const bool counts = valid & (delay.x == delay.x);
        if (__any_sync(~0u, !counts)) {
            asm volatile("" ::: "memory"); // a branch, not selections in every turn
            delay = counts ? delay : make_float4(0, 0, 0, 0);
#pragma unroll
            for (int j = 0; j < LAST; j++) {
                y[0][j] = counts ? y[0][j] : make_float2(0, 0);
                y[1][j] = counts ? y[1][j] : make_float2(0, 0);
            }
        }
        if (valid && spectrum / SPECTRA_PER_HEAP != batch) {
#else
        if (!valid) {
            continue;
        }
        if (spectrum / SPECTRA_PER_HEAP != batch) {
#endif
            count(stats[batch], clipped);
            batch = spectrum / SPECTRA_PER_HEAP;
        }
        const Correction correction(delay, origin, spectrum);
        Quantised *jones = out + (long long)batch * CHANNELS * SPECTRA_PER_HEAP + spectrum % SPECTRA_PER_HEAP;
        // One of this thread's channels, at its spectrum.
        auto store = [&](Quantised *at, int channel, Quantised x) {
#if STATISTICS
            if (!valid) {
                return;
            }
#endif
            if constexpr (PARTS_EACH == 1) {
                *at = x;
            } else if (first_of_two) {
                even[channel * BACK_THREADS] = x;
                // None follows the chunk's last.
                if (spectrum + 1 == range.end) {
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
            for (int first = 0; first < (LINE_HALF + 1) / 2; first++) {
#if DITHER
                const Draws4 draws = correction.draws(k + first * STEP, LINE_HALF > 1);
#endif
#pragma unroll
                for (int quarter = 0; quarter < (LINE_HALF > 1 ? 2 : 1); quarter++) {
                    const int d = first + quarter * (LINE_HALF / 2);
                    Jones low = corrected(d), high = corrected(d + LINE_HALF);
#if STATISTICS
                    sums.add(row * LINE_HALF + 2 * first + quarter, low, high);
#endif
#if DITHER
                    low.dither(draws.of(quarter));
                    high.dither(draws.of(quarter + 2));
#endif
#if STATISTICS
                    clip(low, high, clipped, statistics.clipped + 2 * (k + d * STEP));
#else
                    clip(low, high, clipped);
#endif
                    store(to + d * STEP * (long long)SPECTRA_PER_HEAP, row * 2 * LINE_HALF + d, low.quantised());
                    store(to + (d + LINE_HALF) * STEP * (long long)SPECTRA_PER_HEAP, row * 2 * LINE_HALF + d + LINE_HALF, high.quantised());
                }
            }
        }
    }
    count(stats[batch], clipped);
#if STATISTICS
    sums.finish();
#endif
}
