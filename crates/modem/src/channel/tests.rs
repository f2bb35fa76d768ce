//! Each part beside a model of its own: closed forms, sums as they are defined, or statistics.

use std::f64::consts::TAU;

use num_complex::{Complex32, Complex64};
use proptest::prelude::*;

use super::*;

fn wide(samples: &[Complex32]) -> Vec<Complex64> {
    let double = |x: &Complex32| Complex64::new(x.re.into(), x.im.into());
    samples.iter().map(double).collect()
}

fn narrow(samples: &[Complex64]) -> Vec<Complex32> {
    let single = |x: &Complex64| Complex32::new(x.re as f32, x.im as f32);
    samples.iter().map(single).collect()
}

fn through(settings: &ChannelSettings, samples: &[Complex32]) -> (Vec<Complex64>, ChannelCounts) {
    let mut channel = Channel::new(settings).unwrap();
    let mut out = Vec::new();
    channel.push(samples, &mut out);
    let counts = channel.finish(&mut out);
    assert_eq!(counts.samples_out, out.len() as u64);
    (wide(&out), counts)
}

/// Three tones within the waveform's band, at any time.
fn tones(t: f64) -> Complex64 {
    [(0.031, 0.1), (-0.17, 0.4), (0.249, 0.7)]
        .map(|(frequency, phase)| Complex64::cis(TAU * (frequency * t + phase)))
        .iter()
        .sum()
}

fn tone_samples(count: usize) -> Vec<Complex32> {
    let samples: Vec<_> = (0..count).map(|n| tones(n as f64)).collect();
    narrow(&samples)
}

#[test]
fn a_channel_without_settings_changes_nothing() {
    let samples = tone_samples(10_000);
    let (out, _) = through(&ChannelSettings::default(), &samples);
    assert!(out == wide(&samples));
}

#[test]
fn tones_are_what_they_are_between_samples() {
    for (delay, clock_ppm) in [
        (0.5, 0.0),
        (3.25, 20.0),
        (500.9, -50.0),
        (0.0, 100.0),
        (7.0, 0.0),
    ] {
        let settings = ChannelSettings {
            delay,
            clock_ppm,
            ..ChannelSettings::default()
        };
        let samples = tone_samples(30_000);
        let (out, _) = through(&settings, &samples);
        let time = |n: usize| n as f64 - delay - clock_ppm * 1e-6 * n as f64;
        let expected = ((30_000.0 + delay) / (1.0 - clock_ppm * 1e-6)).ceil() as usize;
        assert!(
            out.len().abs_diff(expected) <= 1,
            "{} {expected}",
            out.len()
        );
        let mut checked = 0;
        for (n, found) in out.iter().enumerate() {
            if (40.0..29_940.0).contains(&time(n)) {
                let error = (found - tones(time(n))).norm();
                assert!(error < 1e-4, "delay {delay}, {clock_ppm} ppm, {n}: {error}");
                checked += 1;
            }
            if time(n) < -20.0 {
                assert_eq!(found.norm(), 0.0);
            }
        }
        assert!(checked > 29_000);
    }
}

#[test]
fn a_carrier_turns_by_its_frequency_however_long_the_stream_is() {
    let (frequency, phase) = (0.0123456789, 0.3);
    let settings = ChannelSettings {
        frequency,
        phase,
        ..ChannelSettings::default()
    };
    let samples = vec![Complex32::new(1.0, 0.0); 200_000];
    let (out, _) = through(&settings, &samples);
    assert_eq!(out.len(), samples.len());
    for (n, found) in out.iter().enumerate() {
        let expected = Complex64::cis(TAU * (frequency * n as f64 + phase));
        assert!((found - expected).norm() < 1e-6, "{n}");
    }
}

#[test]
fn paths_add_up_as_a_convolution() {
    let paths = vec![
        Path {
            delay: 2,
            gain: Complex64::new(0.5, -0.25),
        },
        Path {
            delay: 9000,
            gain: Complex64::new(-1.0, 0.1),
        },
        Path {
            delay: 0,
            gain: Complex64::new(0.0, 2.0),
        },
    ];
    let settings = ChannelSettings {
        paths: paths.clone(),
        gain_db: 6.0,
        ..ChannelSettings::default()
    };
    let samples = tone_samples(20_000);
    let (out, _) = through(&settings, &samples);
    let mut model = vec![Complex64::default(); 29_000];
    for path in &paths {
        for (n, x) in wide(&samples).iter().enumerate() {
            model[n + path.delay as usize] += x * path.gain * 10f64.powf(0.3);
        }
    }
    assert_eq!(out.len(), model.len());
    for (n, (found, model)) in out.iter().zip(&model).enumerate() {
        assert!((found - model).norm() < 1e-5, "{n}");
    }
}

#[test]
fn profiles_are_those_of_the_reference() {
    let delays = |profile: Profile| profile.paths().iter().map(|p| p.delay).collect::<Vec<_>>();
    assert_eq!(delays(Profile::Manual), [3, 9, 12, 48]);
    assert_eq!(delays(Profile::Cost207RaX4), [0, 12, 24, 36]);
    let golden = [0.7579, 0.6020, 0.2397, 0.0758];
    for (path, golden) in Profile::Cost207RaX4.paths().iter().zip(golden) {
        assert!((path.gain.re - golden).abs() < 5e-5, "{path:?}");
    }
    for profile in Profile::ALL {
        assert_eq!(profile.to_string().parse(), Ok(profile));
    }
    assert!("cost".parse::<Profile>().is_err());
}

#[test]
fn noise_is_white_normal_and_of_the_wanted_power() {
    let settings = ChannelSettings {
        snr_db: Some(3.0),
        seed: 7,
        ..ChannelSettings::default()
    };
    const COUNT: usize = 400_000;
    let (noise, _) = through(&settings, &vec![Complex32::default(); COUNT]);
    let power = 10f64.powf(-0.3);
    let mean = |values: &dyn Fn(usize) -> Complex64| {
        (0..COUNT - 8).map(values).sum::<Complex64>() / (COUNT - 8) as f64
    };
    // Five standard deviations of each mean.
    let bound = 5.0 * power / (COUNT as f64).sqrt();
    for lag in 0..4 {
        let correlation = mean(&|n| noise[n] * noise[n + lag].conj());
        let expected = if lag == 0 { power } else { 0.0 };
        assert!(
            (correlation - expected).norm() < bound,
            "{lag} {correlation}"
        );
        let pseudo = mean(&|n| noise[n] * noise[n + lag]);
        assert!(pseudo.norm() < 1.5 * bound, "{lag} {pseudo}");
    }
    let fourth = mean(&|n| noise[n].norm_sqr().powi(2).into()).re / power.powi(2);
    assert!((fourth - 2.0).abs() < 0.05, "{fourth}");
    // Parts beyond two and three standard deviations, of the normal law.
    let deviation = (power / 2.0).sqrt();
    for (beyond, share) in [(1.0, 0.317311), (2.0, 0.0455003), (3.0, 0.0026998)] {
        let parts = noise.iter().flat_map(|x| [x.re, x.im]);
        let count = parts.filter(|part| part.abs() > beyond * deviation).count() as f64;
        let expected = share * 2.0 * COUNT as f64;
        assert!(
            (count - expected).abs() < 5.0 * expected.sqrt(),
            "{beyond} {count}"
        );
    }
}

#[test]
fn another_seed_is_other_noise_and_the_same_seed_is_the_same() {
    let noise = |seed| {
        let settings = ChannelSettings {
            snr_db: Some(0.0),
            seed,
            ..ChannelSettings::default()
        };
        through(&settings, &[Complex32::default(); 100]).0
    };
    assert!(noise(1) == noise(1));
    assert!(noise(1) != noise(2));
}

#[test]
fn fading_has_the_power_and_the_correlation_of_jakes() {
    const COUNT: usize = 4096;
    const SEEDS: u64 = 600;
    let doppler = 2e-4;
    let (mut power, mut correlation) = (0.0, [Complex64::default(); 3]);
    let lags = [500, 1914, 3000];
    for seed in 0..SEEDS {
        let settings = ChannelSettings {
            fading: Some(Fading { doppler }),
            seed,
            ..ChannelSettings::default()
        };
        let (gains, _) = through(&settings, &[Complex32::ONE; COUNT]);
        power += gains[0].norm_sqr() / SEEDS as f64;
        for (sum, lag) in correlation.iter_mut().zip(lags) {
            *sum += gains[lag] * gains[0].conj() / SEEDS as f64;
        }
    }
    // An exponential law's mean over 600 has a deviation of 0.041.
    assert!((power - 1.0).abs() < 0.2, "{power}");
    for (found, lag) in correlation.iter().zip(lags) {
        let expected = bessel_j0(TAU * doppler * lag as f64);
        assert!((found - expected).norm() < 0.2, "{lag} {found} {expected}");
    }
}

/// Up to the greatest Doppler frequency that a channel takes, also far from where gains are exact.
#[test]
fn the_fastest_fading_has_the_power_and_the_correlation_of_jakes() {
    const SEEDS: u64 = 600;
    const AT: usize = 32;
    for (doppler, lags) in [(5e-3, [24, 76, 121]), (1e-2, [12, 38, 61])] {
        let (mut power, mut correlation) = (0.0, [Complex64::default(); 3]);
        for seed in 0..SEEDS {
            let settings = ChannelSettings {
                fading: Some(Fading { doppler }),
                seed,
                ..ChannelSettings::default()
            };
            let (gains, _) = through(&settings, &[Complex32::ONE; 160]);
            power += gains[AT].norm_sqr() / SEEDS as f64;
            for (sum, lag) in correlation.iter_mut().zip(lags) {
                *sum += gains[AT + lag] * gains[AT].conj() / SEEDS as f64;
            }
        }
        // As above: a deviation of 0.041.
        assert!((power - 1.0).abs() < 0.2, "{doppler} {power}");
        for (found, lag) in correlation.iter().zip(lags) {
            let expected = bessel_j0(TAU * doppler * lag as f64);
            assert!(
                (found - expected).norm() < 0.2,
                "{doppler} {lag} {found} {expected}"
            );
        }
    }
}

#[test]
fn paths_that_fade_have_a_mean_power_of_one_together() {
    for profile in Profile::ALL {
        let (still, fading) = (profile.paths(), profile.fading_paths());
        let power: f64 = fading.iter().map(|path| path.gain.norm_sqr()).sum();
        assert!(fading.is_empty() || (power - 1.0).abs() < 1e-9, "{profile}");
        for (still, fading) in still.iter().zip(&fading) {
            assert_eq!(still.delay, fading.delay);
            assert!((still.gain * fading.gain.conj()).im == 0.0);
        }
    }
    let echoes = Profile::Manual.fading_paths();
    // 0.7 to 0.2, whatever their power together.
    assert!((echoes[0].gain.re / echoes[2].gain.re - 3.5).abs() < 1e-9);
}

/// J₀ by its integral.
fn bessel_j0(x: f64) -> f64 {
    const STEPS: u32 = 2000;
    let angle = |i: u32| (f64::from(i) + 0.5) * TAU / 2.0 / f64::from(STEPS);
    let sum: f64 = (0..STEPS).map(|i| (x * angle(i).sin()).cos()).sum();
    sum / f64::from(STEPS)
}

#[test]
fn an_imbalance_makes_the_image_of_a_tone() {
    let iq = IqImbalance {
        gain_db: 1.0,
        phase_degrees: 3.0,
    };
    let settings = ChannelSettings {
        iq,
        dc: Complex64::new(0.1, -0.2),
        ..ChannelSettings::default()
    };
    const COUNT: usize = 1000;
    let tone: Vec<_> = (0..COUNT)
        .map(|n| Complex64::cis(TAU * 0.1 * n as f64))
        .collect();
    let (out, _) = through(&settings, &narrow(&tone));
    let at = |turns: f64| -> Complex64 {
        let terms = out.iter().enumerate();
        let sum: Complex64 = terms
            .map(|(n, x)| x * Complex64::cis(-TAU * turns * n as f64))
            .sum();
        sum / COUNT as f64
    };
    // y = μ x + ν x*, μ = (1 + g e^{jφ})/2, ν = (1 − g e^{−jφ})/2, with Q's gain and angle.
    let g = 10f64.powf(1.0 / 20.0);
    let phase = 3f64.to_radians();
    let image = (1.0 + g * g - 2.0 * g * phase.cos()) / (1.0 + g * g + 2.0 * g * phase.cos());
    let found = (at(-0.1).norm() / at(0.1).norm()).powi(2);
    assert!((found / image - 1.0).abs() < 1e-4, "{found} {image}");
    assert!((at(0.0) - Complex64::new(0.1, -0.2)).norm() < 1e-6);
}

#[test]
fn a_converter_rounds_to_steps_and_counts_what_it_clips() {
    let converter = Converter {
        bits: 4,
        full_scale: 2.0,
    };
    let settings = ChannelSettings {
        converter: Some(converter),
        ..ChannelSettings::default()
    };
    let nan = f32::NAN;
    let samples = [
        (0.124, 0.126),
        (0.375, 0.625),
        (3.0, -3.0),
        (1.75, -2.0),
        (nan, 1.8),
    ];
    let samples = samples.map(|(re, im)| Complex32::new(re, im));
    let (out, counts) = through(&settings, &samples);
    let expected = [
        (0.0, 0.25),
        (0.5, 0.5),
        (1.75, -2.0),
        (1.75, -2.0),
        (0.0, 1.75),
    ];
    for (found, (re, im)) in out.iter().zip(expected) {
        assert_eq!(*found, Complex64::new(re, im));
    }
    assert_eq!(counts.clipped, 3);
}

#[test]
fn a_converter_of_one_bit_says_the_sign() {
    let settings = ChannelSettings {
        converter: Some(Converter {
            bits: 1,
            full_scale: 2.0,
        }),
        ..ChannelSettings::default()
    };
    let samples = [(0.1, -0.1), (3.0, -2.0), (f32::NAN, 1.9)];
    let samples = samples.map(|(re, im)| Complex32::new(re, im));
    let (out, counts) = through(&settings, &samples);
    for (found, (re, im)) in out.iter().zip([(1.0, -1.0), (1.0, -1.0), (0.0, 1.0)]) {
        assert_eq!(*found, Complex64::new(re, im));
    }
    assert_eq!(counts.clipped, 2);
}

#[test]
fn settings_that_no_channel_can_have_are_refused() {
    let base = ChannelSettings::default;
    let wrong = [
        ChannelSettings {
            delay: -1.0,
            ..base()
        },
        ChannelSettings {
            clock_ppm: f64::NAN,
            ..base()
        },
        ChannelSettings {
            frequency: 0.6,
            ..base()
        },
        ChannelSettings {
            snr_db: Some(f64::INFINITY),
            ..base()
        },
        ChannelSettings {
            converter: Some(Converter {
                bits: 0,
                full_scale: 1.0,
            }),
            ..base()
        },
    ];
    for settings in wrong {
        let error = Channel::new(&settings).unwrap_err().to_string();
        assert!(error.contains("it must be"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_comes_out_depends_not_on_how_samples_are_cut(
        cuts in prop::collection::vec(0usize..6000, 1..5),
        seed: u64,
        clock_ppm in -200.0f64..200.0,
        delay in 0.0f64..50.0,
        fades: bool,
    ) {
        let settings = ChannelSettings {
            delay,
            clock_ppm,
            frequency: 0.01,
            paths: Profile::Cost207RaX4.paths(),
            fading: fades.then_some(Fading { doppler: 1e-4 }),
            snr_db: Some(10.0),
            seed,
            ..ChannelSettings::default()
        };
        let samples = tone_samples(cuts.iter().sum());
        let (whole, _) = through(&settings, &samples);
        let mut channel = Channel::new(&settings).unwrap();
        let (mut parts, mut rest) = (Vec::new(), &samples[..]);
        for cut in cuts {
            let (now, later) = rest.split_at(cut);
            channel.push(now, &mut parts);
            rest = later;
        }
        channel.finish(&mut parts);
        prop_assert!(whole == wide(&parts));
    }
}
