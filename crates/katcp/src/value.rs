//! Types and values of sensors and arguments: how values are written, and read.

use std::borrow::Cow;
use std::sync::Arc;

use crate::number::{format_float, parse_float, parse_integer};

/// Type of a sensor's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// Whole numbers.
    Integer,
    /// Real numbers.
    Float,
    /// `0` or `1`.
    Boolean,
    /// UNIX time in seconds.
    Timestamp,
    /// One word of a list, such as `ok`, `degraded`, `fail`.
    Discrete(&'static [&'static str]),
    /// UTF-8 text.
    String,
}

impl ValueType {
    /// Name of the type in the protocol, as in `#sensor-list`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Float => "float",
            Self::Boolean => "boolean",
            Self::Timestamp => "timestamp",
            Self::Discrete(_) => "discrete",
            Self::String => "string",
        }
    }

    /// Reads a value of this type. Refuses NaN, and words that are not of the list.
    pub fn parse(self, text: &[u8]) -> Result<Value, ValueError> {
        Ok(match self {
            Self::Integer => Value::Integer(integer(text)?),
            Self::Float => Value::Float(float(text)?),
            Self::Timestamp => Value::Timestamp(float(text)?),
            Self::Boolean => match text {
                b"0" => Value::Boolean(false),
                b"1" => Value::Boolean(true),
                _ => return Err(ValueError::new(text, "0 or 1")),
            },
            Self::Discrete(words) => Value::Discrete(word(text, words)?),
            Self::String => Value::String(string(text)?.into()),
        })
    }
}

/// Value of a sensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Value of the type [`ValueType::Integer`].
    Integer(i64),
    /// Value of the type [`ValueType::Float`].
    Float(f64),
    /// Value of the type [`ValueType::Boolean`].
    Boolean(bool),
    /// Value of the type [`ValueType::Timestamp`].
    Timestamp(f64),
    /// Value of the type [`ValueType::Discrete`].
    Discrete(&'static str),
    /// Value of the type [`ValueType::String`].
    String(Arc<str>),
}

impl Value {
    /// Writes the value as an argument, before escaping.
    pub fn encode(&self) -> Cow<'_, str> {
        match self {
            Self::Integer(value) => value.to_string().into(),
            Self::Float(value) | Self::Timestamp(value) => format_float(*value).into(),
            Self::Boolean(value) => if *value { "1" } else { "0" }.into(),
            Self::Discrete(word) => (*word).into(),
            Self::String(text) => (&**text).into(),
        }
    }

    /// Returns the distance to another number. Infinite if one of the two is not a number, or if
    /// their types differ.
    pub fn distance(&self, other: &Self) -> f64 {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => a.abs_diff(*b) as f64,
            (Self::Float(a), Self::Float(b)) => (a - b).abs(),
            _ => f64::INFINITY,
        }
    }
}

/// An argument does not read as its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {expected}")]
pub struct ValueError {
    text: String,
    expected: String,
}

impl ValueError {
    /// An error for `text` that should have been `expected`, such as `a whole number`.
    pub fn new(text: &[u8], expected: impl Into<String>) -> Self {
        Self {
            text: excerpt(text),
            expected: expected.into(),
        }
    }
}

/// Returns the beginning of a received text, at most 60 bytes, for an error message.
pub fn excerpt(text: &[u8]) -> String {
    const MOST: usize = 60;
    let shown = String::from_utf8_lossy(&text[..text.len().min(MOST)]);
    let more = if text.len() > MOST { "…" } else { "" };
    format!("{shown}{more}")
}

/// Reads an argument as text.
pub fn string(text: &[u8]) -> Result<&str, ValueError> {
    std::str::from_utf8(text).map_err(|_| ValueError::new(text, "UTF-8"))
}

/// Reads an argument as owned text.
pub fn text(argument: &[u8]) -> Result<String, ValueError> {
    string(argument).map(str::to_owned)
}

/// Reads an argument as a whole number of 64 bits, in the forms that Python's `int()` takes.
pub fn integer(text: &[u8]) -> Result<i64, ValueError> {
    let parsed = std::str::from_utf8(text).ok().and_then(parse_integer);
    parsed.ok_or_else(|| ValueError::new(text, "a whole number such as 42"))
}

/// Reads an argument as a real number, in the forms that Python's `float()` takes.
///
/// Infinities are accepted, NaN is refused.
pub fn float(text: &[u8]) -> Result<f64, ValueError> {
    let parsed = std::str::from_utf8(text).ok().and_then(parse_float);
    parsed
        .filter(|value| !value.is_nan())
        .ok_or_else(|| ValueError::new(text, "a number such as 1.5e-3"))
}

/// Reads an argument as one word of a list.
pub fn word(text: &[u8], words: &'static [&'static str]) -> Result<&'static str, ValueError> {
    let found = words.iter().find(|word| word.as_bytes() == text);
    found.copied().ok_or_else(|| {
        let expected = format!("one of {}", words.join(", "));
        ValueError::new(text, expected)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: ValueType = ValueType::Discrete(&["ok", "degraded"]);

    #[test]
    fn values_are_written_and_read_back() {
        for (of, value, text) in [
            (ValueType::Integer, Value::Integer(-7), "-7"),
            (ValueType::Float, Value::Float(1e-5), "1e-05"),
            (
                ValueType::Timestamp,
                Value::Timestamp(1.7e9),
                "1700000000.0",
            ),
            (ValueType::Boolean, Value::Boolean(true), "1"),
            (ValueType::Boolean, Value::Boolean(false), "0"),
            (WORDS, Value::Discrete("degraded"), "degraded"),
            (ValueType::String, Value::String("a é".into()), "a é"),
        ] {
            assert_eq!(value.encode(), text);
            assert_eq!(of.parse(text.as_bytes()), Ok(value));
        }
    }

    #[test]
    fn refusals_name_the_text_and_what_would_do() {
        for (of, text, message) in [
            (
                ValueType::Integer,
                "1.0",
                "'1.0' is not a whole number such as 42",
            ),
            (
                ValueType::Float,
                "nan",
                "'nan' is not a number such as 1.5e-3",
            ),
            (ValueType::Boolean, "true", "'true' is not 0 or 1"),
            (WORDS, "fail", "'fail' is not one of ok, degraded"),
        ] {
            let error = of.parse(text.as_bytes()).expect_err(text);
            assert_eq!(error.to_string(), message);
        }
        assert!(ValueType::String.parse(b"\xff").is_err());
        let long = ValueError::new(&[b'x'; 1 << 20], "short");
        assert!(long.to_string().len() < 100);
    }
}
