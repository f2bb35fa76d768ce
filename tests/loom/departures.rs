//! Model checks of how tx lcores agree on which of them handed over the last of a chunk.
//!
//! The source is compiled here once more, with loom's atomics in place of the standard ones.

#[allow(dead_code, missing_docs)]
#[path = "../../src/engine/departures.rs"]
mod source;

mod sync {
    pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

use loom::sync::Arc;
use loom::thread;
use source::Departures;

/// Two lcores, two chunks.
#[test]
fn one_lcore_is_the_last_of_each_chunk() {
    loom::model(|| {
        let departures = Arc::new(Departures::new(2));
        let other = {
            let departures = departures.clone();
            thread::spawn(move || [0, 1].map(|_| departures.note(1)))
        };
        let mine = [0, 1].map(|chunk| {
            let last = departures.note(0);
            if last {
                assert!(departures.all() > chunk);
            }
            last
        });
        let others = other.join().unwrap();
        for (mine, others) in mine.into_iter().zip(others) {
            assert!(mine != others, "{mine} {others}");
        }
        assert_eq!(departures.all(), 2);
    });
}

#[test]
fn a_chunk_has_not_left_before_every_lcore_says_so() {
    loom::model(|| {
        let departures = Departures::new(3);
        assert_eq!([0, 0, 2].map(|lcore| departures.note(lcore)), [false; 3]);
        assert_eq!(departures.all(), 0);
        assert_eq!(
            [1, 1, 2].map(|lcore| departures.note(lcore)),
            [true, false, true]
        );
        assert_eq!(departures.all(), 2);
    });
}
