//! Chunk memory.
//!
//! [`Region`] is page-aligned memory, on huge pages where there are any. [`Chunk`] lays one receive
//! chunk out in it: packed samples, one presence flag and one saturation count per (pol, heap). Several
//! rx lcores place heaps into a chunk at once through shared references; [`Chunk::freeze`] ends that and
//! hands the whole chunk to one reader as a [`FrozenChunk`].
//!
//! No reader has to trust the window: a heap's bytes are written only by whoever claimed its flag, and
//! freezing claims what nobody did.
#![allow(unsafe_code)]

mod chunk;
mod output;
mod region;

pub use chunk::{Chunk, ChunkLayout, FrozenChunk, HeapSlot};
pub use output::OutputMemory;
pub use region::{Region, RegionError};
