//! The CUDA backend against the golden model and the CPU backend. Without a CUDA device, the tests say so and pass.

mod support;

use std::sync::Arc;

use karoo::config::{Dither, OutputConfig, SampleBits};
use karoo::cpu::{self, Workers};
use karoo::dsp::model::Model;
use karoo::engine::{BatchStats, Block, FineDelay, InputView, Pipeline};
use karoo::gpu::{self, Fft, Gpu, GpuError, Kernels, Tune};
use karoo::units::Timestamp;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustfft::num_complex::Complex32;
use support::{contents, output, output_chunk};

const FENG_ID: u64 = 3;
const START: Timestamp = Timestamp((1 << 33) + 4096);

const CUFFT: Kernels = Kernels {
    fft: Fft::Cufft,
    tune: Tune::Off,
};

fn device() -> Option<Arc<Gpu>> {
    match Gpu::open() {
        Ok(gpu) => Some(gpu),
        Err(error @ (GpuError::NoDriver | GpuError::NoDevice(_))) => {
            println!("no CUDA device: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// One chunk's input, delays and gains.
struct Case {
    config: OutputConfig,
    bits: SampleBits,
    batches: usize,
    offset: [usize; 2],
    samples: [Vec<i32>; 2],
    packed: [Vec<u8>; 2],
    fine: Vec<FineDelay>,
    gains: [Vec<Complex32>; 2],
}

impl Case {
    /// Full-scale noise that comes out with an rms of about `rms` per component.
    fn new(config: OutputConfig, bits: u32, batches: usize, rms: f32, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let offset = [5, 1029];
        let spectra = batches * config.spectra_per_heap();
        let count = (spectra + config.taps) * config.spectrum_samples() + 1029;
        let scale = 1i32 << (bits - 1);
        let samples: [Vec<i32>; 2] = std::array::from_fn(|_| {
            (0..count)
                .map(|_| rng.random_range(-scale..scale))
                .collect()
        });
        let packed = samples
            .each_ref()
            .map(|samples| support::packed(samples.iter().copied(), bits));
        let fine = (0..spectra).map(|_| FineDelay {
            delay: std::array::from_fn(|_| rng.random_range(-0.5..0.5)),
            phase: std::array::from_fn(|_| rng.random_range(-3.0..3.0)),
        });
        let fine = fine.collect();
        // Uniform noise of ±scale has a variance of scale²/3, half of it per component.
        let gain = rms / (scale as f32 / 6f32.sqrt());
        let gains = std::array::from_fn(|_| {
            (0..config.channels)
                .map(|_| Complex32::from_polar(gain, rng.random_range(-3.0..3.0)))
                .collect()
        });
        Self {
            bits: SampleBits::new(bits).unwrap(),
            config,
            batches,
            offset,
            samples,
            packed,
            fine,
            gains,
        }
    }

    fn view(&self) -> InputView<'_> {
        InputView {
            start: Timestamp(0),
            samples: self.samples[0].len(),
            pol: [&self.packed[0], &self.packed[1]],
            device: None,
        }
    }

    fn on_cpu(&self) -> cpu::Wideband {
        let workers = Arc::new(Workers::unpinned(4).unwrap());
        cpu::Wideband::new(&self.config, self.bits, FENG_ID, 1.0, workers)
    }

    fn on_gpu(&self, gpu: &Arc<Gpu>) -> gpu::Wideband {
        let input = gpu::Input::new(gpu.clone(), self.bits, self.samples[0].len()).unwrap();
        gpu::Wideband::new(&self.config, input, self.batches, FENG_ID, 1.0).unwrap()
    }

    fn on_cufft(&self, gpu: &Arc<Gpu>) -> gpu::Wideband {
        let input = gpu::Input::new(gpu.clone(), self.bits, self.samples[0].len()).unwrap();
        gpu::Wideband::with_kernels(&self.config, input, self.batches, FENG_ID, 1.0, &CUFFT)
            .unwrap()
    }

    fn set_gains(&self, pipeline: &mut dyn Pipeline) {
        for (pol, gains) in self.gains.iter().enumerate() {
            pipeline.set_gains(pol, gains);
        }
    }

    /// One chunk in blocks that end at `cuts` and after the last spectrum.
    fn run(&self, pipeline: &mut dyn Pipeline, cuts: &[usize]) -> (Vec<u8>, Vec<BatchStats>) {
        let mut chunk = output_chunk(&self.config, self.batches, START);
        chunk.span().data.fill(0x80);
        let mut first = 0;
        for &end in cuts.iter().chain([&self.fine.len()]) {
            let skip = first * self.config.spectrum_samples();
            let block = Block {
                first,
                offset: self.offset.map(|o| o + skip),
                fine: &self.fine[first..end],
            };
            pipeline
                .front(&self.view(), &block, &mut chunk.span())
                .unwrap();
            first = end;
        }
        pipeline.back(self.batches, chunk).unwrap();
        contents(&pipeline.poll().unwrap().unwrap())
    }
}

/// At most one byte in a thousand is off, by one; power is exact; a clamped sample in a thousand may not be.
fn assert_agree(what: &str, got: &(Vec<u8>, Vec<BatchStats>), want: &(Vec<u8>, Vec<BatchStats>)) {
    let off: Vec<u8> = got
        .0
        .iter()
        .zip(&want.0)
        .map(|(&a, &b)| (a as i8).abs_diff(b as i8))
        .collect();
    let differ = off.iter().filter(|&&d| d > 0).count();
    assert!(off.iter().all(|&d| d <= 1), "{what}: off by more than 1");
    assert!(
        1000 * differ <= off.len(),
        "{what}: {differ} of {} differ",
        off.len()
    );
    for (got, want) in got.1.iter().zip(&want.1) {
        assert_eq!(got.power, want.power, "{what}");
        for pol in 0..2 {
            let difference = got.saturated[pol].abs_diff(want.saturated[pol]);
            assert!(
                1000 * difference <= want.saturated[pol],
                "{what}: {got:?} {want:?}"
            );
        }
    }
}

/// Every number of channels that the kernels have, with several taps and lengths of heaps.
#[test]
fn agrees_with_the_cpu_for_every_number_of_channels() {
    let Some(gpu) = device() else { return };
    for (log, taps) in (6..=16).zip([16, 1, 4, 16, 16, 7, 16, 16, 16, 16, 4]) {
        for dither in [Dither::None, Dither::Uniform] {
            let config = output(1 << log, taps, if log % 2 == 0 { 24 } else { 32 }, dither);
            let case = Case::new(config, 10, 2, 30.0, log);
            let mut cpu = case.on_cpu();
            case.set_gains(&mut cpu);
            let expected = case.run(&mut cpu, &[]);
            for mut pipeline in [case.on_gpu(&gpu), case.on_cufft(&gpu)] {
                case.set_gains(&mut pipeline);
                let kernels = pipeline.name();
                let what = format!("{} channels, {taps} taps, {dither:?}, {kernels}", 1 << log);
                assert_agree(&what, &case.run(&mut pipeline, &[3, 21]), &expected);
            }
        }
    }
}

#[test]
fn agrees_with_the_cpu_for_every_width() {
    let Some(gpu) = device() else { return };
    for bits in 2..=16 {
        let case = Case::new(output(256, 16, 32, Dither::Uniform), bits, 2, 30.0, 77);
        let mut cpu = case.on_cpu();
        case.set_gains(&mut cpu);
        let expected = case.run(&mut cpu, &[]);
        for mut pipeline in [case.on_gpu(&gpu), case.on_cufft(&gpu)] {
            case.set_gains(&mut pipeline);
            let what = format!("{bits} bits, {}", pipeline.name());
            assert_agree(&what, &case.run(&mut pipeline, &[5]), &expected);
        }
    }
}

#[test]
fn agrees_with_the_cpu_for_many_taps() {
    let Some(gpu) = device() else { return };
    for taps in [2, 31, 32, 33, 64] {
        let case = Case::new(output(1024, taps, 32, Dither::Uniform), 12, 1, 30.0, 78);
        let (mut a, mut b) = (case.on_gpu(&gpu), case.on_cpu());
        case.set_gains(&mut a);
        case.set_gains(&mut b);
        let what = format!("{taps} taps");
        assert_agree(&what, &case.run(&mut a, &[]), &case.run(&mut b, &[]));
    }
}

/// Without delays, against the model in double precision, with a gain that clamps one sample in ten.
#[test]
fn agrees_with_the_model() {
    let Some(gpu) = device() else { return };
    for (channels, taps, dither) in [(64, 4, Dither::Uniform), (1024, 16, Dither::None)] {
        let config = output(channels, taps, 32, dither);
        let mut case = Case::new(config.clone(), 10, 1, 60.0, 79);
        case.offset = [0, 0];
        case.fine.fill(FineDelay::default());
        let mut pipeline = case.on_gpu(&gpu);
        case.set_gains(&mut pipeline);
        let source = |pol: usize, t: u64| case.samples[pol][(t - START.0) as usize];
        let batch =
            Model::new(&config, FENG_ID).batch(&source, START, &Default::default(), &case.gains);
        let data = batch.data.iter().map(|&x| x as u8).collect();
        let stats = vec![BatchStats {
            saturated: batch.saturated,
            power: batch.power,
        }];
        assert!(stats[0].saturated.iter().all(|&n| n > 100));
        let what = format!("{channels} channels");
        assert_agree(&what, &case.run(&mut pipeline, &[]), &(data, stats));
    }
}

/// No byte and no count depends on where blocks end, nor on what was computed before.
#[test]
fn same_bytes_however_cut() {
    let Some(gpu) = device() else { return };
    for (channels, sph) in [(64, 20), (512, 64)] {
        let case = Case::new(output(channels, 16, sph, Dither::Uniform), 10, 4, 60.0, 80);
        for mut pipeline in [case.on_gpu(&gpu), case.on_cufft(&gpu)] {
            case.set_gains(&mut pipeline);
            let expected = case.run(&mut pipeline, &[]);
            let cuts: [&[usize]; 5] = [
                &[16, 32],
                &[1, 2, 3, 5, 40, 79],
                &[15, 17, 31, 33],
                &[79],
                &[8, 48],
            ];
            for cuts in cuts {
                let got = case.run(&mut pipeline, cuts);
                let kernels = pipeline.name();
                assert!(
                    got == expected,
                    "{channels} channels cut at {cuts:?}, {kernels}"
                );
            }
        }
    }
}

/// Gains set during a chunk wait for the next one; a chunk may end early; what follows starts afresh.
#[test]
fn gains_wait_for_the_next_chunk() {
    let Some(gpu) = device() else { return };
    let case = Case::new(output(128, 4, 20, Dither::Uniform), 10, 2, 60.0, 81);
    let mut pipeline = case.on_gpu(&gpu);
    case.set_gains(&mut pipeline);
    let before = case.run(&mut pipeline, &[]);
    let mut chunk = output_chunk(&case.config, 2, START);
    for (first, end) in [(0, 10), (10, 27)] {
        let block = Block {
            first,
            offset: case.offset.map(|o| o + first * 256),
            fine: &case.fine[first..end],
        };
        pipeline
            .front(&case.view(), &block, &mut chunk.span())
            .unwrap();
        for pol in 0..2 {
            pipeline.set_gains(pol, &[Complex32::new(0.01, 0.0); 128]);
        }
    }
    pipeline.back(1, chunk).unwrap();
    let (data, stats) = contents(&pipeline.poll().unwrap().unwrap());
    let batch = case.config.batch_bytes();
    assert!(data[..batch] == before.0[..batch] && data[batch..].iter().all(|&x| x == 0));
    assert_eq!(stats[0], before.1[0]);
    let after = case.run(&mut pipeline, &[]);
    let mut fresh = case.on_gpu(&gpu);
    for pol in 0..2 {
        fresh.set_gains(pol, &[Complex32::new(0.01, 0.0); 128]);
    }
    assert!(after == case.run(&mut fresh, &[]) && after != before);
}

/// Outputs of one engine share the copy of the chunk, and each next chunk replaces it.
#[test]
fn outputs_share_their_input() {
    let Some(gpu) = device() else { return };
    let case = Case::new(output(256, 16, 32, Dither::Uniform), 10, 2, 30.0, 82);
    let input = gpu::Input::new(gpu, case.bits, case.samples[0].len()).unwrap();
    let other = output(1024, 4, 8, Dither::None);
    let pipeline = |config| gpu::Wideband::new(config, input.clone(), 2, FENG_ID, 0.05).unwrap();
    let (mut first, mut second) = (pipeline(&case.config), pipeline(&other));
    let one = case.run(&mut first, &[]);
    let two = Case::new(other, 10, 2, 30.0, 82);
    let chunk = Case::new(case.config.clone(), 10, 2, 30.0, 83);
    let later = chunk.run(&mut first, &[]);
    assert!(later != one);
    let _ = two.run(&mut second, &[]);
    assert!(case.run(&mut first, &[]) == one);
    let mut alone = case.on_cpu();
    for pol in 0..2 {
        alone.set_gains(pol, &[Complex32::new(0.05, 0.0); 256]);
    }
    assert_agree("after another chunk", &one, &case.run(&mut alone, &[]));
}

/// What the fused kernels have no shape for runs on cuFFT, unless a shape is asked for by name.
#[test]
fn what_does_not_fit_runs_on_cufft() {
    let Some(gpu) = device() else { return };
    let case = Case::new(output(1 << 17, 4, 16, Dither::Uniform), 8, 1, 30.0, 84);
    let mut pipeline = case.on_gpu(&gpu);
    assert!(pipeline.name().contains("cuFFT"), "{}", pipeline.name());
    let mut cpu = case.on_cpu();
    case.set_gains(&mut pipeline);
    case.set_gains(&mut cpu);
    let expected = case.run(&mut cpu, &[]);
    assert_agree("131072 channels", &case.run(&mut pipeline, &[7]), &expected);

    let config = output(1024, 4, 16, Dither::None);
    let with = |tune| {
        let input = gpu::Input::new(gpu.clone(), case.bits, 1 << 16).unwrap();
        let kernels = Kernels {
            fft: Fft::Fused,
            tune,
        };
        gpu::Wideband::with_kernels(&config, input, 1, FENG_ID, 1.0, &kernels)
    };
    let error = with(Tune::Fixed("log_n1=99".into()))
        .err()
        .expect("no such shape");
    let text = error.to_string();
    assert!(
        matches!(error, GpuError::Shape { .. }) && text.contains("--tune auto"),
        "{text}"
    );
}

/// The fastest shape is kept, and can be had again by the name that reports give it.
#[test]
fn a_tuned_shape_is_kept_and_has_a_name() {
    let Some(gpu) = device() else { return };
    let case = Case::new(output(8192, 4, 16, Dither::Uniform), 9, 1, 30.0, 85);
    let run = |tune| {
        let kernels = Kernels {
            fft: Fft::Fused,
            tune,
        };
        let input = gpu::Input::new(gpu.clone(), case.bits, case.samples[0].len()).unwrap();
        let pipeline =
            gpu::Wideband::with_kernels(&case.config, input, case.batches, FENG_ID, 1.0, &kernels);
        let mut pipeline = pipeline.unwrap();
        case.set_gains(&mut pipeline);
        (pipeline.name(), case.run(&mut pipeline, &[]))
    };
    let again = run(Tune::Again);
    let shape = again.0.rsplit("; ").next().unwrap().trim_end_matches(')');
    assert!(run(Tune::Auto) == again, "{}", again.0);
    assert!(run(Tune::Fixed(shape.into())) == again, "{}", again.0);
    let mut cpu = case.on_cpu();
    case.set_gains(&mut cpu);
    assert_agree(&again.0, &again.1, &case.run(&mut cpu, &[]));
}

/// Whatever cannot run on the GPU is refused with a way out.
#[test]
fn refusals_name_the_way_out() {
    let Some(gpu) = device() else {
        let error = Gpu::open().unwrap_err().to_string();
        assert!(error.contains("--backend cpu"), "{error}");
        return;
    };
    let huge = gpu::Input::new(gpu, SampleBits::new(16).unwrap(), 1 << 44);
    let error = huge.expect_err("too much memory").to_string();
    assert!(error.contains("lower the chunk sizes"), "{error}");
}
