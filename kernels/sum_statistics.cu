// Takes the sums of all blocks of the back end together, in the order of the blocks, and starts anew: per channel both powers, their squares, both
// parts of the product, and how many numbers of each polarisation were clipped, as a u64. A thread has one of these of one channel.
#include "geometry.cuh"
#include "mid.cuh"
#include "statistics.cuh"

#if STATISTICS != 3
// Sums were of numbers whose mantissas had been cut off behind 10 bits: by 2^-11 of a power of two on the average, which is ln 2 of a number.
constexpr double TRUNCATION = 1 + 0.6931 / 2048;

// Channels of one line, in pairs, and blocks that have a group's rows in parts.
constexpr int LINES = N2 / BACK_LAST, ROW_HALF = CHANNELS / N1 / 2, LINE_HALF = ROW_HALF / LINES;
constexpr int PARTS_EACH = PAIRED && SPECTRA_PER_HEAP % 2 == 0 ? 2 : 1, SHARES = PARTS / PARTS_EACH;
constexpr int RESULTS = Sums<(BASEBAND ? 1 : 2) * LINE_HALF>::RESULTS;

// Calls `each` with where every part of a sum is.
template <typename Each> __device__ __forceinline__ void each_part(int channel, int sum, int columns, int rows, const Each &each) {
    const int half = channel / (CHANNELS / 2), k = channel % (CHANNELS / 2);
    const int d = k / (N1 * LINES), k1 = k % N1, k2 = k % (N1 * LINES) / N1;
    // As fft_post has rows and lines.
    const int row = !BASEBAND && k1 >= N1 / 2, pair = row == 0 ? k1 : k1 == N1 / 2 ? 0 : N1 - k1;
    const int line = row == 0 ? k2 : LINES - 1 - k2;
    // Two pairs of channels, a quarter of the band apart, follow each other.
    const int turn = LINE_HALF > 1 ? d % (LINE_HALF / 2) * 2 + d / (LINE_HALF / 2) : d;
    const int number = (row * LINE_HALF + turn) * 2 * SUMS + half * SUMS + sum;
    const int product = number / 4;
    for (int block_row = 0; block_row < rows; block_row++) {
        for (int share = 0; share < SHARES; share++) {
            const long long block = block_row * columns + pair * SHARES + share;
            for (int g = 0; g < BACK_GROUP; g += 4) {
                const int thread = line * BACK_GROUP + g + product % 4;
                each(((block * RESULTS + product / 4) * BACK_THREADS + thread) * 4 + number % 4);
            }
        }
    }
}
#endif

extern "C" __global__ void __launch_bounds__(256) sum_statistics(float *blocks, u64 *clipped, double *out, int columns, int rows) {
    const int i = blockIdx.x * 256 + threadIdx.x, channel = i / 8, of = i % 8;
    if (channel >= CHANNELS) {
        return;
    }
    if (of >= SUMS) {
        u64 &count = clipped[2 * channel + of - SUMS];
        reinterpret_cast<u64 *>(out)[i] = count;
        count = 0;
        return;
    }
#if STATISTICS != 3
    double sum = 0;
    each_part(channel, of, columns, rows, [&](long long at) {
        sum += blocks[at];
        blocks[at] = 0;
    });
    out[i] = sum * TRUNCATION;
#else
    out[i] = blocks[SUMS * channel + of];
    blocks[SUMS * channel + of] = 0;
#endif
}
