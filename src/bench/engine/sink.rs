//! Sink lcores: every header checked, some heaps kept whole, the latency of every heap.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dpdk::{Mbuf, MbufBatch, RingReceiver};
use ground::stats::counter::add;
use ground::stats::{Phase, PhaseTimer};
use ground::{Idle, IdlePolicy, StopFlag, TscClock, tsc};
use hdrhistogram::Histogram;
use spead::spectra::PREAMBLE_LEN;

use super::generator::Stamps;
use super::signal::BenchSignal;
use crate::config::{EngineConfig, OutputConfig};
use crate::net::frame::HEADERS_LEN;

/// Heaps that one stream keeps for later, at most.
const KEPT: usize = 8;
/// What the sink looks at, in words from the SPEAD header on.
mod word {
    pub const HEADER: usize = 0;
    pub const HEAP_COUNT: usize = 1;
    pub const HEAP_LENGTH: usize = 2;
    pub const PAYLOAD_OFFSET: usize = 3;
    pub const PAYLOAD_LENGTH: usize = 4;
    pub const TIMESTAMP: usize = 5;
    pub const FENG_ID: usize = 6;
    pub const FIRST_CHANNEL: usize = 7;
    pub const RAW: usize = 8;
    pub const COUNT: usize = 9;
}
/// Every item pointer of a data packet without its value, as the wire format has them.
const ITEMS: [u64; word::COUNT] = [
    0x5304_0206_0000_0008,
    0x8001 << 48,
    0x8002 << 48,
    0x8003 << 48,
    0x8004 << 48,
    0x9600 << 48,
    0xc101 << 48,
    0xc103 << 48,
    0x4300 << 48,
];

/// Which part of a run is measured: what is counted belongs to everything, what is timed to that
/// part alone.
///
/// The lower bits are one more than the number of the histogram that takes latencies, 0 between
/// measurements; the upper ones count measurements.
#[derive(Debug, Default)]
pub struct MeasuredSpan(AtomicU64);

impl MeasuredSpan {
    const SLOTS: u64 = 1 << 16;

    /// Begins another measurement, whose latencies the histogram with number `slot` takes alone.
    /// One thread at a time opens and closes.
    pub fn open(&self, slot: usize) {
        let measurements = self.0.load(Ordering::Relaxed) / Self::SLOTS + 1;
        let next = measurements * Self::SLOTS + slot as u64 + 1;
        self.0.store(next, Ordering::Relaxed);
    }

    /// Ends it.
    pub fn close(&self) {
        let ended = self.0.load(Ordering::Relaxed) / Self::SLOTS * Self::SLOTS;
        self.0.store(ended, Ordering::Relaxed);
    }

    /// Number of the measurement and of its histogram, if one is going on.
    #[inline]
    fn current(&self) -> Option<(u64, usize)> {
        let now = self.0.load(Ordering::Relaxed);
        let slot = (now % Self::SLOTS).checked_sub(1)?;
        Some((now / Self::SLOTS, slot as usize))
    }
}

/// Counters of one stream: written by its sink, read by anyone.
#[derive(Debug, Default)]
pub struct SinkStats {
    /// Data packets.
    pub packets: AtomicU64,
    /// Descriptors and stop heaps.
    pub control: AtomicU64,
    /// Whole heaps.
    pub heaps: AtomicU64,
    /// Payload bytes.
    pub bytes: AtomicU64,
    /// Batches between the first and the last that did not come.
    pub missing_batches: AtomicU64,
    /// Packets that are not what should come next.
    pub wrong: AtomicU64,
}

/// A heap as it came.
#[derive(Clone, Debug)]
pub struct BenchHeap {
    /// Timestamp of the heap.
    pub timestamp: u64,
    /// Substream of the heap.
    pub substream: usize,
    /// Payload of the heap.
    pub data: Vec<u8>,
}

/// What a stream's sink found of one output.
pub struct SinkFindings {
    /// Engine.
    pub engine: usize,
    /// Number of the output, among the engine's.
    pub output: usize,
    /// Nanoseconds from the last packet that a heap needs to its own last packet, in the last
    /// measurement of each number.
    pub latencies: Vec<Histogram<u64>>,
    /// Heaps to be checked.
    pub kept: Vec<BenchHeap>,
    /// What was wrong with the first wrong packet.
    pub first_wrong: Option<String>,
}

/// What one tx queue of an engine sends.
pub struct Stream {
    ring: RingReceiver,
    stats: Arc<SinkStats>,
    outputs: Vec<OutputStream>,
}

/// What it sends of one output, in order.
struct OutputStream {
    stats: Arc<SinkStats>,
    window: Arc<MeasuredSpan>,
    signal: Arc<BenchSignal>,
    stamps: Arc<Stamps>,
    tsc: TscClock,
    output: OutputConfig,
    feng_id: u64,
    array_size: u64,
    packet_payload: usize,
    /// Substreams of this queue: the first, the step to the next, how many.
    share: (usize, usize, usize),
    /// Timestamp of the current batch and heap count of its substream 0; `None` before the first.
    batch: Option<(u64, u64)>,
    /// Number of the packet that should come next, within its batch.
    next: usize,
    seen: Option<u64>,
    keep_after: u64,
    keeping: Option<BenchHeap>,
    spare: Vec<Vec<u8>>,
    found: SinkFindings,
}

/// What the streams of one engine have in common.
#[derive(Clone)]
pub struct Sinks {
    /// Which part of the run is measured, and how many histograms of latency there are.
    pub window: Arc<MeasuredSpan>,
    pub slots: usize,
    /// What the engine was sent, and when.
    pub signal: Arc<BenchSignal>,
    pub stamps: Arc<Stamps>,
    pub tsc: TscClock,
}

impl Stream {
    /// The stream that tx queue `index` of `of` sends into `ring`, for the engine with number
    /// `engine`.
    pub fn new(
        config: &EngineConfig,
        engine: usize,
        (index, of): (usize, usize),
        ring: RingReceiver,
        sinks: &Sinks,
    ) -> Self {
        let stats = Arc::new(SinkStats::default());
        let output = |(number, output): (usize, &OutputConfig)| {
            let substreams = (index..output.dst.len()).step_by(of).len();
            let latency = Histogram::new_with_bounds(1, 100_000_000_000, 3);
            let mut latencies = vec![latency.expect("bounds and digits are in range"); sinks.slots];
            // Touched now, so that no page fault comes later.
            latencies.iter_mut().for_each(Histogram::reset);
            OutputStream {
                stats: stats.clone(),
                window: sinks.window.clone(),
                signal: sinks.signal.clone(),
                stamps: sinks.stamps.clone(),
                tsc: sinks.tsc,
                output: output.clone(),
                feng_id: config.feng_id,
                array_size: config.array_size,
                packet_payload: config.send.packet_payload,
                share: (index, of, substreams),
                batch: None,
                next: 0,
                seen: None,
                keep_after: 0,
                keeping: None,
                // Touched now, so that no page fault comes later.
                spare: vec![vec![1; output.heap_bytes()]; KEPT],
                found: SinkFindings {
                    engine,
                    output: number,
                    latencies,
                    kept: Vec::with_capacity(KEPT),
                    first_wrong: None,
                },
            }
        };
        Self {
            ring,
            outputs: config.outputs.iter().enumerate().map(output).collect(),
            stats,
        }
    }

    /// Counters of the stream.
    pub fn stats(&self) -> &Arc<SinkStats> {
        &self.stats
    }

    fn packet(&mut self, mbuf: &Mbuf, now: u64) {
        let Some(words) = data_words(mbuf.data()) else {
            add(&self.stats.control, 1);
            return;
        };
        // Each output has groups of its own; what goes elsewhere is wrong for any of them.
        let dst = destination(mbuf);
        let has =
            |output: &&mut OutputStream| output.output.dst.iter().any(|of| of.ip().octets() == dst);
        let output = match self.outputs.len() {
            1 => self.outputs.first_mut(),
            _ => self.outputs.iter_mut().find(has),
        };
        match output {
            Some(output) => output.packet(&words, mbuf, now),
            None => add(&self.stats.wrong, 1),
        }
    }
}

/// The address that a packet goes to.
fn destination(mbuf: &Mbuf) -> [u8; 4] {
    let address = mbuf.data().get(30..34);
    address
        .and_then(|address| address.try_into().ok())
        .unwrap_or_default()
}

impl OutputStream {
    /// Packets of one batch by this queue.
    fn batch_packets(&self) -> usize {
        self.share.2 * self.output.heap_bytes().div_ceil(self.packet_payload)
    }

    fn packet(&mut self, words: &[u64; word::COUNT], mbuf: &Mbuf, now: u64) {
        add(&self.stats.packets, 1);
        if let Err(what) = self.check(words, mbuf) {
            add(&self.stats.wrong, 1);
            let first = &mut self.found.first_wrong;
            first.get_or_insert_with(|| format!("{what} in a packet with words {words:x?}"));
        }
        let [offset, length] =
            [word::PAYLOAD_OFFSET, word::PAYLOAD_LENGTH].map(|w| value(words, w) as usize);
        let timestamp = value(words, word::TIMESTAMP);
        add(&self.stats.bytes, length as u64);
        self.keep(words, mbuf, now);
        if offset + length == self.output.heap_bytes() {
            add(&self.stats.heaps, 1);
            if let Some(measurement) = self.window.current() {
                self.time(measurement, timestamp, now);
            }
        }
    }

    /// Holds a packet against what must come next: packet 0 of every substream, packet 1 of every
    /// substream, … of a batch, then those of a later batch.
    fn check(&mut self, words: &[u64; word::COUNT], mbuf: &Mbuf) -> Result<(), &'static str> {
        let is = |ok: bool, what: &'static str| if ok { Ok(()) } else { Err(what) };
        let (first, step, substreams) = self.share;
        let timestamp = value(words, word::TIMESTAMP);
        let heap_count = value(words, word::HEAP_COUNT);
        let substream =
            value(words, word::FIRST_CHANNEL) as usize / self.output.channels_per_substream();
        let offset = value(words, word::PAYLOAD_OFFSET) as usize;

        let index = std::mem::replace(&mut self.next, 0);
        let expected = (
            first + index % substreams * step,
            index / substreams * self.packet_payload,
        );
        // Whatever came, go on behind it.
        let nth = substream.saturating_sub(first) / step;
        self.next = (offset / self.packet_payload * substreams + nth + 1) % self.batch_packets();
        let base = heap_count.wrapping_sub(substream as u64 * self.array_size);
        let before = self.batch.replace((timestamp, base));

        if index == 0 {
            if let Some((last, last_base)) = before {
                let batch_samples = self.output.batch_samples() as u64;
                let ahead = timestamp.wrapping_sub(last);
                is(
                    ahead.is_multiple_of(batch_samples) && ahead > 0 && ahead < 1 << 47,
                    "timestamp",
                )?;
                add(&self.stats.missing_batches, ahead / batch_samples - 1);
                let heaps = base.wrapping_sub(last_base);
                let batch_heaps = self.array_size * self.output.dst.len() as u64;
                is(heaps.is_multiple_of(batch_heaps) && heaps > 0, "heap count")?;
            }
            is(base % self.array_size == self.feng_id, "heap count")?;
        } else {
            is(before == Some((timestamp, base)), "timestamp or heap count")?;
        }
        is((substream, offset) == expected, "order of packets")?;
        let heap_bytes = self.output.heap_bytes();
        let length = self.packet_payload.min(heap_bytes - offset);
        is(
            value(words, word::PAYLOAD_LENGTH) as usize == length,
            "payload length",
        )?;
        is(
            value(words, word::HEAP_LENGTH) as usize == heap_bytes,
            "heap length",
        )?;
        is(
            value(words, word::FENG_ID) == self.feng_id,
            "F-engine number",
        )?;
        is(
            mbuf.pkt_len() == HEADERS_LEN + PREAMBLE_LEN + length,
            "packet length",
        )?;
        let dst = destination(mbuf) == self.output.dst[substream].ip().octets();
        is(dst, "destination")
    }

    /// Notes how long ago the last packet that a heap needs was handed over.
    fn time(&mut self, (number, slot): (u64, usize), timestamp: u64, now: u64) {
        let Some(latency) = self.found.latencies.get_mut(slot) else {
            return;
        };
        if self.seen != Some(number) {
            self.seen = Some(number);
            latency.reset();
        }
        let output = &self.output;
        let end = timestamp
            + (output.batch_samples() - output.spectrum_samples() + output.window_samples()) as u64;
        // Queues are filled by turns, so the last one needed may not be the last one handed over.
        let among = 2 * self.signal.queues() as u64;
        let sent = self.stamps.last(self.signal.last_packet(end), among);
        let nanoseconds = self.tsc.seconds(now.saturating_sub(sent)) * 1e9;
        latency.saturating_record(nanoseconds as u64);
    }

    /// Keeps a heap whole now and then.
    fn keep(&mut self, words: &[u64; word::COUNT], mbuf: &Mbuf, now: u64) {
        let timestamp = value(words, word::TIMESTAMP);
        let substream =
            value(words, word::FIRST_CHANNEL) as usize / self.output.channels_per_substream();
        let offset = value(words, word::PAYLOAD_OFFSET) as usize;
        if offset == 0 && self.keeping.is_none() && now >= self.keep_after {
            // Another substream each time.
            let turn = self.found.kept.len() % self.share.2;
            if substream == self.share.0 + turn * self.share.1
                && let Some(data) = self.spare.pop()
            {
                self.keeping = Some(BenchHeap {
                    timestamp,
                    substream,
                    data,
                });
            }
        }
        let Some(heap) = &mut self.keeping else {
            return;
        };
        if (heap.timestamp, heap.substream) != (timestamp, substream) {
            return;
        }
        if let Some(payload) = mbuf.segments().nth(1)
            && let Some(room) = heap.data.get_mut(offset..offset + payload.len())
        {
            room.copy_from_slice(payload);
        }
        if offset + self.packet_payload >= self.output.heap_bytes() {
            self.found.kept.extend(self.keeping.take());
            // Later ones are further apart, so that runs of any length are covered.
            let wait = 0.1 * f64::from(1 << self.found.kept.len());
            self.keep_after = now + (wait * self.tsc.hz() as f64) as u64;
        }
    }
}

/// The words of a data packet's preamble; `None` for other packets.
fn data_words(headers: &[u8]) -> Option<[u64; word::COUNT]> {
    let preamble = headers.get(HEADERS_LEN..)?;
    let (words, []) = preamble.as_chunks::<8>() else {
        return None;
    };
    let words: &[[u8; 8]; word::COUNT] = words.try_into().ok()?;
    let words = words.map(u64::from_be_bytes);
    let wrong = (1..word::COUNT).fold(words[word::HEADER] ^ ITEMS[word::HEADER], |wrong, w| {
        wrong | (words[w] ^ ITEMS[w]) >> 48
    });
    (wrong == 0 && words[word::RAW] == ITEMS[word::RAW]).then_some(words)
}

#[inline]
fn value(words: &[u64; word::COUNT], word: usize) -> u64 {
    words[word] & ((1 << 48) - 1)
}

/// One sink lcore.
pub struct BenchSinkLcore {
    /// What it takes in.
    pub streams: Vec<Stream>,
    /// Tx lcores that may still send.
    pub sending: Vec<Arc<AtomicUsize>>,
    /// What to do when nothing comes.
    pub idle: IdlePolicy,
    /// Whether to give up.
    pub abort: StopFlag,
}

impl BenchSinkLcore {
    /// Takes everything in until the last tx lcore has ended.
    pub fn run(mut self, timer: &mut PhaseTimer) -> Vec<SinkFindings> {
        let mut idle = Idle::new(self.idle);
        let mut batch: MbufBatch = MbufBatch::new();
        loop {
            timer.turn();
            // Read before the rings: what was sent before the end is in them already.
            let sending = self
                .sending
                .iter()
                .any(|sending| sending.load(Ordering::Acquire) > 0);
            let ended = !sending || self.abort.is_set();
            let mut packets = 0;
            for stream in &mut self.streams {
                packets += stream.ring.dequeue(&mut batch);
                if batch.is_empty() {
                    continue;
                }
                let now = tsc();
                for (i, mbuf) in batch.iter().enumerate() {
                    if let Some(next) = batch.as_slice().get(i + 1) {
                        next.prefetch();
                    }
                    stream.packet(mbuf, now);
                }
                batch.clear();
            }
            if packets > 0 {
                idle.reset();
                timer.mark(Phase::Work);
            } else if ended {
                return self
                    .streams
                    .into_iter()
                    .flat_map(|stream| stream.outputs)
                    .map(|output| output.found)
                    .collect();
            } else {
                idle.wait();
                timer.mark(Phase::WaitInput);
            }
        }
    }
}
