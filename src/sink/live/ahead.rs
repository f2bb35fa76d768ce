//! Batches far ahead of all others: of a stream that has leapt, or with timestamps that are wrong.
//! Single ones move nothing, as in an engine.

use std::collections::BTreeMap;

use super::heap::Heap;

/// Batches that a timestamp is ahead of all others before it is kept aside.
pub(super) const FAR: u64 = 64;
/// Batches near each other, each with a whole heap, by which a stream has leapt.
const LEAP: usize = 4;
/// Batches near each other by which it has leapt though no heap is whole.
const MOST: usize = 8;
/// Batches at any distance, each with a whole heap, by which most of a stream is not sent: nothing
/// of the present time has come meanwhile.
const SPARSE: usize = 8;
/// Heaps at the end of a stream by which it goes on to them.
const LAST: usize = 2;
/// Batches kept aside, at most.
const KEPT: usize = 32;
/// Batches of the present time that begin before one that is kept aside is taken to be wrong.
const PASSED: u64 = 2;

/// A batch that is kept aside.
#[derive(Debug, Default)]
pub(super) struct Aside {
    /// Its heaps by substream.
    pub(super) heaps: Vec<Heap>,
    /// Packets and bytes of it that are not counted yet.
    pub(super) uncounted: (u64, u64),
    /// Batches of the present time that have begun since.
    passed: u64,
    /// Batches that were kept aside before it.
    before: u64,
}

impl Aside {
    fn has_a_whole_heap(&self) -> bool {
        self.heaps.iter().any(Heap::is_whole)
    }

    /// Heaps of which something has come.
    fn begun(&self) -> usize {
        self.heaps.iter().filter_map(Heap::count).count()
    }

    /// Packets that turn out to be of no batch.
    fn packets(&self) -> u64 {
        self.uncounted.0.max(self.begun() as u64)
    }
}

/// All that are kept aside.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    batches: BTreeMap<u64, Aside>,
    /// Batches that were ever kept aside.
    count: u64,
}

impl Ahead {
    /// The batch of this timestamp; `heaps` makes those of one that is new. Returns as well how
    /// many packets were of batches for which there is no room any more: the first that came.
    pub(super) fn batch(
        &mut self,
        timestamp: u64,
        heaps: impl FnOnce() -> Vec<Heap>,
    ) -> (&mut Aside, u64) {
        let mut stray = 0;
        if !self.batches.contains_key(&timestamp) && self.batches.len() >= KEPT {
            let first = self.batches.iter().min_by_key(|(_, batch)| batch.before);
            let first = first.map(|(&timestamp, _)| timestamp);
            let first = first.and_then(|first| self.batches.remove(&first));
            stray = first.map_or(0, |first| first.packets());
        }
        let batch = self.batches.entry(timestamp);
        let batch = batch.or_insert_with(|| {
            self.count += 1;
            Aside {
                heaps: heaps(),
                before: self.count,
                ..Aside::default()
            }
        });
        (batch, stray)
    }

    /// Takes the batch of this timestamp out, if there is one.
    pub(super) fn remove(&mut self, timestamp: u64) -> Option<Aside> {
        self.batches.remove(&timestamp)
    }

    /// Notes that a batch of the present time has begun. Returns how many packets were of batches
    /// that are taken to be wrong by now.
    pub(super) fn pass(&mut self) -> u64 {
        let mut stray = 0;
        self.batches.retain(|_, batch| {
            batch.passed += 1;
            let stays = batch.passed < PASSED;
            stray += if stays { 0 } else { batch.packets() };
            stays
        });
        stray
    }

    /// The first batch and the last that the stream goes on with, if it has leapt: to those about
    /// this timestamp, no two of which are more than `far` from each other, or from each to the
    /// next, where all are far apart.
    pub(super) fn leapt_to(&self, timestamp: u64, far: u64) -> Option<(u64, u64)> {
        let (first, last) = self.about(timestamp, far);
        let batches = || self.batches.range(first..=last);
        let whole = batches().filter(|(_, batch)| batch.has_a_whole_heap());
        if whole.count() >= LEAP || batches().count() > MOST {
            return Some((first, last));
        }
        let whole = self
            .batches
            .iter()
            .filter(|(_, batch)| batch.has_a_whole_heap());
        let times: Vec<u64> = whole.map(|(&time, _)| time).collect();
        match times[..] {
            [first, .., last] if times.len() >= SPARSE => Some((first, last)),
            _ => None,
        }
    }

    /// The same at the end, when nothing else comes: batches at any distance in which something of
    /// most of so many substreams has come, all of it if there is one, and those about them.
    pub(super) fn ends_at(&self, substreams: usize, far: u64) -> Option<(u64, u64)> {
        let most = |batch: &Aside| match substreams {
            ..2 => batch.has_a_whole_heap(),
            _ => 2 * batch.begun() > substreams,
        };
        let batches = || self.batches.iter().filter(|(_, batch)| most(batch));
        let heaps: usize = batches().map(|(_, batch)| batch.begun()).sum();
        let mut times = batches().map(|(&time, _)| time).filter(|_| heaps >= LAST);
        let first = times.next()?;
        let last = times.next_back().unwrap_or(first);
        Some((self.about(first, far).0, self.about(last, far).1))
    }

    fn about(&self, timestamp: u64, far: u64) -> (u64, u64) {
        let (mut first, mut last) = (timestamp, timestamp);
        for &before in self.batches.range(..timestamp).rev().map(|(time, _)| time) {
            if first - before > far {
                break;
            }
            first = before;
        }
        for &behind in self.batches.range(timestamp..).map(|(time, _)| time) {
            if behind - last > far {
                break;
            }
            last = behind;
        }
        (first, last)
    }

    /// Takes all out: those from `first` to `last`, and how many packets the others had.
    pub(super) fn take(&mut self, (first, last): (u64, u64)) -> (BTreeMap<u64, Aside>, u64) {
        let mut all = std::mem::take(&mut self.batches);
        let mut taken = all.split_off(&first);
        let behind = taken.split_off(&(last + 1));
        let others = all.values().chain(behind.values());
        let stray = others.map(Aside::packets).sum();
        (taken, stray)
    }

    /// Takes all out; returns how many packets they had.
    pub(super) fn clear(&mut self) -> u64 {
        let all = std::mem::take(&mut self.batches);
        all.values().map(Aside::packets).sum()
    }
}
