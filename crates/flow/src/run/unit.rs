//! Runs the units of a partition's code.

use std::ops::Range;

use super::change::Cut;
use super::code::{PartitionCode, Way};
use crate::kernels::{Memory, Operation, execute};

/// What a node did that it must not do.
#[derive(Debug)]
pub(super) struct Fault {
    /// The node's index in its partition.
    pub item: usize,
    pub text: String,
}

/// Runs one unit for a step.
pub(super) fn run(code: &mut PartitionCode, index: usize) -> Result<(), Fault> {
    let unit = &mut code.units[index];
    let present = unit
        .context
        .map(|context| code.contexts[context].as_slice());
    let count = present.map_or(unit.count, <[u32]>::len);
    // None in nearly all steps, and then nothing is allocated.
    let cuts = code.changing.cuts_of(index, present);
    let mut memory = Memory {
        lanes: &mut code.store.lanes,
        lines: &mut code.lines,
        contexts: &mut code.contexts,
        scratch: &mut code.scratch,
        at: 0,
        count,
        level: code.level,
    };
    match &mut unit.way {
        Way::Vector(ops) if cuts.is_empty() => execute(ops, &mut memory),
        Way::Vector(ops) => {
            for number in 0..ops.len() {
                let own = cuts.iter().filter(|(_, cut)| cut.op == number);
                between(ops, own, count, |ops, samples| {
                    (memory.at, memory.count) = (samples.start, samples.len());
                    execute(&ops[number..=number], &mut memory);
                });
            }
        }
        Way::Loop {
            ops,
            compiled,
            on_words,
        } => {
            if cuts.is_empty() {
                let compiled = compiled.as_mut();
                if compiled.is_some_and(|compiled| compiled.run(memory.lanes, count)) {
                    return Ok(());
                }
                if let Some(on_words) = on_words {
                    on_words.run(memory.lanes, count, memory.level);
                    return Ok(());
                }
            }
            memory.count = 1;
            between(ops, cuts.iter(), count, |ops, samples| {
                for at in samples {
                    memory.at = at;
                    execute(ops, &mut memory);
                }
            });
        }
        Way::Bytes(node) => node.run(memory.lanes),
        Way::Slow(stepping) => return stepping.run(memory.lanes),
    }
    Ok(())
}

/// Runs operations for `count` samples, up to each cut with the taps from before it.
fn between<'c>(
    ops: &mut [Operation],
    cuts: impl Iterator<Item = &'c (usize, &'c Cut)>,
    count: usize,
    mut run: impl FnMut(&[Operation], Range<usize>),
) {
    let mut at = 0;
    for &(sample, cut) in cuts {
        if sample > at {
            run(ops, at..sample);
            at = sample;
        }
        cut.apply(&mut ops[cut.op]);
    }
    run(ops, at..count);
}
