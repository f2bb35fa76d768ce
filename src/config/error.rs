//! How a configuration is refused.

/// An option's value is not allowed: which one, what it was, why, and what would do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option} {value}: {rule}; {way_out}")]
pub struct ConfigError {
    /// Option as typed, with the sub-option if there is one: `--wideband channels`.
    pub option: String,
    /// Value as understood.
    pub value: String,
    /// The rule that it breaks.
    pub rule: String,
    /// A value that would do, or what to do instead.
    pub way_out: String,
}

impl ConfigError {
    /// A refusal.
    pub fn new(
        option: impl Into<String>,
        value: impl ToString,
        rule: impl Into<String>,
        way_out: impl Into<String>,
    ) -> Self {
        Self {
            option: option.into(),
            value: short(value.to_string()),
            rule: rule.into(),
            way_out: way_out.into(),
        }
    }
}

/// A value as a person would write it: numbers of hundreds of digits by their power of ten.
fn short(value: String) -> String {
    /// Whole numbers of 64 bits have fewer.
    const DIGITS: usize = 24;
    let number = value.parse::<f64>().ok();
    let long = number.filter(|number| value.len() > DIGITS && number.is_finite());
    long.map_or(value, |number| format!("{number:e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_hundreds_of_digits_are_told_by_their_power_of_ten() {
        let said = |value: f64| ConfigError::new("--gain", value, "is wrong", "try 1").value;
        assert_eq!(said(1e300), "1e300");
        assert_eq!(said(-2.5e-300), "-2.5e-300");
        assert_eq!(said(1712e6), "1712000000");
        assert_eq!(said(f64::INFINITY), "inf");
        let whole = ConfigError::new("--period", u64::MAX, "is wrong", "try 1");
        assert_eq!(whole.value, u64::MAX.to_string());
    }
}
