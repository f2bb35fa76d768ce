//! Memory of a replay: bounded by the chunk settings, whatever the capture's length. And that of a
//! graph with long samples.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs the program, and prints the largest resident set of its process in KiB. A child's peak
/// begins at that of its parent, which for tests is large: Python's is small.
const MEASURE: &str = "import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)";

/// Runs the program. Returns its peak resident memory in bytes.
fn run(args: &[&str]) -> u64 {
    let output = Command::new("python3")
        .args(["-c", MEASURE, env!("CARGO_BIN_EXE_karoo")])
        .args(args)
        .env("RUST_LOG", "warn")
        .stderr(Stdio::inherit())
        .output()
        .expect("python3 starts");
    assert!(output.status.success(), "{args:?}");
    let peak = String::from_utf8(output.stdout).expect("text");
    peak.trim().parse::<u64>().expect("a number") * 1024
}

/// Makes a capture and replays it. Returns the peak of the replay.
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
    ])
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

/// Constants are written out for all samples of a step: of 512 these would take 3 GiB.
#[test]
fn long_constants_take_no_more_than_their_steps() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.toml");
    let input = "name = \"long\"\nnode = [{ path = \"s0\", kind = \"input\", of = \"f64\" },\n";
    let sum = |number: usize| {
        let (last, next) = (number - 1, number);
        format!(
            "{{ path = \"c{next}\", kind = \"constant\", of = \"f64[65536]\", value = 1 }},\n\
             {{ path = \"s{next}\", kind = \"sum\", signs = \"++\", from = [\"s{last}\", \"c{next}\"] }},\n"
        )
    };
    let sums: String = (1..=12).map(sum).collect();
    let output = "{ path = \"one\", kind = \"select\", indices = [0], from = [\"s12\"] },\n\
                  { path = \"y\", kind = \"output\", from = [\"one\"] }]\n";
    fs::write(&path, [input, &sums, output].concat()).unwrap();
    let path = path.to_str().unwrap();
    let peak = run(&["flow", "check", path, "--block", "1024", "--guess"]);
    assert!(peak < 1 << 30, "{} MiB", peak >> 20);
}
