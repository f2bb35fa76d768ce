//! Each part against a model in double precision or a figure of the reference.

mod whole;

use num_complex::{Complex32, Complex64};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::channel::ChannelSettings;
use crate::rx::tests::{frame, stream, through};
use crate::tx::model_samples;
use crate::waveform::{
    CheckField, FRAME_SYMBOLS, Frame, Header, Modulation, STF_SYMBOLS, preamble, rrc_taps,
    rrc_value,
};

/// A frame with a random payload.
fn random_frame() -> Frame {
    let modulation = Modulation::Qpsk;
    let mut payload = vec![0; modulation.payload_bytes()];
    ChaCha8Rng::seed_from_u64(1).fill(payload.as_mut_slice());
    Frame::new(Header::new(modulation), &payload, CheckField::Crc).unwrap()
}

/// A frame behind the matched filter at any instants, in double precision: Σ x[m] h(t − m), divided
/// by √3, so that a symbol's power is 1. Symbol k is at 24 + 3k.
struct Filtered {
    samples: Vec<Complex64>,
    energy: f64,
}

impl Filtered {
    fn new(frame: &Frame) -> Filtered {
        let energy = (-24..=24).map(|i| rrc_value(0.5, f64::from(i) / 3.0).powi(2));
        Filtered {
            samples: model_samples(&frame.points(), 1.0),
            energy: energy.sum::<f64>().sqrt() * 3f64.sqrt(),
        }
    }

    fn at(&self, t: f64) -> Complex64 {
        let from = (t - 24.0).ceil().max(0.0) as usize;
        let to = ((t + 24.0).floor() as usize + 1).min(self.samples.len());
        let taps = (from..to).map(|m| rrc_value(0.5, (t - m as f64) / 3.0));
        let products = taps.zip(&self.samples[from..to]).map(|(h, x)| h * x);
        products.sum::<Complex64>() / self.energy
    }

    fn single(&self, t: f64) -> Complex32 {
        let x = self.at(t);
        Complex32::new(x.re as f32, x.im as f32)
    }
}

/// The samples of a channel's output behind the matched filter of unit energy.
fn filtered(samples: &[Complex32]) -> Vec<Complex32> {
    let taps = rrc_taps();
    let windows = samples.windows(taps.len());
    let sum = |window: &[Complex32]| window.iter().zip(taps).map(|(x, h)| x * h as f32).sum();
    windows.map(sum).collect()
}

#[test]
fn the_gain_is_that_of_its_definition() {
    // Levels of a factor of 3000, with a frozen stretch.
    let level = |n: usize| [0.05, 20.0, 0.7, 150.0][n / 4000 % 4];
    let x = |n: usize| Complex64::from_polar(level(n) * (1.0 + 0.3 * (n as f64 * 0.7).sin()), 0.3);
    let table = |first: f64, most: f64, v: f64| {
        first + (((v - first) * 64.0).floor() / 64.0).clamp(0.0, most)
    };
    let mut gain = GainControl::default();
    let mut c = vec![0.0f64; 8];
    for n in 0..16_000 {
        let frozen = (5000..6000).contains(&n);
        let single = Complex32::new(x(n).re as f32, x(n).im as f32);
        let found = gain.next(single, frozen);
        let power: f64 = (0..16.min(n + 1)).map(|i| x(n - i).norm_sqr()).sum::<f64>() / 16.0;
        let g = table(-12.0, 24.0, c[n]).exp();
        let error = -table(0.01, 1999.0 / 64.0, power * g * g).ln();
        let newest = c[n + 7];
        c.push((newest + if frozen { 0.0 } else { error / 256.0 }).clamp(-12.0, 12.0));
        let wanted = x(n) * g;
        let found = Complex64::new(found.re.into(), found.im.into());
        // An argument at the border of two entries may go to either.
        assert!(
            (found - wanted).norm() < 0.02 * wanted.norm(),
            "{n}: {found} {wanted}"
        );
    }
}

#[test]
fn behind_the_gain_symbols_have_the_power_of_the_reference() {
    // 3 / (2.625 + 3 / (Es/N0)).
    for es_n0_db in [60.0, 6.0] {
        let channel = ChannelSettings {
            snr_db: Some(es_n0_db - 10.0 * 3f64.log10()),
            ..ChannelSettings::default()
        };
        let sent = stream(&[frame(Modulation::Bpsk, 1)], 0, 24);
        let mut gain = GainControl::default();
        let all = filtered(&through(&channel, &sent));
        let out: Vec<f64> = all
            .iter()
            .map(|&x| f64::from(gain.next(x, false).norm_sqr()))
            .collect();
        let mean = |values: &mut dyn Iterator<Item = &f64>| {
            let (count, sum) = values.fold((0.0, 0.0), |(n, sum), x| (n + 1.0, sum + x));
            sum / count
        };
        let whole = mean(&mut out[3000..48_000].iter());
        assert!((whole - 1.0).abs() < 0.06, "{es_n0_db} dB: {whole}");
        let noise = 10f64.powf(-es_n0_db / 10.0);
        let wanted = 3.0 / (2.625 + 3.0 * noise) * (1.0 + noise);
        let found = mean(&mut out[3000..48_000].iter().step_by(3));
        assert!(
            (found / wanted - 1.0).abs() < 0.06,
            "{es_n0_db} dB: {found} {wanted}"
        );
    }
}

#[test]
fn peaks_of_a_clean_field_are_at_their_places() {
    let clean = Filtered::new(&frame(Modulation::Qpsk, 1));
    // Offsets, and the golden values of (before − after) / peak.
    let golden = [
        (0.0, 0.0),
        (0.1, 0.1156),
        (0.2, 0.2321),
        (0.3, 0.3504),
        (0.4, 0.4712),
    ];
    for (offset, golden) in golden {
        for sign in [1.0, -1.0] {
            let mut detector = PeakDetector::default();
            let mut peaks = Vec::new();
            for n in 0..24 + 3 * STF_SYMBOLS {
                let seen = detector.next(clean.single(n as f64 + sign * offset));
                if seen.peak {
                    peaks.push((n - PeakDetector::LATE, seen.early));
                }
            }
            // All repetitions, and the one that is turned over but in sight of −Ga.
            let places: Vec<usize> = peaks.iter().map(|peak| peak.0).collect();
            let wanted: Vec<usize> = (0..61).map(|r| 24 + 93 + 96 * r).collect();
            assert_eq!(places, wanted, "{offset}");
            let wanted = sign * golden * 0.5 / 0.5957;
            for (r, peak) in peaks.iter().enumerate().take(59).skip(1) {
                assert!(
                    (f64::from(peak.1) - wanted).abs() < 0.002,
                    "{r}: {} {wanted}",
                    peak.1
                );
            }
        }
    }
}

#[test]
fn noise_hides_as_many_peaks_as_the_reference_says() {
    // The part of peaks below the threshold, with a mean power of 1.
    for (es_n0_db, wanted) in [(0.0, 0.16), (2.0, 0.023)] {
        let (mut hidden, mut all): (f64, f64) = (0.0, 0.0);
        for seed in 0..20u8 {
            // Peaks from half a sample before a sample to half a sample behind it.
            let channel = ChannelSettings {
                snr_db: Some(es_n0_db - 10.0 * 3f64.log10()),
                delay: 1.0 + (f64::from(seed) - 9.5) / 20.0,
                seed: seed.into(),
                ..ChannelSettings::default()
            };
            let sent = stream(&[frame(Modulation::Bpsk, 1)], 0, 24);
            let mut correlator = Correlator::new(3);
            let gain = (2.625 + 3.0 * 10f32.powf(-es_n0_db as f32 / 10.0))
                .sqrt()
                .recip();
            for (n, &x) in filtered(&through(&channel, &sent)).iter().enumerate() {
                let power = correlator.next(x * gain).1.norm_sqr();
                if n % 96 == 94 && n / 96 < 60 {
                    all += 1.0;
                    hidden += f64::from(u8::from(power < 0.40));
                }
            }
        }
        let deviation = (wanted * all).sqrt();
        assert!(
            (hidden - wanted * all).abs() < 4.0 * deviation,
            "{es_n0_db} dB: {hidden} of {all}"
        );
    }
}

/// Peaks that come every `period` samples, each at the nearest sample.
fn at_peaks(period: f64, peaks: &[usize], until: usize, mut each: impl FnMut(usize, Seen)) {
    let mut places = peaks.iter().map(|&i| 200.0 + period * i as f64).peekable();
    for n in 0..until {
        let mut seen = Seen::default();
        if let Some(place) = places.next_if(|place| place.round() as usize == n) {
            (seen.peak, seen.early) = (true, (n as f64 - place) as f32);
        }
        each(n, seen);
    }
}

#[test]
fn timing_follows_peaks_and_keeps_their_rate() {
    // 100 ppm: the signal comes earlier and earlier.
    let period = 96.0 * (1.0 - 1e-4);
    let peaks: Vec<usize> = (0..61).collect();
    let mut timing = Timing::default();
    let mut firsts = Vec::new();
    at_peaks(period, &peaks, 200 + 61 * 96 + 50, |n, mut seen| {
        seen.a_in_range = n >= 200 + 61 * 96 - 3;
        if timing.next(&seen, 0.0) {
            firsts.push(n);
        }
        let field = (n as f64 - 200.0) / period;
        if field > 3.0 && field < 60.0 {
            assert_eq!(timing.state(), TimingState::Training);
            // As early as the newest peak was, and on with the rate of the peaks.
            let wanted = 22.0 + (n as f64 - 200.0) * 1e-4;
            let found = f64::from(timing.delay());
            assert!((found - wanted).abs() < 0.02, "{n}: {found} {wanted}");
        }
    });
    assert_eq!(
        (firsts.as_slice(), timing.state()),
        ([200].as_slice(), TimingState::Done)
    );
    assert!(
        (f64::from(timing.rate()) - 1e-4).abs() < 2e-6,
        "{}",
        timing.rate()
    );
    timing.reset();
    assert_eq!(timing.state(), TimingState::Waiting);
}

#[test]
fn one_missing_peak_loses_the_timing() {
    let peaks: Vec<usize> = (0..60).filter(|&i| i != 20).collect();
    let mut timing = Timing::default();
    let (mut firsts, mut waiting) = (Vec::new(), 0);
    at_peaks(96.0, &peaks, 200 + 50 * 96, |n, seen| {
        if timing.next(&seen, 0.0) {
            firsts.push((n - 200) / 96);
        }
        waiting += usize::from(n > 400 && timing.state() == TimingState::Waiting);
    });
    assert_eq!(firsts, [0, 21]);
    // From the end of the window to the second peak behind the gap.
    assert_eq!(waiting, 96 - 6 + 96);
}

#[test]
fn taps_between_samples_are_the_references() {
    let golden = [
        (0.5, [-0.0922, 0.58576, 0.58576, -0.0922]),
        (0.25, [-0.07969, 0.84458, 0.28405, -0.05861]),
    ];
    for (mu, golden) in golden {
        // The newest sample comes first, and what was one sample late is the second of four.
        let mut line = VariableDelay::default();
        let response: Vec<f64> = (0..6)
            .map(|n| {
                let x = Complex32::new(f32::from(u8::from(n == 0)), 0.0);
                line.next(x, 1.0 + mu as f32).re.into()
            })
            .collect();
        for (i, wanted) in golden.into_iter().enumerate() {
            let tap = farrow_taps(mu)[i];
            assert!((tap - wanted).abs() < 6e-6, "{mu}: tap {i} is {tap}");
            assert!((response[i] - wanted).abs() < 1e-5, "{mu}: {response:?}");
        }
        assert_eq!(response[4..], [0.0, 0.0]);
    }
}

/// Taps by the reference's figures. What they are to be: an amplitude proportional to frequency,
/// off by as much wherever it errs most (Parks–McClellan).
#[test]
fn the_differentiator_is_the_references_and_equiripple() {
    let golden = [
        -0.001528, 0.002440, -0.002016, 0.002703, -0.004288, 0.008236, -0.022637, 0.202758,
    ];
    assert_eq!(DIFFERENTIATOR, golden);
    let amplitude = |turn: f64| -> f64 {
        let taps = golden.iter().enumerate();
        taps.map(|(k, tap)| 2.0 * tap * (turn * (7.5 - k as f64)).sin())
            .sum()
    };
    let turns: Vec<f64> = (1..=1000)
        .map(|i| f64::from(i) * std::f64::consts::PI / 1000.0)
        .collect();
    let slopes: Vec<f64> = turns.iter().map(|turn| amplitude(*turn) / turn).collect();
    // Eight free taps have nine extremes, at the band's ends and between.
    let is_extreme = |i: usize| {
        let beside = |j: usize| slopes.get(j).map_or(0.0, |slope| slopes[i] - slope);
        beside(i.wrapping_sub(1)) * beside(i + 1) >= 0.0
    };
    let extremes: Vec<f64> = (0..slopes.len())
        .filter(|&i| is_extreme(i))
        .map(|i| slopes[i])
        .collect();
    assert_eq!(extremes.len(), 9, "{extremes:?}");
    let (low, high) = (extremes[0], extremes[1]);
    for (i, slope) in extremes.iter().enumerate() {
        let wanted = if i % 2 == 0 { low } else { high };
        assert!((slope - wanted).abs() < 5e-5, "{extremes:?}");
    }
    assert!((high / low - 1.0).abs() < 0.03, "{extremes:?}");
}

#[test]
fn interpolation_errs_as_much_as_the_reference_says() {
    let clean = Filtered::new(&random_frame());
    for (mu, decibels) in [(0.0, -60.0), (0.25, -42.5), (0.5, -40.3)] {
        let mut line = VariableDelay::default();
        let (mut error, mut power) = (0.0, 0.0);
        for n in 12_000..22_000 {
            let found = line.next(clean.single(f64::from(n)), 7.0 + mu as f32);
            let found = Complex64::new(found.re.into(), found.im.into());
            if n >= 12_100 {
                let wanted = clean.at(f64::from(n) - 7.0 - mu);
                error += (found - wanted).norm_sqr();
                power += wanted.norm_sqr();
            }
        }
        let found = 10.0 * (error / power).log10();
        let exact = mu == 0.0 && found < decibels;
        assert!(exact || (found - decibels).abs() < 0.5, "{mu}: {found} dB");
    }
}

#[test]
fn the_early_late_detector_has_the_references_curve() {
    let clean = Filtered::new(&random_frame());
    for (late, wanted) in [(0.0, 0.0), (0.1, 0.045), (0.2, 0.088), (0.5, 0.1875)] {
        for sign in [1.0, -1.0] {
            let mut loops = EarlyLate::default();
            let mut sum = 0.0;
            let symbols = 4000..12_000;
            for k in symbols.clone() {
                for by in -1..=1 {
                    let t = f64::from(24 + 3 * k + by) - sign * late;
                    loops.next(clean.single(t), by == 1);
                }
                sum += f64::from(loops.error());
            }
            let found = sum / symbols.len() as f64;
            assert!(
                (found - sign * wanted).abs() < 0.006,
                "{late}: {found} {wanted}"
            );
        }
    }
}

#[test]
fn the_loop_takes_proportional_and_integral_part() {
    let mut loops = EarlyLate::default();
    let mut errors: Vec<f64> = Vec::new();
    let (mut sum, mut last) = (0.0, 0.0);
    for k in 0..500 {
        let power = 1.0 + 0.2 * (f64::from(k) * 0.37).sin();
        for by in 0..3 {
            let y = Complex32::new([1.0, 0.9, power.sqrt()][by] as f32, 0.0);
            last = f64::from(loops.next(y, by == 2));
        }
        errors.push(power - 1.0);
        let mean = errors.iter().rev().take(64).sum::<f64>() / 64.0;
        sum += mean;
        assert!((last - (-0.003 * mean - 1e-7 * sum)).abs() < 1e-8, "{k}");
    }
    assert!(last.abs() > 0.0);
    loops.reset();
    assert_eq!(loops.error(), 0.0);
}

/// Symbols of a frame with nothing around, and the events at them.
fn events(change: impl Fn(usize) -> f32) -> Vec<(usize, PacketEvent)> {
    let mut control = PacketControl::default();
    let body = frame(Modulation::Qpsk, 1).points();
    let mut events = Vec::new();
    for k in 0..FRAME_SYMBOLS + 200 {
        let z = body.get(k).copied().unwrap_or_default();
        let z = Complex32::new(z.re as f32, z.im as f32) * change(k);
        match control.next(z).0 {
            PacketEvent::Nothing => {}
            event => events.push((k, event)),
        }
    }
    events
}

#[test]
fn the_controller_finds_the_fields_and_forgives_one_peak() {
    use PacketEvent::{Estimation, Lost, Over, Training};
    let whole = [
        (31, Training),
        (STF_SYMBOLS - 1, Estimation),
        (FRAME_SYMBOLS - 1 + 9, Over),
    ];
    assert_eq!(events(|_| 1.0), whole);
    // A repetition without a signal, then two of them.
    assert_eq!(events(|k| f32::from(u8::from(k / 32 != 20))), whole);
    let gap = events(|k| f32::from(u8::from(!(20..22).contains(&(k / 32)))));
    let lost = 20 * 32 - 1 + 65;
    assert_eq!(gap[..2], [(31, Training), (lost, Lost)]);
    assert_eq!(gap[3..], whole[1..]);
}

#[test]
fn the_carrier_is_that_of_the_field() {
    // Up to 1/64 of the symbol rate.
    for frequency in [0.0f64, 1e-3, -0.04, 0.09] {
        let mut carrier = CoarseCarrier::default();
        let mut correlator = Correlator::new(1);
        let mut angle = Vec::new();
        for (k, &sign) in preamble()[..STF_SYMBOLS].iter().enumerate() {
            let z = Complex32::cis((frequency * k as f64) as f32) * f32::from(sign);
            if k == STF_SYMBOLS - 1 {
                carrier.freeze();
            }
            carrier.take(correlator.next(z).1);
            if k == 31 {
                carrier.begin();
            }
            if k > 1000 {
                angle.push(f64::from(carrier.turn(z).arg()));
            }
        }
        let found = carrier.frequency();
        assert!((found - frequency).abs() < 1e-6, "{found}");
        // What is left of it over 900 symbols: one step of the oscillator's phase, and of 2²².
        let spread = |signs: f64| {
            let of = angle.iter().zip(&preamble()[1001..STF_SYMBOLS]);
            let same = of.filter(|(_, sign)| f64::from(**sign) == signs);
            let values: Vec<f64> = same.map(|(angle, _)| *angle).collect();
            let least = values.iter().copied().fold(f64::MAX, f64::min);
            values.iter().copied().fold(f64::MIN, f64::max) - least
        };
        assert!(spread(1.0).min(spread(-1.0)) < 0.005, "{frequency}");
    }
}
