//! Where the time goes: for each partition working and waiting, waiting by queue, and how long
//! steps take.
//!
//! Clocks are read where a thread waits anyway, and in one step of many. A thread that does not
//! wait pays for a count a step. A wait counts from its begin on: one that has no end yet would
//! otherwise look like work.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::queue::Alone;

/// Of so many steps, one is timed: a prime, so that all steps of a block have their turn.
pub(super) const EVERY: u64 = 61;
/// The longest time that a histogram tells, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;

/// Numbers whose spread is of interest.
pub(super) struct Spread(Mutex<Histogram<u64>>);

impl Spread {
    pub fn new() -> Spread {
        // The bounds are right for the library: it has no other reason to refuse.
        let made = Histogram::new_with_bounds(1, LONGEST, 2);
        Spread(Mutex::new(made.unwrap_or_else(|_| {
            Histogram::new(2).unwrap_or_else(|_| unreachable!("2 digits are within the range"))
        })))
    }

    pub fn add(&self, number: u64) {
        let mut histogram = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        histogram.saturating_record(number);
    }

    /// The numbers up to now.
    pub fn numbers(&self) -> Histogram<u64> {
        let histogram = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        histogram.clone()
    }
}

/// The spread of some numbers, as far as they were looked at.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// How many numbers were looked at.
    pub count: u64,
    /// The least.
    pub least: u64,
    /// Half of them are not above.
    pub median: u64,
    /// 99 % of the times are not longer.
    pub p99: u64,
    /// All but one in 100 000 of the times are not longer.
    pub p99_999: u64,
    /// The most.
    pub most: u64,
}

impl From<&Histogram<u64>> for Quantiles {
    fn from(numbers: &Histogram<u64>) -> Quantiles {
        let at = |quantile| numbers.value_at_quantile(quantile);
        Quantiles {
            count: numbers.len(),
            least: numbers.min(),
            median: at(0.5),
            p99: at(0.99),
            p99_999: at(0.99999),
            most: numbers.max(),
        }
    }
}

impl Quantiles {
    /// Numbers of which none can be more: two digits are kept of each, rounded up.
    pub(super) fn at_most(self, limit: u64) -> Quantiles {
        Quantiles {
            count: self.count,
            least: self.least.min(limit),
            median: self.median.min(limit),
            p99: self.p99.min(limit),
            p99_999: self.p99_999.min(limit),
            most: self.most.min(limit),
        }
    }
}

/// Nanoseconds that one thread has waited, up to now.
///
/// In one word, so that whoever looks never sees a part of a change: twice the nanoseconds of all
/// waits; during a wait, twice the time at which it would have begun if it were all of them, and 1.
#[derive(Default)]
pub(super) struct Waited(AtomicU64);

impl Waited {
    /// A wait begins at so many nanoseconds of the counts' clock.
    pub fn begin(&self, now: u64) {
        let all = self.0.load(Ordering::Relaxed) / 2;
        self.0
            .store(2 * (now - all.min(now)) + 1, Ordering::Relaxed);
    }

    /// The wait ends.
    pub fn end(&self, now: u64) {
        let begun = self.0.load(Ordering::Relaxed) / 2;
        self.0
            .store(2 * now.saturating_sub(begun), Ordering::Relaxed);
    }

    /// Whether a wait has begun and not ended.
    fn waits(&self) -> bool {
        !self.0.load(Ordering::Relaxed).is_multiple_of(2)
    }

    pub fn until(&self, now: u64) -> u64 {
        let word = self.0.load(Ordering::Relaxed);
        if word.is_multiple_of(2) {
            word / 2
        } else {
            now.saturating_sub(word / 2)
        }
    }
}

/// What one queue tells.
pub(super) struct QueueTimes {
    /// How long its ends have waited: each is written by one thread.
    pub writer: Alone<Waited>,
    pub reader: Alone<Waited>,
    pub fill: Spread,
    /// Blocks that the reader found last.
    found: AtomicU64,
}

impl QueueTimes {
    pub fn new() -> QueueTimes {
        QueueTimes {
            writer: Alone::default(),
            reader: Alone::default(),
            fill: Spread::new(),
            found: AtomicU64::new(0),
        }
    }

    /// The reader has found so many blocks.
    pub fn found(&self, blocks: u64) {
        self.fill.add(blocks);
        self.found.store(blocks, Ordering::Relaxed);
    }

    /// Blocks in it, of so many that it holds.
    pub fn held(&self, capacity: usize) -> u64 {
        if self.reader.0.waits() {
            0
        } else if self.writer.0.waits() {
            capacity as u64
        } else {
            self.found.load(Ordering::Relaxed)
        }
    }
}

/// What one partition tells. Each has cache lines of its own: its thread counts in every step.
#[repr(align(128))]
pub(super) struct PartitionTimes {
    /// Whether it has a thread: nothing comes out of one without queues.
    pub runs: bool,
    pub ticks: AtomicU64,
    /// Waiting for blocks to read, and for room to write.
    pub empty: Waited,
    pub full: Waited,
    /// Nanoseconds of copying from and to queues in the steps that were timed.
    pub reading: AtomicU64,
    pub writing: AtomicU64,
    pub steps: Spread,
    /// Nanoseconds of each unit in the steps that were timed.
    pub units: Vec<AtomicU64>,
    pub timed: AtomicU64,
    /// Nanoseconds of all units, and the steps in which that was looked at.
    pub computing: AtomicU64,
    pub whole: AtomicU64,
}

impl PartitionTimes {
    pub fn new(units: usize, runs: bool) -> PartitionTimes {
        PartitionTimes {
            runs,
            ticks: AtomicU64::new(0),
            empty: Waited::default(),
            full: Waited::default(),
            reading: AtomicU64::new(0),
            writing: AtomicU64::new(0),
            steps: Spread::new(),
            units: (0..units).map(|_| AtomicU64::new(0)).collect(),
            timed: AtomicU64::new(0),
            computing: AtomicU64::new(0),
            whole: AtomicU64::new(0),
        }
    }
}

/// Adds to a count that one thread alone writes.
pub(super) fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// Names that go with the counts.
pub(super) struct Names {
    /// Partitions, each with the nodes of each of its units.
    pub partitions: Vec<(String, Vec<String>)>,
    /// Queues: from, to, blocks that they hold.
    pub queues: Vec<(String, String, usize)>,
}

/// All counts of a run.
pub(super) struct Counts {
    pub names: Names,
    pub partitions: Vec<PartitionTimes>,
    pub queues: Vec<std::sync::Arc<QueueTimes>>,
    /// From the reading of a block of inputs to the writing of the outputs that are of the same
    /// ticks.
    pub latency: Spread,
    /// What the clock counts from, before any wait.
    pub made: Instant,
    pub begin: Mutex<Option<Instant>>,
    /// Nanoseconds of the whole run, once it has ended.
    pub whole: AtomicU64,
    /// What was asked for and could not be had.
    pub notes: Mutex<Vec<String>>,
}

/// What a run has done so far.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Telemetry {
    /// Nanoseconds since the start.
    pub elapsed: u64,
    /// The partitions.
    pub partitions: Vec<PartitionTelemetry>,
    /// The queues.
    pub queues: Vec<QueueTelemetry>,
    /// Nanoseconds from the reading of inputs to the writing of the outputs of the same ticks.
    pub latency: Quantiles,
    /// What was asked for and could not be had.
    pub notes: Vec<String>,
}

/// What one partition has done so far.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PartitionTelemetry {
    /// Its name.
    pub name: String,
    /// Ticks done.
    pub ticks: u64,
    /// Nanoseconds spent working.
    pub busy: u64,
    /// Nanoseconds spent waiting for any queue.
    pub waiting: u64,
    /// Of these, waiting for a block to read.
    pub waiting_to_read: u64,
    /// Of these, waiting for room to write.
    pub waiting_to_write: u64,
    /// Nanoseconds of a step that go into reading from queues, on average.
    pub reading: u64,
    /// Nanoseconds of a step that go into the nodes, on average.
    pub computing: u64,
    /// Nanoseconds of a step that go into writing to queues, on average.
    pub writing: u64,
    /// Nanoseconds of one step, without waiting.
    pub steps: Quantiles,
    /// The nodes that run together, and the nanoseconds of a step that they take, on average.
    pub units: Vec<(String, u64)>,
}

/// What one queue has done so far.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueueTelemetry {
    /// The partition that writes.
    pub from: String,
    /// The partition that reads.
    pub to: String,
    /// Nanoseconds that the writer has waited for room.
    pub full: u64,
    /// Nanoseconds that the reader has waited for a block.
    pub empty: u64,
    /// Blocks that it holds at most.
    pub capacity: usize,
    /// Blocks that the reader found.
    pub fill: Quantiles,
    /// Blocks in it: none while the reader waits for one, all while the writer waits for room,
    /// else as many as the reader found last.
    pub held: u64,
}

impl Counts {
    pub fn note(&self, text: String) {
        self.notes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(text);
    }

    /// Nanoseconds of the clock.
    pub fn now(&self) -> u64 {
        self.made.elapsed().as_nanos() as u64
    }
}

impl Telemetry {
    /// The telemetry as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self)
            .unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"))
    }

    /// The share of the time that a number of nanoseconds is, in percent.
    fn percent(&self, nanoseconds: u64) -> f64 {
        100.0 * nanoseconds as f64 / self.elapsed.max(1) as f64
    }
}

impl fmt::Display for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for partition in &self.partitions {
            write!(
                f,
                "{:<14} {:5.1} % busy, {} ticks",
                partition.name,
                self.percent(partition.busy),
                partition.ticks
            )?;
            let steps = partition.steps;
            if steps.count > 0 {
                write!(f, ", a step {} ns, at most {} ns", steps.median, steps.most)?;
            }
            f.write_char('\n')?;
        }
        for queue in &self.queues {
            // Both may wait at once: whoever sleeps is woken for several blocks.
            let (writer, reader) = (self.percent(queue.full), self.percent(queue.empty));
            write!(
                f,
                "{} -> {}: writer waits {writer:.1} %, reader waits {reader:.1} %",
                queue.from, queue.to
            )?;
            match queue.fill.count {
                0 => writeln!(f)?,
                _ => writeln!(
                    f,
                    ", {} of {} blocks in it",
                    queue.fill.median, queue.capacity
                )?,
            }
        }
        for note in &self.notes {
            writeln!(f, "{note}")?;
        }
        let latency = self.latency;
        if latency.count == 0 {
            return writeln!(
                f,
                "latency not measured: there are no inputs, or too few blocks"
            );
        }
        writeln!(
            f,
            "latency {} ns, 99 % {} ns, 99.999 % {} ns, at most {} ns, of {} steps that were timed, one in {EVERY}",
            latency.median, latency.p99, latency.p99_999, latency.most, latency.count
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_has_no_more_blocks_than_it_holds() {
        let fill = Spread::new();
        (0..10).for_each(|_| fill.add(512));
        let shown = Quantiles::from(&fill.numbers());
        // Of two digits, rounded up.
        assert!(shown.median > 512 && shown.most > 512);
        let shown = shown.at_most(512);
        assert_eq!((shown.count, shown.median, shown.most), (10, 512, 512));
        assert_eq!(shown.at_most(600), shown);
    }
}
