//! Receive memory, and the engine's end of it: completed chunks in order, accounted for.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam::queue::ArrayQueue;
use ground::N_POL;

use super::lcore::WindowOf;
use super::presence::PresenceMap;
use super::window::{BufferId, ChunkWindow, Collector, END_OF_STREAM};
use crate::config::RecvConfig;
use crate::memory::{
    Chunk, ChunkAllocator, ChunkLayout, FrozenChunk, MemoryError, MemoryKind, Purpose,
};
use crate::recv::PolReport;

/// Chunks that an lcore keeps open, so that heaps may come that much out of order.
const OPEN_CHUNKS: usize = 2;

/// Lowest chunk id that an lcore may still write after a heap of chunk `id`.
pub fn floor_after(id: u64) -> u64 {
    (id + 1).saturating_sub(OPEN_CHUNKS as u64)
}

/// Chunk ids from the oldest open one on that may have buffers. A silent queue may be three chunks
/// behind the newest heap in a capture, so with fewer a replay would wait for ever.
const SLOTS: usize = OPEN_CHUNKS + 2;
/// The engine holds one chunk until the next is complete. Beside it there is a buffer for every
/// slot: an lcore that runs ahead could otherwise take the buffers of ids which it skipped and the
/// others need.
const CHUNKS: usize = SLOTS + 1;
/// Chunks that a GPU may read or copy besides, while the rx lcores fill others.
const UNDER_WAY: usize = 3;

/// Chunk buffers of this kind.
fn chunks(kind: MemoryKind) -> usize {
    match kind {
        MemoryKind::Host => CHUNKS,
        MemoryKind::Pinned | MemoryKind::Bar => CHUNKS + UNDER_WAY,
    }
}

/// Chunk buffers and the window that maps chunk ids to them.
#[derive(Debug)]
pub struct ReceiveMemory {
    window: ChunkWindow,
    chunks: Box<[Arc<Chunk>]>,
    free: ArrayQueue<BufferId>,
}

impl ReceiveMemory {
    /// Which buffer holds which chunk.
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

    /// Buffers that are free now.
    pub fn free_chunks(&self) -> usize {
        self.free.len()
    }

    /// The newest chunk that rx lcores have had a heap of, about; the first two do not count.
    pub fn newest_chunk(&self) -> Option<u64> {
        let floor = self.window.foremost();
        (floor > 0).then(|| floor + OPEN_CHUNKS as u64 - 1)
    }

    /// The kind of the chunks' memory.
    pub fn kind(&self) -> MemoryKind {
        self.chunks[0].kind()
    }

    /// Bytes of all chunk buffers.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.layout().bytes()).sum()
    }
}

/// Bytes that [`receive_memory`] takes of memory of `kind`, flags and counts of heaps included.
pub fn receive_bytes(config: &RecvConfig, tail_samples: usize, kind: MemoryKind) -> u64 {
    chunks(kind) as u64 * chunk_bytes(config, tail_samples)
}

/// Bytes that one chunk takes, flags and counts of heaps included.
pub fn chunk_bytes(config: &RecvConfig, tail_samples: usize) -> u64 {
    let layout = ChunkLayout::new(config, tail_samples);
    layout.bytes() as u64 + 3 * N_POL as u64 * layout.heaps as u64
}

/// Memory of `allocator` for `lanes` rx lcores, with `tail_samples` behind each chunk, and the
/// engine's end of it.
pub fn receive_memory(
    config: &RecvConfig,
    tail_samples: usize,
    lanes: usize,
    allocator: &dyn ChunkAllocator,
) -> Result<(Arc<ReceiveMemory>, Receiver), MemoryError> {
    receive_memory_with_spare(config, tail_samples, lanes, allocator, 0)
}

/// The same with room for `spare` more chunks, which rx lcores may fill while the engine is held
/// up.
pub fn receive_memory_with_spare(
    config: &RecvConfig,
    tail_samples: usize,
    lanes: usize,
    allocator: &dyn ChunkAllocator,
    spare: usize,
) -> Result<(Arc<ReceiveMemory>, Receiver), MemoryError> {
    let layout = ChunkLayout::new(config, tail_samples);
    let count = chunks(allocator.kind()) + spare;
    let chunks = (0..count)
        .map(|number| {
            let memory = allocator.allocate(Purpose::ReceiveChunk, layout.bytes())?;
            Ok(Arc::new(Chunk::new(layout, number as BufferId, memory)))
        })
        .collect::<Result<Box<[_]>, _>>()?;
    let free = ArrayQueue::new(count);
    for number in 0..count {
        let _ = free.push(number as BufferId);
    }
    let window = ChunkWindow::new(SLOTS + spare, lanes, OPEN_CHUNKS);
    let memory = Arc::new(ReceiveMemory {
        window,
        chunks,
        free,
    });
    let receiver = Receiver {
        collector: Collector::new(WindowOf(memory.clone())),
        stats: Arc::new(InputStats::new(config)),
        memory: memory.clone(),
        next: None,
        patience: None,
    };
    Ok((memory, receiver))
}

/// What the engine gets from its receivers.
#[derive(Debug)]
pub enum Collected {
    /// The next non-empty chunk, with its id.
    Chunk(u64, FrozenChunk),
    /// Nothing yet.
    Nothing,
    /// All lcores have ended.
    End,
}

/// The engine's end.
#[derive(Debug)]
pub struct Receiver {
    collector: Collector<WindowOf>,
    memory: Arc<ReceiveMemory>,
    stats: Arc<InputStats>,
    /// Id behind the last chunk collected.
    next: Option<u64>,
    /// Chunks that a lane may be behind the foremost one.
    patience: Option<u64>,
}

impl Receiver {
    /// Stops waiting for rx lcores that get no packets. Not for a replay, whose outcome must not
    /// depend on time.
    ///
    /// They are left behind only when the others have a chunk's time until their window is
    /// exhausted: an lcore that has lost its CPU for a while still has its packets in its ring, so
    /// that spare chunks are patience as well.
    pub fn leave_behind(&mut self) {
        let slots = self.memory.window.slots() as u64;
        self.patience = Some(slots - OPEN_CHUNKS as u64 - 1);
    }

    /// The next completed chunk, if there is one.
    pub fn poll(&mut self) -> Collected {
        let Some((id, buffer)) = self.collector.poll() else {
            if let Some(lag) = self.patience {
                self.collector.advance_laggards(lag);
            }
            let ended = self.collector.head() >= END_OF_STREAM;
            return if ended {
                Collected::End
            } else {
                Collected::Nothing
            };
        };
        let chunk = self.memory.chunk(buffer).clone();
        let chunk = chunk
            .freeze()
            .expect("the window gives each chunk to its collector once");
        let lost = self.next.map_or(0, |next| id - next);
        self.stats.note_chunk(id, lost, &chunk);
        self.next = Some(id + 1);
        Collected::Chunk(id, chunk)
    }

    /// Takes a chunk back for its next use.
    pub fn recycle(&self, chunk: FrozenChunk) {
        let number = chunk.number();
        chunk.recycle();
        self.memory.give(number);
    }

    /// Counters of what was collected.
    pub fn stats(&self) -> Arc<InputStats> {
        self.stats.clone()
    }
}

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
    /// Heaps of the chunks so far, those that never came among them, that are not here.
    missing: [AtomicU64; N_POL],
    /// Only the engine writes, once per chunk; a reader may hold the engine up for a copy of the
    /// map.
    presence: Mutex<[PresenceMap; N_POL]>,
}

impl InputStats {
    fn new(config: &RecvConfig) -> Self {
        Self {
            packet_samples: config.packet_samples as u64,
            heap_bytes: config.heap_bytes() as u64,
            chunk_samples: config.chunk_samples as u64,
            chunks: AtomicU64::new(0),
            first_chunk: AtomicU64::new(u64::MAX),
            heaps: Default::default(),
            clipped: Default::default(),
            missing: Default::default(),
            presence: Mutex::default(),
        }
    }

    /// Counts chunk `id`, before which `lost` chunks received nothing at all.
    fn note_chunk(&self, id: u64, lost: u64, chunk: &FrozenChunk) {
        let heaps = chunk.layout().heaps;
        self.chunks.fetch_add(1, Ordering::Relaxed);
        self.first_chunk.fetch_min(id, Ordering::Relaxed);
        let mut maps = self.presence.lock().unwrap_or_else(PoisonError::into_inner);
        for (pol, map) in maps.iter_mut().enumerate() {
            map.push(false, lost * heaps as u64);
            let mut present = 0;
            let mut clipped = 0;
            for heap in 0..heaps {
                let here = chunk.present(pol, heap);
                map.push(here, 1);
                present += u64::from(here);
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
        let maps = self.presence.lock().unwrap_or_else(PoisonError::into_inner);
        let heaps = PresenceMap::first_to_last([&maps[0], &maps[1]]);
        let first = self.first_timestamp().unwrap_or(0);
        first + heaps.start * self.packet_samples..first + heaps.end * self.packet_samples
    }

    /// Counters per polarisation; power is the outputs' to know.
    pub fn pols(&self) -> [PolReport; N_POL] {
        let maps = self.presence.lock().unwrap_or_else(PoisonError::into_inner);
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
