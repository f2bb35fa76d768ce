//! A whole engine in this process, between samples and batches.

use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use dpdk::Eal;
use dsp::unpack::pack;
use dsp::{Dither, SampleBits};
use ground::stats::{PhaseTimer, PhaseTimes};
use ground::{IdlePolicy, SampleClock, StopFlag};
use karoo::assembly::{BackendKind, BackendRequest, Compute, ComputeError, open_backend};
use karoo::config::{EngineConfig, OutputConfig, RecvConfig, SendConfig};
use karoo::cpu::Workers;
use karoo::engine::steer::{ControlHandle, EngineEvent};
use karoo::engine::{
    Engine, EngineParts, Finished, InputStatistics, OutputChunk, OutputStats, RequestStats,
};
use karoo::gpu::{Fft, KernelChoice, MemoryChoice, Tune};
use karoo::memory::{
    BAR_SHARE, ChunkAllocator, ChunkMemory, FrozenChunk, HostAllocator, MemoryError, MemoryKind,
    Purpose, STATISTICS_EVERY, Store, is_for_statistics,
};
use karoo::recv::window::{ChunkWindow, LocatedChunk, WindowLane};
use karoo::recv::{END_OF_STREAM, InputStats, ReceiveMemory, ReceiveOptions, receive_memory};

use crate::support;

/// The same as in the library's unit tests.
#[path = "../../src/memory/stand_in.rs"]
pub mod stand_in;

pub const RATE: f64 = 1712e6;

/// What computes here: the CPU, and a GPU if there is one.
pub fn backends() -> Vec<BackendKind> {
    let gpu = support::device().map(|_| BackendKind::Cuda);
    [BackendKind::Cpu].into_iter().chain(gpu).collect()
}

/// An engine with small chunks: one batch of output, and about as much of input.
pub fn config(channels: usize, taps: usize, spectra_per_heap: usize) -> EngineConfig {
    let output = support::output(channels, taps, spectra_per_heap, Dither::None);
    let batch = output.batch_samples();
    let tail = output.window_samples() + MAX_DELAY_DIFF;
    let config = EngineConfig {
        clock: SampleClock {
            adc_sample_rate: RATE,
            sync_time: 1632561921.0,
        },
        feng_id: 42,
        array_size: 80,
        recv: RecvConfig {
            packet_samples: 4096,
            sample_bits: SampleBits::new(10).unwrap(),
            chunk_samples: tail.max(batch).next_multiple_of(4096),
            mask_timestamp: false,
        },
        send: SendConfig {
            packet_payload: 8192,
            chunk_jones: output.jones_per_batch,
            ttl: 4,
        },
        max_delay_diff: MAX_DELAY_DIFF,
        gain: 1.0,
        outputs: vec![output],
        statistics_period: 0.0,
    };
    config.validate().unwrap();
    config
}

pub const MAX_DELAY_DIFF: usize = 16384;

/// The same with the default gain at which a tone of this amplitude at a channel's centre has this
/// magnitude.
pub fn with_tone_gain(mut config: EngineConfig, amplitude: f64, magnitude: f64) -> EngineConfig {
    config.gain = magnitude / (amplitude / 2.0 * weights_sum(&config.outputs[0]));
    config
}

/// The same with chunks of input and output that are multiples of those of `config`.
pub fn with_chunks(config: &EngineConfig, input: usize, output: usize) -> EngineConfig {
    let mut config = config.clone();
    config.recv.chunk_samples *= input;
    config.send.chunk_jones *= output;
    config.validate().unwrap();
    config
}

/// Σ of the prototype filter: the response to a constant.
pub fn weights_sum(output: &OutputConfig) -> f64 {
    let step = output.spectrum_samples();
    let weights = dsp::pfb::weights(step, output.taps, output.w_cutoff, output.window_function);
    weights.into_iter().map(f64::from).sum()
}

/// What an engine receives.
pub struct Feed<'a> {
    /// By polarisation and timestamp.
    pub samples: &'a (dyn Fn(usize, u64) -> i32 + Sync),
    /// Whether the heap at this timestamp comes.
    pub present: &'a (dyn Fn(usize, u64) -> bool + Sync),
    /// What the digitiser counted in the heap at this timestamp.
    pub saturated: &'a (dyn Fn(usize, u64) -> u16 + Sync),
    /// Whether the chunk that begins at this timestamp still waits.
    pub waits: &'a (dyn Fn(u64) -> bool + Sync),
    /// Ids of its chunks; those without heaps do not come at all.
    pub chunks: Range<u64>,
}

impl<'a> Feed<'a> {
    /// All heaps of these chunks.
    pub fn new(samples: &'a (dyn Fn(usize, u64) -> i32 + Sync), chunks: Range<u64>) -> Self {
        Self {
            samples,
            present: &|_, _| true,
            saturated: &|_, _| 0,
            waits: &|_| false,
            chunks,
        }
    }

    fn fill(&self, config: &RecvConfig, memory: &Arc<ReceiveMemory>, abort: &StopFlag) {
        let heap_samples = config.packet_samples as u64;
        let heaps = config.chunk_heaps() as u64;
        let mut lane = WindowLane::new(Shared(memory.clone()), 0);
        for id in self.chunks.clone() {
            let first = id * config.chunk_samples as u64;
            let places = (0..2).flat_map(|pol| (0..heaps).map(move |heap| (pol, heap)));
            let comes =
                |&(pol, heap): &(usize, u64)| (self.present)(pol, first + heap * heap_samples);
            let places: Vec<_> = places.filter(comes).collect();
            if places.is_empty() {
                continue;
            }
            while (self.waits)(first) && !abort.is_set() {
                std::thread::yield_now();
            }
            let buffer = loop {
                lane.begin();
                let located = lane.locate(id, || memory.take());
                lane.end();
                match located {
                    LocatedChunk::Buffer(buffer) => break buffer,
                    _ if abort.is_set() => return,
                    _ => std::thread::yield_now(),
                }
            };
            for (pol, heap) in places {
                let start = first + heap * heap_samples;
                let samples = (start..start + heap_samples).map(|t| (self.samples)(pol, t));
                let payload = pack(samples, config.sample_bits);
                let mut slot = memory.chunk(buffer).claim(pol, heap as usize).unwrap();
                // As rx lcores do.
                if memory.keeps_copies() && is_for_statistics(id * heaps + heap) {
                    slot = slot.copied_for_statistics();
                }
                slot.write(&payload, (self.saturated)(pol, start));
            }
        }
        lane.begin();
        lane.raise(END_OF_STREAM);
        lane.end();
    }
}

struct Shared(Arc<ReceiveMemory>);

impl Deref for Shared {
    type Target = ChunkWindow;
    fn deref(&self) -> &ChunkWindow {
        self.0.window()
    }
}

/// What came of a run.
pub struct Outcome {
    /// Per output, the batches that were sent, by timestamp.
    pub batches: Vec<BTreeMap<u64, Vec<i8>>>,
    /// Per output, start and batches of each chunk.
    pub chunks: Vec<Vec<(u64, usize)>>,
    pub events: Vec<EngineEvent>,
    pub input: Arc<InputStats>,
    /// The last statistics of the input.
    pub input_statistics: Option<Arc<InputStatistics>>,
    pub outputs: Vec<Arc<OutputStats>>,
    pub requests: RequestStats,
}

/// Runs an engine of `config` to the end of `feed`. `steer` asks before the start, `seen` at every
/// event.
pub fn run(
    config: &EngineConfig,
    backend: BackendKind,
    feed: &Feed<'_>,
    steer: impl FnOnce(&ControlHandle),
    seen: impl FnMut(&ControlHandle, &EngineEvent),
) -> Outcome {
    let compute = compute(config, backend, MemoryChoice::Auto).unwrap();
    run_on(config, compute, feed, steer, seen)
}

/// What computes an engine.
pub fn compute(
    config: &EngineConfig,
    backend: BackendKind,
    memory: MemoryChoice,
) -> Result<Compute, ComputeError> {
    let wanted = BackendRequest {
        backend,
        gpu: None,
        memory,
        bar_share: BAR_SHARE,
        spare_chunks: 0,
        kernels: KernelChoice {
            fft: Fft::default(),
            tune: Tune::Off,
        },
        live: false,
    };
    let engines = std::slice::from_ref(config);
    let mut taken = open_backend(&wanted, engines, || Workers::unpinned(2))?;
    Ok(taken.engines.remove(0))
}

/// The same as [`run`] with what computes.
pub fn run_on(
    config: &EngineConfig,
    compute: Compute,
    feed: &Feed<'_>,
    steer: impl FnOnce(&ControlHandle),
    mut seen: impl FnMut(&ControlHandle, &EngineEvent),
) -> Outcome {
    let eal = Eal::for_tests();
    let options = ReceiveOptions {
        tail_samples: config.tail_samples(),
        takes_statistics: config.statistics_samples().is_some(),
        ..ReceiveOptions::for_lanes(1)
    };
    let (memory, collector) = receive_memory(&config.recv, options, &*compute.recv_memory).unwrap();
    let input = collector.stats();
    let pipelines = compute.backend.pipelines;
    let outputs = karoo::assembly::outputs(eal, config, pipelines, &*compute.send_memory).unwrap();
    let stats: Vec<_> = outputs.iter().map(|output| output.stats.clone()).collect();
    let (steering, steered) = ControlHandle::new(config, 100_000);
    let published = steered.published.clone();
    let chunks: usize = outputs.iter().map(|output| output.pool.capacity()).sum();
    let (queue, abort) = (Arc::new(ArrayQueue::new(chunks + 1)), StopFlag::default());
    let parts = EngineParts {
        collector,
        intake: compute.backend.intake,
        outputs,
        steered,
        finished: queue.clone(),
        idle: IdlePolicy::Share,
        abort: abort.clone(),
    };
    let mut engine = Engine::new(config, parts);
    steer(&steering);
    let mut outcome = Outcome {
        batches: vec![BTreeMap::new(); stats.len()],
        chunks: vec![Vec::new(); stats.len()],
        events: Vec::new(),
        input,
        input_statistics: None,
        outputs: stats,
        requests: RequestStats::default(),
    };
    std::thread::scope(|scope| {
        // None waits for one that has panicked.
        let _guard = abort.on_panic();
        let of_engine = abort.clone();
        let engine = scope.spawn(move || {
            let _guard = of_engine.on_panic();
            let times = PhaseTimes::new("engine", None);
            let outcome = engine.run(&mut PhaseTimer::start(times));
            outcome.map(|()| engine.request_stats())
        });
        scope.spawn(|| {
            let _guard = abort.on_panic();
            feed.fill(&config.recv, &memory, &abort);
        });
        loop {
            while let Some(event) = published.next_event() {
                seen(&steering, &event);
                outcome.events.push(event);
            }
            match queue.pop() {
                Some(Finished::Chunk(output, chunk)) => {
                    keep(&mut outcome, &config.outputs[output], output, &chunk);
                }
                Some(Finished::End) => break,
                None if engine.is_finished() && queue.is_empty() => break,
                None => std::thread::yield_now(),
            }
        }
        outcome.requests = engine.join().unwrap().expect("the engine does not fail");
    });
    outcome
        .events
        .extend(std::iter::from_fn(|| published.next_event()));
    assert_eq!(published.overwritten(), 0);
    outcome.input_statistics = published.statistics().input();
    outcome
}

/// Runs an engine over heaps of which statistics take some, and holds its statistics of the input
/// against their samples.
pub fn check_input_statistics(compute: impl FnOnce(&EngineConfig) -> Option<Compute>) {
    let mut config = config(64, 4, 256);
    config.statistics_period = 1.0;
    let Some(compute) = compute(&config) else {
        return;
    };
    let what = compute.recv_memory.kind();
    let heap = config.recv.packet_samples as u64;
    // Of another level in each heap nearby.
    let samples = |pol: usize, t: u64| {
        let x = (t as i32).wrapping_mul(40503 + 2 * pol as i32);
        (x << 22 >> 22) / (1 + (t / heap % 7) as i32)
    };
    let heaps = config.recv.chunk_heaps() as u64;
    let chunks = (2 * STATISTICS_EVERY + 1).div_ceil(heaps);
    // One of them comes in one polarisation.
    let present = |pol: usize, t: u64| pol == 1 || t / heap != STATISTICS_EVERY;
    let feed = Feed {
        present: &present,
        ..Feed::new(&samples, 0..chunks)
    };
    let outcome = run_on(&config, compute, &feed, |_| (), |_, _| ());
    let got = outcome.input_statistics.expect("statistics of the input");
    for pol in 0..2 {
        let numbers = (0..chunks * heaps).step_by(STATISTICS_EVERY as usize);
        let there = numbers.map(|n| n * heap).filter(|&t| present(pol, t));
        let mut expected = vec![0; 1024];
        for t in there.flat_map(|t| t..t + heap) {
            expected[(samples(pol, t) + 512) as usize] += 1;
        }
        assert!(got.histogram[pol] == expected, "{what}, polarisation {pol}");
        let first = (0..heap).map(|t| samples(pol, t) as i16);
        assert!(got.snapshot[pol].iter().copied().eq(first), "{what}");
    }
    assert!(!outcome.batches[0].is_empty());
}

fn keep(outcome: &mut Outcome, config: &OutputConfig, output: usize, chunk: &OutputChunk) {
    let start = chunk.start().0;
    outcome.chunks[output].push((start, chunk.batches()));
    for batch in (0..chunk.batches()).filter(|&batch| chunk.present(batch)) {
        let timestamp = start + (batch * config.batch_samples()) as u64;
        let bytes = chunk.batch(batch).iter().map(|&byte| byte as i8).collect();
        let before = outcome.batches[output].insert(timestamp, bytes);
        assert!(before.is_none(), "batch {timestamp} twice");
    }
}
