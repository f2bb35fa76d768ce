//! One output stream: which spectra to make from which input, and which batches to send.
//!
//! The algorithm is that of the reference's output scheduling. Front end and back end have their own
//! cadences: the front end runs over stretches of constant coarse delay, as far as the input reaches;
//! the back end always ends on whole output chunks, or on whole batches where a skip cuts one short.

use std::sync::Arc;

use crate::config::OutputConfig;
use crate::dpdk::{ExtBuffer, ExtPool};
use crate::dsp::delay::DelayModels;
use crate::memory::OutputMemory;
use crate::monitor::phases::{Phase, PhaseClock};
use crate::units::{N_POL, Timestamp};

use super::input::Input;
use super::stats::OutputStats;
use super::{Block, FineDelay, InputView, Pipeline, PipelineError};

/// An output chunk with one owner.
pub type OutputChunk = ExtBuffer<OutputMemory>;

/// Looks at every finished chunk before it is sent.
pub trait ChunkObserver: Send {
    /// `chunk` is complete; only batches that are present will be sent.
    fn observe(&mut self, chunk: &OutputMemory);
}

/// What one output is made of.
pub struct OutputParts {
    /// Its configuration.
    pub config: OutputConfig,
    /// Its computation.
    pub pipeline: Box<dyn Pipeline>,
    /// Delay models per polarisation.
    pub delays: [DelayModels; N_POL],
    /// Its chunks.
    pub pool: ExtPool<OutputMemory>,
    /// Its counters.
    pub stats: Arc<OutputStats>,
    /// Who looks at its chunks, if anyone.
    pub observer: Option<Box<dyn ChunkObserver>>,
}

/// What one step of an output came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Some spectra were issued: go on.
    Computed,
    /// The pipeline was given a chunk to finish: go on.
    Finishing,
    /// No output chunk is free: try again later.
    NoChunk,
    /// Every spectrum that the input allows has been issued.
    NeedsInput,
}

/// The state of one output stream.
pub struct Output {
    parts: OutputParts,
    /// Spectra per output chunk.
    capacity: usize,
    /// Timestamp of the next spectrum.
    next: u64,
    /// The chunk under construction and its spectra so far; its end is `next`.
    building: Option<(OutputChunk, usize)>,
    /// Nominal end of the last chunk handed over.
    last_end: Option<u64>,
    /// Reused for every block.
    fine: Vec<FineDelay>,
}

impl Output {
    /// An output that starts at timestamp 0, which is before any input.
    pub fn new(parts: OutputParts, chunk_jones: usize) -> Self {
        let capacity = chunk_jones / parts.config.channels;
        Self {
            fine: Vec::with_capacity(capacity),
            parts,
            capacity,
            next: 0,
            building: None,
            last_end: None,
        }
    }

    /// Its stream's name.
    pub fn name(&self) -> &str {
        &self.parts.config.name
    }

    /// The computation behind this output.
    pub fn pipeline(&self) -> &dyn Pipeline {
        &*self.parts.pipeline
    }

    /// Issues the next block of spectra that `input` allows, or what is due before it.
    pub fn step(
        &mut self,
        input: &Input,
        view: &InputView<'_>,
        clock: &mut PhaseClock,
    ) -> Result<Step, PipelineError> {
        if self.is_full() {
            self.flush(clock)?;
            return Ok(Step::Finishing);
        }
        let t = Timestamp(self.next);
        let delays = [0, 1].map(|pol| self.parts.delays[pol].at(t));
        if delays.iter().any(|delay| delay.orig < input.start() as i64) {
            if self.flush(clock)? {
                return Ok(Step::Finishing);
            }
            return Ok(match self.skip_to(Timestamp(input.start())) {
                Some(next) => {
                    self.next = next;
                    Step::Computed
                }
                None => Step::NeedsInput,
            });
        }
        let first = self.building.as_ref().map_or(0, |(_, spectra)| *spectra);
        let coarse = delays.map(|delay| delay.coarse);
        self.plan_block(input, coarse, self.capacity - first);
        if self.fine.is_empty() {
            return Ok(Step::NeedsInput);
        }
        if self.building.is_none() && !self.begin_chunk() {
            return Ok(Step::NoChunk);
        }
        let offset = delays.map(|delay| (delay.orig - input.start() as i64) as usize);
        self.run_block(input, view, offset, first, clock)?;
        Ok(Step::Computed)
    }

    fn is_full(&self) -> bool {
        let spectra = self.building.as_ref().map(|(_, spectra)| *spectra);
        spectra == Some(self.capacity)
    }

    /// Smallest batch-aligned timestamp after the current one whose input is not before `target`.
    fn skip_to(&self, target: Timestamp) -> Option<u64> {
        let step = self.parts.config.batch_samples() as u64;
        let mut start = Timestamp(self.next + 1);
        loop {
            let mut found = start;
            for delay in &self.parts.delays {
                found = delay.skip(target, found, step)?;
            }
            // Piecewise models are not monotone: one polarisation's skip may undo the other's.
            if self
                .parts
                .delays
                .iter()
                .all(|d| d.at(found).orig >= target.0 as i64)
            {
                return Some(found.0);
            }
            start = found + 1;
        }
    }

    /// Fills `fine` with the spectra from `next` on that share `coarse` and fit input and chunk.
    fn plan_block(&mut self, input: &Input, coarse: [i64; N_POL], room: usize) {
        self.fine.clear();
        let step = self.parts.config.spectrum_samples() as u64;
        let reach = input.end() as i64 + coarse[0].min(coarse[1]);
        let window = self.parts.config.window_samples() as i64;
        let mut t = Timestamp(self.next);
        while self.fine.len() < room && t.0 as i64 + window <= reach {
            let delays = [0, 1].map(|pol| self.parts.delays[pol].at(t));
            if delays.map(|delay| delay.coarse) != coarse {
                break;
            }
            self.fine.push(FineDelay {
                delay: delays.map(|delay| delay.residual as f32),
                phase: delays.map(|delay| delay.wideband_phase() as f32),
            });
            t = t + step;
        }
    }

    /// Front end over the planned spectra, with the input's samples from `offset` on.
    fn run_block(
        &mut self,
        input: &Input,
        view: &InputView<'_>,
        offset: [usize; N_POL],
        first: usize,
        clock: &mut PhaseClock,
    ) -> Result<(), PipelineError> {
        let Some((chunk, spectra)) = &mut self.building else {
            return Ok(());
        };
        let config = &self.parts.config;
        let (step, window) = (config.spectrum_samples(), config.window_samples());
        let count = self.fine.len();
        let present = |s: usize, samples: usize| {
            (0..N_POL).all(|pol| input.present(pol, offset[pol] + s * step, samples))
        };
        // Mostly nothing is missing.
        if !present(0, (count - 1) * step + window) {
            for s in (0..count).filter(|&s| !present(s, window)) {
                chunk.mark_absent((first + s) / config.spectra_per_heap());
            }
        }
        let block = Block {
            first,
            offset,
            fine: &self.fine,
        };
        clock.mark(Phase::Work);
        self.parts.pipeline.front(view, &block, &mut chunk.span())?;
        clock.mark(Phase::Compute);
        *spectra += self.fine.len();
        self.next += (self.fine.len() * step) as u64;
        for delay in &mut self.parts.delays {
            delay.advance(Timestamp(self.next));
        }
        Ok(())
    }

    /// Starts a chunk at the next spectrum, if one is free.
    fn begin_chunk(&mut self) -> bool {
        let Some(mut chunk) = self.parts.pool.take() else {
            return false;
        };
        chunk.begin(Timestamp(self.next));
        self.building = Some((chunk, 0));
        true
    }

    /// Has the pipeline finish the whole batches under construction, if there is a chunk.
    pub fn flush(&mut self, clock: &mut PhaseClock) -> Result<bool, PipelineError> {
        let Some((mut chunk, spectra)) = self.building.take() else {
            return Ok(false);
        };
        let batches = spectra / self.parts.config.spectra_per_heap();
        chunk.truncate(batches);
        clock.mark(Phase::Work);
        self.parts.pipeline.back(batches, chunk)?;
        clock.mark(Phase::Compute);
        Ok(true)
    }

    /// The next chunk that is complete and accounted for.
    pub fn poll(&mut self) -> Result<Option<OutputChunk>, PipelineError> {
        let chunk = self.parts.pipeline.poll()?;
        if let Some(chunk) = &chunk {
            self.note_gap(chunk);
            self.parts.stats.note_chunk(chunk, &self.parts.config);
            if let Some(observer) = &mut self.parts.observer {
                observer.observe(chunk);
            }
        }
        Ok(chunk)
    }

    /// Counts the batches between the last chunk and this one as skipped.
    fn note_gap(&mut self, chunk: &OutputMemory) {
        let (start, step) = (chunk.start().0, self.parts.config.batch_samples() as u64);
        if let Some(end) = self.last_end {
            let batches = start.saturating_sub(end) / step;
            let heaps = batches * self.parts.config.dst.len() as u64;
            self.parts.stats.note_skipped(heaps);
        }
        self.last_end = Some(start + chunk.batches() as u64 * step);
    }
}
