//! Receive: rx lcores place heaps into chunks; every datagram is counted once.
//!
//! * [`window`]: which buffer holds which chunk, agreed between lcores without locks;
//! * [`RxLcore`]: the loop of one lcore over one (port, queue);
//! * [`LaneTime`]: which heaps are of the present time, for whoever has to know it;
//! * [`ReceiveMemory`]: chunk buffers and their window;
//! * [`ChunkCollector`]: the engine's end: completed chunks in order, and their accounting;
//! * [`DropCause`], [`RxStats`]: why a datagram was not placed, counted;
//! * [`DroppedPackets`]: copies of the latest datagrams of each cause.

mod address;
mod advice;
mod cause;
mod collect;
mod dropped;
mod input_stats;
mod lane_mirror;
mod lane_time;
mod lcore;
mod memory;
mod patience;
mod placer;
mod presence;
mod report;
mod waiting;
pub mod window;
#[cfg(test)]
mod window_tests;

mod sync {
    pub use std::sync::atomic::{AtomicU64, Ordering};
    pub use std::thread::yield_now;
}

pub use address::{EpochHint, HeapAddress};
pub use cause::{DropCause, LastDropped, RxStats};
pub use collect::{ChunkCollector, Collected};
pub use dropped::{DroppedPacket, DroppedPackets};
pub use input_stats::InputStats;
pub use lane_mirror::LaneMirror;
pub use lane_time::LaneTime;
pub use lcore::{RxConfig, RxLcore, RxParts, Watermark};
pub use memory::{
    OPEN_CHUNKS, ReceiveMemory, ReceiveOptions, chunk_bytes, receive_bytes, receive_memory,
};
pub use patience::{ChunkPatience, chunk_patience};
pub use placer::RxMode;
pub use presence::PresenceMap;
pub use report::PolReport;
pub use window::END_OF_STREAM;
