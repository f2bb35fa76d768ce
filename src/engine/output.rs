//! One output stream: which spectra to make from which input, and which batches to send.
//!
//! The algorithm is that of katgpucbf's output scheduling. Front end and back end have their own
//! cadences: the front end runs over blocks, whose coarse delays are constant, as far as the input
//! reaches; the back end always ends on whole output chunks, or on whole batches where a skip cuts
//! one short.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use dpdk::{ExtBuffer, ExtPool};
use dsp::delay::{DelayPoint, Stretch};
use ground::stats::{Phase, PhaseTimer};
use ground::{N_POL, Timestamp};

use super::expected::expected_batches;
use super::input::ChunkPresence;
use super::power::Power;
use super::requests::{PendingRequests, RequestStats};
use super::statistics::Periods;
use super::stats::{OutputStats, Tally};
use super::steer::{EngineEvent, OutputRequests, Published, Sent, TestChange};
use super::{Block, FineDelay, Pipeline, PipelineError};
use crate::config::{EngineConfig, OutputConfig};
use crate::memory::{OutputMemory, SampleView};

/// An output chunk with one owner.
pub type OutputChunk = ExtBuffer<OutputMemory>;

/// Looks at every finished chunk before it is sent.
pub trait ChunkObserver: Send {
    /// `chunk` is complete; only batches that are present will be sent.
    fn observe(&mut self, chunk: &OutputMemory);
}

/// What one output is made of.
pub struct OutputParts {
    /// Configuration of the output.
    pub config: OutputConfig,
    /// Computation of the output.
    pub pipeline: Box<dyn Pipeline>,
    /// Pool of the output's chunks.
    pub pool: ExtPool<OutputMemory>,
    /// Counters of the output.
    pub stats: Arc<OutputStats>,
    /// Who looks at its chunks, if anyone.
    pub observer: Option<Box<dyn ChunkObserver>>,
    /// Whether it keeps all delay models that it has had, to tell at the end what should have been
    /// sent. Not for an engine that runs for months.
    pub keeps_delays: bool,
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
    index: usize,
    feng_id: u64,
    /// Spectra per output chunk.
    capacity: usize,
    requests: PendingRequests,
    published: Arc<Published>,
    /// Power of the digitiser, if this output measures it.
    power: Option<Power>,
    /// Timestamp of the next spectrum.
    next: u64,
    /// The chunk under construction and its spectra so far; its end is `next`.
    building: Option<(OutputChunk, usize)>,
    /// Nominal end of the last chunk handed over.
    last_end: Option<u64>,
    /// What is counted and told to control once a chunk has been sent, oldest chunk first.
    leaving: VecDeque<(Tally, Sent)>,
    /// Chunks that have been sent and are counted.
    departed: u64,
    /// Periods of statistics, if any are taken.
    periods: Option<Periods>,
    /// Reused for every block: delays, and spectra that lack input.
    fine: Vec<FineDelay>,
    absent: Vec<usize>,
}

impl Output {
    /// The output with this index of an engine of `config`. It starts at timestamp 0, which is
    /// before any input.
    pub fn new(
        config: &EngineConfig,
        index: usize,
        parts: OutputParts,
        steered: OutputRequests,
        published: Arc<Published>,
    ) -> Self {
        let capacity = config.send.chunk_jones / parts.config.channels;
        let chunks = parts.pool.capacity();
        let power = (index == 0).then(|| Power::new(config, &parts.config));
        let subsampling = parts.config.subsampling() as u32;
        let rate = config.clock.adc_sample_rate;
        let mut requests =
            PendingRequests::new(index, subsampling, rate, steered, published.clone());
        if parts.keeps_delays {
            requests.keep();
        }
        Self {
            requests,
            fine: Vec::with_capacity(capacity),
            absent: Vec::with_capacity(capacity),
            periods: config.statistics_samples().map(Periods::new),
            parts,
            index,
            feng_id: config.feng_id,
            capacity,
            published,
            power,
            next: 0,
            building: None,
            last_end: None,
            leaving: VecDeque::with_capacity(chunks),
            departed: 0,
        }
    }

    /// Name of the output's stream.
    pub fn name(&self) -> &str {
        &self.parts.config.name
    }

    /// The computation behind this output.
    pub fn pipeline(&self) -> &dyn Pipeline {
        &*self.parts.pipeline
    }

    /// Takes the requests that are due.
    pub fn take_requests(&mut self) {
        let next = Timestamp(self.next);
        let building = self.building.as_ref();
        let start = building.map_or(next, |(chunk, _)| chunk.start());
        let end = start + (self.capacity * self.parts.config.spectrum_samples()) as u64;
        let pipeline = &mut *self.parts.pipeline;
        self.requests.take(next, end, building.is_some(), pipeline);
    }

    /// Issues the next block of spectra that `input` allows, or what is due before it.
    pub fn step(
        &mut self,
        input: &ChunkPresence,
        view: &SampleView<'_>,
        timer: &mut PhaseTimer,
    ) -> Result<Step, PipelineError> {
        self.take_requests();
        if self.is_full() {
            self.flush(timer)?;
            return Ok(Step::Finishing);
        }
        let t = Timestamp(self.next);
        let delays = [0, 1].map(|pol| self.requests.delays[pol].at(t));
        if delays.iter().any(|delay| delay.orig < input.start() as i64) {
            if self.flush(timer)? {
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
        self.plan_block(input, delays, self.room(first));
        if self.fine.is_empty() {
            return Ok(Step::NeedsInput);
        }
        if self.building.is_none() && !self.begin_chunk()? {
            return Ok(Step::NoChunk);
        }
        let offset = delays.map(|delay| (delay.orig - input.start() as i64) as usize);
        self.run_block(input, view, offset, first, timer)?;
        Ok(Step::Computed)
    }

    fn is_full(&self) -> bool {
        let Some((_, spectra)) = &self.building else {
            return false;
        };
        let whole = spectra.is_multiple_of(self.parts.config.spectra_per_heap());
        *spectra == self.capacity || whole && self.requests.cut()
    }

    /// Spectra that may still be issued before the chunk is full or something changes; `first`
    /// spectra of the chunk have been.
    fn room(&self, first: usize) -> usize {
        let config = &self.parts.config;
        let mut room = self.capacity - first;
        if self.requests.cut() {
            room = room.min(config.spectra_per_heap() - first % config.spectra_per_heap());
        }
        if let Some(at) = self.requests.upcoming() {
            let spectra = (at.0 - self.next).div_ceil(config.spectrum_samples() as u64);
            room = room.min(usize::try_from(spectra).unwrap_or(usize::MAX));
        }
        room
    }

    /// Smallest batch-aligned timestamp after the current one that asks for nothing before
    /// `target`, or at which requests are due that may change that.
    fn skip_to(&self, target: Timestamp) -> Option<u64> {
        let step = self.parts.config.batch_samples() as u64;
        let due = self.requests.upcoming();
        let due = due.and_then(|at| at.0.checked_next_multiple_of(step));
        let found = self.skip_unchanged(target, step);
        match (found, due) {
            (Some(found), Some(due)) => Some(found.min(due)),
            (found, due) => found.or(due),
        }
    }

    fn skip_unchanged(&self, target: Timestamp, step: u64) -> Option<u64> {
        let delays = &self.requests.delays;
        let mut start = Timestamp(self.next + 1);
        loop {
            let mut found = start;
            for delay in delays {
                found = delay.skip(target, found, step)?;
            }
            // Piecewise models are not monotone: one polarisation's skip may undo the other's.
            if delays.iter().all(|d| d.at(found).orig >= target.0 as i64) {
                return Some(found.0);
            }
            start = found + 1;
        }
    }

    /// Fills `fine` with the spectra from `next` on, `room` at most, that share the coarse delays
    /// of `first` and whose windows `input` has.
    fn plan_block(&mut self, input: &ChunkPresence, first: [DelayPoint; N_POL], room: usize) {
        self.fine.clear();
        let config = &self.parts.config;
        let step = config.spectrum_samples() as u64;
        let window = config.window_samples() as i64;
        let decimation = config.decimation() as f64;
        let phase = match config.narrowband {
            None => Stretch::wideband_phase,
            Some(_) => Stretch::phase,
        };
        let coarse = first.map(|point| point.coarse);
        // The last spectrum's window may end where the input does, of the polarisation that is less
        // delayed.
        let end = (input.end() as i64).saturating_add(coarse[0].min(coarse[1]));
        let reach = end.saturating_sub(window + self.next as i64);
        if reach < 0 {
            return;
        }
        let room = room.min((reach as u64 / step + 1) as usize);
        while self.fine.len() < room {
            let t = Timestamp(self.next + self.fine.len() as u64 * step);
            let remaining = room - self.fine.len();
            let [x, y] = [0, 1].map(|pol| self.requests.delays[pol].stretch(t, step, remaining));
            if [x.coarse(), y.coarse()] != coarse {
                break;
            }
            self.fine
                .extend((0..x.len().min(y.len())).map(|i| FineDelay {
                    delay: [x, y].map(|pol| (pol.residual(i) / decimation) as f32),
                    phase: [x, y].map(|pol| phase(&pol, i) as f32),
                }));
        }
    }

    /// Front end over the planned spectra, with the input's samples from `offset` on.
    fn run_block(
        &mut self,
        input: &ChunkPresence,
        view: &SampleView<'_>,
        offset: [usize; N_POL],
        first: usize,
        timer: &mut PhaseTimer,
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
        self.absent.clear();
        // Mostly nothing is missing.
        if !present(0, (count - 1) * step + window) {
            for s in (0..count).filter(|&s| !present(s, window)) {
                chunk
                    .writer()
                    .mark_absent((first + s) / config.spectra_per_heap());
                self.absent.push(s);
            }
        }
        let block = Block {
            first,
            offset,
            fine: &self.fine,
            absent: &self.absent,
        };
        timer.mark(Phase::Work);
        self.parts
            .pipeline
            .run_frontend(view, &block, &mut chunk.writer().span())?;
        timer.mark(Phase::Compute);
        *spectra += count;
        let last = Timestamp(self.next + ((count - 1) * step) as u64);
        self.requests.advance(last);
        self.next += (count * step) as u64;
        Ok(())
    }

    /// Starts a chunk at the next spectrum, if one is free.
    fn begin_chunk(&mut self) -> Result<bool, PipelineError> {
        let Some(mut chunk) = self.parts.pool.take() else {
            return Ok(false);
        };
        let start = Timestamp(self.next);
        if self
            .periods
            .as_ref()
            .is_some_and(|periods| periods.is_over(start))
        {
            self.end_period()?;
        }
        chunk.writer().begin(start);
        self.building = Some((chunk, 0));
        Ok(true)
    }

    /// Has the pipeline finish the whole batches under construction, if there is a chunk.
    pub fn flush(&mut self, timer: &mut PhaseTimer) -> Result<bool, PipelineError> {
        let Some((mut chunk, spectra)) = self.building.take() else {
            return Ok(false);
        };
        let batches = spectra / self.parts.config.spectra_per_heap();
        let start = chunk.start();
        chunk.writer().truncate(batches);
        timer.mark(Phase::Work);
        self.parts.pipeline.finish_chunk(batches, chunk)?;
        let next = Timestamp(self.next);
        let last = self
            .periods
            .as_mut()
            .is_some_and(|periods| periods.add(start, next));
        if last {
            self.end_period()?;
        }
        timer.mark(Phase::Compute);
        Ok(true)
    }

    /// Ends the period of statistics under way, whatever its length, if it has a chunk.
    pub fn end_period(&mut self) -> Result<(), PipelineError> {
        if let Some(periods) = &mut self.periods
            && let Some(period) = periods.take()
            && self.parts.pipeline.end_period()?
        {
            periods.ended(period);
        }
        Ok(())
    }

    /// Whether sums of a period that has ended are on their way.
    pub fn waits_for_statistics(&self) -> bool {
        self.periods.as_ref().is_some_and(Periods::waits)
    }

    /// Publishes statistics that are there.
    pub fn publish_statistics(&mut self) -> Result<(), PipelineError> {
        let Some(periods) = self.periods.as_mut().filter(|periods| periods.waits()) else {
            return Ok(());
        };
        while let Some(sums) = self.parts.pipeline.poll_sums()? {
            if let Some(statistics) = periods.statistics(sums) {
                let board = self.published.statistics();
                board.publish_output(self.index, Arc::new(statistics));
            }
        }
        Ok(())
    }

    /// What requests came to so far.
    pub fn request_stats(&self) -> &RequestStats {
        self.requests.stats()
    }

    /// Batches that the input samples `span` should give, if delays are kept.
    pub fn expected_batches(&self, span: &Range<u64>) -> Option<u64> {
        let kept = self.requests.kept.as_ref();
        kept.map(|delays| expected_batches(&self.parts.config, delays, span))
    }

    /// Counts the chunks that have left, and tells control. Returns whether all have.
    pub fn account(&mut self) -> bool {
        while let Some((tally, mut sent)) = self.leaving.front().copied() {
            if self.parts.stats.sent_chunks() <= self.departed {
                return false;
            }
            self.leaving.pop_front();
            self.departed += 1;
            self.parts.stats.note(&tally);
            sent.clipped_samples = self.parts.stats.clipped_samples();
            self.published.tell(EngineEvent::Sent(sent));
        }
        true
    }

    /// The next chunk that is complete, to be sent.
    pub fn poll_finished(&mut self) -> Result<Option<OutputChunk>, PipelineError> {
        let mut finished = self.parts.pipeline.poll_finished()?;
        if let Some(chunk) = &mut finished {
            self.apply_test_patterns(chunk);
            self.book_departure(chunk);
            self.tell_power(chunk);
            if let Some(observer) = &mut self.parts.observer {
                observer.observe(chunk);
            }
        }
        Ok(finished)
    }

    /// Puts test patterns in place of spectra, and tells control where they begin and end.
    fn apply_test_patterns(&mut self, chunk: &mut OutputChunk) {
        let (config, feng_id) = (&self.parts.config, self.feng_id);
        let (output, published) = (self.index, &self.published);
        let tests = &mut self.requests.tests;
        tests.apply(chunk, config, feng_id, |from, pattern| {
            published.tell(EngineEvent::Test(TestChange {
                output,
                from,
                pattern,
            }));
        });
    }

    /// Keeps what is to be counted and told once the chunk has been sent.
    fn book_departure(&mut self, chunk: &OutputMemory) {
        let gap = self.note_end_and_gap(chunk);
        let tally = Tally::new(chunk, &self.parts.config, gap);
        let step = self.parts.config.batch_samples();
        let span = self.parts.config.span_samples(chunk.batches());
        let sent = Sent {
            output: self.index,
            start: chunk.start(),
            end: chunk.start() + span as u64,
            batches: tally.batches(),
            nominal_end: chunk.start() + (chunk.capacity() * step) as u64,
            clipped_samples: [0; N_POL],
        };
        self.leaving.push_back((tally, sent));
    }

    /// Tells control of the power of the digitiser's samples behind a chunk.
    fn tell_power(&mut self, chunk: &OutputMemory) {
        let step = self.parts.config.batch_samples() as u64;
        let Some(power) = &mut self.power else {
            return;
        };
        for batch in 0..chunk.batches() {
            let sums = chunk.present(batch).then(|| chunk.stats(batch).power);
            let start = chunk.start() + batch as u64 * step;
            if let Some(level) = power.add(start, step, sums) {
                self.published.tell(EngineEvent::Power(level));
            }
        }
    }

    /// Batches between the last chunk and this one, whose end is kept for the next.
    fn note_end_and_gap(&mut self, chunk: &OutputMemory) -> u64 {
        let (start, step) = (chunk.start().0, self.parts.config.batch_samples() as u64);
        let end = start + chunk.batches() as u64 * step;
        let before = self.last_end.replace(end);
        before.map_or(0, |before| start.saturating_sub(before) / step)
    }
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
