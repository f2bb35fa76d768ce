//! What a perfect receiver reaches: error rates over the signal-to-noise ratio, and how sure a
//! measured rate is.
//!
//! Eb/N0 and Es/N0 are in dB. As ratios, Es/N0 = b Eb/N0 with b bits per symbol, and Es/N0 = 3 SNR,
//! since noise fills the band of three samples per symbol.

mod confidence;
mod errors;
mod modes;

pub use confidence::{Interval, clopper_pearson};
pub use errors::{
    bit_error_rate, frame_error_rate, ideal_evm, q_function, required_eb_n0, symbol_error_rate,
};
pub use modes::mode_error_rate;
