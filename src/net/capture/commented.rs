//! Writer of pcapng files whose frames have comments, in memory.
//!
//! Three kinds of blocks, little-endian, as [the format's
//! draft](https://ietf-opsawg-wg.github.io/draft-ietf-opsawg-pcap/draft-ietf-opsawg-pcapng.html)
//! has them.

use super::{ETHERNET, SNAPLEN};

/// Section header, interface description, enhanced packet.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
/// Tells the order of bytes.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// The length of a section that nobody has counted.
const UNCOUNTED: u64 = u64::MAX;

/// Options: text about a block, and about the program; name and resolution of an interface.
const COMMENT: u16 = 1;
const PROGRAM: u16 = 4;
const NAME: u16 = 2;
const RESOLUTION: u16 = 9;
const END: u16 = 0;

/// A pcapng file under construction. Its frames are few: all of it is in memory.
#[derive(Debug)]
pub struct CommentedCapture {
    bytes: Vec<u8>,
    interfaces: Vec<String>,
}

/// A frame for a [`CommentedCapture`].
#[derive(Clone, Copy, Debug)]
pub struct CommentedFrame<'a> {
    /// Number of its interface, in the order in which they were described.
    pub interface: usize,
    /// UNIX time in nanoseconds.
    pub time_ns: u64,
    /// Bytes of the whole frame.
    pub orig_len: usize,
    /// What there is of it, from its first byte on.
    pub bytes: &'a [u8],
    /// What there is to say of it. What is beyond 64 KiB is left out.
    pub comment: &'a str,
}

impl CommentedCapture {
    /// A file without frames, written by this `program`, of Ethernet interfaces of these names.
    pub fn new(program: &str, interfaces: &[String]) -> Self {
        let mut capture = Self {
            bytes: Vec::new(),
            interfaces: interfaces.to_vec(),
        };
        let mut section = BYTE_ORDER.to_le_bytes().to_vec();
        for version in [1_u16, 0] {
            section.extend(version.to_le_bytes());
        }
        section.extend(UNCOUNTED.to_le_bytes());
        options(&mut section, &[(PROGRAM, program.as_bytes())]);
        capture.block(SECTION, &section);
        for name in interfaces {
            let mut interface = u32::from(ETHERNET).to_le_bytes().to_vec();
            interface.extend(SNAPLEN.to_le_bytes());
            // Nanoseconds: 10⁻⁹ s.
            options(
                &mut interface,
                &[(NAME, name.as_bytes()), (RESOLUTION, &[9])],
            );
            capture.block(INTERFACE, &interface);
        }
        capture
    }

    /// Appends a frame. One of an interface that was not described, or longer than a capture may
    /// have, is left out.
    pub fn push(&mut self, frame: &CommentedFrame<'_>) {
        let lengths = [frame.bytes.len(), frame.orig_len].map(u32::try_from);
        let (Ok(copied @ ..=SNAPLEN), Ok(length)) = (lengths[0], lengths[1]) else {
            return;
        };
        if frame.interface >= self.interfaces.len() {
            return;
        }
        let time = [(frame.time_ns >> 32) as u32, frame.time_ns as u32];
        let head = [frame.interface as u32, time[0], time[1], copied, length];
        let mut packet: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
        packet.extend(frame.bytes);
        pad(&mut packet);
        options(&mut packet, &[(COMMENT, frame.comment.as_bytes())]);
        self.block(PACKET, &packet);
    }

    /// The whole file.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Appends a block. Its length is a multiple of four, and stands at both ends.
    fn block(&mut self, kind: u32, body: &[u8]) {
        let length = (12 + body.len() as u32).to_le_bytes();
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend(length);
        self.bytes.extend(body);
        self.bytes.extend(length);
    }
}

/// Appends options and their end.
fn options(block: &mut Vec<u8>, options: &[(u16, &[u8])]) {
    for &(code, value) in options {
        let value = whole_text(value);
        block.extend(code.to_le_bytes());
        block.extend((value.len() as u16).to_le_bytes());
        block.extend(value);
        pad(block);
    }
    block.extend(END.to_le_bytes());
    block.extend(0_u16.to_le_bytes());
}

/// As much of a text as an option has room for, without a part of a character at its end.
fn whole_text(value: &[u8]) -> &[u8] {
    let room = usize::from(u16::MAX);
    if value.len() <= room {
        return value;
    }
    let is_first = |byte: u8| byte & 0xc0 != 0x80;
    let end = (0..=room).rev().find(|&end| is_first(value[end]));
    &value[..end.unwrap_or(0)]
}

/// Fills up to a multiple of four bytes.
fn pad(block: &mut Vec<u8>) {
    block.resize(block.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use pcap_parser::traits::PcapReaderIterator;
    use pcap_parser::{Block, OptionCode, PcapBlockOwned, PcapError, PcapNGReader};

    use super::*;
    use crate::net::CaptureReader;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("eth{number}")).collect()
    }

    /// What another reader finds of each block: of interfaces their names, of packets their
    /// interfaces, lengths and comments.
    fn read(bytes: &[u8]) -> Vec<String> {
        let mut reader = PcapNGReader::new(1 << 17, Cursor::new(bytes.to_vec())).unwrap();
        let mut found = Vec::new();
        loop {
            match reader.next() {
                Ok((length, PcapBlockOwned::NG(block))) => {
                    let text = |options: &[pcap_parser::PcapNGOption<'_>], code: OptionCode| {
                        let option = options.iter().find(|option| option.code == code);
                        let value = option.map(|option| &option.value[..usize::from(option.len)]);
                        value.map(|value| String::from_utf8(value.to_vec()).unwrap())
                    };
                    found.push(match &block {
                        Block::SectionHeader(section) => {
                            assert_eq!((section.major_version, section.minor_version), (1, 0));
                            text(&section.options, OptionCode::ShbUserAppl).unwrap()
                        }
                        Block::InterfaceDescription(interface) => {
                            assert_eq!((interface.linktype.0, interface.if_tsresol), (1, 9));
                            text(&interface.options, OptionCode::IfName).unwrap()
                        }
                        Block::EnhancedPacket(packet) => format!(
                            "{} {} {} {}",
                            packet.if_id,
                            packet.caplen,
                            packet.origlen,
                            text(&packet.options, OptionCode::Comment).unwrap()
                        ),
                        other => panic!("{other:?}"),
                    });
                    reader.consume(length);
                }
                Err(PcapError::Eof) => return found,
                Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
                Err(error) => panic!("{error:?}"),
                Ok(_) => panic!("a block of another format"),
            }
        }
    }

    #[test]
    fn a_file_without_frames_is_a_capture() {
        for interfaces in 0..3 {
            let bytes = CommentedCapture::new("karoo", &names(interfaces)).into_bytes();
            assert_eq!(bytes.len() % 4, 0);
            assert_eq!(
                read(&bytes),
                [vec!["karoo".to_owned()], names(interfaces)].concat()
            );
            let mut reader = CaptureReader::from_read("empty", Cursor::new(bytes), 0).unwrap();
            assert!(reader.next_frame().unwrap().is_none() && !reader.truncated());
        }
    }

    #[test]
    fn frames_are_read_back_with_their_times_lengths_interfaces_and_comments() {
        let mut capture = CommentedCapture::new("karoo 0.1.0", &names(2));
        let bytes: Vec<u8> = (0..=255).collect();
        let time = 1_763_700_000_123_456_789;
        let mut expected = vec![
            "karoo 0.1.0".to_owned(),
            "eth0".to_owned(),
            "eth1".to_owned(),
        ];
        for length in 0..10 {
            let comment = &"zwölf µs"[..if length % 2 == 0 { 10 } else { 1 }];
            capture.push(&CommentedFrame {
                interface: length % 2,
                time_ns: time + length as u64,
                orig_len: 5000 + length,
                bytes: &bytes[..length],
                comment,
            });
            expected.push(format!(
                "{} {length} {} {comment}",
                length % 2,
                5000 + length
            ));
        }
        let file = capture.into_bytes();
        assert_eq!(read(&file), expected);
        let mut reader = CaptureReader::from_read("frames", Cursor::new(file), 0).unwrap();
        for length in 0..10 {
            let frame = reader.next_frame().unwrap().unwrap();
            assert_eq!(frame.bytes, &bytes[..length]);
            let (time_ns, orig_len) = (frame.time_ns, frame.orig_len);
            assert_eq!((time_ns, orig_len), (time + length as u64, 5000 + length));
        }
        assert!(reader.next_frame().unwrap().is_none());
    }

    /// Whatever there is to say, the file can be read.
    #[test]
    fn what_the_format_has_no_room_for_is_left_out() {
        let mut capture = CommentedCapture::new("karoo", &names(1));
        let long = format!("a{}", "µ".repeat(40_000));
        let frame = CommentedFrame {
            interface: 0,
            time_ns: 0,
            orig_len: 4,
            bytes: b"four",
            comment: &long,
        };
        capture.push(&frame);
        let too_long = vec![0; SNAPLEN as usize + 1];
        let (bytes, interface) = (&too_long[..], 1);
        capture.push(&CommentedFrame { bytes, ..frame });
        capture.push(&CommentedFrame { interface, ..frame });
        let found = read(&capture.into_bytes());
        assert_eq!(found.len(), 3);
        let expected = format!("0 4 4 a{}", "µ".repeat(32_767));
        assert!(found[2] == expected, "{}", found[2].len());
    }
}
