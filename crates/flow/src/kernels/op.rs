//! Operations on runs.

use std::sync::Arc;

use super::code::Initial;
use super::formula::{Lookup, Part};
use super::links::{Link, Turn};
use crate::nodes::{BitwiseOp, Comparison, FunctionOf, ShiftKind};
use crate::number::Rounding;
use crate::types::Scalar;

/// One product of a sum of products.
#[derive(Clone, Debug)]
pub(crate) struct Term<R> {
    /// The taps, in the order in which they are added: numbers of the output's type, packed.
    pub taps: Arc<[u64]>,
    pub count: usize,
    /// The oldest sample that they meet.
    pub a: R,
}

impl<R> Term<R> {
    fn map<T>(self, f: &impl Fn(R) -> T) -> Term<T> {
        Term {
            taps: self.taps,
            count: self.count,
            a: f(self.a),
        }
    }

    /// A term of taps given by their bits.
    pub fn new(scalar: Scalar, taps: &[u64], a: R) -> Term<R> {
        let size = scalar.bytes();
        let bytes: Vec<u8> = taps
            .iter()
            .flat_map(|tap| tap.to_le_bytes()[..size].to_vec())
            .collect();
        let words = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        Term {
            taps: words.collect(),
            count: taps.len(),
            a,
        }
    }
}

/// An operation of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// What a product is summed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fold {
    /// a b + c
    Add,
    /// a b - c
    Less,
    /// c - a b
    From,
}

/// An operation: `d` is what comes out.
#[derive(Clone, Debug)]
pub(crate) enum Op<R> {
    /// `a` of `by` samples ago. Takes no work where memory is laid out for it.
    Past {
        d: R,
        a: R,
        by: usize,
        initial: Initial,
    },
    Copy {
        d: R,
        a: R,
    },
    /// The output of a delay that is too long to be shifted along: puts out what `line` holds.
    Recall {
        d: R,
        line: usize,
    },
    /// The input of a delay that is too long to be shifted along: `line` takes it in.
    Remember {
        a: R,
        line: usize,
    },
    /// The same delay in one, where its output is not needed before its input.
    Pass {
        d: R,
        a: R,
        line: usize,
    },
    Cast {
        d: R,
        a: R,
        rounding: Rounding,
    },
    Calculate {
        with: Arithmetic,
        d: R,
        a: R,
        b: R,
    },
    /// A product, rounded, and then a sum.
    Fold {
        with: Fold,
        d: R,
        a: R,
        b: R,
        c: R,
    },
    Negate {
        d: R,
        a: R,
    },
    /// Operations on floats one after the other, on what the one before has made: none of that is
    /// needed elsewhere. The first is a run.
    Chain {
        d: R,
        first: R,
        links: Vec<Link<R>>,
    },
    /// Operations on floats and conditions, the last of which makes `d`: what the others make is
    /// not needed elsewhere.
    Formula {
        d: R,
        parts: Vec<Part<R>>,
    },
    /// A loop: from what `d` was one sample ago to what it is, by one operation after the other.
    Recur {
        d: R,
        turns: Vec<Turn<R>>,
    },
    Compare {
        relation: Comparison,
        d: R,
        a: R,
        b: R,
    },
    Bits {
        with: BitwiseOp,
        d: R,
        a: R,
        b: R,
    },
    Not {
        d: R,
        a: R,
    },
    Shift {
        direction: ShiftKind,
        by: u32,
        d: R,
        a: R,
    },
    /// `a` where `c` is true, otherwise `b`.
    Choose {
        d: R,
        c: R,
        a: R,
        b: R,
    },
    /// `a` where the relation of `x` to `y` holds, otherwise `b`. All are numbers of one size.
    ChooseBy {
        relation: Comparison,
        d: R,
        x: R,
        y: R,
        a: R,
        b: R,
    },
    Clamp {
        d: R,
        a: R,
        low: R,
        high: R,
    },
    /// The one number of each sample, for each element.
    Spread {
        d: R,
        a: R,
    },
    /// Elements of `a` by index.
    Gather {
        d: R,
        a: R,
        from: Arc<[u32]>,
    },
    /// `a` as the elements of `d` from `first` on.
    Put {
        d: R,
        a: R,
        first: usize,
    },
    /// The last samples as elements, from the oldest, `a`, on.
    Window {
        d: R,
        a: R,
        newest_first: bool,
    },
    /// A sum of products with windows of samples: one fused multiply-add after the other, all terms
    /// of the first tap first. The window is passed from the newest sample on, or from the oldest.
    Fir {
        d: R,
        terms: Vec<Term<R>>,
        newest_first: bool,
        /// Otherwise each product is rounded before it is added, and the first begins the sum.
        fused: bool,
    },
    /// Writes the first outputs of a filter anew: behind the filter, whose products are rounded.
    Begin {
        d: R,
        term: Term<R>,
        newest_first: bool,
        /// For each of them the first tap of which a product is added.
        from: Arc<[usize]>,
        /// What each of them begins with, as far as they have not been written.
        line: usize,
    },
    /// The inner product of the elements of two runs, the same way; some products are negative.
    Dot {
        d: R,
        terms: Vec<(R, R, bool)>,
    },
    Map {
        d: R,
        a: R,
        function: FunctionOf,
    },
    Atan2 {
        d: R,
        y: R,
        x: R,
    },
    /// Entries by the place of a float: its distance from `first`, times or over `by`.
    Lut {
        d: R,
        a: R,
        lookup: Lookup,
    },
    /// Entries by a place in double precision, interpolated.
    Blend {
        d: R,
        a: R,
        table: Arc<[f64]>,
    },
    /// Entries by a whole number.
    Table {
        d: R,
        a: R,
        table: Arc<[u64]>,
    },
    /// The index of the nearest point.
    Nearest {
        d: R,
        re: R,
        im: R,
        points: Arc<[(f64, f64)]>,
    },
    /// The sum of `a` and of `d` one sample ago, in the bits of a mask.
    Accumulate {
        d: R,
        a: R,
        mask: u64,
    },
    /// One more than one sample ago, below a period.
    Count {
        d: R,
        period: u64,
    },
    Down {
        d: R,
        a: R,
        by: usize,
    },
    /// Finds the samples in which all of `from` are true.
    Enable {
        context: usize,
        from: Vec<R>,
    },
    /// Only the samples of `a` at which the condition of `context` holds.
    Compact {
        d: R,
        a: R,
        context: usize,
    },
    /// For all samples the last one that there was.
    Expand {
        d: R,
        a: R,
        context: usize,
    },
    /// Each sample, and `by - 1` zeros or copies.
    Up {
        d: R,
        a: R,
        by: usize,
        zeros: bool,
    },
}

impl<R: Copy> Op<R> {
    /// What comes out, and what goes in.
    pub fn ends(&self) -> (Option<R>, Vec<R>) {
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
            | Up { d, a, .. } => (Some(*d), vec![*a]),
            Recall { d, .. } | Count { d, .. } => (Some(*d), vec![]),
            Chain { d, first, links } => {
                let others = links.iter().flat_map(Link::runs);
                (Some(*d), [*first].into_iter().chain(others).collect())
            }
            Formula { d, parts } => (Some(*d), parts.iter().flat_map(Part::runs).collect()),
            Recur { d, turns } => (Some(*d), turns.iter().flat_map(Turn::runs).collect()),
            Remember { a, .. } => (None, vec![*a]),
            Enable { from, .. } => (None, from.clone()),
            Calculate { d, a, b, .. } | Compare { d, a, b, .. } | Bits { d, a, b, .. } => {
                (Some(*d), vec![*a, *b])
            }
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
            Chain { d, first, links } => Chain {
                d: f(d),
                first: f(first),
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
            Up { d, a, by, zeros } => Up {
                d: f(d),
                a: f(a),
                by,
                zeros,
            },
        }
    }
}
