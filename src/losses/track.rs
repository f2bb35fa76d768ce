//! When there is something to say about one cause: at most one line in [`LINE`], and no loss goes
//! unsaid.

use std::time::{Duration, Instant};

/// Between two lines of one cause, at least.
pub const LINE: Duration = Duration::from_secs(10);
/// Between two lines about a loss that goes on, at most.
const LONGEST: Duration = Duration::from_secs(600);
/// How long nothing is lost before the end is said. A loss that keeps coming back has to be away
/// for longer and longer.
const QUIET: Duration = Duration::from_secs(5);
/// The longest of these.
const LONGEST_QUIET: Duration = Duration::from_secs(160);
/// A loss that comes back within so many times its quiet time keeps coming back.
const RETURNS: u32 = 60;

/// What a look found of one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundLoss {
    /// So many were lost since the last look, perhaps none.
    Lost(u64),
    /// It is wrong since then, and that has cost so many since the last look.
    Wrong { since: Instant, lost: u64 },
    /// Nothing that tells: it is as it was.
    Unknown,
}

/// Which line is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossStage {
    /// It has begun.
    Begins,
    /// It goes on.
    GoesOn,
    /// It is over.
    Ends,
}

/// A line that is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Due {
    /// Which.
    pub stage: LossStage,
    /// How many were lost since it began.
    pub count: u64,
    /// How many a second: of one that begins, now; of one that goes on, since the last line.
    pub rate: f64,
    /// From the beginning to the last loss.
    pub lasted: Duration,
    /// Since the last loss.
    pub none_for: Duration,
}

/// One cause.
#[derive(Debug, Default)]
pub struct Track {
    episode: Option<Episode>,
    last_line: Option<Instant>,
    ended: Option<Instant>,
    quiet: Duration,
}

/// From the first loss to the line that says that it is over.
#[derive(Debug)]
struct Episode {
    begun: Instant,
    last_loss: Instant,
    count: u64,
    /// What the last line had, once there was one.
    said: Option<Said>,
    /// Whether it was found by more than one look.
    confirmed: bool,
}

#[derive(Debug)]
struct Said {
    count: u64,
    /// Until the next line.
    every: Duration,
}

impl Track {
    /// Whether something is being lost, as far as has been or will be said.
    pub fn is_active(&self) -> bool {
        self.episode.is_some()
    }

    /// How many were lost since it began, if it goes on.
    pub fn count(&self) -> Option<u64> {
        self.episode.as_ref().map(|episode| episode.count)
    }

    /// How long before `now` the last of it was lost, if it is at work.
    pub fn none_for(&self, now: Instant) -> Option<Duration> {
        let episode = self.episode.as_ref()?;
        Some(now.duration_since(episode.last_loss))
    }

    /// Takes in what was found by a look `now`, after the one `before`. Returns what there is to
    /// say.
    pub fn look(&mut self, before: Instant, now: Instant, found: FoundLoss) -> Option<Due> {
        let (since, lost, wrong) = match found {
            FoundLoss::Lost(lost) => (before, lost, false),
            FoundLoss::Wrong { since, lost } => (since, lost, true),
            FoundLoss::Unknown => return None,
        };
        if lost > 0 || wrong {
            self.add(since, now, lost, wrong);
        }
        let episode = self.episode.as_mut()?;
        let silent = self
            .last_line
            .is_some_and(|line| now.duration_since(line) < LINE);
        let confirmed = std::mem::replace(&mut episode.confirmed, true);
        if silent || !confirmed {
            return None;
        }
        let seconds = |since: Instant| now.duration_since(since).as_secs_f64().max(1e-9);
        let due = |stage, count: u64, rate| Due {
            stage,
            count,
            rate,
            lasted: episode.last_loss.duration_since(episode.begun),
            none_for: now.duration_since(episode.last_loss),
        };
        let count = episode.count;
        let due = match &mut episode.said {
            None => {
                let due = due(LossStage::Begins, count, lost as f64 / seconds(before));
                episode.said = Some(Said { count, every: LINE });
                due
            }
            Some(_) if now.duration_since(episode.last_loss) >= self.quiet && !wrong => {
                let due = due(LossStage::Ends, count, 0.0);
                self.episode = None;
                self.ended = Some(now);
                due
            }
            Some(said) => {
                let line = self.last_line.unwrap_or(now);
                let more = count > said.count || wrong;
                if !more || now.duration_since(line) < said.every {
                    return None;
                }
                said.every = (2 * said.every).min(LONGEST);
                let new = count - std::mem::replace(&mut said.count, count);
                due(LossStage::GoesOn, count, new as f64 / seconds(line))
            }
        };
        self.last_line = Some(now);
        Some(due)
    }

    /// What there is to show of it `now`, whether or not a line is due; `found` by the look after
    /// the one `before`.
    pub fn shown(&self, before: Instant, now: Instant, found: FoundLoss) -> Option<Due> {
        let episode = self.episode.as_ref()?;
        let lost = match found {
            FoundLoss::Lost(lost) | FoundLoss::Wrong { lost, .. } => lost,
            FoundLoss::Unknown => 0,
        };
        Some(Due {
            stage: match episode.said {
                None => LossStage::Begins,
                Some(_) => LossStage::GoesOn,
            },
            count: episode.count,
            rate: lost as f64 / now.duration_since(before).as_secs_f64().max(1e-9),
            lasted: episode.last_loss.duration_since(episode.begun),
            none_for: now.duration_since(episode.last_loss),
        })
    }

    fn add(&mut self, since: Instant, now: Instant, lost: u64, wrong: bool) {
        if self.episode.is_none() {
            let returns = self
                .ended
                .is_some_and(|ended| now.duration_since(ended) < RETURNS * self.quiet.max(QUIET));
            self.quiet = match (returns, wrong) {
                (true, _) => (2 * self.quiet).clamp(QUIET, LONGEST_QUIET),
                // What was wrong, not lost, is over as soon as it is right again.
                (false, true) => Duration::ZERO,
                (false, false) => QUIET,
            };
        }
        let episode = self.episode.get_or_insert(Episode {
            begun: since,
            last_loss: now,
            count: 0,
            said: None,
            confirmed: wrong,
        });
        episode.count += lost;
        episode.last_loss = now;
    }
}
