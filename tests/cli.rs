//! The command line refuses what it cannot use: a clear message, the right exit code, no output file.

mod support;

use std::path::{Path, PathBuf};

use support::{data, karoo, karoo_ok, read_output};

const WIDEBAND: &str = "name=w,channels=256,dst=239.10.1.0+1,jones_per_batch=8192,taps=4";

/// Runs a replay that must fail. Returns the message.
fn refused(code: i32, capture: &Path, options: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    let mut args = vec![
        "replay",
        capture.to_str().unwrap(),
        "--output",
        out.to_str().unwrap(),
    ];
    args.extend(options);
    let output = karoo(&args);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{options:?}: {stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{options:?} left {left:?}");
    stderr
}

fn file(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn unusable_captures_are_data_errors() {
    let folder = tempfile::tempdir().unwrap();
    let good = std::fs::read(data("tones-8bit.pcap")).unwrap();
    let with_link_type = |link: u8| {
        let mut bytes = good.clone();
        bytes[20] = link;
        bytes
    };
    let none = [
        &good[..24],
        &[0; 8][..],
        &[60, 0, 0, 0, 60, 0, 0, 0],
        &[0; 60],
    ]
    .concat();
    let cases: [(&str, Option<Vec<u8>>, &str); 6] = [
        ("missing.pcap", None, "missing.pcap"),
        ("empty.pcap", Some(vec![]), "empty"),
        (
            "text.pcap",
            Some(b"This is not a capture at all, but text.".to_vec()),
            "capture",
        ),
        (
            "header.pcap",
            Some(good[..24].to_vec()),
            "no digitiser heaps",
        ),
        ("sll.pcap", Some(with_link_type(113)), "link"),
        ("other.pcap", Some(none), "no digitiser heaps"),
    ];
    for (name, bytes, expected) in cases {
        let path = match bytes {
            Some(bytes) => file(folder.path(), name, &bytes),
            None => folder.path().join(name),
        };
        let message = refused(1, &path, &["--wideband", WIDEBAND]);
        assert!(
            message.to_lowercase().contains(expected),
            "{name}: {message}"
        );
        assert!(message.contains(name), "{name}: {message}");
    }
}

#[test]
fn a_truncated_tail_costs_only_the_cut_record() {
    let folder = tempfile::tempdir().unwrap();
    // One tap: the last batch reaches to the last heap.
    let wideband = "name=w,channels=256,dst=239.10.1.0+1,jones_per_batch=8192,taps=1";
    let good = std::fs::read(data("tones-8bit.pcap")).unwrap();
    let cut = file(folder.path(), "cut.pcap", &good[..good.len() - 100]);
    let out = folder.path().join("out.pcap");
    let (cut, out) = (cut.to_str().unwrap(), out.to_str().unwrap());
    let summary = karoo_ok(["replay", cut, "--output", out, "--wideband", wideband]);
    assert!(summary.contains("ends within a record"), "{summary}");
    let whole = folder.path().join("whole.pcap");
    let capture = data("tones-8bit.pcap");
    karoo_ok([
        "replay",
        capture.to_str().unwrap(),
        "--output",
        whole.to_str().unwrap(),
        "--wideband",
        wideband,
    ]);
    let (cut, whole) = (read_output(Path::new(out)), read_output(&whole));
    let (cut, whole) = (&cut[&49152].batches, &whole[&49152].batches);
    assert_eq!(cut.len() + 1, whole.len());
    assert!(
        cut.iter()
            .all(|(timestamp, batch)| whole[timestamp] == *batch)
    );
}

#[test]
fn pcapng_gives_the_same_as_pcap() {
    let folder = tempfile::tempdir().unwrap();
    let capture = data("tones-8bit.pcap");
    let ng = file(
        folder.path(),
        "tones.pcapng",
        &pcapng(&std::fs::read(&capture).unwrap()),
    );
    let outputs = [&capture, &ng].map(|capture| {
        let out = folder.path().join("out.pcap");
        karoo_ok([
            "replay",
            capture.to_str().unwrap(),
            "--output",
            out.to_str().unwrap(),
            "--wideband",
            WIDEBAND,
            "--sync-time",
            "0",
        ]);
        std::fs::read(out).unwrap()
    });
    assert_eq!(outputs[0], outputs[1]);
}

/// A little-endian pcapng file with the frames of a little-endian pcap file.
fn pcapng(pcap: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut block = |kind: u32, body: &[u8]| {
        let length = (12 + body.len().next_multiple_of(4)) as u32;
        out.extend(kind.to_le_bytes());
        out.extend(length.to_le_bytes());
        out.extend(body);
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend(length.to_le_bytes());
    };
    block(
        0x0a0d_0d0a,
        &[
            &0x1a2b_3c4d_u32.to_le_bytes()[..],
            &[1, 0, 0, 0],
            &[0xff; 8],
        ]
        .concat(),
    );
    block(1, &[1, 0, 0, 0, 0, 0, 4, 0]);
    let mut rest = &pcap[24..];
    while rest.len() > 16 {
        let length = u32::from_le_bytes(rest[8..12].try_into().unwrap());
        let frame = &rest[16..16 + length as usize];
        let lengths = [length.to_le_bytes(), length.to_le_bytes()].concat();
        block(6, &[&[0; 12][..], &lengths, frame].concat());
        rest = &rest[16 + length as usize..];
    }
    out
}

#[test]
fn wrong_options_are_usage_errors_with_a_way_out() {
    let capture = data("tones-8bit.pcap");
    let w = |text: &'static str| ["--wideband", text];
    let cases: &[(&[&str], &str)] = &[
        (&w("name=w,channels=64"), "dst is required"),
        (&w("channels=64,dst=239.1.1.1"), "name is required"),
        (&w("name=w,dst=239.1.1.1"), "channels is required"),
        (&w("name=w,channels=64,dst=239.1.1.1,channels=64"), "twice"),
        (
            &w("name=w,channels=64,dst=239.1.1.1,colour=red"),
            "not a key",
        ),
        (&w("name=w,channels=64,dst=239.1.1.1,taps"), "key=value"),
        (&w("name=w,channels=many,dst=239.1.1.1"), "whole number"),
        (&w("name=w,channels=64,dst=nowhere"), "endpoints"),
        (
            &w("name=w,channels=64,dst=239.1.1.1,dither=maybe"),
            "none or uniform",
        ),
        (
            &w("name=w,channels=64,dst=239.1.1.1,dither=default"),
            "none or uniform",
        ),
        (
            &w("name=w,channels=64,dst=239.1.1.1,window_function=Hann"),
            "hann or rect",
        ),
        (&w("name=w,channels=96,dst=239.1.1.1"), "power of two"),
        (&w("name=w,channels=32,dst=239.1.1.1"), "at least 64"),
        (&w("name=w,channels=0,dst=239.1.1.1"), "power of two"),
        (&w("name=w,channels=64,dst=239.1.1.1+2"), "divide"),
        (&w("name=w,channels=64,dst=10.1.1.1"), "multicast"),
        (&w("name=w,channels=64,dst=239.1.1.1,taps=0"), "at least 1"),
        (
            &w("name=w,channels=64,dst=239.1.1.1,w_cutoff=-1"),
            "negative",
        ),
        (
            &w("name=w,channels=64,dst=239.1.1.1,jones_per_batch=2000"),
            "multiple of the 64 channels",
        ),
        (
            &w("name=w,channels=64,dst=239.1.1.1,jones_per_batch=1024"),
            "try 2048",
        ),
        (
            &w("name=w,channels=64,dst=239.1.1.1,jones_per_batch=0"),
            "multiple",
        ),
        (&["--wideband", WIDEBAND, "--wideband", WIDEBAND], "unique"),
        (
            &["--wideband", WIDEBAND, "--dig-sample-bits", "17"],
            "2 to 16",
        ),
        (
            &["--wideband", WIDEBAND, "--dig-sample-bits", "1"],
            "2 to 16",
        ),
        (
            &["--wideband", WIDEBAND, "--recv-packet-samples", "0"],
            "--recv-packet-samples",
        ),
        (
            &["--wideband", WIDEBAND, "--recv-chunk-samples", "5000"],
            "try 8192",
        ),
        (
            &["--wideband", WIDEBAND, "--recv-chunk-samples", "0"],
            "multiple",
        ),
        (
            &[
                "--wideband",
                WIDEBAND,
                "--recv-chunk-samples",
                "65536",
                "--max-delay-diff",
                "65536",
            ],
            "--max-delay-diff",
        ),
        (
            &["--wideband", WIDEBAND, "--max-delay-diff", "600000000"],
            "--recv-chunk-samples",
        ),
        (
            &["--wideband", WIDEBAND, "--send-packet-payload", "9200"],
            "9128",
        ),
        (
            &["--wideband", WIDEBAND, "--send-packet-payload", "12"],
            "multiple of 8",
        ),
        (
            &[
                "--wideband",
                WIDEBAND,
                "--array-size",
                "4",
                "--feng-id",
                "4",
            ],
            "less than",
        ),
        (&["--wideband", WIDEBAND, "--array-size", "0"], "at least 1"),
        (
            &["--wideband", WIDEBAND, "--adc-sample-rate", "0"],
            "positive",
        ),
        (
            &["--wideband", WIDEBAND, "--adc-sample-rate", "nan"],
            "positive",
        ),
        (&["--wideband", WIDEBAND, "--sync-time", "inf"], "UNIX"),
        (&["--wideband", WIDEBAND, "--gain", "nan"], "finite"),
        (&["--wideband", WIDEBAND, "--gain", "1e300"], "finite"),
        (
            &[
                "--wideband",
                WIDEBAND,
                "--delays",
                "x",
                "0,0:0,0",
                "0,0:0,0",
            ],
            "no such output",
        ),
        (
            &["--wideband", WIDEBAND, "--delays", "w", "0,0", "0,0:0,0"],
            "delay,rate:phase",
        ),
        (
            &[
                "--wideband",
                WIDEBAND,
                "--delays",
                "w",
                "0,1:0,0",
                "0,0:0,0",
            ],
            "rate < 1",
        ),
        (
            &["--wideband", WIDEBAND, "--backend", "cuda"],
            "--backend cpu",
        ),
        (
            &["--wideband", WIDEBAND, "--backend", "abacus"],
            "possible values",
        ),
        (
            &[
                "--wideband",
                WIDEBAND,
                "--dig-sample-bits",
                "8",
                "--recv-packet-samples",
                "2048",
            ],
            "those of the capture have 4096",
        ),
        (&["--wideband", WIDEBAND, "--sources", "here"], "--sources"),
        (&["--wideband", WIDEBAND, "--rx-queues", "0"], "1 to 16"),
        (&["--wideband", WIDEBAND, "--workers", "0"], "1 to 1024"),
        (
            &["--wideband", WIDEBAND, "--no-such-option"],
            "unexpected argument",
        ),
    ];
    for (options, expected) in cases {
        let message = refused(2, &capture, options);
        assert!(message.contains(expected), "{options:?}: {message}");
    }
}

/// Output chunks of 8 TiB in all.
#[test]
fn more_memory_than_there_is_is_refused_with_the_option() {
    let outputs: Vec<String> = (0..1024)
        .map(|i| format!("name=w{i},channels=64,dst=239.1.1.1,jones_per_batch=536870912"))
        .collect();
    let options: Vec<&str> = outputs
        .iter()
        .flat_map(|output| ["--wideband", output])
        .collect();
    let message = refused(2, &data("tones-8bit.pcap"), &options);
    assert!(message.contains("lower --send-chunk-jones"), "{message}");
}

#[test]
fn numbers_without_bounds_are_refused() {
    let capture = data("tones-8bit.pcap");
    let huge = ["18446744073709551615", "9223372036854775808", "536870913"];
    for value in huge {
        for option in [
            "--recv-packet-samples",
            "--recv-chunk-samples",
            "--max-delay-diff",
            "--send-chunk-jones",
            "--send-packet-payload",
            "--array-size",
        ] {
            // A large array is allowed up to 2^40.
            if (option, value) == ("--array-size", huge[2]) {
                continue;
            }
            refused(2, &capture, &["--wideband", WIDEBAND, option, value]);
        }
        for key in ["channels", "jones_per_batch", "taps"] {
            let rest: Vec<&str> = ["channels=256", "jones_per_batch=8192", "taps=4"]
                .into_iter()
                .filter(|pair| !pair.starts_with(key))
                .collect();
            let wideband = format!("name=w,dst=239.1.1.1,{},{key}={value}", rest.join(","));
            refused(2, &capture, &["--wideband", &wideband]);
        }
    }
}

#[test]
fn a_capture_is_never_overwritten_by_its_own_replay() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("same.pcap");
    std::fs::copy(data("tones-8bit.pcap"), &capture).unwrap();
    let before = std::fs::read(&capture).unwrap();
    let path = capture.to_str().unwrap();
    let output = karoo(["replay", path, "--output", path, "--wideband", WIDEBAND]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(std::fs::read(&capture).unwrap(), before);
    // A capture is written under this name until it is complete.
    let part = folder.path().join("other.pcap.part");
    std::fs::copy(&capture, &part).unwrap();
    let other = folder.path().join("other.pcap");
    let (path, other) = (part.to_str().unwrap(), other.to_str().unwrap());
    let output = karoo(["replay", path, "--output", other, "--wideband", WIDEBAND]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(std::fs::read(&part).unwrap(), before);
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let capture = data("tones-8bit.pcap");
    let nowhere = "/proc/no/such/folder/out.pcap";
    let output = karoo([
        "replay",
        capture.to_str().unwrap(),
        "--output",
        nowhere,
        "--wideband",
        WIDEBAND,
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains(nowhere));
}

#[test]
fn only_given_sources_are_ours() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    let capture = data("tones-8bit.pcap");
    let replay = |sources: &str| {
        let out = out.to_str().unwrap();
        let capture = capture.to_str().unwrap();
        let args = ["replay", capture, "--output", out, "--wideband", WIDEBAND];
        karoo_ok([&args[..], &["--sources", sources]].concat())
    };
    let all = replay("239.102.0.64+7:7148,239.102.1.64+7:7148");
    assert!(all.contains("datagrams  64, 0 not placed"), "{all}");
    let half = replay("239.102.0.64+7:7148,239.102.1.64+3:7148");
    assert!(half.contains("16 not placed: 16 not-ours"), "{half}");
}

#[test]
fn packets_have_the_time_to_live_that_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    let capture = data("tones-8bit.pcap");
    let (capture, path) = (capture.to_str().unwrap(), out.to_str().unwrap());
    let args = ["replay", capture, "--output", path, "--wideband", WIDEBAND];
    karoo_ok([&args[..], &["--send-ttl", "9"]].concat());
    let mut reader = karoo::net::CaptureReader::open(&out).unwrap();
    while let Some(frame) = reader.next_frame().unwrap() {
        assert_eq!(frame.bytes[22], 9);
    }
}

#[test]
fn a_fifo_is_refused_as_a_capture() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    let made = std::process::Command::new("mkfifo")
        .arg(&fifo)
        .status()
        .unwrap();
    assert!(made.success());
    let message = refused(1, &fifo, &["--wideband", WIDEBAND]);
    assert!(message.contains("not a regular file"), "{message}");
}

#[test]
fn an_interrupted_run_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("in.pcap");
    let capture = capture.to_str().unwrap();
    karoo_ok(["dsim", "--output", capture, "--samples", "16777216"]);
    let out = folder.path().join("out.pcap");
    let part = folder.path().join("out.pcap.part");
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_karoo"))
        .args([
            "replay",
            capture,
            "--output",
            out.to_str().unwrap(),
            "--wideband",
            WIDEBAND,
            "-q",
        ])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while !part.exists() {
        assert!(child.try_wait().unwrap().is_none(), "ended before it began");
        std::thread::yield_now();
    }
    let pid = child.id().to_string();
    let killed = std::process::Command::new("kill")
        .args(["-INT", &pid])
        .status()
        .unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("interrupted"), "{message}");
    assert!(!out.exists() && !part.exists());
}
