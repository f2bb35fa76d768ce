//! Checks of a draft. Each reports all that it finds, and none reports what only follows from
//! another's finding.

mod order;
mod rates;
mod structure;
mod types;

use crate::graph::{Draft, Graph, NodeId, Placed, ancestors};
use crate::problem::{Cause, Problems};
pub(crate) use rates::of_inputs;
pub(crate) use structure::MAX_DEPTH;

impl Draft {
    /// The graph, or everything that is wrong with it.
    pub fn check(self) -> Result<Graph, Problems> {
        check(self, Problems::default(), &[])
    }
}

/// The graph of a draft, or everything that is wrong with it: `problems` that are known, of which
/// some have left the inputs `told` open, then what is found here.
pub(crate) fn check(
    draft: Draft,
    mut problems: Problems,
    told: &[(NodeId, usize)],
) -> Result<Graph, Problems> {
    let structure = structure::check(&draft, told, &mut problems);
    if !structure {
        // Ids that point nowhere: nothing else can be said.
        return Err(problems);
    }
    let order = order::check(&draft, &mut problems);
    let kinds = types::check(&draft, &mut problems);
    let rates = rates::check(&draft, &mut problems);
    structure::contexts(&draft, &mut problems);
    if problems.0.is_empty()
        && (order.len() < draft.nodes.len() || kinds.iter().any(Option::is_none))
    {
        problems.add(
            Cause::Type,
            &draft.scopes[0].name,
            "types or order of some nodes cannot be found",
        );
    }
    let Draft { scopes, nodes } = draft;
    let nodes = nodes
        .into_iter()
        .zip(kinds)
        .zip(rates)
        .filter_map(|((node, kinds), rate)| {
            let from: Vec<_> = node.from.into_iter().collect::<Option<_>>()?;
            let (inputs, outputs) = kinds?;
            Some(Placed {
                name: node.name,
                scope: node.scope,
                node: node.node,
                from,
                inputs,
                outputs,
                rate,
            })
        });
    let graph = Graph {
        nodes: nodes.collect(),
        scopes,
        order,
    };
    problems.unless(graph)
}

/// What a node waits for in the same cycle: its sources if it is direct, and the enable signals
/// around it.
fn depends(draft: &Draft, node: NodeId) -> impl Iterator<Item = NodeId> {
    let placed = &draft.nodes[node.index()];
    let sources = placed
        .from
        .iter()
        .flatten()
        .filter(|_| placed.node.direct())
        .map(|source| source.node);
    let enables = ancestors(&draft.scopes, placed.scope)
        .filter_map(|scope| draft.scopes[scope.index()].enable)
        .map(|source| source.node);
    sources.chain(enables)
}

/// How a message names one output of a node.
fn name(draft: &Draft, source: crate::graph::Source) -> String {
    let path = draft.path(source.node);
    let several = draft.nodes[source.node.index()].node.outputs() > 1;
    if several {
        format!("`{path}` output {}", source.port + 1)
    } else {
        format!("`{path}`")
    }
}
