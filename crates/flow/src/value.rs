//! Samples: what one port carries in one cycle.

use crate::number::{Number, Rounding};
use crate::types::{Scalar, Type};

/// One sample of a [`Type`], with real and imaginary parts in two arrays.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    kind: Type,
    re: Vec<Number>,
    /// Empty where the type is real.
    im: Vec<Number>,
}

impl Value {
    /// All elements zero, or false.
    pub fn zero(kind: Type) -> Value {
        let zero = Number::zero(kind.scalar);
        Value {
            kind,
            re: vec![zero; kind.len],
            im: vec![zero; if kind.complex { kind.len } else { 0 }],
        }
    }

    /// A value of `kind` whose elements `element` gives, real and imaginary, by index. They are
    /// cast.
    pub fn build(kind: Type, mut element: impl FnMut(usize) -> (Number, Number)) -> Value {
        let mut value = Value {
            kind,
            re: Vec::with_capacity(kind.len),
            im: Vec::new(),
        };
        for index in 0..kind.len {
            let (re, im) = element(index);
            value.re.push(re.cast(kind.scalar));
            if kind.complex {
                value.im.push(im.cast(kind.scalar));
            }
        }
        value
    }

    /// The type.
    pub fn kind(&self) -> Type {
        self.kind
    }

    /// Real and imaginary part of one element. A scalar gives its one element for any index.
    pub fn element(&self, index: usize) -> (Number, Number) {
        let index = if self.kind.len == 1 { 0 } else { index };
        (
            self.re[index],
            self.im
                .get(index)
                .copied()
                .unwrap_or(Number::zero(self.kind.scalar)),
        )
    }

    /// The real part of the first element.
    pub fn first(&self) -> Number {
        self.re[0]
    }

    /// The real parts.
    pub fn re(&self) -> &[Number] {
        &self.re
    }

    /// The imaginary parts; none where the type is real.
    pub fn im(&self) -> &[Number] {
        &self.im
    }

    /// The value in another type. A scalar is spread over a vector, a real part gets an imaginary
    /// 0.
    pub fn cast(&self, kind: Type) -> Value {
        self.cast_rounded(kind, Rounding::Zero)
    }

    /// The value in another type, with a rounding for fractions that become whole numbers.
    pub fn cast_rounded(&self, kind: Type, rounding: Rounding) -> Value {
        Value::build(kind, |index| {
            let (re, im) = self.element(index);
            (
                re.cast_rounded(kind.scalar, rounding),
                im.cast_rounded(kind.scalar, rounding),
            )
        })
    }

    /// Appends the raw little-endian bytes, complex numbers interleaved.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        for index in 0..self.kind.len {
            let (re, im) = self.element(index);
            re.write(self.kind.scalar, bytes);
            if self.kind.complex {
                im.write(self.kind.scalar, bytes);
            }
        }
    }

    /// Reads one sample from the start of `bytes`, if there are enough. None of a type that
    /// [cannot be](Type::check).
    pub fn read(kind: Type, bytes: &[u8]) -> Option<Value> {
        kind.check().ok()?;
        let bytes = bytes.get(..kind.bytes())?;
        let step = kind.bytes() / kind.len;
        let read = |at: usize| Number::read(kind.scalar, &bytes[at..]);
        let mut value = Value {
            kind,
            re: Vec::with_capacity(kind.len),
            im: Vec::new(),
        };
        for index in 0..kind.len {
            value.re.push(read(index * step)?);
            if kind.complex {
                value.im.push(read(index * step + kind.scalar.bytes())?);
            }
        }
        Some(value)
    }

    /// Samples of `kind` from raw bytes, and the number of bytes left over at the end: all of them
    /// for a type that [cannot be](Type::check).
    pub fn read_all(kind: Type, bytes: &[u8]) -> (Vec<Value>, usize) {
        if kind.check().is_err() {
            return (Vec::new(), bytes.len());
        }
        let mut chunks = bytes.chunks_exact(kind.bytes());
        let values = chunks
            .by_ref()
            .filter_map(|chunk| Value::read(kind, chunk))
            .collect();
        (values, chunks.remainder().len())
    }

    /// The real parts in double precision, to look at.
    pub fn to_f64s(&self) -> Vec<f64> {
        self.re.iter().map(|number| number.to_f64()).collect()
    }
}

macro_rules! from_scalar {
    ($($native:ty => $scalar:ident, $number:expr;)*) => {
        $(impl From<$native> for Value {
            fn from(value: $native) -> Value {
                let number: fn($native) -> Number = $number;
                Value { kind: Type::of(Scalar::$scalar), re: vec![number(value)], im: Vec::new() }
            }
        })*
    };
}

from_scalar! {
    bool => Bool, |v| Number::Int(v.into());
    i8 => I8, |v| Number::Int(v.into());
    u8 => U8, |v| Number::Int(v.into());
    i16 => I16, |v| Number::Int(v.into());
    u16 => U16, |v| Number::Int(v.into());
    i32 => I32, |v| Number::Int(v.into());
    u32 => U32, |v| Number::Int(v.into());
    i64 => I64, |v| Number::Int(v.into());
    u64 => U64, |v| Number::Int(v.into());
    f32 => F32, Number::F32;
    f64 => F64, Number::F64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_numbers_have_the_arithmetic_of_their_rust_types() {
        let all = [i64::MIN, -129, -1, 0, 1, 127, 255, 40_000, i64::MAX];
        for a in all {
            for b in all {
                let (x, y) = (Number::Int(a.into()), Number::Int(b.into()));
                assert_eq!(
                    x.add(y, Scalar::I8),
                    Number::Int((a as i8).wrapping_add(b as i8).into())
                );
                assert_eq!(
                    x.mul(y, Scalar::U16),
                    Number::Int((a as u16).wrapping_mul(b as u16).into())
                );
                assert_eq!(
                    x.mul(y, Scalar::U64),
                    Number::Int((a as u64).wrapping_mul(b as u64).into())
                );
                assert_eq!(x.sub(y, Scalar::I64), Number::Int(a.wrapping_sub(b).into()));
                let quotient = (a as i32)
                    .checked_div(b as i32)
                    .unwrap_or(if b as i32 == 0 { 0 } else { i32::MIN });
                assert_eq!(x.div(y, Scalar::I32), Number::Int(quotient.into()));
            }
        }
    }

    #[test]
    fn a_type_has_no_number_beyond_its_last() {
        let fits = |number: f64, scalar| Number::F64(number).fits(scalar);
        assert!(!fits(9_223_372_036_854_775_808.0, Scalar::I64));
        assert!(fits(-9_223_372_036_854_775_808.0, Scalar::I64));
        assert!(fits(9_223_372_036_854_775_808.0, Scalar::U64));
        assert!(!fits(18_446_744_073_709_551_616.0, Scalar::U64));
        assert!(fits(-0.0, Scalar::U8));
        for number in [-1.0, 0.5, 256.0, f64::NAN, f64::INFINITY] {
            assert!(!fits(number, Scalar::U8), "{number}");
        }
    }

    #[test]
    fn floats_become_whole_numbers_by_the_rounding_asked_for() {
        let cast = |value: f64, rounding| Number::F64(value).cast_rounded(Scalar::I8, rounding);
        assert_eq!(cast(-1.5, Rounding::Zero), Number::Int(-1));
        assert_eq!(cast(-1.5, Rounding::Floor), Number::Int(-2));
        assert_eq!(cast(2.5, Rounding::Nearest), Number::Int(2));
        assert_eq!(cast(1e9, Rounding::Zero), Number::Int(127));
        assert_eq!(cast(f64::NAN, Rounding::Floor), Number::Int(0));
    }

    #[test]
    fn a_type_that_cannot_be_has_no_samples() {
        for kind in [Type::F32.vector(0), Type::BOOL.complex()] {
            assert_eq!(Value::read(kind, &[0; 8]), None);
            assert_eq!(Value::read_all(kind, &[0; 8]), (vec![], 8));
        }
    }

    proptest! {
        #[test]
        fn values_read_back_the_bytes_they_write(scalar in 0..11usize, complex: bool, len in 1..9usize, seed: u64) {
            let scalar = Scalar::ALL[scalar];
            let kind = Type { scalar, complex: complex && scalar != Scalar::Bool, len };
            let value = Value::build(kind, |index| {
                let word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(index as u32 * 7);
                (Number::Int((word as i64).into()), Number::Int(word.into()))
            });
            let mut bytes = Vec::new();
            value.write(&mut bytes);
            prop_assert_eq!(bytes.len(), kind.bytes());
            prop_assert_eq!(Value::read(kind, &bytes), Some(value));
            prop_assert_eq!(Value::read(kind, &bytes[1..]), None);
        }
    }
}
