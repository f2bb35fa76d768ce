//! Operations with conditions in one pass: numbers are compared, chosen and looked up.
//!
//! What one operation makes for the next ones stays in the nearest cache: all operations go over
//! some numbers, and then over the next ones. Conditions are as wide as numbers there.

use std::mem::MaybeUninit;
use std::sync::Arc;

use super::execute::{Inputs, Memory, View};
use super::gathers;
use super::op::Arithmetic;
use super::places::Places;
use super::simd::{self, Width, Work};
use super::vector::{Array, Choice, Float};
use crate::operators::{BitwiseOp, Comparison};
use crate::types::Scalar;

/// The most operations of one formula.
pub(crate) const PARTS: usize = 24;
/// Numbers that all operations go over before the next ones.
const TILE: usize = 256;
/// The most numbers of a vector.
const WIDEST: usize = 16;
/// The most operands.
const OPERANDS: usize = 4;

/// What an operation of a formula works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormulaOperand<R> {
    /// The bits of a number for ever.
    Constant(u64),
    Run(R),
    /// What an operation of the formula has made.
    Part(usize),
}

/// An operation of a formula, on numbers or conditions that are there.
#[derive(Clone, Debug)]
pub(crate) enum FormulaPart<R> {
    Calculate(Arithmetic, [FormulaOperand<R>; 2]),
    Negate(FormulaOperand<R>),
    Compare(Comparison, [FormulaOperand<R>; 2]),
    /// A run of conditions.
    Condition(R),
    /// Two conditions become one.
    Both(BitwiseOp, [usize; 2]),
    Not(usize),
    /// The first where the condition holds, otherwise the second.
    Choose(usize, [FormulaOperand<R>; 2]),
    /// The third where the relation of the first to the second holds, otherwise the fourth.
    ChooseBy(Comparison, [FormulaOperand<R>; 4]),
    Lut(FormulaOperand<R>, Lookup),
}

/// A table of entries.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    pub table: Arc<[u64]>,
    pub places: Places,
}

impl<R: Copy> FormulaOperand<R> {
    fn run(self) -> Option<R> {
        match self {
            FormulaOperand::Run(run) => Some(run),
            _ => None,
        }
    }

    fn map<T>(self, f: impl Fn(R) -> T) -> FormulaOperand<T> {
        match self {
            FormulaOperand::Constant(bits) => FormulaOperand::Constant(bits),
            FormulaOperand::Run(run) => FormulaOperand::Run(f(run)),
            FormulaOperand::Part(part) => FormulaOperand::Part(part),
        }
    }
}

impl<R: Copy> FormulaPart<R> {
    /// What it works on; conditions are parts.
    pub fn operands(&self) -> [Option<FormulaOperand<R>>; OPERANDS] {
        match *self {
            FormulaPart::Calculate(_, [a, b]) | FormulaPart::Compare(_, [a, b]) => {
                [Some(a), Some(b), None, None]
            }
            FormulaPart::Negate(a) | FormulaPart::Lut(a, _) => [Some(a), None, None, None],
            FormulaPart::Condition(_) => [None; 4],
            FormulaPart::Both(_, both) => {
                let [a, b] = both.map(|part| Some(FormulaOperand::Part(part)));
                [a, b, None, None]
            }
            FormulaPart::Not(a) => [Some(FormulaOperand::Part(a)), None, None, None],
            FormulaPart::Choose(c, [a, b]) => {
                [Some(FormulaOperand::Part(c)), Some(a), Some(b), None]
            }
            FormulaPart::ChooseBy(_, all) => all.map(Some),
        }
    }

    /// The runs that it reads.
    pub fn runs(&self) -> impl Iterator<Item = R> + use<R> {
        let condition = match self {
            FormulaPart::Condition(run) => Some(*run),
            _ => None,
        };
        let operands = self.operands().into_iter().flatten();
        operands.filter_map(FormulaOperand::run).chain(condition)
    }

    /// Gives the parts that it works on other numbers.
    pub fn renumber(&mut self, f: impl Fn(usize) -> usize) {
        let operand = |operand: &mut FormulaOperand<R>| {
            if let FormulaOperand::Part(part) = operand {
                *part = f(*part);
            }
        };
        match self {
            FormulaPart::Calculate(_, ab) | FormulaPart::Compare(_, ab) => {
                ab.iter_mut().for_each(operand)
            }
            FormulaPart::Negate(a) | FormulaPart::Lut(a, _) => operand(a),
            FormulaPart::Condition(_) => {}
            FormulaPart::Both(_, both) => both.iter_mut().for_each(|part| *part = f(*part)),
            FormulaPart::Not(a) => *a = f(*a),
            FormulaPart::Choose(c, ab) => {
                *c = f(*c);
                ab.iter_mut().for_each(operand);
            }
            FormulaPart::ChooseBy(_, all) => all.iter_mut().for_each(operand),
        }
    }

    pub fn map<T>(self, f: impl Fn(R) -> T) -> FormulaPart<T> {
        match self {
            FormulaPart::Calculate(with, ab) => {
                FormulaPart::Calculate(with, ab.map(|operand| operand.map(&f)))
            }
            FormulaPart::Negate(a) => FormulaPart::Negate(a.map(f)),
            FormulaPart::Compare(relation, ab) => {
                FormulaPart::Compare(relation, ab.map(|operand| operand.map(&f)))
            }
            FormulaPart::Condition(run) => FormulaPart::Condition(f(run)),
            FormulaPart::Both(with, both) => FormulaPart::Both(with, both),
            FormulaPart::Not(a) => FormulaPart::Not(a),
            FormulaPart::Choose(c, ab) => FormulaPart::Choose(c, ab.map(|operand| operand.map(&f))),
            FormulaPart::ChooseBy(relation, all) => {
                FormulaPart::ChooseBy(relation, all.map(|operand| operand.map(&f)))
            }
            FormulaPart::Lut(a, lookup) => FormulaPart::Lut(a.map(f), lookup),
        }
    }
}

/// Where an operand's numbers are: the address of the first, how far the next one is, and how much
/// further those of the next tile are for each number of a tile.
#[derive(Clone, Copy)]
struct Cursor<T> {
    first: *const T,
    step: usize,
    along: usize,
}

/// Room for what the operations make of one tile.
type Slots<T> = [MaybeUninit<[T; TILE]>; PARTS];

struct Formula<'a, T> {
    parts: &'a [FormulaPart<View>],
    cursors: &'a [[Cursor<T>; OPERANDS]],
    /// The conditions of runs.
    conditions: &'a [&'a [u8]],
    slots: *mut [T; TILE],
    /// Whether entries of tables are read many at once.
    at_once: bool,
    out: &'a mut [T],
}

impl<T: Float> Formula<'_, T> {
    /// All operations for some numbers: whole vectors, at most a tile.
    ///
    /// # Safety
    ///
    /// That of [`Lanes`](super::vector::Lanes); runs and outputs have numbers for all of them, and
    /// operations work on what is there.
    #[inline(always)]
    unsafe fn tile<V: Choice<Real = T>>(&mut self, at: usize, numbers: usize) {
        // SAFETY: the caller's; slots are as long as tiles, and are written before they are read.
        unsafe {
            for (index, part) in self.parts.iter().enumerate() {
                let to: *mut T = if index + 1 == self.parts.len() {
                    self.out.as_mut_ptr().add(at)
                } else {
                    self.slots.add(index).cast()
                };
                let cursors = &self.cursors[index];
                let [a, b, c, d] = [0, 1, 2, 3].map(|operand| {
                    let cursor = cursors[operand];
                    (cursor.first.wrapping_add(cursor.along * at), cursor.step)
                });
                macro_rules! by {
                    ($a:ident, $b:ident => $value:expr) => {
                        each!(a, b, c, d => { let ($a, $b) = (a, b); $value }.choose(c, d))
                    };
                }
                macro_rules! each {
                    ($($name:ident),* => $value:expr) => {{
                        let mut number = 0;
                        while number < numbers {
                            $(let $name = V::load($name.0.add($name.1 * number));)*
                            $value.store(to.add(number));
                            number += V::COUNT;
                        }
                    }};
                }
                match part {
                    FormulaPart::Calculate(Arithmetic::Add, _) => each!(a, b => a.add(b)),
                    FormulaPart::Calculate(Arithmetic::Subtract, _) => each!(a, b => a.sub(b)),
                    FormulaPart::Calculate(Arithmetic::Multiply, _) => each!(a, b => a.mul(b)),
                    FormulaPart::Calculate(Arithmetic::Divide, _) => each!(a, b => a.div(b)),
                    FormulaPart::Negate(_) => each!(a => a.neg()),
                    FormulaPart::Compare(Comparison::Less, _) => each!(a, b => a.less(b)),
                    FormulaPart::Compare(Comparison::LessEqual, _) => {
                        each!(a, b => a.less_equal(b))
                    }
                    FormulaPart::Compare(Comparison::Greater, _) => each!(a, b => b.less(a)),
                    FormulaPart::Compare(Comparison::GreaterEqual, _) => {
                        each!(a, b => b.less_equal(a))
                    }
                    FormulaPart::Compare(Comparison::Equal, _) => each!(a, b => a.equal(b)),
                    FormulaPart::Compare(Comparison::Unequal, _) => each!(a, b => a.equal(b).not()),
                    FormulaPart::Condition(_) => {
                        let conditions = &self.conditions[index][at..at + numbers];
                        for (number, &condition) in conditions.iter().enumerate() {
                            to.add(number).write(T::condition(condition != 0));
                        }
                    }
                    FormulaPart::Both(BitwiseOp::And, _) => each!(a, b => a.and(b)),
                    FormulaPart::Both(BitwiseOp::Or, _) => each!(a, b => a.or(b)),
                    FormulaPart::Both(_, _) => each!(a, b => a.xor(b)),
                    FormulaPart::Not(_) => each!(a => a.not()),
                    FormulaPart::Choose(..) => each!(a, b, c => a.choose(b, c)),
                    FormulaPart::ChooseBy(Comparison::Less, _) => by!(a, b => a.less(b)),
                    FormulaPart::ChooseBy(Comparison::LessEqual, _) => by!(a, b => a.less_equal(b)),
                    FormulaPart::ChooseBy(Comparison::Greater, _) => by!(a, b => b.less(a)),
                    FormulaPart::ChooseBy(Comparison::GreaterEqual, _) => {
                        by!(a, b => b.less_equal(a))
                    }
                    FormulaPart::ChooseBy(Comparison::Equal, _) => by!(a, b => a.equal(b)),
                    FormulaPart::ChooseBy(Comparison::Unequal, _) => by!(a, b => a.equal(b).not()),
                    FormulaPart::Lut(_, lookup) => {
                        let mut places = [0i32; TILE];
                        // Of a constant there are no numbers for a whole tile.
                        if a.1 == 0 {
                            places[..numbers].fill(lookup.places.of((*a.0).wide()));
                        } else {
                            V::places(a.0, &lookup.places, &mut places[..numbers]);
                        }
                        let (places, entries) = (places.as_ptr(), lookup.table.as_ptr());
                        if self.at_once {
                            gathers::at_once::<V>(places, entries, to, numbers);
                        } else {
                            gathers::singly(places, entries, to, numbers);
                        }
                    }
                }
            }
        }
    }

    /// # Safety
    ///
    /// As for a tile.
    #[inline(always)]
    unsafe fn all<V: Choice<Real = T>>(&mut self) {
        let count = self.out.len();
        let mut at = 0;
        // SAFETY: the caller's.
        unsafe {
            while at < count {
                let numbers = TILE.min(count - at);
                let whole = numbers - numbers % V::COUNT;
                if whole > 0 {
                    self.tile::<V>(at, whole);
                }
                if whole < numbers {
                    self.tile::<Array<T, 1>>(at + whole, numbers - whole);
                }
                at += numbers;
            }
        }
    }
}

impl<T: Float> Work for Formula<'_, T> {
    type Result = ();
    #[inline(always)]
    fn work(mut self, width: Width) {
        // SAFETY: the processor has the vectors of the width that is given; the rest has been seen
        // to when the formula was made.
        unsafe {
            match width {
                Width::Any => self.all::<Array<T>>(),
                Width::Half => self.all::<T::Half>(),
                Width::Full => self.all::<T::Full>(),
            }
        }
    }
}

pub(super) fn run(d: View, parts: &[FormulaPart<View>], memory: &mut Memory) {
    match d.scalar {
        Scalar::F32 => formula::<f32>(d, parts, memory),
        _ => formula::<f64>(d, parts, memory),
    }
}

fn formula<T: Float>(d: View, parts: &[FormulaPart<View>], memory: &mut Memory) {
    let level = memory.level;
    memory.write::<T, _>(d, |out, inputs: Inputs| {
        assert!(!parts.is_empty() && parts.len() <= PARTS);
        let mut constants =
            [const { [const { MaybeUninit::<[T; WIDEST]>::uninit() }; OPERANDS] }; PARTS];
        let mut slots: Slots<T> = [const { MaybeUninit::uninit() }; PARTS];
        let slots: *mut [T; TILE] = slots.as_mut_ptr().cast();
        let none = Cursor {
            first: slots.cast_const().cast(),
            step: 0,
            along: 0,
        };
        let mut cursors = [[none; OPERANDS]; PARTS];
        let mut conditions: [&[u8]; PARTS] = [&[]; PARTS];
        for (index, part) in parts.iter().enumerate() {
            for (which, operand) in part.operands().into_iter().enumerate() {
                let cursor = match operand {
                    None => continue,
                    Some(FormulaOperand::Constant(bits)) => Cursor {
                        first: constants[index][which]
                            .write([T::from_bits(bits); WIDEST])
                            .as_ptr(),
                        step: 0,
                        along: 0,
                    },
                    Some(FormulaOperand::Run(view)) => {
                        let numbers = inputs.get::<T>(view);
                        assert_eq!(numbers.len(), out.len());
                        Cursor {
                            first: numbers.as_ptr(),
                            step: 1,
                            along: 1,
                        }
                    }
                    Some(FormulaOperand::Part(made)) => {
                        assert!(made < index);
                        Cursor {
                            first: slots.wrapping_add(made).cast_const().cast(),
                            step: 1,
                            along: 0,
                        }
                    }
                };
                cursors[index][which] = cursor;
            }
            match part {
                FormulaPart::Condition(view) => {
                    conditions[index] = inputs.get::<u8>(*view);
                    assert_eq!(conditions[index].len(), out.len());
                }
                FormulaPart::Lut(_, lookup) => assert!(!lookup.table.is_empty()),
                _ => {}
            }
        }
        let formula = Formula {
            parts,
            cursors: &cursors[..parts.len()],
            conditions: &conditions,
            slots,
            at_once: !level.is_full() || gathers::pay(level),
            out,
        };
        simd::at(level, formula);
    });
}
