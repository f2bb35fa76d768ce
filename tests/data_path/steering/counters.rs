//! What is lost, clipped and measured.

use std::collections::BTreeSet;

use ground::Timestamp;
use karoo::assembly::BackendKind;
use karoo::config::EngineConfig;
use karoo::engine::steer::{EngineEvent, PowerLevel, Received, Sent};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, Normal};

use super::value;
use crate::support::rig::{self, Feed, Outcome, backends, config, with_tone_gain};

/// Samples of normal noise; timestamps beyond repeat them.
fn noise(sigma: f64, samples: usize) -> Vec<[i32; 2]> {
    let mut random = StdRng::seed_from_u64(3);
    let normal = Normal::new(0.0, sigma).unwrap();
    let mut sample = || normal.sample(&mut random).round().clamp(-511.0, 511.0) as i32;
    (0..samples).map(|_| [sample(), sample()]).collect()
}

fn run(config: &EngineConfig, backend: BackendKind, feed: &Feed<'_>) -> Outcome {
    rig::run(config, backend, feed, |_| (), |_, _| ())
}

fn powers(outcome: &Outcome) -> Vec<PowerLevel> {
    let power = |event: &EngineEvent| match event {
        EngineEvent::Power(level) => Some(*level),
        _ => None,
    };
    outcome.events.iter().filter_map(power).collect()
}

/// Gaps remove exactly the batches whose windows they touch; all others are as without them.
#[test]
fn missing_heaps() {
    let noise = noise(100.0, 1 << 16);
    let samples = |pol: usize, t: u64| noise[t as usize % noise.len()][pol];
    for (channels, taps, chunk_heaps, chunks, gap) in [
        (64, 16, 32, 13, 5..7),
        (1024, 4, 64, 9, 5..7),
        (2048, 8, 128, 9, 5..7),
        (8192, 4, 2048, 4, 2..3),
    ] {
        let mut config = config(channels, taps, 32);
        config.gain = 0.2;
        config.recv.chunk_samples = chunk_heaps * 4096;
        // Windows of power have four batches.
        let batch = config.outputs[0].batch_samples() as u64;
        config.clock.adc_sample_rate = 4.0 * batch as f64;
        config.validate().unwrap();
        let chunk = chunk_heaps as u64;
        let lost = [
            (8, 10),
            (15, 16),
            (117, 133),
            (gap.start * chunk, gap.end * chunk),
        ];
        let present = |pol: usize, t: u64| {
            let heap = t / 4096;
            let lost = lost.iter().position(|(a, b)| (*a..*b).contains(&heap));
            // Whole chunks lose both polarisations, others one.
            !lost.is_some_and(|which| which == 3 || pol == which % 2)
        };
        let output = &config.outputs[0];
        let (spectrum, window) = (
            output.spectrum_samples() as i64,
            output.window_samples() as i64,
        );
        let mut dropped = BTreeSet::new();
        for (a, b) in lost {
            let first = ((a as i64 * 4096 - window + 1).div_euclid(spectrum)).max(0);
            let last = (b as i64 * 4096 - 1) / spectrum;
            dropped.extend((first / 32..=last / 32).map(|index| index as u64 * batch));
        }
        for backend in backends() {
            let mut feed = Feed::new(&samples, 0..chunks);
            let whole = run(&config, backend, &feed);
            feed.present = &present;
            let got = run(&config, backend, &feed);
            let mut expected = whole.batches[0].clone();
            let all = expected.len();
            expected.retain(|timestamp, _| !dropped.contains(timestamp));
            assert!(expected.len() < all);
            assert!(
                got.batches[0].keys().eq(expected.keys()),
                "{channels}: {:?} instead of {:?}",
                got.batches[0].keys(),
                expected.keys()
            );
            assert!(got.batches[0] == expected, "{channels}: other values");

            let gaps = [2 + 16, 1].map(|heaps| heaps + (gap.end - gap.start) * chunk);
            assert_eq!(got.input.missing_heaps(), gaps);
            let pols = got.input.pols();
            assert_eq!(
                [0, 1].map(|pol| pols[pol].heaps),
                gaps.map(|gap| chunks * chunk - gap)
            );
            assert_eq!(
                got.outputs[0].not_sent_heaps(),
                (all - expected.len()) as u64
            );
            // These are between the first batch sent and the last.
            let first = *expected.keys().next().unwrap();
            let later = whole.batches[0].range(first..).count();
            let skipped = got.outputs[0].skipped_heaps();
            assert_eq!(skipped, (later - expected.len()) as u64);

            // Each window is told once: its level if all its batches were sent, else that it is not
            // known.
            let level = |end: u64| powers(&whole).into_iter().find(|level| level.end.0 == end);
            let told = powers(&got);
            for level_of in &told {
                let end = level_of.end.0;
                let complete = (end - 4 * batch..end)
                    .step_by(batch as usize)
                    .all(|t| expected.contains_key(&t));
                assert_eq!(
                    level_of.dbfs.is_some(),
                    complete,
                    "{channels}, window to {end}"
                );
                if complete {
                    assert_eq!(Some(*level_of), level(end));
                }
            }
            for window in expected
                .keys()
                .map(|t| t / (4 * batch))
                .collect::<BTreeSet<_>>()
            {
                let end = (window + 1) * 4 * batch;
                let complete = (end - 4 * batch..end)
                    .step_by(batch as usize)
                    .all(|t| expected.contains_key(&t));
                let count = told.iter().filter(|level| level.end.0 == end).count();
                assert!(
                    count == 1 || count == 0 && !complete,
                    "{channels}, window to {end}"
                );
            }
        }
    }
}

/// Totals of what the digitiser clipped, with the ends of the chunks.
#[test]
fn digitiser_clip_counts() {
    let config = config(64, 4, 32);
    let chunk = config.recv.chunk_samples as u64;
    let samples = |_: usize, _: u64| 0;
    let saturated = |pol: usize, t: u64| match (pol, t / chunk) {
        (0, 2) if t.is_multiple_of(chunk) => 5000,
        (1, 4) => 10_000,
        _ => 0,
    };
    let feed = Feed {
        saturated: &saturated,
        ..Feed::new(&samples, 2..6)
    };
    let heaps = config.recv.chunk_heaps() as u64;
    let outcome = run(&config, BackendKind::Cpu, &feed);
    let told = outcome.events.iter().filter_map(|event| match event {
        EngineEvent::Received(received) => Some(*received),
        _ => None,
    });
    let expected = [
        [5000, 0],
        [5000, 0],
        [5000, 10_000 * heaps],
        [5000, 10_000 * heaps],
    ];
    let expected = (2..6).zip(expected).map(|(id, clipped_samples)| Received {
        start: Timestamp(id * chunk),
        end: Timestamp((id + 1) * chunk),
        clipped_samples,
        missing_heaps: [0, 0],
    });
    assert!(told.eq(expected));
}

/// A constant has the power that it has, and nothing has none.
#[test]
fn digitiser_power() {
    let mut config = config(256, 4, 32);
    let batch = config.outputs[0].batch_samples() as u64;
    config.clock.adc_sample_rate = 3.0 * batch as f64;
    let samples = |pol: usize, _: u64| if pol == 0 { 200 } else { 0 };
    for backend in backends() {
        let outcome = run(&config, backend, &Feed::new(&samples, 0..10));
        let levels = powers(&outcome);
        assert!(levels.len() >= 2);
        for (index, level) in levels.iter().enumerate() {
            assert_eq!(level.end.0, 3 * (index as u64 + 1) * batch);
            let [x, y] = level.dbfs.expect("nothing is missing");
            assert!((x / -5.137518132774 - 1.0).abs() < 1e-6, "{x}");
            assert_eq!(y, f64::MIN);
        }
    }
}

/// A tone at twice the full scale clips once per spectrum in its channel, and only in its
/// polarisation. Totals come with the end that a full chunk has.
#[test]
fn output_clip_counts() {
    let mut config = with_tone_gain(config(256, 16, 32), 400.0, 2.0 * 127.0);
    config.send.chunk_jones *= 3;
    config.validate().unwrap();
    let output = &config.outputs[0];
    let turn = std::f64::consts::TAU * 100.0 / 512.0;
    let samples = |pol: usize, t: u64| match pol {
        1 => (400.0 * (turn * (t % 512) as f64).cos()).round() as i32,
        _ => 0,
    };
    for backend in backends() {
        let outcome = run(&config, backend, &Feed::new(&samples, 0..10));
        let told = outcome.events.iter().filter_map(|event| match event {
            EngineEvent::Sent(sent) => Some(*sent),
            _ => None,
        });
        let mut spectra = 0;
        let (spectrum, window) = (512, 16 * 512);
        let expected = outcome.chunks[0].iter().map(|&(start, batches)| {
            spectra += 32 * batches as u64;
            Sent {
                output: 0,
                start: Timestamp(start),
                // The last spectrum's window begins a spectrum before its end.
                end: Timestamp(
                    start + (batches * output.batch_samples()) as u64 - spectrum + window,
                ),
                batches: batches as u64,
                nominal_end: Timestamp(start + 3 * output.batch_samples() as u64),
                clipped_samples: [0, spectra],
            }
        });
        assert!(told.eq(expected));
        let partial = outcome.chunks[0].last().unwrap().1;
        assert!(partial > 0 && spectra > 0);
        assert_eq!(outcome.outputs[0].clipped_samples(), [0, spectra]);
    }
}

/// White noise of a standard deviation σ per sample has σ in every channel with unit gain.
#[test]
fn incoherent_gain() {
    const SIGMA: f64 = 40.0;
    let config = config(256, 16, 32);
    let noise = noise(SIGMA, 1 << 20);
    let samples = |pol: usize, t: u64| noise[t as usize][pol];
    let chunks = noise.len() as u64 / config.recv.chunk_samples as u64;
    for backend in backends() {
        let outcome = run(&config, backend, &Feed::new(&samples, 0..chunks));
        for pol in 0..2 {
            let (mut sum, mut count) = (0.0, 0);
            for batch in outcome.batches[0].values() {
                for (k, s) in (1..256).flat_map(|k| (0..32).map(move |s| (k, s))) {
                    sum += value(&config.outputs[0], batch, k, s, pol).norm_sqr();
                    count += 1;
                }
            }
            let rms = (sum / f64::from(count)).sqrt();
            assert!(count > 200_000 && (rms / SIGMA - 1.0).abs() < 0.01, "{rms}");
        }
    }
}
