//! AVX2 forms: the shuffle unpacker, and the portable text compiled with AVX2 and FMA.

use std::arch::x86_64::*;

use ground::N_POL;
use num_complex::Complex32;

use super::unpack::ShufflePlan;
use super::{Bins, DitherKey, FirTile, SumPlanes, portable};

#[target_feature(enable = "avx2,fma")]
pub(super) fn fir(
    tile: &mut FirTile<'_>,
    taps: usize,
    spectra: usize,
    out: &mut [Complex32],
    pitch: usize,
) {
    portable::fir(tile, taps, spectra, out, pitch);
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn quantise(
    bins: Bins<'_>,
    coefs: [&[Complex32]; N_POL],
    key: Option<DitherKey>,
    limit: f32,
    out: &mut [u32],
    sums: Option<SumPlanes<'_>>,
) -> [u64; N_POL] {
    match sums {
        None => portable::quantise(bins, coefs, key, limit, out, None),
        _ => portable::quantise(bins, coefs, key, limit, out, sums),
    }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn phasors(
    gains: &[Complex32],
    coarse: &[Complex32],
    fine: &[Complex32],
    out: &mut [Complex32],
) {
    portable::phasors(gains, coarse, fine, out);
}

/// Unpacks `count` samples, a multiple of 8, and returns Σ x² if `POWER`, else 0.
///
/// # Safety
/// Samples `0..count` and the 32 bytes after the start of the last eight lie in `packed`; `out`
/// holds `count` values.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn unpack<const POWER: bool>(
    plan: &ShufflePlan,
    bits: u32,
    packed: *const u8,
    out: *mut f32,
    count: usize,
) -> u64 {
    // Each 128-bit half takes four samples; the upper half's bytes start `bits / 2` further on.
    let upper = bits as usize / 2;
    // SAFETY: plan arrays are 16 lanes of 4 bytes; eight lanes are read.
    let (shuffle, shift) = unsafe {
        (
            _mm256_loadu_si256(plan.shuffle_halves.as_ptr().cast()),
            _mm256_loadu_si256(plan.shift.as_ptr().cast()),
        )
    };
    let right = _mm_cvtsi32_si128(32 - bits as i32);
    let mut power = _mm256_setzero_si256();
    for i in (0..count).step_by(8) {
        // SAFETY: by the contract, `packed + i·bits/8 .. + 32` is readable and `out[i..i + 8]`
        // writable.
        let x = unsafe {
            let from = packed.add(i * bits as usize / 8);
            let low = _mm_loadu_si128(from.cast());
            let high = _mm_loadu_si128(from.add(upper).cast());
            let raw = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high);
            let x = _mm256_sra_epi32(
                _mm256_sllv_epi32(_mm256_shuffle_epi8(raw, shuffle), shift),
                right,
            );
            _mm256_storeu_ps(out.add(i), _mm256_cvtepi32_ps(x));
            x
        };
        if POWER {
            let odd = _mm256_srli_epi64::<32>(x);
            power = _mm256_add_epi64(power, _mm256_mul_epi32(x, x));
            power = _mm256_add_epi64(power, _mm256_mul_epi32(odd, odd));
        }
    }
    let mut sums = [0u64; 4];
    // SAFETY: 32 bytes into 32 bytes.
    unsafe { _mm256_storeu_si256(sums.as_mut_ptr().cast(), power) };
    sums.iter().sum()
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn ddc(
    taps: [&[f32]; 2],
    samples: &[f32],
    subsampling: usize,
    re: &mut [f32],
    im: &mut [f32],
) {
    portable::ddc(taps, samples, subsampling, re, im);
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn rotate(base: [f32; 2], table: [&[f32]; 2], re: &mut [f32], im: &mut [f32]) {
    portable::rotate(base, table, re, im);
}
