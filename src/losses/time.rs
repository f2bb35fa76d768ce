//! Whether the time of heaps agrees with the host's, goes on evenly, and whether the host's own is
//! right.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ground::Timestamp;

use super::Cause;
use super::counts::LossCounts;
use super::pace::Pace;
use super::track::FoundLoss;
use super::watch::{Moment, WatchedEngine};

/// How far the time of heaps may be from the host's, beside what follows from chunks, and how far
/// it may leap.
const TIME_OFF: Duration = Duration::from_millis(500);
/// How long the time has to be off.
const TIME_OFF_FOR: Duration = Duration::from_secs(3);
/// Earlier looks with which the time of heaps is compared: an engine that catches up after it was
/// slow is no jump.
const SLOW: usize = 60;
/// For so long after the last sign that this host takes heaps in too slowly, these may be behind,
/// and catch up.
const CATCHES_UP: Duration = Duration::from_secs(10);

/// What the looks so far found of time.
#[derive(Debug)]
pub struct Times {
    begun: Instant,
    /// Since when the time of heaps is off, if it is.
    off_since: Option<Instant>,
    /// By how many seconds it was, the last time.
    off: f64,
    /// Seconds by which heaps were ahead of an even clock at the last looks.
    ahead: VecDeque<f64>,
    /// Seconds of the last jump, 0 if there was none.
    jump: f64,
    /// When that was found.
    jumped: Instant,
    pace: Pace,
    /// Since when this host took heaps in too slowly, and when it last did.
    slow: Option<(Instant, Instant)>,
    /// Since when the host's clock is not synchronised.
    unsynchronised_since: Option<Instant>,
}

impl Times {
    /// From `now` on.
    pub fn new(now: Instant) -> Self {
        Self {
            begun: now,
            off_since: None,
            off: 0.0,
            ahead: VecDeque::new(),
            jump: 0.0,
            jumped: now,
            pace: Pace::default(),
            slow: None,
            unsynchronised_since: None,
        }
    }

    /// Seconds from the host's time to that of heaps, the last time that they did not agree.
    pub fn off(&self) -> f64 {
        self.off
    }

    /// Seconds by which the time of heaps jumped ahead the last time that it did.
    pub fn jump(&self) -> f64 {
        self.jump
    }

    /// Samples a second by this host's clock, if these are steadily more or fewer than the engine
    /// expects.
    pub fn other_rate(&self, engine: &WatchedEngine) -> Option<f64> {
        self.pace.other_rate(engine)
    }

    /// How long ago the newest heaps jumped ahead, if others that are so many seconds behind these
    /// may be so for that. If the newest stands still from then on, they catch up by a second each
    /// second.
    pub fn explains_behind(&self, seconds: f64, now: Instant) -> Option<Duration> {
        const ABOUT: f64 = 0.5;
        let ago = now.duration_since(self.jumped);
        let about = self.jump - ago.as_secs_f64() - ABOUT..self.jump + ABOUT;
        (self.jump > 0.0 && about.contains(&seconds)).then_some(ago)
    }

    /// This host takes heaps in too slowly at this moment.
    pub fn note_slow(&mut self, now: Instant) {
        let since = match self.slow {
            Some((since, last)) if now.duration_since(last) < CATCHES_UP => since,
            _ => now,
        };
        self.slow = Some((since, now));
    }

    fn is_slow(&self, now: Instant) -> bool {
        self.slow
            .is_some_and(|(_, last)| now.duration_since(last) < CATCHES_UP)
    }

    /// By how long heaps may be behind because this host was slow, and come all at once: no longer
    /// than it was.
    fn catches_up(&self, now: Instant) -> Duration {
        match self.slow {
            Some((since, _)) if self.is_slow(now) => now.duration_since(since) + CATCHES_UP,
            _ => Duration::ZERO,
        }
    }

    /// Whether the time of heaps has jumped ahead since the look before.
    pub fn find_jump(
        &mut self,
        engine: &WatchedEngine,
        last: &LossCounts,
        now: Moment,
        counts: &LossCounts,
    ) -> Option<(Cause, FoundLoss)> {
        let newest = counts.newest.filter(|_| engine.is_live())?;
        if counts.placed == last.placed {
            return None;
        }
        self.pace.note(now.at, newest);
        let even = now.at.duration_since(self.begun).as_secs_f64();
        let ahead = engine.seconds(newest as f64) - even;
        let before = self.ahead.iter().copied().reduce(f64::max);
        let jump = before.map_or(0.0, |before| ahead - before);
        let late = TIME_OFF + self.catches_up(now.at);
        let found = jump > late.as_secs_f64() + engine.seconds(2.0 * engine.chunk_samples());
        if found {
            (self.jump, self.jumped) = (jump, now.at);
            self.ahead.clear();
        }
        self.ahead.push_back(ahead);
        if self.ahead.len() > SLOW {
            self.ahead.pop_front();
        }
        found.then_some((Cause::TimeJumped, FoundLoss::Lost(1)))
    }

    /// Whether the time of heaps has been another than the host's for a while.
    pub fn find_off(
        &mut self,
        engine: &WatchedEngine,
        last: &LossCounts,
        now: Moment,
        counts: &LossCounts,
    ) -> Option<(Cause, FoundLoss)> {
        let newest = counts.newest.filter(|_| engine.is_live())?;
        if counts.placed == last.placed {
            return Some((Cause::WrongTime, FoundLoss::Unknown));
        }
        let Some(off) = time_off(engine, newest, now.unix) else {
            self.off_since = None;
            return None;
        };
        if off < 0.0 && self.is_slow(now.at) {
            self.off_since = None;
            return Some((Cause::WrongTime, FoundLoss::Unknown));
        }
        self.off = off;
        let since = *self.off_since.get_or_insert(now.at);
        let wrong = now.at.duration_since(since) >= TIME_OFF_FOR;
        let found = FoundLoss::Wrong { since, lost: 0 };
        wrong.then_some((Cause::WrongTime, found))
    }

    /// Whether the host's own clock has not been synchronised for a while.
    pub fn find_clock(
        &mut self,
        engine: &WatchedEngine,
        now: Instant,
        counts: &LossCounts,
    ) -> Option<(Cause, FoundLoss)> {
        let wrong = counts.clock.filter(|_| engine.is_live());
        if wrong.is_none_or(|clock| clock.is_synchronised()) {
            self.unsynchronised_since = None;
            return None;
        }
        let since = *self.unsynchronised_since.get_or_insert(now);
        let wrong = now.duration_since(since) >= TIME_OFF_FOR;
        let found = FoundLoss::Wrong { since, lost: 0 };
        wrong.then_some((Cause::ClockNotSynchronised, found))
    }
}

/// Seconds from the host's time to that of the newest chunk of heaps; `None` where they agree as
/// far as can be told.
fn time_off(engine: &WatchedEngine, newest: u64, unix: f64) -> Option<f64> {
    let ahead = Timestamp(newest).unix(engine.clock) - unix;
    let allowed = TIME_OFF.as_secs_f64();
    let behind = allowed + engine.seconds(2.0 * engine.chunk_samples());
    (ahead > allowed || ahead < -behind).then_some(ahead)
}
