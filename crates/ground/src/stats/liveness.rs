//! Whether data threads still turn: what a watchdog is fed by.

use std::sync::Arc;

use super::phases::PhaseTimes;

/// Data threads, and how far each was at the last look at which all had gone on.
///
/// A thread goes on if its loop turns, with packets or without: an idle telescope is no failure.
#[derive(Debug)]
pub struct Liveness(Vec<(Arc<PhaseTimes>, Option<u64>)>);

impl Liveness {
    /// Looks at `threads` from now on.
    pub fn of(threads: &[Arc<PhaseTimes>]) -> Self {
        let now = |times: &Arc<PhaseTimes>| (times.clone(), times.progress());
        Self(threads.iter().map(now).collect())
    }

    /// Names of those that neither have gone on since the last look that found all at work, nor
    /// have ended.
    pub fn stuck(&mut self) -> Vec<&str> {
        let goes_on = |(times, before): &(Arc<PhaseTimes>, Option<u64>)| {
            times.progress().is_none_or(|now| Some(now) != *before)
        };
        if self.0.iter().all(goes_on) {
            for (times, before) in &mut self.0 {
                *before = times.progress();
            }
            return Vec::new();
        }
        let stuck = self.0.iter().filter(|thread| !goes_on(thread));
        stuck.map(|(times, _)| times.name()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::PhaseTimer;

    #[test]
    fn threads_that_do_not_turn_are_named_until_they_do() {
        let times = ["rx0", "engine"].map(|name| PhaseTimes::new(name, None));
        let mut clocks = times
            .each_ref()
            .map(|times| PhaseTimer::start(times.clone()));
        let mut liveness = Liveness::of(&times);
        clocks[0].turn();
        assert_eq!(liveness.stuck(), ["engine"]);
        clocks[1].wait_for_device();
        assert_eq!(liveness.stuck(), ["engine"]);
        clocks[1].turn();
        assert_eq!(liveness.stuck(), [""; 0]);
        assert_eq!(liveness.stuck(), ["rx0", "engine"]);
        drop(clocks);
        assert_eq!(liveness.stuck(), [""; 0]);
    }
}
