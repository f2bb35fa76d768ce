//! How many ticks a block has at most, where that is chosen.

use super::model::Signal;
use crate::graph::{Graph, NodeId, Source};

/// Bytes of a signal in a block, at most. What a queue takes for each block is nothing beside what
/// it takes for so many bytes: longer ones take memory for nothing.
const MOST_BYTES: f64 = (1u64 << 20) as f64;

/// At most `most` ticks, and fewer where samples are long.
pub fn longest_block(graph: &Graph, most: u64) -> u64 {
    // The executor says what is wrong with rates.
    let Ok(periods) = crate::interpreter::periods(graph) else {
        return most;
    };
    // Constants pass no queue.
    let moving = |id: &NodeId| graph.node(*id).node.kind() != "constant";
    let bytes = graph.ids().filter(moving).flat_map(|id| {
        let ports = 0..graph.node(id).outputs.len();
        let period = periods[id.index()].max(1);
        ports.map(move |port| {
            let port = port as u16;
            graph.kind(Source { node: id, port }).bytes() as f64 / period as f64
        })
    });
    within(bytes, most)
}

/// As [`longest_block`], of signals that pass queues.
pub(super) fn longest_between(signals: &[Signal], most: u64) -> u64 {
    within(signals.iter().map(|signal| signal.bytes), most)
}

fn within(bytes: impl Iterator<Item = f64>, most: u64) -> u64 {
    let longest = bytes.fold(0.0, f64::max);
    most.min((MOST_BYTES / longest) as u64).max(1)
}
