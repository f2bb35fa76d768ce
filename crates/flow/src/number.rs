//! Real numbers with the exact arithmetic of their machine types.

use std::cmp::Ordering;

use crate::quotient::{Quotient, whole};
use crate::types::Scalar;

/// A real number of some [`Scalar`] type.
///
/// Whole numbers and booleans are kept in 128 bits and brought back to their type's range by
/// wrapping. That is slow, and plainly right: the interpreter is held against nothing simpler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Any whole number, or a boolean as 0 and 1.
    Int(i128),
    /// Single precision.
    F32(f32),
    /// Double precision.
    F64(f64),
}

/// How a fraction becomes a whole number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rounding {
    /// Towards zero, as a cast in Rust or C.
    #[default]
    Zero,
    /// Towards minus infinity.
    Floor,
    /// To the nearest, halves to even.
    Nearest,
}

fn wrap(value: i128, scalar: Scalar) -> Number {
    Number::Int(match scalar {
        Scalar::Bool => i128::from(value != 0),
        Scalar::I8 => (value as i8).into(),
        Scalar::U8 => (value as u8).into(),
        Scalar::I16 => (value as i16).into(),
        Scalar::U16 => (value as u16).into(),
        Scalar::I32 => (value as i32).into(),
        Scalar::U32 => (value as u32).into(),
        Scalar::I64 => (value as i64).into(),
        Scalar::U64 => (value as u64).into(),
        Scalar::F32 | Scalar::F64 => value,
    })
}

/// A float as a whole number: out of range becomes the nearest end, not-a-number becomes 0.
fn saturate(value: f64, scalar: Scalar) -> i128 {
    match scalar {
        Scalar::Bool => i128::from(value != 0.0),
        Scalar::I8 => (value as i8).into(),
        Scalar::U8 => (value as u8).into(),
        Scalar::I16 => (value as i16).into(),
        Scalar::U16 => (value as u16).into(),
        Scalar::I32 => (value as i32).into(),
        Scalar::U32 => (value as u32).into(),
        Scalar::I64 => (value as i64).into(),
        Scalar::U64 => (value as u64).into(),
        Scalar::F32 | Scalar::F64 => value as i128,
    }
}

/// Order of a whole number and a float by value. As a float the whole number may be another one.
fn compare_whole(whole: i128, float: f64) -> Option<Ordering> {
    // From here on a float is above all whole numbers of 128 bits.
    const ABOVE: f64 = (1u128 << 127) as f64;
    if float.is_nan() {
        return None;
    }
    let floor = float.floor();
    if floor >= ABOVE {
        return Some(Ordering::Less);
    }
    // What is below all of them becomes the least one, which no type has.
    let fraction = floor.partial_cmp(&float).unwrap_or(Ordering::Equal);
    Some(whole.cmp(&(floor as i128)).then(fraction))
}

macro_rules! arithmetic {
    ($($(#[$doc:meta])* $name:ident: $int:expr, $float:tt;)*) => {
        $($(#[$doc])*
        pub fn $name(self, other: Number, scalar: Scalar) -> Number {
            match (self.cast(scalar), other.cast(scalar)) {
                (Number::Int(a), Number::Int(b)) => {
                    let operation: fn(i128, i128) -> i128 = $int;
                    wrap(operation(a, b), scalar)
                }
                (Number::F32(a), Number::F32(b)) => Number::F32(a $float b),
                (a, b) => Number::F64(a.to_f64() $float b.to_f64()),
            }
        })*
    };
}

impl Number {
    /// Zero, or false.
    pub fn zero(scalar: Scalar) -> Number {
        Number::Int(0).cast(scalar)
    }

    /// The number in another type, rounded towards zero: `as` of Rust.
    pub fn cast(self, scalar: Scalar) -> Number {
        self.cast_rounded(scalar, Rounding::Zero)
    }

    /// The number in another type. Whole numbers wrap, floats saturate, anything but 0 is true.
    pub fn cast_rounded(self, scalar: Scalar, rounding: Rounding) -> Number {
        match (self, scalar) {
            (Number::Int(value), Scalar::F32) => Number::F32(value as f32),
            (Number::Int(value), Scalar::F64) => Number::F64(value as f64),
            (Number::Int(value), _) => wrap(value, scalar),
            (Number::F32(value), Scalar::F32) => Number::F32(value),
            (Number::F64(value), Scalar::F32) => Number::F32(value as f32),
            (value, Scalar::F64) => Number::F64(value.to_f64()),
            (value, Scalar::Bool) => Number::Int(saturate(value.to_f64(), Scalar::Bool)),
            (value, _) => {
                let value = value.to_f64();
                let rounded = match rounding {
                    Rounding::Zero => value,
                    Rounding::Floor => value.floor(),
                    Rounding::Nearest => value.round_ties_even(),
                };
                Number::Int(saturate(rounded, scalar))
            }
        }
    }

    /// The number whose bits in another type of as many bytes are those of this one. All
    /// not-a-numbers have the same bits.
    pub(crate) fn reinterpreted(self, scalar: Scalar) -> Number {
        let bits = match self {
            Number::Int(value) => value,
            Number::F32(value) if value.is_nan() => f32::NAN.to_bits().into(),
            Number::F32(value) => value.to_bits().into(),
            Number::F64(value) if value.is_nan() => f64::NAN.to_bits().into(),
            Number::F64(value) => value.to_bits().into(),
        };
        match scalar {
            Scalar::F32 => Number::F32(f32::from_bits(bits as u32)),
            Scalar::F64 => Number::F64(f64::from_bits(bits as u64)),
            _ => wrap(bits, scalar),
        }
    }

    /// Whether a type has this number: whole numbers neither wrap nor lose a fraction. Floats have
    /// all in their range but for rounding, and anything is true or false.
    pub fn fits(self, scalar: Scalar) -> bool {
        match (self, self.cast(scalar)) {
            // Infinity is none of a number, but of infinity.
            (number, float @ (Number::F32(_) | Number::F64(_))) => {
                float.to_f64().is_finite() || !number.to_f64().is_finite()
            }
            _ if scalar == Scalar::Bool => true,
            (Number::Int(value), Number::Int(cast)) => value == cast,
            // As a float the cast number may be another one: 2⁶³ - 1 is 2⁶³ there.
            (float, Number::Int(cast)) => {
                let value = float.to_f64();
                value.fract() == 0.0 && value as i128 == cast
            }
        }
    }

    /// The number in double precision. Whole numbers beyond 2⁵³ are rounded.
    pub fn to_f64(self) -> f64 {
        match self {
            Number::Int(value) => value as f64,
            Number::F32(value) => value.into(),
            Number::F64(value) => value,
        }
    }

    /// Whether the number is not 0.
    pub fn is_true(self) -> bool {
        match self {
            Number::Int(value) => value != 0,
            float => float.to_f64() != 0.0,
        }
    }

    arithmetic! {
        /// Sum in `scalar`, to which both are cast first. Whole numbers wrap.
        add: |a, b| a.wrapping_add(b), +;
        /// Difference in `scalar`.
        sub: |a, b| a.wrapping_sub(b), -;
        /// Product in `scalar`.
        mul: |a, b| a.wrapping_mul(b), *;
        /// Quotient in `scalar`: whole numbers towards zero, and 0 for a divisor of 0.
        div: |a, b| if b == 0 { 0 } else { a / b }, /;
    }

    /// `self · factor + sum` in `scalar`, rounded once where that is a float.
    pub fn mul_add(self, factor: Number, sum: Number, scalar: Scalar) -> Number {
        match (self.cast(scalar), factor.cast(scalar), sum.cast(scalar)) {
            (Number::F32(a), Number::F32(b), Number::F32(c)) => Number::F32(a.mul_add(b, c)),
            (Number::F64(a), Number::F64(b), Number::F64(c)) => Number::F64(a.mul_add(b, c)),
            (a, b, c) => a.mul(b, scalar).add(c, scalar),
        }
    }

    /// The negative in `scalar`. A float's sign bit is turned, so -0 comes of 0.
    pub fn neg(self, scalar: Scalar) -> Number {
        match self.cast(scalar) {
            Number::Int(value) => wrap(value.wrapping_neg(), scalar),
            Number::F32(value) => Number::F32(-value),
            Number::F64(value) => Number::F64(-value),
        }
    }

    /// The real and the imaginary part of a quotient of complex numbers in `scalar`, given by
    /// theirs, all of which are cast first. Whole numbers are cut towards zero and wrap, and are 0
    /// for a divisor of 0.
    pub(crate) fn quotient(a: [Number; 2], b: [Number; 2], scalar: Scalar) -> [Number; 2] {
        fn both<T: Quotient>(a: [T; 2], b: [T; 2]) -> [T; 2] {
            [T::quotient::<false>(a, b), T::quotient::<true>(a, b)]
        }
        match scalar {
            Scalar::F32 => {
                let single = |number: Number| match number.cast(Scalar::F32) {
                    Number::F32(value) => value,
                    other => other.to_f64() as f32,
                };
                both(a.map(single), b.map(single)).map(Number::F32)
            }
            Scalar::F64 => both(a.map(Number::to_f64), b.map(Number::to_f64)).map(Number::F64),
            _ => {
                let integer = |number: Number| match number.cast(scalar) {
                    Number::Int(value) => value,
                    other => other.to_f64() as i128,
                };
                let (a, b) = (a.map(integer), b.map(integer));
                [whole::<false>(a, b), whole::<true>(a, b)].map(|part| wrap(part, scalar))
            }
        }
    }

    /// Order of two numbers by value, whatever their types; none with not-a-number.
    pub fn compare(self, other: Number) -> Option<Ordering> {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => Some(a.cmp(&b)),
            (Number::Int(a), b) => compare_whole(a, b.to_f64()),
            (a, Number::Int(b)) => compare_whole(b, a.to_f64()).map(Ordering::reverse),
            (a, b) => a.to_f64().partial_cmp(&b.to_f64()),
        }
    }

    /// Appends the little-endian bytes of the number in `scalar`.
    pub fn write(self, scalar: Scalar, bytes: &mut Vec<u8>) {
        match self.cast(scalar) {
            Number::Int(value) => bytes.extend_from_slice(&value.to_le_bytes()[..scalar.bytes()]),
            Number::F32(value) => bytes.extend_from_slice(&value.to_le_bytes()),
            Number::F64(value) => bytes.extend_from_slice(&value.to_le_bytes()),
        }
    }

    /// Reads a number of `scalar` from the start of `bytes`, if there are enough.
    pub fn read(scalar: Scalar, bytes: &[u8]) -> Option<Number> {
        let bytes = bytes.get(..scalar.bytes())?;
        Some(match scalar {
            Scalar::F32 => Number::F32(f32::from_le_bytes(bytes.try_into().ok()?)),
            Scalar::F64 => Number::F64(f64::from_le_bytes(bytes.try_into().ok()?)),
            _ => {
                let mut wide = [0; 16];
                wide[..bytes.len()].copy_from_slice(bytes);
                wrap(i128::from_le_bytes(wide), scalar)
            }
        })
    }
}
