// The shape of one variant, given by the compiler's options, and what follows from it.
//
//   BITS              digitiser bits per sample, 2 to 16
//   TAPS              taps of the filter bank
//   BASEBAND          0: wideband, the input is packed samples, and one transform is of both polarisations;
//                     else narrowband, the input is complex numbers, and each polarisation has its transform, of which
//                     1: all channels are kept, 2: the half around 0 Hz
//   SUBSAMPLING       digitiser samples per number of the input: 1 for wideband
//   LOG_N1, LOG_N2    the transform has N = N1 * N2 points, 2C of them unless all channels are kept
//   TILE              adjacent columns n2 of one block of the front end
//   WIDTH             adjacent columns of one of its threads, 1 or 2
//   GROUP             adjacent spectra of one of its blocks, and of a group of the intermediate
//   BACK_GROUP        spectra of one block of fft_post: adjacent ones, or every other one (PAIRED)
//   SPECTRA_PER_HEAP  spectra per batch
//   FRONT_THREADS, FRONT_BLOCKS, BACK_THREADS, BACK_BLOCKS
//                     threads per block, and blocks that a multiprocessor is to have room for
//   FILTER_REGISTERS  of a thread of pfb_fft_run that filters, where it takes some over from those that transform; 0: all have as many
//   DEPTH             rows of samples that a block of pfb_fft_run has in shared memory
//   OUT_BITS          of each part of the output, 8 or 4
//   DITHER            1: uniform, 0: none
//   SEED_LOW, SEED_HIGH
//                     of the dither, two words of 32 bits
//   STATISTICS        1: fft_post takes sums for statistics, in shared memory; 2: the same, in global memory; 3: post does; 0: none
//   OVER, UNDER       where given, of an oversampled bank: spectra are N*UNDER/OVER apart, in lowest terms; OVER is a power of two
#pragma once

#ifndef OVER
#define OVER 1
#define UNDER 1
#endif

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int N1 = 1 << LOG_N1;
constexpr int N2 = 1 << LOG_N2;
constexpr int N = N1 * N2;
// Elements of the input from spectrum to spectrum.
constexpr int HOP = N / OVER * UNDER;
constexpr int CHANNELS = BASEBAND == 1 ? N : N / 2;
// Transforms per spectrum.
constexpr int SERIES = BASEBAND ? 2 : 1;

static_assert((WIDTH == 1 || WIDTH == 2) && TILE % WIDTH == 0 && N2 % TILE == 0, "whole tiles");
static_assert(BITS >= 2 && BITS <= 16, "WIDTH samples lie within two words");
static_assert(GROUP % BACK_GROUP == 0, "whole groups");
static_assert((OVER & OVER - 1) == 0 && OVER >= UNDER && (OVER == 1 || N / OVER % 2 == 0), "WIDTH columns stay side by side");

// Element n of time is in column n mod N of every spectrum that has it, so that phases count from time 0. Where in its transform a spectrum begins,
// by its number from time 0: 0 without oversampling.
__device__ __forceinline__ constexpr int rotation(u32 number) { return int(number * UNDER & OVER - 1) * (N / OVER); }

// Whether two small parts of a group share adjacent spectra, the first one having the even ones: a block of the back end finishes both and stores
// the results together, whole sectors of memory.
constexpr bool PAIRED = BACK_GROUP == 4 && DEPTH > 0;

// The spectra of one launch: successive ones of an output chunk, as groups of GROUP.
struct SpectraRange {
    int first;       // first spectrum in the chunk
    int end;         // behind the last; the back end discards spectra from there on
    int first_group; // group of the first block
    int ring;        // groups in the intermediate, a power of two; group i lies at i % ring
    int input_ring;  // numbers of each polarisation in the input of narrowband, a power of two
    u32 number;      // of the chunk's first spectrum, counted from time 0; of meaning to the front end alone
};

// Counters of one batch.
struct BatchStats {
    u64 clipped[2];
    u64 power[2];
};
