//! What is to be placed: groups of nodes with their costs, and the signals between them.

use std::collections::HashMap;

use num_integer::lcm;
use serde::{Deserialize, Serialize};

use super::costs::Costs;
use super::transfers;
use crate::graph::{Graph, NodeId, ScopeId, Source, ancestors};
use crate::node::can_be_copied;
use crate::nodes::{INPUT, OUTPUT};
use crate::problem::{Cause, Problems};

/// Nodes that stay together, with the time that they take.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Item {
    /// The path of its first node.
    pub name: String,
    /// The nodes.
    pub nodes: Vec<NodeId>,
    /// Nanoseconds for each tick.
    pub per_tick: f64,
    /// Nanoseconds for each step, however long.
    pub per_step: f64,
    /// The only core that it may run on, as an index of the cores' rows.
    pub pinned: Option<usize>,
    /// Whether it has no state: several copies may share its blocks.
    pub pure: bool,
}

/// One output with those that read it.
#[derive(Clone, Debug, PartialEq)]
pub struct Signal {
    /// The item that it comes from. `None`: from outside.
    pub from: Option<usize>,
    /// The items that read it, each once.
    pub to: Vec<usize>,
    /// Whether it leaves the graph.
    pub out: bool,
    /// Bytes for each tick, in memory.
    pub bytes: f64,
    /// Whether it has imaginary parts: they lie in a block by themselves.
    pub complex: bool,
    /// Ticks of the delays at its end, which a queue may absorb.
    pub delay: u64,
}

/// Bytes of a cache line: real parts, and imaginary parts, begin on one in each block.
const LINE: f64 = 64.0;

/// Bytes that a block of so many ticks has of what takes `bytes` for each tick.
pub(super) fn in_block(bytes: f64, block: u64) -> f64 {
    // Whole bytes, whatever a division by a period has left behind the point.
    let whole = (bytes * block as f64).round();
    (whole / LINE).ceil() * LINE
}

impl Signal {
    /// Bytes that a block of so many ticks has of it.
    pub(super) fn in_block(&self, block: u64) -> f64 {
        match self.complex {
            true => 2.0 * in_block(self.bytes / 2.0, block),
            false => in_block(self.bytes, block),
        }
    }
}

/// What queues cost, beyond the distance of the cores.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueCosts {
    /// Nanoseconds to send a block, however long.
    pub send_ns: f64,
    /// Nanoseconds to receive a block, however long.
    pub receive_ns: f64,
    /// Nanoseconds to write one byte into a block.
    pub byte_ns: f64,
    /// Nanoseconds to read one byte out of a block, at least: cores that are far from each other
    /// take longer.
    #[serde(default)]
    pub read_byte_ns: f64,
    /// Nanoseconds that each step of a partition takes beside its nodes and the bytes of its
    /// queues.
    #[serde(default)]
    pub step_ns: f64,
}

impl Default for QueueCosts {
    fn default() -> QueueCosts {
        QueueCosts {
            send_ns: 40.0,
            receive_ns: 40.0,
            byte_ns: 0.05,
            read_byte_ns: 0.0,
            step_ns: 0.0,
        }
    }
}

/// What one pass over memory does for several items.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pass {
    /// The items. Each core that has some of them has a pass of its own.
    pub items: Vec<usize>,
    /// Nanoseconds for each tick, beside what the items take.
    pub per_tick: f64,
    /// Nanoseconds for each step, however long.
    pub per_step: f64,
}

/// Ticks after which the rates of a graph have to begin anew: no block is longer.
const MAX_ROUND: u128 = 1 << 22;

/// All that placement looks at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// What stays together.
    pub items: Vec<Item>,
    /// Passes of several items.
    pub passes: Vec<Pass>,
    /// What passes between them.
    pub signals: Vec<Signal>,
    /// Ticks that all blocks must be multiples of.
    pub round: u64,
    /// What queues cost.
    pub queues: QueueCosts,
    /// What blocks of some bytes take from one core to another, in nanoseconds: shorter ones first,
    /// and none less than a shorter one.
    pub transfers: Vec<(f64, f64)>,
}

/// How nodes are grouped before they are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// Each node is an item, but for delays, which go with what they delay, and for enabled
    /// subsystems, which stay whole.
    #[default]
    Free,
    /// The partitions that the graph is marked for stay together.
    Marked,
}

impl Model {
    /// The model of a graph.
    pub fn of(graph: &Graph, costs: &Costs, grouping: Grouping) -> Result<Model, Problems> {
        Model::grouped(graph, costs, &Groups::of(graph, grouping))
    }

    /// The same where each partition, by the nodes' numbers, is one item.
    pub(super) fn of_partitions(
        graph: &Graph,
        costs: &Costs,
        partitions: &[u32],
    ) -> Result<Model, Problems> {
        let home = |id: NodeId| Key::Mark(partitions.get(id.index()).copied().unwrap_or(u32::MAX));
        Model::grouped(graph, costs, &Groups::by(graph, home))
    }

    fn grouped(graph: &Graph, costs: &Costs, groups: &Groups) -> Result<Model, Problems> {
        let fault = |text: String| Problems::one(Cause::Limit, graph.name(), text);
        let periods = crate::interpreter::periods(graph).map_err(fault)?;
        let round = crate::interpreter::turns(graph, &periods)
            .iter()
            .try_fold(1u128, |round, &period| {
                let round = lcm(round, period.into());
                (round <= MAX_ROUND).then_some(round)
            })
            .ok_or_else(|| fault(format!("the rates begin anew after more than {MAX_ROUND} ticks: use smaller rate changes")))?;
        let mut items: Vec<Item> = Vec::new();
        for &id in &groups.order {
            let at = groups.item[id.index()].unwrap_or(0);
            if items.len() == at {
                items.push(Item {
                    name: groups.names[at].clone(),
                    pure: true,
                    ..Item::default()
                });
            }
            let item = &mut items[at];
            let cost = costs.of(graph, id);
            item.nodes.push(id);
            item.per_tick += cost.per_tick;
            item.per_step += cost.per_step;
            item.pure &= is_pure(graph, id);
        }
        let signals = groups.signals(graph, &periods);
        let paths: HashMap<String, usize> = graph
            .ids()
            .filter_map(|id| Some((graph.path(id), groups.item[id.index()]?)))
            .collect();
        let passes = costs.passes.iter().map(|pass| {
            let items = pass
                .nodes
                .iter()
                .filter_map(|path| paths.get(path).copied());
            let mut items: Vec<usize> = items.collect();
            items.sort_unstable();
            items.dedup();
            Pass {
                items,
                per_tick: pass.cost.per_tick,
                per_step: pass.cost.per_step,
            }
        });
        Ok(Model {
            passes: passes.filter(|pass| !pass.items.is_empty()).collect(),
            items,
            signals,
            round: round as u64,
            queues: costs.queues,
            transfers: transfers::times(&costs.transfers),
        })
    }

    /// Nanoseconds of all items for each tick, with steps of so many ticks.
    pub fn work(&self, step: u64) -> f64 {
        self.items.iter().map(|item| item.work(step)).sum()
    }

    /// Nanoseconds that a block of so many bytes takes from one core to another at least, if that
    /// was measured.
    pub(super) fn through(&self, bytes: f64) -> f64 {
        let behind = self.transfers.partition_point(|&(known, _)| known < bytes);
        match (
            behind.checked_sub(1).map(|at| self.transfers[at]),
            self.transfers.get(behind),
        ) {
            (Some((a, from)), Some(&(b, to))) => from + (to - from) * (bytes - a) / (b - a),
            (Some((most, ns)), None) => ns * bytes / most,
            (None, Some(&(_, ns))) => ns,
            (None, None) => 0.0,
        }
    }
}

impl Pass {
    /// Nanoseconds for each tick, with steps of so many ticks.
    pub fn work(&self, step: u64) -> f64 {
        self.per_tick + self.per_step / step.max(1) as f64
    }

    /// The cores that it runs on.
    pub(super) fn cores(&self, place: &[usize]) -> Vec<usize> {
        let mut cores: Vec<usize> = self.items.iter().map(|&item| place[item]).collect();
        cores.sort_unstable();
        cores.dedup();
        cores
    }
}

impl Item {
    /// Nanoseconds for each tick, with steps of so many ticks.
    pub fn work(&self, step: u64) -> f64 {
        self.per_tick + self.per_step / step.max(1) as f64
    }
}

/// Whether a node's outputs depend on its inputs of the same cycle alone, and it has no context.
fn is_pure(graph: &Graph, id: NodeId) -> bool {
    let placed = graph.node(id);
    // Rate changes count samples, but begin anew with each block.
    let alone = graph.enables(id).next().is_none();
    alone && can_be_copied(&*placed.node, &placed.inputs, &placed.outputs)
}

/// The nodes of a graph in groups: which item each node is in.
struct Groups {
    item: Vec<Option<usize>>,
    /// The nodes of items, so that those of the first item come first where they begin.
    order: Vec<NodeId>,
    names: Vec<String>,
    readers: HashMap<Source, Vec<NodeId>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Node(NodeId),
    Context(ScopeId),
    Mark(u32),
}

impl Groups {
    fn of(graph: &Graph, grouping: Grouping) -> Groups {
        let own = |id: NodeId| match grouping {
            Grouping::Marked => Key::Mark(graph.partition(id).unwrap_or(u32::MAX)),
            Grouping::Free => {
                let scopes = graph.scopes();
                let context = ancestors(scopes, graph.node(id).scope)
                    .filter(|scope| scopes[scope.index()].enable.is_some())
                    .last();
                context.map_or(Key::Node(id), Key::Context)
            }
        };
        // A delay goes with what it delays, so that a queue behind it can absorb it. Each node is
        // looked at once, however long a row of delays is.
        let mut known: Vec<Option<Key>> = vec![None; graph.nodes().len()];
        let mut begun = vec![false; known.len()];
        let home = |id: NodeId| {
            let (mut at, mut row) = (id, Vec::new());
            let key = loop {
                if let Some(key) = known[at.index()] {
                    break key;
                }
                // A ring of delays alone ends where it began.
                if std::mem::replace(&mut begun[at.index()], true) {
                    break own(at);
                }
                row.push(at);
                let free = grouping == Grouping::Free && graph.plain_delay(at) > 0;
                match graph.node(at).from.first() {
                    Some(source) if free && inner(graph, source.node) => at = source.node,
                    _ => break own(at),
                }
            };
            row.into_iter().for_each(|at| known[at.index()] = Some(key));
            key
        };
        Groups::by(graph, home)
    }

    fn by(graph: &Graph, mut home: impl FnMut(NodeId) -> Key) -> Groups {
        let readers = graph.readers();
        let mut numbers = HashMap::new();
        let mut item = vec![None; graph.nodes().len()];
        let mut names: Vec<String> = Vec::new();
        for &id in graph.order().iter().filter(|&&id| inner(graph, id)) {
            let key = home(id);
            let next = numbers.len();
            let number = *numbers.entry(key).or_insert(next);
            item[id.index()] = Some(number);
            if number < next {
                continue;
            }
            names.push(match key {
                Key::Mark(u32::MAX) => "unmarked".into(),
                Key::Mark(mark) => format!("partition {mark}"),
                Key::Context(scope) => graph.scope_path(scope),
                Key::Node(node) => graph.path(node),
            });
        }
        let placed = graph.order().iter().copied();
        let order = placed.filter(|id| item[id.index()].is_some()).collect();
        Groups {
            item,
            order,
            names,
            readers,
        }
    }

    fn signals(&self, graph: &Graph, periods: &[u64]) -> Vec<Signal> {
        let mut signals = Vec::new();
        for id in graph.ids() {
            let placed = graph.node(id);
            let input = placed.node.kind() == INPUT;
            let from = self.item[id.index()];
            if from.is_none() && !input {
                continue;
            }
            for port in 0..placed.outputs.len() {
                let source = Source {
                    node: id,
                    port: port as u16,
                };
                let all = self.readers.get(&source).map_or(&[][..], Vec::as_slice);
                let mut to: Vec<usize> = all
                    .iter()
                    .filter_map(|reader| self.item[reader.index()])
                    .collect();
                to.sort_unstable();
                to.dedup();
                let out = all
                    .iter()
                    .any(|reader| graph.node(*reader).node.kind() == OUTPUT);
                if to.iter().any(|&to| Some(to) != from) || out {
                    let kind = graph.kind(source);
                    signals.push(Signal {
                        from,
                        to,
                        out,
                        bytes: kind.bytes() as f64 / periods[id.index()].max(1) as f64,
                        complex: kind.complex,
                        delay: self.delay(graph, id).saturating_mul(periods[id.index()]),
                    });
                }
            }
        }
        signals
    }

    /// Samples of the delays one behind the other that end at a node, each read by the next alone.
    fn delay(&self, graph: &Graph, id: NodeId) -> u64 {
        let (mut at, mut samples) = (id, 0u64);
        for _ in 0..graph.nodes().len() {
            let length = graph.plain_delay(at);
            if length == 0 {
                break;
            }
            samples = samples.saturating_add(length);
            let source = graph.node(at).from[0];
            let alone = self.readers.get(&source).is_some_and(|all| all.len() == 1);
            if !alone || self.item[source.node.index()] != self.item[at.index()] {
                break;
            }
            at = source.node;
        }
        samples
    }
}

/// Whether a node has to run somewhere.
fn inner(graph: &Graph, id: NodeId) -> bool {
    let node = &graph.node(id).node;
    node.kind() != INPUT && node.kind() != OUTPUT && !node.constant()
}
