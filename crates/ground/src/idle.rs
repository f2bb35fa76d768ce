//! Idle policies: what a data thread does when there is nothing to do.

use std::time::Duration;

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

/// One thread's idle state.
#[derive(Debug)]
pub struct Idle {
    policy: IdlePolicy,
    rounds: u32,
}

impl Idle {
    /// Not idle yet.
    pub fn new(policy: IdlePolicy) -> Self {
        Self { policy, rounds: 0 }
    }

    /// Work was found.
    #[inline]
    pub fn reset(&mut self) {
        self.rounds = 0;
    }

    /// Nothing was found.
    #[inline]
    pub fn wait(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
        match self.policy {
            IdlePolicy::Poll => std::hint::spin_loop(),
            IdlePolicy::Share if self.rounds < SPIN_ROUNDS => std::hint::spin_loop(),
            IdlePolicy::Share if self.rounds < YIELD_ROUNDS => std::thread::yield_now(),
            IdlePolicy::Share => std::thread::sleep(NAP),
        }
    }
}
