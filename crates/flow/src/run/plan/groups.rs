//! Units become groups of operations, without what nobody reads.

use super::*;

impl Planning<'_> {
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
    pub(super) fn groups(&mut self) -> Vec<Group> {
        let mut groups = Vec::new();
        for Draft {
            items,
            ops,
            kind,
            period,
            context,
        } in std::mem::take(&mut self.drafts)
        {
            let parts = match kind {
                Kind::Loop => improve::groups(ops, &|op| self.reach(op), &|reg| self.place(reg)),
                _ => vec![(false, ops)],
            };
            for (looped, ops) in parts {
                let kind = match kind {
                    Kind::Loop if !looped => Kind::Vector,
                    other => other,
                };
                let items = items.clone();
                groups.push(Group {
                    items,
                    ops,
                    kind,
                    period,
                    context,
                });
            }
        }
        for op in std::mem::take(&mut self.last) {
            let plane = match &op {
                Op::Remember { a: reg, .. } | Op::Copy { d: reg, .. } => self.code.plane(*reg),
                _ => continue,
            };
            groups.push(Group {
                items: vec![],
                ops: vec![op],
                kind: Kind::Vector,
                period: plane.period,
                context: plane.context,
            });
        }
        let kept = self.kept(&groups);
        let keeps = |reg: Reg| kept.contains(&reg);
        let place = |reg: Reg| self.place(reg);
        let loops: Vec<bool> = groups
            .iter()
            .map(|group| group.kind == Kind::Loop)
            .collect();
        let mut all: Vec<&mut Vec<Op<Reg>>> =
            groups.iter_mut().map(|group| &mut group.ops).collect();
        improve::prune(&mut all, &loops, &keeps, &place);
        let mut uses = improve::uses(&all, &place);
        // What is read elsewhere is not only for one sum.
        kept.iter()
            .for_each(|&reg| *uses.entry(reg).or_default() += 2);
        let scalar = |reg: Reg| {
            let plane = self.code.plane(reg);
            (plane.scalar, plane.len)
        };
        let mut vectors: Vec<&mut Vec<Op<Reg>>> = groups
            .iter_mut()
            .filter(|group| group.kind != Kind::Loop)
            .map(|group| &mut group.ops)
            .collect();
        improve::fuse(&mut vectors, &scalar, &uses, &place);
        let mut all: Vec<&mut Vec<Op<Reg>>> =
            groups.iter_mut().map(|group| &mut group.ops).collect();
        improve::prune(&mut all, &loops, &keeps, &place);
        groups.retain(|group| group.kind == Kind::Slow || !group.ops.is_empty());
        groups
    }

    /// Runs that keep their memory: those with a past, those that are constant, and those that
    /// others read or write.
    pub(super) fn kept(&self, groups: &[Group]) -> HashSet<Reg> {
        let slow = groups.iter().filter(|group| group.kind == Kind::Slow);
        let items = slow.flat_map(|group| &group.items);
        let signals = items
            .filter_map(|&item| self.part.items[item].as_ref())
            .flat_map(|item| item.from.iter().chain(&item.to).chain(&item.enables))
            .chain(&self.part.crossing);
        let regs = signals.flat_map(|&signal| {
            let planes = self.signals[signal];
            [Some(planes.re), planes.im].into_iter().flatten()
        });
        let constants = self.code.constants.iter().enumerate();
        let constants = constants
            .filter(|(_, constant)| constant.is_some())
            .map(|(index, _)| Reg(index as u32));
        regs.map(|reg| self.place(reg).0)
            .chain(constants)
            .chain(self.histories.keys().copied())
            .collect()
    }
}
