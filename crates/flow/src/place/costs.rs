//! What nodes cost: measured, kept in a file, or guessed where neither is there.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::model::QueueCosts;
use super::transfers::TransferCost;
use crate::graph::{Graph, NodeId};
use crate::types::Type;

/// Version of the file.
pub const VERSION: u32 = 4;

/// The time that a node takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Nanoseconds for each tick.
    pub per_tick: f64,
    /// Nanoseconds for each step, however long.
    pub per_step: f64,
}

/// Nodes that go over their samples in one pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pass {
    /// The nodes, by path.
    pub nodes: Vec<String>,
    /// What the pass takes however few of them there are: to read and to write. Each partition that
    /// has some of the nodes has a pass of its own.
    pub cost: Cost,
}

/// The costs of one graph on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// `VERSION`.
    pub version: u32,
    /// The [fingerprint](fingerprint) of the graph.
    pub graph: String,
    /// Whether nodes were measured.
    pub measured: bool,
    /// Nodes, by path, without what their passes take.
    pub nodes: BTreeMap<String, Cost>,
    /// Passes of several nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passes: Vec<Pass>,
    /// How fast the CPU was that costs were measured on: passes a second of the loop of
    /// [`measure_paces`](crate::place::measure_paces). None where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loops_per_second: Option<f64>,
    /// Queues.
    pub queues: QueueCosts,
    /// What blocks of some sizes take from one core to another, in each way that there is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transfers: Vec<TransferCost>,
    /// The thread that reads inputs.
    #[serde(default)]
    pub inputs: Cost,
    /// The thread that writes outputs.
    #[serde(default)]
    pub outputs: Cost,
}

impl Costs {
    /// Costs by the sizes of nodes alone, for where nothing can be measured. Only their proportions
    /// mean anything.
    pub fn guessed(graph: &Graph) -> Costs {
        let periods = crate::interpreter::periods(graph).unwrap_or_default();
        let node = |id: NodeId| {
            let placed = graph.node(id);
            let elements = |kinds: &[Type]| -> usize {
                let one = |kind: &Type| kind.len * (1 + usize::from(kind.complex));
                kinds.iter().map(one).sum()
            };
            let taps = placed.node.state_bytes(&placed.inputs, &placed.outputs) / 8;
            let taps = if placed.node.delay().is_some() {
                0
            } else {
                taps
            };
            let work = elements(&placed.inputs) + elements(&placed.outputs);
            let period = periods.get(id.index()).copied().unwrap_or(1).max(1);
            Cost {
                per_tick: (0.25 * work as f64 + 0.25 * taps as f64) / period as f64,
                per_step: 20.0,
            }
        };
        Costs {
            version: VERSION,
            graph: fingerprint(graph),
            measured: false,
            nodes: graph.ids().map(|id| (graph.path(id), node(id))).collect(),
            passes: Vec::new(),
            loops_per_second: None,
            queues: QueueCosts::default(),
            transfers: Vec::new(),
            inputs: Cost::default(),
            outputs: Cost::default(),
        }
    }

    /// Takes out of nodes that one unit runs what its pass takes: `least`, or all that they take if
    /// that is less.
    pub(super) fn share(&mut self, units: Vec<Vec<String>>, least: Cost) {
        for nodes in units {
            let known = |path: &String| self.nodes.get(path).copied().unwrap_or_default();
            let all = nodes.iter().map(known).fold(Cost::default(), |a, b| Cost {
                per_tick: a.per_tick + b.per_tick,
                per_step: a.per_step + b.per_step,
            });
            let cost = Cost {
                per_tick: least.per_tick.min(all.per_tick),
                per_step: least.per_step.min(all.per_step),
            };
            let rest = |all: f64, pass: f64| if all > 0.0 { 1.0 - pass / all } else { 1.0 };
            for path in &nodes {
                if let Some(own) = self.nodes.get_mut(path) {
                    own.per_tick *= rest(all.per_tick, cost.per_tick);
                    own.per_step *= rest(all.per_step, cost.per_step);
                }
            }
            self.passes.push(Pass { nodes, cost });
        }
    }

    /// Reads what [`to_json`](Costs::to_json) wrote. `None` if it is of another graph, or of
    /// another version, or has times that are none: negative, or from a quarter of an hour up.
    pub fn from_json(text: &str, graph: &Graph) -> Option<Costs> {
        let costs: Costs = serde_json::from_str(text).ok()?;
        let right = costs.version == VERSION && costs.graph == fingerprint(graph);
        let cost = |cost: &Cost| [cost.per_tick, cost.per_step];
        let queues = &costs.queues;
        let ends = [
            queues.send_ns,
            queues.receive_ns,
            queues.byte_ns,
            queues.read_byte_ns,
        ];
        let passes = costs.passes.iter().map(|pass| &pass.cost);
        let works = costs
            .nodes
            .values()
            .chain(passes)
            .chain([&costs.inputs, &costs.outputs]);
        let times = works.flat_map(cost).chain(ends).chain([queues.step_ns]);
        let times = times.chain(costs.transfers.iter().map(|transfer| transfer.ns));
        let times = { times }.all(|time| (0.0..1e12).contains(&time));
        let pace = costs
            .loops_per_second
            .is_none_or(|pace| pace > 0.0 && pace < 1e15);
        (right && times && pace).then_some(costs)
    }

    /// The costs as JSON, to be kept.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self)
            .unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"))
    }

    /// What a node costs. Inputs, outputs and constants cost nothing.
    pub fn of(&self, graph: &Graph, id: NodeId) -> Cost {
        self.nodes.get(&graph.path(id)).copied().unwrap_or_default()
    }
}

/// A name of all that is in a graph: the same for the same nodes with the same parameters, types
/// and sources.
pub fn fingerprint(graph: &Graph) -> String {
    // FNV-1a with 128 bits: nobody forges graphs, and a file has to be found again.
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let mut add = |text: &str| {
        for byte in text.bytes().chain([0xff]) {
            hash = (hash ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        }
    };
    let mut paths: HashMap<NodeId, String> = HashMap::new();
    for id in graph.ids() {
        paths.insert(id, graph.path(id));
    }
    for id in graph.ids() {
        let placed = graph.node(id);
        add(&paths[&id]);
        add(placed.node.kind());
        add(&placed
            .node
            .parameters()
            .map_or(String::new(), |p| p.to_string()));
        for kind in placed.inputs.iter().chain(&placed.outputs) {
            add(&kind.to_string());
        }
        for source in placed.from.iter().copied().chain(graph.enables(id)) {
            add(&paths[&source.node]);
            add(&source.port.to_string());
        }
    }
    format!("{hash:032x}")
}
