//! Requests at their times.

use std::collections::BTreeMap;

use dpdk::Eal;
use dsp::delay::{DelayModels, LinearDelay};
use ground::Timestamp;
use karoo::assembly::BackendKind;
use karoo::config::EngineConfig;
use karoo::engine::steer::{ControlHandle, EngineEvent, Gains};
use karoo::model::Model;
use num_complex::{Complex32, Complex64};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::value;
use crate::support::rig::{self, Feed, Outcome, backends, config, with_chunks, with_tone_gain};

const CHANNELS: usize = 64;

/// Something to ask for, and when.
#[derive(Clone, Debug)]
enum Asked {
    Gains(usize, Gains),
    AllGains(Gains),
    Delays([LinearDelay; 2]),
}

/// `count` requests at random times in a range, in order.
fn requests(seed: u64, count: usize, range: std::ops::Range<u64>) -> Vec<(u64, Asked)> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut times: Vec<u64> = (0..count)
        .map(|_| random.random_range(range.clone()))
        .collect();
    times.sort();
    let mut asked = |at: u64| {
        let mut gain = |_| {
            let gain = Complex64::from_polar(
                random.random_range(0.1..0.4),
                random.random_range(-3.0..3.0),
            );
            Complex32::new(gain.re as f32, gain.im as f32)
        };
        let gains: Vec<_> = (0..CHANNELS).map(&mut gain).collect();
        match random.random_range(0..4) {
            0 => Asked::AllGains(Gains::new(CHANNELS, &gains).unwrap()),
            1 => Asked::Gains(
                random.random_range(0..2),
                Gains::new(CHANNELS, &gains[..1]).unwrap(),
            ),
            _ => {
                // Some begin later, some began before; all within what the input's tail allows.
                let start = at as i64 + random.random_range(-20_000..20_000);
                Asked::Delays([0; 2].map(|_| {
                    let (delay, rate) = (
                        random.random_range(-500.0..500.0),
                        random.random_range(-1e-3..1e-3),
                    );
                    let (phase, turn) = (
                        random.random_range(-3.0..3.0),
                        random.random_range(-1e-4..1e-4),
                    );
                    LinearDelay::new(start.max(0), delay, rate, phase, turn).unwrap()
                }))
            }
        }
    };
    times.into_iter().map(|at| (at, asked(at))).collect()
}

fn ask(steering: &ControlHandle, requests: &[(u64, Asked)]) {
    for (at, asked) in requests {
        let steering = steering.at(Timestamp(*at));
        let output = &steering.outputs()[0];
        let effective = match asked.clone() {
            Asked::Gains(pol, gains) => output.set_gains(pol, gains),
            Asked::AllGains(gains) => output.set_all_gains(gains),
            Asked::Delays(models) => output.set_delays(models),
        };
        assert_eq!(effective, Ok(Timestamp(*at)));
    }
}

/// Holds every batch against the model with the gains asked for up to its start, and the delays up
/// to each spectrum.
fn check(
    config: &EngineConfig,
    samples: impl Fn(usize, u64) -> i32,
    requests: &[(u64, Asked)],
    batches: &BTreeMap<u64, Vec<i8>>,
) {
    let output = &config.outputs[0];
    let model = Model::new(output, config.feng_id);
    let mut gains = [0; 2].map(|_| vec![Complex32::from(config.gain as f32); CHANNELS]);
    let mut delays = [0; 2].map(|_| DelayModels::new());
    let (mut gains_done, mut delays_done) = (0, 0);
    let (mut exact, mut all) = (0u64, 0u64);
    for (&start, batch) in batches {
        while let Some((_, asked)) = requests.get(gains_done).filter(|(at, _)| *at <= start) {
            match asked {
                Asked::Gains(pol, new) => gains[*pol] = new.each().to_vec(),
                Asked::AllGains(new) => gains = [0; 2].map(|_| new.each().to_vec()),
                Asked::Delays(_) => {}
            }
            gains_done += 1;
        }
        for s in 0..output.spectra_per_heap() {
            let t = Timestamp(start + (s * output.spectrum_samples()) as u64);
            while let Some((_, asked)) = requests.get(delays_done).filter(|(at, _)| *at <= t.0) {
                if let Asked::Delays(models) = asked {
                    (0..2).for_each(|pol| {
                        delays[pol].add(models[pol]);
                    });
                }
                delays_done += 1;
            }
            let spectrum = model.spectrum(&samples, t, &delays, &gains);
            for (k, pol) in (0..CHANNELS).flat_map(|k| [(k, 0), (k, 1)]) {
                let (got, want) = (value(output, batch, k, s, pol), spectrum[pol][k]);
                for (got, want) in [(got.re, want.re), (got.im, want.im)] {
                    let want = want.clamp(-127.0, 127.0);
                    assert!(
                        (got - want).abs() <= 0.51,
                        "{t}, channel {k}, pol {pol}: {got}, {want}"
                    );
                    exact += u64::from(got == want.round_ties_even());
                    all += 1;
                }
            }
        }
    }
    assert!(
        all > 0 && exact as f64 > 0.98 * all as f64,
        "{exact} of {all}"
    );
}

pub fn noise(pol: usize, t: u64) -> i32 {
    let mut h = (t as u32)
        .wrapping_mul(2 + pol as u32)
        .wrapping_add(pol as u32);
    for multiplier in [2_246_822_519, 3_266_489_917] {
        h = (h ^ (h >> 15)).wrapping_mul(multiplier);
    }
    (h >> 22) as i32 - 512
}

fn run(
    config: &EngineConfig,
    backend: BackendKind,
    requests: &[(u64, Asked)],
    samples: u64,
) -> Outcome {
    let chunk = config.recv.chunk_samples as u64;
    let feed = Feed::new(&noise, 0..samples / chunk);
    rig::run(
        config,
        backend,
        &feed,
        |steering| ask(steering, requests),
        |_, _| (),
    )
}

/// Requests at timestamps apply there, on any backend and however large chunks are.
#[test]
fn timed_requests_do_not_depend_on_chunks() {
    let config = config(CHANNELS, 4, 32);
    let samples = 30 * config.recv.chunk_samples as u64;
    let requests = requests(7, 80, 0..samples + samples / 20);
    let reference = run(&config, BackendKind::Cpu, &requests, samples);
    let batches = &reference.batches[0];
    // None is lost but those that the delays lack input for at the ends.
    let first = *batches.keys().next().unwrap();
    let batch = config.outputs[0].batch_samples() as u64;
    assert!(
        batches
            .keys()
            .copied()
            .eq((0..batches.len() as u64).map(|i| first + i * batch))
    );
    assert!(first <= batch && batches.len() as u64 + 3 >= samples / batch);
    check(&config, noise, &requests, batches);
    for (input, output) in [(2, 1), (1, 4), (5, 7), (3, 64)] {
        let other = run(
            &with_chunks(&config, input, output),
            BackendKind::Cpu,
            &requests,
            samples,
        );
        assert!(
            other.batches[0] == *batches,
            "chunks of {input} and {output}"
        );
    }
    for backend in backends()
        .into_iter()
        .filter(|&backend| backend != BackendKind::Cpu)
    {
        let other = run(&with_chunks(&config, 2, 8), backend, &requests, samples);
        assert!(other.batches[0].keys().eq(batches.keys()));
        check(&config, noise, &requests, &other.batches[0]);
    }
}

/// Thousands of requests in one run, many per output chunk: each in effect at its time, no batch
/// lost.
#[test]
fn thousands_of_requests_lose_nothing() {
    const REQUESTS: usize = 4000;
    let config = with_chunks(&config(CHANNELS, 4, 32), 1, 8);
    let samples = 60 * config.recv.chunk_samples as u64;
    let requests = requests(8, REQUESTS, 0..samples - samples / 20);
    for backend in backends() {
        let outcome = run(&config, backend, &requests, samples);
        let batch = config.outputs[0].batch_samples() as u64;
        assert!(outcome.batches[0].len() as u64 + 3 >= samples / batch);
        assert_eq!(outcome.outputs[0].not_sent_heaps(), 0);
        check(&config, noise, &requests, &outcome.batches[0]);
        assert_eq!(outcome.requests.changes, REQUESTS as u64);
        let stalls = &outcome.requests.stalls;
        assert!(stalls.len() > REQUESTS as u64 / 2);
        let clock = Eal::for_tests().tsc_clock();
        for quantile in [0.5, 0.9, 0.99, 0.999, 1.0] {
            let micros = clock.seconds(stalls.value_at_quantile(quantile)) * 1e6;
            println!(
                "{backend:?}: {quantile} of {} stalls, {micros:.1} µs",
                stalls.len()
            );
        }
    }
}

/// What is asked while data flows is in effect from the timestamp that was answered on, and not
/// from the start.
#[test]
fn answers_hold_from_the_steady_state_timestamp_on() {
    let config = with_tone_gain(config(256, 4, 32), 400.0, 100.0);
    let turn = std::f64::consts::TAU * 128.0 / 512.0;
    let samples = |_: usize, t: u64| (400.0 * (turn * (t % 512) as f64).cos()).round() as i32;
    let phase = LinearDelay::new(0, 0.0, 0.0, 3.0, 0.0).unwrap();
    for backend in backends() {
        for (input, output) in [(1, 1), (1, 3)] {
            let config = with_chunks(&config, input, output);
            for gains in [true, false] {
                let mut answer = None;
                let feed = Feed::new(&samples, 0..40);
                let outcome = rig::run(
                    &config,
                    backend,
                    &feed,
                    |_| (),
                    |steering, event| {
                        if !matches!(event, EngineEvent::Sent(_)) {
                            return;
                        }
                        answer.get_or_insert_with(|| {
                            let control = &steering.outputs()[0];
                            let zero = Gains::uniform(256, Complex32::default());
                            let answer = match gains {
                                true => control.set_all_gains(zero),
                                false => control.set_delays([phase; 2]),
                            };
                            assert_eq!(steering.steady_state(), answer.clone().unwrap());
                            answer.unwrap().0
                        });
                    },
                );
                let answer = answer.expect("chunks");
                assert_eq!(outcome.requests.changes, 1);
                let centre = |batch: &Vec<i8>, s| value(&config.outputs[0], batch, 128, s, 0);
                let new = |got: Complex64| match gains {
                    true => got.norm() == 0.0,
                    false => (got.arg() - 3.0).abs() < 0.1,
                };
                let batches = &outcome.batches[0];
                assert!(!new(centre(batches.values().next().unwrap(), 0)));
                assert!(
                    batches.range(answer..).count() > 0,
                    "all was over at {answer}"
                );
                for (t, batch) in batches.range(answer..) {
                    assert!(
                        (0..32).all(|s| new(centre(batch, s))),
                        "{t}, answered {answer}"
                    );
                }
            }
        }
    }
}

/// Delays of one polarisation that ask for what was before the beginning of time, or will be after
/// its end, give no output and do no harm.
#[test]
fn absurd_delays_give_no_output() {
    let mut config = config(CHANNELS, 4, 32);
    config.gain = 0.2;
    let samples = 12 * config.recv.chunk_samples as u64;
    let batch = config.outputs[0].batch_samples() as u64;
    let (absurd_from, sane_from) = (9 * batch, 20 * batch);
    for (delay, rate) in [
        (1e18, 0.0),
        (1e300, 0.99),
        (0.0, -1e300),
        (-1e18, 0.0),
        (-1e300, -1e300),
    ] {
        let model = |delay, rate| {
            let model = LinearDelay::new(0, delay, rate, 0.0, 0.0).unwrap();
            Asked::Delays([model, LinearDelay::ZERO])
        };
        let requests = [
            (absurd_from, model(delay, rate)),
            (sane_from, model(0.0, 0.0)),
        ];
        let batches = &run(&config, BackendKind::Cpu, &requests, samples).batches[0];
        assert_eq!(batches.range(..absurd_from).count(), 9);
        assert_eq!(batches.range(absurd_from..sane_from).count(), 0);
        // The other polarisation's input goes by meanwhile, so that the output gets to the later
        // request.
        assert!(batches.range(sane_from..).count() > 0, "{delay}");
        check(
            &config,
            noise,
            &requests[..0],
            &batches
                .range(..absurd_from)
                .map(|(t, b)| (*t, b.clone()))
                .collect(),
        );
    }
}
