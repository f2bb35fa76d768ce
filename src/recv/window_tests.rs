//! The chunk window, single-threaded; `tests/loom/window.rs` has the interleavings.

use std::sync::Arc;

use super::window::*;

fn window(lanes: usize) -> (Vec<WindowWriter<Arc<Window>>>, Collector<Arc<Window>>) {
    let window = Arc::new(Window::new(4, lanes, 2));
    let lane = |index| WindowWriter::new(window.clone(), index);
    ((0..lanes).map(lane).collect(), Collector::new(window))
}

fn open(lane: &mut WindowWriter<Arc<Window>>, id: u64, buffer: BufferId) -> Located {
    lane.begin();
    let located = lane.locate(id, || Some(buffer));
    lane.end();
    located
}

#[test]
fn a_chunk_completes_when_every_lane_is_past_it() {
    let (mut lanes, mut collector) = window(2);
    assert_eq!(open(&mut lanes[0], 0, 10), Located::Buffer(10));
    assert_eq!(open(&mut lanes[1], 0, 11), Located::Buffer(10));
    open(&mut lanes[0], 1, 12);
    open(&mut lanes[0], 2, 13);
    assert_eq!(collector.poll(), None);
    open(&mut lanes[1], 2, 14);
    assert_eq!(collector.poll(), Some((0, 10)));
    assert_eq!(collector.poll(), None);
    assert_eq!(open(&mut lanes[0], 0, 15), Located::TooOld);
}

#[test]
fn a_jump_delivers_what_was_open_and_skips_the_rest() {
    let (mut lanes, mut collector) = window(1);
    open(&mut lanes[0], 0, 1);
    open(&mut lanes[0], 1, 2);
    assert_eq!(open(&mut lanes[0], 1_000_003, 3), Located::NoBuffer);
    assert_eq!(collector.poll(), Some((0, 1)));
    assert_eq!(collector.poll(), Some((1, 2)));
    assert_eq!(collector.poll(), None);
    assert_eq!(collector.head(), 1_000_002);
    assert_eq!(open(&mut lanes[0], 1_000_003, 3), Located::Buffer(3));
    assert_eq!(open(&mut lanes[0], 1_000_002, 4), Located::Buffer(4));
    assert_eq!(open(&mut lanes[0], 1_000_001, 5), Located::TooOld);
}

#[test]
fn no_buffer_still_moves_the_floor() {
    let (mut lanes, mut collector) = window(1);
    open(&mut lanes[0], 0, 1);
    lanes[0].begin();
    assert_eq!(lanes[0].locate(2, || None), Located::NoBuffer);
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
    assert_eq!(collector.advance_laggards(0), 0);
    lanes[1].end();
    assert_eq!(collector.advance_laggards(0), 1);
    assert_eq!(collector.poll(), Some((0, 1)));
    assert_eq!(open(&mut lanes[1], 1, 3), Located::TooOld);
}

#[test]
fn a_lane_is_left_behind_until_it_has_a_heap() {
    let (mut lanes, mut collector) = window(2);
    assert!(!lanes[1].is_left_behind());
    open(&mut lanes[0], 3, 1);
    collector.advance_laggards(1);
    assert!(lanes[1].is_left_behind() && !lanes[0].is_left_behind());
    let foremost = lanes[0].foremost();
    lanes[1].follow(foremost);
    assert!(lanes[1].is_left_behind());
    assert_eq!(collector.poll(), None);
    assert_eq!((collector.head(), lanes[1].floor()), (2, 2));
    // It does not go back.
    lanes[1].follow(1);
    assert_eq!(lanes[1].floor(), 2);
    assert_eq!(open(&mut lanes[1], 1, 2), Located::TooOld);
    assert!(!lanes[1].is_left_behind());
}
