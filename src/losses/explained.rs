//! What of a loss is no consequence of others that are known.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Cause;
use super::counts::{Look, UnexplainedCounts};
use super::track::FoundLoss;

/// How long a loss waits for what may explain it: the counts are not of quite the same time.
const WAITS: Duration = Duration::from_secs(2);
/// How long heaps that were lost here explain heaps that are missing.
const EXPLAINS_MISSING: Duration = Duration::from_secs(10);
/// How long missing heaps explain output that is not sent: it is computed in large chunks.
const EXPLAINS_NOT_SENT: Duration = Duration::from_secs(60);

/// What of consequences the looks so far could not explain.
#[derive(Debug)]
pub struct Unexplained {
    /// Missing heaps, beside those that were lost here.
    missing: Balance,
    /// Output heaps that were not sent, beside those whose input is missing.
    not_sent: Balance,
}

impl Default for Unexplained {
    fn default() -> Self {
        Self {
            missing: Balance::new(EXPLAINS_MISSING),
            not_sent: Balance::new(EXPLAINS_NOT_SENT),
        }
    }
}

impl Unexplained {
    /// Takes in what was `found` by the look `now`, after the one `last`. Returns all so far.
    pub fn look(
        &mut self,
        last: Look<'_>,
        now: Look<'_>,
        found: &[(Cause, FoundLoss)],
    ) -> UnexplainedCounts {
        let lost = |cause| match found.iter().find(|(other, _)| *other == cause) {
            Some((_, FoundLoss::Lost(lost))) => *lost,
            _ => 0,
        };
        if now.counts.chunks == last.counts.chunks {
            // What is missing meanwhile is counted behind the gap.
            self.missing.keep(now.at);
            self.not_sent.keep(now.at);
        }
        let lost_here = |look: Look<'_>| look.counts.lost_here();
        let here = lost_here(now).saturating_sub(lost_here(last));
        let for_missing = now.counts.not_sent_for_missing(last.counts);
        UnexplainedCounts {
            missing: self.missing.look(now.at, here, lost(Cause::MissingHeaps)),
            not_sent: self
                .not_sent
                .look(now.at, for_missing, lost(Cause::NotSent)),
        }
    }

    /// What waits for an explanation has one.
    pub fn explain_all(&mut self) {
        self.missing.waits.clear();
        self.not_sent.waits.clear();
    }
}

/// Heaps that were lost, held against what explains them: one by one, the oldest first.
#[derive(Debug)]
struct Balance {
    /// How long what explains a loss does so.
    keeps: Duration,
    explains: VecDeque<(Instant, u64)>,
    waits: VecDeque<(Instant, u64)>,
    total: u64,
}

impl Balance {
    /// None yet. What explains a loss does so for the time `keeps`.
    fn new(keeps: Duration) -> Self {
        Self {
            keeps,
            explains: VecDeque::new(),
            waits: VecDeque::new(),
            total: 0,
        }
    }

    /// Takes in what a look found: so many heaps that were `lost`, and as many as others explain.
    /// Returns how many nothing has explained so far, which never falls.
    fn look(&mut self, now: Instant, explains: u64, lost: u64) -> u64 {
        // Only what is there, so that nights without input do not fill these.
        if explains > 0 {
            self.explains.push_back((now, explains));
        }
        if lost > 0 {
            self.waits.push_back((now, lost));
        }
        while let (Some((_, explains)), Some((_, lost))) =
            (self.explains.front_mut(), self.waits.front_mut())
        {
            let both = (*explains).min(*lost);
            *explains -= both;
            *lost -= both;
            let (spent, explained) = (*explains == 0, *lost == 0);
            if spent {
                self.explains.pop_front();
            }
            if explained {
                self.waits.pop_front();
            }
        }
        take_older(&mut self.explains, now, self.keeps);
        self.total += take_older(&mut self.waits, now, WAITS);
        self.total
    }

    /// What explains a loss does so as if it had been found `now`.
    fn keep(&mut self, now: Instant) {
        let counts = self.explains.drain(..).map(|(_, count)| count);
        let all = counts.fold(0, u64::saturating_add);
        if all > 0 {
            self.explains.push_back((now, all));
        }
    }
}

/// Takes out what has been there for the time `keeps`. Returns how many these are.
fn take_older(heaps: &mut VecDeque<(Instant, u64)>, now: Instant, keeps: Duration) -> u64 {
    let is_old = |(at, _): &&(Instant, u64)| now.duration_since(*at) >= keeps;
    let old = heaps.iter().take_while(is_old).count();
    let counts = heaps.drain(..old).map(|(_, count)| count);
    counts.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What explains and what is lost in each second; returns the sums.
    fn totals(seconds: &[(u64, u64)]) -> Vec<u64> {
        let mut balance = Balance::new(Duration::from_secs(10));
        let begun = Instant::now();
        let looks = (0..).zip(seconds);
        let looks = looks.map(|(second, &(explains, lost))| {
            balance.look(begun + Duration::from_secs(second), explains, lost)
        });
        looks.collect()
    }

    #[test]
    fn what_nothing_explains_is_counted_after_two_seconds() {
        assert_eq!(totals(&[(0, 5), (0, 0), (0, 0)]), [0, 0, 5]);
    }

    #[test]
    fn what_explains_may_come_before_and_after_the_loss() {
        assert_eq!(totals(&[(5, 0), (0, 5), (0, 0), (0, 0)]), [0; 4]);
        assert_eq!(totals(&[(0, 5), (5, 0), (0, 0), (0, 0)]), [0; 4]);
    }

    #[test]
    fn a_trifle_explains_no_more_than_itself() {
        let seconds = [(1, 50), (0, 0), (1, 50), (0, 0), (0, 0)];
        assert_eq!(totals(&seconds).last(), Some(&98));
    }

    #[test]
    fn what_explained_nothing_is_forgotten() {
        let mut seconds = [(0, 0); 16];
        seconds[0] = (5, 0);
        seconds[11] = (0, 5);
        assert_eq!(totals(&seconds).last(), Some(&5));
    }
}
