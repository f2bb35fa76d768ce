//! Tones through delays and phases.

use std::collections::BTreeMap;
use std::f64::consts::{FRAC_PI_2, PI, TAU};

use dsp::delay::{LinearDelay, wrap_angle};
use karoo::config::EngineConfig;
use karoo::engine::steer::{EngineEvent, Gains};
use num_complex::{Complex32, Complex64};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::value;
use crate::support::rig::{self, Feed, backends, config, with_tone_gain};

const CHANNELS: usize = 1024;
const TAPS: usize = 16;
const SPECTRA: usize = 32;

/// Cosine of `amplitude` at the centre of `channel`, `phase` at timestamp 0, delayed by −`early`
/// samples.
fn tone(amplitude: f64, channel: f64, phase: f64, early: f64) -> impl Fn(u64) -> f64 + Sync {
    let period = (2 * CHANNELS) as f64;
    move |t| {
        let t = (t % (1 << 30)) as f64 + early;
        amplitude * (TAU * (channel * t / period).fract() + phase).cos()
    }
}

fn model(start: i64, delay: f64, rate: f64, phase: f64, phase_rate: f64) -> LinearDelay {
    LinearDelay::new(start, delay, rate, phase, phase_rate).expect("valid model")
}

/// Every spectrum of every batch, with its timestamp.
fn spectra<'a>(
    config: &'a EngineConfig,
    batches: &'a BTreeMap<u64, Vec<i8>>,
) -> impl Iterator<Item = (u64, impl Fn(usize, usize) -> Complex64 + 'a)> {
    let output = &config.outputs[0];
    batches.iter().flat_map(move |(&start, batch)| {
        (0..output.spectra_per_heap()).map(move |s| {
            let t = start + (s * output.spectrum_samples()) as u64;
            (t, move |channel, pol| value(output, batch, channel, s, pol))
        })
    })
}

/// Two tones, one per polarisation, each delayed and turned back: nothing else comes out, when it
/// should.
#[test]
fn channel_centre_tones() {
    let magnitudes = [110.0, 80.0];
    let (channels, phases) = ([192, 271], [0.0, 1.23]);
    let amplitude = 450.0;
    let config = with_tone_gain(config(CHANNELS, TAPS, SPECTRA), amplitude, magnitudes[0]);
    let output = &config.outputs[0];
    let (batch, chunk) = (
        output.batch_samples() as i64,
        config.recv.chunk_samples as i64,
    );
    let (start, end) = (3 * chunk, 8 * chunk);
    let mut random = StdRng::seed_from_u64(1);
    let turns = [0; 2].map(|_| {
        (0..CHANNELS)
            .map(|_| random.random_range(-PI..PI))
            .collect::<Vec<f64>>()
    });
    for delays in [
        [0.0, 0.0],
        [8192.0, 234.5],
        [-42.0, 58.0],
        [42.4, 24.2],
        [42.7, 24.9],
        [42.8, 24.5],
    ] {
        let signals: Vec<_> = (0..2)
            .map(|pol| {
                let amplitude = amplitude * magnitudes[pol] / magnitudes[0];
                tone(amplitude, channels[pol] as f64, phases[pol], delays[pol])
            })
            .collect();
        let samples = |pol: usize, t| signals[pol](t).round() as i32;
        for backend in backends() {
            let feed = Feed::new(&samples, 3..8);
            let outcome = rig::run(
                &config,
                backend,
                &feed,
                |steering| {
                    let control = &steering.outputs()[0];
                    // What the delay turns the centre of the band by is turned back.
                    let models = delays.map(|delay| model(0, delay, 0.0, -FRAC_PI_2 * delay, 0.0));
                    control.set_delays(models).unwrap();
                    for (pol, turns) in turns.iter().enumerate() {
                        let gain = |turn: &f64| {
                            let gain = Complex64::from_polar(config.gain, *turn);
                            Complex32::new(gain.re as f32, gain.im as f32)
                        };
                        let gains: Vec<_> = turns.iter().map(gain).collect();
                        control
                            .set_gains(pol, Gains::new(CHANNELS, &gains).unwrap())
                            .unwrap();
                    }
                },
                |_, _| (),
            );
            let coarse = delays.map(|delay: f64| delay.round_ties_even() as i64);
            let union = batch - output.spectrum_samples() as i64 + output.window_samples() as i64;
            let expected: Vec<u64> = (0..end)
                .step_by(batch as usize)
                .filter(|t| {
                    coarse
                        .iter()
                        .all(|c| t - c >= start && t - c + union <= end)
                })
                .map(|t| t as u64)
                .collect();
            let late = coarse.iter().any(|&coarse| coarse > 0);
            assert_eq!(expected[0], (start + if late { batch } else { 0 }) as u64);
            assert_eq!(
                outcome.batches[0].keys().copied().collect::<Vec<_>>(),
                expected
            );
            for (t, value) in spectra(&config, &outcome.batches[0]) {
                for pol in 0..2 {
                    for (channel, turn) in turns[pol].iter().enumerate() {
                        let got = value(channel, pol);
                        if channel != channels[pol] {
                            assert!(
                                got.norm() <= 1.5,
                                "{delays:?}, {t}, channel {channel}: {got}"
                            );
                            continue;
                        }
                        assert!(
                            (got.norm() - magnitudes[pol]).abs() <= 3.0,
                            "{delays:?}, {t}: {got}"
                        );
                        let error = wrap_angle(got.arg() - phases[pol] - turn);
                        assert!(error.abs() <= 0.02, "{delays:?}, {t}, pol {pol}: {error}");
                    }
                }
            }
        }
    }
}

/// 128 tones across a channel: what leaks into channels that are not next to the tone stays below
/// −53 dB.
#[test]
fn spectral_leakage() {
    const TONES: u64 = 128;
    const CENTRE: f64 = 512.0;
    let amplitude = 500.0;
    // A hundred times full scale.
    let config = with_tone_gain(config(CHANNELS, TAPS, SPECTRA), amplitude, 12700.0);
    let output = &config.outputs[0];
    // A tone lasts for a batch and what its windows reach into.
    let segment = 2 * output.batch_samples() as u64;
    let channel = |tone: u64| CENTRE - 0.5 + tone as f64 / TONES as f64;
    let samples = |_: usize, t: u64| {
        let tone = t / segment % TONES;
        let turns = (channel(tone) * t as f64 / (2 * CHANNELS) as f64).fract();
        (amplitude * (TAU * turns).cos()).round() as i32
    };
    let chunks = TONES * segment / config.recv.chunk_samples as u64;
    for backend in backends() {
        let feed = Feed::new(&samples, 0..chunks + 1);
        let outcome = rig::run(&config, backend, &feed, |_| (), |_, _| ());
        for tone in 0..TONES {
            let batch = &outcome.batches[0][&(tone * segment)];
            for s in 0..SPECTRA {
                let there = value(output, batch, channel(tone).round() as usize, s, 0);
                assert!(
                    there.re.abs().max(there.im.abs()) >= 127.0,
                    "tone {tone}: {there}"
                );
                for k in (0..CHANNELS).filter(|&k| (k as f64 - channel(tone)).abs() >= 1.0) {
                    let leaked = value(output, batch, k, s, 0).norm() / 12700.0;
                    assert!(
                        20.0 * leaked.log10() < -53.0,
                        "tone {tone} in channel {k}: {leaked}"
                    );
                }
            }
        }
    }
}

/// Delay and phase that change all the time, also where timestamps have 47 bits, and where they
/// have more than 48.
#[test]
fn delay_and_phase_rates() {
    let amplitude = 240.0;
    let channels = [CHANNELS / 2, CHANNELS / 2 + 123];
    let phases = [0.3, -1.0];
    let signals = [0, 1].map(|i| tone(amplitude, channels[i] as f64, phases[i], 0.0));
    for (bits, scale) in [(10, 1.0), (12, 4.0)] {
        let samples = |_: usize, t| (scale * (signals[0](t) + signals[1](t))).round() as i32;
        let mut config = with_tone_gain(config(CHANNELS, TAPS, SPECTRA), scale * amplitude, 110.0);
        config.recv.sample_bits = dsp::SampleBits::new(bits).unwrap();
        let chunk = config.recv.chunk_samples as u64;
        for first in [5, 100_000_000_000_000 / chunk, (1 << 48) / chunk - 4] {
            let length = (8 * chunk) as f64;
            let start = (first * chunk) as i64;
            let rates = [(1e-5, 30.0 / length), (1.2e-5, 32.5 / length)];
            for backend in backends() {
                let feed = Feed::new(&samples, first..first + 9);
                let outcome = rig::run(
                    &config,
                    backend,
                    &feed,
                    |steering| {
                        let models = rates.map(|(rate, turn)| model(start, 0.0, rate, 0.0, turn));
                        steering.outputs()[0].set_delays(models).unwrap();
                    },
                    |_, _| (),
                );
                assert!(outcome.batches[0].len() >= 7);
                for (t, value) in spectra(&config, &outcome.batches[0]) {
                    let since = (t as i64 - start) as f64;
                    for (pol, (rate, turn)) in rates.into_iter().enumerate() {
                        for (channel, phase) in channels.into_iter().zip(phases) {
                            let offset =
                                (channel as f64 - CHANNELS as f64 / 2.0) / (2 * CHANNELS) as f64;
                            let expected = phase + since * turn - TAU * offset * since * rate;
                            let error = wrap_angle(value(channel, pol).arg() - expected);
                            assert!(
                                error.abs() <= 4.0 * 0.5f64.powi(8),
                                "{t}, {channel}: {error}"
                            );
                        }
                    }
                }
            }
        }
    }
}

/// Models that begin at odd times apply to exactly the spectra from there on, and are told when
/// they do.
#[test]
fn delay_changes_apply_to_exactly_the_right_spectra() {
    let loads = [
        (0, 1.0),
        (123_456, 0.2),
        (400_000, -0.2),
        (1_234_567, -2.0),
        (99_999_999, 3.0),
    ];
    let models = loads.map(|(start, phase)| model(start, 0.0, 0.0, phase, 0.0));
    let config = with_tone_gain(config(CHANNELS, TAPS, SPECTRA), 450.0, 110.0);
    let signal = tone(450.0, (CHANNELS / 2) as f64, 0.0, 0.0);
    let samples = |_: usize, t| signal(t).round() as i32;
    for backend in backends() {
        let feed = Feed::new(&samples, 0..24);
        let outcome = rig::run(
            &config,
            backend,
            &feed,
            |steering| {
                for model in models {
                    steering.outputs()[0]
                        .set_delays([LinearDelay::ZERO, model])
                        .unwrap();
                }
            },
            |_, _| (),
        );
        let mut seen = [0; 5];
        for (t, value) in spectra(&config, &outcome.batches[0]) {
            let now = loads
                .iter()
                .rposition(|(start, _)| *start <= t as i64)
                .unwrap();
            seen[now] += 1;
            let got = value(CHANNELS / 2, 1).arg();
            assert!((got - loads[now].1).abs() <= 0.02, "{t}: {got}");
            assert!(value(CHANNELS / 2, 0).arg().abs() <= 0.02);
        }
        assert!(seen[..4].iter().all(|&seen| seen > 0), "{seen:?}");
        let told = outcome.events.iter().filter_map(|event| match event {
            EngineEvent::Delay(delay) if delay.pol == 1 => Some(delay.model),
            _ => None,
        });
        assert_eq!(told.collect::<Vec<_>>(), models[..4]);
    }
}

/// The same signal twice, one delayed: the phase between them is a line through the centre of the
/// band.
#[test]
fn delay_slope() {
    let mut random = StdRng::seed_from_u64(2);
    let mut channels: Vec<usize> = (0..9).map(|_| random.random_range(1..CHANNELS)).collect();
    channels.push(CHANNELS / 2);
    let signals: Vec<_> = channels
        .iter()
        .map(|&channel| tone(45.0, channel as f64, random.random_range(-PI..PI), 0.0))
        .collect();
    let samples = |_: usize, t| signals.iter().map(|signal| signal(t)).sum::<f64>().round() as i32;
    let config = with_tone_gain(config(CHANNELS, TAPS, SPECTRA), 45.0, 80.0);
    for delay in [0.0, 8192.0, 234.5, 42.8] {
        for backend in backends() {
            let feed = Feed::new(&samples, 0..4);
            let outcome = rig::run(
                &config,
                backend,
                &feed,
                |steering| {
                    let models = [model(0, 0.0, 0.0, 0.0, 0.0), model(0, delay, 0.0, 0.0, 0.0)];
                    steering.outputs()[0].set_delays(models).unwrap();
                },
                |_, _| (),
            );
            assert!(!outcome.batches[0].is_empty());
            for (t, value) in spectra(&config, &outcome.batches[0]) {
                for &channel in &channels {
                    let offset = channel as f64 - CHANNELS as f64 / 2.0;
                    let expected = -PI * offset * delay / CHANNELS as f64;
                    let between = value(channel, 1).arg() - value(channel, 0).arg();
                    let error = wrap_angle(between - expected);
                    assert!(
                        error.abs() <= 0.04,
                        "{delay}, {t}, channel {channel}: {error}"
                    );
                }
            }
        }
    }
}
