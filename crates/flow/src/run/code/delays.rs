//! Delays become views of memory, or work where a view is not possible.

use super::*;

impl CodeBuilder<'_> {
    /// Makes views of delays, or work where a view is not possible.
    pub(super) fn delays(&mut self) {
        // Filters and windows read from the oldest sample on: what is past has to lie in front.
        let ops = self.units.iter().flat_map(|unit| &unit.ops);
        let wide: HashSet<Reg> = ops
            .flat_map(|op| match op {
                Op::Fir { terms, .. } => terms.iter().map(|term| term.a).collect(),
                Op::Window { a, .. } => vec![*a],
                _ => vec![],
            })
            .collect();
        for index in 0..self.units.len() {
            let kind = self.units[index].kind;
            let ops = std::mem::take(&mut self.units[index].ops);
            let mut kept = Vec::new();
            for op in ops {
                let Op::Past { d, a, by, initial } = op else {
                    kept.push(op);
                    continue;
                };
                let plane = self.code.plane(d);
                let bytes = by * plane.len * plane.scalar.bytes();
                let short = bytes <= MOVED || by <= 2 * self.samples(plane.period);
                if short || kind == Kind::Loop || wide.contains(&d) {
                    self.delayed.insert(d, DelayedRun { of: a, by, initial });
                    // Keeps its place for a copy.
                    kept.push(Op::Past {
                        d,
                        a,
                        by,
                        initial: Initial::all(0),
                    });
                    continue;
                }
                let line = self.lines.len();
                let count = by * plane.len;
                self.lines
                    .push(Line::new(plane.scalar, count, |at| initial.at(at)));
                if kind == Kind::Cut {
                    kept.push(Op::Recall { d, line });
                    self.last.push(Op::Remember { a, line });
                } else {
                    kept.push(Op::Pass { d, a, line });
                }
            }
            self.units[index].ops = kept;
        }
        self.own_pasts();
        for index in 0..self.units.len() {
            let kind = self.units[index].kind;
            let ops = std::mem::take(&mut self.units[index].ops);
            let mut kept = Vec::new();
            for op in ops {
                let Op::Past { d, a, .. } = op else {
                    kept.push(op);
                    continue;
                };
                if self.view(d).is_some() {
                    continue;
                }
                // A copy has a history of its own.
                let plane = self.code.plane(d);
                (self.code.period, self.code.context) = (plane.period, plane.context);
                let copy = self.code.reg(plane.scalar, plane.len);
                if let Some(delayed) = self.delayed.get_mut(&d) {
                    delayed.of = copy;
                }
                self.view(d);
                let op = Op::Copy { d: copy, a };
                if kind == Kind::Cut {
                    self.last.push(op);
                } else {
                    kept.push(op);
                }
            }
            self.units[index].ops = kept;
        }
    }

    /// Some operations go on from what they themselves made last, in front of the present samples.
    /// That comes first: a delay with other values at its start gets a copy.
    fn own_pasts(&mut self) {
        let ops = || self.units.iter().flat_map(|unit| &unit.ops);
        let makers = ops().filter_map(|op| match op {
            Op::Expand { d, .. } | Op::Accumulate { d, .. } | Op::Count { d, .. } => Some(*d),
            _ => None,
        });
        let made: HashSet<Reg> = makers.collect();
        let pasts = ops().filter_map(|op| match op {
            Op::Past { d, a, by: 1, .. } if made.contains(a) => Some(*d),
            _ => None,
        });
        for d in pasts.collect::<Vec<_>>() {
            self.view(d);
        }
    }

    /// Which run a delayed one is a view of, if the history that it needs is nobody else's.
    fn view(&mut self, d: Reg) -> Option<(Reg, usize)> {
        let mut chain = vec![];
        let mut at = d;
        // From the delayed run to what is known already, or to a run of its own.
        let (root, mut ago) = loop {
            if let Some(&known) = self.views.get(&at) {
                break known;
            }
            let Some(delayed) = self.delayed.get(&at) else {
                break (at, 0);
            };
            if chain.contains(&at) {
                return None;
            }
            chain.push(at);
            at = delayed.of;
        };
        for &reg in chain.iter().rev() {
            let DelayedRun { by, initial, .. } = &self.delayed[&reg];
            let len = self.code.plane(reg).len;
            let numbers = by * len;
            let history = self.histories.entry(root).or_default();
            let agrees = (0..numbers).all(|at| {
                let distance = ago * len + numbers - at;
                let said = history.bits.get(&distance);
                said.is_none_or(|&bits| bits == initial.at(at))
            });
            if !agrees {
                return None;
            }
            for at in 0..numbers {
                let distance = ago * len + numbers - at;
                history.bits.insert(distance, initial.at(at));
            }
            ago += by;
            history.past = history.past.max(ago);
            self.views.insert(reg, (root, ago));
        }
        Some((root, ago))
    }
}
