//! Nodes and signals on their way into the parts of a layout.

use std::collections::{BTreeMap, HashMap};

use super::lane::Shape;
use super::layout::{Item, Part, Port, is_outside};
use crate::graph::{Graph, NodeId, Source, ancestors};

/// A layout under way.
pub(super) struct Laying<'g> {
    pub graph: &'g Graph,
    pub periods: Vec<u64>,
    pub parts: Vec<Part>,
    /// The part of each node; none for constants.
    pub place: Vec<Option<usize>>,
    pub known: HashMap<(usize, Source), usize>,
    pub crossings: BTreeMap<(usize, usize), Vec<Port>>,
    /// Nodes whose numbers may change.
    pub changeable: Vec<NodeId>,
}

impl Laying<'_> {
    /// The signal of a source in a part; it crosses into that part if it must.
    pub fn signal(&mut self, part: usize, source: Source) -> usize {
        if let Some(&known) = self.known.get(&(part, source)) {
            return known;
        }
        let placed = self.graph.node(source.node);
        let port = usize::from(source.port);
        let rest = placed.node.rest(&placed.outputs).swap_remove(port);
        let signal = self.parts[part].shapes.len();
        let parameter = self.parameter(source.node);
        self.parts[part].shapes.push(Shape {
            kind: placed.outputs[port],
            period: self.periods[source.node.index()],
            constant: placed.node.constant().then(|| rest.clone()),
            parameter,
            rest,
        });
        self.known.insert((part, source), signal);
        if let Some(home) = self.place[source.node.index()]
            && home != part
        {
            let from = self.signal(home, source);
            let ports = self.crossings.entry((home, part)).or_default();
            ports.push(Port {
                from,
                to: signal,
                initial: Vec::new(),
            });
        }
        signal
    }

    fn parameter(&self, id: NodeId) -> Option<usize> {
        self.changeable.iter().position(|&known| known == id)
    }

    /// Adds a node to its part, with all that it reads and writes.
    pub fn item(&mut self, id: NodeId) {
        let Some(part) = self.place[id.index()].filter(|&part| !is_outside(part)) else {
            return;
        };
        let graph = self.graph;
        let placed = graph.node(id);
        let enables: Vec<Source> = graph.enables(id).collect();
        let own = |port: usize| Source {
            node: id,
            port: port as u16,
        };
        let item = Item {
            path: graph.path(id),
            node: placed.node.clone(),
            from: placed.from.iter().map(|&s| self.signal(part, s)).collect(),
            to: (0..placed.outputs.len())
                .map(|port| self.signal(part, own(port)))
                .collect(),
            inputs: placed.inputs.clone(),
            outputs: placed.outputs.clone(),
            period: self.periods[id.index()],
            parameter: self.parameter(id),
            enables: enables.iter().map(|&s| self.signal(part, s)).collect(),
        };
        let mark = ancestors(graph.scopes(), placed.scope)
            .find_map(|scope| graph.scopes()[scope.index()].sub_block);
        let part = &mut self.parts[part];
        if let Some(mark) = mark {
            let ticks = u64::from(mark).saturating_mul(self.periods[id.index()]);
            part.sub_block = Some(part.sub_block.unwrap_or(u64::MAX).min(ticks));
        }
        part.items.push(Some(item));
    }
}
