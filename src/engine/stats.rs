//! Counters of an engine, written by its threads and read by anyone.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ground::{N_POL, Timestamp};

use super::sent_chunks::SentChunks;
use crate::config::OutputConfig;
use crate::engine::OutputCounts;
use crate::memory::OutputMemory;

/// Counters of one output stream.
#[derive(Debug)]
pub struct OutputStats {
    name: String,
    batches: AtomicU64,
    heaps: AtomicU64,
    bytes: AtomicU64,
    /// Heaps not sent before the last batch sent, but after the first.
    skipped_heaps: AtomicU64,
    /// Heaps not sent since the last batch sent.
    skipped_since: AtomicU64,
    /// All heaps not sent, as katgpucbf counts them.
    not_sent: AtomicU64,
    clipped: [AtomicU64; N_POL],
    /// Σ x² of the samples behind the batches sent, as the bits of an `f64`; one writer.
    power: [AtomicU64; N_POL],
    first: AtomicU64,
    last: AtomicU64,
    /// Chunks that tx lcores have handed over.
    sent_chunks: OnceLock<SentChunks>,
}

/// What one chunk adds to the counters once it has been sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tally {
    batches: u64,
    heaps: u64,
    bytes: u64,
    /// Timestamps of the first and last batch that is sent.
    first: Timestamp,
    last: Timestamp,
    /// Heaps that are not sent: between the chunk before and the first batch of this one that is.
    skipped_before: u64,
    skipped_between: u64,
    skipped_behind: u64,
    clipped: [u64; N_POL],
    power: [f64; N_POL],
}

impl Tally {
    /// Batches that are sent.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// Of a chunk with `gap` batches between it and the one before.
    pub fn new(chunk: &OutputMemory, config: &OutputConfig, gap: u64) -> Self {
        let substreams = config.dst.len() as u64;
        let mut tally = Self {
            batches: 0,
            heaps: 0,
            bytes: 0,
            first: chunk.start(),
            last: chunk.start(),
            skipped_before: gap * substreams,
            skipped_between: 0,
            skipped_behind: 0,
            clipped: [0; N_POL],
            power: [0.0; N_POL],
        };
        for batch in 0..chunk.batches() {
            if !chunk.present(batch) {
                match tally.batches {
                    0 => tally.skipped_before += substreams,
                    _ => tally.skipped_behind += substreams,
                }
                continue;
            }
            tally.last = chunk.start() + (batch * config.batch_samples()) as u64;
            if tally.batches == 0 {
                tally.first = tally.last;
            }
            tally.skipped_between += std::mem::take(&mut tally.skipped_behind);
            tally.batches += 1;
            tally.heaps += substreams;
            tally.bytes += config.batch_bytes() as u64;
            let stats = chunk.stats(batch);
            for pol in 0..N_POL {
                tally.clipped[pol] += stats.clipped[pol];
                tally.power[pol] += stats.power[pol] as f64;
            }
        }
        tally
    }
}

impl OutputStats {
    /// Zeros for stream `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            batches: AtomicU64::new(0),
            heaps: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            skipped_heaps: AtomicU64::new(0),
            skipped_since: AtomicU64::new(0),
            not_sent: AtomicU64::new(0),
            clipped: Default::default(),
            power: Default::default(),
            first: AtomicU64::new(u64::MAX),
            last: AtomicU64::new(0),
            sent_chunks: OnceLock::new(),
        }
    }

    /// So many tx lcores will say when [a chunk has left](Self::note_departure).
    pub fn expect_tx_lcores(&self, lcores: usize) {
        // Once, before there are chunks.
        let _ = self.sent_chunks.set(SentChunks::new(lcores));
    }

    /// The tx lcore with this index has handed over all that it sends of the output's next chunk.
    /// Returns whether nothing of the chunk is left with the others.
    pub fn note_departure(&self, lcore: usize) -> bool {
        let sent_chunks = self.sent_chunks.get();
        sent_chunks.is_some_and(|sent_chunks| sent_chunks.note(lcore))
    }

    /// Chunks that all tx lcores have handed over; all there will ever be, if none says so.
    pub fn sent_chunks(&self) -> u64 {
        self.sent_chunks.get().map_or(u64::MAX, SentChunks::all)
    }

    /// Counts a chunk that has left.
    pub(super) fn note(&self, chunk: &Tally) {
        self.not_sent.fetch_add(
            chunk.skipped_before + chunk.skipped_between + chunk.skipped_behind,
            Ordering::Relaxed,
        );
        self.skipped_since
            .fetch_add(chunk.skipped_before, Ordering::Relaxed);
        if chunk.batches == 0 {
            return;
        }
        self.first.fetch_min(chunk.first.0, Ordering::Relaxed);
        self.last.fetch_max(chunk.last.0, Ordering::Relaxed);
        let skipped = self
            .skipped_since
            .swap(chunk.skipped_behind, Ordering::Relaxed);
        if self.batches.fetch_add(chunk.batches, Ordering::Relaxed) > 0 {
            self.skipped_heaps.fetch_add(skipped, Ordering::Relaxed);
        }
        self.skipped_heaps
            .fetch_add(chunk.skipped_between, Ordering::Relaxed);
        self.heaps.fetch_add(chunk.heaps, Ordering::Relaxed);
        self.bytes.fetch_add(chunk.bytes, Ordering::Relaxed);
        for pol in 0..N_POL {
            self.clipped[pol].fetch_add(chunk.clipped[pol], Ordering::Relaxed);
            let power = f64::from_bits(self.power[pol].load(Ordering::Relaxed));
            let power = power + chunk.power[pol];
            self.power[pol].store(power.to_bits(), Ordering::Relaxed);
        }
    }

    /// Σ x² of the digitiser's samples behind the batches sent, and how many samples per
    /// polarisation.
    pub fn power(&self, config: &OutputConfig) -> ([u128; N_POL], u64) {
        let batches = self.batches.load(Ordering::Relaxed);
        let sum = |power: &AtomicU64| f64::from_bits(power.load(Ordering::Relaxed)) as u128;
        let sums = [sum(&self.power[0]), sum(&self.power[1])];
        (sums, batches * config.batch_samples() as u64)
    }

    /// Heaps not sent as katgpucbf counts them: of batches in output chunks, and between output
    /// chunks.
    pub fn not_sent_heaps(&self) -> u64 {
        self.not_sent.load(Ordering::Relaxed)
    }

    /// Heaps not sent between the first batch sent and the last.
    pub fn skipped_heaps(&self) -> u64 {
        self.skipped_heaps.load(Ordering::Relaxed)
    }

    /// Complex samples in batches sent that quantisation clipped, per polarisation.
    pub fn clipped_samples(&self) -> [u64; N_POL] {
        [0, 1].map(|pol: usize| self.clipped[pol].load(Ordering::Relaxed))
    }

    /// What was sent by now.
    pub fn counts(&self) -> OutputCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let batches = load(&self.batches);
        OutputCounts {
            name: self.name.clone(),
            batches,
            heaps: load(&self.heaps),
            bytes: load(&self.bytes),
            clipped_samples: self.clipped_samples(),
            first_timestamp: (batches > 0).then(|| load(&self.first)),
            last_timestamp: (batches > 0).then(|| load(&self.last)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::HostAllocator;

    /// Two substreams.
    fn config() -> OutputConfig {
        let options = "name=w,channels=64,dst=239.10.1.0+1,jones_per_batch=512";
        crate::config::tests::engine(options, |_| {})
            .outputs
            .remove(0)
    }

    /// One batch: whether it is sent, what it counted of each polarisation.
    type Batch = (bool, [u64; N_POL]);

    proptest! {
        /// Counters tell of a list of chunks what a list of all their batches tells.
        #[test]
        fn chunks_count_as_their_batches_do(
            chunks in proptest::collection::vec(
                (0..3u64, proptest::collection::vec(any::<(bool, [u8; N_POL])>(), 0..5)),
                0..6,
            ),
        ) {
            let (config, host) = (config(), HostAllocator::default());
            let (step, bytes) = (config.batch_samples() as u64, config.batch_bytes());
            let stats = OutputStats::new("w");
            // All batches from the first chunk to the last, also those between chunks.
            let mut all: Vec<Batch> = Vec::new();
            for (index, (gap, batches)) in chunks.iter().enumerate() {
                let gap = if index == 0 { 0 } else { *gap };
                all.extend((0..gap).map(|_| (false, [0; N_POL])));
                let mut chunk = OutputMemory::new(5, bytes, &host).unwrap();
                chunk.begin(Timestamp((7 + all.len() as u64) * step));
                for (index, (sent, counted)) in batches.iter().enumerate() {
                    let counted = counted.map(u64::from);
                    if !sent {
                        chunk.mark_absent(index);
                    }
                    chunk.span().stats[index] = crate::memory::BatchStats {
                        clipped: counted,
                        power: counted.map(|counted| 3 * counted),
                    };
                    all.push((*sent, counted));
                }
                chunk.truncate(batches.len());
                let tally = Tally::new(&chunk, &config, gap);
                prop_assert_eq!(tally.batches(), batches.iter().filter(|b| b.0).count() as u64);
                stats.note(&tally);
            }
            let first = all.iter().position(|batch| batch.0);
            let last = all.iter().rposition(|batch| batch.0);
            let between = first.zip(last).map_or(0..0, |(first, last)| first..last);
            let lost = |batches: &[Batch]| 2 * batches.iter().filter(|batch| !batch.0).count() as u64;
            prop_assert_eq!(stats.not_sent_heaps(), lost(&all));
            prop_assert_eq!(stats.skipped_heaps(), lost(&all[between]));
            let sent: Vec<_> = all.iter().filter(|batch| batch.0).collect();
            let count = sent.len() as u64;
            let sum = [0, 1].map(|pol: usize| sent.iter().map(|batch| batch.1[pol]).sum::<u64>());
            let counts = stats.counts();
            prop_assert_eq!(counts.name, "w");
            prop_assert_eq!([counts.batches, counts.heaps], [count, 2 * count]);
            prop_assert_eq!(counts.bytes, count * bytes as u64);
            prop_assert_eq!(counts.clipped_samples, sum);
            let timestamp = |index: Option<usize>| index.map(|index| (7 + index as u64) * step);
            prop_assert_eq!(counts.first_timestamp, timestamp(first));
            prop_assert_eq!(counts.last_timestamp, timestamp(last));
            let power = sum.map(|sum| 3 * u128::from(sum));
            prop_assert_eq!(stats.power(&config), (power, count * step));
        }
    }

    #[test]
    fn all_that_will_ever_leave_has_left_where_no_lcore_says_so() {
        let stats = OutputStats::new("w");
        assert_eq!(stats.sent_chunks(), u64::MAX);
        assert!(!stats.note_departure(0));
        stats.expect_tx_lcores(2);
        let lasts = [0, 0, 1, 1].map(|lcore| stats.note_departure(lcore));
        assert_eq!(lasts, [false, false, true, true]);
        assert_eq!(stats.sent_chunks(), 2);
        assert!(!stats.note_departure(2));
    }
}
