//! When the samples of a stream are due.

use std::thread;
use std::time::{Duration, Instant};

/// Shorter naps cost more than they are worth.
const NAP: Duration = Duration::from_micros(200);

/// Sample n is due n sample periods after the start: a sender that was held up makes up for it.
#[derive(Clone, Debug)]
pub struct Pace {
    start: Instant,
    rate: f64,
    most_late: Duration,
}

impl Pace {
    /// `rate` samples a second from `start` on.
    pub fn new(start: Instant, rate: f64) -> Self {
        Self {
            start,
            rate,
            most_late: Duration::ZERO,
        }
    }

    /// Time until a sample is due at `now`; `None` if it is, and how late it is counts.
    pub fn until(&mut self, sample: u64, now: Instant) -> Option<Duration> {
        let due = Duration::try_from_secs_f64(sample as f64 / self.rate).ok()?;
        let gone = now.saturating_duration_since(self.start);
        if gone < due {
            return Some(due - gone);
        }
        self.most_late = self.most_late.max(gone - due);
        None
    }

    /// Waits until a sample is due.
    pub fn wait(&mut self, sample: u64) {
        while let Some(left) = self.until(sample, Instant::now()) {
            thread::sleep(left.max(NAP));
        }
    }

    /// The most that a sample was late.
    pub fn most_late(&self) -> Duration {
        self.most_late
    }
}
