//! NVIDIA's own transform, from the library of the machine that it runs on.

use std::ffi::c_int;
use std::sync::Arc;

use cudarc::cufft::result::{self, CufftError};
use cudarc::cufft::sys;
use cudarc::driver::sys::{CUdeviceptr, CUresult};
use cudarc::driver::{CudaContext, CudaStream, DriverError};

use super::{Gpu, GpuError};

/// Complex to complex, forwards, single precision.
const FORWARD: c_int = -1;

/// A plan for transforms of one length and number.
#[derive(Debug)]
pub(super) struct Transform {
    plan: sys::cufftHandle,
    context: Arc<CudaContext>,
}

impl Transform {
    /// A plan for `count` transforms of `points` points, one behind the other.
    pub fn new(gpu: &Gpu, points: usize, count: usize) -> Result<Self, GpuError> {
        // SAFETY: loading a library runs its initialisers; cuFFT's are harmless.
        if !unsafe { sys::is_culib_present() } {
            return Err(GpuError::NoFft);
        }
        let context = gpu.context.clone();
        context
            .bind_to_thread()
            .map_err(|source| GpuError::Driver {
                what: "use the device",
                source,
            })?;
        let plan = result::plan_1d(points as c_int, sys::cufftType::CUFFT_C2C, count as c_int)
            .map_err(|error| GpuError::Fft {
                points,
                count,
                error: error.to_string(),
            })?;
        Ok(Self { plan, context })
    }

    /// Transforms in place; `stream` has it behind all that it had before.
    ///
    /// # Safety
    ///
    /// `data` is as long as the plan says, lives until the stream has passed the launch, and is not
    /// touched elsewhere meanwhile. No other stream uses the plan at the same time.
    pub unsafe fn launch(&self, stream: &CudaStream, data: CUdeviceptr) -> Result<(), DriverError> {
        self.context.bind_to_thread()?;
        let data = data as *mut sys::cufftComplex;
        // SAFETY: the plan is valid until it is dropped, the driver's streams are the runtime's,
        // and the caller vouches for the data.
        unsafe {
            result::set_stream(self.plan, stream.cu_stream().cast())
                .and_then(|()| result::exec_c2c(self.plan, data, data, FORWARD))
        }
        .map_err(|error: CufftError| {
            tracing::error!(%error, "cuFFT failed");
            DriverError(CUresult::CUDA_ERROR_LAUNCH_FAILED)
        })
    }
}

impl Drop for Transform {
    fn drop(&mut self) {
        // A context that is lost takes its plans with it.
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: the plan was made in `new` and is destroyed only here.
            let _ = unsafe { result::destroy(self.plan) };
        }
    }
}
