//! How fast the time of heaps goes by this host's clock.

use std::collections::VecDeque;
use std::time::Instant;

use super::watch::WatchedEngine;

/// Looks that are compared.
const LOOKS: usize = 10;
/// Fewer do not tell.
const ENOUGH: usize = 5;
/// How far the pace has to be from what it should be, as a part of it, beside what follows from
/// chunks.
const OFF: f64 = 0.01;
/// How far the paces of two halves of the time may be from each other, as a part of what is off: a
/// step is no pace.
const UNEVEN: f64 = 0.25;

/// The newest chunks of the last looks that found heaps.
#[derive(Debug, Default)]
pub struct Pace(VecDeque<(Instant, u64)>);

impl Pace {
    /// Takes in the first sample of the newest chunk.
    pub fn note(&mut self, now: Instant, newest: u64) {
        self.0.push_back((now, newest));
        if self.0.len() > LOOKS {
            self.0.pop_front();
        }
    }

    /// Samples a second by this host's clock, if these are steadily more or fewer than the engine
    /// expects.
    pub fn other_rate(&self, engine: &WatchedEngine) -> Option<f64> {
        if self.0.len() < ENOUGH {
            return None;
        }
        let (first, middle, last) = (
            self.0.front()?,
            self.0.get(self.0.len() / 2)?,
            self.0.back()?,
        );
        let expected = engine.clock.adc_sample_rate;
        let rate = |from: &(Instant, u64), to: &(Instant, u64)| {
            let seconds = to.0.duration_since(from.0).as_secs_f64().max(1e-9);
            (to.1 as f64 - from.1 as f64) / seconds
        };
        // The newest chunk has come in part.
        let off = |from: &(Instant, u64), to: &(Instant, u64)| {
            let seconds = to.0.duration_since(from.0).as_secs_f64().max(1e-9);
            let chunks = 2.0 * engine.seconds(engine.chunk_samples()) / seconds;
            let off = rate(from, to) / expected - 1.0;
            (off.abs() > OFF + chunks).then_some(off)
        };
        let (before, after) = (off(first, middle)?, off(middle, last)?);
        let most = before.abs().max(after.abs());
        let even = (before - after).abs() <= UNEVEN * most;
        let measured = rate(first, last);
        (even && measured > 0.0).then_some(measured)
    }
}

/// A rate as options take it, with three digits.
pub fn significant(rate: f64) -> String {
    let digit = 10_f64.powi(rate.log10().floor() as i32 - 2);
    format!("{}", (rate / digit).round() * digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits() {
        for (rate, text) in [
            (1_712_345_678.0, "1710000000"),
            (819_200.0, "819000"),
            (3.2e6, "3200000"),
        ] {
            assert_eq!(significant(rate), text);
        }
    }
}
