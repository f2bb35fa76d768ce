//! The order of nodes within a cycle, and the loops that have none.

use std::collections::VecDeque;

use super::depends;
use crate::cycles;
use crate::graph::{Draft, NodeId};
use crate::problem::{Cause, Problems};

/// The nodes in an order in which each follows what it depends on. Nodes in or behind a loop are
/// left out. Each strongly connected component is reported once, by a shortest loop.
pub(super) fn check(draft: &Draft, problems: &mut Problems) -> Vec<NodeId> {
    let count = draft.nodes.len();
    let mut readers = vec![Vec::new(); count];
    let mut waits = vec![0usize; count];
    for (reader, waits) in waits.iter_mut().enumerate() {
        for source in depends(draft, NodeId(reader as u32)) {
            readers[source.index()].push(reader);
            *waits += 1;
        }
    }
    let mut ready: VecDeque<usize> = (0..count).filter(|&node| waits[node] == 0).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(node) = ready.pop_front() {
        order.push(NodeId(node as u32));
        for &reader in &readers[node] {
            waits[reader] -= 1;
            if waits[reader] == 0 {
                ready.push_back(reader);
            }
        }
    }
    if order.len() < count {
        for component in cycles::components(&readers) {
            if let Some(cycle) = cycles::shortest_loop(&readers, component[0]) {
                report(draft, &cycle, problems);
            }
        }
    }
    order
}

fn report(draft: &Draft, cycle: &[usize], problems: &mut Problems) {
    let mut paths: Vec<String> = cycle
        .iter()
        .map(|&node| draft.path(NodeId(node as u32)))
        .collect();
    paths.push(paths[0].clone());
    let text = format!(
        "depends on itself in the same cycle: {}; put a `delay` into the loop",
        paths.join(" -> ")
    );
    problems.add(Cause::Loop, &paths[0], text);
}
