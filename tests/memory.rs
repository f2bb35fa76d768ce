//! Memory of a replay: bounded by the chunk settings, whatever the capture's length.

use std::path::Path;
use std::process::{Command, Stdio};

fn run(args: &[&str]) {
    let status = Command::new(env!("CARGO_BIN_EXE_karoo"))
        .args(args)
        .env("RUST_LOG", "warn")
        .stdout(Stdio::null())
        .status()
        .expect("the binary starts");
    assert!(status.success(), "{args:?}");
}

/// Peak resident memory of the largest child so far, in bytes.
///
/// This test has a binary of its own: a child's peak begins at that of its parent.
fn children_peak() -> u64 {
    // SAFETY: all zeros is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live variable of the right type.
    let code = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    assert_eq!(code, 0);
    usage.ru_maxrss as u64 * 1024
}

/// Makes a capture and replays it. Returns the peak since the test began.
fn replay(folder: &Path, samples: &str) -> u64 {
    let file = |name: &str| folder.join(name).to_str().expect("text").to_owned();
    let (capture, out, report) = (file("capture.pcap"), file("out.pcap"), file("report"));
    run(&[
        "dsim",
        "--period",
        "65536",
        "--samples",
        samples,
        "--output",
        &capture,
    ]);
    run(&[
        "replay",
        &capture,
        "--output",
        &out,
        "--report",
        &report,
        "--quiet",
        "--wideband",
        "name=w,channels=1024,dst=239.10.1.0+3,jones_per_batch=32768,taps=4",
        "--recv-chunk-samples",
        "131072",
        "--send-chunk-jones",
        "65536",
    ]);
    children_peak()
}

#[test]
fn a_longer_capture_needs_no_more_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let [short, long] = ["16777216", "67108864"].map(|samples| replay(folder.path(), samples));
    println!("peak: {short} bytes, {long} for a capture four times as long");
    // The longer capture is 120 MB larger, and so is its output.
    let allowed = short + (8 << 20);
    assert!(
        long <= allowed,
        "{long} bytes, {short} for a quarter of the capture"
    );
}
