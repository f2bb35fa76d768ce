//! What an engine asks of a backend: one [`Intake`] for all its outputs, and one [`Pipeline`] per
//! output.
//!
//! Work is issued, not done: a backend may return before it has touched anything. What it works on
//! it owns: received chunks go in by [`Intake::load`] and come back by [`Intake::poll_released`],
//! output chunks go in by [`Pipeline::finish_chunk`] and come back complete by
//! [`Pipeline::poll_finished`].

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ground::stats::ThreadReport;
use ground::{N_POL, Timestamp};

use super::steer::Gains;
use super::{OutputChunk, PeriodSums};
use crate::memory::{FrozenChunk, OutputSpan, SampleView};

/// Residual delay and phase of one spectrum.
///
/// Output channel c is multiplied by e^{i(`phase` − π·(`delay`/C)·(c − C/2))} and its gain,
/// wideband and narrowband alike.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FineDelay {
    /// Residual delay per polarisation, in units of D ADC samples ([`OutputConfig::decimation`]).
    ///
    /// [`OutputConfig::decimation`]: crate::config::OutputConfig::decimation
    pub delay: [f32; N_POL],
    /// Phase at the band centre per polarisation, in radians; for wideband, coarse-delay correction
    /// included.
    pub phase: [f32; N_POL],
}

/// Consecutive spectra of one output chunk over which both coarse delays are constant.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// Index in the output chunk of the first spectrum.
    pub first: usize,
    /// Per polarisation, index in the input of the first ADC sample of the first spectrum's window.
    /// The windows of later spectra follow in steps of [`OutputConfig::spectrum_samples`], and each
    /// is [`OutputConfig::window_samples`] long.
    ///
    /// For narrowband, both this and the timestamp of the input's sample 0 are multiples of the
    /// subsampling ([`OutputConfig::subsampling`]), and the timestamp of the sample, the sum of
    /// both, is what the mixer's phase is that of.
    ///
    /// [`OutputConfig::spectrum_samples`]: crate::config::OutputConfig::spectrum_samples
    /// [`OutputConfig::window_samples`]: crate::config::OutputConfig::window_samples
    /// [`OutputConfig::subsampling`]: crate::config::OutputConfig::subsampling
    pub offset: [usize; N_POL],
    /// One per spectrum; the block has `fine.len()` spectra.
    pub fine: &'a [FineDelay],
    /// Spectra of the block, from 0, in order, whose windows lack input: statistics leave these
    /// out. What else comes of them is of no meaning, for their batches are not sent.
    pub absent: &'a [usize],
}

impl Block<'_> {
    /// Whether the window of this spectrum of the block lacks input.
    pub fn lacks_input(&self, spectrum: usize) -> bool {
        self.absent.binary_search(&spectrum).is_ok()
    }
}

/// A backend failed in the middle of a run; nothing that it had under way is to be sent.
#[derive(Debug, thiserror::Error)]
#[error("{stage} failed, and nothing is sent from there on ({way_out})")]
pub struct PipelineError {
    stage: &'static str,
    way_out: &'static str,
    source: Box<dyn Error + Send + Sync>,
}

impl PipelineError {
    /// `source` happened in `stage`; `way_out` tells the user what to do.
    pub fn new(
        stage: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
        way_out: &'static str,
    ) -> Self {
        Self {
            stage,
            way_out,
            source: source.into(),
        }
    }
}

/// Received chunks on their way to the pipelines of an engine, and back.
pub trait Intake: Send {
    /// Takes over a chunk and starts to bring it to where the pipelines read it.
    ///
    /// If it `follows` directly on the chunk before it, its head becomes that one's tail.
    fn load(&mut self, chunk: FrozenChunk, follows: bool) -> Result<(), PipelineError>;

    /// The oldest chunk that is not released, as the pipelines read it: `samples` usable samples
    /// from timestamp `start`. `None` if there is no chunk.
    fn view(
        &mut self,
        start: Timestamp,
        samples: usize,
    ) -> Result<Option<SampleView<'_>>, PipelineError>;

    /// All work on the oldest chunk has been issued to the pipelines.
    fn release(&mut self) -> Result<(), PipelineError>;

    /// A chunk that nothing reads any more, if there is one.
    fn poll_released(&mut self) -> Result<Option<FrozenChunk>, PipelineError>;

    /// Nanoseconds so far that a device copied, and their name; anyone may read them at any time.
    fn busy(&self) -> Option<(String, Arc<AtomicU64>)> {
        None
    }

    /// Where the time of what copies went since the start, if a device copies.
    fn thread_reports(&self) -> Vec<ThreadReport> {
        Vec::new()
    }
}

/// What computes for one engine.
pub struct Backend {
    /// Where input goes in.
    pub intake: Box<dyn Intake>,
    /// One per output, in the order of the configuration.
    pub pipelines: Vec<Box<dyn Pipeline>>,
}

impl Backend {
    /// Nanoseconds so far that devices were busy for it, by what they did; anyone may read them at
    /// any time.
    pub fn busy(&self) -> Vec<(String, Arc<AtomicU64>)> {
        let pipelines = self.pipelines.iter().filter_map(|pipeline| pipeline.busy());
        self.intake.busy().into_iter().chain(pipelines).collect()
    }
}

/// One output stream's computation on some backend.
///
/// What it computes is [`Model`](crate::model::Model), from what
/// [`OutputConfig`](crate::config::OutputConfig) says:
///
/// | | wideband | narrowband |
/// |---|---|---|
/// | PFB input u | the samples | of [`dsp::ddc`]: one number every `subsampling()` samples |
/// | transform | real, 2C | complex, `pfb_step()`: 2C or C |
/// | channel c is element | c | `bin(c)` = (c − C/2) mod `pfb_step()` |
/// | quantised to | `sample_bits` | `sample_bits` |
///
/// Dither is that of the spectrum's timestamp and output channel c in both.
///
/// The engine calls [`run_frontend`](Self::run_frontend) with blocks in order, without gaps in the
/// output chunk's spectra, then [`finish_chunk`](Self::finish_chunk) once per chunk; after that the
/// next block starts at spectrum 0. An error ends the run: the pipeline is not called again.
pub trait Pipeline: Send {
    /// What computes, for reports: backend and instruction set or device.
    fn name(&self) -> String;

    /// Sets the gains of one polarisation, from the next output chunk on; what it had is exchanged
    /// for them, so that nothing is copied or freed here.
    fn set_gains(&mut self, pol: usize, gains: &mut Gains);

    /// Front end over one block; the back end may run ahead on spectra that are complete.
    fn run_frontend(
        &mut self,
        input: &SampleView<'_>,
        block: &Block<'_>,
        chunk: &mut OutputSpan<'_>,
    ) -> Result<(), PipelineError>;

    /// Finishes the first `batches` batches of the chunk, which the blocks before were for;
    /// spectra beyond them are discarded.
    fn finish_chunk(&mut self, batches: usize, chunk: OutputChunk) -> Result<(), PipelineError>;

    /// The next complete chunk, in the order in which they went in, if it is there.
    fn poll_finished(&mut self) -> Result<Option<OutputChunk>, PipelineError>;

    /// Ends a period of statistics behind the last chunk that was finished: sums of all that came
    /// since the period before are on their way. Returns whether they are: the pipeline's
    /// configuration says whether it takes statistics.
    fn end_period(&mut self) -> Result<bool, PipelineError> {
        Ok(false)
    }

    /// The sums of the next period that ended, in the order in which they ended, if they are there.
    fn poll_sums(&mut self) -> Result<Option<PeriodSums>, PipelineError> {
        Ok(None)
    }

    /// Nanoseconds so far that a device computed, and their name; anyone may read them at any time.
    fn busy(&self) -> Option<(String, Arc<AtomicU64>)> {
        None
    }

    /// Where the time of each worker thread, or of the device's stream, went since the start.
    fn thread_reports(&self) -> Vec<ThreadReport>;
}
