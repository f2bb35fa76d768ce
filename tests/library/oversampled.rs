//! Oversampled outputs of the CPU backend against the golden model, cut in any way.

use std::sync::Arc;

use dsp::delay::{DelayModels, LinearDelay};
use dsp::{Dither, OutputBits, Oversampling, SampleBits, WindowFunction};
use ground::{SampleClock, Timestamp};
use karoo::config::{Narrowband, NarrowbandSpec, OutputConfig, PipelineConfig};
use karoo::cpu::{CpuChanneliser, Level, Workers};
use karoo::engine::{Block, FineDelay, Pipeline};
use karoo::memory::{BatchStats, SampleView};
use karoo::model::{Batch, Model, hash_sample};
use num_complex::Complex32;

use crate::support::{contents, output, output_chunk, view};

const FENG_ID: u64 = 3;
const CLOCK: SampleClock = SampleClock {
    adc_sample_rate: 1712e6,
    sync_time: 0.0,
};
const BITS: u32 = 10;
const GAIN: f64 = 0.07;

fn oversampled(of: (usize, usize), output: OutputConfig) -> OutputConfig {
    let of = Oversampling::new(of.0, of.1).expect("a ratio");
    OutputConfig {
        oversampling: of,
        window_function: WindowFunction::Kaiser,
        w_cutoff: WindowFunction::Kaiser.cutoff(output.taps, of),
        ..output
    }
}

fn narrowband(decimation: usize, pass: Option<f64>, output: OutputConfig) -> OutputConfig {
    let bandwidth = CLOCK.adc_sample_rate / 2.0 / decimation as f64;
    let spec = NarrowbandSpec {
        centre_frequency: 408173015.5944824,
        decimation,
        ddc_taps: None,
        weight_pass: 0.005,
        pass_bandwidth: pass.map(|pass| pass * bandwidth),
    };
    OutputConfig {
        narrowband: Some(Narrowband::new(&spec, CLOCK).expect("a filter")),
        ..output
    }
}

/// Batches of noise, with delays that differ between polarisations, from a timestamp that many
/// turns of the rotation lie before.
struct Case {
    output: OutputConfig,
    batches: usize,
    input: Timestamp,
    samples: usize,
    packed: [Vec<u8>; 2],
    delays: [DelayModels; 2],
    start: Timestamp,
    gain: f64,
}

fn sample(pol: usize, t: u64) -> i32 {
    hash_sample(t.wrapping_mul(7) + 1000 * pol as u64)
}

impl Case {
    fn new(output: OutputConfig, batches: usize) -> Self {
        let (s, batch) = (output.subsampling() as u64, output.batch_samples() as u64);
        let start = Timestamp((1u64 << 40).next_multiple_of(batch) + batch);
        let input = Timestamp((start.0 - 2000) / (8 * s) * 8 * s);
        let samples = batches * output.batch_samples() + output.window_samples() + 6000;
        let packed = [0, 1].map(|pol| {
            let samples = input.0..input.0 + samples as u64;
            crate::support::packed(samples.map(|t| sample(pol, t)), BITS)
        });
        let delays = [(333.3, 0.7), (-512.8, -2.2)].map(|(delay, phase)| {
            let mut models = DelayModels::with_subsampling(s as u32);
            models.add(LinearDelay::new(0, delay, 0.0, phase, 1e-9).expect("a model"));
            models
        });
        Self {
            output,
            batches,
            input,
            samples,
            packed,
            delays,
            start,
            gain: GAIN,
        }
    }

    fn view(&self) -> SampleView<'_> {
        view(self.input, self.samples, &self.packed)
    }

    fn model(&self) -> Vec<Batch> {
        let model = Model::new(&self.output, FENG_ID);
        let gains = [0; 2].map(|_| vec![Complex32::from(self.gain as f32); self.output.channels]);
        let step = self.output.batch_samples() as u64;
        let starts = (0..self.batches as u64).map(|batch| self.start + batch * step);
        starts
            .map(|t| model.batch(&sample, t, &self.delays, &gains))
            .collect()
    }

    /// The same by the CPU backend, in blocks that end at `cuts`.
    fn compute(&self, level: Level, workers: usize, cuts: &[usize]) -> (Vec<u8>, Vec<BatchStats>) {
        let workers = Arc::new(Workers::unpinned(workers).expect("threads"));
        let config = PipelineConfig {
            output: &self.output,
            sample_bits: SampleBits::new(BITS).expect("2 to 16"),
            feng_id: FENG_ID,
            gain: self.gain,
            statistics: false,
        };
        let mut pipeline = CpuChanneliser::with_level(&config, workers, level);
        let mut chunk = output_chunk(&self.output, self.batches, self.start);
        let step = self.output.spectrum_samples() as u64;
        let spectra = self.batches * self.output.spectra_per_heap();
        let points = |s: usize| {
            let delays = self.delays.each_ref();
            delays.map(|delay| delay.at(self.start + s as u64 * step))
        };
        let fine = |s: usize| FineDelay {
            delay: points(s).map(|p| (p.residual / self.output.decimation() as f64) as f32),
            phase: points(s).map(|p| match self.output.narrowband {
                None => p.wideband_phase() as f32,
                Some(_) => p.phase as f32,
            }),
        };
        let fine: Vec<_> = (0..spectra).map(fine).collect();
        let mut first = 0;
        for &end in cuts.iter().chain([&spectra]) {
            let block = Block {
                first,
                offset: points(first).map(|p| (p.orig - self.input.0 as i64) as usize),
                fine: &fine[first..end],
                absent: &[],
            };
            let done = pipeline.run_frontend(&self.view(), &block, &mut chunk.writer().span());
            done.expect("computed");
            first = end;
        }
        pipeline
            .finish_chunk(self.batches, chunk)
            .expect("finished");
        contents(&pipeline.poll_finished().expect("polled").expect("a chunk"))
    }
}

fn cases() -> Vec<(String, Case)> {
    let plain = |channels, taps| output(channels, taps, 32, Dither::Uniform);
    let four = |output: OutputConfig| OutputConfig {
        sample_bits: OutputBits::Four,
        ..output
    };
    [
        ("wideband 32/27", oversampled((32, 27), plain(64, 16))),
        (
            "wideband 32/27, whole tiles",
            oversampled((32, 27), plain(2048, 4)),
        ),
        ("wideband 4/3", oversampled((4, 3), plain(256, 3))),
        ("wideband 8/7, 1 tap", oversampled((8, 7), plain(64, 1))),
        ("wideband 2, 20 taps", oversampled((2, 1), plain(128, 20))),
        (
            "wideband 64/33, 4 bits",
            four(oversampled((64, 33), plain(64, 4))),
        ),
        (
            "discard 32/27",
            oversampled((32, 27), narrowband(8, None, plain(64, 16))),
        ),
        (
            "whole 4/3",
            oversampled((4, 3), narrowband(3, Some(0.6), plain(64, 4))),
        ),
        (
            "whole 32/27",
            oversampled((32, 27), narrowband(4, Some(0.6), plain(256, 5))),
        ),
    ]
    .map(|(name, output)| (name.to_owned(), Case::new(output, 2)))
    .into()
}

/// Bytes but where dithered values are within rounding errors of a tie; the power of every sample
/// exactly once; clamped samples but where a value is the limit itself.
fn assert_agrees(name: &str, case: &Case) {
    let expected = case.model();
    for level in Level::available() {
        let (data, stats) = case.compute(level, 2, &[]);
        let bytes = case.output.batch_bytes();
        let lengths = (case.batches * bytes, case.batches);
        assert_eq!((data.len(), stats.len()), lengths, "{name}, {level}");
        assert_eq!(expected.len(), case.batches, "{name}");
        for (batch, (got, want)) in data.chunks(bytes).zip(&expected).enumerate() {
            let parts = |byte: u8| match case.output.sample_bits {
                OutputBits::Eight => [byte as i8, 0],
                OutputBits::Four => [byte as i8 >> 4, (byte << 4) as i8 >> 4],
            };
            assert_eq!(want.data.len(), bytes, "{name}");
            let mut off = 0;
            for (i, (&got, &want)) in got.iter().zip(&want.data).enumerate() {
                for (got, want) in parts(got).into_iter().zip(parts(want as u8)) {
                    assert!(
                        got.abs_diff(want) <= 1,
                        "{name}, {level}, byte {i}: {got} for {want}"
                    );
                    off += usize::from(got != want);
                }
            }
            assert!(off * 2000 <= bytes, "{name}, {level}: {off} of {bytes}");
            let lively = want.data.iter().filter(|x| x.abs() > 1).count();
            assert!(
                lively > bytes / 4,
                "{name}: {lively} of {bytes} bytes are not 0 or 1"
            );
            assert_eq!(stats[batch].power, want.power, "{name}, {level}");
            let (clamped, wanted) = (stats[batch].clipped, want.clipped);
            assert!(
                (0..2).all(|pol| clamped[pol].abs_diff(wanted[pol]) <= 1),
                "{name}, {level}: {clamped:?}, not {wanted:?}"
            );
        }
    }
}

#[test]
fn agrees_with_the_model() {
    for (name, case) in cases() {
        assert_agrees(&name, &case);
    }
}

/// Each polarisation's by itself. Parts of four bits are clamped at the usual gain.
#[test]
fn clamped_samples_are_counted() {
    let small = |(_, case): &(String, Case)| case.output.channels == 64;
    for (name, mut case) in cases().into_iter().filter(small) {
        if case.output.sample_bits == OutputBits::Eight {
            case.gain *= 10.0;
        }
        for batch in case.model() {
            let clamped = batch.clipped;
            let differ = clamped[0].abs_diff(clamped[1]) > 2;
            assert!(
                differ && clamped.iter().all(|&clamped| clamped > 100),
                "{name}: {clamped:?}"
            );
        }
        assert_agrees(&name, &case);
    }
}

#[test]
fn neither_blocks_nor_workers_change_a_byte() {
    for (name, case) in cases() {
        let level = Level::detect();
        let whole = case.compute(level, 1, &[]);
        for (workers, cuts) in [
            (3, vec![]),
            (1, vec![1, 2, 31, 33]),
            (2, vec![16, 17, 50]),
            (1, (1..64).collect()),
        ] {
            assert_eq!(
                case.compute(level, workers, &cuts),
                whole,
                "{name}, {cuts:?}"
            );
        }
    }
}
