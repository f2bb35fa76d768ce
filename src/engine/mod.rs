//! Input and output pipelines: cadence, delays applied to blocks, presence to batches.
//!
//! The engine is one thread. It collects chunks that the rx lcores have finished, joins each with the
//! head of its successor, runs every output over it, and hands finished output chunks to the tx lcore.

mod backend;
mod input;
mod output;
mod stats;

use std::sync::Arc;

use crossbeam::queue::ArrayQueue;

pub use backend::{BatchStats, Block, FineDelay, InputView, OutputSpan, Pipeline};
pub use input::Input;
pub use output::{ChunkObserver, Output, OutputChunk, OutputParts};
pub use stats::OutputStats;

use crate::config::EngineConfig;
use crate::dpdk::{Abort, Idle, IdlePolicy};
use crate::memory::FrozenChunk;
use crate::monitor::phases::{Phase, PhaseClock};
use crate::recv::{Collected, InputStats, Receiver};
use crate::units::N_POL;

/// A finished chunk of one of the outputs, or the end of all of them.
#[derive(Debug)]
pub enum Finished {
    /// A chunk of the output with this index.
    Chunk(usize, OutputChunk),
    /// Nothing more will come.
    End,
}

/// Input and outputs of one F-engine.
pub struct Engine {
    chunk_samples: u64,
    heap_samples: usize,
    receiver: Receiver,
    outputs: Vec<Output>,
    finished: Arc<ArrayQueue<Finished>>,
    abort: Abort,
    idle: Idle,
    /// The last chunk collected: it waits for its successor's head.
    held: Option<(u64, FrozenChunk)>,
    /// Buffers for the presence of the next input.
    absent: [Vec<u32>; N_POL],
}

impl Engine {
    /// An engine over `receiver`. `finished` must have room for every output chunk and the end.
    pub fn new(
        config: &EngineConfig,
        receiver: Receiver,
        outputs: Vec<OutputParts>,
        finished: Arc<ArrayQueue<Finished>>,
        idle: IdlePolicy,
        abort: Abort,
    ) -> Self {
        let outputs = outputs
            .into_iter()
            .map(|parts| {
                Output::new(
                    parts,
                    config.send.chunk_jones,
                    abort.clone(),
                    Idle::new(idle),
                )
            })
            .collect();
        Self {
            chunk_samples: config.recv.chunk_samples as u64,
            heap_samples: config.recv.packet_samples,
            receiver,
            outputs,
            finished,
            abort,
            idle: Idle::new(idle),
            held: None,
            absent: Default::default(),
        }
    }

    /// Runs until the receivers have ended and everything is handed over, or until aborted.
    pub fn run(&mut self, clock: &mut PhaseClock) {
        while !self.abort.is_set() {
            match self.receiver.poll() {
                Collected::Chunk(id, chunk) => {
                    self.idle.reset();
                    clock.mark(Phase::WaitInput);
                    self.advance(Some((id, chunk)), clock);
                }
                Collected::Nothing => self.idle.wait(),
                Collected::End => {
                    clock.mark(Phase::WaitInput);
                    self.advance(None, clock);
                    break;
                }
            }
        }
        for (index, output) in self.outputs.iter_mut().enumerate() {
            output.flush(clock, &mut |chunk| submit(&self.finished, index, chunk));
        }
        // The queue has room for all chunks and this.
        let _ = self.finished.push(Finished::End);
        clock.mark(Phase::Work);
    }

    /// Processes the held chunk, now that its successor is known, and holds that.
    fn advance(&mut self, next: Option<(u64, FrozenChunk)>, clock: &mut PhaseClock) {
        if let Some((id, chunk)) = self.held.take() {
            let successor = next.as_ref().filter(|(next_id, _)| *next_id == id + 1);
            let start = id * self.chunk_samples;
            let input = Input::new(
                chunk,
                start,
                self.heap_samples,
                successor.map(|(_, chunk)| chunk),
                std::mem::take(&mut self.absent),
            );
            clock.mark(Phase::Work);
            for (index, output) in self.outputs.iter_mut().enumerate() {
                let mut submit = |chunk| submit(&self.finished, index, chunk);
                if output.process(&input, clock, &mut submit).is_break() {
                    break;
                }
            }
            let (chunk, absent) = input.into_parts();
            self.absent = absent;
            self.receiver.recycle(chunk);
            clock.mark(Phase::Work);
        }
        self.held = next;
    }

    /// Counters of the input.
    pub fn input_stats(&self) -> Arc<InputStats> {
        self.receiver.stats()
    }

    /// The outputs, for their reports.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }
}

fn submit(finished: &ArrayQueue<Finished>, output: usize, chunk: OutputChunk) {
    // The queue has room for every chunk of every output.
    let _ = finished.push(Finished::Chunk(output, chunk));
}
