//! One output over input that comes in pieces, and over chunks that are not free.

#[path = "output_delay_tests.rs"]
mod delays;

use std::sync::Mutex;

use dpdk::Eal;
use dsp::SampleBits;
use ground::stats::{PhaseTimes, ThreadReport};

use super::*;
use crate::config::RecvConfig;
use crate::engine::PeriodSums;
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
    /// Spectra from this one on, whose windows begin at these samples of the input, and those of
    /// them that lack input.
    Block(usize, [usize; N_POL], Vec<FineDelay>, Vec<usize>),
    /// So many batches of a chunk.
    Finish(usize),
    EndPeriod,
}

#[derive(Default)]
struct Log {
    asked: Vec<Asked>,
    chunks: VecDeque<OutputChunk>,
    periods: usize,
}

type SharedLog = Arc<Mutex<Log>>;

/// Computes that each batch has one clipped sample and no power, keeps chunks until they are
/// polled, and has a spectrum for each period that it ends.
struct Keeps(SharedLog);

impl Keeps {
    fn note(&self, asked: Asked) {
        self.0.lock().unwrap().asked.push(asked);
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
        chunk: &mut OutputSpan<'_>,
    ) -> Result<(), PipelineError> {
        for batch in &mut *chunk.stats {
            batch.clipped = [1, 0];
        }
        let (fine, absent) = (block.fine.to_vec(), block.absent.to_vec());
        self.note(Asked::Block(block.first, block.offset, fine, absent));
        Ok(())
    }
    fn finish_chunk(&mut self, batches: usize, chunk: OutputChunk) -> Result<(), PipelineError> {
        self.note(Asked::Finish(batches));
        self.0.lock().unwrap().chunks.push_back(chunk);
        Ok(())
    }
    fn poll_finished(&mut self) -> Result<Option<OutputChunk>, PipelineError> {
        Ok(self.0.lock().unwrap().chunks.pop_front())
    }
    fn end_period(&mut self) -> Result<bool, PipelineError> {
        self.note(Asked::EndPeriod);
        self.0.lock().unwrap().periods += 1;
        Ok(true)
    }
    fn poll_sums(&mut self) -> Result<Option<PeriodSums>, PipelineError> {
        let mut log = self.0.lock().unwrap();
        let left = log.periods.checked_sub(1);
        Ok(left.map(|left| {
            log.periods = left;
            PeriodSums {
                spectra: 1,
                channels: Vec::new(),
            }
        }))
    }
    fn thread_reports(&self) -> Vec<ThreadReport> {
        Vec::new()
    }
}

/// An output, and what is at its ends.
struct Bench {
    output: Output,
    control: ControlHandle,
    published: Arc<Published>,
    stats: Arc<OutputStats>,
    log: SharedLog,
}

impl Bench {
    /// An output with so many chunks of so many batches.
    fn new(chunks: usize, batches: usize) -> Self {
        let options = "name=w,channels=64,taps=4,dst=239.10.1.0,jones_per_batch=2048";
        let mut config = crate::config::tests::engine(options, |_| {});
        // Windows of power have two batches.
        config.clock.adc_sample_rate = 2.0 * BATCH as f64;
        Self::of(config, chunks, batches)
    }

    /// The same of the first output of an engine of this configuration.
    fn of(mut config: EngineConfig, chunks: usize, batches: usize) -> Self {
        let log = SharedLog::default();
        let of = config.outputs[0].clone();
        config.send.chunk_jones = batches * of.jones_per_batch;
        let memory = |_| OutputMemory::new(batches, of.batch_bytes(), &HostAllocator::default());
        let memory = (0..chunks).map(memory).map(Result::unwrap);
        let (control, mut requests) = ControlHandle::new(&config, 4);
        let stats = Arc::new(OutputStats::new("w"));
        let parts = OutputParts {
            pipeline: Box::new(Keeps(log.clone())),
            pool: ExtPool::new(Eal::for_tests(), memory),
            stats: stats.clone(),
            observer: None,
            keeps_delays: true,
            config: of.clone(),
        };
        let (published, requests) = (requests.published, requests.outputs.remove(0));
        Self {
            output: Output::new(&config, 0, parts, requests, published.clone()),
            control,
            published,
            stats,
            log,
        }
    }

    /// All that steps over the input of batches from this one on come to until more is needed, or
    /// a chunk.
    fn steps(&mut self, first: usize, batches: usize) -> Vec<Step> {
        let window = 4 * STEP;
        let chunk = samples((SPECTRA * batches - 1) * STEP + window);
        self.steps_over((first * BATCH) as u64, &chunk)
    }

    /// What steps over input from `start` on come to, as [`steps`](Self::steps) has it.
    fn steps_over(&mut self, start: u64, chunk: &FrozenChunk) -> Vec<Step> {
        let presence = ChunkPresence::new(chunk, start, HEAP, Default::default());
        let view = chunk.view(Timestamp(start), presence.samples());
        let mut timer = PhaseTimer::start(PhaseTimes::new("engine", None));
        let mut steps = Vec::new();
        while steps.len() < 1000 && !matches!(steps.last(), Some(Step::NeedsInput | Step::NoChunk))
        {
            steps.push(self.output.step(&presence, &view, &mut timer).unwrap());
        }
        steps
    }
}

/// Input of so many samples, all of which came.
fn samples(count: usize) -> FrozenChunk {
    samples_but(count, |_, _| false)
}

/// The same, where heaps of a polarisation and number that `missing` names did not come.
fn samples_but(count: usize, missing: impl Fn(usize, usize) -> bool) -> FrozenChunk {
    let config = RecvConfig {
        packet_samples: HEAP,
        sample_bits: SampleBits::new(8).unwrap(),
        chunk_samples: count,
        mask_timestamp: false,
    };
    let layout = ChunkLayout::new(&config, 0);
    let memory = HostAllocator::default().allocate(Purpose::ReceiveChunk, layout.bytes());
    let chunk = Arc::new(Chunk::new(layout, 0, memory.unwrap()));
    let places = (0..N_POL * layout.heaps).map(|place| (place % N_POL, place / N_POL));
    for (pol, heap) in places.filter(|&(pol, heap)| !missing(pol, heap)) {
        chunk.claim(pol, heap).unwrap().write(&[0; HEAP], 0);
    }
    chunk.freeze().unwrap()
}

#[test]
fn a_chunk_ends_with_its_last_batch() {
    use Step::{Computed, Finishing, NeedsInput};
    let mut bench = Bench::new(1, 2);
    assert_eq!(bench.steps(0, 1), [Computed, NeedsInput]);
    assert_eq!(bench.steps(1, 1), [Computed, Finishing, NeedsInput]);
    match &bench.log.lock().unwrap().asked[..] {
        [
            Asked::Block(0, _, one, _),
            Asked::Block(32, _, two, _),
            Asked::Finish(2),
        ] => assert_eq!([one.len(), two.len()], [32; 2]),
        asked => panic!("{asked:?}"),
    }
}

#[test]
fn an_output_waits_for_a_free_chunk() {
    use Step::{Computed, Finishing, NeedsInput, NoChunk};
    let mut bench = Bench::new(1, 1);
    assert_eq!(bench.steps(0, 1), [Computed, Finishing, NeedsInput]);
    for _ in 0..2 {
        assert_eq!(bench.steps(1, 1), [NoChunk]);
    }
    drop(bench.output.poll_finished());
    assert_eq!(bench.steps(1, 1), [Computed, Finishing, NeedsInput]);
}

/// Wherever gains are due, they take effect with the next batch, and the chunk ends before it.
#[test]
fn a_chunk_is_cut_where_gains_are_due() {
    const BATCHES: usize = 4;
    for at in (0..=(BATCHES - 1) * BATCH).step_by(61) {
        let mut bench = Bench::new(2, BATCHES);
        let due = bench.control.at(Timestamp(at as u64));
        let control = &due.outputs()[0];
        let gains = Gains::uniform(control.channels(), 2.0.into());
        control.set_gains(1, gains).unwrap();
        bench.steps(0, 2 * BATCHES);
        assert_eq!(bench.output.request_stats().changes, 1);
        let before = at.div_ceil(BATCH);
        let (mut spectra, mut inside, mut finished, mut changed) = (0, 0, Vec::new(), None);
        for asked in &bench.log.lock().unwrap().asked {
            match asked {
                Asked::Gains => changed = Some(spectra),
                Asked::Block(first, _, fine, _) => {
                    assert_eq!(*first, inside, "{at}");
                    (spectra, inside) = (spectra + fine.len(), inside + fine.len());
                }
                Asked::Finish(batches) => {
                    assert_eq!(batches * SPECTRA, inside, "{at}");
                    inside = 0;
                    finished.push(*batches);
                }
                Asked::EndPeriod => panic!("no statistics are taken"),
            }
        }
        assert_eq!(changed, Some(before * SPECTRA), "{at}");
        let cut = if before == 0 { BATCHES } else { before };
        assert_eq!(finished, [cut, BATCHES], "{at}");
    }
}

/// Chunks of two batches, of which two follow one another, and a third comes three batches later.
#[test]
fn chunks_are_told_with_what_lies_between() {
    let mut bench = Bench::new(3, 2);
    bench.steps(0, 4);
    bench.steps(7, 2);
    let chunks: Vec<_> = std::iter::from_fn(|| bench.output.poll_finished().unwrap()).collect();
    let starts = chunks.iter().map(|chunk| chunk.start().0 / BATCH as u64);
    assert_eq!(starts.collect::<Vec<_>>(), [0, 2, 7]);
    assert!(bench.output.account());
    assert_eq!(bench.stats.not_sent_heaps(), 3);
    assert_eq!(bench.stats.skipped_heaps(), 3);
    let batches = |count: u64| Timestamp(count * BATCH as u64);
    let (mut told, mut powers) = (Vec::new(), Vec::new());
    while let Some(event) = bench.published.next_event() {
        match event {
            EngineEvent::Sent(sent) => told.push(sent),
            EngineEvent::Power(level) => powers.push((level.end, level.dbfs.is_some())),
            event => panic!("{event:?}"),
        }
    }
    let expected = [(0, 2), (2, 4), (7, 6)].map(|(start, clipped)| Sent {
        output: 0,
        start: batches(start),
        // The last window reaches beyond its spectrum's step.
        end: batches(start + 2) + 3 * STEP as u64,
        batches: 2,
        nominal_end: batches(start + 2),
        clipped_samples: [clipped, 0],
    });
    assert_eq!(told, expected);
    // Of windows that have not all of their batches, nothing is known.
    let known = [(2, true), (4, true), (8, false)].map(|(end, known)| (batches(end), known));
    assert_eq!(powers, known);
}

/// Periods of two and a half batches, chunks of one.
#[test]
fn a_period_ends_with_the_chunk_that_reaches_its_end() {
    let options = "name=w,channels=64,taps=4,dst=239.10.1.0,jones_per_batch=2048";
    let config = crate::config::tests::engine(options, |config| {
        config.statistics_period = 2.5 * BATCH as f64 / config.clock.adc_sample_rate;
    });
    let mut bench = Bench::of(config, 8, 1);
    let board = |bench: &mut Bench| {
        bench.output.publish_statistics().unwrap();
        let latest = bench.published.statistics().output(0);
        let batch = |at: Timestamp| at.0 / BATCH as u64;
        latest.map(|of| (batch(of.start), batch(of.end), of.spectra))
    };
    assert_eq!(board(&mut bench), None);
    // 2.5 is reached by the third batch, 5 by the fifth.
    let mut seen = Vec::new();
    for batch in 0..6 {
        bench.steps(batch, 1);
        seen.push(board(&mut bench).map(|(start, end, _)| (start, end)));
    }
    let (first, second) = (Some((0, 3)), Some((3, 5)));
    assert_eq!(seen, [None, None, first, first, second, second]);
    // What is left when the run ends.
    bench.output.end_period().unwrap();
    assert!(bench.output.waits_for_statistics());
    assert_eq!(board(&mut bench), Some((5, 6, 1)));
    assert!(!bench.output.waits_for_statistics());
    bench.output.end_period().unwrap();
    let log = bench.log.lock().unwrap();
    let ends = log
        .asked
        .iter()
        .filter(|asked| matches!(asked, Asked::EndPeriod));
    assert_eq!(ends.count(), 3);
}

/// A heap is as long as the step from spectrum to spectrum, and four make a window.
#[test]
fn spectra_whose_windows_lack_a_heap_are_told() {
    const MISSING: usize = 10;
    let chunk = samples_but((SPECTRA + 3) * STEP, |pol, heap| {
        pol == 1 && heap == MISSING
    });
    let mut bench = Bench::new(1, 1);
    bench.steps_over(0, &chunk);
    match &bench.log.lock().unwrap().asked[..] {
        [Asked::Block(0, _, _, absent), Asked::Finish(1)] => assert_eq!(absent[..], [7, 8, 9, 10]),
        asked => panic!("{asked:?}"),
    }
    assert!(!bench.output.poll_finished().unwrap().unwrap().present(0));
}

/// A spectrum needs no sample behind its window.
#[test]
fn a_spectrum_whose_window_ends_the_input_is_issued() {
    let mut bench = Bench::new(1, 1);
    for spectra in 1..=SPECTRA {
        let chunk = samples((spectra - 1) * STEP + 4 * STEP);
        bench.steps_over(0, &chunk);
        let issued = bench.output.next / STEP as u64;
        assert_eq!(issued, spectra as u64);
    }
}

/// Answers to requests say when all that is under way has ended: with the chunk.
#[test]
fn requests_are_promised_for_the_end_of_the_chunk_under_way() {
    let mut bench = Bench::new(2, 2);
    bench.output.take_requests();
    let control = &bench.control.outputs()[0];
    let gains = || Gains::uniform(control.channels(), 2.0.into());
    assert_eq!(control.set_gains(0, gains()).unwrap().0, 2 * BATCH as u64);
}

/// Chunks are counted when they have left, not when they are complete.
#[test]
fn chunks_count_when_they_have_left() {
    let mut bench = Bench::new(3, 1);
    bench.stats.expect_tx_lcores(1);
    bench.steps(0, 3);
    let chunks: Vec<_> = std::iter::from_fn(|| bench.output.poll_finished().unwrap()).collect();
    assert_eq!(chunks.len(), 3);
    for left in 1..=3 {
        bench.stats.note_departure(0);
        assert_eq!(bench.output.account(), left == 3);
        let sent = std::iter::from_fn(|| bench.published.next_event());
        let sent = sent.filter(|event| matches!(event, EngineEvent::Sent(_)));
        assert_eq!(sent.count(), 1, "{left}");
    }
}

/// Gains that are due at a timestamp cut the chunk, also if a pattern without one comes behind.
#[test]
fn a_pattern_behind_gains_leaves_their_cut() {
    let mut bench = Bench::new(2, 4);
    let at = bench.control.at(Timestamp(BATCH as u64));
    let gains = Gains::uniform(at.outputs()[0].channels(), 2.0.into());
    bench.steps(0, 1);
    at.outputs()[0].set_gains(1, gains).unwrap();
    bench.control.outputs()[0].set_test(None).unwrap();
    bench.steps(1, 1);
    let log = bench.log.lock().unwrap();
    assert!(
        log.asked
            .iter()
            .any(|asked| matches!(asked, Asked::Finish(1))),
        "{:?}",
        log.asked
    );
}

/// One batch that nothing asks for lies between chunks of one.
#[test]
fn a_gap_of_one_batch_is_one() {
    let mut bench = Bench::new(2, 1);
    bench.steps(0, 1);
    bench.steps(2, 1);
    let chunks: Vec<_> = std::iter::from_fn(|| bench.output.poll_finished().unwrap()).collect();
    assert_eq!(chunks.len(), 2);
    assert!(bench.output.account());
    assert_eq!(bench.stats.skipped_heaps(), 1);
}

/// Chunks that are missing end a period: what comes behind them is apart.
#[test]
fn a_period_does_not_go_on_behind_a_gap() {
    let options = "name=w,channels=64,taps=4,dst=239.10.1.0,jones_per_batch=2048";
    let config = crate::config::tests::engine(options, |config| {
        config.statistics_period = 2.5 * BATCH as f64 / config.clock.adc_sample_rate;
    });
    let mut bench = Bench::of(config, 8, 1);
    let mut seen = Vec::new();
    for batch in [0, 20, 21, 22] {
        bench.steps(batch, 1);
        bench.output.publish_statistics().unwrap();
        let latest = bench.published.statistics().output(0);
        seen.push(latest.map(|of| [of.start, of.end].map(|at| at.0 / BATCH as u64)));
    }
    let (before, behind) = (Some([0, 1]), Some([20, 23]));
    assert_eq!(seen, [None, before, before, behind]);
}
