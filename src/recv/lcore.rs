//! The loop of one rx lcore: one (port, queue) into chunks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::queue::ArrayQueue;
use dpdk::{BURST, Mbuf, MbufBatch, RxQueue};
use ground::stats::{Phase, PhaseTimer};
use ground::{Bell, Idle, IdlePolicy, SampleClock, StopFlag, Timestamp};
use spead::DigitiserHeap;

use super::cause::{DropCause, RxStats};
use super::collect::ReceiveMemory;
use super::leap::Leaps;
use super::window::{ChunkWindow, END_OF_STREAM, LocatedChunk, WindowWriter};
use crate::config::RecvConfig;
use crate::memory::{StoredHeap, is_looked_at, publish};
use crate::net::FlowTable;
use crate::net::flow_table::SteerError;
use crate::net::frame::Datagram;

/// What an rx lcore does when no chunk is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Drops the heap and counts it: a live receiver does not block, but for a moment where
    /// timestamps leap.
    Drop,
    /// Waits: a replay loses nothing, its source is held up instead.
    Wait,
}

/// Longest time that a live receiver waits for the engine to move the window to the first heap, or
/// to the first heap behind a leap of timestamps. Until then the heap has no place, and packets
/// wait in their queue.
const LEAP: Duration = Duration::from_millis(100);

/// After this long without a heap, an lcore that the engine left behind counts as silent. Late
/// packets arrive well before: NIC queues hold milliseconds.
const SILENCE: Duration = Duration::from_secs(1);

/// How long an lcore of a silent queue sleeps if nothing comes: how late it may notice that it is
/// to end, or that others have had heaps.
const SLEEP: Duration = Duration::from_millis(50);

/// How to extend the first heap's 48-bit timestamp to 64 bits. Later heaps use the chunk that is
/// being filled.
#[derive(Clone, Copy, Debug, Default)]
pub enum EpochHint {
    /// The 48 bits are the timestamp.
    #[default]
    WireValue,
    /// The timestamp nearest to the host's clock, if the two agree within a minute; else the 48
    /// bits.
    HostClock(SampleClock),
    /// The timestamp nearest to this one.
    Near(Timestamp),
}

impl EpochHint {
    /// Where the first heap of a capture is looked for.
    pub fn first(self) -> Timestamp {
        match self {
            Self::Near(first) => first,
            Self::WireValue | Self::HostClock(_) => Timestamp::default(),
        }
    }
}

/// Chunks that a silent lcore stays behind the foremost one.
const LAG: u64 = 1;

/// Where a heap belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapAddress {
    /// Id of the chunk.
    pub chunk: u64,
    /// Heap within the chunk.
    pub heap: usize,
}

impl HeapAddress {
    /// Applies katgpucbf's acceptance rules, in its order, to a heap whose timestamp is unwrapped
    /// to the value nearest `near`. The window checks lateness.
    #[inline]
    pub fn of(
        recv: &RecvConfig,
        near: Timestamp,
        heap: &DigitiserHeap<'_>,
    ) -> Result<Self, DropCause> {
        if heap.heap_length() != recv.heap_bytes() {
            return Err(DropCause::WrongHeapLength);
        }
        let (chunk_samples, heap_samples) = (recv.chunk_samples as u64, recv.packet_samples as u64);
        let low = heap.timestamp().ok_or(DropCause::NoTimestamp)?;
        let mut timestamp = Timestamp::unwrap(low, near).0;
        if recv.mask_timestamp {
            timestamp &= !(heap_samples - 1);
        }
        let chunk = timestamp / chunk_samples;
        if !timestamp.is_multiple_of(heap_samples)
            || timestamp >= Timestamp::END
            || chunk >= END_OF_STREAM
        {
            return Err(DropCause::BadTimestamp);
        }
        Ok(Self {
            chunk,
            heap: (timestamp % chunk_samples / heap_samples) as usize,
        })
    }

    /// Number of the heap since the digitisers' sync time.
    fn number(self, recv: &RecvConfig) -> u64 {
        self.chunk * recv.chunk_heaps() as u64 + self.heap as u64
    }
}

/// Word from the source of a replay: once a queue has had `after` frames, no frame of a chunk below
/// `floor` will be waited for on it.
///
/// It stands in for time, which moves on for a live receiver even when a queue is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermark {
    /// Frames given to the queue before this.
    pub after: u64,
    /// Lowest chunk id that the queue may still fill.
    pub floor: u64,
}

impl Watermark {
    /// Ends an lcore behind its current burst, whose heaps it still places.
    pub const STOP: Self = Self {
        after: 0,
        floor: END_OF_STREAM,
    };
}

/// Settings of an rx lcore.
#[derive(Clone, Debug)]
pub struct RxConfig {
    /// Heap and chunk geometry.
    pub recv: RecvConfig,
    /// What to do without a free chunk.
    pub when_full: WhenFull,
    /// Which timestamp the first heap has.
    pub epoch: EpochHint,
    /// Destinations that are ours; all where the port saw to that.
    pub ours: Option<FlowTable>,
    /// What to do without packets.
    pub idle: IdlePolicy,
}

/// What an rx lcore is made of.
pub struct RxParts {
    /// Where packets come from.
    pub queue: RxQueue,
    /// Chunks to fill.
    pub memory: Arc<ReceiveMemory>,
    /// Number of the lcore among those that fill the chunks.
    pub lane: usize,
    /// What the lcore is not to wait for. It ends at a floor of [`END_OF_STREAM`].
    pub watermarks: Arc<ArrayQueue<Watermark>>,
    /// Its counters.
    pub stats: Arc<RxStats>,
    /// Wakes the lcores behind it, which sleep when nothing has come for a while.
    pub bell: Arc<Bell>,
    /// Ends the lcore early.
    pub abort: StopFlag,
}

/// One rx lcore.
pub struct RxLcore {
    queue: RxQueue,
    /// The newest floor of all lcores when this one was last about to sleep.
    foremost: u64,
    placer: HeapPlacer,
    watermarks: Arc<ArrayQueue<Watermark>>,
    idle: Idle,
}

impl RxLcore {
    /// An lcore that is made of `parts`.
    pub fn new(config: RxConfig, parts: RxParts) -> Self {
        let window = WindowOf(parts.memory.clone());
        let placer = HeapPlacer {
            lane: WindowWriter::new(window, parts.lane),
            memory: parts.memory,
            recv: config.recv,
            when_full: config.when_full,
            epoch: config.epoch,
            ours: config.ours,
            stats: parts.stats,
            bell: parts.bell,
            abort: parts.abort,
            idle: Idle::new(config.idle),
            newest: None,
            leaps: Leaps::default(),
            leap_until: None,
            left_behind: None,
            silence: SILENCE,
        };
        Self {
            queue: parts.queue,
            foremost: placer.lane.foremost(),
            placer,
            watermarks: parts.watermarks,
            idle: Idle::new(config.idle),
        }
    }

    /// Runs until the stream ends or the engine aborts.
    pub fn run(mut self, timer: &mut PhaseTimer) {
        let memory = self.placer.memory.clone();
        let mut stored = Vec::with_capacity(BURST);
        let mut batch: MbufBatch = MbufBatch::new();
        let mut frames = 0;
        let mut watermark = None;
        let mut floor = self.placer.lane.floor();
        while !self.placer.abort.is_set() {
            timer.turn();
            // Taken before the burst: what came until then is in it.
            let follow = self.placer.follow();
            let received = self.receive(&mut batch, timer);
            // Taken after the burst: a watermark is published before the frames that follow it.
            watermark = watermark.or_else(|| self.next_watermark());
            if received == 0 && watermark.is_none_or(|mark: Watermark| mark.after > frames) {
                if let Some(floor) = follow {
                    self.placer.lane.follow(floor);
                }
                self.idle.wait();
                continue;
            }
            timer.mark(Phase::WaitInput);
            self.placer.lane.begin();
            let mut placed = 0;
            for (i, mbuf) in batch.iter().enumerate() {
                while let Some(mark) =
                    watermark.filter(|mark| mark.after <= frames && *mark != Watermark::STOP)
                {
                    placed += self.placer.settle(&memory, &mut stored, timer);
                    self.placer.lane.raise(mark.floor);
                    watermark = self.next_watermark();
                }
                let next = batch.as_slice().get(i + 1);
                if let Some(next) = next {
                    next.prefetch();
                }
                frames += 1;
                match self.placer.place(mbuf, next, &memory, &mut stored, timer) {
                    Ok(heaps) => placed += heaps,
                    Err(cause) => self.placer.stats.note_drop(cause),
                }
            }
            while let Some(mark) = watermark.filter(|mark| mark.after <= frames) {
                placed += self.placer.settle(&memory, &mut stored, timer);
                self.placer.lane.raise(mark.floor);
                watermark = self.next_watermark();
            }
            publish(&mut stored);
            self.placer.lane.end();
            self.placer.stats.note_burst(received as u64, placed as u64);
            // A chunk may be complete now: the engine and tx lcores may sleep until then.
            let raised = self.placer.lane.floor() > floor;
            floor = self.placer.lane.floor();
            if raised || placed > 0 && self.idle.is_quiet() {
                self.placer.bell.ring();
            }
            if placed > 0 {
                self.idle.reset();
            }
            batch.clear();
            timer.mark(Phase::Work);
            if floor >= END_OF_STREAM {
                break;
            }
        }
    }

    /// Receives what there is; if no queue has had a heap for a while, sleeps until there is
    /// something.
    #[inline]
    fn receive(&mut self, batch: &mut MbufBatch, timer: &mut PhaseTimer) -> usize {
        let received = self.queue.rx_burst(batch);
        if received > 0 || !self.idle.is_quiet() {
            return received;
        }
        self.sleep(batch, timer)
    }

    #[cold]
    fn sleep(&mut self, batch: &mut MbufBatch, timer: &mut PhaseTimer) -> usize {
        // While others have heaps, this one is to follow them closely.
        let foremost = self.placer.lane.foremost();
        if std::mem::replace(&mut self.foremost, foremost) != foremost {
            self.idle.reset();
            return 0;
        }
        if !self.queue.wakes() || !self.watermarks.is_empty() {
            return 0;
        }
        timer.sleep(|| self.queue.sleep(batch, SLEEP))
    }

    fn next_watermark(&self) -> Option<Watermark> {
        self.watermarks.pop()
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

/// A heap that waits for others of its time: where it belongs, and the datagram's payload.
type Kept = (HeapAddress, Box<[u8]>);

/// Puts one datagram at a time where it belongs.
struct HeapPlacer {
    lane: WindowWriter<WindowOf>,
    memory: Arc<ReceiveMemory>,
    recv: RecvConfig,
    when_full: WhenFull,
    epoch: EpochHint,
    ours: Option<FlowTable>,
    stats: Arc<RxStats>,
    bell: Arc<Bell>,
    abort: StopFlag,
    idle: Idle,
    /// Newest chunk that this lcore had a heap of. The lane's floor tells less: the collector
    /// raises it before it moves the window.
    newest: Option<u64>,
    /// Heaps far ahead of this time, and the first ones, until enough of them agree.
    leaps: Leaps<Kept>,
    /// Until when to wait for the window after the digitisers' time leapt.
    leap_until: Option<Instant>,
    /// When this lcore was found left behind, if it has had no heap since.
    left_behind: Option<Instant>,
    /// How long an lcore must be left behind without a heap before it counts as silent.
    silence: Duration,
}

impl HeapPlacer {
    /// Which chunks an lcore that gets no heaps gives up, if its queue is found empty after this.
    /// Else each chunk would wait for it as long as for one that has lost its CPU, and take the
    /// memory that is meant for that.
    #[inline]
    fn follow(&mut self) -> Option<u64> {
        if !self.lane.is_left_behind() {
            self.left_behind = None;
            return None;
        }
        let since = self.left_behind.get_or_insert_with(Instant::now);
        let silent = since.elapsed() >= self.silence;
        silent.then(|| self.lane.foremost().saturating_sub(LAG))
    }

    /// Where the next heap's timestamp is looked for: at the chunks that lcores are filling; before
    /// there are any, where it is meant to be.
    #[inline]
    fn near(&self, heap: &DigitiserHeap<'_>) -> Timestamp {
        let chunk_samples = self.recv.chunk_samples as u64;
        let chunk = match self.lane.floor() {
            0 => self.lane.foremost(),
            floor => floor,
        };
        match (chunk, self.epoch) {
            (0, EpochHint::Near(first)) => first,
            (0, _) => self.host_time(heap).unwrap_or_default(),
            (chunk, _) => Timestamp(chunk.saturating_mul(chunk_samples)),
        }
    }

    /// The heap's timestamp by the host's clock, if it agrees with that.
    #[cold]
    fn host_time(&self, heap: &DigitiserHeap<'_>) -> Option<Timestamp> {
        match self.epoch {
            EpochHint::HostClock(clock) => clock.agreeing(heap.timestamp()?, clock.now()?),
            _ => None,
        }
    }

    /// Places the heap of one datagram. While its payload is stored, the CPU prefetches the bytes
    /// of the `next` datagram at the same offset, where its payload will be. Returns how many heaps
    /// were placed: none while the heap waits for others of its time, then all of these.
    #[inline]
    fn place<'m>(
        &mut self,
        mbuf: &Mbuf,
        next: Option<&Mbuf>,
        memory: &'m ReceiveMemory,
        stored: &mut Vec<StoredHeap<'m>>,
        timer: &mut PhaseTimer,
    ) -> Result<usize, DropCause> {
        if mbuf.has_bad_checksum() {
            return Err(DropCause::BadChecksum);
        }
        let datagram = Datagram::new_checked(mbuf.data())
            .map_err(|error| DropCause::from(&SteerError::Frame(error)))?;
        if self
            .ours
            .as_ref()
            .is_some_and(|ours| !ours.takes(datagram.dst()))
        {
            self.stats.note_destination(datagram.dst());
            return Err(DropCause::NotOurs);
        }
        let heap = DigitiserHeap::new_checked(datagram.payload())
            .map_err(|error| DropCause::from(&error))?;
        let place = HeapAddress::of(&self.recv, self.near(&heap), &heap);
        let mut place = place.inspect_err(|&cause| self.note_refused(cause, &heap))?;
        let slots = self.memory.window().slots() as u64;
        let ahead = |newest| place.chunk >= newest + slots;
        if self.newest.is_none_or(ahead) && self.is_ahead_of_all(place.chunk) {
            match self.host_time(&heap) {
                Some(now) => place = HeapAddress::of(&self.recv, now, &heap)?,
                None => {
                    let kept = (place, datagram.payload().into());
                    return Ok(self.keep(kept, memory, stored, timer));
                }
            }
        }
        let behind = heap.payload().as_ptr() as usize - mbuf.data().as_ptr() as usize;
        let next = next.and_then(|next| next.data().get(behind..));
        let outcome = self.store(place, &heap, next, memory, stored, timer);
        if !self.leaps.is_empty() && outcome != Err(DropCause::TooOld) {
            let wrong = self.leaps.note_present();
            self.note_stray(wrong);
        }
        outcome.map(|()| 1)
    }

    /// Whether a chunk is beyond the window of all lcores, or none has had a heap.
    #[cold]
    fn is_ahead_of_all(&self, chunk: u64) -> bool {
        match self.newest_of_all() {
            None => true,
            Some(newest) => chunk >= newest + self.memory.window().slots() as u64,
        }
    }

    /// The newest chunk that any lcore had a heap of, as far as this one knows.
    fn newest_of_all(&self) -> Option<u64> {
        let foremost = Some(self.lane.foremost()).filter(|&foremost| foremost > 0);
        self.newest.max(foremost)
    }

    /// Keeps a heap until others of its time have come. Then all of these are placed.
    #[cold]
    fn keep<'m>(
        &mut self,
        kept: Kept,
        memory: &'m ReceiveMemory,
        stored: &mut Vec<StoredHeap<'m>>,
        timer: &mut PhaseTimer,
    ) -> usize {
        let chunk = kept.0.chunk;
        if let Some(newest) = self.newest_of_all() {
            let samples = (chunk - newest).saturating_mul(self.recv.chunk_samples as u64);
            self.stats.note_ahead(samples);
        }
        let slots = self.memory.window().slots() as u64;
        let settled = self.leaps.keep(chunk, slots, kept);
        self.note_stray(settled.wrong);
        self.store_kept(settled.right, memory, stored, timer)
    }

    /// Nothing more is waited for: places the heaps that are kept, if more than one agrees or there
    /// are no others. Returns how many were placed.
    fn settle<'m>(
        &mut self,
        memory: &'m ReceiveMemory,
        stored: &mut Vec<StoredHeap<'m>>,
        timer: &mut PhaseTimer,
    ) -> usize {
        if self.leaps.is_empty() {
            return 0;
        }
        let settled = self.leaps.settle(usize::from(self.newest.is_some()));
        self.note_stray(settled.wrong);
        self.store_kept(settled.right, memory, stored, timer)
    }

    #[cold]
    fn store_kept<'m>(
        &mut self,
        kept: Vec<Kept>,
        memory: &'m ReceiveMemory,
        stored: &mut Vec<StoredHeap<'m>>,
        timer: &mut PhaseTimer,
    ) -> usize {
        let mut placed = 0;
        for (place, payload) in kept {
            let heap = DigitiserHeap::new_checked(&payload).map_err(|error| (&error).into());
            let heap = heap.and_then(|heap| self.store(place, &heap, None, memory, stored, timer));
            match heap {
                Ok(()) => placed += 1,
                Err(cause) => self.stats.note_drop(cause),
            }
        }
        placed
    }

    #[cold]
    fn note_stray(&self, heaps: usize) {
        (0..heaps).for_each(|_| self.stats.note_drop(DropCause::StrayTime));
    }

    /// Stores a heap in its chunk, if that is there.
    #[inline]
    fn store<'m>(
        &mut self,
        mut place: HeapAddress,
        heap: &DigitiserHeap<'_>,
        next: Option<&[u8]>,
        memory: &'m ReceiveMemory,
        stored: &mut Vec<StoredHeap<'m>>,
        timer: &mut PhaseTimer,
    ) -> Result<(), DropCause> {
        let mut located = self.locate(place.chunk, stored, timer);
        if located == LocatedChunk::TooOld
            && let Some(now) = self.host_time(heap)
        {
            // After hours without heaps, the 48 bits were unwrapped to a time one range too early:
            // try the host's clock.
            let later = HeapAddress::of(&self.recv, now, heap)?;
            if later.chunk > place.chunk {
                place = later;
                located = self.locate(place.chunk, stored, timer);
            }
        }
        let chunk = match located {
            LocatedChunk::Buffer(buffer) => memory.chunk(buffer),
            LocatedChunk::TooOld => {
                let newest = self.newest_of_all().unwrap_or(0);
                let chunks = newest.saturating_sub(place.chunk);
                let samples = chunks.saturating_mul(self.recv.chunk_samples as u64);
                self.stats.note_behind(samples);
                return Err(DropCause::TooOld);
            }
            LocatedChunk::NoBuffer => return Err(DropCause::NoFreeChunk),
        };
        self.idle.reset();
        let mut slot = chunk
            .claim(heap.pol(), place.heap)
            .ok_or(DropCause::Duplicate)?;
        if memory.keeps_copies() && is_looked_at(place.number(&self.recv)) {
            slot = slot.looked_at();
        }
        let payload = heap.payload();
        stored.push(slot.store_before(payload, heap.saturated(), next.unwrap_or(payload)));
        Ok(())
    }

    /// Keeps what tells why this heap has no place.
    #[cold]
    fn note_refused(&self, cause: DropCause, heap: &DigitiserHeap<'_>) {
        match (cause, heap.timestamp()) {
            (DropCause::WrongHeapLength, None) => self.stats.note_metadata(),
            (DropCause::WrongHeapLength, Some(_)) => {
                self.stats.note_heap_length(heap.heap_length() as u64);
            }
            (DropCause::BadTimestamp, Some(timestamp)) => self.stats.note_timestamp(timestamp),
            _ => {}
        }
    }

    #[inline]
    fn locate(
        &mut self,
        id: u64,
        stored: &mut Vec<StoredHeap<'_>>,
        timer: &mut PhaseTimer,
    ) -> LocatedChunk {
        if id >= self.newest.unwrap_or(0) + self.memory.window().slots() as u64 {
            self.leap_until = Some(Instant::now() + LEAP);
        }
        self.newest = self.newest.max(Some(id));
        loop {
            let memory = &self.memory;
            let located = self.lane.locate(id, || memory.take());
            let waits = match self.when_full {
                WhenFull::Wait => true,
                WhenFull::Drop => self.leap_until.is_some_and(|until| Instant::now() < until),
            };
            if located != LocatedChunk::NoBuffer || !waits {
                return located;
            }
            // Between bursts, so that the collector sees the new floor and can free chunks.
            publish(stored);
            self.lane.end();
            // Who moves the window may be asleep.
            self.bell.ring();
            timer.turn();
            timer.mark(Phase::Work);
            self.idle.wait();
            timer.mark(Phase::WaitOutput);
            self.lane.begin();
            if self.abort.is_set() {
                return located;
            }
        }
    }
}

#[cfg(test)]
#[path = "lcore_tests.rs"]
mod tests;
