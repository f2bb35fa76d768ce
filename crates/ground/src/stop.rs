//! Stop flags: how threads are asked to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that asks threads to end. Clones share the flag.
///
/// Karoo has two uses for it: `stop` ends the input, and what was received is still sent; `abort`
/// ends all threads at once, because one of them failed or the user asked twice.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Asks every thread to end.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the flag if the current thread panics while the guard lives.
    pub fn on_panic(&self) -> StopOnPanic {
        StopOnPanic(self.clone())
    }
}

/// See [`StopFlag::on_panic`].
#[derive(Debug)]
pub struct StopOnPanic(StopFlag);

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set();
        }
    }
}
