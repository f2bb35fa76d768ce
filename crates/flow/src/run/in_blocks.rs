//! Signals that work in the blocks of queues: what comes is not copied before it is read, and what
//! goes is not copied after it is made.

use std::collections::{HashMap, HashSet};

use super::plan::{Plan, Running, Way};
use super::worker::Ends;
use crate::kernels::{Op, Operation, View};

#[cfg(test)]
#[path = "in_blocks_tests.rs"]
mod tests;

/// The lanes that operations write from their beginning on, in each step, and all of them.
fn written(plan: &Plan) -> HashSet<usize> {
    let lanes = plan.units.iter().filter_map(|unit| match unit {
        Running {
            way: Way::Vector(ops),
            count,
            context: None,
            ..
        } => Some(ops.iter().filter_map(|op| whole(op, *count, plan))),
        _ => None,
    });
    lanes.flatten().collect()
}

/// The lane of what an operation writes for each sample of its unit, if that is all of the lane.
fn whole(op: &Operation, count: usize, plan: &Plan) -> Option<usize> {
    let (Op::Chain { d, .. }
    | Op::Formula { d, .. }
    | Op::Fir { d, .. }
    | Op::Dot { d, .. }
    | Op::Calculate { d, .. }
    | Op::Negate { d, .. }
    | Op::Compare { d, .. }
    | Op::Choose { d, .. }
    | Op::ChooseBy { d, .. }
    | Op::Clamp { d, .. }
    | Op::Cast { d, .. }
    | Op::Copy { d, .. }
    | Op::Lut { d, .. }
    | Op::Fold { d, .. }) = op
    else {
        return None;
    };
    let bytes = count * d.len * d.scalar.bytes();
    let all = plan.store.lanes[d.lane].bytes().len();
    (d.first == 0 && bytes <= all && all - bytes < crate::kernels::lane::LINE).then_some(d.lane)
}

/// Finds the signals of a part that can work in blocks. A signal that comes must not be wanted
/// behind the step, as samples are that stay in memory for filters and delays, nor be sent on: its
/// block goes back before anything is sent. One that goes must be made anew in each step, and go
/// once: its memory can be in one block only.
pub(super) fn find(ends: &mut Ends, plan: &Plan) {
    let store = &plan.store;
    let past: HashSet<usize> = plan.moved().collect();
    let received = ends.receivers.iter().flat_map(|end| end.lanes(store));
    let received: HashSet<usize> = received.collect();
    let mut sent: HashMap<usize, usize> = HashMap::new();
    for lane in ends.senders.iter().flat_map(|end| end.lanes(store)) {
        *sent.entry(lane).or_default() += 1;
    }
    let comes = |view: View| !past.contains(&view.lane) && !sent.contains_key(&view.lane);
    for receiver in &mut ends.receivers {
        receiver.use_blocks(store, comes);
    }
    let written = written(plan);
    let goes = |view: View| {
        let lane = view.lane;
        let once = sent[&lane] == 1 && !received.contains(&lane);
        once && written.contains(&lane) && !past.contains(&lane)
    };
    for sender in &mut ends.senders {
        sender.use_blocks(store, goes);
    }
}
