//! Log messages to a collector in the Graylog Extended Log Format, version 1.1, by UDP: a JSON
//! object for each, compressed, in chunks where it is long. The variables that ask for it and the
//! fields are those of katsdpservices, which MeerKAT's controller relies on.

use std::fmt::{Debug, Write as _};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::Context;

use super::log;

/// Where messages go: `HOST` or `HOST:PORT`.
const ADDRESS: &str = "KATSDP_LOG_GELF_ADDRESS";
/// A JSON object of further fields of all messages.
const EXTRA: &str = "KATSDP_LOG_GELF_EXTRA";
/// Name of this host.
const LOCAL_NAME: &str = "KATSDP_LOG_GELF_LOCALNAME";
/// Port of collectors.
const PORT: u16 = 12201;
/// Bytes of a message that one datagram holds.
const CHUNK: usize = 1300;
/// Chunks that a collector puts together.
const MOST_CHUNKS: usize = 128;
/// Characters of a message's text, and of a value.
const MOST_TEXT: usize = 32 << 10;

/// Why no messages are sent.
#[derive(Debug, thiserror::Error)]
pub enum GelfError {
    /// No such host, or no IPv4 address of it.
    #[error("{ADDRESS}={address}: {why}; write HOST or HOST:PORT, such as 10.0.0.1:12201")]
    Address {
        /// As the variable has it.
        address: String,
        /// Why.
        why: String,
    },
    /// No socket.
    #[error("{ADDRESS}={address}: {source}")]
    Socket {
        /// As the variable has it.
        address: String,
        /// Why.
        source: io::Error,
    },
}

/// The collector that the environment asks for, once anybody has asked.
static COLLECTOR: OnceLock<Option<Gelf>> = OnceLock::new();

/// Sends every message from now on to the collector that the environment asks for, if it does; and
/// what of the environment has no effect.
pub fn layer() -> (Option<GelfLayer>, Option<String>) {
    let (gelf, wrong) = match Gelf::of_environment() {
        None => (None, None),
        Some(Ok((gelf, wrong))) => (Some(gelf), wrong),
        Some(Err(error)) => (None, Some(error.to_string())),
    };
    (
        COLLECTOR.get_or_init(|| gelf).as_ref().map(GelfLayer),
        wrong,
    )
}

/// Whether messages go to a collector by themselves.
pub fn is_on() -> bool {
    COLLECTOR.get().is_some_and(Option::is_some)
}

/// Tells the collector why a command fails, also where it failed before anything was logged.
pub fn complain(why: &str) {
    let of_environment = || Some(Gelf::of_environment()?.ok()?.0);
    if let Some(gelf) = COLLECTOR.get_or_init(of_environment) {
        let origin = Origin {
            level: Level::ERROR,
            file: file!(),
            line: line!(),
            target: module_path!(),
        };
        let fields = Fields {
            message: why.to_owned(),
            ..Fields::default()
        };
        gelf.log(origin, fields);
    }
}

/// Where in the program a message comes from.
struct Origin<'a> {
    level: Level,
    file: &'a str,
    line: u32,
    target: &'a str,
}

/// A way to a collector.
pub struct Gelf {
    socket: UdpSocket,
    collector: SocketAddr,
    host: String,
    /// Fields of all messages.
    extra: Map<String, Value>,
    /// Whether the last message was not sent: that is told once.
    failing: AtomicBool,
}

impl Gelf {
    /// The one that the environment asks for, and what of the environment has no effect.
    fn of_environment() -> Option<Result<(Self, Option<String>), GelfError>> {
        let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let address = set(ADDRESS)?;
        let (extra, wrong) = extra(&set(EXTRA).unwrap_or_default());
        let name = set(LOCAL_NAME).or_else(own_name);
        let gelf = Self::to(&address, name.unwrap_or_default(), extra);
        Some(gelf.map(|gelf| (gelf, wrong)))
    }

    fn to(address: &str, host: String, extra: Map<String, Value>) -> Result<Self, GelfError> {
        let collector = resolve(address).map_err(|why| GelfError::Address {
            address: address.to_owned(),
            why,
        })?;
        let open = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            // Whoever logs is not held up: the threads that move data do, too.
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let socket = open().map_err(|source| GelfError::Socket {
            address: address.to_owned(),
            source,
        })?;
        Ok(Self {
            socket,
            collector,
            host,
            extra,
            failing: AtomicBool::new(false),
        })
    }

    /// The object of a message.
    fn object(&self, origin: &Origin<'_>, fields: Fields, now: Duration) -> Value {
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
        for (name, value) in fields.list {
            put(&name, value);
        }
        let text = format!("{}{}", fields.message, fields.values);
        put("version", "1.1".into());
        put("host", self.host.clone().into());
        put("short_message", cut(text.trim_start()).into());
        put("timestamp", now.as_secs_f64().into());
        put("level", severity(origin.level).into());
        let path = Path::new(origin.file);
        let name = |part: Option<&std::ffi::OsStr>| -> Value {
            part.unwrap_or_default().to_string_lossy().into()
        };
        put("_file", name(path.file_name()));
        put("_module", name(path.file_stem()));
        put("_line", origin.line.into());
        // What Python's logging writes where nobody knows.
        put("_func", "(unknown function)".into());
        put("_logger_name", origin.target.into());
        put("_timestamp_precise", precise().into());
        object.extend(self.extra.clone());
        object.into()
    }

    fn log(&self, origin: Origin<'_>, fields: Fields) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let outcome = self.send(&self.object(&origin, fields, now.unwrap_or_default()));
        let failed = outcome.is_err();
        // Standard error has every message. A collector that cannot be reached is told once.
        if let Err(error) = outcome
            && !self.failing.load(Ordering::Relaxed)
        {
            say_unsent(&error);
        }
        self.failing.store(failed, Ordering::Relaxed);
    }

    fn send(&self, object: &Value) -> io::Result<()> {
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
        serde_json::to_writer(&mut packed, object)?;
        let packed = packed.finish()?;
        // To an address each time: a connected socket would give the next message the error of the
        // last, and lose it.
        let send = |datagram: &[u8]| self.socket.send_to(datagram, self.collector).map(drop);
        if packed.len() <= CHUNK {
            return send(&packed);
        }
        let chunks = packed.chunks(CHUNK);
        let count = chunks.len();
        if count > MOST_CHUNKS {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let id: [u8; 8] = rand::random();
        for (number, chunk) in chunks.enumerate() {
            let mut datagram = vec![0x1e, 0x0f];
            datagram.extend(id);
            datagram.extend([number as u8, count as u8]);
            datagram.extend(chunk);
            send(&datagram)?;
        }
        Ok(())
    }
}

/// Says on standard error that a message was not sent: one of the log's would come back here.
fn say_unsent(error: &io::Error) {
    let text = format!("{ADDRESS}: a message was not sent: {error}");
    let line = match log::is_json() {
        true => serde_json::json!({
            "timestamp": precise(),
            "level": "WARN",
            "fields": {"message": text},
            "target": module_path!(),
        })
        .to_string(),
        false => text,
    };
    eprintln!("{line}");
}

/// What takes messages to a collector.
pub struct GelfLayer(&'static Gelf);

impl<S: Subscriber> Layer<S> for GelfLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let origin = Origin {
            level: *metadata.level(),
            file: metadata.file().unwrap_or_default(),
            line: metadata.line().unwrap_or(0),
            target: metadata.target(),
        };
        self.0.log(origin, fields);
    }
}

/// The first IPv4 address of a collector.
fn resolve(address: &str) -> Result<SocketAddr, String> {
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) => {
            let port = port.parse::<u16>();
            (host, port.map_err(|_| "its port is none".to_owned())?)
        }
        None => (address, PORT),
    };
    let found = (host, port).to_socket_addrs();
    let mut found = found.map_err(|error| error.to_string())?;
    let ipv4 = found.find(SocketAddr::is_ipv4);
    ipv4.ok_or_else(|| "it has no IPv4 address".to_owned())
}

/// Fields of all messages, as the variable has them, with the container's; and what is wrong with
/// the variable.
fn extra(text: &str) -> (Map<String, Value>, Option<String>) {
    let (given, wrong) = match serde_json::from_str(if text.is_empty() { "{}" } else { text }) {
        Ok(Value::Object(given)) => (given, None),
        Ok(_) => (Map::new(), Some(format!("{EXTRA}={text}: no JSON object"))),
        Err(error) => (Map::new(), Some(format!("{EXTRA}={text}: {error}"))),
    };
    let fields = given.into_iter().filter(|(name, _)| name != "id");
    let fields = fields.map(|(name, value)| {
        let value = match value {
            Value::String(_) | Value::Number(_) => value,
            other => other.to_string().into(),
        };
        (format!("_{name}"), value)
    });
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let container = container(&groups).map(|id| ("_docker.id".to_owned(), id.into()));
    (fields.chain(container).collect(), wrong)
}

/// Docker's number of the container that this process is in, if its control groups tell.
fn container(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| {
        let (_, group) = line.rsplit_once('/')?;
        let scope = group.strip_prefix("docker-");
        let scope = scope.and_then(|scope| scope.strip_suffix(".scope"));
        let id = match scope {
            Some(id) => id,
            None if line.ends_with(&format!("/docker/{group}")) => group,
            None => return None,
        };
        let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then_some(id)
    })
}

fn own_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned())
}

/// As syslog counts.
fn severity(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// The time with microseconds, as ISO 8601 writes it.
fn precise() -> String {
    let mut text = String::new();
    // A string takes everything.
    let _ = fmt::time::SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

/// No more of a text than a collector takes.
fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(MOST_TEXT);
    end.map_or(text, |(end, _)| &text[..end])
}

/// What an event says.
#[derive(Default)]
struct Fields {
    message: String,
    /// ` name=value` for each of the others.
    values: String,
    list: Vec<(String, Value)>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value, text: &dyn Debug) {
        let _ = write!(self.values, " {field}={text:?}");
        // Fields of the format's own have no underscore in front.
        self.list.push((format!("_{}", field.name()), value));
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into(), &value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into(), &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into(), &value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message.push_str(value),
            _ => self.add(field, cut(value).into(), &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message.push_str(&text),
            _ => self.add(field, cut(&text).into(), &format_args!("{text}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_port() {
        let port = |address: &str| resolve(address).map(|found| found.port());
        assert_eq!(port("127.0.0.1"), Ok(12201));
        assert_eq!(port("127.0.0.1:514"), Ok(514));
        assert!(port("127.0.0.1:x").is_err() && port("no.such.host.invalid").is_err());
        let refused = Gelf::to("127.0.0.1:x", String::new(), Map::new());
        let error = refused.err().map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.contains("127.0.0.1:x: its port")));
    }

    #[test]
    fn extra_fields_are_texts_and_numbers() {
        let (fields, wrong) = extra(r#"{"task": "f.1", "n": 2.5, "flag": true, "id": 1}"#);
        assert_eq!(wrong, None);
        assert_eq!(fields["_task"], "f.1");
        assert_eq!(fields["_n"], 2.5);
        assert_eq!(fields["_flag"], "true");
        assert!(!fields.contains_key("_id"));
        for text in ["[1]", "{"] {
            let (_, wrong) = extra(text);
            assert!(wrong.is_some_and(|wrong| wrong.contains(EXTRA)), "{text}");
        }
    }

    #[test]
    fn control_groups_tell_of_the_container() {
        let first = "12:cpuset:/docker/0123abcd\n0::/\n";
        assert_eq!(container(first), Some("0123abcd"));
        assert_eq!(
            container("0::/system.slice/docker-ff00.scope\n"),
            Some("ff00")
        );
        assert_eq!(container("0::/system.slice/karoo.service\n"), None);
        assert_eq!(container("0::/other/beef\n"), None);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "ä".repeat(MOST_TEXT + 5);
        assert_eq!(cut(&long).chars().count(), MOST_TEXT);
        assert_eq!(cut("short"), "short");
    }
}
