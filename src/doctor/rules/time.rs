//! Whether time goes by as options have it, and whether heaps still come.

use std::time::Duration;

use ground::Timestamp;

use super::Case;
use super::input::{ENOUGH, Input};
use crate::doctor::finding::{Ailment, Finding};
use crate::losses::{grouped, span};

/// Range of timestamps on the wire.
const RANGE: i128 = Timestamp::WIRE_RANGE as i128;
/// Seconds by which heaps may be early or late, for their time to be the host's.
const TIME_OFF: f64 = 0.5;
/// Seconds by which bunches of heaps may be uneven.
const UNEVEN: f64 = 0.02;
/// How far clocks may differ.
const RATES_DIFFER: f64 = 0.002;

pub fn rate(case: Case<'_>, input: &Input<'_>) -> Option<Finding> {
    let asked = case.asked.adc_sample_rate?;
    let pol = input.most();
    let [(from, begun), (to, ended)] = pol.marks(asked)?;
    let (samples, seconds) = (wrapped(to, from) as f64, ended - begun);
    if pol.timestamps.len() < ENOUGH || seconds < 4.0 * UNEVEN {
        return None;
    }
    let measured = samples / seconds;
    let factor = measured / asked;
    if (factor - 1.0).abs() <= RATES_DIFFER + UNEVEN / seconds {
        return None;
    }
    let unit = [(1e6, "M"), (1e3, "k"), (1e9, "G")];
    let unit = unit
        .iter()
        .find(|(unit, _)| (factor / unit - 1.0).abs() < 0.1);
    let way_out = match unit {
        Some((_, name)) => format!("write --adc-sample-rate {asked}{name}: the option is in hertz"),
        None => format!(
            "--adc-sample-rate should be about {}, or the digitiser sends slower than it samples",
            significant(measured)
        ),
    };
    Some(Finding::new(
        Ailment::AdcSampleRate,
        format!(
            "digitisers take {} samples/s, not the {asked} of --adc-sample-rate",
            significant(measured)
        ),
        [format!(
            "timestamps went on by {} in {seconds:.3} s",
            grouped(wrapped(to, from).unsigned_abs() as u64)
        )],
        way_out,
    ))
}

/// Four digits, as options take it.
fn significant(rate: f64) -> String {
    let step = 10f64.powi(rate.abs().max(1.0).log10().floor() as i32 - 3);
    let rounded = (rate / step).round() * step;
    match rounded {
        rate if rate >= 1e6 => format!("{}M", rounded / 1e6),
        rate => format!("{rate}"),
    }
}

/// From one timestamp to another, the shorter way round.
pub fn wrapped(to: u64, from: u64) -> i128 {
    let apart = (i128::from(to) - i128::from(from)).rem_euclid(RANGE);
    if apart >= RANGE / 2 {
        apart - RANGE
    } else {
        apart
    }
}

pub fn sync_time(case: Case<'_>, input: &Input<'_>) -> Option<Finding> {
    let (rate, sync_time) = (case.asked.adc_sample_rate?, case.asked.sync_time?);
    let [_, (timestamp, unix)] = input.most().marks(rate)?;
    let expected = ((unix - sync_time) * rate) as i128;
    let expected = expected.rem_euclid(RANGE) as u64;
    let ahead = wrapped(timestamp, expected) as f64 / rate;
    let heap = case.asked.recv.packet_samples as f64 / rate;
    if ahead.abs() <= TIME_OFF + heap {
        return None;
    }
    let apart = Duration::try_from_secs_f64(ahead.abs()).unwrap_or_default();
    let side = if ahead < 0.0 { "behind" } else { "ahead of" };
    let range = Duration::try_from_secs_f64(RANGE as f64 / rate).unwrap_or_default();
    Some(Finding::new(
        Ailment::SyncTime,
        format!(
            "the heaps' time is {} {side} this host's clock",
            span(apart)
        ),
        [
            format!(
                "the heap of timestamp {} came at UNIX time {unix:.3}",
                timestamp % Timestamp::WIRE_RANGE
            ),
            format!("--sync-time is {sync_time}, --adc-sample-rate {rate}"),
        ],
        format!(
            "--sync-time should be about {:.1} (or a multiple of {} from that: timestamps have 48 bits), unless this \
             host's clock is wrong: timedatectl",
            sync_time - ahead,
            span(range),
        ),
    ))
}

/// Whether heaps came no more, long before the look ended.
pub fn stopped(case: Case<'_>, input: &Input<'_>) -> Option<Finding> {
    let pol = input.most();
    let [(_, begun), (_, last)] = pol.span?;
    let (looked, ended) = case.evidence.looked;
    let silence = ended - last;
    let between = (last - begun) / (pol.count.max(2) - 1) as f64;
    // Who looks may have missed the end of what came.
    if silence < (20.0 * between).max(0.5) || case.evidence.missed > 0 {
        return None;
    }
    let came = format!(
        "{} heaps came until {:.1} s after this host became a member, then none for {silence:.1} s",
        grouped(input.total.heaps),
        last - looked
    );
    let queries = case.evidence.wire.queries.keys();
    if queries.filter(|(on, _)| case.receives(on)).count() > 0 {
        return Some(Finding::new(
            Ailment::Stopped,
            format!(
                "heaps came to {}, and come no more",
                input.total.endpoints()
            ),
            [came, "an IGMP querier was heard".to_owned()],
            "did the digitiser stop? look at it, and at the counters of switches",
        ));
    }
    Some(Finding::new(
        Ailment::NoQuerier,
        "the network forgets this host's memberships: no IGMP querier asks for them",
        [
            came,
            format!("no IGMP query was heard in {:.1} s", case.seconds()),
        ],
        "enable an IGMP querier in this VLAN, on the switch or on the router; or let the switch flood multicast (no \
         IGMP snooping)",
    ))
}
