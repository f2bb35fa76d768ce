//! Runs the units of a plan.

use super::plan::{Plan, Running, Way};
use crate::kernels::{Memory, execute};

/// What a node did that it must not do.
#[derive(Debug)]
pub(super) struct Fault {
    /// The node's index in its part.
    pub item: usize,
    pub text: String,
}

/// Runs one unit for a step.
pub(super) fn run(plan: &mut Plan, index: usize) -> Result<(), Fault> {
    let Running { way, count, .. } = &mut plan.units[index];
    let mut memory = Memory {
        lanes: &mut plan.store.lanes,
        lines: &mut plan.lines,
        scratch: &mut plan.scratch,
        at: 0,
        count: *count,
        level: plan.level,
    };
    match way {
        Way::Vector(ops) => execute(ops, &mut memory),
        Way::Loop(ops) => {
            memory.count = 1;
            for at in 0..*count {
                memory.at = at;
                execute(ops, &mut memory);
            }
        }
        Way::Slow(stepping) => return stepping.run(memory.lanes),
    }
    Ok(())
}
