//! Vector kernels chosen at run time. The only `unsafe` of the CPU backend.
//!
//! Each kernel is a safe function that checks the bounds its vector forms rely on, then makes one
//! call into the form for its [`Level`]. Vector forms do the scalar form's arithmetic lane by
//! lane, so every level gives the same bits.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod ddc;
mod output;
mod portable;
mod unpack;

use std::fmt;

use num_complex::Complex32;

pub use ddc::{DdcTaps, rotate};
pub use output::{GroupOutput, OutputGroups};
pub use unpack::Unpacker;

use ground::N_POL;

/// Columns of one FIR tile; a multiple of every vector width.
pub const TILE: usize = 128;

/// Instruction sets that kernels are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Plain Rust.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ, VL and VBMI.
    Avx512,
}

impl Level {
    /// Every level, lowest first.
    pub const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];

    /// Highest level of this machine.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vbmi")
            {
                return Self::Avx512;
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Self::Avx2;
            }
        }
        Self::Portable
    }

    /// This level, or the machine's highest if that is lower.
    pub fn supported(self) -> Self {
        self.min(Self::detect())
    }

    /// The levels that this machine has.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL
            .into_iter()
            .filter(|level| level.supported() == *level)
    }

    /// Name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A level that was found on this machine: what lets a kernel call into its vector form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supported(Level);

impl Supported {
    /// `level`, lowered to what the machine has.
    pub fn new(level: Level) -> Self {
        Self(level.supported())
    }

    /// The level.
    pub fn level(self) -> Level {
        self.0
    }
}

/// One FIR tile: [`TILE`] columns of the PFB. Its two signals are the polarisations of real
/// samples, or real and imaginary parts of complex ones.
#[derive(Debug)]
pub struct FirTile<'a> {
    /// `taps` rows of `step` coefficients.
    pub weights: &'a [f32],
    /// Coefficients per row.
    pub step: usize,
    /// First column.
    pub column: usize,
    /// Two real signals: from the first column on, rows of samples, `spectra + taps - 1` of them.
    pub samples: [&'a [f32]; 2],
    /// Samples from row to row.
    pub pitch: usize,
    /// Partial sums, `spectra × 2 × TILE`, only touched with more than 16 taps.
    pub partial: &'a mut [f32],
}

/// FIR over one tile: signal 0 to the real parts, 1 to the imaginary parts of
/// `out[s·pitch + column ..][..TILE]` for each of `spectra` spectra.
///
/// # Panics
/// If a slice is too short for the shape; shapes come from configuration, not from input.
pub fn fir(
    at: Supported,
    tile: &mut FirTile<'_>,
    spectra: usize,
    out: &mut [Complex32],
    pitch: usize,
) {
    assert!(tile.column < tile.step);
    let taps = tile.weights.len() / tile.step;
    let width = TILE.min(tile.step - tile.column);
    assert!(taps >= 1 && tile.weights.len() == taps * tile.step);
    if spectra == 0 {
        return;
    }
    for signal in tile.samples {
        assert!(holds(signal, spectra + taps - 2, tile.pitch, width));
    }
    assert!(holds(out, spectra - 1, pitch, tile.column + width));
    assert!(holds(tile.partial, spectra, 2 * TILE, 0));
    #[cfg(target_arch = "x86_64")]
    if width == TILE {
        match at.0 {
            // SAFETY: `Supported` proves the instruction set; the assertions above are the bounds
            // that the form relies on, for a full-width tile.
            Level::Avx512 => return unsafe { avx512::fir(tile, taps, spectra, out, pitch) },
            // SAFETY: `Supported` proves the instruction set; the form is plain Rust.
            Level::Avx2 => return unsafe { avx2::fir(tile, taps, spectra, out, pitch) },
            Level::Portable => {}
        }
    }
    let _ = at;
    portable::fir(tile, taps, spectra, out, pitch);
}

/// Whether there is room for `rows` of a pitch, and `more` behind them.
fn holds<T>(slice: &[T], rows: usize, pitch: usize, more: usize) -> bool {
    let needs = rows
        .checked_mul(pitch)
        .and_then(|rows| rows.checked_add(more));
    needs.is_some_and(|needs| slice.len() >= needs)
}

/// Dither of one spectrum (defined in [`dsp::dither`]).
#[derive(Clone, Copy, Debug)]
pub struct DitherKey {
    /// Generator key.
    pub seed: u64,
    /// Timestamp of the spectrum.
    pub timestamp: u64,
    /// Engine number.
    pub feng_id: u64,
}

/// Transforms of one spectrum.
#[derive(Clone, Copy, Debug)]
pub enum Bins<'a> {
    /// Wideband, both polarisations in one: a transform of length 2C followed by a copy of its
    /// element 0. With a = z\[k\] and b = conj z\[2C−k\], channel k is a + b for polarisation 0 and
    /// a − b for polarisation 1; the factors 1/2 and 1/(2i) are part of the coefficients.
    Joint(&'a [Complex32]),
    /// Narrowband, one for each polarisation, of at least C elements: channel c is element c − C/2,
    /// counted from the end if that is negative.
    Apart([&'a [Complex32]; N_POL]),
}

/// Running sums over spectra, two numbers per channel each: [`ChannelSums`] in single precision.
///
/// [`ChannelSums`]: crate::engine::ChannelSums
#[derive(Debug)]
pub struct SumPlanes<'a> {
    /// Σ|x|² and Σ|y|².
    pub power: &'a mut [f32],
    /// Σ|x|⁴ and Σ|y|⁴.
    pub power_squared: &'a mut [f32],
    /// Real and imaginary part of Σ x·y*.
    pub cross: &'a mut [f32],
    /// Complex samples that were clamped, of either polarisation.
    pub clipped: &'a mut [u32],
}

/// Takes channels out of transforms, applies coefficients, adds what comes of that to `sums` if
/// there are any, dithers, clamps to ±`limit` and quantises.
///
/// `out[c]` gets the bytes re0 im0 re1 im1. Returns the complex samples that were clamped, per
/// polarisation.
///
/// # Panics
/// If a slice is too short for the shape, or the channels are no multiple of four.
pub fn quantise(
    at: Supported,
    bins: Bins<'_>,
    coefs: [&[Complex32]; N_POL],
    dither: Option<DitherKey>,
    limit: f32,
    out: &mut [u32],
    sums: Option<SumPlanes<'_>>,
) -> [u64; N_POL] {
    let channels = out.len();
    if let Some(sums) = &sums {
        let planes = [&*sums.power, sums.power_squared, sums.cross];
        assert!(planes.iter().all(|plane| plane.len() == 2 * channels));
        assert!(sums.clipped.len() == 2 * channels);
    }
    match bins {
        Bins::Joint(z) => assert!(z.len() > 2 * channels),
        Bins::Apart(z) => assert!(z.iter().all(|z| z.len() >= channels)),
    }
    assert!(coefs[0].len() == channels && coefs[1].len() == channels);
    assert!(channels.is_multiple_of(4), "dither is drawn for four");
    #[cfg(target_arch = "x86_64")]
    match at.0 {
        Level::Avx512 if channels.is_multiple_of(64) => {
            // SAFETY: `Supported` proves the instruction set; lengths were checked above.
            return unsafe {
                match sums {
                    None => avx512::quantise::<false>(bins, coefs, dither, limit, out, None),
                    _ => avx512::quantise::<true>(bins, coefs, dither, limit, out, sums),
                }
            };
        }
        Level::Avx512 | Level::Avx2 => {
            // SAFETY: `Supported` proves the instruction set, which that of AVX-512 includes; the
            // form is plain Rust.
            return unsafe { avx2::quantise(bins, coefs, dither, limit, out, sums) };
        }
        Level::Portable => {}
    }
    let _ = at;
    match sums {
        None => portable::quantise(bins, coefs, dither, limit, out, None),
        _ => portable::quantise(bins, coefs, dither, limit, out, sums),
    }
}

/// `out[k] = gains[k] · (coarse[k / fine.len()] · fine[k % fine.len()])`: coefficients from a
/// two-level table of phasors.
///
/// # Panics
/// If the lengths do not fit: `out` and `gains` alike, `coarse × fine` covers them.
pub fn phasors(
    at: Supported,
    gains: &[Complex32],
    coarse: &[Complex32],
    fine: &[Complex32],
    out: &mut [Complex32],
) {
    assert!(gains.len() == out.len() && coarse.len() * fine.len() >= out.len());
    #[cfg(target_arch = "x86_64")]
    match at.0 {
        // SAFETY: `Supported` proves the instruction set; the forms are plain Rust.
        Level::Avx512 => return unsafe { avx512::phasors(gains, coarse, fine, out) },
        // SAFETY: as above.
        Level::Avx2 => return unsafe { avx2::phasors(gains, coarse, fine, out) },
        Level::Portable => {}
    }
    let _ = at;
    portable::phasors(gains, coarse, fine, out);
}
