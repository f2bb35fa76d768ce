//! Operations that follow each other on one number become one pass.

use super::*;
use crate::kernels::{Fold, HELD, LINKS, Link, Operand, With};

/// An operation as one that may be a part of a chain.
struct Open {
    group: usize,
    index: usize,
    first: Reg,
    links: Vec<Link<Reg>>,
    /// The operations that it has in it.
    taken: Vec<At>,
}

impl CodeBuilder<'_> {
    /// Puts operations on floats into chains: what one makes and only the next one reads is not
    /// stored, and numbers that are constant need no run. `uses` says how often each run is read.
    pub(super) fn chains(
        &mut self,
        groups: &mut [OpGroup],
        kept: &HashSet<Reg>,
        uses: &HashMap<Reg, usize>,
    ) {
        let mut open: HashMap<Reg, Open> = HashMap::new();
        for (number, group) in groups.iter().enumerate() {
            if group.kind != Kind::Vector {
                continue;
            }
            for (index, op) in group.ops.iter().enumerate() {
                let Some(d) = op.operands().0 else {
                    continue;
                };
                let d = self.place(d).0;
                if !self.code.plane(d).scalar.is_float() {
                    continue;
                }
                // On from the longest chain; otherwise from a run.
                let inner = |first: Reg| {
                    let (root, ago) = self.place(first);
                    let only = ago == 0
                        && uses.get(&root) == Some(&1)
                        && !kept.contains(&root)
                        && !self.histories.contains_key(&root)
                        && self.code.plane(root) == self.code.plane(d);
                    open.get(&root).filter(|_| only)
                };
                let ways = self.ways(op);
                let length = |way: &(Reg, Vec<Link<Reg>>)| {
                    let before = inner(way.0).map(|open| open.links.len());
                    before.filter(|before| before + way.1.len() <= LINKS)
                };
                let Some((first, links)) = ways.into_iter().max_by_key(|way| {
                    let constants = way.1.iter().any(constant);
                    (length(way), constants)
                }) else {
                    continue;
                };
                let before = length(&(first, links.clone())).and_then(|_| {
                    let root = self.place(first).0;
                    open.remove(&root)
                });
                let mut next = before.unwrap_or(Open {
                    group: number,
                    index,
                    first,
                    links: vec![],
                    taken: vec![],
                });
                next.links.extend(links);
                next.taken.push((number, index));
                (next.group, next.index) = (number, index);
                open.insert(d, next);
            }
        }
        let repeats = self.repeats(groups, kept, uses);
        let mut gone: HashSet<At> = HashSet::new();
        for (d, mut open) in open {
            let mut held = 1;
            if let Some(&(at, a, by)) = repeats.get(&self.place(open.first).0) {
                open.taken.push(at);
                (open.first, held) = (a, by);
            }
            if open.taken.len() < 2 && !open.links.iter().any(constant) {
                continue;
            }
            gone.extend(
                open.taken
                    .iter()
                    .filter(|&&at| at != (open.group, open.index)),
            );
            let mut items: Vec<usize> = Vec::new();
            for &(group, _) in &open.taken {
                items.extend(&groups[group].items);
            }
            let into = &mut groups[open.group];
            into.ops[open.index] = Op::Chain {
                d,
                first: open.first,
                held,
                links: open.links,
            };
            // The chain belongs to all items whose operations it does.
            into.add_items(items);
        }
        groups::remove_ops(groups, &gone);
    }

    /// What repeats numbers for one operation alone, by what comes out: its place, what it repeats
    /// and how often. A chain can begin with each of these numbers.
    fn repeats(
        &self,
        groups: &[OpGroup],
        kept: &HashSet<Reg>,
        uses: &HashMap<Reg, usize>,
    ) -> HashMap<Reg, (At, Reg, usize)> {
        let vectors = |(_, group): &(usize, &OpGroup)| group.kind == Kind::Vector;
        let groups = groups.iter().enumerate().filter(vectors);
        let places = groups.flat_map(|(number, group)| {
            (0..)
                .zip(&group.ops)
                .map(move |(index, op)| ((number, index), op))
        });
        let repeat = |(at, op): (At, &Op<Reg>)| match *op {
            Op::Up { d, a, by, zeros } => {
                let root = self.place(d).0;
                let single = self.code.plane(root).len == 1 && !self.histories.contains_key(&root);
                let alone = single && uses.get(&root) == Some(&1) && !kept.contains(&root);
                let fits = alone && !zeros && by >= HELD;
                fits.then_some((root, (at, a, by)))
            }
            _ => None,
        };
        places.filter_map(repeat).collect()
    }

    /// What an operation makes of each of its operands.
    fn ways(&self, op: &Op<Reg>) -> Vec<(Reg, Vec<Link<Reg>>)> {
        let operand = |reg: Reg| self.operand(reg);
        let none = Operand::Constant(0);
        let link = |with: With, a: Reg| Link {
            with,
            a: operand(a),
            b: none,
        };
        let product = |with: With, a: Reg, b: Reg| Link {
            with,
            a: operand(a),
            b: operand(b),
        };
        let ways = match *op {
            Op::Calculate { with, a, b, .. } => {
                let (on_a, on_b) = With::sides(with);
                vec![(a, vec![link(on_a, b)]), (b, vec![link(on_b, a)])]
            }
            Op::Negate { a, .. } => {
                let negate = Link {
                    with: With::Negate,
                    a: none,
                    b: none,
                };
                vec![(a, vec![negate])]
            }
            Op::Fold { with, a, b, c, .. } => {
                let (on_c, then) = match with {
                    Fold::Add => (With::AddProduct, With::Add),
                    Fold::Less => (With::ProductLess, With::Subtract),
                    Fold::From => (With::LessProduct, With::From),
                };
                let after = |x: Reg| vec![link(With::Multiply, x), link(then, c)];
                vec![(c, vec![product(on_c, a, b)]), (a, after(b)), (b, after(a))]
            }
            _ => vec![],
        };
        let runs = |way: &(Reg, Vec<Link<Reg>>)| self.bits(way.0).is_none();
        ways.into_iter().filter(runs).collect()
    }

    /// A run as an operand.
    pub(super) fn operand(&self, reg: Reg) -> Operand<Reg> {
        match self.bits(reg) {
            Some(bits) => Operand::Constant(bits),
            None => Operand::Run(reg),
        }
    }

    /// The bits of a run that is one number for ever.
    pub(super) fn bits(&self, reg: Reg) -> Option<u64> {
        let root = self.place(reg).0;
        let bits = self.code.constants[root.0 as usize].as_ref()?;
        (!self.code.changes(root) && bits.len() == 1).then(|| bits[0])
    }
}

/// Whether a link has an operand that needs no run.
fn constant(link: &Link<Reg>) -> bool {
    let wants = match link.with {
        With::Negate => 0,
        With::AddProduct | With::LessProduct | With::ProductLess => 2,
        _ => 1,
    };
    link.runs().count() < wants
}
