//! Samples and recordings held against Python's numpy and sigmf. `KAROO_PYTHON` names a Python
//! that has them; where it is not set and python3 lacks a package, a test says so and passes.

use std::env;
use std::path::Path;
use std::process::Command;

use karoo_modem::formats::{Annotation, FullScale, Recording, SampleFormat, SampleWriter};
use karoo_modem::tx::Transmitter;
use karoo_modem::waveform::{CheckField, Frame, Header, Modulation};
use num_complex::Complex32;

/// A Python that has `package`.
fn python(package: &str) -> Option<Command> {
    let named = env::var("KAROO_PYTHON");
    let python = named.as_deref().unwrap_or("python3");
    let found = Command::new(python)
        .args(["-c", &format!("import {package}")])
        .output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(Command::new(python));
    }
    assert!(
        named.is_err(),
        "{python} lacks the packages of scripts/requirements.txt: run scripts/test"
    );
    println!("no {package} in {python}");
    None
}

fn script(name: &str) -> String {
    format!("{}/tests/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn samples(modulation: Modulation) -> Vec<Complex32> {
    let payload: Vec<u8> = (0..modulation.payload_bytes())
        .map(|i| (7 * i + 3) as u8)
        .collect();
    let header = Header {
        source: 5,
        destination: 5,
        network: 5,
        ..Header::new(modulation)
    };
    let frame = Frame::new(header, &payload, CheckField::Crc).unwrap();
    let (mut transmitter, mut samples) = (Transmitter::new(1.0), Vec::new());
    transmitter.frame(&frame, &mut samples);
    transmitter.finish(&mut samples);
    samples
}

#[test]
fn samples_are_those_that_numpy_makes() {
    let Some(python) = python("numpy") else {
        return;
    };
    for modulation in Modulation::ALL {
        let output = Command::new(python.get_program())
            .arg(script("transmitter.py"))
            .arg(modulation.name())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let samples = samples(modulation);
        assert_eq!(output.stdout.len(), 16 * samples.len());
        let parts = samples.iter().flat_map(|sample| [sample.re, sample.im]);
        for (n, (bytes, part)) in output.stdout.chunks_exact(8).zip(parts).enumerate() {
            let theirs = f64::from_le_bytes(bytes.try_into().unwrap());
            assert!((theirs - f64::from(part)).abs() < 1e-6, "{modulation} {n}");
        }
    }
}

#[test]
fn recordings_are_read_by_sigmfs_own_library() {
    let Some(mut python) = python("sigmf") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = |extension: &str| folder.path().join("frame").with_extension(extension);
    let samples = samples(Modulation::Qpsk);
    let mut bytes = Vec::new();
    let full_scale = FullScale::default();
    let mut writer = SampleWriter::new(&mut bytes, SampleFormat::Ci16, full_scale);
    writer.write(&samples).unwrap();
    std::fs::write(path("sigmf-data"), &bytes).unwrap();
    let recording = Recording {
        full_scale: Some(full_scale),
        sample_rate: Some(80e6),
        annotations: vec![Annotation {
            sample_start: 0,
            sample_count: Some(48_336),
            label: Some("qpsk".to_owned()),
        }],
        ..Recording::new(SampleFormat::Ci16)
    };
    std::fs::write(path("sigmf-meta"), recording.to_json()).unwrap();
    let meta: &Path = &path("sigmf-meta");
    let output = python
        .arg(script("recording.py"))
        .arg(meta)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(
        (words[0], words[1], words[3]),
        ("80000000.0", "48336", "qpsk")
    );
    // That library scales integers to 1.
    let found: f32 = words[2].parse().unwrap();
    assert!((found * 4.0 - samples[24].norm()).abs() < 1e-3, "{found}");
}
