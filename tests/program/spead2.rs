//! spead2 as an independent judge: it reassembles what a replay wrote, by the descriptors in it.
//!
//! Needs python3 with the packages of `scripts/requirements.txt`; `scripts/test` sees to that and
//! says through `KAROO_PYTHON` where it is.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::python::python;
use crate::support::{array, data, karoo_ok};

fn check(output: [&str; 2], options: &[&str], expectation: Value) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    let capture = data("tones-10bit.pcap");
    let (capture, out) = (capture.to_str().unwrap(), out.to_str().unwrap());
    let replay = [
        "replay",
        capture,
        "--output",
        out,
        "--quiet",
        "--backend=cpu",
    ];
    karoo_ok([&replay[..], &output, options].concat());
    python("check_spead2.py", &[out, &expectation.to_string()]);
}

#[test]
fn spead2_reassembles_every_heap() {
    let dst: Vec<_> = (0..8).map(|i| format!("239.10.3.{i}:7148")).collect();
    check(
        [
            "--wideband",
            "name=w,channels=1024,dst=239.10.3.0+7,jones_per_batch=32768",
        ],
        &["--feng-id", "3", "--array-size", "64", "--gain", "0.05"],
        json!({
            "dst": dst, "channels": 1024, "spectra_per_heap": 32, "feng_id": 3, "array_size": 64,
            "batches": 3, "first_timestamp": 16777216, "last_timestamp": 16777216 + 2 * 65536,
        }),
    );
}

#[test]
fn spead2_reassembles_heaps_of_short_and_uneven_packets() {
    check(
        [
            "--wideband",
            "name=w,channels=64,dst=239.10.3.9+1:9000,jones_per_batch=4096,taps=4",
        ],
        &["--send-packet-payload", "1000", "--gain", "0.3"],
        json!({
            "dst": ["239.10.3.9:9000", "239.10.3.10:9000"], "channels": 64,
            "spectra_per_heap": 64, "feng_id": 0, "array_size": 65536, "batches": 31,
            "first_timestamp": 16777216,
        }),
    );
}

/// Also in packets whose length is no power of two.
#[test]
fn spead2_reassembles_narrowband_heaps_of_both_widths() {
    for (bits, payload) in [(8, "8192"), (4, "1000")] {
        let bits_option = format!("--send-sample-bits={bits}");
        check(
            [
                "--narrowband",
                "name=n,channels=64,dst=239.11.3.0+1,jones_per_batch=2048,taps=4,centre_frequency=408e6,decimation=8",
            ],
            &[
                "--gain",
                "0.1",
                "--send-packet-payload",
                payload,
                &bits_option,
            ],
            json!({
                "dst": ["239.11.3.0:7148", "239.11.3.1:7148"], "channels": 64, "spectra_per_heap": 32,
                "feng_id": 0, "array_size": 65536, "sample_bits": bits, "decimation": 8, "batches": 7,
                "first_timestamp": 16777216, "last_timestamp": 16777216 + 6 * 32768,
            }),
        );
    }
}

#[test]
fn the_sink_reads_what_spead2_sends() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let text = |name: &str| path(name).to_str().unwrap().to_owned();
    let (capture, values, spectra) = (text("spead2.pcap"), text("sent.npy"), text("spectra"));
    let sent = python("make_spead2_capture.py", &[&capture, &values]);
    let read = karoo_ok(["sink", "--json", "--output-dir", &spectra, &capture]);
    let read: Value = serde_json::from_str(&read).expect("JSON");
    assert_eq!(read["streams"].as_array().map(Vec::len), Some(1), "{read}");
    let stream = &read["streams"][0];
    for (found, wanted) in [
        ("destinations", "dst"),
        ("channels", "channels"),
        ("spectra_per_heap", "spectra_per_heap"),
        ("feng_id", "feng_id"),
        ("array_size", "array_size"),
        ("batches", "batches"),
        ("first_timestamp", "first_timestamp"),
        ("last_timestamp", "last_timestamp"),
    ] {
        assert!(!sent[wanted].is_null(), "{wanted}: {sent}");
        assert_eq!(stream[found], sent[wanted], "{found}: {read}");
    }
    let (shape, found) = array::<i8>(&path("spectra").join("stream0.npy"));
    let (sent_shape, sent) = array::<i8>(Path::new(&values));
    assert_eq!(shape, sent_shape);
    assert!(found == sent, "other values than those that were sent");
    assert!(sent.iter().any(|&value| value != 0));
}
