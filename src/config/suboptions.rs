//! Options whose value is a list of `key=value` pairs, as katgpucbf has them.

use super::ConfigError;

/// An enum value by its exact lower-case name.
pub(super) fn choice<T: clap::ValueEnum>(text: &str) -> Option<T> {
    T::from_str(text, false).ok()
}

/// The `key=value` pairs of one option, taken out one by one.
pub(super) struct SubOptions<'a> {
    option: &'a str,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> SubOptions<'a> {
    /// Splits the value of `option`.
    pub fn parse(option: &'a str, text: &'a str) -> Result<Self, ConfigError> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for part in text.split(',') {
            let pair = part.split_once('=').ok_or_else(|| {
                let way_out = "separate pairs by commas, such as name=wideband,channels=1024";
                ConfigError::new(option, format!("'{part}'"), "is not key=value", way_out)
            })?;
            if pairs.iter().any(|(key, _)| *key == pair.0) {
                let rule = format!("key {} is given twice", pair.0);
                return Err(ConfigError::new(
                    option,
                    format!("'{part}'"),
                    rule,
                    "give it once",
                ));
            }
            pairs.push(pair);
        }
        Ok(Self { option, pairs })
    }

    /// Takes out a key that may be missing; `rule` says what `convert` accepts.
    pub fn optional<T>(
        &mut self,
        key: &str,
        rule: &str,
        example: &str,
        convert: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(at) = self.pairs.iter().position(|pair| pair.0 == key) else {
            return Ok(None);
        };
        let (_, value) = self.pairs.swap_remove(at);
        convert(value).map(Some).ok_or_else(|| {
            ConfigError::new(
                format!("{} {key}", self.option),
                format!("'{value}'"),
                format!("must be {rule}"),
                format!("try {key}={example}"),
            )
        })
    }

    /// Takes out a key that must be there.
    pub fn required<T>(
        &mut self,
        key: &str,
        rule: &str,
        example: &str,
        convert: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ConfigError> {
        self.optional(key, rule, example, convert)?.ok_or_else(|| {
            ConfigError::new(
                self.option,
                format!("without {key}"),
                format!("{key} is required"),
                format!("add {key}={example}"),
            )
        })
    }

    /// Refuses keys that nobody took; `keys` are those that there are.
    pub fn nothing_left(self, keys: &str) -> Result<(), ConfigError> {
        match self.pairs.first() {
            None => Ok(()),
            Some((key, _)) => Err(ConfigError::new(
                self.option,
                format!("'{key}'"),
                "is not a key of this option",
                format!("the keys are {keys}"),
            )),
        }
    }
}
