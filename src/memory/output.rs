//! Output chunks: whole batches in wire layout, which packets point into while they are sent.

use std::ptr::NonNull;

use dpdk::ExtMemory;
use ground::Timestamp;

use super::{ChunkAllocator, ChunkMemory, MemoryError, Purpose};
use crate::memory::{BatchStats, OutputSpan};

/// Output chunks per output: one under construction, two being sent, one spare.
pub const OUTPUT_CHUNKS: usize = 4;

/// One output chunk's memory, with what is known about each batch in it.
#[derive(Debug)]
pub struct OutputMemory {
    memory: Box<dyn ChunkMemory>,
    start: Timestamp,
    batch_bytes: usize,
    batches: usize,
    present: Vec<bool>,
    stats: Vec<BatchStats>,
}

impl OutputMemory {
    /// Room for `batches` batches of `batch_bytes`, in memory that the CPU can read.
    pub fn new(
        batches: usize,
        batch_bytes: usize,
        allocator: &dyn ChunkAllocator,
    ) -> Result<Self, MemoryError> {
        let purpose = Purpose::OutputChunk;
        let bytes = batches.saturating_mul(batch_bytes);
        let kind = allocator.kind();
        if !kind.is_host() {
            let cause = "packets are read from it by the CPU".into();
            return Err(MemoryError {
                purpose,
                kind,
                bytes,
                cause,
            });
        }
        Ok(Self {
            memory: allocator.allocate(purpose, bytes)?,
            start: Timestamp(0),
            batch_bytes,
            batches,
            present: vec![true; batches],
            stats: vec![BatchStats::default(); batches],
        })
    }

    /// Starts a new chunk: all batches present until told otherwise, all counts zero.
    pub fn begin(&mut self, start: Timestamp) {
        self.start = start;
        self.batches = self.present.len();
        self.present.fill(true);
        self.stats.fill(BatchStats::default());
    }

    /// Timestamp of the first spectrum.
    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// Marks one batch as touched by missing input: it is not to be sent.
    pub fn mark_absent(&mut self, batch: usize) {
        self.present[batch] = false;
    }

    /// Ends the chunk after `batches` batches; those behind are not to be sent.
    pub fn truncate(&mut self, batches: usize) {
        self.batches = batches;
        self.present[batches..].fill(false);
    }

    /// Whether a batch is to be sent.
    pub fn present(&self, batch: usize) -> bool {
        self.present[batch]
    }

    /// Batches that the chunk has; those that are not present among them.
    pub fn batches(&self) -> usize {
        self.batches
    }

    /// Batches that fit.
    pub fn capacity(&self) -> usize {
        self.present.len()
    }

    /// What was counted while a batch was computed.
    pub fn stats(&self, batch: usize) -> &BatchStats {
        &self.stats[batch]
    }

    /// One batch in wire layout.
    pub fn batch(&self, batch: usize) -> &[u8] {
        // SAFETY: as in `span`, and nobody writes while `self` is shared.
        let bytes = unsafe { self.memory.region().as_ref() };
        &bytes[batch * self.batch_bytes..][..self.batch_bytes]
    }

    /// The chunk as a backend fills it.
    pub fn span(&mut self) -> OutputSpan<'_> {
        let bytes = self.present.len() * self.batch_bytes;
        // SAFETY: the memory is zeroed, this value's alone, and readable; `&mut self` excludes all
        // others.
        let data = unsafe { self.memory.region().as_mut() };
        OutputSpan {
            start: self.start,
            data: &mut data[..bytes],
            stats: &mut self.stats,
        }
    }
}

/// What changes an output chunk that packets may point into later.
#[derive(Debug)]
pub struct OutputWriter<'a>(&'a mut OutputMemory);

impl<'a> OutputWriter<'a> {
    /// As [`OutputMemory::begin`].
    pub fn begin(self, start: Timestamp) {
        self.0.begin(start);
    }

    /// As [`OutputMemory::mark_absent`].
    pub fn mark_absent(self, batch: usize) {
        self.0.mark_absent(batch);
    }

    /// As [`OutputMemory::truncate`].
    pub fn truncate(self, batches: usize) {
        self.0.truncate(batches);
    }

    /// As [`OutputMemory::span`].
    pub fn span(self) -> OutputSpan<'a> {
        self.0.span()
    }
}

// SAFETY: chunk memory stays where it is for the life of the value, and is written through `&mut
// self` only. The writer gives no `&mut` of the value.
unsafe impl ExtMemory for OutputMemory {
    type Writer<'a> = OutputWriter<'a>;

    fn writer(&mut self) -> OutputWriter<'_> {
        OutputWriter(self)
    }

    fn region(&self) -> NonNull<[u8]> {
        self.memory.region()
    }
}
