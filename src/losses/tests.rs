//! A watch whose clock and counters the test holds.

use std::time::{Duration, Instant};

mod dropped;
mod links;
mod power;
mod rank;
mod silences;
mod states;

use dpdk::PortStats;
use dsp::SampleBits;
use ground::SampleClock;

use super::*;
use crate::config::RecvConfig;

/// Heaps a second of each polarisation.
const HEAPS: u64 = 250;
const SYNC_TIME: f64 = 1_763_700_000.0;
const RATE: f64 = 1_024_000.0;
const CHUNK: u64 = 16384;

struct Engine {
    watch: Watch,
    begun: Instant,
    seconds: u64,
    counts: LossCounts,
}

/// A line, and the second after which it was said.
type Said = (u64, LossEvent);

impl Engine {
    fn new() -> Self {
        Self::on(&["k0"])
    }

    /// One whose input comes through these interfaces.
    fn on(interfaces: &[&str]) -> Self {
        let counts = LossCounts {
            outputs: vec![StreamCounts {
                name: "w".to_owned(),
                free_chunks: 2,
                heaps_per_missing: 8,
                ..StreamCounts::default()
            }],
            ports: vec![("k0".to_owned(), PortStats::default())],
            ..LossCounts::default()
        };
        let watched = WatchedEngine {
            recv: RecvConfig {
                packet_samples: 4096,
                sample_bits: SampleBits::new(10).unwrap(),
                chunk_samples: CHUNK as usize,
                mask_timestamp: false,
            },
            clock: SampleClock {
                adc_sample_rate: RATE,
                sync_time: SYNC_TIME,
            },
            source: "239.102.0.64+7,239.102.1.64+7".to_owned(),
            interfaces: interfaces.iter().map(|name| (*name).to_owned()).collect(),
        };
        let begun = Instant::now();
        Self {
            watch: Watch::new(watched, begun, counts.clone()),
            begun,
            seconds: 0,
            counts,
        }
    }

    /// One that has been at work for a while.
    fn at_work() -> Self {
        let mut engine = Self::new();
        assert_eq!(engine.run(20, whole), []);
        engine
    }

    /// So many seconds, in each of which the counters change like this.
    fn run(&mut self, seconds: u64, mut change: impl FnMut(&mut LossCounts)) -> Vec<Said> {
        let mut said = Vec::new();
        for _ in 0..seconds {
            self.seconds += 1;
            let newest = self.seconds * RATE as u64;
            let is_first = self.counts.newest.is_none();
            self.counts.newest = self.counts.newest.map(|_| newest);
            change(&mut self.counts);
            if is_first {
                self.counts.newest = self.counts.newest.map(|_| newest);
            }
            let now = Moment {
                at: self.begun + Duration::from_secs(self.seconds),
                unix: SYNC_TIME + self.seconds as f64,
            };
            let events = self.watch.look(now, self.counts.clone());
            said.extend(events.into_iter().map(|event| (self.seconds, event)));
        }
        said
    }
}

/// Heaps of both polarisations come and are placed.
fn heaps(counts: &mut LossCounts, pols: [u64; 2]) {
    let all = pols[0] + pols[1];
    counts.datagrams += all;
    counts.placed += all;
    counts.chunks += u64::from(all > 0);
    counts.heaps = [counts.heaps[0] + pols[0], counts.heaps[1] + pols[1]];
    counts.ports[0].1.rx_packets += all;
    if all > 0 && counts.newest.is_none() {
        counts.newest = Some(0);
    }
}

/// A second as it should be.
fn whole(counts: &mut LossCounts) {
    heaps(counts, [HEAPS; 2]);
    counts.outputs[0].sent += 500;
}

/// A second in which datagrams are dropped for this cause as well.
fn dropped(cause: DropCause, count: u64) -> impl FnMut(&mut LossCounts) {
    move |counts| {
        counts.datagrams += count;
        counts.drops[cause as usize] += count;
    }
}

/// What there is to show of a cause at this moment.
fn shown(engine: &Engine, cause: Cause) -> &str {
    let mut active = engine.watch.active();
    let found = active.find(|(other, ..)| *other == cause);
    &found.unwrap_or_else(|| panic!("{cause:?} is over")).2.what
}

fn stages(said: &[Said], cause: Cause) -> Vec<(u64, LossStage, u64)> {
    let of = said.iter().filter(|(_, event)| event.cause == cause);
    of.map(|(second, event)| (*second, event.stage, event.count))
        .collect()
}

fn lines(said: &[Said], cause: Cause) -> Vec<(u64, LossStage)> {
    let stages = stages(said, cause).into_iter();
    stages.map(|(second, stage, _)| (second, stage)).collect()
}

fn text(said: &[Said], cause: Cause, stage: LossStage) -> &str {
    let mut of = said.iter().map(|(_, event)| event);
    let found = of.find(|event| event.cause == cause && event.stage == stage);
    &found.unwrap_or_else(|| panic!("{said:?}")).text
}

#[test]
fn a_run_without_faults_says_nothing() {
    let mut engine = Engine::new();
    // The first chunks and the first output chunk are not whole, descriptors and other traffic
    // come.
    let first = engine.run(2, |counts| {
        whole(counts);
        counts.missing = [7, 12];
        counts.outputs[0].not_sent = 4;
    });
    let other = engine.run(600, |counts| {
        whole(counts);
        dropped(DropCause::NotIpv4Udp, 3)(counts);
        dropped(DropCause::NotOurs, 3)(counts);
        dropped(DropCause::WrongHeapLength, 2)(counts);
        counts.metadata += 2;
    });
    assert_eq!((first, other), (vec![], vec![]));
    assert_eq!(
        engine.watch.status(),
        "Running: 500 heaps/s in, none lost, 500 heaps/s out"
    );
    assert_eq!(engine.watch.active().count(), 0);
}

#[test]
fn a_loss_is_said_when_it_begins_seldom_while_it_lasts_and_when_it_ends() {
    let mut engine = Engine::at_work();
    let cause = Cause::Dropped(DropCause::BadMagic);
    let mut said = engine.run(100, |counts| {
        whole(counts);
        dropped(DropCause::BadMagic, 3271)(counts);
    });
    said.extend(engine.run(60, whole));
    let expected = [
        (22, LossStage::Begins, 2 * 3271),
        (32, LossStage::GoesOn, 12 * 3271),
        (52, LossStage::GoesOn, 32 * 3271),
        (92, LossStage::GoesOn, 72 * 3271),
        (125, LossStage::Ends, 100 * 3271),
    ];
    assert_eq!(stages(&said, cause), expected);
    assert_eq!(said.len(), expected.len());
    let begins = text(&said, cause, LossStage::Begins);
    assert_eq!(
        begins,
        "3 271 datagrams/s not placed: bad-magic, Not SPEAD-64-48: another sender uses this address and port."
    );
    let goes_on = text(&said, cause, LossStage::GoesOn);
    assert!(
        goes_on.starts_with("still 3 271 datagrams/s not placed, 39 252 in 12.0 s: bad-magic"),
        "{goes_on}"
    );
    assert_eq!(
        text(&said, cause, LossStage::Ends),
        "bad-magic is over: 327 100 datagrams not placed in 100.0 s"
    );
}

/// One datagram in so many seconds, for an hour: lines are never closer than ten seconds, they get
/// fewer, and in the end each datagram is in one of them.
#[test]
fn an_intermittent_loss_neither_floods_nor_hides() {
    for every in [2, 6, 11, 17, 40, 100] {
        let mut engine = Engine::at_work();
        let mut second = 0;
        let mut lost = 0;
        let mut said = engine.run(3600, |counts| {
            whole(counts);
            second += 1;
            if second % every == 0 {
                lost += 1;
                dropped(DropCause::TooOld, 1)(counts);
            }
        });
        said.extend(engine.run(600, whole));
        let lines = stages(&said, Cause::Dropped(DropCause::TooOld));
        let seconds: Vec<_> = lines.iter().map(|(second, ..)| *second).collect();
        assert!(
            seconds
                .windows(2)
                .all(|pair| pair[1] - pair[0] >= LINE.as_secs()),
            "{every}: {lines:?}"
        );
        assert!((4..=30).contains(&lines.len()), "{every}: {lines:?}");
        let ended = lines
            .iter()
            .filter(|(_, stage, _)| *stage == LossStage::Ends);
        assert_eq!(ended.map(|(.., count)| count).sum::<u64>(), lost, "{every}");
        assert_eq!(lines.last().unwrap().1, LossStage::Ends, "{every}");
    }
}

#[test]
fn input_that_never_came_is_said_after_five_seconds() {
    let mut engine = Engine::new();
    let mut said = engine.run(20, |_| ());
    said.extend(engine.run(3, whole));
    assert_eq!(
        stages(&said, Cause::NoInput),
        [(5, LossStage::Begins, 0), (15, LossStage::GoesOn, 0)]
    );
    let begins = text(&said, Cause::NoInput, LossStage::Begins);
    assert!(
        begins.starts_with("no heap has come in 5.0 s: no-input, nothing comes to k0;")
            && begins.contains("239.102.0.64+7,239.102.1.64+7")
            && begins.contains("`--recv-interface`"),
        "{begins}"
    );
    said = engine.run(10, whole);
    assert_eq!(stages(&said, Cause::NoInput), [(25, LossStage::Ends, 0)]);
    assert_eq!(
        text(&said, Cause::NoInput, LossStage::Ends),
        "no-input is over: heaps come again, after 20.0 s without"
    );
    assert_eq!(said.len(), 1, "{said:?}");
}

#[test]
fn datagrams_for_others_are_told_from_silence() {
    let mut engine = Engine::new();
    let said = engine.run(6, |counts| {
        dropped(DropCause::NotOurs, 500)(counts);
        dropped(DropCause::NotIpv4Udp, 1)(counts);
        counts.last.destination = Some("239.102.0.64:7149".parse().unwrap());
    });
    let begins = text(&said, Cause::NoInput, LossStage::Begins);
    assert!(
        begins.contains("501 datagrams/s come to k0")
            && begins.contains("500, are not-ours such as 239.102.0.64:7149"),
        "{begins}"
    );
}

#[test]
fn one_polarisation_alone_is_said() {
    let mut engine = Engine::at_work();
    let mut said = engine.run(10, |counts| {
        heaps(counts, [HEAPS, 0]);
        counts.missing[1] += HEAPS;
        counts.outputs[0].not_sent += 500;
    });
    assert_eq!(
        engine.watch.status(),
        "Running: 250 heaps/s in, 50.0 % lost (one-polarisation), 0 heaps/s out, 100.0 % not sent"
    );
    said.extend(engine.run(20, whole));
    assert_eq!(
        stages(&said, Cause::OnePolarisation),
        [
            (22, LossStage::Begins, 2 * HEAPS),
            (32, LossStage::Ends, 10 * HEAPS)
        ]
    );
    let begins = text(&said, Cause::OnePolarisation, LossStage::Begins);
    assert!(
        begins.starts_with("no heap of polarisation 1 comes, since 2.0 s"),
        "{begins}"
    );
    assert_eq!(stages(&said, Cause::MissingHeaps), []);
    let not_sent = text(&said, Cause::NotSent, LossStage::Begins);
    assert_eq!(
        not_sent,
        "500 output heaps/s not sent: not-sent, 1 000 of w: a part of their input is missing"
    );
}

/// Batches are left out some time after the chunk that lacks their input.
#[test]
fn delays_are_not_blamed_while_heaps_are_missing() {
    let mut engine = Engine::at_work();
    let mut said = engine.run(1, |counts| {
        heaps(counts, [HEAPS / 2; 2]);
        counts.missing = counts.missing.map(|missing| missing + HEAPS / 2);
    });
    said.extend(engine.run(1, whole));
    said.extend(engine.run(3, |counts| {
        heaps(counts, [HEAPS; 2]);
        counts.outputs[0].not_sent += 500;
    }));
    let not_sent = text(&said, Cause::NotSent, LossStage::Begins);
    assert!(
        not_sent.ends_with("a part of their input is missing"),
        "{not_sent}"
    );
}

#[test]
fn heaps_that_never_reach_the_host_are_told_from_those_lost_in_it() {
    let mut engine = Engine::at_work();
    let lossy = |counts: &mut LossCounts| {
        heaps(counts, [HEAPS - 5, HEAPS]);
        counts.missing[0] += 5;
    };
    let said = engine.run(3, lossy);
    assert_eq!(
        text(&said, Cause::MissingHeaps, LossStage::Begins),
        "5.0 heaps/s missing: missing-heaps, 2.0 % of polarisation 0 and 0.0 % of 1: they did not reach this host's port: \
         look at the digitiser, at cables and at the counters of switches"
    );
    let mut engine = Engine::at_work();
    let said = engine.run(3, |counts| {
        lossy(counts);
        counts.ports[0].1.rx_missed += 5;
    });
    let missing = text(&said, Cause::MissingHeaps, LossStage::Begins);
    assert!(missing.contains("see rx-missed"), "{missing}");
    let port = text(&said, Cause::RxMissed, LossStage::Begins);
    assert!(
        port.starts_with("5.0 packets/s lost at this host's port: rx-missed, port k0:")
            && port.contains("`--recv-affinity`"),
        "{port}"
    );
}

/// What it has counted so far is not lost anew when it can be read again.
#[test]
fn a_port_that_cannot_be_read_for_a_moment_has_lost_nothing() {
    let mut engine = Engine::at_work();
    engine.run(1, |counts| {
        whole(counts);
        counts.ports[0].1.rx_missed = 1_000_000;
    });
    engine.run(60, whole);
    let mut hidden = Vec::new();
    let mut said = engine.run(3, |counts| {
        counts.ports.append(&mut hidden);
        whole(counts);
        hidden = std::mem::take(&mut counts.ports);
    });
    engine.counts.ports = hidden;
    said.extend(engine.run(5, whole));
    assert_eq!(said, []);
}

#[test]
fn one_alone_is_told_in_the_singular() {
    let mut engine = Engine::at_work();
    let mut said = engine.run(1, |counts| {
        whole(counts);
        dropped(DropCause::TooOld, 1)(counts);
    });
    said.extend(engine.run(60, whole));
    let ends = text(&said, Cause::Dropped(DropCause::TooOld), LossStage::Ends);
    assert_eq!(ends, "too-old is over: 1 datagram not placed in 1.0 s");
}

#[test]
fn heaps_of_another_time_name_the_sync_time_that_would_agree() {
    for (off, side, sync_time) in [
        (-1000.0, "16 min 40 s behind", "1763701000.0"),
        (37.0, "37.0 s ahead of", "1763699963.0"),
        (-1.0, "1.0 s behind", "1763700001.0"),
    ] {
        let mut engine = Engine::new();
        engine.run(2000, whole);
        let shift = |counts: &mut LossCounts| {
            whole(counts);
            let newest = counts.newest.unwrap() as f64 + off * RATE;
            counts.newest = Some(newest as u64);
        };
        let mut said = engine.run(10, shift);
        said.extend(engine.run(20, whole));
        let lines = stages(&said, Cause::WrongTime);
        assert_eq!(
            lines,
            [(2004, LossStage::Begins, 0), (2014, LossStage::Ends, 0)],
            "{off}"
        );
        let time = |(_, event): &Said| matches!(event.cause, Cause::WrongTime | Cause::TimeJumped);
        assert!(said.iter().all(time), "{said:?}");
        let begins = text(&said, Cause::WrongTime, LossStage::Begins);
        assert!(
            begins.contains(side) && begins.contains(&format!("should be about {sync_time}")),
            "{begins}"
        );
    }
}

/// Whoever is late for a moment, or whose clock is a little off, is not said to have another time.
#[test]
fn a_moment_of_lateness_is_no_other_time() {
    let mut engine = Engine::at_work();
    let said = engine.run(60, |counts| {
        whole(counts);
        let late = if counts.chunks % 3 == 0 { 2.0 } else { 0.3 };
        counts.newest = counts.newest.map(|newest| newest - (late * RATE) as u64);
    });
    assert_eq!(said, []);
}

#[test]
fn a_capture_may_be_silent_and_of_another_time() {
    let mut engine = Engine::on(&[]);
    engine.run(20, |_| ());
    let said = engine.run(20, |counts| {
        whole(counts);
        counts.newest = Some(0);
    });
    assert_eq!(said, []);
}

#[test]
fn a_summary_has_every_count() {
    let mut engine = Engine::at_work();
    engine.run(1, |counts| {
        dropped(DropCause::TooOld, 12)(counts);
        dropped(DropCause::WrongHeapLength, 13_286)(counts);
        counts.missing = [3, 1234];
        counts.outputs[0].not_sent = 8;
        counts.ports[0].1.rx_missed = 7;
        counts.ports[0].1.tx_errors = 1500;
    });
    assert_eq!(
        engine.watch.summary(LossCounts {
            ports: Vec::new(),
            ..engine.counts.clone()
        }),
        [
            "input: 23 298 datagrams, 10 000 heaps placed, 5 000 and 5 000 of them in chunks, which lacked 3 and 1 234; \
             datagrams not placed: 13 286 wrong-heap-length, 12 too-old",
            "output w: 10 000 heaps sent, 8 not sent",
            "port k0: packets 7 missed, 1 500 not sent",
        ]
    );
}
