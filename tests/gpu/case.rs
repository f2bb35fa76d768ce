//! One chunk of an output, on either backend.

use std::sync::Arc;

use dsp::SampleBits;
use ground::Timestamp;
use karoo::config::{OutputConfig, PipelineConfig};
use karoo::cpu::{self, Workers};
use karoo::engine::steer::Gains;
use karoo::engine::{Block, FineDelay, Pipeline};
use karoo::gpu::{
    Fft, Gpu, GpuChanneliser, GpuError, GpuIntake, KernelChoice, OutputChunks, Streams, Tune,
};
use karoo::memory::{ChunkLayout, HostAllocator, MemoryKind, SampleView};
use num_complex::Complex32;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::support::gpu::{
    CHUNKS, Contents, FENG_ID, HEAP_SAMPLES, Rig, assert_agree, chunk, layout, next_complete,
};
use crate::support::{self, output_chunk};

pub const START: Timestamp = Timestamp((1 << 33) + 4096);

pub const CUFFT: KernelChoice = KernelChoice {
    fft: Fft::Cufft,
    tune: Tune::Off,
};

/// One chunk's input, delays and gains.
pub struct Case {
    pub config: OutputConfig,
    pub bits: SampleBits,
    pub batches: usize,
    pub offset: [usize; 2],
    pub samples: [Vec<i32>; 2],
    pub packed: [Vec<u8>; 2],
    pub fine: Vec<FineDelay>,
    pub gains: [Vec<Complex32>; 2],
    /// Whether sums for statistics are taken, and spectra that these leave out.
    pub statistics: bool,
    pub absent: Vec<usize>,
}

impl Case {
    /// Full-scale noise that comes out with an rms of about `rms` per component.
    pub fn new(config: OutputConfig, bits: u32, batches: usize, rms: f32, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let offset = [5, 1029];
        let spectra = batches * config.spectra_per_heap();
        let window = config.taps * config.transform_samples();
        let count = spectra * config.spectrum_samples() + window + 1029;
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
            statistics: false,
            absent: Vec::new(),
        }
    }

    pub fn view(&self) -> SampleView<'_> {
        support::view(Timestamp(0), self.samples[0].len(), &self.packed)
    }

    fn computes(&self, gain: f64) -> PipelineConfig<'_> {
        PipelineConfig {
            output: &self.config,
            sample_bits: self.bits,
            feng_id: FENG_ID,
            gain,
            statistics: self.statistics,
        }
    }

    pub fn on_cpu(&self) -> cpu::CpuChanneliser {
        let workers = Arc::new(Workers::unpinned(4).unwrap());
        cpu::CpuChanneliser::new(&self.computes(1.0), workers)
    }

    pub fn layout(&self) -> ChunkLayout {
        layout(self.bits, self.samples[0].len(), 0)
    }

    pub fn on_gpu(&self, gpu: &Arc<Gpu>) -> Rig {
        self.with_kernels(gpu, &KernelChoice::default()).unwrap()
    }

    pub fn on_cufft(&self, gpu: &Arc<Gpu>) -> Rig {
        self.with_kernels(gpu, &CUFFT).unwrap()
    }

    pub fn with_kernels(&self, gpu: &Arc<Gpu>, kernels: &KernelChoice) -> Result<Rig, GpuError> {
        let streams = Streams::new(gpu.clone())?;
        Ok(Rig {
            pipeline: Box::new(self.pipeline(&streams, 1.0, kernels)?),
            intake: Box::new(GpuIntake::new(streams, &self.layout(), MemoryKind::Host)?),
        })
    }

    pub fn pipeline(
        &self,
        streams: &Arc<Streams>,
        gain: f32,
        kernels: &KernelChoice,
    ) -> Result<GpuChanneliser, GpuError> {
        let (batches, count) = (self.batches, CHUNKS);
        let chunks = OutputChunks { batches, count };
        GpuChanneliser::new(
            streams.clone(),
            &self.computes(gain.into()),
            chunks,
            kernels,
        )
    }

    pub fn set_gains(&self, pipeline: &mut dyn Pipeline) {
        for (pol, gains) in self.gains.iter().enumerate() {
            pipeline.set_gains(pol, &mut each(gains));
        }
    }

    /// One chunk in blocks that end at `cuts` and after the last spectrum.
    pub fn issue(&self, pipeline: &mut dyn Pipeline, view: &SampleView<'_>, cuts: &[usize]) {
        let mut chunk = output_chunk(&self.config, self.batches, START);
        chunk.writer().span().data.fill(0x80);
        let mut first = 0;
        for &end in cuts.iter().chain([&self.fine.len()]) {
            let skip = first * self.config.spectrum_samples();
            let absent = self.absent.iter().filter(|s| (first..end).contains(s));
            let absent: Vec<_> = absent.map(|s| s - first).collect();
            let block = Block {
                first,
                offset: self.offset.map(|o| o + skip),
                fine: &self.fine[first..end],
                absent: &absent,
            };
            pipeline
                .run_frontend(view, &block, &mut chunk.writer().span())
                .unwrap();
            first = end;
        }
        pipeline.finish_chunk(self.batches, chunk).unwrap();
    }

    pub fn run_on_cpu(&self, pipeline: &mut cpu::CpuChanneliser, cuts: &[usize]) -> Contents {
        self.issue(pipeline, &self.view(), cuts);
        next_complete(pipeline)
    }

    pub fn run(&self, rig: &mut Rig, cuts: &[usize]) -> Contents {
        let packed = self.packed.each_ref().map(|pol| &pol[..]);
        let received = chunk(self.layout(), &HostAllocator::default(), packed);
        rig.intake.load(received, false).unwrap();
        let view = rig.intake.view(Timestamp(0), self.samples[0].len());
        self.issue(&mut *rig.pipeline, &view.unwrap().unwrap(), cuts);
        rig.intake.release().unwrap();
        let contents = next_complete(&mut *rig.pipeline);
        // All work is done, so the chunk is free.
        assert!(rig.intake.poll_released().unwrap().is_some());
        contents
    }
}

/// Both backends on one case, with all kernels.
pub fn compare(gpu: &Arc<Gpu>, what: &str, case: &Case, cuts: &[usize]) {
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
pub fn padded(packed: &[Vec<u8>; 2]) -> [Vec<u8>; 2] {
    let padding = [0; SampleView::PADDING];
    packed.each_ref().map(|pol| [&pol[..], &padding].concat())
}

/// Gains of each channel.
pub fn each(gains: &[Complex32]) -> Gains {
    Gains::new(gains.len(), gains).unwrap()
}
