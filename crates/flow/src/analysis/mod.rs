//! What can be said about a graph in partitions before it runs: deadlock, rate, latency, memory.
//!
//! A network of partitions and bounded queues is a marked graph: a partition fires when each queue
//! to it has a block and each queue from it has room. Blocks are tokens; room is tokens of an arc
//! in the other direction.
//!
//! * It is **live** if and only if every cycle has a token. Commoner, Holt, Even and Pnueli,
//!   *Marked directed graphs*, 1971.
//! * Its **period** is the largest ratio of time to tokens of all cycles. Reiter, *Scheduling
//!   parallel computations*, 1968.

mod cycles;
mod latency;
mod network;
mod ratio;
mod report;

pub use cycles::Cycle;
pub use latency::Latency;
pub(crate) use network::MAX_TIME;
pub use network::{Network, Partition, Queue};
pub use ratio::{Dependence, Period, maximum_cycle_ratio};
pub use report::Report;
pub(crate) use report::quoted;
