//! What lcores did with their time.

use std::sync::Arc;
use std::time::Instant;

use ground::TscClock;
use ground::stats::PhaseTimes;
use live::{Bar, Part};

/// Seconds of one lcore by what it did, since it began.
pub type Phases = Vec<(String, f64)>;

/// Seconds between two looks, also where the host's clock was set in between: something to divide
/// by, so never 0.
pub fn seconds_between(before: Instant, now: Instant) -> f64 {
    let between = now.saturating_duration_since(before);
    between.as_secs_f64().max(1e-3)
}

/// What each lcore did so far.
pub fn phases(times: &[Arc<PhaseTimes>], clock: TscClock) -> Vec<Phases> {
    let reports = times.iter().map(|times| times.report(clock));
    reports.map(|report| report.phases).collect()
}

/// Shares of each lcore's time between two looks.
pub fn bars(times: &[Arc<PhaseTimes>], before: &[Phases], now: &[Phases]) -> Vec<Bar> {
    let looks = before.iter().zip(now);
    let bar = |(times, (before, now)): (&Arc<PhaseTimes>, (&Phases, &Phases))| {
        let earlier = |phase: &str| {
            let found = before.iter().find(|(name, _)| name == phase);
            found.map_or(0.0, |(_, seconds)| *seconds)
        };
        let spent = now.iter();
        let spent = spent.map(|(name, seconds)| (name, seconds - earlier(name)));
        let spent: Vec<_> = spent.filter(|(_, seconds)| *seconds > 0.0).collect();
        let all: f64 = spent.iter().map(|(_, seconds)| seconds).sum();
        let part = |(name, seconds): (&String, f64)| Part {
            name: name.clone(),
            share: seconds / all,
        };
        Bar {
            name: times.name().to_owned(),
            parts: spent.into_iter().map(part).collect(),
        }
    };
    times.iter().zip(looks).map(bar).collect()
}
