//! The chunk window, single-threaded; `tests/loom/window.rs` has the interleavings.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::window::*;

const SLOTS: u64 = 4;
const DEPTH: u64 = 2;

fn window(
    lanes: usize,
) -> (
    Vec<WindowLane<Arc<ChunkWindow>>>,
    WindowCollector<Arc<ChunkWindow>>,
) {
    let window = Arc::new(ChunkWindow::new(SLOTS as usize, lanes, DEPTH as usize));
    let lane = |index| WindowLane::new(window.clone(), index);
    ((0..lanes).map(lane).collect(), WindowCollector::new(window))
}

fn open(lane: &mut WindowLane<Arc<ChunkWindow>>, id: u64, buffer: BufferId) -> LocatedChunk {
    lane.begin();
    let located = lane.locate(id, || Some(buffer));
    lane.end();
    located
}

#[test]
fn a_chunk_completes_when_every_lane_is_past_it() {
    let (mut lanes, mut collector) = window(2);
    assert_eq!(open(&mut lanes[0], 0, 10), LocatedChunk::Buffer(10));
    assert_eq!(open(&mut lanes[1], 0, 11), LocatedChunk::Buffer(10));
    open(&mut lanes[0], 1, 12);
    open(&mut lanes[0], 2, 13);
    assert_eq!(collector.poll(), None);
    open(&mut lanes[1], 2, 14);
    assert_eq!(collector.poll(), Some((0, 10)));
    assert_eq!(collector.poll(), None);
    assert_eq!(open(&mut lanes[0], 0, 15), LocatedChunk::TooOld);
}

#[test]
fn a_jump_delivers_what_was_open_and_skips_the_rest() {
    let (mut lanes, mut collector) = window(1);
    open(&mut lanes[0], 0, 1);
    open(&mut lanes[0], 1, 2);
    assert_eq!(open(&mut lanes[0], 1_000_003, 3), LocatedChunk::NoBuffer);
    assert_eq!(collector.poll(), Some((0, 1)));
    assert_eq!(collector.poll(), Some((1, 2)));
    assert_eq!(collector.poll(), None);
    assert_eq!(collector.head(), 1_000_002);
    assert_eq!(open(&mut lanes[0], 1_000_003, 3), LocatedChunk::Buffer(3));
    assert_eq!(open(&mut lanes[0], 1_000_002, 4), LocatedChunk::Buffer(4));
    assert_eq!(open(&mut lanes[0], 1_000_001, 5), LocatedChunk::TooOld);
}

#[test]
fn no_buffer_still_moves_the_floor() {
    let (mut lanes, mut collector) = window(1);
    open(&mut lanes[0], 0, 1);
    lanes[0].begin();
    assert_eq!(lanes[0].locate(2, || None), LocatedChunk::NoBuffer);
    lanes[0].end();
    assert_eq!(collector.poll(), Some((0, 1)));
}

#[test]
fn laggards_are_raised_unless_busy() {
    let (mut lanes, mut collector) = window(2);
    open(&mut lanes[0], 0, 1);
    open(&mut lanes[0], 3, 2);
    assert_eq!(collector.poll(), None);
    lanes[1].begin();
    assert_eq!(collector.advance_laggards(0, 0), 0);
    lanes[1].end();
    assert_eq!(collector.advance_laggards(0, 0), 1);
    assert_eq!(collector.poll(), Some((0, 1)));
    assert_eq!(open(&mut lanes[1], 1, 3), LocatedChunk::TooOld);
}

#[test]
fn a_lane_is_left_behind_until_it_has_a_heap() {
    let (mut lanes, mut collector) = window(2);
    assert!(!lanes[1].is_left_behind());
    open(&mut lanes[0], 3, 1);
    collector.advance_laggards(1, 1);
    assert!(lanes[1].is_left_behind() && !lanes[0].is_left_behind());
    let foremost = lanes[0].foremost();
    lanes[1].follow(foremost);
    assert!(lanes[1].is_left_behind());
    assert_eq!(collector.poll(), None);
    assert_eq!((collector.head(), lanes[1].floor()), (2, 2));
    // It does not go back.
    lanes[1].follow(1);
    assert_eq!(lanes[1].floor(), 2);
    assert_eq!(open(&mut lanes[1], 1, 2), LocatedChunk::TooOld);
    assert!(!lanes[1].is_left_behind());
}

/// The window as a list of open chunks, for lanes that take turns.
struct Model {
    floors: Vec<u64>,
    left_behind: Vec<bool>,
    open: BTreeMap<u64, BufferId>,
    /// All below is collected.
    head: u64,
}

impl Model {
    fn foremost(&self) -> u64 {
        let going = self.floors.iter().filter(|floor| **floor < END_OF_STREAM);
        going.max().copied().unwrap_or(0)
    }

    fn raise(&mut self, lane: usize, floor: u64) -> bool {
        let raised = floor > self.floors[lane];
        self.floors[lane] = floor.max(self.floors[lane]);
        raised
    }

    fn open(&mut self, lane: usize, id: u64, free: Option<BufferId>) -> LocatedChunk {
        self.left_behind[lane] = false;
        if id < self.floors[lane] {
            return LocatedChunk::TooOld;
        }
        self.raise(lane, (id + 1).saturating_sub(DEPTH));
        if !(self.head..self.head + SLOTS).contains(&id) {
            return LocatedChunk::NoBuffer;
        }
        let open = self.open.get(&id).copied().or(free);
        open.map_or(LocatedChunk::NoBuffer, |buffer| {
            self.open.insert(id, buffer);
            LocatedChunk::Buffer(buffer)
        })
    }

    fn collect(&mut self) -> Vec<(u64, BufferId)> {
        let lowest = *self.floors.iter().min().unwrap();
        self.head = lowest.max(self.head);
        let behind = self.open.split_off(&self.head);
        std::mem::replace(&mut self.open, behind)
            .into_iter()
            .collect()
    }

    fn advance_laggards(&mut self, behind: u64, lag: u64) -> usize {
        let foremost = self.foremost();
        let lanes = 0..self.floors.len();
        let raised = lanes.filter(|&lane| {
            let late = foremost.saturating_sub(self.floors[lane]) > behind;
            let raised = late && self.raise(lane, foremost.saturating_sub(lag));
            self.left_behind[lane] |= raised;
            raised
        });
        raised.count()
    }
}

#[derive(Clone, Debug)]
enum Act {
    /// A heap this far from three chunks below the foremost floor, and whether a buffer is free.
    Open(u64, bool),
    Collect,
    /// Lanes so far behind, to how far behind.
    AdvanceLaggards(u64, u64),
    Follow(u64),
    End,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        12 => (0..8u64, prop::bool::weighted(0.9)).prop_map(|(ahead, free)| Act::Open(ahead, free)),
        1 => (0..100_000u64).prop_map(|ahead| Act::Open(ahead, true)),
        6 => Just(Act::Collect),
        2 => (0..4u64).prop_map(|lag| Act::AdvanceLaggards(lag, lag)),
        2 => (0..900u64, 0..4u64).prop_map(|(far, lag)| Act::AdvanceLaggards(far + lag, lag)),
        2 => (0..6u64).prop_map(Act::Follow),
        1 => Just(Act::End),
    ]
}

proptest! {
    #[test]
    fn a_window_is_a_list_of_open_chunks(
        count in 1..4usize,
        acts in proptest::collection::vec((0..3usize, act()), 0..60),
    ) {
        let (mut lanes, mut collector) = window(count);
        let mut model = Model {
            floors: vec![0; count],
            left_behind: vec![false; count],
            open: BTreeMap::new(),
            head: 0,
        };
        for (number, (lane, act)) in acts.into_iter().enumerate() {
            let (number, lane) = (number as BufferId, lane % count);
            let near = |ahead: u64| (model.foremost() + ahead).saturating_sub(3);
            match act {
                Act::Open(ahead, free) => {
                    let (id, free) = (near(ahead), free.then_some(number));
                    lanes[lane].begin();
                    let located = lanes[lane].locate(id, || free);
                    lanes[lane].end();
                    prop_assert_eq!(located, model.open(lane, id, free));
                    prop_assert_eq!(lanes[lane].floor(), model.floors[lane]);
                }
                Act::Collect => {
                    let collected: Vec<_> = std::iter::from_fn(|| collector.poll()).collect();
                    prop_assert_eq!(collected, model.collect());
                    prop_assert_eq!(collector.head(), model.head);
                }
                Act::AdvanceLaggards(behind, lag) => {
                    let advanced = collector.advance_laggards(behind, lag);
                    prop_assert_eq!(advanced, model.advance_laggards(behind, lag));
                }
                Act::Follow(ahead) => {
                    let id = near(ahead);
                    lanes[lane].follow(id);
                    model.raise(lane, id);
                }
                Act::End => {
                    lanes[lane].begin();
                    lanes[lane].raise(END_OF_STREAM);
                    lanes[lane].end();
                    model.floors[lane] = END_OF_STREAM;
                }
            }
            prop_assert_eq!(lanes[lane].foremost(), model.foremost());
            prop_assert_eq!(lanes[lane].is_left_behind(), model.left_behind[lane]);
        }
    }
}
