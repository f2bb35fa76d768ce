//! Replay: a capture through the very data path that a live engine uses.
//!
//! ```text
//! capture ─► source ─► ring port ─► rx ─► engine ─► tx ─► ring port ─► recorder ─► capture
//! ```
//!
//! Nothing is lost and everything is deterministic: where a live receiver would drop, the source
//! waits; where a live receiver would let time decide, the source says so in file order
//! ([`crate::recv::Watermark`]).
//!
//! * [`plan`]: options and scan to a validated configuration, saying what was picked and why;
//! * [`measure_gains`]: gains of the level of a capture's start, for `--gain auto`;
//! * [`Requests`]: requests to the engine, each for a timestamp of its output;
//! * [`run()`]: the lcores, the engine, and the report.

mod auto_gain;
mod observer;
mod plan;
mod progress;
mod recorder;
mod requests;
mod run;

pub use crate::assembly::{BackendKind, CaptureScan, DemandError, ScanError};
pub use auto_gain::{AutoGainError, measure_gains};
pub use plan::{AutoGain, PlanError, ReplayPlan, plan};
pub use requests::{Requests, RequestsError};
pub use run::{ReplayError, ReplayOptions, run};
