//! Standard requests: those that every device answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use regex::{Regex, RegexBuilder};

use crate::device::{Device, Parameters, Refusal, ReplyFuture, RequestHelp, Response, RoomFuture};
use crate::message::Message;
use crate::number::format_float;
use crate::outbox::Outbox;
use crate::sensor::Sensors;
use crate::value::{ValueType, excerpt, text, word};

/// Version of the protocol, and name and version of this library, as clients are told them.
const PROTOCOL: &str = "5.1-MIB";
const LIBRARY: &str = concat!(
    "karoo-",
    env!("CARGO_PKG_VERSION_MAJOR"),
    ".",
    env!("CARGO_PKG_VERSION_MINOR")
);
const LIBRARY_BUILD: &str = concat!("karoo-", env!("CARGO_PKG_VERSION"));

/// Bytes that a regular expression of a client may compile to.
const REGEX_BYTES: usize = 1 << 20;

/// Adds the versions of protocol, library and device to `response`, as informs.
pub fn versions(device: &dyn Device, response: &mut Response) {
    response.inform(&["katcp-protocol", PROTOCOL]);
    response.inform(&["katcp-library", LIBRARY, LIBRARY_BUILD]);
    response.inform(&["katcp-device", device.version(), device.build()]);
}

const STANDARD: &[RequestHelp] = &[
    RequestHelp {
        name: "client-list",
        parameters: "",
        summary: "List the addresses of all connected clients.",
    },
    RequestHelp {
        name: "halt",
        parameters: "",
        summary: "Stop the device: what is under way is still finished.",
    },
    RequestHelp {
        name: "help",
        parameters: "[request]",
        summary: "Say what a request is for, or list all.",
    },
    RequestHelp {
        name: "log-level",
        parameters: "[off|fatal|error|warn|info|debug|all]",
        summary: "Set or query the level of #log informs. This device sends none but for lines that it cannot read.",
    },
    RequestHelp {
        name: "sensor-list",
        parameters: "[name|/regex/]",
        summary: "List sensors with their descriptions, units and types.",
    },
    RequestHelp {
        name: "sensor-sampling",
        parameters: "name[,name…] [none|auto|event|period seconds|differential difference|event-rate min max|\
                     differential-rate difference min max]",
        summary: "Subscribe to sensors, or query a subscription.",
    },
    RequestHelp {
        name: "sensor-value",
        parameters: "[name|/regex/]",
        summary: "List sensors with their readings.",
    },
    RequestHelp {
        name: "version-list",
        parameters: "",
        summary: "List the versions of protocol, library and device.",
    },
    RequestHelp {
        name: "watchdog",
        parameters: "",
        summary: "Answer, to show that the device does.",
    },
];

const LOG_LEVELS: &[&str] = &["all", "debug", "info", "warn", "error", "fatal", "off"];

/// Answers to the standard requests of a device, and the way to its own requests.
pub struct StandardRequests<D> {
    /// The device behind the server.
    pub device: Arc<D>,
    /// Sensors of the device.
    pub sensors: Sensors,
    log_level: AtomicUsize,
}

/// Bytes that a regular expression may have. What it is parsed to is bounded by nothing else, and
/// two bytes can stand for a class of kilobytes.
const PATTERN_BYTES: usize = 1024;

/// A regular expression for sensor names cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("/{pattern}/ is no regular expression that can be used here: {why}")]
struct PatternError {
    pattern: String,
    why: String,
}

/// Choice of sensors in `?sensor-list` and `?sensor-value`.
enum SensorFilter {
    All,
    Named(String),
    Matching(Regex),
}

impl SensorFilter {
    fn parse(name: Option<&str>, sensors: &Sensors) -> Result<Self, Refusal> {
        let Some(name) = name else {
            return Ok(Self::All);
        };
        let pattern = name
            .strip_prefix('/')
            .and_then(|rest| rest.strip_suffix('/'));
        let Some(pattern) = pattern else {
            sensors.find(name)?;
            return Ok(Self::Named(name.to_owned()));
        };
        if pattern.len() > PATTERN_BYTES {
            let bytes = pattern.len();
            let why = format!("it has {bytes} bytes, and at most {PATTERN_BYTES} are taken");
            let pattern = excerpt(pattern.as_bytes());
            return Err(PatternError { pattern, why }.into());
        }
        let regex = RegexBuilder::new(pattern)
            .size_limit(REGEX_BYTES)
            .dfa_size_limit(REGEX_BYTES)
            .build();
        let regex = regex.map_err(|error| PatternError {
            pattern: excerpt(pattern.as_bytes()),
            why: match error {
                regex::Error::CompiledTooBig(_) => "it is too large".to_owned(),
                // The last line of a syntax error says what is wrong.
                other => {
                    let text = other.to_string();
                    let last = text.lines().last().unwrap_or_default();
                    last.trim_start_matches("error: ").to_owned()
                }
            },
        })?;
        Ok(Self::Matching(regex))
    }

    fn includes(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(wanted) => name == wanted,
            Self::Matching(regex) => regex.is_match(name),
        }
    }
}

/// A sensor is named twice.
#[derive(Debug, thiserror::Error)]
#[error("Duplicate sensor name '{0}': name each once")]
struct Duplicate(String);

/// There is no help for a request.
#[derive(Debug, thiserror::Error)]
#[error("request '{0}' is not known: ?help lists all")]
struct NoHelp(String);

impl<D: Device> StandardRequests<D> {
    /// Answers for this device.
    pub fn new(device: Arc<D>, sensors: Sensors) -> Self {
        let warn = LOG_LEVELS.iter().position(|level| *level == "warn");
        Self {
            device,
            sensors,
            log_level: AtomicUsize::new(warn.unwrap_or(0)),
        }
    }

    /// What a request of the device waits for, if the device has no room for it now.
    pub fn room(&self, request: &Message<'_>) -> Option<RoomFuture> {
        self.is_devices(request.name())
            .then(|| self.device.room(request))?
    }

    /// Begins a request of the device that takes long.
    pub fn begin(&self, request: &Message<'_>) -> Option<ReplyFuture> {
        self.is_devices(request.name())
            .then(|| self.device.begin(request))?
    }

    fn is_devices(&self, name: &str) -> bool {
        let mut requests = self.device.requests().iter();
        requests.any(|help| help.name == name)
    }

    /// Answers a request of the client with this outbox. `clients` gives the addresses of all
    /// clients.
    pub fn handle(
        &self,
        request: &Message<'_>,
        outbox: &Arc<Outbox>,
        clients: impl FnOnce() -> Vec<String>,
    ) -> Vec<u8> {
        let mut response = Response::to(request);
        let outcome = self.answer(request, outbox, clients, &mut response);
        response.finish(outcome)
    }

    fn answer(
        &self,
        request: &Message<'_>,
        outbox: &Arc<Outbox>,
        clients: impl FnOnce() -> Vec<String>,
        response: &mut Response,
    ) -> Result<(), Refusal> {
        let mut parameters = Parameters::new(request);
        match request.name() {
            "client-list" => {
                parameters.end()?;
                for client in clients() {
                    response.inform(&[client]);
                }
                response.count_informs();
            }
            // The server ends after its reply to ?halt.
            "halt" | "watchdog" => parameters.end()?,
            "help" => {
                let name = parameters.optional("request", text)?;
                parameters.end()?;
                self.help(name.as_deref(), response)?;
            }
            "log-level" => {
                let level = parameters.optional("level", |level| word(level, LOG_LEVELS))?;
                parameters.end()?;
                if let Some(level) = LOG_LEVELS.iter().position(|l| Some(*l) == level) {
                    self.log_level.store(level, Ordering::Relaxed);
                }
                response.argument(LOG_LEVELS[self.log_level.load(Ordering::Relaxed)]);
            }
            "sensor-list" => {
                let name = parameters.optional("sensor", text)?;
                parameters.end()?;
                self.list(name.as_deref(), response)?;
            }
            "sensor-sampling" => self.sampling(parameters, outbox, response)?,
            "sensor-value" => {
                let name = parameters.optional("sensor", text)?;
                parameters.end()?;
                self.values(name.as_deref(), response)?;
            }
            "version-list" => {
                parameters.end()?;
                versions(&*self.device, response);
                response.count_informs();
            }
            name if self.is_devices(name) => {
                self.device.handle(request, response)?;
            }
            name => {
                let why = format!("unknown request {}", excerpt(name.as_bytes()));
                return Err(Refusal::Invalid(why));
            }
        }
        Ok(())
    }

    fn help(&self, name: Option<&str>, response: &mut Response) -> Result<(), Refusal> {
        let mut all: Vec<&RequestHelp> = STANDARD.iter().chain(self.device.requests()).collect();
        all.sort_by_key(|help| help.name);
        match name {
            None => {
                for help in all {
                    response.inform(&[help.name, help.summary]);
                }
            }
            Some(name) => {
                let help = all.into_iter().find(|help| help.name == name);
                let help = help.ok_or_else(|| NoHelp(excerpt(name.as_bytes())))?;
                let usage = format!("?{} {}", help.name, help.parameters);
                let text = format!("{}\n\n{}", help.summary, usage.trim_end());
                response.inform(&[help.name, &text]);
            }
        }
        response.count_informs();
        Ok(())
    }

    fn list(&self, name: Option<&str>, response: &mut Response) -> Result<(), Refusal> {
        let wanted = SensorFilter::parse(name, &self.sensors)?;
        self.sensors.visit(
            |name| wanted.includes(name),
            |info, _| {
                let mut arguments = vec![
                    &*info.name,
                    &info.description,
                    info.units,
                    info.value_type.name(),
                ];
                if let ValueType::Discrete(words) = info.value_type {
                    arguments.extend(words);
                }
                response.inform(&arguments);
            },
        );
        response.count_informs();
        Ok(())
    }

    fn values(&self, name: Option<&str>, response: &mut Response) -> Result<(), Refusal> {
        let wanted = SensorFilter::parse(name, &self.sensors)?;
        self.sensors.visit(
            |name| wanted.includes(name),
            |info, reading| {
                let (timestamp, value) = (format_float(reading.timestamp), reading.value.encode());
                response.inform(&[&timestamp, "1", &info.name, reading.status.name(), &value]);
            },
        );
        response.count_informs();
        Ok(())
    }

    fn sampling(
        &self,
        mut parameters: Parameters<'_>,
        outbox: &Arc<Outbox>,
        response: &mut Response,
    ) -> Result<(), Refusal> {
        let names = parameters.required("sensor", text)?;
        let mut rest = parameters.rest();
        let strategy = match rest.next() {
            None => self.sensors.strategy(outbox.client(), &names)?,
            Some(strategy) => {
                let mut each = Vec::new();
                // Ends at the first name that is unknown or comes again: a line may have millions.
                for name in names.split(',') {
                    self.sensors.find(name)?;
                    if each.contains(&name) {
                        return Err(Duplicate(name.to_owned()).into());
                    }
                    each.push(name);
                }
                // No strategy has more than three parameters.
                let parameters: Vec<_> = rest.take(4).collect();
                self.sensors
                    .subscribe(outbox, &each, &strategy, &parameters)?
            }
        };
        response.argument(names);
        for word in strategy.encode() {
            response.argument(word);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "requests_tests.rs"]
pub(crate) mod tests;
