//! Narrowband and four-bit outputs of the CUDA backend against the golden model. Without a CUDA
//! device, the tests say so and pass.

use std::sync::Arc;

use dsp::delay::{DelayModels, LinearDelay};
use dsp::mixer::Mixer;
use dsp::{Dither, OutputBits, Oversampling, SampleBits, WindowFunction};
use ground::{SampleClock, Timestamp};
use karoo::config::{Narrowband, NarrowbandSpec, OutputConfig, PipelineConfig};
use karoo::engine::steer::Gains;
use karoo::engine::{Block, FineDelay, Intake as _, Pipeline as _};
use karoo::gpu::{
    Fft, Gpu, GpuChanneliser, GpuError, GpuIntake, KernelChoice, OutputChunks, Streams, Tune,
};
use karoo::memory::{BatchStats, HostAllocator, MemoryKind};
use karoo::model::Model;
use num_complex::Complex32;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::support::gpu::{
    CHUNKS, Contents, FENG_ID, HEAP_SAMPLES, assert_agree, chunk, layout, next_complete,
};
use crate::support::{device, output, output_chunk};

/// A multiple of every subsampling here.
const START: Timestamp = Timestamp(((1 << 33) / 6720 + 1) * 6720);
/// Output chunks, and batches of each.
const ROUNDS: usize = 2;
const BATCHES: usize = 2;

/// Narrowband around a quarter of the sample rate, or so, `pass` wide where no channel is
/// discarded.
fn narrowband(decimation: usize, ddc_taps: Option<usize>, pass: Option<f64>) -> Narrowband {
    let clock = SampleClock {
        adc_sample_rate: 1712e6,
        sync_time: 0.0,
    };
    let spec = NarrowbandSpec {
        centre_frequency: 408173015.5944824,
        decimation,
        ddc_taps,
        weight_pass: 0.005,
        pass_bandwidth: pass.map(|pass| pass * 856e6 / decimation as f64),
    };
    Narrowband::new(&spec, clock).expect("a filter")
}

/// Noise, a delay that goes on from one coarse value to the next, and gains, for several output
/// chunks from one receive chunk.
struct Case {
    config: OutputConfig,
    bits: SampleBits,
    begin: Timestamp,
    samples: [Vec<i32>; 2],
    packed: [Vec<u8>; 2],
    delays: [DelayModels; 2],
    gains: [Vec<Complex32>; 2],
}

impl Case {
    fn new(config: OutputConfig, bits: u32, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (step, subsampling) = (config.spectrum_samples(), config.subsampling());
        // Of which one goes up, and one goes down, by some steps of the subsampling.
        let rate = 4.0 * subsampling as f64 / (step * config.spectra_per_heap()) as f64;
        let delays = [(42.4, rate, 0.3), (-57.3, -0.7 * rate, 2.9)].map(|(delay, rate, phase)| {
            let mut models = DelayModels::with_subsampling(subsampling as u32);
            let model = LinearDelay::new(START.0 as i64, delay, rate, phase, 1e-5);
            models.add(model.expect("a model"));
            models
        });
        let lead = 64 * subsampling as u64;
        let spectra = ROUNDS * BATCHES * config.spectra_per_heap();
        let count = (spectra - 1) * step + config.window_samples() + 3 * lead as usize;
        let scale = 1i32 << (bits - 1);
        let samples: [Vec<i32>; 2] = std::array::from_fn(|_| {
            (0..count.next_multiple_of(HEAP_SAMPLES))
                .map(|_| rng.random_range(-scale..scale))
                .collect()
        });
        let gain = config.sample_bits.limit() / 2.5 / (scale as f32 / 6f32.sqrt());
        let gains = std::array::from_fn(|_| {
            (0..config.channels)
                .map(|_| Complex32::from_polar(gain, rng.random_range(-3.0..3.0)))
                .collect()
        });
        Self {
            packed: samples
                .each_ref()
                .map(|samples| crate::support::packed(samples.iter().copied(), bits)),
            bits: SampleBits::new(bits).unwrap(),
            begin: Timestamp(START.0 - lead),
            samples,
            delays,
            gains,
            config,
        }
    }

    fn time(&self, spectrum: usize) -> Timestamp {
        START + (spectrum * self.config.spectrum_samples()) as u64
    }

    /// What the engine makes of the delays: spectra with the same coarse ones, up to `most`, with
    /// where their windows begin.
    fn blocks(&self, first: usize, end: usize, most: usize) -> Vec<([usize; 2], Vec<FineDelay>)> {
        let mut blocks: Vec<([i64; 2], [usize; 2], Vec<FineDelay>)> = Vec::new();
        for spectrum in first..end {
            let points = self.delays.each_ref().map(|d| d.at(self.time(spectrum)));
            let decimation = self.config.decimation() as f64;
            let fine = FineDelay {
                delay: points.map(|point| (point.residual / decimation) as f32),
                phase: points.map(|point| match self.config.narrowband {
                    None => point.wideband_phase() as f32,
                    Some(_) => point.phase as f32,
                }),
            };
            let coarse = points.map(|point| point.coarse);
            match blocks.last_mut() {
                Some((of, _, block)) if *of == coarse && block.len() < most => block.push(fine),
                _ => {
                    let offset = points.map(|point| (point.orig - self.begin.0 as i64) as usize);
                    blocks.push((coarse, offset, vec![fine]));
                }
            }
        }
        let block = |(_, offset, fine)| (offset, fine);
        blocks.into_iter().map(block).collect()
    }

    /// What the model makes of it.
    fn expected(&self) -> Vec<Contents> {
        let model = Model::new(&self.config, FENG_ID);
        let source = |pol: usize, t: u64| self.samples[pol][(t - self.begin.0) as usize];
        let batch = |i: usize| {
            let t = self.time(i * self.config.spectra_per_heap());
            model.batch(&source, t, &self.delays, &self.gains)
        };
        let round = |round: usize| {
            let mut contents = Contents::default();
            for batch in (0..BATCHES).map(|i| batch(round * BATCHES + i)) {
                contents.0.extend(batch.data.iter().map(|&x| x as u8));
                contents.1.push(BatchStats {
                    clipped: batch.clipped,
                    power: batch.power,
                });
            }
            contents
        };
        (0..ROUNDS).map(round).collect()
    }

    /// What the GPU makes of it, in blocks of at most `most` spectra.
    fn run(&self, gpu: &Arc<Gpu>, kernels: &KernelChoice, most: usize) -> (String, Vec<Contents>) {
        let streams = Streams::new(gpu.clone()).unwrap();
        let layout = layout(self.bits, self.samples[0].len(), 0);
        let mut intake = GpuIntake::new(streams.clone(), &layout, MemoryKind::Host).unwrap();
        let chunks = OutputChunks {
            batches: BATCHES,
            count: CHUNKS,
        };
        let (config, bits) = (&self.config, self.bits);
        let computed = PipelineConfig {
            output: config,
            sample_bits: bits,
            feng_id: FENG_ID,
            gain: 1.0,
            statistics: false,
        };
        let pipeline = GpuChanneliser::new(streams, &computed, chunks, kernels);
        let mut pipeline = pipeline.unwrap();
        pipeline.count_power(config, bits).unwrap();
        for (pol, gains) in self.gains.iter().enumerate() {
            let mut gains = Gains::new(gains.len(), gains).unwrap();
            pipeline.set_gains(pol, &mut gains);
        }
        let packed = self.packed.each_ref().map(|pol| &pol[..]);
        let received = chunk(layout, &HostAllocator::default(), packed);
        intake.load(received, false).unwrap();
        let spectra = BATCHES * config.spectra_per_heap();
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            let mut filled = output_chunk(config, BATCHES, self.time(round * spectra));
            let mut first = 0;
            for (offset, fine) in self.blocks(round * spectra, (round + 1) * spectra, most) {
                let view = intake.view(self.begin, self.samples[0].len()).unwrap();
                let block = Block {
                    first,
                    offset,
                    fine: &fine,
                    absent: &[],
                };
                let view = view.unwrap();
                pipeline
                    .run_frontend(&view, &block, &mut filled.writer().span())
                    .unwrap();
                first += fine.len();
            }
            pipeline.finish_chunk(BATCHES, filled).unwrap();
            rounds.push(next_complete(&mut pipeline));
        }
        intake.release().unwrap();
        (pipeline.name(), rounds)
    }

    /// Holds all kernels against the model, and long blocks against short ones.
    fn check(&self, gpu: &Arc<Gpu>, what: &str) {
        let expected: Vec<_> = self.expected().into_iter().map(|c| self.parts(c)).collect();
        for fft in [Fft::Fused, Fft::Cufft] {
            let kernels = KernelChoice {
                fft,
                tune: Tune::Off,
            };
            let (name, got) = self.run(gpu, &kernels, usize::MAX);
            let what = format!("{what}, {name}");
            let (_, cut) = self.run(gpu, &kernels, 5);
            assert!(cut == got, "{what}: it matters where blocks end");
            for (got, expected) in got.into_iter().zip(&expected) {
                assert_agree(&what, &self.parts(got), expected);
            }
        }
    }

    /// A byte per real or imaginary part.
    fn parts(&self, (data, stats): Contents) -> Contents {
        let nibbles = |byte: &u8| [(*byte as i8 >> 4) as u8, ((*byte << 4) as i8 >> 4) as u8];
        match self.config.sample_bits {
            OutputBits::Eight => (data, stats),
            OutputBits::Four => (data.iter().flat_map(nibbles).collect(), stats),
        }
    }
}

fn config(channels: usize, taps: usize, spectra_per_heap: usize, of: Narrowband) -> OutputConfig {
    OutputConfig {
        narrowband: Some(of),
        ..output(channels, taps, spectra_per_heap, Dither::Uniform)
    }
}

/// Both kinds, all shapes of the down-conversion's blocks, and filters of all lengths. Odd
/// subsamplings, which no output's options lead to, are those whose rows begin at any sample.
#[test]
fn every_decimation_agrees_with_the_model() {
    let Some(gpu) = device() else { return };
    for (decimation, ddc_taps, pass) in [
        (2, None, None),
        (4, None, None),
        (6, Some(97), None),
        (8, None, None),
        (16, None, None),
        (32, None, None),
        (3, Some(49), None),
        (5, None, None),
        (7, Some(80), None),
        (15, Some(257), None),
        (35, None, None),
        (2, None, Some(0.6)),
        (3, None, Some(0.6)),
        (8, None, Some(0.598131)),
        (5, Some(33), Some(0.3)),
        (32, Some(700), Some(0.6)),
    ] {
        let of = narrowband(decimation, ddc_taps, pass);
        let case = Case::new(config(64, 4, 32, of), 10, decimation as u64);
        case.check(
            &gpu,
            &format!("decimation {decimation}, pass band {pass:?}"),
        );
    }
}

#[test]
fn every_width_agrees_with_the_model() {
    let Some(gpu) = device() else { return };
    for bits in 2..=16 {
        let of = narrowband(4, None, if bits % 2 == 0 { None } else { Some(0.6) });
        let case = Case::new(config(64, 3, 32, of), bits, 100 + u64::from(bits));
        case.check(&gpu, &format!("{bits} bits"));
    }
}

/// Numbers of channels and taps, and VLBI's plain transform.
#[test]
fn every_transform_agrees_with_the_model() {
    let Some(gpu) = device() else { return };
    for (channels, taps, pass) in [
        (32, 4, None),
        (64, 16, Some(0.6)),
        (256, 16, None),
        (1024, 16, Some(0.6)),
        (1024, 1, Some(0.6)),
        (2048, 17, None),
        (4096, 4, Some(0.6)),
    ] {
        let of = narrowband(4, None, pass);
        let case = Case::new(config(channels, taps, 16, of), 10, 200 + channels as u64);
        case.check(&gpu, &format!("{channels} channels, {taps} taps"));
    }
}

#[test]
fn oversampled_outputs_agree_with_the_model() {
    let Some(gpu) = device() else { return };
    for (channels, taps, pass, m, n) in [
        (64, 16, None, 32, 27),
        (1024, 16, Some(0.6), 32, 27),
        (1024, 4, None, 4, 3),
        (2048, 17, None, 8, 7),
    ] {
        let of = narrowband(4, None, pass);
        let oversampling = Oversampling::new(m, n).unwrap();
        let config = OutputConfig {
            oversampling,
            window_function: WindowFunction::Kaiser,
            ..config(channels, taps, 32, of)
        };
        let case = Case::new(config, 10, 500 + channels as u64);
        case.check(
            &gpu,
            &format!("{channels} channels, {taps} taps, {oversampling}"),
        );
    }
}

#[test]
fn four_bits_agree_with_the_model() {
    let Some(gpu) = device() else { return };
    for of in [
        None,
        Some(narrowband(8, None, None)),
        Some(narrowband(4, None, Some(0.6))),
    ] {
        for dither in [Dither::None, Dither::Uniform] {
            let config = OutputConfig {
                sample_bits: OutputBits::Four,
                narrowband: of.clone(),
                ..output(128, 4, 32, dither)
            };
            let case = Case::new(config, 10, 300);
            case.check(&gpu, &format!("four bits, {dither:?}"));
        }
    }
}

/// Of narrow spectra a block has more than the smaller dimensions of a grid. Their power is that of
/// the samples of their last taps.
#[test]
fn any_number_of_spectra_counts_its_power() {
    let Some(gpu) = device() else { return };
    let (spectra_per_heap, taps) = (40000, 4);
    let of = narrowband(2, None, None);
    let mut case = Case::new(config(32, taps, spectra_per_heap, of), 8, 400);
    case.delays = [0; 2].map(|_| DelayModels::with_subsampling(case.config.subsampling() as u32));
    let (_, rounds) = case.run(&gpu, &KernelChoice::default(), usize::MAX);
    let stats: Vec<_> = rounds.iter().flat_map(|(_, stats)| stats).collect();
    assert_eq!(stats.len(), ROUNDS * BATCHES);
    let step = case.config.spectrum_samples();
    let first = (START.0 - case.begin.0) as usize + (taps - 1) * step;
    for (batch, stats) in stats.into_iter().enumerate() {
        let power = case.samples.each_ref().map(|samples| {
            let own =
                &samples[first + batch * spectra_per_heap * step..][..spectra_per_heap * step];
            own.iter().map(|&x| u64::from((x * x) as u32)).sum::<u64>()
        });
        assert_eq!(stats.power, power, "batch {batch}");
    }
}

#[test]
fn a_down_conversion_that_does_not_fit_is_refused() {
    let Some(gpu) = device() else { return };
    let of = Narrowband {
        decimation: 1 << 14,
        filter: vec![1.0; 16].into(),
        mixer: Mixer::new(1e8, 1e9),
        ..narrowband(4, None, None)
    };
    let (config, bits) = (config(64, 1, 32, of), SampleBits::new(10).unwrap());
    let chunks = OutputChunks {
        batches: 1,
        count: 1,
    };
    let streams = Streams::new(gpu).unwrap();
    let kernels = KernelChoice::default();
    let config = PipelineConfig {
        output: &config,
        sample_bits: bits,
        feng_id: 0,
        gain: 1.0,
        statistics: false,
    };
    let refused = GpuChanneliser::new(streams, &config, chunks, &kernels).err();
    let error = refused.expect("a refusal");
    let text = error.to_string();
    assert!(
        matches!(error, GpuError::Subsampling { .. }) && text.contains("16384"),
        "{text}"
    );
}
