//! Model checks of how tx lcores agree on which of them handed over the last of a chunk.
//!
//! The source is compiled here once more, with loom's atomics in place of the standard ones.

#[allow(dead_code, missing_docs)]
#[path = "../../src/engine/sent_chunks.rs"]
mod source;

mod sync {
    pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

use loom::sync::Arc;
use loom::thread;
use source::SentChunks;

/// Two lcores, two chunks.
#[test]
fn one_lcore_is_the_last_of_each_chunk() {
    loom::model(|| {
        let sent_chunks = Arc::new(SentChunks::new(2));
        let other = {
            let sent_chunks = sent_chunks.clone();
            thread::spawn(move || [0, 1].map(|_| sent_chunks.note(1)))
        };
        let mine = [0, 1].map(|chunk| {
            let last = sent_chunks.note(0);
            if last {
                assert!(sent_chunks.all() > chunk);
            }
            last
        });
        let others = other.join().unwrap();
        for (mine, others) in mine.into_iter().zip(others) {
            assert!(mine != others, "{mine} {others}");
        }
        assert_eq!(sent_chunks.all(), 2);
    });
}

#[test]
fn a_chunk_has_not_left_before_every_lcore_says_so() {
    loom::model(|| {
        let sent_chunks = SentChunks::new(3);
        assert_eq!([0, 0, 2].map(|lcore| sent_chunks.note(lcore)), [false; 3]);
        assert_eq!(sent_chunks.all(), 0);
        assert_eq!(
            [1, 1, 2].map(|lcore| sent_chunks.note(lcore)),
            [true, false, true]
        );
        assert_eq!(sent_chunks.all(), 2);
    });
}
