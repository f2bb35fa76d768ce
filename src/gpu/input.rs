//! The receive chunk in the memory of the GPU.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaSlice, DriverError, PinnedHostSlice};

use super::{Gpu, GpuError};
use crate::config::SampleBits;
use crate::engine::InputView;
use crate::units::N_POL;

/// A copy of the current receive chunk on the GPU, made once for all outputs of an engine.
///
/// Views with the same start, length and addresses must have the same contents: chunks of one engine do.
#[derive(Debug)]
pub struct Input {
    gpu: Arc<Gpu>,
    bits: SampleBits,
    current: Mutex<Current>,
}

/// What a chunk is known by.
type Identity = (u64, usize, [usize; N_POL]);

#[derive(Debug)]
pub(super) struct Current {
    of: Option<Identity>,
    staging: [PinnedHostSlice<u32>; N_POL],
    device: [CudaSlice<u32>; N_POL],
}

impl Input {
    /// Room for chunks of up to `samples` samples per polarisation, tail included.
    pub fn new(gpu: Arc<Gpu>, bits: SampleBits, samples: usize) -> Result<Arc<Self>, GpuError> {
        let words = (bits.bytes(samples) + InputView::PADDING).div_ceil(4);
        let staging = || gpu.pinned("receive chunks", words);
        let device = || gpu.zeros("receive chunks", words);
        let current = Current {
            of: None,
            staging: [staging()?, staging()?],
            device: [device()?, device()?],
        };
        Ok(Arc::new(Self {
            current: Mutex::new(current),
            gpu,
            bits,
        }))
    }

    /// The GPU that has it.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Sample width.
    pub(super) fn bits(&self) -> SampleBits {
        self.bits
    }

    /// The chunk of `view`, copied if it is not there yet.
    ///
    /// The copy to the GPU goes on after the return, in order with all else on the stream; `view` is free.
    pub(super) fn upload(
        &self,
        view: &InputView<'_>,
    ) -> Result<MutexGuard<'_, Current>, DriverError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let identity = (
            view.start.0,
            view.samples,
            view.pol.map(|pol| pol.as_ptr() as usize),
        );
        if current.of != Some(identity) {
            current.of = None;
            let bytes = self.bits.bytes(view.samples);
            let Current {
                staging, device, ..
            } = &mut *current;
            for pol in 0..N_POL {
                // Waits for the copy before this one.
                let room = staging[pol].as_mut_slice()?;
                assert!(
                    bytes <= 4 * room.len(),
                    "a receive chunk larger than the engine's"
                );
                // SAFETY: `u32` has no invalid values and any byte may be written; the range is the slice's.
                let room = unsafe {
                    std::slice::from_raw_parts_mut(room.as_mut_ptr().cast::<u8>(), 4 * room.len())
                };
                room[..bytes].copy_from_slice(&view.pol[pol][..bytes]);
                self.gpu
                    .stream
                    .memcpy_htod(&staging[pol], &mut device[pol])?;
            }
            current.of = Some(identity);
        }
        Ok(current)
    }
}

impl Current {
    /// Packed samples of one polarisation.
    pub fn pol(&self, pol: usize) -> &CudaSlice<u32> {
        &self.device[pol]
    }
}
