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
            value: value.to_string(),
            rule: rule.into(),
            way_out: way_out.into(),
        }
    }
}
