//! What can go wrong in a client.

use std::io;
use std::time::Duration;

use crate::device::{ArgumentError, Refusal};
use crate::line_buffer::LineTooLong;
use crate::message::MessageError;

/// A client cannot connect, or a request has no reply that could be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No address of the server accepts a connection.
    #[error("cannot connect to {address}: {source}; see that the server runs and has this port")]
    Connect {
        /// The address, as the caller gave it.
        address: String,
        /// The reason of the last attempt.
        source: io::Error,
    },
    /// The server did not name its protocol in time.
    #[error(
        "no #version-connect katcp-protocol came within {} s: is this the port of a KATCP server?",
        .0.as_secs_f64()
    )]
    NoGreeting(Duration),
    /// The server speaks another version of KATCP.
    #[error("the server speaks KATCP '{0}': this client speaks version 5")]
    Protocol(String),
    /// The name of a request is none.
    #[error("'{0}' is no name of a request: a letter, then letters, digits and hyphens")]
    Name(String),
    /// A request is longer than a line may be.
    #[error("?{name} has {bytes} bytes: at most {limit} fit a line; split the request")]
    RequestTooLong {
        /// Name of the request.
        name: String,
        /// Bytes of the request's line.
        bytes: usize,
        /// The limit: [`ClientLimits::line`](crate::ClientLimits::line).
        limit: usize,
    },
    /// No reply came in time.
    #[error(
        "no reply to ?{name} within {} s: ask again, or allow more by set_reply_time; \
         the request may still take effect",
        time.as_secs_f64()
    )]
    NoReply {
        /// Name of the request.
        name: String,
        /// The time that the server had.
        time: Duration,
    },
    /// The server did not do the request.
    #[error("?{name} was refused: {refusal}")]
    Refused {
        /// Name of the request.
        name: String,
        /// The reply, `fail` or `invalid`, with its text.
        refusal: Refusal,
    },
    /// The informs of a request are more than the limit. The connection is closed.
    #[error(
        "the answer to ?{name} has more than {limit} bytes: ask for less, or allow more in \
         ClientLimits; the connection is closed"
    )]
    AnswerTooLong {
        /// Name of the request.
        name: String,
        /// The limit: [`ClientLimits::answer`](crate::ClientLimits::answer).
        limit: usize,
    },
    /// A line of the server is too long. The connection is closed.
    #[error("the server sent too much: {0}; allow more in ClientLimits; the connection is closed")]
    LineTooLong(#[from] LineTooLong),
    /// A line of the server is no message. The connection is closed.
    #[error("the server's line '{line}' is no KATCP: {source}; the connection is closed")]
    Malformed {
        /// The beginning of the line.
        line: String,
        /// The reason.
        source: MessageError,
    },
    /// A message of the server lacks an argument, or has one that cannot be read.
    #[error("the server's {message} cannot be read: {source}")]
    Argument {
        /// Kind and name of the message, such as `#sensor-status`.
        message: String,
        /// The reason.
        source: ArgumentError,
    },
    /// The connection is closed.
    #[error("the connection is closed{}: connect again", in_brackets(why.as_deref()))]
    Closed {
        /// The text of the server's `#disconnect`, if there was one.
        why: Option<String>,
    },
    /// The connection failed.
    #[error("the connection failed: {0}; connect again")]
    Io(io::Error),
}

fn in_brackets(why: Option<&str>) -> String {
    why.map_or_else(String::new, |why| format!(" ({why})"))
}
