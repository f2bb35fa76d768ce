//! Deadlocks, and the cycles of queues with the blocks that they lack.

use serde::Serialize;

use super::network::Network;
use super::ratio::Period;
use crate::cycles;
use crate::problem::{Cause, Problems};

/// The most cycles that are listed one by one.
const MAX_CYCLES: usize = 1000;

/// A cycle of queues, each followed forward.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cycle {
    /// The queues, from one partition to the next.
    pub queues: Vec<usize>,
    /// The partitions that they leave.
    pub partitions: Vec<usize>,
    /// Blocks in them at the start.
    pub blocks: u64,
    /// The period that this cycle allows.
    pub period: Period,
    /// Blocks to add for the period that was asked for, or that the busiest partition allows.
    pub missing: u64,
}

impl Cycle {
    /// Blocks for each partition: below 1, not all of them can work at once.
    pub fn blocks_per_partition(&self) -> f64 {
        self.blocks as f64 / self.partitions.len() as f64
    }
}

impl Network {
    /// Refuses networks in which some partition waits for itself: one problem for each group of
    /// such partitions, with a shortest cycle, what stands still in it, and the way out.
    pub(super) fn live(&self) -> Result<(), Problems> {
        let arcs = self.dependences();
        let mut next = vec![Vec::new(); self.partitions.len()];
        for arc in arcs.iter().filter(|arc| arc.tokens == 0) {
            next[arc.from].push(arc.to);
        }
        let mut problems = Problems::default();
        for component in cycles::components(&next) {
            let Some(cycle) = cycles::shortest_loop(&next, component[0]) else {
                continue;
            };
            let mut names: Vec<&str> = cycle
                .iter()
                .map(|&at| self.partitions[at].name.as_str())
                .collect();
            names.push(names[0]);
            let empty = |from: usize, to: usize| {
                self.queues
                    .iter()
                    .any(|queue| queue.from == from && queue.to == to && queue.initial == 0)
            };
            let forward =
                (0..cycle.len()).all(|at| empty(cycle[at], cycle[(at + 1) % cycle.len()]));
            let way_out = if forward {
                "put at least 1 initial block, a whole block of delay, into one of its queues"
            } else {
                "some of its queues are full at the start: lengthen one by at least 1 block"
            };
            problems.add(
                Cause::Loop,
                names[0],
                format!(
                    "waits for itself for ever: {}; {way_out}",
                    names.join(" -> ")
                ),
            );
        }
        problems.unless(())
    }

    /// The cycles of queues, and whether these are all. At most `MAX_CYCLES`, and not longer than
    /// some time.
    pub(super) fn cycles(&self, target: Period) -> (Vec<Cycle>, bool) {
        let mut search = Search {
            network: self,
            out: vec![Vec::new(); self.partitions.len()],
            found: vec![],
            steps: 0,
        };
        for (index, queue) in self.queues.iter().enumerate() {
            search.out[queue.from].push(index);
        }
        let complete = (0..self.partitions.len()).all(|start| search.from(start));
        let mut cycles: Vec<Cycle> = search
            .found
            .iter()
            .map(|queues| self.cycle(queues, target))
            .collect();
        cycles.sort_by(|a, b| {
            b.missing
                .cmp(&a.missing)
                .then(b.period.cmp(&a.period))
                .then(a.queues.cmp(&b.queues))
        });
        (cycles, complete)
    }

    fn cycle(&self, queues: &[usize], target: Period) -> Cycle {
        let partitions: Vec<usize> = queues
            .iter()
            .map(|&queue| self.queues[queue].from)
            .collect();
        let blocks = queues.iter().map(|&queue| self.queues[queue].initial).sum();
        let busy: u64 = partitions.iter().map(|&at| self.partitions[at].busy).sum();
        let time = busy
            + queues
                .iter()
                .map(|&queue| self.queues[queue].latency)
                .sum::<u64>();
        // The fewest blocks for which time / blocks is at most the target.
        let wanted =
            (u128::from(time) * u128::from(target.tokens)).div_ceil(u128::from(target.time.max(1)));
        let missing = (wanted.max(1) as u64).saturating_sub(blocks);
        Cycle {
            queues: queues.to_vec(),
            partitions,
            blocks,
            period: Period {
                time,
                tokens: blocks,
            },
            missing,
        }
    }
}

/// Depth-first search of simple cycles. Each is found from its smallest partition.
struct Search<'a> {
    network: &'a Network,
    /// The queues out of each partition.
    out: Vec<Vec<usize>>,
    found: Vec<Vec<usize>>,
    steps: usize,
}

impl Search<'_> {
    /// Finds the cycles whose smallest partition is `start`. False if the search was given up.
    fn from(&mut self, start: usize) -> bool {
        const MAX_STEPS: usize = 1_000_000;
        let closes = self.reaching(start);
        let mut on_path = vec![false; self.network.partitions.len()];
        let mut path: Vec<usize> = Vec::new();
        let mut at = vec![(start, 0)];
        on_path[start] = true;
        while let Some((partition, child)) = at.pop() {
            let Some(&queue) = self.out[partition].get(child) else {
                on_path[partition] = false;
                path.pop();
                continue;
            };
            at.push((partition, child + 1));
            self.steps += 1;
            let to = self.network.queues[queue].to;
            if to == start {
                self.found
                    .push(path.iter().copied().chain([queue]).collect());
            } else if to > start && !on_path[to] && closes[to] {
                path.push(queue);
                on_path[to] = true;
                at.push((to, 0));
            }
            if self.found.len() >= MAX_CYCLES || self.steps >= MAX_STEPS {
                return false;
            }
        }
        true
    }

    /// Which partitions reach `start` by partitions above it.
    fn reaching(&self, start: usize) -> Vec<bool> {
        let mut before = vec![Vec::new(); self.network.partitions.len()];
        for queue in self
            .network
            .queues
            .iter()
            .filter(|queue| queue.from >= start && queue.to >= start)
        {
            before[queue.to].push(queue.from);
        }
        let mut seen = vec![false; before.len()];
        let mut open = vec![start];
        while let Some(partition) = open.pop() {
            for &from in &before[partition] {
                if !std::mem::replace(&mut seen[from], true) {
                    open.push(from);
                }
            }
        }
        seen
    }
}
