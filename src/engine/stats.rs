//! Counters of an engine, written by its threads and read by anyone.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::OutputConfig;
use crate::memory::OutputMemory;
use crate::monitor::report::OutputReport;
use crate::units::N_POL;

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
    /// All heaps not sent, as the peer counts them.
    not_sent: AtomicU64,
    clipped: [AtomicU64; N_POL],
    /// Σ x² of the samples behind the batches sent, as the bits of an `f64`; one writer.
    power: [AtomicU64; N_POL],
    first: AtomicU64,
    last: AtomicU64,
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
        }
    }

    /// Counts a chunk that is about to be sent; batches that are not present are skipped ones.
    pub fn note_chunk(&self, chunk: &OutputMemory, config: &OutputConfig) {
        let substreams = config.dst.len() as u64;
        for batch in 0..chunk.batches() {
            if !chunk.present(batch) {
                self.note_skipped(substreams);
                continue;
            }
            let timestamp = chunk.start().0 + (batch * config.batch_samples()) as u64;
            self.first.fetch_min(timestamp, Ordering::Relaxed);
            self.last.fetch_max(timestamp, Ordering::Relaxed);
            let skipped = self.skipped_since.swap(0, Ordering::Relaxed);
            if self.batches.fetch_add(1, Ordering::Relaxed) > 0 {
                self.skipped_heaps.fetch_add(skipped, Ordering::Relaxed);
            }
            self.heaps.fetch_add(substreams, Ordering::Relaxed);
            self.bytes
                .fetch_add(config.batch_bytes() as u64, Ordering::Relaxed);
            let stats = chunk.stats(batch);
            for pol in 0..N_POL {
                self.clipped[pol].fetch_add(stats.saturated[pol], Ordering::Relaxed);
                let power = f64::from_bits(self.power[pol].load(Ordering::Relaxed));
                let power = power + stats.power[pol] as f64;
                self.power[pol].store(power.to_bits(), Ordering::Relaxed);
            }
        }
    }

    /// Σ x² of the digitiser's samples behind the batches sent, and how many samples per polarisation.
    pub fn power(&self, config: &OutputConfig) -> ([u128; N_POL], u64) {
        let batches = self.batches.load(Ordering::Relaxed);
        let sum = |power: &AtomicU64| f64::from_bits(power.load(Ordering::Relaxed)) as u128;
        let sums = [sum(&self.power[0]), sum(&self.power[1])];
        (sums, batches * config.batch_samples() as u64)
    }

    /// Counts heaps that are not sent. They show when a later batch is sent: before the first batch and
    /// after the last there was nothing to send.
    pub fn note_skipped(&self, heaps: u64) {
        self.skipped_since.fetch_add(heaps, Ordering::Relaxed);
        self.not_sent.fetch_add(heaps, Ordering::Relaxed);
    }

    /// Heaps not sent as the peer counts them: of batches in output chunks, and between output chunks. Unlike the
    /// report's, they count before it is known whether a later batch is sent.
    pub fn not_sent_heaps(&self) -> u64 {
        self.not_sent.load(Ordering::Relaxed)
    }

    /// Saturated complex samples in batches sent, per polarisation.
    pub fn clipped_samples(&self) -> [u64; N_POL] {
        [0, 1].map(|pol: usize| self.clipped[pol].load(Ordering::Relaxed))
    }

    /// The counters now.
    pub fn report(&self) -> OutputReport {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let batches = load(&self.batches);
        OutputReport {
            name: self.name.clone(),
            batches,
            heaps: load(&self.heaps),
            bytes: load(&self.bytes),
            skipped_heaps: load(&self.skipped_heaps),
            clipped_samples: self.clipped_samples(),
            first_timestamp: (batches > 0).then(|| load(&self.first)),
            last_timestamp: (batches > 0).then(|| load(&self.last)),
        }
    }
}
