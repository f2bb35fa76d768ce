use std::io::Cursor;

use proptest::prelude::*;

use super::*;
use crate::net::capture::{CaptureWriter, Precision};

fn reader(bytes: &[u8]) -> Result<CaptureReader, CaptureError> {
    CaptureReader::from_read("test.pcap", Cursor::new(bytes.to_vec()), bytes.len() as u64)
}

/// Time, length on the wire and bytes.
type Owned = (u64, usize, Vec<u8>);

/// All frames, and whether the end is missing.
fn frames(bytes: &[u8]) -> Result<(Vec<Owned>, bool), CaptureError> {
    let mut reader = reader(bytes)?;
    let mut frames = Vec::new();
    while let Some(frame) = reader.next_frame()? {
        assert_eq!(frame.index, frames.len() as u64);
        frames.push((frame.time_ns, frame.orig_len, frame.bytes.to_vec()));
    }
    Ok((frames, reader.truncated()))
}

fn words(big: bool, words: &[u32]) -> Vec<u8> {
    let bytes = |w: &u32| {
        if big {
            w.to_be_bytes()
        } else {
            w.to_le_bytes()
        }
    };
    words.iter().flat_map(bytes).collect()
}

fn pcap(big: bool, magic: u32, link_type: u32) -> Vec<u8> {
    let version = if big { 2 << 16 | 4 } else { 2 | 4 << 16 };
    words(big, &[magic, version, 0, 0, 65535, link_type])
}

fn record(big: bool, fraction: u32, bytes: &[u8], orig_len: u32) -> Vec<u8> {
    let mut record = words(big, &[5, fraction, bytes.len() as u32, orig_len]);
    record.extend_from_slice(bytes);
    record
}

/// A pcapng block; the body is padded.
fn block(big: bool, kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let length = 12 + padded as u32;
    let mut block = words(big, &[kind, length]);
    block.extend_from_slice(body);
    block.resize(8 + padded, 0);
    block.extend(words(big, &[length]));
    block
}

fn section(big: bool) -> Vec<u8> {
    let version = if big { 1 << 16 } else { 1 };
    let body = words(big, &[0x1a2b_3c4d, version, u32::MAX, u32::MAX]);
    block(big, 0x0a0d_0d0a, &body)
}

/// An interface with nanosecond times, as option 9 says.
fn interface(big: bool, link_type: u32) -> Vec<u8> {
    let link_type = if big { link_type << 16 } else { link_type };
    let option = if big { 9 << 16 | 1 } else { 9 | 1 << 16 };
    let mut body = words(big, &[link_type, 0, option]);
    body.extend([9, 0, 0, 0]);
    body.extend(words(big, &[0]));
    block(big, 1, &body)
}

fn packet(big: bool, interface: u32, bytes: &[u8], orig_len: u32) -> Vec<u8> {
    let mut body = words(big, &[interface, 1, 7, bytes.len() as u32, orig_len]);
    body.extend_from_slice(bytes);
    block(big, 6, &body)
}

#[test]
fn pcap_in_both_byte_orders_and_precisions() {
    for big in [false, true] {
        for (magic, time) in [(0xa1b2_c3d4, 5_000_007_000), (0xa1b2_3c4d, 5_000_000_007)] {
            let mut file = pcap(big, magic, 1);
            file.extend(record(big, 7, b"whole", 5));
            file.extend(record(big, 7, b"cut", 90));
            let (frames, truncated) = frames(&file).unwrap();
            assert_eq!(frames[0], (time, 5, b"whole".to_vec()));
            assert_eq!(frames[1], (time, 90, b"cut".to_vec()));
            assert!(!truncated);
        }
    }
}

/// The form of Kuznetzov's patches: interface, protocol and kind of packet are in each record,
/// behind its lengths.
#[test]
fn pcap_with_longer_record_headers() {
    let mut file = pcap(false, 0xa1b2_cd34, 1);
    for (bytes, orig_len) in [(&b"whole"[..], 5), (b"cut", 90)] {
        let lengths = [bytes.len() as u32, orig_len];
        let header = [&[5, 7], &lengths[..], &[2, 0x0800]].concat();
        file.extend([words(false, &header), bytes.to_vec()].concat());
    }
    let (frames, truncated) = frames(&file).unwrap();
    assert_eq!(frames[0], (5_000_007_000, 5, b"whole".to_vec()));
    assert_eq!(frames[1], (5_000_007_000, 90, b"cut".to_vec()));
    assert!(!truncated);
}

#[test]
fn pcapng_with_sections_interfaces_and_other_blocks() {
    let mut file = Vec::new();
    for big in [false, true] {
        file.extend(section(big));
        file.extend(interface(big, 1));
        file.extend(interface(big, 113));
        file.extend(block(big, 0x0bad_beef, b"anything"));
        file.extend(packet(big, 0, b"frame", 77));
        let mut simple = words(big, &[3]);
        simple.extend(b"abc");
        file.extend(block(big, 3, &simple));
    }
    let (found, truncated) = frames(&file).unwrap();
    let time = (1 << 32) + 7;
    let expected = [(time, 77, b"frame".to_vec()), (0, 3, b"abc".to_vec())];
    assert_eq!(found[..2], expected);
    assert_eq!(found[2..], expected);
    assert!(!truncated);
    file.extend(packet(true, 1, b"cooked", 6));
    let error = frames(&file).unwrap_err();
    assert!(
        matches!(error, CaptureError::LinkType { link_type: 113, .. }),
        "{error}"
    );
}

#[test]
fn a_missing_end_costs_the_last_frame_alone() {
    let mut classic = pcap(false, 0xa1b2_c3d4, 1);
    let mut next = [section(false), interface(false, 1)].concat();
    for (file, cut) in [(&mut classic, false), (&mut next, true)] {
        let start = file.len();
        let one = match cut {
            false => record(false, 0, &[1; 50], 50),
            true => packet(false, 0, &[1; 50], 50),
        };
        file.extend([one.clone(), one.clone()].concat());
        for len in start..=file.len() {
            let (frames, truncated) = frames(&file[..len]).unwrap();
            assert_eq!(frames.len(), (len - start) / one.len());
            assert_eq!(truncated, (len - start) % one.len() != 0, "{len}");
        }
    }
}

#[test]
fn refusals_name_the_file_and_the_way_out() {
    let refusal = |bytes: &[u8]| frames(bytes).unwrap_err();
    assert!(matches!(refusal(b""), CaptureError::Empty { .. }));
    assert!(matches!(
        refusal(b"abc"),
        CaptureError::HeaderCut { len: 3, .. }
    ));
    let header = pcap(false, 0xa1b2_c3d4, 1);
    assert!(matches!(
        refusal(&header[..23]),
        CaptureError::HeaderCut { len: 23, .. }
    ));
    assert!(matches!(
        refusal(&section(false)[..27]),
        CaptureError::HeaderCut { len: 27, .. }
    ));
    let text = refusal(&[0x1f, 0x8b, 8, 0, 0]).to_string();
    assert!(
        text.contains("test.pcap") && text.contains("gunzip"),
        "{text}"
    );
    let text = refusal(b"# a text file, longer than a header").to_string();
    assert!(
        text.contains("23 20 61 20") && text.contains("tcpdump"),
        "{text}"
    );
    let text = refusal(&pcap(false, 0xa1b2_c3d4, 113)).to_string();
    assert!(text.contains("113") && text.contains("cooked"), "{text}");
    let error = CaptureReader::open("/nonexistent/x.pcap").err().unwrap();
    assert!(matches!(error, CaptureError::Open { .. }));
    assert!(matches!(
        CaptureReader::open("/").err().unwrap(),
        CaptureError::Read { .. }
    ));
}

#[test]
fn damage_is_an_error_with_its_place() {
    let mut file = pcap(false, 0xa1b2_c3d4, 1);
    file.extend(record(false, 0, &[1; 50], 50));
    let place = file.len() as u64;
    file.extend(words(false, &[0, 0, 0x7fff_ffff, 60]));
    file.resize(file.len() + 2 * MAX_BUFFER, 0);
    match frames(&file).unwrap_err() {
        CaptureError::Corrupt { offset, frames, .. } => {
            assert_eq!((offset, frames), (place, 1))
        }
        error => panic!("{error}"),
    }

    // However little of the file follows.
    for big in [false, true] {
        let mut file = pcap(big, 0xa1b2_c3d4, 1);
        file.extend(words(big, &[0, 0, u32::MAX, 60]));
        file.resize(file.len() + 1000, 0);
        let error = frames(&file).unwrap_err();
        assert!(
            matches!(error, CaptureError::Corrupt { frames: 0, .. }),
            "{error}"
        );
    }

    let mut file = [section(false), interface(false, 1)].concat();
    let place = file.len() as u64;
    let mut packet = packet(false, 0, &[1; 50], 50);
    packet[20] = 200;
    file.extend(packet);
    match frames(&file).unwrap_err() {
        CaptureError::Corrupt { offset, frames, .. } => {
            assert_eq!((offset, frames), (place, 0))
        }
        error => panic!("{error}"),
    }
}

#[test]
fn records_larger_than_the_buffer_are_read() {
    let mut file = [section(false), interface(false, 1)].concat();
    file.extend(block(false, 0x0bad_beef, &vec![0; 3 * BUFFER]));
    file.extend(packet(false, 0, b"after", 5));
    assert_eq!(frames(&file).unwrap().0.len(), 1);
}

#[test]
fn a_file_that_is_not_finished_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.pcap");
    let mut writer = CaptureWriter::create(&path, Precision::Nanoseconds).unwrap();
    writer.write_frame(0, &[b"frame"]).unwrap();
    drop(writer);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let mut writer = CaptureWriter::create(&path, Precision::Nanoseconds).unwrap();
    let long = vec![0; 300_000];
    assert!(writer.write_frame(0, &[&long]).is_err());
    writer.finish().unwrap();
    let entries: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(entries.len(), 1);
    assert!(path.exists());
}

#[test]
fn devices_are_written_in_place() {
    let mut writer = CaptureWriter::create("/dev/null", Precision::Nanoseconds).unwrap();
    writer.write_frame(0, &[b"frame"]).unwrap();
    writer.finish().unwrap();
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        nanoseconds: bool,
        written in proptest::collection::vec(
            (0..4_000_000_000_000_000_000u64, proptest::collection::vec(any::<u8>(), 0..9000)), 0..20),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.pcap");
        let (precision, unit) = match nanoseconds {
            true => (Precision::Nanoseconds, 1),
            false => (Precision::Microseconds, 1000),
        };
        let mut writer = CaptureWriter::create(&path, precision).unwrap();
        for (time, bytes) in &written {
            let (a, b) = bytes.split_at(bytes.len() / 2);
            writer.write_frame(*time, &[a, b]).unwrap();
        }
        writer.finish().unwrap();
        let mut reader = CaptureReader::open(&path).unwrap();
        for (time, bytes) in &written {
            let frame = reader.next_frame().unwrap().unwrap();
            prop_assert_eq!(frame.time_ns, time / unit * unit);
            prop_assert_eq!(frame.bytes, bytes);
            prop_assert!(!frame.is_cut());
        }
        prop_assert!(reader.next_frame().unwrap().is_none());
        let (read, total) = reader.progress();
        prop_assert_eq!(read, total);
        prop_assert!(!reader.truncated());
    }
}
