//! Engines on ports: what goes in comes out, what does not is accounted for, and nobody is held up.

mod pace;
mod rig;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ground::Timestamp;
use ground::stats::ThreadReport;
use karoo::config::EngineConfig;
use karoo::cpu::{self, Workers};
use karoo::engine::steer::Gains;
use karoo::engine::{Block, OutputChunk, Pipeline, PipelineError};
use karoo::memory::{OutputSpan, SampleView};
use karoo::model::Model;
use num_complex::Complex32;
use rig::{Batches, CHUNK, HEAP, Rig, Sending, config, sample};

fn on_cpu(config: &EngineConfig) -> Box<dyn Pipeline> {
    let workers = Arc::new(Workers::unpinned(1).unwrap());
    let pipeline = cpu::CpuChanneliser::new(&config.pipeline(&config.outputs[0]), workers);
    Box::new(pipeline)
}

/// Timestamps of the batches whose whole input lies in `0 .. end` and of which `present` says that
/// it is there.
fn whole_batches(config: &EngineConfig, end: u64, present: impl Fn(u64, u64) -> bool) -> Vec<u64> {
    let output = &config.outputs[0];
    let step = output.batch_samples() as u64;
    let union = step + (output.window_samples() - output.spectrum_samples()) as u64;
    let fits = (0..)
        .step_by(step as usize)
        .take_while(|t| t + union <= end);
    fits.filter(|&t| present(t, t + union)).collect()
}

fn assert_right(config: &EngineConfig, batches: &Batches) {
    let model = Model::new(&config.outputs[0], config.feng_id);
    let gains = [0, 1].map(|_| vec![Complex32::from(config.gain as f32); 64]);
    let (mut bytes, mut differ) = (0, 0);
    for (&timestamp, batch) in batches {
        let expected = model.batch(&sample, Timestamp(timestamp), &Default::default(), &gains);
        assert_eq!(batch.len(), expected.data.len());
        for (got, expected) in batch.iter().zip(&expected.data) {
            assert!(got.abs_diff(*expected) <= 1, "batch {timestamp}");
            bytes += 1;
            differ += usize::from(got != expected);
        }
    }
    assert!(differ * 1000 <= bytes, "{differ} of {bytes}");
}

#[test]
fn all_that_goes_in_comes_out_right() {
    let _alone = crate::lcores();
    for (rx_queues, tx_queues) in [(2, 1), (1, 2)] {
        let config = config();
        let mut rig = Rig::new(on_cpu(&config), rx_queues, tx_queues);
        rig.send_chunks(0..20, rx_queues);
        assert_eq!(
            (rig.placed(), rig.ring_full),
            (rig.handed, 0),
            "{:?}",
            rig.drops()
        );
        let stats = rig.stages.output_stats()[0].clone();
        let (ended, batches) = rig.finish();
        ended.unwrap();
        let expected = whole_batches(&config, 20 * CHUNK as u64, |_, _| true);
        assert_eq!(batches.keys().copied().collect::<Vec<_>>(), expected);
        assert_eq!(stats.counts().heaps, 4 * expected.len() as u64);
        assert_right(&config, &batches);
    }
}

#[test]
fn an_idle_queue_holds_nobody_up() {
    let _alone = crate::lcores();
    let config = config();
    let mut rig = Rig::new(on_cpu(&config), 2, 1);
    rig.send_chunks(0..20, 1);
    // The last chunks stay open, and another waits for its successor; nothing was stopped yet.
    let come = whole_batches(&config, 15 * CHUNK as u64, |_, _| true);
    let heaps = 4 * come.len();
    rig.wait(|rig| rig.received.len() >= heaps);
    assert_eq!(rig.placed(), rig.handed, "{:?}", rig.drops());
    let (ended, batches) = rig.finish();
    ended.unwrap();
    assert_eq!(
        batches.len(),
        whole_batches(&config, 20 * CHUNK as u64, |_, _| true).len()
    );
    assert_right(&config, &batches);
}

/// Drivers may keep what was sent until they run short of room, here for 63 packets. Chunks that
/// three of would fill it are read where they are, and come back; others are copied: those of fewer
/// packets, as a whole chunk has 32 and one that lacks input may have a batch of 8, or all.
#[test]
fn packets_that_drivers_keep_hold_nobody_up() {
    const OUTPUT_CHUNK: u64 = 2 * CHUNK as u64;
    let _alone = crate::lcores();
    // Of every output chunk the first batch is whole, of which 18 heaps are the windows.
    let sparse = |t: u64| t % OUTPUT_CHUNK < 18 * HEAP as u64 || t.is_multiple_of(CHUNK as u64);
    for (entries, min_zero_copy_packets, all) in [
        (63, 21, true),
        (63, 21, false),
        (63, usize::MAX, true),
        (1023, 341, true),
    ] {
        let config = config();
        let sending = Sending {
            entries,
            min_zero_copy_packets,
            keeps: true,
        };
        let mut rig = Rig::sending(on_cpu(&config), 2, 1, sending);
        rig.send_some(0..20, 2, |timestamp| all || sparse(timestamp));
        let (ended, batches) = rig.finish();
        ended.unwrap();
        let expected = whole_batches(&config, 20 * CHUNK as u64, |from, _| {
            all || from.is_multiple_of(OUTPUT_CHUNK)
        });
        assert_eq!(batches.keys().copied().collect::<Vec<_>>(), expected);
        assert_right(&config, &batches);
    }
}

/// Every other output chunk lacks input for all of its batches; two tx lcores send the rest.
#[test]
fn every_chunk_that_is_sent_has_one_age() {
    const OUTPUT_CHUNK: u64 = 2 * CHUNK as u64;
    let _alone = crate::lcores();
    let config = config();
    let mut rig = Rig::new(on_cpu(&config), 1, 2);
    let latency = rig.stages.latencies()[0].clone();
    rig.send_some(0..20, 1, |t| {
        (t / OUTPUT_CHUNK).is_multiple_of(2) || t.is_multiple_of(CHUNK as u64)
    });
    let (ended, batches) = rig.finish();
    ended.unwrap();
    let chunks: BTreeSet<_> = batches.keys().map(|start| start / OUTPUT_CHUNK).collect();
    assert_eq!(chunks, [0, 2, 4, 6, 8].into());
    assert_eq!(latency.read().1, 5);
}

/// What a test's pipeline does with its first block.
#[derive(Clone, Copy)]
enum Then {
    Wait,
    Fail,
    Panic,
}

/// Makes nothing of its input, once the gate is open.
struct Gated {
    gate: Arc<AtomicBool>,
    then: Then,
    done: VecDeque<OutputChunk>,
}

impl Gated {
    fn new(then: Then) -> (Box<Self>, Arc<AtomicBool>) {
        let gate = Arc::new(AtomicBool::new(false));
        let done = VecDeque::new();
        (
            Box::new(Self {
                gate: gate.clone(),
                then,
                done,
            }),
            gate,
        )
    }
}

impl Pipeline for Gated {
    fn name(&self) -> String {
        "gated".into()
    }

    fn set_gains(&mut self, _pol: usize, _gains: &mut Gains) {}

    fn run_frontend(
        &mut self,
        _input: &SampleView<'_>,
        _block: &Block<'_>,
        _chunk: &mut OutputSpan<'_>,
    ) -> Result<(), PipelineError> {
        while !self.gate.load(Ordering::Acquire) {
            match self.then {
                Then::Wait => std::thread::yield_now(),
                Then::Fail => {
                    return Err(PipelineError::new("the test", "unplugged", "plug it in"));
                }
                Then::Panic => panic!("the test is over"),
            }
        }
        Ok(())
    }

    fn finish_chunk(&mut self, _batches: usize, chunk: OutputChunk) -> Result<(), PipelineError> {
        self.done.push_back(chunk);
        Ok(())
    }

    fn poll_finished(&mut self) -> Result<Option<OutputChunk>, PipelineError> {
        Ok(self.done.pop_front())
    }

    fn thread_reports(&self) -> Vec<ThreadReport> {
        Vec::new()
    }
}

#[test]
fn overload_is_accounted_for_to_the_last_packet() {
    let _alone = crate::lcores();
    let (pipeline, gate) = Gated::new(Then::Wait);
    let mut rig = Rig::new(pipeline, 2, 1);
    let config = config();
    // The engine does not get on, and the digitiser does not care.
    let heaps = 20 * CHUNK / HEAP;
    // The first chunks come while there is room for both polarisations, whichever rx lcore is ahead
    // later.
    let first = 2 * CHUNK / HEAP;
    for range in [0..first, first..heaps] {
        for heap in range {
            for pol in 0..2 {
                rig.send(pol, pol, (heap * HEAP) as u64);
            }
        }
        rig.wait(|rig| rig.seen() == rig.handed);
    }
    gate.store(true, Ordering::Release);
    let (drops, placed) = (rig.drops(), rig.placed());
    assert_eq!(rig.ring_full + rig.handed, 2 * heaps as u64);
    assert_eq!(placed + drops.values().sum::<u64>(), rig.handed);
    assert!(drops["no-free-chunk"] > 0, "{drops:?}");

    let (input, stats) = (
        rig.stages.input_stats().clone(),
        rig.stages.output_stats()[0].clone(),
    );
    let (ended, batches) = rig.finish();
    ended.unwrap();
    let pols = input.pols();
    assert_eq!(pols[0].heaps + pols[1].heaps, placed);
    let first = input.first_timestamp().unwrap();
    let present = pols.map(|pol| {
        let runs = pol.presence.into_iter();
        runs.flat_map(|(here, count)| std::iter::repeat_n(here, count as usize))
            .collect::<Vec<_>>()
    });
    let whole = |from: u64, to: u64| {
        let heaps = (from / HEAP as u64..to.div_ceil(HEAP as u64)).map(|h| h as usize);
        let offset = first as usize / HEAP;
        let here = |pol: &Vec<bool>, heap: usize| {
            heap.checked_sub(offset)
                .and_then(|heap| pol.get(heap))
                .copied()
                .unwrap_or(false)
        };
        heaps
            .into_iter()
            .all(|heap| present.iter().all(|pol| here(pol, heap)))
    };
    let expected = whole_batches(&config, (heaps * HEAP) as u64, whole);
    assert!(!expected.is_empty());
    assert_eq!(batches.keys().copied().collect::<Vec<_>>(), expected);
    assert_eq!(stats.counts().heaps, 4 * expected.len() as u64);
}

#[test]
fn a_stage_that_fails_ends_all_and_is_named() {
    let _alone = crate::lcores();
    for (then, words) in [
        (
            Then::Fail,
            ["engine", "wideband", "the test failed", "plug it in"],
        ),
        (
            Then::Panic,
            ["lcore", "engine", "panicked", "the test is over"],
        ),
    ] {
        let (pipeline, _gate) = Gated::new(then);
        let mut rig = Rig::new(pipeline, 2, 1);
        rig.send_chunks(0..3, 2);
        for heap in 0..(CHUNK / HEAP) as u64 {
            for pol in 0..2 {
                rig.send(pol, pol, 3 * CHUNK as u64 + heap * HEAP as u64);
            }
        }
        // Without being stopped.
        rig.wait(|rig| rig.stages.running() == 0);
        let (ended, batches) = rig.finish();
        let error = ended.err().expect("the stage's error");
        let error = karoo::cli::Failure::device(error).to_string();
        for word in words {
            assert!(error.contains(word), "{error}");
        }
        assert!(batches.is_empty());
    }
}
