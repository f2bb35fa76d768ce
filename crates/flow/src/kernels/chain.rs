//! Operations one after the other on the same number, in one pass.
//!
//! A number stays in a register from its first operation to its last one. Nothing is stored in
//! between, and what is the same for ever is read once for many samples.

use std::ops::Range;

use super::element::Real;
use super::execute::{Inputs, Memory, View};
use super::links::{Link, Operand, With};
use super::simd::{self, Width, Work};
use super::vector::{Array, Float, Lanes};
use crate::types::Scalar;

/// The most operations of one pass.
pub(crate) const LINKS: usize = 32;

/// The fewest copies of a number for which a pass begins with that number: many vectors, so that
/// beginning anew with the next number takes next to nothing.
pub(crate) const HELD: usize = 256;

/// An operation whose operands have been found.
#[derive(Clone, Copy)]
enum Step<'a, T> {
    AddOne(T),
    AddEach(&'a [T]),
    SubtractOne(T),
    SubtractEach(&'a [T]),
    FromOne(T),
    FromEach(&'a [T]),
    MultiplyOne(T),
    MultiplyEach(&'a [T]),
    DivideOne(T),
    DivideEach(&'a [T]),
    OverOne(T),
    OverEach(&'a [T]),
    Negate,
    /// A product with the first, and then a sum with the second.
    Scale(T, T),
    AddProductOne(T, &'a [T]),
    AddProductEach(&'a [T], &'a [T]),
    LessProductOne(T, &'a [T]),
    LessProductEach(&'a [T], &'a [T]),
    ProductLessOne(T, &'a [T]),
    ProductLessEach(&'a [T], &'a [T]),
}

#[derive(Clone, Copy)]
enum Found<'a, T> {
    One(T),
    Each(&'a [T]),
}

impl<'a, T: Real> Found<'a, T> {
    fn of(operand: Operand<View>, inputs: &Inputs<'a>) -> Found<'a, T> {
        match operand {
            Operand::Constant(bits) => Found::One(T::from_bits(bits)),
            Operand::Run(view) => Found::Each(inputs.get::<T>(view)),
        }
    }
}

impl<'a, T: Real> Step<'a, T> {
    fn of(link: &Link<View>, inputs: &Inputs<'a>) -> Step<'a, T> {
        use Found::*;
        let (a, b) = (Found::of(link.a, inputs), Found::of(link.b, inputs));
        match (link.with, a, b) {
            (With::Add, One(a), _) => Step::AddOne(a),
            (With::Add, Each(a), _) => Step::AddEach(a),
            (With::Subtract, One(a), _) => Step::SubtractOne(a),
            (With::Subtract, Each(a), _) => Step::SubtractEach(a),
            (With::From, One(a), _) => Step::FromOne(a),
            (With::From, Each(a), _) => Step::FromEach(a),
            (With::Multiply, One(a), _) => Step::MultiplyOne(a),
            (With::Multiply, Each(a), _) => Step::MultiplyEach(a),
            (With::Divide, One(a), _) => Step::DivideOne(a),
            (With::Divide, Each(a), _) => Step::DivideEach(a),
            (With::Over, One(a), _) => Step::OverOne(a),
            (With::Over, Each(a), _) => Step::OverEach(a),
            (With::Negate, ..) => Step::Negate,
            (With::AddProduct, One(a), Each(b)) | (With::AddProduct, Each(b), One(a)) => {
                Step::AddProductOne(a, b)
            }
            (With::AddProduct, Each(a), Each(b)) => Step::AddProductEach(a, b),
            (With::LessProduct, One(a), Each(b)) | (With::LessProduct, Each(b), One(a)) => {
                Step::LessProductOne(a, b)
            }
            (With::LessProduct, Each(a), Each(b)) => Step::LessProductEach(a, b),
            (With::ProductLess, One(a), Each(b)) | (With::ProductLess, Each(b), One(a)) => {
                Step::ProductLessOne(a, b)
            }
            (With::ProductLess, Each(a), Each(b)) => Step::ProductLessEach(a, b),
            (With::AddProduct, One(a), One(b)) => Step::AddOne(a.mul(b)),
            (With::LessProduct, One(a), One(b)) => Step::SubtractOne(a.mul(b)),
            (With::ProductLess, One(a), One(b)) => Step::FromOne(a.mul(b)),
        }
    }

    /// The numbers that it reads, one for each.
    fn reads(&self) -> [Option<&'a [T]>; 2] {
        match *self {
            Step::AddEach(a)
            | Step::SubtractEach(a)
            | Step::FromEach(a)
            | Step::MultiplyEach(a)
            | Step::DivideEach(a)
            | Step::OverEach(a)
            | Step::AddProductOne(_, a)
            | Step::LessProductOne(_, a)
            | Step::ProductLessOne(_, a) => [Some(a), None],
            Step::AddProductEach(a, b)
            | Step::LessProductEach(a, b)
            | Step::ProductLessEach(a, b) => [Some(a), Some(b)],
            _ => [None, None],
        }
    }

    /// Does it for one number, the one at `at`.
    #[inline(always)]
    fn one(&self, number: T, at: usize) -> T {
        match *self {
            Step::AddOne(a) => number.add(a),
            Step::AddEach(a) => number.add(a[at]),
            Step::SubtractOne(a) => number.sub(a),
            Step::SubtractEach(a) => number.sub(a[at]),
            Step::FromOne(a) => a.sub(number),
            Step::FromEach(a) => a[at].sub(number),
            Step::MultiplyOne(a) => number.mul(a),
            Step::MultiplyEach(a) => number.mul(a[at]),
            Step::DivideOne(a) => number.div(a),
            Step::DivideEach(a) => number.div(a[at]),
            Step::OverOne(a) => a.div(number),
            Step::OverEach(a) => a[at].div(number),
            Step::Negate => number.neg(),
            Step::Scale(a, b) => number.mul(a).add(b),
            Step::AddProductOne(a, b) => a.mul(b[at]).add(number),
            Step::AddProductEach(a, b) => a[at].mul(b[at]).add(number),
            Step::LessProductOne(a, b) => number.sub(a.mul(b[at])),
            Step::LessProductEach(a, b) => number.sub(a[at].mul(b[at])),
            Step::ProductLessOne(a, b) => a.mul(b[at]).sub(number),
            Step::ProductLessEach(a, b) => a[at].mul(b[at]).sub(number),
        }
    }
}

/// What the first operation reads.
#[derive(Clone, Copy)]
enum First<'a, T> {
    /// What the output has so far.
    Own,
    Each(&'a [T]),
    /// Each number for so many samples.
    Held(&'a [T], usize),
}

struct Chain<'a, T> {
    first: First<'a, T>,
    steps: &'a [Step<'a, T>],
    out: &'a mut [T],
}

impl<T: Float> Chain<'_, T> {
    /// Does all for `M` vectors from number `at` on, of one number if there is one.
    ///
    /// # Safety
    ///
    /// That of [`Lanes`]; everything that is read or written has numbers for all of them.
    #[inline(always)]
    unsafe fn tile<V: Lanes<Real = T>, const M: usize>(&mut self, at: usize, one: Option<T>) {
        // SAFETY: the caller's.
        unsafe {
            let read = |from: &[T], m: usize| V::load(from.as_ptr().add(at + m * V::COUNT));
            let mut all = [V::all(one.unwrap_or_default()); M];
            if one.is_none() {
                let from = match self.first {
                    First::Each(first) => first,
                    _ => &*self.out,
                };
                for (m, it) in all.iter_mut().enumerate() {
                    *it = read(from, m);
                }
            }
            macro_rules! each {
                ($it:ident, $m:ident => $value:expr) => {
                    for ($m, slot) in all.iter_mut().enumerate() {
                        let $it = *slot;
                        *slot = $value;
                    }
                };
                ($it:ident => $value:expr) => {
                    for slot in &mut all {
                        let $it = *slot;
                        *slot = $value;
                    }
                };
            }
            for step in self.steps {
                match *step {
                    Step::AddOne(a) => {
                        let a = V::all(a);
                        each!(it => it.add(a));
                    }
                    Step::AddEach(a) => each!(it, m => it.add(read(a, m))),
                    Step::SubtractOne(a) => {
                        let a = V::all(a);
                        each!(it => it.sub(a));
                    }
                    Step::SubtractEach(a) => each!(it, m => it.sub(read(a, m))),
                    Step::FromOne(a) => {
                        let a = V::all(a);
                        each!(it => a.sub(it));
                    }
                    Step::FromEach(a) => each!(it, m => read(a, m).sub(it)),
                    Step::MultiplyOne(a) => {
                        let a = V::all(a);
                        each!(it => it.mul(a));
                    }
                    Step::MultiplyEach(a) => each!(it, m => it.mul(read(a, m))),
                    Step::DivideOne(a) => {
                        let a = V::all(a);
                        each!(it => it.div(a));
                    }
                    Step::DivideEach(a) => each!(it, m => it.div(read(a, m))),
                    Step::OverOne(a) => {
                        let a = V::all(a);
                        each!(it => a.div(it));
                    }
                    Step::OverEach(a) => each!(it, m => read(a, m).div(it)),
                    Step::Negate => each!(it => it.neg()),
                    Step::Scale(a, b) => {
                        let (a, b) = (V::all(a), V::all(b));
                        each!(it => it.mul(a).add(b));
                    }
                    Step::AddProductOne(a, b) => {
                        let a = V::all(a);
                        each!(it, m => a.mul(read(b, m)).add(it));
                    }
                    Step::AddProductEach(a, b) => {
                        each!(it, m => read(a, m).mul(read(b, m)).add(it));
                    }
                    Step::LessProductOne(a, b) => {
                        let a = V::all(a);
                        each!(it, m => it.sub(a.mul(read(b, m))));
                    }
                    Step::LessProductEach(a, b) => {
                        each!(it, m => it.sub(read(a, m).mul(read(b, m))));
                    }
                    Step::ProductLessOne(a, b) => {
                        let a = V::all(a);
                        each!(it, m => a.mul(read(b, m)).sub(it));
                    }
                    Step::ProductLessEach(a, b) => {
                        each!(it, m => read(a, m).mul(read(b, m)).sub(it));
                    }
                }
            }
            for (m, it) in all.into_iter().enumerate() {
                it.store(self.out.as_mut_ptr().add(at + m * V::COUNT));
            }
        }
    }

    /// Does all for some numbers.
    ///
    /// # Safety
    ///
    /// As for [`Chain::tile`].
    #[inline(always)]
    unsafe fn span<V: Lanes<Real = T>>(&mut self, span: Range<usize>, one: Option<T>) {
        let Range { start: mut at, end } = span;
        // SAFETY: the caller's.
        unsafe {
            // As many as hide how long an operation takes, and fit the registers.
            while at + 12 * V::COUNT <= end {
                self.tile::<V, 12>(at, one);
                at += 12 * V::COUNT;
            }
            while at + 4 * V::COUNT <= end {
                self.tile::<V, 4>(at, one);
                at += 4 * V::COUNT;
            }
            while at + V::COUNT <= end {
                self.tile::<V, 1>(at, one);
                at += V::COUNT;
            }
        }
        for at in at..end {
            let mut number = one.unwrap_or_else(|| match self.first {
                First::Each(first) => first[at],
                _ => self.out[at],
            });
            for step in self.steps {
                number = step.one(number, at);
            }
            self.out[at] = number;
        }
    }

    /// # Safety
    ///
    /// The condition of [`Lanes`].
    #[inline(always)]
    unsafe fn all<V: Lanes<Real = T>>(&mut self) {
        let count = self.out.len();
        let reads = self.steps.iter().flat_map(Step::reads).flatten();
        let first = match self.first {
            First::Each(first) => Some(first),
            _ => None,
        };
        assert!(reads.chain(first).all(|numbers| numbers.len() == count));
        // SAFETY: all have `count` numbers.
        unsafe {
            if let First::Held(numbers, by) = self.first {
                assert!(numbers.len() * by == count);
                for (at, &number) in numbers.iter().enumerate() {
                    self.span::<V>(at * by..(at + 1) * by, Some(number));
                }
            } else {
                self.span::<V>(0..count, None);
            }
        }
    }
}

impl<T: Float> Work for Chain<'_, T> {
    type Result = ();
    #[inline(always)]
    fn work(mut self, width: Width) {
        // SAFETY: the processor has the vectors of the width that is given.
        unsafe {
            match width {
                Width::Any => self.all::<Array<T>>(),
                Width::Half => self.all::<T::Half>(),
                Width::Full => self.all::<T::Full>(),
            }
        }
    }
}

/// `first`: what the first operation reads, and the samples that each of these numbers stands for.
pub(super) fn run(d: View, first: (View, usize), links: &[Link<View>], memory: &mut Memory) {
    match d.scalar {
        Scalar::F32 => chain::<f32>(d, first, links, memory),
        _ => chain::<f64>(d, first, links, memory),
    }
}

fn chain<T: Float>(
    d: View,
    (first, held): (View, usize),
    links: &[Link<View>],
    memory: &mut Memory,
) {
    let level = memory.level;
    memory.write::<T, _>(d, |out, inputs| {
        let mut steps = [Step::Negate; LINKS];
        let mut count: usize = 0;
        for link in links {
            let step = Step::of(link, &inputs);
            let last = count.checked_sub(1).map(|last| steps[last]);
            match (last, step) {
                (Some(Step::MultiplyOne(a)), Step::AddOne(b)) => {
                    steps[count - 1] = Step::Scale(a, b);
                }
                _ => {
                    steps[count] = step;
                    count += 1;
                }
            }
        }
        let chain = Chain {
            first: if held > 1 {
                First::Held(inputs.counted(first, inputs.count / held), held)
            } else if (first.lane, first.first) == (d.lane, d.first) {
                First::Own
            } else {
                First::Each(inputs.get(first))
            },
            steps: &steps[..count],
            out,
        };
        simd::at(level, chain);
    });
}
