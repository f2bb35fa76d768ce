//! Loops in which one number goes from sample to sample, through a few operations.
//!
//! The number stays in a register, and so does what it was one sample ago.

use super::element::{Real, holds};
use super::execute::{Inputs, Memory, View};
use super::limited::Limited;
use super::links::{Operand, Turn, With};
use super::simd::{self, Width, Work};
use crate::operators::Comparison;
use crate::types::Scalar;

/// The most operations of one loop.
pub(crate) const TURNS: usize = 16;

/// An operand: one number for all samples, or one for each.
#[derive(Clone, Copy)]
pub(super) struct Each<'a, T> {
    pub numbers: &'a [T],
    /// All bits for a number for each sample, otherwise none.
    mask: usize,
}

impl<T: Real> Each<'_, T> {
    /// Whether it is the same number for all samples.
    #[inline(always)]
    pub fn is_same(&self) -> bool {
        self.mask == 0
    }

    #[inline(always)]
    pub fn at(&self, sample: usize) -> T {
        self.numbers[sample & self.mask]
    }
}

#[derive(Clone, Copy)]
enum Step<'a, T> {
    Add(Each<'a, T>),
    Subtract(Each<'a, T>),
    From(Each<'a, T>),
    Multiply(Each<'a, T>),
    Divide(Each<'a, T>),
    Over(Each<'a, T>),
    Negate,
    /// Not above the first, not below the second.
    Within(Each<'a, T>, Each<'a, T>),
    Limit(Comparison, Each<'a, T>),
    Limits([(Comparison, Each<'a, T>); 2]),
    Keep(&'a [u8], bool),
    Set(&'a [u8], bool, Each<'a, T>),
}

#[inline(always)]
pub(super) fn within<T: Real>(x: T, high: T, low: T) -> T {
    let raised = if x < low { low } else { x };
    if x > high { high } else { raised }
}

struct Recur<'a, T> {
    before: T,
    steps: &'a [Step<'a, T>],
    out: &'a mut [T],
}

impl<T: Real> Work for Recur<'_, T> {
    type Result = ();
    #[inline(always)]
    fn work(self, _: Width) {
        // What is frequent goes without a choice of the operation for each sample.
        match *self.steps {
            [Step::Within(high, low), Step::Add(a)] => {
                let keep = None;
                return Limited { high, low, a, keep }.all(self.before, self.out);
            }
            [Step::Within(high, low), Step::Add(a), Step::Keep(c, when)] => {
                let keep = Some((c, when));
                return Limited { high, low, a, keep }.all(self.before, self.out);
            }
            [Step::Multiply(a), Step::Add(b)] => {
                let mut x = self.before;
                for (sample, out) in self.out.iter_mut().enumerate() {
                    x = x.mul(a.at(sample)).add(b.at(sample));
                    *out = x;
                }
                return;
            }
            _ => {}
        }
        let mut before = self.before;
        for (sample, out) in self.out.iter_mut().enumerate() {
            let mut x = before;
            for step in self.steps {
                x = match step {
                    Step::Add(a) => x.add(a.at(sample)),
                    Step::Subtract(a) => x.sub(a.at(sample)),
                    Step::From(a) => a.at(sample).sub(x),
                    Step::Multiply(a) => x.mul(a.at(sample)),
                    Step::Divide(a) => x.div(a.at(sample)),
                    Step::Over(a) => a.at(sample).div(x),
                    Step::Negate => x.neg(),
                    Step::Within(high, low) => within(x, high.at(sample), low.at(sample)),
                    Step::Limit(relation, a) => {
                        let a = a.at(sample);
                        if holds(*relation, x, a) { a } else { x }
                    }
                    Step::Limits([(first, a), (second, b)]) => {
                        let (a, b) = (a.at(sample), b.at(sample));
                        let other = if holds(*second, x, b) { b } else { x };
                        if holds(*first, x, a) { a } else { other }
                    }
                    Step::Keep(c, when) => {
                        if (c[sample] != 0) == *when {
                            before
                        } else {
                            x
                        }
                    }
                    Step::Set(c, when, a) => {
                        if (c[sample] != 0) == *when {
                            a.at(sample)
                        } else {
                            x
                        }
                    }
                };
            }
            before = x;
            *out = x;
        }
    }
}

pub(super) fn run(d: View, turns: &[Turn<View>], memory: &mut Memory) {
    match d.scalar {
        Scalar::F32 => recur::<f32>(d, turns, memory),
        _ => recur::<f64>(d, turns, memory),
    }
}

fn recur<T: Real>(d: View, turns: &[Turn<View>], memory: &mut Memory) {
    let level = memory.level;
    memory.write::<T, _>(d, |out, inputs| {
        // The numbers that are the same for all samples.
        let mut constants = [[T::default(); 2]; TURNS];
        for (both, turn) in constants.iter_mut().zip(turns) {
            *both = turn.operands().map(|operand| match operand {
                Some(Operand::Constant(bits)) => T::from_bits(bits),
                _ => T::default(),
            });
        }
        let mut steps = [Step::Negate; TURNS];
        for ((step, turn), constants) in steps.iter_mut().zip(turns).zip(&constants) {
            *step = of(turn, constants, &inputs);
        }
        let recur = Recur {
            before: inputs.last::<T>(),
            steps: &steps[..turns.len().min(TURNS)],
            out,
        };
        simd::at(level.narrow(), recur);
    });
}

fn of<'a, T: Real>(turn: &Turn<View>, constants: &'a [T; 2], inputs: &Inputs<'a>) -> Step<'a, T> {
    let each = |operand: Operand<View>, which: usize| match operand {
        Operand::Constant(_) => Each {
            numbers: &constants[which..=which],
            mask: 0,
        },
        Operand::Run(view) => Each {
            numbers: inputs.get::<T>(view),
            mask: usize::MAX,
        },
    };
    match *turn {
        Turn::Link(link) => match link.with {
            With::Add | With::AddProduct => Step::Add(each(link.a, 0)),
            With::Subtract | With::LessProduct => Step::Subtract(each(link.a, 0)),
            With::From | With::ProductLess => Step::From(each(link.a, 0)),
            With::Multiply => Step::Multiply(each(link.a, 0)),
            With::Divide => Step::Divide(each(link.a, 0)),
            With::Over => Step::Over(each(link.a, 0)),
            With::Negate => Step::Negate,
        },
        Turn::Limit {
            first: (first, a),
            second,
        } => match (first, second) {
            (Comparison::Greater, Some((Comparison::Less, b))) => {
                Step::Within(each(a, 0), each(b, 1))
            }
            (_, Some((second, b))) => Step::Limits([(first, each(a, 0)), (second, each(b, 1))]),
            (_, None) => Step::Limit(first, each(a, 0)),
        },
        Turn::Keep { c, when } => Step::Keep(inputs.get::<u8>(c), when),
        Turn::Set { c, when, a } => Step::Set(inputs.get::<u8>(c), when, each(a, 0)),
    }
}
