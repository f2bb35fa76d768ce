//! Which time heaps are taken to be of.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::super::super::lane_mirror::LaneMirror;
use super::super::super::lane_time::told_by;
use super::*;

/// The newest chunk after a heap with the low bits of this chunk's timestamp.
fn taken_for(placer: &mut HeapPlacer, pool: &MbufPool, chunk: u64) -> Option<u64> {
    let timestamp = chunk * recv().chunk_samples as u64 % Timestamp::WIRE_RANGE;
    let mbuf = heap(pool, timestamp);
    let mut clock = PhaseTimer::start(PhaseTimes::new("rx", None));
    // Nobody moves the window while it waits.
    placer.abort.set();
    let _no_free_chunk = burst(placer, &mbuf, &mut clock);
    placer.time.newest
}

#[test]
fn the_host_clock_tells_which_timestamp_is_meant() {
    const RATE: f64 = 1e9;
    const CHUNKS: u64 = Timestamp::WIRE_RANGE / 256;
    let (memory, _collector) = memory_for(2);
    let (RxLcore { mut placer, .. }, _sender) = lcore("rx_clock", &memory, 0);
    let pool = frames("rx_clock", 1);
    // This moment is in so many chunks' time.
    let host = |chunks: u64| {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        SampleClock {
            adc_sample_rate: RATE,
            sync_time: unix.as_secs_f64() - chunks as f64 * 256.0 / RATE,
        }
    };
    let first = 3 * CHUNKS + CHUNKS / 10;
    placer.epoch = EpochHint::HostClock(host(first));
    assert_eq!(taken_for(&mut placer, &pool, first), Some(first));

    // The other lane follows it, whatever its clock says.
    let (
        RxLcore {
            placer: mut other, ..
        },
        _sender,
    ) = lcore("rx_other", &memory, 1);
    other.epoch = EpochHint::HostClock(host(first + 5 * CHUNKS));
    assert_eq!(taken_for(&mut other, &pool, first + 1), Some(first + 1));

    // Without heaps for more than half of the range, the nearest timestamp is behind; for more than
    // the whole of it, ahead.
    let mut later = first;
    for tenths in [7, 13, 3, 24] {
        let before = later;
        later += CHUNKS * tenths / 10;
        placer.epoch = EpochHint::HostClock(host(later + 256));
        // One heap may be wrong by what a clock allows.
        for _ in 1..CONFIRMED {
            assert_eq!(taken_for(&mut placer, &pool, later), Some(before));
        }
        assert_eq!(
            taken_for(&mut placer, &pool, later),
            Some(later),
            "{tenths}"
        );
    }
    // What is merely late is too old.
    assert_eq!(taken_for(&mut placer, &pool, later - 1000), Some(later));
    let (mbuf, mut clock) = (
        heap(&pool, 256 * (later % CHUNKS - 1000)),
        PhaseTimer::start(PhaseTimes::new("rx", None)),
    );
    let outcome = burst(&mut placer, &mbuf, &mut clock);
    assert_eq!(outcome, Err(DropCause::TooOld));
}

#[test]
fn digitisers_with_a_time_of_their_own_begin_in_the_first_range() {
    let (memory, _collector) = memory_for(1);
    let (RxLcore { mut placer, .. }, _sender) = lcore("rx_own_time", &memory, 0);
    let pool = frames("rx_own_time", 1);
    // 1000 s ago 2⁴⁸ samples had passed three times.
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let ranges = 3.0 * Timestamp::WIRE_RANGE as f64 / 1e9;
    placer.epoch = EpochHint::HostClock(SampleClock {
        adc_sample_rate: 1e9,
        sync_time: unix.as_secs_f64() - ranges - 1000.0,
    });
    for _ in 1..CONFIRMED {
        assert_eq!(taken_for(&mut placer, &pool, 100_000), None);
    }
    assert_eq!(taken_for(&mut placer, &pool, 100_000), Some(100_000));
}

/// The source of a replay tells lcores what not to wait for, whatever came on their own queues.
#[test]
fn what_is_not_waited_for_tells_the_time() {
    let (memory, _collector) = memory_for(1);
    let (RxLcore { mut placer, .. }, _sender) = lcore("rx_told", &memory, 0);
    let pool = frames("rx_told", 1);
    let mut clock = PhaseTimer::start(PhaseTimes::new("rx", None));
    // A single heap far ahead, then a single right one.
    assert_eq!(taken_for(&mut placer, &pool, 1 << 30), None);
    assert_eq!(taken_for(&mut placer, &pool, 1000), None);
    let mut settle = |placer: &mut HeapPlacer, floor| {
        let mut burst = Burst::new(&memory);
        placer.begin_burst();
        placer.settle(Some(floor), &mut burst, &mut clock);
        placer.end_burst(&mut burst);
        (placer.time.newest, placer.stats.drops(DropCause::StrayTime))
    };
    assert_eq!(settle(&mut placer, 1002), (Some(1000), 0));
    assert_eq!(settle(&mut placer, END_OF_STREAM), (Some(1000), 1));
}

/// Threads run as they like: how far another lcore of a replay is must change nothing.
#[test]
fn lcores_of_a_replay_do_not_look_at_each_other() {
    for others in [0, 9000] {
        let (memory, _collector) = memory_for(2);
        let name = format!("rx_alone_{others}");
        let (RxLcore { mut placer, .. }, _sender) = lcore(&name, &memory, 1);
        let pool = frames(&name, 1);
        placer.mode = RxMode::Replay;
        // Nobody moves the window here.
        placer.abort.set();
        open(
            &mut WindowLane::new(WindowOf(memory.clone()), 0),
            &memory,
            others,
        );
        assert_eq!(taken_for(&mut placer, &pool, 5000), None);
        // The source tells it.
        placer.lane.begin();
        placer.lane.raise(8998);
        placer.lane.end();
        assert_eq!(taken_for(&mut placer, &pool, 9000), Some(9000));
    }
}

/// A window that followed single heaps of another time could not go back.
#[test]
fn heaps_alone_with_their_time_do_not_move_the_window() {
    let (memory, _collector) = memory_for(1);
    let (RxLcore { mut placer, .. }, _sender) = lcore("rx_stray", &memory, 0);
    let pool = frames("rx_stray", 1);
    let stats = placer.stats.clone();
    let stray = move || stats.drops(DropCause::StrayTime);
    // The very first heap, and one of an earlier time.
    assert_eq!(taken_for(&mut placer, &pool, 1 << 30), None);
    assert_eq!(taken_for(&mut placer, &pool, 5), None);
    for chunk in 0..CONFIRMED as u64 {
        taken_for(&mut placer, &pool, 1000 + chunk / 8);
    }
    assert_eq!((placer.time.newest, stray()), (Some(1001), 2));
    // One digitiser of another time beside the right one, for ever: only the right one counts.
    for chunk in 1002..1200 {
        assert_eq!(
            taken_for(&mut placer, &pool, chunk + 500_000),
            Some(chunk - 1)
        );
        assert_eq!(taken_for(&mut placer, &pool, chunk), Some(chunk));
    }
    let ahead = placer.stats.last_dropped().ahead;
    assert_eq!(ahead, Some(500_001 * 256));
    // The time of all leaps: none is lost.
    let before = stray();
    for _ in 1..CONFIRMED {
        assert_eq!(taken_for(&mut placer, &pool, 9000), Some(1199));
    }
    assert_eq!(taken_for(&mut placer, &pool, 9000), Some(9000));
    assert!(
        before >= 190 && stray() - before < 8,
        "{before} {}",
        stray()
    );
}

/// A step of a capture: a heap of a chunk as far ahead, a late one, one far ahead of all, a leap
/// of all that follow, or word of another queue that is so far.
#[derive(Clone, Copy, Debug)]
enum CaptureStep {
    Heap(u64),
    Late(u64),
    Stray(u64),
    Leap(u64),
    Other(u64),
}

fn capture_step() -> impl Strategy<Value = CaptureStep> {
    prop_oneof![
        20 => (0..3u64).prop_map(CaptureStep::Heap),
        3 => (0..5u64).prop_map(CaptureStep::Late),
        3 => (500..530u64).prop_map(CaptureStep::Stray),
        1 => (500..2000u64).prop_map(CaptureStep::Leap),
        3 => (0..8u64).prop_map(CaptureStep::Other),
    ]
}

/// The source of a replay moves the window by what it knows of each lcore. Were an lcore to place
/// what the source does not know of, it would wait for ever.
#[test]
fn the_source_of_a_replay_knows_what_its_lcore_does() {
    let pool = frames("rx_mirror", 1);
    let config = RxConfig {
        recv: recv(),
        mode: RxMode::Replay,
        epoch: EpochHint::Near(Timestamp(700 * 256)),
        ours: None,
        idle: IdlePolicy::Share,
        patience: ChunkPatience::NONE,
    };
    let mut cases = TestRunner::new(Config::with_cases(50));
    let steps = proptest::collection::vec(capture_step(), 0..200);
    let outcome = cases.run(&steps, |steps| {
        let (memory, mut collector) = memory_for(1);
        let abort = StopFlag::default();
        // Where the source would move the window, nobody does.
        abort.set();
        let (stats, bell) = (Arc::default(), Arc::default());
        let mut placer = HeapPlacer::new(config.clone(), memory.clone(), 0, stats, bell, abort);
        let mut clock = PhaseTimer::start(PhaseTimes::new("rx", None));
        let mut mirror = LaneMirror::default();
        let mut now = 700;
        for step in steps {
            let chunk = match step {
                CaptureStep::Heap(chunks) | CaptureStep::Leap(chunks) => {
                    now += chunks;
                    Some(now)
                }
                CaptureStep::Late(chunks) => Some(now - chunks),
                CaptureStep::Stray(chunks) => Some(now + chunks),
                CaptureStep::Other(chunks) => {
                    if let Some(floor) = mirror.follow(now + chunks) {
                        let mut burst = Burst::new(&memory);
                        placer.begin_burst();
                        placer.settle(Some(floor), &mut burst, &mut clock);
                        placer.lane.raise(floor);
                        placer.end_burst(&mut burst);
                    }
                    None
                }
            };
            if let Some(chunk) = chunk {
                let mbuf = heap(&pool, chunk * recv().chunk_samples as u64);
                let first = config.epoch.first();
                mirror.take(&recv(), first, &mbuf.data()[HEADERS_LEN..]);
                let _outcome = burst(&mut placer, &mbuf, &mut clock);
            }
            collect(&mut collector);
            let floor = placer.lane.floor();
            prop_assert_eq!(mirror.floor, floor);
            let newest =
                [&placer.time.newest, &mirror.time.newest].map(|&of| of.max(told_by(floor)));
            prop_assert_eq!(newest[0], newest[1]);
            prop_assert_eq!(mirror.time.has_waiting(), placer.time.has_waiting());
        }
        Ok(())
    });
    outcome.unwrap();
}
