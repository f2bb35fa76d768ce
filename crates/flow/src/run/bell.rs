//! How a thread waits for another without keeping a CPU from others.

use std::hint::spin_loop;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::Thread;
use std::time::Duration;

use super::settings::Patience;

/// The longest sleep. Bells end it earlier; this only bounds what a missed one could cost.
const NAP: Duration = Duration::from_millis(10);
/// Threads for each CPU that sleep so long. With more of them all sleep longer: to wake and find
/// nothing would take all of the CPUs.
const NAPPING: usize = 100;

/// How often a thread lets others have its CPU before it sleeps, where threads share CPUs.
const YIELDS: usize = 2;

/// Wakes one thread. Those that change what it waits for ring.
#[derive(Default)]
pub(super) struct Bell {
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
    /// There are more threads than CPUs: what this one waits for may need its CPU.
    crowded: bool,
    /// The longest sleep.
    nap: Duration,
}

impl Bell {
    /// The bell of one of so many threads on so many CPUs.
    pub fn new(threads: usize, cpus: usize) -> Bell {
        let share = threads.div_ceil(NAPPING * cpus.max(1));
        Bell {
            crowded: threads > cpus,
            nap: NAP * share.max(1) as u32,
            ..Bell::default()
        }
    }

    /// Makes the bell that of the calling thread.
    pub fn answer(&self) {
        let _ = self.thread.set(std::thread::current());
    }

    /// Whether the thread was about to sleep a moment ago.
    pub fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    /// Wakes the thread if it sleeps. Comes after the change.
    pub fn ring(&self) {
        // Either this sees that the thread is about to sleep, or the thread sees the change.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed)
            && self.asleep.swap(false, Ordering::AcqRel)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Waits until `ready`.
    pub fn wait(&self, patience: Patience, mut ready: impl FnMut() -> bool) {
        for _ in 0..patience.spins {
            if ready() {
                return;
            }
        }
        for _ in 0..patience.pauses {
            spin_loop();
            if ready() {
                return;
            }
        }
        if self.crowded {
            // To sleep at once would have the other end wake this thread for every single block.
            for _ in 0..YIELDS {
                std::thread::yield_now();
                if ready() {
                    return;
                }
            }
        }
        while !ready() {
            self.asleep.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if !ready() {
                std::thread::park_timeout(self.nap);
            }
            self.asleep.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_are_many_sleep_longer() {
        let nap = |threads, cpus| Bell::new(threads, cpus).nap.as_millis();
        assert_eq!(
            [nap(1, 1), nap(4, 2), nap(200, 2), nap(5000, 2)],
            [10, 10, 10, 250]
        );
    }
}
