//! `karoo modem` on samples that nobody meant: cut, of other types, with wild headers, without
//! numbers, clipped. All of it is counted or refused; nothing panics, and nothing is a frame that
//! is none.

use std::fs;
use std::path::{Path, PathBuf};

use karoo_modem::tx::PulseShaper;
use karoo_modem::waveform::{CheckField, Frame, Header, Modulation, PREAMBLE_SYMBOLS, point};
use num_complex::Complex32;
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::support::{data, karoo, karoo_ok};

struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Bench {
        let folder = tempdir().unwrap();
        Bench { folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.at(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// What the receiver says of a file, with a page and payloads: the same on one thread, on
    /// several, and by a graph.
    fn received(&self, input: &Path, options: &[&str]) -> Value {
        let mut told = Vec::new();
        for way in [&["--threads=0"][..], &["--threads=2"], &["--graph"]] {
            let (output, report) = (self.at("payloads"), self.at("report"));
            let fixed = ["--keep-failed", "--json", "--report"];
            let output = karoo(
                [
                    "modem",
                    "rx",
                    "--input",
                    input.to_str().unwrap(),
                    "--output",
                ]
                .into_iter()
                .chain([output.to_str().unwrap()])
                .chain(fixed)
                .chain([report.to_str().unwrap()])
                .chain(way.iter().chain(options).copied()),
            );
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(0), "{}: {said}", input.display());
            assert!(self.at("report/report.html").exists());
            let mut done: Value = serde_json::from_slice(&output.stdout).unwrap();
            done.as_object_mut().unwrap().remove("seconds");
            told.push(done);
        }
        assert!(told.iter().all(|one| *one == told[0]), "{told:#?}");
        told.swap_remove(0)
    }

    /// Exit code and message of a command that fails.
    fn refused(&self, args: &[&str]) -> (i32, String) {
        let output = karoo(["modem"].iter().chain(args));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains("panicked"), "{args:?}: {said}");
        (output.status.code().unwrap(), said)
    }
}

fn bytes(samples: &[Complex32]) -> Vec<u8> {
    let parts = samples.iter().flat_map(|x| [x.re, x.im]);
    parts.flat_map(f32::to_le_bytes).collect()
}

/// Samples of three frames of QPSK; `change` may change their symbols.
fn frames(change: impl Fn(usize, &mut [u8])) -> Vec<Complex32> {
    let mut shaper = PulseShaper::new(1.0);
    let mut samples = Vec::new();
    for number in 0..3 {
        let payload: Vec<u8> = (0..3060).map(|i| (i * 31 + number) as u8).collect();
        let header = Header::new(Modulation::Qpsk);
        let frame = Frame::new(header, &payload, CheckField::Crc).unwrap();
        let mut symbols = frame.symbols();
        change(number, &mut symbols);
        let points: Vec<Complex32> = symbols
            .iter()
            .enumerate()
            .map(|(k, &symbol)| {
                let z = point(frame.modulation_at(k), symbol);
                Complex32::new(z.re as f32, z.im as f32)
            })
            .chain([Complex32::ZERO; 24])
            .collect();
        shaper.shape(&points, &mut samples);
    }
    shaper.shape(&[Complex32::ZERO; 100], &mut samples);
    samples
}

/// Sets a byte of a frame's header.
fn set(symbols: &mut [u8], byte: usize, value: u8) {
    for bit in 0..8 {
        symbols[PREAMBLE_SYMBOLS + 8 * byte + bit] = value >> bit & 1;
    }
}

#[test]
fn captures_that_are_cut_lose_what_was_cut_alone() {
    let bench = Bench::new();
    let whole = bytes(&frames(|_, _| {}));
    let frame = 8 * 3 * 16_120;
    // Bytes from the front and from the end: frames that are left, cut ones, bytes of a sample.
    for (front, end, delivered, cut, rest) in [
        (0, whole.len(), 3, 0, 0),
        (0, 2 * frame + 100_001, 2, 1, 1),
        (0, frame / 2, 0, 1, 0),
        (8 * 30_000, whole.len(), 2, 0, 0),
        (0, 7, 0, 0, 7),
    ] {
        let input = bench.write("cut.cf32", &whole[front..end]);
        let done = bench.received(&input, &[]);
        let counts = &done["counts"];
        assert_eq!(counts["delivered"], delivered, "{front} {end}: {done}");
        assert_eq!(counts["cut"], cut, "{front} {end}: {done}");
        assert_eq!(done["cut_bytes"], rest, "{front} {end}: {done}");
    }
    // Not whole samples from the first byte on: nothing of it is what was sent.
    let input = bench.write("shifted.cf32", &whole[3..]);
    assert_eq!(bench.received(&input, &[])["counts"]["delivered"], 0);
}

#[test]
fn files_of_other_types_have_no_frames() {
    let bench = Bench::new();
    let text = "These are no samples at all, but words.\n".repeat(9000);
    let capture = fs::read(data("tones-8bit.pcap")).unwrap();
    let cf32 = bytes(&frames(|_, _| {}));
    let page = include_bytes!("../../docs/pictures/live-page.png");
    for (name, bytes, format) in [
        ("text", text.as_bytes(), "cf32"),
        ("text", text.as_bytes(), "ci16"),
        ("capture", &capture, "cf32"),
        ("capture", &capture, "ci16"),
        ("picture", page, "ci16"),
        ("floats", &cf32, "ci16"),
        ("empty", b"", "cf32"),
    ] {
        let input = bench.write(name, bytes);
        let done = bench.received(&input, &["--format", format]);
        assert_eq!(done["counts"]["delivered"], 0, "{name} {format}: {done}");
        assert_eq!(done["frames"].as_array().unwrap().len(), 0, "{name}");
        assert_eq!(fs::read(bench.at("payloads")).unwrap(), b"");
    }
}

#[test]
fn recordings_that_cannot_be_read_are_refused_by_name() {
    let bench = Bench::new();
    bench.write("a.sigmf-data", &[0; 80]);
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let of_type = |kind: &str| {
        format!(
            r#"{{"global":{{"core:datatype":"{kind}","core:version":"1.0.0"}},
            "captures":[],"annotations":[]}}"#
        )
    };
    let rates = r#"{"global":{"core:datatype":"cf32_le","core:version":"1.0.0","core:sample_rate":-1e999},
        "captures":[],"annotations":[]}"#;
    for meta in [
        String::new(),
        "{".to_owned(),
        "null".to_owned(),
        deep,
        of_type("rf64_be"),
        of_type("cu8"),
        of_type(""),
        rates.to_owned(),
    ] {
        bench.write("a.sigmf-meta", meta.as_bytes());
        let input = bench.at("a.sigmf-meta");
        for command in ["rx", "channel"] {
            let out = bench.at("out.cf32");
            let paths = [input.to_str().unwrap(), "--output", out.to_str().unwrap()];
            let (code, said) = bench.refused(&[&[command, "--input"], &paths[..]].concat());
            assert_eq!(code, 1, "{meta:.60}: {said}");
            assert!(said.contains("a.sigmf-meta"), "{said}");
        }
    }
    let (folder, nowhere) = (bench.at(""), bench.at("nowhere.cf32"));
    for input in [&folder, &nowhere] {
        let (code, said) = bench.refused(&["rx", "--input", input.to_str().unwrap()]);
        assert!(code == 1 || code == 2, "{said}");
        assert!(said.contains(input.to_str().unwrap()), "{said}");
    }
}

/// Else the folder would be there, and the next run without a report refused for it.
#[test]
fn a_folder_is_not_made_where_a_file_is_to_be_written() {
    let bench = Bench::new();
    let (input, y) = (bench.write("empty.cf32", b""), bench.at("y"));
    let (input, name) = (input.to_str().unwrap(), y.to_str().unwrap());
    for option in ["--output", "--soft"] {
        let (code, said) = bench.refused(&["rx", "-i", input, option, name, "--report", name]);
        assert_eq!(code, 2, "{said}");
        assert!(
            said.contains("it is to be the folder of --report"),
            "{said}"
        );
        assert!(!y.exists());
    }
}

#[test]
fn wild_headers_are_counted_by_cause() {
    let bench = Bench::new();
    // The first frame's mode byte is that of none, the second has a length beyond its payload, the
    // third other bytes than its check field is of.
    let samples = frames(|number, symbols| match number {
        0 => set(symbols, 0, 0xcc),
        1 => [6, 7]
            .map(|byte| set(symbols, byte, 0xff))
            .into_iter()
            .collect(),
        _ => [1, 2, 3, 4, 5]
            .map(|byte| set(symbols, byte, 0xa5))
            .into_iter()
            .collect(),
    });
    let input = bench.write("wild.cf32", &bytes(&samples));
    let done = bench.received(&input, &[]);
    let counts = &done["counts"];
    for (name, count) in [("mode", 1), ("length", 1), ("check", 1), ("delivered", 0)] {
        assert_eq!(counts[name], count, "{name}: {done}");
    }
    let outcomes: Vec<_> = done["frames"].as_array().unwrap().iter().collect();
    assert_eq!(outcomes[1]["bytes"], 3060, "no more than there are: {done}");
    // Only the frame whose check field is wrong is kept.
    assert_eq!(fs::read(bench.at("payloads")).unwrap().len(), 3060);
}

#[test]
fn what_is_no_number_is_counted_and_taken_for_zero() {
    let bench = Bench::new();
    let clean = frames(|_, _| {});
    let mut holes = clean.clone();
    // In the body of the second frame alone.
    for (i, sample) in holes[70_000..70_050].iter_mut().enumerate() {
        *sample = match i % 4 {
            0 => Complex32::new(f32::NAN, 0.0),
            1 => Complex32::new(0.0, f32::NEG_INFINITY),
            2 => Complex32::new(f32::INFINITY, f32::NAN),
            _ => Complex32::new(f32::MAX, -f32::MAX),
        };
    }
    let input = bench.write("holes.cf32", &bytes(&holes));
    let done = bench.received(&input, &[]);
    let counts = &done["counts"];
    assert_eq!(
        (&counts["delivered"], &counts["check"]),
        (&2.into(), &1.into())
    );
    assert_eq!(counts["bad_samples"], 50, "{done}");
    let text = karoo_ok(["modem", "rx", "--input", input.to_str().unwrap()]);
    assert!(
        text.contains("50 samples are infinite, larger than 1e6 or not numbers"),
        "{text}"
    );
    let values = [
        f32::NAN,
        f32::INFINITY,
        f32::MAX,
        f32::MIN_POSITIVE / 4.0,
        0.0,
    ];
    for value in values {
        let input = bench.write(
            "one.cf32",
            &bytes(&vec![Complex32::new(value, -value); 60_000]),
        );
        let done = bench.received(&input, &[]);
        assert_eq!(done["counts"]["detected"], 0, "{value}: {done}");
        assert_eq!(done["counts"]["samples"], 60_000);
    }
    // A channel hands on numbers alone.
    let (input, air) = (bench.at("holes.cf32"), bench.at("air.cf32"));
    let paths = [input.to_str().unwrap(), "--output", air.to_str().unwrap()];
    let output = karoo(
        ["modem", "channel", "--es-n0", "20", "--input"]
            .iter()
            .chain(&paths),
    );
    assert_eq!(output.status.code(), Some(0));
    let numbers = fs::read(&air).unwrap();
    let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
    assert!(
        numbers
            .chunks_exact(4)
            .all(|bytes| number(bytes).is_finite())
    );
}

#[test]
fn full_scale_clipping_is_counted_and_makes_no_false_frame() {
    let bench = Bench::new();
    let message = bench.write("message", &[0x5a; 9180]);
    let loud = bench.at("loud.ci16");
    let sent = karoo([
        "modem",
        "tx",
        "--json",
        "--gain",
        "40",
        "--input",
        message.to_str().unwrap(),
        "--output",
        loud.to_str().unwrap(),
    ]);
    let sent: Value = serde_json::from_slice(&sent.stdout).unwrap();
    assert!(sent["clipped"].as_u64().unwrap() > 200_000, "{sent}");
    let done = bench.received(&loud, &[]);
    let counts = &done["counts"];
    // QPSK keeps its signs: frames are found, and each is delivered or counted.
    assert_eq!(counts["detected"], 3, "{done}");
    let sum = [
        "delivered",
        "check",
        "mode",
        "length",
        "equaliser",
        "not_acquired",
        "cut",
    ]
    .map(|name| counts[name].as_u64().unwrap())
    .iter()
    .sum::<u64>();
    assert_eq!(sum, 3, "{done}");
    let rails = |period: usize| -> Vec<u8> {
        let value = |n: usize| {
            if (n / period).is_multiple_of(2) {
                i16::MAX
            } else {
                i16::MIN
            }
        };
        (0..200_000).flat_map(|n| value(n).to_le_bytes()).collect()
    };
    for period in [1, 2, 3, 96, 192, 100_000, 1_000_000] {
        let input = bench.write("rails.ci16", &rails(period));
        let done = bench.received(&input, &["--full-scale", "1e6"]);
        assert_eq!(done["counts"]["delivered"], 0, "{period}: {done}");
        assert_eq!(done["frames"].as_array().unwrap().len(), 0, "{period}");
    }
}
