//! What channels far from a tone hear of it.

use std::f64::consts::TAU;

use dsp::{Dither, pfb};
use karoo::engine::FineDelay;
use num_complex::{Complex32, Complex64};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::case::Case;
use crate::support::gpu::Contents;
use crate::support::{self, device, output};

/// Spectra that are added up in phase.
const SPECTRA: usize = 96;
/// Channels around a tone that are not far from it.
const NEAR: usize = 16;
const BITS: u32 = 16;
const AMPLITUDE: f64 = 0.99 * 32767.0;
/// Counts of what is 110 dB below the tone; the tone itself clips.
const COUNTS: f64 = 40.0;

/// The channels of a tone of each polarisation.
fn places(channels: usize) -> [usize; 2] {
    [channels / 3, channels / 2 + channels / 8]
}

/// Tones in the middle of channels, which are the same in every spectrum but for the dither of the
/// samples.
fn tones(channels: usize) -> Case {
    let config = output(channels, 4, SPECTRA, Dither::Uniform);
    let step = config.spectrum_samples();
    let mut case = Case::new(config, BITS, 1, 1.0, 90);
    let mut rng = ChaCha8Rng::seed_from_u64(channels as u64);
    for (pol, place) in places(channels).into_iter().enumerate() {
        for (t, sample) in case.samples[pol].iter_mut().enumerate() {
            let turns = (place * t % step) as f64 / step as f64;
            let dithered = AMPLITUDE * (TAU * turns).cos() + rng.random_range(-0.5..0.5);
            *sample = dithered.round() as i32;
        }
        case.packed[pol] = support::packed(case.samples[pol].iter().copied(), BITS);
        let gain = Complex32::new(gain(&case), 0.0);
        case.gains[pol].fill(gain);
    }
    case.fine.fill(FineDelay::default());
    case
}

/// By which a number 110 dB below the tone has [`COUNTS`].
fn gain(case: &Case) -> f32 {
    let config = &case.config;
    let step = config.spectrum_samples();
    let weights = pfb::weights(step, config.taps, config.w_cutoff, config.window_function);
    let sum: f64 = weights.iter().copied().map(f64::from).sum();
    (COUNTS * 10f64.powf(110.0 / 20.0) / (AMPLITUDE / 2.0 * sum)) as f32
}

/// The most that a far channel has, in dB of the tone.
fn heard(case: &Case, (data, _): &Contents) -> f64 {
    let places = places(case.config.channels);
    let mut most = f64::NEG_INFINITY;
    for (channel, spectra) in data.chunks_exact(4 * SPECTRA).enumerate() {
        for (pol, place) in places.into_iter().enumerate() {
            let values = spectra.chunks_exact(4).map(|jones| {
                let [re, im] = [0, 1].map(|part| f64::from(jones[2 * pol + part] as i8));
                Complex64::new(re, im)
            });
            let sum: Complex64 = values.sum();
            let mean = sum.norm() / SPECTRA as f64;
            if channel == place {
                assert!(mean > 100.0, "the tone is not where it should be: {mean}");
            } else if channel.abs_diff(place) > NEAR {
                most = most.max(20.0 * (mean / COUNTS).log10() - 110.0);
            }
        }
    }
    most
}

#[test]
fn far_channels_hear_nothing_on_a_cpu() {
    let case = tones(256);
    let mut pipeline = case.on_cpu();
    case.set_gains(&mut pipeline);
    let most = heard(&case, &case.run_on_cpu(&mut pipeline, &[7]));
    assert!(most < -125.0, "{most} dB");
}

/// Errors of the intermediate that repeat with a tone are 104 to 108 dB below it.
#[test]
fn far_channels_hear_nothing_on_a_gpu() {
    let Some(gpu) = device() else { return };
    for channels in [256, 512, 1024, 4096, 8192, 32768] {
        let case = tones(channels);
        for mut rig in [case.on_gpu(&gpu), case.on_cufft(&gpu)] {
            case.set_gains(&mut *rig.pipeline);
            let most = heard(&case, &case.run(&mut rig, &[7, 50]));
            let name = rig.pipeline.name();
            assert!(most < -120.0, "{channels} channels, {name}: {most} dB");
        }
    }
}
