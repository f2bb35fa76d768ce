// The second half of the transform, and everything behind it: the two polarisations are separated, corrected for
// delay, phase and gain, dithered, quantised, counted, and stored as (batch, channel, spectrum, pol, re/im).
//
// A block has the rows k1 and N1 - k1 of mid for GROUP spectra, because Z[k] and Z[N - k] belong together:
// with k = k1 + N1*k2, N - k lies in row N1 - k1 at N2 - 1 - k2. Block 0 has rows 0 and N1/2, which are their own
// partners. Grid (N1/2, groups).
#include "geometry.cuh"
#include "fft.cuh"
#include "correct.cuh"

extern "C" __global__ void __launch_bounds__(BACK_THREADS, BACK_BLOCKS)
fft_post(const float2 *__restrict__ mid, const float2 *__restrict__ roots, const float4 *__restrict__ gains,
         const float4 *__restrict__ fine, u32 *__restrict__ out, BatchStats *stats, Stretch stretch, Stream stream) {
    extern __shared__ float2 z[]; // (row, position, spectrum)
    const int group = stretch.first_group + blockIdx.y;
    const int pair = blockIdx.x;
    const int row0 = pair, row1 = pair == 0 ? N1 / 2 : N1 - pair;
    const float2 *in = mid + (long long)(group & (stretch.ring - 1)) * N * GROUP;

    // A line is (row, spectrum).
    auto address = [](int line, int at) { return (line / GROUP * N2 + at) * GROUP + line % GROUP; };
    auto from_mid = [&](int line, int at) {
        const int row = line / GROUP == 0 ? row0 : row1;
        return __ldg(&in[(long long)(row * N2 + at) * GROUP + line % GROUP]);
    };
    auto load = [&](int line, int at) { return z[address(line, at)]; };
    auto store = [&](int line, int at, float2 value) { z[address(line, at)] = value; };
    constexpr int R = radix(N2);
    pass<N2, N2, BACK_THREADS>(2 * GROUP, roots, from_mid, store);
    __syncthreads();
    if constexpr (R < N2) {
        constexpr int SECOND = N2 / R;
        pass<N2, SECOND, BACK_THREADS>(2 * GROUP, roots, load, store);
        __syncthreads();
        if constexpr (radix(SECOND) < SECOND) {
            constexpr int THIRD = SECOND / radix(SECOND);
            static_assert(radix(THIRD) == THIRD, "three passes at most");
            pass<N2, THIRD, BACK_THREADS>(2 * GROUP, roots, load, store);
            __syncthreads();
        }
    }

    const int g = threadIdx.x % GROUP;
    const int spectrum = group * GROUP + g;
    if (spectrum >= stream.limit) {
        return;
    }
    const int batch = spectrum / SPECTRA_PER_HEAP;
    u32 *jones = out + (long long)batch * CHANNELS * SPECTRA_PER_HEAP + spectrum % SPECTRA_PER_HEAP;
    const Correction correction(__ldg(&fine[spectrum]), stream, spectrum);
    u32 saturated[2] = {};
    // Half of each row is below the Nyquist channel. A thread keeps its row, and steps through its k2.
    constexpr int STEP = BACK_THREADS / GROUP / 2;
    const int row = threadIdx.x / GROUP % 2;
    const int partner = pair == 0 ? row : 1 - row;
    const bool own = pair == 0 && row == 0;
    const float2 *here = &z[row * N2 * GROUP + g], *there = &z[partner * N2 * GROUP + g];
    static_assert(STEP > 0 && N2 / 2 % STEP == 0, "every thread has as many channels");
    const int first = threadIdx.x / (2 * GROUP) % STEP;
    const int k1 = row == 0 ? row0 : row1;
#pragma unroll 4
    for (int step = 0; step < N2 / 2; step += STEP) {
        const int k2 = step | first;
        const int k = k1 + N1 * k2;
        // The mirror of k2 has the complement of its digits, but in row 0.
        const int from = position<N2>(k2);
        const int mirror = own ? position<N2>((N2 - k2) % N2) : N2 - 1 - from;
        const float2 a = here[from * GROUP];
        const float2 b = there[mirror * GROUP];
        const uint4 draws = correction.draws(k / 2);
        jones[(long long)k * SPECTRA_PER_HEAP] = correction.jones(a, b, __ldg(&gains[k]), k, k % 2 ? draws.z : draws.x,
                                                                  k % 2 ? draws.w : draws.y, saturated);
    }
    count(stats[batch], saturated);
}
