//! How an engine is in one line, and what it came to in a few.

use std::time::Duration;

use dpdk::PortStats;
use ground::N_POL;

use super::counts::LossCounts;
use super::numbers::{grouped, per_second, percent, span};
use super::{Cause, rank};
use crate::recv::DropCause;

/// The line for the time between two moments. `silent`: for how long no heap has come; `missing`:
/// whether missing heaps count; `goes_on`: whether a cause does.
pub fn status(
    before: &LossCounts,
    after: &LossCounts,
    over: Duration,
    silent: Option<Duration>,
    missing: bool,
    goes_on: impl Fn(Cause) -> bool,
) -> String {
    let seconds = over.as_secs_f64();
    if seconds == 0.0 {
        return "Running: up".to_owned();
    }
    let rate = |count: u64| per_second(count as f64 / seconds);
    let placed = after.placed - before.placed;
    let sent = after.sent() - before.sent();
    let mut out = format!("{} heaps/s out", rate(sent));
    let not_sent = after.not_sent_since(before);
    if not_sent > 0 {
        let share = percent(rank::share(not_sent, sent + not_sent));
        out = format!("{out}, {share} not sent");
    }
    if let Some(silent) = silent {
        let since = span(silent);
        return format!(
            "Running: no heaps in for {since} ({}), {out}",
            Cause::NoInput.name()
        );
    }
    let causes = causes(before, after, missing);
    let lost: u64 = causes.iter().map(|(_, count)| count).sum();
    let all = placed + lost;
    let place = |&&(cause, count): &&(Cause, u64)| {
        rank::place(cause, goes_on(cause), rank::share(count, all))
    };
    let top = causes.iter().min_by_key(place);
    let loss = match top {
        Some((cause, _)) => {
            let share = percent(rank::share(lost, all));
            format!("{share} lost ({})", cause.name())
        }
        None => "none lost".to_owned(),
    };
    format!("Running: {} heaps/s in, {loss}, {out}", rate(placed))
}

/// What was lost of the input between two moments, each heap once. `missing`: whether missing heaps
/// count.
pub fn causes(before: &LossCounts, after: &LossCounts, missing: bool) -> Vec<(Cause, u64)> {
    let ports = |value: fn(&PortStats) -> u64| {
        let sum = |counts: &LossCounts| counts.ports.iter().map(|(_, port)| value(port)).sum();
        let (new, old): (u64, u64) = (sum(after), sum(before));
        new.saturating_sub(old)
    };
    let mut causes = vec![
        (Cause::RxMissed, ports(|port| port.rx_missed)),
        (Cause::RxNoBuffer, ports(|port| port.rx_no_mbuf)),
        (Cause::RxErrors, ports(|port| port.rx_errors)),
    ];
    let drops = DropCause::ALL.iter().copied();
    // The first copy was placed.
    let drops = drops.filter(|cause| *cause != DropCause::Duplicate);
    causes.extend(drops.map(|cause| {
        let count = after.lost(cause).saturating_sub(before.lost(cause));
        (Cause::Dropped(cause), count)
    }));
    if missing {
        // Those that came and were not placed are missing in their chunks as well.
        let known: u64 = causes.iter().map(|(_, count)| count).sum();
        let heaps = |pol: usize| after.heaps[pol] - before.heaps[pol];
        let new = |pol: usize| after.missing[pol].saturating_sub(before.missing[pol]);
        let one = (0..N_POL).any(|pol| heaps(pol) == 0 && new(pol) > 0);
        let cause = if one {
            Cause::OnePolarisation
        } else {
            Cause::MissingHeaps
        };
        let all: u64 = (0..N_POL).map(new).sum();
        causes.push((cause, all.saturating_sub(known)));
    }
    causes.retain(|(_, count)| *count > 0);
    causes
}

/// What a run came to: a line for its input, one for each output, one for each port that lost
/// packets, and one for each link that went down.
pub fn summary(counts: &LossCounts) -> Vec<String> {
    let mut dropped: Vec<_> = DropCause::ALL
        .iter()
        .map(|&cause| (cause, counts.dropped(cause)))
        .filter(|(_, count)| *count > 0)
        .collect();
    dropped.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let dropped: Vec<_> = dropped
        .into_iter()
        .map(|(cause, count)| format!("{} {}", grouped(count), cause.name()))
        .collect();
    let dropped = match &dropped[..] {
        [] => "every datagram was placed".to_owned(),
        causes => format!("datagrams not placed: {}", causes.join(", ")),
    };
    let [heaps, missing] = [counts.heaps, counts.missing].map(|counts| counts.map(grouped));
    let input = format!(
        "input: {} datagrams, {} heaps placed, {} and {} of them in chunks, which lacked {} and {}; {dropped}",
        grouped(counts.datagrams),
        grouped(counts.placed),
        heaps[0],
        heaps[1],
        missing[0],
        missing[1],
    );
    let output = |output: &super::StreamCounts| {
        let [sent, not_sent] = [output.sent, output.not_sent].map(grouped);
        format!(
            "output {}: {sent} heaps sent, {not_sent} not sent",
            output.name
        )
    };
    let outputs = counts.outputs.iter().map(output);
    let fallen = counts.links.iter().filter(|(.., downs)| *downs > 0);
    let links = fallen.map(|(port, _, downs)| {
        let times = if *downs == 1 { "time" } else { "times" };
        format!(
            "port {port}: its link went down {} {times}",
            grouped(*downs)
        )
    });
    let ports = counts.ports.iter().filter_map(|(port, stats)| {
        let lost = [
            (stats.rx_missed, "missed"),
            (stats.rx_no_mbuf, "without a buffer"),
            (stats.rx_errors, "damaged"),
            (stats.tx_errors, "not sent"),
        ];
        let lost = lost.into_iter().filter(|(count, _)| *count > 0);
        let words: Vec<_> = lost
            .map(|(count, what)| format!("{} {what}", grouped(count)))
            .collect();
        (!words.is_empty()).then(|| format!("port {port}: packets {}", words.join(", ")))
    });
    let lines = std::iter::once(input).chain(outputs);
    lines.chain(ports).chain(links).collect()
}
