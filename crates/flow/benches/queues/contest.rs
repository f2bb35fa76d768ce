//! What is measured, and how two threads on two CPUs do it.

use std::hint::{black_box, spin_loop};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// The kind of work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Blocks go one way.
    Single,
    /// Items go one way, several with one transaction.
    Batch,
    /// A block goes there and comes back.
    Trip,
}

/// What is measured.
pub struct Case {
    pub work: Work,
    pub cpus: (usize, usize),
    /// Bytes of one transaction, and items in it.
    pub bytes: usize,
    pub items: usize,
    /// Transactions.
    pub count: u64,
    /// Blocks that a queue holds.
    pub slots: usize,
}

/// Blocks in other queues: about as many as Laminar's has, and some more.
pub const BLOCKS: [usize; 2] = [32, 128];

impl Case {
    pub fn single(cpus: (usize, usize), bytes: usize) -> Case {
        Case {
            work: Work::Single,
            cpus,
            bytes,
            items: 1,
            count: (400_000 / (1 + bytes as u64 / 32)).max(1000),
            // 64 KiB, or 16 blocks.
            slots: ((64 << 10) / bytes).clamp(16, 4096),
        }
    }

    pub fn batch(cpus: (usize, usize), items: usize) -> Case {
        Case {
            work: Work::Batch,
            items,
            ..Case::single(cpus, 8 * items)
        }
    }

    pub fn trip(cpus: (usize, usize), bytes: usize) -> Case {
        Case {
            work: Work::Trip,
            count: 3000,
            slots: 16,
            ..Case::single(cpus, bytes)
        }
    }
}

/// Nanoseconds for one transaction, with so many pauses between two looks while a thread waits.
type Run = Box<dyn Fn(&Case, u32) -> Option<f64>>;

/// A queue that takes part.
pub struct Contestant {
    pub name: String,
    pub ours: bool,
    /// Whether it takes part in the ratio.
    pub counts: bool,
    pub run: Run,
}

pub fn pin(cpu: usize) {
    core_affinity::set_for_current(core_affinity::CoreId { id: cpu });
}

fn pause(pauses: u32) {
    for _ in 0..pauses {
        spin_loop();
    }
}

/// Runs both at once, each on its CPU, and gives the seconds that `second` took.
pub fn both(
    cpus: (usize, usize),
    first: impl FnOnce() + Send,
    second: impl FnOnce() + Send,
) -> f64 {
    // Sleeping first: one that spins could keep the other from starting, at real-time priority.
    let started = Barrier::new(2);
    let ready = AtomicUsize::new(0);
    let meet = || {
        started.wait();
        ready.fetch_add(1, Ordering::AcqRel);
        while ready.load(Ordering::Acquire) < 2 {
            spin_loop();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(cpus.0);
            meet();
            first();
        });
        let second = scope.spawn(|| {
            pin(cpus.1);
            meet();
            let begin = Instant::now();
            second();
            begin.elapsed().as_secs_f64()
        });
        second.join().expect("the reader does not panic")
    })
}

/// Nanoseconds for a word to another core and back, at its best: what the pair of cores can do.
pub fn line_trip(cpus: (usize, usize)) -> f64 {
    #[repr(align(128))]
    struct Alone(AtomicU64);
    const TRIPS: u64 = 2000;
    let trial = || {
        let (there, back) = (Alone(AtomicU64::new(0)), Alone(AtomicU64::new(0)));
        let seconds = both(
            cpus,
            || {
                for trip in 1..=TRIPS {
                    while there.0.load(Ordering::Acquire) != trip {}
                    back.0.store(trip, Ordering::Release);
                }
            },
            || {
                for trip in 1..=TRIPS {
                    there.0.store(trip, Ordering::Release);
                    while back.0.load(Ordering::Acquire) != trip {}
                }
            },
        );
        seconds * 1e9 / TRIPS as f64
    };
    (0..50).map(|_| trial()).fold(f64::MAX, f64::min)
}

/// Blocks one way: `put` and `get` say whether they could.
pub fn one_way(
    case: &Case,
    pauses: u32,
    mut put: impl FnMut(&[u64]) -> bool + Send,
    mut get: impl FnMut(&mut [u64]) -> bool + Send,
) -> Option<f64> {
    let (words, count) = (case.bytes / 8, case.count);
    // Each thread has its end on its own stack.
    let seconds = both(
        case.cpus,
        move || {
            let mut block = vec![7; words];
            for number in 0..count {
                block[0] = number;
                let block = black_box(&mut block[..]);
                while !put(block) {
                    pause(pauses);
                }
            }
        },
        move || {
            let mut block = vec![0; words];
            for number in 0..count {
                while !get(&mut block) {
                    pause(pauses);
                }
                assert_eq!(black_box(&mut block[..])[0], number);
            }
        },
    );
    Some(seconds * 1e9 / count as f64)
}

/// One way for queues of single items of a size that the compiler knows.
pub fn one_way_items<const WORDS: usize>(
    case: &Case,
    pauses: u32,
    mut put: impl FnMut([u64; WORDS]) -> bool + Send,
    mut get: impl FnMut() -> Option<[u64; WORDS]> + Send,
) -> Option<f64> {
    let count = case.count;
    let seconds = both(
        case.cpus,
        move || {
            let mut block = [7; WORDS];
            for number in 0..count {
                block[0] = number;
                black_box(&mut block);
                while !put(block) {
                    pause(pauses);
                }
            }
        },
        move || {
            for number in 0..count {
                let mut block = loop {
                    if let Some(block) = get() {
                        break block;
                    }
                    pause(pauses);
                };
                assert_eq!(black_box(&mut block)[0], number);
            }
        },
    );
    Some(seconds * 1e9 / count as f64)
}

/// There and back: `put` and `get` of the near end, then those of the far end.
pub fn there_and_back(
    case: &Case,
    mut near: (
        impl FnMut(&[u64]) -> bool + Send,
        impl FnMut(&mut [u64]) -> bool + Send,
    ),
    mut far: (
        impl FnMut(&[u64]) -> bool + Send,
        impl FnMut(&mut [u64]) -> bool + Send,
    ),
) -> Option<f64> {
    let (words, count) = (case.bytes / 8, case.count);
    let seconds = both(
        case.cpus,
        move || {
            let mut block = vec![0; words];
            for _ in 0..count {
                while !far.1(&mut block) {}
                while !far.0(black_box(&block)) {}
            }
        },
        move || {
            let mut block = vec![7; words];
            for number in 0..count {
                block[0] = number;
                while !near.0(black_box(&block)) {}
                while !near.1(&mut block) {}
                assert_eq!(black_box(&mut block[..])[0], number);
            }
        },
    );
    Some(seconds * 1e9 / count as f64)
}
