//! Heaps that wait for the engine to move the window.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::super::super::waiting::FAR;
use super::*;
use crate::memory::stand_in::BarStandIn;

/// The engine leaves a lane behind, which then gets its first heaps, and moves the window only
/// later.
#[test]
fn a_lane_that_was_left_behind_waits_for_the_window_too() {
    const CHUNK: u64 = 1000;
    let (memory, mut collector) = memory_for(2);
    collector.allow_leaving_behind();
    let mut first = WindowLane::new(WindowOf(memory.clone()), 0);
    assert_eq!(open(&mut first, &memory, CHUNK), LocatedChunk::NoBuffer);
    assert!(matches!(collector.poll(), Collected::Nothing));

    let pool = frames("rx_leap", 1);
    let mbuf = heap(&pool, CHUNK * recv().chunk_samples as u64);
    let RxLcore { mut placer, .. } = lcore("rx_leap", &memory, 1).0;
    let times = PhaseTimes::new("rx", None);
    let mut clock = PhaseTimer::start(times.clone());
    let placed = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Only while it waits.
            while times.progress() == Some(0) && !placed.load(Ordering::Acquire) {
                thread::yield_now();
            }
            collector.poll();
        });
        let outcome = burst(&mut placer, &mbuf, &mut clock);
        placed.store(true, Ordering::Release);
        assert_eq!(outcome, Ok(1));
    });
}

/// Where the window is too far behind for the time of one chunk after another, timestamps have
/// leapt. The patience ends with the first heap that has a place.
#[test]
fn heaps_beyond_the_window_have_patience() {
    let (memory, mut collector) = memory_for(1);
    let (RxLcore { mut placer, .. }, _sender) = lcore("rx_beyond", &memory, 0);
    let pool = frames("rx_beyond", 1);
    let mut timer = PhaseTimer::start(PhaseTimes::new("rx", None));
    let slots = memory.window().slots() as u64;
    // The engine has the others.
    while memory.has_gaps() {
        memory.take();
    }
    // Nobody moves the window while it waits.
    placer.abort.set();
    let mut place = |placer: &mut HeapPlacer, chunk: u64| {
        let mbuf = heap(&pool, chunk * recv().chunk_samples as u64);
        burst(placer, &mbuf, &mut timer)
    };
    let mut newest = 0;
    for (ahead, leaps) in [(100, true), (1, false), (slots - 1, false), (slots, true)] {
        newest += ahead;
        // The first of all wait until they agree.
        let heaps = if ahead == 100 { CONFIRMED } else { 1 };
        for _ in 0..heaps {
            let _no_free_chunk = place(&mut placer, newest);
        }
        assert_eq!(placer.patient_until.is_some(), leaps, "{ahead}");
        collect(&mut collector);
        if leaps {
            assert_eq!(place(&mut placer, newest), Ok(1), "{ahead}");
            assert_eq!(placer.patient_until, None, "{ahead}");
        }
    }
}

/// An engine that has no CPU for a while costs none of the first heaps.
#[test]
fn the_first_heaps_wait_for_a_slow_engine() {
    let (memory, mut collector) = memory_for(1);
    let (RxLcore { mut placer, .. }, _sender) = lcore("rx_slow", &memory, 0);
    let pool = frames("rx_slow", 1);
    let mbuf = heap(&pool, 1000 * recv().chunk_samples as u64);
    let times = PhaseTimes::new("rx", None);
    let mut timer = PhaseTimer::start(times.clone());
    let mut first = |placer: &mut HeapPlacer| {
        let outcomes: Result<Vec<_>, _> = (0..CONFIRMED)
            .map(|_| burst(placer, &mbuf, &mut timer))
            .collect();
        outcomes.map(|placed| placed.iter().sum::<usize>())
    };
    let placed = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Only while it waits.
            while times.progress() == Some(0) && !placed.load(Ordering::Acquire) {
                thread::yield_now();
            }
            collector.poll();
        });
        let outcome = first(&mut placer);
        placed.store(true, Ordering::Release);
        assert_eq!(outcome, Ok(1));
    });
    // It would have waited for two seconds.
    let (memory, _collector) = memory_for(1);
    let (RxLcore { mut placer, .. }, _sender) = lcore("rx_slower", &memory, 0);
    placer.abort.set();
    let begun = Instant::now();
    let _no_free_chunk = first(&mut placer);
    assert!(placer.patient_until.unwrap() >= begun + Duration::from_secs(2));
}

/// Behind a heap that was dropped, an engine that is too slow has no patience: neither where
/// chunks leave gaps, nor without.
#[test]
fn dropped_heaps_end_the_patience() {
    let (memory, _collector) =
        receive_memory(&recv(), ReceiveOptions::for_lanes(1), &BarStandIn).unwrap();
    let slots = memory.window().slots();
    let (RxLcore { mut placer, .. }, _sender) = lcore("rx_dropped", &memory, 0);
    let pool = frames("rx_dropped", 1);
    let mut timer = PhaseTimer::start(PhaseTimes::new("rx", None));
    assert!(memory.has_gaps());
    placer.dropped_until = 10;
    assert!(!placer.may_wait(9));
    assert_eq!(placer.patient_until, None);
    assert!(placer.may_wait(10));
    // As many buffers as chunks of the window lack one are no sign of gaps.
    while memory.free_chunks() > memory.all_chunks() - slots {
        assert!(memory.has_gaps(), "{}", memory.free_chunks());
        memory.take();
    }
    assert!(!memory.has_gaps());
    placer.patient_until = None;
    placer.time.newest = Some(1000);
    let mbuf = heap(&pool, 1001 * recv().chunk_samples as u64);
    assert_eq!(
        burst(&mut placer, &mbuf, &mut timer),
        Err(DropCause::NoFreeChunk)
    );
    assert_eq!(placer.dropped_until, 1001 + slots as u64);
}

/// An engine that was held up costs nothing that the queue can hold, for a while.
#[test]
fn heaps_wait_for_a_chunk_while_their_queue_has_room() {
    let (memory, mut collector) = memory_for(1);
    let (mut rx, _sender) = lcore("rx_holds", &memory, 0);
    let pool = frames("rx_holds", 1);
    let times = PhaseTimes::new("rx", None);
    let mut clock = PhaseTimer::start(times.clone());
    let slots = memory.window().slots() as u64;
    rx.placer.time.newest = Some(0);
    rx.placer.patience = ChunkPatience::of(Duration::from_secs(3600), Duration::ZERO);
    let mut place = |placer: &mut HeapPlacer, chunk: u64| {
        let mbuf = heap(&pool, chunk * recv().chunk_samples as u64);
        burst(placer, &mbuf, &mut clock)
    };
    // The engine has not looked since the first of these.
    for chunk in 0..slots {
        assert_eq!(place(&mut rx.placer, chunk), Ok(1), "{chunk}");
    }
    assert!(!memory.has_gaps());
    assert_eq!(rx.placer.held, None);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Only while it waits.
            while times.progress() == Some(0) && !done.load(Ordering::Acquire) {
                thread::yield_now();
            }
            collect(&mut collector);
        });
        let outcome = place(&mut rx.placer, slots);
        done.store(true, Ordering::Release);
        assert_eq!(outcome, Ok(1));
    });
    assert_eq!(rx.placer.patient_until, None);
    // What waits in the queue has waited since then, until that is empty.
    assert!(rx.placer.held.is_some());
    rx.placer.patience = ChunkPatience::of(Duration::from_nanos(1), Duration::ZERO);
    let mut next = slots + 1;
    while place(&mut rx.placer, next) == Ok(1) {
        next += 1;
    }
    assert!(rx.placer.held.is_some());
    assert_eq!(memory.dropped_until(), next + slots);
    rx.go_without_packets(None, &mut Burst::new(&memory), &mut clock);
    assert_eq!(rx.placer.held, None);
}

/// Lasting overload costs heaps at once, and no latency; lcores drop together, or the first to do
/// so would leave the others behind.
#[test]
fn a_dropped_heap_ends_the_patience_of_all_lcores() {
    let (memory, _collector) = memory_for(2);
    let slots = memory.window().slots() as u64;
    let (RxLcore { mut placer, .. }, _sender) = lcore("rx_both", &memory, 1);
    while memory.has_gaps() {
        memory.take();
    }
    assert!(!placer.may_wait(100), "it has no patience");
    placer.patience = ChunkPatience::of(Duration::from_secs(3600), Duration::ZERO);
    memory.note_dropped(20);
    memory.note_dropped(10);
    assert!(!placer.may_wait(20 + slots - 1));
    assert_eq!(placer.held, None);
    assert!(placer.may_wait(20 + slots));
    // Also while it waits.
    memory.note_dropped(21);
    assert!(!placer.may_wait(20 + slots));
}

#[test]
fn heaps_wait_for_others_for_a_while_in_a_live_engine() {
    let (memory, _collector) = memory_for(1);
    let (RxLcore { mut placer, .. }, _sender) = lcore("rx_waited", &memory, 0);
    let pool = frames("rx_waited", 1);
    let mut timer = PhaseTimer::start(PhaseTimes::new("rx", None));
    placer.silence = Duration::ZERO;
    assert!(!placer.has_waited(), "no heap waits");
    let mbuf = heap(&pool, 1000 * recv().chunk_samples as u64);
    assert_eq!(burst(&mut placer, &mbuf, &mut timer), Ok(0));
    assert!(placer.has_waited());
    placer.silence = Duration::from_secs(3600);
    assert!(!placer.has_waited());
    placer.silence = Duration::ZERO;
    placer.mode = RxMode::Replay;
    assert!(!placer.has_waited(), "a replay's heaps depend on no clock");
}

/// Heaps that are too old tell nothing of the present time.
#[test]
fn old_heaps_do_not_make_waiting_ones_wrong() {
    let (memory, mut collector) = memory_for(1);
    let (RxLcore { mut placer, .. }, _sender) = lcore("rx_old", &memory, 0);
    let pool = frames("rx_old", 1);
    let mut timer = PhaseTimer::start(PhaseTimes::new("rx", None));
    let mut place = |placer: &mut HeapPlacer, chunk: u64| {
        let mbuf = heap(&pool, chunk * recv().chunk_samples as u64);
        burst(placer, &mbuf, &mut timer)
    };
    let mut first = WindowLane::new(WindowOf(memory.clone()), 0);
    assert_eq!(open(&mut first, &memory, 1000), LocatedChunk::NoBuffer);
    collect(&mut collector);
    placer.time.newest = Some(1000);
    assert_eq!(place(&mut placer, 1000), Ok(1));
    assert_eq!(place(&mut placer, 1000 + FAR), Ok(0));
    for _ in 0..CONFIRMED {
        assert_eq!(place(&mut placer, 1), Err(DropCause::TooOld));
    }
    assert!(placer.time.has_waiting());
}

/// Behind a leap, the window's room is ahead of the first heap, also while an lcore has none yet.
#[test]
fn a_leap_leaves_room_for_an_lcore_that_comes_late() {
    let (memory, mut collector) = with_spare(2);
    let (RxLcore { mut placer, .. }, _sender) = lcore("rx_room", &memory, 1);
    let pool = frames("rx_room", 1);
    let mut clock = PhaseTimer::start(PhaseTimes::new("rx", None));
    let mut first = WindowLane::new(WindowOf(memory.clone()), 0);
    for leap in [1000, 5000] {
        assert_eq!(open(&mut first, &memory, leap), LocatedChunk::NoBuffer);
        collect(&mut collector);
        for chunk in leap..leap + SPARE {
            let located = open(&mut first, &memory, chunk);
            assert!(matches!(located, LocatedChunk::Buffer(_)), "{chunk}");
            collect(&mut collector);
        }
        for chunk in leap..leap + SPARE {
            let mbuf = heap(&pool, chunk * recv().chunk_samples as u64);
            assert_eq!(burst(&mut placer, &mbuf, &mut clock), Ok(1), "{chunk}");
            collect(&mut collector);
        }
    }
}

/// Gaps use up the window's ids, but no memory: an engine that is late loses nothing for them.
#[test]
fn gaps_leave_their_memory_to_what_comes_behind() {
    let (memory, mut collector) = with_spare(1);
    let (RxLcore { mut placer, .. }, _sender) = lcore("rx_gaps", &memory, 0);
    let pool = frames("rx_gaps", 1);
    let times = PhaseTimes::new("rx", None);
    let mut clock = PhaseTimer::start(times.clone());
    let slots = memory.window().slots() as u64;
    placer.time.newest = Some(0);
    let mut place = |placer: &mut HeapPlacer, chunk: u64| {
        let mbuf = heap(&pool, chunk * recv().chunk_samples as u64);
        burst(placer, &mbuf, &mut clock)
    };
    // The engine has not looked since the first of these.
    for chunk in [0, slots - 2, slots - 1] {
        assert_eq!(place(&mut placer, chunk), Ok(1), "{chunk}");
    }
    let (mut outcomes, done) = (Vec::new(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            // Only while it waits.
            while times.progress() == Some(0) && !done.load(Ordering::Acquire) {
                thread::yield_now();
            }
            collect(&mut collector);
        });
        outcomes.extend((slots..2 * slots - 2).map(|chunk| place(&mut placer, chunk)));
        done.store(true, Ordering::Release);
    });
    assert_eq!(outcomes, vec![Ok(1); slots as usize - 2]);
    // Where each chunk of the window has its memory, it waits for nothing.
    placer.abort.set();
    let mut next = 2 * slots - 2;
    while place(&mut placer, next) == Ok(1) {
        next += 1;
    }
    assert_eq!(placer.patient_until, None);
    // What is dropped then leaves gaps too, for which it does not wait.
    for chunk in next..next + slots - 1 {
        assert_eq!(
            place(&mut placer, chunk),
            Err(DropCause::NoFreeChunk),
            "{chunk}"
        );
    }
    collect(&mut collector);
    assert!(memory.has_gaps());
    assert_eq!(placer.patient_until, None);
}
