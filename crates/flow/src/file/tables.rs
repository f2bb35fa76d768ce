//! Graphs as TOML: a table for each subsystem and each node, with paths for names.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use toml::{Spanned, Table, Value};

use super::nesting::{MAX_NESTING, too_deep};
use super::{MAX_NODES, check};
use crate::graph::{Draft, Graph, NodeId, ScopeId, Source, join};
use crate::node::Registry;
use crate::problem::{Cause, Problems};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    #[serde(default)]
    scope: Vec<Spanned<ScopeTable>>,
    #[serde(default)]
    node: Vec<Spanned<Table>>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ScopeTable {
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enable: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sub_block: Option<u32>,
}

/// Line numbers of places in a text.
struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &str) -> Lines {
        Lines(
            text.bytes()
                .enumerate()
                .filter(|(_, byte)| *byte == b'\n')
                .map(|(at, _)| at)
                .collect(),
        )
    }

    fn of(&self, at: usize) -> usize {
        1 + self.0.partition_point(|&end| end < at)
    }
}

struct Reader<'a> {
    file: &'a str,
    registry: &'a Registry,
    draft: Draft,
    scopes: HashMap<String, ScopeId>,
    /// The node of each path, and the line of each path of a node or subsystem.
    nodes: HashMap<String, NodeId>,
    /// Paths of nodes and subsystems that are wrong by themselves: what is in them, and what reads
    /// them, is not.
    failed: HashSet<String>,
    lines: HashMap<String, usize>,
    problems: Problems,
}

pub(super) fn read(text: &str, file: &str, registry: &Registry) -> Result<Graph, Problems> {
    let lines = Lines::new(text);
    if let Some(at) = too_deep(text) {
        let place = format!("{file}:{}", lines.of(at));
        let rule = format!("tables and lists nest at most {MAX_NESTING} deep");
        return Err(Problems::one(Cause::Limit, place, rule));
    }
    let parsed: File = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| lines.of(span.start));
        let text = crate::parameter::of_text(error.message());
        Problems::one(Cause::Format, format!("{file}:{line}"), text)
    })?;
    let count = parsed.scope.len() + parsed.node.len();
    if count > MAX_NODES {
        let text = format!("{count} nodes and subsystems: a file has at most {MAX_NODES}");
        return Err(Problems::one(Cause::Limit, file, text));
    }
    let mut reader = Reader {
        file,
        registry,
        draft: Draft::new(parsed.name),
        scopes: HashMap::from([(String::new(), ScopeId::TOP)]),
        nodes: HashMap::new(),
        failed: HashSet::new(),
        lines: HashMap::new(),
        problems: Problems::default(),
    };
    let mut enables = Vec::new();
    for table in parsed.scope {
        let line = lines.of(table.span().start);
        let table = table.into_inner();
        let Some((parent, name)) = reader.split(&table.path, line) else {
            reader.failed.insert(table.path);
            continue;
        };
        if table.sub_block == Some(0) {
            let text = "a sub_block is a whole number above 0";
            reader.wrong(Cause::Parameter, &table.path, line, text);
        }
        let id = reader.draft.scope(name, parent);
        let scope = &mut reader.draft.scopes[id.index()];
        (scope.partition, scope.sub_block) = (table.partition, table.sub_block);
        enables.extend(
            table
                .enable
                .map(|enable| (id, enable, table.path.clone(), line)),
        );
        reader.lines.insert(table.path.clone(), line);
        reader.scopes.insert(table.path, id);
    }
    let mut wires = Vec::new();
    for table in parsed.node {
        let line = lines.of(table.span().start);
        reader.node(table.into_inner(), line, &mut wires);
    }
    for (node, from, path, line) in wires {
        for (input, wire) in from.iter().enumerate() {
            let source = reader.source(wire, &path, line);
            reader.draft.nodes[node].from[input] = source;
        }
    }
    for (scope, enable, path, line) in enables {
        let source = reader.source(&enable, &path, line);
        reader.draft.scopes[scope.index()].enable = source;
    }
    reader.problems.unless(())?;
    check(reader.draft, file, &reader.lines)
}

impl Reader<'_> {
    fn wrong(&mut self, cause: Cause, path: &str, line: usize, text: impl std::fmt::Display) {
        self.problems.add(
            cause,
            format!("{}:{line}: {path}", self.file),
            text.to_string(),
        );
    }

    /// The subsystem of a path, and the name in it.
    fn split<'p>(&mut self, path: &'p str, line: usize) -> Option<(ScopeId, &'p str)> {
        let (scope, name) = path.rsplit_once('/').unwrap_or(("", path));
        let id = self.scopes.get(scope).copied();
        if id.is_none() && !self.failed.contains(scope) {
            let text = format!(
                "there is no subsystem `{scope}` before it: add a [[scope]] with that path"
            );
            self.wrong(Cause::Name, path, line, text);
        }
        Some((id?, name))
    }

    fn node(
        &mut self,
        mut table: Table,
        line: usize,
        wires: &mut Vec<(usize, Vec<String>, String, usize)>,
    ) {
        let path = match table.remove("path") {
            Some(Value::String(path)) => path,
            _ => return self.wrong(Cause::Format, "", line, "a node needs a `path`, a string"),
        };
        let made = self.made(&path, table, line);
        let Some((id, from)) = made else {
            self.failed.insert(path);
            return;
        };
        self.lines.insert(path.clone(), line);
        self.nodes.insert(path.clone(), id);
        wires.push((id.index(), from, path, line));
    }

    /// The node of a table with its sources; none if it is wrong, which is told.
    fn made(&mut self, path: &str, mut table: Table, line: usize) -> Option<(NodeId, Vec<String>)> {
        let Some(Value::String(kind)) = table.remove("kind") else {
            self.wrong(Cause::Format, path, line, "a node needs a `kind`, a string");
            return None;
        };
        let from = table.remove("from").map_or(Ok(vec![]), Value::try_into);
        let Ok(from) = from else {
            self.wrong(Cause::Format, path, line, "`from` must be a list of paths");
            return None;
        };
        let from: Vec<String> = from;
        let (scope, name) = self.split(path, line)?;
        let node = match self.registry.make(&kind, table) {
            Ok(node) => node,
            Err(text) => {
                self.wrong(Cause::Parameter, path, line, text);
                return None;
            }
        };
        if node.inputs() != from.len() {
            let text = format!(
                "`from` has {} paths where there are {} inputs",
                from.len(),
                node.inputs()
            );
            self.wrong(Cause::Connection, path, line, text);
            return None;
        }
        Some((self.draft.node(name, scope, node), from))
    }

    fn gives(&self, source: Source) -> bool {
        usize::from(source.port) < self.draft.nodes[source.node.index()].node.outputs()
    }

    /// The source that `path` or `path:port` names.
    fn source(&mut self, wire: &str, path: &str, line: usize) -> Option<Source> {
        // A name with a colon is wrong, and told where the node is.
        if let Some(&node) = self.nodes.get(wire) {
            let source = Some(Source { node, port: 0 });
            if source.is_some_and(|source| self.gives(source)) {
                return source;
            }
        }
        let (node, port) = match wire.rsplit_once(':') {
            Some((node, port)) => (
                node,
                port.parse::<u16>()
                    .ok()
                    .and_then(|port| port.checked_sub(1)),
            ),
            None => (wire, Some(0)),
        };
        let found = self.nodes.get(node).copied().zip(port);
        let source = found.map(|(node, port)| Source { node, port });
        let source = source.filter(|&source| self.gives(source));
        if source.is_none() && !self.failed.contains(wire) && !self.failed.contains(node) {
            let text = format!(
                "`{wire}` is no output of a node: write its path, or path:2 for the second"
            );
            self.wrong(Cause::Connection, path, line, text);
        }
        source
    }
}

pub(super) fn write(graph: &Graph) -> Result<String, Problems> {
    let mut problems = Problems::default();
    let mut text = format!("name = {}\n", Value::from(graph.name()));
    let name = |source: Source| {
        let path = graph.path(source.node);
        if source.port == 0 {
            path
        } else {
            format!("{path}:{}", source.port + 1)
        }
    };
    let mut add = |header: &str, table: &Table| {
        text.push_str(&format!("\n[[{header}]]\n"));
        // Keys in an order of their own: what a reader looks for first.
        let first = ["path", "kind", "from"]
            .into_iter()
            .filter_map(|key| table.get_key_value(key));
        let rest = table
            .iter()
            .filter(|(key, _)| !["path", "kind", "from"].contains(&key.as_str()));
        for (key, value) in first.chain(rest) {
            text.push_str(&format!("{key} = {value}\n"));
        }
    };
    for (index, scope) in graph.scopes().iter().enumerate().skip(1) {
        let table = ScopeTable {
            path: graph.scope_path(ScopeId(index as u32)),
            enable: scope.enable.map(name),
            partition: scope.partition,
            sub_block: scope.sub_block,
        };
        add("scope", &crate::node::table(&table).unwrap_or_default());
    }
    for placed in graph.nodes() {
        let path = join(&graph.scope_path(placed.scope), &placed.name);
        let Some(mut table) = placed.node.parameters() else {
            let text = format!(
                "a `{}` cannot be written to a file: give it a kind of its own",
                placed.node.kind()
            );
            problems.add(Cause::Format, path, text);
            continue;
        };
        table.insert("path".into(), path.into());
        table.insert("kind".into(), placed.node.kind().into());
        let from: Vec<String> = placed.from.iter().map(|&source| name(source)).collect();
        if !from.is_empty() {
            table.insert("from".into(), from.into());
        }
        add("node", &table);
    }
    problems.unless(text)
}
