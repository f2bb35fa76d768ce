//! Numbers as options have them, with units where there are any: `1712M`, `1.712 GHz`, `128Mi`,
//! `10 min`.
//!
//! Each parser's error has the rule and a value that would do; the command line's own parser puts
//! option and value in front of it.

use std::ops::RangeInclusive;
use std::str::FromStr;

/// A number that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// Not a frequency.
    #[error("must be a number of hertz, alone or with a unit; try 1712e6, 1712M or 1.712GHz")]
    Hertz,
    /// `m` is a thousandth, and nobody samples at that.
    #[error("m is a thousandth; write M for a million, as in 1712M or 1712MHz")]
    Milli,
    /// Not a time.
    #[error("must be a number of seconds, alone or with a unit; try 10, 10s, 5min or 500ms")]
    Seconds,
    /// Not a number of bytes.
    #[error("must be a whole number of bytes, alone or with a unit; try 134217728, 128Mi or 128MB")]
    Bytes,
    /// More bytes than a number holds.
    #[error("is more than any memory has; try 128Mi")]
    TooLarge,
    /// Not a count of samples or the like.
    #[error("must be a whole number from 0 to 2^64 - 1, alone or with a unit such as Mi; try {0}")]
    Count(&'static str),
    /// Not what the option's rule wants.
    #[error("{rule}; try {example}")]
    Rule {
        /// What the value must be.
        rule: &'static str,
        /// A value that would do.
        example: &'static str,
    },
}

/// Where the unit of a number begins.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    // The name of what is no number is not its unit.
    match number.ends_with(|c: char| c.is_ascii_digit() || c == '.' || c == ' ') {
        true => (number.trim_end(), &text[number.len()..]),
        false => (text, ""),
    }
}

/// Hertz: a number alone is one; `k`, `M`, `G`, `T` multiply it, with or without `Hz`, with or
/// without a blank.
///
/// The value is the one nearest to the decimal number: `1.712G` is the same as `1712e6`.
pub fn hertz(text: &str) -> Result<f64, UnitError> {
    let (number, unit) = split(text);
    let prefix = match unit.len().checked_sub(2) {
        Some(prefix) if unit[prefix..].eq_ignore_ascii_case("hz") => &unit[..prefix],
        _ => unit,
    };
    let power = match prefix {
        "" => 0,
        "k" | "K" => 3,
        "M" => 6,
        "G" | "g" => 9,
        "T" | "t" => 12,
        "m" => return Err(UnitError::Milli),
        _ => return Err(UnitError::Hertz),
    };
    let value = match (power, number.contains(['e', 'E'])) {
        (0, _) => number.parse(),
        (_, false) => format!("{number}e{power}").parse(),
        (_, true) => number.parse::<f64>().map(|value| value * 10f64.powi(power)),
    };
    value.map_err(|_| UnitError::Hertz)
}

/// Seconds: a number alone is one; `ms`, `s`, `min` and `h` are units, with or without a blank.
pub fn seconds(text: &str) -> Result<f64, UnitError> {
    let (number, unit) = split(text);
    let number: f64 = number.parse().map_err(|_| UnitError::Seconds)?;
    let value = match unit {
        "" | "s" => number,
        "ms" => number / 1000.0,
        "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(UnitError::Seconds),
    };
    value.is_finite().then_some(value).ok_or(UnitError::Seconds)
}

/// Bytes: a whole number alone is one; `k`, `M`, `G` multiply it by powers of 1000, `Ki`, `Mi`,
/// `Gi` by powers of 1024, with or without `B`, with or without a blank.
pub fn bytes(text: &str) -> Result<usize, UnitError> {
    let (number, unit) = split(text);
    let factor = factor(unit.strip_suffix('B').unwrap_or(unit)).ok_or(UnitError::Bytes)?;
    let number: usize = number.parse().map_err(|_| UnitError::Bytes)?;
    number
        .checked_mul(factor as usize)
        .ok_or(UnitError::TooLarge)
}

/// What a unit of whole numbers multiplies them by.
fn factor(unit: &str) -> Option<u64> {
    match unit {
        "" => Some(1),
        "k" | "K" => Some(1000),
        "M" => Some(1_000_000),
        "G" => Some(1_000_000_000),
        "Ki" => Some(1 << 10),
        "Mi" => Some(1 << 20),
        "Gi" => Some(1 << 30),
        _ => None,
    }
}

/// A parser of counts, of samples and the like: a whole number, alone or with the units of
/// [`bytes`], but for the `B`. `example` would do.
pub fn count<T: TryFrom<u64>>(
    example: &'static str,
) -> impl Fn(&str) -> Result<T, UnitError> + Clone {
    move |text: &str| {
        let (number, unit) = split(text);
        let count = number.parse::<u64>().ok().zip(factor(unit));
        let count = count.and_then(|(number, factor)| number.checked_mul(factor));
        let count = count.and_then(|count| count.try_into().ok());
        count.ok_or(UnitError::Count(example))
    }
}

/// A parser of plain numbers, or of anything else without a unit. `rule` says in words what the
/// value must be, and `example` would do.
pub fn plain<T: FromStr>(
    rule: &'static str,
    example: &'static str,
) -> impl Fn(&str) -> Result<T, UnitError> + Clone {
    move |text: &str| text.parse().map_err(|_| UnitError::Rule { rule, example })
}

/// As [`plain`], and the value lies in `range`, which `rule` names.
pub fn within<T: FromStr + PartialOrd + Clone>(
    range: RangeInclusive<T>,
    rule: &'static str,
    example: &'static str,
) -> impl Fn(&str) -> Result<T, UnitError> + Clone {
    move |text: &str| match plain::<T>(rule, example)(text)? {
        value if range.contains(&value) => Ok(value),
        _ => Err(UnitError::Rule { rule, example }),
    }
}

/// The number of a TCP or UDP port.
pub fn port(text: &str) -> Result<u16, UnitError> {
    plain::<u16>("must be the number of a port, 0 to 65535", "7147")(text)
}

/// The time to live of IP packets.
pub fn time_to_live(text: &str) -> Result<u8, UnitError> {
    plain::<u8>("must be a whole number from 0 to 255", "4")(text)
}

/// Seconds since 1970.
pub fn unix_time(text: &str) -> Result<f64, UnitError> {
    plain::<f64>("must be a UNIX time: seconds since 1970", "1763700000")(text)
}

/// The key of a generator of noise.
pub fn seed(text: &str) -> Result<u64, UnitError> {
    plain::<u64>("must be a whole number from 0 to 2^64 - 1", "0")(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hertz_are_taken_with_and_without_units() {
        for text in [
            "1712e6",
            "1712000000",
            "1712M",
            "1712MHz",
            "1712 MHz",
            " 1712 M ",
            "1.712G",
            "1.712 GHz",
            "1712000kHz",
            "1712000000Hz",
            "1.712e3M",
            "1712Mhz",
        ] {
            assert_eq!(hertz(text), Ok(1712e6), "{text}");
        }
        // The nearest number, which a product of the two need not be.
        assert_eq!(hertz("0.1071G"), Ok(107.1e6));
        assert_eq!(hertz("-3"), Ok(-3.0));
    }

    #[test]
    fn what_is_no_frequency_is_refused() {
        assert_eq!(hertz("1712mHz"), Err(UnitError::Milli));
        assert_eq!(hertz("1712m"), Err(UnitError::Milli));
        for text in [
            "",
            "M",
            "MHz",
            "x",
            "17x",
            "1712 M Hz",
            "1,712e6",
            "1712MB",
            "é",
            "1é",
        ] {
            assert_eq!(hertz(text), Err(UnitError::Hertz), "{text}");
        }
    }

    #[test]
    fn seconds_are_taken_with_and_without_units() {
        for (text, value) in [
            ("10", 10.0),
            ("0.5", 0.5),
            ("1e2", 100.0),
            ("10s", 10.0),
            ("500ms", 0.5),
            ("5 min", 300.0),
            ("2h", 7200.0),
        ] {
            assert_eq!(seconds(text), Ok(value), "{text}");
        }
        for text in [
            "", "s", "ten", "10m", "10 S", "inf", "nan", "1e999", "1e308h",
        ] {
            assert_eq!(seconds(text), Err(UnitError::Seconds), "{text}");
        }
    }

    #[test]
    fn bytes_are_taken_with_and_without_units() {
        for (text, value) in [
            ("134217728", 1 << 27),
            ("128Mi", 1 << 27),
            ("128 MiB", 1 << 27),
            ("64KiB", 1 << 16),
            ("2Gi", 1 << 31),
            ("128MB", 128_000_000),
            ("3k", 3000),
            ("0", 0),
        ] {
            assert_eq!(bytes(text), Ok(value), "{text}");
        }
        for text in ["", "-1", "1.5G", "1m", "12 elephants", "MiB"] {
            assert_eq!(bytes(text), Err(UnitError::Bytes), "{text}");
        }
        assert_eq!(bytes("18446744073709551615Gi"), Err(UnitError::TooLarge));
    }

    #[test]
    fn counts_are_taken_with_and_without_units() {
        let samples = count::<usize>("32Mi");
        for (text, value) in [
            ("33554432", 1 << 25),
            ("32Mi", 1 << 25),
            (" 32 Mi ", 1 << 25),
            ("3k", 3000),
            ("0", 0),
            ("18446744073709551615", usize::MAX),
        ] {
            assert_eq!(samples(text), Ok(value), "{text}");
        }
        for text in [
            "",
            "-5",
            "1e6",
            "1.5Mi",
            "32MiB",
            "x",
            "Mi",
            "18446744073709551616",
            "18446744073709551615Ki",
        ] {
            assert_eq!(samples(text), Err(UnitError::Count("32Mi")), "{text}");
        }
        assert_eq!(
            count::<u32>("8")("4Gi"),
            Err(UnitError::Count("8")),
            "no u32"
        );
    }

    #[test]
    fn plain_numbers_are_refused_by_the_rule_in_words() {
        assert_eq!(port("7148"), Ok(7148));
        assert_eq!(time_to_live("255"), Ok(255));
        assert_eq!(unix_time("-1.5"), Ok(-1.5));
        assert_eq!(seed("18446744073709551615"), Ok(u64::MAX));
        let threads = within(1..=1024_u32, "must be 1 to 1024", "4");
        assert_eq!(threads("1024"), Ok(1024));
        let refused = [
            (
                port("70000").map(drop),
                "must be the number of a port, 0 to 65535; try 7147",
            ),
            (
                time_to_live("-1").map(drop),
                "must be a whole number from 0 to 255; try 4",
            ),
            (
                unix_time("now").map(drop),
                "must be a UNIX time: seconds since 1970; try 1763700000",
            ),
            (
                seed("1.0").map(drop),
                "must be a whole number from 0 to 2^64 - 1; try 0",
            ),
            (threads("0").map(drop), "must be 1 to 1024; try 4"),
            (threads("four").map(drop), "must be 1 to 1024; try 4"),
        ];
        for (refused, words) in refused {
            assert_eq!(refused.unwrap_err().to_string(), words);
        }
    }

    /// What would do does.
    #[test]
    fn examples_are_taken() {
        assert_eq!(port("7147"), Ok(7147));
        assert_eq!(time_to_live("4"), Ok(4));
        assert_eq!(unix_time("1763700000"), Ok(1_763_700_000.0));
        assert_eq!(seed("0"), Ok(0));
    }

    proptest! {
        #[test]
        fn a_number_alone_is_what_it_was(value in any::<f64>().prop_filter("a number", |v| v.is_finite())) {
            prop_assert_eq!(hertz(&value.to_string()), Ok(value));
            prop_assert_eq!(hertz(&format!("{value:e}")), Ok(value));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,12}") {
            let _ = (hertz(&text), bytes(&text), count::<u64>("1")(&text));
        }
    }
}
