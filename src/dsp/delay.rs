//! Delay models: which input sample an output timestamp asks for, what fraction of a sample is left to
//! the phase slope, and the phase at the band centre.
//!
//! Delays are functions of the **output** (delayed) timestamp t, which is regularly spaced: a positive
//! delay d makes the output at t represent the input at t − d. All samples of one spectrum share the
//! delay and phase at the spectrum's first sample.

use std::collections::VecDeque;
use std::f64::consts::{FRAC_PI_2, PI, TAU};

use crate::units::{Clock, Timestamp};

/// A delay model that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum DelayError {
    /// With a rate of 1 or more, output time stands still or runs backwards in input time.
    #[error("delay rate {0} must be less than 1 (seconds of delay per second)")]
    Rate(f64),
    /// A parameter is infinite or not a number.
    #[error("{name} {value} must be a finite number")]
    NotFinite {
        /// Which parameter.
        name: &'static str,
        /// What it was.
        value: f64,
    },
    /// The model would begin before the first sample.
    #[error("start {0} (ADC samples) is before the sync time; the earliest is 0")]
    Start(i64),
}

/// One polynomial of first degree.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct LinearDelay {
    start: i64,
    delay: f64,
    rate: f64,
    phase: f64,
    phase_rate: f64,
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

    /// The model as clients send it: `start_time` in UNIX seconds, `delay` in seconds, `rate` in seconds
    /// per second, `phase` in radians, `phase_rate` in radians per second.
    ///
    /// The start is rounded to the nearest sample, ties to even; the fraction is not compensated.
    pub fn from_seconds(
        clock: Clock,
        start_time: f64,
        delay: f64,
        rate: f64,
        phase: f64,
        phase_rate: f64,
    ) -> Result<Self, DelayError> {
        let start = (start_time - clock.sync_time) * clock.adc_sample_rate;
        if !start.is_finite() {
            return Err(DelayError::NotFinite {
                name: "start time",
                value: start_time,
            });
        }
        Self::new(
            start.round_ties_even() as i64,
            delay * clock.adc_sample_rate,
            rate,
            phase,
            phase_rate / clock.adc_sample_rate,
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

    /// Evaluates the polynomial at output timestamp `t`, before its start too.
    pub fn at(&self, t: Timestamp) -> DelayPoint {
        // Exact as long as the two are within 2⁶³ of each other.
        let rel = t.0.wrapping_sub(self.start as u64) as i64 as f64;
        let delay = self.delay + rel * self.rate;
        let coarse = delay.round_ties_even();
        DelayPoint {
            orig: (t.0 as i64).saturating_sub(coarse as i64),
            coarse: coarse as i64,
            residual: delay - coarse,
            phase: wrap_angle(rel * self.phase_rate + self.phase),
        }
    }
}

/// Delay and phase of one output timestamp.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DelayPoint {
    /// Input sample that the output timestamp asks for: t − coarse. Negative before the first sample.
    pub orig: i64,
    /// Whole samples of delay.
    pub coarse: i64,
    /// Delay beyond `coarse`, in ADC samples: within ½, or half the alignment and a little.
    pub residual: f64,
    /// Phase at the band centre in radians, in [−π, π).
    pub phase: f64,
}

impl DelayPoint {
    /// The phase that a wideband spectrum needs.
    ///
    /// The centre of the band, a quarter of the sample rate, turns by π/2 per sample of coarse delay;
    /// undoing that keeps the phase at the band centre what the model says.
    pub fn wideband_phase(&self) -> f64 {
        wrap_angle(self.phase + FRAC_PI_2 * self.coarse.rem_euclid(4) as f64)
    }

    /// Moves the input sample to a multiple of `subsampling`, the direction of a tie chosen so that the
    /// residual shrinks. Delay (`coarse` + `residual`) and phase stay.
    pub fn aligned(self, subsampling: u32) -> Self {
        if subsampling <= 1 {
            return self;
        }
        let s = i128::from(subsampling);
        let orig = i128::from(self.orig);
        let aligned = if subsampling % 2 == 0 {
            let sign = i128::from(self.residual > 0.0) - i128::from(self.residual < 0.0);
            (2 * orig + s - sign).div_euclid(2 * s) * s
        } else {
            (orig + s / 2).div_euclid(s) * s
        };
        let moved = (aligned - orig) as i64;
        Self {
            orig: self.orig.saturating_add(moved),
            coarse: self.coarse.saturating_sub(moved),
            residual: self.residual + moved as f64,
            phase: self.phase,
        }
    }
}

/// A list of models, each valid from its start to that of the next.
///
/// Queries do not change it; [`advance`](Self::advance) forgets what the engine has passed.
#[derive(Clone, Debug)]
pub struct DelayModels {
    // Never empty; starts strictly ascending.
    models: VecDeque<LinearDelay>,
    subsampling: u32,
}

impl Default for DelayModels {
    fn default() -> Self {
        Self::new()
    }
}

impl DelayModels {
    /// [`LinearDelay::ZERO`] alone, whole input samples (wideband).
    pub fn new() -> Self {
        Self::with_subsampling(1)
    }

    /// [`LinearDelay::ZERO`] alone, input samples on multiples of `subsampling` (narrowband).
    pub fn with_subsampling(subsampling: u32) -> Self {
        Self {
            models: VecDeque::from([LinearDelay::ZERO]),
            subsampling: subsampling.max(1),
        }
    }

    /// The model that holds now: the first of the list.
    pub fn current(&self) -> &LinearDelay {
        &self.models[0]
    }

    /// Adds a model. It replaces every stored one that starts at the same time or later.
    ///
    /// True when it becomes the current model at once, because nothing earlier is left.
    pub fn add(&mut self, model: LinearDelay) -> bool {
        while self.models.back().is_some_and(|m| m.start >= model.start) {
            self.models.pop_back();
        }
        self.models.push_back(model);
        self.models.len() == 1
    }

    /// Forgets models that ended at or before `t`. True when the current model changed.
    pub fn advance(&mut self, t: Timestamp) -> bool {
        let before = self.models.len();
        while self.models.len() > 1 && begun(&self.models[1], t) {
            self.models.pop_front();
        }
        self.models.len() != before
    }

    /// Delay and phase at output timestamp `t`. Before the first model's start, that model holds.
    pub fn at(&self, t: Timestamp) -> DelayPoint {
        let model = self.models.iter().rev().find(|m| begun(m, t));
        self.evaluate(model.unwrap_or(self.current()), t)
    }

    /// Delays and phases at `start`, `start + step`, … below `stop`.
    ///
    /// # Panics
    ///
    /// When `step` is zero.
    pub fn range(
        &self,
        start: Timestamp,
        stop: Timestamp,
        step: usize,
    ) -> impl Iterator<Item = DelayPoint> + '_ {
        (start.0..stop.0)
            .step_by(step)
            .map(|t| self.at(Timestamp(t)))
    }

    /// The smallest output timestamp that is a multiple of `step`, at or after `start`, and asks for an
    /// input sample at or after `target`. None when there is none below 2⁶³.
    ///
    /// # Panics
    ///
    /// When `step` is zero.
    pub fn skip(&self, target: Timestamp, start: Timestamp, step: u64) -> Option<Timestamp> {
        const END: u64 = i64::MAX as u64;
        for (i, model) in self.models.iter().enumerate() {
            // Multiples of `step` in this piece: [low, high] times step.
            let from = if i == 0 { 0 } else { model.start.max(0) as u64 };
            let last = match self.models.get(i + 1) {
                Some(next) if next.start <= 0 => continue,
                Some(next) => next.start as u64 - 1,
                None => END,
            };
            let low = start.0.max(from).div_ceil(step);
            let high = last / step;
            let enough = |k: u64| self.evaluate(model, Timestamp(k * step)).orig >= target.0 as i64;
            if low > high || !enough(high) {
                continue;
            }
            // Within a piece the input sample never decreases, because the rate is below 1.
            let (mut below, mut found) = (low, high);
            while below < found {
                let middle = below + (found - below) / 2;
                if enough(middle) {
                    found = middle;
                } else {
                    below = middle + 1;
                }
            }
            return Some(Timestamp(found * step));
        }
        None
    }

    fn evaluate(&self, model: &LinearDelay, t: Timestamp) -> DelayPoint {
        model.at(t).aligned(self.subsampling)
    }
}

fn begun(model: &LinearDelay, t: Timestamp) -> bool {
    model.start < 0 || model.start as u64 <= t.0
}

/// The angle in [−π, π) that differs from `a` by a multiple of 2π; `a` itself where it is in the range.
pub fn wrap_angle(a: f64) -> f64 {
    if (-PI..PI).contains(&a) {
        return a;
    }
    let wrapped = (a + PI).rem_euclid(TAU) - PI;
    // The remainder of a tiny negative number may round up to 2π itself.
    if wrapped >= PI { -PI } else { wrapped }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn linear(start: i64, delay: f64, rate: f64, phase: f64, phase_rate: f64) -> LinearDelay {
        LinearDelay::new(start, delay, rate, phase, phase_rate).expect("valid model")
    }

    fn example() -> LinearDelay {
        linear(12345, 100.0, 0.25, 0.1, 0.1)
    }

    fn multi() -> DelayModels {
        let mut models = DelayModels::new();
        assert!(!models.add(example()));
        assert!(!models.add(linear(30000, 50.5, -0.0025, 0.5, 0.01)));
        assert!(!models.add(linear(50000, 2000.0, 0.25, -0.5, -0.1)));
        models
    }

    fn starts(models: &DelayModels) -> Vec<i64> {
        models.models.iter().map(|m| m.start).collect()
    }

    /// First match by trying every multiple of `step`.
    fn skip_by_search(models: &DelayModels, target: u64, start: u64, step: u64) -> u64 {
        (start.div_ceil(step)..)
            .map(|k| k * step)
            .find(|&t| models.at(Timestamp(t)).orig >= target as i64)
            .expect("endless range")
    }

    #[test]
    fn angles_wrap() {
        for a in [0.0, 1.0, 1.1] {
            assert_eq!(wrap_angle(a), a);
            assert_eq!(wrap_angle(-a), -a);
        }
        for (a, expected) in [(4.0, 4.0 - TAU), (10.0, 10.0 - 2.0 * TAU)] {
            assert!((wrap_angle(a) - expected).abs() < 1e-12);
            assert!((wrap_angle(-a) + expected).abs() < 1e-12);
        }
        assert_eq!(wrap_angle(PI), -PI);
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
    fn linear_range_matches_the_reference() {
        let mut models = DelayModels::new();
        models.add(example());
        let points: Vec<_> = models
            .range(Timestamp(12999), Timestamp(13005), 1)
            .map(|p| (p.orig, p.residual))
            .collect();
        let orig = [12735, 12736, 12737, 12738, 12739, 12739];
        let residual = [-0.5, -0.25, 0.0, 0.25, 0.5, -0.25];
        assert_eq!(points, orig.into_iter().zip(residual).collect::<Vec<_>>());
    }

    #[test]
    fn an_empty_range_is_empty() {
        let models = multi();
        assert_eq!(models.range(Timestamp(9), Timestamp(9), 4).count(), 0);
        assert_eq!(models.range(Timestamp(9), Timestamp(3), 4).count(), 0);
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
        let clock = Clock {
            adc_sample_rate: 1e6,
            sync_time: 1000.0,
        };
        let model = LinearDelay::from_seconds(clock, 1002.5, 1e-3, 0.5, 0.25, 3e6).expect("valid");
        assert_eq!(model, linear(2_500_000, 1000.0, 0.5, 0.25, 3.0));
        assert!(LinearDelay::from_seconds(clock, 999.0, 0.0, 0.0, 0.0, 0.0).is_err());
        assert!(LinearDelay::from_seconds(clock, f64::INFINITY, 0.0, 0.0, 0.0, 0.0).is_err());
    }

    #[test]
    fn an_older_start_discards_later_models() {
        let mut models = multi();
        assert!(!models.add(linear(20000, 1.0, 0.0, 0.0, 0.0)));
        assert_eq!(starts(&models), [-1, 12345, 20000]);
        assert!(!models.add(linear(20000, 2.0, 0.0, 0.0, 0.0)));
        assert_eq!(models.at(Timestamp(20000)).coarse, 2);
        assert!(models.advance(Timestamp(20000)));
        assert!(models.add(linear(10000, 3.0, 0.0, 0.0, 0.0)));
        assert_eq!(starts(&models), [10000]);
        // Nothing earlier is left, so it holds before its start.
        assert_eq!(models.at(Timestamp(5)).coarse, 3);
    }

    #[test]
    fn piecewise_values_match_the_reference() {
        let mut models = multi();
        let orig = [0, 11000, 19486, 32957, 43984, 51750];
        let residual = [0.0, 0.0, -0.25, 0.0, -0.5, 0.0];
        let phase = [0.0, 0.0, -2.01, -0.916, 2.270, 2.155];
        let points: Vec<_> = models
            .range(Timestamp(0), Timestamp(55001), 11000)
            .collect();
        assert_eq!(points.len(), orig.len());
        for (i, point) in points.iter().enumerate() {
            assert_eq!(point.orig, orig[i]);
            assert!((point.residual - residual[i]).abs() < 0.01, "{i}");
            assert!((point.phase - phase[i]).abs() < 0.01, "{i}");
        }
        assert!(!models.advance(Timestamp(12344)));
        assert!(models.advance(Timestamp(12345)));
        assert!(!models.advance(Timestamp(12346)));
        assert!(models.advance(Timestamp(60000)));
        assert_eq!(starts(&models), [50000]);
    }

    #[test]
    fn linear_skip_is_minimal() {
        let mut models = DelayModels::new();
        models.add(example());
        models.advance(Timestamp(12345));
        for (target, start, step) in [
            (100, 0, 1),
            (100, 12345, 1),
            (100, 12345, 64),
            (12788, 0, 1),
            (12790, 0, 1),
            (200_000, 12345, 100),
        ] {
            let expected = skip_by_search(&models, target, start, step);
            let got = models.skip(Timestamp(target), Timestamp(start), step);
            assert_eq!(got, Some(Timestamp(expected)), "{target} {start} {step}");
        }
    }

    #[test]
    fn piecewise_skip_is_minimal() {
        for (target, start, step, left) in [
            (100, 12345, 1, vec![12345, 30000, 50000]),
            (100_000, 12345, 1, vec![50000]),
            (30000, 30000, 9, vec![30000, 50000]),
            (49000, 12345, 7, vec![30000, 50000]),
            (49000, 60000, 3, vec![50000]),
        ] {
            let mut models = multi();
            let expected = Timestamp(skip_by_search(&models, target, start, step));
            let target = Timestamp(target);
            assert_eq!(models.skip(target, Timestamp(start), step), Some(expected));
            models.advance(expected);
            assert_eq!(starts(&models), left);
            assert_eq!(models.skip(target, expected, step), Some(expected));
        }
    }

    #[test]
    fn skip_gives_up_at_the_end_of_time() {
        let mut models = DelayModels::new();
        models.add(linear(0, 1e19, 0.0, 0.0, 0.0));
        assert_eq!(models.skip(Timestamp(1 << 40), Timestamp(0), 512), None);
    }

    #[test]
    fn aligned_points_keep_delay_and_phase() {
        for (subsampling, bound) in [(16, 8.0), (17, 8.5)] {
            let mut models = DelayModels::with_subsampling(subsampling);
            models.add(example());
            for t in 12345..13500 {
                let plain = example().at(Timestamp(t));
                let aligned = models.at(Timestamp(t));
                let s = i64::from(subsampling);
                assert_eq!(aligned.orig.rem_euclid(s), 0);
                assert_eq!(aligned.orig + aligned.coarse, t as i64);
                assert_eq!(
                    aligned.orig as f64 - aligned.residual,
                    plain.orig as f64 - plain.residual
                );
                assert_eq!(aligned.phase, plain.phase);
                assert!(aligned.residual.abs() <= bound + 1e-6);
            }
        }
    }

    #[test]
    fn aligned_skip_is_minimal() {
        let mut models = DelayModels::with_subsampling(16);
        models.add(example());
        models.advance(Timestamp(12345));
        for step in [1, 4, 5, 100] {
            for target in 13000..13500 {
                let expected = skip_by_search(&models, target, 12345, step);
                let got = models.skip(Timestamp(target), Timestamp(12345), step);
                assert_eq!(got, Some(Timestamp(expected)));
            }
        }
    }

    #[test]
    fn coarse_delay_turns_the_band_centre_by_quarter_turns() {
        for (coarse, quarter) in [
            (0, 0.0),
            (1, 1.0),
            (2, -2.0),
            (3, -1.0),
            (-1, -1.0),
            (41, 1.0),
        ] {
            let point = DelayPoint {
                coarse,
                ..DelayPoint::default()
            };
            assert_eq!(point.wideband_phase(), quarter * FRAC_PI_2, "{coarse}");
        }
    }

    proptest! {
        #[test]
        fn skip_agrees_with_search(
            pieces in prop::collection::vec((1i64..3000, -200.0f64..200.0, -0.5f64..0.9), 0..4),
            target in 0u64..4000,
            start in 0u64..3000,
            step in 1u64..70,
            subsampling in 1u32..9,
        ) {
            let mut models = DelayModels::with_subsampling(subsampling);
            for (start, delay, rate) in pieces {
                models.add(linear(start, delay, rate, 0.0, 0.0));
            }
            let expected = skip_by_search(&models, target, start, step);
            let got = models.skip(Timestamp(target), Timestamp(start), step);
            prop_assert_eq!(got, Some(Timestamp(expected)));
        }

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
