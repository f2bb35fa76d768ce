//! What statistics are used for: gains that level, unusual channels, and known values.

use std::f64::consts::TAU;
use std::sync::{Arc, Mutex, OnceLock};

use ground::Timestamp;
use karoo::assembly::BackendKind;
use karoo::config::EngineConfig;
use karoo::control::fgpu::interpret;
use karoo::engine::steer::{ControlHandle, EngineEvent};
use karoo::engine::{OutputStatistics, TestPattern};
use karoo::recv::OPEN_CHUNKS;
use katcp::{Message, Response};

use crate::support::rig::{self, Feed, backends, config, with_chunks};

/// Replies to a request.
fn ask(config: &EngineConfig, steering: &ControlHandle, line: &str) -> String {
    let request = Message::parse(line.as_bytes()).unwrap().unwrap();
    let mut response = Response::to(&request);
    let action = interpret(config.clock, steering, &request).unwrap();
    action.perform(steering, &mut response).unwrap();
    String::from_utf8(response.finish(Ok(()))).unwrap()
}

/// White noise, about Gaussian, with a variance of 1: the sum of twelve uniform numbers.
fn noise(pol: usize, t: u64) -> f64 {
    let uniform = |n: u64| {
        // SplitMix64 of a counter.
        let mut x = (n ^ (pol as u64) << 60).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ x >> 31
    };
    let mut sum = 0;
    for i in 0..3 {
        let word = uniform(3 * t + i);
        sum += (word & 0xFFFF) + (word >> 16 & 0xFFFF) + (word >> 32 & 0xFFFF) + (word >> 48);
    }
    sum as f64 / 65536.0 - 6.0
}

/// All periods of statistics of a run over these samples, each of which is `seen`: the samples of
/// the next period wait for it.
fn periods(
    config: &EngineConfig,
    backend: BackendKind,
    samples: &(dyn Fn(usize, u64) -> i32 + Sync),
    chunks: u64,
    seen: impl FnMut(&ControlHandle) + Send,
) -> Vec<Arc<OutputStatistics>> {
    // What completes a period, behind which the receiver keeps chunks open.
    let (period, chunk) = (
        config.statistics_samples().unwrap(),
        config.recv.chunk_samples,
    );
    let batches = config.send.chunk_jones / config.outputs[0].jones_per_batch;
    let of_output = (batches * config.outputs[0].batch_samples()) as u64;
    let needed = period.next_multiple_of(of_output) + config.tail_samples() as u64;
    assert!(needed + (chunk as u64) < 2 * period);
    let lead = needed + (OPEN_CHUNKS * chunk) as u64;
    let steered = OnceLock::<ControlHandle>::new();
    let all = Mutex::new((Vec::<Arc<OutputStatistics>>::new(), seen));
    let collect = || {
        let (all, seen) = &mut *all.lock().unwrap();
        let last = all.last().map_or(0, |of| of.end.0);
        let steering = steered.get().unwrap();
        let latest = steering.outputs()[0].statistics();
        latest
            .filter(|latest| latest.end.0 > last)
            .map_or(last, |latest| {
                seen(steering);
                all.push(latest.clone());
                latest.end.0
            })
    };
    let feed = Feed {
        waits: &|first| first >= collect() + lead,
        ..Feed::new(samples, 0..chunks)
    };
    let steer = |steering: &ControlHandle| steered.set(steering.clone()).unwrap();
    rig::run(config, backend, &feed, steer, |_, _| ());
    collect();
    all.into_inner().unwrap().0
}

/// Noise that is 20 dB stronger at one end of the band than at the other, in different directions,
/// comes to be flat.
#[test]
fn auto_gain_levels_coloured_noise() {
    const SPECTRA: u64 = 80_000;
    let coloured = |pol: usize, t: u64| {
        let slope = [0.82, -0.82][pol];
        (40.0 * (noise(pol, t + 1) + slope * noise(pol, t))).round() as i32
    };
    for backend in backends() {
        let mut config = with_chunks(&config(64, 4, 256), 4, 4);
        let period = SPECTRA * config.outputs[0].spectrum_samples() as u64;
        config.statistics_period = period as f64 / config.clock.adc_sample_rate;
        config.gain = 0.01;
        let chunks = 5 * period / 2 / config.recv.chunk_samples as u64;
        let mut reply = None;
        let mut levelled = Vec::new();
        let periods = periods(&config, backend, &coloured, chunks, |steering| {
            let output = &steering.outputs()[0];
            if reply.is_none() {
                reply = Some(ask(&config, steering, "?karoo-auto-gain wideband 12"));
            } else if reply.is_some() {
                levelled.extend(output.statistics_with_gains());
            }
        });
        let reply = reply.unwrap();
        assert!(
            reply.starts_with("!karoo-auto-gain ok 12.0 0.99"),
            "{reply}"
        );
        let spread = |of: &OutputStatistics, pol: usize| {
            let powers: Vec<_> = of.powers(pol).collect();
            let (first, last) = (powers[1], powers[63]);
            10.0 * (first / last).log10()
        };
        assert!(spread(&periods[0], 0) > 15.0 && spread(&periods[0], 1) < -15.0);
        let best = levelled.iter().max_by_key(|of| of.spectra).unwrap();
        for pol in 0..2 {
            for (channel, power) in best.powers(pol).enumerate() {
                let level = 10.0 * (0.5 * power / (12.0 * 12.0)).log10();
                let what = format!("{backend:?}, channel {channel}: {level:.3} dB");
                assert!(level.abs() < 0.1, "{what}, {} spectra", best.spectra);
            }
        }
    }
}

/// Of noise as many channels are flagged as theory says; a steady tone and pulses are.
#[test]
fn kurtosis_flags_what_is_not_noise() {
    const CHANNELS: usize = 512;
    const TONE: usize = 200;
    let step = 2 * CHANNELS as u64;
    let quiet = |pol: usize, t: u64| (30.0 * noise(pol, t)).round() as i32;
    // Polarisation 1 has a burst in one spectrum of 40.
    let loud = move |pol: usize, t: u64| {
        let turn = TAU * (TONE as f64 / step as f64 * t as f64).fract();
        let burst = if pol == 1 && t / step % 40 == 7 {
            6.0
        } else {
            1.0
        };
        (30.0 * burst * noise(pol, t) + 12.0 * turn.cos()).round() as i32
    };
    for backend in backends() {
        let mut config = with_chunks(&config(CHANNELS, 8, 64), 2, 2);
        config.gain = 0.05;
        // Two output chunks, of which a GPU sums the first.
        let period = 256 * step;
        config.statistics_period = period as f64 / config.clock.adc_sample_rate;
        let chunks = |periods: u64| periods * period / config.recv.chunk_samples as u64;
        let flagged =
            |of: &OutputStatistics, pol: usize| of.kurtosis_flags(pol, &config.outputs[0]).unwrap();
        let (mut count, mut of) = (0, 0);
        for statistics in periods(&config, backend, &quiet, chunks(100), |_| ()) {
            for pol in 0..2 {
                let flags = flagged(&statistics, pol);
                count += flags.channels.len();
                of += flags.looked_at;
            }
        }
        let expected = 2.0 * dsp::kurtosis::THREE_SIGMA * of as f64;
        let rate = count as f64 / expected;
        assert!(
            expected > 200.0 && (rate - 1.0).abs() < 0.1,
            "{rate}: {count} of {of}"
        );

        let found = periods(&config, backend, &loud, chunks(12), |_| ());
        assert!(found.len() > 4);
        for statistics in &found[1..found.len() - 1] {
            let flags = flagged(statistics, 0);
            assert!(flags.channels.contains(&TONE), "{flags:?}");
            assert!(flags.channels.len() < CHANNELS / 20, "{flags:?}");
            let flags = flagged(statistics, 1);
            assert!(flags.channels.len() > CHANNELS * 9 / 10, "{flags:?}");
        }
    }
}

/// White noise of variance σ² has g²·σ²·Σw² in a channel (docs/signal-path.md): with the filter
/// bank's gain, the power of all channels is that of the digitiser's samples.
#[test]
fn the_sum_over_channels_is_the_digitisers_power() {
    const SPECTRA: u64 = 16_384;
    let samples = |pol: usize, t: u64| ([30.0, 55.0][pol] * noise(pol, t)).round() as i32;
    for backend in backends() {
        let mut config = with_chunks(&config(64, 4, 256), 4, 4);
        config.gain = 0.02;
        let output = config.outputs[0].clone();
        let (step, window) = (output.spectrum_samples(), output.window_function);
        let period = SPECTRA * step as u64;
        config.statistics_period = period as f64 / config.clock.adc_sample_rate;
        let weights = dsp::pfb::weights(step, output.taps, output.w_cutoff, window);
        let squares = weights.iter().map(|&w| f64::from(w).powi(2));
        let gain = config.gain.powi(2) * squares.sum::<f64>();
        let chunks = 5 * period / 2 / config.recv.chunk_samples as u64;
        let periods = periods(&config, backend, &samples, chunks, |_| ());
        assert!(!periods.is_empty());
        for statistics in &periods {
            for pol in 0..2 {
                let span = statistics.start.0..statistics.end.0;
                let count = (span.end - span.start) as f64;
                let squares = span.map(|t| f64::from(samples(pol, t)).powi(2));
                let variance = squares.sum::<f64>() / count;
                let ratio = statistics.mean_power(pol) / (gain * variance);
                let spectra = statistics.spectra;
                let what = format!("{backend:?}, {pol}: {ratio} over {spectra} spectra");
                // A GPU adds one chunk in eight: 2048 spectra of 64 numbers.
                assert!((ratio - 1.0).abs() < 0.01, "{what}");
            }
        }
    }
}

/// A pattern is sent from the batch at its time on, for as long as it was asked for; what is before
/// and behind is what it would have been.
#[test]
fn a_test_takes_the_place_of_spectra() {
    let samples = |pol: usize, t: u64| (60.0 * noise(pol, t)).round() as i32;
    for backend in backends() {
        let config = with_chunks(&config(64, 4, 32), 2, 1);
        let output = &config.outputs[0];
        let batch = output.batch_samples() as u64;
        let feed = Feed::new(&samples, 0..20);
        let plain = rig::run(&config, backend, &feed, |_| (), |_, _| ());
        let from = 5 * batch;
        let seconds = 3.0 * batch as f64 / config.clock.adc_sample_rate;
        let asked = rig::run(
            &config,
            backend,
            &feed,
            |steering| {
                let line = format!("?karoo-test wideband ramp {seconds}");
                ask(&config, &steering.at(Timestamp(from - 1)), &line);
            },
            |_, _| (),
        );
        let (plain, told) = (&plain.batches[0], &asked.batches[0]);
        assert!(plain.len() > 12 && plain.keys().eq(told.keys()));
        let spectra = output.spectra_per_heap();
        for (&timestamp, bytes) in told {
            if !(from..from + 3 * batch).contains(&timestamp) {
                assert_eq!(bytes, &plain[&timestamp], "{timestamp}");
                continue;
            }
            for (i, value) in bytes.chunks_exact(4).enumerate() {
                let spectrum = timestamp / output.spectrum_samples() as u64 + (i % spectra) as u64;
                let expected =
                    TestPattern::Ramp.jones(output.sample_bits, 42, i / spectra, spectrum);
                assert_eq!(value, expected, "{timestamp}, {i}");
            }
        }
        let changes = asked.events.iter().filter_map(|event| match event {
            EngineEvent::Test(change) => Some((change.from.0, change.pattern)),
            _ => None,
        });
        let expected = [(from, Some(TestPattern::Ramp)), (from + 3 * batch, None)];
        assert_eq!(changes.collect::<Vec<_>>(), expected);
    }
}
