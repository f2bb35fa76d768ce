//! Which heaps of a polarisation came, as runs: exact counts, and a bounded map to look at.

use std::ops::Range;

/// Runs kept at the most; beyond that, short ones are merged.
const MAX_RUNS: usize = 8192;

/// Presence of consecutive heaps of one polarisation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PresenceMap {
    runs: Vec<(bool, u64)>,
    /// Runs shorter than this have been merged with their neighbours.
    merged_below: u64,
    heaps: u64,
    absent: u64,
    leading: u64,
    trailing: u64,
}

impl PresenceMap {
    /// Appends `count` heaps that are all present or all absent.
    pub fn push(&mut self, present: bool, count: u64) {
        if count == 0 {
            return;
        }
        self.heaps += count;
        if present {
            self.trailing = 0;
        } else {
            if self.absent == self.heaps - count {
                self.leading += count;
            }
            self.absent += count;
            self.trailing += count;
        }
        match self.runs.last_mut() {
            Some((last, length)) if *last == present => *length += count,
            _ => self.runs.push((present, count)),
        }
        if self.runs.len() > MAX_RUNS {
            self.coarsen();
        }
    }

    /// Merges neighbouring short runs: what contains an absent heap is shown as absent.
    fn coarsen(&mut self) {
        self.merged_below = self.merged_below.max(2);
        // Mostly, only what was pushed since the last time is to be merged.
        while self.merge() > MAX_RUNS / 2 {
            self.merged_below *= 2;
        }
    }

    /// Merges neighbouring runs of fewer than `merged_below` heaps together. Returns how many are
    /// left.
    fn merge(&mut self) -> usize {
        let mut merged: Vec<(bool, u64)> = Vec::with_capacity(MAX_RUNS);
        for &(mut present, mut count) in &self.runs {
            // What became absent is like the run before it.
            while let Some((last, length)) = merged.pop() {
                if last != present && length + count >= self.merged_below {
                    merged.push((last, length));
                    break;
                }
                (present, count) = (last && present, length + count);
            }
            merged.push((present, count));
        }
        self.runs = merged;
        self.runs.len()
    }

    /// Heaps pushed.
    pub fn heaps(&self) -> u64 {
        self.heaps
    }

    /// From the first heap of either polarisation to behind the last one of either, counted from
    /// the first pushed. Empty if none came.
    pub fn first_to_last(maps: [&Self; 2]) -> Range<u64> {
        let leading = maps[0].leading.min(maps[1].leading);
        let trailing = maps[0].trailing.min(maps[1].trailing);
        leading..(maps[0].heaps - trailing).max(leading)
    }

    /// For both polarisations, heaps absent between the first and the last heap of either, and the
    /// runs of that range.
    pub fn between_first_and_last(maps: [&Self; 2]) -> [(u64, Vec<(bool, u64)>); 2] {
        let span = Self::first_to_last(maps);
        maps.map(|map| {
            let (leading, trailing) = (span.start, map.heaps - span.end);
            let outside = (leading + trailing).min(map.absent);
            (map.absent - outside, trim(&map.runs, leading, trailing))
        })
    }
}

/// The runs without `head` heaps at the front and `tail` at the back.
fn trim(runs: &[(bool, u64)], mut head: u64, mut tail: u64) -> Vec<(bool, u64)> {
    let mut runs = runs.to_vec();
    for (_, count) in &mut runs {
        let cut = head.min(*count);
        *count -= cut;
        head -= cut;
    }
    for (_, count) in runs.iter_mut().rev() {
        let cut = tail.min(*count);
        *count -= cut;
        tail -= cut;
    }
    runs.retain(|(_, count)| *count > 0);
    runs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map(runs: &[(bool, u64)]) -> PresenceMap {
        let mut map = PresenceMap::default();
        for &(present, count) in runs {
            map.push(present, count);
        }
        map
    }

    #[test]
    fn only_heaps_between_first_and_last_are_missing() {
        let a = map(&[(false, 5), (true, 3), (false, 2), (true, 1), (false, 9)]);
        let b = map(&[(false, 6), (true, 4), (false, 10)]);
        let [(missing_a, runs_a), (missing_b, runs_b)] =
            PresenceMap::between_first_and_last([&a, &b]);
        assert_eq!((missing_a, missing_b), (2, 2));
        assert_eq!(runs_a, [(true, 3), (false, 2), (true, 1)]);
        assert_eq!(runs_b, [(false, 1), (true, 4), (false, 1)]);
    }

    #[test]
    fn a_polarisation_that_never_came_is_all_missing() {
        let (a, b) = (map(&[(false, 2), (true, 6)]), map(&[(false, 8)]));
        let [(missing_a, _), (missing_b, runs_b)] = PresenceMap::between_first_and_last([&a, &b]);
        assert_eq!((missing_a, missing_b), (0, 6));
        assert_eq!(runs_b, [(false, 6)]);
    }

    /// One flag per heap.
    fn heaps(runs: &[(bool, u64)]) -> Vec<bool> {
        let heaps = runs
            .iter()
            .flat_map(|&(present, count)| std::iter::repeat_n(present, count as usize));
        heaps.collect()
    }

    /// The shortest list of runs.
    fn runs(heaps: &[bool]) -> Vec<(bool, u64)> {
        let runs = heaps.chunk_by(|a, b| a == b);
        runs.map(|run| (run[0], run.len() as u64)).collect()
    }

    proptest! {
        #[test]
        fn what_is_told_is_what_flags_of_all_heaps_tell(
            pushed in proptest::collection::vec((any::<[bool; 2]>(), 0..4u64), 0..30),
        ) {
            let of = [0, 1].map(|pol| -> Vec<_> { pushed.iter().map(|p| (p.0[pol], p.1)).collect() });
            let [x, y] = [map(&of[0]), map(&of[1])];
            let flags = [heaps(&of[0]), heaps(&of[1])];
            let either: Vec<_> = flags[0].iter().zip(&flags[1]).map(|(x, y)| x | y).collect();
            let first = either.iter().position(|here| *here).unwrap_or(either.len());
            let end = either.iter().rposition(|here| *here).map_or(first, |last| last + 1);
            let span = PresenceMap::first_to_last([&x, &y]);
            prop_assert_eq!(span, first as u64..end as u64);
            prop_assert_eq!(x.heaps(), either.len() as u64);
            let told = PresenceMap::between_first_and_last([&x, &y]);
            for ((absent, told), flags) in told.into_iter().zip(&flags) {
                let flags = &flags[first..end];
                prop_assert_eq!(absent, flags.iter().filter(|here| !*here).count() as u64);
                prop_assert_eq!(told, runs(flags));
            }
        }
    }

    /// However often the map was made coarser, no two neighbours are alike.
    #[test]
    fn runs_alternate() {
        let mut map = PresenceMap::default();
        for i in 0..40_000u64 {
            map.push(true, 1 + i % 5);
            map.push(false, 1 + i % 3);
            assert!(map.runs.len() <= MAX_RUNS);
        }
        assert!(map.runs.windows(2).all(|pair| pair[0].0 != pair[1].0));
        let told: u64 = map.runs.iter().map(|run| run.1).sum();
        assert_eq!(told, map.heaps());
    }

    /// Beyond so many runs, gaps grow, but none is hidden, and what is whole for long stays so.
    #[test]
    fn the_map_stays_bounded_and_hides_no_gap() {
        const WHOLE: u64 = 5_000;
        let pushed = (0..60_000u64).flat_map(|i| {
            let whole = if i % 5_000 == 0 { WHOLE } else { 1 + i % 7 };
            [(true, whole), (false, 1 + i % 3)]
        });
        let pushed: Vec<_> = pushed.collect();
        let mut map = PresenceMap::default();
        for (i, &(present, count)) in pushed.iter().enumerate() {
            map.push(present, count);
            assert!(map.runs.len() <= MAX_RUNS);
            let is_exact = i < MAX_RUNS;
            assert!(!is_exact || map.runs.len() == i + 1, "{i}");
        }
        let (truth, shown) = (heaps(&pushed), heaps(&map.runs));
        assert_eq!(shown.len(), truth.len());
        assert!(
            truth
                .iter()
                .zip(&shown)
                .all(|(here, shown)| *here || !shown)
        );
        let whole = |runs: &[(bool, u64)]| {
            let long = runs.iter().filter(|(here, count)| *here && *count >= WHOLE);
            long.count()
        };
        assert_eq!(whole(&map.runs), whole(&pushed));
        assert_eq!(
            map.absent,
            truth.iter().filter(|here| !*here).count() as u64
        );
        // It is no coarser than it has to be.
        assert!(map.runs.len() > MAX_RUNS / 8, "{}", map.runs.len());
    }
}
