//! The engine: which spectra to compute from which samples, when, and which batches lack input.
//!
//! The engine is one thread. It collects chunks that the rx lcores have finished, joins each with
//! the head of its successor, issues every output's work on it, and hands output chunks to the tx
//! lcore when they are complete, in the order in which they were issued.

mod backend;
mod counts;
mod expected;
mod input;
mod input_statistics;
mod levels;
mod output;
mod power;
mod requests;
mod sent_chunks;
mod statistics;
mod stats;
pub mod steer;
mod test_patterns;

mod sync {
    pub use std::sync::atomic::{AtomicU64, Ordering, fence};
}

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam::queue::ArrayQueue;

pub use backend::{Backend, Block, FineDelay, Intake, Pipeline, PipelineError};
pub use counts::OutputCounts;
use ground::stats::{Phase, PhaseTimer, ThreadReport};
use ground::{Idle, IdlePolicy, N_POL, Sleeper, StopFlag, Timestamp};
pub use input::ChunkPresence;
use input_statistics::InputPeriods;
pub use levels::KurtosisFlags;
pub use output::{ChunkObserver, Output, OutputChunk, OutputParts, Step};
pub use requests::RequestStats;
pub use statistics::{ChannelSums, InputStatistics, OutputStatistics, PeriodSums, StatisticsBoard};
pub use stats::OutputStats;
use steer::{EngineEvent, Published, Received, RequestQueues};
pub use test_patterns::{TestPattern, TestRequest, UnknownPattern};

use crate::config::EngineConfig;
use crate::memory::FrozenChunk;
use crate::recv::{ChunkCollector, Collected, InputStats};

/// A finished chunk of one of the outputs, or the end of all of them.
#[derive(Debug)]
pub enum Finished {
    /// A chunk of the output with this index.
    Chunk(usize, OutputChunk),
    /// Nothing more will come.
    End,
}

/// The run ended because a backend failed.
#[derive(Debug, thiserror::Error)]
#[error("engine, {part}")]
pub struct EngineError {
    /// The output, or the input.
    part: String,
    source: PipelineError,
}

/// Input and outputs of one F-engine.
pub struct Engine {
    chunk_samples: u64,
    heap_samples: usize,
    collector: ChunkCollector,
    intake: Box<dyn Intake>,
    outputs: Vec<Output>,
    published: Arc<Published>,
    /// Statistics of the input, if any are taken.
    input_periods: Option<InputPeriods>,
    /// Whose chunks are being finished, oldest first.
    finishing: VecDeque<usize>,
    finished: Arc<ArrayQueue<Finished>>,
    abort: StopFlag,
    idle: Idle,
    sleeper: Sleeper,
    /// The last chunk collected, with its id: it waits for its successor's head.
    held: Option<(u64, ChunkPresence)>,
    /// Buffers for the presence of inputs.
    absent: [Vec<u32>; N_POL],
}

/// What an engine is made of.
pub struct EngineParts {
    /// Where received chunks come from.
    pub collector: ChunkCollector,
    /// What brings them to the outputs.
    pub intake: Box<dyn Intake>,
    /// Outputs, in the order of the configuration.
    pub outputs: Vec<OutputParts>,
    /// How control steers them.
    pub steered: RequestQueues,
    /// Where finished chunks go: it must have room for every output chunk and the end.
    pub finished: Arc<ArrayQueue<Finished>>,
    /// What to do when there is nothing to do.
    pub idle: IdlePolicy,
    /// Ends the engine early.
    pub abort: StopFlag,
}

impl Engine {
    /// An engine that is made of `parts`.
    pub fn new(config: &EngineConfig, parts: EngineParts) -> Self {
        let EngineParts {
            collector,
            intake,
            outputs,
            steered,
            finished,
            idle,
            abort,
        } = parts;
        let RequestQueues {
            outputs: ends,
            published,
            bell,
        } = steered;
        let output = |(index, (parts, steered))| {
            Output::new(config, index, parts, steered, published.clone())
        };
        let outputs = outputs.into_iter().zip(ends).enumerate();
        let outputs = outputs.map(output).collect();
        Self {
            chunk_samples: config.recv.chunk_samples as u64,
            heap_samples: config.recv.packet_samples,
            collector,
            intake,
            finishing: VecDeque::with_capacity(finished.capacity()),
            outputs,
            input_periods: InputPeriods::new(config, published.clone()),
            published,
            finished,
            abort,
            idle: Idle::new(idle),
            sleeper: Sleeper::new(bell),
            held: None,
            absent: Default::default(),
        }
    }

    /// Runs until the rx lcores have ended and everything is handed over, or until aborted.
    ///
    /// An error aborts everything that shares the engine's [`StopFlag`].
    pub fn run(&mut self, timer: &mut PhaseTimer) -> Result<(), EngineError> {
        let outcome = self.work(timer);
        if outcome.is_err() {
            self.abort.set();
        }
        timer.mark(Phase::Work);
        outcome
    }

    fn work(&mut self, timer: &mut PhaseTimer) -> Result<(), EngineError> {
        while !self.abort.is_set() {
            self.turn(timer);
            match self.collector.poll() {
                Collected::Chunk(id, chunk) => {
                    timer.mark(Phase::WaitInput);
                    self.idle.reset();
                    self.tell_received(id);
                    self.advance(Some((id, chunk)), timer)?;
                }
                Collected::Nothing => {
                    timer.mark(Phase::WaitInput);
                    if self.hand_over(timer)? {
                        timer.mark(Phase::Work);
                    }
                    self.outputs.iter_mut().for_each(Output::take_requests);
                    if self.waits_for_backend() {
                        self.idle.wait();
                    } else {
                        self.sleeper.wait(&mut self.idle, timer);
                    }
                }
                Collected::End => {
                    timer.mark(Phase::WaitInput);
                    return self.end(timer);
                }
            }
        }
        Ok(())
    }

    /// Whether there is something under way that nobody rings for when it is done.
    fn waits_for_backend(&self) -> bool {
        let mut outputs = self.outputs.iter();
        !self.finishing.is_empty() || outputs.any(Output::waits_for_statistics)
    }

    /// Ends a turn. While chunks are being finished, only a finished one shows that the backend is
    /// at work.
    fn turn(&self, timer: &mut PhaseTimer) {
        if self.finishing.is_empty() {
            timer.turn();
        } else {
            timer.wait_for_device();
        }
    }

    /// Tells control what came up to chunk `id`.
    fn tell_received(&self, id: u64) {
        let stats = self.collector.stats();
        let start = Timestamp(id * self.chunk_samples);
        self.published.tell(EngineEvent::Received(Received {
            start,
            end: start + self.chunk_samples,
            clipped_samples: stats.clipped_samples(),
            missing_heaps: stats.missing_heaps(),
        }));
    }

    /// Holds `next`, and issues all work on the chunk held before, whose successor it may be.
    fn advance(
        &mut self,
        next: Option<(u64, FrozenChunk)>,
        timer: &mut PhaseTimer,
    ) -> Result<(), EngineError> {
        let held = self.held.take();
        let Some((id, chunk)) = next else {
            return held.map_or(Ok(()), |(_, input)| self.process(input, timer));
        };
        let absent = std::mem::take(&mut self.absent);
        let start = id * self.chunk_samples;
        self.held = Some((
            id,
            ChunkPresence::new(&chunk, start, self.heap_samples, absent),
        ));
        let follows = held.as_ref().is_some_and(|(before, _)| before + 1 == id);
        if let Some(periods) = &mut self.input_periods {
            periods.add(Timestamp(start), &chunk);
        }
        let joined = held.map(|(_, mut input)| {
            if follows {
                input.join(&chunk);
            }
            input
        });
        self.intake.load(chunk, follows).map_err(of_input)?;
        joined.map_or(Ok(()), |input| self.process(input, timer))
    }

    /// Issues all work on the oldest chunk of the intake.
    fn process(&mut self, input: ChunkPresence, timer: &mut PhaseTimer) -> Result<(), EngineError> {
        timer.mark(Phase::Work);
        for index in 0..self.outputs.len() {
            loop {
                self.turn(timer);
                let view = self.intake.view(Timestamp(input.start()), input.samples());
                let Some(view) = view.map_err(of_input)? else {
                    return Ok(());
                };
                let output = &mut self.outputs[index];
                let step = output.step(&input, &view, timer);
                match step.map_err(|source| of_output(output, source))? {
                    Step::Computed => self.idle.reset(),
                    Step::Finishing => self.finishing.push_back(index),
                    Step::NeedsInput => break,
                    Step::NoChunk => {
                        timer.mark(Phase::Work);
                        self.idle.wait();
                        timer.mark(Phase::WaitOutput);
                    }
                }
                if self.abort.is_set() {
                    return Ok(());
                }
                self.hand_over(timer)?;
            }
        }
        self.absent = input.into_buffers();
        self.intake.release().map_err(of_input)?;
        self.hand_over(timer)?;
        timer.mark(Phase::Work);
        Ok(())
    }

    /// Passes on what is complete: output chunks to the tx lcore, input chunks to the rx lcores.
    /// Returns whether there were output chunks.
    fn hand_over(&mut self, timer: &mut PhaseTimer) -> Result<bool, EngineError> {
        let waiting = self.finishing.len();
        while let Some(chunk) = self.intake.poll_released().map_err(of_input)? {
            self.collector.recycle(chunk);
        }
        while let Some(&index) = self.finishing.front() {
            let output = &mut self.outputs[index];
            let finished = output.poll_finished();
            let Some(chunk) = finished.map_err(|source| of_output(output, source))? else {
                break;
            };
            self.finishing.pop_front();
            timer.turn();
            self.idle.reset();
            // The queue has room for every chunk of every output.
            let _ = self.finished.push(Finished::Chunk(index, chunk));
            self.sleeper.bell().ring();
        }
        for output in &mut self.outputs {
            let published = output.publish_statistics();
            published.map_err(|source| of_output(output, source))?;
        }
        self.account_for_sent();
        Ok(self.finishing.len() < waiting)
    }

    /// Finishes what is left, and says that nothing more will come.
    fn end(&mut self, timer: &mut PhaseTimer) -> Result<(), EngineError> {
        self.advance(None, timer)?;
        for (index, output) in self.outputs.iter_mut().enumerate() {
            let flushed = output.flush(timer);
            if flushed.map_err(|source| of_output(output, source))? {
                self.finishing.push_back(index);
            }
        }
        self.input_periods.iter_mut().for_each(InputPeriods::end);
        for output in &mut self.outputs {
            let ended = output.end_period();
            ended.map_err(|source| of_output(output, source))?;
        }
        while self.waits_for_backend() && !self.abort.is_set() {
            self.hand_over(timer)?;
            self.idle.wait();
        }
        timer.mark(Phase::Compute);
        // The queue has room for all chunks and this.
        let _ = self.finished.push(Finished::End);
        self.sleeper.bell().ring();
        while !self.account_for_sent() && !self.abort.is_set() {
            timer.turn();
            self.idle.wait();
        }
        timer.mark(Phase::WaitOutput);
        Ok(())
    }

    /// Counts what has left by now. Returns whether that is all.
    fn account_for_sent(&mut self) -> bool {
        let accounted = self.outputs.iter_mut().map(Output::account);
        accounted.filter(|all| !all).count() == 0
    }

    /// Counters of the input.
    pub fn input_stats(&self) -> Arc<InputStats> {
        self.collector.stats()
    }

    /// What requests to all outputs came to so far.
    pub fn request_stats(&self) -> RequestStats {
        let mut all = RequestStats::default();
        for output in &self.outputs {
            all.add(output.request_stats());
        }
        all
    }

    /// Batches that should have come of all input so far, from the first heap to the last, by
    /// output. Of those whose delays were not [kept](OutputParts::keeps_delays) nothing is known.
    pub fn expected_batches(&self) -> Vec<Option<u64>> {
        let span = self.collector.stats().span();
        let expected = |output: &Output| output.expected_batches(&span);
        self.outputs.iter().map(expected).collect()
    }

    /// What computes, for all outputs.
    pub fn backend(&self) -> String {
        let names = self.outputs.iter().map(|output| output.pipeline().name());
        let mut names: Vec<_> = names.collect();
        names.dedup();
        names.join(" and ")
    }

    /// Where the time of the backend's threads and streams went so far. Threads that compute for
    /// several outputs are reported once.
    pub fn thread_reports(&self) -> Vec<ThreadReport> {
        let outputs = self.outputs.iter();
        let mut pipelines: Vec<ThreadReport> = Vec::new();
        for report in outputs.flat_map(|output| output.pipeline().thread_reports()) {
            let known = pipelines.iter_mut().find(|known| known.name == report.name);
            match known {
                Some(known) => known.join(report),
                None => pipelines.push(report),
            }
        }
        self.intake
            .thread_reports()
            .into_iter()
            .chain(pipelines)
            .collect()
    }
}

fn of_input(source: PipelineError) -> EngineError {
    EngineError {
        part: "input".to_owned(),
        source,
    }
}

fn of_output(output: &Output, source: PipelineError) -> EngineError {
    EngineError {
        part: format!("output '{}'", output.name()),
        source,
    }
}
