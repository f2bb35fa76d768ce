//! Arcs: what they say of the ports of blocks, and the wires that they become.

use std::collections::{HashMap, HashSet};

use super::kinds::{kind, numbers};
use super::translate::{Inputs, Translator};
use super::xml::Edge;
use crate::graph::NodeId;
use crate::nodes::MAX_INPUTS;
use crate::problem::Cause;
use crate::types::Type;

/// An arc: from an output of one block to an input of another, or to its enable port.
pub(super) struct BlockArc {
    pub(super) source: (usize, usize),
    pub(super) target: (usize, usize),
    pub(super) enable: bool,
    pub(super) kind: Type,
    pub(super) line: usize,
}

/// The elements that an arc carries: the product of the sizes in `[dimensions, size, size]`, or the
/// width where no sizes are given. Columns, rows and matrices are vectors here.
fn width(dimensions: &str, width: &str) -> Result<usize, String> {
    let sizes = numbers(dimensions).ok_or_else(|| {
        format!("arc_dimension `{dimensions}` is not a list of numbers such as [1, 4]")
    })?;
    if sizes.len() < 2 {
        let wrong = |_| format!("arc_width `{width}` is not a whole number such as 4");
        return match width.trim() {
            "" => Ok(1),
            width => width.parse().map_err(wrong),
        };
    }
    let sizes = sizes[1..].iter().map(|(size, _)| size.to_f64());
    let whole = |len: f64, size: f64| (size.fract() == 0.0 && size >= 0.0).then_some(len * size);
    let len = sizes.into_iter().try_fold(1.0, whole);
    let len =
        len.ok_or_else(|| format!("arc_dimension `{dimensions}` has a size that is not whole"))?;
    Ok(len as usize)
}

impl Translator<'_> {
    pub(super) fn arcs(&mut self, edges: &[Edge]) {
        let mut ids = HashMap::new();
        for node in 0..self.raw.len() {
            if ids.insert(self.raw[node].id.clone(), node).is_some() {
                self.wrong_node(node, Cause::Name, "another node has this id");
            }
        }
        let mut noted = HashSet::new();
        for edge in edges {
            let element = format!("edge {} -> {}", edge.source, edge.target);
            match self.arc(edge, &ids) {
                Ok((arc, note)) => {
                    if let Some(note) = note.filter(|note| noted.insert(note.clone())) {
                        self.note(edge.line, note);
                    }
                    self.arcs.push(arc);
                }
                Err(text) => self.wrong(Cause::Format, edge.line, &element, text),
            }
        }
    }

    fn arc(
        &self,
        edge: &Edge,
        ids: &HashMap<String, usize>,
    ) -> Result<(BlockArc, Option<String>), String> {
        let node = |id: &String| {
            ids.get(id)
                .copied()
                .ok_or_else(|| format!("there is no node {id}"))
        };
        let text = |key: &str| edge.data.get(key).map_or("", String::as_str);
        let port = |key: &str| {
            let port: Option<usize> = text(key).parse().ok();
            port.filter(|port| (1..=MAX_INPUTS).contains(port))
                .map(|port| port - 1)
                .ok_or_else(|| format!("{key} `{}` is not 1 to {MAX_INPUTS}", text(key)))
        };
        let len = width(text("arc_dimension"), text("arc_width"))?;
        let (kind, note) = kind(text("arc_datatype"), text("arc_complex") == "1", len)?;
        let arc = BlockArc {
            source: (node(&edge.source)?, port("arc_src_port")?),
            target: (node(&edge.target)?, port("arc_dst_port")?),
            enable: text("arc_dst_port_type") == "Enable",
            kind,
            line: edge.line,
        };
        Ok((arc, note))
    }

    /// The ports of blocks that have arcs, so that large files do not take quadratic time. Arcs of
    /// one output of a master that differ are reported.
    pub(super) fn ends(&mut self) {
        let mut differ = vec![];
        for arc in &self.arcs {
            let (node, port) = arc.source;
            let kind = *self
                .left
                .entry(node)
                .or_default()
                .entry(port)
                .or_insert(arc.kind);
            if kind != arc.kind && self.text(node, "block_node_type") == "Master" {
                let text = format!(
                    "output {} is {} here and {kind} elsewhere",
                    port + 1,
                    arc.kind
                );
                differ.push((arc.line, format!("edge from {}", self.raw[node].id), text));
            }
            if !arc.enable {
                let (node, port) = arc.target;
                self.entered
                    .entry(node)
                    .or_default()
                    .entry(port)
                    .or_insert(arc.kind);
            }
        }
        for (line, element, text) in differ {
            self.wrong(Cause::Type, line, &element, text);
        }
    }

    pub(super) fn wires(&mut self) {
        let dropped = |translator: &Self, node: usize| {
            let name = translator.text(node, "instance_name");
            let ended = matches!(
                name,
                "Visualization Master" | "Terminator Master" | "Unconnected Master"
            );
            let function = translator.text(node, "block_function");
            (translator.text(node, "block_node_type") == "Master" && ended)
                || function.starts_with("DataType")
        };
        // What only follows from what is told already is not told.
        let clean = self.problems.0.is_empty();
        for arc in std::mem::take(&mut self.arcs) {
            let ids = [arc.source.0, arc.target.0].map(|node| self.raw[node].id.clone());
            let element = format!("edge {} -> {}", ids[0], ids[1]);
            let inputs = self.inputs_of(arc.target);
            if !arc.enable && inputs.is_none() && dropped(self, arc.target.0) {
                continue;
            }
            let Some(&source) = self.sources.get(&arc.source) else {
                if clean {
                    self.wrong(
                        Cause::Connection,
                        arc.line,
                        &element,
                        "the source is not an output of a block",
                    );
                }
                continue;
            };
            self.claims.push((source, arc.kind, arc.line));
            if arc.enable {
                self.enable(&arc, source, &element);
                continue;
            }
            if inputs.is_none() && clean {
                self.wrong(
                    Cause::Connection,
                    arc.line,
                    &element,
                    "the target has no such input",
                );
            }
            for (node, input) in inputs.unwrap_or_default() {
                if self.draft.nodes[node.index()].from[input]
                    .replace(source)
                    .is_some()
                {
                    self.wrong(
                        Cause::Connection,
                        arc.line,
                        &element,
                        "the input has another arc too",
                    );
                }
            }
        }
        for node in 0..self.raw.len() {
            let enabled = self.text(node, "block_node_type") == "Enabled Subsystem";
            let scope = self.scopes.get(&node).filter(|_| enabled);
            if scope.is_some_and(|scope| self.draft.scopes[scope.index()].enable.is_none()) {
                let text = "an enabled subsystem without an enable signal: draw an arc to it";
                self.wrong_node(node, Cause::Connection, text);
            }
        }
    }

    /// The nodes, with their inputs, that an input of a block has become.
    fn inputs_of(&self, (block, port): (usize, usize)) -> Option<Vec<(NodeId, usize)>> {
        match self.inputs.get(&block)? {
            Inputs::Node(node, count) => (port < *count).then(|| vec![(*node, port)]),
            Inputs::All(nodes) if port == 0 => Some(nodes.iter().map(|&node| (node, 0)).collect()),
            Inputs::All(_) => None,
            Inputs::Each(nodes) => nodes.get(&port).map(|&node| vec![(node, 0)]),
        }
    }
}
