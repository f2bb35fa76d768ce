//! One line of KATCP: a checked view over bytes, and a builder.
//!
//! `?name[id] argument argument`, where the first character is the kind, the identifier is optional, and
//! arguments have their blanks and control characters escaped.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;

/// What kind of message a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// `?`: somebody wants something done.
    Request,
    /// `!`: what became of it.
    Reply,
    /// `#`: news, of a request or of its own.
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

/// A message identifier, 1 to 2³¹ − 1: a reply has that of its request.
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
    /// The first byte says nothing.
    #[error("a message begins with ?, ! or #, not with byte 0x{0:02x}")]
    MessageKind(u8),
    /// There is no name behind it.
    #[error("behind ?, ! or # comes a name: a letter, then letters, digits and hyphens")]
    Name,
    /// What is in brackets is no identifier.
    #[error("a message identifier is [1] to [2147483647]")]
    Id,
    /// An argument holds a byte that it may not hold as it is.
    #[error("byte 0x{byte:02x} at {at} must be escaped with a backslash")]
    Byte {
        /// Where in the line.
        at: usize,
        /// The byte.
        byte: u8,
    },
    /// A backslash is followed by nothing that has a meaning.
    #[error("the backslash at {at} begins no escape: \\\\ \\_ \\0 \\n \\r \\e \\t \\@ do")]
    Escape {
        /// Where in the line.
        at: usize,
    },
}

/// A message in a line that has been checked.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    kind: MessageKind,
    name: &'a str,
    id: Option<MessageId>,
    arguments: Arguments<'a>,
}

impl<'a> Message<'a> {
    /// Reads a line without its end. `None` if it is blank.
    pub fn parse(line: &'a [u8]) -> Result<Option<Self>, MessageError> {
        if line.iter().all(|&byte| is_blank(byte)) {
            return Ok(None);
        }
        let kind = MessageKind::from_symbol(line[0]).ok_or(MessageError::Kind(line[0]))?;
        let rest = &line[1..];
        let named = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
        let end = rest.iter().position(|b| !named(b)).unwrap_or(rest.len());
        let (name, mut rest) = rest.split_at(end);
        if !name.first().is_some_and(u8::is_ascii_alphabetic) {
            return Err(MessageError::Name);
        }
        let name = std::str::from_utf8(name).map_err(|_| MessageError::Name)?;
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

    /// What kind of message it is.
    pub fn kind(&self) -> MessageKind {
        self.kind
    }

    /// Its name.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Its identifier, if it has one.
    pub fn id(&self) -> Option<MessageId> {
        self.id
    }

    /// Its arguments.
    pub fn arguments(&self) -> Arguments<'a> {
        self.arguments.clone()
    }
}

/// The arguments of a message, unescaped as they are read.
#[derive(Clone, Debug)]
pub struct Arguments<'a> {
    // Checked: escapes are whole, and `left` arguments are in there.
    rest: &'a [u8],
    left: usize,
}

impl<'a> Arguments<'a> {
    /// `offset` is where in the line `rest` begins, for errors.
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
                // What escapes to nothing is \@, the empty argument.
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

/// Bytes that are escaped, and the letters behind the backslash.
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
pub fn push_argument(line: &mut Vec<u8>, argument: &[u8]) {
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

/// A line under construction.
#[derive(Clone, Debug)]
pub struct MessageBuilder(Vec<u8>);

impl MessageBuilder {
    /// A message without arguments. `name` is a letter, then letters, digits and hyphens.
    pub fn new(kind: MessageKind, name: &str, id: Option<MessageId>) -> Self {
        let mut line = vec![kind.symbol()];
        line.extend_from_slice(name.as_bytes());
        if let Some(id) = id {
            line.extend_from_slice(format!("[{id}]").as_bytes());
        }
        Self(line)
    }

    /// With one more argument.
    pub fn argument(mut self, argument: impl AsRef<[u8]>) -> Self {
        push_argument(&mut self.0, argument.as_ref());
        self
    }

    /// With arguments that [`push_argument`] has encoded.
    pub fn encoded(mut self, arguments: &[u8]) -> Self {
        self.0.extend_from_slice(arguments);
        self
    }

    /// Its bytes, with the end of the line.
    pub fn finish(mut self) -> Vec<u8> {
        self.0.push(b'\n');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Parts = (MessageKind, String, Option<u32>, Vec<String>);

    fn parse(line: &str) -> Result<Option<Parts>, MessageError> {
        Ok(Message::parse(line.as_bytes())?.map(|message| {
            let arguments: Vec<_> = message
                .arguments()
                .map(|a| String::from_utf8(a.into_owned()).expect("UTF-8"))
                .collect();
            assert_eq!(arguments.len(), message.arguments().len());
            let id = message.id().map(|id| id.0.get());
            (message.kind(), message.name().to_owned(), id, arguments)
        }))
    }

    #[test]
    fn lines_are_read() {
        for (line, kind, name, id, arguments) in [
            ("?help", MessageKind::Request, "help", None, vec![]),
            ("!a-1[7] ok", MessageKind::Reply, "a-1", Some(7), vec!["ok"]),
            (
                "#log\tx  y \t",
                MessageKind::Inform,
                "log",
                None,
                vec!["x", "y"],
            ),
            (
                r"?a[2147483647] \@ \\\_\0\n\r\e\t é",
                MessageKind::Request,
                "a",
                Some(2147483647),
                vec!["", "\\ \0\n\r\x1b\t", "é"],
            ),
        ] {
            let arguments = arguments.into_iter().map(str::to_owned).collect();
            let expected = (kind, name.to_owned(), id, arguments);
            assert_eq!(parse(line), Ok(Some(expected)), "{line}");
        }
        assert_eq!(parse(""), Ok(None));
        assert_eq!(parse(" \t "), Ok(None));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for (line, error) in [
            ("help", MessageError::Kind(b'h')),
            (" ?help", MessageError::Kind(b' ')),
            ("?", MessageError::Name),
            ("?1", MessageError::Name),
            ("?-a", MessageError::Name),
            ("?a_b", MessageError::Name),
            ("?a[1]b", MessageError::Name),
            ("?a[", MessageError::Id),
            ("?a[]", MessageError::Id),
            ("?a[0]", MessageError::Id),
            ("?a[01]", MessageError::Id),
            ("?a[+1]", MessageError::Id),
            ("?a[2147483648]", MessageError::Id),
            ("?a[99999999999]", MessageError::Id),
            (r"?a b\", MessageError::Escape { at: 4 }),
            (r"?a \q", MessageError::Escape { at: 3 }),
            ("?a b\0", MessageError::Byte { at: 4, byte: 0 }),
            ("?a \x1b", MessageError::Byte { at: 3, byte: 27 }),
        ] {
            assert_eq!(parse(line), Err(error), "{line}");
        }
    }

    proptest! {
        #[test]
        fn what_is_built_is_read_back(
            kind in prop::sample::select(vec![MessageKind::Request, MessageKind::Reply, MessageKind::Inform]),
            name in "[A-Za-z][A-Za-z0-9-]{0,9}",
            id in prop::option::of(1u32..1 << 31),
            arguments in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..5),
        ) {
            let id = id.and_then(MessageId::new);
            let line = MessageBuilder::new(kind, &name, id);
            let line = arguments.iter().fold(line, |line, a| line.argument(a)).finish();
            let line = line.strip_suffix(b"\n").expect("a line ends");
            prop_assert!(!line.contains(&b'\n'));
            let message = Message::parse(line).expect("a message").expect("not blank");
            prop_assert_eq!((message.kind(), message.name(), message.id()), (kind, &*name, id));
            let read: Vec<_> = message.arguments().map(Cow::into_owned).collect();
            prop_assert_eq!(read, arguments);
        }

        #[test]
        fn any_bytes_are_a_message_or_refused(line in "[?!#][a-c]?(\\[[0-9]*\\])?[ a\\\\_@\\t\u{0}-\u{20}]*") {
            if let Ok(Some(message)) = Message::parse(line.as_bytes()) {
                prop_assert_eq!(message.arguments().count(), message.arguments().len());
            }
        }
    }
}
