//! What memory a chunk may be in, and who makes it.

use std::error::Error;
use std::fmt;
use std::ptr::NonNull;

use ground::os::Region;

use super::Store;

/// Kinds of chunk memory (docs/memory.md says when to take which).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Memory of the host.
    Host,
    /// Memory of the host that a GPU's copy engines reach.
    Pinned,
    /// Memory of a GPU that the CPU writes through the PCIe bus.
    Bar,
    /// Of several chunks: some are `bar`, the others `pinned`. A single one is of either kind.
    Mixed,
}

impl MemoryKind {
    /// Whether the CPU may read it in the data path. GPU memory gives it some megabytes per second.
    /// Of mixed memory it may read some.
    pub fn is_host(self) -> bool {
        matches!(self, Self::Host | Self::Pinned)
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Pinned => "pinned",
            Self::Bar => "bar",
            Self::Mixed => "mixed",
        })
    }
}

/// Alignment of chunk memory, for the CPU and for the GPU, and of each polarisation in it: a cache
/// line.
pub const CHUNK_ALIGNMENT: usize = 64;

/// The memory of one chunk.
///
/// # Safety
///
/// [`region`](Self::region) is the same zeroed memory for the life of the value, also when the
/// value moves; it begins on a multiple of [`CHUNK_ALIGNMENT`], CPUs can read and write it, and the
/// value hands it to nobody else.
pub unsafe trait ChunkMemory: Send + Sync + fmt::Debug {
    /// Kind of the memory.
    fn kind(&self) -> MemoryKind;

    /// Where the CPU has it. Not to be read in the data path unless [`MemoryKind::is_host`].
    fn region(&self) -> NonNull<[u8]>;

    /// Where the GPU reads it in place; `None` if it is to be copied first.
    fn device_address(&self) -> Option<u64> {
        None
    }

    /// How heaps are stored in it.
    fn store(&self) -> Store;
}

/// Makes memory of one kind, or of two kinds in turn.
pub trait ChunkAllocator: Send + Sync + fmt::Debug {
    /// The kind: that of each memory that it makes, or mixed.
    fn kind(&self) -> MemoryKind;

    /// At least `bytes` bytes.
    fn allocate(&self, purpose: Purpose, bytes: usize)
    -> Result<Box<dyn ChunkMemory>, MemoryError>;
}

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Packed samples.
    ReceiveChunk,
    /// Batches in wire layout.
    OutputChunk,
}

impl Purpose {
    /// The option that its size follows from.
    pub fn option(self) -> &'static str {
        match self {
            Self::ReceiveChunk => "--recv-chunk-samples",
            Self::OutputChunk => "--send-chunk-jones",
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReceiveChunk => "a receive chunk",
            Self::OutputChunk => "an output chunk",
        })
    }
}

/// Memory could not be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot have {bytes} bytes of {kind} memory for {purpose}: {cause}; lower {}", .purpose.option())]
pub struct MemoryError {
    /// What for.
    pub purpose: Purpose,
    /// Kind of the memory.
    pub kind: MemoryKind,
    /// How much.
    pub bytes: usize,
    /// What the system or the driver says.
    pub cause: Box<dyn Error + Send + Sync>,
}

/// Makes memory of the host, on huge pages where there are any.
#[derive(Clone, Copy, Debug)]
pub struct HostAllocator {
    /// How heaps are stored.
    pub store: Store,
    /// Whether all pages are entered before anything is received: finding one takes an lcore longer
    /// than a live source waits.
    pub pages_first: bool,
}

impl Default for HostAllocator {
    /// Stores past the caches. It places half as much again (benches/rx.rs), and chunks are larger
    /// than what the caches would keep for the CPU backend.
    fn default() -> Self {
        Self {
            store: Store::streaming(),
            pages_first: false,
        }
    }
}

impl ChunkAllocator for HostAllocator {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn allocate(
        &self,
        purpose: Purpose,
        bytes: usize,
    ) -> Result<Box<dyn ChunkMemory>, MemoryError> {
        let region = Region::new(bytes).and_then(|region| {
            if self.pages_first {
                region.enter_pages()?;
            }
            Ok(region)
        });
        let region = region.map_err(|cause| MemoryError {
            purpose,
            kind: MemoryKind::Host,
            bytes,
            cause: cause.into(),
        })?;
        let store = self.store;
        Ok(Box::new(HostMemory { region, store }))
    }
}

#[derive(Debug)]
struct HostMemory {
    region: Region,
    store: Store,
}

// SAFETY: a `Region` is one mapping for its life, and this one is never handed out.
unsafe impl ChunkMemory for HostMemory {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn region(&self) -> NonNull<[u8]> {
        self.region.as_ptr()
    }

    fn store(&self) -> Store {
        self.store
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::OutputMemory;

    /// Has none.
    #[derive(Debug)]
    struct Empty(MemoryKind);

    impl ChunkAllocator for Empty {
        fn kind(&self) -> MemoryKind {
            self.0
        }

        fn allocate(
            &self,
            purpose: Purpose,
            bytes: usize,
        ) -> Result<Box<dyn ChunkMemory>, MemoryError> {
            let (kind, cause) = (self.0, "there is none".into());
            Err(MemoryError {
                purpose,
                kind,
                bytes,
                cause,
            })
        }
    }

    #[test]
    fn whoever_has_no_memory_is_told_what_to_lower() {
        let error = Empty(MemoryKind::Bar)
            .allocate(Purpose::ReceiveChunk, 5)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot have 5 bytes of bar memory for a receive chunk: there is none; lower \
             --recv-chunk-samples"
        );
        let refused = |kind| {
            OutputMemory::new(2, 3, &Empty(kind))
                .unwrap_err()
                .to_string()
        };
        for (kind, name) in [(MemoryKind::Host, "host"), (MemoryKind::Pinned, "pinned")] {
            assert_eq!(
                refused(kind),
                format!(
                    "cannot have 6 bytes of {name} memory for an output chunk: there is none; \
                     lower --send-chunk-jones"
                )
            );
        }
        // Packets of output chunks are read by the CPU.
        let of_gpu = refused(MemoryKind::Bar);
        assert!(of_gpu.contains("by the CPU"), "{of_gpu}");
    }
}
