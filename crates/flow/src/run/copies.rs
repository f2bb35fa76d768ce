//! Copies of partitions without state: blocks go round among them.
//!
//! Each queue to such a partition becomes one to each copy, which every so many blocks of the
//! writer pass; each queue from it likewise. What comes out has its order by the reader's taking
//! turns.

use super::change::Clock;
use super::layout::{Edge, FIRST_PARTITION, Layout, PartitionLayout, Turn, is_outside};
use super::settings::Settings;
use crate::graph::UNMARKED;
use crate::node::can_be_copied;
use crate::problem::{Cause, Problems};

/// The CPU of a partition, if it has one.
pub(super) fn cpu(partition: &PartitionLayout, settings: &Settings) -> Option<usize> {
    match partition.copy.checked_sub(1) {
        None => settings.cpus.get(&partition.id).copied(),
        Some(copy) => *settings.copies.get(&partition.id)?.get(copy)?,
    }
}

/// Which ticks the steps of a partition are.
pub(super) fn clock(layout: &Layout, partition: usize) -> Clock {
    let edges = layout.edges.iter();
    let own = edges.filter(|edge| edge.from == partition || edge.to == partition);
    Clock {
        // All blocks of copies have one size.
        block: own.map(|edge| edge.block).next().unwrap_or(1),
        copy: layout.partitions[partition].copy as u64,
        copies: layout.sharers(partition),
    }
}

impl Layout {
    /// A partition and its copies: how many there are.
    pub fn sharers(&self, partition: usize) -> u64 {
        if is_outside(partition) {
            return 1;
        }
        let id = self.partitions[partition].id;
        self.partitions[FIRST_PARTITION..]
            .iter()
            .filter(|other| other.id == id)
            .count() as u64
    }
}

/// Adds the copies that the settings ask for. Returns the queues with theirs.
pub(super) fn copy(
    name: &str,
    partitions: &mut Vec<PartitionLayout>,
    mut edges: Vec<Edge>,
    settings: &Settings,
) -> Result<Vec<Edge>, Problems> {
    let mut problems = Problems::default();
    let first = partitions.len();
    for (&id, cpus) in settings.copies.iter().filter(|(_, cpus)| !cpus.is_empty()) {
        let Some(index) =
            (FIRST_PARTITION..first).find(|&partition| partitions[partition].id == id)
        else {
            let id = if id == UNMARKED {
                "unmarked".into()
            } else {
                id.to_string()
            };
            let text = format!("partition {id} is to be copied: there is none of this number");
            problems.add(Cause::Parameter, name, text);
            continue;
        };
        if let Err(text) = allowed(partitions, &edges, index) {
            problems.add(Cause::Parameter, name, text);
            continue;
        }
        let turns = cpus.len() as u64 + 1;
        let begin = partitions.len();
        for copy in 1..turns as usize {
            let partition = PartitionLayout {
                copy,
                ..partitions[index].clone()
            };
            partitions.push(partition);
        }
        let home = |turn: u64| {
            if turn == 0 {
                index
            } else {
                begin + turn as usize - 1
            }
        };
        let mut more = Vec::new();
        for edge in &mut edges {
            let (writes, reads) = (edge.to == index, edge.from == index);
            if !writes && !reads {
                continue;
            }
            for turn in (0..turns).rev() {
                let mut one = edge.clone();
                let turn_of = Turn { turn, turns };
                if writes {
                    (one.to, one.writes) = (home(turn), turn_of);
                } else {
                    (one.from, one.reads) = (home(turn), turn_of);
                }
                // The first stays in its place.
                if turn == 0 {
                    *edge = one;
                } else {
                    more.push(one);
                }
            }
        }
        edges.extend(more);
    }
    problems.unless(edges)
}

/// Refuses partitions that cannot be copied.
fn allowed(partitions: &[PartitionLayout], edges: &[Edge], index: usize) -> Result<(), String> {
    let name = partitions[index].name(index);
    for item in partitions[index].items.iter().flatten() {
        let alone = item.enables.is_empty();
        if !alone || !can_be_copied(&*item.node, &item.inputs, &item.outputs) {
            return Err(format!(
                "{name} is to be copied, and {} has a state: give it a partition of its own",
                item.path
            ));
        }
    }
    let own = || {
        edges
            .iter()
            .filter(|edge| edge.from == index || edge.to == index)
    };
    let mut blocks: Vec<u64> = own().map(|edge| edge.block).collect();
    blocks.sort_unstable();
    blocks.dedup();
    if blocks.len() > 1 {
        return Err(format!(
            "{name} is to be copied, and its queues have blocks of {blocks:?} ticks: give them one \
             size"
        ));
    }
    if own().any(|edge| edge.writes != Turn::EVERY || edge.reads != Turn::EVERY) {
        return Err(format!(
            "{name} is to be copied beside one that is copied too: put both into one partition"
        ));
    }
    Ok(())
}
