//! Copies of partitions without state: blocks go round among them.
//!
//! Each queue to such a partition becomes one to each copy, which every so many blocks of the
//! writer pass; each queue from it likewise. What comes out has its order by the reader's taking
//! turns.

use super::change::Clock;
use super::layout::{Edge, FIRST_PARTITION, Layout, Part, Turn, is_outside};
use super::settings::Settings;
use crate::graph::UNMARKED;
use crate::node::can_be_copied;
use crate::problem::{Cause, Problems};

/// The CPU of a part, if it has one.
pub(super) fn cpu(part: &Part, settings: &Settings) -> Option<usize> {
    match part.copy.checked_sub(1) {
        None => settings.cpus.get(&part.id).copied(),
        Some(copy) => *settings.copies.get(&part.id)?.get(copy)?,
    }
}

/// Which ticks the steps of a part are.
pub(super) fn clock(layout: &Layout, part: usize) -> Clock {
    let edges = layout.edges.iter();
    let own = edges.filter(|edge| edge.from == part || edge.to == part);
    Clock {
        // All blocks of copies have one size.
        block: own.map(|edge| edge.block).next().unwrap_or(1),
        copy: layout.parts[part].copy as u64,
        copies: layout.sharers(part),
    }
}

impl Layout {
    /// A part and its copies: how many there are.
    pub fn sharers(&self, part: usize) -> u64 {
        if is_outside(part) {
            return 1;
        }
        let id = self.parts[part].id;
        self.parts[FIRST_PARTITION..]
            .iter()
            .filter(|other| other.id == id)
            .count() as u64
    }
}

/// Adds the copies that the settings ask for. Returns the queues with theirs.
pub(super) fn copy(
    name: &str,
    parts: &mut Vec<Part>,
    mut edges: Vec<Edge>,
    settings: &Settings,
) -> Result<Vec<Edge>, Problems> {
    let mut problems = Problems::default();
    let first = parts.len();
    for (&id, cpus) in settings.copies.iter().filter(|(_, cpus)| !cpus.is_empty()) {
        let Some(index) = (FIRST_PARTITION..first).find(|&part| parts[part].id == id) else {
            let id = if id == UNMARKED {
                "unmarked".into()
            } else {
                id.to_string()
            };
            let text = format!("partition {id} is to be copied: there is none of this number");
            problems.add(Cause::Parameter, name, text);
            continue;
        };
        if let Err(text) = allowed(parts, &edges, index) {
            problems.add(Cause::Parameter, name, text);
            continue;
        }
        let turns = cpus.len() as u64 + 1;
        let begin = parts.len();
        for copy in 1..turns as usize {
            let part = Part {
                copy,
                ..parts[index].clone()
            };
            parts.push(part);
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
fn allowed(parts: &[Part], edges: &[Edge], index: usize) -> Result<(), String> {
    let name = parts[index].name(index);
    for item in parts[index].items.iter().flatten() {
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
