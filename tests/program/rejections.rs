//! Every rule by which a datagram is not placed: one datagram for each cause, each counted under
//! its own.

use std::collections::BTreeMap;
use std::path::Path;

use karoo::net::capture::Precision;
use karoo::net::{CaptureReader, CaptureWriter, HeaderTemplate, MacAddr};

use crate::support::{data, karoo_ok};

const WIDEBAND: &str = "name=w,channels=64,dst=239.10.1.0,jones_per_batch=2048,taps=4";
const SOURCES: &str = "239.102.0.64+7:7148,239.102.1.64+7:7148";
/// Where the SPEAD packet begins in a frame, and its item pointers in the packet.
const PACKET: usize = 42;
const HEAP_COUNT: usize = 8;
const HEAP_LENGTH: usize = 16;
const PAYLOAD_OFFSET: usize = 24;
const PAYLOAD_LENGTH: usize = 32;
const TIMESTAMP: usize = 40;

fn frames() -> Vec<Vec<u8>> {
    let mut reader = CaptureReader::open(data("tones-8bit.pcap")).unwrap();
    let mut frames = Vec::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        frames.push(frame.bytes.to_vec());
    }
    frames
}

/// A frame to the digitiser's first group with any UDP payload.
fn wrap(payload: &[u8]) -> Vec<u8> {
    let template = HeaderTemplate::multicast(
        MacAddr([2, 0, 0, 0, 0, 9]),
        "192.0.2.9:5000".parse().unwrap(),
        "239.102.0.64:7148".parse().unwrap(),
        4,
    );
    let mut headers = [0; PACKET];
    template.unwrap().emit(payload.len(), &mut headers);
    [&headers[..], payload].concat()
}

/// One or more frames per cause, made from a good frame.
fn bad_frames(good: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let packet = &good[PACKET..];
    let frame = |at: usize, bytes: &[u8]| {
        let mut frame = good.to_vec();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let item = |at: usize, word: u64| {
        let mut packet = packet.to_vec();
        packet[at..at + 8].copy_from_slice(&word.to_be_bytes());
        wrap(&packet)
    };
    let byte = |at: usize, value: u8| {
        let mut packet = packet.to_vec();
        packet[at] = value;
        wrap(&packet)
    };
    let word = |at: usize| u64::from_be_bytes(packet[at..at + 8].try_into().unwrap());
    let unknown = 0x8000_0000_0000_0000 | 0x7ff0 << 48;
    let length = word(PAYLOAD_LENGTH);
    let mut longer = packet.to_vec();
    longer[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 8].copy_from_slice(&(length + 8).to_be_bytes());
    longer[HEAP_LENGTH..HEAP_LENGTH + 8].copy_from_slice(&(word(HEAP_LENGTH) + 8).to_be_bytes());
    let mut shorter = packet[..packet.len() - 8].to_vec();
    shorter[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 8].copy_from_slice(&(length - 8).to_be_bytes());
    shorter[HEAP_LENGTH..HEAP_LENGTH + 8].copy_from_slice(&(word(HEAP_LENGTH) - 8).to_be_bytes());
    vec![
        ("frame-cut", good[..60].to_vec()),
        ("frame-cut", good[..10].to_vec()),
        ("not-ipv4-udp", frame(12, &[0x08, 0x06])),
        ("not-ipv4-udp", frame(23, &[6])),
        ("bad-ipv4-header", frame(14, &[0x65])),
        ("ipv4-options", frame(14, &[0x46])),
        ("ipv4-fragment", frame(20, &[0x20, 0x00])),
        ("bad-udp-length", frame(38, &[0x00, 0x09])),
        ("not-ours", frame(30, &[239, 1, 1, 1])),
        ("packet-too-short", wrap(&[])),
        ("packet-too-short", wrap(&packet[..7])),
        (
            "packet-too-long",
            wrap(&[packet, &[0; 9201][..]].concat()[..9201]),
        ),
        ("bad-magic", byte(0, 0x52)),
        ("bad-version", byte(1, 3)),
        ("bad-widths", byte(2, 3)),
        ("bad-widths", byte(3, 0)),
        ("items-past-end", byte(6, 0xff)),
        ("no-heap-count", item(HEAP_COUNT, unknown)),
        ("no-payload-offset", item(PAYLOAD_OFFSET, unknown)),
        ("no-payload-length", item(PAYLOAD_LENGTH, unknown)),
        ("no-heap-length", item(HEAP_LENGTH, unknown)),
        ("payload-past-end", wrap(&longer)),
        (
            "payload-past-heap",
            item(HEAP_LENGTH, word(HEAP_LENGTH) - 8),
        ),
        (
            "heap-spans-packets",
            item(
                HEAP_LENGTH,
                (2 * (word(HEAP_LENGTH) & 0xffff_ffff)) | (0x8002 << 48),
            ),
        ),
        ("wrong-heap-length", wrap(&shorter)),
        ("no-timestamp", item(TIMESTAMP, unknown)),
        ("duplicate", good.to_vec()),
        ("bad-timestamp", item(TIMESTAMP, word(TIMESTAMP) + 1)),
    ]
}

fn drops(capture: &Path, options: &[&str]) -> (u64, u64, BTreeMap<String, u64>) {
    let folder = tempfile::tempdir().unwrap();
    let (out, report) = (folder.path().join("out.pcap"), folder.path().join("report"));
    let (out, folder) = (out.to_str().unwrap(), report.to_str().unwrap());
    let args = [
        "replay",
        capture.to_str().unwrap(),
        "--output",
        out,
        "--report",
        folder,
    ];
    let chunk = [
        "--wideband",
        WIDEBAND,
        "--recv-chunk-samples",
        "16384",
        "--quiet",
    ];
    let sources = ["--sources", SOURCES];
    karoo_ok([&args[..], &chunk, &sources, options].concat());
    let report = std::fs::read(report.join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    let input = &report["input"];
    let placed = (0..2)
        .map(|pol| input["pols"][pol]["heaps"].as_u64().unwrap())
        .sum();
    let drops = serde_json::from_value(input["drops"].clone()).unwrap();
    (input["datagrams"].as_u64().unwrap(), placed, drops)
}

#[test]
fn each_cause_is_counted_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.pcap");
    let frames = frames();
    let mut writer = CaptureWriter::create(&path, Precision::Microseconds).unwrap();
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for (i, frame) in frames.iter().enumerate() {
        writer.write_frame(i as u64, &[frame]).unwrap();
        if i % 20 == 10 {
            for (cause, bad) in bad_frames(frame) {
                writer.write_frame(i as u64, &[&bad]).unwrap();
                *expected.entry(cause.into()).or_default() += 1;
            }
        }
    }
    // The first heap again, long after its chunk was closed.
    writer.write_frame(0, &[&frames[0]]).unwrap();
    expected.insert("too-old".into(), 1);
    writer.finish().unwrap();

    let total: u64 = expected.values().sum::<u64>() + frames.len() as u64;
    let (datagrams, placed, found) = drops(&path, &[]);
    assert_eq!(found, expected);
    assert_eq!((datagrams, placed), (total, frames.len() as u64));

    // Masked, a timestamp off by one is that of a heap that was received before.
    let off = expected.remove("bad-timestamp").unwrap();
    *expected.get_mut("duplicate").unwrap() += off;
    let (datagrams, placed, found) = drops(&path, &["--mask-timestamp"]);
    assert_eq!(found, expected);
    assert_eq!((datagrams, placed), (total, frames.len() as u64));
}
