//! Mean powers of channels, without delays and gains: levels before there is an engine.

use std::error::Error;
use std::sync::Arc;

use dsp::Dither;

use super::{CpuChanneliser, Workers};
use crate::config::{OutputConfig, PipelineConfig};
use crate::engine::{Block, FineDelay, PeriodSums, Pipeline};
use crate::memory::{HostAllocator, OutputMemory, SampleView};

/// Spectra that are computed at once, at most: a power of two.
const MOST_SPECTRA: usize = 32;

/// Adds up the powers of an output's channels. One worker does it, so that the sums are the same to
/// the last bit each time.
pub struct PowerMeter {
    output: OutputConfig,
    pipeline: CpuChanneliser,
    memory: OutputMemory,
    /// Spectra that are computed at once.
    at_once: usize,
}

/// Spectra of successive samples.
#[derive(Clone, Copy, Debug)]
pub struct SpectraRun<'a> {
    /// How many there are: the first window begins with the first sample.
    pub spectra: usize,
    /// Those, from 0, in order, whose windows lack input: they do not count.
    pub absent: &'a [usize],
}

impl PowerMeter {
    /// A meter of the output that `config` is about, for runs of so many spectra or more.
    ///
    /// # Errors
    ///
    /// If there is not enough memory, or no thread.
    pub fn new(
        config: &PipelineConfig<'_>,
        spectra: usize,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let at_once = 1 << spectra.clamp(1, MOST_SPECTRA).ilog2();
        let output = OutputConfig {
            jones_per_batch: config.output.channels * at_once,
            dither: Dither::None,
            ..config.output.clone()
        };
        let config = PipelineConfig {
            output: &output,
            gain: 1.0,
            statistics: true,
            ..*config
        };
        let workers = Arc::new(Workers::unpinned(1)?);
        let pipeline = CpuChanneliser::new(&config, workers).summing_all();
        let memory = OutputMemory::new(1, output.batch_bytes(), &HostAllocator::default())?;
        Ok(Self {
            pipeline,
            memory,
            output,
            at_once,
        })
    }

    /// Adds spectra of `input`, whose first sample is on the grid of the output's subsampling.
    /// Those behind the last that are computed at once, up to 32, are left out. Returns how many
    /// count.
    ///
    /// # Errors
    ///
    /// None that is known of: a pipeline may have some.
    pub fn add(
        &mut self,
        input: &SampleView<'_>,
        run: SpectraRun<'_>,
    ) -> Result<usize, Box<dyn Error + Send + Sync>> {
        let mut counted = 0;
        let (at_once, step) = (self.at_once, self.output.spectrum_samples());
        let fine = vec![FineDelay::default(); at_once];
        for number in 0..run.spectra / at_once {
            let first = number * at_once;
            let before = |end: usize| run.absent.partition_point(|&at| at < end);
            let absent = &run.absent[before(first)..before(first + at_once)];
            let absent: Vec<_> = absent.iter().map(|at| at - first).collect();
            if absent.len() == at_once {
                continue;
            }
            let block = Block {
                first: 0,
                offset: [first * step; 2],
                fine: &fine,
                absent: &absent,
            };
            self.pipeline
                .run_frontend(input, &block, &mut self.memory.span())?;
            counted += at_once - absent.len();
        }
        Ok(counted)
    }

    /// The sums since they were last taken, in squared counts of the output.
    ///
    /// # Errors
    ///
    /// None that is known of: a pipeline may have some.
    pub fn take(&mut self) -> Result<PeriodSums, Box<dyn Error + Send + Sync>> {
        self.pipeline.end_period()?;
        let sums = self.pipeline.poll_sums()?;
        sums.ok_or_else(|| "the pipeline kept its sums".into())
    }
}
