//! A bell that wakes threads which have nothing to do.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::sync::{AtomicU32, AtomicU64, Condvar, Mutex, Ordering, fence};

/// Wakes threads that sleep because they have nothing to do. Whoever gives them something rings.
///
/// A thread that is about to sleep looks for work once more after it has noted how often the bell
/// was rung. So each ring that comes behind the look wakes it.
#[derive(Debug, Default)]
pub struct Bell {
    /// How often it was rung.
    rung: AtomicU64,
    sleepers: AtomicU32,
    /// Held by a sleeper from its last look at `rung` until it waits.
    lock: Mutex<()>,
    heard: Condvar,
}

impl Bell {
    /// Wakes those who sleep. Costs little while nobody does. Comes after the change.
    #[inline]
    pub fn ring(&self) {
        self.rung.fetch_add(1, Ordering::Release);
        // Either the sleeper's look at `rung` sees the ring, or this sees the sleeper.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // A thread that has read `rung` holds the lock until it waits. So once this thread has had
        // the lock, that thread can be woken.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.heard.notify_all();
    }

    /// How often it was rung. Whoever looks for work afterwards finds that of all these rings.
    pub fn rung(&self) -> u64 {
        self.rung.load(Ordering::Acquire)
    }

    /// Sleeps until it has been rung more often than `before`, for so long at most; returns whether
    /// it has been.
    pub fn sleep(&self, before: u64, most: Duration) -> bool {
        let begun = Instant::now();
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while self.rung() == before {
            let left = most.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break;
            }
            let heard = self.heard.wait_timeout(lock, left);
            lock = heard.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        drop(lock);
        self.rung() != before
    }
}
