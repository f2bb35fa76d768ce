//! The outside: raw samples from readers into blocks, and from blocks to writers.

use std::cell::OnceCell;
use std::io::{ErrorKind, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::control::{Failure, panicked};
use super::lane::{SignalShape, Store};
use super::telemetry::{EVERY, add};
use super::worker::{PartitionQueues, Stopped, Waits};
use crate::types::{Scalar, Type};

/// Rounds whose begin is remembered. More than that many under way are not timed.
const REMEMBERED: usize = 4096;

/// How long inputs are still read whose first input has ended because the run is to end: one of
/// which little comes at a time may take very long.
const LAST: Duration = Duration::from_secs(1);

/// When the inputs of recent rounds were read, in nanoseconds since the start.
pub(super) struct Begins {
    start: Instant,
    times: Vec<AtomicU64>,
}

impl Begins {
    pub fn new() -> Begins {
        Begins {
            start: Instant::now(),
            times: (0..REMEMBERED).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn at(&self, round: u64) -> &AtomicU64 {
        &self.times[round as usize % REMEMBERED]
    }
}

/// One port of the outside.
pub(super) struct OutsidePort {
    pub path: String,
    pub signal: usize,
    pub kind: Type,
    pub period: u64,
}

/// The thread that reads.
pub(super) struct Inlet {
    pub queues: PartitionQueues,
    pub ports: Vec<OutsidePort>,
    pub readers: Vec<Box<dyn Read + Send>>,
    pub store: Store,
    pub step: u64,
    pub begins: Arc<Begins>,
}

/// Lets a reader or a writer work, which may fail or panic. Whoever waits for its thread would wait
/// for ever.
fn guarded<T>(
    path: &str,
    what: &str,
    work: impl FnOnce() -> std::io::Result<T>,
) -> Result<T, Failure> {
    let fail = |text: String| Failure::node(path.into(), text);
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.map_err(|error| fail(format!("cannot be {what}: {error}"))),
        Err(panic) => Err(fail(panicked(&*panic))),
    }
}

/// Fills `bytes` as far as the reader goes, or up to what `wanted` says after each piece: it may
/// take very long where little comes at a time. What came before an error counts.
fn fill(
    reader: &mut dyn Read,
    bytes: &mut [u8],
    wanted: impl Fn() -> usize,
) -> (usize, std::io::Result<()>) {
    let mut filled = 0;
    loop {
        let end = wanted().min(bytes.len());
        if filled >= end {
            break;
        }
        match reader.read(&mut bytes[filled..end]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (filled, Err(error)),
        }
    }
    (filled, Ok(()))
}

impl Inlet {
    /// Reads until an input ends, the run ends, or something fails.
    pub fn work(mut self) {
        self.queues.bell.answer();
        let control = self.queues.control.clone();
        match self.run() {
            // The end is known now: outputs up to there may come.
            Ok(()) => {
                control.send_to(u64::MAX);
                self.pad();
            }
            Err(failure) => control.fail(failure),
        }
    }

    fn run(&mut self) -> Result<(), Failure> {
        let control = self.queues.control.clone();
        let counts = self.queues.counts.clone();
        let mut bytes = Vec::new();
        let mut at = 0;
        while at < control.end_tick() && !control.stopped() {
            if control.quits() {
                control.end_at(at);
                break;
            }
            control.stop_within(at, self.step);
            let got = self.round(at, &mut bytes)?;
            // An end that was asked for while reading can still be kept: the thread that writes has
            // not passed this step.
            control.stop_behind(at, self.step);
            if got < at + self.step {
                control.end_at(got);
            }
            if got == at {
                break;
            }
            let round = at / self.step;
            if round % EVERY == 1 {
                let now = self.begins.now();
                self.begins.at(round).store(now, Ordering::Relaxed);
            }
            if self.queues.wait_to_begin().is_err() || self.queues.send(&self.store, false).is_err()
            {
                return Ok(());
            }
            at += self.step;
            add(&counts.partitions[super::layout::IN].ticks, self.step);
            control.send_to(at);
        }
        Ok(())
    }

    /// Sends 0 until all is out: outputs from before the end may be in blocks that end behind it.
    fn pad(&mut self) {
        for port in &self.ports {
            self.store.clear(port.signal);
        }
        while self.queues.wait_to_begin().is_ok() && self.queues.send(&self.store, false).is_ok() {}
    }

    /// Reads the samples of a step. Returns the tick before which they all are there.
    fn round(&mut self, at: u64, bytes: &mut Vec<u8>) -> Result<u64, Failure> {
        let control = &self.queues.control;
        let is_ending = || control.quits() || control.stopped();
        let (mut got, quits) = (at + self.step, OnceCell::new());
        for (place, (port, reader)) in self.ports.iter().zip(&mut self.readers).enumerate() {
            let samples = (self.step / port.period) as usize;
            let size = port.kind.bytes();
            // Nothing is read that is behind the end, of the run or of another input.
            let due = || {
                let end = control.wanted(at).min(got);
                samples.min(end.saturating_sub(at).div_ceil(port.period) as usize)
            };
            bytes.clear();
            bytes.resize(samples * size, 0);
            // Where the run is to end, the first input does so at once. Others are read up to
            // there: what belongs to the first one's samples may have come with those.
            let is_over = || match place {
                0 => is_ending(),
                _ => {
                    let is_late = || quits.get_or_init(Instant::now).elapsed() > LAST;
                    control.stopped() || control.quits() && is_late()
                }
            };
            let wanted = || if is_over() { 0 } else { due() * size };
            let fill = || Ok(fill(reader.as_mut(), bytes, wanted));
            let (read, done) = guarded(&port.path, "read", fill)?;
            if let Err(failure) = guarded(&port.path, "read", || done) {
                // The input ends here, and what has come of it is still to go out.
                control.tell(failure);
            }
            let (whole, torn) = (read / size, read % size);
            let due = due();
            // An input that ends within a sample is an error, unless somebody asked for the end.
            if torn > 0 && whole < due && !is_ending() {
                let text = format!("ends {torn} bytes into a sample of {size}: give whole samples");
                // The whole samples count.
                control.tell(Failure::node(port.path.clone(), text));
            }
            if whole < due {
                got = got.min(at + whole as u64 * port.period);
            }
            if port.kind.scalar == Scalar::Bool {
                bytes
                    .iter_mut()
                    .for_each(|byte| *byte = u8::from(*byte != 0));
            }
            self.store.read(port.signal, bytes);
        }
        Ok(got)
    }
}

/// The thread that writes.
pub(super) struct Outlet<'a> {
    pub queues: PartitionQueues,
    pub ports: Vec<OutsidePort>,
    pub writers: Vec<Box<dyn Write + 'a>>,
    pub store: Store,
    pub step: u64,
    pub begins: Arc<Begins>,
    /// Whether there are inputs that outputs must not run ahead of.
    pub bound: bool,
}

impl Outlet<'_> {
    /// Writes until all is out. Returns the ticks that were run, if nothing has failed.
    pub fn work(&mut self) -> Option<u64> {
        self.queues.bell.answer();
        let control = self.queues.control.clone();
        match self.run() {
            Ok(ticks) => {
                control.finish();
                self.drain();
                Some(ticks)
            }
            Err(failure) => {
                control.fail(failure);
                None
            }
        }
    }

    /// Has all writers write what they have, also behind one that fails. Then again: those that
    /// ended at the first time wait for their peers, of which one may wait for another's end.
    pub fn flush(&mut self) -> Result<(), Failure> {
        let mut flushed = Ok(());
        for _ in 0..2 {
            for (port, writer) in self.ports.iter().zip(&mut self.writers) {
                let this = guarded(&port.path, "written", || writer.flush());
                flushed = flushed.and(this);
            }
        }
        flushed
    }

    /// Takes what still comes, until partitions that no output needs have come to the end too.
    fn drain(&mut self) {
        if self.queues.receivers.is_empty() {
            let control = self.queues.control.clone();
            return self
                .queues
                .bell
                .wait(self.queues.patience, || control.stopped());
        }
        while self.queues.wait_to_begin().is_ok() {
            self.queues.receive(&mut self.store, false);
        }
    }

    fn run(&mut self) -> Result<u64, Failure> {
        let control = self.queues.control.clone();
        let counts = self.queues.counts.clone();
        let mut bytes = Vec::new();
        let mut at = 0;
        loop {
            let next = at + self.step;
            if !self.bound {
                control.stop_within(at, self.step);
                if control.quits() {
                    control.end_at(at);
                }
            }
            if at >= control.end_tick() || control.stopped() {
                return Ok(at.min(control.end_tick()));
            }
            if let Err(Stopped) = self.queues.wait_to_begin() {
                return Ok(at);
            }
            // What has come of inputs is mostly behind them. Not so what delays put out.
            if self.bound && control.sent() < next {
                self.queues.wake_peers();
                let waits = Waits::begin(&counts, [&counts.partitions[super::layout::OUT].empty]);
                control.await_sent(next, self.queues.patience);
                waits.end();
            }
            let end = control.end_tick();
            if at >= end || control.stopped() {
                return Ok(at.min(end));
            }
            let round = at / self.step;
            self.queues.receive(&mut self.store, round % EVERY == 1);
            self.write(at, end, &mut bytes)?;
            if round % EVERY == 1 && self.bound {
                let begin = self.begins.at(round).load(Ordering::Relaxed);
                counts.latency.add(self.begins.now().saturating_sub(begin));
            }
            add(&counts.partitions[super::layout::OUT].ticks, self.step);
            at = next;
        }
    }

    fn write(&mut self, at: u64, end: u64, bytes: &mut Vec<u8>) -> Result<(), Failure> {
        for (port, writer) in self.ports.iter().zip(&mut self.writers) {
            let all = self.step / port.period;
            let samples = (end - at).div_ceil(port.period).min(all) as usize;
            bytes.clear();
            self.store.write(port.signal, samples, bytes);
            guarded(&port.path, "written", || writer.write_all(bytes))?;
        }
        Ok(())
    }
}

/// What a port of the outside carries. A constant is spread over a step.
pub(super) fn spread(shape: &SignalShape, period: u64) -> SignalShape {
    SignalShape {
        period,
        rest: shape.constant.clone().unwrap_or_else(|| shape.rest.clone()),
        constant: None,
        ..shape.clone()
    }
}
