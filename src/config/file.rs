//! Configuration files: TOML that says what a command line says.
//!
//! A key is the long name of an option. Files become arguments, so that both are read by one
//! parser: a mistake in a file is refused with the words of the command line.

use clap::builder::ValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueEnum};
use toml::{Table, Value};

use super::{FgpuConfig, GainOption, OutputConfig};
use crate::net::format_endpoints;

/// Options about the file itself.
const NOT_IN_FILES: [&str; 8] = [
    "running",
    "config",
    "print_config",
    "print_plan",
    "seconds",
    "json",
    "help",
    "version",
];
/// Outputs stand for one another: those of a command line replace all of a file.
const OUTPUTS: [&str; 2] = ["wideband", "narrowband"];

/// What is wrong with a configuration file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Not TOML.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// No option has this name.
    #[error("{0}: is not an option; keys are long options without the dashes, and src")]
    Key(String),
    /// A value of the wrong kind.
    #[error("{key}: must be {rule}")]
    Value {
        /// Key.
        key: String,
        /// What would do.
        rule: &'static str,
    },
}

/// The arguments that a file's `text` stands for, for `command`, without those that `given` has
/// from its command line.
pub fn arguments(
    text: &str,
    command: &Command,
    given: &ArgMatches,
) -> Result<Vec<String>, FileError> {
    let is_given = |id: &str| given.value_source(id) == Some(ValueSource::CommandLine);
    let mut arguments = Vec::new();
    for (key, value) in text.parse::<Table>()? {
        let found = command.get_arguments().find(|arg| name(arg) == key);
        let Some(arg) = found.filter(|arg| !NOT_IN_FILES.contains(&arg.get_id().as_str())) else {
            return Err(FileError::Key(key));
        };
        let id = arg.get_id().as_str();
        let replaced = OUTPUTS.contains(&id) && OUTPUTS.into_iter().any(is_given);
        if is_given(id) || replaced {
            continue;
        }
        let wrong = |rule| FileError::Value {
            key: key.clone(),
            rule,
        };
        match (arg.get_action(), value) {
            (ArgAction::SetTrue, Value::Boolean(true)) => arguments.push(format!("--{key}")),
            (ArgAction::SetTrue, Value::Boolean(false)) => {}
            (ArgAction::SetTrue, _) => return Err(wrong("true or false")),
            (ArgAction::Append, Value::Array(values)) => {
                for value in values {
                    let text = sub_options(&value)
                        .ok_or_else(|| wrong("tables of numbers, and of strings without commas"))?;
                    arguments.push(format!("--{key}={text}"));
                }
            }
            (ArgAction::Append, _) => return Err(wrong("an array of tables: [[wideband]]")),
            (_, value) => {
                let text = scalar(&value).ok_or_else(|| wrong("a number or a string"))?;
                match arg.is_positional() {
                    true => arguments.push(text),
                    false => arguments.push(format!("--{key}={text}")),
                }
            }
        }
    }
    Ok(arguments)
}

/// The key of an option.
fn name(arg: &Arg) -> &str {
    arg.get_long().unwrap_or_else(|| arg.get_id().as_str())
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Array(values) => {
            let texts: Option<Vec<_>> = values.iter().map(scalar).collect();
            Some(texts?.join(","))
        }
        Value::Boolean(_) | Value::Datetime(_) | Value::Table(_) => None,
    }
}

fn sub_options(value: &Value) -> Option<String> {
    let Value::Table(table) = value else {
        return scalar(value);
    };
    // What is behind a comma would be another key.
    let plain = |value| scalar(value).filter(|text| !text.contains(','));
    let pairs = table
        .iter()
        .map(|(key, value)| Some(format!("{key}={}", plain(value)?)));
    Some(pairs.collect::<Option<Vec<_>>>()?.join(","))
}

/// What `matches` of `command` and the `config` that they came to would run, as a file.
pub fn to_toml(command: &Command, matches: &ArgMatches, config: &FgpuConfig) -> String {
    let mut table = Table::new();
    for arg in command.get_arguments() {
        let id = arg.get_id().as_str();
        if NOT_IN_FILES.contains(&id) || OUTPUTS.contains(&id) {
            continue;
        }
        let value = match arg.get_action() {
            ArgAction::SetTrue => Some(Value::Boolean(matches.get_flag(id))),
            _ => matches.get_raw(id).and_then(|mut raw| {
                let text = raw.next()?.to_str()?.to_owned();
                Some(typed(text, arg.get_value_parser(), || read(matches, id)))
            }),
        };
        table.extend(value.map(|value| (name(arg).to_owned(), value)));
    }
    let chunk = config.engine.send.chunk_jones as i64;
    table.insert("send-chunk-jones".to_owned(), Value::Integer(chunk));
    for option in OUTPUTS {
        let outputs = config.engine.outputs.iter();
        let outputs = outputs.filter(|output| output.option().trim_start_matches('-') == option);
        let outputs: Vec<_> = outputs
            .map(|output| Value::Table(output_table(output)))
            .collect();
        if !outputs.is_empty() {
            table.insert(option.to_owned(), Value::Array(outputs));
        }
    }
    table.to_string()
}

/// The number that an option's text was read as, whatever its unit.
fn read(matches: &ArgMatches, id: &str) -> Option<Value> {
    if let Ok(float) = matches.try_get_one::<f64>(id) {
        return float.copied().map(Value::Float);
    }
    if let Ok(gain) = matches.try_get_one::<GainOption>(id) {
        return match gain? {
            GainOption::Fixed(gain) => Some(Value::Float(*gain)),
            auto => Some(Value::String(auto.to_string())),
        };
    }
    let size = *matches.try_get_one::<usize>(id).ok()??;
    i64::try_from(size).ok().map(Value::Integer)
}

/// Numbers where the option is one; `read` says which.
fn typed(text: String, parser: &ValueParser, read: impl FnOnce() -> Option<Value>) -> Value {
    let kind = parser.type_id();
    let number = kind == ValueParser::from(clap::value_parser!(f64)).type_id();
    let size = kind == ValueParser::from(clap::value_parser!(usize)).type_id();
    let gain = kind == ValueParser::from(clap::value_parser!(GainOption)).type_id();
    if number || size || gain {
        return read().unwrap_or(Value::String(text));
    }
    match text.parse::<i64>() {
        Ok(number) if number.to_string() == text => Value::Integer(number),
        _ => Value::String(text),
    }
}

fn output_table(output: &OutputConfig) -> Table {
    fn choice(value: &impl ValueEnum) -> Value {
        let name = value.to_possible_value();
        Value::String(name.map_or_else(String::new, |name| name.get_name().to_owned()))
    }
    let mut table = Table::new();
    let mut set = |key: &str, value: Value| table.insert(key.to_owned(), value);
    set("name", Value::String(output.name.clone()));
    set("channels", Value::Integer(output.channels as i64));
    set("dst", Value::String(format_endpoints(&output.dst)));
    set(
        "jones_per_batch",
        Value::Integer(output.jones_per_batch as i64),
    );
    set("taps", Value::Integer(output.taps as i64));
    set("w_cutoff", Value::Float(output.w_cutoff));
    set("window_function", choice(&output.window_function));
    set(
        "oversampling",
        Value::String(output.oversampling.to_string()),
    );
    set("dither", choice(&output.dither));
    if let Some(narrowband) = &output.narrowband {
        set(
            "centre_frequency",
            Value::Float(narrowband.centre_frequency),
        );
        set("decimation", Value::Integer(narrowband.decimation as i64));
        set("ddc_taps", Value::Integer(narrowband.ddc_taps() as i64));
        set("weight_pass", Value::Float(narrowband.weight_pass));
        if let Some(pass) = narrowband.pass_bandwidth {
            set("pass_bandwidth", Value::Float(pass));
        }
    }
    table
}
