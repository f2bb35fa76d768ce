//! Whether what was measured is of now.

use crate::losses::old_after;

/// The newest measurement, and since when there was no other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fresh {
    /// What tells it from others.
    newest: Option<u64>,
    /// UNIX time of the look that found it.
    at: f64,
    /// Seconds from one to the next.
    period: f64,
}

impl Fresh {
    /// Notes what is the newest at this UNIX time.
    pub fn note(&mut self, time: f64, newest: Option<u64>, period: f64) {
        if newest.is_some() && newest != self.newest {
            *self = Self {
                newest,
                at: time,
                period,
            };
        }
    }

    /// Whether the newest is not of now any more, or there is none. One of a time to come is of a
    /// clock that was set back.
    pub fn is_old(&self, time: f64) -> bool {
        let apart = (time - self.at).abs();
        self.newest.is_none() || apart > old_after(self.period).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_measured_anew_becomes_old() {
        let mut fresh = Fresh::default();
        assert!(fresh.is_old(100.0));
        fresh.note(100.0, Some(7), 1.0);
        assert!(!fresh.is_old(104.0));
        assert!(fresh.is_old(94.0));
        fresh.note(104.0, Some(7), 1.0);
        assert!(fresh.is_old(106.0));
        fresh.note(106.0, Some(8), 10.0);
        fresh.note(120.0, None, 10.0);
        assert!(!fresh.is_old(135.0) && fresh.is_old(137.0));
    }
}
