//! Statistics that one data thread writes and any thread reads, without locks.

pub mod counter;
pub mod latency;
mod liveness;
mod phases;

pub use latency::Latency;
pub use liveness::Liveness;
pub use phases::{Phase, PhaseTimer, PhaseTimes, ThreadReport};
