//! Digital down-conversion of one block's input, in front of a narrowband PFB.
//!
//! A row is as many outputs as the PFB's transform has elements. The rows of a block are computed
//! once, spread over the workers, before any spectrum of it: neighbouring spectra share all but one
//! of their rows.

use std::sync::Mutex;
use std::time::Instant;

use dsp::mixer::Mixer;
use dsp::{SampleBits, ddc};
use ground::N_POL;
use num_complex::Complex64;

use super::group::Scratch;
use super::simd::{self, DdcTaps, Level, Supported, TILE, Unpacker};
use super::workers::Workers;
use crate::config::Narrowband;
use crate::memory::SampleView;

/// Samples that are unpacked at a time, beside those that the taps reach beyond.
const TILE_SAMPLES: usize = 4096;
/// Outputs of one task, at least.
const TASK_OUTPUTS: usize = 4096;
/// Outputs that share one phasor of the mixer in double precision.
const ROTATIONS: usize = 256;

/// Mixer, filter and subsampling of one output.
pub(super) struct DownConverter {
    at: Supported,
    unpacker: Unpacker,
    taps: DdcTaps,
    mixer: Mixer,
    /// Outputs per row.
    row: usize,
    subsampling: usize,
    /// Outputs per tile.
    tile: usize,
    /// e^{2πi·m·S·j} for j below [`ROTATIONS`].
    rotations: [Vec<f32>; 2],
}

/// The rows of one block.
#[derive(Clone, Debug, Default)]
pub(super) struct Baseband {
    /// Per polarisation; a row is its real parts, then its imaginary parts. Behind the last there
    /// is room for a tile of the filter's.
    pub rows: [Vec<f32>; N_POL],
    /// Σ x² of the samples that each row begins at and that lie before the next.
    pub power: [Vec<u64>; N_POL],
}

/// Consecutive rows of one polarisation.
struct Task<'a> {
    pol: usize,
    first: usize,
    rows: &'a mut [f32],
    power: &'a mut [u64],
}

impl DownConverter {
    /// For a PFB whose transform has `row` elements.
    pub fn new(narrowband: &Narrowband, row: usize, bits: SampleBits, level: Level) -> Self {
        let subsampling = narrowband.subsampling();
        let tile = (TILE_SAMPLES / subsampling).max(1);
        let phasor = |j: usize| narrowband.mixer.phasor((j * subsampling) as i64);
        let rotations: Vec<Complex64> = (0..ROTATIONS).map(phasor).collect();
        Self {
            at: Supported::new(level),
            unpacker: Unpacker::new(bits, level),
            taps: DdcTaps::new(&ddc::mixed(&narrowband.filter, &narrowband.mixer)),
            mixer: narrowband.mixer,
            row,
            subsampling,
            tile: tile.next_multiple_of(8).min(row),
            rotations: [
                rotations.iter().map(|z| z.re as f32).collect(),
                rotations.iter().map(|z| z.im as f32).collect(),
            ],
        }
    }

    /// Numbers per row.
    pub fn row(&self) -> usize {
        self.row
    }

    /// Samples of the largest tile.
    pub fn tile_samples(&self) -> usize {
        (self.tile - 1) * self.subsampling + self.taps.span().max(self.subsampling)
    }

    /// Computes `numbers` numbers of `input`, in rows, from sample `offset` on.
    pub fn run(
        &self,
        workers: &Workers,
        scratch: &[Mutex<Scratch>],
        input: &SampleView<'_>,
        offset: [usize; N_POL],
        numbers: usize,
        baseband: &mut Baseband,
    ) {
        let rows = numbers.div_ceil(self.row);
        let [x, y] = &mut baseband.rows;
        let [x_power, y_power] = &mut baseband.power;
        let first = self.tasks(0, rows, x, x_power);
        let tasks = Mutex::new(first.chain(self.tasks(1, rows, y, y_power)));
        workers.run(|worker| {
            let scratch = &mut *ground::lock(&scratch[worker]);
            let begun = Instant::now();
            loop {
                // In a statement of its own, so that others can take theirs meanwhile.
                let task = ground::lock(&tasks).next();
                let Some(task) = task else {
                    break;
                };
                self.task(scratch, input, offset[task.pol], task, numbers);
            }
            scratch.times.ddc += begun.elapsed();
        });
    }

    /// Cuts `rows` rows of one polarisation into tasks. The buffers grow to the longest block, and
    /// stay so.
    fn tasks<'a>(
        &self,
        pol: usize,
        rows: usize,
        plane: &'a mut Vec<f32>,
        power: &'a mut Vec<u64>,
    ) -> impl Iterator<Item = Task<'a>> + use<'a> {
        let length = 2 * self.row;
        plane.resize(plane.len().max(rows * length + TILE), 0.0);
        power.resize(power.len().max(rows), 0);
        let at_once = (TASK_OUTPUTS / self.row).max(1);
        let rows_of = plane[..rows * length].chunks_mut(at_once * length);
        let tasks = rows_of.zip(power[..rows].chunks_mut(at_once)).enumerate();
        tasks.map(move |(i, (rows, power))| Task {
            pol,
            first: i * at_once,
            rows,
            power,
        })
    }

    /// `numbers` of the block: its last row may be short.
    fn task(
        &self,
        scratch: &mut Scratch,
        input: &SampleView<'_>,
        offset: usize,
        task: Task<'_>,
        numbers: usize,
    ) {
        let rows = task.rows.chunks_exact_mut(2 * self.row).zip(task.power);
        for ((row, power), index) in rows.zip(task.first..) {
            *power = 0;
            let (re, im) = row.split_at_mut(self.row);
            let whole = self.row.min(numbers - index * self.row);
            let (re, im) = (&mut re[..whole], &mut im[..whole]);
            let mut first = offset + index * self.row * self.subsampling;
            for (re, im) in re.chunks_mut(self.tile).zip(im.chunks_mut(self.tile)) {
                let new = re.len() * self.subsampling;
                let packed = input.pol[task.pol];
                *power += self.tile(&mut scratch.tile, packed, first, re, im);
                self.mix(input.start.0 as i64 + first as i64, re, im);
                first += new;
            }
        }
    }

    /// Filters one tile from sample `first` on; returns Σ x² of the samples before the next tile.
    fn tile(
        &self,
        samples: &mut [f32],
        packed: &[u8],
        first: usize,
        re: &mut [f32],
        im: &mut [f32],
    ) -> u64 {
        let new = re.len() * self.subsampling;
        let span = (re.len() - 1) * self.subsampling + self.taps.span();
        let samples = &mut samples[..span.max(new)];
        let (ours, beyond) = samples.split_at_mut(new);
        let power = self.unpacker.unpack_power(packed, first, ours);
        self.unpacker.unpack(packed, first + new, beyond);
        self.taps.apply(self.at, samples, self.subsampling, re, im);
        power
    }

    /// Turns outputs whose first is that of ADC timestamp `t`, a multiple of the subsampling.
    ///
    /// Phasors are cut at fixed timestamps, so that they do not depend on where the block begins.
    fn mix(&self, t: i64, re: &mut [f32], im: &mut [f32]) {
        let mut done = 0;
        while done < re.len() {
            let k = t / self.subsampling as i64 + done as i64;
            let within = k as usize % ROTATIONS;
            let base = self
                .mixer
                .phasor((k - within as i64) * self.subsampling as i64);
            let end = (done + ROTATIONS - within).min(re.len());
            let table = self.rotations.each_ref();
            let table = table.map(|part| &part[within..within + end - done]);
            let base = [base.re as f32, base.im as f32];
            simd::rotate(self.at, base, table, &mut re[done..end], &mut im[done..end]);
            done = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{OutputConfig, PipelineConfig};
    use crate::cpu::group::GroupKernels;
    use crate::model::hash_sample;
    use dsp::unpack::pack;
    use dsp::{Dither, OutputBits, WindowFunction};
    use ground::Timestamp;

    const ROW: usize = 64;
    const ROWS: usize = 6;

    /// A mixer of 0.21 and a window as filter, of any number of taps and any subsampling.
    fn output(taps: usize, subsampling: usize) -> OutputConfig {
        let window = |l: usize| {
            let angle = std::f64::consts::PI * (l as f64 + 0.5) / taps as f64;
            angle.sin().powi(2) * 2.0 * (subsampling as f64).sqrt() / taps as f64
        };
        OutputConfig {
            name: "down".into(),
            channels: ROW / 2,
            dst: Vec::new(),
            jones_per_batch: ROW / 2 * 32,
            taps: 1,
            w_cutoff: 1.0,
            window_function: WindowFunction::Rect,
            oversampling: dsp::Oversampling::NONE,
            dither: Dither::None,
            dither_seed: 0,
            sample_bits: OutputBits::Eight,
            narrowband: Some(Narrowband {
                centre_frequency: 0.21,
                decimation: subsampling,
                pass_bandwidth: None,
                weight_pass: 0.005,
                filter: (0..taps).map(|l| window(l) as f32).collect(),
                mixer: Mixer::new(0.21, 1.0),
            }),
        }
    }

    /// To 2·10⁻⁶ of the samples' range at most and 2·10⁻⁷ root mean square.
    #[test]
    fn as_exact_as_single_precision() {
        let workers = Workers::unpinned(2).unwrap();
        for (taps, subsampling) in [
            (1, 1),
            (32, 2),
            (33, 3),
            (32, 4),
            (257, 4),
            (77, 5),
            (63, 7),
            (128, 8),
            (255, 16),
            (400, 33),
            (1024, 64),
        ] {
            let output = output(taps, subsampling);
            let narrowband = output.narrowband.as_ref().unwrap();
            let start = Timestamp((1 << 33) * subsampling as u64);
            let offset = [3 * subsampling, 10 * subsampling];
            let count = (10 + ROW * ROWS) * subsampling + taps;
            for bits in [2, 5, 8, 10, 12, 16] {
                let sample = |t: u64| (hash_sample(t) << 6) >> (16 - bits);
                let width = SampleBits::new(bits).unwrap();
                let packed = pack((start.0..start.0 + count as u64).map(sample), width);
                let input = SampleView {
                    start,
                    samples: count,
                    pol: [&packed, &packed],
                    device: None,
                };
                let range = f64::from(1 << bits);
                for level in Level::available() {
                    let down = DownConverter::new(narrowband, ROW, width, level);
                    let pipeline = PipelineConfig {
                        output: &output,
                        sample_bits: width,
                        feng_id: 0,
                        gain: 1.0,
                        statistics: false,
                    };
                    let kernels = GroupKernels::new(level, &pipeline, 16);
                    let scratch = [0, 1].map(|_| Mutex::new(kernels.scratch(down.tile_samples())));
                    let mut got = Baseband::default();
                    down.run(&workers, &scratch, &input, offset, ROWS * ROW, &mut got);
                    let (mut worst, mut squares) = (0.0f64, 0.0);
                    for (pol, offset) in offset.into_iter().enumerate() {
                        for k in 0..ROW * ROWS {
                            let first = start.0 + (offset + k * subsampling) as u64;
                            let terms = (first..).zip(narrowband.filter.iter());
                            let expected: Complex64 = terms
                                .map(|(t, &h)| {
                                    let v = narrowband.mixer.phasor(t as i64) * f64::from(h);
                                    v * f64::from(sample(t))
                                })
                                .sum();
                            let row = &got.rows[pol][k / ROW * 2 * ROW..];
                            let (re, im) = (row[k % ROW], row[ROW + k % ROW]);
                            let error = Complex64::new(re.into(), im.into()) - expected;
                            worst = worst.max(error.norm() / range);
                            squares += error.norm_sqr() / range.powi(2);
                        }
                        let power = |row: usize| -> u64 {
                            let first = start.0 + (offset + row * ROW * subsampling) as u64;
                            let samples = first..first + (ROW * subsampling) as u64;
                            samples.map(|t| i64::from(sample(t)).pow(2) as u64).sum()
                        };
                        let powers: Vec<u64> = (0..ROWS).map(power).collect();
                        assert_eq!(got.power[pol], powers, "{taps} taps, S {subsampling}");
                    }
                    let rms = (squares / (N_POL * ROW * ROWS) as f64).sqrt();
                    assert!(
                        worst < 2e-6 && rms < 2e-7,
                        "{taps} taps, S {subsampling}, {bits} bits, {level}: {worst:e}, rms {rms:e}"
                    );
                }
            }
        }
    }
}
