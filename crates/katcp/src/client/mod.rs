//! A client that waits: for the connection, for each reply, for reports of sensors.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use katcp::{Client, Strategy};
//!
//! let mut client = Client::connect("localhost:7147")?;
//! let reply = client.request("gain", &["wideband", "0"])?;
//! println!("gains: {}", reply.texts().join(" "));
//!
//! client.sample(&["wideband.input0.feng-clip-cnt"], Strategy::Auto)?;
//! while let Some(report) = client.next_report(Duration::from_secs(10))? {
//!     println!("{} {} {}", report.name, report.status, report.text());
//! }
//! # Ok::<(), katcp::ClientError>(())
//! ```

mod connection;
mod error;
mod kept;
mod reply;
mod sensors;

use std::collections::VecDeque;
use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use self::connection::Connection;
pub use self::error::ClientError;
use self::kept::KeptMessages;
pub use self::reply::Reply;
pub use self::sensors::{SensorListing, SensorReport};
use crate::message::{MessageBuilder, MessageId, MessageKind, OwnedMessage, is_message_name};
use crate::value::excerpt;

/// Limits on the time that a client waits, and on the memory that a server can take from it.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// Time for the connection and the server's greeting. 10 s by default.
    pub connect_time: Duration,
    /// Time from a request to its reply. 30 s by default.
    pub reply_time: Duration,
    /// Bytes of a line in both directions, without its end. 16 MiB by default.
    pub line: usize,
    /// Bytes of all informs of a request and its reply. 256 MiB by default.
    pub answer: usize,
    /// Bytes of reports, and of other informs, that are kept until the program asks for them.
    /// Beyond, the oldest are lost. 64 MiB each by default.
    pub kept: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            connect_time: Duration::from_secs(10),
            reply_time: Duration::from_secs(30),
            line: 16 << 20,
            answer: 256 << 20,
            kept: 64 << 20,
        }
    }
}

/// A connection to a KATCP server.
///
/// One request is under way at a time. Informs that the program did not ask for, and reports of
/// sensors, are kept until the program asks for them ([`next_inform`](Self::next_inform),
/// [`next_report`](Self::next_report)). The client reads from its connection only while one of its
/// methods runs: servers disconnect clients that subscribe to sensors and do not read for long.
///
/// A client does not connect again by itself. It ends its connection when it is dropped.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    address: SocketAddr,
    limits: ClientLimits,
    protocol: Protocol,
    last_id: u32,
    reports: KeptMessages,
    /// Reports that came in one inform, and were not asked for yet.
    bulk: VecDeque<SensorReport>,
    informs: KeptMessages,
}

/// Version of the protocol that a server speaks.
#[derive(Debug)]
struct Protocol {
    version: String,
    /// Flag `I`: requests may have identifiers.
    has_ids: bool,
    /// Flag `B`: `?sensor-sampling` takes many sensors.
    has_bulk: bool,
}

impl Protocol {
    fn parse(version: String) -> Result<Self, ClientError> {
        let (number, flags) = version.split_once('-').unwrap_or((&version, ""));
        if number.split('.').next() != Some("5") {
            return Err(ClientError::Protocol(excerpt(version.as_bytes())));
        }
        Ok(Self {
            has_ids: flags.contains('I'),
            has_bulk: flags.contains('B'),
            version,
        })
    }
}

impl Client {
    /// Connects to a server at `host:port` with the default limits, and waits for its greeting.
    pub fn connect(address: impl ToSocketAddrs + Display) -> Result<Self, ClientError> {
        Self::connect_with(address, ClientLimits::default())
    }

    /// Connects with limits of one's own.
    pub fn connect_with(
        address: impl ToSocketAddrs + Display,
        limits: ClientLimits,
    ) -> Result<Self, ClientError> {
        let deadline = Instant::now().checked_add(limits.connect_time);
        let (stream, address) = open(&address, limits.connect_time, deadline)?;
        let mut connection = Connection::new(stream, limits.line);
        let mut informs = KeptMessages::new(limits.kept);
        let mut last = false;
        let protocol = loop {
            if let Some(message) = connection.received()? {
                let version = protocol_version(&message);
                informs.push(message);
                if let Some(version) = version {
                    break Protocol::parse(version)?;
                }
                continue;
            }
            let left = left_until(deadline);
            if last || !connection.fill(left)? {
                return Err(ClientError::NoGreeting(limits.connect_time));
            }
            // What came in time counts, also if this thread came too late to look.
            last = left == Some(Duration::ZERO);
        };
        Ok(Self {
            connection,
            address,
            limits,
            protocol,
            last_id: 0,
            reports: KeptMessages::new(limits.kept),
            bulk: VecDeque::new(),
            informs,
        })
    }

    /// The server's address.
    pub fn server_address(&self) -> SocketAddr {
        self.address
    }

    /// Version of the server's protocol, such as `5.1-MIB`.
    ///
    /// Versions of the server's library and device are in the informs of `?version-list`.
    pub fn protocol(&self) -> &str {
        &self.protocol.version
    }

    /// Changes the time that the server has for each reply.
    pub fn set_reply_time(&mut self, time: Duration) {
        self.limits.reply_time = time;
    }

    /// Sends a request, and waits for its reply.
    ///
    /// A reply that is not `ok` is an error. After [`ClientError::NoReply`] the client can go on: a
    /// late reply is ignored. If the server has no message identifiers, the connection is closed
    /// instead, as a late reply could be taken for the next one.
    pub fn request(&mut self, name: &str, arguments: &[&str]) -> Result<Reply, ClientError> {
        self.ask(name, arguments.iter().map(|argument| argument.as_bytes()))
    }

    /// Sends a request whose arguments are not UTF-8. Otherwise as [`request`](Self::request).
    pub fn request_bytes(&mut self, name: &str, arguments: &[&[u8]]) -> Result<Reply, ClientError> {
        self.ask(name, arguments.iter().copied())
    }

    fn ask<'a>(
        &mut self,
        name: &str,
        arguments: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Reply, ClientError> {
        if !is_message_name(name) {
            return Err(ClientError::Name(excerpt(name.as_bytes())));
        }
        let id = self.next_id();
        let line = MessageBuilder::new(MessageKind::Request, name, id);
        let line = arguments.fold(line, MessageBuilder::argument).finish();
        let name = name.to_owned();
        if line.len() - 1 > self.limits.line {
            let (bytes, limit) = (line.len() - 1, self.limits.line);
            return Err(ClientError::RequestTooLong { name, bytes, limit });
        }
        let time = self.limits.reply_time;
        let deadline = Instant::now().checked_add(time);
        if !self.connection.send(&line, time)? {
            return Err(ClientError::NoReply { name, time });
        }
        let mut informs = Vec::new();
        let (mut bytes, mut last) = (0, false);
        loop {
            while let Some(message) = self.connection.received()? {
                if message.id() != id || message.name() != name {
                    self.keep(message);
                    continue;
                }
                bytes += message.size();
                if bytes > self.limits.answer {
                    self.connection.close();
                    let limit = self.limits.answer;
                    return Err(ClientError::AnswerTooLong { name, limit });
                }
                match message.kind() {
                    MessageKind::Inform => informs.push(message),
                    MessageKind::Reply => return Reply::new(message, informs),
                    MessageKind::Request => {}
                }
            }
            let left = left_until(deadline);
            if last || !self.connection.fill(left)? {
                if !self.protocol.has_ids {
                    self.connection.close();
                }
                return Err(ClientError::NoReply { name, time });
            }
            // As for the greeting.
            last = left == Some(Duration::ZERO);
        }
    }

    /// The identifier of the next request, if the server has identifiers.
    fn next_id(&mut self) -> Option<MessageId> {
        self.last_id = self.last_id % i32::MAX as u32 + 1;
        MessageId::new(self.last_id).filter(|_| self.protocol.has_ids)
    }

    /// Waits for an inform that belongs to no request and is no report of a sensor, such as
    /// `#log`, `#client-connected`, `#disconnect` and, right after the connection, the server's
    /// `#version-connect`. `None` if none comes within this time; zero asks without waiting.
    pub fn next_inform(&mut self, within: Duration) -> Result<Option<OwnedMessage>, ClientError> {
        self.wait(Some(within), |client| client.informs.pop().map(Ok))
    }

    /// Count of reports and other informs that were lost, as more came than the client keeps: see
    /// [`ClientLimits::kept`].
    pub fn lost(&self) -> u64 {
        self.reports.lost() + self.informs.lost()
    }

    /// Waits until `take` finds what it looks for among the messages that are kept.
    fn wait<T>(
        &mut self,
        within: Option<Duration>,
        mut take: impl FnMut(&mut Self) -> Option<Result<T, ClientError>>,
    ) -> Result<Option<T>, ClientError> {
        let deadline = within.and_then(|within| Instant::now().checked_add(within));
        let mut last = false;
        loop {
            while let Some(message) = self.connection.received()? {
                self.keep(message);
            }
            if let Some(taken) = take(self) {
                return taken.map(Some);
            }
            let left = left_until(deadline);
            if last || !self.connection.fill(left)? {
                return Ok(None);
            }
            last = left == Some(Duration::ZERO);
        }
    }

    /// Keeps a message that answers no request. Late replies and their informs are dropped.
    fn keep(&mut self, message: OwnedMessage) {
        if message.kind() != MessageKind::Inform || message.id().is_some() {
            return;
        }
        match message.name() {
            "sensor-status" => self.reports.push(message),
            _ => self.informs.push(message),
        }
    }
}

/// Connects to the first address that accepts.
fn open(
    address: &(impl ToSocketAddrs + Display),
    time: Duration,
    deadline: Option<Instant>,
) -> Result<(TcpStream, SocketAddr), ClientError> {
    let failed = |source| ClientError::Connect {
        address: address.to_string(),
        source,
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs().map_err(failed)? {
        let left = left_until(deadline).unwrap_or(time);
        // Zero is refused, whereas this times out.
        match TcpStream::connect_timeout(&address, left.max(Duration::from_millis(1))) {
            Ok(stream) => return Ok((stream, address)),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

fn left_until(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

/// The version in `#version-connect katcp-protocol VERSION`.
fn protocol_version(message: &OwnedMessage) -> Option<String> {
    let is_version = message.kind() == MessageKind::Inform && message.name() == "version-connect";
    let mut texts = message.texts().into_iter();
    (is_version && texts.next()? == "katcp-protocol").then(|| texts.next())?
}

#[cfg(test)]
mod tests;
