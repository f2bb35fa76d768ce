//! What an output chunk needs on its way over a GPU.

use cudarc::driver::{CudaEvent, CudaSlice, PinnedHostSlice};

use super::parameters::{COUNTERS, Float4};
use super::streams::Streams;
use super::{Gpu, GpuError};
use crate::config::OutputConfig;

/// What an output chunk needs on its way, on the GPU and in the host's memory. Nothing on the GPU
/// uses it between `done` and the next chunk's begin.
#[derive(Debug)]
pub(super) struct Slot {
    pub out: CudaSlice<u8>,
    pub counters: CudaSlice<u64>,
    pub gains: CudaSlice<Float4>,
    pub fine: CudaSlice<Float4>,
    /// The version that `gains` are of; 0 before the first.
    pub gains_version: u64,
    pub host_counters: PinnedHostSlice<u64>,
    /// Written by the CPU before the launch that copies them.
    pub host_gains: PinnedHostSlice<Float4>,
    pub host_fine: PinnedHostSlice<Float4>,
    /// After the last kernel, and after the last copy.
    pub computed: CudaEvent,
    pub done: CudaEvent,
}

impl Slot {
    pub fn new(streams: &Streams, output: &OutputConfig, batches: usize) -> Result<Self, GpuError> {
        let gpu: &Gpu = streams.gpu();
        let event = || {
            streams.event().map_err(|source| GpuError::Driver {
                what: "make an event",
                source,
            })
        };
        Ok(Self {
            out: gpu.zeros("output chunks", batches * output.batch_bytes())?,
            counters: gpu.zeros("counters", batches * COUNTERS)?,
            gains: gpu.zeros("gains", output.channels)?,
            fine: gpu.zeros("delays", batches * output.spectra_per_heap())?,
            gains_version: 0,
            host_counters: gpu.pinned("counters", batches * COUNTERS)?,
            host_gains: gpu.pinned("gains", output.channels)?,
            host_fine: gpu.pinned("delays", batches * output.spectra_per_heap())?,
            computed: event()?,
            done: event()?,
        })
    }
}
