//! Model checks of the queue: every interleaving of its two ends.
//!
//! The ring's source is compiled here once more, with loom's atomics in place of the standard ones
//! and a cell for each slot whose accesses loom checks for races.

#[allow(dead_code, missing_docs)]
#[path = "../src/queue/ring.rs"]
mod ring;

mod sync {
    pub use loom::sync::Arc;
    pub use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    pub struct Watch(loom::cell::UnsafeCell<()>);

    impl Default for Watch {
        fn default() -> Watch {
            Watch(loom::cell::UnsafeCell::new(()))
        }
    }

    impl Watch {
        pub fn read(&self) {
            self.0.with(|_| ());
        }
        pub fn write(&self) {
            self.0.with_mut(|_| ());
        }
    }
}

use loom::thread;
use ring::queue;

#[test]
fn single_blocks_arrive_whole_and_in_order() {
    loom::model(|| {
        let (mut producer, mut consumer) = queue::<u32>(2, 2, &[]).unwrap();
        let writer = thread::spawn(move || {
            let mut next = 0;
            while next < 3 {
                if producer.push(&[next, next]) == 2 {
                    next += 1;
                } else {
                    thread::yield_now();
                }
            }
        });
        let mut wanted = 0;
        while wanted < 3 {
            let mut block = [9; 2];
            match consumer.pop(&mut block) {
                0 => thread::yield_now(),
                _ => {
                    assert_eq!(block, [wanted; 2]);
                    wanted += 1;
                }
            }
        }
        writer.join().unwrap();
        assert_eq!(consumer.available(), 0);
    });
}

#[test]
fn blocks_in_place_are_nobodys_before_they_are_committed() {
    loom::model(|| {
        // One block of delay, a ring of three: the second pair wraps.
        let (mut producer, mut consumer) = queue::<u32>(3, 1, &[7]).unwrap();
        let writer = thread::spawn(move || {
            for pair in 0..2 {
                loop {
                    if let Some(mut grant) = producer.reserve(2) {
                        let (first, rest) = grant.slices();
                        first
                            .iter_mut()
                            .chain(rest)
                            .zip([2 * pair, 2 * pair + 1])
                            .for_each(|(item, value)| *item = value);
                        grant.commit(2);
                        break;
                    }
                    thread::yield_now();
                }
            }
        });
        for wanted in [7, 0, 1, 2, 3] {
            loop {
                if let Some(view) = consumer.peek(1) {
                    assert_eq!(view.slices().0, [wanted]);
                    view.release(1);
                    break;
                }
                thread::yield_now();
            }
        }
        writer.join().unwrap();
    });
}

#[test]
fn what_was_written_before_the_end_is_seen_after_it() {
    loom::model(|| {
        let (mut producer, mut consumer) = queue::<u32>(2, 1, &[]).unwrap();
        let writer = thread::spawn(move || {
            assert_eq!(producer.push(&[1, 2]), 2);
        });
        if consumer.is_abandoned() {
            assert_eq!(consumer.available(), 2);
        }
        writer.join().unwrap();
        assert!(consumer.is_abandoned());
    });
}
