//! Heaps far ahead of all others: has the digitisers' time leapt, or are these heaps alone wrong?
//!
//! A window cannot go back: if a single heap with a wrong timestamp moved it, every right heap
//! would be too old until the digitisers' time comes there. So the first heaps, and heaps far
//! ahead, are kept until enough of them agree.

/// A heap so many chunks ahead is far ahead, 10 s with default chunks at 1712 MHz: one that is
/// wrong by less makes heaps too old for no longer.
pub const FAR: u64 = 512;
/// So many heaps with timestamps near each other tell the digitisers' time.
pub const CONFIRMED: usize = 16;
/// So many heaps of the present time tell that what was kept was wrong. A leap may have a few heaps
/// from before it behind it.
const PRESENT: usize = CONFIRMED / 2;
/// Different times that are kept at once.
const TIMES: usize = 4;

/// Heaps, each kept as a `T`, that wait for others of their time.
#[derive(Debug)]
pub struct Leaps<T> {
    times: Vec<Time<T>>,
    /// Heaps of the present time since the first one was kept.
    present: usize,
}

/// Heaps of one time.
#[derive(Debug)]
struct Time<T> {
    newest: u64,
    heaps: Vec<T>,
}

/// What became of heaps that were kept.
#[derive(Debug, PartialEq, Eq)]
pub struct Settled<T> {
    /// Those that are right, by their times; those of one time in the order in which they came.
    pub right: Vec<T>,
    /// How many were not.
    pub wrong: usize,
}

impl<T> Default for Leaps<T> {
    fn default() -> Self {
        Self {
            times: Vec::new(),
            present: 0,
        }
    }
}

impl<T> Leaps<T> {
    /// Whether no heap is kept.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Keeps a heap of chunk `chunk`. Heaps less than [`FAR`] apart are of one time. With the last
    /// that it takes, its time is right, and so are earlier ones of more than one heap: a few
    /// heaps before a gap.
    pub fn keep(&mut self, chunk: u64, heap: T) -> Settled<T> {
        let mut wrong = 0;
        let known = self
            .times
            .iter()
            .position(|time| time.newest.abs_diff(chunk) < FAR);
        let at = known.unwrap_or_else(|| {
            if self.times.len() == TIMES {
                wrong = self.drop_smallest();
            }
            self.times.push(Time {
                newest: chunk,
                heaps: Vec::with_capacity(CONFIRMED),
            });
            self.times.len() - 1
        });
        let time = &mut self.times[at];
        time.newest = time.newest.max(chunk);
        time.heaps.push(heap);
        if time.heaps.len() < CONFIRMED {
            let right = Vec::new();
            return Settled { right, wrong };
        }
        let until = self.times[at].newest;
        self.part(|time| time.newest <= until && time.heaps.len() > 1)
    }

    /// A heap of the present time came, of chunk `chunk`. Kept heaps near it are right: others have
    /// told the time meanwhile. So are those of earlier times of more than one heap, for which the
    /// window has room now only. With enough heaps of the present, all other ones are wrong.
    pub fn note_present(&mut self, chunk: u64) -> Settled<T> {
        self.present += 1;
        let over = self.present >= PRESENT;
        let is_other = |time: &mut Time<T>| {
            let later = time.newest > chunk;
            time.newest.abs_diff(chunk) >= FAR && (later || time.heaps.len() == 1)
        };
        let others: Vec<_> = self.times.extract_if(.., is_other).collect();
        let present = self.present;
        let right = self.part(|_| true).right;
        let mut wrong = 0;
        if over {
            wrong = others.iter().map(|time| time.heaps.len()).sum();
        } else if !others.is_empty() {
            (self.times, self.present) = (others, present);
        }
        Settled { right, wrong }
    }

    /// No further heap comes, or none is waited for: each time that has more than one heap is
    /// right, or that of an `only` heap.
    pub fn settle(&mut self, only: bool) -> Settled<T> {
        let only = only && self.times.len() == 1;
        self.part(|time| only || time.heaps.len() > 1)
    }

    /// Parts all heaps that are kept, earlier times first: the window can go from these to later
    /// ones.
    fn part(&mut self, is_right: impl Fn(&Time<T>) -> bool) -> Settled<T> {
        self.present = 0;
        self.times.sort_by_key(|time| time.newest);
        let (right, wrong): (Vec<_>, Vec<_>) = self.times.drain(..).partition(is_right);
        Settled {
            right: right.into_iter().flat_map(|time| time.heaps).collect(),
            wrong: wrong.iter().map(|time| time.heaps.len()).sum(),
        }
    }

    fn drop_smallest(&mut self) -> usize {
        let least = (0..self.times.len()).min_by_key(|&at| self.times[at].heaps.len());
        least.map_or(0, |at| self.times.remove(at).heaps.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nothing(wrong: usize) -> Settled<u64> {
        let right = Vec::new();
        Settled { right, wrong }
    }

    #[test]
    fn sixteen_heaps_of_one_time_are_right() {
        let mut leaps = Leaps::default();
        for heap in 0..15 {
            assert_eq!(leaps.keep(100 + heap / 4, heap), nothing(0));
        }
        assert_eq!(leaps.keep(9000, 77), nothing(0));
        let right = (0..16).collect();
        assert_eq!(leaps.keep(104, 15), Settled { right, wrong: 1 });
        assert!(leaps.is_empty());
    }

    #[test]
    fn a_few_heaps_before_a_gap_are_right() {
        let mut leaps = Leaps::default();
        for (chunk, heap) in [
            (7, 90),
            (90_000, 91),
            (90_001, 92),
            (1000, 100),
            (1001, 101),
        ] {
            assert_eq!(leaps.keep(chunk, heap), nothing(0));
        }
        for heap in 0..15 {
            assert_eq!(leaps.keep(5000, heap), nothing(0));
        }
        // The later two are wrong: the window could not go back from them. So is the single one.
        let right = [100, 101].into_iter().chain(0..16).collect();
        assert_eq!(leaps.keep(5000, 15), Settled { right, wrong: 3 });
    }

    #[test]
    fn a_fifth_time_takes_the_place_of_the_smallest() {
        let mut leaps = Leaps::default();
        for (time, heaps) in [3, 2, 4, 3].into_iter().enumerate() {
            for heap in 0..heaps {
                assert_eq!(leaps.keep(time as u64 * FAR, heap), nothing(0));
            }
        }
        assert_eq!(leaps.times.len(), TIMES);
        assert_eq!(leaps.keep(9 * FAR, 77), nothing(2));
        assert_eq!(leaps.times.len(), TIMES);
        assert!(leaps.times.iter().all(|time| time.newest != FAR));
    }

    /// Also where others have told the time behind the gap.
    #[test]
    fn a_few_heaps_before_the_present_are_right() {
        let mut leaps = Leaps::default();
        for (chunk, heap) in [(8000, 5), (10, 0), (11, 1), (2000, 2), (4999, 3), (8000, 6)] {
            assert_eq!(leaps.keep(chunk, heap), nothing(0));
        }
        let right = vec![0, 1, 3];
        assert_eq!(leaps.note_present(5000), Settled { right, wrong: 0 });
        // The later ones may be a leap's; the single one is wrong as they are if they are none.
        for _ in 2..PRESENT {
            assert_eq!(leaps.note_present(5000), nothing(0));
        }
        assert_eq!(leaps.note_present(5000), nothing(3));
    }

    #[test]
    fn heaps_of_the_present_time_tell_that_others_are_wrong() {
        let mut leaps = Leaps::default();
        // Between the present and another time in turn, the present stays.
        for heap in 0..1000 {
            assert!(leaps.keep(heap + 5000, heap).right.is_empty());
            leaps.note_present(heap);
        }
        // A few late heaps do not hinder a leap.
        leaps.part(|_| false);
        let mut right = Vec::new();
        for heap in 0..CONFIRMED as u64 {
            if heap < PRESENT as u64 - 1 {
                assert_eq!(leaps.note_present(0), nothing(0));
            }
            right = leaps.keep(7000, heap).right;
        }
        assert_eq!(right, (0..CONFIRMED as u64).collect::<Vec<_>>());
    }

    #[test]
    fn at_the_end_all_but_single_heaps_are_right() {
        let mut leaps = Leaps::default();
        for (chunk, heap) in [(9000, 0), (9001, 1), (50, 2), (51, 3), (2000, 4)] {
            leaps.keep(chunk, heap);
        }
        let right = vec![2, 3, 0, 1];
        assert_eq!(leaps.settle(true), Settled { right, wrong: 1 });
        leaps.keep(9, 0);
        assert_eq!(leaps.settle(false), nothing(1));
        leaps.keep(9, 0);
        let right = vec![0];
        assert_eq!(leaps.settle(true), Settled { right, wrong: 0 });
    }

    proptest! {
        /// Each heap comes out once, right or wrong, and few are kept.
        #[test]
        fn no_heap_is_forgotten(
            heaps in proptest::collection::vec((prop_oneof![0..3u64, 0..200_000u64], any::<bool>()), 0..300),
        ) {
            let mut leaps = Leaps::default();
            let (mut right, mut wrong) = (Vec::new(), 0);
            for (at, &(chunk, present)) in heaps.iter().enumerate() {
                let settled = leaps.keep(chunk, at);
                right.extend(settled.right);
                wrong += settled.wrong;
                if present {
                    let settled = leaps.note_present(chunk / 2);
                    right.extend(settled.right);
                    wrong += settled.wrong;
                }
                prop_assert!(leaps.times.iter().map(|time| time.heaps.len()).sum::<usize>() < TIMES * CONFIRMED);
            }
            let settled = leaps.settle(true);
            right.extend(settled.right);
            prop_assert_eq!(right.len() + wrong + settled.wrong, heaps.len());
            right.sort_unstable();
            right.dedup();
            prop_assert_eq!(right.len() + wrong + settled.wrong, heaps.len());
        }
    }
}
