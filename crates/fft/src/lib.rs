//! Plans of [rustfft] for single and double precision, compiled once.
//!
//! The planner of rustfft is generic, so every crate that calls it compiles all of its algorithms
//! again: they were half of the code of Karoo's library and of each of its test executables. The
//! functions here are not generic. What they return is called through a table of functions.
//!
//! ```
//! use karoo_fft::{forward_f32, num_complex::Complex32};
//!
//! let fft = forward_f32(8);
//! let mut values = [Complex32::new(1.0, 0.0); 8];
//! fft.process(&mut values);
//! assert_eq!(values[0], Complex32::new(8.0, 0.0));
//! ```
#![deny(unsafe_code)]

use std::sync::Arc;

use rustfft::FftPlanner;
pub use rustfft::{Fft, num_complex};

/// A forward transform of `len` complex values in single precision, without scaling.
pub fn forward_f32(len: usize) -> Arc<dyn Fft<f32>> {
    FftPlanner::new().plan_fft_forward(len)
}

/// A forward transform of `len` complex values in double precision, without scaling.
pub fn forward_f64(len: usize) -> Arc<dyn Fft<f64>> {
    FftPlanner::new().plan_fft_forward(len)
}
