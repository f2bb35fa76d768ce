//! Numbers in parameters, whose type comes from elsewhere.

use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::ser::{SerializeSeq, Serializer};
use serde::{Deserialize, Serialize};

use crate::number::Number;
use crate::types::{Scalar, Type};
use crate::value::Value;

/// One or more numbers, real or complex, that take the type of where they are used.
///
/// In files: `0.5`, `[1, 2, 3]`, `true`, `"0.5-0.5i"`.
#[derive(Clone, Debug, PartialEq)]
pub struct Literals(Vec<(Number, Number)>);

/// The most numbers of one parameter. A graph with more is refused.
pub const MAX_LITERALS: usize = 1 << 20;

impl Literals {
    /// Literals from real and imaginary parts; none of an empty list, or of more than
    /// [`MAX_LITERALS`].
    pub fn new(parts: Vec<(Number, Number)>) -> Option<Literals> {
        (!parts.is_empty() && parts.len() <= MAX_LITERALS).then_some(Literals(parts))
    }

    /// How many numbers there are; at least one.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether `other` may take the place of these without a change of types, or why not.
    pub(crate) fn replaced_by(&self, other: &Literals) -> Result<(), String> {
        if other.len() != self.len() {
            let (given, own) = (other.len(), self.len());
            return Err(format!("{given} numbers are given: give {own}, as it has"));
        }
        if other.is_complex() && !self.is_complex() {
            return Err("complex numbers are given: its own are real".into());
        }
        Ok(())
    }

    /// Whether any has an imaginary part.
    pub fn is_complex(&self) -> bool {
        self.0.iter().any(|(_, im)| im.is_true())
    }

    /// Real and imaginary parts.
    pub fn parts(&self) -> &[(Number, Number)] {
        &self.0
    }

    /// Real and imaginary part of the number at `index`. A single number stands for all.
    pub fn at(&self, index: usize) -> (Number, Number) {
        if self.0.len() == 1 {
            self.0[0]
        } else {
            self.0[index]
        }
    }

    /// The numbers as a sample of `kind`, if there are as many, or one for all, and none is complex
    /// in vain.
    pub fn value(&self, kind: Type) -> Result<Value, String> {
        if self.len() != 1 && self.len() != kind.len {
            return Err(format!(
                "{} numbers are given for {kind}: give {}",
                self.len(),
                counts(&[1, kind.len])
            ));
        }
        if self.is_complex() && !kind.complex {
            return Err(format!(
                "complex numbers are given for {kind}, which is real"
            ));
        }
        self.fit(kind.scalar)?;
        Ok(Value::build(kind, |index| self.at(index)))
    }

    /// Whether there are no more than one parameter may have.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.len() <= MAX_LITERALS {
            return Ok(());
        }
        Err(format!(
            "{} numbers are given: give at most {MAX_LITERALS}",
            self.len()
        ))
    }

    /// Whether there are not too many numbers, and all are of this type, or which is not.
    pub(crate) fn fit(&self, scalar: Scalar) -> Result<(), String> {
        self.check()?;
        let mut all = self.0.iter().flat_map(|&(re, im)| [re, im]);
        match all.find(|number| !number.fits(scalar)) {
            None => Ok(()),
            Some(number) => Err(format!(
                "{} is given, which no {} is: give {}, or use another type",
                format_real(number),
                scalar.name(),
                range(scalar)
            )),
        }
    }

    /// Reads `3`, `-2.5e3`, `true`, `1+2i`, `0.5j`. Spaces may be around it and around its signs.
    pub(crate) fn parse_one(text: &str) -> Option<(Number, Number)> {
        let mut words = text.split_whitespace();
        let mut text = words.next()?.to_string();
        for word in words {
            // Elsewhere a space parts two numbers, which are not to become one.
            let signed = word.starts_with(['+', '-']) && !text.ends_with(['e', 'E']);
            if !signed && !ends_in_sign(&text) {
                return None;
            }
            text.push_str(word);
        }
        match text.as_str() {
            "true" => return Some((Number::Int(1), Number::Int(0))),
            "false" => return Some((Number::Int(0), Number::Int(0))),
            _ => {}
        }
        let Some(complex) = text.strip_suffix(['i', 'j']) else {
            return Some((parse_real(&text)?, Number::Int(0)));
        };
        // The sign between the parts is the last one that is neither the first character nor an
        // exponent's.
        let split = complex
            .char_indices()
            .filter(|&(at, c)| at > 0 && "+-".contains(c) && !complex[..at].ends_with(['e', 'E']))
            .map(|(at, _)| at)
            .next_back();
        let (re, im) = complex.split_at(split.unwrap_or(0));
        let re = if re.is_empty() {
            Number::Int(0)
        } else {
            parse_real(re)?
        };
        let im = match im {
            "" | "+" => Number::Int(1),
            "-" => Number::Int(-1),
            number => parse_real(number)?,
        };
        Some((re, im))
    }
}

/// How many numbers may be given, in words. Zero is left out.
pub(crate) fn counts(all: &[usize]) -> String {
    let mut all: Vec<usize> = all.iter().copied().filter(|&count| count > 0).collect();
    all.sort_unstable();
    all.dedup();
    let all: Vec<String> = all.iter().map(usize::to_string).collect();
    match all.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => "none".into(),
    }
}

/// The numbers that a type has, in words.
fn range(scalar: Scalar) -> String {
    let ends = [f64::NEG_INFINITY, f64::INFINITY].map(|end| Number::F64(end).cast(scalar));
    match ends {
        [Number::Int(least), Number::Int(most)] => {
            format!("a whole number from {least} to {most}")
        }
        [Number::F32(_), _] => format!("a number from {:?} to {:?}", f32::MIN, f32::MAX),
        _ => "a number of that type".into(),
    }
}

/// Whether a text ends in a sign that is no exponent's.
pub(crate) fn ends_in_sign(text: &str) -> bool {
    let before = text.strip_suffix(['+', '-']);
    before.is_some_and(|before| !before.ends_with(['e', 'E']))
}

fn parse_real(text: &str) -> Option<Number> {
    let text = text.strip_prefix('+').unwrap_or(text);
    if let Ok(value) = text.parse::<i64>() {
        return Some(Number::Int(value.into()));
    }
    if let Ok(value) = text.parse::<u64>() {
        return Some(Number::Int(value.into()));
    }
    let value: f64 = text.parse().ok()?;
    // Digits alone are no infinity, however many there are.
    let is_digits = !text.contains(['n', 'N']);
    (value.is_finite() || !is_digits).then_some(Number::F64(value))
}

fn format_real(number: Number) -> String {
    match number {
        Number::Int(value) => value.to_string(),
        float => format!("{:?}", float.to_f64()),
    }
}

struct One((Number, Number));

impl Serialize for One {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (re, im) = self.0;
        let value = im.to_f64();
        let negative = value.is_sign_negative() && !value.is_nan();
        // An imaginary −0 is one as well.
        if im.is_true() || negative {
            let sign = if negative { "" } else { "+" };
            return serializer.serialize_str(&format!(
                "{}{sign}{}i",
                format_real(re),
                format_real(im)
            ));
        }
        match re {
            Number::Int(value) => match i64::try_from(value) {
                Ok(value) => serializer.serialize_i64(value),
                Err(_) => serializer.serialize_str(&value.to_string()),
            },
            float => serializer.serialize_f64(float.to_f64()),
        }
    }
}

impl Serialize for Literals {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let [one] = self.0.as_slice() {
            return One(*one).serialize(serializer);
        }
        let mut sequence = serializer.serialize_seq(Some(self.0.len()))?;
        for one in &self.0 {
            sequence.serialize_element(&One(*one))?;
        }
        sequence.end()
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Literals;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a number, \"re+imi\", true, false, or a list of these")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Literals, E> {
        Ok(i64::from(value).into())
    }
    fn visit_i64<E>(self, value: i64) -> Result<Literals, E> {
        Ok(value.into())
    }
    fn visit_u64<E>(self, value: u64) -> Result<Literals, E> {
        Ok(value.into())
    }
    fn visit_f64<E>(self, value: f64) -> Result<Literals, E> {
        Ok(value.into())
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Literals, E> {
        let one = Literals::parse_one(text)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))?;
        Ok(Literals(vec![one]))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Literals, A::Error> {
        let mut parts = Vec::new();
        while let Some(Literals(one)) = sequence.next_element()? {
            if one.len() != 1 {
                return Err(de::Error::custom("a list of numbers has no lists in it"));
            }
            parts.extend(one);
        }
        Literals::new(parts)
            .ok_or_else(|| de::Error::custom(format!("1 to {MAX_LITERALS} numbers are wanted")))
    }
}

impl<'de> Deserialize<'de> for Literals {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Literals, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

macro_rules! from {
    ($($native:ty => $number:expr;)*) => {
        $(impl From<$native> for Literals {
            fn from(value: $native) -> Literals {
                let number: fn($native) -> Number = $number;
                Literals(vec![(number(value), Number::Int(0))])
            }
        }
        /// The numbers of a list, which a graph refuses if there are more than [`MAX_LITERALS`];
        /// of an empty list, a single 0.
        impl From<&[$native]> for Literals {
            fn from(values: &[$native]) -> Literals {
                let number: fn($native) -> Number = $number;
                if values.is_empty() {
                    return 0.into();
                }
                Literals(values.iter().map(|&value| (number(value), Number::Int(0))).collect())
            }
        }
        impl<const N: usize> From<[$native; N]> for Literals {
            fn from(values: [$native; N]) -> Literals {
                values.as_slice().into()
            }
        })*
    };
}

from! {
    bool => |v| Number::Int(v.into());
    i32 => |v| Number::Int(v.into());
    i64 => |v| Number::Int(v.into());
    u64 => |v| Number::Int(v.into());
    f32 => |v| Number::F64(v.into());
    f64 => Number::F64;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn complex_numbers_are_read_in_all_their_spellings() {
        let read = |text| Literals::parse_one(text).map(|(re, im)| (re.to_f64(), im.to_f64()));
        assert_eq!(read("1+2i"), Some((1.0, 2.0)));
        assert_eq!(read(" -1.5e-3 - 2e+2j"), Some((-0.0015, -200.0)));
        assert_eq!(read("i"), Some((0.0, 1.0)));
        assert_eq!(read("3-i"), Some((3.0, -1.0)));
        assert_eq!(read("0.5i"), Some((0.0, 0.5)));
        assert_eq!(
            read("18446744073709551615"),
            Some((18_446_744_073_709_551_615.0, 0.0))
        );
        assert_eq!(read("-inf"), Some((f64::NEG_INFINITY, 0.0)));
        assert_eq!(read("Infinity"), Some((f64::INFINITY, 0.0)));
        assert_eq!(read("- 1 -\t2.5 i"), None);
        assert_eq!(read("- 1 -\t2.5i"), Some((-1.0, -2.5)));
        for wrong in [
            "", " ", "x", "1+", "1+2", "--1i", "1+xi", "1 2", "1 2i", "1. 5", "1e 5", "1e- 5",
            "1e -5", "1 e5", "tr ue", "1 +2", "1e400", "1-1e400i",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn parts_are_written_as_they_are_read_again() {
        let parts = [0.0, -0.0, 1.5, -2.0, f64::NAN, -f64::NAN, f64::NEG_INFINITY];
        for (re, im) in parts.iter().flat_map(|re| parts.map(|im| (*re, im))) {
            let literals = Literals(vec![(Number::F64(re), Number::F64(im))]);
            let table = toml::to_string(&BTreeMap::from([("x", &literals)])).unwrap();
            let read: BTreeMap<String, Literals> = toml::from_str(&table).unwrap();
            let (read_re, read_im) = read["x"].at(0);
            let same = |a: f64, b: f64| a.is_nan() && b.is_nan() || a.to_bits() == b.to_bits();
            assert!(same(read_re.to_f64(), re), "{table}");
            assert!(same(read_im.to_f64(), im), "{table}");
        }
    }

    proptest::proptest! {
        #[test]
        fn two_numbers_never_become_one(a in "[0-9.e]{1,4}i?", b in "[0-9.e]{1,4}i?", gap in "[ \t\n]{1,3}") {
            proptest::prop_assert_eq!(Literals::parse_one(&format!("{a}{gap}{b}")), None);
        }
    }
}
