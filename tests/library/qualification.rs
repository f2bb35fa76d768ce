//! What an output must do to signals, whichever way it is computed: tones,
//! leakage, aliases, ripple, noise, and phases across steps of coarse delay.

use std::collections::BTreeSet;
use std::f64::consts::TAU;
use std::sync::Arc;

use dsp::delay::{DelayModels, LinearDelay};
use dsp::{Dither, SampleBits, WindowFunction, pfb};
use ground::{SampleClock, Timestamp};
use karoo::config::{Narrowband, NarrowbandSpec, OutputConfig, PipelineConfig};
use karoo::cpu::{CpuChanneliser, Workers};
use karoo::engine::{Block, FineDelay, Pipeline};
use num_complex::Complex64;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Normal};

use crate::support::{contents, output, output_chunk, packed, view};

const RATE: f64 = 1712e6;
const CENTRE: f64 = 408173015.5944824;
const BITS: u32 = 16;

/// An output around [`CENTRE`], without dither; `pass` is a fraction of its band.
fn narrowband(channels: usize, taps: usize, decimation: usize, pass: Option<f64>) -> OutputConfig {
    let clock = SampleClock {
        adc_sample_rate: RATE,
        sync_time: 0.0,
    };
    let spec = NarrowbandSpec {
        centre_frequency: CENTRE,
        decimation,
        ddc_taps: None,
        weight_pass: 0.005,
        pass_bandwidth: pass.map(|pass| pass * RATE / 2.0 / decimation as f64),
    };
    OutputConfig {
        narrowband: Some(Narrowband::new(&spec, clock).expect("a filter")),
        ..output(channels, taps, 32, Dither::None)
    }
}

/// Frequency of a channel's centre plus `offset` channels, in cycles per ADC sample.
fn frequency(output: &OutputConfig, channel: usize, offset: f64) -> f64 {
    let width = 0.5 / output.decimation() as f64;
    let low = match output.narrowband {
        None => 0.0,
        Some(_) => CENTRE / RATE - width / 2.0,
    };
    low + (channel as f64 + offset) * width / output.channels as f64
}

/// A tone's amplitude in its channel for each unit of its own, but for the response of the
/// down-conversion.
fn coherent_gain(output: &OutputConfig) -> f64 {
    let (step, window) = (output.pfb_step(), output.window_function);
    let weights = pfb::weights(step, output.taps, output.w_cutoff, window);
    let sum: f64 = weights.iter().map(|&w| f64::from(w)).sum();
    let pass: f64 = output
        .narrowband
        .as_ref()
        .map_or(1.0, |n| n.filter.iter().map(|&h| f64::from(h)).sum());
    sum / 2.0 * pass
}

/// The first batch of `output` whose input is from timestamp `start` on: (channel, spectrum, pol).
fn channelise(
    output: &OutputConfig,
    gain: f64,
    start: u64,
    delays: &[DelayModels; 2],
    signal: [&dyn Fn(i64) -> f64; 2],
) -> Vec<Complex64> {
    let margin = 20_000u64.next_multiple_of(output.subsampling() as u64);
    let begin = start - margin;
    let count = output.batch_samples() + output.window_samples() + 2 * margin as usize;
    let most = f64::from((1 << (BITS - 1)) - 1);
    let samples = |pol: usize| {
        let value = move |i: i64| signal[pol](begin as i64 + i).round().clamp(-most, most) as i32;
        packed((0..count as i64).map(value), BITS)
    };
    let input = [samples(0), samples(1)];
    let view = view(Timestamp(begin), count, &input);
    let workers = Arc::new(Workers::unpinned(2).expect("threads"));
    let bits = SampleBits::new(BITS).expect("a width");
    let mut pipeline = CpuChanneliser::new(
        &PipelineConfig {
            output,
            sample_bits: bits,
            feng_id: 0,
            gain,
            statistics: false,
        },
        workers,
    );
    let mut chunk = output_chunk(output, 1, Timestamp(start));
    let step = output.spectrum_samples() as u64;
    let at = |s: usize| {
        delays
            .each_ref()
            .map(|d| d.at(Timestamp(start + s as u64 * step)))
    };
    let spectra = output.spectra_per_heap();
    let mut first = 0;
    while first < spectra {
        // A block is as long as the coarse delays stay.
        let coarse = |s: usize| at(s).map(|point| point.coarse);
        let end = (first..spectra)
            .find(|&s| coarse(s) != coarse(first))
            .unwrap_or(spectra);
        let fine = |s: usize| FineDelay {
            delay: at(s).map(|p| (p.residual / output.decimation() as f64) as f32),
            phase: at(s).map(|p| match output.narrowband {
                None => p.wideband_phase() as f32,
                Some(_) => p.phase as f32,
            }),
        };
        let fine: Vec<_> = (first..end).map(fine).collect();
        let block = Block {
            first,
            offset: at(first).map(|p| (p.orig - begin as i64) as usize),
            fine: &fine,
            absent: &[],
        };
        pipeline
            .run_frontend(&view, &block, &mut chunk.writer().span())
            .expect("computed");
        first = end;
    }
    pipeline.finish_chunk(1, chunk).expect("finished");
    let (data, _) = contents(&pipeline.poll_finished().expect("polled").expect("a chunk"));
    let part = |byte: u8| f64::from(byte as i8);
    data.chunks_exact(2)
        .map(|parts| Complex64::new(part(parts[0]), part(parts[1])))
        .collect()
}

fn no_delay(output: &OutputConfig) -> [DelayModels; 2] {
    [0; 2].map(|_| DelayModels::with_subsampling(output.subsampling() as u32))
}

fn model(output: &OutputConfig, delay: f64, rate: f64, phase: f64) -> DelayModels {
    let mut models = DelayModels::with_subsampling(output.subsampling() as u32);
    models.add(LinearDelay::new(0, delay, rate, phase, 0.0).expect("a model"));
    models
}

/// The outputs of the criteria: wideband, and decimations 2 to 32 of both kinds, also odd ones.
fn outputs() -> Vec<(String, OutputConfig)> {
    let discard = [2, 4, 8, 16, 32].map(|d| (format!("discard {d}"), narrowband(64, 16, d, None)));
    let whole =
        [2, 3, 4, 8, 16].map(|d| (format!("no-discard {d}"), narrowband(64, 16, d, Some(0.6))));
    let wideband = ("wideband".to_owned(), output(64, 16, 32, Dither::None));
    [wideband].into_iter().chain(discard).chain(whole).collect()
}

fn multiple(output: &OutputConfig, near: u64) -> u64 {
    near.next_multiple_of(output.batch_samples() as u64)
}

/// A tone in a channel's centre has the amplitude and the phase that it has at the timestamp, that
/// of the filter's group delay later, and is nowhere else.
#[test]
fn tones_are_in_their_channels_with_their_phases() {
    for (name, output) in outputs() {
        let start = multiple(&output, 1 << 33);
        let (amplitude, channels) = (10_000.0, [29, 37]);
        let gain = 110.0 / (amplitude * coherent_gain(&output));
        let tone = |pol: usize| {
            let f = frequency(&output, channels[pol], 0.0);
            move |t: i64| amplitude * (TAU * (f * t as f64).fract() + 1.23).cos()
        };
        let (x, y) = (tone(0), tone(1));
        let spectra = channelise(&output, gain, start, &no_delay(&output), [&x, &y]);
        for (i, value) in spectra.iter().enumerate() {
            let (pol, s, channel) = (i % 2, i / 2 % 32, i / 64);
            if channel != channels[pol] {
                assert!(
                    value.norm() <= 1.5,
                    "{name}: {value} in channel {channel} of pol {pol}"
                );
                continue;
            }
            // The reference of the phase: u bears the timestamp of its first sample, and the
            // mixer's is 0 at timestamp 0.
            let f = frequency(&output, channel, 0.0);
            let t = start as f64 + (s * output.spectrum_samples()) as f64;
            let (late, mixer) = match output.narrowband {
                None => (0.0, 0.0),
                Some(_) => (-output.ddc_group_delay(), CENTRE / RATE),
            };
            let turns = (f * t).fract() - (mixer * t).fract() + (f - mixer) * late;
            let expected = TAU * turns + 1.23;
            assert!((value.norm() - 110.0).abs() < 3.0, "{name}: {value}");
            let off = (value / Complex64::cis(expected)).arg();
            assert!(off.abs() < 0.02, "{name}: phase off by {off}");
        }
    }
}

/// Wherever within half a channel of its centre a tone is, what leaks beyond that channel and the
/// neighbour on that side is below −53 dB.
#[test]
fn leakage_is_below_53_decibels() {
    for (name, output) in [
        ("wideband", output(64, 16, 32, Dither::None)),
        ("discard", narrowband(64, 16, 8, None)),
        ("no-discard", narrowband(64, 16, 8, Some(0.6))),
    ] {
        let (start, channel, amplitude) = (multiple(&output, 1 << 20), 32, 16_000.0);
        // A hundred times what fills the channel, so that one count is −82 dB of it.
        let gain = 100.0 * 110.0 / (amplitude * coherent_gain(&output));
        for offset in (-8..8).map(|i| (f64::from(i) + 0.5) / 16.0) {
            let f = frequency(&output, channel, offset);
            let tone = |t: i64| amplitude * (TAU * (f * t as f64).fract()).cos();
            let spectra = channelise(&output, gain, start, &no_delay(&output), [&tone, &tone]);
            let level = |k: usize| {
                let values = &spectra[k * 64..][..64];
                values.iter().map(|x| x.norm()).fold(0.0, f64::max)
            };
            assert!(level(channel) >= 127.0, "{name}, offset {offset}");
            let neighbour = if offset < 0.0 {
                channel - 1
            } else {
                channel + 1
            };
            let beyond = (0..output.channels).filter(|&k| k != channel && k != neighbour);
            let leak = beyond.map(level).fold(0.0, f64::max);
            let decibels = 20.0 * (leak / 11_000.0).log10();
            assert!(decibels < -53.0, "{name}, offset {offset}: {decibels} dB");
        }
    }
}

/// The VLBI filter: ripple in the pass band, and aliases into it.
#[test]
fn vlbi_filters_are_flat_and_keep_aliases_out() {
    let pass = 64.0 / 107.0;
    let output = OutputConfig {
        w_cutoff: 0.0,
        window_function: WindowFunction::Rect,
        oversampling: dsp::Oversampling::NONE,
        ..narrowband(256, 1, 8, Some(pass))
    };
    let (start, amplitude) = (multiple(&output, 1 << 20), 30_000.0);
    let loud = 100.0 / (amplitude * coherent_gain(&output));
    let level = |f: f64, channel: usize, gain: f64| {
        let tone = |t: i64| amplitude * (TAU * (f * t as f64).fract()).cos();
        let spectra = channelise(&output, gain, start, &no_delay(&output), [&tone, &tone]);
        let values = &spectra[channel * 64..][..64];
        // Rounding averages out over the spectra.
        (values.iter().map(|x| x.norm_sqr()).sum::<f64>() / 64.0).sqrt() / gain
    };
    // Channels from the lower to the upper end of the pass band.
    let half = (pass * 128.0) as usize - 1;
    // Off the centre, as far in all channels, so that the phase goes round from spectrum to
    // spectrum.
    let levels: Vec<f64> = (128 - half..=128 + half)
        .step_by(10)
        .map(|channel| 20.0 * level(frequency(&output, channel, 0.13), channel, loud).log10())
        .collect();
    let (low, high) = levels.iter().fold((f64::MAX, f64::MIN), |(low, high), &x| {
        (low.min(x), high.max(x))
    });
    assert!(high - low < 0.1, "ripple of {} dB", high - low);
    // The subsampled rate is C channels: whatever is that far away folds onto the same channel.
    for channel in [128 - half, 100, 128, 160, 128 + half] {
        for fold in [-3, -2, -1, 1, 2, 3] {
            let f = frequency(&output, channel, f64::from(fold) * 256.0);
            let alias = level(f, channel, 3e3 * loud);
            let decibels = 20.0 * (alias * loud / 100.0).log10();
            assert!(
                decibels < -80.0,
                "channel {channel}, {fold} foldings: {decibels} dB"
            );
        }
    }
}

/// White noise of variance σ² has variance σ² in every channel of the pass band.
#[test]
fn noise_keeps_its_power() {
    let sigma = 40.0;
    let normal = Normal::new(0.0, sigma).expect("a deviation");
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let noise: Vec<f64> = (0..1 << 22).map(|_| normal.sample(&mut rng)).collect();
    for (name, output, pass) in [
        ("wideband", output(256, 16, 512, Dither::Uniform), 1.0),
        ("discard", narrowband(256, 16, 4, None), 1.0),
        ("no-discard", narrowband(256, 4, 4, Some(0.6)), 0.6),
    ] {
        let output = OutputConfig {
            jones_per_batch: 256 * 512,
            dither: Dither::Uniform,
            ..output
        };
        let start = multiple(&output, 1 << 21);
        let x = |t: i64| noise[t as usize % noise.len()];
        let y = |t: i64| noise[(t as usize + 1_234_567) % noise.len()];
        let spectra = channelise(&output, 0.5, start, &no_delay(&output), [&x, &y]);
        // DC of wideband is real, and the band's edges are not all pass band.
        let half = (pass * 126.0) as usize;
        let kept = &spectra[(128 - half) * 1024..(128 + half) * 1024];
        let power = kept.iter().map(|x| x.norm_sqr()).sum::<f64>() / kept.len() as f64;
        // Rounding and dither add 1/12 each to each part.
        let rms = (power - 4.0 / 12.0).sqrt() / 0.5;
        assert!((rms / sigma - 1.0).abs() < 0.01, "{name}: {rms}");
    }
}

/// A delay that grows through steps of coarse delay: the centre of the band keeps its phase, and
/// other channels turn by 2π times their distance times the delay.
#[test]
fn phases_go_on_across_steps_of_coarse_delay() {
    for (name, output) in outputs() {
        let step = output.spectrum_samples() as f64;
        let s = output.subsampling() as f64;
        let start = multiple(&output, 1 << 22);
        // From three quarters of a grid step before the start to a few steps beyond it, in a batch.
        let rate = 3.2 * s.max(2.0) / (32.0 * step);
        let delay = 0.25 * s - rate * start as f64;
        let delays = [
            model(&output, delay, rate, 0.4),
            no_delay(&output)[1].clone(),
        ];
        let steps: BTreeSet<i64> = (0..32)
            .map(|i| {
                delays[0]
                    .at(Timestamp(start + (i as f64 * step) as u64))
                    .coarse
            })
            .collect();
        assert!(steps.len() >= 3, "{name}: {steps:?}");
        let (amplitude, channels) = (5_000.0, [26usize, 32, 38]);
        let gain = 100.0 / (amplitude * coherent_gain(&output));
        let tones = |t: i64| {
            let tone = |k: usize| (TAU * (frequency(&output, k, 0.0) * t as f64).fract()).cos();
            channels.iter().map(|&k| amplitude * tone(k)).sum()
        };
        let spectra = channelise(&output, gain, start, &delays, [&tones, &tones]);
        for i in 0..32 {
            let total = delay + rate * (start as f64 + i as f64 * step);
            for k in channels {
                let value = |pol: usize| spectra[(k * 32 + i) * 2 + pol];
                let offset = frequency(&output, k, 0.0) - frequency(&output, 32, 0.0);
                let expected = Complex64::cis(0.4 - TAU * offset * total);
                let off = (value(0) / value(1) / expected).arg();
                assert!(
                    off.abs() < 0.04,
                    "{name}: channel {k} spectrum {i} off by {off}"
                );
            }
        }
    }
}
