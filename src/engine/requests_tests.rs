//! Delay models of an engine that has no input, and of one that has; and what its answers promise.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dsp::delay::LinearDelay;
use ground::stats::ThreadReport;
use num_complex::Complex32;

use super::*;
use crate::engine::steer::{ControlHandle, EnqueueError};
use crate::engine::{Block, OutputChunk, PipelineError};
use crate::memory::{OutputSpan, SampleView};

/// Five seconds: how often a controller tracks.
const STEP: u64 = 5 * 1_712_000_000;

/// Computes nothing, and takes so many ticks for new gains.
struct Idle {
    ticks: u64,
}

impl Pipeline for Idle {
    fn name(&self) -> String {
        "idle".to_owned()
    }
    fn set_gains(&mut self, _: usize, _: &mut Gains) {
        let begun = tsc();
        while tsc() - begun < self.ticks {}
    }
    fn run_frontend(
        &mut self,
        _: &SampleView<'_>,
        _: &Block<'_>,
        _: &mut OutputSpan<'_>,
    ) -> Result<(), PipelineError> {
        Ok(())
    }
    fn finish_chunk(&mut self, _: usize, _: OutputChunk) -> Result<(), PipelineError> {
        Ok(())
    }
    fn poll_finished(&mut self) -> Result<Option<OutputChunk>, PipelineError> {
        Ok(None)
    }
    fn thread_reports(&self) -> Vec<ThreadReport> {
        Vec::new()
    }
}

/// Control, an output at 1712 MHz, and a list of all models that it was asked for.
struct Bench {
    steering: ControlHandle,
    pending: PendingRequests,
    all: DelayModels,
}

impl Bench {
    fn new() -> Self {
        let wideband = "name=w,channels=64,dst=239.10.1.0,jones_per_batch=2048";
        let config = crate::config::tests::engine(wideband, |_| {});
        let (steering, mut steered) = ControlHandle::new(&config, 4);
        let output = steered.outputs.remove(0);
        let pending = PendingRequests::new(0, 1, 1712e6, output, steered.published);
        let all = DelayModels::new();
        Self {
            steering,
            pending,
            all,
        }
    }

    /// Asks for the `i`th model, which begins at `start`, when it is `now`; the engine's next
    /// spectrum is `next`.
    fn ask(&mut self, i: u64, start: u64, now: u64, next: u64) -> Result<Timestamp, EnqueueError> {
        let model = LinearDelay::new(start as i64, i as f64, 0.0, 0.0, 0.0).unwrap();
        self.steering.tell_time(Timestamp(now));
        let asked = self.steering.outputs()[0].set_delays([model; N_POL]);
        if asked.is_ok() {
            self.all.add(model);
        }
        let (next, end) = (Timestamp(next), Timestamp(next + 4096));
        self.pending.take(next, end, false, &mut Idle { ticks: 0 });
        asked
    }

    /// The whole delays now and those that a list would have that forgets nothing.
    fn delays(&self, t: u64) -> [i64; 3] {
        let [x, y] = [0, 1].map(|pol| self.pending.delays[pol].at(Timestamp(t)).coarse);
        [x, y, self.all.at(Timestamp(t)).coarse]
    }
}

/// For two days, and then the digitisers are there again.
#[test]
fn an_engine_without_input_can_be_tracked_for_ever() {
    let mut bench = Bench::new();
    let first = 1 << 40;
    let requests = 2 * 86_400 / 5;
    for i in 0..requests {
        let now = first + i * STEP;
        bench.ask(i, now + STEP, now, 0).unwrap();
    }
    let now = first + requests * STEP;
    assert!(bench.pending.delays[0].upcoming() < MODELS);
    // Of the last minute, nothing is lost.
    for t in (now - 12 * STEP..now + 3 * STEP).step_by(STEP as usize / 7) {
        let [x, y, expected] = bench.delays(t);
        assert_eq!([x, y], [expected; 2], "{t}");
    }
    assert!(bench.delays(now)[0] > requests as i64 - 3);
}

/// Models are forgotten to bound them, not because they are old.
#[test]
fn an_engine_without_input_keeps_half_of_all_models() {
    let mut bench = Bench::new();
    let upcoming = |bench: &Bench| bench.pending.delays[0].upcoming();
    let mut asked = (0..).map(|i| (i, (1 << 40) + i * STEP));
    while upcoming(&bench) < MODELS / 2 {
        let before = upcoming(&bench);
        let (i, now) = asked.next().unwrap();
        bench.ask(i, now + STEP, now, 0).unwrap();
        assert_eq!(upcoming(&bench), before + 1);
    }
    let (i, now) = asked.next().unwrap();
    bench.ask(i, now + STEP, now, 0).unwrap();
    assert!(upcoming(&bench) < MODELS / 2);
}

/// One request came while the host's clock was years ahead.
#[test]
fn a_clock_that_is_set_back_does_not_keep_models_for_ever() {
    let mut bench = Bench::new();
    let first = 1 << 40;
    bench.ask(0, first, 1 << 60, 0).unwrap();
    for i in 1..2 * MODELS as u64 {
        let now = first + i * STEP;
        bench.ask(i, now + STEP, now, 0).unwrap();
    }
    assert!(bench.pending.delays[0].upcoming() < MODELS);
}

#[test]
fn models_that_lie_ahead_are_refused_and_kept() {
    let mut bench = Bench::new();
    let (first, most) = (1 << 50, MODELS as u64);
    let start = |i: u64| first + (2 + i) * STEP;
    let refused = (0..=most).find(|&i| bench.ask(i, start(i), first + i, 0).is_err());
    assert_eq!(refused, Some(most));
    // Later, what ended makes room, if not for the request that tells what time it is.
    let now = start(98);
    assert!(bench.ask(most, start(most), now, 0).is_err());
    assert!(bench.ask(most, start(most), now + 1, 0).is_ok());
    for t in (now - 12 * STEP..start(most + 1)).step_by(STEP as usize / 3) {
        let [x, y, expected] = bench.delays(t);
        assert_eq!([x, y], [expected; 2], "{t}");
    }
}

/// Whatever the host's clock says: what is computed may lie long ago.
#[test]
fn an_engine_with_input_forgets_nothing_ahead_of_it() {
    let mut bench = Bench::new();
    let now = 1 << 50;
    for i in 0..MODELS as u64 {
        let asked = bench.ask(i, (2 + i) * STEP, now + i * STEP, i);
        assert!(asked.is_ok(), "{i}");
    }
    assert_eq!(bench.pending.delays[0].upcoming(), MODELS);
    assert_eq!(bench.delays(3 * STEP), [1, 1, 1]);
}

/// An engine that begins a chunk with every look at its requests, and a client that asks again as
/// soon as it was served: many of its requests come between the look and the next chunk.
#[test]
fn no_request_takes_effect_later_than_its_answer_said() {
    const REQUESTS: usize = 2_000;
    const CHUNK: u64 = 4096;
    let Bench {
        steering,
        mut pending,
        ..
    } = Bench::new();
    let published = pending.published.clone();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = 0;
            while !ended.load(Ordering::Relaxed) {
                let (start, end) = (Timestamp(next), Timestamp(next + CHUNK));
                pending.take(start, end, false, &mut Idle { ticks: 0 });
                next += CHUNK;
            }
        });
        let output = &steering.outputs()[0];
        let gains = Gains::uniform(output.channels(), Complex32::from(2.0));
        let late = (0..REQUESTS).find_map(|_| {
            let answer = output.set_all_gains(gains.clone()).unwrap();
            let from = loop {
                if let Some(EngineEvent::Applied(applied)) = published.next_event() {
                    break applied.from;
                }
                thread::yield_now();
            };
            (from > answer).then_some((from, answer))
        });
        ended.store(true, Ordering::Relaxed);
        assert_eq!(late, None);
    });
}

#[test]
fn a_stall_is_as_long_as_gains_hold_up_the_engine() {
    const TICKS: u64 = 1 << 22;
    let Bench {
        steering,
        mut pending,
        ..
    } = Bench::new();
    let output = &steering.outputs()[0];
    let gains = Gains::uniform(output.channels(), Complex32::from(2.0));
    output.set_gains(1, gains.clone()).unwrap();
    let begun = tsc();
    for _ in 0..2 {
        pending.take(
            Timestamp(0),
            Timestamp(4096),
            false,
            &mut Idle { ticks: TICKS },
        );
    }
    let most = tsc() - begun;
    let mut stats = pending.stats().clone();
    assert_eq!((stats.changes, stats.stalls.len()), (1, 1));
    // The histogram has three digits.
    let (short, long) = (stats.stalls.min(), stats.stalls.max());
    assert!(short >= TICKS - TICKS / 100, "{short}");
    assert!(long <= most + most / 100, "{long} of {most}");
    stats.add(pending.stats());
    assert_eq!((stats.changes, stats.stalls.len()), (2, 2));

    // Whether something is asked for, or in effect, or both.
    let counts = |pending: &PendingRequests| {
        let stats = pending.stats();
        (stats.changes, stats.stalls.len())
    };
    let mut take = |building| {
        let (next, end) = (Timestamp(0), Timestamp(4096));
        pending.take(next, end, building, &mut Idle { ticks: 0 });
        counts(&pending)
    };
    output.set_delays([LinearDelay::ZERO; N_POL]).unwrap();
    assert_eq!(take(true), (2, 2));
    output.set_all_gains(gains).unwrap();
    assert_eq!(take(true), (3, 3));
    assert_eq!(take(false), (3, 4));
    assert_eq!(take(false), (3, 4));
}
