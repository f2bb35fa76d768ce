//! Which of the causes at work comes first.

use std::cmp::Reverse;
use std::time::Duration;

use dpdk::PortStats;

use super::counts::LossCounts;
use super::{Cause, Severity, status};

/// How long nothing is lost for a cause until others that go on come before it.
pub const GOES_ON: Duration = Duration::from_secs(3);

/// Place of a cause among those at work, the smallest first: losses before warnings, those that go
/// on before those that do not, those that explain others before what is counted, and of this what
/// the largest `share` of the data was lost for.
pub fn place(cause: Cause, goes_on: bool, share: f64) -> impl Ord {
    let is_loss = cause.severity() == Severity::Loss;
    let billionths = (1e9 * share) as u64;
    (
        !is_loss,
        !goes_on,
        is_loss && is_counted(cause),
        Reverse(billionths),
        cause,
    )
}

/// Whether what is lost for a cause is counted piece by piece, so that it says how bad that is.
fn is_counted(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::Dropped(_)
            | Cause::RxMissed
            | Cause::RxNoBuffer
            | Cause::RxErrors
            | Cause::MissingHeaps
            | Cause::NotSent
            | Cause::TxErrors
    )
}

/// Share of the input or output that was lost for each cause between two moments, less what other
/// causes explain. `missing`: whether missing heaps count.
pub fn shares(before: &LossCounts, after: &LossCounts, missing: bool) -> Vec<(Cause, f64)> {
    let input = status::causes(before, after, missing);
    let lost: u64 = input.iter().map(|(_, count)| count).sum();
    let placed = after.placed.saturating_sub(before.placed);
    let mut shares: Vec<_> = input
        .into_iter()
        .map(|(cause, count)| (cause, share(count, placed + lost)))
        .collect();
    let new = after.unexplained.not_sent - before.unexplained.not_sent;
    let all = after.sent() - before.sent() + after.not_sent_since(before);
    shares.push((Cause::NotSent, share(new, all)));
    let ports = |value: fn(&PortStats) -> u64| {
        let sum = |counts: &LossCounts| counts.ports.iter().map(|(_, port)| value(port)).sum();
        let (new, old): (u64, u64) = (sum(after), sum(before));
        new.saturating_sub(old)
    };
    let errors = ports(|port| port.tx_errors);
    let all = errors + ports(|port| port.tx_packets);
    shares.push((Cause::TxErrors, share(errors, all)));
    shares
}

/// A part of `all`; 0 if there is nothing.
pub fn share(part: u64, all: u64) -> f64 {
    part as f64 / all.max(1) as f64
}
