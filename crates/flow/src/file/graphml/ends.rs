//! Ends of the design, marks, enable signals, and inputs without arcs.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::kinds::numbers;
use super::translate::{Inputs, Translator};
use super::wires::BlockArc;
use crate::check::of_inputs;
use crate::file::MAX_NODES;
use crate::graph::{NodeId, ScopeId, Source, ancestors};
use crate::nodes::{self, MAX_INPUTS};
use crate::problem::Cause;
use crate::ratio::Ratio;
use crate::types::Type;

/// How the names of subsystems begin that are clock domains.
const DOMAINS: [&str; 2] = ["LAMINAR_CLOCK_DOMAIN", "VITIS_CLOCK_DOMAIN"];

/// What a fan does.
pub(super) enum Fan {
    /// It joins its inputs to a vector.
    In,
    /// It takes a vector apart.
    Out,
}

impl Translator<'_> {
    /// Inputs and outputs of the design, and arcs that end at nothing.
    pub(super) fn masters(&mut self) {
        let masters: Vec<usize> = (0..self.raw.len())
            .filter(|&node| self.text(node, "block_node_type") == "Master")
            .collect();
        for node in masters {
            let line = self.raw[node].line;
            let name = |translator: &Self, direction: &str, port: usize| {
                let key = format!("{direction}_port_name_{}", port + 1);
                translator.raw[node]
                    .data
                    .get(&key)
                    .cloned()
                    .unwrap_or_else(|| format!("{direction}{}", port + 1))
            };
            match self.text(node, "instance_name") {
                "Input Master" => {
                    for (port, kind) in self.left.remove(&node).unwrap_or_default() {
                        let name = name(self, "output", port);
                        let input = nodes::Input {
                            of: kind,
                            rate: Ratio::ONE,
                        };
                        let id = self.place(&name, ScopeId::TOP, line, Arc::new(input));
                        self.sources
                            .insert((node, port), Source { node: id, port: 0 });
                    }
                    let declared = self
                        .text(node, "named_output_ports")
                        .parse::<usize>()
                        .unwrap_or(0);
                    let unused = (0..declared.min(MAX_INPUTS))
                        .filter(|&port| !self.sources.contains_key(&(node, port)));
                    let unused: Vec<usize> = unused.collect();
                    for port in unused {
                        let text = format!(
                            "the input `{}` is read by nothing and left out",
                            name(self, "output", port)
                        );
                        self.note(line, text);
                    }
                }
                "Output Master" => {
                    let mut outputs = BTreeMap::new();
                    for port in self.entered.remove(&node).unwrap_or_default().into_keys() {
                        let name = name(self, "input", port);
                        let id = self.place(&name, ScopeId::TOP, line, Arc::new(nodes::Output {}));
                        outputs.insert(port, id);
                    }
                    self.inputs.insert(node, Inputs::Each(outputs));
                }
                "Unconnected Master" => {
                    for (port, of) in self.left.remove(&node).unwrap_or_default() {
                        let zero = nodes::Constant {
                            of,
                            value: 0.into(),
                        };
                        let id = self.place("unconnected", ScopeId::TOP, line, Arc::new(zero));
                        self.sources
                            .insert((node, port), Source { node: id, port: 0 });
                    }
                }
                "Visualization Master" | "Terminator Master" => {}
                other => {
                    let text = format!("`{other}` is not a master node");
                    self.wrong_node(node, Cause::Format, text);
                }
            }
        }
    }

    /// Whether a fan joins its inputs or takes its input apart, by what it is called and by the
    /// widths of its arcs.
    pub(super) fn fan(
        &self,
        node: usize,
        inputs: &BTreeMap<usize, Type>,
        outputs: &BTreeMap<usize, Type>,
    ) -> Result<Fan, String> {
        let function = self.text(node, "block_function");
        let (Some(first), Some((&last, given))) =
            (inputs.values().next(), outputs.iter().next_back())
        else {
            return Ok(Fan::In);
        };
        if last > 0 || function == "VectorFanOut" {
            return Ok(Fan::Out);
        }
        // An input without an arc is as the first that has one.
        let count = inputs.keys().next_back().map_or(0, |last| last + 1);
        let width = |port: usize| inputs.get(&port).unwrap_or(first).len;
        let wide: usize = (0..count).map(width).sum();
        match (count, wide, given.len) {
            (_, wide, given) if wide == given => Ok(Fan::In),
            (1, _, 1) if function != "VectorFanIn" => Ok(Fan::Out),
            (_, wide, given) => Err(format!(
                "a fan of {wide} elements in and {given} out: a fan that joins has as many, and \
                 one that takes a vector apart has arcs of one element"
            )),
        }
    }

    /// One selection for each output.
    pub(super) fn fan_out(&mut self, node: usize, outputs: &BTreeMap<usize, Type>) {
        let mut all = vec![];
        for &port in outputs.keys() {
            let select = nodes::Select {
                indices: vec![port],
            };
            let name = self.text(node, "instance_name").to_string();
            let id = self.place(
                &name,
                self.scope_of(node),
                self.raw[node].line,
                Arc::new(select),
            );
            self.sources
                .insert((node, port), Source { node: id, port: 0 });
            all.push(id);
        }
        self.inputs.insert(node, Inputs::All(all));
    }

    /// Takes a constant that marks its subsystem for a partition or a sub-block. True if it was
    /// one.
    pub(super) fn mark(&mut self, node: usize) -> bool {
        let partition = match self.text(node, "instance_name") {
            "VITIS_PARTITION" | "LAMINAR_PARTITION" => true,
            "VITIS_SUBBLOCKING" | "LAMINAR_SUBBLOCKING" => false,
            _ => return false,
        };
        if self.text(node, "block_function") != "Constant" {
            return false;
        }
        let value = numbers(self.text(node, "Numeric.Value"))
            .filter(|value| value.len() == 1)
            .map(|v| v[0].0.to_f64());
        let value =
            value.filter(|v| v.fract() == 0.0 && (0.0..1e9).contains(v) && (partition || *v > 0.0));
        let scope = self.scope_of(node);
        match (value, scope) {
            (Some(_), ScopeId::TOP) => {
                self.wrong_node(node, Cause::Parameter, "a mark belongs into a subsystem")
            }
            (Some(value), scope) if partition => {
                self.draft.scopes[scope.index()].partition = Some(value as u32)
            }
            (Some(value), scope) => self.draft.scopes[scope.index()].sub_block = Some(value as u32),
            (None, _) => self.wrong_node(
                node,
                Cause::Parameter,
                "a mark is one whole number, a sub-block above 0",
            ),
        }
        true
    }

    /// Gives inputs without an arc a zero, as Simulink does.
    pub(super) fn ground(&mut self) {
        for index in 0..self.draft.nodes.len() {
            let id = NodeId(index as u32);
            let Some(&of) = self.grounds.get(&id) else {
                continue;
            };
            for input in 0..self.draft.nodes[index].from.len() {
                if self.draft.nodes[index].from[input].is_some() {
                    continue;
                }
                let (path, scope) = (self.draft.path(id), self.draft.nodes[index].scope);
                let line = self.lines.get(&path).copied().unwrap_or(0);
                if self.draft.nodes.len() >= MAX_NODES {
                    let text = format!(
                        "a file has at most {MAX_NODES} nodes, and inputs without an arc count"
                    );
                    return self.wrong(Cause::Limit, line, &path, text);
                }
                self.note(
                    line,
                    format!(
                        "input {} of `{path}` has no arc and is taken as 0",
                        input + 1
                    ),
                );
                let zero = nodes::Constant {
                    of,
                    value: 0.into(),
                };
                let node = self.place("ground", scope, line, Arc::new(zero));
                self.draft.nodes[index].from[input] = Some(Source { node, port: 0 });
            }
        }
    }

    /// Gives inputs that clock domains alone read the rate of these.
    pub(super) fn domains(&mut self) {
        let is_domain = |scope: ScopeId| {
            let name = &self.draft.scopes[scope.index()].name;
            DOMAINS.iter().any(|begin| name.starts_with(begin))
        };
        let mut readers: BTreeMap<NodeId, bool> = BTreeMap::new();
        for node in &self.draft.nodes {
            let inside = ancestors(&self.draft.scopes, node.scope).any(is_domain);
            // What brings samples down to the domain's rate reads them at the rate outside.
            let reads_inside = inside && node.node.kind() != "down";
            for source in node.from.iter().flatten() {
                *readers.entry(source.node).or_insert(true) &= reads_inside;
            }
        }
        let is_open = |(id, inside): (NodeId, bool)| {
            let is_input = self.draft.nodes[id.index()].node.kind() == nodes::INPUT;
            (inside && is_input).then_some(id)
        };
        let open: HashSet<NodeId> = readers.into_iter().filter_map(is_open).collect();
        if open.is_empty() {
            return;
        }
        for (id, rate) in of_inputs(&self.draft, &open) {
            let Some(rate) = rate.filter(|rate| *rate != Ratio::ONE) else {
                continue;
            };
            let types = self.draft.nodes[id.index()].node.types(&[]);
            let Some(of) = types.ok().and_then(|types| types.first().copied()) else {
                continue;
            };
            self.draft.nodes[id.index()].node = Arc::new(nodes::Input { of, rate });
            let path = self.draft.path(id);
            let line = self.lines.get(&path).copied().unwrap_or(0);
            let text = format!(
                "the input `{path}` comes at rate {rate}, that of the clock domain that reads it"
            );
            self.note(line, text);
        }
    }

    pub(super) fn enable(&mut self, arc: &BlockArc, source: Source, element: &str) {
        let scope = self.scope_of(arc.target.0);
        if scope == ScopeId::TOP {
            return self.wrong(
                Cause::Context,
                arc.line,
                element,
                "an enable signal outside an enabled subsystem",
            );
        }
        let enable = &mut self.draft.scopes[scope.index()].enable;
        if enable
            .replace(source)
            .is_some_and(|before| before != source)
        {
            self.wrong(
                Cause::Context,
                arc.line,
                element,
                "the subsystem has another enable signal too",
            );
        }
    }
}
