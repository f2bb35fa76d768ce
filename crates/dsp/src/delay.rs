//! Delay models: which input sample an output timestamp asks for, what fraction of a sample is left
//! to the phase slope, and the phase at the band centre.
//!
//! Delays are functions of the **output** (delayed) timestamp t, which is regularly spaced: a
//! positive delay d makes the output at t represent the input at t − d. All samples of one spectrum
//! share the delay and phase at the spectrum's first sample.
//!
//! Here is one model, a polynomial of first degree. `models` has lists of them, `history` those by
//! which an output was delayed, `point` what a model says of one timestamp.

mod angle;
mod history;
mod models;
mod point;

pub use angle::wrap_angle;
pub use history::DelayHistory;
pub use models::{DelayModels, Stretch};
pub use point::DelayPoint;

use std::f64::consts::PI;

use ground::{SampleClock, Timestamp};

/// A delay model that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum DelayError {
    /// With a rate of 1 or more, output time stands still or runs backwards in input time. With −1
    /// or less, which clients alone are refused, an output asks for twice as much input as comes.
    #[error("delay rate {0} must be between -1 and 1 s/s: no source moves so fast")]
    Rate(f64),
    /// A parameter is infinite or not a number.
    #[error("{name} {value} must be a finite number")]
    NotFinite {
        /// Name of the parameter.
        name: &'static str,
        /// What it was.
        value: f64,
    },
    /// No signal is so late: the output would wait, or ask for samples, for as long.
    #[error(
        "delay {0} s must be between -{most} and {most} s: an output would stand still for as long",
        most = DelaySeconds::MOST_DELAY
    )]
    Delay(f64),
    /// The phase would turn by more than half a turn from sample to sample, which is another rate.
    #[error(
        "phase rate {value:e} rad/s must be between -{most:.3e} and {most:.3e} rad/s: half a turn each ADC sample"
    )]
    PhaseRate {
        /// What was asked for, in rad/s.
        value: f64,
        /// The most at this sample rate.
        most: f64,
    },
    /// The model would begin before the first sample.
    #[error("start {0} (ADC samples) is before the sync time; the earliest is 0")]
    Start(i64),
    /// The model would begin before the first sample, or behind the last that a timestamp counts.
    #[error(
        "start time {value:?} (UNIX seconds) must be between {earliest:?}, the sync time, and {latest:?}: no sample has another time"
    )]
    StartTime {
        /// What was asked for.
        value: f64,
        /// The sync time.
        earliest: f64,
        /// The last time that timestamps have.
        latest: f64,
    },
}

/// Samples from the sync time to where timestamps end.
const LATEST: f64 = (1_u64 << 63) as f64;

/// One polynomial of first degree.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct LinearDelay {
    start: i64,
    delay: f64,
    rate: f64,
    phase: f64,
    phase_rate: f64,
}

/// A delay model in the units of KATCP's `?delays`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DelaySeconds {
    /// Where the model begins: UNIX time in seconds.
    pub start_time: f64,
    /// Delay at the start, in seconds.
    pub delay: f64,
    /// Change of the delay, in seconds per second.
    pub rate: f64,
    /// Phase at the start, in radians.
    pub phase: f64,
    /// Change of the phase, in radians per second.
    pub phase_rate: f64,
}

impl DelaySeconds {
    /// Longest delay, ahead or behind, in seconds.
    pub const MOST_DELAY: f64 = 60.0;
}

impl LinearDelay {
    /// What holds until a model is given: no delay, no phase, beginning before any timestamp.
    pub const ZERO: Self = Self {
        start: -1,
        delay: 0.0,
        rate: 0.0,
        phase: 0.0,
        phase_rate: 0.0,
    };

    /// A model valid from the ADC timestamp `start`: `delay` in ADC samples, `rate` in samples per
    /// sample, `phase` in radians at the band centre, `phase_rate` in radians per sample.
    pub fn new(
        start: i64,
        delay: f64,
        rate: f64,
        phase: f64,
        phase_rate: f64,
    ) -> Result<Self, DelayError> {
        for (name, value) in [
            ("delay", delay),
            ("delay rate", rate),
            ("phase", phase),
            ("phase rate", phase_rate),
        ] {
            if !value.is_finite() {
                return Err(DelayError::NotFinite { name, value });
            }
        }
        if rate >= 1.0 {
            return Err(DelayError::Rate(rate));
        }
        if start < 0 {
            return Err(DelayError::Start(start));
        }
        Ok(Self {
            start,
            delay,
            rate,
            phase: wrap_angle(phase),
            phase_rate,
        })
    }

    /// The model as clients send it.
    ///
    /// The start is rounded to the nearest sample, ties to even; the fraction is not compensated.
    pub fn from_seconds(clock: SampleClock, model: DelaySeconds) -> Result<Self, DelayError> {
        let start = (model.start_time - clock.sync_time) * clock.adc_sample_rate;
        if !model.start_time.is_finite() {
            return Err(DelayError::NotFinite {
                name: "start time",
                value: model.start_time,
            });
        }
        let start = start.round_ties_even();
        if !(0.0..LATEST).contains(&start) {
            return Err(DelayError::StartTime {
                value: model.start_time,
                earliest: clock.sync_time,
                latest: clock.sync_time + LATEST / clock.adc_sample_rate,
            });
        }
        if model.delay.is_finite() && model.delay.abs() > DelaySeconds::MOST_DELAY {
            return Err(DelayError::Delay(model.delay));
        }
        if model.rate.is_finite() && model.rate <= -1.0 {
            return Err(DelayError::Rate(model.rate));
        }
        let (value, most) = (model.phase_rate, PI * clock.adc_sample_rate);
        if value.is_finite() && value.abs() > most {
            return Err(DelayError::PhaseRate { value, most });
        }
        Self::new(
            start as i64,
            model.delay * clock.adc_sample_rate,
            model.rate,
            model.phase,
            model.phase_rate / clock.adc_sample_rate,
        )
    }

    /// First ADC timestamp at which the model holds; −1 for [`LinearDelay::ZERO`].
    pub fn start(&self) -> i64 {
        self.start
    }

    /// Delay at the start, in ADC samples.
    pub fn delay(&self) -> f64 {
        self.delay
    }

    /// Delay rate, in samples per sample.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Phase at the start, in radians, in [−π, π).
    pub fn phase(&self) -> f64 {
        self.phase
    }

    /// Phase rate, in radians per sample.
    pub fn phase_rate(&self) -> f64 {
        self.phase_rate
    }

    /// The parameters as five words, in which they can be published.
    pub fn to_words(&self) -> [u64; 5] {
        let Self {
            start,
            delay,
            rate,
            phase,
            phase_rate,
        } = *self;
        let [delay, rate, phase, phase_rate] = [delay, rate, phase, phase_rate].map(f64::to_bits);
        [start as u64, delay, rate, phase, phase_rate]
    }

    /// The model that these are the words of.
    pub fn from_words(words: [u64; 5]) -> Self {
        let [start, delay, rate, phase, phase_rate] = words;
        Self {
            start: start as i64,
            delay: f64::from_bits(delay),
            rate: f64::from_bits(rate),
            phase: f64::from_bits(phase),
            phase_rate: f64::from_bits(phase_rate),
        }
    }

    /// Evaluates the polynomial at output timestamp `t`, before its start too.
    pub fn at(&self, t: Timestamp) -> DelayPoint {
        let delay = self.delay_at(t);
        let coarse = delay.round_ties_even();
        DelayPoint {
            orig: (t.0 as i64).saturating_sub(coarse as i64),
            coarse: coarse as i64,
            residual: delay - coarse,
            phase: self.phase_at(t),
        }
    }

    /// The delay at output timestamp `t`, in ADC samples.
    fn delay_at(&self, t: Timestamp) -> f64 {
        self.delay + self.since_start(t) * self.rate
    }

    /// The phase at output timestamp `t`, in [−π, π).
    fn phase_at(&self, t: Timestamp) -> f64 {
        wrap_angle(self.since_start(t) * self.phase_rate + self.phase)
    }

    /// Samples from the start to `t`.
    fn since_start(&self, t: Timestamp) -> f64 {
        // Exact as long as the two are within 2⁶³ of each other.
        t.0.wrapping_sub(self.start as u64) as i64 as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(super) fn linear(
        start: i64,
        delay: f64,
        rate: f64,
        phase: f64,
        phase_rate: f64,
    ) -> LinearDelay {
        LinearDelay::new(start, delay, rate, phase, phase_rate).expect("valid model")
    }

    pub(super) fn example() -> LinearDelay {
        linear(12345, 100.0, 0.25, 0.1, 0.1)
    }

    #[test]
    fn linear_values_match_the_reference() {
        for (t, orig, residual, phase) in [
            (12345, 12245, 0.0, 0.1),
            (12790, 12579, 0.25, 44.6),
            (12788, 12577, -0.25, 44.4),
        ] {
            let point = example().at(Timestamp(t));
            assert_eq!((point.orig, point.residual), (orig, residual), "{t}");
            assert_eq!(point.orig + point.coarse, t as i64);
            assert!(wrap_angle(point.phase - phase).abs() < 1e-9, "{t}");
        }
    }

    #[test]
    fn stable_over_a_day() {
        let start = 100_000_000_000_000;
        let t = Timestamp(200_000_000_000_000);
        let point = linear(start, 1_000_000.001, 0.0, 0.0, 0.0).at(t);
        assert_eq!(point.coarse, 1_000_000);
        assert!((point.residual - 0.001).abs() < 1e-9);
        let point = linear(start, 0.0, 1e-10, 0.0, 0.0).at(t);
        assert_eq!((point.coarse, point.residual), (10_000, 0.0));
    }

    #[test]
    fn unusable_models_are_refused() {
        assert_eq!(
            LinearDelay::new(0, 0.0, 1.0, 0.0, 0.0),
            Err(DelayError::Rate(1.0))
        );
        assert_eq!(
            LinearDelay::new(-1, 0.0, 0.0, 0.0, 0.0),
            Err(DelayError::Start(-1))
        );
        let error = LinearDelay::new(0, 0.0, 0.0, f64::NAN, 0.0).expect_err("not a number");
        assert_eq!(error.to_string(), "phase NaN must be a finite number");
    }

    #[test]
    fn clients_send_seconds() {
        let clock = SampleClock {
            adc_sample_rate: 1e6,
            sync_time: 1000.0,
        };
        let seconds = DelaySeconds {
            start_time: 1002.5,
            delay: 1e-3,
            rate: 0.5,
            phase: 0.25,
            phase_rate: 3e6,
        };
        let model = LinearDelay::from_seconds(clock, seconds).expect("valid");
        assert_eq!(model, linear(2_500_000, 1000.0, 0.5, 0.25, 3.0));
        let refused = |start_time| {
            let seconds = DelaySeconds {
                start_time,
                ..seconds
            };
            let refused = LinearDelay::from_seconds(clock, seconds);
            refused.expect_err("no such time").to_string()
        };
        for start_time in [999.0, 1e13, 1e308] {
            let text = refused(start_time);
            let range = "must be between 1000.0, the sync time, and 9223372037854.775: no sample";
            let said = format!("start time {start_time:?} (UNIX seconds) {range}");
            assert!(text.starts_with(&said), "{text}");
        }
        assert!(refused(f64::INFINITY).contains("finite"));
        let last = DelaySeconds {
            start_time: 9e12,
            ..seconds
        };
        assert!(LinearDelay::from_seconds(clock, last).is_ok());
        for (delay, taken) in [(60.0, true), (-60.0, true), (60.1, false), (-1e300, false)] {
            let seconds = DelaySeconds { delay, ..seconds };
            let model = LinearDelay::from_seconds(clock, seconds);
            assert_eq!(model.is_ok(), taken, "{delay}");
        }
        for (phase_rate, taken) in [(-3.14e6, true), (3.15e6, false), (-1e308, false)] {
            let seconds = DelaySeconds {
                phase_rate,
                ..seconds
            };
            let model = LinearDelay::from_seconds(clock, seconds);
            assert_eq!(model.is_ok(), taken, "{phase_rate}");
        }
        for (rate, taken) in [(0.9, true), (-0.9, true), (1.0, false), (-1.0, false)] {
            let seconds = DelaySeconds { rate, ..seconds };
            let model = LinearDelay::from_seconds(clock, seconds);
            assert_eq!(model.is_ok(), taken, "{rate}");
        }
    }

    proptest! {
        #[test]
        fn the_delay_is_the_polynomial(
            start in 0i64..1 << 48, t in 0u64..1 << 48, delay in -1e6f64..1e6, rate in -1e-9f64..1e-9,
        ) {
            let point = linear(start, delay, rate, 0.0, 0.0).at(Timestamp(t));
            let expected = delay + (t as i64 - start) as f64 * rate;
            prop_assert!(point.residual.abs() <= 0.5);
            prop_assert_eq!(point.orig, t as i64 - point.coarse);
            prop_assert!((point.coarse as f64 + point.residual - expected).abs() < 1e-9);
        }
    }
}
