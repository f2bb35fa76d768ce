//! Types of all ports, from inputs, constants and delays forward.

use super::name;
use crate::graph::{Draft, DraftNode, NodeId, Source};
use crate::node::{Mismatch, Node};
use crate::problem::{Cause, Problems};
use crate::types::{Scalar, Type};

/// Types of a node's inputs and outputs.
type Kinds = (Vec<Type>, Vec<Type>);

/// The types of all nodes; `None` for those in error, and for those behind them.
pub(super) fn check(draft: &Draft, problems: &mut Problems) -> Vec<Option<Kinds>> {
    let before = problems.0.len();
    let count = draft.nodes.len();
    let mut readers = vec![Vec::new(); count];
    for (index, node) in draft.nodes.iter().enumerate() {
        for source in node.from.iter().flatten() {
            readers[source.node.index()].push(index);
        }
    }
    // Parameters out of range have been reported: such a node may expect anything of its inputs.
    let mut failed: Vec<bool> = draft
        .nodes
        .iter()
        .map(|node| node.node.check().is_err())
        .collect();
    let known = |(node, failed): (&DraftNode, &bool)| {
        if *failed {
            None
        } else {
            declared(node.node.as_ref())
        }
    };
    let mut outputs: Vec<Option<Vec<Type>>> = draft.nodes.iter().zip(&failed).map(known).collect();
    let mut result: Vec<Option<Kinds>> = vec![None; count];
    let mut open: Vec<usize> = (0..count).rev().collect();
    while let Some(index) = open.pop() {
        if result[index].is_some() || failed[index] {
            continue;
        }
        let node = &draft.nodes[index];
        let kind = |source: &Option<Source>| {
            let source = (*source)?;
            outputs[source.node.index()]
                .as_ref()?
                .get(usize::from(source.port))
                .copied()
        };
        let Some(inputs) = node.from.iter().map(kind).collect::<Option<Vec<Type>>>() else {
            continue;
        };
        match found(node.node.as_ref(), &inputs, outputs[index].as_deref()) {
            Ok(kinds) => {
                if outputs[index].is_none() {
                    outputs[index] = Some(kinds.clone());
                    open.extend(&readers[index]);
                }
                result[index] = Some((inputs, kinds));
            }
            Err(mismatch) => {
                failed[index] = true;
                problems.add(
                    mismatch.cause,
                    draft.path(NodeId(index as u32)),
                    mismatch.text,
                );
            }
        }
    }
    if problems.0.len() == before && !failed.contains(&true) {
        unknown(draft, &outputs, problems);
    }
    enables(draft, &outputs, problems);
    result
}

fn declared(node: &dyn Node) -> Option<Vec<Type>> {
    node.declared().filter(|kinds| {
        kinds.len() == node.outputs() && kinds.iter().all(|kind| kind.check().is_ok())
    })
}

/// The outputs' types, checked against the node's own promises: a node may be anybody's.
fn found(
    node: &dyn Node,
    inputs: &[Type],
    declared: Option<&[Type]>,
) -> Result<Vec<Type>, Mismatch> {
    let kinds = node.types(inputs)?;
    if let Some(text) = kinds.iter().find_map(|kind| kind.check().err()) {
        return Err(Mismatch::of_size(text));
    }
    if kinds.len() != node.outputs() || declared.is_some_and(|declared| declared != kinds) {
        let text = format!(
            "`{}` gives types {kinds:?} that are not those it declares",
            node.kind()
        );
        return Err(Mismatch::of_type(text));
    }
    Ok(kinds)
}

/// Reports types that go round in a loop.
fn unknown(draft: &Draft, outputs: &[Option<Vec<Type>>], problems: &mut Problems) {
    for (index, node) in draft.nodes.iter().enumerate() {
        if outputs[index].is_none() && !node.node.direct() && node.from.iter().all(Option::is_some)
        {
            let text = "the type goes round in a loop: give the delay its type (`of`)";
            problems.add(Cause::Type, draft.path(NodeId(index as u32)), text);
        }
    }
}

fn enables(draft: &Draft, outputs: &[Option<Vec<Type>>], problems: &mut Problems) {
    for (index, scope) in draft.scopes.iter().enumerate() {
        let Some(enable) = scope.enable else { continue };
        let kind = outputs[enable.node.index()]
            .as_ref()
            .and_then(|kinds| kinds.get(usize::from(enable.port)));
        if let Some(kind) = kind
            && (kind.scalar != Scalar::Bool || kind.len != 1)
        {
            let path = draft.scope_path(crate::graph::ScopeId(index as u32));
            let text = format!(
                "the enable signal {} is {kind}: it must be bool",
                name(draft, enable)
            );
            problems.add(Cause::Type, path, text);
        }
    }
}
