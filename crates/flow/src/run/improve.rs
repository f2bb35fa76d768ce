//! What is taken out of a part's operations, and what is put together.

use std::collections::{HashMap, HashSet};

use super::schedule;
use crate::cycles;
use crate::kernels::{Arithmetic, Fold, Op, Reg};
use crate::types::Scalar;

/// Where a run lies: in which, so many samples ago.
pub(super) type PlaceOf<'a> = &'a dyn Fn(Reg) -> (Reg, usize);

/// The operations of a loop in groups, in their order, each with whether it is a loop itself: what
/// the loop only reads, and what only reads the loop, goes over many samples at once.
pub(super) fn groups(
    ops: Vec<Op<Reg>>,
    reach: &dyn Fn(&Op<Reg>) -> usize,
    place: PlaceOf,
) -> Vec<(bool, Vec<Op<Reg>>)> {
    let mut writers: HashMap<Reg, Vec<usize>> = HashMap::new();
    for (index, op) in ops.iter().enumerate() {
        if let Some(d) = op.operands().0 {
            writers.entry(place(d).0).or_default().push(index);
        }
    }
    // From each operation to those that read it: in the same sample, or in any.
    let mut now = vec![Vec::new(); ops.len()];
    let mut ever = vec![Vec::new(); ops.len()];
    for (index, op) in ops.iter().enumerate() {
        for a in op.operands().1 {
            let (root, ago) = place(a);
            for &writer in writers.get(&root).into_iter().flatten() {
                ever[writer].push(index);
                if ago <= reach(op) && writer != index {
                    now[writer].push(index);
                }
            }
        }
    }
    let loops = cycles::components(&ever);
    let mut group: Vec<usize> = (0..ops.len()).map(|index| index + loops.len()).collect();
    for (number, members) in loops.iter().enumerate() {
        members.iter().for_each(|&member| group[member] = number);
    }
    // An order of all operations in which those of a loop come together.
    let count = ops.len() + loops.len();
    let order = sorted(
        &ever,
        count,
        |from, to| group[from] != group[to],
        |index| group[index],
    );
    let mut found: Vec<(bool, Vec<Op<Reg>>)> = Vec::new();
    for number in order {
        if let Some(members) = loops.get(number) {
            let place = |index: usize| members.binary_search(&index).ok();
            let inner: Vec<Vec<usize>> = members
                .iter()
                .map(|&member| now[member].iter().filter_map(|&to| place(to)).collect())
                .collect();
            let order = sorted(&inner, members.len(), |_, _| true, |index| index);
            let ops = order.into_iter().map(|index| ops[members[index]].clone());
            found.push((true, ops.collect()));
        } else if group.get(number.wrapping_sub(loops.len())) == Some(&number) {
            let op = ops[number - loops.len()].clone();
            match found.last_mut() {
                Some((false, ops)) => ops.push(op),
                _ => found.push((false, vec![op])),
            }
        }
    }
    found
}

/// An order of groups that follows `next`.
fn sorted(
    next: &[Vec<usize>],
    count: usize,
    counts: impl Fn(usize, usize) -> bool,
    group: impl Fn(usize) -> usize,
) -> Vec<usize> {
    let mut follows = vec![Vec::new(); count];
    let mut waits = vec![0usize; count];
    for (from, readers) in next.iter().enumerate() {
        for &to in readers.iter().filter(|&&to| counts(from, to)) {
            follows[group(from)].push(group(to));
            waits[group(to)] += 1;
        }
    }
    schedule::sorted(&follows, waits)
}

/// Leaves out operations whose result nobody reads. `kept` are runs that are read elsewhere.
pub(super) fn prune(units: &mut [&mut Vec<Op<Reg>>], kept: &HashSet<Reg>, place: PlaceOf) {
    let mut reads: HashMap<Reg, Vec<Reg>> = HashMap::new();
    let mut open: Vec<Reg> = kept.iter().copied().collect();
    for op in units.iter().flat_map(|ops| ops.iter()) {
        let (d, from) = op.operands();
        let from = from.into_iter().map(|a| place(a).0);
        match d {
            Some(d) => reads.entry(place(d).0).or_default().extend(from),
            None => open.extend(from),
        }
    }
    let mut live: HashSet<Reg> = HashSet::new();
    while let Some(reg) = open.pop() {
        if live.insert(reg) {
            open.extend(reads.get(&reg).into_iter().flatten());
        }
    }
    for ops in units.iter_mut() {
        let lives = |op: &Op<Reg>| op.operands().0.is_none_or(|d| live.contains(&place(d).0));
        ops.retain(lives);
    }
}

/// A sum of products of constants with samples of one run, in the order of adding: each constant's
/// bits, and how many samples ago.
pub(super) struct Chain {
    pub x: Reg,
    pub products: Vec<(u64, usize)>,
    /// The parts of the sum that are added some samples later, the last one first.
    pub delayed: Vec<Delayed>,
    /// The sum without its last product.
    pub inner: Option<Reg>,
}

/// A part of a sum that is added some samples later. The first sums begin with what the delay had.
#[derive(Clone, Copy)]
pub(super) struct Delayed {
    pub part: Reg,
    /// By so many samples.
    pub by: usize,
    /// The first product that is added to it.
    pub next: usize,
}

/// Finds filters that are written as single products and sums: for each operation that ends one,
/// its place and what it sums. `constant` are the bits of a run of one number for ever, `keeps` is
/// whether it is known what was before a run's first sample.
pub(super) fn chains(
    ops: &[Op<Reg>],
    chains: &mut HashMap<Reg, Chain>,
    constant: &dyn Fn(Reg) -> Option<u64>,
    keeps: &dyn Fn(Reg) -> bool,
    uses: &HashMap<Reg, usize>,
    place: PlaceOf,
) -> Vec<(usize, Reg)> {
    let mut found = Vec::new();
    let product = |a: Reg, b: Reg| match (constant(a), constant(b)) {
        (Some(factor), None) => Some((factor, place(b))),
        (None, Some(factor)) => Some((factor, place(a))),
        _ => None,
    };
    for (index, op) in ops.iter().enumerate() {
        let (d, chain) = match *op {
            Op::Calculate {
                with: Arithmetic::Multiply,
                d,
                a,
                b,
            } => {
                let Some((factor, (x, ago))) = product(a, b) else {
                    continue;
                };
                let chain = Chain {
                    x,
                    products: vec![(factor, ago)],
                    delayed: vec![],
                    inner: None,
                };
                (d, chain)
            }
            Op::Fold {
                with: Fold::Add,
                d,
                a,
                b,
                c,
            } => {
                let Some((factor, (x, ago))) = product(a, b) else {
                    continue;
                };
                let (part, by) = place(c);
                let fits = uses.get(&part) == Some(&1) && (by == 0 || keeps(part));
                let Some(chain) = chains.get(&part).filter(|chain| fits && chain.x == x) else {
                    continue;
                };
                let next = chain.products.len();
                let last = (by > 0).then_some(Delayed { part, by, next });
                let shifted = chain
                    .products
                    .iter()
                    .map(|&(factor, ago)| (factor, ago + by));
                let products: Vec<_> = shifted.chain([(factor, ago)]).collect();
                let chain = Chain {
                    x,
                    products,
                    delayed: last
                        .into_iter()
                        .chain(chain.delayed.iter().copied())
                        .collect(),
                    inner: Some(part),
                };
                (d, chain)
            }
            _ => continue,
        };
        let (root, 0) = place(d) else {
            continue;
        };
        found.push((index, root));
        chains.insert(root, chain);
    }
    found
}

/// Puts products and sums, and comparisons and choices, into one operation each. What is left over
/// is for [`prune`].
pub(super) fn fuse(
    units: &mut [&mut Vec<Op<Reg>>],
    scalar: &dyn Fn(Reg) -> (Scalar, usize),
    uses: &HashMap<Reg, usize>,
    place: PlaceOf,
) {
    let mut products: HashMap<Reg, (Reg, Reg)> = HashMap::new();
    let mut relations = HashMap::new();
    for ops in units.iter_mut() {
        for op in ops.iter_mut() {
            let plain = |reg: Reg| (place(reg).1 == 0).then_some(place(reg).0);
            match *op {
                Op::Calculate {
                    with: Arithmetic::Multiply,
                    d,
                    a,
                    b,
                } => {
                    if let Some(d) = plain(d).filter(|d| uses.get(d) == Some(&1)) {
                        products.insert(d, (a, b));
                    }
                }
                Op::Calculate {
                    with: with @ (Arithmetic::Add | Arithmetic::Subtract),
                    d,
                    a,
                    b,
                } => {
                    let product = |reg: Reg| plain(reg).and_then(|reg| products.get(&reg)).copied();
                    let fold = match (with, product(a), product(b)) {
                        (Arithmetic::Add, Some((x, y)), _) => Some((Fold::Add, x, y, b)),
                        (Arithmetic::Add, _, Some((x, y))) => Some((Fold::Add, x, y, a)),
                        (_, Some((x, y)), _) => Some((Fold::Less, x, y, b)),
                        (_, _, Some((x, y))) => Some((Fold::From, x, y, a)),
                        _ => None,
                    };
                    if let Some((with, a, b, c)) = fold {
                        *op = Op::Fold { with, d, a, b, c };
                    }
                }
                Op::Compare { relation, d, a, b } => {
                    if let Some(d) = plain(d) {
                        relations.insert(d, (relation, a, b));
                    }
                }
                Op::Choose { d, c, a, b } => {
                    let fits = |&(_, x, _): &(_, Reg, Reg)| {
                        let ((x, len), (d, of)) = (scalar(x), scalar(d));
                        x.is_float() && x.bytes() == d.bytes() && len == of
                    };
                    let found = plain(c).and_then(|c| relations.get(&c)).copied();
                    if let Some((relation, x, y)) = found.filter(fits) {
                        *op = Op::ChooseBy {
                            relation,
                            d,
                            x,
                            y,
                            a,
                            b,
                        };
                    }
                }
                _ => {}
            }
        }
    }
}

/// How often each run is read.
pub(super) fn uses(units: &[&mut Vec<Op<Reg>>], place: PlaceOf) -> HashMap<Reg, usize> {
    let mut uses = HashMap::new();
    for a in units
        .iter()
        .flat_map(|ops| ops.iter())
        .flat_map(|op| op.operands().1)
    {
        *uses.entry(place(a).0).or_default() += 1;
    }
    uses
}

/// Memory for runs that live for a part of a step: which one each gets, of which size.
#[derive(Default)]
pub(super) struct Shelves {
    free: HashMap<usize, Vec<usize>>,
}

impl Shelves {
    /// A lane of so many bytes that is free; `make` makes one.
    pub fn take(&mut self, bytes: usize, make: impl FnOnce() -> usize) -> usize {
        let free = self.free.get_mut(&bytes).and_then(Vec::pop);
        free.unwrap_or_else(make)
    }

    pub fn give(&mut self, bytes: usize, lane: usize) {
        self.free.entry(bytes).or_default().push(lane);
    }
}
