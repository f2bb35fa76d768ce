//! Operations on runs.

mod operands;

use std::sync::Arc;

use super::code::Initial;
use super::formula::{FormulaPart, Lookup};
use super::links::{Link, Turn};
use crate::number::Rounding;
use crate::operators::{BitwiseOp, Comparison, FunctionOf, ShiftKind};
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
    /// A part of a quotient of complex numbers, which are given by their parts.
    Quotient {
        imaginary: bool,
        d: R,
        a: [R; 2],
        b: [R; 2],
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
        /// Samples that each number of `first` stands for: more than 1 where they are repeated.
        held: usize,
        links: Vec<Link<R>>,
    },
    /// Operations on floats and conditions, the last of which makes `d`: what the others make is
    /// not needed elsewhere.
    Formula {
        d: R,
        parts: Vec<FormulaPart<R>>,
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
    /// Every `by`-th sample in its place, and zeros between. Steps begin with a sample.
    Spaced {
        d: R,
        a: R,
        by: usize,
    },
    /// Each sample, and `by - 1` zeros or copies.
    Up {
        d: R,
        a: R,
        by: usize,
        zeros: bool,
    },
}
