//! From a graph in marked partitions to the network of its queues.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::network::{Network, Partition, Queue};
use crate::graph::{Graph, NodeId, Source};
use crate::nodes::{INPUT, OUTPUT};

/// How a graph is to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Samples of the base rate in one block.
    pub block: u64,
    /// Blocks that each queue holds.
    pub capacity: u64,
    /// Nanoseconds from writing to reading, at the least.
    pub latency: u64,
}

/// The wires from one output into one partition: they share a queue.
struct Crossing {
    source: Source,
    from: u32,
    to: u32,
    /// Samples of delay before it.
    samples: u64,
}

impl Network {
    /// The network of a graph whose subsystems are marked for partitions. `cost` gives the
    /// nanoseconds of a node for one block. Unmarked nodes are one more partition; inputs, outputs
    /// and constants are in none.
    ///
    /// Delays beside a crossing become initial blocks of its queue: those that nothing but the
    /// queue reads, and those that all read it; whole blocks alone, at most one less than the queue
    /// holds, none in enabled subsystems. Crossings between the same two partitions are one queue
    /// with the fewest of their initial blocks.
    ///
    /// ```
    /// use karoo_flow::{Builder, Type, analysis::{Network, Plan}};
    ///
    /// let g = Builder::new("loop");
    /// let x = g.input("x", Type::F32);
    /// let past = g.feedback("past", Type::F32, 50, 0);
    /// let sum = g.scope("a", || {
    ///     g.partition(0);
    ///     x + past.out()
    /// });
    /// let half = g.scope("b", || {
    ///     g.partition(1);
    ///     sum.gain(0.5)
    /// });
    /// past.close(half);
    /// g.output("y", half);
    /// let graph = g.build().unwrap();
    ///
    /// // `past` is unmarked: a partition of its own.
    /// // Its 50 samples are two blocks of 24, and none of 64.
    /// let network = |block| Network::of(&graph, Plan { block, capacity: 4, latency: 0 }, |_| 100);
    /// assert_eq!(network(24).analyse(None).unwrap().cycles[0].blocks, 2);
    /// assert!(network(64).analyse(None).is_err());
    /// ```
    pub fn of(graph: &Graph, plan: Plan, cost: impl Fn(NodeId) -> u64) -> Network {
        const UNMARKED: u32 = u32::MAX;
        let outside = |id: NodeId| {
            let node = &graph.node(id).node;
            node.kind() == INPUT || node.kind() == OUTPUT || node.constant()
        };
        let part = |id: NodeId| (!outside(id)).then(|| graph.partition(id).unwrap_or(UNMARKED));
        let readers = graph.readers();
        let mut busy: BTreeMap<u32, u64> = BTreeMap::new();
        let mut crossings = Vec::new();
        // A delay becomes initial blocks once, on its way out if it can.
        let mut used = HashSet::new();
        for id in graph.ids() {
            let Some(from) = part(id) else { continue };
            let time = busy.entry(from).or_default();
            *time = time.saturating_add(cost(id));
            for port in 0..graph.node(id).outputs.len() {
                let source = Source {
                    node: id,
                    port: port as u16,
                };
                let all = readers.get(&source).map_or(&[][..], Vec::as_slice);
                let targets: BTreeSet<u32> =
                    all.iter().filter_map(|&reader| part(reader)).collect();
                for &to in targets.iter().filter(|&&to| to != from) {
                    let alone = all.iter().all(|&reader| part(reader) == Some(to));
                    let samples = if alone {
                        delays_before(graph, &readers, id, &mut used)
                    } else {
                        0
                    };
                    crossings.push(Crossing {
                        source,
                        from,
                        to,
                        samples,
                    });
                }
            }
        }
        let mut merged: BTreeMap<(u32, u32), Vec<(u64, u64)>> = BTreeMap::new();
        for Crossing {
            source,
            from,
            to,
            samples,
        } in crossings
        {
            let all = readers.get(&source).map_or(&[][..], Vec::as_slice);
            let there: Vec<NodeId> = all
                .iter()
                .copied()
                .filter(|&reader| part(reader) == Some(to))
                .collect();
            let fresh = there.iter().all(|reader| !used.contains(reader));
            let ahead = there
                .iter()
                .map(|&reader| graph.plain_delay(reader))
                .min()
                .unwrap_or(0);
            let samples = if fresh && ahead > 0 {
                used.extend(there);
                samples.saturating_add(ahead)
            } else {
                samples
            };
            let length = length(graph, source.node, plan.block);
            let bytes = length.saturating_mul(graph.kind(source).bytes() as u64);
            merged
                .entry((from, to))
                .or_default()
                .push((samples / length, bytes));
        }
        let ids: Vec<u32> = busy.keys().copied().collect();
        let index = |part: u32| ids.binary_search(&part).unwrap_or(0);
        let name = |part: u32| {
            if part == UNMARKED {
                "unmarked".into()
            } else {
                format!("partition {part}")
            }
        };
        let queue = |((from, to), ports): ((u32, u32), Vec<(u64, u64)>)| Queue {
            from: index(from),
            to: index(to),
            initial: ports
                .iter()
                .map(|port| port.0)
                .min()
                .unwrap_or(0)
                .min(plan.capacity.saturating_sub(1)),
            capacity: plan.capacity,
            latency: plan.latency,
            bytes: ports.iter().map(|port| port.1).fold(0, u64::saturating_add),
        };
        Network {
            partitions: busy
                .iter()
                .map(|(&part, &busy)| Partition {
                    name: name(part),
                    busy,
                })
                .collect(),
            queues: merged.into_iter().map(queue).collect(),
        }
    }
}

/// Samples of a node's output in one block of the base rate; at least 1.
fn length(graph: &Graph, id: NodeId, block: u64) -> u64 {
    let rate = graph.node(id).rate.unwrap_or(crate::Ratio::ONE);
    let samples = u128::from(block) * u128::from(rate.num()) / u128::from(rate.den());
    u64::try_from(samples).unwrap_or(u64::MAX).max(1)
}

/// The lengths of delays one behind the other that end at `id`, each read by the next alone, in one
/// partition.
fn delays_before(
    graph: &Graph,
    readers: &HashMap<Source, Vec<NodeId>>,
    id: NodeId,
    used: &mut HashSet<NodeId>,
) -> u64 {
    let mut samples: u64 = 0;
    let mut at = id;
    // No delay is used twice, so a ring of them ends this too.
    while graph.plain_delay(at) > 0 && used.insert(at) {
        samples = samples.saturating_add(graph.plain_delay(at));
        let source = graph.node(at).from[0];
        let only = readers.get(&source).is_some_and(|all| all.len() == 1);
        if !only || graph.partition(source.node) != graph.partition(at) {
            break;
        }
        at = source.node;
    }
    samples
}
