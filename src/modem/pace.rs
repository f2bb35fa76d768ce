//! When the samples of a stream are due.

use std::thread;
use std::time::{Duration, Instant};

/// Shorter naps cost more than they are worth.
const NAP: Duration = Duration::from_micros(200);
/// How soon who waits sees that somebody wants the end.
const LOOK: Duration = Duration::from_millis(50);

/// What a sender that was held up makes up for, at most.
const HELD_UP: Duration = Duration::from_millis(250);

/// Sample n is due n sample periods after the start. A sender that was held up makes up for it; one
/// that had nothing to send for longer does not: its receivers would lose what comes all at once.
#[derive(Clone, Debug)]
pub struct Pace {
    start: Instant,
    rate: f64,
    /// What is not made up for: the start is later by it.
    given_up: Duration,
    most_late: Duration,
}

impl Pace {
    /// `rate` samples a second, the first at `start`.
    pub fn new(start: Instant, rate: f64) -> Self {
        Self {
            start,
            rate,
            given_up: Duration::ZERO,
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
        let late = gone - due;
        self.most_late = self.most_late.max(self.given_up + late);
        let more = late.saturating_sub(HELD_UP);
        self.start += more;
        self.given_up += more;
        None
    }

    /// Waits until a sample is due.
    pub fn wait(&mut self, sample: u64) {
        while let Some(left) = self.until(sample, Instant::now()) {
            thread::sleep(left.max(NAP));
        }
    }

    /// Waits until a sample is due, or somebody wants the end; whether it is due.
    pub fn wait_unless(&mut self, sample: u64, has_ended: impl Fn() -> bool) -> bool {
        while let Some(left) = self.until(sample, Instant::now()) {
            if has_ended() {
                return false;
            }
            thread::sleep(left.clamp(NAP, LOOK));
        }
        true
    }

    /// The most that a sample was late, by the start at first.
    pub fn most_late(&self) -> Duration {
        self.most_late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_had_nothing_to_send_sends_no_faster_afterwards() {
        let start = Instant::now();
        let after = |millis: u64| start + Duration::from_millis(millis);
        let mut pace = Pace::new(start, 1000.0);
        // Held up for a moment, it makes up for all of it.
        assert_eq!(pace.until(1000, after(1200)), None);
        assert_eq!(pace.until(1200, after(1200)), None);
        let left = |millis| Some(Duration::from_millis(millis));
        assert_eq!(pace.until(1300, after(1200)), left(100));
        // After an hour, for a quarter of a second.
        let hour = 3_600_000;
        assert_eq!(pace.until(1300, after(hour)), None);
        assert_eq!(pace.until(1550, after(hour)), None);
        assert_eq!(pace.until(2550, after(hour)), left(1000));
        assert_eq!(pace.most_late(), Duration::from_millis(hour - 1300));
        // One that is too slow for its rate is ever later.
        let mut slow = Pace::new(start, 1000.0);
        for sample in (0..=60_000).step_by(100) {
            slow.until(sample, after(2 * sample));
        }
        assert_eq!(slow.most_late(), Duration::from_secs(60));
    }

    #[test]
    fn who_waits_for_a_sample_sees_the_end_before() {
        // Due in an hour, and at once.
        let mut slow = Pace::new(Instant::now(), 1.0);
        assert!(!slow.wait_unless(3600, || true));
        assert!(slow.wait_unless(0, || true));
        let mut fast = Pace::new(Instant::now(), 1e9);
        assert!(fast.wait_unless(1000, || false));
    }
}
