//! A GPU that fails in the middle of a run. It fails for the whole process, so this test has one of
//! its own. Without a CUDA device, it says so and passes.

mod support;

use dsp::{Dither, SampleBits};
use ground::Timestamp;
use karoo::config::PipelineConfig;
use karoo::engine::{Block, FineDelay, Pipeline};
use karoo::gpu::{GpuChanneliser, KernelChoice, OutputChunks, Streams};
use karoo::memory::{DeviceSamples, SampleView};
use support::{device, output, output_chunk};

/// Samples at an address that is nobody's: the kernel faults, and the context with it, as when the
/// device falls off its bus.
#[test]
fn a_fault_is_reported_with_a_way_out() {
    let Some(gpu) = device() else { return };
    let config = output(1024, 4, 32, Dither::None);
    let streams = Streams::new(gpu).unwrap();
    let (batches, count) = (1, 2);
    let chunks = OutputChunks { batches, count };
    let (bits, kernels) = (SampleBits::new(10).unwrap(), KernelChoice::default());
    let config = PipelineConfig {
        output: &config,
        sample_bits: bits,
        feng_id: 0,
        gain: 1.0,
        statistics: false,
    };
    let mut pipeline = GpuChanneliser::new(streams, &config, chunks, &kernels).unwrap();
    let view = SampleView {
        start: Timestamp(0),
        samples: 1 << 20,
        pol: [&[]; 2],
        // SAFETY: none, for this is what the test is about. The GPU keeps its faults from this
        // process's memory.
        device: Some(unsafe { DeviceSamples::new([1 << 12; 2], 10 << 17) }),
    };
    let mut chunk = output_chunk(config.output, 1, Timestamp(0));
    let block = Block {
        first: 0,
        offset: [0; 2],
        fine: &[FineDelay::default(); 32],
        absent: &[],
    };
    let issued = pipeline
        .run_frontend(&view, &block, &mut chunk.writer().span())
        .and_then(|()| pipeline.finish_chunk(1, chunk));
    let error = match issued {
        Err(error) => error,
        Ok(()) => loop {
            match pipeline.poll_finished() {
                Ok(Some(_)) => panic!("a chunk that was never computed is complete"),
                Ok(None) => std::thread::yield_now(),
                Err(error) => break error,
            }
        },
    };
    let cause = std::error::Error::source(&error)
        .expect("a cause")
        .to_string();
    let error = error.to_string();
    println!("{error}: {cause}");
    assert!(error.contains("on the GPU") && error.contains("--backend cpu"));
    assert!(cause.contains("ILLEGAL_ADDRESS"), "{cause}");
    assert!(pipeline.poll_finished().is_err(), "it does not recover");
}
