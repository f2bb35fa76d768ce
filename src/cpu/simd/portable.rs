//! Kernels in plain Rust: the definition of the arithmetic that every level keeps to.
//!
//! All are `inline(always)` so that the AVX2 forms can compile the same text for their
//! instruction set.

use dsp::dither;
use ground::N_POL;
use num_complex::Complex32;

use super::ddc::LANES;
use super::{Bins, DitherKey, FirTile, SumPlanes, TILE};

/// Sample `index` of a packed stream whose first sample starts at bit `bit` of `packed`;
/// bits beyond the end read as 0.
#[inline(always)]
pub(super) fn sample(packed: &[u8], bit: usize, index: usize, bits: u32) -> i32 {
    let bit = bit + index * bits as usize;
    let byte = bit / 8;
    let word = match packed.get(byte..byte + 4) {
        Some(w) => u32::from_be_bytes([w[0], w[1], w[2], w[3]]),
        None => (0..4).fold(0, |word, i| {
            word << 8 | u32::from(packed.get(byte + i).copied().unwrap_or(0))
        }),
    };
    ((word << (bit % 8)) as i32) >> (32 - bits)
}

/// Unpacks into `out`; returns Σ x².
#[inline(always)]
pub(super) fn unpack(packed: &[u8], bit: usize, bits: u32, out: &mut [f32]) -> u64 {
    let mut power = 0;
    for (i, out) in out.iter_mut().enumerate() {
        let x = sample(packed, bit, i, bits);
        power += (i64::from(x) * i64::from(x)) as u64;
        *out = x as f32;
    }
    power
}

#[inline(always)]
pub(super) fn fir(
    tile: &mut FirTile<'_>,
    taps: usize,
    spectra: usize,
    out: &mut [Complex32],
    pitch: usize,
) {
    let width = TILE.min(tile.step - tile.column);
    for s in 0..spectra {
        let mut acc = [[0f32; TILE]; 2];
        for j in 0..taps {
            let w = &tile.weights[j * tile.step + tile.column..][..width];
            for (acc, samples) in acc.iter_mut().zip(tile.samples) {
                let x = &samples[(s + j) * tile.pitch..][..width];
                for i in 0..width {
                    acc[i] = w[i].mul_add(x[i], acc[i]);
                }
            }
        }
        let out = &mut out[s * pitch + tile.column..][..width];
        for i in 0..width {
            out[i] = Complex32::new(acc[0][i], acc[1][i]);
        }
    }
}

/// Complex product in the rounding order of the vector forms.
#[inline(always)]
pub(super) fn mul(x: Complex32, c: Complex32) -> Complex32 {
    Complex32::new(
        x.re.mul_add(c.re, -(x.im * c.im)),
        x.im.mul_add(c.re, x.re * c.im),
    )
}

#[inline(always)]
fn component(x: f32, dither: f32, limit: f32, clipped: &mut bool) -> u8 {
    let x = x + dither;
    let clamped = x.clamp(-limit, limit);
    *clipped |= x != clamped;
    clamped.round_ties_even() as i8 as u8
}

/// Adds both polarisations of channel `k`.
#[inline(always)]
fn add(sums: &mut SumPlanes<'_>, k: usize, [x, y]: [Complex32; N_POL]) {
    let power = [
        x.re.mul_add(x.re, x.im * x.im),
        y.im.mul_add(y.im, y.re * y.re),
    ];
    for (p, power) in power.into_iter().enumerate() {
        sums.power[2 * k + p] += power;
        let squared = &mut sums.power_squared[2 * k + p];
        *squared = power.mul_add(power, *squared);
    }
    sums.cross[2 * k] += x.re.mul_add(y.re, x.im * y.im);
    sums.cross[2 * k + 1] += x.im.mul_add(y.re, -(x.re * y.im));
}

#[inline(always)]
pub(super) fn quantise(
    bins: Bins<'_>,
    coefs: [&[Complex32]; N_POL],
    key: Option<DitherKey>,
    limit: f32,
    out: &mut [u32],
    mut sums: Option<SumPlanes<'_>>,
) -> [u64; N_POL] {
    let mut clipped = [0; N_POL];
    let (half, quarter) = (out.len() / 2, out.len() / 4);
    for lowest in 0..quarter {
        // One block of the generator serves four channels, a quarter of the band apart.
        let noise = match key {
            Some(key) => dither::block(key.seed, key.feng_id, key.timestamp, lowest),
            None => [[0f32; 4]; 4],
        };
        for (k, noise) in (lowest..).step_by(quarter).zip(noise) {
            let x = match bins {
                Bins::Joint(z) => {
                    let (a, b) = (z[k], z[4 * half - k].conj());
                    [a + b, a - b]
                }
                Bins::Apart(z) if k < half => z.map(|z| z[z.len() - half + k]),
                Bins::Apart(z) => z.map(|z| z[k - half]),
            };
            let y = [mul(x[0], coefs[0][k]), mul(x[1], coefs[1][k])];
            if let Some(sums) = &mut sums {
                add(sums, k, y);
            }
            let mut bytes = [0; 4];
            for p in 0..N_POL {
                let d = &noise[2 * p..][..2];
                let mut clamped = false;
                bytes[2 * p] = component(y[p].re, d[0], limit, &mut clamped);
                bytes[2 * p + 1] = component(y[p].im, d[1], limit, &mut clamped);
                clipped[p] += u64::from(clamped);
                if let Some(sums) = &mut sums {
                    sums.clipped[2 * k + p] += u32::from(clamped);
                }
            }
            out[k] = u32::from_le_bytes(bytes);
        }
    }
    clipped
}

#[inline(always)]
pub(super) fn phasors(
    gains: &[Complex32],
    coarse: &[Complex32],
    fine: &[Complex32],
    out: &mut [Complex32],
) {
    let blocks = out.chunks_mut(fine.len()).zip(gains.chunks(fine.len()));
    for ((out, gains), &c) in blocks.zip(coarse) {
        for ((out, &g), &f) in out.iter_mut().zip(gains).zip(fine) {
            *out = mul(g, mul(f, c));
        }
    }
}

/// Outputs that share loads of the taps.
const DDC_BLOCK: usize = 2;

#[inline(always)]
pub(super) fn ddc(
    taps: [&[f32]; 2],
    samples: &[f32],
    subsampling: usize,
    re: &mut [f32],
    im: &mut [f32],
) {
    let blocks = re.chunks_mut(DDC_BLOCK).zip(im.chunks_mut(DDC_BLOCK));
    for (block, (re, im)) in blocks.enumerate() {
        let from = &samples[block * DDC_BLOCK * subsampling..];
        match re.len() {
            DDC_BLOCK => ddc_block::<DDC_BLOCK>(taps, from, subsampling, re, im),
            _ => ddc_block::<1>(taps, from, subsampling, re, im),
        }
    }
}

#[inline(always)]
pub(super) fn ddc_block<const N: usize>(
    taps: [&[f32]; 2],
    samples: &[f32],
    subsampling: usize,
    re: &mut [f32],
    im: &mut [f32],
) {
    let mut acc = [[[0f32; LANES]; 2]; N];
    for first in (0..taps[0].len()).step_by(LANES) {
        let g = taps.map(|part| &part[first..first + LANES]);
        for (i, acc) in acc.iter_mut().enumerate() {
            let x = &samples[i * subsampling + first..][..LANES];
            for (acc, g) in acc.iter_mut().zip(g) {
                for lane in 0..LANES {
                    acc[lane] = g[lane].mul_add(x[lane], acc[lane]);
                }
            }
        }
    }
    for ((acc, re), im) in acc.iter_mut().zip(re).zip(im) {
        for part in acc.iter_mut() {
            let mut width = LANES / 2;
            while width > 0 {
                for lane in 0..width {
                    part[lane] += part[lane + width];
                }
                width /= 2;
            }
        }
        (*re, *im) = (acc[0][0], acc[1][0]);
    }
}

#[inline(always)]
pub(super) fn rotate(base: [f32; 2], table: [&[f32]; 2], re: &mut [f32], im: &mut [f32]) {
    let base = Complex32::new(base[0], base[1]);
    let table = table[0].iter().zip(table[1]);
    for ((re, im), (&table_re, &table_im)) in re.iter_mut().zip(im).zip(table) {
        let turned = mul(
            Complex32::new(*re, *im),
            mul(Complex32::new(table_re, table_im), base),
        );
        (*re, *im) = (turned.re, turned.im);
    }
}
