//! How a thread waits for another without keeping a CPU from others.

use std::hint::spin_loop;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::Thread;
use std::time::Duration;

use super::settings::Patience;

/// The longest sleep. Bells end it earlier; this only bounds what a missed one could cost.
const NAP: Duration = Duration::from_millis(10);

/// Wakes one thread. Those that change what it waits for ring.
#[derive(Default)]
pub(super) struct Bell {
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Bell {
    /// Makes the bell that of the calling thread.
    pub fn answer(&self) {
        let _ = self.thread.set(std::thread::current());
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
