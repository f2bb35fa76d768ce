//! Packets that a live engine drops, as its `drops.pcapng` has them.

use std::collections::BTreeMap;
use std::io::{Cursor, Write};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{Block, OptionCode, PcapBlockOwned, PcapError, PcapNGOption, PcapNGReader};

use super::rig::{CHUNK, METRICS, Rig, fetch, get};
use super::{item, sample};
use crate::support::left_out;

/// Headers of Ethernet, IPv4 and UDP.
const HEADERS: usize = 42;
/// Bytes that are kept of a packet, and packets that are kept of a cause.
const COPIED: usize = 192;
/// Bytes that are kept of what others sent.
const COPIED_OF_OTHERS: usize = 64;
const KEPT: usize = 32;
/// What else comes to an interface of the kernel.
const OTHERS: [&str; 2] = ["not-ipv4-udp", "not-ours"];

type Change = fn(&mut Vec<u8>);

/// What makes of the first heap of a capture, which has been placed, a packet that is dropped, and
/// under which cause. `spead.verdict` is that cause for those of the first list, else `ok`.
const MALFORMED: [(&str, Change); 6] = [
    ("bad-magic", |bytes| bytes[0] ^= 1),
    ("bad-version", |bytes| bytes[1] = 3),
    ("bad-widths", |bytes| bytes[2] = 3),
    ("items-past-end", |bytes| bytes[6] = 0xff),
    ("no-heap-count", |bytes| {
        bytes[8..10].copy_from_slice(&[0xff, 0xf0]);
    }),
    ("packet-too-short", |bytes| bytes.truncate(7)),
];
const WELL_FORMED: [(&str, Change); 4] = [
    ("wrong-heap-length", |bytes| {
        for id in [2, 4] {
            item(bytes, id).copy_from_slice(&4096u64.to_be_bytes()[2..]);
        }
        bytes.truncate(bytes.len() - 1024);
    }),
    ("bad-timestamp", |bytes| item(bytes, 0x1600)[5] ^= 1),
    ("too-old", |_| {}),
    // Alone, and further ahead of all others than 512 chunks.
    ("stray-time", |bytes| {
        let value = item(bytes, 0x1600);
        let timestamp = value
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let later = timestamp + 2000 * CHUNK;
        value.copy_from_slice(&later.to_be_bytes()[2..]);
    }),
];

/// A packet of the file.
struct Kept {
    cause: String,
    comment: String,
    interface: String,
    time_ns: u64,
    length: usize,
    bytes: Vec<u8>,
}

/// What pcap-parser finds in a file.
fn parse(file: &[u8]) -> Vec<Kept> {
    let text = |options: &[PcapNGOption<'_>], code: OptionCode| {
        let option = options.iter().find(|option| option.code == code).unwrap();
        String::from_utf8(option.value[..usize::from(option.len)].to_vec()).unwrap()
    };
    let mut reader = PcapNGReader::new(1 << 20, Cursor::new(file.to_vec())).unwrap();
    let (mut interfaces, mut kept) = (Vec::new(), Vec::new());
    loop {
        match reader.next() {
            Ok((length, PcapBlockOwned::NG(block))) => {
                match block {
                    Block::SectionHeader(_) => {}
                    Block::InterfaceDescription(interface) => {
                        assert_eq!(interface.if_tsresol, 9);
                        interfaces.push(text(&interface.options, OptionCode::IfName));
                    }
                    Block::EnhancedPacket(packet) => {
                        let comment = text(&packet.options, OptionCode::Comment);
                        kept.push(Kept {
                            cause: comment.split(':').next().unwrap().to_owned(),
                            comment,
                            interface: interfaces[packet.if_id as usize].clone(),
                            time_ns: u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low),
                            length: packet.origlen as usize,
                            bytes: packet.packet_data().to_vec(),
                        });
                    }
                    other => panic!("{other:?}"),
                }
                reader.consume(length);
            }
            Err(PcapError::Eof) => return kept,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{error:?}"),
            Ok(_) => panic!("a block of another format"),
        }
    }
}

fn unix_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos() as u64
}

fn download(rig: &Rig) -> Vec<u8> {
    let (head, file) = fetch(&rig.cable.engine, METRICS, "/drops.pcapng");
    assert!(head.contains("application/x-pcapng"), "{head}");
    file
}

#[test]
fn dropped_packets_are_kept_with_their_causes() {
    // Some of what else comes to the interface comes before the engine is ready.
    let begun = unix_ns();
    let Some(mut rig) = Rig::live("drops", &[]) else {
        return;
    };
    rig.send_all();
    rig.wait_for_all();
    let before = parse(&download(&rig));
    let is_other = |packet: &Kept| OTHERS.contains(&&packet.cause[..]);
    assert!(before.iter().all(is_other));
    let mut sent: BTreeMap<&str, Vec<Vec<u8>>> = BTreeMap::new();
    for (cause, change) in MALFORMED.iter().chain(&WELL_FORMED) {
        // More of one cause than are kept, each with another number in its samples.
        let packets = if *cause == "bad-magic" { 100 } else { 1 };
        for number in 0..packets {
            rig.send_first(|bytes| {
                bytes[140] = number;
                change(bytes);
                sent.entry(*cause).or_default().push(bytes.clone());
            });
        }
    }
    rig.wait(|rig| {
        let metrics = rig.metrics();
        let counted =
            |cause: &str| sample(&metrics, "karoo_input_drops", &[("cause", cause)]) as usize;
        sent.iter()
            .all(|(cause, packets)| counted(cause) == packets.len())
    });
    let file = download(&rig);
    let ended = unix_ns();
    let page = get(&rig.cable.engine, METRICS, "/live.json");
    assert!(page.contains("\"file\":\"drops.pcapng\""), "{page}");
    rig.end();

    let kept = parse(&file);
    assert!(kept.is_sorted_by_key(|packet| packet.time_ns));
    for packet in &kept {
        assert!(
            (begun..=ended).contains(&packet.time_ns),
            "{}",
            packet.comment
        );
        assert_eq!(packet.interface, "k0");
        let section = format!("docs/runbook.md#{}", packet.cause);
        assert!(packet.comment.ends_with(&section), "{}", packet.comment);
        let copied = if is_other(packet) {
            COPIED_OF_OTHERS
        } else {
            COPIED
        };
        assert_eq!(packet.bytes.len(), packet.length.min(copied));
    }
    let mut found: BTreeMap<&str, Vec<&Kept>> = BTreeMap::new();
    for packet in kept.iter().filter(|packet| !is_other(packet)) {
        found.entry(&packet.cause).or_default().push(packet);
    }
    assert!(found.keys().eq(sent.keys()), "{:?}", found.keys());
    for (cause, packets) in &sent {
        let found = &found[cause];
        assert_eq!(found.len(), packets.len().min(KEPT), "{cause}");
        // All of them were sent, in this order.
        let mut packets = packets.iter();
        for packet in found {
            let payload = &packet.bytes[HEADERS..];
            let is_same =
                |sent: &Vec<u8>| sent.starts_with(payload) && sent.len() + HEADERS == packet.length;
            assert!(packets.any(is_same), "{cause}: {payload:02x?}");
        }
    }
    check_in_wireshark(&file, &kept);
}

/// Holds the same file against what Wireshark makes of it, with Karoo's dissector.
fn check_in_wireshark(file: &[u8], kept: &[Kept]) {
    let mut path = tempfile::NamedTempFile::new().unwrap();
    path.write_all(file).unwrap();
    let script = concat!(
        "lua_script:",
        env!("CARGO_MANIFEST_DIR"),
        "/packaging/wireshark/karoo.lua"
    );
    let mut tshark = Command::new("tshark");
    tshark
        .args(["-X", script, "-T", "fields", "-r"])
        .arg(path.path());
    for field in [
        "frame.comment",
        "frame.interface_name",
        "frame.len",
        "spead.verdict",
    ] {
        tshark.args(["-e", field]);
    }
    let output = match tshark.output() {
        Err(error) if std::env::var_os("KAROO_TEST_TSHARK").is_none() => {
            left_out(&format!("no tshark: {error}"));
            return;
        }
        output => output.expect("tshark starts"),
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && !errors.contains("Lua"),
        "{errors}"
    );
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(text.lines().count(), kept.len(), "{text}");
    for (line, packet) in text.lines().zip(kept) {
        let cause = &packet.cause[..];
        let verdict = match cause {
            cause if MALFORMED.iter().any(|(name, _)| *name == cause) => cause,
            cause if OTHERS.contains(&cause) => continue,
            _ => "ok",
        };
        let length = packet.length.to_string();
        let expected = [&packet.comment[..], "k0", &length, verdict];
        assert_eq!(line.split('\t').collect::<Vec<_>>(), expected);
    }
}
