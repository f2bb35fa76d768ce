//! What the nodes of the library compute, as operations on many samples.
//!
//! Each function is the twin of a node's step: the same numbers come out, to the last bit. One that
//! returns false has no such form for these types, and the node goes step by step.

mod arithmetic;
mod choose;
mod filter;
mod logic;
mod state;

pub(super) use arithmetic::{convert, gain, product, saturate, sum};
pub(super) use choose::{complex, concat, mux, pass, real_imag, select, switch};
pub(super) use filter::{atan2, demodulate, dot, fir, function, lut, modulate, nco};
pub(super) use logic::{bitwise, compare, logic, shift};
pub(super) use state::{counter, delay, down, tapped, up};

/// Elements beyond which operations that go one by one are not worth it.
const MOST: usize = 64;
