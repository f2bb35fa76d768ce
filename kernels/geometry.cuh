// The shape of one variant, given by the compiler's options, and what follows from it.
//
//   BITS              digitiser bits per sample, 2 to 16
//   TAPS              taps of the filter bank
//   LOG_N1, LOG_N2    the transform has N = 2C = N1 * N2 points
//   TILE              adjacent columns n2 of one block of pfb_fft; adjacent channels of one of post
//   WIDTH             adjacent columns of one of its threads, 1
//   GROUP             adjacent spectra of one block; the innermost index of the intermediate
//   SPECTRA_PER_HEAP  spectra per batch
//   FRONT_THREADS, BACK_THREADS
//   DITHER            1: uniform, 0: none
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int N1 = 1 << LOG_N1;
constexpr int N2 = 1 << LOG_N2;
constexpr int N = N1 * N2;
constexpr int CHANNELS = N / 2;

static_assert(WIDTH == 1 && N2 % TILE == 0, "whole tiles");
static_assert(BITS >= 2 && BITS <= 16, "a sample lies within the bits that `Place` reads");
static_assert(BACK_THREADS % GROUP == 0, "a thread of fft_post keeps its spectrum");

// Part of one launch: a stretch of an output chunk's spectra, as groups of GROUP.
struct Stretch {
    int first;       // first spectrum in the chunk
    int end;         // behind the last
    int first_group; // group of the first block
    int ring;        // groups in the intermediate, a power of two; group i lies at i % ring
};

// Counters of one batch.
struct BatchStats {
    u64 saturated[2];
    u64 power[2];
};
