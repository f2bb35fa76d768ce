//! A run at one moment: its telemetry up to there, and what tells it from another moment's.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;

use super::telemetry::{
    Counts, PartitionTelemetry, PartitionTimes, Quantiles, QueueTelemetry, QueueTimes, Telemetry,
};

/// A run at one moment. Of two moments [`since`](Moment::since) tells what was done between them;
/// the moment before any run is the default.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// What the run has done so far.
    pub telemetry: Telemetry,
    /// Of each partition.
    steps: Vec<StepSums>,
    /// Blocks that readers of each queue found.
    fills: Vec<Histogram<u64>>,
    latency: Option<Histogram<u64>>,
}

/// Sums over the steps of a partition that were timed, of which means are made.
#[derive(Clone, Debug)]
struct StepSums {
    /// Steps that were timed, and those of them in which the clock was not read behind each unit.
    timed: u64,
    whole: u64,
    /// Nanoseconds of all of the former, and of the latter.
    reading: u64,
    writing: u64,
    computing: u64,
    /// Nanoseconds of each unit in the rest.
    units: Vec<u64>,
    times: Histogram<u64>,
}

fn get(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

/// Numbers that came since an earlier look at the same.
fn less(now: &Histogram<u64>, before: &Histogram<u64>) -> Quantiles {
    let mut new = now.clone();
    match new.subtract(before) {
        Ok(()) => Quantiles::from(&new),
        // Not of the same run: all are new.
        Err(_) => Quantiles::from(now),
    }
}

impl StepSums {
    fn of(times: &PartitionTimes) -> StepSums {
        StepSums {
            timed: get(&times.timed),
            whole: get(&times.whole),
            reading: get(&times.reading),
            writing: get(&times.writing),
            computing: get(&times.computing),
            units: times.units.iter().map(get).collect(),
            times: times.steps.numbers(),
        }
    }

    /// Puts the means of the steps since an earlier look.
    fn put_since(&self, before: &StepSums, partition: &mut PartitionTelemetry) {
        let less = |now: u64, before: u64| now.saturating_sub(before);
        let units = self.units.iter().zip(&before.units);
        let new = StepSums {
            timed: less(self.timed, before.timed),
            whole: less(self.whole, before.whole),
            reading: less(self.reading, before.reading),
            writing: less(self.writing, before.writing),
            computing: less(self.computing, before.computing),
            units: units.map(|(now, before)| less(*now, *before)).collect(),
            times: self.times.clone(),
        };
        new.put(partition);
        partition.steps = self::less(&self.times, &before.times);
    }

    /// Puts the means, and the spread of the steps.
    fn put(&self, partition: &mut PartitionTelemetry) {
        let by_unit = self.timed.saturating_sub(self.whole).max(1);
        partition.reading = self.reading / self.timed.max(1);
        partition.writing = self.writing / self.timed.max(1);
        partition.computing = self.computing / self.whole.max(1);
        for ((_, mean), sum) in partition.units.iter_mut().zip(&self.units) {
            *mean = sum / by_unit;
        }
        partition.steps = Quantiles::from(&self.times);
    }
}

impl Moment {
    /// What was done since an earlier moment of the same run: counts and times as differences,
    /// means and spreads of what was timed in between. What is so at a moment, such as the blocks
    /// in a queue, is so at this one.
    #[must_use]
    pub fn since(&self, before: &Moment) -> Telemetry {
        let mut span = self.telemetry.since(&before.telemetry);
        let steps = self.steps.iter().zip(&before.steps);
        for (partition, (now, before)) in span.partitions.iter_mut().zip(steps) {
            now.put_since(before, partition);
        }
        let fills = self.fills.iter().zip(&before.fills);
        for (queue, (now, before)) in span.queues.iter_mut().zip(fills) {
            queue.fill = less(now, before).at_most(queue.capacity as u64);
        }
        if let Some((now, before)) = self.latency.as_ref().zip(before.latency.as_ref()) {
            span.latency = less(now, before);
        }
        span
    }
}

impl Counts {
    /// What the counts say now.
    pub fn show(&self) -> Moment {
        let begin = *self.begin.lock().unwrap_or_else(PoisonError::into_inner);
        // One look for what has gone by and for waits: what is left is work.
        let now = self.now();
        let begin = begin.map_or(now, |begin| (begin - self.made).as_nanos() as u64);
        let elapsed = match get(&self.whole) {
            0 => now.saturating_sub(begin),
            whole => whole,
        };
        let steps: Vec<StepSums> = self.partitions.iter().map(StepSums::of).collect();
        let fills = self.queues.iter().map(|times| times.fill.numbers());
        let fills: Vec<Histogram<u64>> = fills.collect();
        type OfPartition<'a> = (&'a PartitionTimes, &'a (String, Vec<String>));
        let partition = |((times, (name, units)), steps): (OfPartition, &StepSums)| {
            let (empty, full) = (times.empty.until(now), times.full.until(now));
            let waiting = empty + full;
            let here = if times.runs { elapsed } else { 0 };
            let mut partition = PartitionTelemetry {
                name: name.clone(),
                ticks: get(&times.ticks),
                busy: here.saturating_sub(waiting),
                waiting,
                waiting_to_read: empty,
                waiting_to_write: full,
                units: units.iter().map(|name| (name.clone(), 0)).collect(),
                ..PartitionTelemetry::default()
            };
            steps.put(&mut partition);
            partition
        };
        type OfQueue<'a> = (&'a Arc<QueueTimes>, &'a (String, String, usize));
        let queue =
            |((times, (from, to, capacity)), fill): (OfQueue, &Histogram<u64>)| QueueTelemetry {
                from: from.clone(),
                to: to.clone(),
                full: times.writer.0.until(now),
                empty: times.reader.0.until(now),
                capacity: *capacity,
                fill: Quantiles::from(fill).at_most(*capacity as u64),
                held: times.held(*capacity),
            };
        let partitions = self.partitions.iter().zip(&self.names.partitions);
        let queues = self.queues.iter().zip(&self.names.queues);
        let latency = self.latency.numbers();
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let telemetry = Telemetry {
            elapsed,
            partitions: partitions.zip(&steps).map(partition).collect(),
            queues: queues.zip(&fills).map(queue).collect(),
            latency: Quantiles::from(&latency),
            notes: notes.clone(),
        };
        Moment {
            telemetry,
            steps,
            fills,
            latency: Some(latency),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Instant;

    use super::super::telemetry::{Names, Spread};
    use super::*;

    /// Counts of one partition of one unit and one queue of four blocks.
    fn counts() -> Counts {
        Counts {
            names: Names {
                partitions: vec![("partition 0".to_owned(), vec!["a".to_owned()])],
                queues: vec![("inputs".to_owned(), "partition 0".to_owned(), 4)],
            },
            partitions: vec![PartitionTimes::new(1, true)],
            queues: vec![Arc::new(QueueTimes::new())],
            latency: Spread::new(),
            made: Instant::now(),
            begin: Mutex::new(None),
            whole: AtomicU64::new(0),
            notes: Mutex::default(),
        }
    }

    /// A step that was timed as a whole, and one that was timed by unit.
    fn two_steps(counts: &Counts, nanoseconds: u64) {
        let times = &counts.partitions[0];
        let add = |count: &AtomicU64, more| count.fetch_add(more, Ordering::Relaxed);
        add(&times.timed, 2);
        add(&times.whole, 1);
        add(&times.reading, 2 * nanoseconds);
        add(&times.writing, 4 * nanoseconds);
        add(&times.computing, 3 * nanoseconds);
        add(&times.units[0], 5 * nanoseconds);
        add(&times.ticks, 128);
        times.steps.add(10 * nanoseconds);
        counts.latency.add(20 * nanoseconds);
        counts.queues[0].found(nanoseconds.min(3));
    }

    #[test]
    fn a_hitch_at_the_start_is_in_no_later_span() {
        let counts = counts();
        let first = counts.show();
        two_steps(&counts, 1_000_000);
        let hitch = counts.show();
        (0..5).for_each(|_| two_steps(&counts, 1));
        let later = counts.show();
        // Of the whole run it stays the most.
        assert!(later.telemetry.partitions[0].steps.most >= 10_000_000);
        let span = later.since(&hitch);
        let partition = &span.partitions[0];
        assert_eq!(partition.ticks, 5 * 128);
        let (steps, latency) = (partition.steps, span.latency);
        assert_eq!((steps.count, steps.median, steps.most), (5, 10, 10));
        assert_eq!((latency.count, latency.p99, latency.most), (5, 20, 20));
        let phases = (partition.reading, partition.computing, partition.writing);
        assert_eq!(phases, (1, 3, 2));
        assert_eq!(partition.units, [("a".to_owned(), 5)]);
        assert_eq!(
            (span.queues[0].fill.count, span.queues[0].fill.most),
            (5, 1)
        );
        // The span of the hitch has it.
        let span = hitch.since(&first);
        assert_eq!(span.partitions[0].computing, 3_000_000);
        assert_eq!(span.latency.count, 1);
    }

    #[test]
    fn a_span_in_which_nothing_was_timed_has_no_numbers() {
        let counts = counts();
        two_steps(&counts, 7);
        let now = counts.show();
        let span = counts.show().since(&now);
        let partition = &span.partitions[0];
        assert_eq!(partition.steps, Quantiles::default());
        assert_eq!((partition.reading, partition.computing), (0, 0));
        assert_eq!(span.latency.count, 0);
        // All of it is since the moment before any run.
        assert_eq!(counts.show().since(&Moment::default()).latency.count, 1);
    }
}
