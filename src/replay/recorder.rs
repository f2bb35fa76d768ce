//! The recorder lcore of a replay: transmitted packets into a capture file.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dpdk::{Mbuf, MbufBatch, RingReceiver};
use ground::stats::{Phase, PhaseTimer};
use ground::{Idle, IdlePolicy, SampleClock, StopFlag, Timestamp};

use crate::net::{CaptureError, CaptureWriter};
use crate::send::data_timestamp;

/// Segments of a packet: headers, and a part of an output chunk.
const MAX_SEGMENTS: usize = 4;

/// The recorder of a replay.
pub struct RecorderLcore {
    /// Where packets come out of the tx port.
    pub ring: RingReceiver,
    /// Where they go.
    pub writer: CaptureWriter,
    /// Sample counts to the time of a frame.
    pub clock: SampleClock,
    /// Time of frames before the first data.
    pub start: Timestamp,
    /// tx lcores that have not handed over their last packet.
    pub sending: Arc<AtomicUsize>,
    /// How to wait.
    pub idle: IdlePolicy,
    /// Whether to give up.
    pub abort: StopFlag,
}

impl RecorderLcore {
    /// Records until the end, then gives the file its name: true. Aborted, it leaves no file:
    /// false.
    ///
    /// A frame's time is that of the data in it, so the same input makes the same file.
    pub fn run(mut self, timer: &mut PhaseTimer) -> Result<bool, CaptureError> {
        let mut idle = Idle::new(self.idle);
        let mut batch: MbufBatch = MbufBatch::new();
        let mut time = self.start;
        loop {
            // Read before the ring: what was sent before the end is in the ring already.
            let ended = self.sending.load(Ordering::Acquire) == 0;
            if self.ring.dequeue(&mut batch) == 0 {
                if self.abort.is_set() {
                    return Ok(false);
                }
                if ended {
                    break;
                }
                idle.wait();
                continue;
            }
            idle.reset();
            timer.mark(Phase::WaitInput);
            for mbuf in batch.iter() {
                if let Some(Timestamp(low)) = data_timestamp(mbuf.data()) {
                    time = Timestamp::unwrap(low, time);
                }
                let written = self.write(mbuf, self.nanoseconds(time));
                written.inspect_err(|_| self.abort.set())?;
            }
            batch.clear();
            timer.mark(Phase::Work);
        }
        self.writer.finish().map(|()| true)
    }

    fn write(&mut self, mbuf: &Mbuf, time: u64) -> Result<(), CaptureError> {
        let mut parts: [&[u8]; MAX_SEGMENTS] = [&[]; MAX_SEGMENTS];
        for (part, segment) in parts.iter_mut().zip(mbuf.segments()) {
            *part = segment;
        }
        self.writer
            .write_frame(time, &parts[..mbuf.nb_segs().min(MAX_SEGMENTS)])
    }

    fn nanoseconds(&self, timestamp: Timestamp) -> u64 {
        (timestamp.unix(self.clock) * 1e9).max(0.0) as u64
    }
}
