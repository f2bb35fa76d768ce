//! The order of a partition's nodes, and which of them must go sample by sample.
//!
//! A node outside of all loops works on a whole step at once. A delay of a step or more does not
//! close a loop within the step: what it puts out is known before. What is left of the loops goes
//! sample by sample.

use std::collections::VecDeque;

use super::layout::PartitionLayout;
use crate::cycles;

/// What is run in one go, by the indices of a partition's nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// One node, for a whole step.
    Whole(usize),
    /// Nodes that go sample by sample, in an order in which each follows what it depends on in the
    /// same cycle.
    BySample(Vec<usize>),
    /// A delay of a step or more puts out what it holds.
    Recall(usize),
    /// The same delay takes in what it is given.
    Remember(usize),
}

/// The units of a partition in their order.
pub(super) fn units(partition: &PartitionLayout) -> Vec<Unit> {
    let count = partition.items.len();
    let mut makes = vec![None; partition.shapes.len()];
    for (index, item) in partition.items.iter().enumerate() {
        for &signal in item.iter().flat_map(|item| &item.to) {
            makes[signal] = Some(index);
        }
    }
    let sources: Vec<Vec<usize>> = partition
        .items
        .iter()
        .map(|item| {
            let signals = item
                .iter()
                .flat_map(|item| item.from.iter().chain(&item.enables));
            signals.filter_map(|&signal| makes[signal]).collect()
        })
        .collect();
    let long = |index: usize| {
        let item = partition.items[index].as_ref();
        item.is_some_and(|item| {
            let samples = (partition.step / item.period) as usize;
            item.plain_delay() >= samples && item.plain_delay() > 0
        })
    };
    let looped: Vec<usize> = cycles::components(&readers(&sources, |_| false))
        .into_iter()
        .flatten()
        .collect();
    let cut: Vec<bool> = (0..count)
        .map(|index| long(index) && looped.binary_search(&index).is_ok())
        .collect();
    order(partition, &sources, &makes, &cut)
}

/// The nodes that follow each node: its readers.
fn readers(sources: &[Vec<usize>], cut: impl Fn(usize) -> bool) -> Vec<Vec<usize>> {
    let mut next = vec![Vec::new(); sources.len()];
    for (reader, sources) in sources.iter().enumerate() {
        for &source in sources.iter().filter(|_| !cut(reader)) {
            next[source].push(reader);
        }
    }
    next
}

fn order(
    partition: &PartitionLayout,
    sources: &[Vec<usize>],
    makes: &[Option<usize>],
    cut: &[bool],
) -> Vec<Unit> {
    let count = partition.items.len();
    let next = readers(sources, |index| cut[index]);
    let mut groups = cycles::components(&next);
    let mut group = vec![usize::MAX; count];
    for (number, members) in groups.iter().enumerate() {
        members.iter().for_each(|&member| group[member] = number);
    }
    for (index, group) in group.iter_mut().enumerate() {
        if *group == usize::MAX {
            *group = groups.len();
            groups.push(vec![index]);
        }
    }
    let mut follows = vec![Vec::new(); groups.len()];
    let mut waits = vec![0usize; groups.len()];
    for (from, readers) in next.iter().enumerate() {
        for &to in readers.iter().filter(|&&to| group[to] != group[from]) {
            follows[group[from]].push(group[to]);
            waits[group[to]] += 1;
        }
    }
    let mut units = Vec::new();
    for number in sorted(&follows, waits) {
        let members = &groups[number];
        if partition.items[members[0]].is_none() {
            continue;
        }
        let alone = members.len() == 1 && !next[members[0]].contains(&members[0]);
        units.push(if cut[members[0]] {
            Unit::Recall(members[0])
        } else if alone {
            Unit::Whole(members[0])
        } else {
            Unit::BySample(within(partition, makes, members))
        });
    }
    let late = (0..count).filter(|&index| cut[index]);
    units.extend(late.map(Unit::Remember));
    units
}

/// The nodes of a loop, each behind what it depends on in the same cycle.
fn within(partition: &PartitionLayout, makes: &[Option<usize>], members: &[usize]) -> Vec<usize> {
    let place = |index: usize| members.binary_search(&index).ok();
    let mut follows = vec![Vec::new(); members.len()];
    let mut waits = vec![0usize; members.len()];
    for (at, &member) in members.iter().enumerate() {
        for source in same_cycle(partition, makes, member) {
            if let Some(from) = place(source) {
                follows[from].push(at);
                waits[at] += 1;
            }
        }
    }
    sorted(&follows, waits)
        .into_iter()
        .map(|at| members[at])
        .collect()
}

/// The nodes that a node depends on in the same cycle.
fn same_cycle(partition: &PartitionLayout, makes: &[Option<usize>], index: usize) -> Vec<usize> {
    let Some(item) = &partition.items[index] else {
        return vec![];
    };
    let inputs = item.from.iter().filter(|_| item.node.direct());
    inputs
        .chain(&item.enables)
        .filter_map(|&signal| makes[signal])
        .collect()
}

/// An order in which each follows those that it waits for. What is in a loop is left out.
pub(super) fn sorted(follows: &[Vec<usize>], mut waits: Vec<usize>) -> Vec<usize> {
    let mut ready: VecDeque<usize> = (0..waits.len()).filter(|&at| waits[at] == 0).collect();
    let mut order = Vec::with_capacity(waits.len());
    while let Some(at) = ready.pop_front() {
        order.push(at);
        for &next in &follows[at] {
            waits[next] -= 1;
            if waits[next] == 0 {
                ready.push_back(next);
            }
        }
    }
    order
}
