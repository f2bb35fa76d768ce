//! Chunk memory for the GPU: which kind, and the kind `pinned`.

use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::{CudaContext, result, sys};
use ground::os::Region;

use super::{BarAllocator, BarError, Gpu, GpuError};
use crate::config::Decision;
use crate::memory::{
    ChunkAllocator, ChunkMemory, FrozenChunk, MemoryError, MemoryKind, MixedAllocator, Purpose,
    Store,
};

/// Where rx lcores put samples for a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum MemoryChoice {
    /// The GPU's memory if the CPU can write it, else the host's.
    Auto,
    /// The GPU's memory, or an error.
    Bar,
    /// Pinned memory of the host, copied to the GPU.
    Pinned,
    /// Some chunks in the GPU's memory, the others in pinned memory, or an error: both ways over
    /// the bus add up.
    Mixed,
}

impl MemoryChoice {
    /// An allocator for receive chunks of `demand` bytes in all, and what to report if the choice
    /// was free. Of mixed memory, `bar_share` of the chunks are in the GPU's.
    pub fn open(
        self,
        gpu: &Gpu,
        demand: u64,
        bar_share: f64,
    ) -> Result<(Box<dyn ChunkAllocator>, Option<Decision>), BarError> {
        let chosen = |kind: MemoryKind, why: String| {
            Some(Decision {
                option: "--memory".into(),
                value: kind.to_string(),
                why,
            })
        };
        let pinned = || Box::new(PinnedAllocator::new(gpu));
        Ok(match self {
            Self::Pinned => (pinned(), None),
            Self::Bar => (Box::new(BarAllocator::open(gpu, demand)?), None),
            Self::Mixed => {
                let bar = BarAllocator::open(gpu, (demand as f64 * bar_share) as u64)?;
                let mixed = MixedAllocator::new(Box::new(bar), pinned(), bar_share);
                (Box::new(mixed), None)
            }
            Self::Auto => match BarAllocator::open(gpu, demand).and_then(|bar| {
                // Other engines may have most of it.
                bar.try_room(demand)?;
                Ok(bar)
            }) {
                Ok(bar) => {
                    let why = "the CPU can write into the GPU's memory".to_owned();
                    (Box::new(bar), chosen(MemoryKind::Bar, why))
                }
                Err(error) => (pinned(), chosen(MemoryKind::Pinned, error.to_string())),
            },
        })
    }
}

/// Makes memory of the host, on huge pages where there are any, that the GPU's copy engines reach.
#[derive(Clone, Debug)]
pub struct PinnedAllocator {
    context: Arc<CudaContext>,
    store: Store,
}

impl PinnedAllocator {
    /// Memory for this GPU.
    pub fn new(gpu: &Gpu) -> Self {
        Self {
            context: gpu.context.clone(),
            store: Store::streaming(),
        }
    }

    /// The same, storing heaps in another way.
    pub fn with_store(self, store: Store) -> Self {
        Self { store, ..self }
    }
}

impl ChunkAllocator for PinnedAllocator {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Pinned
    }

    fn allocate(
        &self,
        purpose: Purpose,
        bytes: usize,
    ) -> Result<Box<dyn ChunkMemory>, MemoryError> {
        let failed = |cause| MemoryError {
            purpose,
            kind: MemoryKind::Pinned,
            bytes,
            cause,
        };
        let region = Region::new(bytes).map_err(|error| failed(error.into()))?;
        let start = region.as_ptr();
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        self.context
            .bind_to_thread()
            .and_then(|()| {
                // SAFETY: the range is mapped, whole pages, and stays until it is unregistered.
                unsafe { sys::cuMemHostRegister_v2(start.as_ptr().cast(), start.len(), flags) }
                    .result()
            })
            .map_err(|error| failed(error.into()))?;
        Ok(Box::new(PinnedMemory {
            region,
            context: self.context.clone(),
            store: self.store,
        }))
    }
}

#[derive(Debug)]
struct PinnedMemory {
    region: Region,
    context: Arc<CudaContext>,
    store: Store,
}

// SAFETY: a `Region` is one mapping for its life, and this one is handed to CUDA alone.
unsafe impl ChunkMemory for PinnedMemory {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Pinned
    }

    fn region(&self) -> NonNull<[u8]> {
        self.region.as_ptr()
    }

    fn store(&self) -> Store {
        self.store
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        // An error leaves nothing to be done.
        let _ = self.context.bind_to_thread();
        // SAFETY: the region was registered, and is unmapped after this.
        let _ = unsafe { sys::cuMemHostUnregister(self.region.as_ptr().as_ptr().cast()) };
    }
}

/// One polarisation of a chunk as the GPU sees it, samples, tail and padding, through its copy
/// engines. For tests and reports.
pub fn read_back(gpu: &Gpu, chunk: &FrozenChunk, pol: usize) -> Result<Vec<u8>, GpuError> {
    let mut bytes = vec![0; chunk.layout().stride];
    let copied = match chunk.device_address(pol) {
        // SAFETY: the chunk has `stride` bytes there, which nobody writes while it is frozen.
        Some(address) => gpu
            .context
            .bind_to_thread()
            .and_then(|()| unsafe { result::memcpy_dtoh_sync(&mut bytes, address) }),
        None => {
            let stream = gpu.context.default_stream();
            stream
                .clone_htod(chunk.pol(pol))
                .and_then(|copy| stream.memcpy_dtoh(&copy, &mut bytes))
                .and_then(|()| stream.synchronize())
        }
    };
    copied.map_err(|source| GpuError::Driver {
        what: "read a chunk back",
        source,
    })?;
    Ok(bytes)
}
