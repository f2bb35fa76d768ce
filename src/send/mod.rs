//! Send: output chunks become packets.
//!
//! * [`Packetiser`]: one output's heap counts, packet order, descriptors and stop heaps;
//! * [`Pace`]: how fast its packets leave;
//! * [`TxPools`]: the mbufs that a tx lcore sends;
//! * [`TxLcore`]: the loop of the tx lcore.
//!
//! A data packet is a small header mbuf chained to a segment that points into the output chunk; the
//! chunk returns to its pool when the last packet has left. Chunks that a device cannot read, or
//! whose packets its driver might keep until others come, are copied instead.

mod lcore;
mod pace;
mod packetiser;
mod pools;

pub use lcore::{MAX_TX_LCORES, TxLcore, TxOutput, TxPath};
pub use pace::Pace;
pub use packetiser::{HEADER_BYTES, HeapCounts, Packetiser, SourceAddress, data_timestamp};
pub use pools::TxPools;
