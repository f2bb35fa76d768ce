//! What `karoo modem rx` says of its input as a whole: level, clipping, DC and IQ imbalance.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::support::{json, karoo_ok};

/// A folder with three frames at a gain in dB, as a file of that name.
fn sent(name: &str, gain: &str) -> (TempDir, String) {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let message: Vec<u8> = (0..9000u32).map(|i| (i * i / 5) as u8).collect();
    fs::write(at("message"), &message).unwrap();
    let (message, output) = (at("message"), at(name));
    karoo_ok([
        "modem", "tx", "--input", &message, "--output", &output, "--gain", gain,
    ]);
    (folder, output)
}

fn received(input: &str, options: &[&str]) -> (String, Value) {
    let rx = ["modem", "rx", "--input", input];
    let text = karoo_ok(rx.iter().chain(options));
    let told = karoo_ok(rx.iter().chain(options).chain(&["--json"]));
    (text, json(&told))
}

/// Mean power of a file of 16-bit integers to that of their largest, in dB, and how many parts
/// are at full scale.
fn model(path: &str) -> (f64, u64) {
    let bytes = fs::read(Path::new(path)).unwrap();
    let parts = bytes.as_chunks::<2>().0.iter();
    let parts: Vec<f64> = parts
        .map(|two| f64::from(i16::from_le_bytes(*two)))
        .collect();
    let power: f64 = parts.iter().map(|part| (part / 32767.0).powi(2)).sum();
    let full = parts.iter().filter(|part| part.abs() >= 32767.0).count();
    (
        10.0 * (power / (parts.len() as f64 / 2.0)).log10(),
        full as u64,
    )
}

fn near(told: &Value, wanted: f64, within: f64) {
    let found = told.as_f64().unwrap();
    assert!((found - wanted).abs() < within, "{found} {wanted}");
}

#[test]
fn an_input_that_clips_is_told_with_the_way_out() {
    let (folder, loud) = sent("loud.ci16", "14");
    let report = folder.path().join("report");
    let (wanted, full) = model(&loud);
    let options = ["--report", report.to_str().unwrap()];
    let (text, told) = received(&loud, &options);
    let level = &told["level"];
    assert_eq!(
        (&level["clipped"], &level["full_scale"]),
        (&full.into(), &4.0.into())
    );
    assert_eq!(level["samples"], told["counts"]["samples"]);
    near(&level["decibels"], wanted, 0.001);
    assert!(full > 10_000, "{full}");
    let percent = 100.0 * full as f64 / (2.0 * level["samples"].as_f64().unwrap());
    let warning = format!("{percent:.0} % of the parts are at full scale: lower the gain");
    assert!(text.contains(&warning), "{text}");
    assert!(
        text.contains(&format!("dBFS, {full} parts at full scale")),
        "{text}"
    );
    let page = fs::read_to_string(report.join("report.html")).unwrap();
    assert!(page.contains(&warning) && page.contains("dBFS, level"));
}

#[test]
fn a_quiet_input_has_the_level_of_a_model() {
    let (_folder, quiet) = sent("quiet.ci16", "-40");
    let (wanted, full) = model(&quiet);
    assert_eq!(full, 0);
    assert!((wanted + 52.0).abs() < 0.5, "{wanted}");
    for way in [&["--threads", "2"][..], &["--graph"]] {
        let (text, told) = received(&quiet, way);
        near(&told["level"]["decibels"], wanted, 0.001);
        let line = format!("level {wanted:.1} dBFS, 0 parts at full scale");
        assert!(text.contains(&line) && !text.contains(" % of"), "{text}");
    }
    // The same to another full scale: the samples are as much larger.
    let (_, other) = received(&quiet, &["--full-scale", "1"]);
    near(&other["level"]["decibels"], wanted, 0.001);
}

#[test]
fn floats_have_a_full_scale_where_it_is_said() {
    let (_folder, floats) = sent("floats.cf32", "-20");
    let (text, told) = received(&floats, &[]);
    let level = &told["level"];
    assert!(
        level["full_scale"].is_null() && level["clipped"].is_null(),
        "{told}"
    );
    near(&level["decibels"], -20.0, 0.5);
    assert!(text.contains(" dB re 1"), "{text}");
    let (text, told) = received(&floats, &["--full-scale", "0.1"]);
    near(&told["level"]["decibels"], 0.0, 0.5);
    assert!(told["level"]["clipped"].as_u64() > Some(1000), "{told}");
    assert!(text.contains("lower the gain"), "{text}");
}

#[test]
fn packets_have_a_level_and_what_was_taken_off_is_told() {
    let (folder, sent) = sent("sent.cf32", "0");
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (air, message) = (at("air.cf32"), at("message"));
    let packets = at("packets.pcap");
    karoo_ok([
        "modem",
        "tx",
        "--input",
        &message,
        "--output",
        &packets,
        "--sample-rate",
        "1M",
    ]);
    let (_, told) = received(&packets, &[]);
    near(&told["level"]["decibels"], -12.0, 0.5);
    assert!(told["correction"].is_null(), "{told}");
    let channel =
        "--sample-rate 80M --frequency 20k --es-n0 30 --iq-gain 1 --iq-phase 5 --dc 0.05,-0.02";
    let channel = channel.split(' ');
    let places = ["modem", "channel", "--input", &sent, "--output", &air];
    karoo_ok(places.into_iter().chain(channel));
    let report = at("report");
    for way in [&["--threads", "1"][..], &["--graph"]] {
        let options = [&["--correct", "--report", &report], way].concat();
        let (text, told) = received(&air, &options);
        let correction = &told["correction"];
        near(&correction["dc_i"], 0.05, 0.01);
        near(&correction["dc_q"], -0.02, 0.01);
        near(&correction["iq_gain_db"], 1.0, 0.2);
        near(&correction["iq_phase_degrees"], 5.0, 1.4);
        near(&correction["image_db"], -22.8, 1.5);
        assert!(
            text.contains("taken off: DC 0.0") && text.contains("an image of -2"),
            "{text}"
        );
        let page = fs::read_to_string(Path::new(&report).join("report.html")).unwrap();
        assert!(page.contains("Taken off: DC 0.0"));
    }
}

#[test]
fn error_rates_of_a_faulty_front_end_come_down_where_it_is_corrected() {
    let errors = |options: &str| {
        let ber = "modem ber --mod qam64 --eb-n0 17 --frames 2 --errors 0 --frequency 20k --json";
        let told = karoo_ok(ber.split(' ').chain(options.split_whitespace()));
        let point = &json(&told)["points"][0];
        assert_eq!((&point["sent"], &point["lost"]), (&2.into(), &0.into()));
        point["errors"].as_u64().unwrap()
    };
    let faults = "--iq-gain 1 --iq-phase 5 --dc 0.05,0";
    let (without, faulty) = (errors(""), errors(faults));
    let corrected = errors(&format!("{faults} --correct"));
    assert!(
        without < 20 && faulty > 200 && corrected < faulty / 5,
        "{without} {faulty} {corrected}"
    );
}
