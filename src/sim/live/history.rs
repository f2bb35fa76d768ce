//! Windows of a live digitiser's heaps: its signals may change while faults hold heaps back.

use std::sync::Arc;

use crate::sim::faults::{FaultPlan, SimHeap};
use crate::sim::window::Windows;

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
                    std::ptr::eq(history.of(heap.index), of_time),
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
}
