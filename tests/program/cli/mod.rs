//! The command line refuses what it cannot use: a clear message, the right exit code, no output
//! file.

mod options;
mod sink;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::{data, karoo, karoo_ok, read_output};

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

/// The summary goes to standard error then.
#[test]
fn a_capture_that_goes_through_a_pipe_has_nothing_else_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let (out, capture) = (folder.path().join("out.pcap"), data("tones-8bit.pcap"));
    let replay = |to: &str| {
        let capture = capture.to_str().unwrap();
        let output = karoo(["replay", capture, "--output", to, "--wideband", WIDEBAND]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        output
    };
    replay(out.to_str().unwrap());
    let piped = replay("/dev/stdout");
    assert!(piped.stdout == std::fs::read(&out).unwrap(), "other bytes");
    let told = String::from_utf8_lossy(&piped.stderr);
    assert!(told.contains("\nverdict    "), "{told}");
}

/// Zeros come through whole: the summary, the report and the sink say what they are.
#[test]
fn a_replay_of_a_gain_of_zero_is_not_good() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (tones, out, report) = (data("tones-10bit.pcap"), at("out.pcap"), at("report"));
    let replay = ["replay", tones.to_str().unwrap(), "--gain=0", "-o", &out];
    let told = karoo_ok([&replay[..], &["--wideband", WIDEBAND, "--report", &report]].concat());
    let levels = "\nlevels     0.00 and 0.00 counts rms of w, 12.0 are good: see --gain auto\n";
    let verdict = "Too weak: w, polarisation 0, has no power";
    assert!(told.contains(levels), "{told}");
    assert!(told.contains(&format!("\nverdict    {verdict}")), "{told}");
    let json = std::fs::read(folder.path().join("report/report.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["verdict"]["grade"], "weak");
    let headline = json["verdict"]["headline"].as_str().unwrap();
    assert!(headline.starts_with(verdict), "{headline}");
    let read = karoo_ok(["sink", &out]);
    let last = "clean: what came is whole and right; stream0 is all zeros\n";
    assert!(read.ends_with(last), "{read}");
}

/// A link like /dev/stdout stays what it is, and the capture comes behind what is in the file.
#[test]
fn a_capture_goes_into_the_file_that_standard_output_is() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (link, whole, into, tones) = (at("so"), at("whole"), at("f"), data("tones-8bit.pcap"));
    std::os::unix::fs::symlink("/proc/self/fd/1", &link).unwrap();
    let replay = ["replay", tones.to_str().unwrap(), "--wideband", WIDEBAND];
    let dsim = ["dsim", "--samples", "4096", "--sync-time", "1e9"];
    for args in [&replay[..], &dsim] {
        karoo_ok([args, &["--output", &whole]].concat());
        std::fs::write(&into, "before").unwrap();
        let file = std::fs::File::options().append(true).open(&into).unwrap();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_karoo"))
            .args(args)
            .args(["--output", &link])
            .stdout(file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        assert!(std::path::Path::new(&link).is_symlink(), "{args:?}");
        let wanted = [&b"before"[..], &std::fs::read(&whole).unwrap()[..]].concat();
        assert!(std::fs::read(&into).unwrap() == wanted, "{args:?}");
        // Nothing else is left there.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
    }
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
        let ended = karoo([&args[..], &["--sources", sources]].concat());
        let said = String::from_utf8(ended.stdout).unwrap();
        (ended.status.code(), said)
    };
    let (code, all) = replay("239.102.0.64+7:7148,239.102.1.64+7:7148");
    assert!(
        code == Some(0) && all.contains("datagrams  64, 0 not placed"),
        "{all}"
    );
    // Without half of a polarisation no batch is whole.
    let (code, half) = replay("239.102.0.64+7:7148,239.102.1.64+3:7148");
    assert!(
        code == Some(1) && half.contains("16 not placed: 16 not-ours"),
        "{half}"
    );
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
            // Takes seconds.
            "name=w,channels=64,dst=239.10.1.0,jones_per_batch=4096,taps=2048",
            "-q",
        ])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !part.exists() {
        assert!(child.try_wait().unwrap().is_none(), "ended before it began");
        assert!(begun.elapsed() < Duration::from_secs(180));
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
