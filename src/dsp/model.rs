//! The golden model: the wideband channeliser in double precision, one spectrum at a time.
//!
//! Slow and plain. Backends are held against it.

use std::sync::Arc;

use rustfft::num_complex::{Complex32, Complex64};
use rustfft::{Fft, FftPlanner};

use crate::config::{Dither, OutputConfig};
use crate::dsp::delay::{DelayModels, DelayPoint};
use crate::dsp::{dither, pfb, quantise};
use crate::units::{N_POL, Timestamp};

/// Digitiser samples: polarisation and ADC timestamp to value.
pub trait Source: Fn(usize, u64) -> i32 {}

impl<F: Fn(usize, u64) -> i32> Source for F {}

/// One batch as it goes on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// (channel, spectrum, polarisation, re/im), C order.
    pub data: Vec<i8>,
    /// Complex samples that quantisation clamped, per polarisation.
    pub saturated: [u64; N_POL],
    /// Σ x² over the last tap of each spectrum's window, per polarisation.
    pub power: [u64; N_POL],
}

/// The channeliser of one wideband output stream.
pub struct Model {
    channels: usize,
    spectra_per_heap: usize,
    weights: Vec<f64>,
    fft: Arc<dyn Fft<f64>>,
    dither: Dither,
    dither_seed: u64,
    feng_id: u64,
}

impl Model {
    /// The model of `output` on engine `feng_id`.
    pub fn new(output: &OutputConfig, feng_id: u64) -> Self {
        let step = output.spectrum_samples();
        let weights = pfb::weights(step, output.taps, output.w_cutoff, output.window_function);
        Self {
            channels: output.channels,
            spectra_per_heap: output.spectra_per_heap(),
            weights: weights.into_iter().map(f64::from).collect(),
            fft: FftPlanner::new().plan_fft_forward(step),
            dither: output.dither,
            dither_seed: output.dither_seed,
            feng_id,
        }
    }

    /// The weighted window folded onto one transform length: y\[q\] = Σⱼ w\[j·2C + q\]·x\[first + j·2C + q\].
    ///
    /// Samples before timestamp 0 are zero.
    fn fir(&self, source: &impl Source, pol: usize, first: i64) -> Vec<f64> {
        let mut folded = vec![0.0; 2 * self.channels];
        for (i, w) in self.weights.iter().enumerate() {
            if let Ok(t) = u64::try_from(first + i as i64) {
                folded[i % (2 * self.channels)] += w * f64::from(source(pol, t));
            }
        }
        folded
    }

    /// Spectrum of the window whose first sample has timestamp `first`: C channels from DC upwards,
    /// before any correction.
    pub fn channelise(&self, source: &impl Source, pol: usize, first: i64) -> Vec<Complex64> {
        let mut bins: Vec<Complex64> = self
            .fir(source, pol, first)
            .into_iter()
            .map(Complex64::from)
            .collect();
        self.fft.process(&mut bins);
        bins.truncate(self.channels);
        bins
    }

    /// Applies residual delay, phase and gains (one per channel) to a spectrum.
    fn correct(&self, bins: &mut [Complex64], point: &DelayPoint, gains: &[Complex32]) {
        let phase = point.wideband_phase();
        let half = self.channels as f64 / 2.0;
        for (k, (bin, gain)) in bins.iter_mut().zip(gains).enumerate() {
            let slope = std::f64::consts::PI * point.residual / self.channels as f64;
            let gain = Complex64::new(gain.re.into(), gain.im.into());
            *bin *= Complex64::cis(phase - slope * (k as f64 - half)) * gain;
        }
    }

    /// The corrected spectrum of output timestamp `t`, per polarisation, before dither.
    ///
    /// `gains` holds C gains per polarisation.
    pub fn spectrum(
        &self,
        source: &impl Source,
        t: Timestamp,
        delays: &[DelayModels; N_POL],
        gains: &[Vec<Complex32>; N_POL],
    ) -> [Vec<Complex64>; N_POL] {
        std::array::from_fn(|pol| {
            let point = delays[pol].at(t);
            let mut bins = self.channelise(source, pol, point.orig);
            self.correct(&mut bins, &point, &gains[pol]);
            bins
        })
    }

    /// The batch of output timestamp `t`, quantised to 8 bits.
    ///
    /// Values are rounded to single precision before dither is added, so that the sum is the same
    /// on every backend that computes the same value.
    pub fn batch(
        &self,
        source: &impl Source,
        t: Timestamp,
        delays: &[DelayModels; N_POL],
        gains: &[Vec<Complex32>; N_POL],
    ) -> Batch {
        let step = 2 * self.channels as u64;
        let mut batch = Batch {
            data: vec![0; self.channels * self.spectra_per_heap * N_POL * 2],
            saturated: [0; N_POL],
            power: [0; N_POL],
        };
        for s in 0..self.spectra_per_heap {
            let t = t + s as u64 * step;
            let spectrum = self.spectrum(source, t, delays, gains);
            for k in 0..self.channels {
                let dither = self.dither(t, k);
                for (pol, x) in spectrum.iter().map(|bins| bins[k]).enumerate() {
                    let x = Complex32::new(
                        x.re as f32 + dither[2 * pol],
                        x.im as f32 + dither[2 * pol + 1],
                    );
                    let (q, saturated) = quantise::quantise_complex(x, quantise::LIMIT_8BIT);
                    let at = ((k * self.spectra_per_heap + s) * N_POL + pol) * 2;
                    batch.data[at..at + 2].copy_from_slice(&q);
                    batch.saturated[pol] += u64::from(saturated);
                }
            }
            for (pol, delays) in delays.iter().enumerate() {
                let end = delays.at(t).orig + self.weights.len() as i64;
                batch.power[pol] += (end - step as i64..end)
                    .filter_map(|t| u64::try_from(t).ok())
                    .map(|t| i64::from(source(pol, t)).pow(2) as u64)
                    .sum::<u64>();
            }
        }
        batch
    }

    fn dither(&self, t: Timestamp, channel: usize) -> [f32; 4] {
        match self.dither {
            Dither::None => [0.0; 4],
            Dither::Uniform => {
                dither::dither(self.dither_seed, self.feng_id, t.0, channel, self.channels)
            }
        }
    }
}

/// The integer hash sequence of the reference's golden vectors: ten-bit noise, the same for every reader.
pub fn hash_sample(t: u64) -> i32 {
    let mut h = t as u32;
    h ^= h >> 15;
    h = h.wrapping_mul(2_246_822_519);
    h ^= h >> 13;
    h = h.wrapping_mul(3_266_489_917);
    h ^= h >> 16;
    (h >> 22) as i32 - 512
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::PI;
    use std::net::{Ipv4Addr, SocketAddrV4};

    use crate::config::WindowFunction;
    use crate::dsp::delay::LinearDelay;

    fn output(channels: usize, taps: usize) -> OutputConfig {
        OutputConfig {
            name: "wideband".into(),
            channels,
            dst: vec![SocketAddrV4::new(Ipv4Addr::new(239, 1, 1, 1), 7148)],
            jones_per_batch: channels * 4,
            taps,
            w_cutoff: 1.0,
            window_function: WindowFunction::Hann,
            dither: Dither::None,
            dither_seed: 1,
        }
    }

    fn delays(delay: f64, phase: f64) -> [DelayModels; N_POL] {
        std::array::from_fn(|_| {
            let mut models = DelayModels::new();
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

    /// A tone in the centre of a channel comes out with amplitude A/2·Σw, the phase that it has at the first
    /// sample of the window, less 2πf·delay plus the model's phase.
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
        let mut saturated = [0; N_POL];
        for s in 0..4 {
            let t = t + s as u64 * 16;
            let spectrum = model.spectrum(&source, t, &delays, &gains);
            for k in 0..8 {
                for (pol, x) in spectrum.iter().map(|bins| bins[k]).enumerate() {
                    let at = ((k * 4 + s) * N_POL + pol) * 2;
                    let clamp = |x: f64| x.round().clamp(-127.0, 127.0) as i8;
                    assert_eq!(batch.data[at..at + 2], [clamp(x.re), clamp(x.im)]);
                    saturated[pol] += u64::from(x.re.abs() > 127.0 || x.im.abs() > 127.0);
                }
            }
        }
        assert_eq!(batch.saturated, saturated);
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
}
