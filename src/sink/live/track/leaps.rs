//! Where a stream goes on elsewhere: it has leapt ahead, timestamps went back, or its heaps have
//! another shape.

use ground::N_POL;
use spead::SpectraRepr;

use super::super::ahead::FAR;
use super::super::heap::{Heap, Taken};
use super::super::power::PowerSums;
use super::super::shape::Shape;
use super::{KeptHeap, OPEN, POWER_EVERY, Tracker};

/// Packets of another shape in a row, of one substream, behind which descriptors of another shape
/// are believed.
pub(super) const MISFITS: u64 = 128;
/// Batches that are far apart may be so many times as far from the next.
const APART: u64 = 4;

impl Tracker {
    /// ADC samples that a timestamp is ahead of all others before its batch is kept aside.
    pub(super) fn far(&self, shape: Shape) -> u64 {
        let wideband = 2 * shape.channels * self.destinations.len() as u64 * shape.spectra;
        let batch = match self.counts.batch_is_known {
            true => self.step,
            false => self.step.max(wideband),
        };
        self.apart.max(FAR * batch)
    }

    pub(super) fn is_far(&self, timestamp: u64, shape: Shape) -> bool {
        if self.open.contains_key(&timestamp) {
            return false;
        }
        let newest = self.open.keys().next_back().max(self.judged.as_ref());
        newest.is_some_and(|&newest| timestamp.saturating_sub(newest) > self.far(shape))
    }

    /// Takes a packet of a batch that is far ahead of all others into its heap; returns the heap if
    /// it is whole now and was kept. The stream goes on there once there are several such batches.
    pub(super) fn keep_aside(
        &mut self,
        (sub, timestamp): (usize, u64),
        spectra: &SpectraRepr,
        shape: Shape,
        payload: &[u8],
        keep: impl FnOnce() -> bool,
    ) -> Option<KeptHeap> {
        let substreams = self.destinations.len();
        let heaps = || (0..substreams).map(|_| Heap::Nothing).collect();
        let (batch, stray) = self.ahead.batch(timestamp, heaps);
        let taken = batch.heaps[sub].take(spectra, shape, payload, keep);
        if matches!(taken, Taken::Part | Taken::Whole(_)) {
            batch.uncounted.0 += 1;
            batch.uncounted.1 += payload.len() as u64;
        }
        self.counts.bad_timestamp_packets += stray;
        let kept = self.note_taken((sub, timestamp), taken);
        if let Some(leap) = self.ahead.leapt_to(timestamp, self.far(shape)) {
            self.go_on_at(leap);
        }
        kept
    }

    /// Judges what is open, and goes on with the batches that were kept aside from the first to the
    /// last of these timestamps.
    pub(super) fn go_on_at(&mut self, leap: (u64, u64)) {
        while !self.open.is_empty() {
            self.judge_oldest(true);
        }
        let (batches, stray) = self.ahead.take(leap);
        self.counts.bad_timestamp_packets += stray;
        if std::mem::take(&mut self.begins_anew) {
            self.first_seen = batches.keys().next().copied();
        }
        let times: Vec<u64> = batches.keys().copied().collect();
        let longest = times.windows(2).map(|near| near[1] - near[0]).max();
        self.apart = self.apart.max(APART.saturating_mul(longest.unwrap_or(0)));
        for (timestamp, batch) in batches {
            self.counts.packets += batch.uncounted.0;
            self.counts.bytes += batch.uncounted.1;
            for (sub, heap) in batch.heaps.iter().enumerate() {
                if let Some(count) = heap.count() {
                    self.ends.note_spectra(sub, timestamp, count);
                }
            }
            self.open.insert(timestamp, batch.heaps);
        }
        self.behind.clear();
        self.close_old();
    }

    /// Notes a packet of a batch that cannot come any more. A digitiser that was started again
    /// begins with an earlier timestamp: where nothing else has come for some batches, this begins
    /// anew as well, with the next packet.
    pub(super) fn note_behind(&mut self, sub: usize, timestamp: u64) {
        let substreams = self.destinations.len();
        let batch = self.behind.entry(timestamp);
        batch.or_insert_with(|| vec![false; substreams])[sub] = true;
        if self.behind.len() < OPEN {
            return;
        }
        // Substreams that never came do not come again.
        let came = |seen: &[bool]| {
            let mut subs = seen.iter().zip(&self.whole);
            subs.all(|(&seen, &whole)| seen || whole == 0)
        };
        let whole = self.behind.iter().filter(|(_, seen)| came(seen));
        let whole: Vec<u64> = whole.map(|(&timestamp, _)| timestamp).collect();
        match whole[..] {
            [.., before, _] if whole.len() >= OPEN => self.begin_anew(before),
            _ if self.behind.len() > 2 * OPEN => drop(self.behind.pop_first()),
            _ => {}
        }
    }

    /// Judges all that is open; the newest was under way.
    fn close_all(&mut self) {
        while self.open.len() > 1 {
            self.judge_oldest(true);
        }
        if let Some((timestamp, heaps)) = self.open.pop_first() {
            if heaps.iter().all(Heap::is_whole) {
                self.open.insert(timestamp, heaps);
                self.judge_oldest(true);
            } else {
                self.counts.heaps += heaps.iter().filter(|heap| heap.is_whole()).count() as u64;
            }
        }
    }

    /// Judges what is open, and goes on behind the batch of this timestamp.
    fn begin_anew(&mut self, before: u64) {
        self.close_all();
        self.before = (self.counts.batches, self.not_sent());
        self.went_back += 1;
        self.apart = 0;
        self.behind.clear();
        self.ends.go_back(before);
        (self.judged, self.begins_anew) = (Some(before), true);
        (self.counts.first_timestamp, self.counts.last_timestamp) = (None, None);
    }

    /// Opens the batch of a timestamp unless it is open, and closes the oldest if there are more
    /// than enough. Open batches more than `far` ahead of it are kept aside: all but the first that
    /// came are near others.
    pub(super) fn open_batch(&mut self, timestamp: u64, far: u64) {
        if self.open.contains_key(&timestamp) {
            return;
        }
        let mut stray = self.ahead.pass();
        for (ahead, heaps) in self.open.split_off(&(timestamp + far + 1)) {
            if self.first_seen == Some(ahead) {
                self.first_seen = Some(timestamp);
                self.ends.go_back(timestamp);
            }
            stray += self.ahead.batch(ahead, || heaps).1;
        }
        self.counts.bad_timestamp_packets += stray;
        let heaps = match self.ahead.remove(timestamp) {
            Some(aside) => {
                self.counts.packets += aside.uncounted.0;
                self.counts.bytes += aside.uncounted.1;
                aside.heaps
            }
            None => self.destinations.iter().map(|_| Heap::Nothing).collect(),
        };
        self.open.insert(timestamp, heaps);
        if self.opened.is_multiple_of(POWER_EVERY) {
            self.power_of = Some(timestamp);
        }
        self.opened += 1;
        self.close_old();
    }

    /// Closes the oldest batches if there are more than enough.
    fn close_old(&mut self) {
        while self.open.len() > OPEN {
            self.judge_oldest(true);
        }
    }

    /// Takes the shape that descriptors of a substream tell: the first, and another where nothing
    /// has fitted since its stop heap, or for long. Others' descriptors change nothing.
    pub(super) fn learn_shape(&mut self, sub: usize, described: Option<Shape>) {
        let Some(described) = described.filter(|&described| self.shape != Some(described)) else {
            return;
        };
        if self.shape.is_some() {
            // Where the array's size is given, stop heaps are known to be the engine's.
            let has_ended = self.array_size.is_some() && self.ends.is_stopped(sub);
            if !has_ended && self.misfits[sub] < MISFITS {
                return;
            }
            self.close_all();
            self.counts.bad_timestamp_packets += self.ahead.clear();
            self.before = (self.counts.batches, self.not_sent());
            (self.counts.first_timestamp, self.counts.last_timestamp) = (None, None);
            self.begins_anew |= self.first_seen.is_some();
            self.behind.clear();
            self.apart = 0;
            if !self.counts.batch_is_known {
                self.step = 0;
            }
            self.power = ([0; N_POL], 0);
            self.power_before = ([0.0; N_POL], 0.0);
            self.powers = PowerSums::default();
            self.power_of = None;
            self.reshaped += 1;
        }
        self.misfits.fill(0);
        self.shape = Some(described);
    }
}

#[cfg(test)]
#[path = "leaps_tests.rs"]
mod tests;
