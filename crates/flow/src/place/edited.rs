//! What a plan must be like to be followed: it may have been changed by hand.

use std::collections::{BTreeMap, BTreeSet};

use super::blocks::{End, links};
use super::costs::Costs;
use super::evaluate::Sizes;
use super::model::Model;
use super::plan::{Plan, PlanError, Queue};
use crate::graph::Graph;
use crate::run::MAX_BLOCK;

impl Plan {
    /// Queues from inputs and to outputs, which have one size.
    pub(super) fn outside(&self) -> impl Iterator<Item = &Queue> {
        self.queues.iter().filter(|queue| queue.is_outer())
    }

    /// Whether all of it can be followed, or why not.
    pub(super) fn check(&self, graph: &Graph) -> Result<(), String> {
        if self.graph != graph.name() {
            let (of, is) = (&self.graph, graph.name());
            return Err(format!(
                "the plan is of the graph {of}, and this is {is}: make it anew"
            ));
        }
        if self.step == 0 {
            return Err("the plan has a `step` of 0 ticks: give at least 1".into());
        }
        if !(1..=MAX_BLOCK).contains(&self.block) {
            return Err(format!(
                "the plan has a `block` of {} ticks: give 1 to {MAX_BLOCK}",
                self.block
            ));
        }
        let ns = self.period_ns;
        if self.measured && !(ns > 0.0 && ns.is_finite()) {
            return Err(format!(
                "the plan has a `period_ns` of {ns}: give the nanoseconds of a tick, more than 0"
            ));
        }
        let mut ids = BTreeSet::new();
        if let Some(partition) = self
            .partitions
            .iter()
            .find(|partition| !ids.insert(partition.id))
        {
            let id = partition.id;
            return Err(format!(
                "the plan has two partitions {id}: give each an id of its own"
            ));
        }
        if let Some(id) = self.critical.iter().find(|id| !ids.contains(id)) {
            return Err(format!(
                "the plan's `critical` names {id}, which is no partition: leave it out"
            ));
        }
        let mut ends = BTreeSet::new();
        for queue in &self.queues {
            let fault = |what: &str| queue_is((queue.from, queue.to), what);
            let known = |end: Option<u32>| end.is_none_or(|id| ids.contains(&id));
            if !known(queue.from) || !known(queue.to) {
                return Err(fault("has an end that is no partition: make the plan anew"));
            }
            if queue.from == queue.to && queue.from.is_some() {
                return Err(fault("begins where it ends: leave it out"));
            }
            if !ends.insert((queue.from, queue.to)) {
                return Err(fault("is there twice: leave one out"));
            }
            if queue.block == 0 || queue.capacity == 0 {
                return Err(fault(
                    "has a block or a capacity of 0: give at least 1 of both",
                ));
            }
            if queue.block > MAX_BLOCK {
                let block = queue.block;
                return Err(fault(&format!(
                    "has a block of {block} ticks: give at most {MAX_BLOCK}"
                )));
            }
        }
        let Some(first) = self.outside().next() else {
            return Ok(());
        };
        let sizes = |queue: &Queue| (queue.block, queue.capacity);
        if self
            .outside()
            .any(|queue| sizes(queue) != (self.block, first.capacity))
        {
            return Err(format!(
                "the plan's queues from and to the outside must all have blocks of {} ticks, which \
                 is its `block`, and one capacity",
                self.block
            ));
        }
        if self.outside().any(|queue| queue.transfer != first.transfer) {
            return Err(
                "the plan's queues from and to the outside must all have one `transfer`".into(),
            );
        }
        Ok(())
    }

    /// Whether its queues are those that the graph has between these partitions of its nodes, with
    /// the blocks at the start that its delays are. It may have none, and leave them all to the
    /// executor.
    pub(super) fn check_queues(&self, graph: &Graph, partitions: &[u32]) -> Result<(), PlanError> {
        if self.queues.is_empty() {
            return Ok(());
        }
        let costs = Costs::guessed(graph);
        let model = Model::of_partitions(graph, &costs, partitions).map_err(PlanError::Graph)?;
        let ids = || self.partitions.iter().map(|partition| partition.id);
        let place = model.items.iter().map(|item| {
            let own = partitions[item.nodes[0].index()];
            ids().position(|id| id == own).unwrap_or(0)
        });
        let place: Vec<usize> = place.collect();
        let sizes = Sizes {
            block: self.block.max(1),
            capacity: 1,
            step: self.step,
        };
        let id = |end: End| match end {
            End::Core(at) => Some(self.partitions[at].id),
            End::Inputs | End::Outputs => None,
        };
        let copied =
            |end: End| matches!(end, End::Core(at) if !self.partitions[at].copies.is_empty());
        let mut left: BTreeMap<_, &Queue> = self
            .queues
            .iter()
            .map(|queue| ((queue.from, queue.to), queue))
            .collect();
        for mut link in links(&model, &place, sizes) {
            let ends = (id(link.from), id(link.to));
            let fault = |what: &str| PlanError::Other(queue_is(ends, what));
            let Some(queue) = left.remove(&ends) else {
                return Err(fault(
                    "is left out, and the graph needs it: add it, or make the plan anew",
                ));
            };
            if copied(link.from) || copied(link.to) {
                link.absorb_nothing();
            }
            link.block = queue.block.next_multiple_of(model.round);
            link.capacity = queue.capacity;
            if link.initial() != queue.initial {
                let (given, own) = (queue.initial, link.initial());
                let text = format!(
                    "has {given} blocks at the start, `initial`: with blocks of {} ticks the delays \
                     of the graph are {own}; write {own}, or change the graph",
                    link.block
                );
                return Err(fault(&text));
            }
        }
        match left.into_keys().next() {
            Some(ends) => Err(PlanError::Other(queue_is(
                ends,
                "carries nothing of the graph: leave it out",
            ))),
            None => Ok(()),
        }
    }
}

fn queue_is((from, to): (Option<u32>, Option<u32>), what: &str) -> String {
    let end = |id: Option<u32>| id.map_or("the outside".into(), |id| id.to_string());
    format!("the plan's queue from {} to {} {what}", end(from), end(to))
}
