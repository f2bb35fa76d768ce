//! What a plan must be like to be followed: it may have been changed by hand.

use std::collections::BTreeSet;

use super::plan::{Plan, Queue};
use crate::graph::Graph;

impl Plan {
    /// Queues from inputs and to outputs, which have one size.
    pub(super) fn outside(&self) -> impl Iterator<Item = &Queue> {
        let outside = |queue: &&Queue| queue.from.is_none() || queue.to.is_none();
        self.queues.iter().filter(outside)
    }

    /// Whether all of it can be followed, or why not.
    pub(super) fn check(&self, graph: &Graph) -> Result<(), String> {
        if self.graph != graph.name() {
            let (of, is) = (&self.graph, graph.name());
            return Err(format!(
                "the plan is of the graph {of}, and this is {is}: make it anew"
            ));
        }
        let mut ids = BTreeSet::new();
        if let Some(part) = self.partitions.iter().find(|part| !ids.insert(part.id)) {
            let id = part.id;
            return Err(format!(
                "the plan has two partitions {id}: give each an id of its own"
            ));
        }
        let mut ends = BTreeSet::new();
        for queue in &self.queues {
            let fault = |what: &str| {
                let end = |id: Option<u32>| id.map_or("the outside".into(), |id| id.to_string());
                format!(
                    "the plan's queue from {} to {} {what}",
                    end(queue.from),
                    end(queue.to)
                )
            };
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
        Ok(())
    }
}
