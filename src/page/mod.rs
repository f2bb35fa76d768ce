//! The page of a live engine, and of a sink: what it does, loses and sees.
//!
//! [`EnginePage`] reads what the engine's threads count and publish anyway, on the thread that
//! serves; nothing here is on the way of a sample. [`LossBoard`] takes over what is being lost from
//! the thread that watches it. [`SinkPage`] is the same of a sink.

mod board;
mod engine;
mod sink;
mod sink_board;
mod spectra;
mod tables;
#[cfg(test)]
mod tests;
mod time;

pub use board::LossBoard;
pub use engine::{EnginePage, EngineParts};
pub use sink::{SinkPage, SinkPageParts};
