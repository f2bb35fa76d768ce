//! Names, open inputs, parameters, and the borders of enabled subsystems.

use std::collections::HashSet;

use crate::graph::{Draft, NodeId, ScopeId, Source, UNMARKED, ancestors};
use crate::problem::{Cause, Problems};

/// The deepest nesting of subsystems.
pub(crate) const MAX_DEPTH: usize = 64;

/// Checks what concerns single nodes. False if ids point nowhere, so that nothing else can be
/// checked. Of open inputs those that are `told` of are known.
pub(super) fn check(draft: &Draft, told: &[(NodeId, usize)], problems: &mut Problems) -> bool {
    let before = problems.0.len();
    for (index, scope) in draft.scopes.iter().enumerate() {
        if scope.parent.is_some_and(|parent| parent.index() >= index)
            || (index > 0 && scope.parent.is_none())
        {
            problems.add(
                Cause::Name,
                &scope.name,
                "a subsystem must come after the one that it is in",
            );
        }
    }
    for node in &draft.nodes {
        if node.scope.index() >= draft.scopes.len() {
            problems.add(
                Cause::Name,
                &node.name,
                "the node's subsystem does not exist",
            );
        }
    }
    if problems.0.len() > before {
        // Nodes have no paths.
        return false;
    }
    for (index, scope) in draft.scopes.iter().enumerate() {
        if let Some(text) = scope.enable.and_then(|enable| missing(draft, enable)) {
            let path = draft.scope_path(ScopeId(index as u32));
            problems.add(Cause::Connection, path, format!("its enable signal {text}"));
        }
    }
    for (index, node) in draft.nodes.iter().enumerate() {
        for (input, source) in node.from.iter().enumerate() {
            if let Some(text) = source.and_then(|source| missing(draft, source)) {
                let path = draft.path(NodeId(index as u32));
                let text = format!("input {} {text}", input + 1);
                problems.add(Cause::Connection, path, text);
            }
        }
    }
    if problems.0.len() > before {
        return false;
    }
    let mut taken = HashSet::new();
    for (index, scope) in draft.scopes.iter().enumerate().skip(1) {
        let id = ScopeId(index as u32);
        let path = draft.scope_path(id);
        named(&scope.name, &path, problems);
        if scope.partition == Some(UNMARKED) {
            let text = format!(
                "partition {UNMARKED} is that of nodes without a mark: use 0 to {}",
                UNMARKED - 1
            );
            problems.add(Cause::Parameter, &path, text);
        }
        if ancestors(&draft.scopes, id).count() > MAX_DEPTH {
            problems.add(
                Cause::Limit,
                &path,
                format!("subsystems nest at most {MAX_DEPTH} deep"),
            );
        }
        if !taken.insert(path.clone()) {
            problems.add(
                Cause::Name,
                path,
                "two subsystems have this path: rename one",
            );
        }
    }
    for (index, node) in draft.nodes.iter().enumerate() {
        let path = draft.path(NodeId(index as u32));
        named(&node.name, &path, problems);
        if !taken.insert(path.clone()) {
            problems.add(
                Cause::Name,
                &path,
                "a node has the path of another node or subsystem: rename one",
            );
        }
        let open = |&input: &usize| {
            node.from[input].is_none() && !told.contains(&(NodeId(index as u32), input))
        };
        for input in (0..node.from.len()).filter(open) {
            let text = format!(
                "input {} of {} has no source: connect it",
                input + 1,
                node.from.len()
            );
            problems.add(Cause::Connection, &path, text);
        }
        if let Err(text) = node.node.check() {
            problems.add(Cause::Parameter, path, text);
        }
    }
    true
}

/// What is missing, if a source is no output of a node.
fn missing(draft: &Draft, source: Source) -> Option<String> {
    let Some(node) = draft.nodes.get(source.node.index()) else {
        let (index, nodes) = (source.node.index(), draft.nodes.len());
        return Some(format!("takes node {index}: there are {nodes}"));
    };
    let outputs = node.node.outputs();
    (usize::from(source.port) >= outputs).then(|| {
        let (port, path) = (usize::from(source.port) + 1, draft.path(source.node));
        format!("takes output {port} of `{path}`, which has {outputs}")
    })
}

fn named(name: &str, path: &str, problems: &mut Problems) {
    let bad = |c: char| c == '/' || c == ':' || c.is_control();
    if name.is_empty() || name.len() > 1000 || name.contains(bad) || name.trim() != name {
        let rule =
            "a name has 1 to 1000 bytes without `/`, `:`, control characters or spaces at its ends";
        problems.add(Cause::Name, path, format!("{name:?} is no name: {rule}"));
    }
}

/// Checks that signals leave an enabled subsystem through nodes that hold them, and that enable
/// signals are boolean and from outside.
pub(super) fn contexts(draft: &Draft, problems: &mut Problems) {
    for (index, node) in draft.nodes.iter().enumerate() {
        for source in node.from.iter().flatten() {
            leaves(
                draft,
                *source,
                node.scope,
                &draft.path(NodeId(index as u32)),
                problems,
            );
        }
    }
    for (index, scope) in draft.scopes.iter().enumerate() {
        if let Some(enable) = scope.enable {
            let id = ScopeId(index as u32);
            let outside = scope.parent.unwrap_or(ScopeId::TOP);
            leaves(draft, enable, outside, &draft.scope_path(id), problems);
        }
    }
}

fn leaves(draft: &Draft, source: Source, to: ScopeId, reader: &str, problems: &mut Problems) {
    let from = &draft.nodes[source.node.index()];
    if from.node.holds() || from.node.constant() {
        return;
    }
    let around: HashSet<ScopeId> = ancestors(&draft.scopes, to).collect();
    let left = ancestors(&draft.scopes, from.scope)
        .find(|scope| draft.scopes[scope.index()].enable.is_some() && !around.contains(scope));
    if let Some(left) = left {
        let (path, left) = (draft.path(source.node), draft.scope_path(left));
        let text = format!(
            "leaves the enabled subsystem `{left}` for `{reader}`: put a `hold` in between"
        );
        problems.add(Cause::Context, path, text);
    }
}
