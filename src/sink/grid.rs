//! Which timestamps batches have.
//!
//! An engine's batches begin at multiples of their samples in 64 bits, of which the wire has 48. So
//! those on the wire are such multiples only as long as 2^48 is one, or nothing has wrapped.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use ground::Timestamp;
use num_integer::gcd;

use super::counts::most_frequent;

/// More ranges of the wire than engines run for: 42 years at 1712 MHz.
const MOST_RANGES: u64 = 1 << 13;
/// The largest oversampling of filter banks.
const MOST_OVERSAMPLED: u64 = dsp::Oversampling::MOST as u64;

/// Samples of the fewest ranges of the wire that were before a timestamp on it, if the engine's is
/// a multiple of `batch`; none if it cannot be one.
pub fn ranges_before(timestamp: u64, batch: u64) -> Option<u64> {
    if batch == 0 {
        return None;
    }
    let common = gcd(batch, Timestamp::WIRE_RANGE);
    let mut rest = timestamp % batch;
    if !rest.is_multiple_of(common) {
        return None;
    }
    for ranges in 0..MOST_RANGES {
        if rest == 0 {
            return Some(ranges * Timestamp::WIRE_RANGE);
        }
        rest = (rest + Timestamp::WIRE_RANGE % batch) % batch;
    }
    None
}

/// Distances between timestamps that are tried, the most frequent ones.
const MOST_DISTANCES: usize = 4;
/// One of so many timestamps may be wrong, and yet be where a batch may be.
const MOST_WRONG: usize = 16;

/// The timestamps of a stream's batches, as far as they can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// ADC samples, of which the timestamps are multiples in 64 bits.
    pub samples: u64,
    /// What those on the wire leave when they are divided by these.
    rest: u64,
    /// Whether batches may be longer: those of narrowband are so many wideband ones.
    longer: bool,
}

/// What is known of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// ADC samples of a batch without oversampling.
    pub wideband: u64,
    /// Spectra of a batch.
    pub spectra: u64,
    /// ADC samples of a batch of the output whose filter bank is to be inverted.
    pub asked: Option<u64>,
}

impl Known {
    /// Whether an output of this shape may have batches of so many samples.
    fn may_have(&self, samples: u64) -> bool {
        samples.is_multiple_of(self.spectra) && samples * MOST_OVERSAMPLED >= self.wideband
    }
}

impl Grid {
    /// The grid of timestamps in ascending order, and whether it is the one that is asked for. A
    /// few timestamps may be wrong: it is one that nearly all are on that can be on any. The one
    /// that is asked for is tried first, if it is that of distances, then that of wideband, then
    /// the longest distance.
    pub(super) fn find(batches: &[u64], known: Known) -> (Self, bool) {
        let asked = known.asked.and_then(|samples| Self::fits(batches, samples));
        let asked = asked.filter(|(grid, _)| grid.is_that_of_distances(batches));
        let wideband = Self::fits(batches, known.wideband);
        let distances = distances(batches, known).into_iter().rev().map(|samples| {
            let (rest, count) = most_frequent_rest(batches, samples);
            (Self::of(samples, rest), count)
        });
        let distances: Vec<_> = distances.collect();
        let all = || asked.iter().chain(&wideband).chain(&distances);
        let most = all().map(|&(_, count)| count).max().unwrap_or(0);
        let found = all().find(|&&(_, count)| count + most / MOST_WRONG >= most);
        let Some(&(grid, _)) = found else {
            let (rest, _) = most_frequent_rest(batches, known.wideband);
            return (Self::of(known.wideband, rest), false);
        };
        let is_asked = asked.is_some_and(|(asked, _)| asked == grid);
        let longer = !is_asked && grid.samples == known.wideband;
        (Self { longer, ..grid }, is_asked)
    }

    fn of(samples: u64, rest: u64) -> Self {
        Self {
            samples,
            rest,
            longer: false,
        }
    }

    /// The grid of batches of so many samples, if it is that of most timestamps, and of how many.
    fn fits(batches: &[u64], samples: u64) -> Option<(Self, usize)> {
        let even = batches.iter().filter(|&t| t % samples == 0).count();
        if 2 * even >= batches.len() {
            return Some((Self::of(samples, 0), even));
        }
        // One alone would be on any such grid.
        let (rest, count) = most_frequent_rest(batches, samples);
        let most = count > 1 && 2 * count > batches.len();
        let fits = most && ranges_before(rest, samples).is_some();
        fits.then_some((Self::of(samples, rest), count))
    }

    /// Whether timestamps on it are as far apart as its batches: those of longer batches may be on
    /// it as well. One alone does not tell.
    fn is_that_of_distances(self, batches: &[u64]) -> bool {
        let on = batches.iter().filter(|&t| t % self.samples == self.rest);
        let on: Vec<u64> = on.copied().collect();
        let distances = || on.windows(2).map(|pair| pair[1] - pair[0]);
        let common = distances().fold(0, gcd);
        let most = most_frequent(distances());
        let Some((most, _)) = most.filter(|&(most, _)| most != self.samples) else {
            return true;
        };
        // Between batches that are missing; but a wrong timestamp of a stream with longer batches
        // makes distances short, too.
        let (_, longer) = most_frequent_rest(&on, most);
        common == self.samples && longer + on.len() / MOST_WRONG < on.len()
    }

    /// Takes those away that are not on it, and makes multiples of the others.
    pub(super) fn keep(self, batches: &mut Vec<u64>) {
        batches.retain(|t| t % self.samples == self.rest);
        let Some(&first) = batches.first() else {
            return;
        };
        let steps = batches.windows(2).map(|pair| pair[1] - pair[0]);
        let common = steps.fold(0, gcd);
        // A single step may be one over batches that are missing.
        let longer = (self.longer && batches.len() > 2).then_some(common);
        let longer = longer.and_then(|samples| ranges_before(first, samples));
        let before = longer.or_else(|| ranges_before(first, self.samples));
        let before = before.unwrap_or(0);
        batches.iter_mut().for_each(|t| *t += before);
    }
}

/// Distances, in ascending order, that may be those of batches: frequent ones between timestamps,
/// and what two of these have in common, for where batches are missing no two may be neighbours.
fn distances(batches: &[u64], known: Known) -> BTreeSet<u64> {
    let mut counts = BTreeMap::new();
    for pair in batches.windows(2) {
        let distance = pair[1] - pair[0];
        if known.may_have(distance) {
            *counts.entry(distance).or_insert(0) += 1;
        }
    }
    let mut frequent: Vec<(u64, usize)> = counts.into_iter().collect();
    frequent.sort_by_key(|&(distance, count)| (Reverse(count), distance));
    frequent.truncate(MOST_DISTANCES);
    let pairs = frequent
        .iter()
        .flat_map(|&(a, _)| frequent.iter().map(move |&(b, _)| gcd(a, b)));
    pairs.filter(|&samples| known.may_have(samples)).collect()
}

/// What most timestamps leave when they are divided by `samples`, and how many.
fn most_frequent_rest(batches: &[u64], samples: u64) -> (u64, usize) {
    most_frequent(batches.iter().map(|t| t % samples)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 16 channels and 8 spectra.
    const WIDEBAND: u64 = 2 * 16 * 8;
    const KNOWN: Known = Known {
        wideband: WIDEBAND,
        spectra: 8,
        asked: None,
    };

    /// Timestamps on the wire of batches from number `first` on.
    fn times(batch: u64, numbers: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let numbers = numbers.into_iter();
        numbers.map(|n| n * batch % Timestamp::WIRE_RANGE).collect()
    }

    /// What is found of batches, and which are kept.
    fn kept(mut batches: Vec<u64>, known: Known) -> (u64, bool, Vec<u64>) {
        let (grid, asked) = Grid::find(&batches, known);
        grid.keep(&mut batches);
        (grid.samples, asked, batches)
    }

    #[test]
    fn the_engines_timestamps_are_found_behind_a_wrap() {
        let range = Timestamp::WIRE_RANGE;
        for ranges in [0, 1, 5, 26] {
            let batch = 27 * 1024;
            let timestamp = (ranges * range).next_multiple_of(batch);
            let wire = timestamp % range;
            assert_eq!(ranges_before(wire, batch), Some(ranges * range));
            assert_eq!(ranges_before(wire + 1, batch), None);
        }
        assert_eq!(ranges_before(4096, 4096), Some(0));
        assert_eq!(ranges_before(4097, 4096), None);
        assert_eq!(ranges_before(0, 0), None);
    }

    /// Each second batch begins at a multiple of wideband's.
    #[test]
    fn batches_that_come_twice_as_often_are_all_kept() {
        for numbers in [0..6, 0..5, 1..6, 0..2, 1..3] {
            let batches = times(WIDEBAND / 2, numbers);
            let expected = (WIDEBAND / 2, false, batches.clone());
            assert_eq!(kept(batches, KNOWN), expected);
        }
    }

    /// Also of few batches, of which one begins at a multiple of wideband's by chance, and of one.
    #[test]
    fn few_batches_of_an_oversampled_output_are_kept() {
        let batch = WIDEBAND * 7 / 8;
        for numbers in [8..10, 9..11, 8..20] {
            let batches = times(batch, numbers);
            assert_eq!(kept(batches.clone(), KNOWN), (batch, false, batches));
        }
        let one = times(batch, 9..10);
        assert_eq!(kept(one.clone(), KNOWN), (WIDEBAND, false, one));
        assert!(kept(Vec::new(), KNOWN).2.is_empty());
    }

    /// Batches of which input was missing are not sent.
    #[test]
    fn batches_beside_missing_ones_are_kept() {
        let missing: [&[u64]; 8] = [
            &[0, 1, 3],
            &[0, 2, 3],
            &[0, 2, 5],
            &[0, 3, 5],
            &[1, 2, 4],
            &[1, 2, 4, 7, 8],
            &[2, 3, 5, 6],
            &[0, 1, 2, 4, 6, 7, 9],
        ];
        for (numerator, denominator) in [(1, 1), (2, 1), (4, 3), (8, 7), (32, 27), (16, 1)] {
            let batch = WIDEBAND / numerator * denominator;
            for numbers in missing {
                let batches = times(batch, numbers.iter().copied());
                let expected = (batch, false, batches.clone());
                assert_eq!(kept(batches, KNOWN), expected, "{numbers:?}");
            }
        }
    }

    /// Such as of a bit that was turned over: it is where a batch of another output may be.
    #[test]
    fn one_wrong_timestamp_of_many_does_not_matter() {
        for (batch, wrong) in [
            (WIDEBAND, WIDEBAND / 2),
            (WIDEBAND * 7 / 8, WIDEBAND / 4),
            (WIDEBAND * 27 / 4, WIDEBAND * 27 / 12),
        ] {
            let mut batches = times(batch, 0..40);
            let right = batches.clone();
            batches.insert(21, batches[20] + wrong);
            assert_eq!(kept(batches, KNOWN), (batch, false, right));
        }
    }

    /// A narrowband batch is so many wideband ones, of which 2^48 may be no multiple.
    #[test]
    fn the_engines_timestamps_are_told_of_narrowband_too() {
        for decimation in [24, 27] {
            let batch = decimation * WIDEBAND;
            let first = Timestamp::WIRE_RANGE.div_ceil(batch);
            let numbers = || [0, 1, 2, 4].map(|i| first + i);
            let expected = numbers().map(|n| n * batch).to_vec();
            let batches = times(batch, numbers());
            assert_ne!(batches[0] % batch, 0);
            assert_eq!(kept(batches, KNOWN), (WIDEBAND, false, expected));
        }
        // One step alone may be one over batches of wideband that are missing.
        let two = times(WIDEBAND, [1, 4]);
        assert_eq!(kept(two.clone(), KNOWN), (WIDEBAND, false, two));
    }

    #[test]
    fn batches_of_an_oversampled_output_are_kept_behind_a_wrap() {
        let batch = WIDEBAND * 27 / 32;
        let first = (2 * Timestamp::WIRE_RANGE).div_ceil(batch);
        for asked in [None, Some(batch)] {
            let mut batches = times(batch, first..first + 5);
            // One is wrong, and one is missing.
            batches[3] += 1;
            let expected = [0, 1, 2, 4].map(|i| (first + i) * batch).to_vec();
            let known = Known { asked, ..KNOWN };
            assert_eq!(kept(batches, known), (batch, asked.is_some(), expected));
        }
        // Those of wideband are not what was asked for.
        let known = Known {
            asked: Some(batch),
            ..KNOWN
        };
        let wideband = times(WIDEBAND, 3..9);
        assert_eq!(kept(wideband.clone(), known), (WIDEBAND, false, wideband));
    }

    /// Longer batches begin at multiples of the one that is asked for, too.
    #[test]
    fn an_output_with_longer_batches_is_not_the_one_that_is_asked_for() {
        let asked = |asked: u64, batches: Vec<u64>| {
            let known = Known {
                asked: Some(asked),
                ..KNOWN
            };
            kept(batches, known).1
        };
        for part in [2, 4, 16] {
            for numbers in [&[0, 1, 2, 3][..], &[1, 3, 4], &[2, 4]] {
                let plain = times(WIDEBAND, numbers.iter().copied());
                assert!(!asked(WIDEBAND / part, plain.clone()), "{part} {numbers:?}");
                assert!(asked(WIDEBAND, plain) || numbers.len() == 2);
            }
        }
        // Such as one of which a bit was turned over.
        let mut plain = times(WIDEBAND, 0..40);
        plain.insert(21, plain[20] + WIDEBAND / 2);
        assert!(!asked(WIDEBAND / 2, plain));
        for numbers in [&[0, 1, 3][..], &[0, 2, 5], &[0, 2, 4, 7, 9], &[3]] {
            let batches = times(WIDEBAND / 2, numbers.iter().copied());
            assert!(asked(WIDEBAND / 2, batches), "{numbers:?}");
        }
    }

    #[test]
    fn wrong_timestamps_of_wideband_are_taken_away() {
        let right = times(WIDEBAND, [0, 3, 5]);
        for wrong in [1, WIDEBAND + 1, 3 * WIDEBAND + 1, 6 * WIDEBAND + 17] {
            let mut batches = [&right[..], &[wrong]].concat();
            batches.sort_unstable();
            assert_eq!(kept(batches, KNOWN), (WIDEBAND, false, right.clone()));
        }
        assert_eq!(kept(vec![256, 257], KNOWN), (WIDEBAND, false, vec![256]));
    }
}
