// The digitiser's power for engines without a wideband output: for each spectrum of a launch the sum of squares over as many samples as lie
// between spectra, which counts for the spectrum's batch.
//
//   BITS              digitiser bits per sample
//   SPECTRUM_SAMPLES  samples from spectrum to spectrum, even
//   SPECTRA_PER_HEAP  spectra per batch
//
// Grid (spectra, blocks of a spectrum, 2): the last is the polarisation. Threads 256.
#define WIDTH 2
typedef unsigned int u32;
typedef unsigned long long u64;
#include "unpack.cuh"

// Counters of one batch, as in geometry.cuh.
struct BatchStats {
    u64 clipped[2];
    u64 power[2];
};

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
power(const u32 *__restrict__ pol0, const u32 *__restrict__ pol1, u64 offset0, u64 offset1, BatchStats *stats, int first) {
    const int pol = blockIdx.z;
    // All threads of a spectrum together take whole words, so that samples lie in the same place each time.
    const u64 bit = ((pol == 0 ? offset0 : offset1) + (u64)blockIdx.x * SPECTRUM_SAMPLES + 2 * (blockIdx.y * THREADS + threadIdx.x)) * BITS;
    const Place place(int(bit & 31));
    const u32 *words = (pol == 0 ? pol0 : pol1) + (bit >> 5);
    const int turn = gridDim.y * (THREADS * 2 * BITS / 32);
    u64 sum = 0;
#pragma unroll 4
    for (int i = blockIdx.y * THREADS + threadIdx.x; i < SPECTRUM_SAMPLES / 2; i += gridDim.y * THREADS) {
        const uint2 two = make_uint2(__ldg(words), __ldg(words + 1));
        const int n0 = place.integer(two, 0), n1 = place.integer(two, 1);
        sum += u32(n0 * n0) + u64(u32(n1 * n1));
        words += turn;
    }
    for (int lane = 16; lane > 0; lane /= 2) {
        sum += __shfl_down_sync(~0u, sum, lane);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd(&stats[(first + blockIdx.x) / SPECTRA_PER_HEAP].power[pol], sum);
    }
}
