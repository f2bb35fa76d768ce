//! Engines on ports: what goes in comes out, what does not is accounted for, and nobody is held up.

mod support;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam::queue::ArrayQueue;
use karoo::config::{Dither, EngineConfig, RecvConfig, SampleBits, SendConfig};
use karoo::cpu::{self, Workers};
use karoo::dpdk::{
    Abort, BURST, Device, Eal, IdlePolicy, MbufBatch, MbufPool, PoolConfig, PortConfig,
    RingReceiver, RingSender, mbuf_ring, pool_size,
};
use karoo::dsp::model::{Model, hash_sample};
use karoo::dsp::unpack::pack;
use karoo::engine::steer::{Gains, Steered};
use karoo::engine::{Block, InputView, OutputChunk, OutputSpan, Pipeline, PipelineError};
use karoo::live::{self, Ended, RxStage, StageError, StageParts, Stages, Threads};
use karoo::memory::HostAllocator;
use karoo::monitor::report::LcoreReport;
use karoo::net::frame::HEADERS_LEN;
use karoo::net::{Datagram, HeaderTemplate, MacAddr};
use karoo::recv::{ReceiveMemory, WhenFull, receive_memory};
use karoo::send::Source;
use karoo::spead::digitiser::PREAMBLE_LEN;
use karoo::spead::{DigitiserRepr, Packet, SpectraRepr};
use karoo::units::{Clock, Timestamp};
use rustfft::num_complex::Complex32;
use support::output;

const HEAP: usize = 256;
const CHUNK: usize = 8192;
const RING: usize = 511;
/// Tests fail rather than hang.
const TOO_LONG: Duration = Duration::from_secs(60);

/// All tests take the same lcores: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn config() -> EngineConfig {
    let mut output = output(64, 4, 32, Dither::Uniform);
    output.dst = (0..4)
        .map(|i| format!("239.1.2.{i}:7148").parse().unwrap())
        .collect();
    let config = EngineConfig {
        clock: Clock {
            adc_sample_rate: 1e9,
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
    };
    config.validate().unwrap();
    config
}

fn on_cpu(config: &EngineConfig) -> Box<dyn Pipeline> {
    let workers = Arc::new(Workers::unpinned(1).unwrap());
    let bits = config.recv.sample_bits;
    let pipeline = cpu::Channeliser::new(
        &config.outputs[0],
        bits,
        config.feng_id,
        config.gain,
        workers,
    );
    Box::new(pipeline)
}

fn sample(pol: usize, t: u64) -> i32 {
    hash_sample(t + 77_777 * pol as u64)
}

/// How packets leave.
#[derive(Clone, Copy)]
struct Sending {
    /// Of each tx ring.
    entries: usize,
    copied_below: usize,
    /// Rings are emptied when they are full only, as drivers free what they have sent.
    keeps: bool,
}

impl Sending {
    /// As from DPDK's virtual devices.
    const AT_ONCE: Self = Self {
        entries: 1023,
        copied_below: 0,
        keeps: false,
    };
}

/// An engine between rings whose other ends the test holds.
struct Rig {
    sending: Sending,
    config: EngineConfig,
    stages: Stages,
    memory: Arc<ReceiveMemory>,
    frames: MbufPool,
    rx: Vec<RingSender>,
    tx: Vec<RingReceiver>,
    handed: u64,
    ring_full: u64,
    heap_count: u64,
    received: BTreeMap<(u64, u64), Vec<Option<i8>>>,
    _threads: Threads,
}

impl Rig {
    fn new(pipeline: Box<dyn Pipeline>, rx_queues: usize, tx_queues: usize) -> Self {
        Self::sending(pipeline, rx_queues, tx_queues, Sending::AT_ONCE)
    }

    fn sending(
        pipeline: Box<dyn Pipeline>,
        rx_queues: usize,
        tx_queues: usize,
        sending: Sending,
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
        let host = HostAllocator::default();
        let tail = config.tail_samples();
        let (memory, mut receiver) = receive_memory(&config.recv, tail, rx_queues, &host).unwrap();
        receiver.leave_behind();
        let rx_stages = port.rx.into_iter().enumerate().map(|(queue, rx)| RxStage {
            name: format!("rx{queue}"),
            queue: rx,
            ours: None,
            horizons: Arc::new(ArrayQueue::new(1)),
        });
        let parts = StageParts {
            prefix: format!("live{number}-"),
            memory: memory.clone(),
            receiver,
            intake: Box::<cpu::Intake>::default(),
            outputs: live::outputs(eal, &config, vec![pipeline], &host).unwrap(),
            steered: Steered::alone(&config),
            rx: rx_stages.collect(),
            when_full: WhenFull::Drop,
            tx: port.tx,
            tx_packets: sending.entries,
            copied_below: sending.copied_below,
            sources: vec![Source {
                mac: MacAddr([2, 0, 0, 0, 0, 1]),
                ip: [192, 0, 2, 1].into(),
                port: 49152,
            }],
            rate_factor: 0.0,
            idle: IdlePolicy::Share.into(),
        };
        let mut threads = Threads::new(eal, Abort::default());
        let stages = Stages::start(&mut threads, &config, parts).unwrap();
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
            _threads: threads,
        }
    }

    /// Hands one heap over; a full queue loses it.
    fn send(&mut self, queue: usize, pol: usize, timestamp: u64) {
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
    fn receive(&mut self) {
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
    fn wait(&mut self, happened: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !happened(self) {
            self.receive();
            assert!(begun.elapsed() < TOO_LONG, "{:?}", self.drops());
            std::thread::yield_now();
        }
    }

    fn seen(&self) -> u64 {
        self.stages
            .rx_stats()
            .iter()
            .map(|stats| stats.datagrams())
            .sum()
    }

    fn placed(&self) -> u64 {
        self.stages
            .rx_stats()
            .iter()
            .map(|stats| stats.placed())
            .sum()
    }

    fn drops(&self) -> BTreeMap<String, u64> {
        let mut drops = BTreeMap::new();
        for stats in self.stages.rx_stats() {
            stats.add_drops(&mut drops);
        }
        drops
    }

    /// Hands over whole chunks, heap by heap by turns over the first `queues` queues, each when there is room for it.
    fn send_chunks(&mut self, chunks: std::ops::Range<u64>, queues: usize) {
        self.send_some(chunks, queues, |_| true);
    }

    /// The same without the heaps at timestamps that do not come.
    fn send_some(
        &mut self,
        chunks: std::ops::Range<u64>,
        queues: usize,
        comes: impl Fn(u64) -> bool,
    ) {
        for chunk in chunks {
            self.wait(|rig| {
                let chunks = rig.stages.input_stats().chunks();
                rig.seen() == rig.handed && rig.memory.free_chunks() > 0 && chunks + 3 >= chunk
            });
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
    fn finish(mut self) -> (Result<Ended, StageError>, Batches) {
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

/// Timestamp to batch in wire layout.
type Batches = BTreeMap<u64, Vec<i8>>;

/// Timestamps of the batches whose whole input lies in `0 .. end` and of which `present` says that it is there.
fn whole_batches(config: &EngineConfig, end: u64, present: impl Fn(u64, u64) -> bool) -> Vec<u64> {
    let output = &config.outputs[0];
    let step = output.batch_samples() as u64;
    let union = step + (output.window_samples() - output.spectrum_samples()) as u64;
    let fits = (0..)
        .step_by(step as usize)
        .take_while(|t| t + union <= end);
    fits.filter(|&t| present(t, t + union)).collect()
}

fn assert_right(config: &EngineConfig, batches: &Batches) {
    let model = Model::new(&config.outputs[0], config.feng_id);
    let gains = [0, 1].map(|_| vec![Complex32::from(config.gain as f32); 64]);
    let (mut bytes, mut differ) = (0, 0);
    for (&timestamp, batch) in batches {
        let expected = model.batch(&sample, Timestamp(timestamp), &Default::default(), &gains);
        assert_eq!(batch.len(), expected.data.len());
        for (got, expected) in batch.iter().zip(&expected.data) {
            assert!(got.abs_diff(*expected) <= 1, "batch {timestamp}");
            bytes += 1;
            differ += usize::from(got != expected);
        }
    }
    assert!(differ * 1000 <= bytes, "{differ} of {bytes}");
}

#[test]
fn all_that_goes_in_comes_out_right() {
    let _alone = alone();
    for (rx_queues, tx_queues) in [(2, 1), (1, 2)] {
        let config = config();
        let mut rig = Rig::new(on_cpu(&config), rx_queues, tx_queues);
        rig.send_chunks(0..20, rx_queues);
        assert_eq!(
            (rig.placed(), rig.ring_full),
            (rig.handed, 0),
            "{:?}",
            rig.drops()
        );
        let stats = rig.stages.output_stats()[0].clone();
        let (ended, batches) = rig.finish();
        ended.unwrap();
        let expected = whole_batches(&config, 20 * CHUNK as u64, |_, _| true);
        assert_eq!(batches.keys().copied().collect::<Vec<_>>(), expected);
        assert_eq!(stats.report().heaps, 4 * expected.len() as u64);
        assert_right(&config, &batches);
    }
}

#[test]
fn an_idle_queue_holds_nobody_up() {
    let _alone = alone();
    let config = config();
    let mut rig = Rig::new(on_cpu(&config), 2, 1);
    rig.send_chunks(0..20, 1);
    // The last chunks stay open, and another waits for its successor; nothing was stopped yet.
    let come = whole_batches(&config, 15 * CHUNK as u64, |_, _| true);
    let heaps = 4 * come.len();
    rig.wait(|rig| rig.received.len() >= heaps);
    assert_eq!(rig.placed(), rig.handed, "{:?}", rig.drops());
    let (ended, batches) = rig.finish();
    ended.unwrap();
    assert_eq!(
        batches.len(),
        whole_batches(&config, 20 * CHUNK as u64, |_, _| true).len()
    );
    assert_right(&config, &batches);
}

/// Drivers may keep what was sent until they run short of room, here for 63 packets. Chunks that three of would fill it are read
/// where they are, and come back; others are copied: those of fewer packets, as a whole chunk has 32 and one that lacks
/// input may have a batch of 8, or all.
#[test]
fn packets_that_drivers_keep_hold_nobody_up() {
    const OUTPUT_CHUNK: u64 = 2 * CHUNK as u64;
    let _alone = alone();
    // Of every output chunk the first batch is whole, of which 18 heaps are the windows.
    let sparse = |t: u64| t % OUTPUT_CHUNK < 18 * HEAP as u64 || t.is_multiple_of(CHUNK as u64);
    for (entries, copied_below, all) in [
        (63, 21, true),
        (63, 21, false),
        (63, usize::MAX, true),
        (1023, 341, true),
    ] {
        let config = config();
        let sending = Sending {
            entries,
            copied_below,
            keeps: true,
        };
        let mut rig = Rig::sending(on_cpu(&config), 2, 1, sending);
        rig.send_some(0..20, 2, |timestamp| all || sparse(timestamp));
        let (ended, batches) = rig.finish();
        ended.unwrap();
        let expected = whole_batches(&config, 20 * CHUNK as u64, |from, _| {
            all || from.is_multiple_of(OUTPUT_CHUNK)
        });
        assert_eq!(batches.keys().copied().collect::<Vec<_>>(), expected);
        assert_right(&config, &batches);
    }
}

/// What a test's pipeline does with its first block.
#[derive(Clone, Copy)]
enum Then {
    Wait,
    Fail,
    Panic,
}

/// Makes nothing of its input, once the gate is open.
struct Gated {
    gate: Arc<AtomicBool>,
    then: Then,
    done: VecDeque<OutputChunk>,
}

impl Gated {
    fn new(then: Then) -> (Box<Self>, Arc<AtomicBool>) {
        let gate = Arc::new(AtomicBool::new(false));
        let done = VecDeque::new();
        (
            Box::new(Self {
                gate: gate.clone(),
                then,
                done,
            }),
            gate,
        )
    }
}

impl Pipeline for Gated {
    fn name(&self) -> String {
        "gated".into()
    }

    fn set_gains(&mut self, _pol: usize, _gains: &mut Gains) {}

    fn front(
        &mut self,
        _input: &InputView<'_>,
        _block: &Block<'_>,
        _chunk: &mut OutputSpan<'_>,
    ) -> Result<(), PipelineError> {
        while !self.gate.load(Ordering::Acquire) {
            match self.then {
                Then::Wait => std::thread::yield_now(),
                Then::Fail => {
                    return Err(PipelineError::new("the test", "unplugged", "plug it in"));
                }
                Then::Panic => panic!("the test is over"),
            }
        }
        Ok(())
    }

    fn back(&mut self, _batches: usize, chunk: OutputChunk) -> Result<(), PipelineError> {
        self.done.push_back(chunk);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<OutputChunk>, PipelineError> {
        Ok(self.done.pop_front())
    }

    fn lcores(&self) -> Vec<LcoreReport> {
        Vec::new()
    }
}

#[test]
fn overload_is_accounted_for_to_the_last_packet() {
    let _alone = alone();
    let (pipeline, gate) = Gated::new(Then::Wait);
    let mut rig = Rig::new(pipeline, 2, 1);
    let config = config();
    // The engine does not get on, and the digitiser does not care.
    let heaps = 20 * CHUNK / HEAP;
    // The first chunks come while there is room for both polarisations, whichever rx lcore is ahead later.
    let first = 2 * CHUNK / HEAP;
    for range in [0..first, first..heaps] {
        for heap in range {
            for pol in 0..2 {
                rig.send(pol, pol, (heap * HEAP) as u64);
            }
        }
        rig.wait(|rig| rig.seen() == rig.handed);
    }
    gate.store(true, Ordering::Release);
    let (drops, placed) = (rig.drops(), rig.placed());
    assert_eq!(rig.ring_full + rig.handed, 2 * heaps as u64);
    assert_eq!(placed + drops.values().sum::<u64>(), rig.handed);
    assert!(drops["no-free-chunk"] > 0, "{drops:?}");

    let (input, stats) = (
        rig.stages.input_stats().clone(),
        rig.stages.output_stats()[0].clone(),
    );
    let (ended, batches) = rig.finish();
    ended.unwrap();
    let pols = input.pols();
    assert_eq!(pols[0].heaps + pols[1].heaps, placed);
    let first = input.first_timestamp().unwrap();
    let present = pols.map(|pol| {
        let runs = pol.presence.into_iter();
        runs.flat_map(|(here, count)| std::iter::repeat_n(here, count as usize))
            .collect::<Vec<_>>()
    });
    let whole = |from: u64, to: u64| {
        let heaps = (from / HEAP as u64..to.div_ceil(HEAP as u64)).map(|h| h as usize);
        let offset = first as usize / HEAP;
        let here = |pol: &Vec<bool>, heap: usize| {
            heap.checked_sub(offset)
                .and_then(|heap| pol.get(heap))
                .copied()
                .unwrap_or(false)
        };
        heaps
            .into_iter()
            .all(|heap| present.iter().all(|pol| here(pol, heap)))
    };
    let expected = whole_batches(&config, (heaps * HEAP) as u64, whole);
    assert!(!expected.is_empty());
    assert_eq!(batches.keys().copied().collect::<Vec<_>>(), expected);
    assert_eq!(stats.report().heaps, 4 * expected.len() as u64);
}

#[test]
fn a_stage_that_fails_ends_all_and_is_named() {
    let _alone = alone();
    for (then, words) in [
        (
            Then::Fail,
            ["engine", "wideband", "the test failed", "plug it in"],
        ),
        (
            Then::Panic,
            ["lcore", "engine", "panicked", "the test is over"],
        ),
    ] {
        let (pipeline, _gate) = Gated::new(then);
        let mut rig = Rig::new(pipeline, 2, 1);
        rig.send_chunks(0..3, 2);
        for heap in 0..(CHUNK / HEAP) as u64 {
            for pol in 0..2 {
                rig.send(pol, pol, 3 * CHUNK as u64 + heap * HEAP as u64);
            }
        }
        // Without being stopped.
        rig.wait(|rig| rig.stages.running() == 0);
        let (ended, batches) = rig.finish();
        let error = ended.err().expect("the stage's error");
        let error = karoo::cli::Failure::device(error).to_string();
        for word in words {
            assert!(error.contains(word), "{error}");
        }
        assert!(batches.is_empty());
    }
}
