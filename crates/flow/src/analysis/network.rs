//! Partitions that work on blocks, and the queues between them.

use serde::{Deserialize, Serialize};

use crate::problem::{Cause, Problems};

/// Nodes that one thread runs.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    /// Its name in reports.
    pub name: String,
    /// Nanoseconds for one block: computing, and putting and taking blocks.
    pub busy: u64,
}

/// A queue of blocks from one partition to another.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// The index of the partition that writes.
    pub from: usize,
    /// The index of the partition that reads.
    pub to: usize,
    /// Blocks in the queue at the start.
    #[serde(default)]
    pub initial: u64,
    /// Blocks that it holds.
    pub capacity: u64,
    /// Nanoseconds from the writing of a block to its reading, at the least.
    #[serde(default)]
    pub latency: u64,
    /// Bytes of one block.
    #[serde(default)]
    pub bytes: u64,
}

/// What the analysis is about. Partitions of the outside are left out: they wait for nothing.
///
/// ```
/// use karoo_flow::analysis::{Network, Partition, Queue};
///
/// let partition = |name: &str, busy| Partition { name: name.into(), busy };
/// let queue = |from, to, initial| Queue {
///     from, to, initial, capacity: 4, latency: 50, bytes: 480,
/// };
/// let network = Network {
///     partitions: vec![partition("detector", 700), partition("loop filter", 250)],
///     queues: vec![queue(0, 1, 0), queue(1, 0, 1)],
/// };
/// let report = network.analyse(None).unwrap();
/// // One block goes round: 700 + 50 + 250 + 50 ns for each.
/// assert_eq!(report.period.nanoseconds(), 1050.0);
/// // With a second one in the loop the detector is the limit.
/// assert_eq!(report.cycles[0].missing, 1);
/// ```
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// The partitions.
    pub partitions: Vec<Partition>,
    /// The queues.
    pub queues: Vec<Queue>,
}

/// The most partitions of a network.
const MAX_PARTITIONS: usize = 4096;
/// The longest time of one partition or queue, in nanoseconds: over an hour.
pub(crate) const MAX_TIME: u64 = 1 << 42;
/// The most blocks in one queue.
const MAX_BLOCKS: u64 = 1 << 32;

impl Network {
    /// What cannot be analysed: indices that point nowhere, queues without room, figures out of
    /// range.
    pub(super) fn check(&self) -> Result<(), Problems> {
        let mut problems = Problems::default();
        if self.partitions.len() > MAX_PARTITIONS || self.queues.len() > 8 * MAX_PARTITIONS {
            let text =
                format!("more than {MAX_PARTITIONS} partitions, or eight times as many queues");
            problems.add(Cause::Limit, "network", text);
        }
        for partition in self
            .partitions
            .iter()
            .filter(|partition| partition.busy > MAX_TIME)
        {
            problems.add(
                Cause::Limit,
                &partition.name,
                format!("{} ns busy: at most {MAX_TIME}", partition.busy),
            );
        }
        for (index, queue) in self.queues.iter().enumerate() {
            let path = format!("queue {index}");
            if queue.from.max(queue.to) >= self.partitions.len() {
                problems.add(Cause::Connection, path, "it ends at no partition");
                continue;
            }
            if queue.capacity == 0 || queue.capacity > MAX_BLOCKS || queue.latency > MAX_TIME {
                let text = format!(
                    "capacity {} and latency {}: 1 to {MAX_BLOCKS} blocks, at most {MAX_TIME} ns",
                    queue.capacity, queue.latency
                );
                problems.add(Cause::Limit, &path, text);
            }
            if queue.initial > queue.capacity {
                let text = format!(
                    "{} initial blocks in a queue of {}: lengthen it",
                    queue.initial, queue.capacity
                );
                problems.add(Cause::Limit, &path, text);
            }
        }
        problems.unless(())
    }

    /// The bytes of all queues.
    pub fn memory(&self) -> u64 {
        self.queues
            .iter()
            .map(|queue| queue.bytes.saturating_mul(queue.capacity))
            .fold(0, u64::saturating_add)
    }
}
