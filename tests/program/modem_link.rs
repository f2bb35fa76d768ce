//! `karoo modem link`: text and files over a simulated channel in real time, and its page.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::tempdir;

use crate::support::{browser, karoo, karoo_ok};

#[test]
fn a_file_comes_over_the_link_in_its_time() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let message: Vec<u8> = (0..40_000u32)
        .map(|i| (i.wrapping_mul(i) >> 3) as u8)
        .collect();
    fs::write(at("message"), &message).unwrap();
    let text = karoo_ok([
        "modem",
        "link",
        "--input",
        &at("message"),
        "--output",
        &at("back"),
        "--mod",
        "qam16",
        "--sample-rate",
        "2M",
        "--es-n0",
        "25",
        "--delay",
        "1000",
        "--clock",
        "-10",
        "--json",
    ]);
    let linked: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(linked["sent"]["frames"], 7);
    assert_eq!(linked["counts"]["delivered"], 7, "{linked}");
    assert!(fs::read(at("back")).unwrap() == message);
    // Seven frames of 48 360 samples.
    let seconds = linked["seconds"].as_f64().unwrap();
    assert!(seconds > 7.0 * 48_360.0 / 2e6, "{linked}");
}

/// The level is that of the signal, noise and faults; what is taken off are the faults.
#[test]
fn a_link_tells_the_level_of_its_input_and_what_was_taken_off() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("message"), [0x5a; 20_000]).unwrap();
    let told = |options: &str| -> (String, Value) {
        let (message, back) = (at("message"), at("back"));
        let link = ["modem", "link", "--input", &message, "--output", &back];
        let faults = "--es-n0 25 --frequency 5k --iq-gain 1 --iq-phase 5 --dc 0.05,-0.02";
        let all = link.into_iter().chain(faults.split(' '));
        let all: Vec<&str> = all.chain(options.split_whitespace()).collect();
        let json = karoo_ok(all.iter().chain(&["--json"]));
        (karoo_ok(&all), serde_json::from_str(&json).unwrap())
    };
    let near = |told: &Value, wanted: f64, within: f64| {
        let found = told.as_f64().unwrap();
        assert!((found - wanted).abs() < within, "{found} {wanted}");
    };
    let (text, json) = told("");
    assert!(json["correction"].is_null(), "{json}");
    let level = &json["level"];
    assert_eq!(level["samples"], json["counts"]["samples"]);
    assert!(level["full_scale"].is_null() && level["clipped"].is_null());
    // The mean gain of I and Q, and the blanks between frames.
    near(&level["decibels"], 0.5, 1.0);
    assert!(text.contains(" dB re 1"), "{text}");
    assert!(!text.contains("taken off"), "{text}");

    let (text, json) = told("--bits 12 --clip 0.9");
    let level = &json["level"];
    near(&level["full_scale"], 0.9, 1e-6);
    assert!(level["clipped"].as_u64() > Some(1000), "{json}");
    assert!(text.contains("parts at full scale"), "{text}");
    assert!(text.contains("lower the gain"), "{text}");

    let (text, json) = told("--correct");
    let correction = &json["correction"];
    assert!(text.contains("taken off: DC 0.0"), "{text}");
    near(&correction["dc_i"], 0.05, 0.02);
    near(&correction["dc_q"], -0.02, 0.02);
    near(&correction["iq_gain_db"], 1.0, 0.3);
    near(&correction["iq_phase_degrees"], 5.0, 2.0);
    near(&correction["image_db"], -22.8, 2.5);
}

/// Padding is a tone of the corner points' power, unless it is scrambled.
#[test]
fn a_link_scrambles_and_says_why_frames_are_lost() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("message"), "hello").unwrap();
    let (message, back) = (at("message"), at("back"));
    let link = |options: &str| {
        let link = ["modem", "link", "--input", &message, "--output", &back];
        let rate = ["--mod", "qam256", "--sample-rate", "4M"];
        let all = link.into_iter().chain(rate).chain(options.split(' '));
        karoo_ok(all)
    };
    let told = |options: &str| -> Value {
        let told: Value = serde_json::from_str(&link(options)).unwrap();
        assert_eq!(told["counts"]["delivered"], 1, "{told}");
        assert_eq!(fs::read(&back).unwrap(), b"hello");
        told
    };
    // A mean power of 1 where there is a frame, 2.2 of which corner points alone would have.
    let level = &told("--es-n0 40 --json")["level"]["decibels"];
    assert!(level.as_f64().unwrap() < 0.7, "{level}");
    told("--es-n0 40 --json --no-scramble");
    let text = link("--es-n0 6");
    assert!(text.contains("0 delivered"), "{text}");
    assert!(text.contains("not delivered: 1 with a"), "{text}");
    let text = link("--es-n0 40 --check pad --taps 64 --step 0.0005");
    assert!(text.contains("1 delivered"), "{text}");
    let text = link("--es-n0 40 --acquisition original --equaliser lms");
    assert!(text.contains("1 delivered"), "{text}");
    assert_eq!(fs::read(&back).unwrap(), b"hello");
}

/// What is typed appears, line by line, while the link goes on.
#[test]
fn lines_come_over_the_link_as_they_are_typed() {
    let mut link = Command::new(env!("CARGO_BIN_EXE_karoo"))
        .args(["modem", "link", "--input", "-", "--es-n0", "20"])
        .env_remove("RUST_LOG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut typed = link.stdin.take().unwrap();
    let mut shown = BufReader::new(link.stdout.take().unwrap());
    for line in ["to be\n", "or not\n", "to be\n"] {
        typed.write_all(line.as_bytes()).unwrap();
        typed.flush().unwrap();
        let mut back = String::new();
        shown.read_line(&mut back).unwrap();
        assert_eq!(back, line);
    }
    drop(typed);
    let output = link.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("3 delivered"),
        "{said}"
    );
}

#[test]
fn a_browser_sees_the_link() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("text");
    fs::write(
        &path,
        "to be or not to be, that is the question\n".repeat(60),
    )
    .unwrap();
    let args = ["modem", "link", "--input", path.to_str().unwrap()]
        .into_iter()
        .chain(["--output", "/dev/null", "--repeat", "1000000"])
        .chain([
            "--sample-rate",
            "500k",
            "--es-n0",
            "20",
            "--frequency",
            "200",
            "--dc",
            "0.05,0",
            "--correct",
        ]);
    browser::look("look_modem.py", &args.collect::<Vec<_>>());
}

#[test]
fn links_that_cannot_be_are_refused() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("text");
    fs::write(&path, "text").unwrap();
    let text = path.to_str().unwrap();
    let rows: [(&[&str], &str); 6] = [
        (&["--input", text, "--json"], "give --output FILE"),
        (&["--input", text, "--taps", "7"], "--taps"),
        (
            &[
                "--input",
                text,
                "--acquisition",
                "original",
                "--threads",
                "2",
            ],
            "leave --threads out",
        ),
        (&["--input", text, "--duty", "0"], "--duty"),
        (&["--input", text, "--output", text], "would be lost"),
        (&["--input", "-", "--repeat", "2"], "name one"),
    ];
    for (args, wanted) in rows {
        let output = karoo(["modem", "link"].iter().chain(args));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(wanted), "{args:?}: {said}");
    }
}
