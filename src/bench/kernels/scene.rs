//! What kernels are run over, and what is to come of it.

use std::sync::Arc;

use dsp::delay::{DelayModels, LinearDelay};
use dsp::{Dither, OutputBits, SampleBits, WindowFunction, dither, quantise, unpack};
use ground::{N_POL, SampleClock, Timestamp};
use num_complex::Complex32;

use super::{Case, KernelError};
use crate::config::{Narrowband, NarrowbandSpec, OutputConfig};
use crate::engine::FineDelay;
use crate::gpu::measure::{self, Buffers, Pass};
use crate::gpu::{Gpu, GpuError};
use crate::memory::BatchStats;
use crate::model::Model;

/// Passes over different samples, so that none is in the L2 cache when it is read again.
const SETS: usize = 3;
/// Spectra that are compared with the model.
const CHECKED: usize = 6;
const FENG_ID: u64 = 3;
const START: Timestamp = Timestamp(1 << 33);
/// Numbers of the filter bank's input before the first one that any window needs.
const LEAD: usize = 64;
/// Sample rate of the digitiser, and centre of narrowband outputs: any values will do.
const ADC_SAMPLE_RATE: f64 = 1712e6;
const CENTRE_FREQUENCY: f64 = 408_173_015.594_482_4;
/// Spectra per heap, or all of a pass that has fewer.
const SPECTRA_PER_HEAP: usize = 256;

/// Noise, delays that change from spectrum to spectrum, and gains.
pub(super) struct Scene {
    pub output: OutputConfig,
    bits: SampleBits,
    pub spectra: usize,
    packed: Vec<[Vec<u8>; N_POL]>,
    delays: [DelayModels; N_POL],
    gains: [Vec<Complex32>; N_POL],
}

impl Scene {
    pub fn new(case: &Case) -> Result<Self, KernelError> {
        let clock = SampleClock {
            adc_sample_rate: ADC_SAMPLE_RATE,
            sync_time: 0.0,
        };
        let output_bandwidth = ADC_SAMPLE_RATE / 2.0 / case.decimation as f64;
        let spec = NarrowbandSpec {
            centre_frequency: CENTRE_FREQUENCY,
            decimation: case.decimation,
            ddc_taps: None,
            weight_pass: 0.005,
            pass_bandwidth: case.pass_fraction.map(|pass| pass * output_bandwidth),
        };
        let narrowband = (case.decimation > 1).then(|| Narrowband::new(&spec, clock));
        let narrowband = narrowband
            .transpose()
            .map_err(|source| KernelError::Filter {
                decimation: case.decimation,
                source,
            })?;
        let transform = 2 * case.channels * case.decimation;
        let spectra = (case.samples / case.oversampling.hop(transform)).max(1);
        let spectra_per_heap = spectra.min(SPECTRA_PER_HEAP);
        let spectra = spectra / spectra_per_heap * spectra_per_heap;
        let window_function = match case.oversampling.is_none() {
            true => WindowFunction::Hann,
            false => WindowFunction::Kaiser,
        };
        let output = OutputConfig {
            name: "bench".into(),
            channels: case.channels,
            dst: Vec::new(),
            jones_per_batch: case.channels * spectra_per_heap,
            taps: case.taps,
            w_cutoff: window_function.cutoff(case.taps, case.oversampling),
            window_function,
            oversampling: case.oversampling,
            dither: Dither::Uniform,
            dither_seed: 0x0123_4567_89AB_CDEF,
            sample_bits: case.sample_bits,
            narrowband,
        };
        let samples = (spectra - 1) * output.spectrum_samples() + output.window_samples();
        let samples = samples + 2 * LEAD * output.subsampling();
        // The coarse delays stay what they are for the whole pass, of 2²⁸ samples at most.
        let delays = [(5.25, 0.7), (-17.3, -2.1)].map(|(delay, phase)| {
            let mut models = DelayModels::with_subsampling(output.subsampling() as u32);
            if let Ok(model) = LinearDelay::new(START.0 as i64, delay, 5e-10, phase, 1e-6) {
                models.add(model);
            }
            models
        });
        let gain = measure::gain(case.bits, case.sample_bits.limit() / 4.2);
        let turned = |k: usize| gain * Complex32::cis(k as f32);
        let gains = (0..case.channels).map(turned).collect::<Vec<_>>();
        Ok(Self {
            packed: measure::noise(case.bits, samples, SETS),
            bits: case.bits,
            gains: [gains.clone(), gains.iter().map(Complex32::conj).collect()],
            spectra,
            output,
            delays,
        })
    }

    pub fn buffers(&self, gpu: &Arc<Gpu>) -> Result<Buffers, GpuError> {
        let pass = Pass {
            output: &self.output,
            bits: self.bits,
            feng_id: FENG_ID,
            start: START,
            packed: &self.packed,
            begin: self.begin(),
            offset: self.offset(),
            fine: &self.fine(),
            gains: &self.gains,
        };
        Buffers::new(gpu, &pass)
    }

    /// Timestamp of sample 0 of the buffers.
    fn begin(&self) -> Timestamp {
        Timestamp(START.0 - (LEAD * self.output.subsampling()) as u64)
    }

    fn time(&self, spectrum: usize) -> Timestamp {
        START + (spectrum * self.output.spectrum_samples()) as u64
    }

    fn fine(&self) -> Vec<FineDelay> {
        let fine = |spectrum| {
            let points = self.delays.each_ref().map(|d| d.at(self.time(spectrum)));
            let decimation = self.output.decimation() as f64;
            FineDelay {
                delay: points.map(|point| (point.residual / decimation) as f32),
                phase: points.map(|point| match self.output.narrowband {
                    None => point.wideband_phase() as f32,
                    Some(_) => point.phase as f32,
                }),
            }
        };
        (0..self.spectra).map(fine).collect()
    }

    fn offset(&self) -> [usize; N_POL] {
        let begin = self.begin().0 as i64;
        let first = |delays: &DelayModels| (delays.at(START).orig - begin) as usize;
        self.delays.each_ref().map(first)
    }

    fn sample(&self, pol: usize, t: u64) -> i32 {
        let at = t - self.begin().0;
        unpack::sample(&self.packed[0][pol], self.bits, at as usize)
    }

    /// Holds some spectra of the first pass against the model. Returns how many bytes were compared
    /// and how many differ.
    pub fn compare(&self, data: &[u8]) -> Result<(usize, usize), String> {
        let model = Model::new(&self.output, FENG_ID);
        let source = |pol: usize, t: u64| self.sample(pol, t);
        let per_heap = self.output.spectra_per_heap();
        let (mut compared, mut differ) = (0, 0);
        // The model of narrowband is slow.
        let checked = if self.output.narrowband.is_none() {
            CHECKED
        } else {
            2
        };
        let jones_bytes = self.output.sample_bits.jones_bytes();
        for i in 0..checked {
            let spectrum = i * (self.spectra - 1) / (checked - 1);
            let t = self.time(spectrum);
            let expected = model.spectrum(&source, t, &self.delays, &self.gains);
            let batch = &data[spectrum / per_heap * self.output.batch_bytes()..];
            for k in 0..self.output.channels {
                let dither = dither::dither(
                    self.output.dither_seed,
                    FENG_ID,
                    t.0,
                    k,
                    self.output.channels,
                );
                let got = &batch[(k * per_heap + spectrum % per_heap) * jones_bytes..];
                for (pol, x) in expected.iter().map(|bins| bins[k]).enumerate() {
                    let x = [
                        x.re as f32 + dither[2 * pol],
                        x.im as f32 + dither[2 * pol + 1],
                    ];
                    for (part, x) in x.into_iter().enumerate() {
                        let (want, _) = quantise::quantise(x, self.output.sample_bits.limit());
                        let got = match self.output.sample_bits {
                            OutputBits::Eight => got[2 * pol + part] as i8,
                            // The real part is the upper nibble.
                            OutputBits::Four => (got[pol] << (4 * part)) as i8 >> 4,
                        };
                        if got.abs_diff(want) > 1 {
                            return Err(format!(
                                "spectrum {spectrum} channel {k} polarisation {pol} is {got}, should be {want}"
                            ));
                        }
                        compared += 1;
                        differ += usize::from(got != want);
                    }
                }
            }
        }
        if 1000 * differ > compared {
            return Err(format!(
                "{differ} of {compared} bytes differ from the model"
            ));
        }
        Ok((compared, differ))
    }

    /// Holds the digitiser power of every batch against the samples: successive last taps tile the
    /// time axis.
    pub fn compare_power(&self, stats: &[BatchStats]) -> Result<(), String> {
        let batch_samples = self.output.batch_samples() as u64;
        let last_tap = self.output.last_tap() as u64;
        for (batch, stats) in stats.iter().enumerate() {
            for pol in 0..N_POL {
                let t = START + batch as u64 * batch_samples;
                let first = self.delays[pol].at(t).orig as u64 + last_tap;
                let squares = (first..first + batch_samples)
                    .map(|t| i64::from(self.sample(pol, t)).pow(2) as u64);
                let (want, got) = (squares.sum::<u64>(), stats.power[pol]);
                if got != want {
                    return Err(format!(
                        "power of batch {batch} polarisation {pol} is {got}, should be {want}"
                    ));
                }
            }
        }
        Ok(())
    }
}
