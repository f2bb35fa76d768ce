//! Numbers with units: `1712M`, `1.712 GHz`, `128Mi`, `10 min`.

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
    let factor: usize = match unit.strip_suffix('B').unwrap_or(unit) {
        "" => 1,
        "k" | "K" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return Err(UnitError::Bytes),
    };
    let number: usize = number.parse().map_err(|_| UnitError::Bytes)?;
    number.checked_mul(factor).ok_or(UnitError::TooLarge)
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

    proptest! {
        #[test]
        fn a_number_alone_is_what_it_was(value in any::<f64>().prop_filter("a number", |v| v.is_finite())) {
            prop_assert_eq!(hertz(&value.to_string()), Ok(value));
            prop_assert_eq!(hertz(&format!("{value:e}")), Ok(value));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,12}") {
            let _ = (hertz(&text), bytes(&text));
        }
    }
}
