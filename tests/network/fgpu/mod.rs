//! `karoo fgpu` on interfaces of the kernel: two network namespaces and a cable between them. An
//! engine is in one; the test is digitiser, X-engine and controller in the other.
//!
//! Needs root, for the namespaces and for AF_PACKET; where there are none, says "no network
//! namespaces" and passes.

mod alerts;
pub mod cable;
mod chain;
mod controller;
mod doctor;
mod drops;
mod ends;
mod face;
mod hostile;
mod idle;
mod link;
mod losses;
mod received;
mod rig;
mod service;
mod shadow;
mod spead2;
mod telescope;
mod udp;

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Instant;

use dsp::delay::{DelayModels, LinearDelay};
use karoo::net::CaptureReader;
use received::Received;
use rig::{BATCH, CHUNK, ENGINE_OPTIONS, KATCP, OUTPUT, RATE, Rig, SUBSTREAMS, SYNC_TIME, tones};
use serde_json::Value;

use crate::support::{
    Samples, check_against_model, karoo_ok, output_config, read_output, replay_report,
};

fn sample(metrics: &Value, family: &str, labels: &[(&str, &str)]) -> f64 {
    let samples = metrics[family][1]
        .as_array()
        .unwrap_or_else(|| panic!("no {family}"));
    let wanted = |sample: &&Value| {
        let found = sample[1].as_object().unwrap();
        found.len() == labels.len() && labels.iter().all(|(name, value)| found[*name] == *value)
    };
    let sample = samples
        .iter()
        .find(wanted)
        .unwrap_or_else(|| panic!("{family}: {samples:?}"));
    sample[2].as_f64().unwrap()
}

/// katgpucbf's metrics with a set of labels that each must have.
const KATGPUCBF: [(&str, &[(&str, &str)]); 16] = [
    ("fgpu_input_heaps_total", &[("pol", "0")]),
    ("fgpu_input_heaps_total", &[("pol", "1")]),
    ("fgpu_input_chunks_total", &[]),
    ("fgpu_input_samples_total", &[("pol", "1")]),
    ("fgpu_input_bytes_total", &[("pol", "0")]),
    ("fgpu_input_missing_heaps_total", &[("pol", "0")]),
    ("fgpu_input_clipped_samples_total", &[("pol", "1")]),
    ("fgpu_input_too_old_heaps_total", &[]),
    ("fgpu_input_metadata_heaps_total", &[]),
    ("fgpu_input_bad_timestamp_heaps_total", &[]),
    ("fgpu_output_heaps_total", &[("stream", "w")]),
    ("fgpu_output_bytes_total", &[("stream", "w")]),
    ("fgpu_output_samples_total", &[("stream", "w")]),
    ("fgpu_output_skipped_heaps_total", &[("stream", "w")]),
    (
        "fgpu_output_clipped_samples_total",
        &[("stream", "w"), ("pol", "0")],
    ),
    (
        "fgpu_output_clipped_samples_total",
        &[("stream", "w"), ("pol", "1")],
    ),
];

/// Value of the immediate item with this number, in 48 bits.
fn item(bytes: &mut [u8], id: u16) -> &mut [u8] {
    let count = usize::from(u16::from_be_bytes([bytes[6], bytes[7]]));
    let wanted = (0x8000 | id).to_be_bytes();
    let at = (1..=count)
        .map(|i| 8 * i)
        .find(|&at| bytes[at..at + 2] == wanted);
    let at = at.expect("the item") + 2;
    &mut bytes[at..at + 6]
}

/// Under katgpucbf's names, each alone.
#[test]
fn heaps_that_cannot_be_placed_are_counted() {
    let Some(mut rig) = Rig::live("unplaced", &[]) else {
        return;
    };
    rig.send_all();
    rig.wait_for_all();
    // Heap length, payload length: of 8-bit samples.
    for _ in 0..3 {
        rig.send_first(|bytes| {
            for id in [2, 4] {
                item(bytes, id).copy_from_slice(&4096u64.to_be_bytes()[2..]);
            }
            bytes.truncate(bytes.len() - 1024);
        });
    }
    for _ in 0..2 {
        rig.send_first(|bytes| item(bytes, 0x1600)[5] ^= 1);
    }
    rig.send_first(|_| {});
    let mut counts = Vec::new();
    rig.wait(|rig| {
        let metrics = rig.metrics();
        let count = |name| sample(&metrics, &format!("fgpu_input_{name}_heaps"), &[]);
        counts = ["metadata", "bad_timestamp", "too_old"].map(count).to_vec();
        counts.iter().sum::<f64>() >= 6.0
    });
    assert_eq!(counts, [3.0, 2.0, 1.0]);
    rig.end();
}

/// By polarisation, and each heap under one name.
#[test]
fn heaps_that_do_not_come_and_those_that_come_twice_are_counted() {
    // As many as are sent ahead, and those usual ones that a busy machine needs.
    let Some(mut rig) = Rig::live("missing", &["--recv-spare-chunks=16"]) else {
        return;
    };
    // So much around what is lost does not come out.
    rig.ahead = 7 * CHUNK;
    let first = rig.samples.first();
    let lost = |timestamp: u64, pol: usize| match (timestamp - first) / 4096 {
        9 => true,
        10 | 13 => pol == 1,
        _ => false,
    };
    let twice = |timestamp: u64, pol: usize| (timestamp - first) / 4096 == 17 + pol as u64;
    rig.send_each(0, u64::MAX, |timestamp, pol| match () {
        () if lost(timestamp, pol) => 0,
        () if twice(timestamp, pol) => 2,
        () => 1,
    });
    let chunks = (rig.samples.end() - first) / CHUNK - 2;
    let mut metrics = Value::Null;
    rig.wait(|rig| {
        metrics = rig.metrics();
        sample(&metrics, "fgpu_input_chunks", &[]) as u64 >= chunks
    });
    rig.end();
    let missing = |pol| sample(&metrics, "fgpu_input_missing_heaps", &[("pol", pol)]);
    assert_eq!([missing("0"), missing("1")], [1.0, 3.0], "{}", rig.log());
    let count = |name| sample(&metrics, &format!("fgpu_input_{name}_heaps"), &[]);
    assert_eq!(
        ["metadata", "bad_timestamp", "too_old"].map(count),
        [0.0; 3]
    );
    let duplicates = sample(&metrics, "karoo_input_drops", &[("cause", "duplicate")]);
    assert_eq!(duplicates, 2.0);
}

#[test]
fn heaps_go_in_and_spectra_come_out() {
    let Some(mut rig) = Rig::live("heaps", &[]) else {
        return;
    };
    rig.wait(|rig| rig.received.descriptors == SUBSTREAMS);

    // Everything katgpucbf counts is there before anything is received.
    let metrics = rig.metrics();
    for (counter, labels) in KATGPUCBF {
        // The parser names counters without the end of their samples' names.
        let family = counter.strip_suffix("_total").unwrap();
        assert_eq!(metrics[family][0], "counter", "{counter}");
        assert!(
            metrics[family][1]
                .as_array()
                .unwrap()
                .iter()
                .all(|s| s[0] == *counter)
        );
        assert_eq!(sample(&metrics, family, labels), 0.0, "{counter}");
        let created = format!("{family}_created");
        assert!(sample(&metrics, &created, labels) > 1.7e9, "{created}");
    }
    assert_eq!(metrics["process_cpu_seconds"][0], "counter");
    assert_eq!(metrics["karoo_input_drops"][0], "counter");
    assert_eq!(metrics["karoo_receive_chunks_free"][0], "gauge");
    assert_eq!(metrics["karoo_output_latency_seconds"][0], "histogram");

    let mut lcores: Vec<(String, String)> = metrics["karoo_lcore_seconds"][1]
        .as_array()
        .unwrap()
        .iter()
        .map(|sample| &sample[1])
        .map(|labels| (labels["lcore"].to_string(), labels["cpu"].to_string()))
        .collect();
    lcores.dedup();
    let mut planned = rig.planned();
    planned.sort();
    lcores.sort();
    assert_eq!(lcores, planned, "names and CPUs are the plan's");

    rig.send_all();
    rig.wait_for_all();
    let metrics = rig.metrics();
    rig.end();
    rig.check_all();
    // Every heap has a count of its own, and all are this F-engine's.
    let heaps = SUBSTREAMS * (rig.received.batches().len() as u64 + 2);
    assert_eq!(rig.received.heap_counts.len() as u64, heaps);
    assert!(rig.received.heap_counts.iter().all(|count| count % 8 == 3));
    assert_eq!(
        sample(&metrics, "fgpu_input_missing_heaps", &[("pol", "0")]),
        0.0
    );
    assert_eq!(
        sample(&metrics, "fgpu_output_skipped_heaps", &[("stream", "w")]),
        0.0
    );
    assert!(sample(&metrics, "fgpu_output_heaps", &[("stream", "w")]) > 0.0);
}

/// Each polarisation comes through an interface of its own, and each interface sends a block of the
/// substreams.
#[test]
fn two_interfaces_share_the_work() {
    let options = [
        "--recv-interface=k0,k1",
        "--recv-affinity=-1,-1",
        "--send-interface=k0,k1",
    ];
    let Some(mut rig) = Rig::live("two", &options) else {
        return;
    };
    rig.split = true;
    assert_eq!(rig.groups(), [8, 0, 0, 8]);
    rig.send_all();
    let (first, end) = (rig.samples.first(), rig.samples.end());
    let third = first + (end - first) / 3;
    rig.wait(|rig| rig.received.end().is_some_and(|end| end > third));
    rig.end();

    let Received {
        heap_counts,
        interfaces,
        descriptors,
        ..
    } = &rig.received;
    assert_eq!(
        interfaces.values().copied().collect::<Vec<_>>(),
        [0, 0, 1, 1]
    );
    // Descriptors and stop heaps of all substreams go through the first.
    assert_eq!(*descriptors, SUBSTREAMS);
    let (second, first): (Vec<u64>, Vec<u64>) =
        heap_counts.iter().partition(|&&count| count >= 1 << 40);
    let batches = rig.received.batches();
    assert_eq!(first.len(), 2 * batches.len() + 2 * SUBSTREAMS as usize);
    assert_eq!(second.len(), 2 * batches.len());
    for (counts, start) in [(first, 3), (second, (1 << 40) + 3)] {
        assert!(
            counts
                .iter()
                .zip(0..)
                .all(|(&count, n)| count == start + 8 * n),
            "{counts:?}"
        );
    }
    rig.check(&batches);
}

/// aiokatcp as the controller: gains and delays hold from the timestamp on that the engine tells,
/// and not before.
#[test]
fn a_controller_steers_and_halts() {
    let Some(mut rig) = Rig::live("steer", &["--send-rate-factor=0"]) else {
        return;
    };
    let (first, end) = (rig.samples.first(), rig.samples.end());
    let middle = first + (end - first) / 2;
    rig.send(0, middle);
    rig.wait(|rig| {
        rig.received
            .end()
            .is_some_and(|end| end > first + 4 * BATCH)
    });
    let before = rig.received.batches();

    let katcp = KATCP.to_string();
    let start = (SYNC_TIME + first as f64 / RATE).to_string();
    let delays = [-7.25, -4.0].map(|delay| delay / RATE);
    let models = delays.map(|delay| format!("{delay},0:0,0"));
    let steer = [
        "127.0.0.1",
        &katcp,
        "steer",
        "w",
        "0.02",
        &start,
        &models[0],
        &models[1],
    ];
    let told = rig.python("steer.py", &steer, "");
    let steady = told["steady"].as_u64().unwrap();
    assert!(steady > first && steady < middle + BATCH, "{told}");
    assert!(told["received"].as_u64().unwrap() >= first, "{told}");

    rig.send(middle, u64::MAX);
    rig.wait(|rig| {
        rig.received
            .end()
            .is_some_and(|end| end > steady + 4 * BATCH)
    });
    rig.python("steer.py", &["127.0.0.1", &katcp, "halt"], "");
    let status = rig.ended();
    assert_eq!(status.code(), Some(0), "{}", rig.log());

    rig.check(&before);
    let after: BTreeMap<_, _> = rig.received.batches().split_off(&steady);
    assert!(after.len() >= 4, "{:?}", after.keys());
    let models = delays.map(|delay| {
        let mut models = DelayModels::default();
        models.add(LinearDelay::new(first as i64, delay * RATE, 0.0, 0.0, 0.0).unwrap());
        models
    });
    check_against_model(&rig.samples, &output_config(OUTPUT), &after, &models, 0.02);

    // A replay of the capture and of what the log says of requests gives the same bytes.
    let log = rig.log();
    let requests: Vec<_> = log
        .lines()
        .filter_map(|line| Some(line.split_once("in effect request=")?.1))
        .collect();
    assert_eq!(requests.len(), 2, "{log}");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(requests.join("\n").as_bytes()).unwrap();
    let requests = file.path().to_str().unwrap();
    let options = [&ENGINE_OPTIONS[..], &["--requests", requests]].concat();
    let (replayed, _) = replay_report(&rig.capture, OUTPUT, &options);
    let live = rig.received.batches();
    let last = *live.keys().last().unwrap();
    assert!(replayed.batches.range(..=last).eq(&live));
}

/// Paced, so that the test need not be quick: no faster than the rate that was asked for, by any
/// clock.
#[test]
fn a_capture_is_sent_to_its_end_at_its_rate() {
    const ASKED_RATE: f64 = 2e6;
    const FACTOR: f64 = 0.04;
    let options = [
        &*format!("--adc-sample-rate={ASKED_RATE}"),
        &format!("--send-rate-factor={FACTOR}"),
    ];
    let begun = Instant::now();
    let Some(mut rig) = Rig::from_file("capture", &options, &tones()) else {
        return;
    };
    rig.wait(|rig| rig.received.end() == Some(rig.last_end()));
    let took = begun.elapsed().as_secs_f64();
    let status = rig.ended();
    assert_eq!(status.code(), Some(0), "{}", rig.log());
    rig.check_all();
    let batches = rig.received.batches().len() as f64;
    let bytes = rig.received.heap_bytes as f64;
    let rate = FACTOR * ASKED_RATE * (bytes / batches) / BATCH as f64;
    // A bucket of 64 KiB, and a packet.
    let least = (bytes - 65536.0 - 9000.0) / rate;
    assert!(least > 2.0 && took >= least, "{took} s, not {least}");
}

/// Packets have 48 bits of a timestamp; dither depends on all of it. The time of the first frame
/// tells the others, as in a replay: here, that the capture is 3 · 2⁴⁸ samples later than its
/// packets say.
#[test]
fn times_of_frames_tell_which_timestamps_of_a_capture_are_meant() {
    const PACE: f64 = 2e5;
    let mut reader = CaptureReader::open(tones()).unwrap();
    let frame = reader.next_frame().unwrap().unwrap();
    let frame_time = frame.time_ns as f64 * 1e-9;
    let later = 3u64 << 48;
    let first = Samples::read(&tones(), 10, 4096).first() + later;
    // Some seconds apart, as clocks are.
    let sync_time = format!("--sync-time={}", frame_time - first as f64 / PACE - 2.5);
    let output = format!(
        "--wideband={}",
        OUTPUT.replace("dither=none", "dither=uniform")
    );
    let shared = [
        &output,
        &sync_time,
        "--dither-seed=5",
        "--adc-sample-rate=2e5",
    ];

    let folder = tempfile::tempdir().unwrap();
    let [out, report] = ["out.pcap", "report"].map(|name| folder.path().join(name));
    let mut args = vec![
        "replay",
        "--output",
        out.to_str().unwrap(),
        "--report",
        report.to_str().unwrap(),
    ];
    args.extend(["--quiet", "--feng-id=3", "--array-size=8", "--gain=0.05"]);
    args.extend(["--recv-chunk-samples=16384", "--max-delay-diff=1024"]);
    args.extend(shared);
    let capture = tones();
    args.push(capture.to_str().unwrap());
    karoo_ok(&args);
    let report = std::fs::read(report.join("report.json")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    assert_eq!(report["input"]["span"][0], first);
    let replayed = read_output(&out).remove(&49152).unwrap();

    let Some(mut rig) = Rig::from_file("later", &shared, &tones()) else {
        return;
    };
    assert_eq!(rig.ended().code(), Some(0), "{}", rig.log());
    let sent = rig.received.batches();
    assert!(!sent.is_empty() && sent.keys().eq(replayed.batches.keys()));
    assert!(sent == replayed.batches, "other dither");
}
