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

const KINDS: [MessageKind; 3] = [
    MessageKind::Request,
    MessageKind::Reply,
    MessageKind::Inform,
];

/// Bytes that mean something in a line, as likely as all others together.
fn hostile_bytes() -> impl Strategy<Value = Vec<u8>> {
    let telling = prop::sample::select(b"?!#[]019aZ-_\\@0nret \t\r\n\0\x1b".to_vec());
    prop::collection::vec(prop_oneof![telling, any::<u8>()], 0..40)
}

proptest! {
    #[test]
    fn what_is_built_is_read_back(
        kind in prop::sample::select(KINDS.to_vec()),
        name in "[A-Za-z][A-Za-z0-9-]{0,9}",
        id in prop::option::of(1u32..1 << 31),
        arguments in prop::collection::vec(hostile_bytes(), 0..5),
    ) {
        let id = id.and_then(MessageId::new);
        let line = MessageBuilder::new(kind, &name, id);
        let line = arguments.iter().fold(line, |line, a| line.argument(a)).finish();
        let line = line.strip_suffix(b"\n").expect("a line ends");
        prop_assert!(!line.iter().any(|byte| b"\n\r\0\x1b\t".contains(byte)));
        let message = Message::parse(line).expect("a message").expect("not blank");
        prop_assert_eq!((message.kind(), message.name(), message.id()), (kind, &*name, id));
        let read: Vec<_> = message.arguments().map(Cow::into_owned).collect();
        prop_assert_eq!(&read, &arguments);
        let owned = message.to_owned();
        prop_assert_eq!((owned.kind(), owned.name(), owned.id()), (kind, &*name, id));
        let read: Vec<_> = owned.view().arguments().map(Cow::into_owned).collect();
        prop_assert_eq!(read, arguments);
    }

    #[test]
    fn any_bytes_are_a_message_or_refused(mut line in hostile_bytes(), kind in 0..4usize) {
        // Most lines begin as a message does, or nothing behind the kind would be reached.
        if let Some(kind) = KINDS.get(kind) {
            line.splice(..0, [kind.symbol(), b'a']);
        }
        if let Ok(Some(message)) = Message::parse(&line) {
            prop_assert!(is_message_name(message.name()));
            prop_assert_eq!(message.arguments().count(), message.arguments().len());
            let again = MessageBuilder::new(message.kind(), message.name(), message.id());
            let again = message.arguments().fold(again, MessageBuilder::argument).finish();
            let again = Message::parse(&again[..again.len() - 1]).expect("a message");
            let again = again.expect("not blank");
            prop_assert!(again.arguments().eq(message.arguments()));
            prop_assert_eq!((again.name(), again.id()), (message.name(), message.id()));
        }
    }
}
