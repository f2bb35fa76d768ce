//! One output stream as it comes: which heaps are whole, which are not, which never came.
//!
//! Memory does not grow with time: a few batches are open, and a batch is judged when it is the
//! oldest of more.

mod leaps;

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use ground::{N_POL, Timestamp, counted};
use num_integer::gcd;
use spead::SpectraRepr;

use self::leaps::MISFITS;
use super::ahead::Ahead;
use super::ends::Ends;
use super::heap::{Heap, Taken};
use super::notes::push_notes;
use super::power::{ChannelPowers, PowerSums, add_power};
use super::shape::Shape;
use crate::sink::counts::is_of;
use crate::sink::grid::ranges_before;
use crate::sink::problems::Medium;
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

/// What became of the substreams of a stream so far.
#[derive(Debug)]
pub struct Tracker {
    destinations: Vec<SocketAddrV4>,
    shape: Option<Shape>,
    /// Whether descriptors tell the shape, and how often it became another.
    learns_shape: bool,
    reshaped: u64,
    /// Packets of another shape since the last that fitted, by substream; [`MISFITS`] behind its
    /// stop heap.
    misfits: Vec<u64>,
    array_size: Option<u64>,
    open: BTreeMap<u64, Vec<Heap>>,
    ahead: Ahead,
    /// ADC samples that batches may be from the next where they were found to be far apart.
    apart: u64,
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
    /// Σ |x|² per polarisation, and how many were added: since somebody last took them, and before.
    power: ([u64; N_POL], u64),
    power_before: ([f64; N_POL], f64),
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
            learns_shape: shape.is_none(),
            reshaped: 0,
            misfits: vec![0; substreams],
            array_size,
            open: BTreeMap::new(),
            ahead: Ahead::default(),
            apart: 0,
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
            power_before: ([0.0; N_POL], 0.0),
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
                if self.learns_shape {
                    let described = Shape::described(self.destinations[sub], descriptors);
                    self.learn_shape(sub, described);
                }
            }
            Kind::Stop(count) => {
                self.counts.stop_heaps += 1;
                let early = self.first_seen.is_none();
                self.ends.note_stop(sub, *count, early);
                self.misfits[sub] = MISFITS;
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
        if self.is_far(timestamp, shape) {
            return self.keep_aside((sub, timestamp), spectra, shape, payload, keep);
        }
        self.behind.clear();
        if self.first_seen.is_none() || self.begins_anew {
            self.begins_anew = false;
            self.first_seen = Some(timestamp);
            self.know_engine();
        }
        self.ends.note_spectra(sub, timestamp, spectra.heap_count);
        self.counts.packets_after_stop += u64::from(self.ends.is_stopped(sub));
        self.open_batch(timestamp, self.far(shape));
        self.store((sub, timestamp), spectra, shape, payload, keep)
    }

    /// Counts a packet that is not of this substream, or of a heap of another size: `None`.
    fn check(&mut self, sub: usize, spectra: &SpectraRepr, shape: Shape) -> Option<()> {
        let counts = &mut self.counts;
        if self.first_seen.is_none() {
            counts.feng_id = spectra.feng_id;
        }
        let others = spectra.feng_id != counts.feng_id
            || self
                .array_size
                .is_some_and(|size| !is_of(spectra.heap_count, spectra.feng_id, size));
        let first_channel = sub as u64 * shape.channels;
        if others || spectra.first_channel != first_channel {
            counts.misplaced_packets += 1;
            self.misfits[sub] += u64::from(!others);
            return None;
        }
        if spectra.heap_length != shape.heap_bytes() {
            counts.wrong_size_packets += 1;
            self.misfits[sub] += 1;
            return None;
        }
        self.misfits[sub] = 0;
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
        let taken = heap.take(spectra, shape, payload, keep);
        if matches!(taken, Taken::Part | Taken::Whole(_)) {
            self.counts.packets += 1;
            self.counts.bytes += payload.len() as u64;
            if self.power_of == Some(timestamp) {
                let start = spectra.payload_offset;
                add_power(payload, start, shape.bits, &mut self.power);
                let of = (sub, self.destinations.len());
                self.powers.add(shape, of, (timestamp, start), payload);
            }
        }
        self.note_taken((sub, timestamp), taken)
    }

    /// Counts what became of a packet; returns its heap if that is whole now and was kept.
    fn note_taken(&mut self, (sub, timestamp): (usize, u64), taken: Taken) -> Option<KeptHeap> {
        match taken {
            Taken::Duplicate => self.counts.duplicate_packets += 1,
            Taken::OtherHeap => self.counts.duplicate_heap_packets += 1,
            Taken::Part => {}
            Taken::Whole(data) => {
                self.whole[sub] += 1;
                return Some(KeptHeap {
                    stream: 0,
                    substream: sub,
                    timestamp,
                    data: data?,
                });
            }
        }
        None
    }

    /// Closes the oldest open batch. It is not held against anybody that heaps are missing unless
    /// `all_came`.
    fn judge_oldest(&mut self, all_came: bool) {
        let Some((timestamp, heaps)) = self.open.pop_first() else {
            return;
        };
        let whole = heaps.iter().filter(|heap| heap.is_whole()).count();
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
            if self.went_back + self.reshaped > 0 {
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
        // A step from a batch of another shape is none.
        let follows = self.reshaped == 0 || counts.first_timestamp.is_some();
        counts.first_timestamp.get_or_insert(timestamp);
        counts.last_timestamp = Some(timestamp);
        if let Some(previous) = previous.filter(|_| follows && !self.counts.batch_is_known) {
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

    /// The mean power of each polarisation since the last call, in dB relative to one count, if
    /// anything came: of one batch in eight.
    pub fn take_power_db(&mut self) -> Option<[Option<f64>; N_POL]> {
        let (power, count) = std::mem::take(&mut self.power);
        let power = power.map(|power| power as f64);
        let before = &mut self.power_before;
        before.0 = std::array::from_fn(|pol| before.0[pol] + power[pol]);
        before.1 += count as f64;
        (count > 0).then(|| power.map(|power| mean_db(power, count as f64)))
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
        let (power, count) = self.power_before;
        let count = count + self.power.1 as f64;
        report.mean_power_db =
            std::array::from_fn(|pol| mean_db(power[pol] + self.power.0[pol] as f64, count));
        report
    }

    /// Judges what is open, and says what is wrong.
    pub fn finish(mut self) -> StreamReport {
        // Whoever sent stop heaps has sent everything before.
        let all_came = self.ends.stopped() == self.destinations.len() as u64;
        if let Some(shape) = self.shape {
            let came = self.whole.iter().filter(|&&whole| whole > 0).count();
            match self.ahead.ends_at(came, self.far(shape)) {
                Some(leap) => self.go_on_at(leap),
                None => self.counts.bad_timestamp_packets += self.ahead.clear(),
            }
        }
        while self.open.len() > 1 {
            self.judge_oldest(true);
        }
        self.judge_oldest(all_came);
        let mut report = self.report();
        report.push_count_problems(Medium::Interface);
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
        if self.reshaped > 0 {
            report.notes.push(format!(
                "the shape of heaps changed {}: it and the timestamps are those of the last",
                counted(self.reshaped, "time")
            ));
        }
        report
    }
}

/// The mean of `power` over `count` in dB; none of no power.
fn mean_db(power: f64, count: f64) -> Option<f64> {
    (power > 0.0).then(|| 10.0 * (power / count).log10())
}

#[cfg(test)]
#[path = "track_tests.rs"]
mod tests;
