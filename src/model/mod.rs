//! The golden model: the channeliser in double precision, one spectrum at a time.
//!
//! Slow and plain. Backends are held against it.

use std::sync::Arc;

use dsp::delay::{DelayModels, DelayPoint};
use dsp::mixer::Mixer;
use dsp::{Dither, OutputBits, ddc, dither, quantise};
use ground::{N_POL, Timestamp};
use karoo_fft::{Fft, forward_f64};
use num_complex::{Complex32, Complex64};

use crate::config::OutputConfig;

/// Digitiser samples: polarisation and ADC timestamp to value.
pub trait SampleSource: Fn(usize, u64) -> i32 {}

impl<F: Fn(usize, u64) -> i32> SampleSource for F {}

/// One batch as it goes on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// (channel, spectrum, polarisation, re/im), C order; with 4-bit output, re and im share a
    /// byte.
    pub data: Vec<i8>,
    /// Complex samples that quantisation clamped, per polarisation.
    pub clipped: [u64; N_POL],
    /// Σ x² over the last tap of each spectrum's window, per polarisation: the samples behind those
    /// of the taps before it, as many as spectra are apart ([`OutputConfig::spectrum_samples`]).
    pub power: [u64; N_POL],
}

/// The channeliser of one output stream.
pub struct Model {
    output: OutputConfig,
    weights: Vec<f64>,
    fft: Arc<dyn Fft<f64>>,
    ddc: Option<Ddc>,
    feng_id: u64,
}

/// The down-conversion of a narrowband output.
struct Ddc {
    /// The filter, mixed.
    taps: Vec<Complex64>,
    mixer: Mixer,
}

/// The PFB's input in one window. Successive windows have most of it in common, and of a narrowband
/// output each number of it takes a whole filter.
#[derive(Default)]
struct Window {
    first: i64,
    inputs: Vec<Complex64>,
}

impl Window {
    /// Makes it that of `len` inputs from timestamp `first` on, `step` apart.
    fn advance(&mut self, first: i64, step: i64, len: usize, input: impl Fn(i64) -> Complex64) {
        let ahead = first - self.first;
        let on_grid = ahead >= 0 && ahead % step == 0;
        let gone = usize::try_from(ahead / step).ok().filter(|_| on_grid);
        let gone = gone.unwrap_or(usize::MAX).min(self.inputs.len());
        self.inputs.drain(..gone);
        self.first = first;
        let missing = self.inputs.len()..len;
        let missing = missing.map(|i| input(first + i as i64 * step));
        self.inputs.extend(missing);
    }
}

impl Model {
    /// The model of `output` on engine `feng_id`.
    pub fn new(output: &OutputConfig, feng_id: u64) -> Self {
        let step = output.pfb_step();
        let weights = output.weights();
        let ddc = output.narrowband.as_ref().map(|narrowband| Ddc {
            taps: ddc::mixed(&narrowband.filter, &narrowband.mixer),
            mixer: narrowband.mixer,
        });
        Self {
            weights: weights.into_iter().map(f64::from).collect(),
            fft: forward_f64(step),
            ddc,
            output: output.clone(),
            feng_id,
        }
    }

    /// The PFB's input of which the first ADC sample has timestamp `first`: that sample itself, or
    /// what the down-conversion makes of it and those behind. Samples before timestamp 0 are zero.
    pub fn input(&self, source: &impl SampleSource, pol: usize, first: i64) -> Complex64 {
        let sample = |t: i64| u64::try_from(t).map_or(0.0, |t| f64::from(source(pol, t)));
        let Some(ddc) = &self.ddc else {
            return sample(first).into();
        };
        let terms = (first..).zip(&ddc.taps).map(|(t, g)| g * sample(t));
        ddc.mixer.phasor(first) * terms.sum::<Complex64>()
    }

    /// The weighted window folded onto one transform length: y\[q\] = Σⱼ w\[j·step + q\]·u\[j·step
    /// + q\], where u is the PFB's input in the window.
    fn fir(&self, window: &Window) -> Vec<Complex64> {
        let step = self.output.pfb_step();
        let mut folded = vec![Complex64::default(); step];
        for (i, (w, u)) in self.weights.iter().zip(&window.inputs).enumerate() {
            folded[i % step] += w * u;
        }
        folded
    }

    /// Spectrum of the window whose first sample has timestamp `first`, from which phases count: C
    /// channels in ascending order of frequency, before any correction.
    pub fn channelise(&self, source: &impl SampleSource, pol: usize, first: i64) -> Vec<Complex64> {
        self.channelise_next(source, pol, first, 0, &mut Window::default())
    }

    /// The same with what `window` has of an earlier one of the same source and polarisation, and
    /// with phases that count from `rotation` of the PFB's input before the window.
    fn channelise_next(
        &self,
        source: &impl SampleSource,
        pol: usize,
        first: i64,
        rotation: usize,
        window: &mut Window,
    ) -> Vec<Complex64> {
        let subsampling = self.output.subsampling() as i64;
        let input = |t| self.input(source, pol, t);
        window.advance(first, subsampling, self.weights.len(), input);
        let mut bins = self.fir(window);
        bins.rotate_right(rotation);
        self.fft.process(&mut bins);
        (0..self.output.channels)
            .map(|c| bins[self.output.bin(c)])
            .collect()
    }

    /// Applies residual delay, phase and gains (one per channel) to a spectrum.
    ///
    /// The slope is −π·r/(C·D) per channel in every mode: 2π times a channel's width, in cycles per
    /// ADC sample, times the residual delay r in ADC samples.
    fn correct(&self, bins: &mut [Complex64], point: &DelayPoint, gains: &[Complex32]) {
        let (channels, decimation) = (self.output.channels, self.output.decimation());
        let phase = match self.ddc {
            None => point.wideband_phase(),
            Some(_) => point.phase,
        };
        let slope = std::f64::consts::PI * point.residual / (channels * decimation) as f64;
        for (k, (bin, gain)) in bins.iter_mut().zip(gains).enumerate() {
            let gain = Complex64::new(gain.re.into(), gain.im.into());
            *bin *= Complex64::cis(phase - slope * (k as f64 - channels as f64 / 2.0)) * gain;
        }
    }

    /// The corrected spectrum of output timestamp `t`, per polarisation, before dither.
    ///
    /// `gains` holds C gains per polarisation. `delays` are those of the output's subsampling.
    pub fn spectrum(
        &self,
        source: &impl SampleSource,
        t: Timestamp,
        delays: &[DelayModels; N_POL],
        gains: &[Vec<Complex32>; N_POL],
    ) -> [Vec<Complex64>; N_POL] {
        let windows = &mut Default::default();
        self.spectrum_next(source, t, delays, gains, windows)
    }

    /// Those of these output timestamps, one after the other. What windows have in common is
    /// computed once.
    pub fn spectra(
        &self,
        source: &impl SampleSource,
        times: impl IntoIterator<Item = Timestamp>,
        delays: &[DelayModels; N_POL],
        gains: &[Vec<Complex32>; N_POL],
    ) -> impl Iterator<Item = [Vec<Complex64>; N_POL]> {
        let mut windows: [Window; N_POL] = Default::default();
        let times = times.into_iter();
        times.map(move |t| self.spectrum_next(source, t, delays, gains, &mut windows))
    }

    /// [`spectrum`](Self::spectrum) with what `windows` have of earlier ones of the same source.
    fn spectrum_next(
        &self,
        source: &impl SampleSource,
        t: Timestamp,
        delays: &[DelayModels; N_POL],
        gains: &[Vec<Complex32>; N_POL],
        windows: &mut [Window; N_POL],
    ) -> [Vec<Complex64>; N_POL] {
        std::array::from_fn(|pol| {
            let point = delays[pol].at(t);
            let window = &mut windows[pol];
            let rotation = self.output.rotation(t);
            let mut bins = self.channelise_next(source, pol, point.orig, rotation, window);
            self.correct(&mut bins, &point, &gains[pol]);
            bins
        })
    }

    /// The batch of output timestamp `t`, quantised.
    ///
    /// Values are rounded to single precision before dither is added, so that the sum is the same
    /// on every backend that computes the same value.
    pub fn batch(
        &self,
        source: &impl SampleSource,
        t: Timestamp,
        delays: &[DelayModels; N_POL],
        gains: &[Vec<Complex32>; N_POL],
    ) -> Batch {
        let (channels, spectra) = (self.output.channels, self.output.spectra_per_heap());
        let step = self.output.spectrum_samples();
        let last_tap = self.output.last_tap() as i64;
        let bits = self.output.sample_bits;
        let mut batch = Batch {
            data: vec![0; self.output.batch_bytes()],
            clipped: [0; N_POL],
            power: [0; N_POL],
        };
        let times = (0..spectra).map(|s| t + (s * step) as u64);
        let of_times = self.spectra(source, times.clone(), delays, gains);
        for (s, (t, spectrum)) in times.zip(of_times).enumerate() {
            for k in 0..channels {
                let dither = self.dither(t, k);
                for (pol, x) in spectrum.iter().map(|bins| bins[k]).enumerate() {
                    let x = Complex32::new(
                        x.re as f32 + dither[2 * pol],
                        x.im as f32 + dither[2 * pol + 1],
                    );
                    let (q, clipped) = quantise::quantise_complex(x, bits.limit());
                    let at = (k * spectra + s) * N_POL + pol;
                    match bits {
                        OutputBits::Eight => batch.data[2 * at..2 * at + 2].copy_from_slice(&q),
                        OutputBits::Four => batch.data[at] = q[0] << 4 | q[1] & 0xF,
                    }
                    batch.clipped[pol] += u64::from(clipped);
                }
            }
            for (pol, delays) in delays.iter().enumerate() {
                let first = delays.at(t).orig + last_tap;
                batch.power[pol] += (first..first + step as i64)
                    .filter_map(|t| u64::try_from(t).ok())
                    .map(|t| i64::from(source(pol, t)).pow(2) as u64)
                    .sum::<u64>();
            }
        }
        batch
    }

    fn dither(&self, t: Timestamp, channel: usize) -> [f32; 4] {
        let OutputConfig {
            dither_seed,
            channels,
            ..
        } = self.output;
        match self.output.dither {
            Dither::None => [0.0; 4],
            Dither::Uniform => dither::dither(dither_seed, self.feng_id, t.0, channel, channels),
        }
    }
}

/// The integer hash sequence of the golden vectors: ten-bit noise, the same for every reader.
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
mod tests;
