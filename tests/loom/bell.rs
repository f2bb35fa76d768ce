//! Model checks of a bell: nobody sleeps through what was given to it. A sleep has no end here but
//! a ring, so that a ring that is lost is a deadlock.

#[allow(dead_code, missing_docs)]
#[path = "../../crates/ground/src/bell.rs"]
mod source;

mod sync {
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    pub use loom::sync::{Condvar, Mutex};
}

use std::time::Duration;

use loom::sync::Arc;
use loom::thread;
use source::Bell;
use sync::{AtomicU64, Ordering};

/// Sleeps as lcores do until there is as much work as this.
fn wait_for(work: &AtomicU64, wanted: u64, bell: &Bell) {
    let mut before = bell.rung();
    while work.load(Ordering::Relaxed) < wanted {
        bell.sleep(before, Duration::MAX);
        before = bell.rung();
    }
}

fn check(sleepers: usize, rings: u64) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let shared = Arc::new((AtomicU64::new(0), Bell::default()));
        let sleepers: Vec<_> = (0..sleepers)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || wait_for(&shared.0, rings, &shared.1))
            })
            .collect();
        for _ in 0..rings {
            shared.0.fetch_add(1, Ordering::Relaxed);
            shared.1.ring();
        }
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
    });
}

#[test]
fn no_ring_is_slept_through() {
    check(1, 2);
}

#[test]
fn a_ring_wakes_all_who_sleep() {
    check(2, 1);
}
