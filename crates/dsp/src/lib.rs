//! The mathematics of a channeliser, written once, in `f64`.
//!
//! | module | what it defines |
//! |---|---|
//! | [`formats`] | formats of samples, in and out |
//! | [`unpack`] | packed digitiser samples |
//! | [`pfb`] | prototype filter of the polyphase filter bank |
//! | [`oversampling`] | by how much channels come faster than they are wide |
//! | [`synthesis`] | the window that inverts an oversampled filter bank |
//! | [`double`] | numbers of twice a double's precision |
//! | [`remez`] | equiripple filters (Parks–McClellan) |
//! | [`mixer`] | phase of a narrowband output's mixer, exact from ADC timestamp 0 |
//! | [`ddc`] | digital down-conversion: its filter, and what it computes |
//! | [`delay`] | delay models: one polynomial, piecewise lists, alignment |
//! | [`dither`] | counter-based dither (Philox4x32-7) |
//! | [`quantise`] | float to signed integer, saturation |
//! | [`power`] | digitiser power and its averaging window |
//! | [`level`] | what quantisation does to noise: zeros, clipping, efficiency |
//! | [`kurtosis`] | spectral kurtosis, and what it is for noise |
//!
//! Fast versions restate these, and tests hold them against these. `docs/signal-path.md` of Karoo
//! derives the formulas.
//!
//! ```
//! use dsp::{WindowFunction, pfb};
//!
//! // White noise keeps its variance in every channel: Σw² = 1.
//! let weights = pfb::weights(2048, 16, 1.0, WindowFunction::Hann);
//! let power: f64 = weights.iter().map(|&w| f64::from(w) * f64::from(w)).sum();
//! assert!((power - 1.0).abs() < 1e-6);
//! ```
#![deny(unsafe_code)]

pub mod ddc;
pub mod delay;
pub mod dither;
pub mod double;
pub mod formats;
pub mod kurtosis;
pub mod level;
pub mod mixer;
pub mod oversampling;
pub mod pfb;
pub mod power;
pub mod quantise;
pub mod remez;
pub mod synthesis;
pub mod unpack;

pub use dither::Dither;
pub use formats::{OutputBits, SampleBits, SampleBitsError};
pub use oversampling::{Oversampling, OversamplingError};
pub use pfb::WindowFunction;
