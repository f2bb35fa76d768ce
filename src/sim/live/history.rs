//! Windows of a live digitiser's heaps, and changes of its signals, which may come while faults
//! hold heaps back.

use std::sync::Arc;

use ground::Timestamp;
use tokio::sync::oneshot;

use crate::sim::faults::{FaultPlan, SimHeap};
use crate::sim::window::Windows;

/// Other signals, from the next heap on.
pub struct SignalsChange {
    /// Their samples.
    pub windows: Arc<Windows>,
    /// Told from which timestamp on they are sent; with it come those that are of no use any more.
    pub done: oneshot::Sender<(Timestamp, Vec<Arc<Windows>>)>,
}

impl SignalsChange {
    /// Has heaps from `next` on be of these signals, whose first timestamp is `timestamp`. Not if
    /// nobody waits for it any more: then the asker has been told that nothing changes.
    pub(super) fn take(self, next: u64, timestamp: Timestamp, history: &mut WindowHistory) {
        match self.done.send((timestamp, history.take_unused())) {
            Ok(()) => history.change(next, self.windows),
            // Samples are given back beside the lcore, which would take long for it.
            Err((_, unused)) => history.keep(unused.into_iter().chain([self.windows])),
        }
    }
}

/// The windows of all heaps that are still to be sent: the newest, and earlier ones as long as
/// faults may hold heaps of them back.
pub struct WindowHistory {
    /// Each with the index of its first heap.
    windows: Vec<(u64, Arc<Windows>)>,
    /// Heaps of its polarisation that a heap may be held back by.
    longest_hold: u64,
    /// Of each polarisation, the largest index that has come out of the faults, and the largest
    /// before that.
    newest: Vec<[u64; 2]>,
}

impl WindowHistory {
    /// Windows that do not change yet.
    pub fn new(windows: Arc<Windows>, pols: usize, plan: &FaultPlan) -> Self {
        Self {
            windows: vec![(0, windows)],
            longest_hold: plan.longest_hold(),
            newest: vec![[0, 0]; pols],
        }
    }

    /// The windows that heaps of this index are of.
    pub fn of(&self, index: u64) -> &Windows {
        let newer = self.windows.partition_point(|(from, _)| *from <= index);
        &self.windows[newer.saturating_sub(1)].1
    }

    /// Notes that a heap has come out of the faults, and is sent or skipped.
    pub fn came(&mut self, heap: SimHeap) {
        let [newest, before] = &mut self.newest[heap.pol];
        if heap.index > *newest {
            (*before, *newest) = (*newest, heap.index);
        }
    }

    /// Other windows from heap `from` on, which no heap so far is beyond.
    pub fn change(&mut self, from: u64, windows: Arc<Windows>) {
        self.windows.push((from, windows));
    }

    /// Takes out the windows that no heap is of any more. A held heap comes directly behind the
    /// first heap of its polarisation that is far enough on. So when a later one has come as well,
    /// all that were due by the earlier one are out.
    pub fn take_unused(&mut self) -> Vec<Arc<Windows>> {
        let oldest = self.newest.iter().map(|[_, before]| *before).min();
        let oldest = oldest.unwrap_or(0).saturating_sub(self.longest_hold);
        let begun = self.windows.partition_point(|(from, _)| *from <= oldest);
        let unused = self.windows.drain(..begun.saturating_sub(1));
        unused.map(|(_, windows)| windows).collect()
    }

    /// Keeps windows that no heap is of, until unused ones are taken out again.
    pub fn keep(&mut self, unused: impl Iterator<Item = Arc<Windows>>) {
        self.windows
            .splice(0..0, unused.map(|windows| (0, windows)));
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;
    use crate::sim::faults::Ledger;
    use crate::sim::live::tests::config;
    use crate::sim::stream::heaps;

    /// However late they come, and however often signals have changed since.
    #[test]
    fn heaps_keep_the_signals_of_their_time() {
        for (plan, most) in [
            ("", 3),
            ("duplicate=0.2", 3),
            ("reorder=0.5,drop=0.3", 3),
            ("late=0.2:100,reorder=0.2", 6),
            ("late=0.1:100,drop=0.5,gap=0.02:80,duplicate=0.1", 12),
        ] {
            let plan: FaultPlan = plan.parse().unwrap();
            let config = config(0.0);
            let made = || Arc::new(Windows::new(&config, &config.signals, config.period));
            let first = made();
            let mut history = WindowHistory::new(first.clone(), 2, &plan);
            let mut expected = vec![(0, first)];
            let (mut next, mut longest) = (0, 0);
            for heap in plan.decorate(heaps(2, 4000), 1, 4096, &Ledger::default()) {
                if next >= expected.last().unwrap().0 + 37 {
                    let windows = made();
                    history.take_unused();
                    history.change(next, windows.clone());
                    expected.push((next, windows));
                    longest = longest.max(history.windows.len());
                }
                let of_time = expected.iter().rfind(|(from, _)| *from <= heap.index);
                let of_time = &*of_time.unwrap().1;
                assert!(
                    ptr::eq(history.of(heap.index), of_time),
                    "{plan:?} {heap:?}"
                );
                history.came(heap);
                next = next.max(heap.index + 1);
            }
            assert!(expected.len() > 50);
            // Not all that there ever were.
            assert!(longest <= most, "{plan:?}: {longest}");
        }
    }

    #[test]
    fn signals_that_nobody_waits_for_are_not_sent() {
        let config = config(0.0);
        let made = || Arc::new(Windows::new(&config, &config.signals, config.period));
        let (first, other) = (made(), made());
        let mut history = WindowHistory::new(first.clone(), 1, &FaultPlan::default());
        let (done, taken) = oneshot::channel();
        drop(taken);
        let windows = other.clone();
        let late = SignalsChange { windows, done };
        late.take(1, Timestamp(4096), &mut history);
        assert!(ptr::eq(history.of(1), &*first));

        let (done, mut taken) = oneshot::channel();
        let windows = other.clone();
        let change = SignalsChange { windows, done };
        change.take(2, Timestamp(8192), &mut history);
        assert!(ptr::eq(history.of(1), &*first) && ptr::eq(history.of(2), &*other));
        assert_eq!(taken.try_recv().unwrap().0, Timestamp(8192));
    }

    /// The lcore would stand still while it gives gigabytes back.
    #[test]
    fn samples_that_nobody_takes_wait_for_the_next_who_does() {
        let config = config(0.0);
        let made = || Arc::new(Windows::new(&config, &config.signals, config.period));
        let [first, second, late, third] = [made(), made(), made(), made()];
        let plan = FaultPlan::default();
        let mut history = WindowHistory::new(first.clone(), 1, &plan);
        history.change(1, second.clone());
        // The first are of no use any more.
        for heap in plan.decorate(heaps(1, 4), 1, 4096, &Ledger::default()) {
            history.came(heap);
        }
        let (done, taken) = oneshot::channel();
        drop(taken);
        let windows = late.clone();
        SignalsChange { windows, done }.take(4, Timestamp(16384), &mut history);
        assert!(ptr::eq(history.of(4), &*second));

        let (done, mut taken) = oneshot::channel();
        let windows = third.clone();
        SignalsChange { windows, done }.take(5, Timestamp(20480), &mut history);
        let (_, unused) = taken.try_recv().unwrap();
        let expected = [&first, &late];
        assert!(unused.iter().zip(expected).all(|(a, b)| Arc::ptr_eq(a, b)));
        assert_eq!(unused.len(), expected.len());
        assert!(ptr::eq(history.of(4), &*second) && ptr::eq(history.of(5), &*third));
    }
}
