//! From blocks and arcs to subsystems, nodes and wires.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::ends::Fan;
use super::kinds::{Block, Made, numbers};
use super::wires::BlockArc;
use super::xml::{Document, Node as Raw};
use crate::check::MAX_DEPTH;
use crate::file::{Loaded, MAX_FILE, MAX_NODES, check};
use crate::graph::{Draft, NodeId, ScopeId, Source};
use crate::literal::Literals;
use crate::node::Node;
use crate::nodes::{self, MAX_INPUTS};
use crate::number::Rounding;
use crate::problem::{Cause, Problems};
use crate::types::{Scalar, Type};

/// What the inputs of a block have become.
pub(super) enum Inputs {
    /// As many inputs of one node.
    Node(NodeId, usize),
    /// The first one goes to the first of each.
    All(Vec<NodeId>),
    /// The first of a node for each.
    Each(BTreeMap<usize, NodeId>),
}

/// The most elements of all selectors that have a range.
pub(super) const MAX_RANGES: usize = 1 << 24;

pub(super) struct Translator<'a> {
    pub(super) file: &'a str,
    pub(super) raw: Vec<Raw>,
    pub(super) arcs: Vec<BlockArc>,
    pub(super) draft: Draft,
    pub(super) scopes: HashMap<usize, ScopeId>,
    /// What each output of each block has become.
    pub(super) sources: HashMap<(usize, usize), Source>,
    /// What the inputs of each block have become. Nothing for what has no part.
    pub(super) inputs: HashMap<usize, Inputs>,
    /// The ports of each block that arcs come to, and those that arcs leave, with their types.
    pub(super) entered: HashMap<usize, BTreeMap<usize, Type>>,
    pub(super) left: HashMap<usize, BTreeMap<usize, Type>>,
    /// The types of arcs, by what they carry.
    pub(super) claims: Vec<(Source, Type, usize)>,
    /// Ports of nodes without arcs.
    open: usize,
    /// Elements that selectors of a range may still have.
    ranges: Cell<usize>,
    /// The depth of each subsystem and the bytes of its path; the bytes of all paths.
    nesting: Vec<(usize, usize)>,
    path_bytes: usize,
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
        entered: HashMap::new(),
        left: HashMap::new(),
        claims: vec![],
        open: 0,
        ranges: Cell::new(MAX_RANGES),
        nesting: vec![(1, 0)],
        path_bytes: 0,
        grounds: HashMap::new(),
        names: HashSet::new(),
        numbers: HashMap::new(),
        lines: HashMap::new(),
        notes: vec![],
        problems: Problems::default(),
    };
    translator.arcs(&edges);
    translator.ends();
    // What is beyond a limit is not read on.
    let steps: [fn(&mut Translator); 6] = [
        |translator| translator.masters(),
        |translator| translator.scopes(),
        |translator| translator.blocks(),
        |translator| translator.wires(),
        |translator| translator.ground(),
        |translator| translator.domains(),
    ];
    for step in steps {
        step(&mut translator);
        if translator.problems.count(Cause::Limit) > 0 {
            return Err(translator.problems);
        }
    }
    let Translator {
        draft,
        lines,
        mut notes,
        problems,
        claims,
        ..
    } = translator;
    problems.unless(())?;
    let graph = check(draft, file, &lines)?;
    let mut told = HashSet::new();
    for (source, kind, line) in claims {
        let given = graph.kind(source);
        if given != kind && told.insert(source) {
            let path = graph.path(source.node);
            notes.push(format!(
                "{file}:{line}: an arc of `{path}` is {kind} in the file, and {given} here"
            ));
        }
    }
    Ok(Loaded { graph, notes })
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
        let fits = self.fits(self.nesting[scope.index()].1 + name.len(), line);
        let id = self.draft.node(name, scope, node);
        if fits {
            self.lines.insert(self.draft.path(id), line);
        }
        id
    }

    /// Whether a path of so many bytes is within the limit of all. Deep subsystems with long names
    /// would make much of a small file.
    fn fits(&mut self, bytes: usize, line: usize) -> bool {
        let before = self.path_bytes;
        self.path_bytes += bytes;
        if before <= MAX_FILE && self.path_bytes > MAX_FILE {
            let text = format!(
                "the paths of nodes and subsystems up to here have {} bytes: at most {MAX_FILE}; \
                 nest fewer subsystems, or give them shorter names",
                self.path_bytes
            );
            self.wrong(Cause::Limit, line, "names", text);
        }
        self.path_bytes <= MAX_FILE
    }

    /// Whether so many more ports without arcs are within the limit: inputs become nodes.
    fn room(&mut self, node: usize, ports: usize) -> bool {
        self.open += ports;
        let count = self.draft.nodes.len() + self.open;
        if count > MAX_NODES {
            let text = format!(
                "{count} nodes up to here: a file has at most {MAX_NODES} nodes, and ports without \
                 an arc count; give the blocks fewer ports"
            );
            self.wrong_node(node, Cause::Limit, text);
        }
        count <= MAX_NODES
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
                let (depth, bytes) = self.nesting[parent.index()];
                if depth >= MAX_DEPTH {
                    let text = format!("subsystems nest at most {MAX_DEPTH} deep: take some out");
                    return self.wrong_node(node, Cause::Limit, text);
                }
                let (line, bytes) = (self.raw[node].line, bytes + name.len() + 1);
                if !self.fits(bytes, line) {
                    return;
                }
                self.nesting.push((depth + 1, bytes));
                let id = self.draft.scope(name, parent);
                self.lines.insert(self.draft.scope_path(id), line);
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
        for node in 0..self.raw.len() {
            let block_type = self.text(node, "block_node_type").to_string();
            if block_type == "Master" || self.scopes.contains_key(&node) || self.mark(node) {
                continue;
            }
            let inputs = self.entered.remove(&node).unwrap_or_default();
            let outputs = self.left.remove(&node).unwrap_or_default();
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
                "VectorFan" => match self.fan(node, &inputs, &outputs) {
                    Ok(Fan::Out) => {
                        self.fan_out(node, &outputs);
                        continue;
                    }
                    Ok(Fan::In) => node_made(Arc::new(nodes::Concat { inputs: count })),
                    Err(text) => Err(text),
                },
                "Standard" | "Expanded" | "RateChange" => {
                    let function = self.text(node, "block_function");
                    let input = inputs.get(&0).copied();
                    Block {
                        function,
                        data: &self.raw[node].data,
                        inputs: count,
                        input,
                        output,
                        ranges: &self.ranges,
                    }
                    .make()
                }
                "Stateflow" | "BlackBox" => Ok(Made::Unknown(block_type.clone())),
                other => Err(format!("block_node_type `{other}` is not known")),
            };
            match made {
                Ok(Made::Nothing) => {}
                Ok(Made::Node(made)) => {
                    let open = made.inputs().saturating_sub(inputs.len());
                    if !self.room(node, open) {
                        return;
                    }
                    self.put(node, made, ground);
                    if !self.reset_by_number(node, &inputs) {
                        return;
                    }
                }
                Ok(Made::Unknown(called)) => {
                    let last = outputs.keys().next_back().map_or(0, |last| last + 1);
                    let open = (count - inputs.len()) + (last - outputs.len());
                    if !self.room(node, open) {
                        return;
                    }
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
        self.inputs.insert(node, Inputs::Node(id, inputs));
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

    /// Gives a tapped delay whose reset is a real number a node that says where it is not 0. Other
    /// resets stay as they are, for the delay to refuse. False where there is no room for one more
    /// node.
    fn reset_by_number(&mut self, node: usize, inputs: &BTreeMap<usize, Type>) -> bool {
        let is_delay = self.text(node, "block_function") == "TappedDelayWithReset";
        let kind = inputs.get(&1).copied();
        let is_number = |kind: &Type| *kind == Type::of(kind.scalar) && *kind != Type::BOOL;
        let kind = kind.filter(|kind| is_delay && is_number(kind));
        let (Some(kind), Some(&Inputs::Node(delay, 2))) = (kind, self.inputs.get(&node)) else {
            return true;
        };
        let name = format!("{} reset", self.text(node, "instance_name"));
        let not_zero = Arc::new(nodes::Convert {
            to: Scalar::Bool,
            rounding: Rounding::default(),
        });
        let line = self.raw[node].line;
        let reset = self.place(&name, self.scope_of(node), line, not_zero);
        self.grounds.insert(reset, kind);
        self.draft.nodes[delay.index()].from[1] = Some(Source {
            node: reset,
            port: 0,
        });
        let inputs = BTreeMap::from([(0, delay), (1, reset)]);
        self.inputs.insert(node, Inputs::Each(inputs));
        self.room(node, 0)
    }

    fn hold(&self, node: usize) -> Result<Made, String> {
        let disabled = self.text(node, "OutputWhenDisabled");
        if !matches!(disabled, "" | "held") {
            let what = format!("Outport with OutputWhenDisabled {disabled}");
            return Ok(Made::Unknown(what));
        }
        let text = self.text(node, "Numeric.InitialOutput");
        let initial = numbers(text).ok_or_else(|| {
            format!("Numeric.InitialOutput `{text}` is not a list of numbers such as [1, 2]")
        })?;
        let initial = Literals::new(initial).unwrap_or(0.into());
        Ok(Made::Node(Arc::new(nodes::Hold { initial })))
    }
}
