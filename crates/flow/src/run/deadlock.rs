//! Whether a layout ever stands still: found by playing it through once.
//!
//! What is in the queues decides alone which partition can go on, and what one partition does takes
//! nothing from another: the order does not matter. After one round of all blocks the queues are as
//! at the start, so a layout that gets through one round runs for ever, and one that does not
//! stands still.

use num_integer::gcd;

use super::layout::{Edge, Layout, MAX_BLOCK, Turn};
use crate::problem::{Cause, Problems};

/// Steps that are played at most.
const MAX_STEPS: u64 = 1 << 22;

struct Play<'a> {
    layout: &'a Layout,
    /// The queues that each partition reads, and those that it writes.
    reads: Vec<Vec<usize>>,
    writes: Vec<Vec<usize>>,
    /// Ticks done by each partition.
    done: Vec<u64>,
    /// Whether a partition has computed a step and not sent it.
    sending: Vec<bool>,
    /// Blocks in each queue, and slots that are neither full nor in use.
    full: Vec<usize>,
    free: Vec<usize>,
}

/// Refuses queues without room, and layouts that stand still.
pub(super) fn check(layout: &Layout, name: &str) -> Result<(), Problems> {
    let mut problems = Problems::default();
    for edge in &layout.edges {
        if edge.capacity == 0 || edge.capacity as u64 > MAX_BLOCK {
            let path = format!("{name}: queue {}", queue_name(layout, edge.from, edge.to));
            let text = format!(
                "a capacity of {}: it must be 1 to {MAX_BLOCK} blocks",
                edge.capacity
            );
            problems.add(Cause::Limit, path, text);
        }
    }
    problems.unless(())?;
    let mut round: u128 = 1;
    // All copies of a partition have their turn in a round.
    for edge in &layout.edges {
        for turns in [edge.writes.turns, edge.reads.turns] {
            let ticks = u128::from(edge.block) * u128::from(turns);
            // One that has grown too long stays so.
            round = (round / gcd(round, ticks)).saturating_mul(ticks);
        }
    }
    let steps = layout
        .partitions
        .iter()
        .map(|partition| round / u128::from(partition.step))
        .fold(0, u128::saturating_add);
    if steps > MAX_STEPS.into() {
        let text = "the blocks of its queues have no common round that is short enough to be \
                    checked: give them sizes that divide one another, shorter blocks or longer \
                    steps, or partitions fewer copies";
        return Err(Problems::one(Cause::Limit, name, text));
    }
    let of = |end: fn(&Edge) -> usize| {
        let mut all = vec![Vec::new(); layout.partitions.len()];
        for (index, edge) in layout.edges.iter().enumerate() {
            all[end(edge)].push(index);
        }
        all
    };
    let mut play = Play {
        layout,
        reads: of(|edge| edge.to),
        writes: of(|edge| edge.from),
        done: vec![0; layout.partitions.len()],
        sending: vec![false; layout.partitions.len()],
        full: layout.edges.iter().map(|edge| edge.initial).collect(),
        free: layout
            .edges
            .iter()
            .map(|edge| edge.capacity - edge.initial)
            .collect(),
    };
    // A copy does its share of a round alone.
    let goals: Vec<u64> = (0..layout.partitions.len())
        .map(|partition| round as u64 / layout.sharers(partition))
        .collect();
    while (0..layout.partitions.len()).any(|partition| play.advance(partition, goals[partition])) {}
    let stuck: Vec<usize> = (0..layout.partitions.len())
        .filter(|&partition| play.done[partition] < goals[partition])
        .collect();
    if stuck.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = stuck
        .iter()
        .map(|&partition| layout.partitions[partition].name(partition))
        .collect();
    let lacks: Vec<String> = layout
        .edges
        .iter()
        .enumerate()
        .filter(|(index, edge)| stuck.contains(&edge.to) && play.full[*index] == 0)
        .map(|(_, edge)| {
            let (queue, block) = (queue_name(layout, edge.from, edge.to), edge.block);
            format!("{queue} has no block of {block} ticks")
        })
        .collect();
    let text = format!(
        "would stand still: {} wait for one another; {}. Put whole blocks of delay into the loop, \
         make its blocks smaller, or let its queues hold more",
        names.join(", "),
        if lacks.is_empty() {
            "their queues are full".into()
        } else {
            lacks.join(", ")
        }
    );
    Err(Problems::one(Cause::Loop, name, text))
}

fn queue_name(layout: &Layout, from: usize, to: usize) -> String {
    let name = |partition: usize| layout.partitions[partition].name(partition);
    format!("{} -> {}", name(from), name(to))
}

impl Play<'_> {
    /// Lets a partition go on as far as it can. Returns whether it moved.
    fn advance(&mut self, partition: usize, round: u64) -> bool {
        let mut moved = false;
        while self.done[partition] < round && self.step(partition) {
            moved = true;
        }
        moved
    }

    /// One phase of one step, if nothing is missing for it.
    fn step(&mut self, partition: usize) -> bool {
        let layout = self.layout;
        let step = layout.partitions[partition].step;
        let (begin, end) = (self.done[partition], self.done[partition] + step);
        let copies = |edge: usize| layout.edges[edge].transfer.copies();
        let begins = |edge: usize| begin.is_multiple_of(layout.edges[edge].block);
        let completes = |edge: usize| end.is_multiple_of(layout.edges[edge].block);
        let passing = |own: &[usize], turn: fn(&Edge) -> Turn| -> Vec<usize> {
            let passes = |edge: &Edge| turn(edge).has(begin / edge.block);
            let own = own.iter().copied();
            own.filter(|&edge| passes(&layout.edges[edge])).collect()
        };
        let ins = passing(&self.reads[partition], |edge| edge.reads);
        let outs = passing(&self.writes[partition], |edge| edge.writes);
        if !self.sending[partition] {
            let ready = ins.iter().all(|&edge| !begins(edge) || self.full[edge] > 0)
                && outs
                    .iter()
                    .all(|&edge| copies(edge) || !begins(edge) || self.free[edge] > 0);
            if !ready {
                return false;
            }
            for &edge in &ins {
                self.full[edge] -= usize::from(begins(edge));
                // A slot is free once all of it has been taken over.
                let taken = if copies(edge) {
                    begins(edge)
                } else {
                    completes(edge)
                };
                self.free[edge] += usize::from(taken);
            }
            for &edge in outs.iter().filter(|&&edge| begins(edge) && !copies(edge)) {
                self.free[edge] -= 1;
            }
            self.sending[partition] = true;
            return true;
        }
        let waits = |edge: usize| copies(edge) && completes(edge);
        if outs.iter().any(|&edge| waits(edge) && self.free[edge] == 0) {
            return false;
        }
        for &edge in outs.iter().filter(|&&edge| completes(edge)) {
            self.free[edge] -= usize::from(copies(edge));
            self.full[edge] += 1;
        }
        self.sending[partition] = false;
        self.done[partition] = end;
        true
    }
}
