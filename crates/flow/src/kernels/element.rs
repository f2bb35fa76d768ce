//! Operations on each number by itself.

use bytemuck::Pod;

use super::execute::{Memory, Operation, View};
use super::op::{Arithmetic, Fold, Op};
use crate::number::Rounding;
use crate::operators::{BitwiseOp, Comparison, ShiftKind};
use crate::quotient::Quotient;
use crate::types::Scalar;

/// A machine type with the arithmetic of [`Number`](crate::Number).
pub(super) trait Real: Pod + PartialOrd + Default {
    /// Whether filters of this type are worth tiles.
    const FLOAT: bool;
    /// The number with these bits in the low end of a word.
    fn from_bits(bits: u64) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    fn neg(self) -> Self;
    fn fused(self, factor: Self, sum: Self) -> Self;
}

macro_rules! whole {
    ($($kind:ty),*) => {$(
        impl Real for $kind {
            const FLOAT: bool = false;
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as $kind
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                if other == 0 { 0 } else { self.wrapping_div(other) }
            }
            #[inline(always)]
            fn neg(self) -> Self {
                self.wrapping_neg()
            }
            #[inline(always)]
            fn fused(self, factor: Self, sum: Self) -> Self {
                self.wrapping_mul(factor).wrapping_add(sum)
            }
        }
    )*};
}

whole!(i8, u8, i16, u16, i32, u32, i64, u64);

macro_rules! float {
    ($($kind:ident),*) => {$(
        impl Real for $kind {
            const FLOAT: bool = true;
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                $kind::from_bits(bits as _)
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self - other
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                self / other
            }
            #[inline(always)]
            fn neg(self) -> Self {
                -self
            }
            #[inline(always)]
            fn fused(self, factor: Self, sum: Self) -> Self {
                self.mul_add(factor, sum)
            }
        }
    )*};
}

float!(f32, f64);

/// Whether a relation holds.
#[inline(always)]
pub(super) fn holds<T: PartialOrd>(relation: Comparison, x: T, y: T) -> bool {
    match relation {
        Comparison::Less => x < y,
        Comparison::LessEqual => x <= y,
        Comparison::Greater => x > y,
        Comparison::GreaterEqual => x >= y,
        Comparison::Equal => x == y,
        Comparison::Unequal => x != y,
    }
}

#[inline(always)]
fn unary<A: Pod, D: Pod>(memory: &mut Memory, d: View, a: View, f: impl Fn(A) -> D) {
    memory.write::<D, _>(d, |out, inputs| {
        for (out, &a) in out.iter_mut().zip(inputs.get::<A>(a)) {
            *out = f(a);
        }
    });
}

#[inline(always)]
fn binary<A: Pod, D: Pod>(
    memory: &mut Memory,
    d: View,
    (a, b): (View, View),
    f: impl Fn(A, A) -> D,
) {
    memory.write::<D, _>(d, |out, inputs| {
        let (a, b) = (inputs.get::<A>(a), inputs.get::<A>(b));
        for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
            *out = f(a, b);
        }
    });
}

#[inline(always)]
fn ternary<T: Pod>(memory: &mut Memory, d: View, from: [View; 3], f: impl Fn(T, T, T) -> T) {
    memory.write::<T, _>(d, |out, inputs| {
        let [a, b, c] = from.map(|view| inputs.get::<T>(view));
        for (((out, &a), &b), &c) in out.iter_mut().zip(a).zip(b).zip(c) {
            *out = f(a, b, c);
        }
    });
}

/// Parts of quotients: by the formula, and anew where that is not right for all of some numbers.
#[inline(always)]
fn quotient<T: Pod + Quotient, const IMAGINARY: bool>(
    memory: &mut Memory,
    d: View,
    a: [View; 2],
    b: [View; 2],
) {
    const TILE: usize = 64;
    memory.write::<T, _>(d, |out, inputs| {
        let [re, im, c, d] = [a[0], a[1], b[0], b[1]].map(|view| inputs.get::<T>(view));
        for (tile, out) in out.chunks_mut(TILE).enumerate() {
            let [re, im, c, d] = [re, im, c, d].map(|numbers| &numbers[TILE * tile..][..out.len()]);
            let mut all = true;
            for (at, out) in out.iter_mut().enumerate() {
                let (part, right) = T::by_formula::<IMAGINARY>([re[at], im[at]], [c[at], d[at]]);
                *out = part;
                all &= right;
            }
            if !all {
                for (at, out) in out.iter_mut().enumerate() {
                    *out = T::quotient::<IMAGINARY>([re[at], im[at]], [c[at], d[at]]);
                }
            }
        }
    });
}

#[inline(always)]
fn chosen<X: Real, T: Pod>(memory: &mut Memory, relation: Comparison, d: View, from: [View; 4]) {
    macro_rules! by {
        ($relation:tt) => {
            memory.write::<T, _>(d, |out, inputs| {
                let (x, y) = (inputs.get::<X>(from[0]), inputs.get::<X>(from[1]));
                let (a, b) = (inputs.get::<T>(from[2]), inputs.get::<T>(from[3]));
                let from = x.iter().zip(y).zip(a).zip(b);
                for (out, (((x, y), &a), &b)) in out.iter_mut().zip(from) {
                    *out = if x $relation y { a } else { b };
                }
            })
        };
    }
    match relation {
        Comparison::Less => by!(<),
        Comparison::LessEqual => by!(<=),
        Comparison::Greater => by!(>),
        Comparison::GreaterEqual => by!(>=),
        Comparison::Equal => by!(==),
        Comparison::Unequal => by!(!=),
    }
}

/// Does `$body` with `$t` as the machine type of a scalar, but for booleans.
macro_rules! typed {
    ($scalar:expr, $t:ident => $body:expr) => {
        match $scalar {
            Scalar::I8 => {
                type $t = i8;
                $body
            }
            Scalar::U8 | Scalar::Bool => {
                type $t = u8;
                $body
            }
            Scalar::I16 => {
                type $t = i16;
                $body
            }
            Scalar::U16 => {
                type $t = u16;
                $body
            }
            Scalar::I32 => {
                type $t = i32;
                $body
            }
            Scalar::U32 => {
                type $t = u32;
                $body
            }
            Scalar::I64 => {
                type $t = i64;
                $body
            }
            Scalar::U64 => {
                type $t = u64;
                $body
            }
            Scalar::F32 => {
                type $t = f32;
                $body
            }
            Scalar::F64 => {
                type $t = f64;
                $body
            }
        }
    };
}
pub(super) use typed;

/// The same for words of a size, where the type does not matter.
macro_rules! sized {
    ($scalar:expr, $t:ident => $body:expr) => {
        match $scalar.bytes() {
            1 => {
                type $t = u8;
                $body
            }
            2 => {
                type $t = u16;
                $body
            }
            4 => {
                type $t = u32;
                $body
            }
            _ => {
                type $t = u64;
                $body
            }
        }
    };
}
pub(super) use sized;

/// Does an operation of this kind; false if it is none.
#[inline(always)]
pub(super) fn run(op: &Operation, memory: &mut Memory) -> bool {
    match *op {
        Op::Copy { d, a } => sized!(d.scalar, T => unary::<T, T>(memory, d, a, |a| a)),
        Op::Cast { d, a, rounding } => cast(memory, d, a, rounding),
        Op::Calculate { with, d, a, b } => typed!(d.scalar, T => match with {
            Arithmetic::Add => binary::<T, T>(memory, d, (a, b), Real::add),
            Arithmetic::Subtract => binary::<T, T>(memory, d, (a, b), Real::sub),
            Arithmetic::Multiply => binary::<T, T>(memory, d, (a, b), Real::mul),
            Arithmetic::Divide => binary::<T, T>(memory, d, (a, b), Real::div),
        }),
        Op::Quotient { imaginary, d, a, b } => typed!(d.scalar, T => match imaginary {
            false => quotient::<T, false>(memory, d, a, b),
            true => quotient::<T, true>(memory, d, a, b),
        }),
        Op::Fold { with, d, a, b, c } => typed!(d.scalar, T => match with {
            Fold::Add => ternary::<T>(memory, d, [a, b, c], |a, b, c| a.mul(b).add(c)),
            Fold::Less => ternary::<T>(memory, d, [a, b, c], |a, b, c| a.mul(b).sub(c)),
            Fold::From => ternary::<T>(memory, d, [a, b, c], |a, b, c| c.sub(a.mul(b))),
        }),
        Op::Negate { d, a } => typed!(d.scalar, T => unary::<T, T>(memory, d, a, Real::neg)),
        Op::Compare { relation, d, a, b } => typed!(a.scalar, T => match relation {
            Comparison::Less => binary::<T, u8>(memory, d, (a, b), |a, b| (a < b).into()),
            Comparison::LessEqual => binary::<T, u8>(memory, d, (a, b), |a, b| (a <= b).into()),
            Comparison::Greater => binary::<T, u8>(memory, d, (a, b), |a, b| (a > b).into()),
            Comparison::GreaterEqual => binary::<T, u8>(memory, d, (a, b), |a, b| (a >= b).into()),
            Comparison::Equal => binary::<T, u8>(memory, d, (a, b), |a, b| (a == b).into()),
            Comparison::Unequal => binary::<T, u8>(memory, d, (a, b), |a, b| (a != b).into()),
        }),
        Op::Bits { with, d, a, b } => sized!(d.scalar, T => match with {
            BitwiseOp::And => binary::<T, T>(memory, d, (a, b), |a, b| a & b),
            BitwiseOp::Or => binary::<T, T>(memory, d, (a, b), |a, b| a | b),
            BitwiseOp::Xor => binary::<T, T>(memory, d, (a, b), |a, b| a ^ b),
            BitwiseOp::Not => return false,
        }),
        Op::Not { d, a } if d.scalar == Scalar::Bool => unary::<u8, u8>(memory, d, a, |a| a ^ 1),
        Op::Not { d, a } => sized!(d.scalar, T => unary::<T, T>(memory, d, a, |a| !a)),
        Op::Shift {
            direction,
            by,
            d,
            a,
        } => shift(memory, direction, by, d, a),
        Op::Choose { d, c, a, b } => sized!(d.scalar, T => memory.write::<T, _>(d, |out, inputs| {
            let c = inputs.get::<u8>(c);
            let (a, b) = (inputs.get::<T>(a), inputs.get::<T>(b));
            for (((out, &c), &a), &b) in out.iter_mut().zip(c).zip(a).zip(b) {
                *out = if c != 0 { a } else { b };
            }
        })),
        Op::ChooseBy {
            relation,
            d,
            x,
            y,
            a,
            b,
        } if d.scalar.bytes() == 4 => chosen::<f32, u32>(memory, relation, d, [x, y, a, b]),
        Op::ChooseBy {
            relation,
            d,
            x,
            y,
            a,
            b,
        } => chosen::<f64, u64>(memory, relation, d, [x, y, a, b]),
        Op::Clamp { d, a, low, high } => {
            typed!(d.scalar, T => memory.write::<T, _>(d, |out, inputs| {
                let (low, high) = (inputs.get::<T>(low), inputs.get::<T>(high));
                let a = inputs.get::<T>(a);
                for (((out, &a), &low), &high) in out.iter_mut().zip(a).zip(low).zip(high) {
                    *out = if a < low { low } else if a > high { high } else { a };
                }
            }))
        }
        _ => return false,
    }
    true
}

#[inline(always)]
fn shift(memory: &mut Memory, direction: ShiftKind, by: u32, d: View, a: View) {
    macro_rules! shifts {
        ($kind:ty, $word:ty) => {{
            let bits = <$kind>::BITS;
            match direction {
                ShiftKind::Left if by >= bits => unary(memory, d, a, |_: $kind| 0 as $kind),
                ShiftKind::Left => unary(memory, d, a, |a: $kind| a << by),
                ShiftKind::RightArithmetic => unary(memory, d, a, |a: $kind| a >> by.min(bits - 1)),
                ShiftKind::RightLogical if by >= bits => unary(memory, d, a, |_: $word| 0 as $word),
                ShiftKind::RightLogical => unary(memory, d, a, |a: $word| a >> by),
            }
        }};
    }
    match d.scalar {
        Scalar::I8 => shifts!(i8, u8),
        Scalar::U8 if by >= 8 => unary(memory, d, a, |_: u8| 0u8),
        Scalar::U8 => shifts!(u8, u8),
        Scalar::I16 => shifts!(i16, u16),
        Scalar::U16 if by >= 16 => unary(memory, d, a, |_: u16| 0u16),
        Scalar::U16 => shifts!(u16, u16),
        Scalar::I32 => shifts!(i32, u32),
        Scalar::U32 if by >= 32 => unary(memory, d, a, |_: u32| 0u32),
        Scalar::U32 => shifts!(u32, u32),
        Scalar::I64 => shifts!(i64, u64),
        _ => shifts!(u64, u64),
    }
}

#[inline(always)]
fn cast(memory: &mut Memory, d: View, a: View, rounding: Rounding) {
    macro_rules! to {
        ($from:ty, $a:ident => $value:expr) => {
            match d.scalar {
                Scalar::Bool => unary(memory, d, a, |a: $from| u8::from(a != 0 as $from)),
                Scalar::I8 => unary(memory, d, a, |$a: $from| $value as i8),
                Scalar::U8 => unary(memory, d, a, |$a: $from| $value as u8),
                Scalar::I16 => unary(memory, d, a, |$a: $from| $value as i16),
                Scalar::U16 => unary(memory, d, a, |$a: $from| $value as u16),
                Scalar::I32 => unary(memory, d, a, |$a: $from| $value as i32),
                Scalar::U32 => unary(memory, d, a, |$a: $from| $value as u32),
                Scalar::I64 => unary(memory, d, a, |$a: $from| $value as i64),
                Scalar::U64 => unary(memory, d, a, |$a: $from| $value as u64),
                Scalar::F32 => unary(memory, d, a, |a: $from| a as f32),
                Scalar::F64 => unary(memory, d, a, |a: $from| a as f64),
            }
        };
    }
    match (a.scalar, rounding) {
        (Scalar::Bool | Scalar::U8, _) => to!(u8, a => a),
        (Scalar::I8, _) => to!(i8, a => a),
        (Scalar::I16, _) => to!(i16, a => a),
        (Scalar::U16, _) => to!(u16, a => a),
        (Scalar::I32, _) => to!(i32, a => a),
        (Scalar::U32, _) => to!(u32, a => a),
        (Scalar::I64, _) => to!(i64, a => a),
        (Scalar::U64, _) => to!(u64, a => a),
        (Scalar::F32, Rounding::Zero) => to!(f32, a => a),
        (Scalar::F64, Rounding::Zero) => to!(f64, a => a),
        (Scalar::F32, Rounding::Floor) => to!(f32, a => a.floor()),
        (Scalar::F64, Rounding::Floor) => to!(f64, a => a.floor()),
        (Scalar::F32, Rounding::Nearest) => to!(f32, a => a.round_ties_even()),
        (Scalar::F64, Rounding::Nearest) => to!(f64, a => a.round_ties_even()),
    }
}
