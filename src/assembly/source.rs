//! The source lcore of a replay, and of an engine that is fed from a file: frames of a capture into
//! the rings behind the rx queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam::queue::ArrayQueue;
use dpdk::{BURST, Mbuf, MbufBatch, MbufPool, RingSender};
use ground::stats::{Phase, PhaseTimer};
use ground::{Idle, IdlePolicy, StopFlag, Timestamp};

use crate::config::RecvConfig;
use crate::net::{CaptureError, CaptureReader, FlowTable};
use crate::recv::{DropCause, END_OF_STREAM, LaneMirror, RxStats, Watermark};

/// One rx queue from the source's side.
pub struct CaptureFeed {
    ring: RingSender,
    watermarks: Arc<ArrayQueue<Watermark>>,
    batch: MbufBatch,
    frames: u64,
    lane: LaneMirror,
}

impl CaptureFeed {
    /// Frames go into `ring`, word of silence into `watermarks`.
    pub fn new(ring: RingSender, watermarks: Arc<ArrayQueue<Watermark>>) -> Self {
        Self {
            ring,
            watermarks,
            batch: MbufBatch::new(),
            frames: 0,
            lane: LaneMirror::default(),
        }
    }
}

/// How far the source is.
#[derive(Debug, Default)]
pub struct CaptureProgress {
    /// Bytes of the capture consumed.
    pub bytes: AtomicU64,
    /// Frames read.
    pub frames: AtomicU64,
}

/// The lcore that reads a capture.
pub struct SourceLcore {
    /// The capture.
    pub reader: CaptureReader,
    /// Which frame goes to which queue.
    pub steering: FlowTable,
    /// Geometry, to see which chunk a heap belongs to.
    pub recv: RecvConfig,
    /// Where a queue's first heap is looked for, as its lcore is told
    /// ([`EpochHint`](crate::recv::EpochHint)).
    pub first: Timestamp,
    /// One per rx queue.
    pub feeds: Vec<CaptureFeed>,
    /// Mbufs for frames.
    pub pool: MbufPool,
    /// What was not steered, by cause.
    pub stats: Arc<RxStats>,
    /// How far it is.
    pub progress: Arc<CaptureProgress>,
    /// Ends the input, as if the capture had ended.
    pub stop: StopFlag,
    /// How to wait.
    pub idle: IdlePolicy,
    /// Ends the lcore at once, because another thread failed.
    pub abort: StopFlag,
}

impl SourceLcore {
    /// Feeds the whole capture. Returns what there is to say about the file.
    pub fn run(mut self, timer: &mut PhaseTimer) -> Result<Vec<String>, CaptureError> {
        let mut feeds = Feeds {
            feeds: std::mem::take(&mut self.feeds),
            idle: Idle::new(self.idle),
            abort: self.abort.clone(),
        };
        let mut newest = 0;
        let mut cut = 0;
        let outcome = loop {
            timer.turn();
            if self.abort.is_set() || self.stop.is_set() {
                break Ok(());
            }
            let frame = match self.reader.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            self.progress.frames.fetch_add(1, Ordering::Relaxed);
            cut += u64::from(frame.is_cut());
            let (queue, payload) = match self.steering.steer(frame.bytes) {
                Ok((queue, datagram)) => (queue, datagram.payload()),
                Err(error) => {
                    self.stats.note_burst(1, 0);
                    self.stats.note_drop(DropCause::from(&error));
                    continue;
                }
            };
            let Some(mut mbuf) = feeds.alloc(&self.pool, timer) else {
                break Ok(());
            };
            match mbuf.append(frame.bytes.len()) {
                Some(data) => data.copy_from_slice(frame.bytes),
                None => {
                    self.stats.note_burst(1, 0);
                    self.stats.note_drop(DropCause::PacketTooLong);
                    continue;
                }
            }
            let feed = &mut feeds.feeds[queue.0];
            if let Some(id) = feed.lane.take(&self.recv, self.first, payload) {
                newest = newest.max(id);
                feeds.move_silent(newest, timer);
            }
            feeds.push(queue.0, mbuf, timer);
            let (bytes, _) = self.reader.progress();
            self.progress.bytes.store(bytes, Ordering::Relaxed);
        };
        for queue in 0..feeds.feeds.len() {
            feeds.watermark(queue, END_OF_STREAM, timer);
        }
        outcome.inspect_err(|_| self.abort.set())?;
        let mut notes = vec![self.reader.format().to_owned()];
        if self.reader.truncated() {
            notes.push("the file ends within a record: its whole frames were replayed".into());
        }
        if cut > 0 {
            notes.push(format!(
                "{cut} frames were cut short when they were recorded"
            ));
        }
        Ok(notes)
    }
}

/// All queues, and how to wait for them.
struct Feeds {
    feeds: Vec<CaptureFeed>,
    idle: Idle,
    abort: StopFlag,
}

impl Feeds {
    /// An empty mbuf, waiting for one if the pool is empty; `None` if aborted.
    fn alloc(&mut self, pool: &MbufPool, timer: &mut PhaseTimer) -> Option<Mbuf> {
        loop {
            if let Some(mbuf) = pool.alloc() {
                return Some(mbuf);
            }
            if self.abort.is_set() {
                return None;
            }
            self.wait(timer);
        }
    }

    /// Queues a frame, waiting while the ring is full.
    fn push(&mut self, queue: usize, mbuf: Mbuf, timer: &mut PhaseTimer) {
        self.feeds[queue].frames += 1;
        // The batch has room: it is emptied as soon as it is full.
        let _ = self.feeds[queue].batch.push(mbuf);
        if self.feeds[queue].batch.len() == BURST {
            self.flush(queue, timer);
        }
    }

    /// Empties a queue's batch into its ring.
    fn flush(&mut self, queue: usize, timer: &mut PhaseTimer) {
        loop {
            let feed = &mut self.feeds[queue];
            feed.ring.enqueue(&mut feed.batch);
            if feed.batch.is_empty() || self.abort.is_set() {
                self.idle.reset();
                return;
            }
            self.wait(timer);
        }
    }

    /// Waits, having given every queue what it can take: one may wait for what another still
    /// misses.
    fn wait(&mut self, timer: &mut PhaseTimer) {
        timer.turn();
        timer.mark(Phase::Work);
        for feed in &mut self.feeds {
            feed.ring.enqueue(&mut feed.batch);
        }
        self.idle.wait();
        timer.mark(Phase::WaitOutput);
    }

    /// Tells queues that are too far behind the newest chunk to go on without waiting for more.
    fn move_silent(&mut self, newest: u64, timer: &mut PhaseTimer) {
        for queue in 0..self.feeds.len() {
            if let Some(floor) = self.feeds[queue].lane.follow(newest) {
                self.watermark(queue, floor, timer);
            }
        }
    }

    /// Publishes a watermark behind all frames so far.
    fn watermark(&mut self, queue: usize, floor: u64, timer: &mut PhaseTimer) {
        let watermark = Watermark {
            after: self.feeds[queue].frames,
            floor,
        };
        while self.feeds[queue].watermarks.push(watermark).is_err() && !self.abort.is_set() {
            self.wait(timer);
        }
        self.flush(queue, timer);
    }
}
