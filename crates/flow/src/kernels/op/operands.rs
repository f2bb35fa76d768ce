//! Runs that operations read and write.

use super::Op;
use crate::kernels::formula::FormulaPart;
use crate::kernels::links::{Link, Turn};

impl<R: Copy> Op<R> {
    /// What comes out, and what goes in.
    pub fn operands(&self) -> (Option<R>, Vec<R>) {
        use Op::*;
        match self {
            Past { d, a, .. }
            | Copy { d, a }
            | Pass { d, a, .. }
            | Cast { d, a, .. }
            | Negate { d, a }
            | Not { d, a }
            | Shift { d, a, .. }
            | Spread { d, a }
            | Gather { d, a, .. }
            | Put { d, a, .. }
            | Window { d, a, .. }
            | Map { d, a, .. }
            | Lut { d, a, .. }
            | Blend { d, a, .. }
            | Table { d, a, .. }
            | Accumulate { d, a, .. }
            | Down { d, a, .. }
            | Compact { d, a, .. }
            | Expand { d, a, .. }
            | Spaced { d, a, .. }
            | Up { d, a, .. } => (Some(*d), vec![*a]),
            Recall { d, .. } | Count { d, .. } => (Some(*d), vec![]),
            Chain {
                d, first, links, ..
            } => {
                let others = links.iter().flat_map(Link::runs);
                (Some(*d), [*first].into_iter().chain(others).collect())
            }
            Formula { d, parts } => (Some(*d), parts.iter().flat_map(FormulaPart::runs).collect()),
            Recur { d, turns } => (Some(*d), turns.iter().flat_map(Turn::runs).collect()),
            Remember { a, .. } => (None, vec![*a]),
            Enable { from, .. } => (None, from.clone()),
            Calculate { d, a, b, .. } | Compare { d, a, b, .. } | Bits { d, a, b, .. } => {
                (Some(*d), vec![*a, *b])
            }
            Quotient { d, a, b, .. } => (Some(*d), [*a, *b].concat()),
            Choose { d, c, a, b } => (Some(*d), vec![*c, *a, *b]),
            Fold { d, a, b, c, .. } => (Some(*d), vec![*a, *b, *c]),
            ChooseBy { d, x, y, a, b, .. } => (Some(*d), vec![*x, *y, *a, *b]),
            Clamp { d, a, low, high } => (Some(*d), vec![*a, *low, *high]),
            Fir { d, terms, .. } => (Some(*d), terms.iter().map(|term| term.a).collect()),
            Begin { d, term, .. } => (Some(*d), vec![term.a]),
            Dot { d, terms } => (
                Some(*d),
                terms.iter().flat_map(|&(a, b, _)| [a, b]).collect(),
            ),
            Atan2 { d, y, x } => (Some(*d), vec![*y, *x]),
            Nearest { d, re, im, .. } => (Some(*d), vec![*re, *im]),
        }
    }

    /// The same operation with other operands.
    pub fn map<T>(&self, f: impl Fn(R) -> T) -> Op<T> {
        use Op::*;
        match self.clone() {
            Past { d, a, by, initial } => Past {
                d: f(d),
                a: f(a),
                by,
                initial,
            },
            Copy { d, a } => Copy { d: f(d), a: f(a) },
            Recall { d, line } => Recall { d: f(d), line },
            Remember { a, line } => Remember { a: f(a), line },
            Pass { d, a, line } => Pass {
                d: f(d),
                a: f(a),
                line,
            },
            Cast { d, a, rounding } => Cast {
                d: f(d),
                a: f(a),
                rounding,
            },
            Calculate { with, d, a, b } => Calculate {
                with,
                d: f(d),
                a: f(a),
                b: f(b),
            },
            Quotient { imaginary, d, a, b } => Quotient {
                imaginary,
                d: f(d),
                a: a.map(&f),
                b: b.map(&f),
            },
            Fold { with, d, a, b, c } => Fold {
                with,
                d: f(d),
                a: f(a),
                b: f(b),
                c: f(c),
            },
            ChooseBy {
                relation,
                d,
                x,
                y,
                a,
                b,
            } => ChooseBy {
                relation,
                d: f(d),
                x: f(x),
                y: f(y),
                a: f(a),
                b: f(b),
            },
            Negate { d, a } => Negate { d: f(d), a: f(a) },
            Chain {
                d,
                first,
                held,
                links,
            } => Chain {
                d: f(d),
                first: f(first),
                held,
                links: links.into_iter().map(|link| link.map(&f)).collect(),
            },
            Formula { d, parts } => Formula {
                d: f(d),
                parts: parts.into_iter().map(|part| part.map(&f)).collect(),
            },
            Recur { d, turns } => Recur {
                d: f(d),
                turns: turns.into_iter().map(|turn| turn.map(&f)).collect(),
            },
            Compare { relation, d, a, b } => Compare {
                relation,
                d: f(d),
                a: f(a),
                b: f(b),
            },
            Bits { with, d, a, b } => Bits {
                with,
                d: f(d),
                a: f(a),
                b: f(b),
            },
            Not { d, a } => Not { d: f(d), a: f(a) },
            Shift {
                direction,
                by,
                d,
                a,
            } => Shift {
                direction,
                by,
                d: f(d),
                a: f(a),
            },
            Choose { d, c, a, b } => Choose {
                d: f(d),
                c: f(c),
                a: f(a),
                b: f(b),
            },
            Clamp { d, a, low, high } => Clamp {
                d: f(d),
                a: f(a),
                low: f(low),
                high: f(high),
            },
            Spread { d, a } => Spread { d: f(d), a: f(a) },
            Gather { d, a, from } => Gather {
                d: f(d),
                a: f(a),
                from,
            },
            Put { d, a, first } => Put {
                d: f(d),
                a: f(a),
                first,
            },
            Window { d, a, newest_first } => Window {
                d: f(d),
                a: f(a),
                newest_first,
            },
            Begin {
                d,
                term,
                newest_first,
                from,
                line,
            } => Begin {
                d: f(d),
                term: term.map(&f),
                newest_first,
                from,
                line,
            },
            Fir {
                d,
                terms,
                newest_first,
                fused,
            } => Fir {
                d: f(d),
                terms: terms.into_iter().map(|term| term.map(&f)).collect(),
                newest_first,
                fused,
            },
            Dot { d, terms } => Dot {
                d: f(d),
                terms: terms
                    .into_iter()
                    .map(|(a, b, minus)| (f(a), f(b), minus))
                    .collect(),
            },
            Map { d, a, function } => Map {
                d: f(d),
                a: f(a),
                function,
            },
            Atan2 { d, y, x } => Atan2 {
                d: f(d),
                y: f(y),
                x: f(x),
            },
            Lut { d, a, lookup } => Lut {
                d: f(d),
                a: f(a),
                lookup,
            },
            Blend { d, a, table } => Blend {
                d: f(d),
                a: f(a),
                table,
            },
            Table { d, a, table } => Table {
                d: f(d),
                a: f(a),
                table,
            },
            Nearest { d, re, im, points } => Nearest {
                d: f(d),
                re: f(re),
                im: f(im),
                points,
            },
            Accumulate { d, a, mask } => Accumulate {
                d: f(d),
                a: f(a),
                mask,
            },
            Count { d, period } => Count { d: f(d), period },
            Down { d, a, by } => Down {
                d: f(d),
                a: f(a),
                by,
            },
            Enable { context, from } => Enable {
                context,
                from: from.into_iter().map(&f).collect(),
            },
            Compact { d, a, context } => Compact {
                d: f(d),
                a: f(a),
                context,
            },
            Expand { d, a, context } => Expand {
                d: f(d),
                a: f(a),
                context,
            },
            Spaced { d, a, by } => Spaced {
                d: f(d),
                a: f(a),
                by,
            },
            Up { d, a, by, zeros } => Up {
                d: f(d),
                a: f(a),
                by,
                zeros,
            },
        }
    }
}
