//! Chunks of two kinds of memory in turn, so that both ways to a GPU are used at once.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{ChunkAllocator, ChunkMemory, MemoryError, MemoryKind, Purpose};

/// Share of the chunks of mixed memory that the CPU stores through the PCIe bus, unless told
/// otherwise.
pub const BAR_SHARE: f64 = 0.5;

/// Makes memory of one kind for a share of all chunks, and of another for the others.
///
/// Each chunk is of one kind. Free chunks are taken in the order in which they came back, so each
/// is used as often as any other, and samples are divided as chunks are.
#[derive(Debug)]
pub struct MixedAllocator {
    bar: Box<dyn ChunkAllocator>,
    other: Box<dyn ChunkAllocator>,
    /// Share of the chunks that are of `bar`.
    share: f64,
    made: AtomicUsize,
}

impl MixedAllocator {
    /// `share`, from 0 to 1, of what it makes is of `bar`, the rest of `other`.
    pub fn new(bar: Box<dyn ChunkAllocator>, other: Box<dyn ChunkAllocator>, share: f64) -> Self {
        Self {
            bar,
            other,
            share,
            made: AtomicUsize::new(0),
        }
    }
}

impl ChunkAllocator for MixedAllocator {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Mixed
    }

    fn allocate(
        &self,
        purpose: Purpose,
        bytes: usize,
    ) -> Result<Box<dyn ChunkMemory>, MemoryError> {
        let before = self.made.fetch_add(1, Ordering::Relaxed) as f64;
        // Evenly: of any n in a row, the share of n, rounded up or down.
        let is_bar = (self.share * (before + 1.0)).floor() > (self.share * before).floor();
        let allocator = if is_bar { &self.bar } else { &self.other };
        allocator.allocate(purpose, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::HostAllocator;
    use crate::memory::stand_in::BarStandIn;

    #[test]
    fn chunks_are_of_either_kind_in_turn() {
        for (share, bar) in [(0.0, 0), (0.25, 10), (0.5, 20), (0.6, 24), (1.0, 40)] {
            let host = Box::new(HostAllocator::default());
            let mixed = MixedAllocator::new(Box::new(BarStandIn), host, share);
            assert_eq!(mixed.kind().to_string(), "mixed");
            let memory = |_| mixed.allocate(Purpose::ReceiveChunk, 64).unwrap();
            let kinds: Vec<_> = (0..40).map(|i| memory(i).kind()).collect();
            let count = |kinds: &[MemoryKind]| {
                let bar = kinds.iter().filter(|kind| **kind == MemoryKind::Bar);
                bar.count()
            };
            assert_eq!(count(&kinds), bar, "{share}");
            for ten in kinds.chunks(10) {
                assert!((count(ten) as f64 - 10.0 * share).abs() < 1.0, "{share}");
            }
        }
    }
}
