//! A wish that inputs end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Ends inputs that wait, and outputs that wait for a peer, or whose peer takes nothing for a
/// second. Clones are one.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

/// How long a socket waits before it looks whether it is to stop.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// How long a peer may take nothing of an output once all is to stop.
pub(super) const LAST: Duration = Duration::from_secs(1);

/// The error of an output whose peer takes nothing.
pub(super) fn takes_nothing() -> io::Error {
    io::Error::other("the peer takes nothing, and all is to stop")
}

impl Stop {
    /// Not set.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Sets it, for good.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
