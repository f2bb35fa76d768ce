//! The assembly of an engine: which lcores there are between its rx queues and its tx queues.
//!
//! * [`Threads`]: data threads on lcores, named and timed; one that fails ends them all;
//! * [`Stages`]: the rx lcores, engine and tx lcores of one engine, for a replay and for live operation alike.

mod stages;
mod threads;

pub use stages::{Ended, RxStage, StageError, StageParts, Stages};
pub use threads::Threads;
