//! Puts heaps where they belong.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dpdk::{BURST, Mbuf};
use ground::stats::{Phase, PhaseTimer};
use ground::{Bell, Idle, StopFlag, Timestamp};
use spead::DigitiserHeap;

use super::address::{EpochHint, HeapAddress};
use super::cause::{DropCause, RxStats};
use super::dropped::unix_ns;
use super::lane_time::{LaneTime, told_by};
use super::lcore::RxConfig;
use super::memory::{ReceiveMemory, WindowOf};
use super::patience::{ChunkPatience, HeldQueue};
use super::window::{LocatedChunk, WindowLane};
use crate::config::RecvConfig;
use crate::memory::{StoredHeap, is_for_statistics, publish};
use crate::net::FlowTable;
use crate::net::frame::Datagram;

/// Whether time goes on without an rx lcore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxMode {
    /// Time goes on: where no chunk is free, the heap is dropped and counted. The lcore waits for
    /// the engine only where timestamps leap, behind gaps, and while its queue has room
    /// ([`RxConfig::patience`]), and then not for long.
    Live,
    /// The source is held up instead: no heap is dropped for want of a chunk, and what is placed
    /// does not depend on how long things take.
    Replay,
}

/// A live rx lcore waits so long, at most, for the engine to move the window to the first heap, to
/// the first heap behind a leap of timestamps, or behind gaps that have used up the window's ids
/// and no memory. Until then the heap has no place, and packets wait in their queue. An engine that
/// has a CPU takes far less; one whose CPU is taken away, as at the start of others beside it, does
/// not cost heaps that the queue can hold.
const WINDOW_PATIENCE: Duration = Duration::from_secs(2);

/// After this long without a heap, an lcore that the engine left behind counts as silent. Late
/// packets arrive well before: NIC queues hold milliseconds.
const SILENCE: Duration = Duration::from_secs(1);

/// Chunks that a silent lcore stays behind the foremost one.
pub(super) const LAG: u64 = 1;

/// A heap that waits for others of its time.
pub(super) struct WaitingHeap {
    /// Where it belongs.
    address: HeapAddress,
    /// Its datagram, with all headers.
    frame: Box<[u8]>,
    /// UNIX time in nanoseconds at which it arrived.
    arrived: u64,
}

impl WaitingHeap {
    /// The heap itself.
    fn heap(&self) -> Result<DigitiserHeap<'_>, DropCause> {
        let datagram =
            Datagram::new_checked(&self.frame).map_err(|error| DropCause::from(&error))?;
        DigitiserHeap::new_checked(datagram.payload()).map_err(|error| DropCause::from(&error))
    }

    /// Counts it as a datagram that was dropped.
    fn note_dropped(&self, cause: DropCause, stats: &RxStats) {
        stats.note_dropped(cause, self.arrived, &self.frame, self.frame.len());
    }
}

/// Heaps that are stored in their chunks, until they are published together.
pub(super) struct Burst<'m> {
    memory: &'m ReceiveMemory,
    stored: Vec<StoredHeap<'m>>,
}

impl<'m> Burst<'m> {
    /// No heaps yet, for chunks of `memory`.
    pub(super) fn new(memory: &'m ReceiveMemory) -> Self {
        let stored = Vec::with_capacity(BURST);
        Self { memory, stored }
    }
}

/// Puts one datagram at a time where it belongs.
pub(super) struct HeapPlacer {
    pub(super) lane: WindowLane<WindowOf>,
    pub(super) memory: Arc<ReceiveMemory>,
    pub(super) recv: RecvConfig,
    pub(super) mode: RxMode,
    pub(super) epoch: EpochHint,
    pub(super) ours: Option<FlowTable>,
    pub(super) stats: Arc<RxStats>,
    pub(super) bell: Arc<Bell>,
    pub(super) abort: StopFlag,
    /// How to wait for the window. The lcore's own [`Idle`] tells how long no heap has come, which
    /// this does not change.
    pub(super) idle: Idle,
    /// UNIX time in nanoseconds at which the burst under way came, once that was asked.
    pub(super) arrived: Option<u64>,
    pub(super) time: LaneTime<WaitingHeap>,
    /// When the last heap came that waits.
    pub(super) last_waiting: Instant,
    /// Until when to wait for the window after the digitisers' time leapt, or behind gaps, while
    /// the window has not come.
    pub(super) patient_until: Option<Instant>,
    /// Behind the window as it was when a heap was dropped for want of a place.
    pub(super) dropped_until: u64,
    /// How long heaps may wait for a free chunk.
    pub(super) patience: ChunkPatience,
    /// How late heaps are, if any has waited for the engine since the queue was last found empty.
    pub(super) held: Option<HeldQueue>,
    /// When this lcore was found left behind, if it has had no heap since.
    pub(super) left_behind: Option<Instant>,
    /// After this long without a heap an lcore that was left behind counts as silent, and heaps
    /// wait for others no longer.
    pub(super) silence: Duration,
}

impl HeapPlacer {
    /// The placer of lane `lane` of `memory`, before its first heap.
    pub(super) fn new(
        config: RxConfig,
        memory: Arc<ReceiveMemory>,
        lane: usize,
        stats: Arc<RxStats>,
        bell: Arc<Bell>,
        abort: StopFlag,
    ) -> Self {
        Self {
            lane: WindowLane::new(WindowOf(memory.clone()), lane),
            memory,
            recv: config.recv,
            mode: config.mode,
            epoch: config.epoch,
            ours: config.ours,
            stats,
            bell,
            abort,
            idle: Idle::new(config.idle),
            arrived: None,
            time: LaneTime::default(),
            last_waiting: Instant::now(),
            patient_until: None,
            dropped_until: 0,
            patience: config.patience,
            held: None,
            left_behind: None,
            silence: SILENCE,
        }
    }

    /// Begins a burst: until its end, the collector does not raise this lane.
    #[inline]
    pub(super) fn begin_burst(&mut self) {
        self.lane.begin();
    }

    /// Ends a burst: publishes its heaps, and then this lane's floor.
    #[inline]
    pub(super) fn end_burst(&mut self, burst: &mut Burst<'_>) {
        publish(&mut burst.stored);
        self.lane.end();
    }

    /// Which chunks an lcore that gets no heaps gives up, if its queue is found empty after this.
    /// Else each chunk would wait for it as long as for one that has lost its CPU, and take the
    /// memory that is meant for that.
    #[inline]
    pub(super) fn follow(&mut self) -> Option<u64> {
        if !self.lane.is_left_behind() {
            self.left_behind = None;
            return None;
        }
        let since = self.left_behind.get_or_insert_with(Instant::now);
        let silent = since.elapsed() >= self.silence;
        silent.then(|| self.lane.foremost().saturating_sub(LAG))
    }

    /// When the burst under way came: the time at which a datagram of it is first dropped or kept
    /// aside, or has to wait for a chunk. Bursts of which all is placed at once do not read the
    /// clock.
    #[cold]
    fn arrival(&mut self) -> u64 {
        *self.arrived.get_or_insert_with(unix_ns)
    }

    /// Counts a datagram that was not placed, and may keep a copy of it.
    #[cold]
    pub(super) fn note_dropped(&mut self, cause: DropCause, mbuf: &Mbuf) {
        let arrived = self.arrival();
        let (seen, length) = (mbuf.data(), mbuf.pkt_len());
        self.stats.note_dropped(cause, arrived, seen, length);
    }

    /// Where the next heap's timestamp is looked for.
    #[inline]
    fn near(&self, heap: &DigitiserHeap<'_>) -> Timestamp {
        let chunk = told_by(self.lane.floor()).or_else(|| self.told());
        HeapAddress::near(&self.recv, chunk, || match self.epoch {
            EpochHint::Near(first) => first,
            _ => self.host_time(heap).unwrap_or_default(),
        })
    }

    /// The heap's timestamp by the host's clock, if it agrees with that.
    #[cold]
    fn host_time(&self, heap: &DigitiserHeap<'_>) -> Option<Timestamp> {
        match self.epoch {
            EpochHint::HostClock(clock) => clock.agreeing(heap.timestamp()?, clock.now()?),
            _ => None,
        }
    }

    /// Places the heap of one datagram. Inside a burst only. While its payload is stored, the CPU
    /// prefetches the bytes of the `next` datagram at the same offset, where its payload will be.
    /// Returns how many heaps were placed: none while the heap waits for others of its time, then
    /// all of these.
    #[inline]
    pub(super) fn place(
        &mut self,
        mbuf: &Mbuf,
        next: Option<&Mbuf>,
        burst: &mut Burst<'_>,
        timer: &mut PhaseTimer,
    ) -> Result<usize, DropCause> {
        if mbuf.has_bad_checksum() {
            return Err(DropCause::BadChecksum);
        }
        let datagram =
            Datagram::new_checked(mbuf.data()).map_err(|error| DropCause::from(&error))?;
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
        let address = HeapAddress::of(&self.recv, self.near(&heap), &heap);
        let mut address = address.inspect_err(|&cause| self.note_refused(cause, &heap))?;
        if address.chunk < self.lane.floor()
            && let Some(now) = self.host_time(&heap)
        {
            // After hours without heaps, the 48 bits are unwrapped to a time one range too early.
            let later = HeapAddress::of(&self.recv, now, &heap)?;
            if later.chunk > address.chunk {
                address = later;
            }
        }
        if self.time.is_ahead(address.chunk, || self.told()) {
            let by_clock = self.host_time(&heap);
            if let Some(now) = by_clock {
                address = HeapAddress::of(&self.recv, now, &heap)?;
            }
            // The clock is believed of the first heap. Where others came before, this one may be
            // wrong within what the clock allows, and the window could not go back.
            let is_first = self.time.newest_of_all(self.told()).is_none();
            if by_clock.is_none() || !is_first {
                let heap = WaitingHeap {
                    address,
                    frame: mbuf.data().into(),
                    arrived: self.arrival(),
                };
                return Ok(self.wait_for_others(heap, burst, timer));
            }
        }
        let payload_offset = heap.payload().as_ptr() as usize - mbuf.data().as_ptr() as usize;
        let next = next.and_then(|next| next.data().get(payload_offset..));
        if self.time.has_waiting() && address.chunk >= self.lane.floor() {
            let settled = self.time.note_present(address.chunk);
            self.note_stray(&settled.wrong);
            let placed = self.store_waiting(settled.right, burst, timer);
            self.stats.note_burst(0, placed as u64);
        }
        self.store(address, &heap, next, burst, timer)?;
        Ok(1)
    }

    /// The chunk that tells this lcore the time, beside its own heaps: the floor of the foremost
    /// lcore, or in a replay its own, which the source raises. How far others are there depends on
    /// which thread runs first.
    fn told(&self) -> Option<u64> {
        told_by(match self.mode {
            RxMode::Live => self.lane.foremost(),
            RxMode::Replay => self.lane.floor(),
        })
    }

    /// Has a heap wait until others of its time have come. Then all of these are placed.
    #[cold]
    fn wait_for_others(
        &mut self,
        heap: WaitingHeap,
        burst: &mut Burst<'_>,
        timer: &mut PhaseTimer,
    ) -> usize {
        let chunk = heap.address.chunk;
        if let Some(newest) = self.time.newest_of_all(self.told()) {
            let samples = chunk
                .saturating_sub(newest)
                .saturating_mul(self.recv.chunk_samples as u64);
            self.stats.note_ahead(samples);
        }
        self.last_waiting = Instant::now();
        let settled = self.time.wait(chunk, heap);
        self.note_stray(&settled.wrong);
        self.store_waiting(settled.right, burst, timer)
    }

    /// Whether heaps wait in a live engine, and none has joined them for a while. What a replay
    /// places does not depend on how long it takes.
    pub(super) fn has_waited(&self) -> bool {
        self.mode == RxMode::Live
            && self.time.has_waiting()
            && self.last_waiting.elapsed() >= self.silence
    }

    /// No heap of a chunk below `floor` comes any more, or without a floor none at all: places
    /// waiting heaps that are right ([`LaneTime::settle`]). Returns how many were placed.
    pub(super) fn settle(
        &mut self,
        floor: Option<u64>,
        burst: &mut Burst<'_>,
        timer: &mut PhaseTimer,
    ) -> usize {
        if !self.time.has_waiting() {
            return 0;
        }
        let settled = self.time.settle(floor);
        self.note_stray(&settled.wrong);
        self.store_waiting(settled.right, burst, timer)
    }

    #[cold]
    fn store_waiting(
        &mut self,
        heaps: Vec<WaitingHeap>,
        burst: &mut Burst<'_>,
        timer: &mut PhaseTimer,
    ) -> usize {
        let mut placed = 0;
        for waiting in heaps {
            let heap = waiting.heap();
            match heap.and_then(|heap| self.store(waiting.address, &heap, None, burst, timer)) {
                Ok(()) => placed += 1,
                Err(cause) => waiting.note_dropped(cause, &self.stats),
            }
        }
        placed
    }

    #[cold]
    fn note_stray(&self, heaps: &[WaitingHeap]) {
        for heap in heaps {
            heap.note_dropped(DropCause::StrayTime, &self.stats);
        }
    }

    /// Stores a heap in its chunk, if that is there.
    #[inline]
    fn store(
        &mut self,
        address: HeapAddress,
        heap: &DigitiserHeap<'_>,
        next: Option<&[u8]>,
        burst: &mut Burst<'_>,
        timer: &mut PhaseTimer,
    ) -> Result<(), DropCause> {
        let chunk = match self.locate(address.chunk, burst, timer) {
            LocatedChunk::Buffer(buffer) => burst.memory.chunk(buffer),
            LocatedChunk::TooOld => {
                let newest = self.time.newest_of_all(self.told()).unwrap_or(0);
                let chunks = newest.saturating_sub(address.chunk);
                let samples = chunks.saturating_mul(self.recv.chunk_samples as u64);
                self.stats.note_behind(samples);
                return Err(DropCause::TooOld);
            }
            LocatedChunk::NoBuffer => return Err(DropCause::NoFreeChunk),
        };
        self.idle.reset();
        let mut slot = chunk
            .claim(heap.pol(), address.heap)
            .ok_or(DropCause::Duplicate)?;
        if burst.memory.keeps_copies() && is_for_statistics(address.number(&self.recv)) {
            slot = slot.copied_for_statistics();
        }
        let payload = heap.payload();
        let stored = &mut burst.stored;
        stored.push(slot.store_prefetching(payload, heap.saturated(), next));
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

    /// Whether to wait for the engine, as there is no place for a heap of this chunk.
    #[cold]
    pub(super) fn may_wait(&mut self, id: u64) -> bool {
        if self.mode == RxMode::Replay {
            return true;
        }
        // Chunks that were dropped leave gaps as well: an engine that is too slow has no patience.
        if self.patient_until.is_none() && id >= self.dropped_until && self.memory.has_gaps() {
            self.patient_until = Some(Instant::now() + WINDOW_PATIENCE);
        }
        let leapt = self
            .patient_until
            .is_some_and(|until| Instant::now() < until);
        self.queue_has_room(id) || leapt
    }

    /// Whether the queue has room for what comes while a heap of this chunk waits. What it holds
    /// comes later by as much, so this is for an engine that was held up and catches up: behind a
    /// heap that was dropped, by whichever lcore, an engine that is too slow has no patience. All
    /// lcores go on at once, or one would leave the others behind.
    fn queue_has_room(&mut self, id: u64) -> bool {
        if self.patience.is_none() || id < self.memory.dropped_until() {
            return false;
        }
        let now = Instant::now();
        let held = self.held.get_or_insert_with(|| HeldQueue::new(now, id));
        held.may_wait(now, id, self.patience)
    }

    #[inline]
    fn locate(&mut self, id: u64, burst: &mut Burst<'_>, timer: &mut PhaseTimer) -> LocatedChunk {
        if id >= self.time.newest.unwrap_or(0) + self.memory.window().slots() as u64 {
            self.patient_until = Some(Instant::now() + WINDOW_PATIENCE);
        }
        self.time.note_heap(id);
        loop {
            let memory = &self.memory;
            let located = self.lane.locate(id, || memory.take());
            if located != LocatedChunk::NoBuffer {
                self.patient_until = None;
                return located;
            }
            if !self.may_wait(id) {
                self.dropped_until = id + self.memory.window().slots() as u64;
                self.memory.note_dropped(id);
                return located;
            }
            // What is dropped of this burst later did not come later.
            self.arrival();
            // Between bursts, so that the collector sees the new floor and can free chunks.
            self.end_burst(burst);
            // Who moves the window may be asleep.
            self.bell.ring();
            timer.turn();
            timer.mark(Phase::Work);
            self.idle.wait();
            timer.mark(Phase::WaitOutput);
            self.begin_burst();
            if self.abort.is_set() {
                return located;
            }
        }
    }
}
