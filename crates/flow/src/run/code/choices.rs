//! What formulas need not do.

use super::*;
use crate::kernels::{FormulaOperand, FormulaPart};
use crate::nodes::BitwiseOp;

/// Leaves out choices that are made already where their result counts, and puts comparisons into
/// choices that alone need them. A table often is guarded so: a number out of its range is replaced
/// before it is looked up, and what comes out is replaced again.
pub(super) fn settle(parts: &mut Vec<FormulaPart<Reg>>) {
    let Some(last) = parts.len().checked_sub(1) else {
        return;
    };
    let uses = uses(parts);
    settled(parts, &uses, last, &mut Vec::new());
    prune(parts);
    let uses = self::uses(parts);
    for index in 0..parts.len() {
        if let FormulaPart::Choose(c, [a, b]) = parts[index]
            && uses[c] == 1
            && let FormulaPart::Compare(relation, [x, y]) = parts[c]
        {
            parts[index] = FormulaPart::ChooseBy(relation, [x, y, a, b]);
        }
    }
    prune(parts);
}

/// How often each part is used.
fn uses(parts: &[FormulaPart<Reg>]) -> Vec<usize> {
    let mut uses = vec![0; parts.len()];
    for operand in parts.iter().flat_map(FormulaPart::operands).flatten() {
        if let FormulaOperand::Part(part) = operand {
            uses[part] += 1;
        }
    }
    uses
}

/// Settles what a part is made of, where it counts only if none of some conditions holds.
fn settled(parts: &mut [FormulaPart<Reg>], uses: &[usize], index: usize, none: &mut Vec<usize>) {
    let inner = |operand: FormulaOperand<Reg>| match operand {
        FormulaOperand::Part(part) if uses[part] == 1 => Some(part),
        _ => None,
    };
    if let FormulaPart::Choose(c, [_, b]) = parts[index]
        && let Some(part) = inner(b)
    {
        none.push(c);
        settled(parts, uses, part, none);
        none.pop();
        let operand = passed(parts, b, none, Some(c));
        if let FormulaPart::Choose(_, [_, b]) = &mut parts[index] {
            *b = operand;
        }
    } else if let FormulaPart::Lut(a, _) | FormulaPart::Negate(a) = parts[index]
        && let Some(part) = inner(a)
    {
        settled(parts, uses, part, none);
        let operand = passed(parts, a, none, None);
        if let FormulaPart::Lut(a, _) | FormulaPart::Negate(a) = &mut parts[index] {
            *a = operand;
        }
    }
}

/// What an operand is where none of some conditions holds: past choices of what does not count.
fn passed(
    parts: &[FormulaPart<Reg>],
    mut operand: FormulaOperand<Reg>,
    none: &[usize],
    also: Option<usize>,
) -> FormulaOperand<Reg> {
    let known = |c: usize| none.contains(&c) || also == Some(c);
    while let FormulaOperand::Part(part) = operand
        && let FormulaPart::Choose(c, [_, b]) = parts[part]
        && (known(c)
            || matches!(parts[c], FormulaPart::Both(BitwiseOp::Or, [x, y]) if known(x) && known(y)))
    {
        operand = b;
    }
    operand
}

/// Leaves out parts that nobody needs.
fn prune(parts: &mut Vec<FormulaPart<Reg>>) {
    let mut needed = vec![false; parts.len()];
    for index in (0..parts.len()).rev() {
        needed[index] |= index + 1 == parts.len();
        if needed[index] {
            for operand in parts[index].operands().into_iter().flatten() {
                if let FormulaOperand::Part(part) = operand {
                    needed[part] = true;
                }
            }
        }
    }
    let mut places = vec![0; parts.len()];
    let mut count = 0;
    for (place, &needed) in places.iter_mut().zip(&needed) {
        *place = count;
        count += usize::from(needed);
    }
    let mut index = 0;
    parts.retain(|_| {
        index += 1;
        needed[index - 1]
    });
    for part in parts {
        part.renumber(|part| places[part]);
    }
}
