//! Chunk memory of the kind `bar`: memory of the GPU that the CPU writes through the PCIe bus.
//!
//! CUDA itself maps no GPU memory for the CPU. Vulkan does where the BAR covers it, and lets CUDA
//! import the same memory, so that a heap is stored once, where the kernels read it. Each chunk is
//! an allocation of its own: there are few, and one that does not fit is named by its size.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use ash::vk;
use cudarc::driver::{CudaContext, DriverError, result, sys};
use ground::os::Region;

use super::Gpu;
use super::vulkan::{Vulkan, VulkanMemory};
use crate::memory::{
    CHUNK_ALIGNMENT, ChunkAllocator, ChunkMemory, MemoryError, MemoryKind, Purpose, Store,
};

/// Why the CPU cannot write into the GPU's memory.
#[derive(Debug, thiserror::Error)]
pub enum BarError {
    /// No loader, or an old one.
    #[error("no Vulkan: {0}; install its loader (Debian: libvulkan1) or use --memory pinned")]
    NoLoader(String),
    /// It is called on a thread of its own.
    #[error("cannot start a thread for Vulkan: {0}; use --memory pinned")]
    NoThread(String),
    /// Vulkan does not know the GPU.
    #[error(
        "Vulkan does not have this GPU (its devices: {}); install NVIDIA's Vulkan driver (nvidia_icd.json) or use --memory pinned",
        if .found.is_empty() { "none".to_owned() } else { .found.join(", ") }
    )]
    NoDevice {
        /// Names of the devices that it has.
        found: Vec<String>,
    },
    /// No suitable kind of memory.
    #[error("the GPU maps none of its memory for the CPU; use --memory pinned")]
    NotMappable,
    /// The memory does not begin where full lines can be stored.
    #[error(
        "memory mapped at {cpu:#x} for the CPU and {gpu:#x} for CUDA does not begin on a cache line; use --memory pinned"
    )]
    Unaligned {
        /// Address for the CPU.
        cpu: u64,
        /// Address for CUDA.
        gpu: u64,
    },
    /// The part of the GPU's memory that the CPU reaches is too small.
    #[error(
        "the CPU can reach {} MiB of the GPU's memory, but receive chunks take {} MiB; enable resizable BAR in the firmware, lower --recv-chunk-samples or use --memory pinned",
        .heap >> 20, .demand.div_ceil(1 << 20)
    )]
    TooSmall {
        /// Bytes asked for.
        demand: u64,
        /// Bytes that can be mapped.
        heap: u64,
    },
    /// Vulkan refuses.
    #[error("Vulkan cannot {what}: {cause}; use --memory pinned")]
    Vulkan {
        /// What was tried.
        what: &'static str,
        /// What the driver says.
        cause: vk::Result,
    },
    /// CUDA refuses.
    #[error("CUDA cannot {what}: {cause}; use --memory pinned")]
    Cuda {
        /// What was tried.
        what: &'static str,
        /// What the driver says.
        cause: DriverError,
    },
    /// CUDA and the CPU see different memory.
    #[error(
        "CUDA does not read what the CPU wrote into the GPU's memory (the drivers of Vulkan and CUDA may be of different versions); use --memory pinned"
    )]
    Mismatch,
}

fn cuda(what: &'static str) -> impl Fn(DriverError) -> BarError {
    move |cause| BarError::Cuda { what, cause }
}

/// Makes memory of the kind `bar`.
#[derive(Debug)]
pub struct BarAllocator {
    context: Arc<CudaContext>,
    vulkan: Arc<Vulkan>,
    store: Store,
}

impl BarAllocator {
    /// Finds the GPU in Vulkan, and tries whether CUDA reads what the CPU writes. Refuses if the
    /// CPU cannot reach `demand` bytes at all.
    pub fn open(gpu: &Gpu, demand: u64) -> Result<Self, BarError> {
        let context = gpu.context.clone();
        let uuid = context.uuid().map_err(cuda("name the GPU"))?;
        let vulkan = Vulkan::of_gpu(uuid.bytes.map(|byte| byte as u8))?;
        check_heap(&vulkan, demand)?;
        let allocator = Self {
            context,
            vulkan,
            store: Store::streaming(),
        };
        allocator.probe()?;
        Ok(allocator)
    }

    /// The same, storing heaps in another way.
    pub fn with_store(self, store: Store) -> Self {
        Self { store, ..self }
    }

    /// Whether so many bytes can be had at this moment: what is free of the GPU's memory and of
    /// the BAR is not told before.
    pub(super) fn try_room(&self, bytes: u64) -> Result<(), BarError> {
        self.vulkan.allocate(bytes).map(drop)
    }

    /// Writes a page with the CPU and reads it with CUDA.
    fn probe(&self) -> Result<(), BarError> {
        let memory = self.map(Region::ALIGNMENT)?;
        let written: [u8; Region::ALIGNMENT] = std::array::from_fn(|i| (i * 31 + i / 256) as u8);
        let mut read = [0; Region::ALIGNMENT];
        // SAFETY: the memory has a page at both addresses, and nobody else uses it.
        unsafe {
            let place = memory.region().cast().as_ptr();
            self.store.copy(place, &written, written.as_ptr());
            result::memcpy_dtoh_sync(&mut read, memory.imported.address)
        }
        .map_err(cuda("read imported memory"))?;
        if read == written {
            Ok(())
        } else {
            Err(BarError::Mismatch)
        }
    }

    fn map(&self, bytes: usize) -> Result<BarMemory, BarError> {
        check_heap(&self.vulkan, bytes as u64)?;
        let (memory, handle) = self.vulkan.allocate(bytes as u64)?;
        let imported = Imported::new(self.context.clone(), handle, memory.start().len())?;
        let (cpu, gpu) = (memory.start().addr().get() as u64, imported.address);
        if !(cpu | gpu).is_multiple_of(CHUNK_ALIGNMENT as u64) {
            return Err(BarError::Unaligned { cpu, gpu });
        }
        enter_pages(&memory);
        Ok(BarMemory {
            imported,
            memory,
            store: self.store,
        })
    }
}

/// Has the kernel enter all pages into the process's tables now: the driver leaves that to the
/// first store to each, and an lcore that waits for it loses packets.
fn enter_pages(memory: &VulkanMemory) {
    const PAGE: usize = 4096;
    let region = memory.start();
    for offset in (0..region.len()).step_by(PAGE) {
        // SAFETY: inside the mapping, which is zeroed and nobody's yet.
        unsafe { region.cast::<u8>().add(offset).write_volatile(0) };
    }
}

fn check_heap(vulkan: &Vulkan, demand: u64) -> Result<(), BarError> {
    let heap = vulkan.heap_bytes();
    if demand > heap {
        return Err(BarError::TooSmall { demand, heap });
    }
    Ok(())
}

impl ChunkAllocator for BarAllocator {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Bar
    }

    fn allocate(
        &self,
        purpose: Purpose,
        bytes: usize,
    ) -> Result<Box<dyn ChunkMemory>, MemoryError> {
        match self.map(bytes) {
            Ok(memory) => Ok(Box::new(memory)),
            Err(error) => Err(MemoryError {
                kind: MemoryKind::Bar,
                purpose,
                bytes,
                cause: error.into(),
            }),
        }
    }
}

/// The kernels' view goes before the memory itself does.
#[derive(Debug)]
struct BarMemory {
    imported: Imported,
    memory: VulkanMemory,
    store: Store,
}

// SAFETY: the mapping stays until the value is dropped, is aligned and zeroed (both checked or done
// when it was made), and is handed to CUDA alone.
unsafe impl ChunkMemory for BarMemory {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Bar
    }

    fn region(&self) -> NonNull<[u8]> {
        self.memory.start()
    }

    fn device_address(&self) -> Option<u64> {
        Some(self.imported.address)
    }

    fn store(&self) -> Store {
        self.store
    }
}

/// Memory of Vulkan as CUDA has it.
#[derive(Debug)]
struct Imported {
    context: Arc<CudaContext>,
    handle: sys::CUexternalMemory,
    /// 0 until it is mapped.
    address: sys::CUdeviceptr,
}

// SAFETY: CUDA's handles may be used on any thread.
unsafe impl Send for Imported {}
// SAFETY: as above; they are used when it is dropped only.
unsafe impl Sync for Imported {}

impl Imported {
    /// Imports and zeroes an allocation of `bytes`.
    fn new(context: Arc<CudaContext>, memory: OwnedFd, bytes: usize) -> Result<Self, BarError> {
        context
            .bind_to_thread()
            .map_err(cuda("be used on this thread"))?;
        let description = sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
            type_: sys::CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
            handle: sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1 {
                fd: memory.as_raw_fd(),
            },
            size: bytes as u64,
            flags: 0,
            reserved: [0; 16],
        };
        let mut handle = MaybeUninit::uninit();
        // SAFETY: the descriptor is that of an exported allocation of this size.
        let handle = unsafe {
            sys::cuImportExternalMemory(handle.as_mut_ptr(), &raw const description)
                .result()
                .map(|()| handle.assume_init())
        }
        .map_err(cuda("import memory from Vulkan"))?;
        // The descriptor is CUDA's now.
        let _ = memory.into_raw_fd();
        let mut imported = Self {
            context,
            handle,
            address: 0,
        };
        // SAFETY: the memory has `bytes` bytes, which nobody reads yet.
        unsafe {
            imported.address = result::external_memory::get_mapped_buffer(handle, 0, bytes as u64)
                .map_err(cuda("map imported memory"))?;
            result::memset_d8_sync(imported.address, 0, bytes)
                .and_then(|()| result::ctx::synchronize())
                .map_err(cuda("zero imported memory"))?;
        }
        Ok(imported)
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        // SAFETY: made in `new`, and whoever gave the address to a kernel is gone with its owner;
        // freeing waits for work that is under way. Errors leave nothing to be done.
        unsafe {
            let _ = self.context.bind_to_thread();
            if self.address != 0 {
                let _ = result::memory_free(self.address);
            }
            let _ = result::external_memory::destroy_external_memory(self.handle);
        }
    }
}
