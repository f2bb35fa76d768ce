//! Timestamps that wrap, and single ones that are wrong.

use super::*;
use crate::doctor::PolHeaps;

/// What comes, with other timestamps.
fn timed(wire: &mut Evidence, timestamp: impl Fn(u64) -> u64) {
    let pols = wire.wire.flows.iter_mut().flat_map(|flow| &mut flow.pols);
    for pol in pols {
        let heaps = std::mem::take(&mut pol.timestamps);
        let bytes = pol.sizes.keys().next().copied().unwrap_or(0);
        *pol = PolHeaps::default();
        for (was, unix) in heaps {
            pol.note(timestamp(was), bytes, unix);
        }
    }
}

/// Timestamps wrap in the middle of the look, whether or not a heap's samples divide their range.
#[test]
fn timestamps_that_wrap_are_those_of_any_other_stream() {
    let later = (1 << 48) - ((BEGUN + SECONDS / 2.0) * RATE) as u64;
    let wrapped = |senders: &[Sender]| {
        let mut wire = evidence(senders);
        timed(&mut wire, |timestamp| (timestamp + later) % (1 << 48));
        wire
    };
    let asked = Asked {
        sync_time: Some(SYNC_TIME - later as f64 / RATE),
        ..asked()
    };
    assert_eq!(diagnose(&asked, &wrapped(&both(|_| {}))), []);
    let (codes, _) = found(&asked, &wrapped(&both(|sender| sender.step = 2 * HEAP)));
    assert_eq!(codes, [Ailment::MissingHeaps]);
    let odd = wrapped(&both(|sender| (sender.bytes, sender.step) = (3750, 3000)));
    let finding = only(&asked, &odd, Ailment::HeapSamples);
    assert!(
        finding.way_out.starts_with("--recv-packet-samples 3000,"),
        "{finding:?}"
    );
}

/// A heap of either polarisation has another timestamp than it should.
fn damaged(wire: &mut Evidence, timestamp: u64) {
    let right = ((BEGUN + 0.5) * RATE) as u64;
    timed(wire, |was| if was == right { timestamp } else { was });
}

#[test]
fn a_stray_heap_is_told_as_one() {
    let mut wire = evidence(&both(|_| {}));
    damaged(&mut wire, 1 << 40);
    let finding = only(&asked(), &wire, Ailment::StrayTimestamps);
    let seen = finding.evidence.join("\n");
    let words = "in 1 of 2 000 heaps of polarisation 0: 1099511627776, from 10.77.0.2";
    assert!(seen.contains(words), "{finding:?}");
    // What is wrong with the others is found as ever.
    let mut slow = evidence(&both(|sender| sender.step = 2 * HEAP));
    damaged(&mut slow, 1 << 40);
    let (codes, _) = found(&asked(), &slow);
    assert_eq!(codes, [Ailment::MissingHeaps, Ailment::StrayTimestamps]);
}

/// Nearer to the others than a stray, but before or behind them all.
#[test]
fn a_heap_that_comes_too_soon_or_too_late_spoils_no_rate() {
    for (timestamp, unix) in [(BEGUN + SECONDS + 0.7, 1.9), (BEGUN - 0.7, 0.1)] {
        let mut wire = evidence(&both(|_| {}));
        let pol = &mut wire.wire.flows[0].pols[0];
        let last = pol.span.unwrap()[1];
        let timestamp = (timestamp * RATE) as u64 / HEAP * HEAP;
        pol.note(timestamp, 5120, SYNC_TIME + BEGUN + unix);
        pol.note(last.0 + HEAP, 5120, last.1 + 0.001);
        assert_eq!(diagnose(&asked(), &wire), []);
    }
}

/// Of more heaps than timestamps are kept of.
#[test]
fn a_stray_that_comes_last_spoils_no_rate() {
    let fast = Asked {
        adc_sample_rate: Some(16.0 * RATE),
        ..asked()
    };
    let mut wire = evidence(&both(|sender| sender.rate = 16.0 * RATE));
    wire.wire.flows[0].pols[0].note(1 << 42, 5120, SYNC_TIME + BEGUN + SECONDS);
    assert_eq!(diagnose(&fast, &wire), []);
}

#[test]
fn a_damaged_timestamp_hides_nothing() {
    let off = ((BEGUN + 0.5) * RATE) as u64 + 8;
    let mut wire = evidence(&both(|_| {}));
    damaged(&mut wire, off);
    let finding = only(&asked(), &wire, Ailment::StrayTimestamps);
    let seen = finding.evidence.join("\n");
    assert!(
        seen.contains("is no multiple of 4096 in 1 of"),
        "{finding:?}"
    );
    let mut slow = evidence(&both(|sender| sender.step = 2 * HEAP));
    damaged(&mut slow, off);
    let (codes, _) = found(&asked(), &slow);
    assert_eq!(codes, [Ailment::MissingHeaps, Ailment::StrayTimestamps]);
    // Nor does it hide the samples of a heap.
    let mut short = evidence(&both(|sender| (sender.bytes, sender.step) = (2560, 2048)));
    damaged(&mut short, off);
    let (_, finding) = found(&asked(), &short);
    assert!(
        finding.way_out.starts_with("--recv-packet-samples 2048,"),
        "{finding:?}"
    );
}
