//! Chunk memory.
//!
//! A [`ChunkAllocator`] makes [`ChunkMemory`] of one [`MemoryKind`]: [`HostAllocator`] here, those
//! of a GPU in [`gpu`](crate::gpu); [`MixedAllocator`] makes some of one kind and some of another.
//! [`Chunk`] lays one receive chunk out in it: packed samples; one presence flag and one saturation
//! count per (pol, heap) lie in memory of the host, and so do copies of a few heaps where the CPU
//! does not read the samples. Several rx lcores place heaps into a chunk at once through shared
//! references, each with the [`Store`] that suits the memory, and publish them burst by burst;
//! [`Chunk::freeze`] ends that and hands the whole chunk to one reader as a [`FrozenChunk`].
//!
//! No reader has to trust the window: a heap's bytes are written only by whoever claimed its flag,
//! and freezing claims what nobody did.
#![allow(unsafe_code)]

mod chunk;
#[cfg(test)]
mod chunk_tests;
mod copies;
#[cfg(test)]
mod copies_tests;
mod kind;
mod mixed;
mod output;
#[cfg(test)]
pub(crate) mod stand_in;
mod store;
mod view;

mod sync {
    pub use std::hint::spin_loop;
    pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, Ordering};
}

pub use chunk::{Chunk, ChunkLayout, DeviceSamples, FrozenChunk, HeapSlot, StoredHeap, publish};
pub use copies::{STATISTICS_EVERY, is_for_statistics};
pub use kind::{
    CHUNK_ALIGNMENT, ChunkAllocator, ChunkMemory, HostAllocator, MemoryError, MemoryKind, Purpose,
};
pub use mixed::{BAR_SHARE, MixedAllocator};
pub use output::{OUTPUT_CHUNKS, OutputMemory, OutputWriter};
pub use store::Store;
pub use view::{BatchStats, OutputSpan, SampleView};
