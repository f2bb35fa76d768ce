//! The transmitter: frames to samples.
//!
//! Each symbol is mapped to its point, followed by two zeros, and filtered with 49 taps of a
//! root-raised-cosine pulse that are multiplied by √3 and a gain. Symbol k has its peak at sample
//! 3k + 24. The mean power of a frame's samples is the square of the gain.

mod duty;
mod filter;
mod model;
mod transmitter;

pub use duty::{DutyError, blank_symbols};
pub use filter::{HISTORY_SYMBOLS, PulseShaper};
pub use model::model_samples;
pub use transmitter::Transmitter;

#[cfg(test)]
mod tests;
