//! One output over input that comes in pieces, and over chunks that are not free.

use std::sync::Mutex;

use dpdk::Eal;
use ground::stats::{PhaseTimes, ThreadReport};

use super::*;
use crate::config::RecvConfig;
use crate::engine::steer::{ControlHandle, Gains};
use crate::memory::{
    Chunk, ChunkAllocator, ChunkLayout, FrozenChunk, HostAllocator, OutputSpan, Purpose,
};

const HEAP: usize = 128;
/// Spectra of a batch, and samples from each to the next.
const SPECTRA: usize = 32;
const STEP: usize = 128;
const BATCH: usize = SPECTRA * STEP;

/// What a pipeline was asked for.
#[derive(Debug)]
enum Asked {
    Gains,
    /// Spectra from this one on.
    Block(usize, usize),
    /// The first batches of a chunk.
    Finish(usize, OutputChunk),
}

type Log = Arc<Mutex<Vec<Asked>>>;

/// Keeps the chunks that it is given.
struct Keeps(Log);

impl Keeps {
    fn note(&self, asked: Asked) {
        self.0.lock().unwrap().push(asked);
    }
}

impl Pipeline for Keeps {
    fn name(&self) -> String {
        "keeps".to_owned()
    }
    fn set_gains(&mut self, _: usize, _: &mut Gains) {
        self.note(Asked::Gains);
    }
    fn run_frontend(
        &mut self,
        _: &SampleView<'_>,
        block: &Block<'_>,
        _: &mut OutputSpan<'_>,
    ) -> Result<(), PipelineError> {
        self.note(Asked::Block(block.first, block.fine.len()));
        Ok(())
    }
    fn finish_chunk(&mut self, batches: usize, chunk: OutputChunk) -> Result<(), PipelineError> {
        self.note(Asked::Finish(batches, chunk));
        Ok(())
    }
    fn poll_finished(&mut self) -> Result<Option<OutputChunk>, PipelineError> {
        Ok(None)
    }
    fn lcores(&self) -> Vec<ThreadReport> {
        Vec::new()
    }
}

/// An output with so many chunks of so many batches, and who steers it.
fn output(chunks: usize, batches: usize) -> (Output, ControlHandle, Log) {
    let options = "name=w,channels=64,taps=4,dst=239.10.1.0,jones_per_batch=2048";
    let config = crate::config::tests::engine(options, |config| {
        config.send.chunk_jones = 2048 * batches;
    });
    let log = Log::default();
    let of = config.outputs[0].clone();
    let memory = |_| OutputMemory::new(batches, of.batch_bytes(), &HostAllocator::default());
    let (control, mut requests) = ControlHandle::new(&config, 1);
    let parts = OutputParts {
        pipeline: Box::new(Keeps(log.clone())),
        pool: ExtPool::new(
            Eal::for_tests(),
            (0..chunks).map(memory).map(Result::unwrap),
        ),
        stats: Arc::new(OutputStats::new("w")),
        observer: None,
        keeps_delays: false,
        config: of.clone(),
    };
    let published = requests.published;
    let output = Output::new(&config, 0, parts, requests.outputs.remove(0), published);
    (output, control, log)
}

/// Input that has the samples of so many batches and no others, none of which came.
fn input(batches: usize) -> FrozenChunk {
    let window = 4 * STEP;
    let config = RecvConfig {
        packet_samples: HEAP,
        sample_bits: SampleBits::new(8).unwrap(),
        chunk_samples: (SPECTRA * batches - 1) * STEP + window,
        mask_timestamp: false,
    };
    let layout = ChunkLayout::new(&config, 0);
    let memory = HostAllocator::default().allocate(Purpose::ReceiveChunk, layout.bytes());
    Arc::new(Chunk::new(layout, 0, memory.unwrap()))
        .freeze()
        .unwrap()
}

/// All that steps over the input of batches from this one on come to until more is needed, or a
/// chunk.
fn steps(output: &mut Output, first: usize, batches: usize) -> Vec<Step> {
    let (chunk, start) = (input(batches), (first * BATCH) as u64);
    let presence = ChunkPresence::new(&chunk, start, HEAP, Default::default());
    let view = chunk.view(Timestamp(start), presence.samples());
    let mut timer = PhaseTimer::start(PhaseTimes::new("engine", None));
    let mut steps = Vec::new();
    while steps.len() < 20 && !matches!(steps.last(), Some(Step::NeedsInput | Step::NoChunk)) {
        steps.push(output.step(&presence, &view, &mut timer).unwrap());
    }
    steps
}

#[test]
fn a_chunk_ends_with_its_last_batch() {
    use Step::{Computed, Finishing, NeedsInput};
    let (mut output, _, log) = output(1, 2);
    assert_eq!(steps(&mut output, 0, 1), [Computed, NeedsInput]);
    assert_eq!(steps(&mut output, 1, 1), [Computed, Finishing, NeedsInput]);
    match &log.lock().unwrap()[..] {
        [
            Asked::Block(0, 32),
            Asked::Block(32, 32),
            Asked::Finish(2, chunk),
        ] => {
            assert_eq!((chunk.batches(), chunk.start()), (2, Timestamp(0)));
        }
        asked => panic!("{asked:?}"),
    }
}

#[test]
fn an_output_waits_for_a_free_chunk() {
    use Step::{Computed, Finishing, NeedsInput, NoChunk};
    let (mut output, _, log) = output(1, 1);
    assert_eq!(steps(&mut output, 0, 1), [Computed, Finishing, NeedsInput]);
    for _ in 0..2 {
        assert_eq!(steps(&mut output, 1, 1), [NoChunk]);
    }
    // Dropped, the chunk is free again.
    log.lock().unwrap().clear();
    assert_eq!(steps(&mut output, 1, 1), [Computed, Finishing, NeedsInput]);
}

/// Wherever gains are due, they take effect with the next batch, and the chunk ends before it.
#[test]
fn a_chunk_is_cut_where_gains_are_due() {
    const BATCHES: usize = 4;
    for at in (0..=(BATCHES - 1) * BATCH).step_by(61) {
        let (mut output, control, log) = output(2, BATCHES);
        let due = control.at(Timestamp(at as u64));
        let control = &due.outputs()[0];
        let gains = Gains::uniform(control.channels(), 2.0.into());
        control.set_gains(1, gains).unwrap();
        steps(&mut output, 0, 2 * BATCHES);
        let before = at.div_ceil(BATCH);
        let (mut spectra, mut inside, mut finished, mut changed) = (0, 0, Vec::new(), None);
        for asked in &*log.lock().unwrap() {
            match asked {
                Asked::Gains => changed = Some(spectra),
                Asked::Block(first, count) => {
                    assert_eq!(*first, inside, "{at}");
                    (spectra, inside) = (spectra + count, inside + count);
                }
                Asked::Finish(batches, _) => {
                    assert_eq!(batches * SPECTRA, inside, "{at}");
                    inside = 0;
                    finished.push(*batches);
                }
            }
        }
        assert_eq!(changed, Some(before * SPECTRA), "{at}");
        let cut = if before == 0 { BATCHES } else { before };
        assert_eq!(finished, [cut, BATCHES], "{at}");
    }
}
