//! Where log messages go.

use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, fs};

use tracing::Subscriber;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use super::colour;
use super::gelf;
use super::journal::Journal;

/// Where log messages go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogTo {
    /// The journal if standard error is connected to it, else standard error.
    #[default]
    Auto,
    /// Standard error, with times.
    Stderr,
    /// The systemd journal.
    Journald,
}

/// What log messages look like on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Lines of text.
    #[default]
    Text,
    /// A JSON object on each line.
    Json,
}

/// Whether messages are JSON.
static JSON: AtomicBool = AtomicBool::new(false);

/// Sets what messages look like: before the first.
pub fn set_format(format: LogFormat) {
    JSON.store(format == LogFormat::Json, Ordering::Relaxed);
}

/// Whether programs read standard error, so that all that goes there is to be a message.
pub fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// Lines on standard error.
fn lines<S>(times: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    if is_json() {
        let layer = layer.json().with_current_span(false);
        return Box::new(layer.with_span_list(false));
    }
    let layer = layer.with_ansi(colour::on_stderr()).with_target(false);
    match times {
        true => Box::new(layer),
        false => Box::new(layer.without_time()),
    }
}

/// Changes what is logged while the program runs.
#[derive(Clone)]
pub struct LogLevel(Handle<EnvFilter, Registry>);

impl LogLevel {
    /// Logs everything, or what the environment says.
    pub fn debug(&self, on: bool) {
        // Fails only when the subscriber is gone.
        let _ = self.0.reload(if on { "debug".into() } else { filter().0 });
    }
}

/// What the environment wants logged: `RUST_LOG`, else `KATSDP_LOG_LEVEL` as katgpucbf has it; and
/// what cannot be understood of it.
fn filter() -> (EnvFilter, Option<String>) {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let wanted = set(EnvFilter::DEFAULT_ENV).map(|text| (EnvFilter::try_new(&text), text));
    let wrong = match wanted {
        Some((Ok(filter), _)) => return (filter, None),
        Some((Err(error), text)) => Some(format!("RUST_LOG={text}: {error}")),
        None => None,
    };
    let level = set("KATSDP_LOG_LEVEL").unwrap_or_default();
    let (filter, known) = match &level.to_lowercase()[..] {
        "debug" => ("debug", true),
        "warn" | "warning" => ("warn", true),
        "error" | "critical" | "fatal" => ("error", true),
        // DPDK's own messages have the target `dpdk`; those of the layer over it are Karoo's.
        other => (
            "info,dpdk=warn,dpdk::eal=info",
            matches!(other, "" | "info"),
        ),
    };
    let unknown = (!known).then(|| format!("KATSDP_LOG_LEVEL={level}: no level of this name"));
    (filter.into(), wrong.or(unknown))
}

/// Tells what of the environment has no effect.
fn tell(wrong: Option<String>) {
    if let Some(wrong) = wrong {
        tracing::warn!("{wrong}; it has no effect");
    }
}

/// Lets messages go to standard error if nothing says yet where they go.
pub fn begin() {
    if !tracing::dispatcher::has_been_set() {
        to_terminal();
    }
}

/// Messages of a command that somebody looks at: to standard error, text without times.
pub fn to_terminal() {
    let (filter, wrong) = filter();
    tracing_subscriber::registry()
        .with(filter)
        .with(lines(false))
        .init();
    tell(wrong);
}

/// A variable of katgpucbf's environment that says how it logs, and has no effect here.
const IGNORED: &str = "KATSDP_LOG_ONELINE";

/// Messages of a command that runs for long.
pub fn start(to: LogTo) -> LogLevel {
    let (filter, wrong) = filter();
    let (filter, handle) = reload::Layer::new(filter);
    let to_journal = match to {
        LogTo::Auto => stderr_is_the_journal(),
        LogTo::Stderr => false,
        LogTo::Journald => true,
    };
    let journal = to_journal.then(Journal::connect);
    let failed = journal
        .as_ref()
        .and_then(|layer| layer.as_ref().err().map(ToString::to_string));
    let layer: Box<dyn Layer<_> + Send + Sync> = match journal {
        Some(Ok(layer)) => Box::new(layer),
        _ => lines(true),
    };
    let (gelf, no_gelf) = gelf::layer();
    tracing_subscriber::registry()
        .with(filter)
        .with(layer)
        .with(gelf)
        .init();
    tell(wrong);
    tell(no_gelf);
    if let Some(error) = failed {
        tracing::warn!(
            error,
            "the journal cannot be reached: logging to standard error"
        );
    }
    if env::var_os(IGNORED).is_some_and(|value| !value.is_empty()) {
        tracing::warn!(
            variable = IGNORED,
            "without effect: each message is on one line"
        );
    }
    LogLevel(handle)
}

/// Whether systemd says that standard error is a stream into its journal.
fn stderr_is_the_journal() -> bool {
    let Ok(stream) = env::var("JOURNAL_STREAM") else {
        return false;
    };
    let stderr = fs::metadata("/proc/self/fd/2");
    stderr.is_ok_and(|stderr| stream == format!("{}:{}", stderr.dev(), stderr.ino()))
}
