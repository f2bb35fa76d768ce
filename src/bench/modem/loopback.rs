//! Transmitter, converter and receiver, each on threads of its own, with queues between them.
//!
//! The converter is one without a radio: it copies blocks, as fast as they come or at a rate.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ground::stats::{Phase, PhaseTimer, PhaseTimes};
use ground::{TscClock, tsc};
use karoo_modem::rx::{Receiver, RxConfig};
use karoo_modem::tx::{Transmitter, blank_symbols};
use karoo_modem::waveform::{FRAME_SYMBOLS, Frame, Modulation, SAMPLES_PER_SYMBOL};
use num_complex::Complex32;
use schemars::JsonSchema;
use serde::Serialize;

use super::link::{Sender, Taker, Transfer, link};
use super::threads::{new_tasks, own_seconds, tasks};
use super::{ModemBenchError, check_rate, frames};

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

/// What a thread's times are booked under: taken by all, if telemetry is on.
fn mark(timer: &mut Option<PhaseTimer>, phase: Phase) {
    if let Some(timer) = timer {
        timer.mark(phase);
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

/// Waits for a block; false at the end.
fn next_block(from: &mut Taker, naps: bool) -> bool {
    let mut ended = false;
    wait(naps, || {
        ended = from.has_ended();
        ended || from.has_block()
    });
    !ended
}

/// A thread's CPU time and what it counted.
struct Done {
    cpu: f64,
    count: u64,
}

/// One of the threads, and where it books its time.
struct Watched {
    name: &'static str,
    times: Option<Arc<PhaseTimes>>,
}

impl Watched {
    fn new(name: &'static str, telemetry: bool) -> Watched {
        let times = telemetry.then(|| PhaseTimes::new(name, None));
        Watched { name, times }
    }

    fn timer(&self) -> Option<PhaseTimer> {
        self.times.clone().map(PhaseTimer::start)
    }

    /// Its row, with `cpu` seconds out of those of the wall clock.
    fn row(self, cpu: f64, seconds: f64, clock: TscClock) -> ThreadRow {
        let shares = |times: Arc<PhaseTimes>| {
            let report = times.report(clock);
            // In the order in which `Phase` has them.
            let mut shares = report.phases.iter().map(|(_, spent)| spent / seconds);
            let mut next = || shares.next().unwrap_or(0.0);
            Phases {
                wait_in: next(),
                write: next(),
                compute: next(),
                wait_out: next(),
            }
        };
        ThreadRow {
            name: self.name.to_owned(),
            cpu: cpu / seconds,
            phases: self.times.map(shares),
        }
    }
}

/// Sends frames in turn until it is time; counts them.
fn transmit(
    bench: &LoopBench,
    mut timer: Option<PhaseTimer>,
    frames: &[Frame],
    blanks: usize,
    mut to: Sender,
) -> Done {
    let (begun, own) = (Instant::now(), own_seconds());
    let mut transmitter = Transmitter::new(1.0);
    let (mut samples, mut count) = (Vec::new(), 0);
    let naps = bench.rate.is_some();
    let mut pass = |samples: &mut Vec<Complex32>, timer: &mut Option<PhaseTimer>| {
        let whole = samples.len() / bench.block * bench.block;
        for block in samples[..whole].chunks_exact(bench.block) {
            wait(naps, || to.has_room());
            mark(timer, Phase::WaitOutput);
            to.write(block);
            mark(timer, Phase::Work);
        }
        samples.drain(..whole);
    };
    for frame in frames.iter().cycle() {
        transmitter.frame(frame, &mut samples);
        transmitter.blanks(blanks, &mut samples);
        mark(&mut timer, Phase::Compute);
        pass(&mut samples, &mut timer);
        count += 1;
        if begun.elapsed() >= bench.time {
            break;
        }
    }
    transmitter.blanks(TAIL, &mut samples);
    let whole = samples.len().next_multiple_of(bench.block);
    samples.resize(whole, Complex32::default());
    pass(&mut samples, &mut timer);
    let cpu = own_seconds() - own;
    Done { cpu, count }
}

/// Copies blocks from one queue to the other; counts samples.
fn convert(
    bench: &LoopBench,
    mut timer: Option<PhaseTimer>,
    mut from: Taker,
    mut to: Sender,
) -> Done {
    let (begun, own) = (Instant::now(), own_seconds());
    let mut count = 0;
    let naps = bench.rate.is_some();
    while next_block(&mut from, naps) {
        mark(&mut timer, Phase::WaitInput);
        wait(naps, || to.has_room());
        if let Some(rate) = bench.rate {
            let due = begun + Duration::from_secs_f64(count as f64 / rate);
            wait(naps, || Instant::now() >= due);
        }
        mark(&mut timer, Phase::WaitOutput);
        from.read(|block| {
            to.write(block);
        });
        mark(&mut timer, Phase::Work);
        count += bench.block as u64;
    }
    let cpu = own_seconds() - own;
    Done { cpu, count }
}

/// Receives; counts frames that were delivered.
fn receive(
    bench: &LoopBench,
    mut timer: Option<PhaseTimer>,
    receiver: &mut Receiver,
    mut from: Taker,
) -> Done {
    let own = own_seconds();
    let mut frames = Vec::new();
    let naps = bench.rate.is_some();
    while next_block(&mut from, naps) {
        mark(&mut timer, Phase::WaitInput);
        from.read(|block| receiver.push(block, &mut frames));
        frames.clear();
        mark(&mut timer, Phase::Compute);
    }
    receiver.finish(&mut frames);
    mark(&mut timer, Phase::Compute);
    let cpu = own_seconds() - own;
    let count = receiver.counts().delivered;
    Done { cpu, count }
}

/// Runs all three.
pub fn measure_loop(bench: &LoopBench) -> Result<LoopRow, ModemBenchError> {
    bench.config.check()?;
    let blanks = blank_symbols(bench.duty)? as usize;
    if let Some(rate) = bench.rate {
        // A frame with its pause, or what is in the queue before the transmitter feels the rate.
        let frame = SAMPLES_PER_SYMBOL * (FRAME_SYMBOLS + blanks);
        check_rate(rate, frame.max(SLOTS * bench.block), bench.time)?;
    }
    let frames = frames(bench.modulation, FRAMES)?;
    let queue = || link(bench.transfer, SLOTS, bench.block).map_err(ModemBenchError::Queue);
    let ((to_converter, of_transmitter), (to_receiver, of_converter)) = (queue()?, queue()?);
    let before = tasks();
    let mut receiver = Receiver::new(&bench.config)?;
    let decoders = new_tasks(&before);
    let watched = ["transmitter", "converter", "receiver"];
    let watched = watched.map(|name| Watched::new(name, bench.telemetry));
    let [of_sending, of_converting, of_receiving] = watched.each_ref().map(Watched::timer);
    let (begun, ticks) = (Instant::now(), tsc());
    let joined = thread::scope(|scope| {
        let threads = [
            scope.spawn(|| transmit(bench, of_sending, &frames, blanks, to_converter)),
            scope.spawn(move || convert(bench, of_converting, of_transmitter, to_receiver)),
        ];
        let received = receive(bench, of_receiving, &mut receiver, of_converter);
        let seconds = begun.elapsed().as_secs_f64();
        let clock = TscClock::new((tsc().wrapping_sub(ticks) as f64 / seconds) as u64);
        let decoding: f64 = decoders.iter().map(|task| task.seconds()).sum();
        let joined = threads.map(|thread| thread.join());
        (joined, received, (seconds, clock), decoding)
    });
    let ([Ok(sent), Ok(converted)], received, (seconds, clock), decoding) = joined else {
        return Err(ModemBenchError::Thread);
    };
    let (count, samples, delivered) = (sent.count, converted.count, received.count);
    let spent = [sent.cpu, converted.cpu, received.cpu];
    let rows = watched.into_iter().zip(spent);
    let mut threads: Vec<_> = rows
        .map(|(thread, cpu)| thread.row(cpu, seconds, clock))
        .collect();
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
