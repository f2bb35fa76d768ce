//! CUDA backend: the channelisers of engines on one GPU.
//!
//! The driver and NVRTC are opened at run time: the same binary starts where there is neither.
//! Kernels (`kernels/`, whose README has the mathematics) are compiled for the device found and
//! cached on disk. Engines share one [`Gpu`]. Each has [`Streams`] of its own, a [`GpuIntake`],
//! which brings received chunks to where kernels read them, and one [`GpuChanneliser`] per output:
//! copying chunk n + 1 in, computing chunk n and copying chunk n − 1 out go on at once, ordered by
//! events; the CPU waits for none of them.
//!
//! [`KernelChoice`] says which kernels: fused ones, of the first shape that fits or the fastest,
//! or those around cuFFT. What is picked becomes a `Variant`, and compiled a `KernelSet`, which
//! pipelines launch, and which [`measure`] times for the tuner and `karoo bench kernels`.

#![allow(unsafe_code)]

mod bar;
mod cache;
mod channeliser;
mod compile;
mod cufft;
mod ddc;
mod device;
mod energy;
mod form;
mod intake;
mod kernel_set;
mod launch;
pub mod measure;
mod memory;
#[cfg(feature = "nic")]
mod nic;
mod parameters;
mod power;
mod shape;
mod slot;
mod statistics;
mod streams;
mod tune;
mod variant;
mod vulkan;

pub use bar::{BarAllocator, BarError};
pub use channeliser::{GpuChanneliser, OutputChunks};
pub use compile::nvrtc_version;
pub use device::{Gpu, GpuError};
pub use energy::{GpuEnergy, GpuEnergyError};
pub use form::{Fft, KernelChoice, KernelOptions, Tune};
pub use intake::{COPIES, GpuIntake};
pub use memory::{MemoryChoice, PinnedAllocator, read_back};
#[cfg(feature = "nic")]
pub use nic::{Gather, GatherError, GpuPackets};
pub use streams::Streams;

use std::sync::Arc;

use crate::config::{EngineConfig, OutputConfig};
use crate::engine::{Backend, Pipeline};
use crate::memory::{ChunkLayout, MemoryKind};

/// Bytes of a GPU's memory that numbers between the kernels of an output take, at most, for output
/// chunks of so many batches.
pub fn intermediate_bytes(output: &OutputConfig, batches: usize) -> usize {
    let spectra = batches.saturating_mul(output.spectra_per_heap());
    let baseband = output.narrowband.as_ref();
    let baseband = baseband.map_or(0, |_| ddc::ring_bytes(output, spectra));
    kernel_set::most_intermediate_bytes(output, spectra) + baseband
}

/// Everything that computes for an engine of this configuration, whose receive chunks are of `kind`
/// and whose outputs have `chunks` chunks each; `kernels` says which kernels to take.
pub fn backend(
    gpu: Arc<Gpu>,
    engine: &EngineConfig,
    kind: MemoryKind,
    chunks: usize,
    kernels: &KernelChoice,
) -> Result<Backend, GpuError> {
    let streams = Streams::new(gpu)?;
    let layout = ChunkLayout::new(&engine.recv, engine.tail_samples());
    let pipeline = |(i, output): (usize, &OutputConfig)| -> Result<Box<dyn Pipeline>, GpuError> {
        let chunks = OutputChunks {
            batches: engine.send.chunk_jones / output.jones_per_batch,
            count: chunks,
        };
        let config = engine.pipeline(output);
        let mut pipeline = GpuChanneliser::new(streams.clone(), &config, chunks, kernels)?;
        // The engine takes it from its first output.
        if i == 0 {
            pipeline.count_power(output, config.sample_bits)?;
        }
        Ok(Box::new(pipeline))
    };
    Ok(Backend {
        intake: Box::new(GpuIntake::new(streams.clone(), &layout, kind)?),
        pipelines: engine
            .outputs
            .iter()
            .enumerate()
            .map(pipeline)
            .collect::<Result<_, _>>()?,
    })
}
