//! Which algorithms a receiver has: this program's own, or the original's.

use clap::{Args, ValueEnum};
use karoo_modem::rx::original::FEEDBACK;
use karoo_modem::rx::{Acquisition, Equaliser, ModeVote, RxConfigError};

use crate::cli::Failure;

/// Algorithms of the receiver.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Algorithms {
    /// How frames are found and sampled
    #[arg(long, value_enum, value_name = "WAY", default_value_t)]
    acquisition: Find,
    /// Samples after which the original's acquisition hears of the end of a frame
    #[arg(long, value_name = "SAMPLES", default_value_t = FEEDBACK)]
    feedback: u32,
    /// How the equaliser's taps are found
    #[arg(long, value_enum, value_name = "WAY", default_value_t)]
    equaliser: Start,
    /// How the modulation is read from its three copies
    #[arg(long, value_enum, value_name = "WAY", default_value_t)]
    vote: Vote,
    /// Find DC and IQ imbalance of the front end blindly, and take them off
    #[arg(long)]
    pub correct: bool,
    /// As --vote majority, by the name that karoo modem ber had for it
    #[arg(long, hide = true, conflicts_with = "vote")]
    majority: bool,
}

/// How frames are found and sampled.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Find {
    /// Correlations by power, and fits over the preamble
    #[default]
    Fits,
    /// Gain control, a fixed threshold, state machines and an early-late loop, as in the original
    Original,
}

/// How taps are found.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Start {
    /// Least squares over the channel estimation field
    #[default]
    Ls,
    /// Least mean squares, as in the original
    Lms,
}

/// How the modulation is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Vote {
    /// Values are added up before a decision
    #[default]
    Soft,
    /// The majority of decided bits, as in the original
    Majority,
}

impl Algorithms {
    /// How the modulation is read.
    pub fn vote(&self) -> ModeVote {
        match self.majority || self.vote == Vote::Majority {
            true => ModeVote::Majority,
            false => ModeVote::Soft,
        }
    }

    /// Whether frames are found as the original finds them.
    pub fn is_original(&self) -> bool {
        matches!(self.acquisition, Find::Original)
    }

    /// Refuses what the ways do not follow.
    pub fn check(&self) -> Result<(), Failure> {
        if self.feedback != FEEDBACK && !self.is_original() {
            let why = "it is for --acquisition original; add that, or leave --feedback out";
            return Err(Failure::usage(format!(
                "--feedback {}: {why}",
                self.feedback
            )));
        }
        Ok(())
    }

    /// How frames are found.
    pub fn acquisition(&self) -> Acquisition {
        match self.acquisition {
            Find::Fits => Acquisition::Fits,
            Find::Original => Acquisition::Original {
                feedback: self.feedback,
            },
        }
    }

    /// How taps are found.
    pub fn equaliser(&self) -> Equaliser {
        match self.equaliser {
            Start::Ls => Equaliser::LeastSquares,
            Start::Lms => Equaliser::Lms,
        }
    }
}

/// The option of a setting that cannot be.
pub(super) fn refused(error: RxConfigError) -> Failure {
    let option = match error {
        RxConfigError::Taps(_) => "--taps",
        RxConfigError::Step(_) => "--step",
        RxConfigError::Feedback(_) => "--feedback",
        RxConfigError::Threads(_) | RxConfigError::NoThread { .. } => "--threads",
    };
    Failure::usage(format!("{option}: {error}"))
}
