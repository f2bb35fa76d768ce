//! Model checks of the chunk window: every interleaving of two rx lcores and the collector.
//!
//! The window's source is compiled here once more, with loom's atomics in place of the standard
//! ones. What this does not prove: that rx lcores keep to `begin`/`end`; the types do that.

#[allow(dead_code, missing_docs)]
#[path = "../../src/recv/window.rs"]
mod source;

mod sync {
    pub use loom::sync::atomic::{AtomicU64, Ordering};
    pub use loom::thread::yield_now;
}

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use source::{BufferId, ChunkWindow, LocatedChunk, WindowCollector, WindowLane};

/// Chunk contents whose accesses loom checks for races: one cell per (buffer, lane).
struct Memory {
    window: ChunkWindow,
    cells: Vec<UnsafeCell<u64>>,
}

struct Shared(Arc<Memory>);

impl std::ops::Deref for Shared {
    type Target = ChunkWindow;
    fn deref(&self) -> &ChunkWindow {
        &self.0.window
    }
}

const LANES: usize = 2;

fn memory() -> Arc<Memory> {
    Arc::new(Memory {
        window: ChunkWindow::new(2, LANES, 1),
        cells: (0..2 * LANES * LANES)
            .map(|_| UnsafeCell::new(u64::MAX))
            .collect(),
    })
}

/// One burst with one heap of chunk `id`; each lane brings its own buffer for each chunk.
fn burst(
    memory: &Arc<Memory>,
    lane: &mut WindowLane<Shared>,
    index: usize,
    id: u64,
) -> LocatedChunk {
    lane.begin();
    let spare = id as usize * LANES + index;
    let located = lane.locate(id, || Some(spare as BufferId));
    if let LocatedChunk::Buffer(buffer) = located {
        memory.cells[buffer as usize * LANES + index].with_mut(|cell| {
            // SAFETY: loom reports any access that is not ordered with this one.
            unsafe { *cell = id }
        });
    }
    lane.end();
    located
}

/// Reads a collected chunk: loom fails the model if any lane could still be writing.
fn read(memory: &Arc<Memory>, buffer: BufferId) -> [u64; LANES] {
    [0, 1].map(|lane| {
        memory.cells[buffer as usize * LANES + lane].with(|cell| {
            // SAFETY: loom reports any access that is not ordered with this one.
            unsafe { *cell }
        })
    })
}

#[test]
fn collected_chunks_are_no_longer_written() {
    let mut model = loom::model::Builder::new();
    // All interleavings take a minute; scripts/check-release asks for them.
    if std::env::var_os("KAROO_TEST_INTERLEAVINGS").is_none() {
        model.preemption_bound = Some(4);
    }
    model.check(|| {
        let memory = memory();
        let lanes: Vec<_> = (0..LANES)
            .map(|index| {
                let memory = memory.clone();
                thread::spawn(move || {
                    let mut lane = WindowLane::new(Shared(memory.clone()), index);
                    let located = burst(&memory, &mut lane, index, 0);
                    assert!(matches!(located, LocatedChunk::Buffer(_)));
                    lane.begin();
                    lane.raise(1);
                    lane.end();
                })
            })
            .collect();
        let mut collector = WindowCollector::new(Shared(memory.clone()));
        let early = collector.poll();
        if let Some((id, buffer)) = early {
            assert_eq!((id, read(&memory, buffer)), (0, [0, 0]));
        }
        for lane in lanes {
            lane.join().unwrap();
        }
        if early.is_none() {
            let (id, buffer) = collector.poll().expect("both floors are above chunk 0");
            assert_eq!((id, read(&memory, buffer)), (0, [0, 0]));
        }
        assert_eq!(collector.poll(), None);
    });
}

#[test]
fn both_lanes_agree_on_the_buffer() {
    loom::model(|| {
        let memory = memory();
        let other = {
            let memory = memory.clone();
            thread::spawn(move || {
                let mut lane = WindowLane::new(Shared(memory.clone()), 1);
                burst(&memory, &mut lane, 1, 1)
            })
        };
        let mut lane = WindowLane::new(Shared(memory.clone()), 0);
        let mine = burst(&memory, &mut lane, 0, 1);
        assert_eq!(mine, other.join().unwrap());
    });
}

/// The one buffer that is free is the chunk's, whichever lane takes it: neither loses its heap.
#[test]
fn the_last_buffer_is_missed_by_no_lane() {
    loom::model(|| {
        let memory = memory();
        let free = Arc::new(AtomicBool::new(true));
        let locate = |index: usize| {
            let (memory, free) = (memory.clone(), free.clone());
            move || {
                let mut lane = WindowLane::new(Shared(memory), index);
                lane.begin();
                let take = || free.swap(false, Ordering::AcqRel).then_some(0);
                let located = lane.locate(1, take);
                lane.end();
                located
            }
        };
        let other = thread::spawn(locate(1));
        assert_eq!(locate(0)(), LocatedChunk::Buffer(0));
        assert_eq!(other.join().unwrap(), LocatedChunk::Buffer(0));
    });
}

/// One lane goes on with `slow` while the other one gets ahead, and the collector raises and
/// collects. Returns which chunk was collected, what was read of it, and where the slow lane's heap
/// went.
fn overtake(
    slow: fn(&Arc<Memory>, &mut WindowLane<Shared>) -> LocatedChunk,
) -> (Option<u64>, Option<[u64; LANES]>, LocatedChunk) {
    let memory = memory();
    let other = {
        let memory = memory.clone();
        thread::spawn(move || slow(&memory, &mut WindowLane::new(Shared(memory.clone()), 1)))
    };
    let mut fast = WindowLane::new(Shared(memory.clone()), 0);
    burst(&memory, &mut fast, 0, 0);
    burst(&memory, &mut fast, 0, 1);
    let mut collector = WindowCollector::new(Shared(memory.clone()));
    collector.advance_laggards(0, 0);
    let collected = collector.poll();
    let seen = collected.map(|(_, buffer)| read(&memory, buffer));
    (collected.map(|(id, _)| id), seen, other.join().unwrap())
}

#[test]
fn an_idle_lane_is_raised_only_between_bursts() {
    loom::model(
        || match overtake(|memory, lane| burst(memory, lane, 1, 0)) {
            // The slow lane's heap was in time, or it was refused; never written after collection.
            (Some(0), seen, LocatedChunk::Buffer(_)) => assert_eq!(seen, Some([0, 0])),
            (Some(0), seen, LocatedChunk::TooOld) => assert_eq!(seen.unwrap()[0], 0),
            (None, _, LocatedChunk::Buffer(_)) => {}
            other => panic!("{other:?}"),
        },
    );
}

#[test]
fn a_lane_without_heaps_follows_while_it_may_be_raised() {
    let follow = |memory: &Arc<Memory>, lane: &mut WindowLane<Shared>| {
        lane.follow(lane.foremost());
        burst(memory, lane, 1, 0)
    };
    loom::model(move || match overtake(follow) {
        (Some(0), seen, LocatedChunk::Buffer(_)) => assert_eq!(seen, Some([0, 0])),
        (Some(0), seen, LocatedChunk::TooOld) => assert_eq!(seen.unwrap()[0], 0),
        // Busy when it was to be raised: its floor says whether there is anything to wait for.
        (None, _, LocatedChunk::Buffer(_) | LocatedChunk::TooOld) => {}
        other => panic!("{other:?}"),
    });
}
