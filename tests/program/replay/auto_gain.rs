//! `--gain auto`: gains made of the level of a capture.

use std::fs;
use std::path::Path;

use dsp::pfb;
use ground::Timestamp;
use karoo::config::OutputConfig;
use karoo::model::Model;
use num_complex::Complex32;
use serde_json::Value;

use crate::support::{Samples, data, karoo, karoo_ok, output_config};

const WIDEBAND: &str = "name=w,channels=64,dst=239.10.1.0+1,jones_per_batch=4096,taps=4";

/// Replays with gains that are made. Returns the output and `report.json`.
fn replay(capture: &Path, wideband: &str, options: &[&str]) -> (Vec<u8>, Value) {
    let folder = tempfile::tempdir().unwrap();
    let (out, report) = (folder.path().join("out.pcap"), folder.path().join("report"));
    let paths = [capture, &out, &report].map(|path| path.to_str().unwrap());
    let mut args = vec![
        "replay", paths[0], "--output", paths[1], "--report", paths[2],
    ];
    args.extend([
        "--wideband",
        wideband,
        "--sync-time",
        "1763700000",
        "--quiet",
    ]);
    args.extend(["--backend", "cpu"]);
    args.extend(options);
    karoo_ok(args);
    let json = fs::read(report.join("report.json")).unwrap();
    let html = fs::read_to_string(report.join("report.html")).unwrap();
    assert!(html.contains("Gains were made of"), "{html}");
    (
        fs::read(&out).unwrap(),
        serde_json::from_slice(&json).unwrap(),
    )
}

fn gains(report: &Value, pol: usize) -> Vec<f64> {
    let gains = report["gains"][0]["gains"][pol].as_array().unwrap();
    gains.iter().map(|gain| gain.as_f64().unwrap()).collect()
}

/// Power of each channel of noise, of variance σ² before a filter [1, a] coloured it, by theory:
/// Σ w(n)·w(m)·r(n − m)·cos(2πk(n − m)/2C), where r is the autocorrelation.
fn theory(output: &OutputConfig, variance: f64, a: f64) -> Vec<f64> {
    let step = output.pfb_step();
    let weights = pfb::weights(step, output.taps, output.w_cutoff, output.window_function);
    let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
    let lag = |lag: usize| -> f64 {
        weights
            .iter()
            .zip(&weights[lag..])
            .map(|(x, y)| x * y)
            .sum()
    };
    // Dither and rounding of the digitiser add a sixth.
    let r = [variance * (1.0 + a * a) + 1.0 / 6.0, variance * a];
    let power = |k: usize| {
        let turn = std::f64::consts::TAU * k as f64 / step as f64;
        r[0] * lag(0) + 2.0 * r[1] * lag(1) * turn.cos()
    };
    (0..output.channels).map(power).collect()
}

/// Noise that is 20 dB stronger at one end of the band than at the other comes to be level, within
/// a tenth of a decibel, and the same each time.
#[test]
fn coloured_noise_comes_to_be_level() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("coloured.pcap");
    let signals =
        "x = wgn(0.08, 1); y = wgn(0.08, 2); x + 0.82 * delay(x, 1); y - 0.82 * delay(y, 1);";
    let path = capture.to_str().unwrap();
    karoo_ok(["dsim", "--output", path, "--signals", signals]);
    let (bytes, report) = replay(&capture, WIDEBAND, &["--gain", "auto:12"]);
    let output = output_config(WIDEBAND);
    let variance = (0.08 * 511f64).powi(2);
    for (pol, a) in [0.82, -0.82].into_iter().enumerate() {
        let expected = theory(&output, variance, a);
        let strongest = expected
            .iter()
            .fold(0.0, |most: f64, &power| most.max(power));
        let weakest = expected
            .iter()
            .fold(strongest, |least, &power| least.min(power));
        assert!(strongest > 60.0 * weakest);
        for (channel, (power, gain)) in expected.iter().zip(gains(&report, pol)).enumerate() {
            let rms = (0.5 * power).sqrt() * gain;
            let level = 20.0 * (rms / 12.0).log10();
            assert!(
                level.abs() < 0.1,
                "pol {pol}, channel {channel}: {level} dB"
            );
        }
        // The whole capture was sent with it.
        let levels = &report["levels"][0]["pols"][pol];
        assert!(
            (levels["rms"].as_f64().unwrap() / 12.0 - 1.0).abs() < 0.005,
            "{levels}"
        );
        assert!(levels["efficiency"].as_f64().unwrap() > 0.99, "{levels}");
    }
    assert_eq!(report["gains"][0]["rms"], 12.0);
    assert!(report["gains"][0]["efficiency"].as_f64().unwrap() > 0.99);
    let chosen = report["chosen"].as_array().unwrap();
    let chosen = chosen.iter().find(|of| of["option"] == "--gain of 'w'");
    let why = chosen.expect("a choice")["why"].as_str().unwrap();
    assert!(why.contains("efficiency of 0.99"), "{why}");

    let more = ["--gain", "auto:12", "--workers", "3", "--rx-queues", "2"];
    let (again, other) = replay(&capture, WIDEBAND, &more);
    assert!(again == bytes, "other bytes");
    assert_eq!(other["gains"], report["gains"]);
}

/// With heaps missing, repeated and out of order, the powers are the model's of those spectra that
/// have all of their input. Where there are few spectra, neighbours share an estimate.
#[test]
fn gains_follow_from_the_models_powers() {
    let capture = data("faults-10bit.pcap");
    let (_, report) = replay(&capture, WIDEBAND, &["--gain", "auto"]);
    let output = output_config(WIDEBAND);
    let samples = Samples::read(&capture, 10, 4096);
    let (step, window) = (
        output.spectrum_samples() as u64,
        output.window_samples() as u64,
    );
    let model = Model::new(&output, 0);
    let ones = [0, 1].map(|_| vec![Complex32::from(1.0); output.channels]);
    let source = |pol: usize, t: u64| samples.at(pol, t);
    let mut powers = [0, 1].map(|_| vec![0.0; output.channels]);
    let mut spectra = 0;
    for t in (samples.first().next_multiple_of(step)..samples.end()).step_by(step as usize) {
        if !(0..2).all(|pol| samples.present(pol, t, window)) {
            continue;
        }
        let spectrum = model.spectrum(&source, Timestamp(t), &Default::default(), &ones);
        for (powers, bins) in powers.iter_mut().zip(&spectrum) {
            powers
                .iter_mut()
                .zip(bins)
                .for_each(|(power, bin)| *power += bin.norm_sqr());
        }
        spectra += 1;
    }
    let made = &report["gains"][0];
    assert_eq!(made["spectra"], spectra);
    assert!((4000..10_000).contains(&spectra), "{spectra}");
    let rms = made["rms"].as_f64().unwrap();
    assert!((10.0..16.0).contains(&rms), "{rms}");
    let reach = 10_000u64.div_ceil(spectra) as usize / 2;
    for (pol, powers) in powers.iter().enumerate() {
        for (channel, gain) in gains(&report, pol).into_iter().enumerate() {
            let near = channel.saturating_sub(reach)..(channel + reach + 1).min(powers.len());
            let count = near.len() as f64 * spectra as f64;
            let power = powers[near].iter().sum::<f64>() / count;
            let expected = rms * (2.0 / power).sqrt();
            let off = 20.0 * (gain / expected).log10();
            assert!(off.abs() < 1e-3, "pol {pol}, channel {channel}: {off} dB");
        }
    }
}

#[test]
fn what_cannot_be_levelled_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let capture = data("tones-10bit.pcap");
    let (capture, out, requests) = (
        capture.to_str().unwrap(),
        path("out.pcap"),
        path("requests"),
    );
    let fails = |code, options: &[&str], words: &str| {
        let args = [
            "replay",
            capture,
            "-o",
            &out,
            "--wideband",
            WIDEBAND,
            "--quiet",
        ];
        let output = karoo(args.iter().chain(options));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(words), "{stderr}");
    };
    fails(2, &["--gain", "auto:127"], "must be less than the 127");
    fails(2, &["--gain", "loud"], "try auto");
    // More taps than the capture has samples for.
    let long = "name=v,channels=65536,dst=239.10.2.0,taps=64";
    fails(1, &["--gain", "auto", "--wideband", long], "give a number");

    // A digitiser of zeros has no level. What rounding leaves of the other is none either.
    let zeros = |name: &str, signals: &str| {
        let file = path(name);
        karoo_ok([
            "dsim",
            "--output",
            &file,
            "--samples",
            "131072",
            "--signals",
            signals,
        ]);
        let [out, sync] = ["/dev/null", "1763700000"];
        let args = [
            "replay",
            &file,
            "-o",
            out,
            "--wideband",
            WIDEBAND,
            "--sync-time",
            sync,
        ];
        karoo(args.iter().chain(&["--backend", "cpu", "--gain", "auto"]))
    };
    let both = zeros("both.pcap", "nodither(0);");
    let stderr = String::from_utf8_lossy(&both.stderr).into_owned();
    assert_eq!(both.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("samples") && stderr.contains("are 0"),
        "{stderr}"
    );
    let one = zeros("one.pcap", "nodither(0); wgn(0.1, 1);");
    let all = [&one.stdout[..], &one.stderr].concat();
    let all = String::from_utf8_lossy(&all).into_owned();
    assert!(one.status.success(), "{all}");
    for words in [
        "polarisation 0 has no power, and gains of 1",
        " clipped, no power\n",
    ] {
        assert!(all.contains(words), "{words}: {all}");
    }

    fs::write(&requests, "0 ?karoo-auto-gain w\n").unwrap();
    let report = path("report");
    let summary = karoo_ok([
        "replay",
        capture,
        "-o",
        &out,
        "--wideband",
        WIDEBAND,
        "--requests",
        &requests,
        "--report",
        &report,
    ]);
    let failed = "\n           line 1, at 0: !karoo-auto-gain fail ";
    assert!(summary.contains(failed), "{summary}");
    let report = fs::read_to_string(Path::new(&report).join("report.json")).unwrap();
    assert!(report.contains("--gain\\\\_auto"), "{report}");

    let engine = karoo([
        "fgpu",
        "--recv-interface",
        "x",
        "--send-interface",
        "x",
        "--adc-sample-rate",
        "1712M",
        "--sync-time",
        "1763700000",
        "--wideband",
        WIDEBAND,
        "--gain",
        "auto",
        "239.1.1.1:7148",
    ]);
    let stderr = String::from_utf8_lossy(&engine.stderr).into_owned();
    assert_eq!(engine.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("?karoo-auto-gain"), "{stderr}");
}
