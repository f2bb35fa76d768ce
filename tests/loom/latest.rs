//! Model checks of a value of several words: what a reader sees while it is written.

#[allow(dead_code, missing_docs)]
#[path = "../../crates/ground/src/latest.rs"]
mod source;

mod sync {
    pub use loom::hint::spin_loop;
    pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

use loom::sync::Arc;
use loom::thread;
use source::Latest;

#[test]
fn a_reader_sees_whole_writes_in_their_order() {
    let mut model = loom::model::Builder::new();
    // Enough for a reader between any two steps of a write, and for a write between any two of a
    // reader.
    model.preemption_bound = Some(3);
    model.check(|| {
        let latest = Arc::new(Latest::new([0; 2]));
        let writer = {
            let latest = latest.clone();
            thread::spawn(move || {
                latest.write([1; 2]);
                latest.write([2; 2]);
            })
        };
        let whole = |[first, second]: [u64; 2]| {
            assert_eq!(first, second);
            first
        };
        let first = whole(latest.read());
        let second = whole(latest.read());
        // No reader goes back.
        assert!(second >= first, "{second} after {first}");
        writer.join().unwrap();
        assert_eq!(latest.read(), [2; 2]);
    });
}
