//! Whole arrays of samples, channelised at once: for files and notebooks, not for streams.

use std::error::Error;
use std::sync::Arc;

use dsp::unpack::pack;
use ground::{N_POL, Timestamp};

use super::{CpuChanneliser, Workers};
use crate::config::PipelineConfig;
use crate::engine::{Block, FineDelay, OutputChunk, Pipeline};
use crate::memory::{HostAllocator, OutputMemory, SampleView};

/// Channelises `samples` of two polarisations, the first of them at timestamp 0, without delays.
///
/// Returns as many whole batches as the samples allow. A batch is (channel, spectrum, polarisation,
/// re/im) of `i8`, or of nibbles for outputs of 4 bits ([`OutputMemory::batch`]). Samples beyond
/// `config.sample_bits` are cut off.
///
/// # Errors
///
/// If there are too few samples for one batch, or not enough memory.
pub fn channelise(
    config: &PipelineConfig<'_>,
    samples: [&[i32]; N_POL],
    workers: Workers,
) -> Result<OutputChunk, Box<dyn Error + Send + Sync>> {
    let output = config.output;
    let count = samples[0].len().min(samples[1].len());
    let needed = output.window_samples();
    let spectra = match count.checked_sub(needed) {
        Some(rest) => rest / output.spectrum_samples() + 1,
        None => 0,
    };
    let batches = spectra / output.spectra_per_heap();
    if batches == 0 {
        let batch = needed + (output.spectra_per_heap() - 1) * output.spectrum_samples();
        return Err(format!("a batch needs {batch} samples, and there are {count}").into());
    }
    let packed = samples.map(|samples| {
        let mut packed = pack(samples[..count].iter().copied(), config.sample_bits);
        packed.resize(packed.len() + SampleView::PADDING, 0);
        packed
    });
    let input = SampleView {
        start: Timestamp(0),
        samples: count,
        pol: packed.each_ref().map(|packed| &packed[..]),
        device: None,
    };
    let memory = OutputMemory::new(batches, output.batch_bytes(), &HostAllocator::default())?;
    let mut chunk = OutputChunk::lone(memory);
    let mut pipeline = CpuChanneliser::new(config, Arc::new(workers));
    let block = Block {
        first: 0,
        offset: [0; N_POL],
        fine: &vec![FineDelay::default(); batches * output.spectra_per_heap()],
        absent: &[],
    };
    pipeline.run_frontend(&input, &block, &mut chunk.writer().span())?;
    pipeline.finish_chunk(batches, chunk)?;
    let finished = pipeline.poll_finished()?;
    finished.ok_or_else(|| "the pipeline kept its chunk".into())
}
