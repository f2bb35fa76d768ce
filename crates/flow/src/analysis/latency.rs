//! How long a block takes from where it enters to where it leaves.

use serde::Serialize;

use super::network::Network;
use super::ratio::Period;

/// The way from a partition that nothing feeds to one that feeds nothing.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// The partition where blocks enter.
    pub from: usize,
    /// The partition where they leave.
    pub to: usize,
    /// Blocks of delay: the result of a block leaves with the one that enters so many blocks later.
    pub blocks: u64,
    /// The queues of the slowest way with that delay.
    pub queues: Vec<usize>,
    /// Nanoseconds from the start of the first partition's work to the end of the last one's, with
    /// empty queues: all busy times and latencies on the way. The delay comes on top.
    pub empty: u64,
    /// The same with full queues: each then holds its capacity of blocks, one period each.
    /// Queues before the slowest partition fill up.
    pub full: f64,
}

/// The most pairs of ends whose latency is listed.
const MAX_LATENCIES: usize = 1000;

impl Network {
    /// The latency between each pair of ends, and whether these are all: at most `MAX_LATENCIES`.
    /// The network must be live.
    pub(super) fn latencies(&self, period: Period) -> (Vec<Latency>, bool) {
        let fed: Vec<bool> = self.ends(|queue| queue.to);
        let feeds: Vec<bool> = self.ends(|queue| queue.from);
        let mut result = Vec::new();
        for from in (0..self.partitions.len()).filter(|&at| !fed[at]) {
            let reached = self.reach(from);
            for to in (0..self.partitions.len()).filter(|&at| !feeds[at]) {
                if let Some((blocks, empty, _)) = reached[to] {
                    if result.len() == MAX_LATENCIES {
                        return (result, false);
                    }
                    let queues = self.way(&reached, from, to);
                    let held: f64 = queues
                        .iter()
                        .map(|&queue| self.queues[queue].capacity as f64)
                        .sum();
                    let full = empty as f64 + held * period.nanoseconds();
                    result.push(Latency {
                        from,
                        to,
                        blocks,
                        queues,
                        empty,
                        full,
                    });
                }
            }
        }
        (result, true)
    }

    fn ends(&self, end: impl Fn(&super::Queue) -> usize) -> Vec<bool> {
        let mut found = vec![false; self.partitions.len()];
        self.queues
            .iter()
            .for_each(|queue| found[end(queue)] = true);
        found
    }

    /// For each partition: the fewest blocks of delay from `from`, the longest time with these, and
    /// the last queue. A cycle has a block, so going round never leaves the delay as it is: as many
    /// rounds as partitions are enough.
    fn reach(&self, from: usize) -> Vec<Option<(u64, u64, Option<usize>)>> {
        let mut best: Vec<Option<(u64, u64, Option<usize>)>> = vec![None; self.partitions.len()];
        best[from] = Some((0, self.partitions[from].busy, None));
        for _ in 0..self.partitions.len() {
            let mut changed = false;
            for (index, queue) in self.queues.iter().enumerate() {
                let Some((blocks, time, _)) = best[queue.from] else {
                    continue;
                };
                let blocks = blocks + queue.initial;
                let time = time + queue.latency + self.partitions[queue.to].busy;
                let better =
                    best[queue.to].is_none_or(|(b, t, _)| blocks < b || (blocks == b && time > t));
                if better {
                    best[queue.to] = Some((blocks, time, Some(index)));
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        best
    }

    fn way(
        &self,
        reached: &[Option<(u64, u64, Option<usize>)>],
        from: usize,
        to: usize,
    ) -> Vec<usize> {
        let mut queues = Vec::new();
        let mut at = to;
        while at != from && queues.len() < self.partitions.len() {
            let Some((_, _, Some(queue))) = reached[at] else {
                break;
            };
            queues.push(queue);
            at = self.queues[queue].from;
        }
        queues.reverse();
        queues
    }
}
