//! One output stream as it comes: which heaps are whole, which are not, which never came.
//!
//! Memory does not grow with time: a few batches are open, and a batch is judged when it is the
//! oldest of more.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use ground::{N_POL, Timestamp};
use spead::SpectraRepr;

use super::ends::Ends;
use super::power::{ChannelPowers, PowerSums, add_power};
use super::shape::Shape;
use super::verdict::{push_notes, push_problems};
use crate::sink::counts::is_of;
use crate::sink::grid::ranges_before;
use crate::sink::layout::gcd;
use crate::sink::ranges::Ranges;
use crate::sink::{Kind, StreamReport};

/// Batches of which heaps may still come.
const OPEN: usize = 4;
/// Power is added up of one batch in so many.
const POWER_EVERY: u64 = 8;

/// A heap that is whole, with all its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptHeap {
    /// Index of its stream.
    pub stream: usize,
    /// Index of its substream.
    pub substream: usize,
    /// Timestamp.
    pub timestamp: u64,
    /// Payload.
    pub data: Vec<u8>,
}

#[derive(Debug, Default)]
enum Heap {
    #[default]
    Nothing,
    Open {
        count: u64,
        ranges: Ranges,
        /// Its bytes, if they are to be kept.
        data: Option<Vec<u8>>,
    },
    Whole(u64),
}

/// What became of the substreams of a stream so far.
#[derive(Debug)]
pub struct Tracker {
    destinations: Vec<SocketAddrV4>,
    shape: Option<Shape>,
    array_size: Option<u64>,
    open: BTreeMap<u64, Vec<Heap>>,
    /// About what the first timestamp is, if that is known.
    begins: Option<Timestamp>,
    /// Timestamp of the first batch seen: it may have begun before us.
    first_seen: Option<u64>,
    /// Newest batch that was judged.
    judged: Option<u64>,
    /// ADC samples of a batch: of the output's options, or else what all steps between batches
    /// have in common.
    step: u64,
    ends: Ends,
    described: Vec<bool>,
    /// Since the last packet in time: batches of which only late packets came, and which
    /// substreams had some.
    behind: BTreeMap<u64, Vec<bool>>,
    /// Whether the next batch is the first after timestamps went back.
    begins_anew: bool,
    /// How often timestamps went back, and batches of before: that came, and that did not.
    went_back: u64,
    before: (u64, u64),
    /// Σ |x|² per polarisation, and how many were added.
    power: ([u64; N_POL], u64),
    /// The same of each channel, since somebody last took it.
    powers: PowerSums,
    /// Whole heaps of each substream.
    whole: Vec<u64>,
    /// Batches opened so far, and the one whose power is added up.
    opened: u64,
    power_of: Option<u64>,
    counts: StreamReport,
}

impl Tracker {
    /// A stream to these destinations, whose shape may have to be found out.
    pub fn new(
        name: &str,
        destinations: Vec<SocketAddrV4>,
        shape: Option<Shape>,
        array_size: Option<u64>,
    ) -> Self {
        let substreams = destinations.len();
        Self {
            counts: StreamReport {
                name: name.to_owned(),
                array_size,
                destinations: destinations.iter().copied().map(Some).collect(),
                ..StreamReport::default()
            },
            destinations,
            shape,
            array_size,
            open: BTreeMap::new(),
            begins: None,
            first_seen: None,
            judged: None,
            step: 0,
            ends: Ends::new(substreams, array_size.is_some()),
            behind: BTreeMap::new(),
            begins_anew: false,
            went_back: 0,
            before: (0, 0),
            described: vec![false; substreams],
            power: ([0; N_POL], 0),
            powers: PowerSums::default(),
            whole: vec![0; substreams],
            opened: 0,
            power_of: None,
        }
    }

    /// The same of an output whose batches have so many ADC samples: batches that are missing at
    /// even distances are seen, too.
    #[must_use]
    pub fn with_batch_samples(mut self, samples: u64) -> Self {
        self.step = samples;
        self.counts.batch_is_known = samples > 0;
        self
    }

    /// The same of a digitiser that is about at this timestamp.
    #[must_use]
    pub fn with_time(mut self, now: Option<Timestamp>) -> Self {
        self.begins = now;
        self
    }

    /// Destinations of the streams.
    pub fn destinations(&self) -> &[SocketAddrV4] {
        &self.destinations
    }

    /// Takes what came to substream `sub`. The payload is kept if `keep` says so and nothing of its
    /// heap came before; returns the heap once it is whole.
    pub fn add(
        &mut self,
        sub: usize,
        kind: &Kind<'_>,
        keep: impl FnOnce() -> bool,
    ) -> Option<KeptHeap> {
        match kind {
            Kind::Spectra(spectra, payload) => {
                return self.add_spectra(sub, spectra, payload, keep);
            }
            Kind::Descriptors(count, _) | Kind::Stop(count) if !self.may_count(*count) => {
                self.counts.misplaced_packets += 1;
            }
            Kind::Descriptors(count, descriptors) => {
                self.counts.descriptor_heaps += 1;
                self.described[sub] = true;
                let early = self.first_seen.is_none();
                self.ends.note_descriptors(sub, *count, early);
                let dst = self.destinations[sub];
                self.shape = self.shape.or_else(|| Shape::described(dst, descriptors));
            }
            Kind::Stop(count) => {
                self.counts.stop_heaps += 1;
                let early = self.first_seen.is_none();
                self.ends.note_stop(sub, *count, early);
            }
            Kind::Other => {}
        }
        None
    }

    /// Whether a descriptor or stop heap of this count may be the engine's: those of all engines
    /// of an array go to the same groups, and have no F-engine number.
    fn may_count(&self, count: u64) -> bool {
        let engine = self.first_seen.and(self.array_size);
        engine.is_none_or(|size| is_of(count, self.counts.feng_id, size))
    }

    /// Takes stop heaps back that turn out to be another engine's, now that this one is known.
    fn know_engine(&mut self) {
        let (feng_id, size) = (self.counts.feng_id, self.array_size);
        let is_own = |count| size.is_none_or(|size| is_of(count, feng_id, size));
        let foreign = self.ends.know_engine(is_own);
        self.counts.misplaced_packets += foreign;
        self.counts.stop_heaps -= foreign;
    }

    fn add_spectra(
        &mut self,
        sub: usize,
        spectra: &SpectraRepr,
        payload: &[u8],
        keep: impl FnOnce() -> bool,
    ) -> Option<KeptHeap> {
        let Some(shape) = self.shape else {
            self.counts.wrong_size_packets += 1;
            return None;
        };
        self.check(sub, spectra, shape)?;
        let timestamp = self.timestamp(sub, spectra, shape)?;
        if self.first_seen.is_none() || self.begins_anew {
            self.begins_anew = false;
            self.first_seen = Some(timestamp);
            self.know_engine();
        }
        self.ends.note_spectra(sub, timestamp, spectra.heap_count);
        self.counts.packets_after_stop += u64::from(self.ends.is_stopped(sub));
        self.open_batch(timestamp);
        self.store((sub, timestamp), spectra, shape, payload, keep)
    }

    /// Counts a packet that is not of this substream, or of a heap of another size: `None`.
    fn check(&mut self, sub: usize, spectra: &SpectraRepr, shape: Shape) -> Option<()> {
        let counts = &mut self.counts;
        if self.first_seen.is_none() {
            counts.feng_id = spectra.feng_id;
        }
        let misplaced = spectra.feng_id != counts.feng_id
            || spectra.first_channel != sub as u64 * shape.channels
            || self
                .array_size
                .is_some_and(|size| !is_of(spectra.heap_count, spectra.feng_id, size));
        if misplaced {
            counts.misplaced_packets += 1;
            return None;
        }
        if spectra.heap_length != shape.heap_bytes() {
            counts.wrong_size_packets += 1;
            return None;
        }
        Some(())
    }

    /// The timestamp of a packet in 64 bits; counts one that no batch has, or one that comes too
    /// late: `None`.
    fn timestamp(&mut self, sub: usize, spectra: &SpectraRepr, shape: Shape) -> Option<u64> {
        let near = self.open.keys().next_back().or(self.judged.as_ref());
        let near = near.copied().map(Timestamp).or(self.begins);
        // A wideband batch of one substream: what every batch is a multiple of.
        let least = 2 * shape.spectra * shape.channels;
        let batch = if self.counts.batch_is_known {
            self.step
        } else {
            least
        };
        // The wire may have wrapped before this began.
        let ranges = || ranges_before(spectra.timestamp, batch);
        let timestamp = match near {
            Some(near) => Timestamp::unwrap(spectra.timestamp, near).0,
            None => spectra.timestamp + ranges().unwrap_or(0),
        };
        let bad = !timestamp.is_multiple_of(batch);
        let late = self.judged.is_some_and(|judged| timestamp <= judged);
        if !bad && !late {
            self.behind.clear();
            return Some(timestamp);
        }
        if bad {
            self.counts.bad_timestamp_packets += 1;
        } else {
            self.counts.late_packets += 1;
        }
        if self.first_seen.is_some()
            && let Some(ranges) = ranges()
        {
            self.note_behind(sub, spectra.timestamp + ranges);
        }
        None
    }

    /// Notes a packet of a batch that cannot come any more. A digitiser that was started again
    /// begins with an earlier timestamp: where nothing else has come for some batches, this begins
    /// anew as well, with the next packet.
    fn note_behind(&mut self, sub: usize, timestamp: u64) {
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

    /// Judges what is open, and goes on behind the batch of this timestamp.
    fn begin_anew(&mut self, before: u64) {
        while self.open.len() > 1 {
            self.judge_oldest(true);
        }
        // The newest was under way.
        let is_whole = |heap: &Heap| matches!(heap, Heap::Whole(_));
        let newest = self.open.pop_first();
        if let Some((timestamp, heaps)) = newest {
            if heaps.iter().all(is_whole) {
                self.open.insert(timestamp, heaps);
                self.judge_oldest(true);
            } else {
                self.counts.heaps += heaps.iter().filter(|heap| is_whole(heap)).count() as u64;
            }
        }
        self.before = (self.counts.batches, self.not_sent());
        self.went_back += 1;
        self.behind.clear();
        self.ends.go_back(before);
        (self.judged, self.begins_anew) = (Some(before), true);
        (self.counts.first_timestamp, self.counts.last_timestamp) = (None, None);
    }

    /// Batches of which nothing came.
    fn not_sent(&self) -> u64 {
        let (came, not_sent) = self.before;
        let counts = &self.counts;
        match (counts.first_timestamp, counts.last_timestamp) {
            (Some(first), Some(last)) if self.step > 0 => {
                // Batches judged, but those that were not counted, begin with the first.
                let all = (last - first) / self.step + 1;
                not_sent + all.saturating_sub(counts.batches - came)
            }
            _ => not_sent,
        }
    }

    /// Opens the batch of a timestamp unless it is open, and closes the oldest if there are more
    /// than enough.
    fn open_batch(&mut self, timestamp: u64) {
        if self.open.contains_key(&timestamp) {
            return;
        }
        let heaps = self.destinations.iter().map(|_| Heap::Nothing).collect();
        self.open.insert(timestamp, heaps);
        if self.opened.is_multiple_of(POWER_EVERY) {
            self.power_of = Some(timestamp);
        }
        self.opened += 1;
        while self.open.len() > OPEN {
            self.judge_oldest(true);
        }
    }

    /// Takes a packet into its heap, of a substream and timestamp; returns the heap if it is whole
    /// now and was kept.
    fn store(
        &mut self,
        (sub, timestamp): (usize, u64),
        spectra: &SpectraRepr,
        shape: Shape,
        payload: &[u8],
        keep: impl FnOnce() -> bool,
    ) -> Option<KeptHeap> {
        let heap = self.open.get_mut(&timestamp).map(|heaps| &mut heaps[sub])?;
        let counts = &mut self.counts;
        if matches!(heap, Heap::Nothing) {
            *heap = Heap::Open {
                count: spectra.heap_count,
                ranges: Ranges::default(),
                data: keep().then(|| vec![0; shape.heap_bytes() as usize]),
            };
        }
        let (count, ranges, data) = match heap {
            Heap::Open {
                count,
                ranges,
                data,
            } => (count, ranges, data),
            Heap::Whole(count) if *count == spectra.heap_count => {
                counts.duplicate_packets += 1;
                return None;
            }
            _ => {
                counts.duplicate_heap_packets += 1;
                return None;
            }
        };
        if *count != spectra.heap_count {
            counts.duplicate_heap_packets += 1;
            return None;
        }
        let start = spectra.payload_offset;
        let end = start + payload.len() as u64;
        if end > shape.heap_bytes() || !ranges.add(start, end) {
            counts.duplicate_packets += 1;
            return None;
        }
        counts.packets += 1;
        counts.bytes += payload.len() as u64;
        if let Some(data) = data {
            data[start as usize..end as usize].copy_from_slice(payload);
        }
        if self.power_of == Some(timestamp) {
            add_power(payload, start, shape.bits, &mut self.power);
            let of = (sub, self.destinations.len());
            self.powers.add(shape, of, (timestamp, start), payload);
        }
        if ranges.bytes() < shape.heap_bytes() {
            return None;
        }
        let data = data.take();
        *heap = Heap::Whole(spectra.heap_count);
        self.whole[sub] += 1;
        Some(KeptHeap {
            stream: 0,
            substream: sub,
            timestamp,
            data: data?,
        })
    }

    /// Closes the oldest open batch. It is not held against anybody that heaps are missing unless
    /// `all_came`.
    fn judge_oldest(&mut self, all_came: bool) {
        let Some((timestamp, heaps)) = self.open.pop_first() else {
            return;
        };
        let whole = heaps.iter().filter(|h| matches!(h, Heap::Whole(_))).count();
        let open = heaps
            .iter()
            .filter(|h| matches!(h, Heap::Open { .. }))
            .count();
        let partial = whole < heaps.len();
        let counts = &mut self.counts;
        let previous = self.judged.replace(timestamp);
        counts.heaps += whole as u64;
        if partial && !all_came {
            counts.notes.push(format!(
                "the batch at {timestamp} was under way when this ended: {whole} of {} heaps were whole",
                heaps.len()
            ));
            return;
        }
        if partial && self.first_seen == Some(timestamp) {
            // Of each time that it began anew it would be one more note.
            if self.went_back > 0 {
                return;
            }
            counts.notes.push(format!(
                "the batch at {timestamp} was under way when this began: {whole} of {} heaps were whole",
                heaps.len()
            ));
            return;
        }
        counts.incomplete_heaps += open as u64;
        counts.missing_heaps += (heaps.len() - whole - open) as u64;
        counts.batches += 1;
        counts.first_timestamp.get_or_insert(timestamp);
        counts.last_timestamp = Some(timestamp);
        if let Some(previous) = previous.filter(|_| !self.counts.batch_is_known) {
            self.step = gcd(self.step, timestamp - previous);
        }
    }

    /// Whole heaps of each substream so far.
    pub fn whole(&self) -> &[u64] {
        &self.whole
    }

    /// Takes the powers of each channel since the last call, if anything came: of one batch in
    /// eight.
    pub fn take_powers(&mut self) -> Option<ChannelPowers> {
        self.powers.take()
    }

    /// What is known so far.
    pub fn report(&self) -> StreamReport {
        let mut report = self.counts.clone();
        if let Some(shape) = self.shape {
            report.channels_per_substream = shape.channels;
            report.channels = shape.channels * self.destinations.len() as u64;
            report.spectra_per_heap = shape.spectra;
            report.sample_bits = shape.bits;
            report.batch_samples = match self.step {
                0 => 2 * report.channels * shape.spectra,
                step => step,
            };
        }
        report.batches_not_sent = self.not_sent();
        report.stopped_substreams = self.ends.stopped();
        report.mean_power_db = self.power.0.map(|power| {
            let mean = power as f64 / self.power.1 as f64;
            (power > 0).then(|| 10.0 * mean.log10())
        });
        report
    }

    /// Judges what is open, and says what is wrong.
    pub fn finish(mut self) -> StreamReport {
        // Whoever sent stop heaps has sent everything before.
        let all_came = self.ends.stopped() == self.destinations.len() as u64;
        while self.open.len() > 1 {
            self.judge_oldest(true);
        }
        self.judge_oldest(all_came);
        let mut report = self.report();
        push_problems(&mut report);
        if report.heaps == 0 {
            report.problems.push("no heap came".to_owned());
        }
        let without = self.described.iter().filter(|&&described| !described);
        push_notes(
            &mut report,
            self.ends.restarts(),
            self.went_back,
            without.count() as u64,
        );
        report
    }
}

#[cfg(test)]
#[path = "track_tests.rs"]
mod tests;
