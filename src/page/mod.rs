//! The page of a live engine: what it does, loses and sees.
//!
//! [`EnginePage`] reads what the engine's threads count and publish anyway, on the thread that
//! serves; nothing here is on the way of a sample. [`LossBoard`] takes over what is being lost from
//! the thread that watches it.

mod board;
mod engine;
mod spectra;
mod tables;
#[cfg(test)]
mod tests;
mod time;

pub use board::LossBoard;
pub use engine::{EnginePage, EngineParts};
