//! The loop of one rx lcore: one (port, queue) into chunks.

use std::sync::Arc;
use std::time::Duration;

use crossbeam::queue::ArrayQueue;
use dpdk::{MbufBatch, RxQueue};
use ground::stats::{Phase, PhaseTimer};
use ground::{Bell, Idle, IdlePolicy, StopFlag};

use super::address::EpochHint;
use super::cause::RxStats;
use super::memory::ReceiveMemory;
use super::patience::ChunkPatience;
use super::placer::{Burst, HeapPlacer, RxMode};
use super::window::END_OF_STREAM;
use crate::config::RecvConfig;
use crate::net::FlowTable;

/// How long an lcore of a silent queue sleeps if nothing comes: how late it may notice that it is
/// to end, or that others have had heaps.
const SLEEP: Duration = Duration::from_millis(50);

/// Tells an rx lcore: once its queue has had `after` frames, it gives up the chunks below `floor`.
///
/// The source of a replay sends watermarks in place of time, which goes on in a live engine even
/// when a queue is silent. [`STOP`](Self::STOP) ends any lcore.
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
    /// Whether time goes on without the lcore.
    pub mode: RxMode,
    /// Which timestamp the first heap has.
    pub epoch: EpochHint,
    /// Destinations that are ours; all where the port saw to that.
    pub ours: Option<FlowTable>,
    /// What to do without packets.
    pub idle: IdlePolicy,
    /// How long the lcore of a live engine lets packets wait in its queue for a free chunk before
    /// it drops heaps ([`chunk_patience`](super::chunk_patience)).
    pub patience: ChunkPatience,
}

/// What an rx lcore is made of.
pub struct RxParts {
    /// Where packets come from.
    pub queue: RxQueue,
    /// Chunks to fill.
    pub memory: Arc<ReceiveMemory>,
    /// Number of the lcore among those that fill the chunks.
    pub lane: usize,
    /// Watermarks for the lcore. One with a floor of [`END_OF_STREAM`] ends it.
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
    /// The watermark that was taken last, until it is heeded.
    watermark: Option<Watermark>,
    /// Frames that the queue has had.
    frames: u64,
    idle: Idle,
}

impl RxLcore {
    /// An lcore that is made of `parts`.
    pub fn new(config: RxConfig, parts: RxParts) -> Self {
        let idle = Idle::new(config.idle);
        let RxParts {
            queue,
            memory,
            lane,
            watermarks,
            stats,
            bell,
            abort,
        } = parts;
        let placer = HeapPlacer::new(config, memory, lane, stats, bell, abort);
        Self {
            queue,
            foremost: placer.lane.foremost(),
            placer,
            watermarks,
            watermark: None,
            frames: 0,
            idle,
        }
    }

    /// Runs until the stream ends or the engine aborts.
    pub fn run(mut self, timer: &mut PhaseTimer) {
        let memory = self.placer.memory.clone();
        let mut burst = Burst::new(&memory);
        let mut batch: MbufBatch = MbufBatch::new();
        let mut floor = self.placer.lane.floor();
        while !self.placer.abort.is_set() {
            timer.turn();
            // Taken before the burst: what came until then is in it.
            let follow = self.placer.follow();
            let received = self.receive(&mut batch, timer);
            // Taken after the burst: a watermark is published before the frames that follow it.
            self.watermark = self.watermark.or_else(|| self.next_watermark());
            if received == 0 && self.due_watermark().is_none() {
                self.go_without_packets(follow, &mut burst, timer);
                continue;
            }
            timer.mark(Phase::WaitInput);
            let placed = self.place_burst(&batch, &mut burst, timer);
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

    /// A turn in which nothing came: the queue is empty. Gives up the chunks below `follow`, places
    /// heaps that have waited for long enough, and naps.
    #[inline]
    fn go_without_packets(
        &mut self,
        follow: Option<u64>,
        burst: &mut Burst<'_>,
        timer: &mut PhaseTimer,
    ) {
        self.placer.held = None;
        if let Some(floor) = follow {
            self.placer.lane.follow(floor);
        }
        if self.placer.has_waited() {
            self.settle(burst, timer);
        }
        self.idle.wait();
    }

    /// Places and publishes the heaps of a burst, and heeds the watermarks between its packets and
    /// behind them. Returns how many heaps were placed.
    #[inline]
    fn place_burst(
        &mut self,
        batch: &MbufBatch,
        burst: &mut Burst<'_>,
        timer: &mut PhaseTimer,
    ) -> usize {
        self.placer.arrived = None;
        self.placer.begin_burst();
        let mut placed = 0;
        for (i, mbuf) in batch.iter().enumerate() {
            placed += self.heed_watermarks(false, burst, timer);
            let next = batch.as_slice().get(i + 1);
            if let Some(next) = next {
                next.prefetch();
            }
            self.frames += 1;
            match self.placer.place(mbuf, next, burst, timer) {
                Ok(heaps) => placed += heaps,
                Err(cause) => self.placer.note_dropped(cause, mbuf),
            }
        }
        placed += self.heed_watermarks(true, burst, timer);
        self.placer.end_burst(burst);
        placed
    }

    /// Heeds the watermarks that are due: gives up the chunks below their floors, but at
    /// [`Watermark::STOP`] only `behind_burst`. Inside a burst only. Returns how many heaps were
    /// placed that had waited for that.
    #[inline]
    fn heed_watermarks(
        &mut self,
        behind_burst: bool,
        burst: &mut Burst<'_>,
        timer: &mut PhaseTimer,
    ) -> usize {
        let is_heeded = |mark: &Watermark| behind_burst || *mark != Watermark::STOP;
        let mut placed = 0;
        while let Some(mark) = self.due_watermark().filter(is_heeded) {
            placed += self.placer.settle(Some(mark.floor), burst, timer);
            self.placer.lane.raise(mark.floor);
            self.watermark = self.next_watermark();
        }
        placed
    }

    /// The watermark that was taken last, if the queue has had all frames before it.
    #[inline]
    fn due_watermark(&self) -> Option<Watermark> {
        self.watermark.filter(|mark| mark.after <= self.frames)
    }

    /// Places heaps that waited for others of their time, in a burst of their own.
    #[cold]
    fn settle(&mut self, burst: &mut Burst<'_>, timer: &mut PhaseTimer) {
        self.placer.begin_burst();
        let placed = self.placer.settle(None, burst, timer);
        self.placer.end_burst(burst);
        self.placer.stats.note_burst(0, placed as u64);
        self.placer.bell.ring();
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

#[cfg(test)]
#[path = "lcore_tests.rs"]
mod tests;
