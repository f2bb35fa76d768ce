//! The device behind a server: its requests, their parameters, its responses.

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;

use crate::message::{Arguments, Message, MessageBuilder, MessageKind, push_argument};
use crate::value::ValueError;

/// Result of a request that takes time: the arguments of its reply, or why there are none.
pub type ReplyFuture = Pin<Box<dyn Future<Output = Result<Vec<String>, Refusal>> + Send>>;

/// End of the wait for room for a request: there is room, or the device gives the wait up.
pub type RoomFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A thing that KATCP clients control and watch.
///
/// The server answers the standard requests (`?help`, `?sensor-value`, …) itself. One thread
/// handles requests, one at a time. [`SimpleDevice`](crate::SimpleDevice) makes a device of
/// closures.
pub trait Device: Send + Sync + 'static {
    /// Name and version of the device's interface, such as `katgpucbf-fgpu-1.0`.
    fn version(&self) -> &str;

    /// Name and version of the device's build, which change whenever the device does.
    fn build(&self) -> &str;

    /// The requests that the device has beside the standard requests.
    fn requests(&self) -> &[RequestHelp];

    /// Returns what a request of the device waits for, if the device has no room for it now. Only
    /// the client of the request waits.
    fn room(&self, request: &Message<'_>) -> Option<RoomFuture> {
        let _ = request;
        None
    }

    /// Answers a request of the device. All other clients wait meanwhile, so it must not take long.
    fn handle(&self, request: &Message<'_>, response: &mut Response) -> Result<(), Refusal>;

    /// Hears what a client was answered to any request, `lines` of the protocol, the reply last.
    /// For whoever keeps a record; must not take long. Requests that take long are not told.
    fn answered(&self, client: SocketAddr, request: &Message<'_>, lines: &[u8]) {
        let _ = (client, request, lines);
    }

    /// Begins a request of the device that takes long, in place of [`handle`](Self::handle). Only
    /// the client's next request waits. The server drops the future when the client leaves or the
    /// server ends.
    fn begin(&self, request: &Message<'_>) -> Option<ReplyFuture> {
        let _ = request;
        None
    }
}

/// Help for a request, as `?help` gives it.
#[derive(Clone, Copy, Debug)]
pub struct RequestHelp {
    /// Name of the request.
    pub name: &'static str,
    /// Parameters of the request, separated by blanks, optional ones in brackets.
    pub parameters: &'static str,
    /// Purpose of the request, in one sentence.
    pub summary: &'static str,
}

/// A request was not done; holds the text of the reply. Every error converts to `fail`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `fail`: the request has a mistake, or cannot be done.
    Fail(String),
    /// `invalid`: the server has no such request.
    Invalid(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fail(why) => write!(f, "fail: {why}"),
            Self::Invalid(why) => write!(f, "invalid: {why}"),
        }
    }
}

impl<E: std::error::Error> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self::Fail(error.to_string())
    }
}

/// A message has the wrong number of arguments, or one that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// An argument is missing.
    #[error("{name} is missing: ?help {request} says what is needed")]
    Missing {
        /// Name of the request.
        request: String,
        /// Name of the parameter.
        name: &'static str,
    },
    /// There are more arguments than the request has parameters.
    #[error("{extra} too many: ?help {request} says what is needed", extra = arguments(*extra))]
    TooMany {
        /// Name of the request.
        request: String,
        /// Count of the arguments beyond the last parameter.
        extra: usize,
    },
    /// An argument does not read as its type.
    #[error("{name}: {source}")]
    Value {
        /// Name of the parameter.
        name: &'static str,
        /// The reason.
        source: ValueError,
    },
}

fn arguments(count: usize) -> String {
    format!("{count} argument{}", if count == 1 { "" } else { "s" })
}

/// Arguments of a message, read in order.
#[derive(Debug)]
pub struct Parameters<'m> {
    request: &'m str,
    arguments: Arguments<'m>,
}

impl<'m> Parameters<'m> {
    /// The arguments of `message`.
    pub fn new(message: &Message<'m>) -> Self {
        Self {
            request: message.name(),
            arguments: message.arguments(),
        }
    }

    /// The arguments that are left of the message with this name.
    pub(crate) fn of_arguments(name: &'m str, arguments: Arguments<'m>) -> Self {
        Self {
            request: name,
            arguments,
        }
    }

    /// Reads the next argument by `read`, such as [`value::float`](crate::value::float). `name` is
    /// for errors.
    pub fn required<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&[u8]) -> Result<T, ValueError>,
    ) -> Result<T, ArgumentError> {
        let value = self.optional(name, read)?;
        value.ok_or_else(|| ArgumentError::Missing {
            request: self.request.to_owned(),
            name,
        })
    }

    /// Reads the next argument, if there is one.
    pub fn optional<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&[u8]) -> Result<T, ValueError>,
    ) -> Result<Option<T>, ArgumentError> {
        let value = self.arguments.next().map(|argument| read(&argument));
        let bad = |source| ArgumentError::Value { name, source };
        value.transpose().map_err(bad)
    }

    /// Returns the arguments that are left.
    pub fn rest(self) -> Arguments<'m> {
        self.arguments
    }

    /// Checks that no argument is left.
    pub fn end(self) -> Result<(), ArgumentError> {
        match self.arguments.len() {
            0 => Ok(()),
            extra => Err(ArgumentError::TooMany {
                request: self.request.to_owned(),
                extra,
            }),
        }
    }
}

/// Answer to a request, under construction: informs, then the arguments of the reply.
#[derive(Debug)]
pub struct Response {
    inform: MessageBuilder,
    reply: MessageBuilder,
    informs: Vec<u8>,
    count: usize,
    arguments: Vec<u8>,
}

impl Response {
    /// A response to `request` without informs and arguments.
    pub fn to(request: &Message<'_>) -> Self {
        let line = |kind| MessageBuilder::new(kind, request.name(), request.id());
        Self {
            inform: line(MessageKind::Inform),
            reply: line(MessageKind::Reply),
            informs: Vec::new(),
            count: 0,
            arguments: Vec::new(),
        }
    }

    /// Adds an inform, which has the name and the identifier of the request.
    pub fn inform(&mut self, arguments: &[impl AsRef<[u8]>]) {
        let line = self.inform.clone();
        let line = arguments.iter().fold(line, |line, a| line.argument(a));
        self.informs.extend(line.finish());
        self.count += 1;
    }

    /// Adds an argument to the reply.
    pub fn argument(&mut self, argument: impl AsRef<[u8]>) {
        push_argument(&mut self.arguments, argument.as_ref());
    }

    /// Adds the number of informs to the reply.
    pub fn count_informs(&mut self) {
        self.argument(self.count.to_string());
    }

    /// The informs alone.
    pub(crate) fn into_informs(self) -> Vec<u8> {
        self.informs
    }

    /// Returns all lines of the response: the informs, then the reply with this outcome.
    pub fn finish(self, outcome: Result<(), Refusal>) -> Vec<u8> {
        let mut lines = self.informs;
        let reply = match outcome {
            Ok(()) => self.reply.argument("ok").encoded(&self.arguments),
            Err(Refusal::Fail(why)) => self.reply.argument("fail").argument(why),
            Err(Refusal::Invalid(why)) => self.reply.argument("invalid").argument(why),
        };
        lines.extend(reply.finish());
        lines
    }
}
