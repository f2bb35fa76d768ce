//! The lines about input that does not come, or is not placed.

use std::time::Duration;

use dsp::SampleBits;
use ground::counted;

use super::numbers::{grouped, per_second, span};
use super::text::{Line, Words};
use crate::config::RecvConfig;
use crate::recv::DropCause;

impl Line<'_> {
    pub(super) fn dropped(&self, cause: DropCause) -> Words {
        let recv = &self.engine.recv;
        let last = &self.counts.last;
        let packet_samples = recv.packet_samples;
        let seconds =
            |samples: Option<u64>| samples.unwrap_or(0) as f64 / self.engine.clock.adc_sample_rate;
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
                let late = long(behind);
                match self.times.explains_behind(behind, self.now) {
                    Some(ago) => Words::new(
                        format!(
                            "heaps come {late} behind the newest, which jumped {} ahead {} ago",
                            long(self.times.jump()),
                            span(ago)
                        ),
                        "if that time was set right again, start the engine again; if digitisers have different times, \
                         synchronise them first, and start it with their `--sync-time`",
                    ),
                    None => Words::new(
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

    pub(super) fn no_input(&self) -> Words {
        if self.now == self.silent_since {
            let (silences, lasted) = (self.silences, span(self.due.lasted));
            let name = self.cause.name();
            let silences = counted(silences as u64, "silence");
            let what = format!("heaps come and go, with {silences} in {lasted}: {name}");
            return Words::new(what, "");
        }
        let since = span(self.now.duration_since(self.silent_since));
        let lost = |&cause: &DropCause| self.counts.lost(cause) > 0;
        let first = match self.counts.placed > 0 || DropCause::ALL.iter().any(lost) {
            false => format!("no heap has come in {since}"),
            true => format!("no heap comes, since {since}"),
        };
        let (on, source) = (self.engine.interfaces.join(", "), &self.engine.source);
        let last = self.last.counts;
        let seconds = self
            .now
            .duration_since(self.last.at)
            .as_secs_f64()
            .max(1e-9);
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
        let last = self.last.counts;
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

    pub(super) fn one_polarisation(&self) -> Words {
        let Some(alone) = self.alone else {
            return Words::new("", "");
        };
        let (pol, name) = (alone.absent, self.cause.name());
        let what = match alone.is_over {
            true => {
                let long = span(alone.last.duration_since(alone.since));
                format!("no heap of polarisation {pol} came for {long}: {name}, the other came")
            }
            false => {
                let since = span(self.now.duration_since(alone.since));
                let dropped = self.most_dropped();
                let dropped = dropped.filter(|(cause, _)| *cause != DropCause::NotIpv4Udp);
                let dropped = dropped.map_or(String::new(), |(cause, count)| {
                    let (count, cause) = (grouped(count), cause.name());
                    format!("; datagrams meanwhile that were {cause}: {count}")
                });
                format!(
                    "no heap of polarisation {pol} comes, since {since}: {name}, the other comes{dropped}"
                )
            }
        };
        let source = &self.engine.source;
        Words::new(
            what,
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
