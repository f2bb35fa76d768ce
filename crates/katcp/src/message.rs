//! One line of KATCP: a checked view over bytes, an owned copy, and a builder.
//!
//! ```text
//! ?name[identifier] argument argument
//! │             │         │
//! │             │         └ blanks and control characters escaped: two\_words; empty: \@
//! │             └ optional: replies and informs repeat the identifier of their request
//! └ kind: ? request, ! reply, # inform
//! ```
//!
//! ```
//! use katcp::{Message, MessageBuilder, MessageKind};
//!
//! let line = MessageBuilder::new(MessageKind::Inform, "log", None)
//!     .argument("info")
//!     .argument("two words")
//!     .finish();
//! assert_eq!(line, b"#log info two\\_words\n");
//!
//! let message = Message::parse(b"#log info two\\_words")?.expect("a line that is not blank");
//! assert_eq!(message.kind(), MessageKind::Inform);
//! assert_eq!(message.texts(), ["info", "two words"]);
//! # Ok::<(), katcp::MessageError>(())
//! ```

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;

/// Kind of a message: the first character of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// `?`: a client wants something done.
    Request,
    /// `!`: the result of a request.
    Reply,
    /// `#`: news, of a request or of the server.
    Inform,
}

impl MessageKind {
    fn symbol(self) -> u8 {
        match self {
            Self::Request => b'?',
            Self::Reply => b'!',
            Self::Inform => b'#',
        }
    }

    fn from_symbol(symbol: u8) -> Option<Self> {
        [Self::Request, Self::Reply, Self::Inform]
            .into_iter()
            .find(|kind| kind.symbol() == symbol)
    }
}

/// A message identifier, 1 to 2³¹ − 1: a reply has the identifier of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageId(NonZeroU32);

impl MessageId {
    /// Accepts 1 to 2³¹ − 1.
    pub fn new(id: u32) -> Option<Self> {
        let id = NonZeroU32::new(id)?;
        (id.get() <= i32::MAX as u32).then_some(Self(id))
    }

    fn parse(digits: &[u8]) -> Option<Self> {
        let plain = digits.first().is_some_and(|&first| first != b'0')
            && digits.iter().all(u8::is_ascii_digit);
        let text = std::str::from_utf8(digits).ok().filter(|_| plain)?;
        text.parse().ok().and_then(Self::new)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A line is not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The first byte is not that of a kind.
    #[error("a message begins with ?, ! or #, not with byte 0x{0:02x}")]
    Kind(u8),
    /// No name follows the kind.
    #[error("after ?, ! or # comes a name: a letter, then letters, digits and hyphens")]
    Name,
    /// The text in brackets is no identifier.
    #[error("a message identifier is [1] to [2147483647]")]
    Id,
    /// An argument holds a byte that needs an escape.
    #[error("byte 0x{byte:02x} at {at} must be escaped with a backslash")]
    Byte {
        /// Position in the line, from 0.
        at: usize,
        /// The byte.
        byte: u8,
    },
    /// A backslash begins no escape.
    #[error("the backslash at {at} begins no escape: \\\\ \\_ \\0 \\n \\r \\e \\t \\@ do")]
    Escape {
        /// Position in the line, from 0.
        at: usize,
    },
}

/// Returns whether a text can be the name of a message: a letter, then letters, digits and hyphens.
pub fn is_message_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(is_name_byte)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

/// A message in a line that has been checked. A view: it takes no memory beyond its line.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    kind: MessageKind,
    name: &'a str,
    id: Option<MessageId>,
    arguments: Arguments<'a>,
}

impl<'a> Message<'a> {
    /// Reads a line without its end. `None` if the line is blank.
    pub fn parse(line: &'a [u8]) -> Result<Option<Self>, MessageError> {
        if line.iter().all(|&byte| is_blank(byte)) {
            return Ok(None);
        }
        let kind = MessageKind::from_symbol(line[0]).ok_or(MessageError::Kind(line[0]))?;
        let rest = &line[1..];
        let end = rest.iter().position(|&byte| !is_name_byte(byte));
        let (name, mut rest) = rest.split_at(end.unwrap_or(rest.len()));
        let name = std::str::from_utf8(name).map_err(|_| MessageError::Name)?;
        if !is_message_name(name) {
            return Err(MessageError::Name);
        }
        let mut id = None;
        if let Some(bracket) = rest.strip_prefix(b"[") {
            let end = bracket.iter().position(|&b| b == b']');
            let end = end.ok_or(MessageError::Id)?;
            id = Some(MessageId::parse(&bracket[..end]).ok_or(MessageError::Id)?);
            rest = &bracket[end + 1..];
        }
        if rest.first().is_some_and(|&byte| !is_blank(byte)) {
            return Err(MessageError::Name);
        }
        let arguments = Arguments::check(rest, line.len() - rest.len())?;
        Ok(Some(Self {
            kind,
            name,
            id,
            arguments,
        }))
    }

    /// Kind of the message.
    pub fn kind(&self) -> MessageKind {
        self.kind
    }

    /// Name of the message, such as `sensor-value`.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Identifier of the message, if there is one.
    pub fn id(&self) -> Option<MessageId> {
        self.id
    }

    /// Arguments of the message, unescaped.
    pub fn arguments(&self) -> Arguments<'a> {
        self.arguments.clone()
    }

    /// Arguments of the message as text. Bytes that are not UTF-8 become U+FFFD.
    pub fn texts(&self) -> Vec<String> {
        self.arguments().texts()
    }

    /// A copy that does not borrow the line.
    pub fn to_owned(&self) -> OwnedMessage {
        OwnedMessage {
            kind: self.kind,
            name: self.name.to_owned(),
            id: self.id,
            arguments: self.arguments.rest.to_vec(),
            count: self.arguments.left,
        }
    }
}

/// A message with a buffer of its own, for programs that keep messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedMessage {
    kind: MessageKind,
    name: String,
    id: Option<MessageId>,
    /// The checked part of the line behind the identifier, and how many arguments it has.
    arguments: Vec<u8>,
    count: usize,
}

impl OwnedMessage {
    /// The message as a view.
    pub fn view(&self) -> Message<'_> {
        Message {
            kind: self.kind,
            name: &self.name,
            id: self.id,
            arguments: self.arguments(),
        }
    }

    /// Kind of the message.
    pub fn kind(&self) -> MessageKind {
        self.kind
    }

    /// Name of the message.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Identifier of the message, if there is one.
    pub fn id(&self) -> Option<MessageId> {
        self.id
    }

    /// Arguments of the message, unescaped.
    pub fn arguments(&self) -> Arguments<'_> {
        Arguments {
            rest: &self.arguments,
            left: self.count,
        }
    }

    /// Arguments of the message as text. Bytes that are not UTF-8 become U+FFFD.
    pub fn texts(&self) -> Vec<String> {
        self.arguments().texts()
    }

    /// Bytes that the message takes, roughly: those of its line, and of its structure.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.arguments.len()
    }
}

/// Arguments of a message, unescaped one by one as the iterator comes to them.
#[derive(Clone, Debug)]
pub struct Arguments<'a> {
    // Checked: escapes are whole, and `rest` holds `left` arguments.
    rest: &'a [u8],
    left: usize,
}

impl<'a> Arguments<'a> {
    /// Checks the part of a line behind the identifier, which begins at `offset` of the line.
    fn check(rest: &'a [u8], offset: usize) -> Result<Self, MessageError> {
        let mut left = 0;
        let mut inside = false;
        let mut bytes = rest.iter().enumerate();
        while let Some((at, &byte)) = bytes.next() {
            let at = offset + at;
            if is_blank(byte) {
                inside = false;
                continue;
            }
            left += usize::from(!inside);
            inside = true;
            match byte {
                b'\\' => {
                    let escape = bytes.next().map(|(_, &escape)| escape);
                    if !escape.is_some_and(|e| e == b'@' || unescape(e).is_some()) {
                        return Err(MessageError::Escape { at });
                    }
                }
                b'\0' | b'\n' | b'\r' | b'\x1b' => return Err(MessageError::Byte { at, byte }),
                _ => {}
            }
        }
        Ok(Self { rest, left })
    }

    /// The arguments that are left, as text. Bytes that are not UTF-8 become U+FFFD.
    pub fn texts(self) -> Vec<String> {
        self.map(|argument| String::from_utf8_lossy(&argument).into_owned())
            .collect()
    }
}

impl<'a> Iterator for Arguments<'a> {
    type Item = Cow<'a, [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let begin = self.rest.iter().position(|&byte| !is_blank(byte))?;
        let rest = &self.rest[begin..];
        let end = rest.iter().position(|&byte| is_blank(byte));
        let (argument, rest) = rest.split_at(end.unwrap_or(rest.len()));
        self.rest = rest;
        self.left -= 1;
        if !argument.contains(&b'\\') {
            return Some(Cow::Borrowed(argument));
        }
        let mut plain = Vec::with_capacity(argument.len());
        let mut bytes = argument.iter();
        while let Some(&byte) = bytes.next() {
            match byte {
                // \@, the empty argument, stands for no byte.
                b'\\' => plain.extend(bytes.next().and_then(|&escape| unescape(escape))),
                _ => plain.push(byte),
            }
        }
        Some(Cow::Owned(plain))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Arguments<'_> {}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Bytes that need an escape, and the letters behind the backslash.
const ESCAPES: [(u8, u8); 7] = [
    (b'\\', b'\\'),
    (b' ', b'_'),
    (b'\0', b'0'),
    (b'\n', b'n'),
    (b'\r', b'r'),
    (b'\x1b', b'e'),
    (b'\t', b't'),
];

fn unescape(letter: u8) -> Option<u8> {
    let found = ESCAPES.iter().find(|(_, escape)| *escape == letter);
    found.map(|(byte, _)| *byte)
}

/// Appends a blank and `argument`, escaped.
pub(crate) fn push_argument(line: &mut Vec<u8>, argument: &[u8]) {
    line.push(b' ');
    if argument.is_empty() {
        line.extend_from_slice(b"\\@");
    }
    for &byte in argument {
        match ESCAPES.iter().find(|(plain, _)| *plain == byte) {
            Some((_, letter)) => line.extend_from_slice(&[b'\\', *letter]),
            None => line.push(byte),
        }
    }
}

/// A message under construction.
#[derive(Clone, Debug)]
pub struct MessageBuilder(Vec<u8>);

impl MessageBuilder {
    /// Begins a message without arguments.
    ///
    /// `name` is not checked: texts for which [`is_message_name`] is false make lines that are no
    /// messages.
    pub fn new(kind: MessageKind, name: &str, id: Option<MessageId>) -> Self {
        let mut line = vec![kind.symbol()];
        line.extend_from_slice(name.as_bytes());
        if let Some(id) = id {
            line.extend_from_slice(format!("[{id}]").as_bytes());
        }
        Self(line)
    }

    /// Adds an argument, and escapes what needs it.
    pub fn argument(mut self, argument: impl AsRef<[u8]>) -> Self {
        push_argument(&mut self.0, argument.as_ref());
        self
    }

    /// Adds arguments that [`push_argument`] has encoded.
    pub(crate) fn encoded(mut self, arguments: &[u8]) -> Self {
        self.0.extend_from_slice(arguments);
        self
    }

    /// Returns the line, with a line feed at its end.
    pub fn finish(mut self) -> Vec<u8> {
        self.0.push(b'\n');
        self.0
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
