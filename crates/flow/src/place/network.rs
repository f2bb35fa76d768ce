//! What an executor made of a graph, as the network that the analysis looks at.

use super::costs::Costs;
use crate::analysis::{Network, Partition, Queue};
use crate::run::Shape;

/// The partitions and inner queues of an executor, with the initial blocks that it has absorbed.
/// Times are for the longest block of all queues.
pub fn network(shape: &Shape, costs: &Costs) -> Network {
    let block = shape
        .queues
        .iter()
        .map(|queue| queue.block)
        .max()
        .unwrap_or(1);
    let whole = |time: f64| time.round().clamp(0.0, crate::analysis::MAX_TIME as f64) as u64;
    let kept: Vec<usize> = (0..shape.partitions.len())
        .filter(|&at| shape.partitions[at].id.is_some())
        .collect();
    let index = |at: usize| kept.binary_search(&at).ok();
    let partitions = kept.iter().map(|&at| {
        let part = &shape.partitions[at];
        let mut time = 0.0;
        // A node that is run in two parts is one node.
        let mut paths: Vec<&str> = part.units.iter().flatten().map(String::as_str).collect();
        paths.sort_unstable();
        paths.dedup();
        for path in paths {
            let cost = costs.nodes.get(path).copied().unwrap_or_default();
            time += cost.per_tick * block as f64;
            time += cost.per_step * block as f64 / part.step.max(1) as f64;
        }
        Partition {
            name: part.name.clone(),
            busy: whole(time),
        }
    });
    let queues = shape.queues.iter().filter_map(|queue| {
        Some(Queue {
            from: index(queue.from)?,
            to: index(queue.to)?,
            // Blocks of other sizes count in blocks of the longest.
            initial: queue.initial as u64 * queue.block / block,
            capacity: (queue.capacity as u64 * queue.block / block).max(1),
            latency: whole(costs.queues.send_ns + costs.queues.receive_ns),
            bytes: queue.bytes as u64,
        })
    });
    Network {
        partitions: partitions.collect(),
        queues: queues.collect(),
    }
}
