//! Operations with conditions whose results nobody else reads become formulas.

use super::*;
use crate::kernels::{Arithmetic, Fold, FormulaOperand, FormulaPart, PARTS};
use crate::nodes::{BitwiseOp, Comparison};

/// The most operations that are looked at for one formula: some share parts.
const MOST: usize = 4 * PARTS;

/// A formula while it is made.
#[derive(Default)]
struct FormulaBuilder {
    parts: Vec<FormulaPart<Reg>>,
    /// The parts that make runs.
    made: HashMap<Reg, usize>,
    /// Comparisons that there are.
    compared: Vec<(Comparison, [FormulaOperand<Reg>; 2], usize)>,
}

impl FormulaBuilder {
    fn push(&mut self, part: FormulaPart<Reg>) -> usize {
        self.parts.push(part);
        self.parts.len() - 1
    }

    fn compare(&mut self, relation: Comparison, ab: [FormulaOperand<Reg>; 2]) -> usize {
        let known = self.compared.iter();
        let known = known.filter(|known| (known.0, known.1) == (relation, ab));
        if let Some(part) = known.map(|known| known.2).next() {
            return part;
        }
        let part = self.push(FormulaPart::Compare(relation, ab));
        self.compared.push((relation, ab, part));
        part
    }
}

impl CodeBuilder<'_> {
    /// Puts comparisons, choices and tables, with what is calculated for them alone, into
    /// formulas.
    pub(super) fn formulas(&self, groups: &mut [OpGroup], kept: &HashSet<Reg>) {
        let mut writers: HashMap<Reg, At> = HashMap::new();
        let mut readers: HashMap<Reg, Vec<At>> = HashMap::new();
        for (number, group) in groups.iter().enumerate() {
            for (index, op) in group.ops.iter().enumerate() {
                let (d, from) = op.operands();
                if let Some(d) = d.filter(|_| group.kind == Kind::Vector) {
                    writers.insert(self.place(d).0, (number, index));
                }
                for a in from {
                    readers
                        .entry(self.place(a).0)
                        .or_default()
                        .push((number, index));
                }
            }
        }
        let mut taken: HashSet<At> = HashSet::new();
        let mut found: Vec<(At, Vec<At>, Vec<FormulaPart<Reg>>)> = Vec::new();
        let all = groups.iter().enumerate().rev();
        let all =
            all.flat_map(|(number, group)| (0..group.ops.len()).rev().map(move |i| (number, i)));
        for at in all {
            let op = &groups[at.0].ops[at.1];
            let fits = groups[at.0].kind == Kind::Vector && !taken.contains(&at);
            let Some(d) = op.operands().0.filter(|_| fits) else {
                continue;
            };
            let d = self.place(d).0;
            let float = self.code.plane(d).scalar.is_float();
            if !float || !self.fits(op, d) {
                continue;
            }
            let Some(mut inner) = self.within(at, d, groups, kept, &writers, &readers) else {
                continue;
            };
            inner.sort_unstable();
            let ops = inner
                .iter()
                .map(|&(group, index)| &groups[group].ops[index]);
            let chooses = |op: &Op<Reg>| {
                matches!(
                    op,
                    Op::Choose { .. } | Op::ChooseBy { .. } | Op::Clamp { .. }
                )
            };
            let looks = ops.clone().any(|op| matches!(op, Op::Lut { .. }));
            if !looks && (inner.len() < 2 || !ops.clone().any(chooses)) {
                continue;
            }
            let mut formula = FormulaBuilder::default();
            for op in ops {
                self.part(op, &mut formula);
            }
            choices::settle(&mut formula.parts);
            if formula.parts.len() <= PARTS {
                taken.extend(&inner);
                found.push((at, inner, formula.parts));
            }
        }
        for (at, inner, parts) in found {
            let mut items: Vec<usize> = Vec::new();
            for (group, _) in inner {
                items.extend(&groups[group].items);
            }
            taken.remove(&at);
            let into = &mut groups[at.0];
            if let Some(d) = into.ops[at.1].operands().0 {
                into.ops[at.1] = Op::Formula { d, parts };
            }
            // What it takes is for all whose operations it does.
            into.add_items(items);
        }
        groups::remove_ops(groups, &taken);
    }

    /// The operations that only the one at `at` needs, and itself; none where they are too many.
    fn within(
        &self,
        at: At,
        d: Reg,
        groups: &[OpGroup],
        kept: &HashSet<Reg>,
        writers: &HashMap<Reg, At>,
        readers: &HashMap<Reg, Vec<At>>,
    ) -> Option<Vec<At>> {
        let mut inner: Vec<At> = vec![at];
        // How often runs are read from within.
        let mut reads: HashMap<Reg, usize> = HashMap::new();
        let mut next = 0;
        while let Some(&(group, index)) = inner.get(next) {
            next += 1;
            for a in groups[group].ops[index].operands().1 {
                let (root, ago) = self.place(a);
                if ago > 0 {
                    continue;
                }
                let within = reads.entry(root).or_default();
                *within += 1;
                let only = *within == readers[&root].len()
                    && !kept.contains(&root)
                    && !self.histories.contains_key(&root);
                let Some(&writer) = writers.get(&root).filter(|_| only) else {
                    continue;
                };
                if self.fits(&groups[writer.0].ops[writer.1], d) {
                    inner.push(writer);
                }
            }
            if inner.len() > MOST {
                return None;
            }
        }
        Some(inner)
    }

    /// Whether an operation may be a part of the formula of a run.
    fn fits(&self, op: &Op<Reg>, d: Reg) -> bool {
        let of = self.code.plane(self.place(d).0);
        let is = |reg: Reg, scalar: Scalar| {
            let plane = self.code.plane(self.place(reg).0);
            let alike = (plane.len, plane.period, plane.context) == (of.len, of.period, of.context);
            plane.scalar == scalar && (alike || self.bits(reg).is_some())
        };
        let number = |reg: &Reg| is(*reg, of.scalar);
        let condition = |reg: &Reg| is(*reg, Scalar::Bool) && self.bits(*reg).is_none();
        match op {
            Op::Calculate { d, a, b, .. } => [d, a, b].into_iter().all(number),
            Op::Fold { d, a, b, c, .. } => [d, a, b, c].into_iter().all(number),
            Op::Negate { d, a } | Op::Lut { d, a, .. } => [d, a].into_iter().all(number),
            Op::Compare { d, a, b, .. } => condition(d) && number(a) && number(b),
            Op::Bits { with, d, a, b } => {
                *with != BitwiseOp::Not && [d, a, b].into_iter().all(condition)
            }
            Op::Not { d, a } => [d, a].into_iter().all(condition),
            Op::Choose { d, c, a, b } => condition(c) && [d, a, b].into_iter().all(number),
            Op::ChooseBy { d, x, y, a, b, .. } => [d, x, y, a, b].into_iter().all(number),
            Op::Clamp { d, a, low, high } => [d, a, low, high].into_iter().all(number),
            _ => false,
        }
    }

    /// Adds an operation that [`fits`](CodeBuilder::fits).
    fn part(&self, op: &Op<Reg>, formula: &mut FormulaBuilder) {
        let item = |formula: &FormulaBuilder, reg: Reg| {
            let (root, ago) = self.place(reg);
            match (formula.made.get(&root), self.bits(reg)) {
                (Some(&part), _) if ago == 0 => FormulaOperand::Part(part),
                (_, Some(bits)) => FormulaOperand::Constant(bits),
                _ => FormulaOperand::Run(reg),
            }
        };
        let condition = |formula: &mut FormulaBuilder, reg: Reg| match item(formula, reg) {
            FormulaOperand::Part(part) => part,
            _ => {
                let part = formula.push(FormulaPart::Condition(reg));
                if self.place(reg).1 == 0 {
                    formula.made.insert(self.place(reg).0, part);
                }
                part
            }
        };
        let part = match op {
            &Op::Calculate { with, a, b, .. } => {
                let ab = [item(formula, a), item(formula, b)];
                formula.push(FormulaPart::Calculate(with, ab))
            }
            &Op::Fold { with, a, b, c, .. } => {
                let (ab, c) = ([item(formula, a), item(formula, b)], item(formula, c));
                let product = formula.push(FormulaPart::Calculate(Arithmetic::Multiply, ab));
                let product = FormulaOperand::Part(product);
                let (with, ab) = match with {
                    Fold::Add => (Arithmetic::Add, [product, c]),
                    Fold::Less => (Arithmetic::Subtract, [product, c]),
                    Fold::From => (Arithmetic::Subtract, [c, product]),
                };
                formula.push(FormulaPart::Calculate(with, ab))
            }
            &Op::Negate { a, .. } => {
                let a = item(formula, a);
                formula.push(FormulaPart::Negate(a))
            }
            &Op::Compare { relation, a, b, .. } => {
                let ab = [item(formula, a), item(formula, b)];
                formula.compare(relation, ab)
            }
            &Op::Bits { with, a, b, .. } => {
                let both = [condition(formula, a), condition(formula, b)];
                formula.push(FormulaPart::Both(with, both))
            }
            &Op::Not { a, .. } => {
                let a = condition(formula, a);
                formula.push(FormulaPart::Not(a))
            }
            &Op::Choose { c, a, b, .. } => {
                let c = condition(formula, c);
                let ab = [item(formula, a), item(formula, b)];
                formula.push(FormulaPart::Choose(c, ab))
            }
            &Op::ChooseBy {
                relation,
                x,
                y,
                a,
                b,
                ..
            } => {
                let xy = [item(formula, x), item(formula, y)];
                let c = formula.compare(relation, xy);
                let ab = [item(formula, a), item(formula, b)];
                formula.push(FormulaPart::Choose(c, ab))
            }
            &Op::Clamp { a, low, high, .. } => {
                let [a, low, high] = [a, low, high].map(|reg| item(formula, reg));
                let above = formula.compare(Comparison::Greater, [a, high]);
                let below = formula.compare(Comparison::Less, [a, low]);
                let other = formula.push(FormulaPart::Choose(above, [high, a]));
                formula.push(FormulaPart::Choose(
                    below,
                    [low, FormulaOperand::Part(other)],
                ))
            }
            Op::Lut { a, lookup, .. } => {
                let a = item(formula, *a);
                formula.push(FormulaPart::Lut(a, lookup.clone()))
            }
            _ => return,
        };
        if let Some(d) = op.operands().0 {
            formula.made.insert(self.place(d).0, part);
        }
    }
}
