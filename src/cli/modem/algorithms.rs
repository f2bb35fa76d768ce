//! Which algorithms a receiver has: this program's own, or the original's.

use clap::{Args, ValueEnum};
use karoo_modem::rx::original::FEEDBACK;
use karoo_modem::rx::{Acquisition, Equaliser, ModeVote, RxConfig, RxConfigError};

use crate::cli::Failure;

/// Algorithms of the receiver.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Algorithms {
    /// How frames are found and sampled
    #[arg(long, value_enum, value_name = "WAY", default_value_t)]
    acquisition: Find,
    /// Samples after which the original's acquisition hears of the end of a frame
    #[arg(long, value_name = "SAMPLES", default_value_t = FEEDBACK, allow_negative_numbers = true)]
    feedback: u32,
    /// How the equaliser's taps are found
    #[arg(long, value_enum, value_name = "WAY", default_value_t)]
    equaliser: Start,
    /// Step by which taps follow decisions, from 0 to 0.01, but no larger than what is stable,
    /// about 1/(64 taps); 0.0005 follows slow fading; not with lms, which has its own
    #[arg(
        long,
        value_name = "STEP",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    pub step: f32,
    /// How the modulation is read from its three copies
    #[arg(long, value_enum, value_name = "WAY", default_value_t)]
    vote: Vote,
    /// Find DC and IQ imbalance of the front end blindly, and take them off; wants payloads that
    /// are scrambled, or a carrier offset
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
        if self.step != 0.0 && self.equaliser() == Equaliser::Lms {
            let why = "least mean squares have a step of their own; leave --step out";
            return Err(Failure::usage(format!(
                "--step {} with --equaliser lms: {why}",
                self.step
            )));
        }
        Ok(())
    }

    /// Refuses threads that the original's acquisition has no use for.
    pub fn check_threads(&self, threads: Option<usize>) -> Result<(), Failure> {
        let threads = threads.filter(|threads| *threads > 0);
        match threads.filter(|_| self.is_original()) {
            None => Ok(()),
            Some(threads) => Err(Failure::usage(format!(
                "--threads {threads} with --acquisition original: it finds and decodes on one \
                 thread; leave --threads out"
            ))),
        }
    }

    /// Settings of a receiver with these algorithms, the others as usual.
    pub fn config(&self) -> RxConfig {
        RxConfig {
            acquisition: self.acquisition(),
            correct: self.correct,
            equaliser: self.equaliser(),
            step: self.step,
            vote: self.vote(),
            ..RxConfig::default()
        }
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
