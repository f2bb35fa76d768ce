//! AVX-512 forms.

mod transpose;

use std::arch::x86_64::*;

use ground::N_POL;
use num_complex::Complex32;

pub(super) use transpose::transpose;

use super::unpack::ShufflePlan;
use super::{Bins, DitherKey, FirTile, SumPlanes, TILE, portable};

/// Philox4x32 multipliers and key increments (Salmon et al. 2011).
const PHILOX_M0: u32 = 0xD251_1F53;
const PHILOX_M1: u32 = 0xCD9E_8D57;
const PHILOX_W0: u32 = 0x9E37_79B9;
const PHILOX_W1: u32 = 0xBB67_AE85;

/// (d + ½)/65536 − ½ as one multiply-add, exact.
const DITHER_SCALE: f32 = 1.0 / 65536.0;
const DITHER_OFFSET: f32 = 0.5 / 65536.0 - 0.5;
/// Upper bytes of 32 draws.
const UPPER_BYTES: __mmask64 = 0xAAAA_AAAA_AAAA_AAAA;

/// Unpacks `count` samples, a multiple of 16, and returns Σ x² if `POWER`, else 0.
///
/// # Safety
/// 64 bytes are readable from the start of each 16 samples; `out` holds `count` values.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) unsafe fn unpack<const POWER: bool>(
    plan: &ShufflePlan,
    bits: u32,
    packed: *const u8,
    out: *mut f32,
    count: usize,
) -> u64 {
    // SAFETY: both arrays are 64 bytes.
    let (shuffle, shift) = unsafe {
        (
            _mm512_loadu_si512(plan.shuffle.as_ptr().cast()),
            _mm512_loadu_si512(plan.shift.as_ptr().cast()),
        )
    };
    let right = _mm_cvtsi32_si128(32 - bits as i32);
    let run = count / 8 * bits as usize;
    // The next tile's samples of this row: rows are too far apart for the hardware to guess them.
    for ahead in (0..run).step_by(64) {
        _mm_prefetch::<_MM_HINT_T0>(packed.wrapping_add(run + ahead).cast());
    }
    let mut power = _mm512_setzero_si512();
    for i in (0..count).step_by(16) {
        // SAFETY: by the contract.
        let x = unsafe {
            let raw = _mm512_loadu_si512(packed.add(i / 8 * bits as usize).cast());
            let x = _mm512_sra_epi32(
                _mm512_sllv_epi32(_mm512_permutexvar_epi8(shuffle, raw), shift),
                right,
            );
            _mm512_storeu_ps(out.add(i), _mm512_cvtepi32_ps(x));
            x
        };
        if POWER {
            let odd = _mm512_srli_epi64::<32>(x);
            power = _mm512_add_epi64(power, _mm512_mul_epi32(x, x));
            power = _mm512_add_epi64(power, _mm512_mul_epi32(odd, odd));
        }
    }
    _mm512_reduce_add_epi64(power) as u64
}

/// # Safety
/// Full-width tile, and slices as long as [`super::fir`] asserts.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn fir(
    tile: &mut FirTile<'_>,
    taps: usize,
    spectra: usize,
    out: &mut [Complex32],
    pitch: usize,
) {
    let mut first = 0;
    while first < taps {
        let left = taps - first;
        let block = Block {
            first,
            more: false,
            last: false,
        };
        // SAFETY: the caller's contract, and `first + N <= taps`.
        first += unsafe {
            match left {
                16.. => fir_block::<16>(tile, block.of(left == 16), spectra, out, pitch),
                8.. => fir_block::<8>(tile, block.of(left == 8), spectra, out, pitch),
                4.. => fir_block::<4>(tile, block.of(left == 4), spectra, out, pitch),
                2.. => fir_block::<2>(tile, block.of(left == 2), spectra, out, pitch),
                _ => fir_block::<1>(tile, block.of(true), spectra, out, pitch),
            }
        };
    }
}

/// Which taps a pass over the tile does.
#[derive(Clone, Copy)]
struct Block {
    first: usize,
    more: bool,
    last: bool,
}

impl Block {
    fn of(self, last: bool) -> Self {
        Self {
            more: self.first > 0,
            last,
            ..self
        }
    }
}

/// One pass of `N` taps whose coefficients stay in registers.
///
/// # Safety
/// As [`fir`], with `block.first + N <= taps`.
#[target_feature(enable = "avx512f")]
unsafe fn fir_block<const N: usize>(
    tile: &mut FirTile<'_>,
    block: Block,
    spectra: usize,
    out: &mut [Complex32],
    pitch: usize,
) -> usize {
    // Interleave eight real and eight imaginary parts.
    let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    let high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    for column in (0..TILE).step_by(16) {
        // SAFETY: columns and rows inside the slices whose lengths `super::fir` asserted.
        unsafe {
            let weights = tile
                .weights
                .as_ptr()
                .add(block.first * tile.step + tile.column + column);
            let w: [__m512; N] =
                std::array::from_fn(|j| _mm512_loadu_ps(weights.add(j * tile.step)));
            let x = tile
                .samples
                .map(|signal| signal.as_ptr().add(block.first * tile.pitch + column));
            let out = out.as_mut_ptr().add(tile.column + column);
            let partial = tile.partial.as_mut_ptr().add(column);
            for s in 0..spectra {
                let mut acc = [_mm512_setzero_ps(); 2];
                if block.more {
                    acc = [0, 1].map(|p| _mm512_loadu_ps(partial.add((s * 2 + p) * TILE)));
                }
                for (j, &w) in w.iter().enumerate() {
                    let row = (s + j) * tile.pitch;
                    acc[0] = _mm512_fmadd_ps(w, _mm512_loadu_ps(x[0].add(row)), acc[0]);
                    acc[1] = _mm512_fmadd_ps(w, _mm512_loadu_ps(x[1].add(row)), acc[1]);
                }
                if block.last {
                    let to = out.add(s * pitch).cast::<f32>();
                    _mm512_storeu_ps(to, _mm512_permutex2var_ps(acc[0], low, acc[1]));
                    _mm512_storeu_ps(to.add(16), _mm512_permutex2var_ps(acc[0], high, acc[1]));
                } else {
                    for (p, acc) in acc.into_iter().enumerate() {
                        _mm512_storeu_ps(partial.add((s * 2 + p) * TILE), acc);
                    }
                }
            }
        }
    }
    N
}

/// x·c for eight complex numbers, rounding as `portable::mul`.
#[inline]
#[target_feature(enable = "avx512f")]
fn mul(x: __m512, c: __m512) -> __m512 {
    let swapped = _mm512_permute_ps::<0b10_11_00_01>(x);
    _mm512_fmaddsub_ps(
        x,
        _mm512_moveldup_ps(c),
        _mm512_mul_ps(swapped, _mm512_movehdup_ps(c)),
    )
}

/// |x|² and |y|² of eight channels side by side, and x·y*, rounding as `portable::add`.
#[inline]
#[target_feature(enable = "avx512f")]
fn powers([x, y]: [__m512; N_POL]) -> (__m512, __m512) {
    const ODD: __mmask16 = 0xAAAA;
    // The real part of x and the imaginary one of y, and the other two.
    let some = _mm512_mask_blend_ps(ODD, x, y);
    let others = _mm512_permute_ps::<0b10_11_00_01>(_mm512_mask_blend_ps(ODD, y, x));
    let power = _mm512_fmadd_ps(some, some, _mm512_mul_ps(others, others));
    let swapped = _mm512_permute_ps::<0b10_11_00_01>(x);
    let product = _mm512_mul_ps(swapped, _mm512_movehdup_ps(y));
    (power, _mm512_fmsubadd_ps(x, _mm512_moveldup_ps(y), product))
}

/// Adds eight channels from `k` on.
///
/// # Safety
/// The planes of `sums` have these channels.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn add(sums: &mut SumPlanes<'_>, k: usize, y: [__m512; N_POL]) {
    let (power, cross) = powers(y);
    // SAFETY: by the contract.
    unsafe {
        let to = sums.power.as_mut_ptr().add(2 * k);
        _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), power));
        let to = sums.power_squared.as_mut_ptr().add(2 * k);
        _mm512_storeu_ps(to, _mm512_fmadd_ps(power, power, _mm512_loadu_ps(to)));
        let to = sums.cross.as_mut_ptr().add(2 * k);
        _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), cross));
    }
}

/// # Safety
/// `out` holds a multiple of 64 channels; `bins`, `coefs` and `sums` as [`super::quantise`]
/// asserts.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn quantise<const SUMS: bool>(
    bins: Bins<'_>,
    coefs: [&[Complex32]; N_POL],
    key: Option<DitherKey>,
    limit: f32,
    out: &mut [u32],
    mut sums: Option<SumPlanes<'_>>,
) -> [u64; N_POL] {
    let channels = out.len();
    let reverse = _mm512_setr_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    let conj = _mm512_castsi512_ps(_mm512_set1_epi64(i64::MIN));
    let (top, bottom) = (_mm512_set1_ps(limit), _mm512_set1_ps(-limit));
    let scale = _mm512_set1_ps(DITHER_SCALE);
    let offset = _mm512_set1_ps(DITHER_OFFSET);
    let mut clipped = [0u64; N_POL];
    let mut noise = [[[0u32; 16]; N_POL]; 4];
    let (half, quarter) = (channels / 2, channels / 4);
    for lowest in (0..quarter).step_by(16) {
        // Channels a quarter of the band apart share blocks of the generator.
        if let Some(key) = key {
            noise = draws(key, lowest as u32);
        }
        for (first, noise) in (lowest..).step_by(quarter).zip(&noise) {
            for k in (first..first + 16).step_by(8) {
                // SAFETY: k + 8 <= channels; n - k - 7 .. n - k with n = 2·channels lies in the n +
                // 1 of a joint transform, and eight elements from `at` on, which do not cross the
                // middle of the band, in one of `channels` or more.
                unsafe {
                    let x = match bins {
                        Bins::Joint(z) => {
                            let a = _mm512_loadu_ps(z.as_ptr().add(k).cast());
                            let b = _mm512_loadu_pd(z.as_ptr().add(2 * channels - k - 7).cast());
                            let b = _mm512_castpd_ps(_mm512_permutexvar_pd(reverse, b));
                            let b = _mm512_xor_ps(b, conj);
                            [_mm512_add_ps(a, b), _mm512_sub_ps(a, b)]
                        }
                        Bins::Apart(z) => z.map(|z| {
                            let at = if k < half {
                                z.len() - half + k
                            } else {
                                k - half
                            };
                            _mm512_loadu_ps(z.as_ptr().add(at).cast())
                        }),
                    };
                    let y = [0, 1].map(|p: usize| {
                        mul(x[p], _mm512_loadu_ps(coefs[p].as_ptr().add(k).cast()))
                    });
                    if SUMS && let Some(sums) = &mut sums {
                        add(sums, k, y);
                    }
                    let mut bytes = [_mm_setzero_si128(); N_POL];
                    for p in 0..N_POL {
                        let mut y = y[p];
                        if key.is_some() {
                            let d = _mm256_loadu_si256(noise[p].as_ptr().add(k - first).cast());
                            let d = _mm512_cvtepi32_ps(_mm512_cvtepu16_epi32(d));
                            y = _mm512_add_ps(y, _mm512_fmadd_ps(d, scale, offset));
                        }
                        // In this order what is not a number stays so, and becomes 0.
                        let clamped = _mm512_max_ps(bottom, _mm512_min_ps(top, y));
                        let over = _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(y, clamped);
                        let over = (over | over >> 1) & 0x5555;
                        clipped[p] += u64::from(over.count_ones());
                        if SUMS
                            && over != 0
                            && let Some(sums) = &mut sums
                        {
                            (0..8).for_each(|i| {
                                sums.clipped[2 * (k + i) + p] += u32::from(over >> (2 * i) & 1);
                            });
                        }
                        bytes[p] = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(clamped));
                    }
                    let to = out.as_mut_ptr().add(k).cast::<__m128i>();
                    _mm_storeu_si128(to, _mm_unpacklo_epi16(bytes[0], bytes[1]));
                    _mm_storeu_si128(to.add(1), _mm_unpackhi_epi16(bytes[0], bytes[1]));
                }
            }
        }
    }
    clipped
}

/// 32-bit products of 16 lanes with `m`: high and low words.
#[inline]
#[target_feature(enable = "avx512f")]
fn mul_wide(x: __m512i, m: __m512i) -> (__m512i, __m512i) {
    let even = _mm512_mul_epu32(x, m);
    let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(x), m);
    let high = _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64::<32>(even), odd);
    let low = _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64::<32>(odd));
    (high, low)
}

/// Draws of 16 channels from `channel` on, in the lowest quarter of the band, and of those one, two
/// and three quarters above: per polarisation, one word per channel with the real part's draw in
/// the low half.
#[target_feature(enable = "avx512f,avx512bw")]
fn draws(key: DitherKey, channel: u32) -> [[[u32; 16]; N_POL]; 4] {
    let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let (mut k0, mut k1) = (key.seed as u32, (key.seed >> 32) as u32);
    let (m0, m1) = (
        _mm512_set1_epi32(PHILOX_M0 as i32),
        _mm512_set1_epi32(PHILOX_M1 as i32),
    );
    let mut c = [
        _mm512_set1_epi32(key.timestamp as i32),
        _mm512_set1_epi32((key.timestamp >> 32) as i32),
        _mm512_add_epi32(_mm512_set1_epi32(channel as i32), lanes),
        _mm512_set1_epi32(key.feng_id as i32),
    ];
    for _ in 0..7 {
        let (h0, l0) = mul_wide(c[0], m0);
        let (h1, l1) = mul_wide(c[2], m1);
        c = [
            _mm512_ternarylogic_epi32::<0x96>(h1, c[1], _mm512_set1_epi32(k0 as i32)),
            l1,
            _mm512_ternarylogic_epi32::<0x96>(h0, c[3], _mm512_set1_epi32(k1 as i32)),
            l0,
        ];
        k0 = k0.wrapping_add(PHILOX_W0);
        k1 = k1.wrapping_add(PHILOX_W1);
    }
    // Each of a word's bytes twice: 0 and 1 for the first polarisation, 2 and 3 for the second.
    let first = _mm_setr_epi8(0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13);
    let twice = [first, _mm_add_epi8(first, _mm_set1_epi8(2))].map(|at| _mm512_broadcast_i32x4(at));
    let mut noise = [[[0; 16]; N_POL]; 4];
    for (quarter, noise) in noise.iter_mut().enumerate() {
        let lower = _mm512_xor_si512(c[(quarter + 1) % 4], c[(quarter + 2) % 4]);
        for (twice, noise) in twice.into_iter().zip(noise) {
            let draws = _mm512_shuffle_epi8(lower, twice);
            let draws = _mm512_mask_shuffle_epi8(draws, UPPER_BYTES, c[quarter], twice);
            // SAFETY: a store of 16 words into 16.
            unsafe { _mm512_storeu_epi32(noise.as_mut_ptr().cast(), draws) };
        }
    }
    noise
}

/// Outputs of [`ddc`] that share loads of the taps: with two sums each, as many accumulators as one
/// vector has lanes.
const DDC_BLOCK: usize = 8;

/// # Safety
/// `samples` has those that [`DdcTaps::apply`](super::DdcTaps::apply) asserts; both of `taps` are
/// whole vectors.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn ddc(
    taps: [&[f32]; 2],
    samples: &[f32],
    subsampling: usize,
    re: &mut [f32],
    im: &mut [f32],
) {
    let whole = re.len() / DDC_BLOCK * DDC_BLOCK;
    for first in (0..whole).step_by(DDC_BLOCK) {
        // SAFETY: outputs first .. first + 8 are there, and so are the samples that they read.
        unsafe {
            let from = samples.as_ptr().add(first * subsampling);
            let mut acc = [[_mm512_setzero_ps(); DDC_BLOCK]; 2];
            for l in (0..taps[0].len()).step_by(16) {
                let g = taps.map(|part| _mm512_loadu_ps(part.as_ptr().add(l)));
                let [re, im] = &mut acc;
                for (i, (re, im)) in re.iter_mut().zip(im).enumerate() {
                    let x = _mm512_loadu_ps(from.add(i * subsampling + l));
                    *re = _mm512_fmadd_ps(g[0], x, *re);
                    *im = _mm512_fmadd_ps(g[1], x, *im);
                }
            }
            let sums = sum_lanes(acc);
            _mm256_storeu_ps(re.as_mut_ptr().add(first), _mm512_castps512_ps256(sums));
            let high = _mm512_castps_pd(sums);
            let high = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(high));
            _mm256_storeu_ps(im.as_mut_ptr().add(first), high);
        }
    }
    let rest = &samples[(whole * subsampling).min(samples.len())..];
    portable::ddc(taps, rest, subsampling, &mut re[whole..], &mut im[whole..]);
}

/// The sums over the lanes of each of 16 vectors, in their order: of lanes i and i + 8, then of i
/// and i + 4, and so on, as `portable::ddc_block` does. Each step halves the vectors and keeps all
/// lanes busy.
#[inline]
#[target_feature(enable = "avx512f")]
fn sum_lanes(acc: [[__m512; DDC_BLOCK]; 2]) -> __m512 {
    // The steps leave the sum of vector 4e + k in lane 4k + e.
    let v = |i: usize| {
        let lane = i % 4 * 4 + i / 4;
        acc[lane / DDC_BLOCK][lane % DDC_BLOCK]
    };
    let eights: [__m512; 8] = std::array::from_fn(|i| {
        let (a, b) = (v(2 * i), v(2 * i + 1));
        let low = _mm512_shuffle_f32x4::<0b01_00_01_00>(a, b);
        _mm512_add_ps(low, _mm512_shuffle_f32x4::<0b11_10_11_10>(a, b))
    });
    let fours: [__m512; 4] = std::array::from_fn(|i| {
        let (a, b) = (eights[2 * i], eights[2 * i + 1]);
        let low = _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b);
        _mm512_add_ps(low, _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b))
    });
    let twos: [__m512; 2] = std::array::from_fn(|i| {
        let (a, b) = (fours[2 * i], fours[2 * i + 1]);
        let low = _mm512_shuffle_ps::<0b01_00_01_00>(a, b);
        _mm512_add_ps(low, _mm512_shuffle_ps::<0b11_10_11_10>(a, b))
    });
    let low = _mm512_shuffle_ps::<0b10_00_10_00>(twos[0], twos[1]);
    _mm512_add_ps(low, _mm512_shuffle_ps::<0b11_01_11_01>(twos[0], twos[1]))
}

#[target_feature(enable = "avx512f")]
pub(super) fn rotate(base: [f32; 2], table: [&[f32]; 2], re: &mut [f32], im: &mut [f32]) {
    portable::rotate(base, table, re, im);
}

#[target_feature(enable = "avx512f")]
pub(super) fn phasors(
    gains: &[Complex32],
    coarse: &[Complex32],
    fine: &[Complex32],
    out: &mut [Complex32],
) {
    if !fine.len().is_multiple_of(8) || !out.len().is_multiple_of(fine.len()) {
        return portable::phasors(gains, coarse, fine, out);
    }
    let blocks = out.chunks_mut(fine.len()).zip(gains.chunks(fine.len()));
    for ((out, gains), c) in blocks.zip(coarse) {
        let c = _mm512_setr4_ps(c.re, c.im, c.re, c.im);
        for ((out, g), f) in out.chunks_mut(8).zip(gains.chunks(8)).zip(fine.chunks(8)) {
            // SAFETY: chunks of eight, since eight divides all three lengths.
            unsafe {
                let f = _mm512_loadu_ps(f.as_ptr().cast());
                let g = _mm512_loadu_ps(g.as_ptr().cast());
                _mm512_storeu_ps(out.as_mut_ptr().cast(), mul(g, mul(f, c)));
            }
        }
    }
}
