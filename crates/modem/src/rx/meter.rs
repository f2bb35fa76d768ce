//! Level of the input, and what of it is at full scale.

use num_complex::Complex32;

use super::acquirer::LIMIT;
use super::simd::{self, Level, METERED};

/// Samples whose powers are added in single precision, a lane of them 64 times.
const GROUP: usize = METERED * 64;

/// What a [`Meter`] has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metered {
    /// Samples.
    pub samples: u64,
    /// Sum of |x|² over them; what is no number, infinite or larger than 10⁶ counts as 0.
    pub power: f64,
    /// Real and imaginary parts at full scale, where a full scale was given.
    pub clipped: u64,
}

impl Metered {
    /// Mean power in dB to a full scale, that is to a carrier whose parts just reach it; none
    /// without samples, or if all of them are 0.
    pub fn decibels(&self, full_scale: f64) -> Option<f64> {
        let mean = self.power / self.samples as f64;
        let level = 10.0 * (mean / (full_scale * full_scale)).log10();
        level.is_finite().then_some(level)
    }

    /// What was seen since `before`.
    pub fn since(&self, before: &Metered) -> Metered {
        Metered {
            samples: self.samples - before.samples,
            power: self.power - before.power,
            clipped: self.clipped - before.clipped,
        }
    }
}

/// Measures what a receiver is given: the same for any cut of the stream.
///
/// ```
/// use karoo_modem::rx::{Level, Meter};
/// use num_complex::Complex32;
///
/// let mut meter = Meter::new(Level::detect(), Some(2.0));
/// meter.take(&[Complex32::new(1.0, 0.0), Complex32::new(0.0, -2.0)]);
/// assert_eq!((meter.seen().samples, meter.seen().clipped), (2, 1));
/// // Mean power 2.5 of 4.
/// assert!((meter.seen().decibels(2.0).unwrap() + 2.04).abs() < 0.01);
/// ```
#[derive(Clone, Debug)]
pub struct Meter {
    level: Level,
    edge: f32,
    /// Samples that make no group yet.
    begun: Vec<Complex32>,
    seen: Metered,
}

impl Meter {
    /// A meter; a part is at full scale if as an integer of 16 bits it would be ±32767 or less
    /// than −32767. Without a full scale, as of floats of which nobody says what the converter
    /// had, no part is.
    pub fn new(level: Level, full_scale: Option<f32>) -> Meter {
        const EDGE: f32 = 32766.5 / 32767.0;
        Meter {
            level,
            edge: full_scale.map_or(f32::INFINITY, |value| value * EDGE),
            begun: Vec::new(),
            seen: Metered::default(),
        }
    }

    /// Takes samples.
    pub fn take(&mut self, mut samples: &[Complex32]) {
        self.seen.samples += samples.len() as u64;
        if !self.begun.is_empty() {
            let missing = (GROUP - self.begun.len()).min(samples.len());
            self.begun.extend_from_slice(&samples[..missing]);
            samples = &samples[missing..];
            if self.begun.len() == GROUP {
                let whole = std::mem::take(&mut self.begun);
                self.group(&whole);
                self.begun = whole;
                self.begun.clear();
            }
        }
        let mut groups = samples.chunks_exact(GROUP);
        groups.by_ref().for_each(|group| self.group(group));
        self.begun.extend_from_slice(groups.remainder());
    }

    fn group(&mut self, samples: &[Complex32]) {
        let (level, edge) = (self.level, self.edge);
        let good = simd::measure_good(level, LIMIT, edge, samples);
        let (power, clipped) = good.unwrap_or_else(|| simd::measure(level, LIMIT, edge, samples));
        self.seen.power += power;
        self.seen.clipped += clipped;
    }

    /// What was seen so far.
    pub fn seen(&self) -> Metered {
        let mut all = self.clone();
        let mut rest = std::mem::take(&mut all.begun);
        if !rest.is_empty() {
            rest.resize(GROUP, Complex32::ZERO);
            all.group(&rest);
        }
        all.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream() -> Vec<Complex32> {
        let part = |n: usize, by: usize| ((n * by % 251) as f32 - 125.0) / 100.0;
        let mut all: Vec<Complex32> = (0..5000)
            .map(|n| Complex32::new(part(n, 37), part(n, 91)))
            .collect();
        all[17].re = f32::NAN;
        all[1900].im = f32::INFINITY;
        all[4999].re = 3e7;
        all
    }

    proptest! {
        #[test]
        fn the_same_is_seen_however_the_stream_is_cut(cuts in prop::collection::vec(0usize..5000, 0..6)) {
            let all = stream();
            let (mut cuts, mut from) = (cuts, 0);
            cuts.sort_unstable();
            for level in Level::available() {
                let mut whole = Meter::new(level, Some(1.0));
                whole.take(&all);
                let mut parts = Meter::new(level, Some(1.0));
                for &cut in cuts.iter().chain([&all.len()]) {
                    parts.take(&all[from..cut]);
                    from = cut;
                }
                from = 0;
                prop_assert_eq!(whole.seen(), parts.seen());
                prop_assert_eq!(parts.seen(), parts.seen());
            }
        }
    }

    #[test]
    fn power_and_clipped_parts_are_those_of_each_sample() {
        let all = stream();
        let good = |x: &&Complex32| x.re.abs() <= LIMIT && x.im.abs() <= LIMIT;
        let power = |x: &Complex32| f64::from(x.re).powi(2) + f64::from(x.im).powi(2);
        let power: f64 = all.iter().filter(good).map(power).sum();
        let parts = all.iter().filter(good).flat_map(|x| [x.re, x.im]);
        let at = |part: &f32| (f64::from(*part) * 32767.0).round().abs() >= 32767.0;
        let clipped = parts.filter(at).count() as u64;
        assert!(clipped > 100);
        for level in Level::available() {
            let mut meter = Meter::new(level, Some(1.0));
            meter.take(&all);
            let seen = meter.seen();
            assert_eq!((seen.samples, seen.clipped), (5000, clipped));
            assert!((seen.power / power - 1.0).abs() < 1e-5, "{level}");
            let mut floats = Meter::new(level, None);
            floats.take(&all);
            assert_eq!(floats.seen().clipped, 0);
        }
        assert_eq!(Metered::default().decibels(1.0), None);
    }
}
