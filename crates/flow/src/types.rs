//! Types of what ports carry: one scalar type, real or complex, one element or a vector of them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest vector that one port carries.
pub const MAX_LEN: usize = 1 << 20;

/// A machine type of one real number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scalar {
    /// True or false. Arithmetic refuses it, logic wants it.
    Bool,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 8 bits.
    U8,
    /// Signed, 16 bits.
    I16,
    /// Unsigned, 16 bits.
    U16,
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 64 bits.
    U64,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
}

impl Scalar {
    /// Every scalar type.
    pub const ALL: [Scalar; 11] = [
        Scalar::Bool,
        Scalar::I8,
        Scalar::U8,
        Scalar::I16,
        Scalar::U16,
        Scalar::I32,
        Scalar::U32,
        Scalar::I64,
        Scalar::U64,
        Scalar::F32,
        Scalar::F64,
    ];

    /// The name in files and messages.
    pub fn name(self) -> &'static str {
        match self {
            Scalar::Bool => "bool",
            Scalar::I8 => "i8",
            Scalar::U8 => "u8",
            Scalar::I16 => "i16",
            Scalar::U16 => "u16",
            Scalar::I32 => "i32",
            Scalar::U32 => "u32",
            Scalar::I64 => "i64",
            Scalar::U64 => "u64",
            Scalar::F32 => "f32",
            Scalar::F64 => "f64",
        }
    }

    /// Bytes of one number, in memory and on the wire.
    pub fn bytes(self) -> usize {
        match self {
            Scalar::Bool | Scalar::I8 | Scalar::U8 => 1,
            Scalar::I16 | Scalar::U16 => 2,
            Scalar::I32 | Scalar::U32 | Scalar::F32 => 4,
            Scalar::I64 | Scalar::U64 | Scalar::F64 => 8,
        }
    }

    /// Whether this is a type with a fraction.
    pub fn is_float(self) -> bool {
        matches!(self, Scalar::F32 | Scalar::F64)
    }

    /// Whether this is a whole-number type. `Bool` is none.
    pub fn is_integer(self) -> bool {
        !self.is_float() && self != Scalar::Bool
    }

    /// Whether this type has negative numbers.
    pub fn is_signed(self) -> bool {
        !matches!(
            self,
            Scalar::Bool | Scalar::U8 | Scalar::U16 | Scalar::U32 | Scalar::U64
        )
    }
}

/// The type of a port.
///
/// ```
/// use karoo_flow::Type;
///
/// let vector: Type = "complex f32[5]".parse().unwrap();
/// assert_eq!(vector, Type::F32.complex().vector(5));
/// assert_eq!(vector.bytes(), 40);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Type {
    /// The type of each real number.
    pub scalar: Scalar,
    /// Whether each element is a pair. Real and imaginary parts lie in two arrays, never
    /// interleaved.
    pub complex: bool,
    /// Elements of one sample; 1 is a scalar.
    pub len: usize,
}

macro_rules! scalars {
    ($($name:ident = $scalar:ident),*) => {
        $(#[doc = concat!("One real `", stringify!($scalar), "`.")]
        pub const $name: Type = Type { scalar: Scalar::$scalar, complex: false, len: 1 };)*
    };
}

impl Type {
    scalars!(
        BOOL = Bool,
        I8 = I8,
        U8 = U8,
        I16 = I16,
        U16 = U16,
        I32 = I32,
        U32 = U32,
        I64 = I64,
        U64 = U64,
        F32 = F32,
        F64 = F64
    );

    /// One real number of `scalar`.
    pub const fn of(scalar: Scalar) -> Type {
        Type {
            scalar,
            complex: false,
            len: 1,
        }
    }

    /// The type with complex elements.
    pub const fn complex(self) -> Type {
        Type {
            complex: true,
            ..self
        }
    }

    /// The type with real elements.
    pub const fn real(self) -> Type {
        Type {
            complex: false,
            ..self
        }
    }

    /// The type with `len` elements.
    pub const fn vector(self, len: usize) -> Type {
        Type { len, ..self }
    }

    /// Bytes of one sample.
    pub fn bytes(self) -> usize {
        self.scalar.bytes() * self.len * if self.complex { 2 } else { 1 }
    }

    /// What forbids this type, if anything does.
    pub fn check(self) -> Result<(), String> {
        if self.complex && self.scalar == Scalar::Bool {
            return Err("complex bool is no type: use bool, or a complex number".into());
        }
        if self.len == 0 || self.len > MAX_LEN {
            return Err(format!(
                "a vector has 1 to {MAX_LEN} elements, not {}",
                self.len
            ));
        }
        Ok(())
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.complex {
            f.write_str("complex ")?;
        }
        f.write_str(self.scalar.name())?;
        if self.len != 1 {
            write!(f, "[{}]", self.len)?;
        }
        Ok(())
    }
}

impl FromStr for Type {
    type Err = String;

    fn from_str(text: &str) -> Result<Type, String> {
        let unknown =
            || format!("`{text}` is no type: write for example `f32`, `complex f32` or `i16[8]`");
        let (complex, rest) = match text.strip_prefix("complex ") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (name, len) = match rest.split_once('[') {
            Some((name, len)) => {
                let len = len.strip_suffix(']').ok_or_else(unknown)?;
                (name, len.parse().map_err(|_| unknown())?)
            }
            None => (rest, 1),
        };
        let scalar = Scalar::ALL
            .into_iter()
            .find(|s| s.name() == name)
            .ok_or_else(unknown)?;
        let result = Type {
            scalar,
            complex,
            len,
        };
        result.check()?;
        Ok(result)
    }
}

impl TryFrom<String> for Type {
    type Error = String;
    fn try_from(text: String) -> Result<Type, String> {
        text.parse()
    }
}

impl From<Type> for String {
    fn from(value: Type) -> String {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_reads_back_what_it_writes() {
        for scalar in Scalar::ALL {
            for (complex, len) in [(false, 1), (true, 1), (false, 7), (true, MAX_LEN)] {
                let value = Type {
                    scalar,
                    complex,
                    len,
                };
                assert_eq!(
                    value.to_string().parse().ok(),
                    value.check().ok().map(|()| value)
                );
            }
        }
    }

    #[test]
    fn what_is_no_type_is_refused_with_an_example() {
        for text in [
            "",
            "f16",
            "f32[",
            "f32[0]",
            "f32[x]",
            "complex",
            "complex bool",
            "f32[9999999]",
            "f32]",
        ] {
            let error = text.parse::<Type>().unwrap_err();
            assert!(
                error.contains("type") || error.contains("elements"),
                "{error}"
            );
        }
    }
}
