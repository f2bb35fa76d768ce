//! The Wireshark dissector of `packaging/wireshark`, held against this crate's parser: the same
//! verdict on every packet, broken or not, and the same items. Needs `tshark`; where
//! `KAROO_TEST_TSHARK` is not set, a missing one is told and the test passes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use spead::packet::ItemMode;
use spead::{Descriptor, Packet, descriptor};

const FIELDS: [&str; 8] = [
    "spead.verdict",
    "spead.item.immediate",
    "spead.item.id",
    "spead.item.value",
    "spead.item.length",
    "spead.descriptor.verdict",
    "spead.payload_length",
    "spead.items",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The corpora of the fuzz targets, and descriptors.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for corpus in ["spead_packet", "spead_heap"] {
        let folder = root().join("tests/data/fuzz").join(corpus);
        let entries = fs::read_dir(folder).expect("the corpus is committed");
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        seeds.extend(paths.iter().map(|path| fs::read(path).unwrap()));
    }
    seeds.push(descriptor::emit_heap(7, &Descriptor::digitiser(4096, 10)));
    seeds.push(descriptor::emit_heap(8, &Descriptor::spectra(512, 32, 8)));
    seeds.push(descriptor::emit_heap(9, &Descriptor::spectra(512, 32, 4)));
    seeds.retain(|seed| !seed.is_empty());
    seeds
}

/// A packet of the widths 2 and 6 with others: identifiers and values are cut to them.
fn with_address_bytes(seed: &[u8], bytes: u8) -> Option<Vec<u8>> {
    let packet = Packet::new_checked(seed).ok()?;
    if packet.address_bits() != 48 {
        return None;
    }
    let bits = 8 * u32::from(bytes);
    let mut flavour = seed.to_vec();
    (flavour[2], flavour[3]) = (8 - bytes, bytes);
    for (n, it) in packet.pointers().enumerate() {
        let id = it.id << bits & (u64::MAX >> 1);
        let mode = u64::from(it.mode == ItemMode::Immediate) << 63;
        let word = mode | id | it.value & ((1 << bits) - 1);
        flavour[8 + 8 * n..][..8].copy_from_slice(&word.to_be_bytes());
    }
    Some(flavour)
}

/// Numbers that are the same in each run (Knuth's MMIX).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % limit as u64) as usize
    }

    /// A packet with one to three bytes or words changed, bytes cut off, or bytes added.
    fn broken(&mut self, packet: &[u8]) -> Vec<u8> {
        let mut bytes = packet.to_vec();
        for _ in 0..1 + self.below(3) {
            let near = bytes.len().min(160);
            match self.below(6) {
                0 => bytes.truncate(1 + self.below(bytes.len())),
                1 => bytes.extend(std::iter::repeat_n(0x53, 1 + self.below(20))),
                2 => bytes[self.below(near)] ^= 1 << self.below(8),
                3 => bytes[self.below(near.min(8))] = self.below(9) as u8,
                4 => {
                    let at = self.below(bytes.len());
                    bytes[at] = self.below(256) as u8;
                }
                _ => {
                    let at = 8 + 8 * self.below(10);
                    if let Some(word) = bytes.get_mut(at..at + 8) {
                        word[7] = self.below(256) as u8;
                        word[1] = self.below(24) as u8;
                    }
                }
            }
        }
        bytes
    }
}

fn packets() -> Vec<Vec<u8>> {
    let mut whole = seeds();
    for bytes in 1..8 {
        let flavours: Vec<_> = seeds()
            .iter()
            .filter_map(|seed| with_address_bytes(seed, bytes))
            .collect();
        whole.extend(flavours);
    }
    let mut numbers = Numbers(1);
    let broken: Vec<_> = whole
        .iter()
        .flat_map(|packet| (0..40).map(|_| numbers.broken(packet)).collect::<Vec<_>>())
        .collect();
    let mut long = whole[0].clone();
    long.resize(9201, 0);
    whole.extend(broken);
    whole.push(long);
    whole.retain(|packet| packet.len() < 60_000);
    whole
}

/// A capture of IPv4 packets (link type 101), each with a datagram to port 7148.
fn capture(packets: &[Vec<u8>]) -> Vec<u8> {
    let words: [u32; 6] = [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 65_535, 101];
    let mut file: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (n, packet) in packets.iter().enumerate() {
        let length = 28 + packet.len() as u32;
        for word in [n as u32, 0, length, length] {
            file.extend(word.to_le_bytes());
        }
        let [high, low] = (length as u16).to_be_bytes();
        file.extend([0x45, 0, high, low, 0, 0, 0x40, 0, 8, 17, 0, 0]);
        file.extend([192, 0, 2, 1, 239, 10, 1, 0, 0xc0, 0, 0x1b, 0xec]);
        file.extend((8 + packet.len() as u16).to_be_bytes());
        file.extend([0, 0]);
        file.extend(packet);
    }
    file
}

/// One line of values for each packet; `None` without tshark.
fn dissected(packets: &[Vec<u8>]) -> Option<Vec<Vec<String>>> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wireshark.pcap");
    fs::write(&path, capture(packets)).unwrap();
    let script = root().join("packaging/wireshark/karoo.lua");
    let mut tshark = Command::new("tshark");
    tshark
        .arg("-X")
        .arg(format!("lua_script:{}", script.display()));
    tshark.arg("-r").arg(&path);
    tshark.args(["-T", "fields", "-E", "occurrence=a", "-E", "aggregator=,"]);
    for field in FIELDS {
        tshark.args(["-e", field]);
    }
    let output = match tshark.output() {
        Err(error) if std::env::var_os("KAROO_TEST_TSHARK").is_none() => {
            println!("no tshark: {error}");
            return None;
        }
        output => output.expect("tshark starts"),
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(!errors.contains("Lua"), "{errors}");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(!text.contains("Lua Error"), "{text}");
    let line = |line: &str| line.split('\t').map(str::to_owned).collect();
    Some(text.lines().map(line).collect())
}

fn number(text: &str) -> u64 {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.unwrap_or_else(|_| panic!("{text} is a number"))
}

fn list(text: &str) -> Vec<&str> {
    text.split(',').filter(|part| !part.is_empty()).collect()
}

#[test]
fn wireshark_sees_what_the_parser_sees() {
    let packets = packets();
    let Some(lines) = dissected(&packets) else {
        return;
    };
    assert_eq!(lines.len(), packets.len());
    let (mut verdicts, mut of_descriptors, mut widths) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (n, (bytes, line)) in packets.iter().zip(&lines).enumerate() {
        let packet = match Packet::new_checked(bytes) {
            Ok(packet) => packet,
            Err(error) => {
                assert_eq!(line[0], error.cause(), "packet {n}: {bytes:02x?}");
                verdicts.insert(error.cause());
                continue;
            }
        };
        assert_eq!(line[0], "ok", "packet {n}: {bytes:02x?}");
        widths.insert(packet.address_bits());
        let pointers: Vec<_> = packet.pointers().collect();
        let immediate: Vec<_> = list(&line[1])
            .iter()
            .map(|it| matches!(*it, "1" | "True"))
            .collect();
        let modes = pointers.iter().map(|it| it.mode == ItemMode::Immediate);
        assert_eq!(immediate, modes.collect::<Vec<_>>(), "packet {n}");
        let ids = pointers.iter().map(|it| it.id).collect::<Vec<_>>();
        let values = pointers.iter().map(|it| it.value).collect::<Vec<_>>();
        let lengths = packet.addressed().map(|(_, bytes)| bytes.len() as u64);
        for (column, expected) in [(2, ids), (3, values), (4, lengths.collect())] {
            let found: Vec<_> = list(&line[column]).into_iter().map(number).collect();
            assert_eq!(found, expected, "{} of packet {n}", FIELDS[column]);
        }
        let descriptors: Vec<_> = descriptor::parse_heap(&packet)
            .map(|it| it.map_or_else(|error| error.cause(), |_| "ok"))
            .collect();
        assert_eq!(list(&line[5]), descriptors, "packet {n}: {bytes:02x?}");
        of_descriptors.extend(descriptors);
        let last = list(&line[6]).last().map(|it| number(it));
        assert_eq!(last, Some(packet.payload().len() as u64), "packet {n}");
        assert_eq!(number(&line[7]), pointers.len() as u64, "packet {n}");
    }
    // Every rule for packets was broken somewhere, and read in every width that its numbers allow.
    assert!(verdicts.len() >= 10, "{verdicts:?}");
    assert!(of_descriptors.len() >= 4, "{of_descriptors:?}");
    assert!(widths.len() >= 5, "{widths:?}");
    println!(
        "{} packets, {verdicts:?}, {of_descriptors:?}, {widths:?}",
        packets.len()
    );
}
