//! The words of a line: what is lost, how much of it, what is known, and the option that mends it.

use std::time::Instant;

use dpdk::PortStats;
use ground::N_POL;

use super::counts::{Look, LossCounts, StreamCounts};
use super::heldup::HeldUp;
use super::lcores::LcoreTroubles;
use super::links::Outages;
use super::numbers::{grouped, per_second, percent, span};
use super::power::Powers;
use super::time::Times;
use super::track::{Due, LossStage};
use super::watch::Alone;
use super::{Cause, WatchedEngine};

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    /// What is lost or wrong, and how it comes.
    pub what: String,
    /// What mends it, or where to look; may be empty.
    pub mends: String,
}

impl Words {
    pub(super) fn new(what: impl Into<String>, mends: impl Into<String>) -> Self {
        let (what, mends) = (what.into(), mends.into());
        Self { what, mends }
    }

    /// As one line.
    pub fn line(&self) -> String {
        match self.mends.is_empty() {
            true => self.what.clone(),
            false => format!("{}: {}", self.what, self.mends),
        }
    }
}

/// What a line is made of.
pub struct Line<'a> {
    pub engine: &'a WatchedEngine,
    pub cause: Cause,
    pub due: Due,
    /// All that this look found, and what goes on.
    pub lossy: &'a [Cause],
    /// Heaps that were lost on this host by what goes on, about.
    pub lost_here: u64,
    /// The look before.
    pub last: Look<'a>,
    /// Where the loss began.
    pub from: &'a LossCounts,
    pub now: Instant,
    /// When the silence of this moment began, or the last heap came.
    pub silent_since: Instant,
    /// Silences since the loss of all input began.
    pub silences: usize,
    pub counts: &'a LossCounts,
    pub times: &'a Times,
    pub lcores: &'a LcoreTroubles,
    pub outages: &'a Outages,
    pub held_up: &'a HeldUp,
    pub powers: &'a Powers,
    /// The last time that a polarisation came alone.
    pub alone: Option<Alone>,
}

impl Line<'_> {
    /// What it says.
    pub fn words(&self) -> Words {
        match self.due.stage {
            LossStage::Ends => Words::new(self.end(), ""),
            LossStage::Begins | LossStage::GoesOn => match self.cause {
                Cause::NoInput => self.no_input(),
                Cause::OnePolarisation => self.one_polarisation(),
                Cause::WrongTime => self.wrong_time(),
                Cause::TimeJumped => self.time_jumped(),
                Cause::LcoreWithoutCpu => self.lcore_without_cpu(),
                Cause::BusyLcore => self.busy_lcore(),
                Cause::LinkDown => self.link_down(),
                Cause::ClockNotSynchronised => self.clock_not_synchronised(),
                Cause::InputLevel => self.powers.input_words(),
                Cause::OutputLevel => self.powers.output_words(),
                Cause::TestPattern => self.powers.test_words(),
                _ => {
                    let Words { what, mends } = self.known();
                    let (amount, name) = (self.amount(), self.cause.name());
                    Words::new(format!("{amount}: {name}, {what}"), mends)
                }
            },
        }
    }

    /// What a count of this cause is of, and what becomes of it.
    fn what(&self) -> (&'static str, &'static str) {
        match self.cause {
            Cause::Dropped(_) => ("datagrams", "not placed"),
            Cause::RxMissed | Cause::RxNoBuffer => ("packets", "lost at this host's port"),
            Cause::RxErrors => ("packets", "received with errors"),
            Cause::TxErrors => ("packets", "not sent"),
            Cause::NotSent => ("output heaps", "not sent"),
            Cause::InputClipping => ("samples", "at full scale"),
            Cause::OutputClipping => ("output values", "clipped"),
            _ => ("heaps", "missing"),
        }
    }

    /// How many a second, or how many, and since when.
    fn amount(&self) -> String {
        let Due {
            stage,
            count,
            rate,
            lasted,
            none_for,
        } = self.due;
        let (what, fate) = self.what();
        let (all, ago, span) = (grouped(count), span(none_for), span(lasted));
        match stage {
            LossStage::Begins if rate == 0.0 => self.total(),
            LossStage::Begins => format!("{} {what}/s {fate}", per_second(rate)),
            _ if rate == 0.0 && !none_for.is_zero() => {
                let (what, were) = match count {
                    1 => (what.trim_end_matches('s'), "was"),
                    _ => (what, "were"),
                };
                format!("{all} {what} {were} {fate} in {span}, none for {ago}")
            }
            _ => format!(
                "still {} {what}/s {fate}, {all} in {span}",
                per_second(rate)
            ),
        }
    }

    /// How many since it began.
    fn total(&self) -> String {
        let (what, fate) = self.what();
        match self.due.count {
            1 => format!("1 {} {fate}", what.trim_end_matches('s')),
            count => format!("{} {what} {fate}", grouped(count)),
        }
    }

    fn end(&self) -> String {
        let lasted = span(self.due.lasted);
        let name = self.cause.name();
        match self.cause {
            Cause::NoInput if self.silences > 1 => {
                let silences = self.silences;
                format!("{name} is over: heaps come again, after {silences} silences in {lasted}")
            }
            Cause::NoInput => format!("{name} is over: heaps come again, after {lasted} without"),
            Cause::OnePolarisation => {
                format!("{name} is over: both polarisations come, after {lasted} of one alone")
            }
            Cause::WrongTime => {
                format!("{name} is over: the heaps' time agrees with this host's clock again")
            }
            Cause::TimeJumped => match self.due.count {
                1 => format!("{name} is over: the heaps' time goes on evenly"),
                jumps => format!(
                    "{name} is over: the heaps' time goes on evenly, after {} jumps in {lasted}",
                    grouped(jumps)
                ),
            },
            Cause::LcoreWithoutCpu => {
                format!("{name} is over: all lcores have their CPUs, after {lasted}")
            }
            Cause::BusyLcore => {
                format!("{name} is over: rx lcores have time left again, after {lasted}")
            }
            Cause::LinkDown => self.links_are_up(),
            Cause::InputLevel => {
                format!("{name} is over: the digitiser's level is good again, after {lasted}")
            }
            Cause::OutputLevel => {
                format!("{name} is over: all outputs have power again, after {lasted}")
            }
            Cause::TestPattern => {
                format!("{name} is over: spectra are sent again, after {lasted}")
            }
            Cause::ClockNotSynchronised => {
                format!("{name} is over: this host's clock is synchronised, after {lasted}")
            }
            _ => format!("{name} is over: {} in {lasted}", self.total()),
        }
    }

    /// What is known of the cause, and what mends it.
    fn known(&self) -> Words {
        match self.cause {
            Cause::Dropped(cause) => self.dropped(cause),
            Cause::RxMissed => Words::new(
                format!(
                    "{}: nobody took them in time",
                    self.ports(|port| port.rx_missed)
                ),
                "an rx lcore needs a CPU of its own (`--recv-affinity`, `karoo tune check`), stalls a larger \
                 `--recv-buffer` (through UDP sockets also `sysctl net.core.rmem_max`)",
            ),
            Cause::RxNoBuffer => Words::new(
                format!("{}: no buffer was free", self.ports(|port| port.rx_no_mbuf)),
                "try a larger `--recv-buffer`",
            ),
            Cause::RxErrors => Words::new(
                format!("{}: damaged on the way", self.ports(|port| port.rx_errors)),
                "look at cables, optics and MTU",
            ),
            Cause::TxErrors => Words::new(
                self.ports(|port| port.tx_errors),
                match self.lossy.contains(&Cause::LinkDown) {
                    true => format!("see {}", Cause::LinkDown.name()),
                    false => "is its link up, and fast enough?".to_owned(),
                },
            ),
            Cause::MissingHeaps => self.missing(),
            Cause::NotSent => self.not_sent(),
            Cause::InputClipping => self.input_clipping(),
            Cause::OutputClipping => self.output_clipping(),
            // These have lines of their own.
            Cause::NoInput
            | Cause::OnePolarisation
            | Cause::WrongTime
            | Cause::TimeJumped
            | Cause::LcoreWithoutCpu
            | Cause::BusyLcore
            | Cause::LinkDown
            | Cause::InputLevel
            | Cause::OutputLevel
            | Cause::TestPattern
            | Cause::ClockNotSynchronised => Words::new("", ""),
        }
    }

    /// Ports whose counter has moved since the loss began.
    fn ports(&self, value: fn(&PortStats) -> u64) -> String {
        let before = |name: &str| {
            let port = self.from.ports.iter().find(|(other, _)| other == name);
            port.map_or(0, |(_, stats)| value(stats))
        };
        let moved = self.counts.ports.iter();
        let moved = moved.filter(|(name, stats)| value(stats) > before(name));
        let names: Vec<_> = moved.map(|(name, _)| &name[..]).collect();
        format!("port {}", names.join(", "))
    }

    fn missing(&self) -> Words {
        let since = |count: fn(&LossCounts) -> [u64; N_POL]| {
            let (now, from) = (count(self.counts), count(self.from));
            [0, 1].map(|pol: usize| now[pol].saturating_sub(from[pol]))
        };
        let (missing, heaps) = (since(|counts| counts.missing), since(|counts| counts.heaps));
        let percent = [0, 1].map(|pol: usize| {
            let all = (missing[pol] + heaps[pol]).max(1);
            percent(missing[pol] as f64 / all as f64)
        });
        let Words { what, mends } = self.whereabouts();
        let what = format!(
            "{} of polarisation 0 and {} of 1: {what}",
            percent[0], percent[1]
        );
        Words::new(what, mends)
    }

    /// Where missing heaps were lost, as far as this host can tell.
    fn whereabouts(&self) -> Words {
        let here = self.lossy.iter().filter(|cause| cause.is_lost_heap());
        let here: Vec<_> = here.map(|cause| cause.name()).collect();
        // Of causes that go on, or since these heaps are missing: one may begin before the other,
        // and causes that are over do not go on.
        let since = self
            .counts
            .lost_here()
            .saturating_sub(self.from.lost_here());
        let lost_here = self.lost_here.max(since);
        match here.is_empty() {
            true => Words::new(
                "they did not reach this host's port",
                "look at the digitiser, at cables and at the counters of switches",
            ),
            // The counts need not be of quite the same time.
            false if 10 * lost_here < 9 * self.due.count => Words::new(
                format!(
                    "{} came and were lost here, the others did not reach this host's port",
                    grouped(lost_here)
                ),
                format!(
                    "see {}; for the others look at the digitiser, at cables and at the counters of switches",
                    here.join(", ")
                ),
            ),
            false => Words::new(
                "they came and were lost here",
                format!("see {}", here.join(", ")),
            ),
        }
    }

    fn not_sent(&self) -> Words {
        let from = |name: &str| {
            let output = self.from.outputs.iter().find(|output| output.name == name);
            output.map_or(0, |output| output.not_sent)
        };
        let of = |output: &StreamCounts| {
            let count = output.not_sent.saturating_sub(from(&output.name));
            (count > 0).then(|| format!("{} of {}", grouped(count), output.name))
        };
        let outputs: Vec<_> = self.counts.outputs.iter().filter_map(of).collect();
        // Batches are left out some time after their input was found to be missing.
        let lossy = |cause| self.lossy.contains(&cause);
        let other = lossy(Cause::MissingHeaps)
            || lossy(Cause::OnePolarisation)
            || lossy(Cause::NoInput)
            || self.lossy.iter().any(|cause| cause.is_lost_heap());
        // A jump counts as missing input as well.
        let missing = other || self.counts.missing != self.from.missing;
        let delays = "look for delays that jump, or that differ by more than `--max-delay-diff`";
        // What is missing may be too little for that.
        let unexplained = self.counts.unexplained.not_sent - self.from.unexplained.not_sent;
        let is_missing = missing && 2 * unexplained <= self.due.count;
        let (why, mends) = match (is_missing, lossy(Cause::TimeJumped) && !other) {
            (_, true) => (
                "nothing was sampled for most of their time",
                "see time-jumped",
            ),
            (true, false) => ("a part of their input is missing", ""),
            (false, false) if missing => (
                "the input of most of them came, and is gone when it is their turn",
                delays,
            ),
            (false, false) => ("their input is gone when it is their turn", delays),
        };
        Words::new(format!("{}: {why}", outputs.join(", ")), mends)
    }
}
