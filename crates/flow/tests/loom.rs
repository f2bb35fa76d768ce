//! Model checks of the queues: every interleaving of their two ends, with all that the memory model
//! of C11 and Rust allows, whatever the processor.
//!
//! The sources are compiled here once more, with loom's atomics in place of the standard ones and a
//! cell for each slot whose accesses loom checks for races.

#[allow(dead_code, missing_docs)]
#[path = "../src/run/gate.rs"]
mod gate;
#[allow(dead_code, missing_docs)]
#[path = "../src/queue/marked.rs"]
mod marked;
#[allow(dead_code, missing_docs)]
#[path = "../src/queue/memory.rs"]
mod memory;
#[allow(dead_code, missing_docs)]
#[path = "../src/queue/paced.rs"]
mod paced;
#[allow(dead_code, missing_docs)]
#[path = "../src/queue/ring.rs"]
mod ring;

mod sync {
    pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
    pub use loom::sync::{Arc, Mutex};

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

    pub struct Marks(Vec<AtomicU32>);

    impl Marks {
        pub fn new(slots: usize) -> Marks {
            Marks((0..slots).map(|_| AtomicU32::new(0)).collect())
        }

        /// # Safety
        ///
        /// Always safe: the place is not looked at.
        pub unsafe fn of(&self, slot: usize, _place: *mut u32) -> &AtomicU32 {
            &self.0[slot]
        }
    }
}

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread;
use marked::marked;
use paced::paced;
use ring::queue;

/// Looks until there is something.
fn wait<T>(mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = look() {
            return found;
        }
        thread::yield_now();
    }
}

#[test]
fn single_blocks_arrive_whole_and_in_order() {
    loom::model(|| {
        let (mut producer, mut consumer) = queue::<u32>(2, 2, &[]).unwrap();
        let writer = thread::spawn(move || {
            for next in 0..3 {
                wait(|| (producer.push(&[next, next]) == 2).then_some(()));
            }
        });
        for wanted in 0..3 {
            let mut block = [9; 2];
            wait(|| (consumer.pop(&mut block) == 2).then_some(()));
            assert_eq!(block, [wanted; 2]);
        }
        writer.join().unwrap();
        assert_eq!(consumer.available(), 0);
    });
}

#[test]
fn single_items_and_streamed_blocks_arrive_in_order() {
    loom::model(|| {
        let (mut producer, mut consumer) = queue::<u32>(2, 1, &[]).unwrap();
        let writer = thread::spawn(move || {
            wait(|| producer.push_one(0).then_some(()));
            wait(|| (producer.push_streaming(&[1]) == 1).then_some(()));
            wait(|| producer.push_one(2).then_some(()));
        });
        for wanted in 0..3 {
            assert_eq!(wait(|| consumer.pop_one()), wanted);
        }
        writer.join().unwrap();
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

#[test]
fn blocks_in_marked_slots_arrive_whole_and_in_order() {
    loom::model(|| {
        // One block of delay, and every slot written twice.
        let (mut producer, mut consumer) = marked::<u32>(2, 2, &[7, 7]).unwrap();
        let writer = thread::spawn(move || {
            for next in 0..3 {
                wait(|| producer.push(&[next, next]).then_some(()));
            }
        });
        for wanted in [7, 0, 1, 2] {
            let mut block = [9; 2];
            wait(|| consumer.pop(&mut block).then_some(()));
            assert_eq!(block, [wanted; 2]);
        }
        writer.join().unwrap();
        assert!(!consumer.has_block());
    });
}

#[test]
fn marked_slots_in_place_are_nobodys_before_they_are_committed() {
    loom::model(|| {
        let (mut producer, mut consumer) = marked::<u32>(1, 1, &[]).unwrap();
        let writer = thread::spawn(move || {
            for next in 0..2 {
                loop {
                    if let Some(mut grant) = producer.reserve() {
                        grant.block()[0] = next;
                        grant.commit();
                        break;
                    }
                    thread::yield_now();
                }
            }
        });
        for wanted in 0..2 {
            loop {
                if let Some(view) = consumer.peek() {
                    assert_eq!(view.block(), [wanted]);
                    view.release();
                    break;
                }
                thread::yield_now();
            }
        }
        writer.join().unwrap();
        assert!(consumer.is_abandoned());
    });
}

/// Whatever the producer does meanwhile: a block that is given is the one whose turn it is, whole.
/// Each is given in some interleavings.
#[test]
fn a_queue_without_a_handshake_gives_whole_blocks_or_tells_of_a_slip() {
    // Those of the standard library: they count through all interleavings.
    let given: Arc<[AtomicUsize; 3]> = Arc::default();
    let counts = given.clone();
    loom::model(move || {
        let (mut producer, mut consumer) = paced(2, 2, None).unwrap();
        let writer = thread::spawn(move || {
            // The second one is written over the block that is there at first.
            for block in [[1, 1], [2, 2]] {
                producer.push(&block);
            }
        });
        for wanted in [0, 1, 2] {
            let mut block = [9; 2];
            if consumer.pop(&mut block).is_err() {
                break;
            }
            assert_eq!(block, [wanted; 2]);
            counts[wanted as usize].fetch_add(1, Ordering::Relaxed);
        }
        writer.join().unwrap();
    });
    let given = given.each_ref().map(|count| count.load(Ordering::Relaxed));
    assert!(given.iter().all(|&count| count > 0), "{given:?}");
}

/// What threads of so many steps of two ticks saw, and what a change at a tick, or soon, was told.
/// Of two threads not every interleaving is tried: each may be interrupted a few times.
fn changed(steps: &'static [u64], at: Option<u64>) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = (steps.len() > 1).then_some(2);
    builder.check(move || {
        let gate = sync::Arc::new(gate::Gate::<u64>::new(steps.len()));
        (0..steps.len()).for_each(|thread| assert_eq!(gate.follow(thread), 0));
        let threads: Vec<_> = (0..steps.len())
            .map(|thread| {
                let gate = gate.clone();
                thread::spawn(move || {
                    let mut seen = None;
                    for step in 1..=steps[thread] {
                        let new = gate.begin(thread, 2 * step, usize::from(seen.is_some()));
                        seen = new.first().copied().or(seen);
                    }
                    gate.leave(thread);
                    seen
                })
            })
            .collect();
        let put = gate.put(at, |at| at);
        for (thread, steps) in threads.into_iter().zip(steps) {
            let seen = thread.join().unwrap();
            match put {
                // Who has begun with the tick of a change has seen it.
                Ok(at) if at < 2 * steps => assert_eq!(seen, Some(at)),
                Ok(at) => assert!(seen.is_none_or(|seen| seen == at)),
                Err(first) => assert!(seen.is_none() && Some(first) > at),
            }
        }
        assert_eq!(gate.kept(), 0);
    });
}

/// The first change is dropped while the second comes, or stays until both have been seen.
#[test]
fn changes_are_seen_in_their_order_and_dropped_once_seen() {
    loom::model(|| {
        let gate = sync::Arc::new(gate::Gate::<u64>::new(1));
        let mut seen = gate.follow(0);
        let put = {
            let gate = gate.clone();
            thread::spawn(move || [7, 8].map(|at| gate.put(Some(at), |at| at).unwrap()))
        };
        let mut all = Vec::new();
        for step in 1..=2 {
            let new = gate.begin(0, step, seen);
            seen += new.len();
            all.extend(new);
        }
        assert_eq!(put.join().unwrap(), [7, 8]);
        all.extend(gate.begin(0, 3, seen));
        assert_eq!(all, [7, 8]);
        assert_eq!(gate.kept(), 0);
    });
}

#[test]
fn a_change_is_seen_by_a_thread_before_its_tick_or_is_late() {
    changed(&[2], Some(1));
    changed(&[2], Some(2));
    changed(&[2], None);
}

#[test]
fn a_change_is_seen_by_both_of_two_threads_or_by_none() {
    changed(&[1, 1], Some(1));
    changed(&[1, 1], None);
}
