//! Lines of the log of which clients could cause any number.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many lines are logged in each such time, at most.
const LINES: u32 = 10;
const TIME: Duration = Duration::from_secs(60);

/// Counts lines of one kind, and says which of them are logged.
#[derive(Debug, Default)]
pub struct Sparing(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    since: Option<Instant>,
    logged: u32,
    left_out: u64,
}

impl Sparing {
    /// Whether the line that is due now is logged: if so, with how many were left out before it,
    /// unless there were none.
    pub fn line(&self, now: Instant) -> Option<Option<u64>> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.since.is_none_or(|since| now >= since + TIME) {
            lines.since = Some(now);
            lines.logged = 0;
        }
        if lines.logged == LINES {
            lines.left_out += 1;
            return None;
        }
        lines.logged += 1;
        let left_out = std::mem::take(&mut lines.left_out);
        Some((left_out > 0).then_some(left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_lines_a_minute_are_logged_and_the_others_counted() {
        let (sparing, begun) = (Sparing::default(), Instant::now());
        let at = |seconds| sparing.line(begun + Duration::from_secs(seconds));
        let first: Vec<_> = (0..40).map(at).collect();
        assert!(first[..10].iter().all(|line| *line == Some(None)));
        assert!(first[10..].iter().all(Option::is_none));
        assert_eq!(at(60), Some(Some(30)));
        assert_eq!(at(61), Some(None));
    }
}
