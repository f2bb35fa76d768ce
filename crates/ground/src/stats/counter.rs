//! Counters that one thread writes and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// Adds without a locked instruction: there is one writer.
#[inline]
pub fn add(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Ordering::Relaxed) + value, Ordering::Relaxed);
}
