//! The digitiser's power where no wideband output counts it.

use std::ops::Range;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaFunction, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use dsp::SampleBits;
use ground::N_POL;

use super::compile::POWER;
use super::parameters::SampleInput;
use super::{Gpu, GpuError};
use crate::config::OutputConfig;

/// Threads of a block, as the kernel has it.
const THREADS: usize = 256;
/// Blocks of one spectrum, at most: a launch has many spectra.
const BLOCKS: usize = 32;

/// The kernel, for one output.
#[derive(Debug)]
pub(super) struct Power {
    function: CudaFunction,
    spectrum_samples: usize,
    /// From the begin of a window to its last tap.
    last_tap: usize,
}

impl Power {
    /// For the spectra of `output`.
    pub fn new(gpu: &Gpu, output: &OutputConfig, bits: SampleBits) -> Result<Self, GpuError> {
        let spectrum_samples = output.spectrum_samples();
        let macros = [
            ("BITS", u64::from(bits.get())),
            ("SPECTRUM_SAMPLES", spectrum_samples as u64),
            ("SPECTRA_PER_HEAP", output.spectra_per_heap() as u64),
        ];
        Ok(Self {
            function: gpu.function(POWER, &macros, 0)?,
            spectrum_samples,
            last_tap: output.last_tap(),
        })
    }

    /// Adds the power of `spectra` of an output chunk to the counters of their batches; `stream`
    /// has it behind all that it had before. The first window begins `offset` samples into `input`.
    ///
    /// # Safety
    ///
    /// As for [`KernelSet::front`](super::kernel_set::KernelSet::front), of wideband.
    pub unsafe fn add(
        &self,
        stream: &CudaStream,
        input: &SampleInput,
        offset: [usize; N_POL],
        spectra: Range<usize>,
        counters: CUdeviceptr,
    ) -> Result<(), DriverError> {
        let offset = offset.map(|offset| (offset + self.last_tap) as u64);
        let first = spectra.start as i32;
        let mut launch = stream.launch_builder(&self.function);
        launch
            .arg(&input.addresses[0])
            .arg(&input.addresses[1])
            .arg(&offset[0])
            .arg(&offset[1])
            .arg(&counters)
            .arg(&first);
        let blocks = self.spectrum_samples.div_ceil(2 * THREADS).min(BLOCKS);
        let config = LaunchConfig {
            // There may be more spectra than the other two dimensions allow.
            grid_dim: (spectra.len() as u32, blocks as u32, N_POL as u32),
            block_dim: (THREADS as u32, 1, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: the arguments are those of power, and the caller vouches for what they point to.
        unsafe { launch.launch(config) }.map(drop)
    }
}
