//! The CPU backend against a direct computation in `f64`, and against itself cut differently.

use std::f64::consts::PI;
use std::sync::Arc;

use dsp::{Dither, SampleBits};
use ground::Timestamp;
use karoo::config::{OutputConfig, PipelineConfig, WidebandOptions};
use karoo::cpu::simd::{self, Bins, Supported};
use karoo::cpu::{CpuChanneliser, Level, Workers};
use karoo::engine::steer::Gains;
use karoo::engine::{Block, FineDelay, Pipeline};
use karoo::memory::{BatchStats, SampleView};
use karoo::model::Model;
use karoo_fft::forward_f64;
use num_complex::{Complex32, Complex64};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::support::{contents, output, output_chunk, view};

const BITS: u32 = 10;

/// Prototype filter of the filter bank.
fn weights(step: usize, taps: usize) -> Vec<f64> {
    let n = step * taps;
    let value = |i: usize| {
        let z = (i as f64 + 0.5) / step as f64 - taps as f64 / 2.0;
        let sinc = if z == 0.0 {
            1.0
        } else {
            (PI * z).sin() / (PI * z)
        };
        (PI * i as f64 / (n - 1) as f64).sin().powi(2) * sinc
    };
    let w: Vec<f64> = (0..n).map(value).collect();
    let norm = w.iter().map(|w| w * w).sum::<f64>().sqrt();
    w.into_iter()
        .map(|w| f64::from((w / norm) as f32))
        .collect()
}

struct Signal {
    samples: [Vec<i64>; 2],
    packed: [Vec<u8>; 2],
}

impl Signal {
    fn noise(count: usize, amplitude: i64, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let samples: [Vec<i64>; 2] = std::array::from_fn(|_| {
            (0..count)
                .map(|_| rng.random_range(-amplitude..=amplitude))
                .collect()
        });
        let packed = samples
            .each_ref()
            .map(|samples| crate::support::packed(samples.iter().map(|&x| x as i32), BITS));
        Self { samples, packed }
    }

    fn view(&self) -> SampleView<'_> {
        view(Timestamp(0), self.samples[0].len(), &self.packed)
    }
}

/// A chunk's blocks: lengths, with the coarse offsets of each.
struct Plan {
    batches: usize,
    offset: [usize; 2],
    fine: Vec<FineDelay>,
}

impl Plan {
    /// `changing`: a new delay and phase for every spectrum.
    fn new(config: &OutputConfig, batches: usize, offset: [usize; 2], changing: bool) -> Self {
        let fine = |s: usize| {
            let t = if changing { s as f32 } else { 0.0 };
            FineDelay {
                delay: [0.37 - 0.01 * t, -0.21 + 0.002 * t],
                phase: [1.1 + 0.02 * t, -2.9 + 0.05 * t],
            }
        };
        Self {
            batches,
            offset,
            fine: (0..batches * config.spectra_per_heap()).map(fine).collect(),
        }
    }
}

/// Runs one chunk in blocks that end at `cuts`.
fn run(
    config: &OutputConfig,
    pipeline: &mut CpuChanneliser,
    signal: &Signal,
    plan: &Plan,
    cuts: &[usize],
) -> (Vec<u8>, Vec<BatchStats>) {
    let mut chunk = output_chunk(config, plan.batches, Timestamp(1 << 33));
    let mut first = 0;
    for &end in cuts.iter().chain([&plan.fine.len()]) {
        let skip = first * config.spectrum_samples();
        let block = Block {
            first,
            offset: plan.offset.map(|o| o + skip),
            fine: &plan.fine[first..end],
            absent: &[],
        };
        pipeline
            .run_frontend(&signal.view(), &block, &mut chunk.writer().span())
            .unwrap();
        first = end;
    }
    pipeline.finish_chunk(plan.batches, chunk).unwrap();
    contents(&pipeline.poll_finished().unwrap().unwrap())
}

fn pipeline(config: &OutputConfig, workers: usize, level: Level, gain: f64) -> CpuChanneliser {
    let workers = Arc::new(Workers::unpinned(workers).unwrap());
    CpuChanneliser::with_level(
        &PipelineConfig {
            output: config,
            sample_bits: SampleBits::new(BITS).unwrap(),
            feng_id: 3,
            gain,
            statistics: false,
        },
        workers,
        level,
    )
}

/// Spectra before quantisation.
fn model(
    config: &OutputConfig,
    signal: &Signal,
    plan: &Plan,
    gains: &[Vec<Complex32>; 2],
) -> [Vec<Vec<Complex64>>; 2] {
    let (c, step) = (config.channels, config.spectrum_samples());
    let w = weights(step, config.taps);
    let fft = forward_f64(step);
    std::array::from_fn(|p| {
        let spectrum = |(s, fine): (usize, &FineDelay)| {
            let x = &signal.samples[p][plan.offset[p] + s * step..];
            let mut y: Vec<Complex64> = (0..step)
                .map(|q| {
                    (0..config.taps)
                        .map(|j| w[j * step + q] * x[j * step + q] as f64)
                        .sum::<f64>()
                        .into()
                })
                .collect();
            fft.process(&mut y);
            let value = |k: usize| {
                let angle = f64::from(fine.phase[p])
                    - PI * f64::from(fine.delay[p]) / c as f64 * (k as f64 - c as f64 / 2.0);
                let g = gains[p][k];
                y[k] * Complex64::cis(angle) * Complex64::new(g.re.into(), g.im.into())
            };
            (0..c).map(value).collect()
        };
        plan.fine.iter().enumerate().map(spectrum).collect()
    })
}

/// Gains of each channel.
fn each(gains: &[Complex32]) -> Gains {
    Gains::new(gains.len(), gains).unwrap()
}

/// The same dither as the golden model: bytes differ only where the sum is a rounding error from a
/// tie.
#[test]
fn dithers_like_the_model() {
    let config = output(64, 4, 32, Dither::Uniform);
    let plan = Plan::new(&config, 1, [0, 0], false);
    let plan = Plan {
        fine: vec![FineDelay::default(); 32],
        ..plan
    };
    let signal = Signal::noise(36 * 128, 400, 23);
    let source = |pol: usize, t: u64| signal.samples[pol][(t - (1 << 33)) as usize] as i32;
    let gains = [
        vec![Complex32::new(0.1, 0.0); 64],
        vec![Complex32::new(0.1, 0.0); 64],
    ];
    let batch =
        Model::new(&config, 3).batch(&source, Timestamp(1 << 33), &Default::default(), &gains);
    for level in Level::available() {
        let (data, stats) = run(
            &config,
            &mut pipeline(&config, 1, level, 0.1),
            &signal,
            &plan,
            &[],
        );
        let off: Vec<u8> = data
            .iter()
            .zip(&batch.data)
            .map(|(&a, &b)| (a as i8).abs_diff(b))
            .collect();
        assert!(
            off.iter().all(|&d| d <= 1) && off.iter().filter(|&&d| d > 0).count() < 8,
            "{level}"
        );
        assert_eq!(
            (stats[0].clipped, stats[0].power),
            (batch.clipped, batch.power)
        );
    }
}

/// Every output byte against the model: equal unless within 0.01 of a tie, never off by more than
/// 1.
#[test]
fn agrees_with_the_model() {
    let cases = [
        (4, 4, 32),
        (64, 1, 32),
        (64, 3, 32),
        (64, 4, 48),
        (256, 16, 32),
        (512, 32, 32),
        (1024, 37, 64),
        (4096, 16, 32),
    ];
    for (case, (channels, taps, sph)) in cases.into_iter().enumerate() {
        let config = output(channels, taps, sph, Dither::None);
        let plan = Plan::new(&config, 2, [5, 12], case % 2 == 0);
        let signal = Signal::noise(
            (plan.fine.len() + taps) * 2 * channels + 12,
            400,
            case as u64,
        );
        let mut rng = ChaCha8Rng::seed_from_u64(99);
        let mut gain = |_| Complex32::from_polar(0.15, rng.random_range(-3.0..3.0));
        let gains = [
            (0..channels).map(&mut gain).collect(),
            (0..channels).map(&mut gain).collect(),
        ];
        let expected = model(&config, &signal, &plan, &gains);
        for level in Level::available() {
            let mut pipeline = pipeline(&config, 2, level, 1.0);
            for (p, gains) in gains.iter().enumerate() {
                pipeline.set_gains(p, &mut each(gains));
            }
            let (data, _) = run(&config, &mut pipeline, &signal, &plan, &[]);
            for (i, &byte) in data.iter().enumerate() {
                let (part, p, jones) = (i % 2, i / 2 % 2, i / 4);
                let (batch, k, s) = (
                    jones / (channels * sph),
                    jones / sph % channels,
                    jones % sph,
                );
                let x = expected[p][batch * sph + s][k];
                let x = if part == 0 { x.re } else { x.im }.clamp(-127.0, 127.0);
                let off = (f64::from(byte as i8) - x).abs();
                assert!(
                    off <= 0.51,
                    "C={channels} T={taps} {level}: channel {k} spectrum {s} pol {p}: {} for {x}",
                    byte as i8
                );
            }
        }
    }
}

/// No byte and no count depends on threads, blocks or instruction set.
#[test]
fn same_bytes_however_cut() {
    let config = output(128, 16, 64, Dither::Uniform);
    let plan = Plan::new(&config, 4, [3, 9], true);
    let signal = Signal::noise((plan.fine.len() + 16) * 256 + 9, 511, 7);
    let expected = run(
        &config,
        &mut pipeline(&config, 1, Level::Portable, 0.3),
        &signal,
        &plan,
        &[],
    );
    assert!(
        expected
            .1
            .iter()
            .all(|s| s.clipped[0] > 0 && s.power[0] > 0)
    );
    let cuts: [&[usize]; 6] = [
        &[],
        &[32, 64],
        &[1, 2, 3, 5, 40, 200],
        &[31, 33, 100, 101, 159],
        &[255],
        &[16, 48, 80, 112, 144, 176],
    ];
    for level in Level::available() {
        for workers in 1..=3 {
            let mut pipeline = pipeline(&config, workers, level, 0.3);
            for cuts in cuts {
                let got = run(&config, &mut pipeline, &signal, &plan, cuts);
                assert!(
                    got == expected,
                    "{level}, {workers} workers, cut at {cuts:?}"
                );
            }
        }
    }
}

#[test]
fn power_is_exact() {
    let config = output(64, 16, 32, Dither::None);
    let plan = Plan::new(&config, 3, [0, 7], false);
    let signal = Signal::noise((plan.fine.len() + 16) * 128 + 7, 511, 11);
    let (_, stats) = run(
        &config,
        &mut pipeline(&config, 2, Level::detect(), 1.0),
        &signal,
        &plan,
        &[50],
    );
    for (batch, stats) in stats.iter().enumerate() {
        for p in 0..2 {
            let first = plan.offset[p] + (batch * 32 + 15) * 128;
            let power: i64 = signal.samples[p][first..first + 32 * 128]
                .iter()
                .map(|x| x * x)
                .sum();
            assert_eq!(stats.power[p], power as u64, "batch {batch} pol {p}");
        }
    }
}

/// Counts complex samples, not components, and clamps to ±127.
#[test]
fn saturation_is_counted() {
    let config = output(64, 4, 32, Dither::None);
    let plan = Plan::new(&config, 2, [0, 0], false);
    let signal = Signal::noise((plan.fine.len() + 4) * 128, 400, 13);
    let gains = [
        vec![Complex32::new(0.5, 0.0); 64],
        vec![Complex32::new(0.0, 0.6); 64],
    ];
    let expected = model(&config, &signal, &plan, &gains);
    for level in Level::available() {
        let mut pipeline = pipeline(&config, 1, level, 1.0);
        pipeline.set_gains(0, &mut each(&gains[0]));
        pipeline.set_gains(1, &mut each(&gains[1]));
        let (data, stats) = run(&config, &mut pipeline, &signal, &plan, &[]);
        for (batch, stats) in stats.iter().enumerate() {
            for (p, expected) in expected.iter().enumerate() {
                let over = |x: &&Complex64| x.re.abs() > 127.0 || x.im.abs() > 127.0;
                let count = expected[batch * 32..][..32]
                    .iter()
                    .flatten()
                    .filter(over)
                    .count();
                assert!(count > 100);
                assert_eq!(
                    stats.clipped[p], count as u64,
                    "{level} batch {batch} pol {p}"
                );
            }
        }
        assert!(data.contains(&127) && !data.contains(&0x80));
    }
}

/// Gains set during a chunk wait for the next one, and a chunk may end early.
#[test]
fn gains_wait_for_the_next_chunk() {
    let config = output(64, 4, 32, Dither::None);
    let plan = Plan::new(&config, 2, [0, 0], false);
    let signal = Signal::noise((plan.fine.len() + 4) * 128, 400, 17);
    let mut changed = pipeline(&config, 1, Level::detect(), 0.1);
    let (before, _) = run(&config, &mut changed, &signal, &plan, &[]);
    let mut chunk = output_chunk(&config, 2, Timestamp(1 << 33));
    let block = |first: usize, end: usize| Block {
        first,
        offset: [first * 128; 2],
        fine: &plan.fine[first..end],
        absent: &[],
    };
    let first = block(0, 10);
    changed
        .run_frontend(&signal.view(), &first, &mut chunk.writer().span())
        .unwrap();
    for p in 0..2 {
        changed.set_gains(p, &mut each(&[Complex32::new(0.2, 0.0); 64]));
    }
    let rest = block(10, 40);
    changed
        .run_frontend(&signal.view(), &rest, &mut chunk.writer().span())
        .unwrap();
    changed.finish_chunk(1, chunk).unwrap();
    let chunk = changed.poll_finished().unwrap().unwrap();
    assert!(chunk.batch(0) == &before[..config.batch_bytes()]);
    let after = run(&config, &mut changed, &signal, &plan, &[]);
    let expected = run(
        &config,
        &mut pipeline(&config, 1, Level::detect(), 0.2),
        &signal,
        &plan,
        &[],
    );
    assert!(after == expected && after.0 != before);
}

/// Values half way between two integers, and near them, in each part of each polarisation.
#[test]
fn ties_go_to_even_at_every_level() {
    for channels in [8, 64] {
        for nudge in [-0.25, 0.0, 0.25] {
            let halves: Vec<f32> = (0..channels)
                .map(|k| k as f32 - channels as f32 / 2.0 + 0.5 + nudge)
                .collect();
            let nearest = |x: f32| {
                let (low, above) = (x.floor() as i8, x - x.floor());
                let up = above > 0.5 || above == 0.5 && low % 2 != 0;
                (low + i8::from(up)) as u8
            };
            // Channel c is element c − C/2, counted from the end if that is negative.
            let bins = |part: fn(f32) -> Complex32| -> Vec<_> {
                let channel = |element: usize| (element + channels / 2) % channels;
                (0..channels).map(|k| part(halves[channel(k)])).collect()
            };
            let bins = [
                bins(|x| Complex32::new(x, -x)),
                bins(|x| Complex32::new(-x, x)),
            ];
            let one = vec![Complex32::new(1.0, 0.0); channels];
            for level in Level::available() {
                let mut words = vec![0; channels];
                let bins = Bins::Apart([&bins[0], &bins[1]]);
                let coefs = [&one[..], &one[..]];
                let at = Supported::new(level);
                let clamped = simd::quantise(at, bins, coefs, None, 127.0, &mut words, None);
                assert_eq!(clamped, [0, 0]);
                for (word, &x) in words.iter().zip(&halves) {
                    let expected = [x, -x, -x, x].map(nearest);
                    assert_eq!(word.to_le_bytes(), expected, "{x} at {level}");
                }
            }
        }
    }
}

/// What is not a number becomes 0 and counts as clamped: zeros times coefficients without bounds.
#[test]
fn what_is_not_a_number_becomes_zero_at_every_level() {
    for channels in [8, 64] {
        let zeros = vec![Complex32::default(); channels];
        let coefs = vec![Complex32::new(f32::INFINITY, 0.0); channels];
        for level in Level::available() {
            let mut words = vec![0x5555_5555; channels];
            let bins = Bins::Apart([&zeros, &zeros]);
            let (at, coefs) = (Supported::new(level), [&coefs[..], &coefs[..]]);
            let clamped = simd::quantise(at, bins, coefs, None, 127.0, &mut words, None);
            assert!(words.iter().all(|&word| word == 0), "{level}");
            assert_eq!(clamped, [channels as u64; 2], "{level}");
        }
    }
}

/// A tone of 1/16 of the sample rate is at an eighth of the band; a file that is too short for one
/// batch says how much a batch needs.
#[test]
fn whole_arrays_are_channelised_at_once() {
    let options: WidebandOptions = "name=w,channels=64,dst=239.10.0.0,taps=4".parse().unwrap();
    let output = options.into_config(64 * 16, 0);
    let config = PipelineConfig {
        output: &output,
        sample_bits: SampleBits::new(10).unwrap(),
        feng_id: 0,
        gain: 0.05,
        statistics: false,
    };
    let tone = |n: usize| (400.0 * (n as f64 * std::f64::consts::TAU / 16.0).cos()).round() as i32;
    let samples: Vec<i32> = (0..10_000).map(tone).collect();
    let silence = vec![0; samples.len()];
    let workers = || Workers::unpinned(2).unwrap();
    let chunk = karoo::cpu::channelise(&config, [&samples, &silence], workers()).unwrap();
    // 16 spectra of 128 samples a batch, and three windows before the last.
    assert_eq!(chunk.capacity(), (10_000 - 512) / 128 / 16);
    let power = |channel: usize, pol: usize| -> u64 {
        let spectra = chunk.batch(1)[channel * 16 * 4..][..16 * 4].chunks(4);
        spectra
            .flat_map(|jones| &jones[2 * pol..][..2])
            .map(|&part| u64::from((part as i8).unsigned_abs()).pow(2))
            .sum()
    };
    let strongest = (0..64).max_by_key(|&channel| power(channel, 0)).unwrap();
    assert_eq!(strongest, 8);
    assert!(power(8, 0) > 100 * power(20, 0) + 100 && (0..64).all(|c| power(c, 1) == 0));
    let short = karoo::cpu::channelise(&config, [&samples[..2431], &silence], workers());
    let error = short.expect_err("too short").to_string();
    assert!(error.contains("a batch needs 2432 samples"), "{error}");
}
