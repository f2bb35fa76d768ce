//! Samples per second of receivers.

use std::sync::{Arc, Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use karoo_modem::graph::{self, Copies};
use karoo_modem::rx::{Receiver, RxConfig};
use karoo_modem::waveform::{Modulation, SAMPLES_PER_SYMBOL};
use num_complex::Complex32;
use schemars::JsonSchema;
use serde::Serialize;

use super::threads::{Task, new_tasks, own_seconds, tasks};
use super::{ModemBenchError, Spread, stream};

/// Frames of the stream that is received again and again.
const FRAMES: usize = 16;

/// What takes frames to the threads that decode them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Threads take the frame that waits longest
    #[default]
    Pool,
    /// A dataflow graph, in which copies of a node take turns; two more threads read and write
    Graph,
}

impl Way {
    /// Name of the way on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Way::Pool => "pool",
            Way::Graph => "graph",
        }
    }
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct RxBench {
    /// What takes frames to the threads that decode them.
    pub way: Way,
    /// Modulation of the frames.
    pub modulation: Modulation,
    /// Duty cycle.
    pub duty: f64,
    /// Samples that come at once.
    pub block: usize,
    /// Receivers that run at the same time, each with samples of its own.
    pub instances: usize,
    /// The receiver.
    pub config: RxConfig,
    /// How long a round takes.
    pub time: Duration,
    /// Rounds.
    pub rounds: usize,
}

/// What came of it, in samples per second.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RxRow {
    /// What took frames to the threads that decode them.
    pub way: Way,
    /// Modulation of the frames.
    pub modulation: Modulation,
    /// Duty cycle.
    pub duty: f64,
    /// Threads that decode, beside the one that finds frames; 0 does both on one.
    pub decoders: usize,
    /// Samples that come at once.
    pub block: usize,
    /// Receivers that ran at the same time.
    pub instances: usize,
    /// Of all receivers, by the wall clock.
    pub wall: Spread,
    /// Of a second of CPU time, whichever thread had it; not of a graph, whose threads also spend
    /// it on waiting.
    pub core: Option<Spread>,
    /// Of the CPU time of the thread that finds frames; not of a graph.
    pub finder: Option<Spread>,
    /// Symbols per second of all receivers, by the wall clock.
    pub symbols: f64,
    /// Frames that came, in all rounds.
    pub frames: u64,
    /// Frames that did not come, or came with a wrong check field.
    pub lost: u64,
}

/// What one receiver did in a round.
struct Received {
    samples: u64,
    seconds: f64,
    cpu: Option<CpuSeconds>,
    frames: u64,
    lost: u64,
}

/// CPU time of the thread that finds frames, and of all threads.
struct CpuSeconds {
    finder: f64,
    all: f64,
}

/// A receiver, and the threads that it has of its own.
struct Prepared {
    receiver: Receiver,
    decoders: Vec<Task>,
}

impl Prepared {
    fn new(config: &RxConfig) -> Result<Prepared, ModemBenchError> {
        let before = tasks();
        let receiver = Receiver::new(config)?;
        let decoders = new_tasks(&before);
        Ok(Prepared { receiver, decoders })
    }
}

fn receive(bench: &RxBench, prepared: Prepared, samples: &[Complex32]) -> Received {
    let Prepared {
        mut receiver,
        decoders,
    } = prepared;
    let mut frames = Vec::new();
    let mut repeats = 0;
    let (begun, own) = (Instant::now(), own_seconds());
    loop {
        for block in samples.chunks(bench.block) {
            receiver.push(block, &mut frames);
        }
        frames.clear();
        repeats += 1;
        if begun.elapsed() >= bench.time {
            break;
        }
    }
    receiver.finish(&mut frames);
    let seconds = begun.elapsed().as_secs_f64();
    let finder = own_seconds() - own;
    let decoding: f64 = decoders.iter().map(|task| task.seconds()).sum();
    let sent = repeats * FRAMES as u64;
    let delivered = receiver.counts().delivered;
    Received {
        samples: repeats * samples.len() as u64,
        seconds,
        cpu: Some(CpuSeconds {
            finder,
            all: finder + decoding,
        }),
        frames: delivered,
        lost: sent.saturating_sub(delivered),
    }
}

/// The same by a graph, from when it reads its first sample.
fn receive_by_graph(
    bench: &RxBench,
    samples: &Arc<Vec<Complex32>>,
) -> Result<Received, ModemBenchError> {
    let begun = Arc::new(OnceLock::new());
    let (stream, begun_too) = (Arc::clone(samples), Arc::clone(&begun));
    let (size, time) = (bench.block, bench.time);
    let mut at = 0;
    let read = move |block: &mut Vec<Complex32>| {
        let begun: &Instant = begun_too.get_or_init(Instant::now);
        if at == stream.len() {
            if begun.elapsed() >= time {
                return Ok(0);
            }
            at = 0;
        }
        let count = size.min(stream.len() - at);
        block.extend_from_slice(&stream[at..at + count]);
        at += count;
        Ok(count)
    };
    let copies = Copies::Number(bench.config.threads);
    let counts = graph::receive(&bench.config, copies, read, |_| Ok(()))?.counts;
    let seconds = begun
        .get()
        .map_or(0.0, |begun| begun.elapsed().as_secs_f64());
    let sent = counts.samples / samples.len() as u64 * FRAMES as u64;
    Ok(Received {
        samples: counts.samples,
        seconds,
        cpu: None,
        frames: counts.delivered,
        lost: sent.saturating_sub(counts.delivered),
    })
}

/// One round: all receivers at the same time.
fn round(bench: &RxBench, samples: &Arc<Vec<Complex32>>) -> Result<Vec<Received>, ModemBenchError> {
    let start = Barrier::new(bench.instances);
    let prepare = |_| match bench.way {
        Way::Pool => Prepared::new(&bench.config).map(Some),
        Way::Graph => Ok(None),
    };
    // All before the first thread, so that each knows which threads are its own.
    let prepared: Vec<_> = (0..bench.instances)
        .map(prepare)
        .collect::<Result<_, _>>()?;
    thread::scope(|scope| {
        let start = &start;
        let run = |prepared: Option<Prepared>| {
            scope.spawn(move || {
                start.wait();
                match prepared {
                    Some(prepared) => Ok(receive(bench, prepared, samples)),
                    None => receive_by_graph(bench, samples),
                }
            })
        };
        let threads: Vec<_> = prepared.into_iter().map(run).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|done| done.map_err(|_| ModemBenchError::Thread)?)
            .collect()
    })
}

/// Measures receivers of frames that follow one another.
pub fn measure_receiver(bench: &RxBench) -> Result<RxRow, ModemBenchError> {
    bench.config.check()?;
    if bench.way == Way::Graph && bench.config.threads == 0 {
        return Err(ModemBenchError::NoDecoder);
    }
    let samples = Arc::new(stream(bench.modulation, bench.duty, FRAMES)?);
    let (mut wall, mut core, mut finder) = (Vec::new(), Vec::new(), Vec::new());
    let (mut frames, mut lost) = (0, 0);
    for _ in 0..bench.rounds {
        let received = round(bench, &samples)?;
        wall.push(
            received
                .iter()
                .map(|one| one.samples as f64 / one.seconds)
                .sum(),
        );
        let all: f64 = received.iter().map(|one| one.samples as f64).sum();
        let cpu: Option<Vec<&CpuSeconds>> = received.iter().map(|one| one.cpu.as_ref()).collect();
        if let Some(cpu) = cpu {
            finder.push(all / cpu.iter().map(|cpu| cpu.finder).sum::<f64>());
            core.push(all / cpu.iter().map(|cpu| cpu.all).sum::<f64>());
        }
        frames += received.iter().map(|one| one.frames).sum::<u64>();
        lost += received.iter().map(|one| one.lost).sum::<u64>();
    }
    let wall = Spread::of(wall);
    let some = |rates: Vec<f64>| (!rates.is_empty()).then(|| Spread::of(rates));
    Ok(RxRow {
        way: bench.way,
        modulation: bench.modulation,
        duty: bench.duty,
        decoders: bench.config.threads,
        block: bench.block,
        instances: bench.instances,
        core: some(core),
        finder: some(finder),
        symbols: wall.median / SAMPLES_PER_SYMBOL as f64,
        wall,
        frames,
        lost,
    })
}
