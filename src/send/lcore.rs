//! The loop of the tx lcore: finished output chunks into bursts of packets.

use std::sync::Arc;

use crossbeam::queue::ArrayQueue;

use super::packetiser::{HEADER_BYTES, Packetiser};
use crate::dpdk::{
    Abort, AttachError, Eal, ExtMemory, Idle, IdlePolicy, Mbuf, MbufBatch, MbufPool, PoolConfig,
    SharedBuffer, TxQueue, pool_size,
};
use crate::engine::Finished;
use crate::memory::OutputMemory;
use crate::monitor::phases::{Phase, PhaseClock};
use crate::units::Timestamp;

/// Bytes of the longest descriptor frame that the header pool must hold.
const CONTROL_FRAME: usize = 2048;

/// Mbufs of the tx lcore.
#[derive(Clone, Debug)]
pub struct TxPools {
    /// Headers, and whole control packets.
    headers: MbufPool,
    /// Mbufs that only point into output chunks.
    segments: MbufPool,
}

impl TxPools {
    /// Data room of both pools, per packet.
    pub const BYTES_PER_PACKET: usize = CONTROL_FRAME;

    /// Pools for a queue of `descriptors` entries, counting everything that may hold packets after it.
    /// Their names, which are unique in a process, begin with `prefix`.
    pub fn new(
        eal: &Eal,
        prefix: &str,
        descriptors: usize,
        burst: usize,
    ) -> Result<Self, crate::dpdk::DpdkError> {
        let pool = |name: &str, data_room: usize| {
            let mbufs = pool_size(descriptors, burst);
            let config = PoolConfig {
                mbufs,
                cache: burst,
                data_room,
                socket: None,
            };
            let pool = MbufPool::new(eal, &format!("{prefix}_{name}"), config)?;
            pool.check_size(descriptors, burst)?;
            Ok(pool)
        };
        Ok(Self {
            headers: pool("headers", CONTROL_FRAME)?,
            segments: pool("segments", 0)?,
        })
    }
}

/// Tx lcores of one engine, at most.
pub const MAX_TX_LCORES: usize = 16;

/// A finished chunk on its way from the first tx lcore of an engine to the others, or the end.
enum Passed {
    Chunk(usize, SharedBuffer<OutputMemory>),
    End,
}

/// Where a tx lcore gets chunks from.
enum Inlet {
    /// From the engine; the other tx lcores get a handle each.
    Engine(Arc<ArrayQueue<Finished>>, Vec<Arc<ArrayQueue<Passed>>>),
    /// From the first tx lcore.
    First(Arc<ArrayQueue<Passed>>),
}

impl Inlet {
    fn pop(&self) -> Option<Passed> {
        let (finished, others) = match self {
            Self::Engine(finished, others) => (finished.pop()?, others),
            Self::First(passed) => return passed.pop(),
        };
        // The queues have room for every chunk and the end, and a buffer gives more handles than there are lcores.
        Some(match finished {
            Finished::Chunk(output, chunk) => {
                let mut chunk = chunk.share();
                for other in others {
                    if let Some(handle) = chunk.another() {
                        let _ = other.push(Passed::Chunk(output, handle));
                    }
                }
                Passed::Chunk(output, chunk)
            }
            Finished::End => {
                for other in others {
                    let _ = other.push(Passed::End);
                }
                Passed::End
            }
        })
    }
}

/// One tx lcore: all outputs of an engine, or the same share of each one's substreams, in the order in which their
/// chunks were finished.
pub struct TxLcore {
    inlet: Inlet,
    packetisers: Vec<Packetiser>,
    pools: TxPools,
    queue: TxQueue,
    batch: MbufBatch,
    idle: Idle,
    abort: Abort,
}

impl TxLcore {
    /// Lcores that send what comes out of `finished`, one through each of `queues`, of which there are at most
    /// [`MAX_TX_LCORES`]. Each sends every `queues.len()`th substream, so a substream's packets keep their order.
    pub fn team(
        finished: Arc<ArrayQueue<Finished>>,
        packetisers: &[Packetiser],
        queues: Vec<(TxQueue, TxPools)>,
        idle: IdlePolicy,
        abort: &Abort,
    ) -> Vec<Self> {
        let lcores = queues.len();
        let passed = || Arc::new(ArrayQueue::new(finished.capacity()));
        let others: Vec<_> = (1..lcores).map(|_| passed()).collect();
        let mut inlets: Vec<_> = others.iter().cloned().map(Inlet::First).collect();
        inlets.insert(0, Inlet::Engine(finished, others));
        let lcore = |(index, ((queue, pools), inlet)): (usize, ((TxQueue, TxPools), Inlet))| {
            let share = |packetiser: &Packetiser| packetiser.share(index, lcores);
            Self {
                inlet,
                packetisers: packetisers.iter().map(share).collect(),
                pools,
                queue,
                batch: MbufBatch::new(),
                idle: Idle::new(idle),
                abort: abort.clone(),
            }
        };
        queues
            .into_iter()
            .zip(inlets)
            .enumerate()
            .map(lcore)
            .collect()
    }

    /// Sends descriptors, then every chunk until the end, then stop heaps.
    pub fn run(mut self, clock: &mut PhaseClock) {
        for output in 0..self.packetisers.len() {
            let frames = self.packetisers[output].descriptor_frames();
            self.send_control(&frames, clock);
        }
        while !self.abort.is_set() {
            clock.turn();
            match self.inlet.pop() {
                Some(Passed::Chunk(output, chunk)) => {
                    clock.mark(Phase::WaitInput);
                    self.idle.reset();
                    self.send_chunk(output, chunk, clock);
                }
                Some(Passed::End) => break,
                None => {
                    // Completions still have to be polled, so that chunks return to their pool.
                    self.flush_some(clock);
                    self.idle.wait();
                }
            }
        }
        for output in 0..self.packetisers.len() {
            let frames = self.packetisers[output].stop_frames();
            self.send_control(&frames, clock);
        }
        self.flush(clock);
    }

    fn send_chunk(
        &mut self,
        output: usize,
        mut chunk: SharedBuffer<OutputMemory>,
        clock: &mut PhaseClock,
    ) {
        let (step, batch_bytes) = {
            let config = self.packetisers[output].config();
            (config.batch_samples() as u64, config.batch_bytes())
        };
        for index in 0..chunk.capacity() {
            if !chunk.present(index) {
                continue;
            }
            let timestamp = chunk.start() + index as u64 * step;
            if self.packetisers[output].descriptors_due(timestamp) {
                let frames = self.packetisers[output].descriptor_frames();
                self.send_control(&frames, clock);
            }
            let base = index * batch_bytes;
            for packet in 0..self.packetisers[output].batch_packets() {
                let mbuf = loop {
                    match self.data_packet(output, &mut chunk, timestamp, packet, base) {
                        Some(mbuf) => break mbuf,
                        None if self.abort.is_set() => return,
                        None => self.wait_for_packets(clock),
                    }
                };
                self.push(mbuf, clock);
            }
            self.packetisers[output].finish_batch();
        }
        clock.mark(Phase::Work);
    }

    /// Header mbuf chained to a segment of the chunk; `None` while a pool is empty.
    fn data_packet<T: ExtMemory>(
        &self,
        output: usize,
        chunk: &mut SharedBuffer<T>,
        timestamp: Timestamp,
        packet: usize,
        base: usize,
    ) -> Option<Mbuf> {
        let mut mbuf = self.pools.headers.alloc()?;
        let mut header = [0; HEADER_BYTES];
        let range = self.packetisers[output].packet(timestamp, packet, &mut header);
        let range = base + range.start..base + range.end;
        let payload = match chunk.attach(&self.pools.segments, range) {
            Ok(payload) => payload,
            Err(AttachError::PoolEmpty | AttachError::References) => return None,
            Err(error @ AttachError::Range { .. }) => panic!("{error}"),
        };
        mbuf.append(HEADER_BYTES)?.copy_from_slice(&header);
        mbuf.chain(payload).ok()?;
        Some(mbuf)
    }

    fn send_control(&mut self, frames: &[Vec<u8>], clock: &mut PhaseClock) {
        for frame in frames {
            let mbuf = loop {
                match self.pools.headers.alloc() {
                    Some(mut mbuf) => {
                        let data = mbuf.append(frame.len());
                        let data = data.expect("control frames fit the pool's data room");
                        data.copy_from_slice(frame);
                        break mbuf;
                    }
                    None if self.abort.is_set() => return,
                    None => self.wait_for_packets(clock),
                }
            };
            self.push(mbuf, clock);
        }
    }

    /// Queues one packet, bursting when a burst is full.
    fn push(&mut self, mbuf: Mbuf, clock: &mut PhaseClock) {
        if self.batch.push(mbuf).is_ok() && self.batch.room() == 0 {
            self.flush(clock);
        }
    }

    /// Hands over everything in the burst.
    fn flush(&mut self, clock: &mut PhaseClock) {
        while !self.batch.is_empty() && !self.abort.is_set() {
            clock.turn();
            if self.queue.tx_burst(&mut self.batch) == 0 {
                clock.mark(Phase::Work);
                self.idle.wait();
                clock.mark(Phase::WaitOutput);
            } else {
                self.idle.reset();
            }
        }
    }

    fn flush_some(&mut self, clock: &mut PhaseClock) {
        if self.queue.tx_burst(&mut self.batch) > 0 {
            clock.mark(Phase::Work);
        }
    }

    /// Packets in flight hold all mbufs: let them go.
    fn wait_for_packets(&mut self, clock: &mut PhaseClock) {
        clock.mark(Phase::Work);
        self.flush_some(clock);
        self.idle.wait();
        clock.mark(Phase::WaitOutput);
    }
}
