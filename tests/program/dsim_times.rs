//! Timestamps in captures of `dsim`: that wrap, that fall silent, that are wild.

use std::collections::BTreeMap;

use serde_json::json;

use super::dsim::{
    BATCH, Expected, Frames, WIDEBAND, dsim, heap_of, read_frames, timestamps, write_frames,
};
use crate::support::{
    Samples, WIRE_RANGE, check_against_model, output_config, read_output, replay, replay_report,
};

#[test]
fn timestamps_wrap_at_48_bits() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture.pcap");
    let first = WIRE_RANGE - 32 * 4096;
    let start = first.to_string();
    dsim(
        &capture,
        &["--samples", "262144", "--first-timestamp", &start],
    );
    let samples = Samples::read(&capture, 10, 4096);
    assert_eq!((samples.first(), samples.end()), (first, first + 262144));
    let out = folder.path().join("out.pcap");
    for chunk in ["16384", "65536"] {
        let options = ["--gain", "0.1", "--recv-chunk-samples", chunk];
        replay(&capture, &out, &[WIDEBAND], &options);
        let batches = read_output(&out).remove(&49152).unwrap().batches;
        let unwrapped: BTreeMap<u64, Vec<i8>> = batches
            .into_iter()
            .map(|(t, batch)| (if t < first { t + WIRE_RANGE } else { t }, batch))
            .collect();
        let expected: Vec<u64> = (0..63).map(|batch| first + batch * BATCH).collect();
        assert_eq!(timestamps(&unwrapped), expected);
        let output = output_config(WIDEBAND);
        check_against_model(&samples, &output, &unwrapped, &Default::default(), 0.1);
        assert!(read_frames(&out).is_sorted_by_key(|frame| frame.0));
    }
}

#[test]
fn a_silent_polarisation_does_not_hold_the_other_up() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture.pcap");
    dsim(&capture, &["--samples", "262144", "--heap-samples", "1024"]);
    let mut frames = read_frames(&capture);
    let place = |frames: &Frames, heap: (usize, u64)| {
        let is = |(_, frame): &(u64, Vec<u8>)| heap_of(frame, 1280) == Some(heap);
        frames.iter().position(is).unwrap()
    };
    // Polarisation 1 falls silent for ten chunks; its last heap before that comes when the newest
    // chunk of all is six further on, although polarisation 1 itself has seen nothing newer.
    frames.retain(|(_, frame)| {
        heap_of(frame, 1280).is_none_or(|(pol, t)| pol == 0 || !(100 << 10..180 << 10).contains(&t))
    });
    let from = place(&frames, (1, 99 << 10));
    let late = frames.remove(from);
    let to = place(&frames, (0, 150 << 10));
    frames.insert(to, late);
    write_frames(&capture, &frames);
    let options = ["--gain", "0.1", "--recv-chunk-samples", "8192"];
    let (stream, report) = replay_report(&capture, WIDEBAND, &options);
    let expected = Expected::new(&frames, 1024, 1280, 8192);
    assert_eq!(expected.too_old, 1);
    expected.check_report(&report, &frames);
    assert_eq!(
        timestamps(&stream.batches),
        expected.batches(1024, 0, 262144)
    );
    let samples = Samples::read(&capture, 10, 1024);
    let output = output_config(WIDEBAND);
    check_against_model(&samples, &output, &stream.batches, &Default::default(), 0.1);
}

fn set_timestamp(frame: &mut [u8], timestamp: u64) {
    // It is the fifth item pointer; the headers before the packet have 42 bytes.
    let at = 42 + 42;
    frame[at..at + 6].copy_from_slice(&timestamp.to_be_bytes()[2..]);
    let heap = heap_of(frame, 1280).map(|heap| heap.1);
    assert_eq!(heap, Some(timestamp));
}

/// Gains by level are measured before the replay, by the same rules.
#[test]
fn a_wild_first_heap_costs_no_gains() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture.pcap");
    dsim(&capture, &["--samples", "262144", "--heap-samples", "1024"]);
    let mut frames = read_frames(&capture);
    let options = ["--recv-chunk-samples", "8192", "--gain", "auto"];
    let (whole, _) = replay_report(&capture, WIDEBAND, &options);
    let first = frames
        .iter_mut()
        .find(|frame| heap_of(&frame.1, 1280).is_some());
    set_timestamp(&mut first.unwrap().1, 1 << 40);
    write_frames(&capture, &frames);
    let (stream, report) = replay_report(&capture, WIDEBAND, &options);
    assert_eq!(report["input"]["drops"]["stray-time"], 1);
    // The first batch lacks its heap.
    assert_eq!(stream.batches.len() + 1, whole.batches.len());
}

#[test]
fn a_wild_timestamp_costs_its_heap_alone() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture.pcap");
    dsim(&capture, &["--samples", "262144", "--heap-samples", "1024"]);
    let all = read_frames(&capture);
    let victim = all.len() / 2;
    let (_, t) = heap_of(&all[victim].1, 1280).unwrap();
    let chunk = 8192;
    let half = WIRE_RANGE / 2;
    // Around half the range, what follows is before or after the wild heap, depending on what it is
    // compared with.
    for ahead in [
        1 << 40,
        half - 2 * chunk,
        half - chunk,
        half + chunk,
        half + 2 * chunk,
    ] {
        let mut frames = all.clone();
        set_timestamp(&mut frames[victim].1, t + ahead);
        write_frames(&capture, &frames);
        let options = ["--recv-chunk-samples", &chunk.to_string()];
        let (stream, report) = replay_report(&capture, WIDEBAND, &options);
        // It alone is not placed.
        frames.remove(victim);
        let expected = Expected::new(&frames, 1024, 1280, chunk);
        let input = &report["input"];
        let drops = input["drops"].as_object().unwrap();
        let causes: Vec<_> = drops
            .iter()
            .map(|(cause, count)| (&cause[..], count))
            // The stop heap.
            .filter(|(cause, _)| *cause != "wrong-heap-length")
            .collect();
        let of_time = [("stray-time", &json!(1)), ("too-old", &json!(1))];
        assert!(
            of_time.iter().any(|cause| causes == [*cause]),
            "{ahead}: {causes:?}"
        );
        if ahead == 1 << 40 {
            assert_eq!(causes[0].0, "stray-time");
        }
        for pol in 0..2 {
            assert_eq!(input["pols"][pol]["heaps"], expected.placed[pol].len());
        }
        let whole = expected.batches(1024, 0, 262_144);
        assert!(whole.iter().any(|batch| *batch > t));
        let sent: Vec<_> = stream.batches.keys().copied().collect();
        assert_eq!(sent, whole, "{ahead} ahead");
    }
}
