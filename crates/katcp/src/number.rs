//! Numbers as Python reads and writes numbers: most KATCP clients and controllers are Python.

use std::borrow::Cow;

use num_complex::{Complex32, Complex64};

/// Returns what Python's `int(text)` gives, if the number fits 64 bits.
pub fn parse_integer(text: &str) -> Option<i64> {
    let text = without_underscores(strip(text))?;
    let digits = text.strip_prefix(['+', '-']).unwrap_or(&text);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

/// Returns what Python's `float(text)` gives, infinities and NaN included.
pub fn parse_float(text: &str) -> Option<f64> {
    let text = without_underscores(strip(text))?;
    match split_float(&text)? {
        (value, "") => Some(value),
        _ => None,
    }
}

/// Returns what Python's `complex(text)` gives, infinities and NaN included.
pub fn parse_complex(text: &str) -> Option<Complex64> {
    let text = strip(text);
    let bare = text.strip_prefix('(').map(|t| t.strip_suffix(')'));
    let text = without_underscores(bare.map_or(Some(text), |bare| bare.map(strip))?)?;
    let is_unit = |rest: &str| rest == "j" || rest == "J";
    let Some((first, rest)) = split_float(&text) else {
        return Some(Complex64::new(0.0, unit(&text)?));
    };
    if rest.is_empty() {
        return Some(Complex64::new(first, 0.0));
    }
    if is_unit(rest) {
        return Some(Complex64::new(0.0, first));
    }
    if !rest.starts_with(['+', '-']) {
        return None;
    }
    match split_float(rest) {
        Some((second, end)) => is_unit(end).then(|| Complex64::new(first, second)),
        None => Some(Complex64::new(first, unit(rest)?)),
    }
}

/// Reads `j` with or without a sign.
fn unit(text: &str) -> Option<f64> {
    match text {
        "j" | "J" | "+j" | "+J" => Some(1.0),
        "-j" | "-J" => Some(-1.0),
        _ => None,
    }
}

fn strip(text: &str) -> &str {
    // Python also strips the ASCII separators 28 to 31.
    text.trim_matches(|c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c))
}

/// Removes underscores, which may stand singly between digits. `None` if one stands elsewhere.
fn without_underscores(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('_') {
        return Some(Cow::Borrowed(text));
    }
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let between = |at: usize| at > 0 && digit(at - 1) && digit(at + 1);
    let well = (0..bytes.len()).all(|at| bytes[at] != b'_' || between(at));
    well.then(|| Cow::Owned(text.replace('_', "")))
}

/// Splits `text` behind the longest floating-point number that it begins with.
fn split_float(text: &str) -> Option<(f64, &str)> {
    let bytes = text.as_bytes();
    let sign = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let word = |name: &str| {
        let found = bytes.get(sign..sign + name.len());
        found.is_some_and(|found| found.eq_ignore_ascii_case(name.as_bytes()))
    };
    let end = if let Some(name) = ["infinity", "inf", "nan"].into_iter().find(|n| word(n)) {
        sign + name.len()
    } else {
        decimal_end(bytes, sign)?
    };
    let (number, rest) = text.split_at(end);
    Some((number.parse().ok()?, rest))
}

/// Returns where the decimal number that begins at `start` ends.
fn decimal_end(bytes: &[u8], start: usize) -> Option<usize> {
    let digits = |from: usize| {
        let rest = bytes.get(from..).unwrap_or(&[]);
        from + rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let mut end = digits(start);
    let mut count = end - start;
    if bytes.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        count += fraction - end - 1;
        end = fraction;
    }
    if count == 0 {
        return None;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = end + 1 + sign;
        if digits(exponent) > exponent {
            end = digits(exponent);
        }
    }
    Some(end)
}

/// Writes what Python's `repr(value)` gives: the shortest digits that read back as `value`.
pub fn format_float(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let text = layout(&format!("{value:e}"), 16);
    let integral = !text.contains(['.', 'e']);
    if integral { text + ".0" } else { text }
}

/// Writes a complex number as katgpucbf writes gains: real part, signed imaginary part and `j`.
///
/// Each part has up to 17 significant digits, as C's `%.17g` gives.
pub fn format_complex(value: Complex32) -> String {
    let part = |value: f32| layout(&format!("{:.16e}", f64::from(value)), 17);
    let (re, im) = (part(value.re), part(value.im));
    let sign = if im.starts_with('-') { "" } else { "+" };
    format!("{re}{sign}{im}j")
}

/// Lays out a number in Rust's scientific notation as C's `%g` does, without zeros at the end.
///
/// Numbers with decimal exponents from −4 to below `plain_below` have no exponent.
fn layout(scientific: &str, plain_below: i32) -> String {
    // Infinities and NaN have no exponent.
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific.to_lowercase();
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => ("-", mantissa),
        None => ("", mantissa),
    };
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    let digits = digits.trim_end_matches('0');
    let digits = if digits.is_empty() { "0" } else { digits };
    let pointed = |whole: usize| {
        let padded = format!("{digits:0<whole$}");
        let (whole, fraction) = padded.split_at(whole);
        let point = if fraction.is_empty() { "" } else { "." };
        format!("{whole}{point}{fraction}")
    };
    let unsigned = if !(-4..plain_below).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", pointed(1), exponent.abs())
    } else if exponent < 0 {
        let zeros = "0".repeat(-exponent as usize - 1);
        format!("0.{zeros}{digits}")
    } else {
        pointed(exponent as usize + 1)
    };
    format!("{sign}{unsigned}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn integers_are_pythons() {
        for (text, value) in [
            ("5", 5),
            ("+5", 5),
            ("-5", -5),
            (" 1_000\n", 1000),
            ("007", 7),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(parse_integer(text), Some(value), "{text}");
        }
        for text in [
            "",
            " ",
            "+",
            "1_",
            "_1",
            "1__0",
            "0x10",
            "1.0",
            "+-1",
            "1 0",
            "--1",
            "9223372036854775808",
        ] {
            assert_eq!(parse_integer(text), None, "{text}");
        }
    }

    #[test]
    fn floats_are_pythons() {
        for (text, value) in [
            ("1", 1.0),
            ("1.", 1.0),
            (".5", 0.5),
            (" -2.5e-3 ", -2.5e-3),
            ("1_0.2_5E+0_2", 1025.0),
            ("1e400", f64::INFINITY),
            ("-InFinity", f64::NEG_INFINITY),
            ("+inf", f64::INFINITY),
        ] {
            assert_eq!(parse_float(text), Some(value), "{text}");
        }
        assert!(parse_float("-nan").is_some_and(f64::is_nan));
        for text in [
            "", ".", "e5", "1e", "1e+", "1 2", "0x1p3", "1_.5", "._5", "infin", "1,5", "--1", "1d0",
        ] {
            assert_eq!(parse_float(text), None, "{text}");
        }
    }

    #[test]
    fn complex_numbers_are_pythons() {
        for (text, re, im) in [
            ("1", 1.0, 0.0),
            ("-2.5", -2.5, 0.0),
            ("3j", 0.0, 3.0),
            ("-j", 0.0, -1.0),
            ("J", 0.0, 1.0),
            ("1+2j", 1.0, 2.0),
            ("1e3-4e-2j", 1000.0, -0.04),
            ("(1+2j)", 1.0, 2.0),
            (" ( 1-j ) ", 1.0, -1.0),
            ("1_0+.5j", 10.0, 0.5),
            ("inf+infj", f64::INFINITY, f64::INFINITY),
        ] {
            assert_eq!(parse_complex(text), Some(Complex64::new(re, im)), "{text}");
        }
        assert!(parse_complex("nan").is_some_and(|z| z.re.is_nan() && z.im == 0.0));
        for text in [
            "", "()", "(1", "1)", "1 + 2j", "1+2", "1+2i", "1j+2", "1++2j", "1e", "jj", "1+2jj",
            "((1))", "+", "1+",
        ] {
            assert_eq!(parse_complex(text), None, "{text}");
        }
    }

    #[test]
    fn floats_are_written_as_python_does() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1712000000.0, "1712000000.0"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (3.76e-9, "3.76e-09"),
            (1e16, "1e+16"),
            (1234567890123456.0, "1234567890123456.0"),
            (-f64::MAX, "-1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(format_float(value), text);
        }
    }

    #[test]
    fn gains_are_written_as_katgpucbf_does() {
        for (re, im, text) in [
            (0.125, 0.0, "0.125+0j"),
            (0.2, -3.0, "0.20000000298023224-3j"),
            (1.0, -0.0, "1-0j"),
            (1e-5, 1e10, "9.9999997473787516e-06+10000000000j"),
            (1e20, 0.0, "1.0000000200408773e+20+0j"),
        ] {
            assert_eq!(format_complex(Complex32::new(re, im)), text);
        }
    }

    proptest! {
        #[test]
        fn floats_come_back(bits: u64) {
            let value = f64::from_bits(bits);
            let back = parse_float(&format_float(value)).expect("a float");
            prop_assert!(back == value || (back.is_nan() && value.is_nan()));
        }

        #[test]
        fn gains_come_back(re: u32, im: u32) {
            let gain = Complex32::new(f32::from_bits(re), f32::from_bits(im));
            prop_assume!(gain.is_finite());
            let back = parse_complex(&format_complex(gain)).expect("a complex number");
            prop_assert_eq!(back, Complex64::new(f64::from(gain.re), f64::from(gain.im)));
        }
    }
}
