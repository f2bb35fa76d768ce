//! Loops through one number: only that number goes from sample to sample.

use super::*;
use crate::kernels::{Link, Operand, TURNS, Turn, With};
use crate::nodes::Comparison;

/// A loop, while it is looked at.
struct Looped<'a> {
    /// The run that goes from one sample to the next.
    carried: Reg,
    writers: HashMap<Reg, &'a Op<Reg>>,
}

impl CodeBuilder<'_> {
    /// If one number goes around a loop, through a few operations with what comes from outside, the
    /// loop becomes one operation, and all else that it makes is made of that number, for many
    /// samples at once.
    pub(super) fn recur(&self, group: &mut OpGroup) {
        if group.kind != Kind::Loop {
            return;
        }
        let Some((root, turns)) = self.carried(&group.ops) else {
            return;
        };
        let made = |op: &Op<Reg>| op.operands().0.is_some_and(|d| self.place(d).0 == root);
        let Some(d) = group
            .ops
            .iter()
            .find(|op| made(op))
            .and_then(|op| op.operands().0)
        else {
            return;
        };
        group.ops.retain(|op| !made(op));
        group.ops.insert(0, Op::Recur { d, turns });
        group.kind = Kind::Vector;
    }

    fn carried(&self, ops: &[Op<Reg>]) -> Option<(Reg, Vec<Turn<Reg>>)> {
        let mut writers: HashMap<Reg, &Op<Reg>> = HashMap::new();
        for op in ops {
            let (root, ago) = self.place(op.operands().0?);
            if ago > 0 || writers.insert(root, op).is_some() {
                return None;
            }
        }
        let read = ops.iter().flat_map(|op| op.operands().1);
        let mut late = read
            .map(|a| self.place(a))
            .filter(|(root, ago)| *ago > 0 && writers.contains_key(root));
        let (carried, ago) = late.next()?;
        let plane = self.code.plane(carried);
        if ago != 1 || !late.all(|other| other == (carried, 1)) {
            return None;
        }
        let simple = |reg: &Reg| {
            let of = self.code.plane(*reg);
            of.len == 1 && (of == plane || of.scalar == Scalar::Bool)
        };
        if !plane.scalar.is_float() || !writers.keys().all(simple) {
            return None;
        }
        let looped = Looped { carried, writers };
        let turns = self.made(&looped, *looped.writers.get(&carried)?, TURNS)?;
        Some((carried, turns))
    }

    /// The operations from the number one sample ago to a run, if they are `most` at most.
    fn turns(&self, looped: &Looped, reg: Reg, most: usize) -> Option<Vec<Turn<Reg>>> {
        let (root, ago) = self.place(reg);
        if root == looped.carried {
            // What it is now is not known yet.
            return (ago == 1).then(Vec::new);
        }
        self.made(looped, looped.writers.get(&root)?, most)
    }

    fn made(&self, looped: &Looped, op: &Op<Reg>, most: usize) -> Option<Vec<Turn<Reg>>> {
        // No further: a loop may be as long as its graph is large.
        let most = most.checked_sub(1)?;
        let outer = |reg: Reg| !looped.writers.contains_key(&self.place(reg).0);
        let before = |reg: Reg| self.place(reg) == (looped.carried, 1);
        let link = |with: With, a: Reg| {
            Turn::Link(Link {
                with,
                a: self.operand(a),
                b: Operand::Constant(0),
            })
        };
        let (reg, turn) = match *op {
            Op::Calculate { with, a, b, .. } => {
                let (on_a, on_b) = With::sides(with);
                match (outer(a), outer(b)) {
                    (false, true) => (a, link(on_a, b)),
                    (true, false) => (b, link(on_b, a)),
                    _ => return None,
                }
            }
            // What a negation has no use for is no run.
            Op::Negate { a, .. } => {
                let none = Operand::Constant(0);
                let with = With::Negate;
                (
                    a,
                    Turn::Link(Link {
                        with,
                        a: none,
                        b: none,
                    }),
                )
            }
            Op::Clamp { a, low, high, .. } if outer(low) && outer(high) => {
                let first = (Comparison::Less, self.operand(low));
                let second = Some((Comparison::Greater, self.operand(high)));
                (a, Turn::Limit { first, second })
            }
            Op::Choose { c, a, b, .. } if outer(c) => {
                let set = |when: bool, a: Reg| {
                    let a = self.operand(a);
                    Turn::Set { c, when, a }
                };
                match () {
                    _ if before(a) => (b, Turn::Keep { c, when: true }),
                    _ if before(b) => (a, Turn::Keep { c, when: false }),
                    _ if outer(a) => (b, set(true, a)),
                    _ if outer(b) => (a, set(false, b)),
                    _ => return None,
                }
            }
            Op::Choose { .. } => {
                let (x, first, other) = self.limit(looped, op)?;
                let inner = looped.writers.get(&self.place(other).0);
                let second = match inner.and_then(|op| self.limit(looped, op)) {
                    _ if self.same(other, x) => None,
                    Some((y, second, rest)) if self.same(x, y) && self.same(x, rest) => {
                        Some(second)
                    }
                    _ => return None,
                };
                (x, Turn::Limit { first, second })
            }
            _ => return None,
        };
        let mut turns = self.turns(looped, reg, most)?;
        turns.push(turn);
        Some(turns)
    }

    /// A limit where a relation holds: what is compared, the relation, and what there is otherwise.
    #[allow(clippy::type_complexity)]
    fn limit(
        &self,
        looped: &Looped,
        op: &Op<Reg>,
    ) -> Option<(Reg, (Comparison, Operand<Reg>), Reg)> {
        let Op::Choose { c, a, b, .. } = *op else {
            return None;
        };
        let writer = |reg: Reg| looped.writers.get(&self.place(reg).0);
        let Op::Compare {
            relation,
            a: x,
            b: y,
            ..
        } = **writer(c)?
        else {
            return None;
        };
        let (x, relation, y) = match (writer(x), writer(y)) {
            (Some(_), None) => (x, relation, y),
            (None, Some(_)) => (y, relation.turned(), x),
            _ => return None,
        };
        self.same(a, y).then(|| (x, (relation, self.operand(y)), b))
    }

    /// Whether two runs have the same numbers.
    fn same(&self, a: Reg, b: Reg) -> bool {
        let constant = self.bits(a).is_some_and(|bits| self.bits(b) == Some(bits));
        constant || self.place(a) == self.place(b)
    }
}
