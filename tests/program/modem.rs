//! `karoo modem` as a user runs it: frames to samples, samples through channels, and what is
//! refused.

use std::fs;
use std::path::Path;

use karoo_modem::formats::{FullScale, Recording, SampleFormat, SampleReader};
use karoo_modem::rx::{Receiver, RxConfig};
use karoo_modem::tx::Transmitter;
use karoo_modem::waveform::{CheckField, Frame, Header, Modulation, pad_message};
use num_complex::Complex32;
use tempfile::tempdir;

use crate::support::{json, karoo, karoo_ok};

fn samples(path: &Path, format: SampleFormat) -> Vec<Complex32> {
    let file = fs::File::open(path).unwrap();
    let mut reader = SampleReader::new(file, format, FullScale::default());
    let mut samples = Vec::new();
    while reader.read(&mut samples).unwrap() > 0 {}
    assert_eq!(reader.counts().cut_bytes, 0);
    samples
}

#[test]
fn a_file_is_sent_as_frames_of_the_waveform() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let message: Vec<u8> = (0..4000u32).map(|i| (i * 31) as u8).collect();
    fs::write(at("message"), &message).unwrap();
    let text = karoo_ok([
        "modem",
        "tx",
        "--input",
        &at("message"),
        "--output",
        &at("sent.cf32"),
        "--source",
        "7",
        "--json",
    ]);
    let sent = json(&text);
    assert_eq!(sent["frames"], 2);
    assert_eq!(sent["bytes"], 4000);
    let (mut transmitter, mut model) = (Transmitter::new(1.0), Vec::new());
    for part in message.chunks(3060) {
        let (payload, used) = pad_message(part, Modulation::Qpsk);
        let header = Header {
            source: 7,
            length: used as u16,
            ..Header::new(Modulation::Qpsk)
        };
        let frame = Frame::new(header, &payload, CheckField::Crc).unwrap();
        transmitter.frame(&frame, &mut model);
        transmitter.blanks(24, &mut model);
    }
    transmitter.finish(&mut model);
    let found = samples(Path::new(&at("sent.cf32")), SampleFormat::Cf32);
    assert!(found == model);
    assert_eq!(sent["samples"], found.len() as u64);
}

#[test]
fn recordings_say_their_rate_to_the_channel() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("message"), b"hello").unwrap();
    let (message, sent, air) = (at("message"), at("sent.sigmf-meta"), at("air.sigmf-data"));
    karoo_ok([
        "modem",
        "tx",
        "-i",
        &message,
        "-o",
        &sent,
        "--format",
        "ci16",
        "--sample-rate",
        "80M",
        "--duty",
        "0.5",
        "--lead",
        "100",
    ]);
    let recording = Recording::from_json(&fs::read_to_string(&sent).unwrap()).unwrap();
    assert_eq!(recording.annotations[0].sample_start, 300);
    let text = karoo_ok([
        "modem",
        "channel",
        "-i",
        &sent,
        "-o",
        &air,
        "--frequency",
        "20k",
        "--delay",
        "3",
        "--json",
    ]);
    let passed = json(&text);
    let before = samples(&folder.path().join("sent.sigmf-data"), SampleFormat::Ci16);
    let behind = samples(&folder.path().join("air.sigmf-data"), SampleFormat::Cf32);
    assert_eq!(passed["samples_in"], before.len() as u64);
    assert_eq!(behind.len(), before.len() + 3);
    for (n, sample) in before.iter().enumerate().step_by(101) {
        let turns = 20e3 / 80e6 * (n + 3) as f64;
        let turn = Complex32::cis((turns * std::f64::consts::TAU) as f32);
        assert!((behind[n + 3] - sample * turn).norm() < 1e-5, "{n}");
    }
}

#[test]
fn error_rates_stand_beside_theory_and_depend_not_on_threads() {
    let folder = tempdir().unwrap();
    let svg = folder.path().join("rates.svg");
    let measured = |threads: &str| {
        let text = karoo_ok([
            "modem",
            "ber",
            "--mod",
            "qpsk",
            "--eb-n0",
            "3:4",
            "--frames",
            "1",
            "--threads",
            threads,
            "--frequency",
            "-20k",
            "--clock",
            "-20",
            "--json",
            "--svg",
            svg.to_str().unwrap(),
        ]);
        json(&text)
    };
    let two = measured("2");
    assert_eq!(two, measured("1"));
    let points = two["points"].as_array().unwrap();
    assert_eq!(points.len(), 2);
    for point in points {
        assert_eq!(point["lost"], 0);
        assert_eq!(point["bits"], 24_512);
        let number = |name: &str| point[name].as_f64().unwrap();
        let (low, high) = (&point["interval"]["low"], &point["interval"]["high"]);
        assert!(low.as_f64() < Some(number("rate")) && Some(number("rate")) < high.as_f64());
        assert!(
            (0.5..2.0).contains(&(number("rate") / number("theory"))),
            "{point}"
        );
    }
    assert!(fs::read_to_string(&svg).unwrap().contains("qpsk"));
}

/// Where soft values and the majority read some frames otherwise.
#[test]
fn the_majority_of_ber_has_two_names_of_which_one_is_shown() {
    let ber = [
        "modem",
        "ber",
        "--mod",
        "bpsk",
        "--eb-n0=-1",
        "--frames",
        "40",
        "--json",
    ];
    let measured = |vote: &[&str]| json(&karoo_ok(ber.iter().chain(vote)));
    let majority = measured(&["--vote", "majority"]);
    assert_eq!(majority, measured(&["--majority"]));
    assert_ne!(majority, measured(&[]));
    let help = karoo_ok(["modem", "ber", "--help"]);
    assert!(
        help.contains("--vote") && !help.contains("--majority"),
        "{help}"
    );
}

#[test]
fn the_report_of_ber_names_the_original_algorithms() {
    let folder = tempdir().unwrap();
    let report = folder.path().to_str().unwrap();
    let ber = ["modem", "ber", "--mod", "bpsk", "--eb-n0", "9"];
    let more = ["--frames", "1", "--report", report];
    let page = |algorithms: &[&str]| {
        karoo_ok(ber.iter().chain(&more).chain(algorithms));
        fs::read_to_string(folder.path().join("report.html")).unwrap()
    };
    let words = [
        "the original's acquisition, 100 samples",
        "least mean squares",
    ];
    let own = page(&[]);
    assert!(words.iter().all(|word| !own.contains(word)), "{own}");
    let acquisition = ["--acquisition", "original", "--feedback", "100"];
    let original = page(&[&acquisition[..], &["--equaliser", "lms"]].concat());
    let original = original.replace("&apos;", "'");
    assert!(
        words.iter().all(|word| original.contains(word)),
        "{original}"
    );
}

#[test]
fn what_cannot_be_is_refused_with_the_way_out() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, out) = (at("a.cf32"), at("b.cf32"));
    fs::write(&file, [0; 64]).unwrap();
    fs::write(at("c.sigmf-meta"), "{}").unwrap();
    fs::write(at("c.sigmf-data"), [0; 8]).unwrap();
    let (recording, nowhere) = (at("c.sigmf-meta"), at("nowhere"));
    let tx = ["modem", "tx", "-i", &file, "-o", &out];
    let channel = ["modem", "channel", "-i", &file, "-o", &out];
    let ber = ["modem", "ber", "--frames", "1"];
    let rows: [(&[&str], &[&str], i32, &str); 14] = [
        (&ber, &["--eb-n0", "9:4"], 2, "try 4:9"),
        (&ber, &["--taps", "7"], 2, "--taps: an equaliser of 7 taps"),
        (&ber, &["--frequency", "80M"], 2, "--frequency 80000000"),
        (&tx, &["--mod", "qam32"], 2, "qam64"),
        (&tx, &["--duty", "0"], 2, "--duty: a duty cycle of 0"),
        (&tx, &["--full-scale", "0"], 2, "1e-6 to 1e6"),
        (&tx, &["--gain", "nan"], 2, "-100 to 100 dB"),
        (&channel, &["--frequency", "20k"], 2, "--sample-rate"),
        (
            &channel,
            &["--frequency", "9e9", "--sample-rate", "1M"],
            2,
            "-500000 to 500000 Hz",
        ),
        (&channel, &["--path", "1:2:3:4"], 2, "12:-3:90"),
        (&channel, &["--bits", "0"], 2, "1 to 24"),
        (
            &["modem", "channel", "-i", &file, "-o", &file],
            &[],
            2,
            "name another file",
        ),
        (
            &["modem", "channel", "-i", &recording, "-o", &out],
            &[],
            1,
            "global",
        ),
        (
            &["modem", "tx", "-i", &nowhere, "-o", &out],
            &[],
            1,
            "--input",
        ),
    ];
    for (command, options, code, wanted) in rows {
        let output = karoo(command.iter().chain(options));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{options:?}: {said}");
        assert!(said.contains(wanted), "{options:?}: {said}");
    }
    assert_eq!(fs::read(&file).unwrap(), [0; 64]);
}

#[test]
fn what_was_sent_comes_back_through_a_channel() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let message: Vec<u8> = (0..30_000u32)
        .map(|i| (i.wrapping_mul(i) >> 3) as u8)
        .collect();
    fs::write(at("message"), &message).unwrap();
    let (sent, air) = (at("sent.sigmf-meta"), at("air.ci16"));
    let tx = [
        "--mod",
        "qam16",
        "--scramble",
        "--sample-rate",
        "80M",
        "--format",
        "ci16",
    ];
    karoo_ok(
        ["modem", "tx", "--input", &at("message"), "--output", &sent]
            .iter()
            .chain(&tx),
    );
    let channel = [
        "--es-n0",
        "25",
        "--frequency",
        "20e3",
        "--clock",
        "20",
        "--delay",
        "1000.3",
    ];
    karoo_ok(
        ["modem", "channel", "--input", &sent, "--output", &air]
            .iter()
            .chain(&channel),
    );
    let mut bytes = Vec::new();
    let ways: [&[&str]; 4] = [
        &["--threads", "0"],
        &["--threads", "2"],
        &["--graph", "--threads", "3"],
        &["--graph"],
    ];
    for way in ways {
        let rx = [
            "modem",
            "rx",
            "--input",
            &air,
            "--output",
            &at("back"),
            "--scramble",
            "--sample-rate",
            "80M",
            "--report",
            &at("report"),
            "--json",
        ];
        let done = json(&karoo_ok(rx.iter().chain(way)));
        assert_eq!(done["counts"]["delivered"], 5, "{done}");
        assert_eq!(done["bytes"], 30_000);
        let frames = done["frames"].as_array().unwrap();
        assert_eq!(frames.len(), 5);
        let first = &frames[0];
        assert_eq!(
            (&first["mode"], &first["bytes"]),
            (&"qam16".into(), &6124.into())
        );
        assert_eq!(first["check_passed"], true);
        let near = |name: &str, value: f64, within: f64| {
            let found = first[name].as_f64().unwrap();
            assert!((found - value).abs() < within, "{name}: {found}");
        };
        near("sample", 1000.0, 1.0);
        near("cfo_hz", 20e3, 100.0);
        near("clock_ppm", 20.0, 2.0);
        near("snr_db", 25.0, 1.0);
        near("evm", 10f64.powf(-25.0 / 20.0), 0.01);
        bytes.push(fs::read(at("back")).unwrap());
    }
    assert!(bytes.iter().all(|bytes| *bytes == message));
    let page = fs::read_to_string(folder.path().join("report/report.html")).unwrap();
    assert!(page.contains("5 frames received, none lost") && page.contains("data:image/png"));
}

#[test]
fn a_graph_sends_the_same_bytes_by_any_number_of_threads() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // Three payloads and a part of one, which with --repeat stands in the middle too.
    let message: Vec<u8> = (0..40_000u32).map(|i| (i * i / 11) as u8).collect();
    fs::write(at("message"), &message).unwrap();
    let run = |name: &str, way: &[&str]| {
        let (metadata, data) = (format!("{name}.sigmf-meta"), format!("{name}.sigmf-data"));
        let tx = "--mod qam256 --repeat 2 --duty 0.8 --lead 100 --gain -3 --scramble --source 5 \
                  --format ci16 --sample-rate 80M --json";
        let places = [
            "modem",
            "tx",
            "--input",
            &at("message"),
            "--output",
            &at(&metadata),
        ];
        let told = karoo_ok(
            places
                .into_iter()
                .chain(tx.split_whitespace())
                .chain(way.to_vec()),
        );
        (
            json(&told),
            fs::read(at(&metadata)).unwrap(),
            fs::read(at(&data)).unwrap(),
        )
    };
    let alone = run("alone", &[]);
    assert_eq!(
        (&alone.0["frames"], &alone.0["bytes"]),
        (&8.into(), &80_000.into())
    );
    let ways = [
        &["--graph", "--threads", "1"][..],
        &["--graph", "--threads", "3"],
        &["--graph"],
    ];
    for (number, way) in ways.into_iter().enumerate() {
        let graph = run(&format!("graph-{number}"), way);
        assert_eq!(graph.0, alone.0, "{way:?}");
        assert!(graph.2 == alone.2, "{way:?}");
        let without_names = |metadata: &[u8]| {
            let mut value: serde_json::Value = serde_json::from_slice(metadata).unwrap();
            value["global"]
                .as_object_mut()
                .unwrap()
                .remove("core:dataset");
            value["captures"][0]
                .as_object_mut()
                .unwrap()
                .remove("core:datetime");
            value
        };
        assert_eq!(without_names(&graph.1), without_names(&alone.1));
    }
    let threads = karoo([
        "modem",
        "tx",
        "--input",
        "x",
        "--output",
        "y",
        "--threads",
        "2",
    ]);
    assert_eq!(threads.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&threads.stderr).contains("--graph"));
}

#[test]
fn soft_values_of_a_file_are_the_librarys_and_have_the_signs_of_bits() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let message: Vec<u8> = (0..9000u32).map(|i| ((i * i) >> 2) as u8).collect();
    fs::write(at("message"), &message).unwrap();
    let (sent, soft) = (at("sent.cf32"), at("soft"));
    let tx = ["modem", "tx", "--mod", "qam16", "-i", &at("message"), "-o"];
    karoo_ok(tx.iter().chain(&[sent.as_str()]));
    let rx = [
        "modem",
        "rx",
        "-i",
        &sent,
        "--threads",
        "2",
        "--soft",
        &soft,
    ];
    karoo_ok(rx);
    let bytes = fs::read(&soft).unwrap();
    let values: Vec<f32> = bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|four| f32::from_le_bytes(*four))
        .collect();
    let config = RxConfig {
        soft: true,
        ..RxConfig::default()
    };
    let (mut receiver, mut frames) = (Receiver::new(&config).unwrap(), Vec::new());
    let air = samples(Path::new(&sent), SampleFormat::Cf32);
    receiver.push(&air, &mut frames);
    receiver.finish(&mut frames);
    assert_eq!(frames.len(), 2);
    let wanted: Vec<f32> = frames.iter().flat_map(|frame| frame.soft.clone()).collect();
    assert!(values == wanted && values.len() == 2 * 4 * 12_256);
    let bodies: Vec<u8> = frames.iter().flat_map(|frame| frame.body.clone()).collect();
    for (i, value) in values.iter().enumerate() {
        assert_eq!(*value < 0.0, bodies[i / 8] >> (i % 8) & 1 == 1, "{i}");
    }
}

#[test]
fn a_receiver_says_what_it_cannot_do() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("nothing"), [0; 4003]).unwrap();
    let refused = |args: &[&str]| {
        let output = karoo(
            ["modem", "rx", "--input", &at("nothing")]
                .iter()
                .chain(args),
        );
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let taps = refused(&["--taps", "12"]);
    assert!(
        taps.contains("--taps: ") && taps.contains("such as 16"),
        "{taps}"
    );
    assert!(refused(&["--step", "1"]).contains("such as 0.0005"));
    assert!(refused(&["--json", "--output", "-"]).contains("name a file"));
    assert!(refused(&["--output", &at("nothing")]).contains("would be lost"));
    let original = refused(&["--graph", "--acquisition", "original"]);
    assert!(original.contains("leave out --graph"), "{original}");
    assert!(refused(&["--graph", "--http", "0"]).contains("--http"));
    let text = karoo_ok(["modem", "rx", "--input", &at("nothing")]);
    assert!(
        text.contains("0 frames delivered") && text.contains("3 bytes after"),
        "{text}"
    );
}
