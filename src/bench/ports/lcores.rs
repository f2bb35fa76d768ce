//! The lcores of the bench: one sends the packets of a trial at its pace, the other counts what
//! comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dpdk::{MbufBatch, MbufPool, RxQueue, TxQueue};
use ground::stats::PhaseTimer;
use ground::{Idle, IdlePolicy, StopFlag, TscClock, tsc};

use super::{GROUP, STAMP};
use crate::net::frame::HEADERS_LEN;
use crate::net::{Datagram, HeaderTemplate};
use crate::send::Pace;

/// What both lcores and the main thread share.
#[derive(Default)]
pub(super) struct Shared {
    /// The trial that is to run, or runs; 0: none yet.
    pub trial: AtomicU64,
    /// Bytes per second, as bits of an `f64`.
    pub rate: AtomicU64,
    /// Packets to send.
    pub packets: AtomicU64,
    /// Packets that the port took, and the ticks that it took for them; the trial when it is over.
    pub sent: AtomicU64,
    pub ticks: AtomicU64,
    pub over: AtomicU64,
    /// The trial that the receiver is ready for.
    pub ready: AtomicU64,
    /// Packets that came of this trial, and how far they were ahead.
    pub received: AtomicU64,
    pub burst: AtomicU64,
}

/// The lcore that sends.
pub(super) struct Sender {
    pub queue: TxQueue,
    pub pool: MbufPool,
    pub template: HeaderTemplate,
    pub payload: usize,
    pub shared: Arc<Shared>,
    pub clock: TscClock,
    pub idle: IdlePolicy,
    pub abort: StopFlag,
}

impl Sender {
    pub fn run(mut self, phases: &mut PhaseTimer) {
        let mut idle = Idle::new(self.idle);
        let mut done = 0;
        while !self.abort.is_set() {
            phases.turn();
            let trial = self.shared.trial.load(Ordering::Acquire);
            if trial == done {
                idle.wait();
                continue;
            }
            self.send(trial, &mut idle);
            done = trial;
            self.shared.over.store(trial, Ordering::Release);
        }
    }

    /// Sends the packets of a trial, unless another one begins meanwhile.
    fn send(&mut self, trial: u64, idle: &mut Idle) {
        let shared = self.shared.clone();
        let rate = f64::from_bits(shared.rate.load(Ordering::Relaxed));
        let packets = shared.packets.load(Ordering::Relaxed);
        let abort = self.abort.clone();
        let goes_on = || !abort.is_set() && shared.trial.load(Ordering::Acquire) == trial;
        while shared.ready.load(Ordering::Acquire) != trial && goes_on() {
            idle.wait();
        }
        let start = tsc();
        let mut pace = Pace::new(self.clock, rate, self.idle.longest_nap(), start);
        let mut batch: MbufBatch = MbufBatch::new();
        let (mut made, mut taken) = (0, 0);
        while taken < packets && goes_on() {
            while made < packets && batch.room() > 0 && pace.allows(tsc()) {
                let Some(mut mbuf) = self.pool.alloc() else {
                    break;
                };
                let Some(data) = mbuf.append(HEADERS_LEN + self.payload) else {
                    break;
                };
                if let Some(headers) = data.first_chunk_mut() {
                    self.template.emit(self.payload, headers);
                }
                let stamp = &mut data[HEADERS_LEN..][..STAMP];
                stamp[..8].copy_from_slice(&trial.to_be_bytes());
                stamp[8..].copy_from_slice(&u64::to_be_bytes(made));
                let _ = batch.push(mbuf);
                pace.sent(self.payload, tsc());
                made += 1;
            }
            match self.queue.tx_burst(&mut batch) {
                0 => idle.wait(),
                sent => {
                    taken += sent as u64;
                    idle.reset();
                }
            }
        }
        shared.sent.store(taken, Ordering::Relaxed);
        shared
            .ticks
            .store((tsc() - start).max(1), Ordering::Relaxed);
    }
}

/// The lcore that counts what comes.
pub(super) struct Receiver {
    pub queue: RxQueue,
    pub shared: Arc<Shared>,
    pub clock: TscClock,
    pub idle: IdlePolicy,
    pub abort: StopFlag,
}

impl Receiver {
    pub fn run(mut self, phases: &mut PhaseTimer) {
        let mut idle = Idle::new(self.idle);
        let mut batch: MbufBatch = MbufBatch::new();
        let mut trial = 0;
        let mut bucket = Bucket::default();
        while !self.abort.is_set() {
            phases.turn();
            let current = self.shared.trial.load(Ordering::Acquire);
            if current != trial {
                trial = current;
                let rate = f64::from_bits(self.shared.rate.load(Ordering::Relaxed));
                bucket = Bucket::new(rate / self.clock.hz() as f64);
                self.shared.received.store(0, Ordering::Relaxed);
                self.shared.burst.store(0, Ordering::Relaxed);
                self.shared.ready.store(trial, Ordering::Release);
            }
            if self.queue.rx_burst(&mut batch) == 0 {
                idle.wait();
                continue;
            }
            idle.reset();
            let now = tsc();
            let mut received = 0;
            for mbuf in batch.iter() {
                let Ok(datagram) = Datagram::new_checked(mbuf.data()) else {
                    continue;
                };
                let stamp = datagram
                    .payload()
                    .first_chunk()
                    .copied()
                    .map(u64::from_be_bytes);
                if datagram.dst() == GROUP && stamp == Some(trial) {
                    bucket.add(datagram.payload().len(), now);
                    received += 1;
                }
            }
            batch.clear();
            self.shared.received.fetch_add(received, Ordering::Relaxed);
            self.shared
                .burst
                .store(bucket.most as u64, Ordering::Relaxed);
        }
    }
}

/// A bucket that leaks.
#[derive(Debug, Default)]
struct Bucket {
    bytes_per_tick: f64,
    level: f64,
    most: f64,
    last: Option<u64>,
}

impl Bucket {
    fn new(bytes_per_tick: f64) -> Self {
        Self {
            bytes_per_tick,
            ..Self::default()
        }
    }

    fn add(&mut self, bytes: usize, now: u64) {
        let leaked = self.last.map_or(0, |last| now.saturating_sub(last)) as f64;
        self.last = Some(now);
        self.level = (self.level - leaked * self.bytes_per_tick).max(0.0) + bytes as f64;
        self.most = self.most.max(self.level);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_tells_how_uneven_packets_are() {
        let mut even = Bucket::new(10.0);
        (0..100).for_each(|i| even.add(100, 10 * i));
        assert_eq!(even.most, 100.0);
        // Ten at once, each hundred ticks.
        let mut bursts = Bucket::new(10.0);
        (0..100).for_each(|i| bursts.add(100, i / 10 * 100));
        assert_eq!(bursts.most, 1000.0);
    }
}
