//! Rates of all nodes, from the inputs along wires in both directions.

use std::collections::{HashSet, VecDeque};

use super::name;
use crate::graph::{Draft, NodeId, Source, ancestors};
use crate::nodes::Input;
use crate::problem::{Cause, Problems};
use crate::ratio::Ratio;

/// A node that must put out `ratio` times what its neighbour puts out.
struct Link {
    to: NodeId,
    ratio: Ratio,
    /// The wire of the link, and the node whose input it ends at.
    wire: (Source, NodeId),
}

/// The rate of each node; `None` for constants and for what is not connected to anything with a
/// rate.
pub(super) fn check(draft: &Draft, problems: &mut Problems) -> Vec<Option<Ratio>> {
    let links = links(draft, problems);
    let mut rates: Vec<Option<Ratio>> = vec![None; draft.nodes.len()];
    let mut open = VecDeque::new();
    let ids = || (0..draft.nodes.len() as u32).map(NodeId);
    for id in ids() {
        if let Some(rate) = Input::rate_of(draft.nodes[id.index()].node.as_ref()) {
            rates[id.index()] = Some(rate);
            open.push_back(id);
        }
    }
    let mut told = HashSet::new();
    spread(draft, &links, &mut rates, &mut open, &mut told, problems);
    // What no input reaches runs at the base rate: a source without inputs, and what follows it.
    for id in ids() {
        if rates[id.index()].is_none() && !draft.nodes[id.index()].node.constant() {
            rates[id.index()] = Some(Ratio::ONE);
            open.push_back(id);
            spread(draft, &links, &mut rates, &mut open, &mut told, problems);
        }
    }
    rates
}

/// The rates that these inputs have to have beside all others, which keep theirs; none where no
/// other input reaches.
pub(crate) fn of_inputs(draft: &Draft, open: &HashSet<NodeId>) -> Vec<(NodeId, Option<Ratio>)> {
    let mut problems = Problems::default();
    let links = links(draft, &mut problems);
    let mut rates: Vec<Option<Ratio>> = vec![None; draft.nodes.len()];
    let mut known = VecDeque::new();
    for (index, node) in draft.nodes.iter().enumerate() {
        let id = NodeId(index as u32);
        if !open.contains(&id)
            && let Some(rate) = Input::rate_of(node.node.as_ref())
        {
            rates[index] = Some(rate);
            known.push_back(id);
        }
    }
    // What does not go together is told when the graph is checked.
    let told = &mut HashSet::new();
    spread(draft, &links, &mut rates, &mut known, told, &mut problems);
    let mut open: Vec<NodeId> = open.iter().copied().collect();
    open.sort_unstable();
    let rate = |id: NodeId| (id, rates[id.index()]);
    open.into_iter().map(rate).collect()
}

fn spread(
    draft: &Draft,
    links: &[Vec<Link>],
    rates: &mut [Option<Ratio>],
    open: &mut VecDeque<NodeId>,
    told: &mut HashSet<(Source, NodeId)>,
    problems: &mut Problems,
) {
    while let Some(id) = open.pop_front() {
        let Some(rate) = rates[id.index()] else {
            continue;
        };
        for link in &links[id.index()] {
            let wanted = rate.times(link.ratio);
            match (rates[link.to.index()], wanted) {
                (None, Some(wanted)) => {
                    rates[link.to.index()] = Some(wanted);
                    open.push_back(link.to);
                }
                (Some(found), Some(wanted)) if found == wanted => {}
                (found, _) => {
                    if told.insert(link.wire) {
                        report(draft, link, rates, found.is_some(), problems);
                    }
                }
            }
        }
    }
}

fn report(
    draft: &Draft,
    link: &Link,
    rates: &[Option<Ratio>],
    clash: bool,
    problems: &mut Problems,
) {
    let (source, reader) = link.wire;
    let path = draft.path(reader);
    if !clash {
        problems.add(
            Cause::Rate,
            path,
            "the rate has terms beyond 2^32: use smaller rate changes",
        );
        return;
    }
    let node = &draft.nodes[reader.index()].node;
    let input = rates[reader.index()].and_then(|rate| rate.times(node.ratio().inverse()));
    let show = |rate: Option<Ratio>| rate.map_or("unknown".into(), |rate| rate.to_string());
    let text = format!(
        "takes {} at rate {} where its own rate is {}: put `down`, `up` or `repeat` in between",
        name(draft, source),
        show(rates[source.node.index()]),
        show(input),
    );
    problems.add(Cause::Rate, path, text);
}

fn links(draft: &Draft, problems: &mut Problems) -> Vec<Vec<Link>> {
    let mut links: Vec<Vec<Link>> = draft.nodes.iter().map(|_| Vec::new()).collect();
    let mut tie = |source: Source, reader: NodeId, ratio: Ratio| {
        if draft.nodes[source.node.index()].node.constant() {
            return;
        }
        let wire = (source, reader);
        links[source.node.index()].push(Link {
            to: reader,
            ratio,
            wire,
        });
        links[reader.index()].push(Link {
            to: source.node,
            ratio: ratio.inverse(),
            wire,
        });
    };
    for (index, node) in draft.nodes.iter().enumerate() {
        let id = NodeId(index as u32);
        for source in node.from.iter().flatten() {
            tie(*source, id, node.node.ratio());
        }
        let enables =
            || ancestors(&draft.scopes, node.scope).filter_map(|s| draft.scopes[s.index()].enable);
        if node.node.ratio() != Ratio::ONE {
            if let Some(enable) = enables().next() {
                let text = format!(
                    "changes the rate inside a subsystem that {} enables: put the rate change outside",
                    name(draft, enable)
                );
                problems.add(Cause::Context, draft.path(id), text);
            }
        } else if !node.node.constant() {
            for enable in enables() {
                tie(enable, id, Ratio::ONE);
            }
        }
    }
    links
}
