//! The words of a line: what is lost, how much of it, what is known, and the option that mends it.

use std::time::{Duration, Instant};

use dpdk::PortStats;
use dsp::SampleBits;
use ground::N_POL;

use super::counts::{LossCounts, StreamCounts};
use super::lcores::LcoreTroubles;
use super::time::Times;
use super::track::{Due, LossStage};
use super::{Cause, Setup};
use crate::config::RecvConfig;
use crate::recv::DropCause;

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
    pub setup: &'a Setup,
    pub cause: Cause,
    pub due: Due,
    /// All that this look found, and what goes on.
    pub lossy: &'a [Cause],
    /// The look before.
    pub before: (Instant, &'a LossCounts),
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
        } = self.due;
        let (what, fate) = self.what();
        let (all, span) = (grouped(count), span(lasted));
        match stage {
            LossStage::Begins if rate == 0.0 && count == 1 => {
                format!("1 {} {fate}", what.trim_end_matches('s'))
            }
            LossStage::Begins if rate == 0.0 => format!("{all} {what} {fate}"),
            LossStage::Begins => format!("{} {what}/s {fate}", per_second(rate)),
            _ => format!(
                "still {} {what}/s {fate}, {all} in {span}",
                per_second(rate)
            ),
        }
    }

    fn end(&self) -> String {
        let (count, lasted) = (self.due.count, span(self.due.lasted));
        let (what, fate) = self.what();
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
            Cause::LinkDown => format!("{name} is over: all links are up, after {lasted}"),
            Cause::ClockNotSynchronised => {
                format!("{name} is over: this host's clock is synchronised, after {lasted}")
            }
            _ => format!(
                "{name} is over: {} {what} {fate} in {lasted}",
                grouped(count)
            ),
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
                "is its link up, and fast enough?",
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
            | Cause::ClockNotSynchronised => Words::new("", ""),
        }
    }

    fn dropped(&self, cause: DropCause) -> Words {
        let recv = &self.setup.recv;
        let last = &self.counts.last;
        let packet_samples = recv.packet_samples;
        let seconds =
            |samples: Option<u64>| samples.unwrap_or(0) as f64 / self.setup.clock.adc_sample_rate;
        let long =
            |seconds: f64| span(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
        if let (DropCause::WrongHeapLength, Some(bytes)) = (cause, last.heap_length) {
            let (expected, options) = (recv.heap_bytes(), options_for(recv, bytes));
            let what = format!("heaps have {bytes} bytes where {expected} are expected");
            return Words::new(what, format!("{options}?"));
        }
        match cause {
            DropCause::BadTimestamp => {
                let such = last
                    .timestamp
                    .map_or(String::new(), |t| format!(" such as {t}"));
                Words::new(
                    format!(
                        "timestamps{such} are not multiples of the {packet_samples} samples of a heap"
                    ),
                    "`--recv-packet-samples`, or `--mask-timestamp`?",
                )
            }
            DropCause::StrayTime => {
                let ahead = long(seconds(last.ahead));
                Words::new(
                    format!(
                        "heaps are {ahead} ahead of all others, damaged on the way or from a digitiser of another time"
                    ),
                    "synchronise it, or look at cables",
                )
            }
            DropCause::TooOld => {
                let behind = seconds(last.behind);
                let (late, jumped) = (long(behind), self.times.explains_behind(behind, self.now));
                match jumped {
                    true => Words::new(
                        format!(
                            "heaps come {late} behind the newest, as far as these jumped ahead: digitisers of different times"
                        ),
                        "synchronise them, then start the engine again with their `--sync-time`",
                    ),
                    false => Words::new(
                        format!(
                            "heaps come {late} behind the newest, late on their way, or a digitiser's time went back"
                        ),
                        "if all digitisers' did, start the engine again with their `--sync-time`",
                    ),
                }
            }
            DropCause::NoFreeChunk => self.no_free_chunk(),
            cause => match cause.explanation().split_once(": ") {
                Some((what, mends)) => Words::new(what, mends),
                None => Words::new(cause.explanation(), ""),
            },
        }
    }

    fn no_free_chunk(&self) -> Words {
        let full = |output: &&StreamCounts| output.free_chunks == 0;
        let full = self.counts.outputs.iter().filter(full);
        let full: Vec<_> = full.map(|output| &output.name[..]).collect();
        let no_link = self.counts.links.iter().any(|(_, up, _)| !up);
        if full.is_empty() {
            return Words::new(
                "the engine does not keep up",
                "`--backend cuda`, CPUs of its own (`--print-plan`) or fewer outputs; against short stalls \
                 `--recv-spare-chunks`",
            );
        }
        let mends = match no_link {
            true => format!("see {}", Cause::LinkDown.name()),
            false => "`--send-rate-factor`, or a faster link".to_owned(),
        };
        let what = format!("all output chunks of {} wait to be sent", full.join(", "));
        Words::new(what, mends)
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
        let here = |cause: &&Cause| match cause {
            Cause::Dropped(cause) => cause.is_loss(),
            cause => matches!(cause, Cause::RxMissed | Cause::RxNoBuffer | Cause::RxErrors),
        };
        let here: Vec<_> = self.lossy.iter().filter(here).map(|c| c.name()).collect();
        match here.is_empty() {
            true => Words::new(
                "they did not reach this host's port",
                "look at the digitiser, at cables and at the counters of switches",
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
        let missing = self.counts.missing != self.from.missing
            || self.lossy.contains(&Cause::MissingHeaps)
            || self.lossy.contains(&Cause::OnePolarisation)
            || self.lossy.contains(&Cause::NoInput);
        let (why, mends) = match missing {
            true => ("a part of their input is missing", ""),
            false => (
                "their input is gone when it is their turn",
                "look for delays that jump, or that differ by more than `--max-delay-diff`",
            ),
        };
        Words::new(format!("{}: {why}", outputs.join(", ")), mends)
    }

    fn no_input(&self) -> Words {
        if self.counts.placed > 0 && self.now == self.silent_since {
            let (silences, lasted) = (self.silences, span(self.due.lasted));
            let name = self.cause.name();
            let what = format!("heaps come and go, with {silences} silences in {lasted}: {name}");
            return Words::new(what, "");
        }
        let since = span(self.now.duration_since(self.silent_since));
        let first = match self.counts.placed {
            0 => format!("no heap has come in {since}"),
            _ => format!("no heap comes, since {since}"),
        };
        let (on, source) = (self.setup.interfaces.join(", "), &self.setup.source);
        let (before, last) = self.before;
        let seconds = self.now.duration_since(before).as_secs_f64().max(1e-9);
        let rate = |count: u64| per_second(count as f64 / seconds);
        let datagrams = self.counts.datagrams.saturating_sub(last.datagrams);
        let packets = self.counts.rx_packets().saturating_sub(last.rx_packets());
        let arrives = match self.most_dropped() {
            Some((cause, count)) if datagrams > 0 => {
                let to = self.counts.last.destination;
                let to = to.filter(|_| cause == DropCause::NotOurs);
                let to = to.map_or(String::new(), |to| format!(" such as {to}"));
                format!(
                    "{} datagrams/s come to {on}, of which most, {}, are {}{to}",
                    rate(datagrams),
                    grouped(count),
                    cause.name(),
                )
            }
            _ if packets > 0 => format!(
                "{} packets/s come to {on}, none for the engine",
                rate(packets)
            ),
            _ => format!("nothing comes to {on}"),
        };
        let name = self.cause.name();
        Words::new(
            format!("{first}: {name}, {arrives}; expected are heaps for {source}"),
            "does the digitiser send to them, is `--recv-interface` the one that they come through, does the network have \
             an IGMP querier?",
        )
    }

    /// Why most datagrams since the look before were not placed.
    fn most_dropped(&self) -> Option<(DropCause, u64)> {
        let last = self.before.1;
        let new = |cause: DropCause| {
            self.counts
                .dropped(cause)
                .saturating_sub(last.dropped(cause))
        };
        let causes = DropCause::ALL.iter().map(|&cause| (cause, new(cause)));
        causes
            .filter(|(_, count)| *count > 0)
            .max_by_key(|(_, count)| *count)
    }

    fn one_polarisation(&self) -> Words {
        let since = span(self.due.lasted);
        let here = |pol: usize| self.counts.heaps[pol] > self.before.1.heaps[pol];
        let pol = usize::from(here(0));
        let dropped = self.most_dropped();
        let dropped = dropped.filter(|(cause, _)| *cause != DropCause::NotIpv4Udp);
        let dropped = match dropped {
            Some((cause, count)) => {
                format!(
                    "; datagrams meanwhile that were {1}: {0}",
                    grouped(count),
                    cause.name()
                )
            }
            None => String::new(),
        };
        let (name, source) = (self.cause.name(), &self.setup.source);
        Words::new(
            format!(
                "no heap of polarisation {pol} comes, since {since}: {name}, the other comes{dropped}"
            ),
            format!(
                "are its destinations among {source}, does its digitiser send, and with an odd number if it is \
                 polarisation 1?"
            ),
        )
    }
}

/// Options with which heaps of so many bytes are expected, the most likely first.
pub fn options_for(recv: &RecvConfig, bytes: u64) -> String {
    let (bits, samples) = (
        u64::from(recv.sample_bits.get()),
        recv.packet_samples as u64,
    );
    let mut options = Vec::new();
    let other_bits = (8 * bytes)
        .is_multiple_of(samples)
        .then(|| 8 * bytes / samples);
    let other_bits = other_bits.and_then(|bits| SampleBits::new(bits.try_into().ok()?));
    let other_samples = (8 * bytes).is_multiple_of(bits).then(|| 8 * bytes / bits);
    let other_samples = other_samples.filter(|samples| samples.is_multiple_of(8));
    if let Some(bits) = other_bits {
        options.push(format!("`--dig-sample-bits {}`", bits.get()));
    }
    if let Some(samples) = other_samples {
        options.push(format!("`--recv-packet-samples {samples}`"));
    }
    // Digitisers have samples of few widths, and heaps of powers of two.
    if other_samples.is_some_and(u64::is_power_of_two)
        && !other_bits.is_some_and(|bits| matches!(bits.get(), 8 | 10 | 12))
    {
        options.reverse();
    }
    match options.is_empty() {
        true => "`--dig-sample-bits`, or `--recv-packet-samples`".to_owned(),
        false => options.join(" or "),
    }
}

/// A number with its digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(2 * digits.len());
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A number per second: whole, unless it is small.
pub fn per_second(rate: f64) -> String {
    match rate {
        rate if rate == 0.0 || rate >= 9.95 => grouped(rate.round() as u64),
        rate if rate < 0.1 => "under 0.1".to_owned(),
        rate => format!("{rate:.1}"),
    }
}

/// A share of 1, as a reader of a log wants it.
pub fn percent(share: f64) -> String {
    match 100.0 * share {
        percent if percent > 0.0 && percent < 0.1 => "under 0.1 %".to_owned(),
        percent => format!("{percent:.1} %"),
    }
}

/// A duration with as much precision as anybody wants.
pub fn span(time: Duration) -> String {
    let whole = time.as_secs();
    match whole {
        0..120 => format!("{:.1} s", time.as_secs_f64()),
        120..7200 => format!("{} min {} s", whole / 60, whole % 60),
        7200..172_800 => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
        _ => format!("{} days", grouped(whole / 86400)),
    }
}
