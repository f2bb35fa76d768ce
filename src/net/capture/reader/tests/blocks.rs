//! Blocks of pcapng that are large, of other kinds, or cut.

use super::*;

/// A section may have another byte order than the one before it.
#[test]
fn a_section_that_is_cut_is_no_damage() {
    for big in [false, true] {
        let start = [section(big), interface(big, 1), packet(big, 0, b"frame", 5)];
        let start = start.concat();
        for next in [section(big), section(!big)] {
            for len in 1..next.len() {
                let (frames, truncated) = frames(&[&start[..], &next[..len]].concat()).unwrap();
                assert_eq!((frames.len(), truncated), (1, true), "{len}");
            }
        }
    }
}

#[test]
fn records_larger_than_the_buffer_are_read() {
    for bytes in [3 * BUFFER, MAX_BUFFER - 64, MAX_BUFFER + BUFFER] {
        let mut file = [section(false), interface(false, 1)].concat();
        file.extend(block(false, 0x0bad_beef, &vec![0; bytes]));
        file.extend(packet(false, 0, b"after", 5));
        assert_eq!(frames(&file).unwrap().0.len(), 1);
    }
}

#[test]
fn frames_larger_than_the_buffer_are_read_and_none_larger_than_may_be() {
    for (bytes, fits) in [
        (3 * BUFFER, true),
        (MAX_BUFFER - 64, true),
        (MAX_BUFFER, false),
    ] {
        let large = packet(false, 0, &vec![7; bytes], 5);
        let small = packet(false, 0, b"after", 5);
        match frames(&[section(false), interface(false, 1), large, small].concat()) {
            Ok((frames, truncated)) => {
                assert_eq!((frames.len(), truncated, fits), (2, false, true), "{bytes}");
            }
            Err(CaptureError::Corrupt { .. }) => assert!(!fits, "{bytes}"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Short ones are an end that is missing.
#[test]
fn a_block_of_another_kind_that_never_ends_is_damage() {
    let start = [
        section(false),
        interface(false, 1),
        packet(false, 0, b"frame", 5),
    ];
    let start = start.concat();
    for (length, damage) in [(4096, false), (MAX_BUFFER as u32 + 4, true)] {
        let block = words(false, &[0x0bad_beef, length, 0, 0]);
        match frames(&[&start[..], &block].concat()) {
            Ok((frames, truncated)) => {
                assert_eq!((frames.len(), truncated, damage), (1, true, false));
            }
            Err(CaptureError::Corrupt { offset, frames, .. }) => {
                assert_eq!((offset, frames, damage), (start.len() as u64, 1, true));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// As where bits of its length are wrong: it would take frames away.
#[test]
fn a_block_of_another_kind_has_its_length_twice() {
    for big in [false, true] {
        let frame = packet(big, 0, b"frame", 5);
        let start = [section(big), interface(big, 1), frame.clone()].concat();
        let other = block(big, 0x0bad_beef, b"anything");
        let length = other.len() as u32;
        for (claimed, what) in [
            (length + 4, "the block's two lengths differ"),
            (MAX_BUFFER as u32 + 4096, "the block's two lengths differ"),
            (length + 1, "the block's length is no multiple of 4"),
            (length + 2, "the block's length is no multiple of 4"),
        ] {
            let mut other = other.clone();
            other[4..8].copy_from_slice(&words(big, &[claimed]));
            let mut file = [&start[..], &other, &frame].concat();
            file.resize(file.len() + claimed as usize, 0);
            match frames(&file).unwrap_err() {
                CaptureError::Corrupt {
                    offset,
                    frames,
                    what: said,
                    ..
                } => assert_eq!((offset, frames, said), (start.len() as u64, 1, what)),
                error => panic!("{error}"),
            }
        }
        for len in 1..=other.len() {
            let (frames, truncated) = frames(&[&start[..], &other[..len]].concat()).unwrap();
            assert_eq!((frames.len(), truncated), (1, len < other.len()), "{len}");
        }
    }
}

#[test]
fn a_block_of_another_kind_may_be_empty_but_not_shorter() {
    for big in [false, true] {
        let start = [section(big), interface(big, 1)].concat();
        let after = packet(big, 0, b"after", 5);
        let empty = [&start[..], &block(big, 0x0bad_beef, b""), &after].concat();
        assert_eq!(frames(&empty).unwrap().0.len(), 1);
        for length in [0, 4, 8, 11] {
            let short = words(big, &[0x0bad_beef, length, length]);
            let file = [&start[..], &short, &after].concat();
            match frames(&file).unwrap_err() {
                CaptureError::Corrupt { offset, .. } => assert_eq!(offset, start.len() as u64),
                error => panic!("{error}"),
            }
        }
    }
}
