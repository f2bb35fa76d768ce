//! Whether more is clipped than noise of a good level has clipped.

use std::time::{Duration, Instant};

use dsp::{OutputBits, level};
use ground::N_POL;

use super::Cause;
use super::counts::{Look, LossCounts, StreamCounts};
use super::track::FoundLoss;

/// Share of a digitiser's samples at full scale: what noise at −7 dBFS has.
pub const INPUT: f64 = 1e-3;
/// How long it is to be clipped before that is said.
const FOR: Duration = Duration::from_secs(2);

impl StreamCounts {
    /// Share of its values that may be clipped.
    pub fn clipping_limit(&self) -> f64 {
        level::clipping_limit(match self.four_bits {
            true => OutputBits::Four,
            false => OutputBits::Eight,
        })
    }
}

/// Since when more is clipped than should be.
#[derive(Debug, Default)]
pub struct Levels {
    input: Option<Instant>,
    output: Option<Instant>,
}

impl Levels {
    /// Compares two looks at heaps of so many samples.
    pub fn look(
        &mut self,
        heap_samples: u64,
        last: Look<'_>,
        now: Look<'_>,
    ) -> [(Cause, FoundLoss); 2] {
        let input = clipped_input(heap_samples, last.counts, now.counts);
        let output = clipped_output(last.counts, now.counts);
        let found = |cause, since: &mut Option<Instant>, clipped: Option<u64>| {
            let loss = match clipped {
                // Nothing came that could tell.
                None => FoundLoss::Unknown,
                Some(0) => {
                    *since = None;
                    FoundLoss::Lost(0)
                }
                Some(clipped) => {
                    let since = *since.get_or_insert(last.at);
                    let said = now.at.duration_since(since) >= FOR;
                    FoundLoss::Lost(if said { clipped } else { 0 })
                }
            };
            (cause, loss)
        };
        [
            found(Cause::InputClipping, &mut self.input, input),
            found(Cause::OutputClipping, &mut self.output, output),
        ]
    }
}

/// Samples that were at full scale since `last`, if those of either polarisation are too many.
fn clipped_input(heap_samples: u64, last: &LossCounts, counts: &LossCounts) -> Option<u64> {
    let of = |pol: usize| {
        let clipped = counts.clipped[pol].saturating_sub(last.clipped[pol]);
        let heaps = counts.heaps[pol].saturating_sub(last.heaps[pol]);
        (clipped, heaps * heap_samples)
    };
    beyond([of(0), of(1)], INPUT)
}

/// Output values that were clipped since `last`, of outputs of which too many were.
fn clipped_output(last: &LossCounts, counts: &LossCounts) -> Option<u64> {
    let outputs = last.outputs.iter().zip(&counts.outputs);
    let clipped = outputs.filter_map(|(last, now)| {
        let values = now.values.saturating_sub(last.values);
        let of = |pol: usize| (now.clipped[pol].saturating_sub(last.clipped[pol]), values);
        beyond([of(0), of(1)], now.clipping_limit())
    });
    clipped.reduce(|all, clipped| all + clipped)
}

/// How many were clipped if the share of either polarisation is beyond a limit; `None` if there was
/// nothing to be clipped.
fn beyond(pols: [(u64, u64); N_POL], limit: f64) -> Option<u64> {
    let is_beyond = |(clipped, all): (u64, u64)| clipped as f64 > limit * all as f64;
    let any = pols.iter().any(|(_, all)| *all > 0);
    let clipped = pols.iter().map(|(clipped, _)| clipped).sum();
    any.then(|| {
        if pols.into_iter().any(is_beyond) {
            clipped
        } else {
            0
        }
    })
}
