//! Frames one after the other: their numbers, and the pauses between them.

use std::fs;
use std::io::{Read, Write};

use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::modem_mistakes::started;
use crate::support::{json, karoo, karoo_ok};

/// Bytes of a frame with its blanks, in floats.
const FRAME: usize = 8 * 3 * 16_120;

/// A folder with a message of five frames, and what is sent of it with these options.
fn sent(options: &str) -> (TempDir, String, Value) {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let message: Vec<u8> = (0..15_300u32).map(|i| (i * i / 7) as u8).collect();
    fs::write(at("message"), message).unwrap();
    let (message, air) = (at("message"), at("air.cf32"));
    let tx = [
        "modem", "tx", "--json", "--input", &message, "--output", &air,
    ];
    let told = json(&karoo_ok(tx.into_iter().chain(options.split_whitespace())));
    (folder, air, told)
}

#[test]
fn numbers_of_frames_say_what_is_missing() {
    let (_folder, air, _) = sent("--sequence --repeat 14");
    let rx = ["modem", "rx", "--input", &air, "--sequence"];
    let told = |options: &[&str]| karoo_ok(rx.iter().chain(options));
    let numbers = |told: &Value| -> Vec<u64> {
        let frames = told["frames"].as_array().unwrap().iter();
        frames
            .map(|frame| frame["sequence"].as_u64().unwrap())
            .collect()
    };
    let whole = json(&told(&["--json"]));
    let all: Vec<u64> = (0..70).map(|number| number % 64).collect();
    assert_eq!(
        (numbers(&whole), &whole["missing"]),
        (all.clone(), &0.into())
    );
    let first = &whole["frames"][5];
    for field in ["source", "destination", "network"] {
        assert_eq!(first[field], 5, "{first}");
    }
    // Without frames 3, 62, 63 and 64, of which nothing is left.
    let mut samples = fs::read(&air).unwrap();
    samples.drain(62 * FRAME..65 * FRAME);
    samples.drain(3 * FRAME..4 * FRAME);
    fs::write(&air, samples).unwrap();
    let cut = json(&told(&["--json"]));
    assert_eq!((numbers(&cut).len(), &cut["missing"]), (66, &4.into()));
    let text = told(&[]);
    assert!(
        text.contains("4 numbers missing between delivered frames"),
        "{text}"
    );
    let text = told(&["--frames", "4"]);
    assert!(text.contains("1 number missing between"), "{text}");
    // Nobody asked.
    let plain = json(&karoo_ok(["modem", "rx", "--input", &air, "--json"]));
    assert!(plain["missing"].is_null() && plain["frames"][0]["sequence"].is_null());
}

#[test]
fn numbers_and_addresses_are_not_given_together() {
    for other in ["--source=1", "--network=1", "--graph"] {
        let tx = [
            "modem",
            "tx",
            "--input",
            "x",
            "--output",
            "y",
            "--sequence",
            other,
        ];
        let output = karoo(tx);
        assert_eq!(output.status.code(), Some(2), "{other}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("cannot be used with"), "{said}");
    }
}

/// A pause is between two frames: 16 120 symbols at half of the time, and none behind the last.
#[test]
fn no_pause_stands_behind_the_last_frame() {
    let samples = |options: &str| sent(options).2["samples"].as_u64().unwrap();
    for way in ["", "--graph"] {
        let full = samples(way);
        assert_eq!(full, 5 * 3 * 16_120 + 48);
        let half = samples(&format!("--duty 0.5 {way}"));
        let pause = (half - full) / 4;
        assert!(pause.abs_diff(3 * 16_096) <= 3 * 40, "{way}: {pause}");
    }
}

/// A pipe that stays open: who reads it has the samples behind a frame before the next one comes.
#[test]
fn a_frame_can_be_received_from_a_pipe_before_the_next_one_comes() {
    let tx = ["modem", "tx", "--input", "-", "--output", "-"];
    let options = ["--mod", "bpsk", "--duty", "0.1"];
    let mut child = started(&[&tx[..], &options].concat());
    let mut input = child.stdin.take().unwrap();
    input.write_all(&[7; 1600]).unwrap();
    // 400 blank symbols, with those of the frame's last block.
    let mut samples = vec![0; FRAME + 8 * 3 * 400];
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut samples).unwrap();
    assert!(samples[..FRAME].iter().any(|byte| *byte != 0));
    drop(input);
    std::io::copy(&mut output, &mut std::io::sink()).unwrap();
    assert!(child.wait().unwrap().success());
}
