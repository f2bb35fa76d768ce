//! A stand-in for GPU memory on hosts without a GPU.

use std::ptr::NonNull;

use super::{ChunkAllocator, ChunkMemory, FrozenChunk, HostAllocator, MemoryError, MemoryKind};
use super::{Purpose, Store};
use ground::N_POL;

/// Makes memory that says it is `bar`. [`shut`] makes it so.
#[derive(Debug)]
pub struct BarStandIn;

impl ChunkAllocator for BarStandIn {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Bar
    }

    fn allocate(
        &self,
        purpose: Purpose,
        bytes: usize,
    ) -> Result<Box<dyn ChunkMemory>, MemoryError> {
        let memory = HostAllocator::default().allocate(purpose, bytes)?;
        Ok(Box::new(OfGpu(memory)))
    }
}

#[derive(Debug)]
struct OfGpu(Box<dyn ChunkMemory>);

// SAFETY: the memory is that of the value inside.
unsafe impl ChunkMemory for OfGpu {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Bar
    }
    fn region(&self) -> NonNull<[u8]> {
        self.0.region()
    }
    fn store(&self) -> Store {
        self.0.store()
    }
}

/// Takes a chunk's samples away from the CPU: reading one ends the process.
pub fn shut(chunk: &FrozenChunk) {
    assert_eq!(chunk.kind(), MemoryKind::Bar);
    let start = chunk.pol(0).as_ptr().cast_mut().cast();
    let bytes = N_POL * chunk.layout().stride;
    // SAFETY: the range is a mapping of its own, and nothing of a frozen chunk is borrowed.
    let done = unsafe { libc::mprotect(start, bytes, libc::PROT_NONE) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}
