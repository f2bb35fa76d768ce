//! What formulas need not do.

use super::*;
use crate::kernels::{Item, Part};
use crate::nodes::BitwiseOp;

/// Leaves out choices that are made already where their result counts, and puts comparisons into
/// choices that alone need them. A table often is guarded so: a number out of its range is replaced
/// before it is looked up, and what comes out is replaced again.
pub(super) fn settle(parts: &mut Vec<Part<Reg>>) {
    let Some(last) = parts.len().checked_sub(1) else {
        return;
    };
    let uses = uses(parts);
    settled(parts, &uses, last, &mut Vec::new());
    prune(parts);
    let uses = self::uses(parts);
    for index in 0..parts.len() {
        if let Part::Choose(c, [a, b]) = parts[index]
            && uses[c] == 1
            && let Part::Compare(relation, [x, y]) = parts[c]
        {
            parts[index] = Part::ChooseBy(relation, [x, y, a, b]);
        }
    }
    prune(parts);
}

/// How often each part is used.
fn uses(parts: &[Part<Reg>]) -> Vec<usize> {
    let mut uses = vec![0; parts.len()];
    for item in parts.iter().flat_map(Part::items).flatten() {
        if let Item::Part(part) = item {
            uses[part] += 1;
        }
    }
    uses
}

/// Settles what a part is made of, where it counts only if none of some conditions holds.
fn settled(parts: &mut [Part<Reg>], uses: &[usize], index: usize, none: &mut Vec<usize>) {
    let inner = |item: Item<Reg>| match item {
        Item::Part(part) if uses[part] == 1 => Some(part),
        _ => None,
    };
    if let Part::Choose(c, [_, b]) = parts[index]
        && let Some(part) = inner(b)
    {
        none.push(c);
        settled(parts, uses, part, none);
        none.pop();
        let item = passed(parts, b, none, Some(c));
        if let Part::Choose(_, [_, b]) = &mut parts[index] {
            *b = item;
        }
    } else if let Part::Lut(a, _) | Part::Negate(a) = parts[index]
        && let Some(part) = inner(a)
    {
        settled(parts, uses, part, none);
        let item = passed(parts, a, none, None);
        if let Part::Lut(a, _) | Part::Negate(a) = &mut parts[index] {
            *a = item;
        }
    }
}

/// What an item is where none of some conditions holds: past choices of what does not count.
fn passed(
    parts: &[Part<Reg>],
    mut item: Item<Reg>,
    none: &[usize],
    also: Option<usize>,
) -> Item<Reg> {
    let known = |c: usize| none.contains(&c) || also == Some(c);
    while let Item::Part(part) = item
        && let Part::Choose(c, [_, b]) = parts[part]
        && (known(c)
            || matches!(parts[c], Part::Both(BitwiseOp::Or, [x, y]) if known(x) && known(y)))
    {
        item = b;
    }
    item
}

/// Leaves out parts that nobody needs.
fn prune(parts: &mut Vec<Part<Reg>>) {
    let mut needed = vec![false; parts.len()];
    for index in (0..parts.len()).rev() {
        needed[index] |= index + 1 == parts.len();
        if needed[index] {
            for item in parts[index].items().into_iter().flatten() {
                if let Item::Part(part) = item {
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
