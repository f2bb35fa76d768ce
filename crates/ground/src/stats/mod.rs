//! Statistics that one data thread writes and any thread reads, without locks; medians.

pub mod counter;
pub mod latency;
mod liveness;
mod median;
mod phases;

pub use latency::Latency;
pub use liveness::Liveness;
pub use median::median;
pub use phases::{Phase, PhaseTimer, PhaseTimes, ThreadReport};
