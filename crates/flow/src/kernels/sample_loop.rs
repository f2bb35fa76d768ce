//! Loops over samples without machine code: all operations of one sample, then those of the next.
//!
//! To choose an operation, and to find its numbers in their lanes, takes many times as long as the
//! operation. So the numbers of some samples are first brought together, as words in one place:
//! there each operation knows the places of its numbers beforehand. What was made then goes back.

use std::sync::Arc;

use super::element::{Real, holds, typed};
use super::execute::{Operation, View};
use super::formula::Lookup;
use super::lane::Lane;
use super::op::{Arithmetic, Fold, Op, Term};
use super::simd::{self, Level, Width, Work};
use crate::number::Rounding;
use crate::operators::{BitwiseOp, Comparison, FunctionOf, ShiftKind};
use crate::quotient::Quotient;
use crate::types::Scalar;

/// Samples that are brought together, at least.
const SAMPLES: usize = 64;
/// The most samples ago that a number may be.
const LONGEST: usize = 4096;

/// A machine type as a word: whole numbers as numbers of 64 bits, of floats the bits.
trait Word: Real {
    fn word(self) -> u64;
}

macro_rules! words {
    ($($kind:ty: $number:ident => $word:expr),*) => {$(
        impl Word for $kind {
            #[inline(always)]
            fn word(self) -> u64 {
                let $number = self;
                $word
            }
        }
    )*};
}

words!(
    i8: x => x as u64, u8: x => x as u64, i16: x => x as u64, u16: x => x as u64,
    i32: x => x as u64, u32: x => x as u64, i64: x => x as u64, u64: x => x,
    f32: x => x.to_bits().into(), f64: x => x.to_bits()
);

/// What a step does with its operands.
enum With {
    Copy,
    Cast(Scalar, Rounding),
    Calculate(Arithmetic),
    /// The imaginary part, or the real one.
    Quotient(bool),
    Fold(Fold),
    Negate,
    /// Of numbers of this type.
    Compare(Scalar, Comparison),
    Bits(BitwiseOp),
    Not,
    Shift(ShiftKind, u32),
    Choose,
    /// By floats of this type.
    ChooseBy(Scalar, Comparison),
    Clamp,
    Fir(Filter),
    /// Products of pairs of words, some of them negative.
    Dot(Vec<(usize, usize, bool)>),
    Map(FunctionOf),
    Atan2,
    /// By floats of this type.
    Lut(Scalar, Lookup),
    Table(Arc<[u64]>),
    Accumulate(u64),
    Count(u64),
}

struct Filter {
    /// The taps of each term, as words, and the oldest sample that they meet.
    terms: Vec<(Vec<u64>, usize)>,
    newest_first: bool,
    fused: bool,
}

/// An operation on words, at these places for the first sample.
struct Step {
    with: With,
    /// The type of what comes out.
    scalar: Scalar,
    d: usize,
    from: [usize; 4],
}

/// The part of a lane that has words.
struct Span {
    lane: usize,
    scalar: Scalar,
    /// The first number, and the last one, for the first sample.
    first: usize,
    last: usize,
    /// The place of the first number among the words.
    at: usize,
}

/// A loop whose operations are known here.
pub(crate) struct SampleLoop {
    steps: Vec<Step>,
    spans: Vec<Span>,
    /// What is made, with its place among the words.
    made: Vec<(View, usize)>,
    /// Samples that are brought together.
    samples: usize,
    words: Vec<u64>,
}

impl SampleLoop {
    /// The loop of these operations; none if one of them is not known here.
    pub fn of(ops: &[Operation]) -> Option<SampleLoop> {
        let mut spans: Vec<Span> = Vec::new();
        for (view, more) in ops.iter().flat_map(Op::reaches) {
            if view.len != 1 {
                return None;
            }
            let (first, last) = (view.first, view.first + more);
            match spans.iter_mut().find(|span| span.lane == view.lane) {
                Some(span) if span.scalar != view.scalar => return None,
                Some(span) => {
                    span.first = span.first.min(first);
                    span.last = span.last.max(last);
                }
                None => spans.push(Span {
                    lane: view.lane,
                    scalar: view.scalar,
                    first,
                    last,
                    at: 0,
                }),
            }
        }
        let longest = spans.iter().map(|span| span.last - span.first).max()?;
        if longest > LONGEST {
            return None;
        }
        let samples = SAMPLES.max(longest);
        let mut words = 0;
        for span in &mut spans {
            span.at = words;
            words += span.last - span.first + samples;
        }
        let place = |view: View| {
            let span = spans.iter().find(|span| span.lane == view.lane);
            span.map_or(0, |span| span.at + view.first - span.first)
        };
        let steps: Option<Vec<Step>> = ops.iter().map(|op| step(op, place)).collect();
        let made = ops.iter().filter_map(|op| op.operands().0);
        Some(SampleLoop {
            steps: steps?,
            made: made.map(|view| (view, place(view))).collect(),
            spans,
            samples,
            words: vec![0; words],
        })
    }

    /// Runs the loop for so many samples.
    pub fn run(&mut self, lanes: &mut [Lane], count: usize, level: Level) {
        for begin in (0..count).step_by(self.samples) {
            let samples = self.samples.min(count - begin);
            for span in &self.spans {
                let numbers = span.last - span.first + samples;
                let words = &mut self.words[span.at..][..numbers];
                let bytes = lanes[span.lane].bytes();
                typed!(span.scalar, T => {
                    let from: &[T] = bytemuck::cast_slice(bytes);
                    let from = &from[span.first + begin..][..numbers];
                    for (word, number) in words.iter_mut().zip(from) {
                        *word = number.word();
                    }
                });
            }
            let body = Body {
                steps: &self.steps,
                words: &mut self.words,
                samples,
            };
            simd::at(level.narrow(), body);
            for &(view, at) in &self.made {
                let words = &self.words[at..][..samples];
                let bytes = lanes[view.lane].bytes_mut();
                typed!(view.scalar, T => {
                    let to: &mut [T] = bytemuck::cast_slice_mut(bytes);
                    let to = &mut to[view.first + begin..][..samples];
                    for (number, &word) in to.iter_mut().zip(words) {
                        *number = <T as Real>::from_bits(word);
                    }
                });
            }
        }
    }
}

/// An operation on words; none if it is not known here.
fn step(op: &Operation, place: impl Fn(View) -> usize) -> Option<Step> {
    let (Some(d), from) = op.operands() else {
        return None;
    };
    let with = match op {
        Op::Copy { .. } | Op::Spread { .. } | Op::Gather { .. } | Op::Put { .. } => With::Copy,
        Op::Cast { a, rounding, .. } => With::Cast(a.scalar, *rounding),
        Op::Calculate { with, .. } => With::Calculate(*with),
        Op::Quotient { imaginary, .. } => With::Quotient(*imaginary),
        Op::Fold { with, .. } => With::Fold(*with),
        Op::Negate { .. } => With::Negate,
        Op::Compare { relation, a, .. } => With::Compare(a.scalar, *relation),
        Op::Bits { with, .. } if *with != BitwiseOp::Not => With::Bits(*with),
        Op::Not { .. } => With::Not,
        Op::Shift { direction, by, .. } => With::Shift(*direction, *by),
        Op::Choose { .. } => With::Choose,
        Op::ChooseBy { relation, x, .. } => With::ChooseBy(x.scalar, *relation),
        Op::Clamp { .. } => With::Clamp,
        Op::Fir {
            terms,
            newest_first,
            fused,
            ..
        } => With::Fir(Filter {
            terms: terms
                .iter()
                .map(|term| (taps(term, d.scalar), place(term.a)))
                .collect(),
            newest_first: *newest_first,
            fused: *fused || !d.scalar.is_float(),
        }),
        Op::Dot { terms, .. } => {
            let pairs = terms
                .iter()
                .map(|&(a, b, minus)| (place(a), place(b), minus));
            With::Dot(pairs.collect())
        }
        Op::Map { function, .. } => With::Map(*function),
        Op::Atan2 { .. } => With::Atan2,
        Op::Lut { a, lookup, .. } => With::Lut(a.scalar, lookup.clone()),
        Op::Table { table, .. } => With::Table(table.clone()),
        Op::Accumulate { mask, .. } => With::Accumulate(*mask),
        Op::Count { period, .. } => With::Count(*period),
        _ => return None,
    };
    let mut places = [0; 4];
    for (place, at) in places.iter_mut().zip(from.into_iter().map(&place)) {
        *place = at;
    }
    Some(Step {
        with,
        scalar: d.scalar,
        d: place(d),
        from: places,
    })
}

/// The taps of a term as words.
fn taps(term: &Term<View>, scalar: Scalar) -> Vec<u64> {
    let bytes: &[u8] = bytemuck::cast_slice(&term.taps);
    typed!(scalar, T => {
        let taps: &[T] = bytemuck::cast_slice(&bytes[..term.count * size_of::<T>()]);
        taps.iter().map(|tap| tap.word()).collect()
    })
}

/// All steps of some samples.
struct Body<'a> {
    steps: &'a [Step],
    words: &'a mut [u64],
    samples: usize,
}

impl Work for Body<'_> {
    type Result = ();
    #[inline(always)]
    fn work(self, _: Width) {
        let words = self.words;
        for sample in 0..self.samples {
            for step in self.steps {
                let word = result(step, words, sample);
                words[step.d + sample] = word;
            }
        }
    }
}

/// What a step makes of the words.
#[inline(always)]
fn result(step: &Step, words: &[u64], sample: usize) -> u64 {
    let word = |operand: usize| words[step.from[operand] + sample];
    macro_rules! number {
        ($kind:ty, $operand:expr) => {
            <$kind as Real>::from_bits(word($operand))
        };
    }
    match &step.with {
        With::Copy => word(0),
        With::Cast(from, rounding) => cast(word(0), *from, step.scalar, *rounding),
        With::Calculate(with) => typed!(step.scalar, T => {
            let (a, b) = (number!(T, 0), number!(T, 1));
            match with {
                Arithmetic::Add => a.add(b),
                Arithmetic::Subtract => a.sub(b),
                Arithmetic::Multiply => a.mul(b),
                Arithmetic::Divide => a.div(b),
            }
            .word()
        }),
        With::Quotient(imaginary) => typed!(step.scalar, T => {
            let a = [number!(T, 0), number!(T, 1)];
            let b = [number!(T, 2), number!(T, 3)];
            match imaginary {
                false => T::quotient::<false>(a, b),
                true => T::quotient::<true>(a, b),
            }
            .word()
        }),
        With::Fold(with) => typed!(step.scalar, T => {
            let (product, c) = (number!(T, 0).mul(number!(T, 1)), number!(T, 2));
            match with {
                Fold::Add => product.add(c),
                Fold::Less => product.sub(c),
                Fold::From => c.sub(product),
            }
            .word()
        }),
        With::Negate => typed!(step.scalar, T => number!(T, 0).neg().word()),
        With::Compare(scalar, relation) => {
            typed!(*scalar, T => holds(*relation, number!(T, 0), number!(T, 1)).into())
        }
        With::Bits(with) => match with {
            BitwiseOp::And => word(0) & word(1),
            BitwiseOp::Or => word(0) | word(1),
            _ => word(0) ^ word(1),
        },
        With::Not if step.scalar == Scalar::Bool => word(0) ^ 1,
        With::Not => fitted(!word(0), step.scalar),
        With::Shift(direction, by) => shifted(word(0), step.scalar, *direction, *by),
        With::Choose if word(0) != 0 => word(1),
        With::Choose => word(2),
        With::ChooseBy(scalar, relation) => {
            let holds = match scalar {
                Scalar::F32 => holds(*relation, number!(f32, 0), number!(f32, 1)),
                _ => holds(*relation, number!(f64, 0), number!(f64, 1)),
            };
            word(if holds { 2 } else { 3 })
        }
        With::Clamp => typed!(step.scalar, T => {
            let (a, low, high) = (number!(T, 0), number!(T, 1), number!(T, 2));
            word(if a < low { 1 } else if a > high { 2 } else { 0 })
        }),
        With::Fir(filter) => typed!(step.scalar, T => filter.sum::<T>(words, sample)),
        With::Dot(pairs) => typed!(step.scalar, T => {
            let mut sum = T::default();
            for &(a, b, minus) in pairs {
                let [a, b] = [a, b].map(|place| <T as Real>::from_bits(words[place + sample]));
                sum = if minus { a.neg() } else { a }.fused(b, sum);
            }
            sum.word()
        }),
        With::Map(function) => {
            let function = function.in_f64();
            match step.scalar {
                Scalar::F32 => (function(number!(f32, 0).into()) as f32).word(),
                _ => function(number!(f64, 0)).word(),
            }
        }
        With::Atan2 => match step.scalar {
            Scalar::F32 => (f64::from(number!(f32, 0)).atan2(number!(f32, 1).into()) as f32).word(),
            _ => number!(f64, 0).atan2(number!(f64, 1)).word(),
        },
        With::Lut(scalar, Lookup { table, places }) => {
            let place = match scalar {
                Scalar::F32 => places.of(number!(f32, 0).into()),
                _ => places.of(number!(f64, 0)),
            };
            fitted(table.get(place as usize).copied().unwrap_or(0), step.scalar)
        }
        With::Table(table) => {
            let place = (word(0) as i64).clamp(0, table.len() as i64 - 1);
            fitted(table.get(place as usize).copied().unwrap_or(0), step.scalar)
        }
        With::Accumulate(mask) => {
            let before = words[step.d + sample - 1] as u32;
            let sum = before.wrapping_add(word(0) as u32) & *mask as u32;
            fitted(sum.into(), step.scalar)
        }
        With::Count(period) => {
            let next = words[step.d + sample - 1] + 1;
            if next == *period { 0 } else { next }
        }
    }
}

impl Filter {
    /// The sum, from the first tap on.
    #[inline(always)]
    fn sum<T: Word>(&self, words: &[u64], sample: usize) -> u64 {
        let count = self.terms.first().map_or(0, |(taps, _)| taps.len());
        let zero = T::default();
        // What leaves the first product as it is, where it is rounded.
        let mut sum = if self.fused { zero } else { zero.neg() };
        for tap in 0..count {
            let ago = match self.newest_first {
                true => count - 1 - tap,
                false => tap,
            };
            for (taps, oldest) in &self.terms {
                let number = <T as Real>::from_bits(words[oldest + sample + ago]);
                let tap = <T as Real>::from_bits(taps[tap]);
                sum = match self.fused {
                    true => tap.fused(number, sum),
                    false => tap.mul(number).add(sum),
                };
            }
        }
        sum.word()
    }
}

/// A word with the low bits of this one.
#[inline(always)]
fn fitted(bits: u64, scalar: Scalar) -> u64 {
    typed!(scalar, T => <T as Real>::from_bits(bits).word())
}

#[inline(always)]
fn shifted(word: u64, scalar: Scalar, direction: ShiftKind, by: u32) -> u64 {
    let bits = 8 * scalar.bytes() as u32;
    let low = word & (u64::MAX >> (64 - bits));
    let word = match direction {
        ShiftKind::RightArithmetic if scalar.is_signed() => word as i64 >> by.min(bits - 1),
        // Of the widest words the last bit stays, as in `element`.
        ShiftKind::RightArithmetic if bits == 64 => (low >> by.min(bits - 1)) as i64,
        _ if by >= bits => 0,
        ShiftKind::Left => (word << by) as i64,
        ShiftKind::RightArithmetic | ShiftKind::RightLogical => (low >> by) as i64,
    };
    fitted(word as u64, scalar)
}

#[inline(always)]
fn cast(word: u64, from: Scalar, to: Scalar, rounding: Rounding) -> u64 {
    macro_rules! to {
        ($kind:ident, $number:expr, $rounded:expr) => {{
            let (number, rounded) = ($number, $rounded);
            match to {
                Scalar::Bool => (number != 0 as $kind).into(),
                Scalar::I8 => (rounded as i8).word(),
                Scalar::U8 => (rounded as u8).word(),
                Scalar::I16 => (rounded as i16).word(),
                Scalar::U16 => (rounded as u16).word(),
                Scalar::I32 => (rounded as i32).word(),
                Scalar::U32 => (rounded as u32).word(),
                Scalar::I64 => (rounded as i64).word(),
                Scalar::U64 => (rounded as u64).word(),
                Scalar::F32 => (number as f32).word(),
                Scalar::F64 => (number as f64).word(),
            }
        }};
    }
    macro_rules! float {
        ($kind:ident) => {{
            let number = <$kind as Real>::from_bits(word);
            match rounding {
                Rounding::Zero => to!($kind, number, number),
                Rounding::Floor => to!($kind, number, number.floor()),
                Rounding::Nearest => to!($kind, number, number.round_ties_even()),
            }
        }};
    }
    match from {
        Scalar::F32 => float!(f32),
        Scalar::F64 => float!(f64),
        signed if signed.is_signed() => to!(i64, word as i64, word as i64),
        _ => to!(u64, word, word),
    }
}

#[cfg(test)]
#[path = "sample_loop_tests.rs"]
mod tests;
