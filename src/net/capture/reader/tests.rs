mod blocks;

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

/// An interface of Ethernet with these options, each of a number and a value.
fn interface_with(big: bool, snaplen: u32, options: &[(u32, &[u8])]) -> Vec<u8> {
    let pair = |a: u32, b: u32| if big { a << 16 | b } else { a | b << 16 };
    let mut body = words(big, &[pair(1, 0), snaplen]);
    for (number, value) in options {
        body.extend(words(big, &[pair(*number, value.len() as u32)]));
        body.extend_from_slice(value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    body.extend(words(big, &[0]));
    block(big, 1, &body)
}

/// Ticks are microseconds unless option 9 says otherwise; option 14 has seconds to add.
#[test]
fn times_are_in_the_units_of_their_interface() {
    for big in [false, true] {
        let offset = |seconds: i64| match big {
            true => seconds.to_be_bytes(),
            false => seconds.to_le_bytes(),
        };
        let (later, before) = (offset(1_000_000), offset(-100_000));
        let options: [&[(u32, &[u8])]; 5] = [
            &[],
            &[(9, &[3])],
            // A power of two.
            &[(9, &[0x80 | 20])],
            &[(14, &later)],
            &[(14, &before)],
        ];
        let mut file = section(big);
        for options in options {
            file.extend(interface_with(big, 0, options));
        }
        for interface in 0..5 {
            file.extend(packet(big, interface, b"frame", 5));
        }
        let ticks = (1 << 32) + 7;
        let expected = [
            ticks * 1000,
            ticks * 1_000_000,
            ((u128::from(ticks) * 1_000_000_000) >> 20) as u64,
            ticks * 1000 + 1_000_000_000_000_000,
            // There is no time before 1970.
            0,
        ];
        let times: Vec<_> = frames(&file)
            .unwrap()
            .0
            .into_iter()
            .map(|frame| frame.0)
            .collect();
        assert_eq!(times, expected);
    }
}

#[test]
fn simple_packets_are_as_long_as_their_interface_lets_them_be() {
    for (snaplen, len) in [(0, 5), (3, 3), (5, 5), (9, 5)] {
        let mut file = [section(false), interface_with(false, snaplen, &[])].concat();
        let simple = [&words(false, &[5]), &b"bytes"[..len]].concat();
        file.extend(block(false, 3, &simple));
        let mut reader = reader(&file).unwrap();
        let frame = reader.next_frame().unwrap().unwrap();
        assert_eq!((frame.bytes, frame.orig_len), (&b"bytes"[..len], 5));
        assert_eq!(frame.is_cut(), len < 5);
    }
    let described = "the packet's interface was never described";
    let simple = block(false, 3, &words(false, &[0]));
    for packet in [simple, packet(false, 1, b"frame", 5)] {
        let mut file = section(false);
        if packet[0] == 6 {
            file.extend(interface(false, 1));
        }
        file.extend(packet);
        let error = frames(&file).unwrap_err().to_string();
        assert!(error.contains(described), "{error}");
    }
    let cooked = [
        section(false),
        interface(false, 113),
        block(false, 3, &words(false, &[0])),
    ];
    let error = frames(&cooked.concat()).unwrap_err();
    assert!(
        matches!(error, CaptureError::LinkType { link_type: 113, .. }),
        "{error}"
    );
}

#[test]
fn a_reader_tells_its_format_and_how_far_it_is() {
    for (file, format) in [
        (pcap(false, 0xa1b2_c3d4, 1), "pcap"),
        (pcap(false, 0xa1b2_3c4d, 1), "pcap with nanoseconds"),
        ([section(false), interface(false, 1)].concat(), "pcapng"),
    ] {
        let header = file.len() as u64;
        let one = match format {
            "pcapng" => packet(false, 0, b"frame", 5),
            _ => record(false, 0, b"frame", 5),
        };
        let file = [&file[..], &one, &one, &one].concat();
        let mut reader = reader(&file).unwrap();
        assert_eq!(reader.format(), format);
        let (one, total) = (one.len() as u64, file.len() as u64);
        for frames in 0..3 {
            assert!(reader.next_frame().unwrap().is_some());
            // The frame at hand is still in the buffer.
            assert_eq!(reader.progress(), (header + frames * one, total));
        }
        assert!(reader.next_frame().unwrap().is_none());
        assert_eq!(reader.progress(), (total, total));
    }
}

#[test]
fn a_missing_end_costs_the_last_frame_alone() {
    for (big, ng) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut file, one) = match ng {
            false => (pcap(big, 0xa1b2_c3d4, 1), record(big, 0, &[1; 50], 50)),
            true => (
                [section(big), interface(big, 1)].concat(),
                packet(big, 0, &[1; 50], 50),
            ),
        };
        let start = file.len();
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
    for (magic, way_out) in [
        (&[0x1f, 0x8b, 8, 0, 0][..], "gunzip"),
        (&[0x28, 0xb5, 0x2f, 0xfd], "zstd -d"),
        (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz -d"),
        (b"BZh91AY", "bunzip2"),
    ] {
        let text = refusal(magic).to_string();
        assert!(
            text.contains("test.pcap") && text.contains(way_out),
            "{text}"
        );
    }
    let text = refusal(b"# a text file, longer than a header").to_string();
    assert!(
        text.contains("23 20 61 20") && text.contains("tcpdump"),
        "{text}"
    );
    // As in the list of link types (www.tcpdump.org/linktypes.html).
    for (link_type, name) in [
        (0, "BSD loopback"),
        (101, "raw IP"),
        (105, "IEEE 802.11"),
        (108, "OpenBSD loopback"),
        (113, "Linux cooked, as from tcpdump -i any"),
        (127, "IEEE 802.11 with radiotap"),
        (228, "raw IPv4"),
        (276, "Linux cooked version 2, as from tcpdump -i any"),
        (999, "unknown"),
    ] {
        let text = refusal(&pcap(false, 0xa1b2_c3d4, link_type)).to_string();
        assert!(
            text.contains(&format!("link type {link_type} ({name})")),
            "{text}"
        );
    }
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
    let error = frames(&file).unwrap_err();
    assert!(
        error.to_string().ends_with("editcap -r test.pcap FILE 1-1"),
        "{error}"
    );
    match error {
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
        assert!(error.to_string().ends_with("record it again"), "{error}");
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
fn a_section_without_anything_is_a_whole_file() {
    for big in [false, true] {
        let (frames, truncated) = frames(&section(big)).unwrap();
        assert!(frames.is_empty() && !truncated);
    }
}

/// A signal between two reads of a pipe takes nothing away.
#[test]
fn reads_that_a_signal_interrupts_are_repeated() {
    struct Interrupted(io::Cursor<Vec<u8>>, bool);

    impl Read for Interrupted {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            match self.1 {
                true => Err(io::ErrorKind::Interrupted.into()),
                // A piece of a pipe.
                false => {
                    let piece = buffer.len().min(10);
                    self.0.read(&mut buffer[..piece])
                }
            }
        }
    }

    let mut bytes = vec![0; 64];
    let mut pipe = Interrupted(io::Cursor::new((0..64).collect()), false);
    assert_eq!(read_full(&mut pipe, &mut bytes).unwrap(), 64);
    assert_eq!(bytes, (0..64).collect::<Vec<u8>>());
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
    let long = vec![0; 262_145];
    assert!(writer.write_frame(0, &[&long]).is_err());
    writer.write_frame(0, &[&long[1..]]).unwrap();
    writer.finish().unwrap();
    let header = 24;
    let bytes = std::fs::read(&path).unwrap();
    let length = bytes.len() as u64;
    // Version 2.4, as www.tcpdump.org/manpages/pcap-savefile.5.html has it.
    assert_eq!(bytes[4..8], [2, 0, 4, 0]);
    assert_eq!(length, header + CaptureWriter::frame_bytes(262_144));
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
    // A pipe's reader gets all of it.
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let read = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe).unwrap().len()
    });
    let mut writer = CaptureWriter::create(&pipe, Precision::Nanoseconds).unwrap();
    writer.write_frame(0, &[b"frame"]).unwrap();
    writer.finish().unwrap();
    assert_eq!(read.join().unwrap(), 24 + 16 + 5);
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
