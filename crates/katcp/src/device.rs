//! What is behind a server, and how it reads requests and answers them.

use std::pin::Pin;

use crate::message::{Arguments, Message, MessageBuilder, MessageKind, push_argument};
use crate::value::{ValueError, string};

/// What becomes of a request that takes time: the arguments of its reply, or why there are none.
pub type ReplyFuture = Pin<Box<dyn Future<Output = Result<Vec<String>, Refusal>> + Send>>;

/// There is room for a request, or waiting for that is given up.
pub type RoomFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What can be controlled by KATCP.
pub trait Device: Send + Sync + 'static {
    /// Name and version of its interface: `katgpucbf-fgpu-1.0`.
    fn version(&self) -> &str;

    /// What was built: changes whenever the device does.
    fn build(&self) -> &str;

    /// The requests that it has beside the standard ones.
    fn requests(&self) -> &'static [RequestHelp];

    /// What to wait for before one of its own requests is handled, if it cannot be now: only this client waits.
    fn room(&self, request: &Message<'_>) -> Option<RoomFuture> {
        let _ = request;
        None
    }

    /// Answers one of its own requests. It is not to take long: all other clients wait.
    fn handle(&self, request: &Message<'_>, response: &mut Response) -> Result<(), Refusal>;

    /// Begins one of its own requests that takes long, in place of [`handle`](Self::handle): only this client's next
    /// request waits, and what it does not await is given up when the client leaves or the server ends.
    fn begin(&self, request: &Message<'_>) -> Option<ReplyFuture> {
        let _ = request;
        None
    }
}

/// What a request is for.
#[derive(Clone, Copy, Debug)]
pub struct RequestHelp {
    /// Its name.
    pub name: &'static str,
    /// Its parameters, optional ones in brackets.
    pub parameters: &'static str,
    /// One sentence.
    pub summary: &'static str,
}

/// A request is not done, with the text of the reply. Whatever is an error becomes `fail`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It makes no sense, or cannot be done.
    Fail(String),
    /// There is no such request.
    Invalid(String),
}

impl<E: std::error::Error> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self::Fail(error.to_string())
    }
}

/// A request has the wrong number of arguments, or one that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// One is missing.
    #[error("{name} is missing: ?help {request} says what is needed")]
    Missing {
        /// The request.
        request: String,
        /// The argument.
        name: &'static str,
    },
    /// There are too many.
    #[error("{extra} too many: ?help {request} says what is needed", extra = arguments(*extra))]
    TooMany {
        /// The request.
        request: String,
        /// How many more than can be used.
        extra: usize,
    },
    /// One does not read as what it should be.
    #[error("{name}: {source}")]
    Value {
        /// The argument.
        name: &'static str,
        /// Why not.
        source: ValueError,
    },
}

fn arguments(count: usize) -> String {
    format!("{count} argument{}", if count == 1 { "" } else { "s" })
}

/// The arguments of a request, taken in order.
#[derive(Debug)]
pub struct Parameters<'m> {
    request: &'m str,
    arguments: Arguments<'m>,
}

impl<'m> Parameters<'m> {
    /// Of this request.
    pub fn of(request: &Message<'m>) -> Self {
        Self {
            request: request.name(),
            arguments: request.arguments(),
        }
    }

    /// The next one, as `read` understands it.
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

    /// The next one, if there is one.
    pub fn optional<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&[u8]) -> Result<T, ValueError>,
    ) -> Result<Option<T>, ArgumentError> {
        let value = self.arguments.next().map(|argument| read(&argument));
        let bad = |source| ArgumentError::Value { name, source };
        value.transpose().map_err(bad)
    }

    /// All that are left.
    pub fn rest(self) -> Arguments<'m> {
        self.arguments
    }

    /// There are no more.
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

/// An argument as owned text.
pub fn text(argument: &[u8]) -> Result<String, ValueError> {
    string(argument).map(str::to_owned)
}

/// An answer under construction: informs, then the arguments of the reply.
#[derive(Debug)]
pub struct Response {
    inform: MessageBuilder,
    reply: MessageBuilder,
    informs: Vec<u8>,
    count: usize,
    arguments: Vec<u8>,
}

impl Response {
    /// To this request.
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

    /// Adds an inform.
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
    pub fn into_informs(self) -> Vec<u8> {
        self.informs
    }

    /// All its lines, given what became of the request.
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
