//! `dsim`, and what `replay` makes of its captures: every sample width, faults.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use karoo::net::capture::Precision;
use karoo::net::{CaptureReader, CaptureWriter, Datagram};
use serde_json::Value;
use spead::DigitiserHeap;

use crate::support::{
    Samples, WIRE_RANGE, check_against_model, karoo, karoo_ok, output_config, replay, replay_report,
};

/// Batches of 4096 samples, each of which needs 4480.
pub(super) const WIDEBAND: &str =
    "name=w,channels=64,dst=239.10.1.0+1,jones_per_batch=2048,dither=none,taps=4";
pub(super) const BATCH: u64 = 4096;
const UNION: u64 = 4480;

pub(super) fn dsim(output: &Path, options: &[&str]) {
    let common = ["dsim", "--period", "65536", "--output"];
    let output = output.to_str().unwrap();
    karoo_ok([&common[..], &[output], options].concat());
}

pub(super) type Frames = Vec<(u64, Vec<u8>)>;

pub(super) fn read_frames(path: &Path) -> Frames {
    let mut reader = CaptureReader::open(path).unwrap();
    let mut frames = Vec::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        frames.push((frame.time_ns, frame.bytes.to_vec()));
    }
    frames
}

pub(super) fn write_frames(path: &Path, frames: &Frames) {
    let mut writer = CaptureWriter::create(path, Precision::Nanoseconds).unwrap();
    for (time_ns, bytes) in frames {
        writer.write_frame(*time_ns, &[bytes]).unwrap();
    }
    writer.finish().unwrap();
}

/// Polarisation and timestamp of a frame with a whole digitiser heap.
pub(super) fn heap_of(frame: &[u8], heap_bytes: usize) -> Option<(usize, u64)> {
    let datagram = Datagram::new_checked(frame).ok()?;
    let heap = DigitiserHeap::new_checked(datagram.payload()).ok()?;
    (heap.heap_length() == heap_bytes).then_some((heap.pol(), heap.timestamp()?))
}

/// What a receiver with one queue per polarisation does with a capture, in file order.
#[derive(Default)]
pub(super) struct Expected {
    pub(super) placed: [BTreeSet<u64>; 2],
    pub(super) too_old: u64,
    duplicates: u64,
    refused: u64,
}

impl Expected {
    /// A queue takes heaps of the newest chunk that it has seen, and of the one before. A queue
    /// that has fallen three chunks behind the newest of all gives up what is more than two behind.
    pub(super) fn new(frames: &Frames, heap_samples: u64, heap_bytes: usize, chunk: u64) -> Self {
        let mut expected = Self::default();
        let mut lowest = [0u64; 2];
        let mut newest = 0;
        for (_, frame) in frames {
            let heap = heap_of(frame, heap_bytes).filter(|(_, t)| t % heap_samples == 0);
            let Some((pol, low)) = heap else {
                expected.refused += 1;
                continue;
            };
            let near = i128::from(lowest[pol] * chunk);
            let timestamp = (0..4)
                .map(|wraps| low + wraps * WIRE_RANGE)
                .min_by_key(|&t| (i128::from(t) - near).abs())
                .unwrap();
            let id = timestamp / chunk;
            if id < lowest[pol] {
                expected.too_old += 1;
                continue;
            }
            newest = newest.max(id);
            lowest[pol] = lowest[pol].max(id.saturating_sub(1));
            for lowest in &mut lowest {
                if *lowest + 3 < newest {
                    *lowest = newest - 2;
                }
            }
            if !expected.placed[pol].insert(timestamp) {
                expected.duplicates += 1;
            }
        }
        expected
    }

    /// Batches from `first` to `end` for which every heap was placed.
    pub(super) fn batches(&self, heap_samples: u64, first: u64, end: u64) -> Vec<u64> {
        let whole = |t: &u64| {
            let heaps = t / heap_samples * heap_samples..t + UNION;
            let mut heaps = heaps.step_by(heap_samples as usize);
            heaps.all(|heap| self.placed.iter().all(|placed| placed.contains(&heap)))
        };
        let batches = (first.next_multiple_of(BATCH)..end).step_by(BATCH as usize);
        batches.filter(whole).collect()
    }

    /// Every datagram is counted once, and under the right cause.
    pub(super) fn check_report(&self, report: &Value, frames: &Frames) {
        let input = &report["input"];
        let count = |cause: &str| input["drops"][cause].as_u64().unwrap_or(0);
        let drops = input["drops"].as_object().unwrap().values();
        let drops: u64 = drops.map(|count| count.as_u64().unwrap()).sum();
        for pol in 0..2 {
            let placed = self.placed[pol].len() as u64;
            assert_eq!(input["pols"][pol]["heaps"], placed, "pol {pol}");
        }
        assert_eq!(count("too-old"), self.too_old);
        assert_eq!(count("duplicate"), self.duplicates);
        assert_eq!(drops, self.too_old + self.duplicates + self.refused);
        assert_eq!(input["datagrams"], frames.len());
        let placed: usize = self.placed.iter().map(BTreeSet::len).sum();
        assert_eq!(placed as u64 + drops, frames.len() as u64);
    }
}

pub(super) fn timestamps(batches: &BTreeMap<u64, Vec<i8>>) -> Vec<u64> {
    batches.keys().copied().collect()
}

#[test]
fn every_sample_width_matches_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture.pcap");
    let output = output_config(WIDEBAND);
    for bits in 2..=16 {
        let width = bits.to_string();
        dsim(&capture, &["--samples", "65536", "--sample-bits", &width]);
        let gain = 50.0 / f64::from((1 << (bits - 1)) - 1);
        let gain = gain.to_string();
        let (stream, report) = replay_report(
            &capture,
            WIDEBAND,
            &["--gain", &gain, "--recv-chunk-samples", "16384"],
        );
        assert_eq!(report["config"]["recv"]["sample_bits"], bits);
        let expected: Vec<u64> = (0..65536 - UNION).step_by(BATCH as usize).collect();
        assert_eq!(timestamps(&stream.batches), expected, "{bits} bits");
        let samples = Samples::read(&capture, bits, 4096);
        let gain = gain.parse().unwrap();
        check_against_model(
            &samples,
            &output,
            &stream.batches,
            &Default::default(),
            gain,
        );
        // Not a comparison of silence with silence.
        let loud = stream
            .batches
            .values()
            .flatten()
            .map(|x| x.unsigned_abs())
            .max();
        assert!(loud > Some(30), "{bits} bits: {loud:?}");
    }
}

const FAULTS: &str = "drop=0.01,duplicate=0.02,reorder=0.02,corrupt=0.02,late=0.02:20,gap=0.004:30";

#[test]
fn faults_cost_what_they_must_and_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture.pcap");
    let truth = folder.path().join("truth.json");
    let output = output_config(WIDEBAND);
    let (heap_samples, heap_bytes) = (1024, 1280);
    let first = 5 << 20;
    let mut kinds = BTreeSet::new();
    let mut too_old = 0;
    for seed in 1..=8 {
        let seed = seed.to_string();
        dsim(
            &capture,
            &[
                "--samples",
                "262144",
                "--heap-samples",
                "1024",
                "--first-timestamp",
                &first.to_string(),
                "--faults",
                FAULTS,
                "--fault-seed",
                &seed,
                "--truth",
                truth.to_str().unwrap(),
            ],
        );
        let frames = read_frames(&capture);
        let samples = Samples::read(&capture, 10, heap_samples);
        let truth: Value = serde_json::from_slice(&std::fs::read(&truth).unwrap()).unwrap();
        let faults = truth["faults"].as_array().unwrap();
        let of_kind = |kind: &str| faults.iter().filter(|fault| fault["kind"] == kind).count();
        kinds.extend(
            faults
                .iter()
                .map(|fault| fault["kind"].as_str().unwrap().to_owned()),
        );

        for chunk in [8192, 65536] {
            let expected = Expected::new(&frames, heap_samples, heap_bytes, chunk);
            let (stream, report) = replay_report(
                &capture,
                WIDEBAND,
                &["--gain", "0.1", "--recv-chunk-samples", &chunk.to_string()],
            );
            expected.check_report(&report, &frames);
            assert_eq!(expected.duplicates, of_kind("duplicate") as u64);
            for cause in [
                "bad-magic",
                "bad-version",
                "items-past-end",
                "payload-past-end",
                "bad-timestamp",
            ] {
                let count = faults
                    .iter()
                    .filter(|fault| fault["cause"] == cause)
                    .count();
                let drops = &report["input"]["drops"][cause];
                assert_eq!(drops.as_u64().unwrap_or(0), count as u64, "{cause}");
            }
            let batches = expected.batches(heap_samples, first, first + 262144);
            assert!(!batches.is_empty());
            assert_eq!(
                timestamps(&stream.batches),
                batches,
                "seed {seed}, chunk {chunk}"
            );
            check_against_model(&samples, &output, &stream.batches, &Default::default(), 0.1);
            too_old += expected.too_old;
            if chunk == 65536 {
                // Twenty heaps are less than a chunk: only what was not sent is lost.
                assert_eq!(expected.too_old, 0);
                let lost = of_kind("drop") + of_kind("gap") + of_kind("corrupt");
                let placed: usize = expected.placed.iter().map(BTreeSet::len).sum();
                assert_eq!(placed + lost, 512);
            }
        }

        let bytes = ["65536", "131072"].map(|chunk| {
            let out = folder.path().join("out.pcap");
            let options = ["--gain", "0.1", "--recv-chunk-samples", chunk];
            replay(&capture, &out, &[WIDEBAND], &options);
            std::fs::read(out).unwrap()
        });
        assert!(
            bytes[0] == bytes[1],
            "seed {seed}: bytes depend on the chunk size"
        );
    }
    assert_eq!(kinds.len(), 6, "{kinds:?}");
    assert!(too_old > 0);
}

#[test]
fn seeds_decide_every_byte() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture.pcap");
    let make = |options: &[&str]| {
        let common = ["--samples", "65536", "--faults", "drop=0.2,duplicate=0.2"];
        dsim(&capture, &[&common[..], options].concat());
        std::fs::read(&capture).unwrap()
    };
    let reference = make(&[]);
    assert!(make(&[]) == reference);
    assert!(make(&["--seed", "1", "--dither-seed", "1", "--fault-seed", "1"]) == reference);
    for option in ["--seed", "--dither-seed", "--fault-seed"] {
        assert!(make(&[option, "2"]) != reference, "{option}");
    }
}

#[test]
fn wrong_options_are_usage_errors_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture.pcap");
    let many = ["239.1.1.1"; 256];
    let two = "cw(0.1, 1e8); cw(0.1, 2e8); cw(0.1, 3e8);";
    let cases: &[(&[&str], &str)] = &[
        (&["--adc-sample-rate", "0"], "--adc-sample-rate 0"),
        (&["--adc-sample-rate", "inf"], "such as 1712e6"),
        (&["--adc-sample-rate", "1e18"], "at most 1e12 Hz"),
        (&["--signals", "multicw(70000,1,1,1,1);"], "0 to 65536"),
        (&["--sync-time", "5e9"], "such as 1763700000"),
        (&["--signals", two], "3 signals for 2 destinations"),
        (&["--signals", "cw(0.1);"], "expected ','"),
        (&["--heap-samples", "0"], "4096 would do"),
        (&["--heap-samples", "4097"], "whole bytes"),
        (&["--heap-samples", "65536"], "at most"),
        (&["--sample-bits", "1"], "from 2 to 16"),
        (&["--sample-bits", "17"], "from 2 to 16"),
        (&["--period", "0"], "--period 0"),
        (&["--period", "1000"], "would do"),
        (&["--period", "100"], "--period unless given"),
        (&["--max-period", "40000"], "would do"),
        (&["--first-timestamp", "100"], "0 would do"),
        (&["--first-timestamp", "281474976710656"], "below 2^48"),
        (&many, "256 destinations"),
        (&["nowhere"], "nowhere"),
        (&["--seconds", "0"], "positive"),
        (&["--seconds", "1", "--samples", "1"], "cannot be used with"),
        (&["--samples", "0"], "--samples 0: must be 1 at least"),
        (
            &["--sync-time", "4294967295"],
            "would end at UNIX time 4294967296, by",
        ),
        (
            &["--sync-time", "4294967290", "--adc-sample-rate", "1000"],
            "pcap has times up to 4294967295, in 2106",
        ),
        (&["--affinity", "1"], "cannot be used with"),
        (&["--main-affinity", "-1"], "cannot be used with"),
        (&["--send-buffer", "1M"], "cannot be used with"),
        (&["--katcp-host", "127.0.0.1"], "cannot be used with"),
        (&["--katcp-port", "7150"], "cannot be used with"),
        (&["--prometheus-port", "7151"], "cannot be used with"),
        (&["--log", "stderr"], "cannot be used with"),
        (&["--faults", "drop=0.1,drop=0.2"], "given twice"),
        (&["--faults", "drop=2"], "probability"),
        (&["--faults", "gap=0.1"], "gap=0.001:100"),
        (&["--faults", "rain=0.1"], "rain"),
    ];
    for (options, expected) in cases {
        let common = ["dsim", "--output", capture.to_str().unwrap()];
        let output = karoo([&common[..], options].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {stderr}");
        assert!(stderr.contains(expected), "{options:?}: {stderr}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
    let truth = capture.with_extension("json");
    let (capture, truth) = (capture.to_str().unwrap(), truth.to_str().unwrap());
    let nowhere = "/proc/no/such/folder/file";
    for options in [
        &["--output", nowhere][..],
        &["--output", nowhere, "--truth", truth],
        &["--output", capture, "--truth", nowhere],
    ] {
        let output = karoo([&["dsim", "--samples", "4096"][..], options].concat());
        assert_eq!(output.status.code(), Some(1), "{options:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(nowhere));
        // Nor the truth of a capture that there is none of.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

/// What there is behind a name may be a pipe, which has nothing to be emptied of.
#[test]
fn the_truth_goes_through_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture.pcap");
    let capture = capture.to_str().unwrap();
    let truth = ["--samples", "4096", "--truth", "/dev/stdout"];
    let truth = karoo_ok(["dsim", "--output", capture].iter().chain(&truth));
    let truth: Value = serde_json::from_str(&truth).unwrap();
    assert_eq!(truth["samples"], 4096);
}

#[test]
fn the_usual_signals_go_to_any_number_of_destinations() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture.pcap");
    let capture = capture.to_str().unwrap();
    let dests = ["239.1.1.1", "239.1.1.2", "239.1.1.3"];
    for pols in 1..=3 {
        let options = [
            "--samples",
            "4096",
            "--period",
            "65536",
            "--truth",
            "/dev/stdout",
        ];
        let args = [&["dsim", "--output", capture], &options[..], &dests[..pols]].concat();
        let truth: Value = serde_json::from_str(&karoo_ok(args)).unwrap();
        let signals = truth["signals"].as_str().unwrap();
        let signals: BTreeSet<_> = signals.trim().split_inclusive("; ").collect();
        // With noise of their own.
        assert_eq!(signals.len(), pols, "{truth}");
    }
}

#[test]
fn one_polarisation_alone_makes_no_batches() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture.pcap");
    dsim(
        &capture,
        &["--samples", "1048576", "--heap-samples", "1024"],
    );
    let all = read_frames(&capture);
    for missing in 0..2 {
        let mut frames = all.clone();
        frames.retain(|(_, frame)| heap_of(frame, 1280).is_none_or(|(pol, _)| pol != missing));
        write_frames(&capture, &frames);
        let options = ["--recv-chunk-samples", "16384"];
        let (stream, report) = replay_report(&capture, WIDEBAND, &options);
        let expected = Expected::new(&frames, 1024, 1280, 16384);
        expected.check_report(&report, &frames);
        assert_eq!(expected.placed[1 - missing].len(), 1024);
        assert!(stream.batches.is_empty());
        assert_eq!(report["outputs"][0]["batches"], 0);
        let pols = &report["input"]["pols"];
        assert_eq!(
            (&pols[missing]["heaps"], &pols[missing]["missing_heaps"]),
            (&0.into(), &1024.into())
        );
        assert_eq!(pols[1 - missing]["missing_heaps"], 0);
    }
}

/// They may take minutes.
#[test]
fn no_signals_are_computed_for_files_that_cannot_be_made() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (fine, nowhere) = (at("x.pcap"), at("no/where"));
    for (output, truth, wanted) in [
        (&nowhere, &fine, "cannot create capture"),
        (&fine, &nowhere, "cannot write --truth"),
        // Where there is no room either.
        (&"/proc/x.pcap".to_owned(), &fine, "cannot create capture"),
    ] {
        let args = ["dsim", "--period=65536", "--samples=65536", "--output"];
        let output = karoo([&args[..], &[output, "--truth", truth]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains(wanted) && !said.contains("computing"),
            "{said}"
        );
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            0,
            "{said}"
        );
    }
}

/// On a terminal there is a bar.
#[test]
fn the_log_says_that_signals_are_computed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pcap");
    let args = ["dsim", "--period=65536", "--samples=65536", "--output"];
    let output = karoo([&args[..], &[path.to_str().unwrap()]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let begun = said.find("computing signals").expect(&said);
    let line = said[begun..].lines().next().unwrap();
    assert!(line.contains("polarisations=2 period=65536"), "{said}");
    let ended = said.find("signals computed").expect(&said);
    assert!(begun < ended, "{said}");
}
