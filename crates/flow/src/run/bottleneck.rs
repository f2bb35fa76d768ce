//! The bottleneck of a run: what holds its rate back, told from who waits for whom.

use std::fmt;

use super::layout::{FIRST_PARTITION, IN, OUT};
use super::telemetry::{PartitionTelemetry, QueueTelemetry, Telemetry};

/// A partition that works for more than this share of the time is the limit, wherever it waits in
/// the rest.
const FULL: f64 = 0.9;
/// What works for more than this share, and waits for no end, is the limit too.
const HALF: f64 = 0.5;
/// A partition that works for less than this share is no limit. With more it is one if it works
/// this many times as long as anything else, inputs and outputs too: where threads wait for CPUs,
/// none works for most of the time.
const LEAST: f64 = 0.05;
const TIMES: f64 = 2.0;

/// What holds the rate back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Partitions wait for blocks, and the inputs have none to give: no more comes.
    Inputs,
    /// Partitions wait for room, and the outputs make none: no more is taken.
    Outputs,
    /// The partition with this index works, and others wait for it.
    Partition(usize),
    /// None works for long, or much longer than others: they wait for one another, or for CPUs.
    Nobody,
}

impl Limit {
    /// The index of the partition, of the inputs or of the outputs.
    pub fn partition(self) -> Option<usize> {
        match self {
            Limit::Inputs => Some(IN),
            Limit::Outputs => Some(OUT),
            Limit::Partition(index) => Some(index),
            Limit::Nobody => None,
        }
    }
}

impl Telemetry {
    /// What was done since an earlier look at the same run. Spreads and means are of the whole run;
    /// those of a [`Moment`](super::Moment) are not.
    #[must_use]
    pub fn since(&self, before: &Telemetry) -> Telemetry {
        let less = |now: u64, before: Option<u64>| now.saturating_sub(before.unwrap_or(0));
        let partitions = self.partitions.iter().enumerate();
        let partition = |(index, partition): (usize, &PartitionTelemetry)| {
            let old = before.partitions.get(index);
            PartitionTelemetry {
                ticks: less(partition.ticks, old.map(|old| old.ticks)),
                busy: less(partition.busy, old.map(|old| old.busy)),
                waiting: less(partition.waiting, old.map(|old| old.waiting)),
                waiting_to_read: less(
                    partition.waiting_to_read,
                    old.map(|old| old.waiting_to_read),
                ),
                waiting_to_write: less(
                    partition.waiting_to_write,
                    old.map(|old| old.waiting_to_write),
                ),
                ..partition.clone()
            }
        };
        let queues = self.queues.iter().enumerate();
        let queue = |(index, queue): (usize, &QueueTelemetry)| {
            let old = before.queues.get(index);
            QueueTelemetry {
                full: less(queue.full, old.map(|old| old.full)),
                empty: less(queue.empty, old.map(|old| old.empty)),
                ..queue.clone()
            }
        };
        Telemetry {
            elapsed: self.elapsed.saturating_sub(before.elapsed),
            partitions: partitions.map(partition).collect(),
            queues: queues.map(queue).collect(),
            ..self.clone()
        }
    }

    /// What share of the time so many nanoseconds are.
    pub fn share(&self, nanoseconds: u64) -> f64 {
        (nanoseconds as f64 / self.elapsed.max(1) as f64).min(1.0)
    }

    /// What holds the rate back: the partition that waits least, or what it waits for. None before
    /// anything ran.
    pub fn limit(&self) -> Option<Limit> {
        let inner = || self.partitions.iter().enumerate().skip(FIRST_PARTITION);
        let (index, most) = inner().max_by_key(|(_, partition)| partition.busy)?;
        if self.elapsed == 0 {
            return None;
        }
        // What reads and writes outside is not waiting for a queue then.
        let outside = |end: usize| {
            let end = self.partitions.get(end);
            end.is_some_and(|end| self.share(end.busy) > HALF)
        };
        let busy = self.share(most.busy);
        let others = self.partitions.iter().enumerate();
        let others = others.filter(|(other, _)| *other != index);
        let next = others.map(|(_, partition)| self.share(partition.busy));
        let alone = busy > LEAST && next.fold(0.0, f64::max) * TIMES < busy;
        let reads = most.waiting_to_read >= most.waiting_to_write;
        Some(match reads {
            _ if busy > FULL => Limit::Partition(index),
            true if outside(IN) => Limit::Inputs,
            false if outside(OUT) => Limit::Outputs,
            _ if busy > HALF || alone => Limit::Partition(index),
            _ => Limit::Nobody,
        })
    }

    /// The limit in words.
    pub fn limit_in_words(&self) -> Option<impl fmt::Display + use<>> {
        Some(match self.limit()? {
            Limit::Inputs => "inputs: no more comes".to_owned(),
            Limit::Outputs => "outputs: no more is taken".to_owned(),
            Limit::Partition(index) => {
                let partition = &self.partitions[index];
                let busy = self.share(partition.busy);
                let others = if busy > HALF {
                    ""
                } else {
                    ", others much less"
                };
                format!("{}, {:.0} % busy{others}", partition.name, 100.0 * busy)
            }
            Limit::Nobody => "no partition: they wait for one another, or for CPUs".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of 1000 ns: of each partition, how long it waited to read and to write.
    fn run(waits: &[(u64, u64)]) -> Telemetry {
        let partition = |&(read, write): &(u64, u64)| PartitionTelemetry {
            busy: 1000 - read - write,
            waiting: read + write,
            waiting_to_read: read,
            waiting_to_write: write,
            ..PartitionTelemetry::default()
        };
        Telemetry {
            elapsed: 1000,
            partitions: waits.iter().map(partition).collect(),
            ..Telemetry::default()
        }
    }

    #[test]
    fn the_limit_is_where_the_waits_point_to() {
        // Inputs, outputs, and two partitions.
        let cases = [
            // Nothing comes: the inputs wait for nobody within.
            ([(0, 0), (1000, 0), (995, 0), (998, 0)], Limit::Inputs),
            // Nothing is taken.
            ([(0, 1000), (0, 0), (0, 990), (0, 995)], Limit::Outputs),
            // The second works, what is before it waits for room, what is behind it for blocks.
            ([(0, 950), (950, 0), (0, 900), (20, 5)], Limit::Partition(3)),
            ([(0, 300), (700, 0), (0, 600), (350, 10)], Limit::Inputs),
            (
                [(0, 600), (700, 0), (0, 600), (350, 10)],
                Limit::Partition(3),
            ),
            // There are too few CPUs, and the second has most to do.
            (
                [(0, 960), (880, 0), (910, 40), (520, 40)],
                Limit::Partition(3),
            ),
            // All wait for one another.
            ([(0, 960), (880, 0), (700, 40), (620, 40)], Limit::Nobody),
            ([(0, 990), (990, 0), (995, 4), (985, 5)], Limit::Nobody),
        ];
        for (waits, limit) in cases {
            assert_eq!(run(&waits).limit(), Some(limit), "{waits:?}");
        }
        // Inputs and outputs that work for longer than the one partition are not "much less".
        let one = [(0, 768), (894, 0), (470, 470)];
        assert_eq!(run(&one).limit(), Some(Limit::Nobody));
        assert_eq!(
            run(&[(0, 990), (990, 0), (470, 470)]).limit(),
            Some(Limit::Partition(2))
        );
        assert_eq!(Telemetry::default().limit(), None);
    }

    #[test]
    fn a_look_has_what_was_done_since_the_one_before() {
        let before = run(&[(0, 0), (1000, 0), (0, 0)]);
        let mut now = run(&[(0, 500), (1000, 0), (500, 0)]);
        now.elapsed = 3000;
        for partition in &mut now.partitions {
            partition.busy += 2000;
        }
        let span = now.since(&before);
        assert_eq!(span.elapsed, 2000);
        let partition = &span.partitions[2];
        assert_eq!((partition.busy, partition.waiting_to_read), (1500, 500));
        assert!((span.share(partition.busy) - 0.75).abs() < 1e-9);
    }
}
