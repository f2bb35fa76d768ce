//! Copies of a few heaps, for statistics of a chunk whose memory the CPU does not read.
//!
//! A heap is copied from its packet, by the rx lcore that places it: one heap in
//! [`STATISTICS_EVERY`], so that the copies cost that part of what placing costs. Each chunk has
//! its own places for them, made before anything is received. No lock and no protocol of its own
//! are needed: who claimed the heap writes the copy, the heap's flag publishes both, and who
//! freezes the chunk reads both.

use ground::N_POL;

use super::sync::{AtomicU32, Ordering};
use super::{ChunkLayout, ChunkMemory};

/// Statistics of the input take one heap in this many. A prime number, so that nothing periodic in
/// the signal or in the chunks keeps step with it.
pub const STATISTICS_EVERY: u64 = 257;

/// Whether statistics take a heap, by its number since the digitisers' sync time.
pub fn is_for_statistics(number: u64) -> bool {
    number.is_multiple_of(STATISTICS_EVERY)
}

/// Bytes behind a heap that may be read with it.
pub const BEHIND_HEAP: usize = 4;

/// The copies of one chunk.
#[derive(Debug)]
pub(super) struct StatisticsCopies {
    memory: Box<dyn ChunkMemory>,
    heap_bytes: usize,
    /// Bytes from one copy to the next.
    stride: usize,
    /// Copies of one polarisation.
    places: usize,
    /// Per (pol, place): whose copy it has, counted from 1; 0 if it is free.
    owners: Box<[AtomicU32]>,
}

impl StatisticsCopies {
    /// Bytes of memory that the copies of a chunk need.
    pub fn bytes(layout: &ChunkLayout) -> usize {
        N_POL * Self::places(layout) * Self::stride(layout)
    }

    fn places(layout: &ChunkLayout) -> usize {
        layout.heaps.div_ceil(STATISTICS_EVERY as usize)
    }

    fn stride(layout: &ChunkLayout) -> usize {
        (layout.heap_bytes + BEHIND_HEAP).next_multiple_of(super::CHUNK_ALIGNMENT)
    }

    /// Places for copies in `memory` of the host.
    ///
    /// # Panics
    ///
    /// If `memory` has less than [`bytes`](Self::bytes), or if the CPU does not read it.
    pub fn new(layout: &ChunkLayout, memory: Box<dyn ChunkMemory>) -> Self {
        let (places, bytes) = (Self::places(layout), Self::bytes(layout));
        assert!(memory.kind().is_host() && bytes <= memory.region().len());
        // SAFETY: the range is inside the region, which nobody else knows yet. Its pages are there
        // after this: an rx lcore that waits for one loses packets.
        unsafe { memory.region().as_ptr().cast::<u8>().write_bytes(0, bytes) };
        Self {
            memory,
            heap_bytes: layout.heap_bytes,
            stride: Self::stride(layout),
            places,
            owners: (0..N_POL * places).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// The place of a heap. Those that statistics take have one each; others share them.
    fn place(&self, pol: usize, heap: usize) -> usize {
        pol * self.places + heap / STATISTICS_EVERY as usize
    }

    fn at(&self, place: usize) -> *mut u8 {
        let start = self.memory.region().as_ptr().cast::<u8>();
        // SAFETY: inside the region, as `new` has seen to.
        unsafe { start.add(place * self.stride) }
    }

    /// Takes the place of a heap for whoever has claimed the heap. `None` if another heap's copy is
    /// there.
    pub fn claim(&self, pol: usize, heap: usize) -> Option<CopyPlace> {
        let place = self.place(pol, heap);
        let owner = &self.owners[place];
        let claimed =
            owner.compare_exchange(0, heap as u32 + 1, Ordering::Acquire, Ordering::Relaxed);
        claimed.ok().map(|_| CopyPlace(place))
    }

    /// Copies a heap to the place that was claimed for it.
    ///
    /// # Panics
    ///
    /// If `payload` is not exactly one heap.
    pub fn store(&self, place: &CopyPlace, payload: &[u8]) {
        assert_eq!(payload.len(), self.heap_bytes);
        // SAFETY: the place has room for a heap and belongs to whoever has the `CopyPlace`; it is
        // read of frozen chunks alone, whose claims are over.
        unsafe {
            let place = self.at(place.0);
            self.memory.store().copy(place, payload, payload.as_ptr());
        }
    }

    /// Gives a place back whose heap stays absent, behind a fence.
    pub fn release(&self, place: &CopyPlace) {
        self.owners[place.0].store(0, Ordering::Release);
    }

    /// The copy of a heap that is present in a frozen chunk, and [`BEHIND_HEAP`] bytes.
    pub fn heap(&self, pol: usize, heap: usize) -> Option<&[u8]> {
        let place = self.place(pol, heap);
        let owner = self.owners[place].load(Ordering::Relaxed);
        // SAFETY: inside the region; no claim of a frozen chunk is left.
        (owner == heap as u32 + 1).then(|| unsafe {
            std::slice::from_raw_parts(self.at(place), self.heap_bytes + BEHIND_HEAP)
        })
    }

    /// Frees all places, before the chunk's flags are.
    pub fn recycle(&self) {
        for owner in &self.owners {
            owner.store(0, Ordering::Relaxed);
        }
    }
}

/// The right to write one copy.
#[derive(Debug)]
pub(super) struct CopyPlace(usize);
