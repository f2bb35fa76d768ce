//! Piecewise delay models, and the search for the output time at which to resume after a gap.

use std::collections::VecDeque;

use ground::Timestamp;

use super::point::quarter_turns;
use super::{DelayPoint, LinearDelay, wrap_angle};

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

    /// Models behind the first.
    pub fn upcoming(&self) -> usize {
        self.models.len() - 1
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
        self.evaluate(self.holding(t).0, t)
    }

    /// The model that holds at `t`, and when the next one does instead.
    fn holding(&self, t: Timestamp) -> (&LinearDelay, Option<Timestamp>) {
        let begun = self
            .models
            .iter()
            .skip(1)
            .take_while(|m| begun(m, t))
            .count();
        let next = self.models.get(begun + 1);
        let until = next.map(|model| Timestamp(model.start as u64));
        (&self.models[begun], until)
    }

    /// The longest beginning of `start`, `start + step`, …, at least one timestamp and at most
    /// `most`, on which one model holds and the coarse delay stays the same.
    ///
    /// `step` is a multiple of the subsampling.
    pub fn stretch(&self, start: Timestamp, step: u64, most: usize) -> Stretch {
        debug_assert!(step.is_multiple_of(self.subsampling.into()));
        let (model, until) = self.holding(start);
        let point = |i: usize| self.evaluate(model, start + i as u64 * step);
        let first = point(0);
        let most = match until {
            Some(next) => ((next - start).div_ceil(step.max(1)) as usize).min(most),
            None => most,
        };
        // The delay is a monotone function of time, rounded or not, so it does not come back to a
        // coarse delay that it left.
        let same = |i: usize| point(i).coarse == first.coarse;
        let (mut len, mut beyond) = (1, most.max(1));
        if beyond > 1 && same(beyond - 1) {
            len = beyond;
        }
        while len < beyond {
            let middle = len + (beyond - len) / 2;
            if same(middle) {
                len = middle + 1;
            } else {
                beyond = middle;
            }
        }
        Stretch {
            model: *model,
            start,
            step,
            coarse: first.coarse,
            turned: quarter_turns(first.coarse),
            len,
        }
    }

    /// The smallest output timestamp that is a multiple of `step`, at or after `start`, and asks
    /// for an input sample at or after `target`. None when there is none below [`Timestamp::END`].
    ///
    /// # Panics
    ///
    /// When `step` is zero.
    pub fn skip(&self, target: Timestamp, start: Timestamp, step: u64) -> Option<Timestamp> {
        const END: u64 = Timestamp::END - 1;
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

/// Timestamps on which one delay model holds and the coarse delay is constant.
///
/// It gives what [`DelayModels::at`] gives, to the last bit, without looking for the model and
/// rounding its delay again.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    model: LinearDelay,
    start: Timestamp,
    step: u64,
    coarse: i64,
    turned: f64,
    len: usize,
}

impl Stretch {
    /// How many there are: at least one.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whole samples of delay.
    pub fn coarse(&self) -> i64 {
        self.coarse
    }

    /// [`DelayPoint::residual`] of the `i`th timestamp.
    pub fn residual(&self, i: usize) -> f64 {
        // One rounding: the difference from the nearest sample is exact.
        self.model.delay_at(self.time(i)) - self.coarse as f64
    }

    /// [`DelayPoint::phase`] of the `i`th timestamp.
    pub fn phase(&self, i: usize) -> f64 {
        self.model.phase_at(self.time(i))
    }

    /// [`DelayPoint::wideband_phase`] of the `i`th timestamp.
    pub fn wideband_phase(&self, i: usize) -> f64 {
        wrap_angle(self.phase(i) + self.turned)
    }

    fn time(&self, i: usize) -> Timestamp {
        self.start + i as u64 * self.step
    }
}

fn begun(model: &LinearDelay, t: Timestamp) -> bool {
    model.start < 0 || model.start as u64 <= t.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delay::tests::{example, linear};
    use proptest::prelude::*;

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
    fn linear_range_matches_the_reference() {
        let mut models = DelayModels::new();
        models.add(example());
        let points: Vec<_> = (12999..13005)
            .map(|t| models.at(Timestamp(t)))
            .map(|p| (p.orig, p.residual))
            .collect();
        let orig = [12735, 12736, 12737, 12738, 12739, 12739];
        let residual = [-0.5, -0.25, 0.0, 0.25, 0.5, -0.25];
        assert_eq!(points, orig.into_iter().zip(residual).collect::<Vec<_>>());
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
        let points: Vec<_> = (0..=5).map(|i| models.at(Timestamp(11000 * i))).collect();
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

    proptest! {
        #[test]
        fn stretches_are_the_points_to_the_last_bit(
            pieces in prop::collection::vec((0i64..1 << 50, -1e5f64..1e5, -60i32..1, -4.0f64..4.0, -1e-3f64..1e-3), 0..4),
            near in prop::collection::vec(-100_000i64..100_000, 4),
            start in 0u64..1 << 50,
            subsampling in 1u64..40,
            step in 1u64..300,
        ) {
            let mut models = DelayModels::with_subsampling(subsampling as u32);
            let sign = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -0.9 };
            for (i, ((far, delay, rate, phase, turn), near)) in pieces.into_iter().zip(near).enumerate() {
                // Some begin within the range.
                let from = if far % 2 == 0 { far } else { (start as i64 + near).max(0) };
                let rate = sign(i) * f64::from(rate).exp2() * 0.99;
                models.add(linear(from, delay, rate, phase, turn));
            }
            let step = step * subsampling;
            let (mut t, end) = (Timestamp(start), start + 700 * step);
            while t.0 < end {
                let most = ((end - t.0) / step) as usize;
                let stretch = models.stretch(t, step, most);
                prop_assert!((1..=most).contains(&stretch.len()));
                for i in 0..stretch.len() {
                    let point = models.at(t + i as u64 * step);
                    prop_assert_eq!(point.coarse, stretch.coarse());
                    prop_assert_eq!(point.residual, stretch.residual(i));
                    prop_assert_eq!(point.wideband_phase(), stretch.wideband_phase(i));
                }
                let last = models.at(t + (stretch.len() as u64 - 1) * step);
                t = t + stretch.len() as u64 * step;
                // It ended because of a model, the coarse delay or the end.
                let next = models.at(t);
                let another = models.holding(t).0 != &stretch.model;
                prop_assert!(t.0 >= end || another || next.coarse != last.coarse);
            }
        }

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
    }
}
