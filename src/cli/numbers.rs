//! Numbers of options, with the rule in the error.

use std::ops::RangeInclusive;
use std::str::FromStr;

/// Parses a number; `rule` says what it must be, such as "it must be 0 to 1, such as 0.001".
pub fn number<T: FromStr>(text: &str, rule: &str) -> Result<T, String> {
    let error = |_| format!("`{text}` is not a number: {rule}");
    text.parse().map_err(error)
}

/// Parses a whole number, as [`number`].
pub fn whole_number<T: FromStr>(text: &str, rule: &str) -> Result<T, String> {
    let error = |_| format!("`{text}` is not a whole number: {rule}");
    text.parse().map_err(error)
}

/// Parses a number that lies within `range`, which `rule` says in words.
pub fn number_within(text: &str, range: RangeInclusive<f64>, rule: &str) -> Result<f64, String> {
    let value = number(text, rule)?;
    match range.contains(&value) {
        true => Ok(value),
        false => Err(rule.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_number_or_lies_outside_is_refused_with_the_rule() {
        let rule = "it must be 0 to 1, such as 0.001";
        let share = |text| number_within(text, 0.0..=1.0, rule);
        assert_eq!(share("0.25"), Ok(0.25));
        assert_eq!(
            share("abc").unwrap_err(),
            format!("`abc` is not a number: {rule}")
        );
        for text in ["1.5", "-0.1", "NaN"] {
            assert_eq!(share(text).unwrap_err(), rule, "{text}");
        }
        let error = whole_number::<u64>("2.5", "it must be 1 to 9, such as 4").unwrap_err();
        assert_eq!(
            error,
            "`2.5` is not a whole number: it must be 1 to 9, such as 4"
        );
    }
}
