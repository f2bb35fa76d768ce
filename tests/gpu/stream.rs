//! Chunk after chunk through the CUDA backend, several at a time. Without a CUDA device, the tests
//! say so and pass.

use std::collections::VecDeque;
use std::sync::Arc;

use dsp::{Dither, SampleBits};
use ground::Timestamp;
use karoo::config::{OutputConfig, PipelineConfig, RecvConfig};
use karoo::cpu::{self, Workers};
use karoo::engine::steer::Gains;
use karoo::engine::{Block, FineDelay, Intake, OutputChunk, PipelineError};
use karoo::gpu::{
    BarAllocator, Gpu, GpuChanneliser, KernelChoice, OutputChunks, PinnedAllocator, Streams,
};
use karoo::memory::{
    ChunkAllocator, ChunkLayout, FrozenChunk, HostAllocator, MemoryKind, MixedAllocator, SampleView,
};
use num_complex::Complex32;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::support::gpu::{Contents, FENG_ID, Rig, assert_agree, chunk, next_complete};
use crate::support::{device, left_out, output, output_chunk_in};

/// A stream of receive chunks through output chunks of another length, as an engine does it: the
/// delay changes with every spectrum, the gains with every output chunk, and receive chunk 3 never
/// comes.
struct StreamCase {
    config: OutputConfig,
    bits: SampleBits,
    packed: [Vec<u8>; 2],
    layout: ChunkLayout,
    /// Samples of a chunk, and of its tail.
    samples: usize,
    tail: usize,
}

/// Where chunks lie.
struct Memory {
    recv: Box<dyn ChunkAllocator>,
    send: Box<dyn ChunkAllocator>,
}

impl Memory {
    fn host() -> Self {
        Self {
            recv: Box::new(HostAllocator::default()),
            send: Box::new(HostAllocator::default()),
        }
    }
}

impl StreamCase {
    const IDS: [usize; 7] = [0, 1, 2, 4, 5, 6, 7];
    const BATCHES: usize = 3;

    /// Chunks whose samples and tails are whole elements of what copies heads; tails that are not;
    /// samples that are not.
    fn all() -> [Self; 3] {
        [
            (1 << 15, 1 << 13),
            (1 << 15, (1 << 13) + 8),
            ((1 << 15) + 8, 1 << 13),
        ]
        .map(|(samples, tail)| Self::new(samples, tail))
    }

    fn new(samples: usize, tail: usize) -> Self {
        let config = output(256, 16, 10, Dither::Uniform);
        let mut rng = ChaCha8Rng::seed_from_u64(90);
        let packed = std::array::from_fn(|_| {
            let count = 8 * samples;
            crate::support::packed((0..count).map(|_| rng.random_range(-512..512)), 10)
        });
        let bits = SampleBits::new(10).unwrap();
        let recv = RecvConfig {
            packet_samples: 8,
            sample_bits: bits,
            chunk_samples: samples,
            mask_timestamp: false,
        };
        Self {
            config,
            bits,
            packed,
            layout: ChunkLayout::new(&recv, tail),
            samples,
            tail,
        }
    }

    fn chunk(&self, id: usize, allocator: &dyn ChunkAllocator) -> FrozenChunk {
        let bytes = self.bits.bytes(self.samples);
        let packed = self.packed.each_ref();
        chunk(
            self.layout,
            allocator,
            packed.map(|pol| &pol[id * bytes..][..bytes]),
        )
    }

    /// Has the pipeline finish the whole batches of a chunk, if there is one.
    fn flush(&self, rig: &mut Rig, chunk: Option<(OutputChunk, usize)>) -> usize {
        let Some((mut chunk, spectra)) = chunk else {
            return 0;
        };
        let batches = spectra / self.config.spectra_per_heap();
        chunk.writer().truncate(batches);
        rig.pipeline.finish_chunk(batches, chunk).unwrap();
        1
    }

    /// All output chunks, in order; at most `under_way` of them are under way at a time.
    fn run(&self, rig: &mut Rig, memory: &Memory, under_way: usize) -> Vec<Contents> {
        let allocator = &*memory.recv;
        let (step, window) = (self.config.spectrum_samples(), self.config.window_samples());
        let batch = self.config.batch_samples();
        let capacity = Self::BATCHES * self.config.spectra_per_heap();
        let (mut complete, mut issued, mut returned) = (Vec::new(), 0, 0);
        let mut building = None;
        let mut next = 0;
        for (i, &id) in Self::IDS.iter().enumerate() {
            let follows = |of: usize| of > 0 && Self::IDS[of - 1] + 1 == Self::IDS[of];
            // As the engine does, load a chunk and its successor before the work on the chunk.
            if i == 0 {
                rig.intake.load(self.chunk(id, allocator), false).unwrap();
            }
            let joined = Self::IDS.get(i + 1).is_some_and(|&next| {
                rig.intake
                    .load(self.chunk(next, allocator), follows(i + 1))
                    .unwrap();
                follows(i + 1)
            });
            let start = id * self.samples;
            let samples = self.samples + if joined { self.tail } else { 0 };
            if next < start {
                next = start.next_multiple_of(batch);
                issued += self.flush(rig, building.take());
            }
            while next + window <= start + samples {
                let (mut chunk, first) = building.take().unwrap_or_else(|| {
                    let mut rng = ChaCha8Rng::seed_from_u64(next as u64);
                    for pol in 0..2 {
                        let gains = std::array::from_fn::<_, 256, _>(|_| {
                            Complex32::from_polar(0.1, rng.random_range(-3.0..3.0))
                        });
                        rig.pipeline
                            .set_gains(pol, &mut Gains::new(256, &gains).unwrap());
                    }
                    let start = Timestamp(next as u64);
                    let batches = Self::BATCHES;
                    let chunk = output_chunk_in(&*memory.send, &self.config, batches, start);
                    (chunk, 0)
                });
                let fit = (start + samples - next - window) / step + 1;
                let count = fit.min(capacity - first).min(7);
                let fine: Vec<_> = (0..count)
                    .map(|s| (next / step + s) as f32)
                    .map(|s| FineDelay {
                        delay: [(0.3 * s).sin() / 2.0, (0.7 * s).cos() / 2.0],
                        phase: [0.1 * s % 3.0, -0.2 * s % 3.0],
                    })
                    .collect();
                let block = Block {
                    first,
                    offset: [next - start; 2],
                    fine: &fine,
                    absent: &[],
                };
                let view = rig.intake.view(Timestamp(start as u64), samples);
                let view = view.unwrap().unwrap();
                rig.pipeline
                    .run_frontend(&view, &block, &mut chunk.writer().span())
                    .unwrap();
                next += count * step;
                building = Some((chunk, first + count));
                if first + count == capacity {
                    issued += self.flush(rig, building.take());
                }
                while issued - complete.len() >= under_way {
                    complete.push(next_complete(&mut *rig.pipeline));
                }
            }
            rig.intake.release().unwrap();
            while rig.intake.poll_released().unwrap().is_some() {
                returned += 1;
            }
        }
        issued += self.flush(rig, building.take());
        while complete.len() < issued {
            complete.push(next_complete(&mut *rig.pipeline));
        }
        while returned < Self::IDS.len() {
            returned += usize::from(rig.intake.poll_released().unwrap().is_some());
        }
        complete
    }

    /// Holds what comes of chunks in this memory against what came of one at a time.
    fn compare(&self, gpu: &Arc<Gpu>, recv: Box<dyn ChunkAllocator>, expected: &[Contents]) {
        let kind = recv.kind();
        let memory = Memory {
            recv,
            send: match kind {
                MemoryKind::Host => Box::new(HostAllocator::default()),
                _ => Box::new(PinnedAllocator::new(gpu)),
            },
        };
        // As many slots as chunks, and fewer.
        for (count, under_way) in [(1, 1), (4, 4), (2, 2), (2, 5), (16, 16)] {
            let mut rig = self.on_gpu(gpu, kind, count);
            let got = self.run(&mut rig, &memory, under_way);
            assert!(
                got == expected,
                "{kind}, {} samples and {}: {under_way} chunks in {count} slots",
                self.samples,
                self.tail
            );
        }
    }

    fn computes(&self) -> PipelineConfig<'_> {
        PipelineConfig {
            output: &self.config,
            sample_bits: self.bits,
            feng_id: FENG_ID,
            gain: 1.0,
            statistics: false,
        }
    }

    fn on_cpu(&self, intake: Box<dyn Intake>) -> Rig {
        let workers = Arc::new(Workers::unpinned(2).unwrap());
        let pipeline = cpu::CpuChanneliser::new(&self.computes(), workers);
        Rig {
            intake,
            pipeline: Box::new(pipeline),
        }
    }

    fn on_gpu(&self, gpu: &Arc<Gpu>, kind: MemoryKind, count: usize) -> Rig {
        let streams = Streams::new(gpu.clone()).unwrap();
        let batches = Self::BATCHES;
        let chunks = OutputChunks { batches, count };
        let pipeline = GpuChanneliser::new(
            streams.clone(),
            &self.computes(),
            chunks,
            &KernelChoice::default(),
        );
        Rig {
            intake: Box::new(karoo::gpu::GpuIntake::new(streams, &self.layout, kind).unwrap()),
            pipeline: Box::new(pipeline.unwrap()),
        }
    }
}

/// Takes chunks, and shows the stream that they are cut from, in which nothing has to be joined.
struct OnePiece {
    bits: SampleBits,
    packed: [Vec<u8>; 2],
    chunks: VecDeque<FrozenChunk>,
}

impl Intake for OnePiece {
    fn load(&mut self, chunk: FrozenChunk, _follows: bool) -> Result<(), PipelineError> {
        self.chunks.push_back(chunk);
        Ok(())
    }

    fn view(
        &mut self,
        start: Timestamp,
        samples: usize,
    ) -> Result<Option<SampleView<'_>>, PipelineError> {
        let from = self.bits.bytes(start.0 as usize);
        Ok(Some(SampleView {
            start,
            samples,
            pol: [&self.packed[0][from..], &self.packed[1][from..]],
            device: None,
        }))
    }

    fn release(&mut self) -> Result<(), PipelineError> {
        Ok(())
    }

    fn poll_released(&mut self) -> Result<Option<FrozenChunk>, PipelineError> {
        Ok(self.chunks.pop_front())
    }
}

/// What the GPU is compared with is right itself: chunks with tails come to the same bytes as one
/// piece.
#[test]
fn chunks_come_to_the_same_as_one_piece() {
    for case in StreamCase::all() {
        let mut joined = case.on_cpu(Box::<cpu::CpuIntake>::default());
        let mut whole = case.on_cpu(Box::new(OnePiece {
            bits: case.bits,
            packed: case.packed.clone(),
            chunks: VecDeque::new(),
        }));
        let got = case.run(&mut joined, &Memory::host(), 1);
        assert!(got == case.run(&mut whole, &Memory::host(), 3));
        // Chunk 3 cuts an output chunk short.
        let batch = case.config.batch_bytes();
        let batches: Vec<_> = got.iter().map(|(data, _)| data.len() / batch).collect();
        assert_eq!(batches, [3, 3, 3, 3, 3, 2, 3, 3, 3, 3, 3, 3, 3, 2]);
    }
}

/// Neither how much is under way at once nor where the chunks lie makes a difference.
#[test]
fn chunks_under_way_do_not_disturb_each_other() {
    let Some(gpu) = device() else { return };
    for case in StreamCase::all() {
        let mut alone = case.on_gpu(&gpu, MemoryKind::Host, 1);
        let expected = case.run(&mut alone, &Memory::host(), 1);
        assert!(expected.len() > 10);
        let mut rig = case.on_cpu(Box::<cpu::CpuIntake>::default());
        let on_cpu = case.run(&mut rig, &Memory::host(), 1);
        assert_eq!(on_cpu.len(), expected.len());
        for (i, (got, want)) in expected.iter().zip(&on_cpu).enumerate() {
            assert_agree(&format!("output chunk {i}"), got, want);
        }
        let pinned = || Box::new(PinnedAllocator::new(&gpu));
        let bar = || BarAllocator::open(&gpu, (8 * case.layout.bytes()) as u64).map(Box::new);
        case.compare(&gpu, Box::new(HostAllocator::default()), &expected);
        case.compare(&gpu, pinned(), &expected);
        // Heads of each kind of memory come behind chunks of the other.
        match bar().and_then(|alone| Ok((alone, bar()?))) {
            Ok((alone, half)) => {
                case.compare(&gpu, alone, &expected);
                let mixed = MixedAllocator::new(half, pinned(), 0.5);
                case.compare(&gpu, Box::new(mixed), &expected);
            }
            Err(error) => left_out(&format!("no bar memory: {error}")),
        }
    }
}
