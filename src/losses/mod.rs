//! What a live engine loses, said where people look: a line when a loss begins, few while it goes
//! on, one when it ends.
//!
//! [`Counters`] reads what the engine's threads count anyway; [`Watch`] compares it with what it
//! was, a second ago as a rule, and has a [`LossEvent`] for each line that is due. [`LossRecord`]
//! keeps both for pages, metrics and sensors. Clocks are the caller's. Nothing here is on the way of
//! a sample.

mod counts;
mod record;
mod status;
#[cfg(test)]
mod tests;
mod text;
mod track;
mod watch;

pub use counts::{Counters, LossCounts, StreamCounts};
pub use record::{ActiveLoss, LossLine, LossRecord, LossTotal};
pub use status::summary;
pub use track::{LINE, LossStage};
pub use watch::{Moment, Setup, Watch};

use crate::recv::DropCause;

/// What is lost, or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Nothing that is a heap comes.
    NoInput,
    /// Heaps of one polarisation come, and none of the other.
    OnePolarisation,
    /// The time of heaps is not the host's.
    WrongTime,
    /// Datagrams were not placed; the number of their [`DropCause`].
    Dropped(DropCause),
    /// Ports lost packets, because nobody took them.
    RxMissed,
    /// Ports lost packets, because there was no buffer for them.
    RxNoBuffer,
    /// Packets came with errors.
    RxErrors,
    /// Chunks lacked heaps.
    MissingHeaps,
    /// Output heaps were not sent.
    NotSent,
    /// Ports could not send packets.
    TxErrors,
}

/// How bad a cause is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is lost by it, or not yet.
    Warning,
    /// Something is lost by it.
    Loss,
}

impl Cause {
    /// All of them: what explains others before these.
    pub fn all() -> impl Iterator<Item = Self> {
        let drops = DropCause::ALL.iter().map(|&cause| Self::Dropped(cause));
        let before = [Self::NoInput, Self::OnePolarisation, Self::WrongTime];
        let behind = [
            Self::RxMissed,
            Self::RxNoBuffer,
            Self::RxErrors,
            Self::MissingHeaps,
            Self::NotSent,
            Self::TxErrors,
        ];
        before.into_iter().chain(drops).chain(behind)
    }

    /// Whether something is lost by it.
    pub fn severity(self) -> Severity {
        match self {
            Self::Dropped(DropCause::Duplicate) | Self::WrongTime => Severity::Warning,
            _ => Severity::Loss,
        }
    }

    /// Stable name, for logs and whoever reads them.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoInput => "no-input",
            Self::OnePolarisation => "one-polarisation",
            Self::WrongTime => "wrong-time",
            Self::Dropped(cause) => cause.name(),
            Self::RxMissed => "rx-missed",
            Self::RxNoBuffer => "rx-no-buffer",
            Self::RxErrors => "rx-errors",
            Self::MissingHeaps => "missing-heaps",
            Self::NotSent => "not-sent",
            Self::TxErrors => "tx-errors",
        }
    }
}

/// A line that is due.
#[derive(Clone, Debug, PartialEq)]
pub struct LossEvent {
    /// About what.
    pub cause: Cause,
    /// Whether it begins, goes on or ends.
    pub stage: LossStage,
    /// How many datagrams, heaps or packets were lost since it began.
    pub count: u64,
    /// The line.
    pub text: String,
}
