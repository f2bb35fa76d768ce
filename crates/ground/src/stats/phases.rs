//! Time per data thread, split by what it did.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::Serialize;

use crate::tsc::{TscClock, tsc};

/// What a data thread's time goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing to do: no packets, no chunk.
    WaitInput,
    /// Parsing and placing, packetising, reading or writing files.
    Work,
    /// Computing.
    Compute,
    /// Ready to hand over, but nobody takes.
    WaitOutput,
    /// Asleep in the kernel, because nothing has come for long.
    Sleep,
}

const PHASES: [(Phase, &str); 5] = [
    (Phase::WaitInput, "wait-in"),
    (Phase::Work, "work"),
    (Phase::Compute, "compute"),
    (Phase::WaitOutput, "wait-out"),
    (Phase::Sleep, "sleep"),
];

/// Where one data thread spent its time.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThreadReport {
    /// Name, such as `rx-pol0.0`, `cpu-1`, `tx`.
    pub name: String,
    /// CPU that it was pinned to, if it was.
    pub core: Option<usize>,
    /// Seconds per phase, in display order: (`wait-in`, `work`, …).
    pub phases: Vec<(String, f64)>,
    /// Seconds of the longest turn of the thread's loop, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_turn: Option<f64>,
}

/// Name of the phase that a thread of a pool has behind its others: it had no work.
const IDLE: &str = "wait";

impl ThreadReport {
    /// Adds what the same thread did for something else meanwhile. What is left of the time is its
    /// phase `wait`, the last one.
    pub fn join(&mut self, other: Self) {
        let time = |report: &Self| report.phases.iter().map(|phase| phase.1).sum::<f64>();
        let all = time(self).max(time(&other));
        for (name, seconds) in other.phases {
            match self.phases.iter_mut().find(|own| own.0 == name) {
                Some(own) => own.1 += seconds,
                None => self.phases.insert(0, (name, seconds)),
            }
        }
        if let Some(at) = self.phases.iter().position(|phase| phase.0 == IDLE) {
            self.phases[at].1 = 0.0;
            self.phases[at].1 = (all - time(self)).max(0.0);
        }
    }
}

/// Ticks per phase of one thread: written by that thread, read by anyone.
#[derive(Debug)]
pub struct PhaseTimes {
    name: String,
    core: Option<usize>,
    ticks: [AtomicU64; PHASES.len()],
    longest_turn: AtomicU64,
    progress: AtomicU64,
    ended: AtomicBool,
}

impl PhaseTimes {
    /// Zeros for the thread `name`, pinned to `core` if it is.
    pub fn new(name: impl Into<String>, core: Option<usize>) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            core,
            ticks: Default::default(),
            longest_turn: AtomicU64::new(0),
            progress: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        })
    }

    /// The thread's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Turns of its loop so far, but for those that only waited for a device; `None` once it has
    /// ended.
    pub fn progress(&self) -> Option<u64> {
        (!self.ended.load(Ordering::Relaxed)).then(|| self.progress.load(Ordering::Relaxed))
    }

    /// Starts to look for the longest turn anew.
    pub fn forget_longest_turn(&self) {
        self.longest_turn.store(0, Ordering::Relaxed);
    }

    /// The times so far in seconds.
    pub fn report(&self, clock: TscClock) -> ThreadReport {
        let seconds =
            |phase: Phase| clock.seconds(self.ticks[phase as usize].load(Ordering::Relaxed));
        ThreadReport {
            name: self.name.clone(),
            core: self.core,
            phases: PHASES
                .map(|(phase, name)| (name.to_owned(), seconds(phase)))
                .to_vec(),
            longest_turn: Some(clock.seconds(self.longest_turn.load(Ordering::Relaxed))),
        }
    }
}

/// Timer of a thread: each mark books the time since the last one.
#[derive(Debug)]
pub struct PhaseTimer {
    times: Arc<PhaseTimes>,
    last: u64,
    turn: u64,
}

impl PhaseTimer {
    /// Starts now.
    pub fn start(times: Arc<PhaseTimes>) -> Self {
        let now = tsc();
        Self {
            times,
            last: now,
            turn: now,
        }
    }

    /// Ends a turn of the thread's loop, idle or not. A turn far longer than its work had its CPU
    /// taken away.
    #[inline]
    pub fn turn(&mut self) {
        self.wait_for_device();
        let progress = &self.times.progress;
        // This thread is the only writer.
        progress.store(progress.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Ends a turn that had nothing to do but wait for a device. If there are no others any more,
    /// the device is stuck.
    #[inline]
    pub fn wait_for_device(&mut self) {
        let now = tsc();
        let turn = now.wrapping_sub(self.turn);
        self.turn = now;
        let longest = &self.times.longest_turn;
        if turn > longest.load(Ordering::Relaxed) {
            longest.fetch_max(turn, Ordering::Relaxed);
        }
    }

    /// Lets the thread `sleep` because it has nothing to do, after it has waited for input. How
    /// long that takes is no part of a turn.
    pub fn sleep<T>(&mut self, sleep: impl FnOnce() -> T) -> T {
        self.mark(Phase::WaitInput);
        let slept = sleep();
        self.mark(Phase::Sleep);
        self.turn = self.last;
        slept
    }

    /// Books the time since the last mark under `phase`.
    #[inline]
    pub fn mark(&mut self, phase: Phase) {
        let now = tsc();
        let slot = &self.times.ticks[phase as usize];
        // This thread is the only writer.
        slot.store(
            slot.load(Ordering::Relaxed) + now.wrapping_sub(self.last),
            Ordering::Relaxed,
        );
        self.last = now;
    }
}

impl Drop for PhaseTimer {
    fn drop(&mut self) {
        self.times.ended.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_a_thread_did_for_others_is_no_waiting() {
        let report = |phases: &[(&str, f64)]| ThreadReport {
            phases: phases
                .iter()
                .map(|&(name, s)| (name.to_owned(), s))
                .collect(),
            ..ThreadReport::default()
        };
        let mut all = report(&[("fft", 3.0), ("post", 1.0), ("wait", 6.0)]);
        all.join(report(&[("ddc", 2.0), ("fft", 1.5), ("wait", 6.5)]));
        let expected = report(&[("ddc", 2.0), ("fft", 4.5), ("post", 1.0), ("wait", 2.5)]);
        assert_eq!(all.phases, expected.phases);
        // Begun a little apart, always at work.
        all.join(report(&[("fft", 4.0), ("wait", 6.0)]));
        assert_eq!(all.phases[3], ("wait".to_owned(), 0.0));
    }

    #[test]
    fn sleep_is_a_phase_of_its_own_and_no_part_of_a_turn() {
        let times = PhaseTimes::new("rx0", None);
        let mut timer = PhaseTimer::start(times.clone());
        let (begun, slept) = (tsc(), Duration::from_millis(20));
        timer.turn();
        let ticks = timer.sleep(|| {
            let begun = tsc();
            std::thread::sleep(slept);
            tsc().wrapping_sub(begun)
        });
        timer.turn();
        let all = tsc().wrapping_sub(begun);
        let of = |phase: Phase| times.ticks[phase as usize].load(Ordering::Relaxed);
        assert!((ticks..=all).contains(&of(Phase::Sleep)));
        assert!(times.longest_turn.load(Ordering::Relaxed) <= all - ticks);
        assert_eq!(
            of(Phase::Work) + of(Phase::Compute) + of(Phase::WaitOutput),
            0
        );
        assert_eq!(times.progress(), Some(2));
    }
}
