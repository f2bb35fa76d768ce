//! Sums for statistics on the CPU, against the golden model.

use std::sync::Arc;

use dsp::delay::{DelayModels, LinearDelay};
use dsp::{Dither, OutputBits, SampleBits, dither};
use ground::{SampleClock, Timestamp};
use karoo::config::{Narrowband, NarrowbandSpec, OutputConfig, PipelineConfig};
use karoo::cpu::{CpuChanneliser, Level, Workers};
use karoo::engine::{Block, ChannelSums, FineDelay, PeriodSums, Pipeline};
use karoo::model::Model;
use num_complex::Complex32;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::support::{output, output_chunk, packed, view};

const FENG_ID: u64 = 3;
const BITS: u32 = 10;
/// Timestamp of sample 0.
const INPUT: Timestamp = Timestamp(1 << 33);

/// Two batches of noise, with delays and gains.
struct Case {
    output: OutputConfig,
    gain: f32,
    samples: [Vec<i32>; 2],
    packed: [Vec<u8>; 2],
    delays: [DelayModels; 2],
    start: Timestamp,
}

impl Case {
    fn new(output: OutputConfig, gain: f32) -> Self {
        let step = output.subsampling() as u64;
        let count = 2 * output.batch_samples() + output.window_samples() + 2000;
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let common: Vec<i32> = (0..count).map(|_| rng.random_range(-200..=200)).collect();
        // A part of the noise is in both.
        let samples = [1, -1].map(|sign| -> Vec<i32> {
            let own = common
                .iter()
                .map(|x| sign * x / 2 + rng.random_range(-200..=200));
            own.collect()
        });
        let delays = [(5.3, 0.7), (-17.8, -2.2)].map(|(delay, phase)| {
            let mut models = DelayModels::with_subsampling(step as u32);
            models.add(LinearDelay::new(0, delay, 0.0, phase, 1e-9).expect("a model"));
            models
        });
        Self {
            packed: samples
                .each_ref()
                .map(|samples| packed(samples.iter().copied(), BITS)),
            samples,
            gain,
            delays,
            start: INPUT + 1000u64.next_multiple_of(step),
            output,
        }
    }

    fn spectra(&self) -> usize {
        2 * self.output.spectra_per_heap()
    }

    fn time(&self, spectrum: usize) -> Timestamp {
        self.start + (spectrum * self.output.spectrum_samples()) as u64
    }

    /// Sums over these spectra by the model.
    fn expected(&self, spectra: impl Iterator<Item = usize>) -> PeriodSums {
        let output = &self.output;
        let model = Model::new(output, FENG_ID);
        let gains = [0; 2].map(|_| vec![Complex32::from(self.gain); output.channels]);
        let source = |pol: usize, t: u64| self.samples[pol][(t - INPUT.0) as usize];
        let limit = output.sample_bits.limit();
        let mut sums = PeriodSums {
            spectra: 0,
            channels: vec![ChannelSums::default(); output.channels],
        };
        for s in spectra {
            sums.spectra += 1;
            let t = self.time(s);
            let [x, y] = model.spectrum(&source, t, &self.delays, &gains);
            for (k, sums) in sums.channels.iter_mut().enumerate() {
                let z = [x[k], y[k]];
                let draws = match output.dither {
                    Dither::None => [0.0; 4],
                    _ => dither::dither(output.dither_seed, FENG_ID, t.0, k, output.channels),
                };
                for (pol, z) in z.into_iter().enumerate() {
                    sums.power[pol] += z.norm_sqr();
                    sums.power_squared[pol] += z.norm_sqr().powi(2);
                    let parts = [
                        z.re as f32 + draws[2 * pol],
                        z.im as f32 + draws[2 * pol + 1],
                    ];
                    sums.clipped[pol] += u64::from(parts.iter().any(|part| part.abs() > limit));
                }
                sums.cross += z[0] * z[1].conj();
            }
        }
        sums
    }

    fn pipeline(&self, level: Level, workers: usize) -> CpuChanneliser {
        let config = PipelineConfig {
            output: &self.output,
            sample_bits: SampleBits::new(BITS).expect("a width"),
            feng_id: FENG_ID,
            gain: self.gain.into(),
            statistics: true,
        };
        let workers = Arc::new(Workers::unpinned(workers).expect("threads"));
        CpuChanneliser::with_level(&config, workers, level)
    }

    /// Computes all in blocks that end at `cuts`, with these spectra's input missing.
    fn compute(&self, pipeline: &mut CpuChanneliser, cuts: &[usize], missing: &[usize]) {
        let output = &self.output;
        let points = |s: usize| self.delays.each_ref().map(|delay| delay.at(self.time(s)));
        let narrow = output.narrowband.is_some();
        let fine = |s: usize| FineDelay {
            delay: points(s).map(|p| (p.residual / output.decimation() as f64) as f32),
            phase: points(s).map(|p| if narrow { p.phase } else { p.wideband_phase() } as f32),
        };
        let fine: Vec<_> = (0..self.spectra()).map(fine).collect();
        let view = view(INPUT, self.samples[0].len(), &self.packed);
        let mut chunk = output_chunk(output, 2, self.start);
        let mut first = 0;
        for &end in cuts.iter().chain([&self.spectra()]) {
            let absent = missing.iter().filter(|s| (first..end).contains(s));
            let absent: Vec<_> = absent.map(|s| s - first).collect();
            let block = Block {
                first,
                offset: points(first).map(|p| (p.orig - INPUT.0 as i64) as usize),
                fine: &fine[first..end],
                absent: &absent,
            };
            pipeline
                .run_frontend(&view, &block, &mut chunk.writer().span())
                .expect("computed");
            first = end;
        }
        pipeline.finish_chunk(2, chunk).expect("finished");
        pipeline.poll_finished().expect("polled").expect("a chunk");
    }
}

fn ended(pipeline: &mut CpuChanneliser) -> PeriodSums {
    assert!(pipeline.end_period().expect("ended"));
    pipeline.poll_sums().expect("polled").expect("sums")
}

/// Sums are the same but for rounding errors, and counts are.
fn assert_close(got: &PeriodSums, expected: &PeriodSums, of: &str) {
    assert_eq!(got.spectra, expected.spectra, "{of}");
    assert_eq!(got.channels.len(), expected.channels.len(), "{of}");
    let channels = got.channels.iter().zip(&expected.channels);
    for (k, (got, expected)) in channels.enumerate() {
        assert_eq!(got.clipped, expected.clipped, "channel {k}, {of}");
        let [x, y] = expected.power;
        let near = |a: f64, b: f64, scale: f64| (a - b).abs() <= 3e-5 * scale;
        for pol in 0..2 {
            let power = near(got.power[pol], expected.power[pol], expected.power[pol]);
            let squared = expected.power_squared[pol];
            assert!(
                power && near(got.power_squared[pol], squared, squared),
                "channel {k}, {of}: {got:?} is not {expected:?}"
            );
        }
        let cross = (got.cross - expected.cross).norm();
        assert!(
            cross <= 3e-5 * (x * y).sqrt(),
            "channel {k}, {of}: {got:?} is not {expected:?}"
        );
    }
}

fn narrowband(pass_bandwidth: Option<f64>) -> OutputConfig {
    let clock = SampleClock {
        adc_sample_rate: 1712e6,
        sync_time: 0.0,
    };
    let spec = NarrowbandSpec {
        centre_frequency: 408e6,
        decimation: 8,
        ddc_taps: None,
        weight_pass: 0.005,
        pass_bandwidth,
    };
    OutputConfig {
        narrowband: Some(Narrowband::new(&spec, clock).expect("a filter")),
        ..output(64, 4, 32, Dither::Uniform)
    }
}

#[test]
fn sums_are_those_of_the_model() {
    let four_bits = OutputConfig {
        sample_bits: OutputBits::Four,
        ..output(64, 4, 32, Dither::Uniform)
    };
    for (output, gain, of) in [
        (output(128, 4, 32, Dither::Uniform), 0.6, "wideband"),
        (
            output(64, 3, 40, Dither::None),
            0.6,
            "wideband without dither",
        ),
        (four_bits, 0.03, "wideband of four bits"),
        (narrowband(None), 0.6, "narrowband"),
        (
            narrowband(Some(50e6)),
            0.6,
            "narrowband that discards nothing",
        ),
    ] {
        let case = Case::new(output, gain);
        let expected = case.expected(0..case.spectra());
        let clipped = expected
            .channels
            .iter()
            .map(|sums| sums.clipped[0] + sums.clipped[1]);
        assert!(clipped.sum::<u64>() > 10, "{of}: some must clip");
        for level in Level::available() {
            // Cut inside groups, too.
            for (workers, cuts) in [(1, vec![]), (3, vec![5, 16, 41])] {
                let mut pipeline = case.pipeline(level, workers);
                case.compute(&mut pipeline, &cuts, &[]);
                let of = format!("{of}, {level}, cut at {cuts:?}");
                assert_close(&ended(&mut pipeline), &expected, &of);
            }
        }
    }
}

#[test]
fn periods_begin_anew() {
    let case = Case::new(output(64, 4, 32, Dither::Uniform), 0.3);
    let mut pipeline = case.pipeline(Level::detect(), 2);
    case.compute(&mut pipeline, &[], &[]);
    let once = ended(&mut pipeline);
    assert_eq!(pipeline.poll_sums().expect("polled"), None);
    case.compute(&mut pipeline, &[], &[]);
    case.compute(&mut pipeline, &[], &[]);
    let twice = ended(&mut pipeline);
    assert_eq!(twice.spectra, 2 * once.spectra);
    let power = |sums: &PeriodSums| sums.channels.iter().map(|c| c.power[0]).sum::<f64>();
    assert!((power(&twice) / power(&once) - 2.0).abs() < 1e-6);
    // Of nothing.
    let none = ended(&mut pipeline);
    assert_eq!((none.spectra, none.channels.len()), (0, 64));
    assert!(
        none.channels
            .iter()
            .all(|sums| *sums == ChannelSums::default())
    );
}

#[test]
fn spectra_that_lack_input_are_left_out() {
    let case = Case::new(output(64, 4, 32, Dither::Uniform), 0.3);
    let missing = [0, 7, 8, 9, 31, 40, 63];
    let expected = case.expected((0..64).filter(|s| !missing.contains(s)));
    for level in Level::available() {
        for cuts in [&[][..], &[9, 20, 41]] {
            let mut pipeline = case.pipeline(level, 2);
            // Another chunk's missing spectra must not linger.
            case.compute(&mut pipeline, &[3, 17, 50], &(0..64).collect::<Vec<_>>());
            assert_eq!(ended(&mut pipeline).spectra, 0);
            case.compute(&mut pipeline, cuts, &missing);
            assert_close(
                &ended(&mut pipeline),
                &expected,
                &format!("{level}, cut at {cuts:?}"),
            );
        }
    }
}

#[test]
fn fewer_spectra_of_many_channels_count() {
    for (channels, every) in [(1024, 1), (2048, 2), (16384, 4)] {
        let case = Case::new(output(channels, 2, 32, Dither::Uniform), 0.6);
        let expected = case.expected((0..64).filter(|s| s % every == 0));
        let mut pipeline = case.pipeline(Level::detect(), 2);
        case.compute(&mut pipeline, &[21], &[]);
        assert_close(
            &ended(&mut pipeline),
            &expected,
            &format!("{channels} channels"),
        );
    }
}

/// White noise of variance σ² has σ²·Σw² in a channel (docs/signal-path.md), Σw² being 1 here.
#[test]
fn the_sum_over_channels_is_the_power_of_the_samples() {
    let case = Case::new(output(1024, 4, 32, Dither::Uniform), 0.1);
    let mut pipeline = case.pipeline(Level::detect(), 2);
    case.compute(&mut pipeline, &[], &[]);
    let sums = ended(&mut pipeline);
    let expected = (case.spectra() as u64, 1024);
    assert_eq!((sums.spectra, sums.channels.len()), expected);
    for pol in 0..2 {
        let squares = case.samples[pol].iter().map(|&x| f64::from(x).powi(2));
        let variance = squares.sum::<f64>() / case.samples[pol].len() as f64;
        let power = sums
            .channels
            .iter()
            .map(|sums| sums.power[pol])
            .sum::<f64>();
        let mean = power / (sums.spectra * 1024) as f64;
        let ratio = mean / (f64::from(case.gain).powi(2) * variance);
        // 65536 numbers, of which the mean is within 1/256 or so.
        assert!((ratio - 1.0).abs() < 0.015, "{ratio}");
    }
}
