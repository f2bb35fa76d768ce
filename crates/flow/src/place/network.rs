//! What an executor made of a graph, as the network that the analysis looks at.

use std::collections::{BTreeSet, HashMap};

use super::costs::Costs;
use crate::analysis::{Network, Partition, Queue};
use crate::run::Shape;

/// The partitions and inner queues of an executor, with the initial blocks that it has absorbed.
/// Times are for the longest block of all queues: what nodes and their passes compute, what steps
/// take, and what each end does with its queues, those of the outside too.
pub fn network(shape: &Shape, costs: &Costs) -> Network {
    let block = shape.queues.iter().map(|queue| queue.block).max();
    let block = block.unwrap_or(1);
    let whole = |time: f64| time.round().clamp(0.0, crate::analysis::MAX_TIME as f64) as u64;
    let kept: Vec<usize> = (0..shape.partitions.len())
        .filter(|&at| shape.partitions[at].id.is_some())
        .collect();
    let index = |at: usize| kept.binary_search(&at).ok();
    let mut ends = vec![0.0; shape.partitions.len()];
    let of_queues = costs.queues;
    for queue in &shape.queues {
        let (blocks, bytes) = (block as f64 / queue.block as f64, queue.bytes as f64);
        ends[queue.from] += blocks * (of_queues.send_ns + of_queues.byte_ns * bytes);
        ends[queue.to] += blocks * (of_queues.receive_ns + of_queues.read_byte_ns * bytes);
    }
    let mut passes: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, pass) in costs.passes.iter().enumerate() {
        for path in &pass.nodes {
            passes.entry(path).or_default().push(index);
        }
    }
    let partitions = kept.iter().map(|&at| {
        let partition = &shape.partitions[at];
        // A node that is run in two parts is one node.
        let mut paths: Vec<&str> = partition
            .units
            .iter()
            .flatten()
            .map(String::as_str)
            .collect();
        paths.sort_unstable();
        paths.dedup();
        let own = paths.iter().filter_map(|&path| costs.nodes.get(path));
        let here = paths.iter().filter_map(|&path| passes.get(path)).flatten();
        let here: BTreeSet<usize> = here.copied().collect();
        let work = own.chain(here.iter().map(|&pass| &costs.passes[pass].cost));
        let (mut per_tick, mut per_step) = (0.0, of_queues.step_ns);
        for cost in work {
            per_tick += cost.per_tick;
            per_step += cost.per_step;
        }
        let per_tick = per_tick + per_step / partition.step.max(1) as f64;
        Partition {
            name: partition.name.clone(),
            busy: whole(per_tick * block as f64 + ends[at]),
        }
    });
    // Blocks of other sizes count in blocks of the longest. None of them, and no room, is lost:
    // what runs would seem to stand still.
    let longest = |count: u64, own: u64| (count * own).div_ceil(block);
    let queues = shape.queues.iter().filter_map(|queue| {
        let (initial, capacity) = (queue.initial as u64, queue.capacity as u64);
        let begin = longest(initial, queue.block);
        Some(Queue {
            from: index(queue.from)?,
            to: index(queue.to)?,
            initial: begin,
            capacity: (begin + longest(capacity - initial, queue.block)).max(1),
            // The ends' own time with the queue is the partitions'.
            latency: 0,
            bytes: queue.bytes as u64,
        })
    });
    Network {
        partitions: partitions.collect(),
        queues: queues.collect(),
    }
}
