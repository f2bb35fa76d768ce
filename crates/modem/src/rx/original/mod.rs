//! The original's receiver (revision 1.40), part by part and put together, so that its figures can
//! be had again.
//!
//! ```text
//! samples ─► matched filter ─► gain ─┬──────────────► delay ─┬─► every third ─► carrier ─► symbols
//!                               ▲    │                 ▲ ▲   │         │
//!                               │    └─► peaks ─► timing └─ early-late ▼
//!                               └─ freeze, reset: late ──────────── packets
//! ```
//!
//! Everything runs on every sample, or on every symbol behind the delay. Feedback comes late, since
//! its way leads through queues between cores: that is part of the algorithm, and settable where it
//! costs frames ([`FEEDBACK`]).
//!
//! | part | what it does |
//! |---|---|
//! | [`GainControl`] | brings the mean power to 1 |
//! | [`Correlator`], [`PeakDetector`] | correlation with the Golay pair, peaks above a threshold |
//! | [`Timing`] | state machine over peaks: delay, clock |
//! | [`VariableDelay`] | cubic interpolation |
//! | [`EarlyLate`] | follows the symbols within a frame |
//! | [`PacketControl`] | state machine over symbols: where the fields begin |
//! | [`CoarseCarrier`] | frequency over the short training field |
//! | [`BlockLms`] | equaliser by least mean squares |

mod carrier;
mod delay;
mod early_late;
mod equaliser;
mod front;
mod gain;
mod packets;
mod peaks;
#[cfg(test)]
mod tests;
mod timing;

pub use carrier::CoarseCarrier;
pub use delay::{VariableDelay, farrow_taps};
pub use early_late::EarlyLate;
pub use equaliser::BlockLms;
pub(crate) use equaliser::{level, train};
pub use front::FEEDBACK;
pub(crate) use front::{Front, Packet};
pub use gain::GainControl;
pub use packets::{PacketControl, PacketEvent};
pub use peaks::{Correlator, DIFFERENTIATOR, PeakDetector, Seen, early, in_range};
pub use timing::{Timing, TimingState};
