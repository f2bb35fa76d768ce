//! The channel simulator: what a radio and its surroundings do to samples.
//!
//! The parts are in the order of the original's simulations, with the receiver's converter behind
//! them:
//!
//! ```text
//! gain ─► sample clock, delay ─► frequency, phase ─► paths | fading ─► noise ─►
//!     IQ imbalance ─► DC ─► quantisation
//! ```
//!
//! All is computed in double precision. What comes out depends on settings, seed and input alone,
//! not on how the input is cut into calls. Each part draws from a random stream of its own: noise
//! is the same with fading and without.

mod clock;
mod fading;
mod front_end;
mod noise;
mod paths;
mod rotation;
mod settings;
mod simulator;

#[cfg(test)]
mod tests;

pub use clock::INTERPOLATOR_TAPS;
pub use front_end::{Converter, IqImbalance};
pub use paths::{Path, Profile, UnknownProfile};
pub use settings::{ChannelSettings, Fading, Setting, SettingError};
pub use simulator::{Channel, ChannelCounts};
