//! Which thread runs which node, and what crosses from one to another.

mod build;

use std::sync::Arc;

use super::initial::InitialSamples;
use super::lane::SignalShape;
use super::settings::Transfer;
use crate::graph::{Graph, NodeId, UNMARKED};
use crate::kernels::Level;
use crate::node::Node;
use crate::problem::{Cause, Problems};
use crate::types::{Scalar, Type};

/// The index of the partition that samples enter by.
pub(super) const IN: usize = 0;
/// The index of the partition that samples leave by.
pub(super) const OUT: usize = 1;
/// The index of the first partition that computes: those before it are the outside.
pub(super) const FIRST_PARTITION: usize = OUT + 1;

/// Whether the partition of this index is the outside.
pub(super) fn is_outside(partition: usize) -> bool {
    partition < FIRST_PARTITION
}

/// The most ticks of one block or of one round of all rates.
pub(crate) const MAX_BLOCK: u64 = 1 << 22;
/// Bytes of the signals of one step that are still near, and of one signal where that is found out.
const NEAR: u64 = 256 << 10;
const LOOKED_AT: u64 = 16 * NEAR;

/// Bytes of a queue of the outside that may hold more blocks than it is asked to, and how many.
const OUTSIDE: usize = 32 << 10;
const MOST_OUTSIDE: usize = 512;

/// A node in its partition.
#[derive(Clone, Debug)]
pub(super) struct PartitionNode {
    pub path: String,
    pub node: Arc<dyn Node>,
    /// The signals of the inputs and of the outputs.
    pub from: Vec<usize>,
    pub to: Vec<usize>,
    pub inputs: Vec<Type>,
    pub outputs: Vec<Type>,
    pub period: u64,
    /// The parameter that the node's numbers are, if they may change.
    pub parameter: Option<usize>,
    /// The signals that must be true for the node to run.
    pub enables: Vec<usize>,
}

impl PartitionNode {
    /// The length of a delay outside of enabled subsystems; 0 for any other node.
    pub fn plain_delay(&self) -> usize {
        let delay = self.node.delay().filter(|_| self.enables.is_empty());
        delay.unwrap_or(0)
    }
}

/// Nodes of one thread. The first two partitions are the outside.
#[derive(Clone, Debug)]
pub(super) struct PartitionLayout {
    pub id: u32,
    /// The number of the copy; 0 for the first, which others are copies of.
    pub copy: usize,
    /// A node is `None` once a queue has taken its place.
    pub items: Vec<Option<PartitionNode>>,
    pub shapes: Vec<SignalShape>,
    /// The signals that go to other partitions, and those that come from them.
    pub sent: Vec<usize>,
    pub received: Vec<usize>,
    /// Ticks that are worked on at once.
    pub step: u64,
    /// Ticks after which all rates begin anew.
    pub round: u64,
    /// The fewest ticks that a mark in the graph asks to work on at once.
    pub sub_block: Option<u64>,
}

impl PartitionLayout {
    /// Makes the step a divisor of itself that is not above `most`, or the shortest that there is.
    pub fn limit_step(&mut self, most: u64) {
        let rounds = self.step / self.round;
        let most = (most / self.round).clamp(1, rounds);
        let best = (1..=most).rev().find(|n| rounds.is_multiple_of(*n));
        self.step = self.round * best.unwrap_or(1);
    }

    pub fn name(&self, index: usize) -> String {
        let copy = match self.copy {
            0 => String::new(),
            copy => format!(", copy {copy}"),
        };
        match (index, self.id) {
            (IN, _) => "inputs".into(),
            (OUT, _) => "outputs".into(),
            (_, UNMARKED) => format!("unmarked{copy}"),
            (_, id) => format!("partition {id}{copy}"),
        }
    }
}

/// A signal that crosses.
#[derive(Clone, Debug)]
pub(super) struct Crossing {
    /// The signal in the partition that writes.
    pub from: usize,
    /// The signal in the partition that reads.
    pub to: usize,
    /// What is read before what is written, the first first.
    pub initial: InitialSamples,
}

/// A queue for all that crosses from one partition to another.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    pub from: usize,
    pub to: usize,
    pub crossings: Vec<Crossing>,
    /// Ticks in a block.
    pub block: u64,
    pub capacity: usize,
    pub transfer: Transfer,
    /// Blocks at the start.
    pub initial: usize,
    /// Which of the writer's blocks go through this queue, and which of the reader's blocks they
    /// are.
    pub writes: Turn,
    pub reads: Turn,
}

/// Which blocks of a queue belong to one copy of a partition: number `turn` of every `turns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub turn: u64,
    pub turns: u64,
}

impl Turn {
    /// Every block.
    pub const EVERY: Turn = Turn { turn: 0, turns: 1 };

    /// Whether a block has its turn.
    pub fn has(self, block: u64) -> bool {
        block % self.turns == self.turn
    }
}

/// All partitions and queues of a graph.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub partitions: Vec<PartitionLayout>,
    pub edges: Vec<Edge>,
    /// The signals of the inputs in partition [`IN`], by path.
    pub inputs: Vec<(String, usize)>,
    /// The signals of the outputs in partition [`OUT`], by path, with the ticks between samples.
    pub outputs: Vec<(String, usize, u64)>,
    /// Nodes whose numbers may change, with the type of these.
    pub parameters: Vec<(String, Arc<dyn Node>, Scalar)>,
}

/// The nodes of these paths, if all have numbers that may change during a run, as
/// [`Settings::changeable`](super::Settings::changeable) wants it.
pub fn changeable(graph: &Graph, paths: &[String]) -> Result<Vec<NodeId>, Problems> {
    let mut problems = Problems::default();
    let mut found = Vec::new();
    for path in paths {
        let mut refuse = |text: &str| problems.add(Cause::Parameter, path, text);
        let Some(id) = graph.find(path) else {
            refuse("cannot be changed: there is no such node");
            continue;
        };
        let node = &graph.node(id).node;
        if node.numbers().is_none() {
            refuse("cannot be changed: it is no constant, no gain and no filter");
        } else if node.constant()
            && graph
                .outputs()
                .any(|out| graph.node(out).from[0].node == id)
        {
            refuse("cannot be changed: it is an output by itself; put a `pass` between them");
        } else if !found.contains(&id) {
            found.push(id);
        }
    }
    problems.unless(found)
}

impl Layout {
    /// A partition, and those from which something goes to it over any number of queues.
    fn before(&self, partition: usize) -> Vec<bool> {
        let mut found = vec![false; self.partitions.len()];
        let mut open = vec![partition];
        while let Some(partition) = open.pop() {
            if !std::mem::replace(&mut found[partition], true) {
                let into = self.edges.iter().filter(|edge| edge.to == partition);
                open.extend(into.map(|edge| edge.from));
            }
        }
        found
    }

    /// The partitions with threads that no output needs, and whether each runs free: nothing comes
    /// to it from the inputs, nor from a partition that an output needs.
    pub fn unneeded(&self) -> Vec<(usize, bool)> {
        let needed = self.before(OUT);
        let mut partitions: Vec<usize> = self.edges.iter().map(|edge| edge.to).collect();
        partitions.retain(|&partition| !needed[partition]);
        partitions.sort_unstable();
        partitions.dedup();
        let free = |partition: usize| {
            let before = self.before(partition).into_iter().enumerate();
            let mut before = before.filter(|&(_, is_before)| is_before);
            before.all(|(other, _)| other != IN && !needed[other])
        };
        partitions
            .into_iter()
            .map(|partition| (partition, free(partition)))
            .collect()
    }

    /// Lets the queues of the outside hold more blocks where these are small. The threads there
    /// often share CPUs with others, and blocks pass faster than the kernel lets threads take
    /// turns.
    pub fn deepen(&mut self) {
        for index in 0..self.edges.len() {
            let bytes = super::link::block_bytes(self, &self.edges[index]).max(1);
            let edge = &mut self.edges[index];
            if is_outside(edge.from) || is_outside(edge.to) {
                edge.capacity = edge.capacity.max((OUTSIDE / bytes).min(MOST_OUTSIDE));
            }
        }
    }

    /// Makes the steps of partitions shorter whose signals would not stay near.
    pub fn stay_near(&mut self) {
        for partition in self.partitions.iter_mut().skip(FIRST_PARTITION) {
            // Constants are written out for all samples: of long ones not many.
            let of_tick = |shape: &SignalShape| shape.lane_bytes() as u64 / shape.period;
            let longest = partition.shapes.iter().map(of_tick).max().unwrap_or(0);
            partition.limit_step(LOOKED_AT / longest.max(1));
            let bytes = super::code::PartitionCode::new(partition, Level::PORTABLE, false).bytes();
            if bytes > NEAR {
                partition.limit_step(
                    (u128::from(partition.step) * u128::from(NEAR) / u128::from(bytes)) as u64,
                );
            }
        }
    }

    /// Tells each partition which signals cross.
    pub fn cross(&mut self) {
        for edge in &self.edges {
            for crossing in &edge.crossings {
                self.partitions[edge.from].sent.push(crossing.from);
                self.partitions[edge.to].received.push(crossing.to);
            }
        }
    }
}
