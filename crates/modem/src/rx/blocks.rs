//! Correlations with blocks of 32 known symbols, at any delay and frequency.

use num_complex::Complex64;

use super::bank::{Bank, LEAD, ROW};
use super::samples::Samples;
use super::simd::{self, Level, PARTS, SPREAD};
use crate::waveform::{GOLAY_LENGTH, PREAMBLE_SYMBOLS, SAMPLES_PER_SYMBOL, preamble};

/// Blocks of a preamble.
pub(crate) const BLOCKS: usize = PREAMBLE_SYMBOLS / GOLAY_LENGTH;
/// Samples from the centre of a block's first symbol to that of its last.
pub(crate) const BLOCK_SPAN: i64 = (SAMPLES_PER_SYMBOL * (GOLAY_LENGTH - 1)) as i64;
/// Samples before a block's first centre at which what is kept of it begins.
const BLOCK_BEFORE: i64 = 26;
/// Samples that a block's sums read, from there.
const READ: i64 = BLOCK_SPAN + SPREAD as i64;

/// The signs of the preamble's blocks.
pub(crate) fn signs(block: usize) -> [f32; GOLAY_LENGTH] {
    let from = block.min(BLOCKS - 1) * GOLAY_LENGTH;
    std::array::from_fn(|k| f32::from(preamble()[from + k]))
}

/// What is left of a block once its signs are taken away, ahead of the matched filter.
pub(crate) struct Despread {
    values: [f32; 2 * SPREAD],
    /// Centre of the block's first symbol from [`BLOCK_BEFORE`] samples after the first value.
    offset: f64,
}

impl Despread {
    /// Of the block with `signs` whose first symbol has its centre at `centre`, with a frequency in
    /// radians per symbol; its phase is that of the block's middle.
    pub fn new(
        level: Level,
        samples: Samples,
        centre: f64,
        signs: &[f32; GOLAY_LENGTH],
        frequency: f64,
    ) -> Option<Despread> {
        let nearest = centre.round() as i64;
        let from = nearest - BLOCK_BEFORE;
        let x = samples.range(from, from + READ)?;
        let mut parts = [[0.0; 2 * SPREAD]; PARTS];
        simd::despread(level, x, signs, &mut parts);
        let turns: [[f32; 2]; PARTS] = std::array::from_fn(|part| {
            let middle = 8.0 * part as f64 + 3.5 - 15.5;
            let turn = Complex64::cis(-frequency * middle);
            [turn.re as f32, turn.im as f32]
        });
        let mut values = [0.0; 2 * SPREAD];
        simd::turned_sum(level, &parts, &turns, &mut values);
        Some(Despread {
            values,
            offset: centre - nearest as f64,
        })
    }

    /// The mean over the block's symbols, filtered `delay` samples behind the centre. A delay of
    /// more than about two samples is one of two.
    pub fn at(&self, level: Level, bank: &Bank, delay: f64) -> Complex64 {
        let (n, row) = bank.at((self.offset + delay).clamp(-2.0, 1.99));
        let from = usize::try_from(n + BLOCK_BEFORE - LEAD as i64).unwrap_or(0);
        let x = self.values.get(2 * from..2 * from + ROW).unwrap_or(&[]);
        let [re, im] = simd::row_product(level, x, row);
        Complex64::new(f64::from(re), f64::from(im)) / GOLAY_LENGTH as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rx::original::early;
    use crate::rx::tests::{frame, stream};
    use crate::waveform::Modulation;

    #[test]
    fn fractional_estimates_are_the_golden_ones() {
        let values: Vec<f32> = stream(&[frame(Modulation::Qpsk, 1)], 0, 24)
            .iter()
            .flat_map(|x| [x.re, x.im])
            .collect();
        let samples = Samples {
            values: &values,
            first: 0,
        };
        let (level, bank) = (Level::detect(), Bank::new());
        let golden = [0.0, 0.1156, 0.2321, 0.3504, 0.4712, 0.5957];
        for (tenths, golden) in (0..).zip(golden) {
            for sign in [1.0, -1.0] {
                let offset = sign * f64::from(tenths) / 10.0;
                let centre = 24.0 + 96.0 * 20.0;
                let despread = Despread::new(level, samples, centre, &signs(20), 0.0).unwrap();
                let [before, peak, after] =
                    [-1.0, 0.0, 1.0].map(|by| despread.at(level, &bank, offset + by).norm_sqr());
                let found = (before - after) / peak;
                // Rows are steps of 1/256 of a sample.
                assert!((found - sign * golden).abs() < 0.004, "{offset}: {found}");
                assert!(
                    (early(before, peak, after) - offset).abs() < 0.02,
                    "{offset}"
                );
            }
        }
    }

    #[test]
    fn a_block_is_found_at_its_frequency() {
        let frequency = 0.08;
        let values: Vec<f32> = stream(&[frame(Modulation::Qpsk, 1)], 0, 24)
            .iter()
            .enumerate()
            .map(|(n, x)| x * num_complex::Complex32::cis(frequency / 3.0 * n as f32))
            .flat_map(|x| [x.re, x.im])
            .collect();
        let samples = Samples {
            values: &values,
            first: 0,
        };
        let (level, bank) = (Level::detect(), Bank::new());
        let at = |frequency| {
            let centre = 24.0 + 96.0 * 20.0;
            let despread = Despread::new(level, samples, centre, &signs(20), frequency).unwrap();
            despread.at(level, &bank, 0.0).norm() / 3f64.sqrt()
        };
        assert!(at(f64::from(frequency)) > 0.97 && at(0.0) < 0.85);
    }
}
