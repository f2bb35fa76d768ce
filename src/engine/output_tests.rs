//! One output over input that comes in pieces, and over chunks that are not free.

use std::sync::Mutex;

use dpdk::Eal;
use dsp::delay::{DelayModels, LinearDelay};
use ground::SampleClock;
use ground::stats::{PhaseTimes, ThreadReport};
use proptest::prelude::*;

use super::*;
use crate::config::{NarrowbandOptions, RecvConfig};
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
    /// Spectra from this one on, whose windows begin at these samples of the input.
    Block(usize, [usize; N_POL], Vec<FineDelay>),
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
        self.note(Asked::Block(block.first, block.offset, block.fine.to_vec()));
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
    output_of(&config, chunks, batches)
}

/// The same of the first output of an engine of this configuration.
fn output_of(config: &EngineConfig, chunks: usize, batches: usize) -> (Output, ControlHandle, Log) {
    let log = Log::default();
    let of = config.outputs[0].clone();
    let memory = |_| OutputMemory::new(batches, of.batch_bytes(), &HostAllocator::default());
    let (control, mut requests) = ControlHandle::new(config, 1);
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
    let output = Output::new(config, 0, parts, requests.outputs.remove(0), published);
    (output, control, log)
}

/// Input that has the samples of so many batches and no others.
fn input(batches: usize) -> FrozenChunk {
    let window = 4 * STEP;
    samples((SPECTRA * batches - 1) * STEP + window)
}

/// Input of so many samples, none of which came.
fn samples(count: usize) -> FrozenChunk {
    let config = RecvConfig {
        packet_samples: HEAP,
        sample_bits: SampleBits::new(8).unwrap(),
        chunk_samples: count,
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
    steps_over(output, (first * BATCH) as u64, &input(batches))
}

/// The same over input from `start` on.
fn steps_over(output: &mut Output, start: u64, chunk: &FrozenChunk) -> Vec<Step> {
    let presence = ChunkPresence::new(chunk, start, HEAP, Default::default());
    let view = chunk.view(Timestamp(start), presence.samples());
    let mut timer = PhaseTimer::start(PhaseTimes::new("engine", None));
    let mut steps = Vec::new();
    while steps.len() < 1000 && !matches!(steps.last(), Some(Step::NeedsInput | Step::NoChunk)) {
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
            Asked::Block(0, _, one),
            Asked::Block(32, _, two),
            Asked::Finish(2, chunk),
        ] => {
            assert_eq!([one.len(), two.len()], [32; 2]);
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
                Asked::Block(first, _, fine) => {
                    assert_eq!(*first, inside, "{at}");
                    (spectra, inside) = (spectra + fine.len(), inside + fine.len());
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

fn narrowband() -> OutputConfig {
    let options = "name=n,channels=64,taps=4,dst=239.10.1.0,jones_per_batch=2048,\
                   centre_frequency=4e8,decimation=8";
    let options: NarrowbandOptions = options.parse().unwrap();
    let clock = SampleClock {
        adc_sample_rate: 1712e6,
        sync_time: 0.0,
    };
    options.into_config(1 << 20, 0, clock).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// All spectra whose windows the input has are issued, from a batch's first on, each with what
    /// its own delay leaves to be done.
    #[test]
    fn every_spectrum_has_its_own_delay(
        is_narrowband: bool,
        delays in proptest::array::uniform2((-600.0..600.0, -1e-3..1e-3, -3.0..3.0, -1e-4..1e-4)),
    ) {
        const BATCHES: usize = 3;
        const START: u64 = 1 << 20;
        let wideband = "name=w,channels=64,taps=4,dst=239.10.1.0,jones_per_batch=2048";
        let mut config = crate::config::tests::engine(wideband, |_| {});
        if is_narrowband {
            config.outputs = vec![narrowband()];
        }
        let of = config.outputs[0].clone();
        config.send.chunk_jones = (BATCHES + 1) * of.jones_per_batch;
        let (mut output, control, log) = output_of(&config, 1, BATCHES + 1);
        let models = delays.map(|(delay, rate, phase, phase_rate)| {
            LinearDelay::new(START as i64, delay, rate, phase, phase_rate).unwrap()
        });
        control.outputs()[0].set_delays(models).unwrap();
        let (step, window) = (of.spectrum_samples(), of.window_samples());
        let length = (window + (BATCHES * of.spectra_per_heap() - 1) * step).next_multiple_of(HEAP);
        let steps = steps_over(&mut output, START, &samples(length));
        prop_assert_eq!(steps.last(), Some(&Step::NeedsInput));

        let mut lists = [0; 2].map(|_| DelayModels::with_subsampling(of.subsampling() as u32));
        (0..2).for_each(|pol| {
            lists[pol].add(models[pol]);
        });
        let at = |t: u64| [0, 1].map(|pol| lists[pol].at(Timestamp(t)));
        let end = START as i64 + length as i64;
        let has = |t: &u64| {
            let mut windows = at(*t).into_iter().map(|point| point.orig);
            windows.all(|first| first >= START as i64 && first + window as i64 <= end)
        };
        let batch = of.batch_samples() as u64;
        let first = (0..).map(|i| START / batch * batch - 4 * batch + i * batch).find(has).unwrap();
        let expected = (0..).map(|i| first + i * step as u64).take_while(has);

        let mut issued = Vec::new();
        for asked in &*log.lock().unwrap() {
            let Asked::Block(number, offset, fine) = asked else {
                prop_assert!(false, "{:?}", asked);
                continue;
            };
            prop_assert_eq!(*number, issued.len());
            for (i, fine) in fine.iter().enumerate() {
                let t = first + (issued.len() * step) as u64;
                for (pol, point) in at(t).into_iter().enumerate() {
                    let begins = START as i64 + (offset[pol] + i * step) as i64;
                    prop_assert_eq!(begins, point.orig);
                    let (delay, phase) = match is_narrowband {
                        true => (point.residual / 8.0, point.phase),
                        false => (point.residual, point.wideband_phase()),
                    };
                    prop_assert!((f64::from(fine.delay[pol]) - delay).abs() < 1e-4);
                    let turn = f64::from(fine.phase[pol]) - phase;
                    prop_assert!((turn / 2.0).sin().abs() < 1e-4, "{}", turn);
                }
                issued.push(t);
            }
        }
        prop_assert_eq!(issued, expected.collect::<Vec<_>>());
    }
}
