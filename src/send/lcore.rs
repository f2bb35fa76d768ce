//! The loop of the tx lcore: finished output chunks into bursts of packets.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use dpdk::{AttachError, BURST, MAX_HANDLES, Mbuf, MbufBatch, SharedBuffer, TxQueue};
use ground::stats::{Latency, Phase, PhaseTimer};
use ground::{Bell, Idle, IdlePolicy, Sleeper, StopFlag, Ticks, Timestamp, Tsc};

use super::packetiser::{HEADER_BYTES, Packetiser};
use super::{Pace, TxPools};
use crate::config::MAX_SEND_INTERFACES;
use crate::engine::{Finished, OutputStats};
use crate::memory::OutputMemory;
use crate::net::frame::HEADERS_LEN;

/// Tx lcores of one engine, at most.
pub const MAX_TX_LCORES: usize = MAX_SEND_INTERFACES;
// Each has a handle on every chunk.
const _: () = assert!(MAX_TX_LCORES <= MAX_HANDLES);

/// A finished chunk on its way from the first tx lcore of an engine to the others, or the end.
enum PassedChunk {
    Chunk(usize, SharedBuffer<OutputMemory>),
    End,
}

/// Where a tx lcore gets chunks from.
enum ChunkSource {
    /// From the engine; the other tx lcores get a handle each.
    Engine(Arc<ArrayQueue<Finished>>, Vec<Arc<ArrayQueue<PassedChunk>>>),
    /// From the first tx lcore.
    First(Arc<ArrayQueue<PassedChunk>>),
}

impl ChunkSource {
    /// Wakes the lcores to which something was passed on.
    fn ring(&self, bell: &Bell) {
        if matches!(self, Self::Engine(_, others) if !others.is_empty()) {
            bell.ring();
        }
    }

    fn pop(&self) -> Option<PassedChunk> {
        let (finished, others) = match self {
            Self::Engine(finished, others) => (finished.pop()?, others),
            Self::First(passed) => return passed.pop(),
        };
        // The queues have room for every chunk and the end.
        Some(match finished {
            Finished::Chunk(output, chunk) => {
                let chunk = chunk.share_with(others.len(), |other, handle| {
                    let _ = others[other].push(PassedChunk::Chunk(output, handle));
                });
                PassedChunk::Chunk(output, chunk)
            }
            Finished::End => {
                for other in others {
                    let _ = other.push(PassedChunk::End);
                }
                PassedChunk::End
            }
        })
    }
}

/// A chunk to be sent.
struct QueuedChunk {
    chunk: SharedBuffer<OutputMemory>,
    /// Batches that are sent.
    batches: usize,
    /// Read where it is by what sends it; copied otherwise.
    in_place: bool,
}

/// Where a packet is in its chunk.
#[derive(Clone, Copy, Default)]
struct NextPacket {
    batch: usize,
    /// Number in the batch.
    packet: usize,
}

/// What one output has to send.
struct OutputQueue {
    packetiser: Packetiser,
    pace: Pace,
    latency: Arc<Latency>,
    stats: Arc<OutputStats>,
    /// Chunks, the one being sent first.
    waiting: VecDeque<QueuedChunk>,
    /// Fewest batches with which a chunk is read in place; with fewer it is copied.
    zero_copy_from: usize,
    /// Where to look for the next packet of the first waiting chunk.
    next: NextPacket,
}

impl OutputQueue {
    fn enqueue(&mut self, chunk: SharedBuffer<OutputMemory>) {
        let batches = (0..chunk.capacity()).filter(|&batch| chunk.present(batch));
        let batches = batches.count();
        let in_place = batches >= self.zero_copy_from;
        self.waiting.push_back(QueuedChunk {
            chunk,
            batches,
            in_place,
        });
    }

    /// The next packet of the first waiting chunk, and its batch's timestamp; `None` if there is
    /// no packet left, or no chunk.
    fn next_packet(&self) -> Option<(Timestamp, NextPacket)> {
        let QueuedChunk { chunk, .. } = self.waiting.front()?;
        let NextPacket { batch, packet } = self.next;
        let batch = (batch..chunk.capacity()).find(|&batch| chunk.present(batch))?;
        let step = self.packetiser.config().batch_samples();
        let timestamp = chunk.start() + (batch * step) as u64;
        Some((timestamp, NextPacket { batch, packet }))
    }

    /// Goes on behind a packet that is sent.
    fn advance(&mut self, NextPacket { batch, packet }: NextPacket) {
        self.next = NextPacket {
            batch,
            packet: packet + 1,
        };
        if self.next.packet == self.packetiser.batch_packets() {
            self.next = NextPacket {
                batch: batch + 1,
                packet: 0,
            };
            self.packetiser.finish_batch();
        }
    }
}

/// One tx lcore's way out.
pub struct TxPath {
    /// Queue of a port.
    pub queue: TxQueue,
    /// Mbufs of the way.
    pub pools: TxPools,
    /// What it sends of each output.
    pub outputs: Vec<TxOutput>,
    /// What it does when there is nothing to do.
    pub idle: IdlePolicy,
}

/// What one tx lcore sends of an output.
pub struct TxOutput {
    /// The packets.
    pub packetiser: Packetiser,
    /// How fast the packets leave.
    pub pace: Pace,
    /// Gets the age of each output chunk when its last packet has left through every lcore.
    pub latency: Arc<Latency>,
    /// Is told when this lcore's share of a chunk has left.
    pub stats: Arc<OutputStats>,
}

/// One tx lcore: all outputs of an engine, or a share of each one's substreams.
///
/// Without pace, outputs are sent in the order in which their chunks were finished; with it, side
/// by side.
pub struct TxLcore<T = Tsc> {
    /// Number of the lcore in the team.
    index: usize,
    source: ChunkSource,
    outputs: Vec<OutputQueue>,
    pools: TxPools,
    port_queue: TxQueue,
    batch: MbufBatch,
    idle: Idle,
    sleeper: Sleeper,
    /// What paces go by.
    ticks: T,
    abort: StopFlag,
}

impl<T: Ticks> TxLcore<T> {
    /// Lcores that send what comes out of `finished`, one for each of `paths`, of which there are
    /// at most [`MAX_TX_LCORES`]. Chunks of fewer than `min_zero_copy_packets` packets through a
    /// queue are copied. `ticks` is what the paces of outputs go by, `bell` wakes the lcores when
    /// they sleep, `abort` ends them early.
    pub fn team(
        finished: Arc<ArrayQueue<Finished>>,
        paths: Vec<TxPath>,
        min_zero_copy_packets: usize,
        ticks: &T,
        bell: &Arc<Bell>,
        abort: &StopFlag,
    ) -> Vec<Self> {
        let passed = || Arc::new(ArrayQueue::new(finished.capacity()));
        let others: Vec<_> = (1..paths.len()).map(|_| passed()).collect();
        let mut sources: Vec<_> = others.iter().cloned().map(ChunkSource::First).collect();
        let chunks = finished.capacity();
        sources.insert(0, ChunkSource::Engine(finished, others));
        // Either all lcores read a chunk in place or all copy it: the lcore with the fewest packets
        // of the chunk decides.
        let outputs = paths.first().map_or(0, |path| path.outputs.len());
        let zero_copy_from = |output: usize| {
            let packets = paths
                .iter()
                .map(|path| path.outputs[output].packetiser.batch_packets());
            batches_of(min_zero_copy_packets, packets)
        };
        let zero_copy_from: Vec<_> = (0..outputs).map(zero_copy_from).collect();
        let queue = |(output, &zero_copy_from): (TxOutput, &usize)| OutputQueue {
            packetiser: output.packetiser,
            pace: output.pace,
            latency: output.latency,
            stats: output.stats,
            waiting: VecDeque::with_capacity(chunks),
            zero_copy_from,
            next: NextPacket::default(),
        };
        let lcore = |(index, (path, source)): (usize, (TxPath, ChunkSource))| Self {
            index,
            source,
            outputs: path
                .outputs
                .into_iter()
                .zip(&zero_copy_from)
                .map(queue)
                .collect(),
            pools: path.pools,
            port_queue: path.queue,
            batch: MbufBatch::new(),
            idle: Idle::new(path.idle),
            sleeper: Sleeper::new(bell.clone()),
            ticks: ticks.clone(),
            abort: abort.clone(),
        };
        let paths = paths.into_iter().zip(sources).enumerate();
        paths.map(lcore).collect()
    }

    /// Sends descriptors, then every chunk until the end, then stop heaps.
    pub fn run(mut self, timer: &mut PhaseTimer) {
        for output in 0..self.outputs.len() {
            let frames = self.outputs[output].packetiser.descriptor_frames();
            self.send_control(&frames, timer);
        }
        let mut ended = false;
        while !self.abort.is_set() {
            timer.turn();
            let waiting = self.outputs.iter().any(|queue| !queue.waiting.is_empty());
            // Without pace a chunk is sent whole in the turn that takes it, so chunks keep their
            // order.
            if !ended {
                ended = self.take_chunk(timer);
            }
            if self.send_round(timer) {
                self.idle.reset();
                timer.mark(Phase::Work);
            } else if ended && !waiting {
                break;
            } else {
                self.rest(waiting, timer);
            }
        }
        for output in 0..self.outputs.len() {
            let frames = self.outputs[output].packetiser.stop_frames();
            self.send_control(&frames, timer);
        }
        self.flush(timer);
    }

    /// Takes the next chunk, if there is one. Returns whether there will be none any more.
    fn take_chunk(&mut self, timer: &mut PhaseTimer) -> bool {
        match self.source.pop() {
            Some(PassedChunk::Chunk(output, chunk)) => {
                timer.mark(Phase::WaitInput);
                self.outputs[output].enqueue(chunk);
                self.source.ring(self.sleeper.bell());
                false
            }
            Some(PassedChunk::End) => {
                self.source.ring(self.sleeper.bell());
                true
            }
            None => false,
        }
    }

    /// Sends what each output's pace allows. Returns whether there was anything to do.
    fn send_round(&mut self, timer: &mut PhaseTimer) -> bool {
        let mut sent = false;
        for output in 0..self.outputs.len() {
            sent |= self.send_some(output, timer);
        }
        sent
    }

    /// Waits for the port if chunks are `waiting`, else for chunks.
    fn rest(&mut self, waiting: bool, timer: &mut PhaseTimer) {
        // Completions still have to be polled, so that chunks return to their pool.
        self.flush_some(timer);
        if waiting {
            self.idle.wait();
            timer.mark(Phase::WaitOutput);
        } else {
            self.sleeper.wait(&mut self.idle, timer);
        }
    }

    /// Sends of an output's first chunk what its pace allows, at most a burst if there is one.
    /// Returns whether it had anything to do.
    fn send_some(&mut self, output: usize, timer: &mut PhaseTimer) -> bool {
        let mut packets = 0;
        loop {
            let queue = &mut self.outputs[output];
            let Some((timestamp, next)) = queue.next_packet() else {
                return self.finish_chunk(output, timer);
            };
            if queue.pace.is_limited() && (packets == BURST || !queue.pace.allows(self.ticks.now()))
            {
                break;
            }
            if next.packet == 0 && queue.packetiser.descriptors_due(timestamp) {
                let frames = queue.packetiser.descriptor_frames();
                self.send_control(&frames, timer);
            }
            if !self.send_packet(output, timestamp, next, timer) {
                break;
            }
            packets += 1;
        }
        packets > 0
    }

    /// Ends an output's first chunk, all packets of which have been queued. Returns whether there
    /// was a chunk.
    fn finish_chunk(&mut self, output: usize, timer: &mut PhaseTimer) -> bool {
        let queue = &self.outputs[output];
        let Some(QueuedChunk { chunk, batches, .. }) = queue.waiting.front() else {
            return false;
        };
        let sent = *batches > 0;
        let span = queue.packetiser.config().span_samples(chunk.batches());
        let end = chunk.start() + span as u64;
        // Its last packets too.
        self.flush(timer);
        let queue = &mut self.outputs[output];
        // A chunk has one age, and none if nothing of it is sent.
        if queue.stats.note_departure(self.index) && sent {
            queue.latency.note_departure(end);
        }
        queue.waiting.pop_front();
        queue.next = NextPacket::default();
        true
    }

    /// Sends the packet of an output's first chunk that is `next`; not if aborted.
    fn send_packet(
        &mut self,
        output: usize,
        timestamp: Timestamp,
        next: NextPacket,
        timer: &mut PhaseTimer,
    ) -> bool {
        let mbuf = loop {
            let queue = &mut self.outputs[output];
            let Some(chunk) = queue.waiting.front_mut() else {
                return false;
            };
            match data_packet(&self.pools, &queue.packetiser, chunk, timestamp, next) {
                Some(mbuf) => break mbuf,
                None if self.abort.is_set() => return false,
                None => self.wait_for_packets(timer),
            }
        };
        let queue = &mut self.outputs[output];
        if queue.pace.is_limited() {
            queue
                .pace
                .sent(mbuf.pkt_len() - HEADERS_LEN, self.ticks.now());
        }
        queue.advance(next);
        self.push(mbuf, timer);
        true
    }

    fn send_control(&mut self, frames: &[Vec<u8>], timer: &mut PhaseTimer) {
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
                    None => self.wait_for_packets(timer),
                }
            };
            self.push(mbuf, timer);
        }
    }

    /// Queues one packet, bursting when a burst is full.
    fn push(&mut self, mbuf: Mbuf, timer: &mut PhaseTimer) {
        if self.batch.push(mbuf).is_ok() && self.batch.room() == 0 {
            self.flush(timer);
        }
    }

    /// Hands over everything in the burst; what a port without a link does not take is lost.
    fn flush(&mut self, timer: &mut PhaseTimer) {
        while !self.batch.is_empty() && !self.abort.is_set() {
            timer.turn();
            if self.port_queue.tx_burst_or_lose(&mut self.batch) == 0 {
                timer.mark(Phase::Work);
                self.idle.wait();
                timer.mark(Phase::WaitOutput);
            } else {
                self.idle.reset();
            }
        }
    }

    fn flush_some(&mut self, timer: &mut PhaseTimer) {
        if self.port_queue.tx_burst_or_lose(&mut self.batch) > 0 {
            timer.mark(Phase::Work);
        }
    }

    /// Packets in flight hold all mbufs: let them go.
    fn wait_for_packets(&mut self, timer: &mut PhaseTimer) {
        timer.turn();
        timer.mark(Phase::Work);
        self.flush_some(timer);
        self.idle.wait();
        timer.mark(Phase::WaitOutput);
    }
}

/// One data packet: a header, then the payload, chained from the chunk or copied. `None` while a
/// pool is empty.
fn data_packet(
    pools: &TxPools,
    packetiser: &Packetiser,
    QueuedChunk {
        chunk, in_place, ..
    }: &mut QueuedChunk,
    timestamp: Timestamp,
    next: NextPacket,
) -> Option<Mbuf> {
    let mut mbuf = pools.headers.alloc()?;
    let mut header = [0; HEADER_BYTES];
    let range = packetiser.packet(timestamp, next.packet, &mut header);
    let base = next.batch * packetiser.config().batch_bytes();
    let range = base + range.start..base + range.end;
    mbuf.append(HEADER_BYTES)?.copy_from_slice(&header);
    if *in_place {
        let payload = match chunk.attach(&pools.segments, range) {
            Ok(payload) => payload,
            Err(AttachError::PoolEmpty | AttachError::References) => return None,
            Err(error @ AttachError::Range { .. }) => panic!("{error}"),
        };
        mbuf.chain(payload).ok()?;
    } else {
        let payload = mbuf.append(range.len());
        let payload =
            payload.expect("the pool's data room holds whole packets where they are copied");
        payload.copy_from_slice(&chunk.bytes()[range]);
    }
    Some(mbuf)
}

/// Batches that have `packets` or more on each path that sends some of the output; `of_batch` has
/// the packets of a batch, by path.
fn batches_of(packets: usize, of_batch: impl Iterator<Item = usize>) -> usize {
    let fewest = of_batch.filter(|&packets| packets > 0).min();
    packets.div_ceil(fewest.unwrap_or(1))
}

#[cfg(test)]
#[path = "lcore_tests.rs"]
mod tests;
