//! The chunk window: which buffer holds which chunk, agreed between rx lcores without locks.
//!
//! Each rx lcore owns a *lane*: one word with its *floor*, the lowest chunk id that it may still
//! write, and a busy bit that is set while it handles a burst. A *slot* maps one chunk id to a
//! buffer. The single collector takes a chunk when every floor is above its id.
//!
//! Why this is sound: an lcore writes to chunk `id` only between `begin` and `end`, and only while
//! its published floor is `<= id`; it raises the published floor only in `end`, with release
//! ordering, after its last write. A lane that is behind can be raised by the collector too, but
//! only by a compare-exchange on a word without the busy bit, so either the lcore starts its burst
//! with the new floor, or the collector sees it busy and leaves it alone. An lcore without packets
//! raises its own lane in a burst without heaps. Once per chunk, the first lane that comes to it
//! takes a buffer, and others that come meanwhile wait for it. `tests/loom/window.rs` checks all of
//! it with loom.

use super::sync::{AtomicU64, Ordering, yield_now};

const BUSY: u64 = 1 << 63;
const BUFFER_BITS: u32 = 16;
const NO_BUFFER: u64 = 0;
/// All bits of a buffer. In a slot: a lane is taking one for it.
const BUFFER: u64 = (1 << BUFFER_BITS) - 1;

/// A floor above every chunk id: the stream has ended.
pub const END_OF_STREAM: u64 = 1 << 47;

/// Index of a chunk buffer.
pub type BufferId = u16;

/// Lowest chunk id that a lane which keeps `open_chunks` open may still write after a heap of chunk
/// `id`.
#[inline]
pub(super) fn floor_after(id: u64, open_chunks: u64) -> u64 {
    (id + 1).saturating_sub(open_chunks)
}

/// A word on a cache line of its own, so that lanes do not disturb each other.
#[derive(Debug)]
#[repr(align(128))]
struct LaneWord(AtomicU64);

/// The shared part; see the module documentation.
#[derive(Debug)]
pub struct ChunkWindow {
    /// Chunk `id` lives in slot `id % slots.len()`; the word is `id << 16 | (buffer + 1)`, or all
    /// ones in place of a buffer while a lane takes one.
    slots: Box<[AtomicU64]>,
    lanes: Box<[LaneWord]>,
    /// Chunks that a lane keeps open, counted from the newest that it has seen.
    open_chunks: u64,
}

/// Where a heap goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocatedChunk {
    /// The chunk is open in this buffer.
    Buffer(BufferId),
    /// The chunk is below this lane's floor.
    TooOld,
    /// No buffer is free, or the window has not moved this far yet.
    NoBuffer,
}

impl ChunkWindow {
    /// A window of `slots` chunk ids for `lanes` lcores, each keeping `open_chunks` open.
    ///
    /// There should be a buffer for every slot beside those outside the window, or a lane that
    /// skips ids can take the buffers that another needs to go on.
    pub fn new(slots: usize, lanes: usize, open_chunks: usize) -> Self {
        Self {
            slots: (0..slots as u64)
                .map(|id| AtomicU64::new(id << BUFFER_BITS))
                .collect(),
            lanes: (0..lanes).map(|_| LaneWord(AtomicU64::new(0))).collect(),
            open_chunks: open_chunks as u64,
        }
    }

    /// Chunk ids that can be open at a time.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    fn slot(&self, id: u64) -> &AtomicU64 {
        &self.slots[(id % self.slots.len() as u64) as usize]
    }

    fn floors(&self) -> impl Iterator<Item = u64> + '_ {
        let floor = |lane: &LaneWord| lane.0.load(Ordering::Acquire) & !BUSY;
        self.lanes.iter().map(floor)
    }

    /// Floor of the foremost lane. One that has ended hurries nobody.
    pub fn foremost(&self) -> u64 {
        let going = self.floors().filter(|&floor| floor < END_OF_STREAM);
        going.max().unwrap_or(0)
    }
}

/// One rx lcore's side. There must be one per lane index.
#[derive(Debug)]
pub struct WindowLane<W> {
    window: W,
    index: usize,
    floor: u64,
    /// Raised by the collector since there was a heap to locate.
    left_behind: bool,
}

impl<W: std::ops::Deref<Target = ChunkWindow>> WindowLane<W> {
    /// The lane `index` of `window`.
    pub fn new(window: W, index: usize) -> Self {
        Self {
            window,
            index,
            floor: 0,
            left_behind: false,
        }
    }

    fn word(&self) -> &AtomicU64 {
        &self.window.lanes[self.index].0
    }

    /// Starts a burst: from here to [`end`](Self::end) this lane cannot be raised by the collector.
    pub fn begin(&mut self) {
        let floor = self.word().fetch_or(BUSY, Ordering::Acquire) & !BUSY;
        self.left_behind |= floor > self.floor;
        self.floor = floor;
    }

    /// Ends a burst: publishes the floor.
    pub fn end(&mut self) {
        self.word().store(self.floor, Ordering::Release);
    }

    /// Lowest chunk id that this lane may still write.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Gives up the chunks below `id`. Inside a burst only.
    pub fn raise(&mut self, id: u64) {
        self.floor = self.floor.max(id);
    }

    /// Whether the collector has raised this lane since there was a heap to locate. Between bursts
    /// only.
    pub fn is_left_behind(&self) -> bool {
        self.left_behind || self.word().load(Ordering::Relaxed) > self.floor
    }

    /// Floor of the foremost lane that has not ended.
    pub fn foremost(&self) -> u64 {
        self.window.foremost()
    }

    /// Gives up the chunks below `id` in a burst of its own, without heaps.
    pub fn follow(&mut self, id: u64) {
        if self.word().load(Ordering::Relaxed) < id {
            self.begin();
            self.raise(id);
            self.end();
        }
    }

    /// Finds the buffer of chunk `id`, opening the chunk with `take` if need be. Inside a burst
    /// only.
    ///
    /// A chunk newer than all before moves this lane's floor up, whether or not it gets a buffer.
    pub fn locate(&mut self, id: u64, take: impl FnOnce() -> Option<BufferId>) -> LocatedChunk {
        self.left_behind = false;
        if id < self.floor {
            return LocatedChunk::TooOld;
        }
        self.raise(floor_after(id, self.window.open_chunks));
        let slot = self.window.slot(id);
        let mut word = slot.load(Ordering::Acquire);
        loop {
            if word >> BUFFER_BITS != id {
                return LocatedChunk::NoBuffer;
            }
            word = match word & BUFFER {
                NO_BUFFER => {
                    // Only one lane takes a buffer for this slot. If two lanes each held one, a
                    // third lane might find none free for its own slot.
                    let claimed = slot.compare_exchange(
                        word,
                        word | BUFFER,
                        Ordering::Acquire,
                        Ordering::Acquire,
                    );
                    match claimed {
                        Err(current) => current,
                        Ok(_) => {
                            let taken = take();
                            let buffer = taken.map_or(NO_BUFFER, |taken| u64::from(taken) + 1);
                            slot.store(word | buffer, Ordering::Release);
                            return taken.map_or(LocatedChunk::NoBuffer, LocatedChunk::Buffer);
                        }
                    }
                }
                // Another lane is taking one, which is done in no time, if it has a CPU.
                BUFFER => {
                    yield_now();
                    slot.load(Ordering::Acquire)
                }
                buffer => return LocatedChunk::Buffer((buffer - 1) as BufferId),
            };
        }
    }
}

/// The window's owner: takes completed chunks in order of id. There must be only one.
#[derive(Debug)]
pub struct WindowCollector<W> {
    window: W,
    head: u64,
    limit: u64,
}

impl<W: std::ops::Deref<Target = ChunkWindow>> WindowCollector<W> {
    /// The collector of `window`.
    pub fn new(window: W) -> Self {
        Self {
            window,
            head: 0,
            limit: 0,
        }
    }

    /// The next completed chunk that has a buffer. Ids without one are passed over.
    pub fn poll(&mut self) -> Option<(u64, BufferId)> {
        if self.head >= self.limit {
            self.limit = self.window.floors().min().unwrap_or(0).max(self.head);
        }
        let slots = self.window.slots.len() as u64;
        while self.head < self.limit {
            let id = self.head;
            let slot = self.window.slot(id);
            let word = slot.load(Ordering::Acquire);
            if word >> BUFFER_BITS != id {
                // Every slot has been moved past the limit already: a jump longer than the window.
                self.head = self.limit;
                break;
            }
            // The slot's next id: the first of its residue class that is not complete.
            let behind = self.limit.saturating_sub(id + slots);
            let next = id + slots + behind.div_ceil(slots) * slots;
            slot.store(next << BUFFER_BITS, Ordering::Release);
            self.head += 1;
            let buffer = word & BUFFER;
            if buffer != NO_BUFFER {
                return Some((id, (buffer - 1) as BufferId));
            }
        }
        None
    }

    /// Raises lanes that are more than `behind` chunks behind the foremost one, unless they are in
    /// the middle of a burst, to `lag` behind it. Returns how many lanes moved.
    ///
    /// This keeps an lcore that gets no packets, or far too few, from holding the others up.
    pub fn advance_laggards(&self, behind: u64, lag: u64) -> usize {
        let foremost = self.window.foremost();
        let floor = foremost.saturating_sub(lag.min(behind));
        self.window
            .lanes
            .iter()
            .filter(|lane| {
                let word = lane.0.load(Ordering::Relaxed);
                word & BUSY == 0
                    && word < foremost.saturating_sub(behind)
                    && lane
                        .0
                        .compare_exchange(word, floor, Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok()
            })
            .count()
    }

    /// Chunk id below which everything has been collected or passed over.
    pub fn head(&self) -> u64 {
        self.head
    }
}
