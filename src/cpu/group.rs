//! The computation of one group of spectra by one worker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dsp::{Dither, OutputBits};
use ground::{N_POL, Timestamp};
use karoo_fft::{Fft, forward_f32};
use num_complex::{Complex32, Complex64};

use super::coefficients::{Coefficients, Gains, SEPARATION};
use super::down::Baseband;
use super::simd::{self, Bins, DitherKey, FirTile, GroupOutput, Level, Supported, TILE, Unpacker};
use super::sums::{TotalSums, WorkerSums, one_spectrum_in};
use crate::config::PipelineConfig;
use crate::engine::FineDelay;
use crate::memory::SampleView;

/// What all workers share of one pipeline.
pub(super) struct GroupKernels {
    pub at: Supported,
    pub channels: usize,
    pub taps: usize,
    /// Spectra per group.
    pub group: usize,
    /// ADC samples from spectrum to spectrum.
    pub spectrum_samples: usize,
    pub bits: OutputBits,
    /// Elements of a transform.
    step: usize,
    /// Transforms of one spectrum: wideband has one for both polarisations.
    transforms: usize,
    weights: Vec<f32>,
    pub(super) unpacker: Unpacker,
    fft: Arc<dyn Fft<f32>>,
    dither: Option<(u64, u64)>,
    /// For statistics, which have one spectrum of so many of a group.
    pub sums: Option<TotalSums>,
    pub sums_every: usize,
}

/// Spectra of one group behind the FIR, and what is done to them.
#[derive(Clone, Copy)]
pub(super) struct GroupSpectra<'a> {
    /// Timestamp of the first.
    pub start: Timestamp,
    /// Of each, delay and phase, and whether statistics count it.
    pub fine: &'a [FineDelay],
    pub counts: &'a [bool],
    /// Gains of all spectra.
    pub gains: &'a Gains,
}

/// Time per phase of one worker.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PhaseTimes {
    pub ddc: Duration,
    pub fir: Duration,
    pub fft: Duration,
    pub post: Duration,
}

/// FIR output of one group: per spectrum and transform a row of complex numbers, each followed by
/// padding.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows(Vec<Complex32>);

/// One worker's buffers.
pub(super) struct Scratch {
    pub rows: Rows,
    pub times: PhaseTimes,
    /// Samples in front of a down-conversion.
    pub tile: Vec<f32>,
    pub(super) samples: [Vec<f32>; N_POL],
    pub(super) partial: Vec<f32>,
    fft: Vec<Complex32>,
    quantised: Vec<u32>,
    coefficients: Coefficients,
    pub sums: Option<WorkerSums>,
}

impl GroupKernels {
    /// The kernels of a pipeline, in groups of `group` spectra.
    pub fn new(level: Level, config: &PipelineConfig<'_>, group: usize) -> Self {
        let (output, sample_bits, feng_id) = (config.output, config.sample_bits, config.feng_id);
        let step = output.pfb_step();
        Self {
            at: Supported::new(level),
            channels: output.channels,
            taps: output.taps,
            group,
            spectrum_samples: output.spectrum_samples(),
            bits: output.sample_bits,
            step,
            transforms: match output.narrowband {
                None => 1,
                Some(_) => N_POL,
            },
            weights: output.weights(),
            unpacker: Unpacker::new(sample_bits, level),
            fft: forward_f32(step),
            dither: match output.dither {
                Dither::None => None,
                Dither::Uniform => Some((output.dither_seed, feng_id)),
            },
            sums_every: one_spectrum_in(output.channels),
            sums: config.statistics.then(|| TotalSums::new(output.channels)),
        }
    }

    /// Complex numbers from row to row: room for the copy of element 0, and an odd number of
    /// cache lines so that rows do not fall on the same cache sets.
    pub(super) fn pitch(&self) -> usize {
        self.step.next_multiple_of(16) + 8
    }

    /// Complex numbers from spectrum to spectrum.
    pub(super) fn spectrum_pitch(&self) -> usize {
        self.transforms * self.pitch()
    }

    /// Words from row to row of the quantised group.
    fn quantised_pitch(&self) -> usize {
        self.channels.next_multiple_of(16) + 16
    }

    pub fn rows(&self) -> Rows {
        Rows(vec![
            Complex32::default();
            self.group * self.spectrum_pitch()
        ])
    }

    /// Rows from that of spectrum `first` of the group on.
    pub(super) fn rows_from<'a>(&self, rows: &'a mut Rows, first: usize) -> &'a mut [Complex32] {
        &mut rows.0[first * self.spectrum_pitch()..]
    }

    /// Buffers of one worker; `tile` samples in front of a down-conversion.
    pub fn scratch(&self, tile: usize) -> Scratch {
        let joint = self.transforms == 1;
        let unpacked = match joint {
            true => vec![0.0; (self.group + self.taps - 1) * TILE],
            false => Vec::new(),
        };
        let factors = match joint {
            true => SEPARATION,
            false => [Complex64::new(1.0, 0.0); N_POL],
        };
        Scratch {
            rows: self.rows(),
            times: PhaseTimes::default(),
            tile: vec![0.0; tile],
            samples: [unpacked.clone(), unpacked],
            partial: vec![0.0; self.group * 2 * TILE],
            fft: vec![Complex32::default(); self.fft.get_inplace_scratch_len()],
            quantised: vec![0; self.group * self.quantised_pitch()],
            coefficients: Coefficients::new(self.channels, factors),
            sums: self.sums.as_ref().map(|_| WorkerSums::new(self.channels)),
        }
    }

    /// FIR of `count` spectra of samples into `rows[first..]`; the first window starts at `offset`.
    /// Returns the digitiser power over the last taps.
    pub fn front(
        &self,
        scratch: &mut Scratch,
        rows: &mut Rows,
        input: &SampleView<'_>,
        offset: [usize; N_POL],
        first: usize,
        count: usize,
    ) -> [u64; N_POL] {
        let begun = Instant::now();
        let step = self.step;
        let out = &mut rows.0[first * self.spectrum_pitch()..];
        let mut power = [0; N_POL];
        for column in (0..step).step_by(TILE) {
            let width = TILE.min(step - column);
            for pol in 0..N_POL {
                let tile = scratch.samples[pol].chunks_exact_mut(TILE);
                for (row, tile) in tile.take(count + self.taps - 1).enumerate() {
                    let at = offset[pol] + row * step + column;
                    let tile = &mut tile[..width];
                    if row + 1 >= self.taps {
                        power[pol] += self.unpacker.unpack_power(input.pol[pol], at, tile);
                    } else {
                        self.unpacker.unpack(input.pol[pol], at, tile);
                    }
                }
            }
            let mut tile = FirTile {
                weights: &self.weights,
                step,
                column,
                samples: [&scratch.samples[0], &scratch.samples[1]],
                pitch: TILE,
                partial: &mut scratch.partial,
            };
            simd::fir(self.at, &mut tile, count, out, self.spectrum_pitch());
        }
        scratch.times.fir += begun.elapsed();
        power
    }

    /// FIR of `count` spectra of a down-converted block into `rows[first..]`; the first window
    /// starts at row `row`. Returns the digitiser power over the last taps.
    pub fn front_down(
        &self,
        scratch: &mut Scratch,
        rows: &mut Rows,
        baseband: &Baseband,
        row: usize,
        first: usize,
        count: usize,
    ) -> [u64; N_POL] {
        let begun = Instant::now();
        let step = self.step;
        let power = [0, 1].map(|pol: usize| {
            let out = &mut rows.0[first * self.spectrum_pitch() + pol * self.pitch()..];
            let plane = &baseband.rows[pol][row * 2 * step..];
            for column in (0..step).step_by(TILE) {
                let mut tile = FirTile {
                    weights: &self.weights,
                    step,
                    column,
                    samples: [&plane[column..], &plane[step + column..]],
                    pitch: 2 * step,
                    partial: &mut scratch.partial,
                };
                simd::fir(self.at, &mut tile, count, out, self.spectrum_pitch());
            }
            let last_taps = &baseband.power[pol][row + self.taps - 1..][..count];
            last_taps.iter().sum()
        });
        scratch.times.fir += begun.elapsed();
        power
    }

    /// Transforms one spectrum in place.
    fn transform(&self, spectrum: &mut [Complex32], scratch: &mut [Complex32]) {
        for row in spectrum.chunks_exact_mut(self.pitch()) {
            self.fft
                .process_with_scratch(&mut row[..self.step], scratch);
            row[self.step] = row[0];
        }
    }

    /// The transforms of one spectrum.
    fn bins<'a>(&self, spectrum: &'a [Complex32]) -> Bins<'a> {
        match self.transforms {
            1 => Bins::Joint(&spectrum[..self.step + 1]),
            _ => Bins::Apart([0, 1].map(|pol| &spectrum[pol * self.pitch()..][..self.step])),
        }
    }

    /// FFT and post-processing of a whole group. Returns the complex samples clamped.
    pub fn back(
        &self,
        scratch: &mut Scratch,
        rows: &mut Rows,
        of: GroupSpectra<'_>,
        output: GroupOutput<'_>,
    ) -> [u64; N_POL] {
        let mut clipped = [0; N_POL];
        let every = self.sums_every;
        let mut last = Instant::now();
        let lines = scratch.quantised.chunks_exact_mut(self.quantised_pitch());
        let spectra = rows.0.chunks_exact_mut(self.spectrum_pitch());
        for (s, ((spectrum, line), &fine)) in spectra.zip(lines).zip(of.fine).enumerate() {
            self.transform(spectrum, &mut scratch.fft);
            let transformed = Instant::now();
            scratch.times.fft += transformed - last;
            let coefs = scratch.coefficients.update(self.at, fine, of.gains);
            let dither = self.dither.map(|(seed, feng_id)| DitherKey {
                seed,
                timestamp: (of.start + (s * self.spectrum_samples) as u64).0,
                feng_id,
            });
            let (bins, limit) = (self.bins(spectrum), self.bits.limit());
            let line = &mut line[..self.channels];
            let sums = scratch.sums.as_mut();
            let sums = sums.filter(|_| of.counts[s] && s.is_multiple_of(every));
            let sums = sums.zip(self.sums.as_ref());
            let sums = sums.map(|(sums, total)| sums.spectrum(total));
            let clamped = simd::quantise(self.at, bins, coefs, dither, limit, line, sums);
            for pol in 0..N_POL {
                clipped[pol] += clamped[pol];
            }
            last = Instant::now();
            scratch.times.post += last - transformed;
        }
        output.write(self.at, &scratch.quantised, self.quantised_pitch());
        scratch.times.post += last.elapsed();
        clipped
    }

    /// Spectra of filtered rows before quantisation, for tests: (pol, spectrum, channel).
    #[cfg(test)]
    fn spectra(
        &self,
        scratch: &mut Scratch,
        rows: &mut Rows,
        fine: &[FineDelay],
        gains: &Gains,
    ) -> [Vec<Vec<Complex32>>; N_POL] {
        let mut spectra = [vec![], vec![]];
        for (spectrum, &fine) in rows.0.chunks_exact_mut(self.spectrum_pitch()).zip(fine) {
            self.transform(spectrum, &mut scratch.fft);
            let coefs = scratch.coefficients.update(self.at, fine, gains);
            let element = |pol: usize, k: usize| match self.bins(spectrum) {
                Bins::Joint(z) => match pol {
                    0 => z[k] + z[self.step - k].conj(),
                    _ => z[k] - z[self.step - k].conj(),
                },
                Bins::Apart(z) => z[pol][(k + self.step - self.channels / 2) % self.step],
            };
            for (pol, spectra) in spectra.iter_mut().enumerate() {
                let channels = 0..self.channels;
                spectra.push(channels.map(|k| element(pol, k) * coefs[pol][k]).collect());
            }
        }
        spectra
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::FRAC_PI_2;

    use super::*;
    use crate::config::{Narrowband, NarrowbandSpec, OutputConfig};
    use crate::cpu::Workers;
    use crate::cpu::down::DownConverter;
    use crate::model::hash_sample;
    use dsp::SampleBits;
    use dsp::WindowFunction;
    use dsp::delay::{DelayModels, LinearDelay};
    use dsp::unpack::pack;
    use ground::SampleClock;

    fn output(narrowband: Option<Narrowband>) -> OutputConfig {
        OutputConfig {
            name: "golden".into(),
            channels: 64,
            dst: Vec::new(),
            jones_per_batch: 64 * 32,
            taps: 4,
            w_cutoff: 1.0,
            window_function: WindowFunction::Hann,
            oversampling: dsp::Oversampling::NONE,
            dither: Dither::None,
            dither_seed: 0,
            sample_bits: OutputBits::Eight,
            narrowband,
        }
    }

    fn config(output: &OutputConfig, sample_bits: SampleBits) -> PipelineConfig<'_> {
        PipelineConfig {
            output,
            sample_bits,
            feng_id: 0,
            gain: 1.0,
            statistics: false,
        }
    }

    /// A channel, and what its first two spectra are.
    type Golden = (usize, [(f64, f64); 2]);

    fn assert_golden(spectra: &[Vec<Vec<Complex32>>; N_POL], golden: &[Golden], of: &str) {
        for pol in spectra {
            for &(k, expected) in golden {
                for (s, (re, im)) in expected.into_iter().enumerate() {
                    let x = pol[s][k];
                    let error = (f64::from(x.re) - re).hypot(f64::from(x.im) - im);
                    assert!(
                        error < 3e-4,
                        "channel {k} spectrum {s} {of}: {x} is not {re} {im}"
                    );
                }
            }
        }
    }

    /// Reference: end-to-end golden vectors, wideband.
    #[test]
    fn golden_wideband_vector() {
        let (start, coarse) = ((1 << 17) - 64, 42);
        let bits = SampleBits::new(10).unwrap();
        let packed = pack((start..start + 2048).map(hash_sample), bits);
        let input = SampleView {
            start: Timestamp(start),
            samples: 2048,
            pol: [&packed, &packed],
            device: None,
        };
        let phase = 0.3 + FRAC_PI_2 * f64::from(coarse % 4);
        let fine = [FineDelay {
            delay: [0.4; 2],
            phase: [phase as f32; 2],
        }; 2];
        let golden = [
            (0, [(-200.43078, -267.81155), (-1.46671, -1.95979)]),
            (1, [(125.82466, -308.35737), (382.92071, 137.69326)]),
            (20, [(-221.17614, -228.47429), (198.51816, 14.35400)]),
            (32, [(-123.36092, -136.04193), (457.25566, -72.83677)]),
            (33, [(-177.70157, 279.13360), (-146.72321, 32.70411)]),
            (63, [(-10.53079, 105.45046), (41.36645, -34.27742)]),
        ];
        for level in Level::available() {
            let kernels = GroupKernels::new(level, &config(&output(None), bits), 32);
            let offset = 64 - coarse as usize;
            let (mut scratch, mut rows) = (kernels.scratch(0), kernels.rows());
            kernels.front(&mut scratch, &mut rows, &input, [offset; 2], 0, 2);
            let spectra = kernels.spectra(&mut scratch, &mut rows, &fine, &Gains::new(64, 1.0));
            assert_golden(&spectra, &golden, level.name());
        }
    }

    /// Reference: end-to-end golden vectors, narrowband discard and no-discard.
    #[test]
    fn golden_narrowband_vectors() {
        let discard: &[Golden] = &[
            (0, [(224.77781, -497.23375), (-106.63819, 38.41002)]),
            (1, [(44.88668, -169.38023), (-158.09319, -137.28178)]),
            (20, [(45.62350, -69.90893), (-21.78340, 368.08318)]),
            (32, [(87.16980, -321.16968), (-242.37789, -206.29643)]),
            (33, [(295.67849, 351.16107), (212.56058, -241.02844)]),
            (63, [(-258.91240, 363.85167), (-179.99432, 353.85024)]),
        ];
        let whole: &[Golden] = &[
            (0, [(61.55002, -235.00318), (-32.85111, -2.65446)]),
            (1, [(32.61977, -133.38614), (-11.27249, -29.77063)]),
            (20, [(39.74812, 41.80738), (-359.12623, -3.32963)]),
            (32, [(52.77379, -292.67209), (-226.12102, -200.04996)]),
            (33, [(159.25311, 403.77555), (273.18811, -123.81115)]),
            (63, [(-82.05101, 189.23376), (-101.43696, 130.95067)]),
        ];
        let bits = SampleBits::new(10).unwrap();
        let start = Timestamp((1 << 17) - 64);
        let samples = 8192;
        let packed = pack((start.0..start.0 + samples as u64).map(hash_sample), bits);
        let input = SampleView {
            start,
            samples,
            pol: [&packed, &packed],
            device: None,
        };
        for (pass, taps, golden) in [(None, 128, discard), (Some(0.6 * 107e6), 256, whole)] {
            let clock = SampleClock {
                adc_sample_rate: 1712e6,
                sync_time: 0.0,
            };
            let spec = NarrowbandSpec {
                centre_frequency: 408173015.5944824,
                decimation: 8,
                ddc_taps: Some(taps),
                weight_pass: 0.005,
                pass_bandwidth: pass,
            };
            let output = output(Some(Narrowband::new(&spec, clock).unwrap()));
            let mut models = DelayModels::with_subsampling(output.subsampling() as u32);
            models.add(LinearDelay::new(0, 42.4, 0.0, 0.3, 0.0).unwrap());
            let point = models.at(Timestamp(1 << 17));
            let fine = [FineDelay {
                delay: [(point.residual / 8.0) as f32; 2],
                phase: [point.phase as f32; 2],
            }; 2];
            let offset = [(point.orig - start.0 as i64) as usize; 2];
            for level in Level::available() {
                let kernels = GroupKernels::new(level, &config(&output, bits), 32);
                let narrowband = output.narrowband.as_ref().unwrap();
                let down = DownConverter::new(narrowband, output.pfb_step(), bits, level);
                let scratch = std::sync::Mutex::new(kernels.scratch(down.tile_samples()));
                let (workers, mut baseband) = (Workers::unpinned(1).unwrap(), Baseband::default());
                let scratches = std::slice::from_ref(&scratch);
                let numbers = 5 * output.pfb_step();
                down.run(&workers, scratches, &input, offset, numbers, &mut baseband);
                let (mut scratch, mut rows) = (scratch.into_inner().unwrap(), kernels.rows());
                kernels.front_down(&mut scratch, &mut rows, &baseband, 0, 0, 2);
                let spectra = kernels.spectra(&mut scratch, &mut rows, &fine, &Gains::new(64, 1.0));
                assert_golden(&spectra, golden, level.name());
            }
        }
    }
}
