//! What a live engine loses, said where people look: a line when a loss begins, few while it goes
//! on, one when it ends.
//!
//! [`Counters`] reads what the engine's threads count anyway; [`Watch`] compares it with what it
//! was, a second ago as a rule, and has a [`LossEvent`] for each line that is due. [`LossRecord`]
//! keeps both for pages, metrics and sensors. Clocks are the caller's. Nothing here is on the way
//! of a sample.

mod age;
mod counts;
mod explained;
mod heldup;
mod input;
mod lcores;
mod levels;
mod links;
mod numbers;
mod pace;
mod power;
mod rank;
mod record;
mod states;
mod status;
#[cfg(test)]
mod tests;
mod text;
mod time;
mod track;
mod watch;

pub use age::{old_after, old_level};
pub use counts::{Counters, LossCounts, StreamCounts, UnexplainedCounts};
pub use input::options_for;
pub use lcores::LcoreCounts;
pub use numbers::{grouped, per_second, percent, span};
pub use power::{INPUT_DBFS, LevelSource, StreamLevel};
pub use record::{ActiveLoss, LossLine, LossRecord, LossTotal};
pub use text::Words;
pub use track::{LINE, LossStage};
pub use watch::{Moment, Watch, WatchedEngine};

use crate::recv::DropCause;

/// What is lost, or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A data thread does not get its CPU, or not all of it.
    LcoreWithoutCpu,
    /// A port has no link.
    LinkDown,
    /// Nothing that is a heap comes.
    NoInput,
    /// Heaps of one polarisation come, and none of the other.
    OnePolarisation,
    /// The time of heaps went ahead by more than the time that passed.
    TimeJumped,
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
    /// Known values are sent in place of spectra.
    TestPattern,
    /// An rx lcore has little time left.
    BusyLcore,
    /// Many of the digitiser's samples are at full scale.
    InputClipping,
    /// The digitiser's samples have no power, too little or too much.
    InputLevel,
    /// Quantisation clips many output values.
    OutputClipping,
    /// Quantisation leaves little else than zeros of an output.
    OutputLevel,
    /// The host's clock may be wrong.
    ClockNotSynchronised,
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
        let before = [
            Self::LcoreWithoutCpu,
            Self::LinkDown,
            Self::NoInput,
            Self::OnePolarisation,
            Self::TimeJumped,
            Self::WrongTime,
        ];
        let behind = [
            Self::RxMissed,
            Self::RxNoBuffer,
            Self::RxErrors,
            Self::MissingHeaps,
            Self::NotSent,
            Self::TxErrors,
            Self::TestPattern,
            Self::BusyLcore,
            Self::InputClipping,
            Self::InputLevel,
            Self::OutputClipping,
            Self::OutputLevel,
            Self::ClockNotSynchronised,
        ];
        before.into_iter().chain(drops).chain(behind)
    }

    /// Whether something is lost by it.
    pub fn severity(self) -> Severity {
        match self {
            Self::Dropped(DropCause::Duplicate)
            | Self::WrongTime
            | Self::TestPattern
            | Self::BusyLcore
            | Self::InputClipping
            | Self::InputLevel
            | Self::OutputClipping
            | Self::OutputLevel
            | Self::ClockNotSynchronised => Severity::Warning,
            _ => Severity::Loss,
        }
    }

    /// Whether it is a state, rather than so many heaps or packets.
    fn is_state(self) -> bool {
        matches!(
            self,
            Self::LcoreWithoutCpu
                | Self::LinkDown
                | Self::TimeJumped
                | Self::WrongTime
                | Self::TestPattern
                | Self::BusyLcore
                | Self::InputClipping
                | Self::InputLevel
                | Self::OutputClipping
                | Self::OutputLevel
                | Self::ClockNotSynchronised
        )
    }

    /// Whether what is lost for it are heaps that came, or may be.
    fn is_lost_heap(self) -> bool {
        match self {
            // Of heaps of another length, those that are descriptors are not counted as lost.
            Self::Dropped(cause) => cause.is_loss() || cause == DropCause::WrongHeapLength,
            cause => matches!(cause, Self::RxMissed | Self::RxNoBuffer | Self::RxErrors),
        }
    }

    /// Stable name, for logs and whoever reads them.
    pub fn name(self) -> &'static str {
        match self {
            Self::LcoreWithoutCpu => "lcore-without-cpu",
            Self::LinkDown => "link-down",
            Self::NoInput => "no-input",
            Self::OnePolarisation => "one-polarisation",
            Self::TimeJumped => "time-jumped",
            Self::WrongTime => "wrong-time",
            Self::Dropped(cause) => cause.name(),
            Self::RxMissed => "rx-missed",
            Self::RxNoBuffer => "rx-no-buffer",
            Self::RxErrors => "rx-errors",
            Self::MissingHeaps => "missing-heaps",
            Self::NotSent => "not-sent",
            Self::TxErrors => "tx-errors",
            Self::TestPattern => "test-pattern",
            Self::BusyLcore => "busy-lcore",
            Self::InputClipping => "input-clipping",
            Self::InputLevel => "input-level",
            Self::OutputClipping => "output-clipping",
            Self::OutputLevel => "output-level",
            Self::ClockNotSynchronised => "clock-not-synchronised",
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
