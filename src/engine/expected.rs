//! What a span of input should give: the one place that says which batches belong to it.

use std::ops::Range;

use dsp::delay::DelayHistory;
use ground::{N_POL, Timestamp};

use crate::config::OutputConfig;

/// How many batches of `output` should come of the input samples `span`, whichever of them are
/// missing.
///
/// A batch belongs to the span if all of its spectra's windows lie in it, of both polarisations, by
/// the delays that the output had. Batches begin on multiples of their length.
pub fn expected_batches(
    output: &OutputConfig,
    delays: &[DelayHistory; N_POL],
    span: &Range<u64>,
) -> u64 {
    let step = output.batch_samples() as u64;
    let (start, end) = (as_signed(span.start), as_signed(span.end));
    let last = Timestamp::END / step;
    // Between these, whole batches have one model, and what a batch needs moves on from each to the
    // next.
    let changes = delays.iter().flat_map(DelayHistory::changes);
    let around = changes.flat_map(|t| [t.0 / step, t.0 / step + 1]);
    let mut cuts: Vec<_> = around.map(|cut| cut.min(last)).collect();
    cuts.push(last);
    cuts.sort_unstable();
    cuts.dedup();
    let need = |batch: u64| needs(output, delays, Timestamp(batch * step));
    let count = |cuts: &[u64]| {
        let first = first_of(cuts[0]..cuts[1], |batch| need(batch).start >= start);
        first_of(first..cuts[1], |batch| need(batch).end > end) - first
    };
    cuts.windows(2).map(count).sum()
}

/// Input samples from the first to the last that the batch at `t` asks for.
fn needs(output: &OutputConfig, delays: &[DelayHistory; N_POL], t: Timestamp) -> Range<i64> {
    let step = output.spectrum_samples() as u64;
    let window = as_signed(output.window_samples() as u64);
    let last = t + (output.spectra_per_heap() as u64 - 1) * step;
    let (mut start, mut end) = (i64::MAX, i64::MIN);
    for delays in delays {
        let mut add = |t: Timestamp| {
            let first = delays.at(t).orig;
            start = start.min(first);
            end = end.max(first.saturating_add(window));
        };
        // By one model, later spectra ask for later samples: its first and its last spectrum tell.
        add(t);
        for change in delays.changes_within(t, last) {
            let first = t + (change - t).next_multiple_of(step);
            add(Timestamp(first.0 - step));
            add(first);
        }
        add(last);
    }
    start..end
}

/// The first of `range` that `is`, or its end: all behind one that is are as well.
fn first_of(range: Range<u64>, is: impl Fn(u64) -> bool) -> u64 {
    let (mut below, mut found) = (range.start, range.end);
    while below < found {
        let middle = below + (found - below) / 2;
        if is(middle) {
            found = middle;
        } else {
            below = middle + 1;
        }
    }
    found
}

fn as_signed(samples: u64) -> i64 {
    i64::try_from(samples).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[path = "expected_tests.rs"]
mod tests;
