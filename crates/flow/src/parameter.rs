//! What is wrong with a parameter of a file: which one, what it has, and what it may have. Serde
//! says it in words of Rust.

use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// The most characters of a value that a message repeats.
const SHOWN: usize = 60;

/// What a whole number of a type may be. Files have none beyond 64 bits with a sign.
const WHOLE: [(&str, u64); 5] = [
    ("u8", u8::MAX as u64),
    ("u16", u16::MAX as u64),
    ("u32", u32::MAX as u64),
    ("u64", i64::MAX as u64),
    ("usize", i64::MAX as u64),
];

/// Reads all parameters of a node, or says what is wrong with one.
pub(crate) fn read<T: DeserializeOwned>(table: Table) -> Result<T, String> {
    // Lists may be long, and what is wrong with them is about one element.
    let all = table.iter().filter(|(_, value)| !value.is_array());
    let single: Table = all
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let error = match table.try_into::<T>() {
        Ok(node) => return Ok(node),
        Err(error) => error,
    };
    let mut message = error.message().to_owned();
    let Some(key) = key_of(&error) else {
        // What is missing, or is no parameter at all.
        return Err(message);
    };
    if message.ends_with(", expected string only") {
        // Serde tells the choices to whoever gives a word that is none of them.
        let word = Table::from_iter([(key.clone(), Value::String(String::new()))]);
        if let Err(error) = word.try_into::<T>() {
            message = error
                .message()
                .replacen("unknown variant ``", "sequence", 1);
        }
    }
    Err(in_words(&key, single.get(&key), &message))
}

/// The parameter that an error is about; none if it is about all of them.
fn key_of(error: &toml::de::Error) -> Option<String> {
    let text = error.to_string();
    let (_, path) = text.trim_end().rsplit_once("\nin `")?;
    let key = path.strip_suffix('`')?.split('.').next()?;
    Some(key.to_owned())
}

/// What serde says of a parameter; `value` is what it has if that is no list.
fn in_words(key: &str, value: Option<&Value>, message: &str) -> String {
    let Some((found, wanted)) = message.rsplit_once(", expected ") else {
        return format!("{key}: {message}");
    };
    let has = match value {
        Some(value) => format!("`{key} = {}`", shortened(&value.to_string())),
        None => {
            let element = match found.split_once(": ").map_or(found, |(_, element)| element) {
                "sequence" => "a list",
                "map" => "a table",
                other => other,
            };
            format!("{key}: {}", shortened(element))
        }
    };
    format!("{has}: it must be {}", rule(wanted))
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// What a type of Rust takes.
fn rule(wanted: &str) -> String {
    let whole = WHOLE.iter().find(|(name, _)| *name == wanted);
    match (whole, wanted) {
        (Some((_, most)), _) => format!("a whole number from 0 to {most}"),
        (_, "i64") => format!("a whole number from {} to {}", i64::MIN, i64::MAX),
        (_, "f32" | "f64") => "a number".into(),
        (_, "a boolean") => "true or false".into(),
        (_, "a sequence") => "a list".into(),
        (_, other) => other.into(),
    }
}

/// What the reader of TOML says of a text, with the way out for numbers that TOML has not.
pub(crate) fn of_text(message: &str) -> String {
    let is_wide = message.starts_with("invalid type: integer `") && message.contains("` as ");
    let is_beyond = is_wide
        || message.ends_with("value was too large")
        || message == "integer number overflowed";
    match is_beyond {
        true => format!(
            "a whole number is beyond {} to {}, which is all that TOML has: a parameter that \
             takes numbers takes it in quotes",
            i64::MIN,
            i64::MAX
        ),
        false => message.to_owned(),
    }
}
