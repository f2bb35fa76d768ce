//! Receive memory: chunk buffers, and the window that maps chunk ids to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam::queue::ArrayQueue;
use ground::N_POL;

use super::collect::ChunkCollector;
use super::window::{self, BufferId, ChunkWindow};
use crate::config::RecvConfig;
use crate::memory::{
    Chunk, ChunkAllocator, ChunkLayout, HostAllocator, MemoryError, MemoryKind, Purpose,
};

/// Chunks that an lcore keeps open, so that heaps may come that much out of order.
pub const OPEN_CHUNKS: usize = 2;

/// Lowest chunk id that an lcore may still write after a heap of chunk `id`.
pub fn floor_after(id: u64) -> u64 {
    window::floor_after(id, OPEN_CHUNKS as u64)
}

/// Chunks that the source of a replay leaves a silent queue to fill, beside those that are open.
pub(super) const MAX_LAG: u64 = 2;

/// Chunk ids from the oldest open one on that may have buffers.
pub(super) const SLOTS: usize = 4;
// With fewer, a replay would wait for ever: the newest heap of a capture would be beyond the
// window, which a silent queue holds back.
const _: () = assert!(SLOTS >= OPEN_CHUNKS + MAX_LAG as usize);

/// The engine holds one chunk until the next is complete. Beside it there is a buffer for every
/// slot: an lcore that runs ahead could otherwise take the buffers of ids which it skipped and the
/// others need.
const CHUNKS: usize = SLOTS + 1;
/// Chunks that a GPU may read or copy besides, while the rx lcores fill others.
const UNDER_WAY: usize = 3;

/// Chunk buffers that an engine has of memory of this kind, spare ones aside.
fn chunk_count(kind: MemoryKind) -> usize {
    match kind {
        MemoryKind::Host => CHUNKS,
        MemoryKind::Pinned | MemoryKind::Bar | MemoryKind::Mixed => CHUNKS + UNDER_WAY,
    }
}

/// Chunk buffers and the window that maps chunk ids to them.
#[derive(Debug)]
pub struct ReceiveMemory {
    window: ChunkWindow,
    chunks: Box<[Arc<Chunk>]>,
    free: ArrayQueue<BufferId>,
    keeps_copies: bool,
    /// See [`dropped_until`](Self::dropped_until).
    dropped_until: AtomicU64,
}

impl ReceiveMemory {
    /// The chunk window: which buffer holds which chunk.
    pub fn window(&self) -> &ChunkWindow {
        &self.window
    }

    /// The buffer with this number.
    pub fn chunk(&self, buffer: BufferId) -> &Arc<Chunk> {
        &self.chunks[usize::from(buffer)]
    }

    /// A free buffer.
    pub fn take(&self) -> Option<BufferId> {
        self.free.pop()
    }

    /// Takes a buffer back.
    pub fn give(&self, buffer: BufferId) {
        // There is room for every buffer.
        let _ = self.free.push(buffer);
    }

    /// Buffers, free or not.
    pub fn all_chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Buffers that are free now.
    pub fn free_chunks(&self) -> usize {
        self.free.len()
    }

    /// Whether more buffers are free than can be while each chunk of the window has one: gaps of
    /// the input have taken ids of the window, and no memory.
    pub fn has_gaps(&self) -> bool {
        self.free_chunks() > self.all_chunks() - self.window.slots()
    }

    /// The chunk id behind the window as it was when an rx lcore last dropped a heap for want of a
    /// chunk.
    pub(super) fn dropped_until(&self) -> u64 {
        self.dropped_until.load(Ordering::Relaxed)
    }

    /// A heap of chunk `id` was dropped for want of a chunk.
    pub(super) fn note_dropped(&self, id: u64) {
        let behind = id.saturating_add(self.window.slots() as u64);
        // Of the heaps of one chunk the first alone changes it.
        if self.dropped_until() < behind {
            self.dropped_until.fetch_max(behind, Ordering::Relaxed);
        }
    }

    /// The newest chunk that rx lcores have had a heap of, about; the first two do not count.
    pub fn newest_chunk(&self) -> Option<u64> {
        let floor = self.window.foremost();
        (floor > 0).then(|| floor + OPEN_CHUNKS as u64 - 1)
    }

    /// The kind of the chunks' memory.
    pub fn kind(&self) -> MemoryKind {
        match self.bytes_by_kind()[..] {
            [(kind, _)] => kind,
            _ => MemoryKind::Mixed,
        }
    }

    /// Bytes of the chunk buffers of each kind that there is.
    pub fn bytes_by_kind(&self) -> Vec<(MemoryKind, usize)> {
        let mut kinds: Vec<(MemoryKind, usize)> = Vec::new();
        for chunk in &self.chunks {
            let (kind, bytes) = (chunk.kind(), chunk.layout().bytes());
            match kinds.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, all)) => *all += bytes,
                None => kinds.push((kind, bytes)),
            }
        }
        kinds
    }

    /// Whether chunks, or some of them, keep copies of the heaps that statistics take.
    pub fn keeps_copies(&self) -> bool {
        self.keeps_copies
    }

    /// Bytes of all chunk buffers.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.layout().bytes()).sum()
    }
}

/// The window inside the receive memory.
#[derive(Debug)]
pub(super) struct WindowOf(pub(super) Arc<ReceiveMemory>);

impl std::ops::Deref for WindowOf {
    type Target = ChunkWindow;
    fn deref(&self) -> &ChunkWindow {
        self.0.window()
    }
}

/// Bytes that [`receive_memory`] takes of memory of `kind`, flags and counts of heaps included.
pub fn receive_bytes(config: &RecvConfig, tail_samples: usize, kind: MemoryKind) -> u64 {
    chunk_count(kind) as u64 * chunk_bytes(config, tail_samples)
}

/// Bytes that one chunk takes, flags and counts of heaps included.
pub fn chunk_bytes(config: &RecvConfig, tail_samples: usize) -> u64 {
    let layout = ChunkLayout::new(config, tail_samples);
    layout.bytes() as u64 + 3 * N_POL as u64 * layout.heaps as u64
}

/// What receive memory is for.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveOptions {
    /// rx lcores that fill the chunks.
    pub lanes: usize,
    /// Samples behind each chunk for the head of the next one, a multiple of 8.
    pub tail_samples: usize,
    /// More chunks, which rx lcores may fill while the engine is held up.
    pub spare_chunks: usize,
    /// Whether the engine takes statistics of its input: where the CPU does not read samples,
    /// copies of a few heaps are kept.
    pub takes_statistics: bool,
}

impl ReceiveOptions {
    /// For so many rx lcores, and nothing besides.
    pub fn for_lanes(lanes: usize) -> Self {
        Self {
            lanes,
            tail_samples: 0,
            spare_chunks: 0,
            takes_statistics: false,
        }
    }
}

/// Receive memory of `allocator`, and the one collector of its chunks.
pub fn receive_memory(
    config: &RecvConfig,
    options: ReceiveOptions,
    allocator: &dyn ChunkAllocator,
) -> Result<(Arc<ReceiveMemory>, ChunkCollector), MemoryError> {
    let layout = ChunkLayout::new(config, options.tail_samples);
    let spare = options.spare_chunks;
    let count = chunk_count(allocator.kind()) + spare;
    let host = HostAllocator::default();
    let chunk = |number| {
        let memory = allocator.allocate(Purpose::ReceiveChunk, layout.bytes())?;
        let keeps_copies = options.takes_statistics && !memory.kind().is_host();
        let chunk = Chunk::new(layout, number as BufferId, memory);
        Ok(Arc::new(if keeps_copies {
            let copies = host.allocate(Purpose::ReceiveChunk, Chunk::copies_bytes(&layout))?;
            chunk.with_copies(copies)
        } else {
            chunk
        }))
    };
    let chunks = (0..count).map(chunk).collect::<Result<Box<[_]>, _>>()?;
    let keeps_copies = options.takes_statistics && !allocator.kind().is_host();
    let free = ArrayQueue::new(count);
    for number in 0..count {
        let _ = free.push(number as BufferId);
    }
    let window = ChunkWindow::new(SLOTS + spare, options.lanes, OPEN_CHUNKS);
    let memory = Arc::new(ReceiveMemory {
        window,
        chunks,
        free,
        keeps_copies,
        dropped_until: AtomicU64::new(0),
    });
    let collector = ChunkCollector::new(config, memory.clone());
    Ok((memory, collector))
}

#[cfg(test)]
mod tests {
    use dsp::SampleBits;

    use super::*;
    use crate::memory::MixedAllocator;
    use crate::memory::stand_in::{BarStandIn, shut};

    const HEAPS: usize = 4;

    /// Heaps of 64 samples in 80 bytes.
    fn recv() -> RecvConfig {
        RecvConfig {
            packet_samples: 64,
            sample_bits: SampleBits::new(10).unwrap(),
            chunk_samples: 64 * HEAPS,
            mask_timestamp: false,
        }
    }

    #[test]
    fn memory_takes_what_is_told_before() {
        for (kind, spare) in [(MemoryKind::Host, 0), (MemoryKind::Host, 3)] {
            let host = HostAllocator::default();
            let options = ReceiveOptions {
                spare_chunks: spare,
                tail_samples: 16,
                ..ReceiveOptions::for_lanes(2)
            };
            let (memory, _) = receive_memory(&recv(), options, &host).unwrap();
            let one = chunk_bytes(&recv(), 16);
            let layout = ChunkLayout::new(&recv(), 16);
            // A flag of one byte and a count of two for each heap.
            assert_eq!(one, (layout.bytes() + 2 * HEAPS * (1 + 2)) as u64);
            let chunks = memory.free_chunks() as u64;
            assert_eq!(
                chunks * one,
                receive_bytes(&recv(), 16, kind) + spare as u64 * one
            );
            assert_eq!(memory.bytes() as u64, chunks * layout.bytes() as u64);
            assert_eq!(memory.kind(), kind);
            // Every one of them can be had, once.
            let mut taken: Vec<_> = std::iter::from_fn(|| memory.take()).collect();
            taken.sort();
            assert!(taken.iter().map(|&taken| u64::from(taken)).eq(0..chunks));
            assert_eq!(memory.free_chunks(), 0);
            assert_eq!(memory.all_chunks() as u64, chunks);
            taken.into_iter().for_each(|taken| memory.give(taken));
            assert_eq!(memory.free_chunks() as u64, chunks);
        }
        // What a GPU may be reading comes on top.
        let of = |kind| receive_bytes(&recv(), 16, kind) / chunk_bytes(&recv(), 16);
        let of_gpu = [MemoryKind::Pinned, MemoryKind::Bar, MemoryKind::Mixed].map(of);
        assert_eq!(of_gpu, [of(MemoryKind::Host) + UNDER_WAY as u64; 3]);
    }

    /// Which of the chunks is filled decides whether its heaps are copied: some are read in place.
    #[test]
    fn mixed_chunks_are_each_of_their_kind() {
        let host = Box::new(HostAllocator::default());
        let mixed = MixedAllocator::new(Box::new(BarStandIn), host, 0.5);
        let options = ReceiveOptions {
            takes_statistics: true,
            tail_samples: 16,
            ..ReceiveOptions::for_lanes(1)
        };
        let (memory, _) = receive_memory(&recv(), options, &mixed).unwrap();
        assert_eq!(memory.kind(), MemoryKind::Mixed);
        assert!(memory.keeps_copies());
        let half = memory.bytes() / 2;
        let kinds = memory.bytes_by_kind();
        assert_eq!(kinds, [(MemoryKind::Host, half), (MemoryKind::Bar, half)]);
        let heap: Vec<u8> = (0..80).collect();
        for buffer in 0..2 {
            let chunk = memory.chunk(buffer).clone();
            let slot = chunk.claim(1, 2).unwrap();
            slot.copied_for_statistics().write(&heap, 0);
            let frozen = chunk.freeze().unwrap();
            if frozen.kind() == MemoryKind::Bar {
                shut(&frozen);
            }
            let readable = frozen.readable(1, 2).expect("it was copied");
            assert_eq!(readable[..80], heap, "{}", frozen.kind());
            assert_eq!(frozen.readable(1, 1), None);
        }
    }

    #[test]
    fn a_heap_gives_up_chunks_behind_the_open_ones() {
        assert_eq!([0, 1, 2, 3, 100].map(floor_after), [0, 0, 1, 2, 99]);
    }
}
