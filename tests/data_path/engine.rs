//! The engine over backends that are done when they like, or fail.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam::queue::ArrayQueue;
use dpdk::{Eal, ExtPool};
use dsp::{Dither, SampleBits};
use ground::stats::{PhaseTimer, PhaseTimes, ThreadReport};
use ground::{IdlePolicy, SampleClock, StopFlag, Timestamp};
use karoo::config::{EngineConfig, OutputConfig, RecvConfig, SendConfig};
use karoo::cpu;
use karoo::engine::steer::{Gains, RequestQueues};
use karoo::engine::{
    Backend, Block, Engine, EngineError, EngineParts, Finished, Intake, OutputChunk, OutputParts,
    OutputStats, Pipeline, PipelineError,
};
use karoo::memory::{FrozenChunk, HostAllocator, OutputMemory, OutputSpan, SampleView};
use karoo::recv::window::{ChunkWindow, LocatedChunk, WindowLane};
use karoo::recv::{END_OF_STREAM, ReceiveMemory, ReceiveOptions, receive_memory};

use crate::support::output;

const HEAP: usize = 256;
const CHUNK: usize = 8192;

fn config() -> EngineConfig {
    let named = |name: &str, channels| OutputConfig {
        name: name.into(),
        dst: vec![format!("239.1.2.{channels}:7148").parse().unwrap()],
        ..output(channels, 4, 32, Dither::None)
    };
    let config = EngineConfig {
        clock: SampleClock {
            adc_sample_rate: 1e9,
            sync_time: 0.0,
        },
        feng_id: 0,
        array_size: 1,
        recv: RecvConfig {
            packet_samples: HEAP,
            sample_bits: SampleBits::new(8).unwrap(),
            chunk_samples: CHUNK,
            mask_timestamp: false,
        },
        send: SendConfig {
            packet_payload: 1024,
            chunk_jones: 4096,
            ttl: 4,
        },
        max_delay_diff: 0,
        gain: 1.0,
        outputs: vec![named("coarse", 64), named("fine", 128)],
        statistics_period: 0.0,
    };
    config.validate().unwrap();
    config
}

/// Done `polls` polls after it was asked first, or failed.
struct Late {
    polls: usize,
    left: usize,
    fails: bool,
    under_way: VecDeque<OutputChunk>,
    /// Polls while something was under way.
    asked: Arc<AtomicUsize>,
    /// The device that it computes on, if there is one.
    device: Option<&'static str>,
}

impl Late {
    fn new(polls: usize, fails: bool) -> Box<Self> {
        Box::new(Self {
            polls,
            left: polls,
            fails,
            under_way: VecDeque::new(),
            asked: Arc::default(),
            device: None,
        })
    }
}

impl Pipeline for Late {
    fn name(&self) -> String {
        format!("late by {}", self.polls)
    }

    fn set_gains(&mut self, _pol: usize, _gains: &mut Gains) {}

    fn run_frontend(
        &mut self,
        _input: &SampleView<'_>,
        _block: &Block<'_>,
        _chunk: &mut OutputSpan<'_>,
    ) -> Result<(), PipelineError> {
        Ok(())
    }

    fn finish_chunk(&mut self, _batches: usize, chunk: OutputChunk) -> Result<(), PipelineError> {
        self.under_way.push_back(chunk);
        Ok(())
    }

    fn poll_finished(&mut self) -> Result<Option<OutputChunk>, PipelineError> {
        if !self.under_way.is_empty() {
            self.asked.fetch_add(1, Ordering::Relaxed);
        }
        if self.left > 0 {
            self.left -= 1;
            return Ok(None);
        }
        self.left = self.polls;
        match self.fails {
            true => Err(PipelineError::new("the test", "unplugged", "plug it in")),
            false => Ok(self.under_way.pop_front()),
        }
    }

    fn busy(&self) -> Option<(String, Arc<AtomicU64>)> {
        let device = self.device?;
        Some((device.to_owned(), Arc::default()))
    }

    fn thread_reports(&self) -> Vec<ThreadReport> {
        let name = format!("worker of {}", self.polls);
        vec![ThreadReport {
            name,
            ..ThreadReport::default()
        }]
    }
}

/// Gives a chunk back the third time that it is asked after the chunk was released.
#[derive(Default)]
struct Slow {
    chunks: cpu::CpuIntake,
    asked: usize,
}

impl Intake for Slow {
    fn load(&mut self, chunk: FrozenChunk, follows: bool) -> Result<(), PipelineError> {
        self.chunks.load(chunk, follows)
    }

    fn view(
        &mut self,
        start: Timestamp,
        samples: usize,
    ) -> Result<Option<SampleView<'_>>, PipelineError> {
        self.chunks.view(start, samples)
    }

    fn release(&mut self) -> Result<(), PipelineError> {
        self.asked = 0;
        self.chunks.release()
    }

    fn poll_released(&mut self) -> Result<Option<FrozenChunk>, PipelineError> {
        self.asked += 1;
        match self.asked % 3 {
            0 => self.chunks.poll_released(),
            _ => Ok(None),
        }
    }
}

struct Shared(Arc<ReceiveMemory>);

impl Deref for Shared {
    type Target = ChunkWindow;
    fn deref(&self) -> &ChunkWindow {
        self.0.window()
    }
}

/// Fills more chunks than there are buffers; chunk 3 never comes.
fn receive(memory: &Arc<ReceiveMemory>, abort: &StopFlag) {
    let mut lane = WindowLane::new(Shared(memory.clone()), 0);
    for id in (0..3).chain(4..13) {
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
        let chunk = memory.chunk(buffer);
        for place in 0..2 * CHUNK / HEAP {
            let slot = chunk.claim(place % 2, place / 2).unwrap();
            slot.write(&[1; HEAP], 0);
        }
    }
    lane.begin();
    lane.raise(END_OF_STREAM);
    lane.end();
}

/// An engine, and what is at its ends.
struct Parts {
    engine: Engine,
    memory: Arc<ReceiveMemory>,
    stats: Vec<Arc<OutputStats>>,
    queue: Arc<ArrayQueue<Finished>>,
    abort: StopFlag,
}

/// What came of a run.
struct Run {
    /// Output, timestamp and batches of each chunk.
    handed: Vec<(usize, u64, usize)>,
    /// Whether the end was handed over.
    ended: bool,
    outcome: Result<(), EngineError>,
}

/// An engine with these pipelines.
fn parts(pipelines: [Box<Late>; 2]) -> Parts {
    let (eal, config) = (Eal::for_tests(), config());
    let host = HostAllocator::default();
    let options = ReceiveOptions {
        tail_samples: config.tail_samples(),
        ..ReceiveOptions::for_lanes(1)
    };
    let (memory, collector) = receive_memory(&config.recv, options, &host).unwrap();
    let outputs = config.outputs.iter().zip(pipelines);
    let outputs = outputs.map(|(output, pipeline)| {
        // One chunk under construction and one under way: the engine has to wait for chunks.
        let chunks = (0..2).map(|_| {
            let batches = config.send.chunk_jones / output.jones_per_batch;
            OutputMemory::new(batches, output.batch_bytes(), &host).unwrap()
        });
        let stats = OutputStats::new(&output.name);
        stats.expect_tx_lcores(1);
        OutputParts {
            config: output.clone(),
            pipeline,
            pool: ExtPool::new(eal, chunks),
            stats: Arc::new(stats),
            observer: None,
            keeps_delays: false,
        }
    });
    let outputs: Vec<_> = outputs.collect();
    let stats: Vec<_> = outputs.iter().map(|output| output.stats.clone()).collect();
    let (queue, abort) = (Arc::new(ArrayQueue::new(5)), StopFlag::default());
    let parts = EngineParts {
        collector,
        intake: Box::<Slow>::default(),
        outputs,
        steered: RequestQueues::alone(&config),
        finished: queue.clone(),
        idle: IdlePolicy::Share,
        abort: abort.clone(),
    };
    Parts {
        engine: Engine::new(&config, parts),
        memory,
        stats,
        queue,
        abort,
    }
}

/// An engine with these pipelines over all that [`receive`] fills.
fn run(pipelines: [Box<Late>; 2]) -> Run {
    let Parts {
        mut engine,
        memory,
        stats,
        queue,
        abort,
    } = parts(pipelines);
    let of_engine = abort.clone();
    let engine = std::thread::spawn(move || {
        let _guard = of_engine.on_panic();
        let clock = PhaseTimes::new("engine", None);
        engine.run(&mut PhaseTimer::start(clock))
    });

    let stop = abort.clone();
    let receiver = std::thread::spawn(move || receive(&memory, &stop));
    let mut handed = Vec::new();
    let mut left = [0; 2];
    let ended = loop {
        match queue.pop() {
            // Dropped, it returns to its pool, as when it has been sent.
            Some(Finished::Chunk(output, chunk)) => {
                handed.push((output, chunk.start().0, chunk.batches()));
                // Counted when it has left, not before.
                assert!(stats[output].counts().batches <= left[output]);
                left[output] += (0..chunk.batches()).filter(|&b| chunk.present(b)).count() as u64;
                stats[output].note_departure(0);
            }
            Some(Finished::End) => break true,
            None if engine.is_finished() && queue.is_empty() => break false,
            None => std::thread::yield_now(),
        }
    };
    receiver.join().unwrap();
    let outcome = engine.join().unwrap();
    assert_eq!(outcome.is_err(), abort.is_set());
    if ended {
        assert_eq!(
            [0, 1].map(|output: usize| stats[output].counts().batches),
            left
        );
    }
    Run {
        handed,
        ended,
        outcome,
    }
}

/// Chunks are handed over in the order in which they were issued, whichever output's is done first.
#[test]
fn order_does_not_depend_on_when_chunks_are_done() {
    let expected = run([Late::new(0, false), Late::new(0, false)]);
    assert!(expected.ended && expected.outcome.is_ok());
    let expected = expected.handed;
    let starts = |output: usize| expected.iter().filter(move |(of, ..)| *of == output);
    // A receive chunk has two batches of the one and one of the other; the last before a gap or the
    // end lacks samples.
    for (output, whole) in [(0, 5 + 17), (1, 2 + 8)] {
        assert!(starts(output).is_sorted_by_key(|(_, start, _)| *start));
        let batches: usize = starts(output).map(|(.., batches)| *batches).sum();
        assert_eq!(batches, whole, "{expected:?}");
    }
    for (slow, fast) in [(7, 0), (0, 7), (40, 3)] {
        let got = run([Late::new(slow, false), Late::new(fast, false)]);
        assert!(got.ended && got.outcome.is_ok());
        assert_eq!(got.handed, expected);
    }
}

/// A failure that shows late ends the engine, names the output, and keeps back what was under way.
#[test]
fn a_late_failure_ends_the_engine() {
    let got = run([Late::new(0, false), Late::new(3, true)]);
    let error = karoo::cli::Failure::device(got.outcome.unwrap_err()).to_string();
    for word in [
        "engine, output 'fine'",
        "the test failed",
        "plug it in",
        "unplugged",
    ] {
        assert!(error.contains(word), "{error}");
    }
    assert!(!got.ended && got.handed.iter().all(|(output, ..)| *output == 0));
}

#[test]
fn an_engine_tells_what_computes() {
    let same = parts([Late::new(7, false), Late::new(7, false)]).engine;
    assert_eq!(same.backend(), "late by 7");
    let engine = parts([Late::new(7, false), Late::new(0, false)]).engine;
    assert_eq!(engine.backend(), "late by 7 and late by 0");
    let names: Vec<_> = engine
        .thread_reports()
        .into_iter()
        .map(|of| of.name)
        .collect();
    assert_eq!(names, ["worker of 7", "worker of 0"]);
}

#[test]
fn a_backend_tells_which_devices_are_busy_for_it() {
    let busy = |pipelines| {
        let intake = Box::<Slow>::default();
        let backend = Backend { intake, pipelines };
        let devices = backend.busy().into_iter().map(|(device, _)| device);
        devices.collect::<Vec<_>>()
    };
    let on = |device| -> Box<dyn Pipeline> {
        let mut pipeline = Late::new(0, false);
        pipeline.device = device;
        pipeline
    };
    assert_eq!(
        busy(vec![on(Some("one")), on(None), on(Some("two"))]),
        ["one", "two"]
    );
    // The CPU is not told as a device.
    let config = config();
    let workers = Arc::new(cpu::Workers::unpinned(1).unwrap());
    let backend = cpu::backend(&config, &workers);
    assert!(backend.busy().is_empty() && busy(backend.pipelines).is_empty());
    assert!(backend.intake.thread_reports().is_empty());
}

/// An engine without input turns. One that waits for a backend does not, as far as a watchdog sees.
#[test]
fn a_backend_that_is_stuck_shows() {
    const TOO_LONG: Duration = Duration::from_secs(60);
    const POLLS: usize = 100;
    let stuck = Late::new(usize::MAX, false);
    let asked = stuck.asked.clone();
    let Parts {
        mut engine,
        memory,
        abort,
        ..
    } = parts([stuck, Late::new(usize::MAX, false)]);
    let times = PhaseTimes::new("engine", None);
    let turns = || times.progress().unwrap_or(0);
    let begun = Instant::now();
    let comes = |is: &dyn Fn() -> bool| {
        while !is() && begun.elapsed() < TOO_LONG {
            std::thread::yield_now();
        }
        is()
    };
    let [idle, polled, stands] = std::thread::scope(|scope| {
        let _guard = abort.on_panic();
        let mut clock = PhaseTimer::start(times.clone());
        let engine = scope.spawn(move || engine.run(&mut clock));
        let idle = comes(&|| turns() > POLLS as u64);
        let stop = abort.clone();
        scope.spawn(move || receive(&memory, &stop));
        let polled = comes(&|| asked.load(Ordering::Relaxed) > POLLS);
        let before = (turns(), asked.load(Ordering::Relaxed));
        let polled = polled && comes(&|| asked.load(Ordering::Relaxed) > before.1 + POLLS);
        let stands = turns() == before.0;
        abort.set();
        assert!(engine.join().unwrap().is_ok());
        [idle, polled, stands]
    });
    assert!(idle && polled && stands, "{idle}, {polled}, {stands}");
}
