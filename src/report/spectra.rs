//! Mean and peak power per channel and a time–frequency picture, gathered from output batches in
//! bounded memory.

use dsp::OutputBits;
use dsp::quantise::nibbles;
use ground::{N_POL, Timestamp};

use crate::config::OutputConfig;

/// Columns of the waterfall at most.
const MAX_COLUMNS: usize = 512;
/// Rows of the waterfall at most; beyond it, rows are merged in pairs.
const MAX_ROWS: usize = 512;

/// Power of one output stream's transmitted spectra.
///
/// Powers are re² + im² of what was sent, so a full-scale component alone has 127², of 4 bits 7².
#[derive(Clone, Debug)]
pub struct SpectraAccumulator {
    channels: usize,
    spectra_per_heap: usize,
    bits: OutputBits,
    batches: u64,
    /// Per polarisation and channel.
    sum: [Vec<u64>; N_POL],
    peak: [Vec<u32>; N_POL],
    /// Real and imaginary parts that are zero, per polarisation.
    zeros: [u64; N_POL],
    /// Power of the last batch per polarisation and channel, kept to avoid allocation.
    batch: [Vec<u64>; N_POL],
    waterfall: Waterfall,
}

/// Time–frequency power of both polarisations, rows of equal duration.
#[derive(Clone, Debug)]
struct Waterfall {
    columns: usize,
    first: Option<Timestamp>,
    batch_samples: u64,
    /// Batches per row, a power of two.
    row_batches: u64,
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
struct Row {
    batches: u64,
    /// `N_POL × columns`.
    power: Vec<u64>,
}

impl SpectraAccumulator {
    /// For batches of `output`.
    pub fn of(output: &OutputConfig) -> Self {
        let mut spectra = Self::new(output.channels, output.spectra_per_heap());
        spectra.bits = output.sample_bits;
        spectra.waterfall.batch_samples = output.batch_samples() as u64;
        spectra
    }

    /// For wideband batches of this shape, of 8 bits.
    pub fn new(channels: usize, spectra_per_heap: usize) -> Self {
        let columns = channels.clamp(1, MAX_COLUMNS);
        Self {
            channels,
            spectra_per_heap,
            bits: OutputBits::Eight,
            batches: 0,
            sum: [vec![0; channels], vec![0; channels]],
            peak: [vec![0; channels], vec![0; channels]],
            zeros: [0; N_POL],
            batch: [vec![0; channels], vec![0; channels]],
            waterfall: Waterfall {
                columns,
                first: None,
                batch_samples: (2 * channels * spectra_per_heap).max(1) as u64,
                row_batches: 1,
                rows: Vec::new(),
            },
        }
    }

    /// Adds one batch in wire layout, (channel, spectrum, polarisation, re/im).
    ///
    /// A batch of another length than `channels × spectra_per_heap` Jones vectors is cut or taken
    /// as far as it goes.
    pub fn add_batch(&mut self, timestamp: Timestamp, data: &[u8]) {
        let stride = (self.spectra_per_heap * self.bits.jones_bytes()).max(1);
        for (channel, values) in data.chunks_exact(stride).take(self.channels).enumerate() {
            let zeros = match self.bits {
                OutputBits::Eight => zero_parts(values),
                OutputBits::Four => zero_nibbles(values),
            };
            for (all, zeros) in self.zeros.iter_mut().zip(zeros) {
                *all += zeros;
            }
            let (sum, peak) = match self.bits {
                OutputBits::Eight => channel_power(values),
                OutputBits::Four => channel_power_of_nibbles(values),
            };
            for pol in 0..N_POL {
                self.batch[pol][channel] = sum[pol];
                self.sum[pol][channel] += sum[pol];
                self.peak[pol][channel] = self.peak[pol][channel].max(peak[pol]);
            }
        }
        self.batches += 1;
        self.waterfall.add(timestamp, &self.batch);
    }

    /// Largest magnitude of a part: 127, or 7 of 4 bits.
    pub fn full_scale(&self) -> f32 {
        self.bits.limit()
    }

    /// Channels.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Batches added.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// Mean power of every channel of one polarisation; 0 before the first batch.
    pub fn mean_power(&self, pol: usize) -> Vec<f64> {
        let count = (self.batches * self.spectra_per_heap as u64).max(1) as f64;
        self.sum[pol]
            .iter()
            .map(|&sum| sum as f64 / count)
            .collect()
    }

    /// Share of real and imaginary parts of one polarisation that are zero; 0 before the first
    /// batch.
    pub fn zero_share(&self, pol: usize) -> f64 {
        let parts = 2 * self.batches * (self.channels * self.spectra_per_heap) as u64;
        self.zeros[pol] as f64 / parts.max(1) as f64
    }

    /// Largest power of a single spectrum, for every channel of one polarisation.
    pub fn peak_power(&self, pol: usize) -> &[u32] {
        &self.peak[pol]
    }

    /// Timestamp of the first batch.
    pub fn first_timestamp(&self) -> Option<Timestamp> {
        self.waterfall.first
    }

    /// Waterfall columns: neighbouring channels are averaged into one.
    pub fn columns(&self) -> usize {
        self.waterfall.columns
    }

    /// Waterfall rows so far.
    pub fn rows(&self) -> usize {
        self.waterfall.rows.len()
    }

    /// ADC samples that one waterfall row stands for.
    pub fn row_samples(&self) -> u64 {
        self.waterfall.row_batches * self.waterfall.batch_samples
    }

    /// Mean power of each column of one row and polarisation; `None` where no batch was sent.
    pub fn row(&self, row: usize, pol: usize) -> Option<Vec<f64>> {
        let columns = self.waterfall.columns;
        let row = self.waterfall.rows.get(row).filter(|row| row.batches > 0)?;
        let spectra = (row.batches * self.spectra_per_heap as u64) as f64;
        let power = row.power[pol * columns..(pol + 1) * columns].iter();
        Some(
            power
                .enumerate()
                .map(|(column, &power)| {
                    let channels = column_range(column, columns, self.channels).len().max(1);
                    power as f64 / (spectra * channels as f64)
                })
                .collect(),
        )
    }
}

impl Waterfall {
    fn add(&mut self, timestamp: Timestamp, batch: &[Vec<u64>; N_POL]) {
        let first = *self.first.get_or_insert(timestamp);
        let batch_index = timestamp.0.saturating_sub(first.0) / self.batch_samples;
        while batch_index / self.row_batches >= MAX_ROWS as u64 {
            self.merge_pairs();
        }
        let index = (batch_index / self.row_batches) as usize;
        while self.rows.len() <= index {
            self.rows.push(Row {
                batches: 0,
                power: vec![0; N_POL * self.columns],
            });
        }
        let row = &mut self.rows[index];
        row.batches += 1;
        for (power, channels) in row.power.chunks_exact_mut(self.columns).zip(batch) {
            for (column, power) in power.iter_mut().enumerate() {
                let range = column_range(column, self.columns, channels.len());
                *power += channels[range].iter().sum::<u64>();
            }
        }
    }

    fn merge_pairs(&mut self) {
        self.row_batches *= 2;
        let rows = std::mem::take(&mut self.rows);
        for (index, row) in rows.into_iter().enumerate() {
            match self.rows.last_mut() {
                Some(even) if index % 2 == 1 => {
                    even.batches += row.batches;
                    for (sum, power) in even.power.iter_mut().zip(row.power) {
                        *sum += power;
                    }
                }
                _ => self.rows.push(row),
            }
        }
    }
}

/// Channels that one column stands for.
fn column_range(column: usize, columns: usize, channels: usize) -> std::ops::Range<usize> {
    column * channels / columns..(column + 1) * channels / columns
}

/// Zeros among the parts of one channel's spectra, per polarisation.
fn zero_parts(values: &[u8]) -> [u64; N_POL] {
    let mut zeros = [0u64; N_POL];
    // Sums in 16 bits, so that the loop vectorises.
    for part in values.chunks(8192 * N_POL * 2) {
        let mut counts = [0u16; 2 * N_POL];
        for spectrum in part.chunks_exact(2 * N_POL) {
            for (count, value) in counts.iter_mut().zip(spectrum) {
                *count += u16::from(*value == 0);
            }
        }
        for pol in 0..N_POL {
            zeros[pol] += u64::from(counts[2 * pol]) + u64::from(counts[2 * pol + 1]);
        }
    }
    zeros
}

/// Zero parts of each polarisation where the parts are nibbles.
fn zero_nibbles(values: &[u8]) -> [u64; N_POL] {
    let mut zeros = [0u64; N_POL];
    for spectrum in values.chunks_exact(N_POL) {
        for (zeros, value) in zeros.iter_mut().zip(spectrum) {
            *zeros += u64::from(value & 0xF0 == 0) + u64::from(value & 0xF == 0);
        }
    }
    zeros
}

/// Σ and maximum of re² + im² per polarisation over one channel's spectra.
fn channel_power(values: &[u8]) -> ([u64; N_POL], [u32; N_POL]) {
    let mut sum = [0u64; N_POL];
    let mut peak = [0u32; N_POL];
    // Partial sums in 32 bits, so that the loop vectorises: 1024 × 2 × 128² < 2³².
    for part in values.chunks(1024 * N_POL * 2) {
        let mut part_sum = [0u32; N_POL];
        for spectrum in part.chunks_exact(N_POL * 2) {
            let square = |index: usize| {
                let value = i32::from(spectrum[index] as i8);
                (value * value) as u32
            };
            for pol in 0..N_POL {
                let power = square(2 * pol) + square(2 * pol + 1);
                part_sum[pol] += power;
                peak[pol] = peak[pol].max(power);
            }
        }
        for pol in 0..N_POL {
            sum[pol] += u64::from(part_sum[pol]);
        }
    }
    (sum, peak)
}

/// The same where real and imaginary part are the nibbles of a byte.
fn channel_power_of_nibbles(values: &[u8]) -> ([u64; N_POL], [u32; N_POL]) {
    let mut sum = [0u64; N_POL];
    let mut peak = [0u32; N_POL];
    for spectrum in values.chunks_exact(N_POL) {
        for pol in 0..N_POL {
            let parts = nibbles(spectrum[pol]).map(i32::from);
            let power = (parts[0].pow(2) + parts[1].pow(2)) as u32;
            sum[pol] += u64::from(power);
            peak[pol] = peak[pol].max(power);
        }
    }
    (sum, peak)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHANNELS: usize = 1024;
    const SPECTRA: usize = 4;
    const BATCH_SAMPLES: u64 = (2 * CHANNELS * SPECTRA) as u64;

    /// A batch whose every value of a polarisation is this.
    fn flat(re_im: [[i8; 2]; N_POL]) -> Vec<u8> {
        re_im
            .concat()
            .repeat(CHANNELS * SPECTRA)
            .iter()
            .map(|&value| value as u8)
            .collect()
    }

    #[test]
    fn powers_follow_the_wire_layout() {
        let mut data = flat([[3, -4], [0, 1]]);
        // Channel 7, spectrum 2, polarisation 1.
        let at = (7 * SPECTRA + 2) * 4 + 2;
        data[at..at + 2].copy_from_slice(&[(-128i8) as u8, 0]);
        let mut spectra = SpectraAccumulator::new(CHANNELS, SPECTRA);
        spectra.add_batch(Timestamp(1000), &data);
        assert!(spectra.mean_power(0).iter().all(|&power| power == 25.0));
        assert!(spectra.peak_power(0).iter().all(|&power| power == 25));
        for (channel, (mean, &peak)) in spectra
            .mean_power(1)
            .iter()
            .zip(spectra.peak_power(1))
            .enumerate()
        {
            let expected = if channel == 7 {
                ((3.0 + 16384.0) / 4.0, 16384)
            } else {
                (1.0, 1)
            };
            assert_eq!((*mean, peak), expected, "channel {channel}");
        }
        let row = spectra.row(0, 1).expect("a batch");
        assert_eq!(row.len(), 512);
        assert_eq!((row[2], row[3]), (1.0, (4096.75 + 1.0) / 2.0));
    }

    #[test]
    fn nibbles_have_the_power_of_their_bytes() {
        let mut wide = SpectraAccumulator::new(8, 2);
        let mut narrow = SpectraAccumulator::new(8, 2);
        narrow.bits = OutputBits::Four;
        let values: Vec<i8> = (0..8 * 2 * 4).map(|i| (i * 4 % 15 - 7) as i8).collect();
        let bytes: Vec<u8> = values.iter().map(|&x| x as u8).collect();
        let pack = |parts: &[i8]| (parts[0] << 4 | parts[1] & 0xF) as u8;
        let packed: Vec<u8> = values.chunks(2).map(pack).collect();
        wide.add_batch(Timestamp(0), &bytes);
        narrow.add_batch(Timestamp(0), &packed);
        for pol in 0..N_POL {
            assert_eq!(wide.mean_power(pol), narrow.mean_power(pol));
            assert_eq!(wide.peak_power(pol), narrow.peak_power(pol));
            let zeros = values.chunks(2).skip(pol).step_by(2).flatten();
            let share = zeros.filter(|x| **x == 0).count() as f64 / 32.0;
            assert!(share > 0.0, "some are zero");
            assert_eq!(
                (wide.zero_share(pol), narrow.zero_share(pol)),
                (share, share)
            );
        }
    }

    #[test]
    fn gaps_stay_empty() {
        let mut spectra = SpectraAccumulator::new(CHANNELS, SPECTRA);
        for batch in [0, 1, 4] {
            spectra.add_batch(
                Timestamp(77 + batch * BATCH_SAMPLES),
                &flat([[1, 0], [1, 0]]),
            );
        }
        let present: Vec<bool> = (0..5).map(|row| spectra.row(row, 0).is_some()).collect();
        assert_eq!(present, [true, true, false, false, true]);
    }

    proptest! {
        /// Whatever the timestamps, memory is bounded and no power is lost.
        #[test]
        fn rows_are_bounded_and_keep_all_power(batches in prop::collection::vec(0u64..1 << 40, 1..40)) {
            let mut spectra = SpectraAccumulator::new(8, 2);
            let data = [2u8, 0, 0, 3].repeat(16);
            for &batch in &batches {
                spectra.add_batch(Timestamp(batch * 32), &data);
            }
            prop_assert!(spectra.rows() <= MAX_ROWS);
            let total: u64 = spectra.waterfall.rows.iter().flat_map(|row| &row.power).sum();
            prop_assert_eq!(total, batches.len() as u64 * 16 * 13);
            let last = batches.iter().map(|batch| batch.saturating_sub(batches[0])).max().unwrap_or(0);
            prop_assert_eq!(spectra.rows() as u64, last / spectra.waterfall.row_batches + 1);
        }
    }
}
