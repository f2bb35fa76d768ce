//! The mirror of one lane; `lcore_time_tests.rs` holds it against an rx lcore.

use proptest::prelude::*;

use super::super::waiting::{CONFIRMED, FAR, WaitingHeaps};
use super::*;

/// What the source does not see, no window is moved for: its lcore would wait for ever.
#[test]
fn a_heap_is_far_ahead_of_the_newest_and_not_of_the_floor() {
    let mut lane = LaneMirror::default();
    for heap in 1..=CONFIRMED {
        let newest = lane.note(1000);
        assert_eq!(newest, (heap == CONFIRMED).then_some(1000));
    }
    assert_eq!(lane.floor, floor_after(1000));
    assert_eq!(lane.note(1000 + FAR - 1), Some(1000 + FAR - 1));
    assert_eq!(lane.note(1000 + 2 * FAR - 1), None);
}

/// A heap that waits is right when the time of the others comes near it.
#[test]
fn what_waits_is_placed_when_the_floor_comes_near() {
    let mut lane = LaneMirror::default();
    for _ in 0..CONFIRMED {
        lane.note(1000);
    }
    assert_eq!(lane.note(3000), None);
    lane.raise(2900);
    assert_eq!((lane.time.newest, lane.floor), (Some(3000), 2999));
}

#[test]
fn a_silent_lane_lags_no_more_than_it_may() {
    let mut lane = LaneMirror::default();
    assert_eq!(lane.follow(100), Some(100 - MAX_LAG));
    assert_eq!(lane.floor, 100 - MAX_LAG);
    assert_eq!(lane.follow(101), None);
    assert_eq!(lane.follow(102), Some(102 - MAX_LAG));
}

/// The rules of a lane, written down in one place.
#[derive(Default)]
struct Plain {
    newest: Option<u64>,
    floor: u64,
    waiting: WaitingHeaps<u64>,
}

impl Plain {
    fn note(&mut self, chunk: u64) -> Option<u64> {
        let told = if self.floor > 0 {
            Some(self.floor)
        } else {
            None
        };
        let is_far = match self.newest.max(told) {
            Some(newest) => chunk >= newest + FAR,
            None => true,
        };
        let mut placed = if is_far {
            self.waiting.add(chunk, chunk).right
        } else {
            let mut placed = self.waiting.note_present(chunk).right;
            placed.push(chunk);
            placed
        };
        self.have(&placed);
        placed.sort_unstable();
        placed.pop()
    }

    fn raise(&mut self, floor: u64) {
        self.floor = floor;
        let placed = self.waiting.note_present(floor).right;
        self.have(&placed);
    }

    fn have(&mut self, placed: &[u64]) {
        for &chunk in placed {
            self.newest = Some(self.newest.unwrap_or(0).max(chunk));
            self.floor = self.floor.max(floor_after(chunk));
        }
    }
}

/// A heap of a chunk, or word of the newest chunk of other lanes.
fn step() -> impl Strategy<Value = (bool, u64)> {
    let near = (0..4u64, 0..8u64).prop_map(|(time, chunk)| 2 * FAR * time + chunk);
    let chunk = prop_oneof![4 => near, 1 => 0..4 * FAR];
    (prop::bool::weighted(0.8), chunk)
}

proptest! {
    #[test]
    fn a_lane_goes_by_the_rules(steps in proptest::collection::vec(step(), 0..300)) {
        let (mut lane, mut plain) = (LaneMirror::default(), Plain::default());
        for (comes, chunk) in steps {
            if comes && chunk >= plain.floor {
                prop_assert_eq!(lane.note(chunk), plain.note(chunk));
            } else if !comes {
                let lags = plain.floor + MAX_LAG < floor_after(chunk);
                prop_assert_eq!(lane.follow(chunk), lags.then(|| chunk - MAX_LAG));
                if lags {
                    plain.raise(chunk - MAX_LAG);
                }
            }
            prop_assert_eq!((lane.time.newest, lane.floor), (plain.newest, plain.floor));
            prop_assert_eq!(lane.time.has_waiting(), !plain.waiting.is_empty());
        }
    }
}
