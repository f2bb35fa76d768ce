//! Faults of a receiver's front end: its mixer's branches, and its converter.

use num_complex::Complex64;

use super::settings::{Setting, SettingError, within};

/// Differences between the branches of a mixer: Q is g (Im x cos φ + Re x sin φ), I is Re x.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct IqImbalance {
    /// Gain g of Q against I in dB.
    pub gain_db: f64,
    /// Angle φ in degrees by which the branches are not at right angles.
    pub phase_degrees: f64,
}

impl IqImbalance {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        let rule = "-40 to 40 dB";
        within(Setting::IqGain, self.gain_db, (-40.0, 40.0), rule)?;
        let rule = "-90 to 90 degrees";
        within(Setting::IqPhase, self.phase_degrees, (-90.0, 90.0), rule)
    }

    pub(super) fn apply(&self, samples: &mut [Complex64]) {
        if *self == IqImbalance::default() {
            return;
        }
        let gain = 10f64.powf(self.gain_db / 20.0);
        let (sine, cosine) = self.phase_degrees.to_radians().sin_cos();
        for sample in samples {
            sample.im = gain * (sample.im * cosine + sample.re * sine);
        }
    }
}

/// An analogue-to-digital converter: rounds to steps, half to even, and clips. One of a single bit
/// says the sign alone: its values are plus and minus half of the full scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Converter {
    /// Bits of each part.
    pub bits: u32,
    /// Value that 2^(bits−1) steps stand for.
    pub full_scale: f64,
}

impl Converter {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        let bits = f64::from(self.bits);
        within(Setting::Bits, bits, (1.0, 24.0), "1 to 24")?;
        let rule = "1e-6 to 1e6";
        within(Setting::FullScale, self.full_scale, (1e-6, 1e6), rule)
    }

    /// Quantises, and returns how many parts were clipped. What is no number becomes 0, and counts.
    pub(super) fn apply(&self, samples: &mut [Complex64]) -> u64 {
        let steps = 2f64.powi(self.bits as i32 - 1);
        let step = self.full_scale / steps;
        let mut clipped = 0;
        for sample in samples {
            for part in [&mut sample.re, &mut sample.im] {
                if self.bits == 1 {
                    let inside = part.abs() <= self.full_scale;
                    clipped += u64::from(!inside);
                    *part = match part.is_nan() {
                        true => 0.0,
                        false => (0.5 * step).copysign(*part),
                    };
                    continue;
                }
                let wanted = (*part / step).round_ties_even();
                let held = if wanted.is_nan() {
                    0.0
                } else {
                    wanted.clamp(-steps, steps - 1.0)
                };
                clipped += u64::from(held != wanted);
                *part = held * step;
            }
        }
        clipped
    }
}
