//! Send: output chunks become packets.
//!
//! * [`Packetiser`]: one output's heap counts, packet order, descriptors and stop heaps;
//! * [`TxLcore`]: the loop of the tx lcore.
//!
//! A data packet is a small header mbuf chained to a segment that points into the output chunk; the
//! chunk returns to its pool when the last packet has left.

mod lcore;
mod packetiser;

pub use lcore::{MAX_TX_LCORES, TxLcore, TxPools};
pub use packetiser::{HEADER_BYTES, HeapCounts, Packetiser, Source, data_timestamp};
