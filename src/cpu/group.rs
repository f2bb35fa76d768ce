//! The computation of one group of spectra by one worker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustfft::num_complex::Complex32;
use rustfft::{Fft, FftPlanner};

use super::coefficients::{Coefficients, Gains};
use super::simd::{self, DitherKey, FirTile, GroupOutput, Level, Supported, TILE, Unpacker};
use crate::config::SampleBits;
use crate::engine::{FineDelay, InputView};
use crate::units::{N_POL, Timestamp};

/// What all workers share of one pipeline.
pub(super) struct Kernels {
    pub at: Supported,
    pub channels: usize,
    pub taps: usize,
    /// Spectra per group.
    pub group: usize,
    weights: Vec<f32>,
    unpacker: Unpacker,
    fft: Arc<dyn Fft<f32>>,
    dither: Option<(u64, u64)>,
}

/// Time per phase of one worker.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PhaseTimes {
    pub fir: Duration,
    pub fft: Duration,
    pub post: Duration,
}

/// FIR output of one group: `group` rows of 2C complex numbers, each followed by padding.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows(Vec<Complex32>);

/// One worker's buffers.
pub(super) struct Scratch {
    pub rows: Rows,
    pub times: PhaseTimes,
    samples: [Vec<f32>; N_POL],
    partial: Vec<f32>,
    fft: Vec<Complex32>,
    quantised: Vec<u32>,
    coefficients: Coefficients,
}

impl Kernels {
    pub fn new(
        level: Level,
        channels: usize,
        weights: Vec<f32>,
        bits: SampleBits,
        group: usize,
        dither: Option<(u64, u64)>,
    ) -> Self {
        Self {
            at: Supported::new(level),
            channels,
            taps: weights.len() / (2 * channels),
            group,
            weights,
            unpacker: Unpacker::new(bits, level),
            fft: FftPlanner::new().plan_fft_forward(2 * channels),
            dither,
        }
    }

    /// Complex numbers from row to row: room for the copy of element 0, and an odd number of
    /// cache lines so that rows do not fall on the same cache sets.
    fn pitch(&self) -> usize {
        (2 * self.channels).next_multiple_of(16) + 8
    }

    /// Words from row to row of the quantised group.
    fn quantised_pitch(&self) -> usize {
        self.channels.next_multiple_of(16) + 16
    }

    pub fn rows(&self) -> Rows {
        Rows(vec![Complex32::default(); self.group * self.pitch()])
    }

    pub fn scratch(&self) -> Scratch {
        let samples = vec![0.0; (self.group + self.taps - 1) * TILE];
        Scratch {
            rows: self.rows(),
            times: PhaseTimes::default(),
            samples: [samples.clone(), samples],
            partial: vec![0.0; self.group * N_POL * TILE],
            fft: vec![Complex32::default(); self.fft.get_inplace_scratch_len()],
            quantised: vec![0; self.group * self.quantised_pitch()],
            coefficients: Coefficients::new(self.channels),
        }
    }

    /// FIR of `count` spectra into `rows[first..]`; the first window starts at `offset`.
    /// Returns the digitiser power over the last taps.
    pub fn front(
        &self,
        scratch: &mut Scratch,
        rows: &mut Rows,
        input: &InputView<'_>,
        offset: [usize; N_POL],
        first: usize,
        count: usize,
    ) -> [u64; N_POL] {
        let begun = Instant::now();
        let step = 2 * self.channels;
        let out = &mut rows.0[first * self.pitch()..];
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
                partial: &mut scratch.partial,
            };
            simd::fir(self.at, &mut tile, count, out, self.pitch());
        }
        scratch.times.fir += begun.elapsed();
        power
    }

    /// FFT and post-processing of a whole group; `start` is its first spectrum's timestamp.
    /// Returns the complex samples clamped.
    pub fn back(
        &self,
        scratch: &mut Scratch,
        rows: &mut Rows,
        fine: &[FineDelay],
        gains: &Gains,
        start: Timestamp,
        output: GroupOutput<'_>,
    ) -> [u64; N_POL] {
        let step = 2 * self.channels;
        let mut saturated = [0; N_POL];
        let mut last = Instant::now();
        let lines = scratch.quantised.chunks_exact_mut(self.quantised_pitch());
        let rows = rows.0.chunks_exact_mut(self.pitch());
        for (s, ((row, line), &fine)) in rows.zip(lines).zip(fine).enumerate() {
            self.fft
                .process_with_scratch(&mut row[..step], &mut scratch.fft);
            row[step] = row[0];
            let transformed = Instant::now();
            scratch.times.fft += transformed - last;
            let coefs = scratch.coefficients.update(self.at, fine, gains);
            let dither = self.dither.map(|(seed, feng_id)| DitherKey {
                seed,
                timestamp: (start + (s * step) as u64).0,
                feng_id,
            });
            let clamped = simd::quantise(self.at, row, coefs, dither, &mut line[..self.channels]);
            for pol in 0..N_POL {
                saturated[pol] += clamped[pol];
            }
            last = Instant::now();
            scratch.times.post += last - transformed;
        }
        output.write(self.at, &scratch.quantised, self.quantised_pitch());
        scratch.times.post += last.elapsed();
        saturated
    }

    /// Spectra of a group's transforms before quantisation, for tests: (pol, spectrum, channel).
    #[cfg(test)]
    pub fn spectra(
        &self,
        input: &InputView<'_>,
        offset: [usize; N_POL],
        fine: &[FineDelay],
        gains: &Gains,
    ) -> [Vec<Vec<Complex32>>; N_POL] {
        let mut scratch = self.scratch();
        let mut rows = self.rows();
        self.front(&mut scratch, &mut rows, input, offset, 0, fine.len());
        let step = 2 * self.channels;
        let mut spectra = [vec![], vec![]];
        for (row, &fine) in rows.0.chunks_exact_mut(self.pitch()).zip(fine) {
            self.fft
                .process_with_scratch(&mut row[..step], &mut scratch.fft);
            row[step] = row[0];
            let coefs = scratch.coefficients.update(self.at, fine, gains);
            spectra[0].push(
                (0..self.channels)
                    .map(|k| (row[k] + row[step - k].conj()) * coefs[0][k])
                    .collect(),
            );
            spectra[1].push(
                (0..self.channels)
                    .map(|k| (row[k] - row[step - k].conj()) * coefs[1][k])
                    .collect(),
            );
        }
        spectra
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::FRAC_PI_2;

    use super::*;
    use crate::config::WindowFunction;
    use crate::dsp::model::hash_sample;
    use crate::dsp::pfb;
    use crate::dsp::unpack::pack;

    /// Reference: end-to-end golden vectors, wideband.
    #[test]
    fn golden_wideband_vector() {
        let (start, coarse) = ((1 << 17) - 64, 42);
        let bits = SampleBits::new(10).unwrap();
        let packed = pack((start..start + 2048).map(hash_sample), bits);
        let input = InputView {
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
        for level in Level::ALL {
            let weights = pfb::weights(128, 4, 1.0, WindowFunction::Hann);
            let kernels = Kernels::new(level, 64, weights, bits, 32, None);
            let offset = 64 - coarse as usize;
            let spectra = kernels.spectra(&input, [offset; 2], &fine, &Gains::new(64, 1.0));
            for pol in &spectra {
                for (k, expected) in golden {
                    for (s, (re, im)) in expected.into_iter().enumerate() {
                        let x = pol[s][k];
                        let error = (f64::from(x.re) - re).hypot(f64::from(x.im) - im);
                        assert!(
                            error < 3e-4,
                            "channel {k} spectrum {s} at {level}: {x} is not {re} {im}"
                        );
                    }
                }
            }
        }
    }
}
