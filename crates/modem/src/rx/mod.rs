//! The receiver: samples to frames.
//!
//! ```text
//! samples ─► search ─► acquire ─► fit ─► equaliser's start ─► header ─► body ─► frames
//!            every     end of     timing, least squares       decisions, loops
//!            sample    the STF    clock,  over the CEF
//!            of a gap             frequency
//! └── the whole stream, one thread ──┘└────────── each frame by itself, any thread ─────┘
//! ```
//!
//! Inside a frame, work is done for symbols only: matched filter and interpolation are one bank of
//! filters (decision 70), and the frame's length is known. Nothing of a frame reaches the next one.
//! `docs/modem/receiver.md` has the formulas.
//!
//! # Rooms
//!
//! | room | what lives there |
//! |---|---|
//! | `receiver` | [`Receiver`]: blocks of samples in, frames out |
//! | `pool` | threads that decode |
//! | `acquirer` | the stream, and the state of acquisition |
//! | `decoder` | one frame: training, header, body, loops |
//! | `acquire`, `fit`, `solve` | end of the STF; timing and frequency; least squares |
//! | `samples` | the stream's samples by their positions |
//! | `search`, `blocks` | detection; correlations with known blocks |
//! | `correct`, `meter` | DC and IQ imbalance; level of the input |
//! | `decide` | decisions and soft values |
//! | [`original`] | the original's algorithms |
//! | `bank`, `simd` | filters of fractional delay; loops for the processor at hand |
//! | `config`, `frame` | settings; what comes out |

mod acquire;
mod acquirer;
mod bank;
mod blocks;
mod config;
mod correct;
mod decide;
mod decoder;
mod fit;
mod frame;
mod meter;
pub mod original;
mod pool;
mod receiver;
mod samples;
mod search;
mod sequence;
mod simd;
mod solve;
#[cfg(test)]
pub(crate) mod tests;

#[cfg(feature = "flow")]
pub(crate) use {
    acquire::Start, acquirer::Acquirer, acquirer::LIMIT, decoder::Decoder, decoder::FRAME_AFTER,
    receiver::FRAME_BEFORE, samples::Samples,
};

pub use config::{Acquisition, Equaliser, ModeVote, RxConfig, RxConfigError};
pub use correct::Correction;
pub use frame::{Counts, Missed, Outcome, ReceivedFrame};
pub use meter::{Meter, Metered};
pub use receiver::Receiver;
pub use sequence::SequenceGaps;
pub use simd::Level;
pub use solve::Planar;
