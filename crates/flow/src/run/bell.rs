//! How a thread waits for another without keeping a CPU from others.

use std::hint::spin_loop;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::Thread;
use std::time::Duration;

use super::settings::Patience;

/// The longest sleep. Bells end it earlier; this only bounds what a missed one could cost.
const NAP: Duration = Duration::from_millis(10);

/// How often a thread lets others have its CPU before it sleeps, where threads share CPUs.
const YIELDS: usize = 2;

/// Wakes one thread. Those that change what it waits for ring.
#[derive(Default)]
pub(super) struct Bell {
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
    /// There are more threads than CPUs: what this one waits for may need its CPU.
    crowded: bool,
}

impl Bell {
    /// The bell of a thread that shares CPUs with others, or not.
    pub fn new(crowded: bool) -> Bell {
        Bell {
            crowded,
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
                std::thread::park_timeout(NAP);
            }
            self.asleep.store(false, Ordering::Relaxed);
        }
    }
}
