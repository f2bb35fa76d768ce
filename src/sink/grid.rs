//! Which timestamps batches have.
//!
//! An engine's batches begin at multiples of their samples in 64 bits, of which the wire has 48. So
//! those on the wire are such multiples only as long as 2^48 is one, or nothing has wrapped.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ground::Timestamp;

use super::layout::gcd;

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

/// The timestamps of a stream's batches, as far as they can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// ADC samples, of which the timestamps are multiples in 64 bits.
    pub samples: u64,
    /// What those on the wire leave when they are divided by these.
    rest: u64,
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

impl Grid {
    /// The grid of timestamps in ascending order, and whether it is the one that is asked for. A
    /// few timestamps may be wrong: it is that of most of them, or their most frequent distance.
    pub(super) fn find(batches: &[u64], known: Known) -> (Self, bool) {
        if let Some(asked) = known.asked.and_then(|samples| Self::fits(batches, samples)) {
            return (asked, true);
        }
        let mut distances = BTreeMap::new();
        for pair in batches.windows(2) {
            *distances.entry(pair[1] - pair[0]).or_insert(0) += 1;
        }
        let most = distances.into_iter().max_by_key(|&(_, count)| count);
        // Every second batch of an output with oversampling=2/1 begins where one of wideband may.
        let oversampled = most.filter(|&(distance, count)| {
            let hop = distance / known.spectra;
            let is_hop = distance.is_multiple_of(known.spectra) && hop.is_multiple_of(2);
            let is_dense = distance * MOST_OVERSAMPLED >= known.wideband;
            let wideband = distance.is_multiple_of(known.wideband);
            is_hop && is_dense && !wideband && 2 * count > batches.len() - 1
        });
        let wideband = Self::fits(batches, known.wideband).filter(|_| oversampled.is_none());
        let grid = wideband.unwrap_or_else(|| {
            let samples = most.map_or(known.wideband, |(distance, _)| distance);
            let (rest, _) = most_frequent_rest(batches, samples);
            Self { samples, rest }
        });
        (grid, false)
    }

    /// The grid of batches of so many samples, if it is that of most timestamps.
    fn fits(batches: &[u64], samples: u64) -> Option<Self> {
        let even = batches.iter().filter(|&t| t % samples == 0).count();
        if 2 * even >= batches.len() {
            return Some(Self { samples, rest: 0 });
        }
        // One alone would be on any such grid.
        let (rest, count) = most_frequent_rest(batches, samples);
        let most = count > 1 && 2 * count > batches.len();
        (most && ranges_before(rest, samples).is_some()).then_some(Self { samples, rest })
    }

    /// Takes those away that are not on it, and makes multiples of the others.
    pub(super) fn keep(self, batches: &mut Vec<u64>) {
        batches.retain(|t| t % self.samples == self.rest);
        let first = batches.first().copied().unwrap_or(0);
        let before = ranges_before(first, self.samples).unwrap_or(0);
        batches.iter_mut().for_each(|t| *t += before);
    }
}

/// What most timestamps leave when they are divided by `samples`, and how many.
fn most_frequent_rest(batches: &[u64], samples: u64) -> (u64, usize) {
    let mut rests = BTreeMap::new();
    for t in batches {
        *rests.entry(t % samples).or_insert(0) += 1;
    }
    let most = rests
        .into_iter()
        .max_by_key(|&(rest, count)| (count, Reverse(rest)));
    most.unwrap_or_default()
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
