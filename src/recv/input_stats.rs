//! Counters of what came, chunk by chunk.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ground::N_POL;

use super::presence::PresenceMap;
use crate::config::RecvConfig;
use crate::memory::FrozenChunk;
use crate::recv::PolReport;

/// Counters of collected chunks: written by the engine, read by anyone.
#[derive(Debug)]
pub struct InputStats {
    packet_samples: u64,
    heap_bytes: u64,
    chunk_samples: u64,
    chunks: AtomicU64,
    first_chunk: AtomicU64,
    heaps: [AtomicU64; N_POL],
    clipped: [AtomicU64; N_POL],
    /// Sample behind the last heap; 0 before the first.
    ends: [AtomicU64; N_POL],
    /// Heaps of the chunks so far, those that never came among them, that are not here.
    missing: [AtomicU64; N_POL],
    /// Only the engine writes, once per chunk; a reader may hold the engine up for a copy of the
    /// map.
    presence: Mutex<[PresenceMap; N_POL]>,
}

impl InputStats {
    pub(super) fn new(config: &RecvConfig) -> Self {
        Self {
            packet_samples: config.packet_samples as u64,
            heap_bytes: config.heap_bytes() as u64,
            chunk_samples: config.chunk_samples as u64,
            chunks: AtomicU64::new(0),
            first_chunk: AtomicU64::new(u64::MAX),
            heaps: Default::default(),
            clipped: Default::default(),
            ends: Default::default(),
            missing: Default::default(),
            presence: Mutex::default(),
        }
    }

    /// Counts chunk `id`, before which `lost` chunks received nothing at all.
    pub(super) fn note_chunk(&self, id: u64, lost: u64, chunk: &FrozenChunk) {
        let heaps = chunk.layout().heaps;
        self.chunks.fetch_add(1, Ordering::Relaxed);
        self.first_chunk.fetch_min(id, Ordering::Relaxed);
        let mut maps = ground::lock(&self.presence);
        for (pol, map) in maps.iter_mut().enumerate() {
            map.push(false, lost * heaps as u64);
            let mut present = 0;
            let mut clipped = 0;
            for heap in 0..heaps {
                let here = chunk.present(pol, heap);
                map.push(here, 1);
                present += u64::from(here);
                if here {
                    let behind = (heap as u64 + 1) * self.packet_samples;
                    let end = id.saturating_mul(self.chunk_samples).saturating_add(behind);
                    self.ends[pol].store(end, Ordering::Relaxed);
                }
                clipped += u64::from(chunk.saturated(pol, heap));
            }
            self.heaps[pol].fetch_add(present, Ordering::Relaxed);
            self.clipped[pol].fetch_add(clipped, Ordering::Relaxed);
            let missing = (lost + 1) * heaps as u64 - present;
            self.missing[pol].fetch_add(missing, Ordering::Relaxed);
        }
    }

    /// Samples that the digitiser flagged as saturated, per polarisation.
    pub fn clipped_samples(&self) -> [u64; N_POL] {
        [0, 1].map(|pol: usize| self.clipped[pol].load(Ordering::Relaxed))
    }

    /// Heaps that never came, per polarisation, as katgpucbf counts them: from the start of the
    /// first chunk to the end of the last. The report's begin with the first heap and end with the
    /// last.
    pub fn missing_heaps(&self) -> [u64; N_POL] {
        [0, 1].map(|pol: usize| self.missing[pol].load(Ordering::Relaxed))
    }

    /// Sample behind the last heap in chunks, per polarisation, if there was one.
    pub fn ends(&self) -> [Option<u64>; N_POL] {
        let load = |pol: usize| self.ends[pol].load(Ordering::Relaxed);
        [0, 1].map(|pol| Some(load(pol)).filter(|end| *end > 0))
    }

    /// Heaps received, per polarisation.
    pub fn heaps(&self) -> [u64; N_POL] {
        [0, 1].map(|pol: usize| self.heaps[pol].load(Ordering::Relaxed))
    }

    /// Non-empty chunks.
    pub fn chunks(&self) -> u64 {
        self.chunks.load(Ordering::Relaxed)
    }

    /// First sample of the first non-empty chunk.
    pub fn first_timestamp(&self) -> Option<u64> {
        let id = self.first_chunk.load(Ordering::Relaxed);
        (id != u64::MAX).then(|| id * self.chunk_samples)
    }

    /// Samples from the first heap to behind the last one, of either polarisation. Empty if none
    /// came.
    pub fn span(&self) -> Range<u64> {
        let maps = ground::lock(&self.presence);
        let heaps = PresenceMap::first_to_last([&maps[0], &maps[1]]);
        let first = self.first_timestamp().unwrap_or(0);
        first + heaps.start * self.packet_samples..first + heaps.end * self.packet_samples
    }

    /// Counters per polarisation; power is the outputs' to know.
    pub fn pols(&self) -> [PolReport; N_POL] {
        let maps = ground::lock(&self.presence);
        let mut missing = PresenceMap::between_first_and_last([&maps[0], &maps[1]]);
        [0, 1].map(|pol| {
            let heaps = self.heaps[pol].load(Ordering::Relaxed);
            let (missing_heaps, presence) = std::mem::take(&mut missing[pol]);
            PolReport {
                heaps,
                samples: heaps * self.packet_samples,
                bytes: heaps * self.heap_bytes,
                missing_heaps,
                clipped_samples: self.clipped[pol].load(Ordering::Relaxed),
                power_dbfs: None,
                presence,
            }
        })
    }
}
