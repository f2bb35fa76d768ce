//! The mathematics, written once, in `f64`.
//!
//! | module | what it defines |
//! |---|---|
//! | [`unpack`] | packed digitiser samples |
//! | [`pfb`] | prototype filter of the polyphase filter bank |
//! | [`double`] | numbers of twice a double's precision |
//! | [`remez`] | equiripple filters (Parks–McClellan) |
//! | [`mixer`] | phase of a narrowband output's mixer, exact from ADC timestamp 0 |
//! | [`ddc`] | digital down-conversion: its filter, and what it computes |
//! | [`delay`] | delay models: one polynomial, piecewise lists, alignment |
//! | [`dither`] | counter-based dither (Philox4x32-7) |
//! | [`quantise`] | float to signed integer, saturation |
//! | [`power`] | digitiser power and its averaging window |
//! | [`model`] | the golden model: all of the above, end to end |
//!
//! Backends restate these fast; tests hold them against [`model`]. The formulas are derived in
//! `docs/signal-path.md`. Nothing here depends on anything of ours but [`units`](crate::units) and
//! the value types of [`config`](crate::config).

pub mod ddc;
pub mod delay;
pub mod dither;
pub mod double;
pub mod mixer;
pub mod model;
pub mod pfb;
pub mod power;
pub mod quantise;
pub mod remez;
pub mod unpack;
