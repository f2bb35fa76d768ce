//! Graphs: nodes in nested subsystems, and the wires between them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::node::Node;
use crate::ratio::Ratio;
use crate::types::Type;

/// The index of a node in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// The index in [`Graph::nodes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The index of a subsystem in its graph. The first, 0, is the graph itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScopeId(pub(crate) u32);

impl ScopeId {
    /// The graph itself.
    pub const TOP: ScopeId = ScopeId(0);

    /// The index in [`Graph::scopes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The partition of nodes that no mark is around.
pub const UNMARKED: u32 = u32::MAX;

/// One output of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// The node.
    pub node: NodeId,
    /// The index of its output.
    pub port: u16,
}

/// A subsystem: a container, and a context if it has an enable signal.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    /// The name within the parent; the graph's name at the top.
    pub name: String,
    /// The subsystem that this one is in.
    pub parent: Option<ScopeId>,
    /// The boolean that lets the nodes inside run.
    pub enable: Option<Source>,
    /// The partition that the nodes inside are marked for. The innermost mark counts.
    pub partition: Option<u32>,
    /// The samples that the nodes inside are marked to work on at once.
    pub sub_block: Option<u32>,
}

/// A node in its place, before it is checked.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Subsystems; a parent comes before its children.
    pub scopes: Vec<Scope>,
    /// Nodes, whose sources may be missing.
    pub nodes: Vec<DraftNode>,
}

/// A node of a [`Draft`].
#[derive(Clone, Debug)]
pub struct DraftNode {
    /// The name within the subsystem.
    pub name: String,
    /// The subsystem.
    pub scope: ScopeId,
    /// The kind and its parameters.
    pub node: Arc<dyn Node>,
    /// The source of each input.
    pub from: Vec<Option<Source>>,
}

/// A node of a checked [`Graph`].
#[derive(Clone, Debug)]
pub struct Placed {
    /// The name within the subsystem.
    pub name: String,
    /// The subsystem.
    pub scope: ScopeId,
    /// The kind and its parameters.
    pub node: Arc<dyn Node>,
    /// The source of each input.
    pub from: Vec<Source>,
    /// The type of each input.
    pub inputs: Vec<Type>,
    /// The type of each output.
    pub outputs: Vec<Type>,
    /// Output samples for each sample of the base rate. `None` for what is constant.
    pub rate: Option<Ratio>,
}

/// A checked graph: every input has one source, types, sizes and rates agree, and every loop has a
/// delay.
#[derive(Clone, Debug)]
pub struct Graph {
    pub(crate) scopes: Vec<Scope>,
    pub(crate) nodes: Vec<Placed>,
    pub(crate) order: Vec<NodeId>,
}

impl Draft {
    /// An empty graph.
    pub fn new(name: impl Into<String>) -> Draft {
        let top = Scope {
            name: name.into(),
            parent: None,
            enable: None,
            partition: None,
            sub_block: None,
        };
        Draft {
            scopes: vec![top],
            nodes: Vec::new(),
        }
    }

    /// Adds a subsystem.
    pub fn scope(&mut self, name: impl Into<String>, parent: ScopeId) -> ScopeId {
        let id = ScopeId(self.scopes.len() as u32);
        let scope = Scope {
            name: name.into(),
            parent: Some(parent),
            enable: None,
            partition: None,
            sub_block: None,
        };
        self.scopes.push(scope);
        id
    }

    /// Adds a node whose inputs are open.
    pub fn node(&mut self, name: impl Into<String>, scope: ScopeId, node: Arc<dyn Node>) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        let from = vec![None; node.inputs()];
        self.nodes.push(DraftNode {
            name: name.into(),
            scope,
            node,
            from,
        });
        id
    }

    /// The path of a subsystem, without the graph's own name.
    pub fn scope_path(&self, scope: ScopeId) -> String {
        scope_path(&self.scopes, scope)
    }

    /// The path of a node.
    pub fn path(&self, node: NodeId) -> String {
        let placed = &self.nodes[node.index()];
        join(&self.scope_path(placed.scope), &placed.name)
    }
}

impl Graph {
    /// The name.
    pub fn name(&self) -> &str {
        &self.scopes[0].name
    }

    /// Subsystems; a parent comes before its children, the graph itself first.
    pub fn scopes(&self) -> &[Scope] {
        &self.scopes
    }

    /// Nodes, in the order in which they were made.
    pub fn nodes(&self) -> &[Placed] {
        &self.nodes
    }

    /// The node of an id.
    pub fn node(&self, id: NodeId) -> &Placed {
        &self.nodes[id.index()]
    }

    /// The ids of all nodes.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// Nodes in an order in which each follows what it depends on in the same cycle.
    pub fn order(&self) -> &[NodeId] {
        &self.order
    }

    /// The nodes that samples enter by, in the order in which they were made.
    pub fn inputs(&self) -> impl Iterator<Item = NodeId> {
        self.ids()
            .filter(|&id| self.node(id).node.kind() == crate::nodes::INPUT)
    }

    /// The nodes that samples leave by, in the order in which they were made.
    pub fn outputs(&self) -> impl Iterator<Item = NodeId> {
        self.ids()
            .filter(|&id| self.node(id).node.kind() == crate::nodes::OUTPUT)
    }

    /// The node at a path.
    pub fn find(&self, path: &str) -> Option<NodeId> {
        self.ids().find(|&id| self.path(id) == path)
    }

    /// The path of a subsystem, without the graph's own name.
    pub fn scope_path(&self, scope: ScopeId) -> String {
        scope_path(&self.scopes, scope)
    }

    /// The path of a node.
    pub fn path(&self, node: NodeId) -> String {
        let placed = self.node(node);
        join(&self.scope_path(placed.scope), &placed.name)
    }

    /// The type of what a source carries.
    pub fn kind(&self, source: Source) -> Type {
        self.node(source.node).outputs[usize::from(source.port)]
    }

    /// The enable signals that a node is subject to, innermost first.
    pub fn enables(&self, node: NodeId) -> impl Iterator<Item = Source> {
        ancestors(&self.scopes, self.node(node).scope)
            .filter_map(|scope| self.scopes[scope.index()].enable)
    }

    /// The partition that a node is marked for, by the innermost mark around it.
    pub fn partition(&self, node: NodeId) -> Option<u32> {
        ancestors(&self.scopes, self.node(node).scope)
            .find_map(|scope| self.scopes[scope.index()].partition)
    }

    /// The nodes that read each output, also as an enable signal.
    pub(crate) fn readers(&self) -> HashMap<Source, Vec<NodeId>> {
        let mut readers: HashMap<Source, Vec<NodeId>> = HashMap::new();
        for id in self.ids() {
            for source in self.node(id).from.iter().copied().chain(self.enables(id)) {
                readers.entry(source).or_default().push(id);
            }
        }
        readers
    }

    /// The length of a delay outside enabled subsystems; 0 for any other node.
    pub(crate) fn plain_delay(&self, id: NodeId) -> u64 {
        let delay = self.node(id).node.delay();
        let plain = delay.filter(|_| self.enables(id).next().is_none());
        plain.unwrap_or(0) as u64
    }

    /// Bytes of state of all nodes.
    pub fn state_bytes(&self) -> u64 {
        let bytes = |placed: &Placed| placed.node.state_bytes(&placed.inputs, &placed.outputs);
        self.nodes.iter().map(bytes).fold(0, u64::saturating_add)
    }
}

/// The subsystem and all around it, innermost first.
pub(crate) fn ancestors(scopes: &[Scope], scope: ScopeId) -> impl Iterator<Item = ScopeId> {
    std::iter::successors(Some(scope), |scope| scopes[scope.index()].parent)
}

fn scope_path(scopes: &[Scope], scope: ScopeId) -> String {
    let mut names: Vec<&str> = ancestors(scopes, scope)
        .filter(|&scope| scope != ScopeId::TOP)
        .map(|scope| scopes[scope.index()].name.as_str())
        .collect();
    names.reverse();
    names.join("/")
}

pub(crate) fn join(scope: &str, name: &str) -> String {
    if scope.is_empty() {
        name.to_string()
    } else {
        format!("{scope}/{name}")
    }
}
