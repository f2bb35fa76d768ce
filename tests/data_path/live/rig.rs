//! An engine between rings, whose other ends the test holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam::queue::ArrayQueue;
use dpdk::{
    BURST, Device, Eal, MbufBatch, MbufPool, PoolConfig, PortConfig, RingReceiver, RingSender,
    mbuf_ring, pool_size,
};
use dsp::unpack::pack;
use dsp::{Dither, SampleBits};
use ground::{SampleClock, StopFlag, Ticks, Tsc};
use karoo::assembly::{
    Compute, EngineBuilder, FinishedStages, Reception, RxStage, StageError, Stages, Threads,
    Transmission,
};
use karoo::config::{EngineConfig, RecvConfig, SendConfig};
use karoo::cpu;
use karoo::engine::{Backend, Pipeline};
use karoo::memory::HostAllocator;
use karoo::model::hash_sample;
use karoo::net::frame::HEADERS_LEN;
use karoo::net::{Datagram, HeaderTemplate, MacAddr};
use karoo::recv::{ChunkPatience, EpochHint, ReceiveMemory, RxMode};
use karoo::send::SourceAddress;
use spead::digitiser::PREAMBLE_LEN;
use spead::{DigitiserRepr, Packet, SpectraRepr};

use crate::support::output;

pub const HEAP: usize = 256;
pub const CHUNK: usize = 8192;
const RING: usize = 511;
/// Tests fail rather than hang.
const TOO_LONG: Duration = Duration::from_secs(180);

pub fn config() -> EngineConfig {
    let mut output = output(64, 4, 32, Dither::Uniform);
    output.dst = (0..4)
        .map(|i| format!("239.1.2.{i}:7148").parse().unwrap())
        .collect();
    let config = EngineConfig {
        clock: SampleClock {
            // So slow that what a pace makes up for after a nap is less than its bucket.
            adc_sample_rate: 1e6,
            sync_time: 0.0,
        },
        feng_id: 3,
        array_size: 8,
        recv: RecvConfig {
            packet_samples: HEAP,
            sample_bits: SampleBits::new(10).unwrap(),
            chunk_samples: CHUNK,
            mask_timestamp: false,
        },
        send: SendConfig {
            packet_payload: 1024,
            chunk_jones: 4 * 2048,
            ttl: 4,
        },
        max_delay_diff: 0,
        gain: 0.01,
        outputs: vec![output],
        statistics_period: 0.0,
    };
    config.validate().unwrap();
    config
}

pub fn sample(pol: usize, t: u64) -> i32 {
    hash_sample(t + 77_777 * pol as u64)
}

/// Timestamp to batch in wire layout.
pub type Batches = BTreeMap<u64, Vec<i8>>;

/// How packets leave.
#[derive(Clone, Copy)]
pub struct Sending {
    /// Of each tx ring.
    pub entries: usize,
    pub min_zero_copy_packets: usize,
    /// Rings are emptied when they are full only, as drivers free what they have sent.
    pub keeps: bool,
}

impl Sending {
    /// As from DPDK's virtual devices.
    pub const AT_ONCE: Self = Self {
        entries: 1023,
        min_zero_copy_packets: 0,
        keeps: false,
    };
}

/// How fast packets leave, and by which clock.
pub struct Paced<T> {
    /// Multiple of the output's own rate; 0: no limit.
    pub rate_factor: f64,
    pub ticks: T,
}

/// An engine between rings whose other ends the test holds.
pub struct Rig {
    sending: Sending,
    config: EngineConfig,
    pub stages: Stages,
    memory: Arc<ReceiveMemory>,
    frames: MbufPool,
    rx: Vec<RingSender>,
    tx: Vec<RingReceiver>,
    pub handed: u64,
    pub ring_full: u64,
    heap_count: u64,
    pub received: BTreeMap<(u64, u64), Vec<Option<i8>>>,
    /// Bytes in the UDP datagrams of what was received.
    pub datagram_bytes: u64,
    _threads: Threads,
}

impl Rig {
    pub fn new(pipeline: Box<dyn Pipeline>, rx_queues: usize, tx_queues: usize) -> Self {
        Self::sending(pipeline, rx_queues, tx_queues, Sending::AT_ONCE)
    }

    pub fn sending(
        pipeline: Box<dyn Pipeline>,
        rx_queues: usize,
        tx_queues: usize,
        sending: Sending,
    ) -> Self {
        let paced = Paced {
            rate_factor: 0.0,
            ticks: Tsc,
        };
        Self::paced(pipeline, rx_queues, tx_queues, sending, &paced)
    }

    pub fn paced(
        pipeline: Box<dyn Pipeline>,
        rx_queues: usize,
        tx_queues: usize,
        sending: Sending,
        paced: &Paced<impl Ticks>,
    ) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (eal, config) = (Eal::for_tests(), config());
        let pool = PoolConfig {
            mbufs: pool_size(rx_queues * RING, 2 * BURST),
            cache: BURST,
            data_room: 2048,
            socket: None,
        };
        let frames = MbufPool::new(eal, &format!("live{number}"), pool).unwrap();
        let ring = |kind: &str, queue, entries| {
            mbuf_ring(eal, &format!("live{number}_{kind}{queue}"), entries).unwrap()
        };
        let (rx, rx_ends) = (0..rx_queues).map(|queue| ring("rx", queue, RING)).unzip();
        let tx_ring = |queue| ring("tx", queue, sending.entries);
        let (tx_ends, tx) = (0..tx_queues).map(tx_ring).unzip();
        let port = Device::rings(eal, &format!("live{number}"), rx_ends, tx_ends).unwrap();
        let ports = PortConfig {
            rx_pools: vec![frames.clone(); rx_queues],
            tx_queues,
            ..PortConfig::default()
        };
        let port = port.start(&ports).unwrap();
        let host = Arc::new(HostAllocator::default());
        let rx_stages = port.rx.into_iter().enumerate().map(|(queue, rx)| RxStage {
            name: format!("rx{queue}"),
            port: format!("live{number}"),
            queue: rx,
            ours: None,
            watermarks: Arc::new(ArrayQueue::new(1)),
        });
        let reception = Reception {
            queues: rx_stages.collect(),
            mode: RxMode::Live,
            epoch: EpochHint::WireValue,
            spare_chunks: 0,
            patience: ChunkPatience::NONE,
        };
        let transmission = Transmission {
            queues: port.tx,
            queue_packets: sending.entries,
            sources: vec![SourceAddress {
                mac: MacAddr([2, 0, 0, 0, 0, 1]),
                ip: [192, 0, 2, 1].into(),
                port: 49152,
            }],
            rate_factor: paced.rate_factor,
        };
        let compute = Compute {
            backend: Backend {
                intake: Box::<cpu::CpuIntake>::default(),
                pipelines: vec![pipeline],
            },
            gpu: None,
            recv_memory: host.clone(),
            send_memory: host,
        };
        let mut built = EngineBuilder::new(&config, compute, reception, transmission)
            .prefix(format!("live{number}-"))
            .build(eal)
            .unwrap();
        built.set_min_zero_copy_packets(sending.min_zero_copy_packets);
        let mut threads = Threads::new(eal, StopFlag::default());
        let running = built.start_by(&paced.ticks, &mut threads).unwrap();
        let (stages, memory) = (running.stages, running.memory);
        Self {
            sending,
            config,
            stages,
            memory,
            frames,
            rx,
            tx,
            handed: 0,
            ring_full: 0,
            heap_count: 0,
            received: BTreeMap::new(),
            datagram_bytes: 0,
            _threads: threads,
        }
    }

    /// Hands one heap over; a full queue loses it.
    pub fn send(&mut self, queue: usize, pol: usize, timestamp: u64) {
        let bits = self.config.recv.sample_bits;
        let payload = pack((0..HEAP as u64).map(|i| sample(pol, timestamp + i)), bits);
        let src = "192.0.2.2:49152".parse().unwrap();
        let dst = "239.102.0.64:7148".parse().unwrap();
        let template = HeaderTemplate::multicast(MacAddr([2, 0, 0, 0, 0, 2]), src, dst, 4).unwrap();
        let mut frame = [0; HEADERS_LEN + PREAMBLE_LEN];
        template.emit(
            PREAMBLE_LEN + payload.len(),
            frame.first_chunk_mut().unwrap(),
        );
        let repr = DigitiserRepr {
            heap_count: self.heap_count,
            timestamp,
            digitiser_id: pol as u64,
            saturated: 0,
            payload_length: payload.len(),
        };
        repr.emit(frame.last_chunk_mut().unwrap());
        self.heap_count += 1;
        let mut batch: MbufBatch = MbufBatch::new();
        // Frames that wait in rings or with rx lcores may hold all mbufs.
        self.wait(|rig| rig.frames.available() > 0);
        let mut mbuf = self.frames.alloc().unwrap();
        let data = mbuf.append(frame.len() + payload.len()).unwrap();
        data[..frame.len()].copy_from_slice(&frame);
        data[frame.len()..].copy_from_slice(&payload);
        batch.push(mbuf).unwrap();
        let taken = self.rx[queue].enqueue(&mut batch) as u64;
        self.handed += taken;
        self.ring_full += 1 - taken;
    }

    /// Takes in what was sent.
    pub fn receive(&mut self) {
        let mut batch: MbufBatch = MbufBatch::new();
        let keeps = self.sending.keeps && self.stages.running() > 0;
        for tx in &mut self.tx {
            if keeps && tx.len() < self.sending.entries {
                continue;
            }
            while tx.dequeue(&mut batch) > 0 {
                for mbuf in &batch {
                    let mut frame = vec![0; mbuf.pkt_len()];
                    mbuf.copy_to(&mut frame);
                    let datagram = Datagram::new_checked(&frame).unwrap();
                    let packet = Packet::new_checked(datagram.payload()).unwrap();
                    let Some(repr) = SpectraRepr::parse(&packet).unwrap() else {
                        continue;
                    };
                    assert_eq!((repr.feng_id, repr.heap_count % 8), (3, 3));
                    self.datagram_bytes += datagram.payload().len() as u64;
                    let heap = self.received.entry((repr.timestamp, repr.first_channel));
                    let heap = heap.or_insert_with(|| vec![None; repr.heap_length as usize]);
                    let room = &mut heap[repr.payload_offset as usize..];
                    for (byte, &value) in room.iter_mut().zip(packet.payload()) {
                        assert!(byte.replace(value as i8).is_none(), "sent twice");
                    }
                }
                batch.clear();
            }
        }
    }

    /// Takes in what is sent until something has happened.
    pub fn wait(&mut self, happened: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !happened(self) {
            self.receive();
            assert!(begun.elapsed() < TOO_LONG, "{:?}", self.drops());
            std::thread::yield_now();
        }
    }

    pub fn seen(&self) -> u64 {
        self.stages
            .rx_stats()
            .iter()
            .map(|stats| stats.datagrams())
            .sum()
    }

    pub fn placed(&self) -> u64 {
        self.stages
            .rx_stats()
            .iter()
            .map(|stats| stats.placed())
            .sum()
    }

    pub fn drops(&self) -> BTreeMap<String, u64> {
        let mut drops = BTreeMap::new();
        for stats in self.stages.rx_stats() {
            stats.add_drops(&mut drops);
        }
        drops
    }

    /// Whether a chunk that is handed over now is placed.
    pub fn has_room_for(&self, chunk: u64) -> bool {
        let chunks = self.stages.input_stats().chunks();
        self.seen() == self.handed && self.memory.free_chunks() > 0 && chunks + 3 >= chunk
    }

    /// Hands over whole chunks, heap by heap by turns over the first `queues` queues, each when
    /// there is room for it.
    pub fn send_chunks(&mut self, chunks: std::ops::Range<u64>, queues: usize) {
        self.send_some(chunks, queues, |_| true);
    }

    /// The same without the heaps at timestamps that do not come.
    pub fn send_some(
        &mut self,
        chunks: std::ops::Range<u64>,
        queues: usize,
        comes: impl Fn(u64) -> bool,
    ) {
        for chunk in chunks {
            self.wait(|rig| rig.has_room_for(chunk));
            for heap in 0..(CHUNK / HEAP) as u64 {
                let timestamp = chunk * CHUNK as u64 + heap * HEAP as u64;
                for pol in (0..2).filter(|_| comes(timestamp)) {
                    let queue = (heap as usize * 2 + pol) % queues;
                    self.send(queue, pol, timestamp);
                    self.wait(|rig| rig.rx[queue].len() < RING / 2);
                }
            }
        }
        self.wait(|rig| rig.seen() == rig.handed);
    }

    /// Ends the input, takes in the rest, and joins.
    pub fn finish(mut self) -> (Result<FinishedStages, StageError>, Batches) {
        self.stages.stop();
        self.wait(|rig| rig.stages.running() == 0);
        self.receive();
        let ended = self.stages.join();
        let mut batches = Batches::new();
        for ((timestamp, _), heap) in self.received {
            let batch = batches.entry(timestamp).or_default();
            batch.extend(heap.into_iter().map(|byte| byte.expect("a whole heap")));
        }
        (ended, batches)
    }
}
