//! The mathematics, written once, in `f64`.
//!
//! | module | what it defines |
//! |---|---|
//! | [`unpack`] | packed digitiser samples |
//! | [`pfb`] | prototype filter of the polyphase filter bank |
//! | [`dither`] | counter-based dither (Philox4x32-10) |
//! | [`quantise`] | float to signed integer, saturation |
//!
//! Backends restate these fast; tests hold them against the golden model. The formulas are derived in
//! `docs/signal-path.md`. Nothing here depends on anything of ours but [`units`](crate::units) and
//! the value types of [`config`](crate::config).

pub mod dither;
pub mod pfb;
pub mod quantise;
pub mod unpack;
