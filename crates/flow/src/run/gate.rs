//! Who is first: threads that go on through ticks, or a change from a tick on.
//!
//! Each thread says how far it will have gone before it goes, then looks whether the gate is closed
//! before there. Whoever wants a change closes the gate at its tick first and then looks how far
//! all will have gone. Of two that do so at the same time at least one sees the other, so no thread
//! passes the tick unseen, and no change comes behind a thread. A change is kept until all who
//! follow have seen it.

use std::collections::VecDeque;

use super::sync::{AtomicU64, AtomicUsize, Mutex, Ordering, fence};

/// How far one thread will have gone, on cache lines that no other thread writes to.
#[repr(align(128))]
struct Begun(AtomicU64);

/// The changes that somebody has still to see.
struct Kept<T> {
    changes: VecDeque<T>,
    /// How many there were before them.
    before: usize,
    /// How many changes each thread has seen, if it follows them.
    seen: Vec<Option<usize>>,
}

impl<T> Kept<T> {
    /// How many changes there have been.
    fn count(&self) -> usize {
        self.before + self.changes.len()
    }

    /// Drops what all have seen.
    fn drop_seen(&mut self) {
        let least = self.seen.iter().flatten().min().copied();
        let least = least.unwrap_or(self.count());
        self.changes.drain(..least - self.before);
        self.before = least;
    }
}

/// The gate for changes `T`.
pub struct Gate<T> {
    /// Nobody begins a step that ends behind this tick.
    closed: AtomicU64,
    /// How far each thread will have gone.
    begun: Vec<Begun>,
    /// How many changes there have been.
    count: AtomicUsize,
    kept: Mutex<Kept<T>>,
}

impl<T: Clone> Gate<T> {
    pub fn new(threads: usize) -> Gate<T> {
        Gate {
            closed: AtomicU64::new(u64::MAX),
            begun: (0..threads).map(|_| Begun(AtomicU64::new(0))).collect(),
            count: AtomicUsize::new(0),
            kept: Mutex::new(Kept {
                changes: VecDeque::new(),
                before: 0,
                seen: vec![None; threads],
            }),
        }
    }

    fn lock(&self) -> impl std::ops::DerefMut<Target = Kept<T>> + '_ {
        // What a thread that panicked has left is whole: nothing in between can panic.
        self.kept
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A thread will look for all changes from here on. Returns how many there were before.
    pub fn follow(&self, thread: usize) -> usize {
        let mut kept = self.lock();
        let count = kept.count();
        kept.seen[thread] = Some(count);
        count
    }

    /// A thread looks for no further changes.
    pub fn leave(&self, thread: usize) {
        let mut kept = self.lock();
        kept.seen[thread] = None;
        kept.drop_seen();
    }

    /// A thread that follows begins a step that ends before tick `end`: changes from the `seen`th
    /// on.
    pub fn begin(&self, thread: usize, end: u64, seen: usize) -> Vec<T> {
        self.begun[thread].0.store(end, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.closed.load(Ordering::Acquire) < end {
            // Until the gate opens.
            drop(self.lock());
        }
        if self.count.load(Ordering::Acquire) == seen {
            return Vec::new();
        }
        let mut kept = self.lock();
        let new: Vec<T> = kept.changes.range(seen - kept.before..).cloned().collect();
        kept.seen[thread] = Some(kept.count());
        kept.drop_seen();
        new
    }

    /// Puts a change in at tick `at`, or, without it, at the first one that no thread has begun.
    /// Returns that tick, or the first one that would have been in time.
    pub fn put(&self, at: Option<u64>, change: impl FnOnce(u64) -> T) -> Result<u64, u64> {
        let mut kept = self.lock();
        self.closed.store(at.unwrap_or(0), Ordering::Release);
        fence(Ordering::SeqCst);
        let begun = self.begun.iter();
        let begun = begun.map(|begun| begun.0.load(Ordering::Acquire));
        let first = begun.max().unwrap_or(0);
        let at = at.unwrap_or(first);
        if at >= first {
            kept.changes.push_back(change(at));
            self.count.store(kept.count(), Ordering::Release);
            kept.drop_seen();
        }
        self.closed.store(u64::MAX, Ordering::Release);
        if at >= first { Ok(at) } else { Err(first) }
    }

    /// How many changes are kept.
    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.lock().changes.len()
    }
}
