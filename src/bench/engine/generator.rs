//! Generator lcores: digitisers that send at a given rate, whatever becomes of their packets.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dpdk::{BURST, MbufBatch, MbufPool, RingSender};
use ground::stats::counter::add;
use ground::stats::{Phase, PhaseTimer};
use ground::{Idle, IdlePolicy, StopFlag, tsc};
use spead::DigitiserRepr;
use spead::digitiser::PREAMBLE_LEN;

use super::signal::{BenchSignal, OWN};
use crate::net::frame::HEADERS_LEN;

/// Bytes in front of a digitiser packet's payload.
pub const HEADER_BYTES: usize = HEADERS_LEN + PREAMBLE_LEN;

/// When which packet is due: the same for all engines and generators.
#[derive(Clone, Copy, Debug, Default)]
pub struct Schedule {
    /// Packet of every engine that is due at `start`; earlier ones are not sent any more.
    pub first: u64,
    /// TSC.
    pub start: u64,
    /// Packets per TSC tick and engine; 0: none for now.
    pub packets_per_tick: f64,
}

impl Schedule {
    /// Behind the last packet that is due at `now`.
    #[inline]
    fn due(&self, now: u64) -> u64 {
        let ticks = now.saturating_sub(self.start);
        self.first + (ticks as f64 * self.packets_per_tick) as u64
    }
}

/// What all generator lcores follow.
#[derive(Debug, Default)]
pub struct GeneratorPace {
    version: AtomicU64,
    schedule: Mutex<Schedule>,
    stop: AtomicBool,
}

impl GeneratorPace {
    /// Makes `schedule` the one to follow.
    pub fn set(&self, schedule: Schedule) {
        *ground::lock(&self.schedule) = schedule;
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Ends the generators.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// When each of the last packets was handed over, by its number.
#[derive(Debug)]
pub struct Stamps(Box<[AtomicU64]>);

impl Stamps {
    /// Packets that are remembered: more than can be on their way at once.
    const PACKETS: usize = 1 << 20;

    /// No packet yet.
    pub fn new() -> Self {
        Self((0..Self::PACKETS).map(|_| AtomicU64::new(0)).collect())
    }

    #[inline]
    fn slot(&self, k: u64) -> &AtomicU64 {
        &self.0[k as usize % Self::PACKETS]
    }

    /// TSC at which the last of packets `k + 1 - among ..= k` was handed over.
    pub fn last(&self, k: u64, among: u64) -> u64 {
        let packets = k.saturating_sub(among - 1)..=k;
        let stamps = packets.map(|k| self.slot(k).load(Ordering::Relaxed));
        stamps.max().unwrap_or(0)
    }
}

/// Counters of one queue: written by its generator, read by anyone.
#[derive(Debug, Default)]
pub struct FeedStats {
    /// Number of the next packet.
    pub next: AtomicU64,
    /// Packets handed over or lost here.
    pub offered: AtomicU64,
    /// Packets lost because the queue was full.
    pub ring_full: AtomicU64,
    /// Packets lost because all buffers of the queue were in use.
    pub no_buffer: AtomicU64,
}

/// One rx queue of an engine, from outside.
#[derive(Debug)]
pub struct GeneratorFeed {
    /// Its number, which is also that of its first packet.
    pub queue: u64,
    /// Queues of its engine.
    pub queues: u64,
    /// Where packets go.
    pub ring: RingSender,
    /// Buffers, prepared by [`prepare`].
    pub pool: MbufPool,
    /// Ethernet, IPv4 and UDP headers.
    pub headers: [u8; HEADERS_LEN],
    /// Payload bytes.
    pub heap_bytes: usize,
    /// Counters.
    pub stats: Arc<FeedStats>,
    /// Stamps of the engine that it feeds.
    pub stamps: Arc<Stamps>,
}

impl GeneratorFeed {
    /// The first packet of this queue from `k` on.
    fn at_or_after(&self, k: u64) -> u64 {
        let ahead = (self.queue + self.queues - k % self.queues) % self.queues;
        k + ahead
    }
}

/// Writes a queue's payload into every buffer of its pool. Nobody else may have taken from the pool
/// yet.
pub fn prepare(pool: &MbufPool, payload: &[u8]) {
    let mut mbufs = Vec::with_capacity(pool.config().mbufs);
    while let Some(mut mbuf) = pool.alloc() {
        if let Some(data) = mbuf.append(HEADER_BYTES + payload.len()) {
            data[HEADER_BYTES..].copy_from_slice(payload);
        }
        mbufs.push(mbuf);
    }
}

/// One generator lcore.
pub struct GeneratorLcore {
    /// The queues that it fills.
    pub feeds: Vec<GeneratorFeed>,
    /// What they carry.
    pub signal: Arc<BenchSignal>,
    /// When to send.
    pub pace: Arc<GeneratorPace>,
    /// What to do when nothing is due.
    pub idle: IdlePolicy,
    /// Whether to give up.
    pub abort: StopFlag,
}

impl GeneratorLcore {
    /// Sends until told to stop.
    pub fn run(mut self, timer: &mut PhaseTimer) {
        let mut idle = Idle::new(self.idle);
        let mut version = 0;
        let mut schedule = Schedule::default();
        while !self.pace.stop.load(Ordering::Relaxed) && !self.abort.is_set() {
            let current = self.pace.version.load(Ordering::Acquire);
            if current != version {
                version = current;
                schedule = *ground::lock(&self.pace.schedule);
                for feed in &self.feeds {
                    let next = feed.stats.next.load(Ordering::Relaxed);
                    let next = feed.at_or_after(next.max(schedule.first));
                    feed.stats.next.store(next, Ordering::Relaxed);
                }
            }
            timer.turn();
            let mut sent = false;
            for feed in &mut self.feeds {
                sent |= feed.send(&self.signal, schedule.due(tsc()));
            }
            if sent {
                idle.reset();
                timer.mark(Phase::Work);
            } else {
                idle.wait();
                timer.mark(Phase::WaitInput);
            }
        }
    }
}

impl GeneratorFeed {
    /// Sends a burst of what is due; false if nothing is.
    #[inline]
    fn send(&mut self, signal: &BenchSignal, due: u64) -> bool {
        let next = self.stats.next.load(Ordering::Relaxed);
        let count = due.saturating_sub(next).div_ceil(self.queues);
        let count = count.min(BURST as u64);
        if count == 0 {
            return false;
        }
        let mut batch: MbufBatch = MbufBatch::new();
        add(&self.stats.offered, count);
        if self.pool.alloc_bulk(&mut batch, count as usize) {
            for mbuf in &batch {
                mbuf.prefetch_room(HEADER_BYTES + OWN);
            }
            let packets = (next..).step_by(self.queues as usize);
            for (mbuf, k) in batch.as_mut_slice().iter_mut().zip(packets) {
                let (timestamp, pol) = signal.heap(k);
                let repr = DigitiserRepr {
                    heap_count: k,
                    timestamp,
                    digitiser_id: pol as u64,
                    saturated: 0,
                    payload_length: self.heap_bytes,
                };
                let Some(data) = mbuf.append(HEADER_BYTES + self.heap_bytes) else {
                    continue;
                };
                data[..HEADERS_LEN].copy_from_slice(&self.headers);
                let (preamble, payload) = data[HEADERS_LEN..].split_at_mut(PREAMBLE_LEN);
                if let Some(preamble) = preamble.first_chunk_mut() {
                    repr.emit(preamble);
                }
                BenchSignal::make_own(k, payload);
                self.stamps.slot(k).store(tsc(), Ordering::Relaxed);
            }
            self.ring.enqueue(&mut batch);
            add(&self.stats.ring_full, batch.len() as u64);
        } else {
            add(&self.stats.no_buffer, count);
        }
        self.stats
            .next
            .store(next + count * self.queues, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_due_at_their_rate() {
        let schedule = Schedule {
            first: 100,
            start: 5000,
            packets_per_tick: 0.01,
        };
        let due: Vec<_> = [0, 5000, 5099, 5101, 15_050]
            .map(|now| schedule.due(now))
            .into();
        assert_eq!(due, [100, 100, 100, 101, 200]);
    }
}
