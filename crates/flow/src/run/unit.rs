//! Runs the units of a plan.

use super::change;
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
    if plan.changing.has_cuts() {
        return change::run(plan, index);
    }
    let Running {
        way,
        count,
        context,
        ..
    } = &mut plan.units[index];
    let count = context.map_or(*count, |context| plan.contexts[context].len());
    let mut memory = Memory {
        lanes: &mut plan.store.lanes,
        lines: &mut plan.lines,
        contexts: &mut plan.contexts,
        scratch: &mut plan.scratch,
        at: 0,
        count,
        level: plan.level,
    };
    match way {
        Way::Vector(ops) => execute(ops, &mut memory),
        Way::Loop { ops, compiled } => {
            if let Some(compiled) = compiled
                && compiled.run(memory.lanes, count)
            {
                return Ok(());
            }
            memory.count = 1;
            for at in 0..count {
                memory.at = at;
                execute(ops, &mut memory);
            }
        }
        Way::Bytes(node) => node.run(memory.lanes),
        Way::Slow(stepping) => return stepping.run(memory.lanes),
    }
    Ok(())
}
