//! The filter of oversampled outputs, whose windows are not whole transforms apart.
//!
//! Sample n of time is in column n mod K of its spectrum's transform, whichever spectrum that is.
//! So each sample is unpacked once for a group, and phases count from time 0. What moves from
//! spectrum to spectrum are the coefficients of a column: those of spectrum s begin s·H columns
//! further on. Both repeat in whole tiles of K/M columns.

use std::time::Instant;

use dsp::Oversampling;
use ground::N_POL;

use super::down::Baseband;
use super::group::{GroupKernels, Rows, Scratch};
use super::simd::{self, FirTile, TILE, Unpacker};
use crate::config::OutputConfig;
use crate::memory::SampleView;

/// What an oversampled output's filter has besides that of others.
pub(super) struct Hops {
    oversampling: Oversampling,
    /// Points of the transform, and the PFB's input from spectrum to spectrum.
    step: usize,
    hop: usize,
    taps: usize,
    /// Columns that move together, a tile at most.
    together: usize,
    /// The coefficients, with `step` zeros in front and behind.
    weights: Vec<f32>,
    /// ADC samples: from a window's first to those that count for power, and how many these are.
    last_tap: usize,
    counted: usize,
}

/// A column of a group's spectra.
struct Column {
    /// Where it is in the transform.
    place: usize,
    /// How far behind the first spectrum's first sample its first is.
    behind: usize,
}

impl Hops {
    /// Of `output`, if it is oversampled.
    pub fn new(output: &OutputConfig) -> Option<Self> {
        if output.oversampling.is_none() {
            return None;
        }
        let step = output.pfb_step();
        let zeros = || std::iter::repeat_n(0.0, step);
        Some(Self {
            oversampling: output.oversampling,
            step,
            hop: output.pfb_hop(),
            taps: output.taps,
            together: TILE.min(step / output.oversampling.numerator()),
            weights: zeros().chain(output.weights()).chain(zeros()).collect(),
            last_tap: output.last_tap(),
            counted: output.spectrum_samples(),
        })
    }

    /// Where the first sample of spectrum `number`, counted from time 0, is in the transform.
    fn rotation(&self, number: u64) -> usize {
        self.oversampling.rotation(self.step, number)
    }

    /// The columns, in the order of their places, where a first spectrum begins at `rotation`.
    fn columns(&self, rotation: usize) -> impl Iterator<Item = Column> + use<> {
        let step = self.step;
        (0..step).step_by(self.together).map(move |place| Column {
            place,
            behind: (place + step - rotation) % step,
        })
    }

    /// The row of a column that the window of the `spectrum`-th spectrum behind the first begins
    /// with.
    fn first_row(&self, column: &Column, spectrum: usize) -> usize {
        (spectrum * self.hop + self.step - 1 - column.behind) / self.step
    }

    /// Coefficients of that spectrum, such that those of the column lie at its place.
    fn weights(&self, column: &Column, spectrum: usize) -> &[f32] {
        let within = (column.behind + self.step - spectrum * self.hop % self.step) % self.step;
        &self.weights[self.step + within - column.place..][..self.taps * self.step]
    }

    /// Rows of the PFB's input that `spectra` spectra have, the last of which may be short, and how
    /// many numbers of it.
    pub fn numbers(&self, spectra: usize) -> usize {
        spectra.saturating_sub(1) * self.hop + self.taps * self.step
    }

    /// Σ x² of the samples that count for `spectra` spectra, the first of which has its window at
    /// `offset`.
    fn power(
        &self,
        unpacker: &Unpacker,
        input: &SampleView<'_>,
        offset: [usize; N_POL],
        spectra: usize,
    ) -> [u64; N_POL] {
        let mut tile = [0.0; TILE];
        [0, 1].map(|pol: usize| {
            let first = offset[pol] + self.last_tap;
            let end = first + spectra * self.counted;
            let tiles = (first..end).step_by(TILE);
            let sums = tiles.map(|at| {
                let tile = &mut tile[..TILE.min(end - at)];
                unpacker.unpack_power(input.pol[pol], at, tile)
            });
            sums.sum::<u64>()
        })
    }
}

/// Which spectra of a block are filtered, to where.
#[derive(Clone, Copy, Debug)]
pub(super) struct HopSpectra {
    /// Number of the first, counted from time 0, and its index in the block.
    pub number: u64,
    pub first: usize,
    /// Row that it goes to.
    pub to: usize,
    pub count: usize,
}

/// What spectra of a narrowband output are filtered from.
#[derive(Clone, Copy)]
pub(super) struct DownInput<'a> {
    /// The PFB's input, from the block's first spectrum on.
    pub baseband: &'a Baseband,
    /// What it was made of.
    pub samples: &'a SampleView<'a>,
    /// Where the window of the block's first spectrum begins in the samples, per polarisation.
    pub offset: [usize; N_POL],
}

impl GroupKernels {
    /// As [`front`](Self::front), for spectra of an oversampled output; `offset` is the window of
    /// the block's first spectrum.
    pub fn front_hops(
        &self,
        hops: &Hops,
        scratch: &mut Scratch,
        rows: &mut Rows,
        input: &SampleView<'_>,
        offset: [usize; N_POL],
        of: HopSpectra,
    ) -> [u64; N_POL] {
        let begun = Instant::now();
        let out = self.rows_from(rows, of.to);
        let offset = offset.map(|offset| offset + of.first * hops.hop);
        for column in hops.columns(hops.rotation(of.number)) {
            let count = hops.first_row(&column, of.count - 1) + hops.taps;
            let pols = scratch.samples.iter_mut().zip(input.pol).zip(offset);
            for ((samples, packed), offset) in pols {
                for (row, tile) in samples.chunks_exact_mut(TILE).take(count).enumerate() {
                    let at = offset + row * hops.step + column.behind;
                    self.unpacker.unpack(packed, at, &mut tile[..hops.together]);
                }
            }
            for s in 0..of.count {
                let row = hops.first_row(&column, s);
                let mut tile = FirTile {
                    weights: hops.weights(&column, s),
                    step: hops.step,
                    column: column.place,
                    samples: [0, 1].map(|pol: usize| &scratch.samples[pol][row * TILE..]),
                    pitch: TILE,
                    partial: &mut scratch.partial,
                };
                let out = &mut out[s * self.spectrum_pitch()..];
                simd::fir(self.at, &mut tile, 1, out, self.spectrum_pitch());
            }
        }
        let power = hops.power(&self.unpacker, input, offset, of.count);
        scratch.times.fir += begun.elapsed();
        power
    }

    /// As [`front_down`](Self::front_down), for spectra of an oversampled output.
    pub fn front_down_hops(
        &self,
        hops: &Hops,
        scratch: &mut Scratch,
        rows: &mut Rows,
        input: DownInput<'_>,
        of: HopSpectra,
    ) -> [u64; N_POL] {
        let begun = Instant::now();
        let step = hops.step;
        let number = of.number.wrapping_sub(of.first as u64);
        for pol in 0..N_POL {
            let out = &mut self.rows_from(rows, of.to)[pol * self.pitch()..];
            for column in hops.columns(hops.rotation(number)) {
                for s in 0..of.count {
                    let spectrum = of.first + s;
                    let row = hops.first_row(&column, spectrum);
                    let plane = &input.baseband.rows[pol][row * 2 * step + column.behind..];
                    let mut tile = FirTile {
                        weights: hops.weights(&column, spectrum),
                        step,
                        column: column.place,
                        samples: [plane, &plane[step..]],
                        pitch: 2 * step,
                        partial: &mut scratch.partial,
                    };
                    let out = &mut out[s * self.spectrum_pitch()..];
                    simd::fir(self.at, &mut tile, 1, out, self.spectrum_pitch());
                }
            }
        }
        let offset = input.offset.map(|offset| offset + of.first * hops.counted);
        let power = hops.power(&self.unpacker, input.samples, offset, of.count);
        scratch.times.fir += begun.elapsed();
        power
    }
}
