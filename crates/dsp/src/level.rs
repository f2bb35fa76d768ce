//! What quantisation does to Gaussian noise: zeros, clipping, efficiency.

use std::f64::consts::{SQRT_2, TAU};

use crate::{Dither, OutputBits};

/// Offsets of dither over which means are taken, the middles of as many equal steps from 0 to ½.
/// Those below 0 have the same means, for noise and quantiser are symmetric.
const OFFSETS: usize = 16;
/// [`best_rms`] loses at most this share of the efficiency that can be had.
const TOLERATED: f64 = 1e-3;

/// Least rms of parts that anybody asks for, in counts: below, quantisation leaves next to nothing.
pub const LEAST_RMS: f64 = 0.1;

/// What becomes of Gaussian noise, per real or imaginary part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantisedNoise {
    /// Share of parts that are zero.
    pub zeros: f64,
    /// Share of parts that are clamped.
    pub clipped: f64,
    /// Signal-to-noise ratio of a correlation of two such signals, over that before quantisation.
    ///
    /// For little correlation it is ⟨x·q⟩² / (⟨x²⟩⟨q²⟩), with x before and q behind the quantiser
    /// (Thompson, Moran and Swenson, *Interferometry and Synthesis in Radio Astronomy*, 3rd
    /// edition, section 8.3).
    pub efficiency: f64,
}

/// Noise whose parts have this rms, in counts of the output, quantised as
/// [`quantise`](crate::quantise::quantise) does. Nothing but zeros for an rms of 0.
pub fn quantised_noise(rms: f64, bits: OutputBits, dither: Dither) -> QuantisedNoise {
    let limit = f64::from(bits.limit());
    if rms.is_nan() || rms <= 0.0 {
        return QuantisedNoise {
            zeros: 1.0,
            clipped: 0.0,
            efficiency: 0.0,
        };
    }
    let offsets = match dither {
        Dither::None => 1,
        Dither::Uniform => OFFSETS,
    };
    let (mut zeros, mut clipped, mut product, mut square) = (0.0, 0.0, 0.0, 0.0);
    for i in 0..offsets {
        let offset = match dither {
            Dither::None => 0.0,
            Dither::Uniform => (i as f64 + 0.5) / (2 * OFFSETS) as f64,
        };
        // The probability that x + offset is above a threshold, and ⟨x·[it is]⟩.
        let above = |threshold: f64| 0.5 * libm::erfc((threshold - offset) / rms / SQRT_2);
        let moment = |threshold: f64| {
            let z = (threshold - offset) / rms;
            rms * (-0.5 * z * z).exp() / TAU.sqrt()
        };
        zeros += above(-0.5) - above(0.5);
        clipped += above(limit) + 1.0 - above(-limit);
        // q is −limit, and one more for each threshold that is passed.
        let mut passed = 1.0;
        let mut q = -limit;
        while q < limit {
            let next = above(q + 0.5);
            square += q * q * (passed - next);
            product += moment(q + 0.5);
            (passed, q) = (next, q + 1.0);
        }
        square += limit * limit * passed;
    }
    let [zeros, clipped, product, square] =
        [zeros, clipped, product, square].map(|sum| sum / offsets as f64);
    QuantisedNoise {
        zeros,
        clipped,
        efficiency: if square > 0.0 {
            product * product / (rms * rms * square)
        } else {
            0.0
        },
    }
}

/// Share of complex values that may be clipped: more than noise of [the best level](best_rms) has.
pub fn clipping_limit(bits: OutputBits) -> f64 {
    match bits {
        OutputBits::Four => 0.05,
        OutputBits::Eight => 0.01,
    }
}

/// The rms of each part, in counts, at which noise is to be quantised: the least one that loses at
/// most a thousandth of the efficiency that can be had, so that there is room for interference.
pub fn best_rms(bits: OutputBits, dither: Dither) -> f64 {
    let efficiency = |rms: f64| quantised_noise(rms, bits, dither).efficiency;
    let (low, high) = (0.3, f64::from(bits.limit()));
    // Below the best rms the efficiency grows with the rms, above it falls; near it, it is flat.
    let (mut from, mut to) = (low, high);
    while to - from > 0.01 {
        let third = (to - from) / 3.0;
        if efficiency(from + third) < efficiency(to - third) {
            from += third;
        } else {
            to -= third;
        }
    }
    let enough = efficiency(from) * (1.0 - TOLERATED);
    let (mut from, mut to) = (low, from);
    while to - from > 1e-6 {
        let middle = 0.5 * (from + to);
        if efficiency(middle) < enough {
            from = middle;
        } else {
            to = middle;
        }
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantise::quantise;

    /// Integrates over x, and over dither by steps, with the quantiser itself.
    fn integrated(rms: f64, bits: OutputBits, dither: Dither) -> QuantisedNoise {
        let offsets = if dither == Dither::None { 1 } else { 200 };
        let step = 0.002 * rms.min(1.0);
        let (mut zeros, mut clipped, mut product, mut square, mut all) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let reach = (8.0 * rms / step) as i64;
        for offset in 0..offsets {
            let offset = (f64::from(offset) + 0.5) / f64::from(offsets) - 0.5;
            for i in -reach..reach {
                let x = (i as f64 + 0.5) * step;
                let weight = (-0.5 * (x / rms).powi(2)).exp();
                let (q, flag) = quantise((x + offset) as f32, bits.limit());
                let q = f64::from(q);
                all += weight;
                zeros += weight * f64::from(u8::from(q == 0.0));
                clipped += weight * f64::from(u8::from(flag));
                product += weight * x * q;
                square += weight * q * q;
            }
        }
        QuantisedNoise {
            zeros: zeros / all,
            clipped: clipped / all,
            efficiency: (product / all).powi(2) / (rms * rms * square / all),
        }
    }

    #[test]
    fn formulas_agree_with_integrals_over_the_quantiser() {
        for bits in [OutputBits::Four, OutputBits::Eight] {
            for dither in [Dither::None, Dither::Uniform] {
                for rms in [0.4, 1.0, 2.7, 6.0] {
                    let got = quantised_noise(rms, bits, dither);
                    let expected = integrated(rms, bits, dither);
                    let off = [
                        got.zeros - expected.zeros,
                        got.clipped - expected.clipped,
                        got.efficiency - expected.efficiency,
                    ];
                    let what = format!("{bits:?} {dither:?} {rms}: {got:?}, not {expected:?}");
                    assert!(off.iter().all(|off| off.abs() < 1e-3), "{what}");
                }
            }
        }
    }

    /// The literature has 0.988 for quantisers with 16 levels, one more than here (Thompson, Moran
    /// and Swenson, section 8.3).
    #[test]
    fn four_bits_are_as_good_as_the_literature_says() {
        let best = quantised_noise(2.9, OutputBits::Four, Dither::None).efficiency;
        assert!((best - 0.988).abs() < 1e-3, "{best}");
    }

    #[test]
    fn the_best_rms_leaves_room() {
        let four = best_rms(OutputBits::Four, Dither::Uniform);
        let eight = best_rms(OutputBits::Eight, Dither::Uniform);
        assert!((1.8..3.0).contains(&four), "{four}");
        assert!((10.0..16.0).contains(&eight), "{eight}");
        for (rms, bits) in [(four, OutputBits::Four), (eight, OutputBits::Eight)] {
            let at = |rms| quantised_noise(rms, bits, Dither::Uniform).efficiency;
            let most = (1..400).map(|i| at(0.1 * f64::from(i))).fold(0.0, f64::max);
            assert!(
                at(rms) >= most * (1.0 - 1.01e-3),
                "{rms}: {} {most}",
                at(rms)
            );
            assert!(at(0.95 * rms) < most * (1.0 - 1e-3), "{rms}");
        }
    }

    #[test]
    fn nothing_comes_of_nothing() {
        for rms in [0.0, -1.0, f64::NAN] {
            let noise = quantised_noise(rms, OutputBits::Eight, Dither::None);
            assert_eq!(
                (noise.zeros, noise.clipped, noise.efficiency),
                (1.0, 0.0, 0.0)
            );
        }
    }
}
