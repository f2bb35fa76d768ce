//! The judge against values of engines that differ in a known way.

use dsp::OutputBits;
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use super::super::sums::Sums;
use super::*;

const CHANNELS: usize = 64;
const BANDWIDTH: f64 = 1e6;

/// How one of two engines makes values of the same spectra.
#[derive(Clone, Copy, Debug)]
struct Maker {
    dithers: bool,
    gain: fn(usize, usize) -> Complex64,
}

fn one(_: usize, _: usize) -> Complex64 {
    Complex64::new(1.0, 0.0)
}

const PLAIN: Maker = Maker {
    dithers: false,
    gain: one,
};
const DITHERED: Maker = Maker {
    dithers: true,
    gain: one,
};

fn part(value: f64, dithers: bool, random: &mut ChaCha8Rng) -> u8 {
    let dither = if dithers {
        random.random_range(-0.5..0.5)
    } else {
        0.0
    };
    (value + dither).round_ties_even().clamp(-127.0, 127.0) as i8 as u8
}

/// Sums over `spectra` of noise with this rms, of two engines.
fn sums(ours: Maker, theirs: Maker, rms: f64, spectra: usize, seed: u64) -> Vec<Cell> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut sums = Sums::new(CHANNELS);
    for k in 0..CHANNELS {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for s in 0..spectra {
            for _ in 0..2 {
                let [re, im] = [0, 1].map(|_| rms * random.sample::<f64, _>(StandardNormal));
                let value = Complex64::new(re, im);
                for (bytes, maker) in [(&mut a, ours), (&mut b, theirs)] {
                    let value = value * (maker.gain)(k, s);
                    bytes.push(part(value.re, maker.dithers, &mut random));
                    bytes.push(part(value.im, maker.dithers, &mut random));
                }
            }
        }
        sums.add_heap((k, spectra), OutputBits::Eight, &a, &b);
    }
    sums.0[0].clone()
}

fn found(ours: Maker, theirs: Maker, rms: f64, spectra: usize) -> Finding {
    let found = judge(&sums(ours, theirs, rms, spectra, 7), BANDWIDTH);
    found.expect("a difference")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Whatever the level, and whether there is dither: both draw their own.
    #[test]
    fn rounding_and_dither_are_no_difference(
        seed in any::<u64>(),
        rms in prop_oneof![Just(0.05), 0.1..60.0f64],
        maker in prop_oneof![Just(PLAIN), Just(DITHERED)],
    ) {
        prop_assert_eq!(judge(&sums(maker, maker, rms, 500, seed), BANDWIDTH), None);
    }
}

/// Two backends round some values to the other side.
#[test]
fn values_off_by_one_at_random_are_no_difference() {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let mut sums = Sums::new(1);
    for _ in 0..2000 {
        let ours: Vec<u8> = (0..4)
            .map(|_| random.random_range(-20..20i8) as u8)
            .collect();
        let off = |byte: &u8| match random.random_range(0..10) {
            0 => byte.wrapping_add(1),
            1 => byte.wrapping_sub(1),
            _ => *byte,
        };
        let theirs: Vec<u8> = ours.iter().map(off).collect();
        sums.add_heap((0, 1), OutputBits::Eight, &ours, &theirs);
    }
    assert!(sums.0[0][0].unequal > 300);
    assert_eq!(judge(&sums.0[0], BANDWIDTH), None);
}

/// A digitiser's signal of 128 spectra comes a hundred times. One of its values is on a tie, which
/// the engines round to different sides each time.
#[test]
fn one_value_that_differs_in_each_repetition_is_no_difference() {
    let mut cells = sums(PLAIN, PLAIN, 20.0, 128, 5);
    let mut differing = Sums::new(1);
    differing.add_heap((0, 1), OutputBits::Eight, &[20, 20, 1, 1], &[21, 20, 1, 1]);
    cells[3].add(&differing.0[0][0]);
    let mut all = vec![Cell::default(); CHANNELS];
    for _ in 0..100 {
        all.iter_mut()
            .zip(&cells)
            .for_each(|(all, cell)| all.add(cell));
    }
    assert!(all[3].turned.abs() as f64 > BEYOND * all[3].turn_squares.sqrt());
    assert_eq!(judge(&all, BANDWIDTH), None);
}

/// What is as small, but of many values, is one.
#[test]
fn half_a_thousandth_of_one_channel_is_found() {
    fn little(k: usize, _: usize) -> Complex64 {
        Complex64::new(if k == 11 { 1.0005 } else { 1.0 }, 0.0)
    }
    let found = found(
        PLAIN,
        Maker {
            gain: little,
            ..PLAIN
        },
        20.0,
        20_000,
    );
    assert_eq!(found.channels, [11..=11], "{found:?}");
    assert!((found.ratio - 1.0005).abs() < 1e-4, "{found:?}");
}

fn one_percent(k: usize, _: usize) -> Complex64 {
    Complex64::new(if k == 11 { 1.01 } else { 1.0 }, 0.0)
}

#[test]
fn one_percent_of_one_channel_is_found() {
    for maker in [PLAIN, DITHERED] {
        let gain = one_percent;
        let found = found(maker, Maker { gain, ..maker }, 16.0, 4000);
        assert_eq!(
            (found.guess, &found.channels[..]),
            (Guess::Gain, &[11..=11][..])
        );
        assert!((found.ratio - 1.01).abs() < 0.003, "{found:?}");
        assert!(found.phase.abs() < 0.003, "{found:?}");
    }
}

#[test]
fn a_gain_of_all_channels_is_found_though_none_shows_it() {
    fn gain(_: usize, _: usize) -> Complex64 {
        Complex64::from_polar(1.002, 0.002)
    }
    let found = found(DITHERED, Maker { gain, ..DITHERED }, 16.0, 4000);
    assert_eq!(
        (found.guess, &found.channels[..]),
        (Guess::Gain, &[0..=63][..])
    );
    assert!((found.ratio - 1.002).abs() < 4e-4, "{found:?}");
    assert!((found.phase - 0.002).abs() < 4e-4, "{found:?}");
}

/// Later by so many seconds, from the middle of the band.
fn later(k: usize, seconds: f64) -> Complex64 {
    let frequency = (k as f64 - CHANNELS as f64 / 2.0) * BANDWIDTH;
    Complex64::from_polar(1.0, -TAU * frequency * seconds)
}

/// From a picosecond, whose phase at the edges is 0.2 mrad, to what goes round many times.
#[test]
fn delays_are_slopes_of_phase() {
    fn picosecond(k: usize, _: usize) -> Complex64 {
        later(k, 10e-12)
    }
    fn nanosecond(k: usize, _: usize) -> Complex64 {
        later(k, -1e-9)
    }
    fn samples(k: usize, _: usize) -> Complex64 {
        later(k, 200e-9)
    }
    for (gain, seconds) in [
        (picosecond as fn(usize, usize) -> Complex64, 10e-12),
        (nanosecond, -1e-9),
        (samples, 200e-9),
    ] {
        for maker in [PLAIN, DITHERED] {
            let found = found(maker, Maker { gain, ..maker }, 16.0, 4000);
            assert_eq!(found.guess, Guess::Delay, "{found:?}");
            let delay = found.delay.unwrap();
            assert!((delay - seconds).abs() < 2e-12, "{delay} {seconds}");
            assert!((found.ratio - 1.0).abs() < 1e-3, "{found:?}");
        }
    }
}

/// A rate that comes to a picosecond of the sample rate of 1712 MHz after 2²⁰ samples: a band of
/// 856 MHz is then turned by 2.7 mrad at either edge.
#[test]
fn a_picosecond_after_a_million_samples_is_found() {
    fn rate(k: usize, s: usize) -> Complex64 {
        let frequency = (k as f64 / CHANNELS as f64 - 0.5) * 856e6;
        let spectra = (1 << 20) / (2 * CHANNELS);
        Complex64::from_polar(1.0, -TAU * frequency * 1e-12 * s as f64 / spectra as f64)
    }
    let theirs = Maker {
        gain: rate,
        ..DITHERED
    };
    let cells = sums(DITHERED, theirs, 16.0, (1 << 20) / (2 * CHANNELS), 3);
    let found = judge(&cells, 856e6 / CHANNELS as f64).unwrap();
    assert_eq!(found.guess, Guess::Delay);
    // Half of it in the mean.
    let delay = found.delay.unwrap();
    assert!((delay - 0.5e-12).abs() < 0.1e-12, "{delay}");
}

#[test]
fn gains_of_many_channels_and_silence_and_other_values_are_told_apart() {
    fn gains(k: usize, _: usize) -> Complex64 {
        Complex64::from_polar(1.0, (k * k % 7) as f64)
    }
    fn silence(_: usize, _: usize) -> Complex64 {
        Complex64::ZERO
    }
    fn other(k: usize, s: usize) -> Complex64 {
        Complex64::from_polar(1.0, ((s * s + k) * 31 % 97) as f64)
    }
    for (gain, guess) in [
        (gains as fn(usize, usize) -> Complex64, Guess::Gains),
        (silence, Guess::Silence),
        (other, Guess::Values),
    ] {
        let found = found(PLAIN, Maker { gain, ..PLAIN }, 8.0, 500);
        assert_eq!(found.guess, guess, "{found:?}");
    }
}

#[test]
fn channels_are_ranges() {
    let numbers = [0, 1, 2, 5, 7, 8];
    assert_eq!(runs(numbers.into_iter()), [0..=2, 5..=5, 7..=8]);
}
