//! Files of the modem's samples: what their names and metadata say, and where these do not hold.

use std::fs;
use std::path::PathBuf;

use karoo_modem::formats::{FullScale, Recording};
use tempfile::{TempDir, tempdir};

use crate::support::{json, karoo, karoo_ok};

/// A folder with a message in it.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new(message: &[u8]) -> Bench {
        let folder = tempdir().unwrap();
        fs::write(folder.path().join("message"), message).unwrap();
        Bench { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn at(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Runs a command between two files.
    fn run(&self, command: &str, input: &str, output: &str, options: &str) -> String {
        let (input, output) = (self.at(input), self.at(output));
        let places = ["modem", command, "--input", &input, "--output", &output];
        karoo_ok(places.into_iter().chain(options.split_whitespace()))
    }

    fn recording(&self, name: &str) -> Recording {
        let text = fs::read_to_string(self.path(name)).unwrap();
        Recording::from_json(&text).unwrap()
    }
}

fn message() -> Vec<u8> {
    (0..30_000u32).map(|i| (i * i / 7) as u8).collect()
}

/// Integers of another full scale than the usual one go through a channel as they are.
#[test]
fn a_channel_keeps_the_full_scale_of_a_recording() {
    let bench = Bench::new(&message());
    let tx = "--mod qam256 --format ci16 --full-scale 100 --gain 25 --sample-rate 1M";
    bench.run("tx", "message", "sent.sigmf-meta", tx);
    let channel = "--output-format ci16 --es-n0 40 --json";
    let passed = bench.run("channel", "sent.sigmf-meta", "air.sigmf-meta", channel);
    assert_eq!(json(&passed)["output_clipped"], 0);
    let hundred = FullScale::new(100.0).ok();
    assert_eq!(bench.recording("air.sigmf-meta").full_scale, hundred);
    bench.run("rx", "air.sigmf-meta", "back", "");
    assert!(fs::read(bench.path("back")).unwrap() == message());
    // An option is stronger, and a converter has a full scale of its own, also in floats.
    let rows = [
        ("--output-format ci16 --full-scale 50", Some(50.0)),
        ("--output-format ci16 --bits 12 --clip 80", Some(80.0)),
        ("--bits 12 --clip 80", Some(80.0)),
        ("", None),
    ];
    for (options, wanted) in rows {
        bench.run("channel", "sent.sigmf-meta", "other.sigmf-meta", options);
        let found = bench.recording("other.sigmf-meta").full_scale;
        assert_eq!(
            found,
            wanted.and_then(|value| FullScale::new(value).ok()),
            "{options}"
        );
    }
}

#[test]
fn a_channel_moves_the_labels_of_frames() {
    let bench = Bench::new(&message());
    bench.run(
        "tx",
        "message",
        "sent.sigmf-meta",
        "--mod qam256 --lead 100",
    );
    let options = "--delay 100 --clock -50";
    bench.run("channel", "sent.sigmf-meta", "air.sigmf-meta", options);
    let (before, behind) = (
        bench.recording("sent.sigmf-meta").annotations,
        bench.recording("air.sigmf-meta").annotations,
    );
    assert_eq!((before.len(), behind.len()), (3, 3));
    for (before, behind) in before.iter().zip(&behind) {
        assert_eq!(before.label, behind.label);
    }
    // Where the receiver finds the frames.
    let told = json(&bench.run("rx", "air.sigmf-meta", "back", "--json"));
    for (label, frame) in behind.iter().zip(told["frames"].as_array().unwrap()) {
        let found = frame["sample"].as_u64().unwrap();
        assert!(found.abs_diff(label.sample_start) <= 1, "{label:?} {frame}");
    }
}

#[test]
fn names_that_programs_give_integers_are_known_and_others_are_hinted_at() {
    let bench = Bench::new(&message());
    let received = |name: &str| bench.run("rx", name, "back", "");
    bench.run("tx", "message", "sent.cs16", "");
    assert_eq!(bench.path("sent.cs16").metadata().unwrap().len() % 4, 0);
    let text = received("sent.cs16");
    assert!(text.contains("10 frames delivered"), "{text}");
    assert!(!text.contains("try --format"), "{text}");
    fs::copy(bench.path("sent.cs16"), bench.path("sent.iq")).unwrap();
    let text = received("sent.iq");
    assert!(text.starts_with("0 frames delivered"), "{text}");
    assert!(text.contains("try --format ci16"), "{text}");
    let text = bench.run("rx", "sent.iq", "back", "--format ci16");
    assert!(text.contains("10 frames delivered"), "{text}");
    // Who says the format knows it.
    let text = bench.run("rx", "sent.iq", "back", "--format cf32");
    assert!(!text.contains("try --format"), "{text}");
}

#[test]
fn archives_are_refused_by_name() {
    let bench = Bench::new(b"hello");
    fs::write(bench.path("air.sigmf"), b"").unwrap();
    let (message, air) = (bench.at("message"), bench.at("air.sigmf"));
    for (command, input, output) in [("tx", &message, &air), ("rx", &air, &message)] {
        let output = karoo(["modem", command, "--input", input, "--output", output]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains("archive") && said.contains(".sigmf-meta"),
            "{said}"
        );
    }
    assert_eq!(fs::read(bench.path("message")).unwrap(), b"hello");
}

/// No field is detected beside a DC of three times the signal.
#[test]
fn a_mean_that_hides_all_frames_is_told_with_the_way_out() {
    let bench = Bench::new(&message());
    bench.run("tx", "message", "sent.cf32", "");
    bench.run("channel", "sent.cf32", "air.cf32", "--dc 3,0 --es-n0 20");
    let text = bench.run("rx", "air.cf32", "back", "");
    assert!(text.starts_with("0 frames delivered"), "{text}");
    assert!(text.contains("try --correct"), "{text}");
    let text = bench.run("rx", "air.cf32", "back", "--correct");
    assert!(text.contains("10 frames delivered"), "{text}");
    assert!(!text.contains("try --correct"), "{text}");
}
