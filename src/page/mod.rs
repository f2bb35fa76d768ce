//! The page of a live engine, and of a sink: what it does, loses and sees.
//!
//! [`EnginePage`] reads what the engine's threads count and publish anyway, on the thread that
//! serves; nothing here is on the way of a sample. [`SinkPage`] is the same of a sink.

mod board;
mod drops;
mod engine;
mod fresh;
mod runbook;
mod sink;
mod sink_board;
mod spectra;
mod tables;
#[cfg(test)]
mod tests;
mod time;

pub use engine::{EnginePage, EnginePageParts, EngineSeen};
pub use sink::{SinkPage, SinkPageParts};

/// Which share was lost, in percent; not a number where nothing came and nothing is known to be
/// missing.
fn lost_percent(came: f64, lost: f64) -> f64 {
    100.0 * lost / (came + lost)
}
