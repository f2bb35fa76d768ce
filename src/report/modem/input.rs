//! What is known of a receiver's input as a whole: its level, and what was taken off it.

use ground::counted;
use karoo_modem::formats::FullScale;
use karoo_modem::rx::{Correction, Level, Meter, Metered};
use num_complex::{Complex32, Complex64};
use schemars::JsonSchema;
use serde::Serialize;

/// Share of parts at full scale that is still no fault. Of noise whose parts reach a full scale so
/// often, what is cut off is 50 dB below it; a duty cycle of a tenth hides tenfold.
const SHARE: f64 = 1e-4;

/// Level of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct InputLevel {
    /// Samples that were measured.
    pub samples: u64,
    /// Mean power in dB to the full scale, that is to a carrier whose parts just reach it, or to 1
    /// where no full scale is known; none if all samples are 0.
    pub decibels: Option<f64>,
    /// Value that is the full scale; none for floats of which nobody says it.
    pub full_scale: Option<f32>,
    /// Real and imaginary parts at full scale, which as integers of 16 bits are ±32767 or −32768;
    /// none without one.
    pub clipped: Option<u64>,
}

impl InputLevel {
    fn new(seen: &Metered, full_scale: Option<f32>) -> InputLevel {
        InputLevel {
            samples: seen.samples,
            decibels: seen.decibels(f64::from(full_scale.unwrap_or(1.0))),
            full_scale,
            clipped: full_scale.map(|_| seen.clipped),
        }
    }

    /// What its decibels are to.
    pub fn unit(&self) -> &'static str {
        match self.full_scale {
            Some(_) => "dBFS",
            None => "dB re 1",
        }
    }

    /// Its decibels, rounded to tenths.
    pub(super) fn tenths(&self) -> Option<f64> {
        // Adding 0 leaves no minus before it.
        let tenths = |decibels: f64| (10.0 * decibels).round() / 10.0 + 0.0;
        self.decibels.map(tenths)
    }

    /// The level in words.
    pub fn words(&self) -> String {
        match self.tenths() {
            Some(tenths) => format!("{tenths:.1} {}", self.unit()),
            None => "no power".to_owned(),
        }
    }

    /// Share of the parts that are at full scale, where one is known.
    pub fn share(&self) -> Option<f64> {
        let parts = (2 * self.samples).max(1);
        Some(self.clipped? as f64 / parts as f64)
    }

    /// What is wrong with it, and the way out.
    pub fn warning(&self) -> Option<String> {
        let share = self.share().filter(|share| *share > SHARE)?;
        let percent = 100.0 * share;
        let digits = if percent < 1.0 { 2 } else { 0 };
        Some(format!(
            "{percent:.digits$} % of the parts are at full scale: lower the gain ahead of it"
        ))
    }
}

/// Samples of which one is looked at for the mean. No multiple of a symbol's.
const EACH: usize = 61;

/// Mean of some samples beside their power.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    /// Samples that are left out before the next.
    left: usize,
    samples: f64,
    sum: Complex64,
    power: f64,
}

impl Mean {
    fn take(&mut self, samples: &[Complex32]) {
        let seen = samples.get(self.left..).unwrap_or_default();
        for sample in seen.iter().step_by(EACH).filter(|x| x.norm() <= 1e6) {
            let sample = Complex64::new(sample.re.into(), sample.im.into());
            self.samples += 1.0;
            self.sum += sample;
            self.power += sample.norm_sqr();
        }
        let next = self.left + seen.len().div_ceil(EACH) * EACH;
        self.left = next - samples.len();
    }

    /// The mean, if there is more power in it than in what changes.
    fn large(&self) -> Option<Complex64> {
        let mean = self.sum / self.samples.max(1.0);
        (mean.norm_sqr() * self.samples > 0.5 * self.power).then_some(mean)
    }
}

/// Measures the level of a stream whose full scale is known, or not.
pub struct InputMeter {
    meter: Meter,
    mean: Mean,
    full_scale: Option<f32>,
}

impl Default for InputMeter {
    fn default() -> InputMeter {
        InputMeter::new(None)
    }
}

impl InputMeter {
    /// A meter that has seen nothing yet.
    pub fn new(full_scale: Option<FullScale>) -> InputMeter {
        let full_scale = full_scale.map(FullScale::value);
        InputMeter {
            meter: Meter::new(Level::detect(), full_scale),
            mean: Mean::default(),
            full_scale,
        }
    }

    /// Takes samples.
    pub fn take(&mut self, samples: &[Complex32]) {
        self.meter.take(samples);
        self.mean.take(samples);
    }

    /// What is wrong with the mean of the samples, and the way out: where there is more power in it
    /// than in what changes, no field is detected.
    pub fn mean_warning(&self) -> Option<String> {
        let mean = self.mean.large()?;
        Some(format!(
            "the mean of the samples, {:.3}, {:.3}, is larger than what changes: try --correct",
            mean.re + 0.0,
            mean.im + 0.0
        ))
    }

    /// What was seen so far.
    pub fn seen(&self) -> Metered {
        self.meter.seen()
    }

    /// The level of a part of what was seen.
    pub fn of(&self, seen: &Metered) -> InputLevel {
        InputLevel::new(seen, self.full_scale)
    }

    /// The level of all that was seen so far.
    pub fn level(&self) -> InputLevel {
        self.of(&self.seen())
    }
}

/// DC and IQ imbalance as they were taken off the input at its end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Corrected {
    /// Offset of I, as samples have it.
    pub dc_i: f64,
    /// Offset of Q.
    pub dc_q: f64,
    /// Gain of Q against I in dB.
    pub iq_gain_db: f64,
    /// Degrees by which I and Q were not at right angles.
    pub iq_phase_degrees: f64,
    /// Power of the signal's image by the signal's in dB; none if no image was believed.
    pub image_db: Option<f64>,
}

impl From<Correction> for Corrected {
    fn from(correction: Correction) -> Corrected {
        let imbalance = correction.imbalance();
        let image_db = 20.0 * correction.image.norm().log10();
        Corrected {
            dc_i: correction.dc.re,
            dc_q: correction.dc.im,
            iq_gain_db: imbalance.gain_db,
            iq_phase_degrees: imbalance.phase_degrees,
            image_db: image_db.is_finite().then_some(image_db),
        }
    }
}

impl Corrected {
    /// What was corrected, in words.
    pub fn words(&self) -> String {
        // Adding 0 leaves no minus before what is rounded to it.
        let digits = |value: f64| (1e4 * value).round() / 1e4 + 0.0;
        let dc = format!("DC {:.4}, {:.4}", digits(self.dc_i), digits(self.dc_q));
        match self.image_db {
            Some(image) => format!(
                "{dc}; IQ gain {:.2} dB, phase {:.2} degrees, an image of {image:.1} dB",
                self.iq_gain_db, self.iq_phase_degrees
            ),
            None => format!("{dc}; no image that is told from the signal"),
        }
    }
}

/// Level and clipping of an input, and what was taken off it, as lines of a command's text.
pub fn input_lines(level: &InputLevel, correction: Option<&Corrected>) -> String {
    let mut text = format!("\nlevel {}", level.words());
    if let Some(clipped) = level.clipped {
        text += &format!(", {} at full scale", counted(clipped, "part"));
    }
    if let Some(warning) = level.warning() {
        text += &format!("\n{warning}");
    }
    if let Some(correction) = correction {
        text += &format!("\ntaken off: {}", correction.words());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(samples: &[Complex32], full_scale: Option<f32>) -> InputLevel {
        let full_scale = full_scale.map(|value| FullScale::new(value).unwrap());
        let mut meter = InputMeter::new(full_scale);
        meter.take(samples);
        meter.level()
    }

    #[test]
    fn levels_are_told_to_a_full_scale_or_to_1() {
        let samples = [Complex32::new(0.5, 0.0); 1000];
        let known = level(&samples, Some(2.0));
        assert_eq!(known.words(), "-12.0 dBFS");
        assert_eq!((known.clipped, known.warning()), (Some(0), None));
        let floats = level(&samples, None);
        assert_eq!(floats.words(), "-6.0 dB re 1");
        assert_eq!((floats.clipped, floats.warning()), (None, None));
        let one = level(&[Complex32::new(0.9999, 0.0)], None);
        assert_eq!(one.words(), "0.0 dB re 1");
        assert_eq!(level(&[Complex32::ZERO; 9], None).words(), "no power");
        assert_eq!(InputMeter::default().level().share(), None);
    }

    #[test]
    fn more_than_a_few_parts_at_full_scale_are_warned_of() {
        let mut samples = vec![Complex32::new(0.1, 0.1); 10_000];
        samples[7].re = -1.0;
        samples[8].im = 1.0;
        assert_eq!(level(&samples, Some(1.0)).warning(), None);
        samples[9].im = 1.2;
        let warning = level(&samples, Some(1.0)).warning().unwrap();
        assert!(warning.starts_with("0.01 % of the parts"), "{warning}");
        let all = level(&[Complex32::new(1.0, -1.0); 10], Some(1.0));
        assert!(all.warning().unwrap().starts_with("100 % of the parts"));
        assert_eq!(all.words(), "3.0 dBFS");
    }

    #[test]
    fn a_mean_that_is_larger_than_what_changes_is_warned_of() {
        let warning = |mean: f32, cut: usize| {
            let tone = |n: usize| Complex32::cis(0.7 * n as f32) + mean;
            let samples: Vec<Complex32> = (0..100_000).map(tone).collect();
            let mut meter = InputMeter::default();
            samples.chunks(cut).for_each(|part| meter.take(part));
            meter.mean_warning()
        };
        assert_eq!(warning(0.9, 1000), None);
        let large = warning(3.0, 1000);
        assert!(large.as_ref().unwrap().contains("3.00"), "{large:?}");
        // However the stream is cut.
        for cut in [1, 7, 61, 100_000] {
            assert_eq!(warning(3.0, cut), large, "{cut}");
        }
        assert_eq!(InputMeter::default().mean_warning(), None);
    }

    #[test]
    fn what_was_taken_off_is_told_with_its_image_or_without() {
        let dc = Complex64::new(0.05, -0.02);
        let image = Complex64::new(-0.06, 0.03);
        let words = Corrected::from(Correction { dc, image }).words();
        assert!(
            words.starts_with("DC 0.0500, -0.0200; IQ gain 1.04 dB, phase"),
            "{words}"
        );
        assert!(words.ends_with("an image of -23.5 dB"), "{words}");
        let dc = Complex64::new(-0.000_01, 0.0);
        let words = Corrected::from(Correction { dc, image }).words();
        assert!(words.starts_with("DC 0.0000, 0.0000"), "{words}");
        let image = Complex64::default();
        let without = Corrected::from(Correction { dc, image });
        assert_eq!((without.image_db, without.iq_gain_db), (None, 0.0));
        assert!(without.words().contains("no image"));
    }
}
