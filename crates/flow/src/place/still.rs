//! Why a placement would stand still.

use super::blocks::{CostNetwork, End};
use super::plan::PlanError;
use super::wishes::Wishes;
use crate::cycles;
use crate::graph::Graph;
use crate::problem::{Cause, Problems};

/// What there is in place of a plan whose partitions wait for one another: the loop, and a way out.
pub(super) fn still(graph: &Graph, network: &CostNetwork, wishes: &Wishes) -> PlanError {
    let mut next = vec![Vec::new(); network.cores.cpus.len()];
    for link in network.links.iter().filter(|link| link.initial() == 0) {
        if let (End::Core(from), End::Core(to)) = (link.from, link.to) {
            next[from].push(to);
        }
    }
    let components = cycles::components(&next);
    let ring = components
        .first()
        .and_then(|part| cycles::shortest_loop(&next, part[0]));
    let name = |core: usize| {
        let items = network.model.items.iter().zip(network.place);
        let mut here = items.filter(|(_, at)| **at == core).map(|(item, _)| item);
        let first = here
            .clone()
            .find(|item| item.pinned.is_some())
            .or(here.next());
        let name = first.map_or("", |item| item.name.as_str());
        format!(
            "`{name}` and what else is on CPU {}",
            network.cores.cpus[core]
        )
    };
    let who = match &ring {
        Some(ring) => {
            let names: Vec<String> = ring.iter().map(|&core| name(core)).collect();
            format!("{} wait for one another", names.join(", "))
        }
        None => "partitions wait for room in each other's queues".into(),
    };
    let shorter = |&block: &u64| network.with_blocks(block).speed().period.is_finite();
    let block = wishes.block.unwrap_or(1);
    let mut blocks = std::iter::successors(Some(block / 2), |block| Some(block / 2));
    let way_out = match blocks.by_ref().take_while(|&block| block > 0).find(shorter) {
        Some(block) => format!("blocks of {block} ticks would do"),
        None => {
            "no block is short enough: put them on one CPU, or a longer delay into the loop".into()
        }
    };
    let sizes = match wishes.block {
        Some(block) => format!(" with blocks of {block} ticks"),
        None => String::new(),
    };
    let text = format!("would stand still{sizes}: {who}; {way_out}");
    PlanError::Graph(Problems::one(Cause::Loop, graph.name(), text))
}
