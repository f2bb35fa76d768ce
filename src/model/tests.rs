use std::f64::consts::PI;
use std::net::{Ipv4Addr, SocketAddrV4};

use dsp::WindowFunction;
use dsp::delay::LinearDelay;
use ground::SampleClock;

use super::*;
use crate::config::{Narrowband, NarrowbandSpec};

fn output(channels: usize, taps: usize) -> OutputConfig {
    OutputConfig {
        name: "wideband".into(),
        channels,
        dst: vec![SocketAddrV4::new(Ipv4Addr::new(239, 1, 1, 1), 7148)],
        jones_per_batch: channels * 4,
        taps,
        w_cutoff: 1.0,
        window_function: WindowFunction::Hann,
        oversampling: dsp::Oversampling::NONE,
        dither: Dither::None,
        dither_seed: 1,
        sample_bits: OutputBits::Eight,
        narrowband: None,
    }
}

fn delays(delay: f64, phase: f64) -> [DelayModels; N_POL] {
    aligned_delays(1, delay, phase)
}

fn aligned_delays(subsampling: u32, delay: f64, phase: f64) -> [DelayModels; N_POL] {
    std::array::from_fn(|_| {
        let mut models = DelayModels::with_subsampling(subsampling);
        models.add(LinearDelay::new(0, delay, 0.0, phase, 0.0).expect("valid"));
        models
    })
}

fn gains(channels: usize, gain: Complex32) -> [Vec<Complex32>; N_POL] {
    [vec![gain; channels], vec![gain; channels]]
}

fn one() -> Complex32 {
    Complex32::new(1.0, 0.0)
}

/// Windows overlap: of a batch each number of the PFB's input is asked for once, wherever coarse
/// delays let windows go on from one to the next, and spectra are those of windows by themselves.
#[test]
fn a_batch_is_its_spectra_and_filters_each_input_once() {
    let spec = NarrowbandSpec {
        centre_frequency: 300e6,
        decimation: 4,
        ddc_taps: None,
        weight_pass: 0.005,
        pass_bandwidth: None,
    };
    let clock = SampleClock {
        adc_sample_rate: 1712e6,
        sync_time: 0.0,
    };
    let narrowband = Narrowband::new(&spec, clock).expect("a filter");
    let taps = narrowband.ddc_taps();
    let output = OutputConfig {
        jones_per_batch: 64 * 16,
        narrowband: Some(narrowband),
        ..output(64, 4)
    };
    let model = Model::new(&output, 0);
    let asked = std::cell::Cell::new(0);
    let source = |pol: usize, t: u64| {
        asked.set(asked.get() + 1);
        hash_sample(t + 1000 * pol as u64)
    };
    // A delay that grows by a coarse step or two within the batch, and one that shrinks.
    for rate in [0.0, 2e-3, -2e-3] {
        let delays = std::array::from_fn(|_| {
            let mut models = DelayModels::with_subsampling(4);
            models.add(LinearDelay::new(0, 5.0, rate, 0.1, 0.0).expect("valid"));
            models
        });
        let gains = gains(64, Complex32::new(0.01, 0.0));
        let t = Timestamp(1 << 16);
        asked.set(0);
        let batch = model.batch(&source, t, &delays, &gains);
        let power = N_POL * 16 * output.spectrum_samples();
        let windows = (15 * 128 + 4 * 128) * N_POL * taps;
        if rate == 0.0 {
            assert_eq!(asked.get(), windows + power);
        }
        for s in 0..16 {
            let t = t + (s * output.spectrum_samples()) as u64;
            let alone = model.spectrum(&source, t, &delays, &gains);
            for (pol, bins) in alone.iter().enumerate() {
                for (k, bin) in bins.iter().enumerate() {
                    let x = Complex32::new(bin.re as f32, bin.im as f32);
                    let (q, _) = quantise::quantise_complex(x, 127.0);
                    let at = ((k * 16 + s) * N_POL + pol) * 2;
                    assert_eq!(batch.data[at..at + 2], q, "{rate}: {s} {k} {pol}");
                }
            }
        }
    }
}

#[test]
fn hash_sequence_matches_the_reference() {
    let first = [
        -512, -127, -197, -43, -126, -420, -275, 168, 260, -389, -4, 24, -282, 261, 392, 365,
    ];
    assert!((0..).zip(first).all(|(t, x)| hash_sample(t) == x));
    let later = [-453, -84, 330, -170, -469, 492, 258, 207];
    assert!((8192..).zip(later).all(|(t, x)| hash_sample(t) == x));
}

#[test]
fn wideband_matches_the_reference() {
    let golden = [
        (0, (-200.43078, -267.81155), (-1.46671, -1.95979)),
        (1, (125.82466, -308.35737), (382.92071, 137.69326)),
        (20, (-221.17614, -228.47429), (198.51816, 14.35400)),
        (32, (-123.36092, -136.04193), (457.25566, -72.83677)),
        (33, (-177.70157, 279.13360), (-146.72321, 32.70411)),
        (63, (-10.53079, 105.45046), (41.36645, -34.27742)),
    ];
    let model = Model::new(&output(64, 4), 0);
    let spectrum = |s: u64| {
        let t = Timestamp(1 << 17) + s * 128;
        let source = |_pol, t| hash_sample(t);
        model.spectrum(&source, t, &delays(42.4, 0.3), &gains(64, one()))
    };
    let (s0, s1) = (spectrum(0), spectrum(1));
    for (k, x0, x1) in golden {
        for (got, (re, im)) in [(s0[0][k], x0), (s1[1][k], x1)] {
            let error = (got - Complex64::new(re, im)).norm();
            // Half of the last printed digit in each part, and some float64 rounding.
            assert!(error < 0.75e-5, "channel {k}: {got}, off by {error:e}");
        }
    }
}

/// The output of the narrowband golden vectors.
fn narrowband(pass_fraction: Option<f64>, taps: usize) -> OutputConfig {
    let clock = SampleClock {
        adc_sample_rate: 1712e6,
        sync_time: 0.0,
    };
    let spec = NarrowbandSpec {
        centre_frequency: 408173015.5944824,
        decimation: 8,
        ddc_taps: Some(taps),
        weight_pass: 0.005,
        pass_bandwidth: pass_fraction.map(|p| p * 107e6),
    };
    OutputConfig {
        narrowband: Some(Narrowband::new(&spec, clock).expect("a filter")),
        ..output(64, 4)
    }
}

#[test]
fn narrowband_matches_the_reference() {
    let discard = [
        (0, (224.77781, -497.23375), (-106.63819, 38.41002)),
        (1, (44.88668, -169.38023), (-158.09319, -137.28178)),
        (20, (45.62350, -69.90893), (-21.78340, 368.08318)),
        (32, (87.16980, -321.16968), (-242.37789, -206.29643)),
        (33, (295.67849, 351.16107), (212.56058, -241.02844)),
        (63, (-258.91240, 363.85167), (-179.99432, 353.85024)),
    ];
    let whole = [
        (0, (61.55002, -235.00318), (-32.85111, -2.65446)),
        (1, (32.61977, -133.38614), (-11.27249, -29.77063)),
        (20, (39.74812, 41.80738), (-359.12623, -3.32963)),
        (32, (52.77379, -292.67209), (-226.12102, -200.04996)),
        (33, (159.25311, 403.77555), (273.18811, -123.81115)),
        (63, (-82.05101, 189.23376), (-101.43696, 130.95067)),
    ];
    for (config, golden) in [
        (narrowband(None, 128), discard),
        (narrowband(Some(0.6), 256), whole),
    ] {
        let model = Model::new(&config, 0);
        let delays = aligned_delays(config.subsampling() as u32, 42.4, 0.3);
        let spectrum = |s: u64| {
            let t = Timestamp(1 << 17) + s * config.spectrum_samples() as u64;
            let source = |_pol, t| hash_sample(t);
            model.spectrum(&source, t, &delays, &gains(64, one()))
        };
        let (s0, s1) = (spectrum(0), spectrum(1));
        for (k, x0, x1) in golden {
            for (got, (re, im)) in [(s0[0][k], x0), (s1[1][k], x1)] {
                let error = (got - Complex64::new(re, im)).norm();
                // The coefficients are rounded to single precision after two different designs of
                // the filter: they differ in their last bit.
                assert!(error < 1e-4, "channel {k}: {got}, off by {error:e}");
            }
        }
    }
}

/// u(τ) by its definition: every sample mixed, then filtered.
#[test]
fn the_down_conversion_is_mixer_and_filter() {
    let config = narrowband(Some(0.6), 37);
    let model = Model::new(&config, 0);
    let source = |_pol, t| hash_sample(t);
    let narrowband = config.narrowband.expect("narrowband");
    let m = -408173015.5944824 / 1712e6;
    for first in [0, 16, 160_000] {
        let terms = (first..).zip(narrowband.filter.iter());
        let direct: Complex64 = terms
            .map(|(t, &h)| {
                let v = Complex64::cis(2.0 * PI * (m * t as f64).fract()) * f64::from(h);
                v * f64::from(hash_sample(t))
            })
            .sum();
        let got = model.input(&source, 0, first as i64);
        assert!((got - direct).norm() < 1e-6, "{first}: {got} {direct}");
    }
}

#[test]
fn the_transform_is_the_direct_sum() {
    let (channels, taps) = (16, 3);
    let model = Model::new(&output(channels, taps), 0);
    let source = |_pol, t| hash_sample(t);
    let fast = model.channelise(&source, 0, 777);
    for (k, fast) in fast.iter().enumerate() {
        // Over the whole window at once: folding is not needed to say what a spectrum is.
        let direct: Complex64 = (0..2 * channels * taps)
            .map(|n| {
                let angle = -2.0 * PI * (k * n % (2 * channels)) as f64 / (2 * channels) as f64;
                let x = f64::from(hash_sample(777 + n as u64));
                Complex64::cis(angle) * model.weights[n] * x
            })
            .sum();
        assert!((fast - direct).norm() < 1e-9, "channel {k}");
    }
}

/// A tone in the centre of a channel comes out with amplitude A/2·Σw, the phase that it has at the
/// first sample of the window, less 2πf·delay plus the model's phase.
#[test]
fn a_tone_keeps_its_phase() {
    let (channels, k, amplitude) = (64, 20, 200_000_000.0);
    let model = Model::new(&output(channels, 4), 0);
    let f = k as f64 / (2 * channels) as f64;
    let source = |_pol, t: u64| (amplitude * (2.0 * PI * f * t as f64 + 0.7).cos()) as i32;
    let (delay, phase) = (-13.3, 1.1);
    let t = Timestamp(3 * 512);
    let spectrum = model.spectrum(&source, t, &delays(delay, phase), &gains(channels, one()));
    let got = spectrum[0][k];
    let sum: f64 = model.weights.iter().sum();
    // The user's phase is that at the band centre, fs/4.
    let expected = 2.0 * PI * f * t.0 as f64 + 0.7 - 2.0 * PI * (f - 0.25) * delay + phase;
    let error = got / Complex64::cis(expected) / (amplitude / 2.0 * sum) - 1.0;
    // The image at −f leaks through the filter's sidelobes; nothing else is above 1e-3.
    assert!(error.norm() < 1e-3, "{error}");
}

#[test]
fn a_batch_is_its_spectra_in_wire_order() {
    let config = output(8, 4);
    let model = Model::new(&config, 3);
    let source = |pol, t| hash_sample(t + 1000 * pol as u64);
    let gain = Complex32::new(0.1, -0.25);
    let (delays, gains) = (delays(2.25, 0.5), gains(8, gain));
    let t = Timestamp(1 << 20);
    let batch = model.batch(&source, t, &delays, &gains);
    assert_eq!(batch.data.len(), config.batch_bytes());
    let mut clipped = [0; N_POL];
    for s in 0..4 {
        let t = t + s as u64 * 16;
        let spectrum = model.spectrum(&source, t, &delays, &gains);
        for k in 0..8 {
            for (pol, x) in spectrum.iter().map(|bins| bins[k]).enumerate() {
                let at = ((k * 4 + s) * N_POL + pol) * 2;
                let clamp = |x: f64| x.round().clamp(-127.0, 127.0) as i8;
                assert_eq!(batch.data[at..at + 2], [clamp(x.re), clamp(x.im)]);
                clipped[pol] += u64::from(x.re.abs() > 127.0 || x.im.abs() > 127.0);
            }
        }
    }
    assert_eq!(batch.clipped, clipped);
    // Coarse delay 2, last of four taps, four spectra that tile the time axis.
    for (pol, &got) in batch.power.iter().enumerate() {
        let first = t.0 - 2 + 3 * 16;
        let power: i64 = (first..first + 4 * 16)
            .map(|t| i64::from(source(pol, t)).pow(2))
            .sum();
        assert_eq!(got, power as u64);
    }
}

#[test]
fn four_bits_are_nibbles_with_the_real_part_on_top() {
    let eight = output(8, 4);
    let four = OutputConfig {
        sample_bits: OutputBits::Four,
        ..eight.clone()
    };
    let source = |pol, t| hash_sample(t + 1000 * pol as u64);
    let (delays, gains) = (delays(0.0, 0.0), gains(8, Complex32::new(0.02, 0.01)));
    let t = Timestamp(1 << 20);
    let wide = Model::new(&eight, 3).batch(&source, t, &delays, &gains);
    let narrow = Model::new(&four, 3).batch(&source, t, &delays, &gains);
    assert_eq!(narrow.data.len(), four.batch_bytes());
    assert_eq!(2 * narrow.data.len(), wide.data.len());
    let mut clamped = 0;
    for (byte, parts) in narrow.data.iter().zip(wide.data.chunks(2)) {
        let expected = [parts[0].clamp(-7, 7), parts[1].clamp(-7, 7)];
        assert_eq!([byte >> 4, byte << 4 >> 4], expected);
        clamped += u64::from(parts != expected);
    }
    // 7.2 is clamped as well, but not counted here.
    assert!(clamped > 0 && narrow.clipped.iter().sum::<u64>() >= clamped);
    assert_eq!(narrow.power, wide.power);
}

#[test]
fn dither_is_that_of_the_spectrum_and_channel() {
    let config = OutputConfig {
        dither: Dither::Uniform,
        dither_seed: 99,
        ..output(8, 4)
    };
    let model = Model::new(&config, 3);
    // Silence with a gain: only dither is left, which never reaches the next integer.
    let t = Timestamp(1 << 20);
    let silent = model.batch(&|_, _| 0, t, &delays(0.0, 0.0), &gains(8, one()));
    assert!(silent.data.iter().all(|&x| x == 0));
    let source = |_pol, t| hash_sample(t);
    let gains = gains(8, Complex32::new(0.05, 0.0));
    let batch = model.batch(&source, t, &delays(0.0, 0.0), &gains);
    let (s, k) = (2, 5);
    let t = t + s as u64 * 16;
    let spectrum = model.spectrum(&source, t, &delays(0.0, 0.0), &gains);
    let d = dither::dither(99, 3, t.0, k, 8);
    for (pol, x) in spectrum.iter().map(|bins| bins[k]).enumerate() {
        let at = ((k * 4 + s) * N_POL + pol) * 2;
        let expected = |x: f64, d: f32| (x + f64::from(d)).round() as i8;
        assert_eq!(batch.data[at], expected(x.re, d[2 * pol]));
        assert_eq!(batch.data[at + 1], expected(x.im, d[2 * pol + 1]));
    }
}

fn oversampled(m: usize, n: usize, output: OutputConfig) -> OutputConfig {
    let oversampling = dsp::Oversampling::new(m, n).expect("a ratio");
    OutputConfig {
        oversampling,
        window_function: WindowFunction::Kaiser,
        w_cutoff: WindowFunction::Kaiser.cutoff(output.taps, oversampling),
        ..output
    }
}

/// Over the whole window at once, with phases of absolute time: what an oversampled spectrum is.
#[test]
fn an_oversampled_spectrum_is_the_direct_sum_with_phases_from_time_0() {
    let (channels, taps) = (16, 3);
    let config = oversampled(8, 7, output(channels, taps));
    assert_eq!((config.pfb_hop(), config.spectrum_samples()), (28, 28));
    assert_eq!(config.batch_samples(), 4 * 28);
    assert_eq!(config.window_samples(), 3 * 32);
    let model = Model::new(&config, 0);
    let source = |_pol, t| hash_sample(t);
    let weights = config.weights();
    for number in [0, 1, 2, 7, 8, 1 << 30] {
        let t = number * 28;
        let delays = delays(0.0, 0.0);
        let spectrum = model.spectrum(&source, Timestamp(t), &delays, &gains(channels, one()));
        for (k, fast) in spectrum[0].iter().enumerate() {
            let term = |n: u64| {
                let angle = -2.0 * PI * ((k as u64 * n) % 32) as f64 / 32.0;
                let w = f64::from(weights[(n - t) as usize]);
                Complex64::cis(angle) * w * f64::from(hash_sample(n))
            };
            let direct: Complex64 = (t..t + 96).map(term).sum();
            assert!((fast - direct).norm() < 1e-9, "channel {k} of {number}");
        }
    }
}

/// The phase of a tone at a channel's centre is the same in every spectrum, of wideband and of
/// narrowband, and delays turn it as they do without oversampling.
#[test]
fn a_tone_in_a_channels_centre_stands_still_in_an_oversampled_output() {
    let (channels, k, amplitude) = (64, 20, 200_000_000.0);
    for (m, n) in [(32, 27), (4, 3)] {
        let wideband = oversampled(m, n, output(channels, 8));
        let discard = oversampled(m, n, narrowband(None, 128));
        let whole = oversampled(m, n, narrowband(Some(0.6), 256));
        for config in [wideband, discard, whole] {
            // In cycles per sample, and where the model's phase is the tone's own.
            let (f, centre) = match &config.narrowband {
                None => (k as f64 / (2 * channels) as f64, 0.25),
                Some(narrowband) => {
                    let centre = narrowband.centre_frequency / 1712e6;
                    let width = 1.0 / (2 * channels * config.decimation()) as f64;
                    (centre + (k as f64 - channels as f64 / 2.0) * width, centre)
                }
            };
            // From a timestamp on at which single products would have lost the phase.
            let first = config.batch_samples() as u64 * 1000;
            let angle = |t: i64| 2.0 * PI * (f * (t - first as i64) as f64).fract() + 0.7;
            let source = |_pol, t: u64| (amplitude * angle(t as i64).cos()) as i32;
            let model = Model::new(&config, 0);
            let of = |delay: f64, phase: f64| -> Vec<Complex64> {
                let delays = aligned_delays(config.subsampling() as u32, delay, phase);
                let spectrum = |s: u64| {
                    let t = Timestamp(first + s * config.spectrum_samples() as u64);
                    model.spectrum(&source, t, &delays, &gains(channels, one()))[0][k]
                };
                (0..2 * m as u64).map(spectrum).collect()
            };
            let still = of(0.0, 0.0);
            for (s, x) in still.iter().enumerate() {
                let error = (x / still[0] - 1.0).norm();
                assert!(error < 2e-4, "{m}/{n}, spectrum {s}: {x} for {}", still[0]);
            }
            let (delay, phase) = (-13.3, 1.1);
            let turn = Complex64::cis(-2.0 * PI * (f - centre) * delay + phase);
            for (s, x) in of(delay, phase).iter().enumerate() {
                let error = (x / still[0] / turn - 1.0).norm();
                assert!(
                    error < 2e-3,
                    "{m}/{n}, spectrum {s}: {x} for {}",
                    still[0] * turn
                );
            }
        }
    }
}
