//! Transmitter, converter and receiver, each on threads of its own, with queues between them.
//!
//! The converter is one without a radio: it copies blocks, as fast as they come or at a rate.

use std::thread;
use std::time::{Duration, Instant};

use karoo_modem::rx::{Receiver, RxConfig};
use karoo_modem::tx::{Transmitter, blank_symbols};
use karoo_modem::waveform::{Frame, Modulation, SAMPLES_PER_SYMBOL};
use num_complex::Complex32;
use schemars::JsonSchema;
use serde::Serialize;

use super::link::{Sender, Taker, Transfer, link};
use super::threads::{own_seconds, tasks};
use super::{ModemBenchError, frames};

/// Blocks that a queue holds.
const SLOTS: usize = 120;
/// Frames that are sent in turn.
const FRAMES: usize = 16;
/// Looks at a queue before a thread lets others run.
const LOOKS: u32 = 1000;
/// How long a thread sleeps between looks, if the converter has a rate.
const NAP: Duration = Duration::from_micros(50);
/// Blank symbols behind the last frame, so that a receiver sees all of it.
const TAIL: usize = 1000;

/// What is measured.
#[derive(Clone, Debug)]
pub struct LoopBench {
    /// Modulation of the frames.
    pub modulation: Modulation,
    /// Duty cycle.
    pub duty: f64,
    /// Samples of a block.
    pub block: usize,
    /// How blocks pass.
    pub transfer: Transfer,
    /// Samples per second of the converter; as fast as they come without.
    pub rate: Option<f64>,
    /// The receiver.
    pub config: RxConfig,
    /// How long the transmitter sends.
    pub time: Duration,
    /// Whether threads take the time of what they do with each block.
    pub telemetry: bool,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LoopRow {
    /// Modulation of the frames.
    pub modulation: Modulation,
    /// Duty cycle.
    pub duty: f64,
    /// Samples of a block.
    pub block: usize,
    /// How blocks passed.
    pub transfer: Transfer,
    /// Samples per second that the converter was to keep.
    pub wanted_rate: Option<f64>,
    /// Whether threads took the time of what they did.
    pub telemetry: bool,
    /// Seconds until the last frame had come.
    pub seconds: f64,
    /// Samples per second.
    pub rate: f64,
    /// Symbols per second.
    pub symbols: f64,
    /// Bits of payload per second.
    pub goodput: f64,
    /// Frames that were sent.
    pub sent: u64,
    /// Frames that were delivered.
    pub delivered: u64,
    /// Frames that were not.
    pub lost: u64,
    /// Each thread; those that decode are one.
    pub threads: Vec<ThreadRow>,
}

/// A thread's time.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ThreadRow {
    /// What it does.
    pub name: String,
    /// CPU time by wall-clock time.
    pub cpu: f64,
    /// Shares of the wall-clock time, if taken.
    pub phases: Option<Phases>,
}

/// Shares of a thread's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Phases {
    /// Waiting for a block.
    pub wait_in: f64,
    /// Working.
    pub compute: f64,
    /// Waiting for room.
    pub wait_out: f64,
    /// Copying blocks into a queue.
    pub write: f64,
}

/// Takes the time, if that is wanted.
struct Watch {
    last: Option<Instant>,
    phases: Phases,
}

impl Watch {
    fn new(telemetry: bool) -> Watch {
        Watch {
            last: telemetry.then(Instant::now),
            phases: Phases::default(),
        }
    }

    /// Adds the time since the last call to a phase.
    fn to(&mut self, phase: fn(&mut Phases) -> &mut f64) {
        if let Some(last) = &mut self.last {
            let now = Instant::now();
            *phase(&mut self.phases) += (now - *last).as_secs_f64();
            *last = now;
        }
    }

    fn row(self, name: &str, own: f64, seconds: f64) -> ThreadRow {
        let Phases {
            wait_in,
            compute,
            wait_out,
            write,
        } = self.phases;
        let shares = Phases {
            wait_in: wait_in / seconds,
            compute: compute / seconds,
            wait_out: wait_out / seconds,
            write: write / seconds,
        };
        ThreadRow {
            name: name.to_owned(),
            cpu: own / seconds,
            phases: self.last.map(|_| shares),
        }
    }
}

/// Looks until something is so; with a rate, sleeps in between, so that CPU time is work.
fn wait(naps: bool, mut done: impl FnMut() -> bool) {
    for look in 0u32.. {
        if done() {
            return;
        }
        match (look < LOOKS, naps) {
            (true, _) => std::hint::spin_loop(),
            (false, false) => thread::yield_now(),
            (false, true) => thread::sleep(NAP),
        }
    }
}

/// A thread's watch, its CPU time and what it counted.
struct Done {
    watch: Watch,
    cpu: f64,
    count: u64,
}

/// Sends frames in turn until it is time; counts them.
fn transmit(bench: &LoopBench, frames: &[Frame], blanks: usize, mut to: Sender) -> Done {
    let (begun, own) = (Instant::now(), own_seconds());
    let mut watch = Watch::new(bench.telemetry);
    let mut transmitter = Transmitter::new(1.0);
    let (mut samples, mut count) = (Vec::new(), 0);
    let naps = bench.rate.is_some();
    let mut pass = |samples: &mut Vec<Complex32>, watch: &mut Watch| {
        let whole = samples.len() / bench.block * bench.block;
        for block in samples[..whole].chunks_exact(bench.block) {
            wait(naps, || to.has_room());
            watch.to(|phases| &mut phases.wait_out);
            to.write(block);
            watch.to(|phases| &mut phases.write);
        }
        samples.drain(..whole);
    };
    for frame in frames.iter().cycle() {
        transmitter.frame(frame, &mut samples);
        transmitter.blanks(blanks, &mut samples);
        watch.to(|phases| &mut phases.compute);
        pass(&mut samples, &mut watch);
        count += 1;
        if begun.elapsed() >= bench.time {
            break;
        }
    }
    transmitter.blanks(TAIL, &mut samples);
    let whole = samples.len().next_multiple_of(bench.block);
    samples.resize(whole, Complex32::default());
    pass(&mut samples, &mut watch);
    let cpu = own_seconds() - own;
    Done { watch, cpu, count }
}

/// Copies blocks from one queue to the other; counts samples.
fn convert(bench: &LoopBench, mut from: Taker, mut to: Sender) -> Done {
    let (begun, own) = (Instant::now(), own_seconds());
    let mut watch = Watch::new(bench.telemetry);
    let mut count = 0;
    let naps = bench.rate.is_some();
    loop {
        let mut ended = false;
        wait(naps, || {
            ended = from.has_ended();
            ended || from.has_block()
        });
        watch.to(|phases| &mut phases.wait_in);
        if ended {
            break;
        }
        wait(naps, || to.has_room());
        if let Some(rate) = bench.rate {
            let due = begun + Duration::from_secs_f64(count as f64 / rate);
            wait(naps, || Instant::now() >= due);
        }
        watch.to(|phases| &mut phases.wait_out);
        from.read(|block| {
            to.write(block);
        });
        watch.to(|phases| &mut phases.write);
        count += bench.block as u64;
    }
    let cpu = own_seconds() - own;
    Done { watch, cpu, count }
}

/// Receives; counts frames that were delivered.
fn receive(bench: &LoopBench, receiver: &mut Receiver, mut from: Taker) -> Done {
    let own = own_seconds();
    let mut watch = Watch::new(bench.telemetry);
    let mut frames = Vec::new();
    let naps = bench.rate.is_some();
    loop {
        let mut ended = false;
        wait(naps, || {
            ended = from.has_ended();
            ended || from.has_block()
        });
        watch.to(|phases| &mut phases.wait_in);
        if ended {
            break;
        }
        from.read(|block| receiver.push(block, &mut frames));
        frames.clear();
        watch.to(|phases| &mut phases.compute);
    }
    receiver.finish(&mut frames);
    watch.to(|phases| &mut phases.compute);
    let cpu = own_seconds() - own;
    let count = receiver.counts().delivered;
    Done { watch, cpu, count }
}

/// Runs all three.
pub fn measure_loop(bench: &LoopBench) -> Result<LoopRow, ModemBenchError> {
    bench.config.check()?;
    let blanks = blank_symbols(bench.duty)? as usize;
    let frames = frames(bench.modulation, FRAMES)?;
    let queue = || link(bench.transfer, SLOTS, bench.block).map_err(ModemBenchError::Queue);
    let ((to_converter, of_transmitter), (to_receiver, of_converter)) = (queue()?, queue()?);
    let before = tasks();
    let mut receiver = Receiver::new(&bench.config)?;
    let mut decoders = tasks();
    decoders.retain(|task| !before.contains(task));
    let begun = Instant::now();
    let joined = thread::scope(|scope| {
        let threads = [
            scope.spawn(|| transmit(bench, &frames, blanks, to_converter)),
            scope.spawn(move || convert(bench, of_transmitter, to_receiver)),
        ];
        let received = receive(bench, &mut receiver, of_converter);
        let seconds = begun.elapsed().as_secs_f64();
        let decoding: f64 = decoders.iter().map(|task| task.seconds()).sum();
        let joined = threads.map(|thread| thread.join());
        (joined, received, seconds, decoding)
    });
    let ([Ok(sent), Ok(converted)], received, seconds, decoding) = joined else {
        return Err(ModemBenchError::Thread);
    };
    let (count, samples, delivered) = (sent.count, converted.count, received.count);
    let mut threads = vec![
        sent.watch.row("transmitter", sent.cpu, seconds),
        converted.watch.row("converter", converted.cpu, seconds),
        received.watch.row("receiver", received.cpu, seconds),
    ];
    if bench.config.threads > 0 {
        threads.push(ThreadRow {
            name: "decoders".to_owned(),
            cpu: decoding / seconds,
            phases: None,
        });
    }
    let rate = samples as f64 / seconds;
    let payload = 8.0 * bench.modulation.payload_bytes() as f64;
    Ok(LoopRow {
        modulation: bench.modulation,
        duty: bench.duty,
        block: bench.block,
        transfer: bench.transfer,
        wanted_rate: bench.rate,
        telemetry: bench.telemetry,
        seconds,
        rate,
        symbols: rate / SAMPLES_PER_SYMBOL as f64,
        goodput: delivered as f64 * payload / seconds,
        sent: count,
        delivered,
        lost: count.saturating_sub(delivered),
        threads,
    })
}
