//! When an engine asks the doctor why no heap comes.

use std::time::{Duration, Instant};

/// Between two looks of the doctor, at least: a digitiser may come and go all night.
const BETWEEN: Duration = Duration::from_secs(600);

/// How long an engine waits for heaps until it asks: once in each silence.
#[derive(Debug)]
pub struct Patience {
    lasts: Duration,
    begun: Instant,
    /// When it last asked.
    asked: Option<Instant>,
    /// Whether that was in this silence.
    has_asked: bool,
}

impl Patience {
    /// That of an engine which is up since `now`, and waits for heaps as long as this `lasts`.
    pub fn new(lasts: Duration, now: Instant) -> Self {
        Self {
            lasts,
            begun: now,
            asked: None,
            has_asked: false,
        }
    }

    /// Whether the doctor is to look `now`. `has_come`: whether a heap was ever placed; `silence`:
    /// for how long none has come since, if that is said.
    pub fn ends(&mut self, now: Instant, has_come: bool, silence: Option<Duration>) -> bool {
        let waited = match has_come {
            false => now.duration_since(self.begun),
            true => silence.unwrap_or_default(),
        };
        if waited < self.lasts {
            self.has_asked = false;
            return false;
        }
        let rests = |asked| now.duration_since(asked) < BETWEEN;
        if self.has_asked || self.asked.is_some_and(rests) {
            return false;
        }
        (self.has_asked, self.asked) = (true, Some(now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds at which the doctor is asked, where heaps are placed in these seconds alone.
    fn asked(heaps: impl Fn(u64) -> bool, seconds: u64) -> Vec<u64> {
        let begun = Instant::now();
        let mut patience = Patience::new(Duration::from_secs(5), begun);
        let mut last = None;
        let mut asked = Vec::new();
        for second in 1..=seconds {
            if heaps(second) {
                last = Some(second);
            }
            let now = begun + Duration::from_secs(second);
            // No silence is said before two seconds of it.
            let silence = last
                .map(|last| second - last)
                .filter(|silence| *silence >= 2);
            let silence = silence.map(Duration::from_secs);
            if patience.ends(now, last.is_some(), silence) {
                asked.push(second);
            }
        }
        asked
    }

    #[test]
    fn the_doctor_is_asked_once_in_each_silence() {
        assert_eq!(asked(|_| false, 10_000), [5]);
        assert!(asked(|_| true, 10_000).is_empty());
        // Heaps for four seconds, then none.
        assert_eq!(asked(|second| second <= 4, 10_000), [9]);
        let comes_back = |second| second <= 100 || (1000..1100).contains(&second);
        assert_eq!(asked(comes_back, 10_000), [105, 1104]);
    }

    #[test]
    fn looks_are_ten_minutes_apart() {
        // Silences of seven seconds, over and over again.
        let often = |second: u64| second % 10 < 3;
        let seconds = asked(often, 2000);
        assert!(
            seconds.len() == 4 && seconds.windows(2).all(|pair| pair[1] - pair[0] >= 600),
            "{seconds:?}"
        );
        // A silence that began too soon after the last look is looked at later, if it lasts.
        assert_eq!(asked(|second| second == 50, 10_000), [5, 605]);
    }
}
