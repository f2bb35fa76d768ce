//! Energy that a GPU took, as NVIDIA's management library (NVML) counts it.
//!
//! The library comes with the driver and is opened at run time. Functions and constants are those
//! of its reference manual; a device is found by its PCI address.

use std::ffi::{CString, c_char, c_int, c_ulonglong, c_void};

use libloading::Library;

/// As the manual has it: 0 is success.
type NvmlReturn = c_int;
type NvmlDevice = *mut c_void;
type TotalEnergy = unsafe extern "C" fn(NvmlDevice, *mut c_ulonglong) -> NvmlReturn;

const LIBRARIES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

/// Why a GPU's energy is not known.
#[derive(Debug, thiserror::Error)]
pub enum GpuEnergyError {
    /// No library.
    #[error("no NVML: {0}; it comes with NVIDIA's driver")]
    NoLibrary(#[from] libloading::Error),
    /// The address is none.
    #[error("{0:?} is no PCI address")]
    Address(String),
    /// NVML refuses.
    #[error("NVML cannot {what}: error {code}")]
    Nvml {
        /// What was tried.
        what: &'static str,
        /// Code of the error.
        code: i32,
    },
}

/// The energy counter of one GPU.
pub struct GpuEnergy {
    device: NvmlDevice,
    total: TotalEnergy,
    shutdown: unsafe extern "C" fn() -> NvmlReturn,
    /// Has the functions.
    _library: Library,
}

// SAFETY: NVML may be called from any thread, and its handles are not a thread's.
unsafe impl Send for GpuEnergy {}
// SAFETY: as above.
unsafe impl Sync for GpuEnergy {}

impl std::fmt::Debug for GpuEnergy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GpuEnergy").finish_non_exhaustive()
    }
}

impl GpuEnergy {
    /// Finds the counter of the GPU at a PCI address such as `0000:41:00.0`. GPUs before Volta have
    /// none.
    pub fn open(address: &str) -> Result<Self, GpuEnergyError> {
        let address = CString::new(address).map_err(|_| GpuEnergyError::Address(address.into()))?;
        let done = |what, code: NvmlReturn| match code {
            0 => Ok(()),
            code => Err(GpuEnergyError::Nvml { what, code }),
        };
        // SAFETY: loading runs the library's initialisers, which are harmless; the types are those
        // of the manual, and the functions are used no longer than the library is kept.
        unsafe {
            let library = Library::new(LIBRARIES[0]).or_else(|_| Library::new(LIBRARIES[1]))?;
            let init: unsafe extern "C" fn() -> NvmlReturn = *library.get(b"nvmlInit_v2\0")?;
            let find: unsafe extern "C" fn(*const c_char, *mut NvmlDevice) -> NvmlReturn =
                *library.get(b"nvmlDeviceGetHandleByPciBusId_v2\0")?;
            let total: TotalEnergy = *library.get(b"nvmlDeviceGetTotalEnergyConsumption\0")?;
            let shutdown: unsafe extern "C" fn() -> NvmlReturn = *library.get(b"nvmlShutdown\0")?;
            done("start", init())?;
            let mut energy = Self {
                device: std::ptr::null_mut(),
                total,
                shutdown,
                _library: library,
            };
            done(
                "find the GPU",
                find(address.as_ptr(), &raw mut energy.device),
            )?;
            energy.read().map(|_| energy)
        }
    }

    /// Joules since the driver was loaded, of the whole card.
    pub fn joules(&self) -> Option<f64> {
        self.read().ok()
    }

    fn read(&self) -> Result<f64, GpuEnergyError> {
        let mut millijoules: c_ulonglong = 0;
        // SAFETY: the device is NVML's, which is started; it writes one integer.
        match unsafe { (self.total)(self.device, &raw mut millijoules) } {
            0 => Ok(millijoules as f64 * 1e-3),
            code => Err(GpuEnergyError::Nvml {
                what: "tell the GPU's energy",
                code,
            }),
        }
    }
}

impl Drop for GpuEnergy {
    fn drop(&mut self) {
        // SAFETY: it was started, as often as it is shut down.
        let _ = unsafe { (self.shutdown)() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_is_not_there_is_refused() {
        assert!(GpuEnergy::open("ffff:00:00.0").is_err());
        let refused = GpuEnergy::open("0000\0").unwrap_err();
        assert!(matches!(refused, GpuEnergyError::Address(_)), "{refused}");
    }
}
