//! One GPU: context, stream, functions.

use std::ffi::CStr;
use std::path::Path;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdevice_attribute, CUdeviceptr, CUfunction_attribute};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DeviceRepr, DriverError,
    PinnedHostSlice, ValidAsZeroBits, result,
};
use cudarc::nvrtc::Ptx;

use super::cache::Cache;
use super::compile::{self, Source};

/// Why the GPU cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// libcuda is not there.
    #[error("no CUDA driver: libcuda.so.1 is not on this machine; install NVIDIA's driver")]
    NoDriver,
    /// The driver lacks functions that Karoo calls.
    #[error(
        "the CUDA driver is for CUDA {}; Karoo needs one for {} or later (NVIDIA's 570 or later): update it",
        version(*.has), version(OLDEST_DRIVER)
    )]
    OldDriver {
        /// The CUDA version that it is for, as CUDA writes it: 12020 is 12.2.
        has: i32,
    },
    /// The driver has no device, or cannot reach it.
    #[error("no CUDA device: {0}; check nvidia-smi")]
    NoDevice(String),
    /// CUDA does not show the device.
    #[error(
        "no CUDA device at PCI address {address}: CUDA sees {known}; check CUDA_VISIBLE_DEVICES and what this process may open"
    )]
    Unseen {
        /// As asked for.
        address: String,
        /// Addresses of those that there are.
        known: String,
    },
    /// The device is too old for the kernels.
    #[error(
        "{name} has compute capability {major}.{minor}; the kernels need 7.5 or later: use another GPU"
    )]
    TooOld {
        /// The device.
        name: String,
        /// Major version of the device's compute capability.
        major: i32,
        /// And the part behind the dot.
        minor: i32,
    },
    /// NVRTC is not there, and the kernels are not in the cache.
    #[error(
        "no CUDA compiler: libnvrtc is not on this machine and the kernels were never compiled here; install CUDA's NVRTC library (or give its folder in LD_LIBRARY_PATH)"
    )]
    NoCompiler,
    /// NVRTC refuses a kernel.
    #[error("kernel {kernel} does not compile for this device: {log}")]
    Compile {
        /// Name of the kernel.
        kernel: &'static str,
        /// What NVRTC says.
        log: String,
    },
    /// cuFFT is not there.
    #[error(
        "no cuFFT: libcufft is not on this machine; install CUDA's cuFFT library (or give its folder in LD_LIBRARY_PATH), or leave out --fft cufft where the fused kernels have the channels"
    )]
    NoFft,
    /// cuFFT refuses a transform.
    #[error(
        "cuFFT cannot plan {count} transforms of {points} points: {error}; free memory of the GPU, lower --send-chunk-jones, leave out --fft cufft if it was given, or take --backend cpu"
    )]
    Fft {
        /// Points of one transform.
        points: usize,
        /// Transforms.
        count: usize,
        /// What the library says.
        error: String,
    },
    /// No such shape of the kernels.
    #[error(
        "--tune {shape}: no such kernels for {channels} channels on this device; there are {known}; try --tune auto"
    )]
    Shape {
        /// What was asked for.
        shape: String,
        /// Channels asked for.
        channels: usize,
        /// What there is.
        known: String,
    },
    /// The down-conversion's samples do not fit.
    #[error(
        "decimating by {subsampling} with {taps} taps takes {needs} bytes of shared memory per block, and this device has {has}: lower decimation or ddc_taps"
    )]
    Subsampling {
        /// Samples per number that it makes.
        subsampling: usize,
        /// Taps.
        taps: usize,
        /// Bytes.
        needs: usize,
        /// Bytes.
        has: usize,
    },
    /// Not enough memory, before anything was allocated.
    #[error(
        "{what} take {} MiB of the GPU's memory, of which {} of {} MiB are free: lower {option}",
        .bytes.div_ceil(1 << 20), .free >> 20, .total >> 20
    )]
    Room {
        /// For what.
        what: &'static str,
        /// How much.
        bytes: usize,
        /// What there is.
        free: usize,
        /// What the device has.
        total: usize,
        /// The option that it follows from.
        option: &'static str,
    },
    /// Not enough memory.
    #[error(
        "cannot allocate {bytes} bytes of {kind} memory for {what}: {source}; lower the chunk sizes"
    )]
    Memory {
        /// For what.
        what: &'static str,
        /// How much.
        bytes: usize,
        /// Of the GPU, or pinned in the host.
        kind: &'static str,
        /// What the driver says.
        source: DriverError,
    },
    /// Anything else.
    #[error("CUDA: cannot {what}: {source}")]
    Driver {
        /// What was tried.
        what: &'static str,
        /// What the driver says.
        source: DriverError,
    },
}

/// Oldest compute capability that the kernels are compiled for.
const OLDEST: (i32, i32) = (7, 5);

/// CUDA version of the oldest driver that has all functions which cudarc calls here: it panics
/// where one is missing.
const OLDEST_DRIVER: i32 = 12080;

/// A CUDA version as people write it.
fn version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

fn check_driver() -> Result<(), GpuError> {
    // SAFETY: loading a library runs its initialisers; the driver's are harmless.
    if !unsafe { sys::is_culib_present() } {
        return Err(GpuError::NoDriver);
    }
    check_version(driver_version())
}

fn check_version(has: i32) -> Result<(), GpuError> {
    match has {
        OLDEST_DRIVER.. => Ok(()),
        _ => Err(GpuError::OldDriver { has }),
    }
}

/// The CUDA version that the driver, which is loaded, is for.
fn driver_version() -> i32 {
    let mut version = 0;
    // SAFETY: the driver is loaded, and writes one integer.
    let _ = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    version
}

/// PCI address of a device, by CUDA's number for it, as sysfs writes it; empty if CUDA does not
/// tell.
fn pci_address(number: usize) -> String {
    let mut text = [0u8; 16];
    // SAFETY: the driver is loaded, and writes at most so many bytes, with a NUL at the end.
    let told = result::device::get(number as i32).and_then(|device| unsafe {
        sys::cuDeviceGetPCIBusId(text.as_mut_ptr().cast(), text.len() as i32, device).result()
    });
    let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
    told.map_or(String::new(), |()| {
        text.to_string_lossy().to_ascii_lowercase()
    })
}

/// A GPU. Engines share it, each with its own [`Streams`](super::Streams).
#[derive(Debug)]
pub struct Gpu {
    name: String,
    address: String,
    architecture: i32,
    shared: usize,
    multiprocessors: usize,
    cache: Cache,
    pub(super) context: Arc<CudaContext>,
    /// For what is done before engines start.
    pub(super) stream: Arc<CudaStream>,
}

impl Gpu {
    /// Opens the first CUDA device.
    pub fn open() -> Result<Arc<Self>, GpuError> {
        check_driver()?;
        Self::open_number(0, Cache::of_user())
    }

    /// Opens the first CUDA device, with a cache of kernels and of the tuner's choices in `folder`,
    /// which need not exist.
    pub fn open_caching_in(folder: &Path) -> Result<Arc<Self>, GpuError> {
        check_driver()?;
        Self::open_number(0, Cache::at(folder.to_owned()))
    }

    /// Opens the CUDA device at a PCI address such as `0000:41:00.0`.
    pub fn open_at(address: &str) -> Result<Arc<Self>, GpuError> {
        check_driver()?;
        let count = CudaContext::device_count()
            .map_err(|error| GpuError::NoDevice(error.to_string()))?
            .cast_unsigned() as usize;
        let mut known: Vec<_> = (0..count).map(pci_address).collect();
        match known.iter().position(|known| known == address) {
            Some(number) => Self::open_number(number, Cache::of_user()),
            None => {
                if known.is_empty() {
                    known.push("none".to_owned());
                }
                Err(GpuError::Unseen {
                    address: address.to_owned(),
                    known: known.join(", "),
                })
            }
        }
    }

    fn open_number(number: usize, cache: Cache) -> Result<Arc<Self>, GpuError> {
        let context =
            CudaContext::new(number).map_err(|error| GpuError::NoDevice(error.to_string()))?;
        let wrap = |what| move |source| GpuError::Driver { what, source };
        let attribute = |attribute| {
            context
                .attribute(attribute)
                .map_err(wrap("read the device's attributes"))
        };
        let shared =
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let multiprocessors =
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let (major, minor) = context
            .compute_capability()
            .map_err(wrap("read the device's version"))?;
        let name = context.name().map_err(wrap("read the device's name"))?;
        if (major, minor) < OLDEST {
            return Err(GpuError::TooOld { name, major, minor });
        }
        // SAFETY: whoever uses memory on several streams orders that by events and waits for all of
        // them before the memory is freed; `zeros` waits until memory is there.
        unsafe { context.disable_event_tracking() };
        Ok(Arc::new(Self {
            name,
            address: pci_address(number),
            architecture: 10 * major + minor,
            shared: usize::try_from(shared).unwrap_or(0),
            multiprocessors: usize::try_from(multiprocessors).unwrap_or(1),
            cache,
            stream: context.new_stream().map_err(wrap("make a stream"))?,
            context,
        }))
    }

    /// The device's name and architecture.
    pub fn name(&self) -> String {
        format!("{}, sm_{}", self.name, self.architecture)
    }

    /// Its PCI address, such as `0000:41:00.0`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// 90: sm_90.
    pub(super) fn architecture(&self) -> i32 {
        self.architecture
    }

    /// What kernels are compiled for: for this device alone, so that all of its instructions may be
    /// used.
    fn target(&self) -> String {
        let only = if self.architecture == 90 { "a" } else { "" };
        format!("sm_{}{only}", self.architecture)
    }

    /// The driver's version, as its kernel module has it; the CUDA version that it is for where
    /// there is none.
    pub fn driver(&self) -> String {
        let module = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
        let is_version = |word: &&str| {
            word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.')
        };
        if let Some(version) = module.split_whitespace().find(is_version) {
            return version.to_owned();
        }
        format!("CUDA {}", version(driver_version()))
    }

    /// Refuses what does not fit the memory that is free now; `option` would lower it.
    pub(super) fn check_room(
        &self,
        what: &'static str,
        bytes: usize,
        option: &'static str,
    ) -> Result<(), GpuError> {
        let (free, total) = self
            .context
            .mem_get_info()
            .map_err(|source| GpuError::Driver {
                what: "ask for free memory",
                source,
            })?;
        tracing::info!(what, bytes, free, "GPU memory");
        if bytes > free {
            return Err(GpuError::Room {
                what,
                bytes,
                free,
                total,
                option,
            });
        }
        Ok(())
    }

    /// What it took long to find out about it.
    pub(super) fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Multiprocessors of the GPU.
    pub(super) fn multiprocessors(&self) -> usize {
        self.multiprocessors
    }

    /// Bytes of shared memory that a block may have.
    pub(super) fn shared(&self) -> usize {
        self.shared
    }

    /// Compiles and loads `kernel`, and allows it `shared` bytes.
    pub(super) fn function(
        &self,
        kernel: Source,
        macros: &[(&str, u64)],
        shared: usize,
    ) -> Result<CudaFunction, GpuError> {
        let mut options = vec![
            format!("--gpu-architecture={}", self.target()),
            "--std=c++17".to_owned(),
        ];
        options.extend(
            macros
                .iter()
                .map(|(name, value)| format!("-D{name}={value}")),
        );
        let code = compile::machine_code(kernel, &options, &self.cache)?;
        let wrap = |what| move |source| GpuError::Driver { what, source };
        let function = self
            .context
            .load_module(Ptx::from_binary(code))
            .and_then(|module| module.load_function(kernel.name))
            .map_err(wrap("load a kernel"))?;
        function
            .set_attribute(
                CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                shared as i32,
            )
            .map_err(wrap("give a kernel its shared memory"))?;
        Ok(function)
    }

    /// Zeroed memory of the GPU.
    pub(super) fn zeros<T: DeviceRepr + ValidAsZeroBits>(
        &self,
        what: &'static str,
        count: usize,
    ) -> Result<CudaSlice<T>, GpuError> {
        let zeros = self.stream.alloc_zeros(count);
        zeros
            .and_then(|zeros| self.stream.synchronize().map(|()| zeros))
            .map_err(|source| GpuError::Memory {
                what,
                bytes: count * size_of::<T>(),
                kind: "GPU",
                source,
            })
    }

    /// A table in the memory of the GPU.
    pub(super) fn table<T: DeviceRepr + ValidAsZeroBits>(
        &self,
        what: &'static str,
        values: &[T],
    ) -> Result<CudaSlice<T>, GpuError> {
        let mut table = self.zeros(what, values.len())?;
        self.stream
            .memcpy_htod(values, &mut table)
            .and_then(|()| self.stream.synchronize())
            .map_err(|source| GpuError::Driver {
                what: "copy a table to the GPU",
                source,
            })?;
        Ok(table)
    }

    /// Zeroed memory of the host that the GPU can reach while the CPU does other things.
    pub(super) fn pinned<T: DeviceRepr + ValidAsZeroBits>(
        &self,
        what: &'static str,
        count: usize,
    ) -> Result<PinnedHostSlice<T>, GpuError> {
        let failed = |source| GpuError::Memory {
            what,
            bytes: count * size_of::<T>(),
            kind: "pinned host",
            source,
        };
        // SAFETY: the memory is set right below, before anyone can see it.
        let mut pinned =
            unsafe { self.context.alloc_pinned_with_flags::<T>(count, 0) }.map_err(failed)?;
        let start = pinned.as_mut_ptr().map_err(failed)?;
        // SAFETY: the allocation has `count` elements, for which zero bits are a value.
        unsafe { start.write_bytes(0, count) };
        Ok(pinned)
    }
}

/// Where `slice` lies. Its users order their work on it themselves.
///
/// Not while its stream is being captured: the driver then refuses what cudarc does besides.
pub(super) fn address<T>(slice: &CudaSlice<T>) -> CUdeviceptr {
    slice.device_ptr(slice.stream()).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_without_the_functions_is_refused() {
        assert!(check_version(12080).is_ok() && check_version(13000).is_ok());
        let error = check_version(12020).unwrap_err().to_string();
        assert!(
            error.contains("CUDA 12.2") && error.contains("12.8"),
            "{error}"
        );
    }
}
