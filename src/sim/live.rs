//! A digitiser that sends in real time: the loop of its lcore.
//!
//! `start` says when it begins, `history` which signals each heap is of, since they may change, and
//! `stats` what was sent.

mod history;
mod start;
mod stats;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam::queue::ArrayQueue;
use dpdk::{BURST, Mbuf, MbufBatch, MbufPool, TxQueue};
use ground::stats::{Phase, PhaseTimer};
use ground::{Idle, IdlePolicy, StopFlag, Timestamp, TscClock, tsc};
use katcp::reading::unix_now;
use spead::digitiser::PREAMBLE_LEN;

use super::config::DigitiserConfig;
use super::faults::{FaultPlan, Ledger, SimHeap};
use super::stream::{Origin, Packets, heaps};
use super::window::Windows;
use crate::net::frame::{HEADERS_LEN, HeaderTemplate};
use crate::send::Pace;
pub use history::SignalsChange;
use history::WindowHistory;
pub use start::{Start, StartError};
pub use stats::SimStats;

/// Late heaps are made up for at so many times their rate (as katgpucbf's library has it).
const CATCH_UP: f64 = 1.05;
/// How long an lcore that shares its CPU may be held up by others, and then make up for it at once.
const HELD_UP: Duration = Duration::from_millis(250);
/// Heaps that are later than this are never sent: a digitiser does not wait for the network.
const MOST_LATE: Duration = Duration::from_millis(500);
/// Room for a frame with descriptors.
const DESCRIPTOR_FRAME: usize = 1024;

/// What a sending lcore is made of.
pub struct SimParts {
    /// What to send; its first timestamp is that of the start.
    pub config: DigitiserConfig,
    /// Where frames say that they come from.
    pub origin: Origin,
    /// When the first sample is taken.
    pub begin: Instant,
    /// Heaps per polarisation; `None`: without end.
    pub heaps: Option<u64>,
    /// Faults, and their seed.
    pub faults: (FaultPlan, u64),
    /// Where they go.
    pub queue: TxQueue,
    /// Their buffers, with room for [`SimParts::data_room`].
    pub pool: MbufPool,
    /// Ticks of its pace.
    pub clock: TscClock,
    /// Signals to change to.
    pub changes: Arc<ArrayQueue<SignalsChange>>,
    /// What was sent.
    pub stats: Arc<SimStats>,
    /// What to do while nothing is due.
    pub idle: IdlePolicy,
    /// Ends it.
    pub stop: StopFlag,
}

impl SimParts {
    /// Room that a buffer has to have.
    pub fn data_room(config: &DigitiserConfig) -> usize {
        (HEADERS_LEN + PREAMBLE_LEN + config.heap_bytes()).max(DESCRIPTOR_FRAME)
    }
}

/// The lcore of a digitiser.
pub struct SimLcore {
    parts: SimParts,
    packets: Packets,
    pace: Pace,
    history: WindowHistory,
    /// Index after that of the newest heap sent.
    next: u64,
    batch: MbufBatch,
    /// What is in the batch, in its order; `None` for descriptors.
    waiting: VecDeque<Option<SimHeap>>,
    /// When the port last took something, or the batch was empty.
    taken: Instant,
    /// Index of the newest heap, while it may be in the batch.
    newest: Option<u64>,
    /// Index and polarisation of the heap that was skipped last.
    skipped: Option<(u64, usize)>,
    idle: Idle,
}

impl SimLcore {
    /// An lcore that has not begun, whose samples are those of `windows`.
    pub fn new(parts: SimParts, windows: Arc<Windows>) -> Self {
        let (config, plan) = (&parts.config, &parts.faults.0);
        let held_up = match parts.idle {
            IdlePolicy::Poll => parts.idle.longest_nap(),
            IdlePolicy::Share => HELD_UP,
        };
        Self {
            pace: Pace::new(parts.clock, most_rate(config, plan), held_up, tsc()),
            packets: Packets::new(config, parts.origin),
            history: WindowHistory::new(windows, config.dests.len(), plan),
            next: 0,
            batch: MbufBatch::new(),
            waiting: VecDeque::with_capacity(BURST),
            taken: Instant::now(),
            newest: None,
            skipped: None,
            idle: Idle::new(parts.idle),
            parts,
        }
    }

    /// Sends each heap when its last sample is there, until it is stopped or has sent all.
    pub fn run(mut self, timer: &mut PhaseTimer) {
        let ledger = Ledger::default();
        let pols = self.parts.config.dests.len();
        let (plan, seed) = self.parts.faults;
        let all = heaps(pols, self.parts.heaps.unwrap_or(u64::MAX));
        let samples = self.parts.config.heap_samples;
        let mut heaps = plan.decorate(all, seed, samples, &ledger).peekable();
        while !self.parts.stop.is_set() {
            timer.turn();
            if let Some(change) = self.parts.changes.pop() {
                self.change(change);
            }
            let since = Instant::now().saturating_duration_since(self.parts.begin);
            let due = due(&self.parts.config, since);
            let mut work = self.drop_late(due.start);
            // Also while the port takes nothing, and nothing has room.
            while !self.parts.stop.is_set()
                && let Some(heap) =
                    heaps.next_if(|heap| heap.index < due.start && heap.index >= self.next)
            {
                work = true;
                self.skip(heap);
            }
            while self.batch.room() > 0
                && !self.parts.stop.is_set()
                && let Some(&heap) = heaps.peek()
                && heap.index.max(self.next.saturating_sub(1)) < due.end
                && self.pace.allows(tsc())
            {
                work = true;
                // Behind one that faults held back, others may have become late.
                if heap.index < due.start && heap.index >= self.next {
                    self.skip(heap);
                } else if !self.fill(heap) {
                    break;
                }
                heaps.next();
            }
            if work {
                timer.mark(Phase::Work);
            }
            self.parts.stats.count_faults_unless_read(&ledger);
            // Also when there is nothing: drivers then free what was sent.
            if self.flush() > 0 {
                self.idle.reset();
                timer.mark(Phase::Work);
            } else if self.batch.is_empty() && heaps.peek().is_none() {
                break;
            } else {
                self.idle.wait();
                let waits = if self.batch.is_empty() {
                    Phase::WaitInput
                } else {
                    Phase::WaitOutput
                };
                timer.mark(waits);
            }
        }
        self.flush();
        self.drop_waiting();
        // Nothing is sent any more, so that it may wait.
        self.parts.stats.count_faults(&ledger);
    }

    fn change(&mut self, change: SignalsChange) {
        let timestamp = Timestamp(self.parts.config.timestamp(self.next));
        change.take(self.next, timestamp, &mut self.history);
    }

    /// Counts a heap that is not sent: once, though it be a duplicate.
    fn skip(&mut self, heap: SimHeap) {
        self.history.came(heap);
        self.count_skipped(heap);
    }

    fn count_skipped(&mut self, heap: SimHeap) {
        let place = Some((heap.index, heap.pol));
        if std::mem::replace(&mut self.skipped, place) != place {
            self.parts.stats.skipped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Throws away what is in the batch if the port has not taken it, and the newest heap of it is
    /// before this index, or all were held back by faults and wait as long; returns whether there
    /// was something.
    fn drop_late(&mut self, first: u64) -> bool {
        let waits_long = !self.batch.is_empty() && self.taken.elapsed() > MOST_LATE;
        let is_late = self.newest.map_or(waits_long, |newest| newest < first);
        if is_late {
            self.drop_waiting();
        }
        is_late
    }

    fn drop_waiting(&mut self) {
        self.batch.clear();
        self.newest = None;
        for heap in std::mem::take(&mut self.waiting).into_iter().flatten() {
            self.count_skipped(heap);
        }
    }

    /// Puts a heap into the batch, with descriptors before it if they are due. False while there
    /// are no buffers.
    fn fill(&mut self, heap: SimHeap) -> bool {
        if self.batch.room() > 1
            && let Some((template, packet)) = self.packets.descriptors_due(heap.index)
        {
            let Some(mbuf) = frame(&self.parts.pool, template, &[&packet]) else {
                return false;
            };
            // There is room.
            let _ = self.batch.push(mbuf);
            self.waiting.push_back(None);
            self.packets.descriptors_sent(heap.index);
        }
        let windows = self.history.of(heap.index);
        let template = self.packets.template(heap);
        let mbuf = if heap.damage.is_some() {
            let mut packet = Vec::new();
            self.packets.packet(windows, heap, &mut packet);
            frame(&self.parts.pool, template, &[&packet])
        } else {
            let (payload, saturated) = windows.heap(heap.pol, self.packets.place(heap));
            let preamble = self.packets.preamble(heap, saturated, payload.len());
            frame(&self.parts.pool, template, &[&preamble, payload])
        };
        let Some(mbuf) = mbuf else {
            return false;
        };
        self.pace.sent(mbuf.pkt_len() - HEADERS_LEN, tsc());
        let _ = self.batch.push(mbuf);
        self.waiting.push_back(Some(heap));
        self.history.came(heap);
        self.newest = newest(self.newest, heap.index, self.next);
        self.next = self.next.max(heap.index + 1);
        true
    }

    /// Hands over what is in the batch, as far as the port takes it.
    fn flush(&mut self) -> usize {
        let taken = self.parts.queue.tx_burst(&mut self.batch);
        let (config, stats) = (&self.parts.config, &self.parts.stats);
        let heaps = self.waiting.drain(..taken).flatten().count() as u64;
        stats.heaps.fetch_add(heaps, Ordering::Relaxed);
        let bytes = heaps * config.heap_bytes() as u64;
        stats.bytes.fetch_add(bytes, Ordering::Relaxed);
        // Of those that faults hold back there is none.
        if let Some(index) = self.newest {
            let end = Timestamp(config.timestamp(index + 1)).unix(config.clock);
            stats.set_time_error(unix_now() - end);
        }
        if self.batch.is_empty() {
            self.newest = None;
        }
        if taken > 0 || self.batch.is_empty() {
            self.taken = Instant::now();
        }
        taken
    }
}

/// Heaps of a polarisation that are to be sent so long after the first sample: their last sample is
/// there, and has been for [`MOST_LATE`] at most.
fn due(config: &DigitiserConfig, since: Duration) -> Range<u64> {
    let heap = config.heap_samples as f64 / config.clock.adc_sample_rate;
    let whole = |time: Duration| (time.as_secs_f64() / heap) as u64;
    whole(since.saturating_sub(MOST_LATE))..whole(since)
}

/// Bytes a second that may be sent: late heaps are made up for, and faults send some twice.
fn most_rate(config: &DigitiserConfig, plan: &FaultPlan) -> f64 {
    let packet = (PREAMBLE_LEN + config.heap_bytes()) * config.dests.len();
    let rate = packet as f64 * config.clock.adc_sample_rate / config.heap_samples as f64;
    CATCH_UP * (1.0 + plan.duplicate) * rate
}

/// Index of the newest heap of a batch, of which another one is `index`, and `next` the first that
/// has not been sent: a heap that faults hold back says nothing of the clock.
fn newest(before: Option<u64>, index: u64, next: u64) -> Option<u64> {
    match index + 1 >= next {
        true => Some(index),
        false => before,
    }
}

/// A frame with a payload in parts; `None` while there are no buffers.
fn frame(pool: &MbufPool, template: &HeaderTemplate, payload: &[&[u8]]) -> Option<Mbuf> {
    let bytes = payload.iter().map(|part| part.len()).sum::<usize>();
    let mut mbuf = pool.alloc()?;
    let data = mbuf.append(HEADERS_LEN + bytes)?;
    let (headers, mut rest) = data.split_first_chunk_mut::<HEADERS_LEN>()?;
    template.emit(bytes, headers);
    for part in payload {
        let (place, behind) = rest.split_at_mut(part.len());
        place.copy_from_slice(part);
        rest = behind;
    }
    Some(mbuf)
}

const _: () = assert!(BURST > 2, "descriptors go in front of a heap");

#[cfg(test)]
pub(crate) mod tests;
