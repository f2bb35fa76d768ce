//! Idle policies: what a data thread does when there is nothing to do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Bell;
use crate::stats::PhaseTimer;

/// How an idle data thread behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdlePolicy {
    /// Polls without pause: the core is its own.
    Poll,
    /// Polls a little, then yields, then naps: the core is shared with other threads.
    Share,
}

impl IdlePolicy {
    /// Longest time that an idle thread is usually away: a nap, its late end, and other threads
    /// that share its CPU.
    pub fn longest_nap(self) -> Duration {
        match self {
            Self::Poll => Duration::ZERO,
            Self::Share => 40 * NAP,
        }
    }
}

/// Rounds of polling before a thread that shares its core starts to yield, and then to nap.
const SPIN_ROUNDS: u32 = 16;
const YIELD_ROUNDS: u32 = 64;
const NAP: Duration = Duration::from_micros(50);

/// After so long without work a thread is quiet, and may sleep.
const QUIET: Duration = Duration::from_secs(1);
/// Rounds without work between two looks at the clock.
const LOOK_ROUNDS: u32 = 64;
/// How long a quiet thread sleeps if nobody rings: how late it may notice what nobody rings for,
/// such as that it is to end at once.
const SLEEP: Duration = Duration::from_millis(100);

/// One thread's idle state.
#[derive(Debug)]
pub struct Idle {
    policy: IdlePolicy,
    rounds: u32,
    quiet: Quiet,
}

impl Idle {
    /// Not idle yet.
    pub fn new(policy: IdlePolicy) -> Self {
        Self {
            policy,
            rounds: 0,
            quiet: Quiet::default(),
        }
    }

    /// Work was found.
    #[inline]
    pub fn reset(&mut self) {
        self.rounds = 0;
        self.quiet = Quiet::default();
    }

    /// Nothing was found.
    #[inline]
    pub fn wait(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
        // A look at the clock in each round would be most of a round.
        if self.rounds.is_multiple_of(LOOK_ROUNDS) {
            self.quiet.look(Instant::now());
        }
        match self.policy {
            IdlePolicy::Poll => std::hint::spin_loop(),
            IdlePolicy::Share if self.rounds < SPIN_ROUNDS => std::hint::spin_loop(),
            IdlePolicy::Share if self.rounds < YIELD_ROUNDS => std::thread::yield_now(),
            IdlePolicy::Share => std::thread::sleep(NAP),
        }
    }

    /// Whether nothing was found for a second.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.quiet.is_quiet
    }
}

/// The rule by which a thread is quiet: nothing was found for a second.
#[derive(Clone, Copy, Debug, Default)]
struct Quiet {
    /// The first look at the clock since something was found.
    since: Option<Instant>,
    is_quiet: bool,
}

impl Quiet {
    /// It is `now`, and nothing was found since the last look.
    fn look(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        self.is_quiet = now.saturating_duration_since(since) >= QUIET;
    }
}

/// A thread that may sleep until a bell is rung.
#[derive(Debug)]
pub struct Sleeper {
    bell: Arc<Bell>,
    /// How often the bell was rung when the last round began to look for work, if the thread was
    /// quiet then.
    before: Option<u64>,
}

impl Sleeper {
    /// A thread that `bell` wakes.
    pub fn new(bell: Arc<Bell>) -> Self {
        Self { bell, before: None }
    }

    /// What wakes it, and others.
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Nothing was found: waits as `idle` does; or sleeps if that [is quiet](Idle::is_quiet), until
    /// somebody rings or some milliseconds have gone by. Who is woken is not quiet.
    #[inline]
    pub fn wait(&mut self, idle: &mut Idle, timer: &mut PhaseTimer) {
        if !idle.is_quiet() {
            self.before = None;
            idle.wait();
            return;
        }
        let rung = self.bell.rung();
        let Some(before) = self.before.replace(rung) else {
            // The next round looks once more.
            return;
        };
        // The round since `before` was noted has found no work: it is safe to sleep.
        if timer.sleep(|| self.bell.sleep(before, SLEEP)) {
            idle.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::PhaseTimes;

    #[test]
    fn a_thread_is_quiet_after_a_second_without_work() {
        let (mut quiet, begun) = (Quiet::default(), Instant::now());
        for (milliseconds, is_quiet) in [(0, false), (999, false), (1000, true), (5000, true)] {
            quiet.look(begun + Duration::from_millis(milliseconds));
            assert_eq!(quiet.is_quiet, is_quiet, "{milliseconds} ms");
        }
    }

    #[test]
    fn work_ends_quiet() {
        let begun = Instant::now();
        for policy in [IdlePolicy::Poll, IdlePolicy::Share] {
            let mut idle = Idle::new(policy);
            idle.quiet.look(begun);
            idle.quiet.look(begun + QUIET);
            assert!(idle.is_quiet());
            idle.reset();
            assert!(!idle.is_quiet());
            // The second begins anew.
            idle.quiet.look(begun + 2 * QUIET);
            assert!(!idle.is_quiet());
            for _ in 0..LOOK_ROUNDS - 1 {
                idle.wait();
            }
            assert!(!idle.is_quiet(), "{policy:?}");
        }
    }

    #[test]
    fn a_ring_behind_the_look_is_not_slept_through() {
        let bell = Bell::default();
        let before = bell.rung();
        assert!(!bell.sleep(before, Duration::ZERO));
        bell.ring();
        // Else this would take an hour.
        assert!(bell.sleep(before, Duration::from_secs(3600)));
    }

    /// A sleeper that is quiet looks once more, then sleeps; a ring ends its quiet.
    #[test]
    fn a_sleeper_looks_once_more_and_is_woken() {
        let bell = Arc::<Bell>::default();
        let mut sleeper = Sleeper::new(bell.clone());
        let mut timer = PhaseTimer::start(PhaseTimes::new("test", None));
        let mut idle = Idle::new(IdlePolicy::Poll);
        let begun = Instant::now();
        let quiet = |idle: &mut Idle| {
            idle.quiet.look(begun);
            idle.quiet.look(begun + QUIET);
        };
        quiet(&mut idle);
        sleeper.wait(&mut idle, &mut timer);
        assert!(idle.is_quiet(), "it has not slept yet");
        bell.ring();
        sleeper.wait(&mut idle, &mut timer);
        assert!(!idle.is_quiet(), "it was rung for");
        // What was noted before there was work counts no more.
        sleeper.wait(&mut idle, &mut timer);
        quiet(&mut idle);
        bell.ring();
        sleeper.wait(&mut idle, &mut timer);
        assert!(idle.is_quiet());
    }
}
