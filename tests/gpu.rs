//! The CUDA backend against the golden model and the CPU backend. Without a CUDA device, the tests say so and pass.

#[path = "support/device.rs"]
mod device;
mod support;

use std::sync::Arc;

use device::{CHUNKS, Contents, FENG_ID, HEAP_SAMPLES, Rig};
use device::{assert_agree, chunk, layout, next_complete};
use karoo::config::{Dither, OutputConfig, SampleBits};
use karoo::cpu::{self, Workers};
use karoo::dsp::model::Model;
use karoo::engine::steer::Gains;
use karoo::engine::{BatchStats, Block, FineDelay, InputView, Intake as _, Pipeline};
use karoo::gpu::measure::{Buffers, Pass, Trial};
use karoo::gpu::{Channeliser, Fft, Gpu, GpuError, Intake, Kernels, OutputChunks, Streams, Tune};
use karoo::memory::{ChunkLayout, HostAllocator, MemoryKind};
use karoo::units::Timestamp;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustfft::num_complex::Complex32;
use support::{device, output, output_chunk};

const START: Timestamp = Timestamp((1 << 33) + 4096);

const CUFFT: Kernels = Kernels {
    fft: Fft::Cufft,
    tune: Tune::Off,
};

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
        let count = count.next_multiple_of(HEAP_SAMPLES);
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

    fn on_cpu(&self) -> cpu::Channeliser {
        let workers = Arc::new(Workers::unpinned(4).unwrap());
        cpu::Channeliser::new(&self.config, self.bits, FENG_ID, 1.0, workers)
    }

    fn layout(&self) -> ChunkLayout {
        layout(self.bits, self.samples[0].len(), 0)
    }

    fn on_gpu(&self, gpu: &Arc<Gpu>) -> Rig {
        self.with_kernels(gpu, &Kernels::default()).unwrap()
    }

    fn on_cufft(&self, gpu: &Arc<Gpu>) -> Rig {
        self.with_kernels(gpu, &CUFFT).unwrap()
    }

    fn with_kernels(&self, gpu: &Arc<Gpu>, kernels: &Kernels) -> Result<Rig, GpuError> {
        let streams = Streams::new(gpu.clone())?;
        Ok(Rig {
            pipeline: Box::new(self.pipeline(&streams, 1.0, kernels)?),
            intake: Box::new(Intake::new(streams, &self.layout(), MemoryKind::Host)?),
        })
    }

    fn pipeline(
        &self,
        streams: &Arc<Streams>,
        gain: f32,
        kernels: &Kernels,
    ) -> Result<Channeliser, GpuError> {
        let (batches, count) = (self.batches, CHUNKS);
        let (bits, gain) = (self.bits, f64::from(gain));
        let chunks = OutputChunks { batches, count };
        Channeliser::new(
            streams.clone(),
            &self.config,
            bits,
            chunks,
            FENG_ID,
            gain,
            kernels,
        )
    }

    fn set_gains(&self, pipeline: &mut dyn Pipeline) {
        for (pol, gains) in self.gains.iter().enumerate() {
            pipeline.set_gains(pol, &mut each(gains));
        }
    }

    /// One chunk in blocks that end at `cuts` and after the last spectrum.
    fn issue(&self, pipeline: &mut dyn Pipeline, view: &InputView<'_>, cuts: &[usize]) {
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
            pipeline.front(view, &block, &mut chunk.span()).unwrap();
            first = end;
        }
        pipeline.back(self.batches, chunk).unwrap();
    }

    fn run_on_cpu(&self, pipeline: &mut cpu::Channeliser, cuts: &[usize]) -> Contents {
        self.issue(pipeline, &self.view(), cuts);
        next_complete(pipeline)
    }

    fn run(&self, rig: &mut Rig, cuts: &[usize]) -> Contents {
        let packed = self.packed.each_ref().map(|pol| &pol[..]);
        let received = chunk(self.layout(), &HostAllocator::default(), packed);
        rig.intake.load(received, false).unwrap();
        let view = rig.intake.view(Timestamp(0), self.samples[0].len());
        self.issue(&mut *rig.pipeline, &view.unwrap().unwrap(), cuts);
        rig.intake.retire().unwrap();
        let contents = next_complete(&mut *rig.pipeline);
        // All work is done, so the chunk is free.
        assert!(rig.intake.reclaim().unwrap().is_some());
        contents
    }
}

/// Both backends on one case, with all kernels.
fn compare(gpu: &Arc<Gpu>, what: &str, case: &Case, cuts: &[usize]) {
    let mut cpu = case.on_cpu();
    case.set_gains(&mut cpu);
    let expected = case.run_on_cpu(&mut cpu, &[]);
    for mut rig in [case.on_gpu(gpu), case.on_cufft(gpu)] {
        case.set_gains(&mut *rig.pipeline);
        let what = format!("{what}, {}", rig.pipeline.name());
        assert_agree(&what, &case.run(&mut rig, cuts), &expected);
    }
}

/// With what a view has behind its samples.
fn padded(packed: &[Vec<u8>; 2]) -> [Vec<u8>; 2] {
    let padding = [0; InputView::PADDING];
    packed.each_ref().map(|pol| [&pol[..], &padding].concat())
}

/// Gains of each channel.
fn each(gains: &[Complex32]) -> Gains {
    Gains::new(gains.len(), gains).unwrap()
}

/// Every number of channels that the kernels have, with several taps and lengths of heaps.
#[test]
fn agrees_with_the_cpu_for_every_number_of_channels() {
    let Some(gpu) = device() else { return };
    for (log, taps) in (6..=16).zip([16, 1, 4, 16, 16, 7, 16, 16, 16, 16, 4]) {
        for dither in [Dither::None, Dither::Uniform] {
            let config = output(1 << log, taps, if log % 2 == 0 { 24 } else { 32 }, dither);
            let case = Case::new(config, 10, 2, 30.0, log);
            let what = format!("{} channels, {taps} taps, {dither:?}", 1 << log);
            compare(&gpu, &what, &case, &[3, 21]);
        }
    }
}

#[test]
fn agrees_with_the_cpu_for_every_width() {
    let Some(gpu) = device() else { return };
    for bits in 2..=16 {
        let case = Case::new(output(256, 16, 32, Dither::Uniform), bits, 2, 30.0, 77);
        compare(&gpu, &format!("{bits} bits"), &case, &[5]);
    }
}

#[test]
fn agrees_with_the_cpu_for_many_taps() {
    let Some(gpu) = device() else { return };
    for taps in [1, 2, 4, 31, 32, 33, 64] {
        let case = Case::new(output(1024, taps, 32, Dither::Uniform), 12, 1, 30.0, 78);
        compare(&gpu, &format!("{taps} taps"), &case, &[]);
    }
}

/// Whichever the tuner may take.
#[test]
fn every_shape_agrees_with_the_cpu() {
    let Some(gpu) = device() else { return };
    for log in 6..=16 {
        let case = Case::new(output(1 << log, 16, 32, Dither::Uniform), 10, 1, 30.0, 89);
        let with = |shape: &str| {
            let (fft, tune) = (Fft::Fused, Tune::Fixed(shape.into()));
            case.with_kernels(&gpu, &Kernels { fft, tune })
        };
        let known = match with("none") {
            Err(GpuError::Shape { known, .. }) => known,
            // Too little shared memory for any.
            Ok(_) => continue,
            Err(error) => panic!("{} channels: {error}", 1 << log),
        };
        let mut cpu = case.on_cpu();
        case.set_gains(&mut cpu);
        let expected = case.run_on_cpu(&mut cpu, &[]);
        for shape in known.split(" and ") {
            let mut rig = with(shape).unwrap();
            case.set_gains(&mut *rig.pipeline);
            let what = format!("{} channels, {shape}", 1 << log);
            assert_agree(&what, &case.run(&mut rig, &[9]), &expected);
        }
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
        let mut rig = case.on_gpu(&gpu);
        case.set_gains(&mut *rig.pipeline);
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
        assert_agree(&what, &case.run(&mut rig, &[]), &(data, stats));
    }
}

/// No byte and no count depends on where blocks end, nor on what was computed before.
#[test]
fn same_bytes_however_cut() {
    let Some(gpu) = device() else { return };
    for (channels, sph) in [(64, 20), (512, 64)] {
        let case = Case::new(output(channels, 16, sph, Dither::Uniform), 10, 4, 60.0, 80);
        for mut rig in [case.on_gpu(&gpu), case.on_cufft(&gpu)] {
            case.set_gains(&mut *rig.pipeline);
            let expected = case.run(&mut rig, &[]);
            let cuts: [&[usize]; 5] = [
                &[16, 32],
                &[1, 2, 3, 5, 40, 79],
                &[15, 17, 31, 33],
                &[79],
                &[8, 48],
            ];
            for cuts in cuts {
                let got = case.run(&mut rig, cuts);
                let kernels = rig.pipeline.name();
                assert!(
                    got == expected,
                    "{channels} channels cut at {cuts:?}, {kernels}"
                );
            }
        }
    }
}

/// Kernels of successive passes overlap where nothing comes between them. What is small is resident at once, so that several do.
#[test]
fn passes_that_overlap_make_the_same() {
    let Some(gpu) = device() else { return };
    for (channels, taps) in [(64, 4), (256, 16), (1024, 32), (4096, 16), (32768, 16)] {
        let sets = [86, 87, 88].map(|seed| {
            let config = output(channels, taps, 32, Dither::Uniform);
            Case::new(config, 10, 2, 60.0, seed)
        });
        let case = &sets[0];
        let pass = Pass {
            output: &case.config,
            bits: case.bits,
            feng_id: FENG_ID,
            start: START,
            packed: &sets.each_ref().map(|case| padded(&case.packed)),
            begin: Timestamp(0),
            offset: case.offset,
            fine: &case.fine,
            gains: &case.gains,
        };
        let buffers = Buffers::new(&gpu, &pass).unwrap();
        let mut trial = Trial::new(&buffers, &Kernels::default()).unwrap();
        let mut rig = case.on_gpu(&gpu);
        case.set_gains(&mut *rig.pipeline);
        let what = format!("{channels} channels, {taps} taps");
        assert!(trial.output().unwrap() == case.run(&mut rig, &[]), "{what}");
        assert!(trial.repeats().unwrap(), "{what}");
    }
}

/// Gains set during a chunk wait for the next one; a chunk may end early, or be given up; what follows starts afresh.
#[test]
fn gains_wait_for_the_next_chunk() {
    let Some(gpu) = device() else { return };
    let case = Case::new(output(128, 4, 20, Dither::Uniform), 10, 2, 60.0, 81);
    let mut rig = case.on_gpu(&gpu);
    case.set_gains(&mut *rig.pipeline);
    let before = case.run(&mut rig, &[]);
    let packed = case.packed.each_ref().map(|pol| &pol[..]);
    let received = chunk(case.layout(), &HostAllocator::default(), packed);
    rig.intake.load(received, false).unwrap();
    let mut filled = output_chunk(&case.config, 2, START);
    // The first two are given up.
    for (first, end) in [(0, 33), (0, 5), (0, 10), (10, 27)] {
        let block = Block {
            first,
            offset: case.offset.map(|o| o + first * 256),
            fine: &case.fine[first..end],
        };
        let view = rig.intake.view(Timestamp(0), case.samples[0].len());
        let view = view.unwrap().unwrap();
        let issued = rig.pipeline.front(&view, &block, &mut filled.span());
        issued.unwrap();
        if first == 0 && end < 10 {
            continue;
        }
        for pol in 0..2 {
            let gains = if end == 33 {
                &case.gains[pol][..]
            } else {
                &[Complex32::new(0.01, 0.0); 128]
            };
            rig.pipeline.set_gains(pol, &mut each(gains));
        }
    }
    rig.pipeline.back(1, filled).unwrap();
    rig.intake.retire().unwrap();
    let (data, stats) = next_complete(&mut *rig.pipeline);
    let batch = case.config.batch_bytes();
    assert!(data[..batch] == before.0[..batch] && data[batch..].iter().all(|&x| x == 0));
    assert_eq!(stats[0], before.1[0]);
    let after = case.run(&mut rig, &[]);
    let mut fresh = case.on_gpu(&gpu);
    for pol in 0..2 {
        fresh
            .pipeline
            .set_gains(pol, &mut each(&[Complex32::new(0.01, 0.0); 128]));
    }
    assert!(after == case.run(&mut fresh, &[]) && after != before);
}

/// Outputs of one engine share its intake; engines share the GPU.
#[test]
fn outputs_and_engines_share_the_gpu() {
    let Some(gpu) = device() else { return };
    let case = Case::new(output(256, 16, 32, Dither::Uniform), 10, 2, 30.0, 82);
    let mut other = Case::new(output(1024, 4, 8, Dither::None), 10, 2, 30.0, 82);
    other.samples = case.samples.clone();
    other.packed = case.packed.clone();
    let kernels = Kernels::default();
    let engine = || {
        let streams = Streams::new(gpu.clone()).unwrap();
        let intake = Intake::new(streams.clone(), &case.layout(), MemoryKind::Host);
        let outputs = (
            case.pipeline(&streams, 0.05, &kernels).unwrap(),
            other.pipeline(&streams, 0.1, &kernels).unwrap(),
        );
        (intake.unwrap(), outputs)
    };
    let mut engines = [engine(), engine()];
    for (intake, (one, two)) in &mut engines {
        let packed = case.packed.each_ref().map(|pol| &pol[..]);
        let received = chunk(case.layout(), &HostAllocator::default(), packed);
        intake.load(received, false).unwrap();
        let view = intake.view(Timestamp(0), case.samples[0].len());
        let view = view.unwrap().unwrap();
        case.issue(one, &view, &[]);
        other.issue(two, &view, &[]);
        intake.retire().unwrap();
    }
    let expected = [(&case, 0.05), (&other, 0.1)].map(|(case, gain)| {
        let mut alone = case.on_cpu();
        let gains = vec![Complex32::new(gain, 0.0); case.config.channels];
        (0..2).for_each(|pol| alone.set_gains(pol, &mut each(&gains)));
        case.run_on_cpu(&mut alone, &[])
    });
    for (_, (one, two)) in &mut engines {
        assert_agree("the first output", &next_complete(one), &expected[0]);
        assert_agree("the second output", &next_complete(two), &expected[1]);
    }
}

/// What the fused kernels have no shape for runs on cuFFT, unless a shape is asked for by name.
#[test]
fn what_does_not_fit_runs_on_cufft() {
    let Some(gpu) = device() else { return };
    let case = Case::new(output(1 << 17, 4, 16, Dither::Uniform), 8, 1, 30.0, 84);
    let mut rig = case.on_gpu(&gpu);
    let name = rig.pipeline.name();
    assert!(name.contains("cuFFT"), "{name}");
    let mut cpu = case.on_cpu();
    case.set_gains(&mut *rig.pipeline);
    case.set_gains(&mut cpu);
    let expected = case.run_on_cpu(&mut cpu, &[]);
    assert_agree("131072 channels", &case.run(&mut rig, &[7]), &expected);

    let other = Case::new(output(1024, 4, 16, Dither::None), 8, 1, 30.0, 84);
    let with = |tune| {
        let fft = Fft::Fused;
        other.with_kernels(&gpu, &Kernels { fft, tune })
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
        let fft = Fft::Fused;
        let mut rig = case.with_kernels(&gpu, &Kernels { fft, tune }).unwrap();
        case.set_gains(&mut *rig.pipeline);
        (rig.pipeline.name(), case.run(&mut rig, &[]))
    };
    let again = run(Tune::Again);
    let shape = again.0.rsplit("; ").next().unwrap().trim_end_matches(')');
    assert!(run(Tune::Auto) == again, "{}", again.0);
    assert!(run(Tune::Fixed(shape.into())) == again, "{}", again.0);
    let mut cpu = case.on_cpu();
    case.set_gains(&mut cpu);
    assert_agree(&again.0, &again.1, &case.run_on_cpu(&mut cpu, &[]));
}

#[test]
fn a_gpu_is_opened_by_its_address() {
    let Some(gpu) = device() else {
        return;
    };
    let same = Gpu::open_at(gpu.address()).unwrap();
    assert_eq!((same.address(), same.name()), (gpu.address(), gpu.name()));
    // No bus has a device of this number.
    let error = Gpu::open_at("0000:00:20.0").unwrap_err().to_string();
    assert!(
        error.contains("0000:00:20.0") && error.contains(gpu.address()),
        "{error}"
    );
}

/// Whatever cannot run on the GPU is refused with a way out.
#[test]
fn refusals_name_the_way_out() {
    let Some(gpu) = device() else {
        let error = Gpu::open().unwrap_err().to_string();
        assert!(error.contains("--backend cpu"), "{error}");
        return;
    };
    let streams = Streams::new(gpu).unwrap();
    let bits = SampleBits::new(16).unwrap();
    let chunks = OutputChunks {
        batches: 1 << 28,
        count: 4,
    };
    let (config, kernels) = (output(1024, 4, 32, Dither::None), Kernels::default());
    let refused = Channeliser::new(streams.clone(), &config, bits, chunks, 0, 1.0, &kernels);
    let error = refused.err().expect("a refusal").to_string();
    assert!(error.contains("--send-chunk-jones"), "{error}");
    let huge = layout(bits, 1 << 40, 0);
    let refused = Intake::new(streams, &huge, MemoryKind::Host).err();
    let error = refused.expect("a refusal").to_string();
    assert!(error.contains("--recv-chunk-samples"), "{error}");
}
