//! Units become groups of operations, without what nobody reads.

use super::*;

#[cfg(test)]
#[path = "groups_tests.rs"]
mod tests;

impl OpGroup {
    /// Makes the group belong to these items too.
    pub(super) fn add_items(&mut self, items: impl IntoIterator<Item = usize>) {
        for item in items {
            if !self.items.contains(&item) {
                self.items.push(item);
            }
        }
    }
}

/// Takes these operations out of their groups.
pub(super) fn remove_ops(groups: &mut [OpGroup], gone: &HashSet<At>) {
    for (number, group) in groups.iter_mut().enumerate() {
        let mut index = 0;
        group.ops.retain(|_| {
            index += 1;
            !gone.contains(&(number, index - 1))
        });
    }
}

impl CodeBuilder<'_> {
    pub(super) fn place(&self, reg: Reg) -> (Reg, usize) {
        self.views.get(&reg).copied().unwrap_or((reg, 0))
    }

    /// How many samples beyond its operands an operation reaches.
    fn reach(&self, op: &Op<Reg>) -> usize {
        match op {
            Op::Fir { terms, .. } => terms[0].count - 1,
            Op::Window { d, .. } => self.code.plane(*d).len - 1,
            _ => 0,
        }
    }

    /// The units in operations: loops without what is not of the loop, and without what nobody
    /// reads.
    pub(super) fn groups(&mut self) -> Vec<OpGroup> {
        // A run under several names alone keeps nothing.
        self.histories.retain(|_, history| history.past > 0);
        let mut groups = Vec::new();
        for unit in std::mem::take(&mut self.units) {
            if unit.kind != Kind::Loop {
                groups.push(unit);
                continue;
            }
            let parts = improve::groups(unit.ops, &|op| self.reach(op), &|reg| self.place(reg));
            groups.extend(parts.into_iter().map(|(looped, ops)| OpGroup {
                items: unit.items.clone(),
                ops,
                kind: if looped { Kind::Loop } else { Kind::Vector },
                ..unit
            }));
        }
        for op in std::mem::take(&mut self.last) {
            let plane = match &op {
                Op::Remember { a: reg, .. } | Op::Copy { d: reg, .. } => self.code.plane(*reg),
                _ => continue,
            };
            groups.push(OpGroup {
                items: vec![],
                ops: vec![op],
                kind: Kind::Vector,
                period: plane.period,
                context: plane.context,
            });
        }
        groups.iter_mut().for_each(|group| self.recur(group));
        let kept = self.elsewhere(&groups);
        self.improve(&mut groups, &kept);
        groups.retain(|group| group.kind == Kind::Slow || !group.ops.is_empty());
        // What nobody reads any more needs no past.
        let mut read: HashSet<Reg> = kept;
        for op in groups.iter().flat_map(|group| &group.ops) {
            let (d, from) = op.operands();
            read.extend(from.into_iter().chain(d).map(|reg| self.place(reg).0));
        }
        self.histories.retain(|reg, _| read.contains(reg));
        groups
    }

    /// Prunes, fuses, finds filters.
    fn improve(&mut self, groups: &mut [OpGroup], kept: &HashSet<Reg>) {
        fn ops(groups: &mut [OpGroup], loops: bool) -> Vec<&mut Vec<Op<Reg>>> {
            let wanted = |group: &&mut OpGroup| loops || group.kind != Kind::Loop;
            let groups = groups.iter_mut().filter(wanted);
            groups.map(|group| &mut group.ops).collect()
        }
        let uses = |builder: &Self, groups: &mut [OpGroup]| {
            let mut uses = improve::uses(&ops(groups, true), &|reg| builder.place(reg));
            // What is read elsewhere is not only for one sum.
            kept.iter()
                .for_each(|&reg| *uses.entry(reg).or_default() += 2);
            uses
        };
        improve::prune(&mut ops(groups, true), kept, &|reg| self.place(reg));
        let used = uses(self, groups);
        let scalar = |reg: Reg| {
            let plane = self.code.plane(reg);
            (plane.scalar, plane.len)
        };
        improve::fuse(&mut ops(groups, false), &scalar, &used, &|reg| {
            self.place(reg)
        });
        let used = uses(self, groups);
        self.filters(groups, &used);
        improve::prune(&mut ops(groups, true), kept, &|reg| self.place(reg));
        self.formulas(groups, kept);
        let used = uses(self, groups);
        self.chains(groups, kept, &used);
    }

    /// Puts filters in the place of chains of products and sums.
    fn filters(&mut self, groups: &mut [OpGroup], uses: &HashMap<Reg, usize>) {
        let mut chains = HashMap::new();
        let mut found = Vec::new();
        let vectors = groups.iter().enumerate();
        for (at, group) in vectors.filter(|(_, group)| group.kind == Kind::Vector) {
            let constant = |reg: Reg| {
                let root = self.place(reg).0;
                let bits = self.code.constants[root.0 as usize].as_ref()?;
                (bits.len() == 1 && !self.code.changes(root)).then(|| bits[0])
            };
            let keeps = |reg: Reg| self.histories.contains_key(&reg);
            let place = |reg: Reg| self.place(reg);
            let sums = improve::chains(&group.ops, &mut chains, &constant, &keeps, uses, &place);
            found.extend(sums.into_iter().map(|(index, root)| (at, index, root)));
        }
        // The longest sums come last. What is within one is no filter of its own.
        let mut within = HashSet::new();
        for (at, index, root) in found.into_iter().rev() {
            if within.contains(&root) {
                continue;
            }
            let Some(ops) = self.filter(&chains[&root], root) else {
                continue;
            };
            groups[at].ops.splice(index..=index, ops);
            let mut inner = chains[&root].inner;
            while let Some(reg) = inner {
                within.insert(reg);
                inner = chains[&reg].inner;
            }
        }
    }

    /// What each of the first outputs of a chain begins with, and the first product that is added
    /// to it: outputs whose oldest part a delay had before its first sample.
    fn begins(&self, chain: &improve::Chain) -> Vec<(u64, usize)> {
        let begins = |&improve::Delayed { part, by, next }| {
            let bits = &self.histories[&part].bits;
            let before = move |at| (bits.get(&at).copied().unwrap_or(0), next);
            (1..=by).rev().map(before)
        };
        chain.delayed.iter().flat_map(begins).collect()
    }

    /// The filter that a chain is, if its taps lie side by side and enough of them. Where it begins
    /// with other numbers, an operation behind it writes its first outputs.
    fn filter(&mut self, chain: &improve::Chain, d: Reg) -> Option<Vec<Op<Reg>>> {
        let plane = self.code.plane(d);
        let of = self.code.plane(chain.x);
        let agos: Vec<usize> = chain.products.iter().map(|product| product.1).collect();
        let up = agos.windows(2).all(|pair| pair[1] == pair[0] + 1);
        let down = agos.windows(2).all(|pair| pair[0] == pair[1] + 1);
        let fits = plane.scalar.is_float() && plane.len == 1 && of == plane;
        if agos.len() < 4 || !fits || !(up || down) {
            return None;
        }
        let most = *agos.iter().max()?;
        let mut begins = self.begins(chain);
        if !begins.is_empty() {
            // Where sums begin with 0, the filter's do so by itself, if samples before the first
            // are such that the first product with them is 0 and not -0: zeros with the tap's sign.
            let finite = |&(tap, _): &(u64, usize)| match plane.scalar {
                Scalar::F32 => f32::from_bits(tap as u32).is_finite(),
                _ => f64::from_bits(tap).is_finite(),
            };
            let sign = chain.products[0].0 >> (8 * plane.scalar.bytes() - 1) & 1;
            let zero = sign << (8 * plane.scalar.bytes() - 1);
            let history = self.histories.entry(chain.x).or_default();
            let said = |distance: usize| history.bits.get(&distance);
            let zeros = (1..=most).all(|at| said(at).is_none_or(|&bits| bits == zero))
                && chain.products.iter().all(finite)
                && begins.iter().all(|&(bits, _)| bits == 0);
            if zeros {
                history.bits.extend((1..=most).map(|at| (at, zero)));
                begins.clear();
            }
            history.past = history.past.max(most);
        }
        (self.code.period, self.code.context) = (plane.period, plane.context);
        let oldest = self.code.reg(plane.scalar, 1);
        self.views.insert(oldest, (chain.x, most));
        let taps: Vec<u64> = chain.products.iter().map(|product| product.0).collect();
        let term = Term::new(plane.scalar, &taps, oldest);
        let mut ops = vec![Op::Fir {
            d,
            terms: vec![term.clone()],
            newest_first: up,
            fused: false,
        }];
        if !begins.is_empty() {
            let line = Line::new(plane.scalar, begins.len(), |at| begins[at].0);
            self.lines.push(line);
            ops.push(Op::Begin {
                d,
                term,
                newest_first: up,
                from: begins.iter().map(|&(_, tap)| tap).collect(),
                line: self.lines.len() - 1,
            });
        }
        Some(ops)
    }

    /// Runs that others than the operations read or write.
    fn elsewhere(&self, groups: &[OpGroup]) -> HashSet<Reg> {
        let crossing = self.partition.sent.iter().chain(&self.partition.received);
        self.runs(crossing).chain(self.slow(groups)).collect()
    }

    /// Runs that nodes read or write which are no operations.
    pub(super) fn slow(&self, groups: &[OpGroup]) -> HashSet<Reg> {
        let slow = groups.iter().filter(|group| group.kind == Kind::Slow);
        let items = slow.flat_map(|group| &group.items);
        let signals = items
            .filter_map(|&item| self.partition.items[item].as_ref())
            .flat_map(|item| item.from.iter().chain(&item.to).chain(&item.enables));
        self.runs(signals).collect()
    }

    /// The runs of signals.
    pub(super) fn runs<'s>(
        &self,
        signals: impl Iterator<Item = &'s usize>,
    ) -> impl Iterator<Item = Reg> {
        let regs = signals.flat_map(|&signal| {
            let planes = self.signals[signal];
            [Some(planes.re), planes.im].into_iter().flatten()
        });
        regs.map(|reg| self.place(reg).0)
    }

    /// Runs that keep their memory: those with a past, those that are constant, and those that
    /// others read or write.
    pub(super) fn kept(&self, groups: &[OpGroup]) -> HashSet<Reg> {
        let mut kept = self.elsewhere(groups);
        kept.extend(self.histories.keys().copied());
        // Of constants those that are read.
        let ops = groups.iter().flat_map(|group| &group.ops);
        let read = ops
            .flat_map(|op| op.operands().1)
            .map(|reg| self.place(reg).0);
        kept.extend(read.filter(|reg| self.code.constants[reg.0 as usize].is_some()));
        kept
    }
}
