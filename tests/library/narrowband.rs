//! Narrowband and 4-bit outputs of the CPU backend against the golden model, and against themselves
//! cut differently.

use std::sync::Arc;

use dsp::delay::{DelayModels, LinearDelay};
use dsp::{Dither, OutputBits, SampleBits};
use ground::{SampleClock, Timestamp};
use karoo::config::{Narrowband, NarrowbandSpec, OutputConfig, PipelineConfig};
use karoo::cpu::{CpuChanneliser, Level, Workers};
use karoo::engine::{Block, FineDelay, Pipeline};
use karoo::memory::{BatchStats, SampleView};
use karoo::model::{Batch, Model};
use num_complex::Complex32;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::support::{contents, output, output_chunk, view};

const FENG_ID: u64 = 3;
const CLOCK: SampleClock = SampleClock {
    adc_sample_rate: 1712e6,
    sync_time: 0.0,
};

/// A narrowband output with katgpucbf's default filter; `pass` is a fraction of its band.
fn narrowband(channels: usize, taps: usize, decimation: usize, pass: Option<f64>) -> OutputConfig {
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
        ..output(channels, taps, 32, Dither::Uniform)
    }
}

/// One batch of noise, with a delay that is no whole number of subsampled samples, different in
/// each polarisation.
struct Case {
    output: OutputConfig,
    bits: SampleBits,
    gain: f64,
    input: Timestamp,
    samples: [Vec<i32>; 2],
    packed: [Vec<u8>; 2],
    delays: [DelayModels; 2],
    start: Timestamp,
}

impl Case {
    fn new(output: OutputConfig, bits: u32, gain: f64) -> Self {
        let s = output.subsampling() as u64;
        let input = Timestamp(((1u64 << 40) / (8 * s) + 1) * 8 * s);
        let count = output.batch_samples() + output.window_samples() + 4000;
        let mut rng = ChaCha8Rng::seed_from_u64(bits.into());
        let most = (1 << (bits - 1)) - 1;
        let samples = [0; 2]
            .map(|_| -> Vec<i32> { (0..count).map(|_| rng.random_range(-most..=most)).collect() });
        let packed = samples
            .each_ref()
            .map(|samples| crate::support::packed(samples.iter().copied(), bits));
        let delays = [(333.3, 0.7), (-512.8, -2.2)].map(|(delay, phase)| {
            let mut models = DelayModels::with_subsampling(s as u32);
            models.add(LinearDelay::new(0, delay, 0.0, phase, 1e-9).expect("a model"));
            models
        });
        Self {
            start: input + 2000u64.next_multiple_of(s),
            bits: SampleBits::new(bits).expect("2 to 16"),
            output,
            gain,
            input,
            samples,
            packed,
            delays,
        }
    }

    fn view(&self) -> SampleView<'_> {
        view(self.input, self.samples[0].len(), &self.packed)
    }

    fn model(&self) -> Batch {
        let source = |pol: usize, t: u64| self.samples[pol][(t - self.input.0) as usize];
        let gains = [0; 2].map(|_| vec![Complex32::from(self.gain as f32); self.output.channels]);
        Model::new(&self.output, FENG_ID).batch(&source, self.start, &self.delays, &gains)
    }

    /// The same by the CPU backend, in blocks that end at `cuts`.
    fn compute(&self, level: Level, workers: usize, cuts: &[usize]) -> (Vec<u8>, Vec<BatchStats>) {
        let workers = Arc::new(Workers::unpinned(workers).expect("threads"));
        let mut pipeline = CpuChanneliser::with_level(
            &PipelineConfig {
                output: &self.output,
                sample_bits: self.bits,
                feng_id: FENG_ID,
                gain: self.gain,
                statistics: false,
            },
            workers,
            level,
        );
        let mut chunk = output_chunk(&self.output, 1, self.start);
        let step = self.output.spectrum_samples() as u64;
        let spectra = self.output.spectra_per_heap();
        let points = |s: usize| {
            self.delays
                .each_ref()
                .map(|delay| delay.at(self.start + s as u64 * step))
        };
        let fine: Vec<FineDelay> = (0..spectra)
            .map(|s| FineDelay {
                delay: points(s).map(|p| (p.residual / self.output.decimation() as f64) as f32),
                phase: points(s).map(|p| p.phase as f32),
            })
            .collect();
        let mut first = 0;
        for &end in cuts.iter().chain([&spectra]) {
            let block = Block {
                first,
                offset: points(first).map(|p| (p.orig - self.input.0 as i64) as usize),
                fine: &fine[first..end],
                absent: &[],
            };
            pipeline
                .run_frontend(&self.view(), &block, &mut chunk.writer().span())
                .expect("computed");
            first = end;
        }
        pipeline.finish_chunk(1, chunk).expect("finished");
        contents(&pipeline.poll_finished().expect("polled").expect("a chunk"))
    }
}

/// Parts of complex samples, in their order.
fn parts(data: &[u8], bits: OutputBits) -> Vec<i8> {
    match bits {
        OutputBits::Eight => data.iter().map(|&byte| byte as i8).collect(),
        OutputBits::Four => {
            let nibbles = |byte: u8| [byte as i8 >> 4, (byte << 4) as i8 >> 4];
            data.iter().flat_map(|&byte| nibbles(byte)).collect()
        }
    }
}

/// The model's bytes, but where dithered values are within rounding errors of a tie.
fn assert_agrees(case: &Case, of: &str) {
    let expected = case.model();
    let bits = case.output.sample_bits;
    let bytes: Vec<u8> = expected.data.iter().map(|&x| x as u8).collect();
    let wanted = parts(&bytes, bits);
    assert!(wanted.iter().filter(|x| x.abs() > 1).count() > wanted.len() / 4);
    for level in Level::available() {
        let (data, stats) = case.compute(level, 2, &[]);
        let got = parts(&data, bits);
        assert_eq!((got.len(), stats.len()), (wanted.len(), 1), "{of}, {level}");
        let mut off = 0;
        for (i, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
            assert!(
                got.abs_diff(*wanted) <= 1,
                "{of}, {level}, part {i}: {got}, not {wanted}"
            );
            off += usize::from(got != wanted);
        }
        assert!(
            off * 2000 <= got.len(),
            "{of}, {level}: {off} of {}",
            got.len()
        );
        assert_eq!(stats[0].power, expected.power, "{of}, {level}");
        // One whose value is the limit itself may be counted or not.
        let (clamped, wanted) = (stats[0].clipped, expected.clipped);
        assert!(
            (0..2).all(|pol| clamped[pol].abs_diff(wanted[pol]) <= 1),
            "{of}, {level}: {clamped:?}, not {wanted:?}"
        );
    }
}

#[test]
fn agrees_with_the_model() {
    for (channels, taps, decimation, pass) in [
        (32, 4, 2, None),
        (64, 16, 8, None),
        (128, 3, 32, None),
        (64, 4, 1, Some(0.6)),
        (64, 4, 3, Some(0.6)),
        (64, 1, 4, Some(0.598131)),
        (256, 5, 16, Some(0.7)),
    ] {
        let output = narrowband(channels, taps, decimation, pass);
        let case = Case::new(output, 10, 0.05);
        assert_agrees(
            &case,
            &format!("C {channels} T {taps} D {decimation} pass {pass:?}"),
        );
    }
}

#[test]
fn agrees_for_every_width_of_input() {
    for bits in [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16] {
        let gain = 20.0 / f64::from((1 << (bits - 1)) - 1);
        let case = Case::new(narrowband(32, 4, 4, None), bits, gain);
        assert_agrees(&case, &format!("{bits} bits"));
    }
}

#[test]
fn four_bits_agree_with_the_model() {
    let four = |output: OutputConfig| OutputConfig {
        sample_bits: OutputBits::Four,
        ..output
    };
    let case = Case::new(four(narrowband(64, 4, 4, None)), 10, 0.02);
    assert_agrees(&case, "narrowband");
    let undithered = OutputConfig {
        dither: Dither::None,
        ..four(narrowband(64, 1, 4, Some(0.6)))
    };
    assert_agrees(&Case::new(undithered, 10, 0.02), "without dither");
}

/// Each polarisation's by itself.
#[test]
fn clamped_samples_are_counted() {
    for (sample_bits, gain) in [(OutputBits::Eight, 0.6), (OutputBits::Four, 0.035)] {
        for output in [narrowband(64, 4, 4, None), narrowband(64, 4, 3, Some(0.6))] {
            let output = OutputConfig {
                sample_bits,
                ..output
            };
            let case = Case::new(output, 10, gain);
            let clamped = case.model().clipped;
            let differ = clamped[0].abs_diff(clamped[1]) > 5;
            assert!(
                differ && clamped.iter().all(|&clamped| clamped > 100),
                "{clamped:?}"
            );
            assert_agrees(&case, &format!("{} bits", sample_bits.get()));
        }
    }
}

/// Bytes do not depend on the instruction set, the workers, or where blocks end.
#[test]
fn however_it_is_cut_the_bytes_are_the_same() {
    let base = narrowband(64, 4, 6, None);
    for sample_bits in [OutputBits::Eight, OutputBits::Four] {
        let case = Case::new(
            OutputConfig {
                sample_bits,
                ..base.clone()
            },
            10,
            0.05,
        );
        let whole = case.compute(Level::Portable, 1, &[]);
        for level in Level::available() {
            for cuts in [&[][..], &[1], &[16], &[5, 6, 23], &[31]] {
                assert!(case.compute(level, 3, cuts) == whole, "{level} {cuts:?}");
            }
        }
    }
}
