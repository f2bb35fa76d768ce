//! Heaps far ahead of all others: has the digitisers' time leapt, or are these heaps alone wrong?
//!
//! A window cannot go back: if a single heap with a wrong timestamp moved it, every right heap
//! would be too old from then on. So the first heaps, and heaps beyond the window, are kept until
//! enough of them agree.

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
    /// Those of the digitisers' time, in the order in which they came.
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

    /// Keeps a heap of chunk `chunk`. Heaps less than `near` chunks apart are of one time.
    pub fn keep(&mut self, chunk: u64, near: u64, heap: T) -> Settled<T> {
        let mut wrong = 0;
        let of = self
            .times
            .iter()
            .position(|time| time.newest.abs_diff(chunk) < near);
        let at = of.unwrap_or_else(|| {
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
        let right = self.times.swap_remove(at).heaps;
        wrong += self.clear();
        Settled { right, wrong }
    }

    /// A heap of the present time came. Returns how many of the kept ones are wrong.
    pub fn note_present(&mut self) -> usize {
        self.present += 1;
        if self.is_empty() || self.present < PRESENT {
            return 0;
        }
        self.clear()
    }

    /// No further heap comes, or none is waited for: the time with the most heaps is right, if it
    /// has more than `least`.
    pub fn settle(&mut self, least: usize) -> Settled<T> {
        let most = (0..self.times.len()).max_by_key(|&at| self.times[at].heaps.len());
        let right = match most {
            Some(at) if self.times[at].heaps.len() > least => self.times.swap_remove(at).heaps,
            _ => Vec::new(),
        };
        let wrong = self.clear();
        Settled { right, wrong }
    }

    fn drop_smallest(&mut self) -> usize {
        let least = (0..self.times.len()).min_by_key(|&at| self.times[at].heaps.len());
        least.map_or(0, |at| self.times.remove(at).heaps.len())
    }

    fn clear(&mut self) -> usize {
        self.present = 0;
        let heaps = |time: Time<T>| time.heaps.len();
        self.times.drain(..).map(heaps).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NEAR: u64 = 4;

    fn nothing(wrong: usize) -> Settled<u64> {
        let right = Vec::new();
        Settled { right, wrong }
    }

    #[test]
    fn sixteen_heaps_of_one_time_are_right() {
        let mut leaps = Leaps::default();
        for heap in 0..15 {
            assert_eq!(leaps.keep(100 + heap / 4, NEAR, heap), nothing(0));
        }
        assert_eq!(leaps.keep(900, NEAR, 77), nothing(0));
        let right = (0..16).collect();
        assert_eq!(leaps.keep(104, NEAR, 15), Settled { right, wrong: 1 });
        assert!(leaps.is_empty());
    }

    #[test]
    fn heaps_of_the_present_time_tell_that_others_are_wrong() {
        let mut leaps = Leaps::default();
        // Between the present and another time in turn, the present stays.
        for heap in 0..1000 {
            assert!(leaps.keep(heap + 500, NEAR, heap).right.is_empty());
            leaps.note_present();
        }
        // A few late heaps do not hinder a leap.
        leaps.settle(usize::MAX);
        let mut right = Vec::new();
        for heap in 0..CONFIRMED as u64 {
            if heap < PRESENT as u64 - 1 {
                assert_eq!(leaps.note_present(), 0);
            }
            right = leaps.keep(700, NEAR, heap).right;
        }
        assert_eq!(right, (0..CONFIRMED as u64).collect::<Vec<_>>());
    }

    #[test]
    fn at_the_end_the_most_are_right() {
        let mut leaps = Leaps::default();
        for (chunk, heap) in [(9, 0), (50, 1), (51, 2), (200, 3)] {
            leaps.keep(chunk, NEAR, heap);
        }
        let right = vec![1, 2];
        assert_eq!(leaps.settle(1), Settled { right, wrong: 2 });
        leaps.keep(9, NEAR, 0);
        assert_eq!(leaps.settle(1), nothing(1));
        leaps.keep(9, NEAR, 0);
        let right = vec![0];
        assert_eq!(leaps.settle(0), Settled { right, wrong: 0 });
    }

    proptest! {
        /// Each heap comes out once, right or wrong, and few are kept.
        #[test]
        fn no_heap_is_forgotten(
            heaps in proptest::collection::vec((prop_oneof![0..3u64, 0..200u64], any::<bool>()), 0..300),
        ) {
            let mut leaps = Leaps::default();
            let (mut right, mut wrong) = (Vec::new(), 0);
            for (at, &(chunk, present)) in heaps.iter().enumerate() {
                let settled = leaps.keep(chunk, NEAR, at);
                right.extend(settled.right);
                wrong += settled.wrong;
                if present {
                    wrong += leaps.note_present();
                }
                prop_assert!(leaps.times.iter().map(|time| time.heaps.len()).sum::<usize>() < TIMES * CONFIRMED);
            }
            let settled = leaps.settle(0);
            right.extend(settled.right);
            prop_assert_eq!(right.len() + wrong + settled.wrong, heaps.len());
            right.sort_unstable();
            right.dedup();
            prop_assert_eq!(right.len() + wrong + settled.wrong, heaps.len());
        }
    }
}
