//! From blocks and arcs to subsystems, nodes and wires.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::kinds::{Block, Made, kind, numbers};
use super::xml::{Document, Edge, Node as Raw};
use crate::file::{Loaded, check};
use crate::graph::{Draft, NodeId, ScopeId, Source};
use crate::node::Node;
use crate::nodes::{self, MAX_INPUTS};
use crate::problem::{Cause, Problems};
use crate::types::Type;

/// An arc: from an output of one block to an input of another, or to its enable port.
pub(super) struct BlockArc {
    pub(super) source: (usize, usize),
    pub(super) target: (usize, usize),
    pub(super) enable: bool,
    pub(super) kind: Type,
    pub(super) line: usize,
}

pub(super) struct Translator<'a> {
    pub(super) file: &'a str,
    pub(super) raw: Vec<Raw>,
    pub(super) arcs: Vec<BlockArc>,
    pub(super) draft: Draft,
    pub(super) scopes: HashMap<usize, ScopeId>,
    /// What each output of each block has become.
    pub(super) sources: HashMap<(usize, usize), Source>,
    /// What each input of each block has become: nodes and their inputs. Nothing for what has no
    /// part.
    pub(super) inputs: HashMap<(usize, usize), Vec<(NodeId, usize)>>,
    /// A type for inputs that have no arc.
    pub(super) grounds: HashMap<NodeId, Type>,
    pub(super) names: HashSet<(ScopeId, String)>,
    /// The number that the next one of a name gets.
    pub(super) numbers: HashMap<(ScopeId, String), usize>,
    pub(super) lines: HashMap<String, usize>,
    pub(super) notes: Vec<String>,
    pub(super) problems: Problems,
}

pub(super) fn translate(document: Document, file: &str) -> Result<Loaded, Problems> {
    let Document { nodes, edges } = document;
    let mut translator = Translator {
        file,
        raw: nodes,
        arcs: vec![],
        draft: Draft::new(
            std::path::Path::new(file)
                .file_stem()
                .map_or("graph".into(), |s| clean(&s.to_string_lossy())),
        ),
        scopes: HashMap::new(),
        sources: HashMap::new(),
        inputs: HashMap::new(),
        grounds: HashMap::new(),
        names: HashSet::new(),
        numbers: HashMap::new(),
        lines: HashMap::new(),
        notes: vec![],
        problems: Problems::default(),
    };
    translator.arcs(&edges);
    translator.masters();
    translator.scopes();
    translator.blocks();
    translator.wires();
    translator.ground();
    let Translator {
        draft,
        lines,
        notes,
        problems,
        ..
    } = translator;
    problems.unless(())?;
    Ok(Loaded {
        graph: check(draft, file, &lines)?,
        notes,
    })
}

/// A name without what paths give a meaning to.
pub(super) fn clean(name: &str) -> String {
    let replaced: String = name
        .chars()
        .map(|c| {
            if c == '/' || c == ':' {
                '_'
            } else if c.is_control() {
                ' '
            } else {
                c
            }
        })
        .take(200)
        .collect();
    let trimmed = replaced.trim();
    if trimmed.is_empty() {
        "unnamed".into()
    } else {
        trimmed.into()
    }
}

impl Translator<'_> {
    pub(super) fn text(&self, node: usize, key: &str) -> &str {
        self.raw[node].data.get(key).map_or("", String::as_str)
    }

    pub(super) fn wrong(
        &mut self,
        cause: Cause,
        line: usize,
        element: &str,
        text: impl Into<String>,
    ) {
        self.problems
            .add(cause, format!("{}:{line}: {element}", self.file), text);
    }

    pub(super) fn wrong_node(&mut self, node: usize, cause: Cause, text: impl Into<String>) {
        let Raw { id, line, .. } = &self.raw[node];
        let (line, element) = (
            *line,
            format!("node {id} `{}`", clean(self.text(node, "instance_name"))),
        );
        self.wrong(cause, line, &element, text);
    }

    pub(super) fn note(&mut self, line: usize, text: String) {
        self.notes.push(format!("{}:{line}: {text}", self.file));
    }

    /// A name that is the only one in its subsystem.
    fn name(&mut self, scope: ScopeId, name: &str) -> String {
        let name = clean(name);
        let number = self.numbers.entry((scope, name.clone())).or_insert(1);
        loop {
            let unique = match *number {
                1 => name.clone(),
                number => format!("{name}_{number}"),
            };
            *number += 1;
            if self.names.insert((scope, unique.clone())) {
                return unique;
            }
        }
    }

    pub(super) fn place(
        &mut self,
        name: &str,
        scope: ScopeId,
        line: usize,
        node: Arc<dyn Node>,
    ) -> NodeId {
        let name = self.name(scope, name);
        let id = self.draft.node(name, scope, node);
        self.lines.insert(self.draft.path(id), line);
        id
    }

    fn arcs(&mut self, edges: &[Edge]) {
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
        let sizes = numbers(text("arc_dimension")).unwrap_or_default();
        // The number of dimensions comes before the sizes. Columns, rows and matrices are vectors
        // here.
        let len = sizes
            .iter()
            .skip(1)
            .map(|(size, _)| size.to_f64())
            .product::<f64>();
        let len = if sizes.len() < 2 {
            text("arc_width").parse().unwrap_or(1)
        } else {
            len as usize
        };
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

    /// Whether a node is a container. An expanded block without contents is a node.
    fn container(&self, node: usize, parents: &HashSet<usize>) -> bool {
        match self.text(node, "block_node_type") {
            "Subsystem" | "Enabled Subsystem" | "ClockDomain" | "DownsampleClockDomain" => true,
            "Expanded" => parents.contains(&node),
            _ => false,
        }
    }

    fn scopes(&mut self) {
        let parents: HashSet<usize> = self.raw.iter().filter_map(|node| node.parent).collect();
        for node in 0..self.raw.len() {
            if self.container(node, &parents) {
                let parent = self.scope_of(node);
                let name = self.text(node, "instance_name").to_string();
                let name = self.name(parent, &name);
                let id = self.draft.scope(name, parent);
                self.lines
                    .insert(self.draft.scope_path(id), self.raw[node].line);
                self.scopes.insert(node, id);
            }
        }
    }

    pub(super) fn scope_of(&self, node: usize) -> ScopeId {
        self.raw[node]
            .parent
            .and_then(|parent| self.scopes.get(&parent).copied())
            .unwrap_or(ScopeId::TOP)
    }

    fn blocks(&mut self) {
        // Arcs by block, so that large files do not take quadratic time.
        let mut targets: HashMap<usize, BTreeMap<usize, Type>> = HashMap::new();
        let mut sources: HashMap<usize, BTreeMap<usize, Type>> = HashMap::new();
        for arc in &self.arcs {
            sources
                .entry(arc.source.0)
                .or_default()
                .entry(arc.source.1)
                .or_insert(arc.kind);
            if !arc.enable {
                targets
                    .entry(arc.target.0)
                    .or_default()
                    .entry(arc.target.1)
                    .or_insert(arc.kind);
            }
        }
        for node in 0..self.raw.len() {
            let block_type = self.text(node, "block_node_type").to_string();
            if block_type == "Master" || self.scopes.contains_key(&node) || self.mark(node) {
                continue;
            }
            let inputs = targets.remove(&node).unwrap_or_default();
            let outputs = sources.remove(&node).unwrap_or_default();
            if inputs.is_empty() && outputs.is_empty() {
                let text = format!(
                    "`{}` has no arcs and is left out",
                    clean(self.text(node, "instance_name"))
                );
                self.note(self.raw[node].line, text);
                continue;
            }
            let count = inputs.keys().next_back().map_or(0, |last| last + 1);
            let output = outputs.get(&0).copied();
            let ground = inputs
                .values()
                .next()
                .copied()
                .or(output)
                .unwrap_or(Type::F64);
            let node_made = |made: Arc<dyn Node>| Ok(Made::Node(made));
            let made = match block_type.as_str() {
                "Special Input Port" => node_made(Arc::new(nodes::Pass {})),
                "Special Output Port" => self.hold(node),
                "VectorFan" if outputs.len() > 1 => {
                    self.fan_out(node, &outputs);
                    continue;
                }
                "VectorFan" => node_made(Arc::new(nodes::Concat { inputs: count })),
                "Standard" | "Expanded" | "RateChange" => {
                    let function = self.text(node, "block_function");
                    let input = inputs.get(&0).copied();
                    Block {
                        function,
                        data: &self.raw[node].data,
                        inputs: count,
                        input,
                        output,
                    }
                    .make()
                }
                "Stateflow" | "BlackBox" => Ok(Made::Unknown(block_type.clone())),
                other => Err(format!("block_node_type `{other}` is not known")),
            };
            match made {
                Ok(Made::Nothing) => {}
                Ok(Made::Node(made)) => self.put(node, made, ground),
                Ok(Made::Unknown(called)) => {
                    let last = outputs.keys().next_back().map_or(0, |last| last + 1);
                    let kinds = (0..last)
                        .map(|port| outputs.get(&port).copied().unwrap_or(Type::F64))
                        .collect();
                    let line = self.raw[node].line;
                    self.note(
                        line,
                        format!("there is no node for {called}: the graph cannot run"),
                    );
                    let unknown = nodes::Unknown {
                        called,
                        inputs: count,
                        outputs: kinds,
                    };
                    self.put(node, Arc::new(unknown), ground);
                }
                Err(text) => self.wrong_node(node, Cause::Parameter, text),
            }
        }
    }

    pub(super) fn put(&mut self, node: usize, made: Arc<dyn Node>, ground: Type) {
        let (inputs, outputs) = (made.inputs(), made.outputs());
        let name = self.text(node, "instance_name").to_string();
        let id = self.place(&name, self.scope_of(node), self.raw[node].line, made);
        self.grounds.insert(id, ground);
        for input in 0..inputs {
            self.inputs.insert((node, input), vec![(id, input)]);
        }
        for port in 0..outputs.min(MAX_INPUTS) {
            self.sources.insert(
                (node, port),
                Source {
                    node: id,
                    port: port as u16,
                },
            );
        }
    }

    fn hold(&self, node: usize) -> Result<Made, String> {
        let text = self.text(node, "Numeric.InitialOutput");
        let initial = numbers(text)
            .ok_or_else(|| format!("Numeric.InitialOutput `{text}` is no list of numbers"))?;
        let initial = crate::Literals::new(initial).unwrap_or(0.into());
        Ok(Made::Node(Arc::new(nodes::Hold { initial })))
    }

    fn wires(&mut self) {
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
        for arc in std::mem::take(&mut self.arcs) {
            let ids = [arc.source.0, arc.target.0].map(|node| self.raw[node].id.clone());
            let element = format!("edge {} -> {}", ids[0], ids[1]);
            let inputs = self.inputs.get(&arc.target).cloned();
            if !arc.enable && inputs.is_none() && dropped(self, arc.target.0) {
                continue;
            }
            let Some(&source) = self.sources.get(&arc.source) else {
                if self.problems.0.is_empty() {
                    self.wrong(
                        Cause::Connection,
                        arc.line,
                        &element,
                        "the source is no output of a block",
                    );
                }
                continue;
            };
            if arc.enable {
                self.enable(&arc, source, &element);
                continue;
            }
            if inputs.is_none() && self.problems.0.is_empty() {
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
        for (&node, &scope) in &self.scopes {
            let enabled = self.raw[node]
                .data
                .get("block_node_type")
                .map(String::as_str)
                == Some("Enabled Subsystem");
            if enabled && self.draft.scopes[scope.index()].enable.is_none() {
                let place = format!(
                    "{}:{}: node {}",
                    self.file, self.raw[node].line, self.raw[node].id
                );
                self.problems.add(
                    Cause::Connection,
                    place,
                    "an enabled subsystem without an enable signal",
                );
            }
        }
    }
}
