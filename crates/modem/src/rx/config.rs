//! Settings of the receiver.

use serde::{Deserialize, Serialize};

use super::simd::Level;
use crate::waveform::{CheckField, ModeSet};

/// How frames are found, and symbols made of their samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Acquisition {
    /// Data-aided: detection by correlation, relative to power, then fits over the known preamble.
    #[default]
    Fits,
    /// The original's, of [`original`](super::original): gain control, a fixed threshold, state
    /// machines over peaks, an early-late loop.
    Original {
        /// Samples after which the end of a frame comes back to timing and gain:
        /// [`FEEDBACK`](super::original::FEEDBACK) in the original.
        feedback: u32,
    },
}

/// How the equaliser gets its taps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Equaliser {
    /// Least squares over the channel estimation field; then a carrier loop, and decision-directed
    /// LMS if [`RxConfig::step`] is not 0.
    #[default]
    LeastSquares,
    /// Least mean squares (LMS), the original's [`BlockLms`](super::original::BlockLms): trained
    /// over the field, then decision-directed, and no carrier loop.
    #[serde(rename = "mean-squares")]
    Lms,
}

/// How the modulation is read from its three copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModeVote {
    /// The values of the symbols are added up before a decision.
    #[default]
    Soft,
    /// The original's: of each bit the majority of its decided copies.
    Majority,
}

/// Settings of a [`Receiver`](super::Receiver).
#[derive(Clone, Debug)]
pub struct RxConfig {
    /// How frames are found.
    pub acquisition: Acquisition,
    /// Whether DC and IQ imbalance of the front end are found blindly and taken off: a
    /// [`Correction`](super::Correction).
    pub correct: bool,
    /// Taps of the equaliser, one a symbol: a multiple of 8, from 8 to 128.
    pub taps: usize,
    /// How the taps are found.
    pub equaliser: Equaliser,
    /// Step μ of LMS after the header, 0 to 0.01. A block of 64 symbols takes the largest stable
    /// step if that is smaller: about 1/(64 taps), for symbols of power 1. With 0 nothing but the
    /// carrier loop changes the taps.
    pub step: f32,
    /// How the modulation is read.
    pub vote: ModeVote,
    /// Modulations that are expected.
    pub modes: ModeSet,
    /// What the check field has.
    pub check: CheckField,
    /// Whether frames have a soft value of each bit of their body.
    pub soft: bool,
    /// Whether frames have their equalised points and the taps.
    pub points: bool,
    /// Threads that decode frames, beside the one that finds them; 0 does both on the caller's, as
    /// does the original's acquisition.
    pub threads: usize,
    /// What loops are compiled for.
    pub level: Level,
}

impl Default for RxConfig {
    fn default() -> RxConfig {
        RxConfig {
            acquisition: Acquisition::Fits,
            correct: false,
            taps: 16,
            equaliser: Equaliser::LeastSquares,
            step: 0.0,
            vote: ModeVote::Soft,
            modes: ModeSet::default(),
            check: CheckField::default(),
            soft: false,
            points: false,
            threads: 0,
            level: Level::detect(),
        }
    }
}

/// Settings that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum RxConfigError {
    /// A number of taps that the equaliser does not have.
    #[error("an equaliser of {0} taps: it has a multiple of 8, from 8 to 128, such as 16")]
    Taps(usize),
    /// A step that is not a number, negative, or above 0.01.
    #[error("a step of {0}: it is from 0 to 0.01, such as 0.0005")]
    Step(f32),
    /// A feedback that is later than any frame.
    #[error("a feedback of {0} samples: at most a million, such as 2640")]
    Feedback(u32),
    /// More threads than any machine has use for.
    #[error("{0} threads: at most 1024, such as one for each core")]
    Threads(usize),
    /// More threads than the system lets this process have.
    #[error("{wanted} threads: the system starts no more of them here; give at most {started}")]
    NoThread {
        /// How many were asked for.
        wanted: usize,
        /// How many there could be.
        started: usize,
    },
}

impl RxConfig {
    /// Checks all settings.
    pub fn check(&self) -> Result<(), RxConfigError> {
        if !(8..=128).contains(&self.taps) || !self.taps.is_multiple_of(8) {
            return Err(RxConfigError::Taps(self.taps));
        }
        if !(0.0..=0.01).contains(&self.step) {
            return Err(RxConfigError::Step(self.step));
        }
        if let Acquisition::Original { feedback } = self.acquisition
            && feedback > 1_000_000
        {
            return Err(RxConfigError::Feedback(feedback));
        }
        if self.threads > 1024 {
            return Err(RxConfigError::Threads(self.threads));
        }
        Ok(())
    }
}
