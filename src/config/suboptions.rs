//! Options whose value is a list of `key=value` pairs, as katgpucbf has them.

use super::ConfigError;

/// An enum value by its exact lower-case name.
pub(super) fn choice<T: clap::ValueEnum>(text: &str) -> Option<T> {
    T::from_str(text, false).ok()
}

/// One key, as help and refusals have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub name: &'static str,
    /// What its value looks like.
    pub value: &'static str,
    /// What it means, with its default in brackets, or that it is [required].
    pub help: &'static str,
    /// A value that would do, of those that are required.
    pub example: Option<&'static str>,
}

/// A key, what its value looks like, and what it means.
pub(super) const fn key(name: &'static str, value: &'static str, help: &'static str) -> Key {
    Key {
        name,
        value,
        help,
        example: None,
    }
}

/// The `key=value` pairs of one option, taken out one by one.
pub(super) struct SubOptions<'a> {
    option: &'a str,
    pairs: Vec<(&'a str, &'a str)>,
}

/// How alike two words must be for one to be meant by the other, of 1.
const ALIKE: f64 = 0.7;

impl<'a> SubOptions<'a> {
    /// Splits the value of `option`, whose keys are `keys`. Blanks beside commas and equals signs
    /// are no part of keys and values.
    ///
    /// A key that there is none of is refused before those that are missing: it is most often one
    /// of them, misspelt.
    pub fn parse(
        option: &'a str,
        text: &'a str,
        keys: impl Iterator<Item = &'static Key> + Clone,
    ) -> Result<Self, ConfigError> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (key, value) = part.split_once('=').ok_or_else(|| {
                let way_out = "separate pairs by commas, such as name=wideband,channels=1024";
                ConfigError::new(option, format!("'{part}'"), "is not key=value", way_out)
            })?;
            let pair = (key.trim(), value.trim());
            if !keys.clone().any(|known| known.name == pair.0) {
                return Err(unknown(option, pair.0, keys));
            }
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
        let given = |key: &Key| pairs.iter().any(|(name, _)| *name == key.name);
        let missing: Vec<_> = keys
            .filter_map(|key| Some((key.name, key.example?)).filter(|_| !given(key)))
            .collect();
        if missing.is_empty() {
            return Ok(Self { option, pairs });
        }
        let names: Vec<_> = missing.iter().map(|(name, _)| *name).collect();
        let examples = missing
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let examples = examples.collect::<Vec<_>>().join(",");
        let (names, are) = match &names[..] {
            [name] => ((*name).to_owned(), "is"),
            names => (names.join(", "), "are"),
        };
        Err(ConfigError::new(
            option,
            format!("without {names}"),
            format!("{names} {are} required"),
            format!("add {examples}"),
        ))
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
}

/// The refusal of a key, with the one that was meant if any is like it.
fn unknown(option: &str, key: &str, keys: impl Iterator<Item = &'static Key>) -> ConfigError {
    let names: Vec<_> = keys.map(|key| key.name).collect();
    let likeness = |name: &&str| strsim::jaro_winkler(&key.to_lowercase(), name);
    let nearest = names
        .iter()
        .copied()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
        .filter(|name| likeness(name) >= ALIKE);
    let meant = nearest.map_or(String::new(), |name| format!("did you mean {name}? "));
    ConfigError::new(
        option,
        format!("'{key}'"),
        "is not a key of this option",
        format!("{meant}the keys are {}", names.join(", ")),
    )
}
