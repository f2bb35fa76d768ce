//! What an engine tells control.

use std::num::NonZero;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam::queue::ArrayQueue;
use dsp::delay::LinearDelay;
use ground::stats::counter;
use ground::{Latest, N_POL, Timestamp};

use super::Change;
use crate::engine::{StatisticsBoard, TestPattern};

/// Events that wait for control, at most: tens of seconds' worth of a live engine's.
const EVENTS: usize = 4096;

/// Something that a sensor shows, or the log. Counts are totals since the start, so that an event
/// makes up for lost ones before it.
#[derive(Clone, Debug, PartialEq)]
pub enum EngineEvent {
    /// A non-empty receive chunk was taken over.
    Received(Received),
    /// An output chunk was handed to the tx lcores.
    Sent(Sent),
    /// Another delay model became the active one.
    Delay(ActiveDelay),
    /// A window of digitiser power ended.
    Power(PowerLevel),
    /// A request took effect.
    Applied(Applied),
    /// What is sent of an output is a test pattern from now on, or no longer.
    Test(TestChange),
}

/// Totals with a receive chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// First sample of the chunk.
    pub start: Timestamp,
    /// Sample behind it.
    pub end: Timestamp,
    /// Samples that the digitiser flagged as saturated, per polarisation.
    pub clipped_samples: [u64; N_POL],
    /// Heaps that never came since the start of the first non-empty chunk, per polarisation: whole
    /// chunks that never came count with the next that did, as katgpucbf counts them.
    pub missing_heaps: [u64; N_POL],
}

/// Totals with an output chunk that has been sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Index of the output.
    pub output: usize,
    /// Timestamp of its first spectrum.
    pub start: Timestamp,
    /// Sample behind the last that contributes to it.
    pub end: Timestamp,
    /// Its batches that were sent; others lacked input.
    pub batches: u64,
    /// Where it would end if it were full: the timestamp of the sensor.
    pub nominal_end: Timestamp,
    /// Complex samples in batches sent that quantisation clipped, per polarisation.
    pub clipped_samples: [u64; N_POL],
}

/// A delay model that became active.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ActiveDelay {
    /// Index of the output.
    pub output: usize,
    /// Polarisation.
    pub pol: usize,
    /// The model.
    pub model: LinearDelay,
}

/// Digitiser power over one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerLevel {
    /// Sample behind the window, a multiple of its length.
    pub end: Timestamp,
    /// Per polarisation, in dB relative to a full-scale sine; `f64::MIN` for no power at all.
    /// `None` if input to the window was missing.
    pub dbfs: Option<[f64; N_POL]>,
}

/// A test pattern that begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestChange {
    /// Index of the output.
    pub output: usize,
    /// Timestamp of the first batch sent that has it, or no longer has it.
    pub from: Timestamp,
    /// What is sent; `None`: the output's own values.
    pub pattern: Option<TestPattern>,
}

/// A request that took effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// Index of the output.
    pub output: usize,
    /// All that has this timestamp or a later one reflects it, and nothing before: spectra in the
    /// case of delays, batches in that of gains.
    pub from: Timestamp,
    /// What changed. Gains that were replaced before they took effect are not told.
    pub change: Change,
}

/// Where an engine tells what happens: written by its thread, which never waits, and read by
/// control.
#[derive(Debug)]
pub struct Published {
    events: ArrayQueue<EngineEvent>,
    overwritten: AtomicU64,
    /// Per output and polarisation.
    delays: Box<[[Latest<5>; N_POL]]>,
    /// Per output, whether known values are sent.
    tests: Box<[AtomicU8]>,
    /// Level of the last second of input that was whole: nanoseconds from `begun` until it was
    /// told, 0 before the first, and the bits of its decibels.
    level: Latest<{ 1 + N_POL }>,
    begun: Instant,
    statistics: StatisticsBoard,
}

impl Published {
    /// Nothing has happened to any of `outputs` outputs: their delays are [`LinearDelay::ZERO`].
    pub fn new(outputs: usize) -> Self {
        let delays = || [0; N_POL].map(|_| Latest::new(LinearDelay::ZERO.to_words()));
        Self {
            events: ArrayQueue::new(EVENTS),
            overwritten: AtomicU64::new(0),
            delays: (0..outputs).map(|_| delays()).collect(),
            tests: (0..outputs).map(|_| AtomicU8::new(0)).collect(),
            level: Latest::new([0; 1 + N_POL]),
            begun: Instant::now(),
            statistics: StatisticsBoard::new(outputs),
        }
    }

    /// The level of the last second of input that was whole, in dB relative to a full-scale sine,
    /// and how long ago it was told. [`PowerLevel`] says more.
    pub fn level(&self) -> Option<([f64; N_POL], Duration)> {
        let [told, x, y] = self.level.read();
        let told = NonZero::new(told)?.get();
        let age = self
            .begun
            .elapsed()
            .saturating_sub(Duration::from_nanos(told));
        Some(([x, y].map(f64::from_bits), age))
    }

    /// The latest statistics.
    pub fn statistics(&self) -> &StatisticsBoard {
        &self.statistics
    }

    /// The oldest event that was not taken yet. Events are for one reader.
    pub fn next_event(&self) -> Option<EngineEvent> {
        self.events.pop()
    }

    /// Events that newer ones displaced because nobody took them. After a displaced
    /// [`EngineEvent::Delay`], [`delay`](Self::delay) tells, after one of a test
    /// [`test`](Self::test); a displaced [`EngineEvent::Applied`] is lost; all others are
    /// made up for by later ones.
    pub fn overwritten(&self) -> u64 {
        self.overwritten.load(Ordering::Relaxed)
    }

    /// The active delay model of an output and polarisation; `None` if there is no such.
    pub fn delay(&self, output: usize, pol: usize) -> Option<LinearDelay> {
        let latest = self.delays.get(output)?.get(pol)?;
        Some(LinearDelay::from_words(latest.read()))
    }

    /// Whether an output sends known values in place of spectra; `None` if there is no such output.
    pub fn has_test(&self, output: usize) -> Option<bool> {
        self.test(output).map(|pattern| pattern.is_some())
    }

    /// Which known values an output sends, if it does; `None` if there is no such output.
    pub fn test(&self, output: usize) -> Option<Option<TestPattern>> {
        let number = self.tests.get(output)?.load(Ordering::Relaxed);
        let place = usize::from(number).checked_sub(1);
        Some(place.map(|place| TestPattern::ALL[place]))
    }

    /// Tells of `event`; the engine's thread only.
    pub fn tell(&self, event: EngineEvent) {
        if let EngineEvent::Delay(ActiveDelay { output, pol, model }) = &event
            && let Some(latest) = self.delays.get(*output).and_then(|pols| pols.get(*pol))
        {
            latest.write(model.to_words());
        }
        if let EngineEvent::Power(PowerLevel {
            dbfs: Some(dbfs), ..
        }) = &event
        {
            let told = (self.begun.elapsed().as_nanos() as u64).max(1);
            let [x, y] = dbfs.map(f64::to_bits);
            self.level.write([told, x, y]);
        }
        if let EngineEvent::Test(change) = &event
            && let Some(test) = self.tests.get(change.output)
        {
            let all = TestPattern::ALL.iter();
            let place = change
                .pattern
                .and_then(|pattern| all.clone().position(|other| *other == pattern));
            test.store(place.map_or(0, |place| place as u8 + 1), Ordering::Relaxed);
        }
        if self.events.force_push(event).is_some() {
            counter::add(&self.overwritten, 1);
        }
    }
}
