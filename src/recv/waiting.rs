//! Heaps far ahead of all others: has the digitisers' time leapt, or are these heaps alone wrong?
//!
//! A window cannot go back: if a single heap with a wrong timestamp moved it, every right heap
//! would be too old until the digitisers' time comes there. So the first heaps, and heaps far
//! ahead, wait until enough of them agree.

/// A heap so many chunks ahead is far ahead, 10 s with default chunks at 1712 MHz: one that is
/// wrong by less makes heaps too old for no longer.
pub const FAR: u64 = 512;
/// So many heaps with timestamps near each other tell the digitisers' time.
pub const CONFIRMED: usize = 16;
/// So many heaps of the present time tell that what waits is wrong. A leap may have a few heaps
/// from before it behind it.
const PRESENT: usize = CONFIRMED / 2;
/// Different times of which heaps wait at once.
const TIMES: usize = 4;

/// Heaps, each as a `T`, that wait for others of their time.
#[derive(Debug)]
pub struct WaitingHeaps<T> {
    groups: Vec<TimeGroup<T>>,
    /// Heaps of the present time since the first one waits.
    present: usize,
}

/// Heaps of one time.
#[derive(Debug)]
struct TimeGroup<T> {
    /// Their newest chunk.
    newest: u64,
    heaps: Vec<T>,
}

/// What became of heaps that waited.
#[derive(Debug, PartialEq, Eq)]
pub struct Settled<T> {
    /// Those that are right, by their times; those of one time in the order in which they came.
    pub right: Vec<T>,
    /// Those that are not, each time's in the order in which they came.
    pub wrong: Vec<T>,
}

impl<T> Default for WaitingHeaps<T> {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            present: 0,
        }
    }
}

impl<T> WaitingHeaps<T> {
    /// Whether no heap waits.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// A heap of chunk `chunk` is to wait. Heaps less than [`FAR`] apart are of one time. With the
    /// last that it takes, its time is right, and so are earlier ones of more than one heap: a few
    /// heaps before a gap.
    pub fn add(&mut self, chunk: u64, heap: T) -> Settled<T> {
        let mut wrong = Vec::new();
        let known = self
            .groups
            .iter()
            .position(|group| group.newest.abs_diff(chunk) < FAR);
        let at = known.unwrap_or_else(|| {
            if self.groups.len() == TIMES {
                wrong = self.drop_smallest();
            }
            self.groups.push(TimeGroup {
                newest: chunk,
                heaps: Vec::with_capacity(CONFIRMED),
            });
            self.groups.len() - 1
        });
        let group = &mut self.groups[at];
        group.newest = group.newest.max(chunk);
        group.heaps.push(heap);
        if group.heaps.len() < CONFIRMED {
            let right = Vec::new();
            return Settled { right, wrong };
        }
        let until = self.groups[at].newest;
        self.part(|group| group.newest <= until && group.heaps.len() > 1)
    }

    /// A heap of the present time came, of chunk `chunk`. Heaps near it that wait are right: others
    /// have told the time meanwhile. So are those of earlier times of more than one heap, for which
    /// the window has room now only. With enough heaps of the present, all other ones are wrong.
    pub fn note_present(&mut self, chunk: u64) -> Settled<T> {
        self.present += 1;
        let over = self.present >= PRESENT;
        let is_other = |group: &mut TimeGroup<T>| {
            let later = group.newest > chunk;
            group.newest.abs_diff(chunk) >= FAR && (later || group.heaps.len() == 1)
        };
        let others: Vec<_> = self.groups.extract_if(.., is_other).collect();
        let present = self.present;
        let right = self.part(|_| true).right;
        let mut wrong = Vec::new();
        if over {
            wrong = heaps_of(others);
        } else if !others.is_empty() {
            (self.groups, self.present) = (others, present);
        }
        Settled { right, wrong }
    }

    /// No further heap comes, or none is waited for: each time that has more than one heap is
    /// right, or that of an `only` heap.
    pub fn settle(&mut self, only: bool) -> Settled<T> {
        let only = only && self.groups.len() == 1;
        self.part(|group| only || group.heaps.len() > 1)
    }

    /// Parts all heaps that wait, earlier times first: the window can go from these to later
    /// ones.
    fn part(&mut self, is_right: impl Fn(&TimeGroup<T>) -> bool) -> Settled<T> {
        self.present = 0;
        self.groups.sort_by_key(|group| group.newest);
        let (right, wrong): (Vec<_>, Vec<_>) = self.groups.drain(..).partition(is_right);
        Settled {
            right: heaps_of(right),
            wrong: heaps_of(wrong),
        }
    }

    fn drop_smallest(&mut self) -> Vec<T> {
        let least = (0..self.groups.len()).min_by_key(|&at| self.groups[at].heaps.len());
        least.map_or_else(Vec::new, |at| self.groups.remove(at).heaps)
    }
}

/// All heaps of these times, one time after the other.
fn heaps_of<T>(groups: Vec<TimeGroup<T>>) -> Vec<T> {
    groups.into_iter().flat_map(|group| group.heaps).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// These are wrong, and none is right.
    fn only_wrong<const N: usize>(wrong: [u64; N]) -> Settled<u64> {
        Settled {
            right: Vec::new(),
            wrong: wrong.into(),
        }
    }

    /// These are right, and these are wrong.
    fn settled(
        right: impl IntoIterator<Item = u64>,
        wrong: impl IntoIterator<Item = u64>,
    ) -> Settled<u64> {
        Settled {
            right: right.into_iter().collect(),
            wrong: wrong.into_iter().collect(),
        }
    }

    #[test]
    fn sixteen_heaps_of_one_time_are_right() {
        let mut waiting = WaitingHeaps::default();
        for heap in 0..15 {
            assert_eq!(waiting.add(100 + heap / 4, heap), only_wrong([]));
        }
        assert_eq!(waiting.add(9000, 77), only_wrong([]));
        assert_eq!(waiting.add(104, 15), settled(0..16, [77]));
        assert!(waiting.is_empty());
    }

    #[test]
    fn a_few_heaps_before_a_gap_are_right() {
        let mut waiting = WaitingHeaps::default();
        for (chunk, heap) in [
            (7, 90),
            (90_000, 91),
            (90_001, 92),
            (1000, 100),
            (1001, 101),
        ] {
            assert_eq!(waiting.add(chunk, heap), only_wrong([]));
        }
        for heap in 0..15 {
            assert_eq!(waiting.add(5000, heap), only_wrong([]));
        }
        // The later two are wrong: the window could not go back from them. So is the single one.
        let right = [100, 101].into_iter().chain(0..16);
        assert_eq!(waiting.add(5000, 15), settled(right, [90, 91, 92]));
    }

    #[test]
    fn a_fifth_time_takes_the_place_of_the_smallest() {
        let mut waiting = WaitingHeaps::default();
        for (time, heaps) in [3, 2, 4, 3].into_iter().enumerate() {
            for heap in 0..heaps {
                assert_eq!(waiting.add(time as u64 * FAR, heap), only_wrong([]));
            }
        }
        assert_eq!(waiting.groups.len(), TIMES);
        assert_eq!(waiting.add(9 * FAR, 77), only_wrong([0, 1]));
        assert_eq!(waiting.groups.len(), TIMES);
        assert!(waiting.groups.iter().all(|group| group.newest != FAR));
    }

    /// Also where others have told the time behind the gap.
    #[test]
    fn a_few_heaps_before_the_present_are_right() {
        let mut waiting = WaitingHeaps::default();
        for (chunk, heap) in [(8000, 5), (10, 0), (11, 1), (2000, 2), (4999, 3), (8000, 6)] {
            assert_eq!(waiting.add(chunk, heap), only_wrong([]));
        }
        assert_eq!(waiting.note_present(5000), settled([0, 1, 3], []));
        // The later ones may be a leap's; the single one is wrong as they are if they are none.
        for _ in 2..PRESENT {
            assert_eq!(waiting.note_present(5000), only_wrong([]));
        }
        assert_eq!(waiting.note_present(5000), only_wrong([5, 6, 2]));
    }

    #[test]
    fn heaps_of_the_present_time_tell_that_others_are_wrong() {
        let mut waiting = WaitingHeaps::default();
        // Between the present and another time in turn, the present stays.
        for heap in 0..1000 {
            assert!(waiting.add(heap + 5000, heap).right.is_empty());
            waiting.note_present(heap);
        }
        // A few late heaps do not hinder a leap.
        waiting.part(|_| false);
        let mut right = Vec::new();
        for heap in 0..CONFIRMED as u64 {
            if heap < PRESENT as u64 - 1 {
                assert_eq!(waiting.note_present(0), only_wrong([]));
            }
            right = waiting.add(7000, heap).right;
        }
        assert_eq!(right, (0..CONFIRMED as u64).collect::<Vec<_>>());
    }

    #[test]
    fn at_the_end_all_but_single_heaps_are_right() {
        let mut waiting = WaitingHeaps::default();
        for (chunk, heap) in [(9000, 0), (9001, 1), (50, 2), (51, 3), (2000, 4)] {
            waiting.add(chunk, heap);
        }
        assert_eq!(waiting.settle(true), settled([2, 3, 0, 1], [4]));
        waiting.add(9, 0);
        assert_eq!(waiting.settle(false), only_wrong([0]));
        waiting.add(9, 0);
        assert_eq!(waiting.settle(true), settled([0], []));
    }

    proptest! {
        /// Each heap comes out once, right or wrong, and few wait.
        #[test]
        fn no_heap_is_forgotten(
            heaps in proptest::collection::vec((prop_oneof![0..3u64, 0..200_000u64], any::<bool>()), 0..300),
        ) {
            let mut waiting = WaitingHeaps::default();
            let mut out = Vec::new();
            for (at, &(chunk, present)) in heaps.iter().enumerate() {
                let settled = waiting.add(chunk, at);
                out.extend(settled.right.into_iter().chain(settled.wrong));
                if present {
                    let settled = waiting.note_present(chunk / 2);
                    out.extend(settled.right.into_iter().chain(settled.wrong));
                }
                prop_assert!(waiting.groups.iter().map(|group| group.heaps.len()).sum::<usize>() < TIMES * CONFIRMED);
            }
            let settled = waiting.settle(true);
            out.extend(settled.right.into_iter().chain(settled.wrong));
            out.sort_unstable();
            prop_assert_eq!(out, (0..heaps.len()).collect::<Vec<_>>());
        }
    }
}
