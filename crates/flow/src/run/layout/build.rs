//! How a layout is built: the partition of each node, its signals, queues for what crosses, steps.

use std::collections::{BTreeMap, HashMap};

use num_integer::{gcd, lcm};

use super::super::copies;
use super::super::initial::InitialSamples;
use super::super::lane::SignalShape;
use super::super::settings::{Between, Settings};
use super::{
    Crossing, Edge, FIRST_PARTITION, IN, Layout, MAX_BLOCK, OUT, PartitionLayout, PartitionNode,
    Turn, changeable, is_outside,
};
use crate::graph::{Graph, NodeId, Source, UNMARKED, ancestors};
use crate::nodes::{INPUT, OUTPUT};
use crate::problem::{Cause, Problems};
use crate::types::Scalar;

/// A layout that is being built.
struct LayoutBuilder<'g> {
    graph: &'g Graph,
    periods: Vec<u64>,
    partitions: Vec<PartitionLayout>,
    /// The partition of each node; none for constants.
    home: Vec<Option<usize>>,
    known: HashMap<(usize, Source), usize>,
    crossings: BTreeMap<(usize, usize), Vec<Crossing>>,
    /// Nodes whose numbers may change.
    changeable: Vec<NodeId>,
}

impl LayoutBuilder<'_> {
    /// The signal of a source in a partition; it crosses into that partition if it must.
    fn signal(&mut self, partition: usize, source: Source) -> usize {
        if let Some(&known) = self.known.get(&(partition, source)) {
            return known;
        }
        let placed = self.graph.node(source.node);
        let port = usize::from(source.port);
        let rest = placed.node.rest(&placed.outputs).swap_remove(port);
        let signal = self.partitions[partition].shapes.len();
        let parameter = self.parameter(source.node);
        self.partitions[partition].shapes.push(SignalShape {
            kind: placed.outputs[port],
            period: self.periods[source.node.index()],
            constant: placed.node.constant().then(|| rest.clone()),
            parameter,
            rest,
        });
        self.known.insert((partition, source), signal);
        if let Some(home) = self.home[source.node.index()]
            && home != partition
        {
            let from = self.signal(home, source);
            let crossings = self.crossings.entry((home, partition)).or_default();
            crossings.push(Crossing {
                from,
                to: signal,
                initial: InitialSamples::default(),
            });
        }
        signal
    }

    fn parameter(&self, id: NodeId) -> Option<usize> {
        self.changeable.iter().position(|&known| known == id)
    }

    /// Adds a node to its partition, with all that it reads and writes.
    fn item(&mut self, id: NodeId) {
        let Some(partition) = self.home[id.index()].filter(|&partition| !is_outside(partition))
        else {
            return;
        };
        let graph = self.graph;
        let placed = graph.node(id);
        let enables: Vec<Source> = graph.enables(id).collect();
        let own = |port: usize| Source {
            node: id,
            port: port as u16,
        };
        let item = PartitionNode {
            path: graph.path(id),
            node: placed.node.clone(),
            from: placed
                .from
                .iter()
                .map(|&s| self.signal(partition, s))
                .collect(),
            to: (0..placed.outputs.len())
                .map(|port| self.signal(partition, own(port)))
                .collect(),
            inputs: placed.inputs.clone(),
            outputs: placed.outputs.clone(),
            period: self.periods[id.index()],
            parameter: self.parameter(id),
            enables: enables.iter().map(|&s| self.signal(partition, s)).collect(),
        };
        let mark = ancestors(graph.scopes(), placed.scope)
            .find_map(|scope| graph.scopes()[scope.index()].sub_block);
        let partition = &mut self.partitions[partition];
        if let Some(mark) = mark {
            let ticks = u64::from(mark).saturating_mul(self.periods[id.index()]);
            partition.sub_block = Some(partition.sub_block.unwrap_or(u64::MAX).min(ticks));
        }
        partition.items.push(Some(item));
    }
}

impl Layout {
    /// The layout of a graph, without absorbed delays.
    pub fn of(graph: &Graph, settings: &Settings) -> Result<Layout, Problems> {
        let fault = |text| Problems::one(Cause::Limit, graph.name(), text);
        let periods = crate::interpreter::periods(graph).map_err(fault)?;
        let turns = crate::interpreter::turns(graph, &periods);
        let round = common(&turns).map_err(fault)?;
        let (partitions, home) = homes(graph, settings)?;
        let changeable = changeable(graph, &settings.changeable)?;
        let mut builder = LayoutBuilder {
            graph,
            periods,
            partitions,
            home,
            known: HashMap::new(),
            crossings: BTreeMap::new(),
            changeable,
        };
        let inputs = graph
            .inputs()
            .map(|id| {
                (
                    graph.path(id),
                    builder.signal(IN, Source { node: id, port: 0 }),
                )
            })
            .collect();
        for &id in graph.order() {
            builder.item(id);
        }
        let outputs = graph
            .outputs()
            .map(|id| {
                let signal = builder.signal(OUT, graph.node(id).from[0]);
                (graph.path(id), signal, builder.periods[id.index()])
            })
            .collect();
        let LayoutBuilder {
            mut partitions,
            crossings,
            changeable,
            ..
        } = builder;
        let edges = crossings
            .into_iter()
            .map(|(route, crossings)| edge(&partitions, settings, round, route, crossings))
            .collect::<Result<Vec<Edge>, String>>()
            .map_err(fault)?;
        steps(&mut partitions, &edges, settings, round);
        let edges = copies::copy(graph.name(), &mut partitions, edges, settings)?;
        Ok(Layout {
            partitions,
            edges,
            inputs,
            outputs,
            parameters: changeable
                .into_iter()
                .map(|id| {
                    let placed = graph.node(id);
                    let scalar = placed
                        .outputs
                        .first()
                        .map_or(Scalar::F64, |kind| kind.scalar);
                    (graph.path(id), placed.node.clone(), scalar)
                })
                .collect(),
        })
    }
}

/// The ticks after which all rates begin anew.
fn common(periods: &[u64]) -> Result<u64, String> {
    let mut round: u128 = 1;
    for &period in periods {
        round = lcm(round, period.into());
        if round > MAX_BLOCK.into() {
            return Err(format!(
                "the rates begin anew after more than {MAX_BLOCK} ticks: use smaller rate changes"
            ));
        }
    }
    Ok(round as u64)
}

/// The partitions, still empty, and the partition of each node.
fn homes(
    graph: &Graph,
    settings: &Settings,
) -> Result<(Vec<PartitionLayout>, Vec<Option<usize>>), Problems> {
    if let Some(given) = &settings.partitions
        && given.len() != graph.nodes().len()
    {
        let (given, nodes) = (given.len(), graph.nodes().len());
        let text = format!("{given} partitions are given for {nodes} nodes: give one for each");
        return Err(Problems::one(Cause::Parameter, graph.name(), text));
    }
    let inner = |id: NodeId| {
        let node = &graph.node(id).node;
        node.kind() != INPUT && node.kind() != OUTPUT && !node.constant()
    };
    let mark = |id: NodeId| match &settings.partitions {
        Some(given) => given[id.index()],
        None => graph.partition(id).unwrap_or(UNMARKED),
    };
    let mut ids: Vec<u32> = graph.ids().filter(|&id| inner(id)).map(mark).collect();
    ids.sort_unstable();
    ids.dedup();
    let home = |id: NodeId| match graph.node(id).node.kind() {
        INPUT => Some(IN),
        OUTPUT => Some(OUT),
        _ if !inner(id) => None,
        _ => ids
            .binary_search(&mark(id))
            .ok()
            .map(|index| FIRST_PARTITION + index),
    };
    let partition = |id| PartitionLayout {
        id,
        copy: 0,
        items: Vec::new(),
        shapes: Vec::new(),
        sent: Vec::new(),
        received: Vec::new(),
        step: 1,
        round: 1,
        sub_block: None,
    };
    let homes = graph.ids().map(home).collect();
    let partitions = [0, 0].into_iter().chain(ids.iter().copied()).map(partition);
    Ok((partitions.collect(), homes))
}

fn edge(
    partitions: &[PartitionLayout],
    settings: &Settings,
    round: u64,
    (from, to): (usize, usize),
    crossings: Vec<Crossing>,
) -> Result<Edge, String> {
    let inner = !is_outside(from) && !is_outside(to);
    let found = settings.between.iter().find(|between| {
        inner && between.from == partitions[from].id && between.to == partitions[to].id
    });
    let Between {
        block,
        capacity,
        transfer,
        ..
    } = found.copied().unwrap_or(Between {
        from: 0,
        to: 0,
        block: settings.block,
        capacity: settings.capacity,
        transfer: settings.transfer,
    });
    if block == 0 || block > MAX_BLOCK {
        return Err(format!(
            "a block of {block} ticks: it must be 1 to {MAX_BLOCK}"
        ));
    }
    Ok(Edge {
        from,
        to,
        crossings,
        block: block.next_multiple_of(round),
        capacity,
        transfer,
        initial: 0,
        writes: Turn::EVERY,
        reads: Turn::EVERY,
    })
}

/// Gives each partition the largest step that divides its blocks and is not more than its marks or
/// the settings say.
fn steps(partitions: &mut [PartitionLayout], edges: &[Edge], settings: &Settings, round: u64) {
    for (index, partition) in partitions.iter_mut().enumerate() {
        let blocks = edges
            .iter()
            .filter(|edge| edge.from == index || edge.to == index)
            .map(|edge| edge.block);
        let all = blocks.fold(0, gcd).max(round);
        partition.round = round;
        partition.step = all;
        if !is_outside(index) {
            partition.limit_step(partition.sub_block.unwrap_or(u64::MAX).min(settings.step));
        }
    }
}
