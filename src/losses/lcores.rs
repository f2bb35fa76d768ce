//! Whether lcores have their CPUs, and how near to their limits those are that take packets in.

use std::fs;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ground::IdlePolicy;
use ground::TscClock;
use ground::stats::PhaseTimes;
use host::placement::{EnginePlan, Role};

use super::Cause;
use super::counts::Look;
use super::numbers::span;
use super::track::FoundLoss;

/// How long an lcore that moves packets makes no turn before that is said, and any other, which may
/// be at one computation for long.
const STILL: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(5)];
/// How long one is short of its CPU, or near its limit, before that is said.
const FOR: Duration = Duration::from_secs(2);
/// Share of the time for which it waits for its CPU.
const WAITS: f64 = 0.25;
/// Share of the time for which one that takes packets in works.
const WORKS: f64 = 0.9;

/// What is known of one lcore at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LcoreCounts {
    /// Its name.
    pub name: String,
    /// Its CPU.
    pub cpu: Option<usize>,
    /// Whether it takes packets in.
    pub receives: bool,
    /// Whether it sends packets.
    pub sends: bool,
    /// Whether its CPU should be its own.
    pub polls: bool,
    /// Turns of its loop; `None` once it has ended.
    pub turns: Option<u64>,
    /// Seconds that it has worked.
    pub worked: f64,
    /// Seconds for which it had work, and other threads had its CPU; `None` where the kernel does
    /// not tell.
    pub waited: Option<f64>,
}

impl LcoreCounts {
    fn title(&self) -> String {
        match self.cpu {
            Some(cpu) => format!("{} on CPU {cpu}", self.name),
            None => self.name.clone(),
        }
    }
}

/// The lcores of an engine.
pub struct Lcores {
    clock: TscClock,
    lcores: Vec<Watched>,
}

struct Watched {
    times: Arc<PhaseTimes>,
    receives: bool,
    sends: bool,
    polls: bool,
    /// Where the kernel tells of its thread, once that has been found.
    folder: OnceLock<String>,
}

impl Lcores {
    /// Those whose `times` these are, as `plan` has them.
    pub fn new(times: &[Arc<PhaseTimes>], clock: TscClock, plan: &EnginePlan) -> Self {
        let watched = |times: &Arc<PhaseTimes>| {
            let planned = plan.lcores.iter().find(|lcore| lcore.name == times.name());
            let is = |role: fn(&Role) -> bool| planned.is_some_and(|lcore| role(&lcore.role));
            Watched {
                times: times.clone(),
                receives: is(|role| matches!(role, Role::Rx(_))),
                sends: is(|role| matches!(role, Role::Tx(_))),
                polls: planned.is_some_and(|lcore| lcore.idle == IdlePolicy::Poll),
                folder: OnceLock::new(),
            }
        };
        Self {
            clock,
            lcores: times.iter().map(watched).collect(),
        }
    }

    /// How they are now.
    pub fn read(&self) -> Vec<LcoreCounts> {
        self.lcores.iter().map(|of| of.read(self.clock)).collect()
    }
}

impl Watched {
    fn read(&self, clock: TscClock) -> LcoreCounts {
        let report = self.times.report(clock);
        let phases = report.phases.iter();
        let worked = phases.filter(|(phase, _)| phase == "work" || phase == "compute");
        LcoreCounts {
            cpu: report.core,
            receives: self.receives,
            sends: self.sends,
            polls: self.polls,
            turns: self.times.progress(),
            worked: worked.map(|(_, seconds)| seconds).sum(),
            waited: self.waited(),
            name: report.name,
        }
    }

    /// By the kernel's accounts of its thread.
    fn waited(&self) -> Option<f64> {
        let folder = match self.folder.get() {
            Some(folder) => folder,
            None => {
                let found = folder_of_thread(self.times.name())?;
                self.folder.get_or_init(|| found)
            }
        };
        let text = fs::read_to_string(format!("{folder}/schedstat")).ok()?;
        let nanoseconds: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
        Some(nanoseconds as f64 * 1e-9)
    }
}

/// The thread of this process that has this name.
fn folder_of_thread(name: &str) -> Option<String> {
    /// What the kernel keeps of a name.
    const KEPT: usize = 15;
    let name = name.get(..KEPT).unwrap_or(name);
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    let folders = tasks.filter_map(|task| Some(task.ok()?.path().to_str()?.to_owned()));
    let mut of_name = folders.filter(|folder| {
        let comm = fs::read_to_string(format!("{folder}/comm"));
        comm.is_ok_and(|comm| comm.trim_end() == name)
    });
    of_name.next()
}

/// What the looks so far found of lcores.
#[derive(Debug, Default)]
pub struct LcoreTroubles {
    troubles: Vec<Trouble>,
    /// Who was without a CPU, and who was near a limit, at the last look that found any.
    last: [Option<LastTrouble>; 2],
}

#[derive(Debug)]
struct LastTrouble {
    at: Instant,
    titles: Vec<String>,
}

impl LastTrouble {
    /// In words, of an lcore that was `what`.
    fn words(&self, what: &str, now: Instant) -> String {
        let ago = span(now.duration_since(self.at));
        let of = |title: &String| format!("{title} was {what} until {ago} ago");
        self.titles.iter().map(of).collect::<Vec<_>>().join(", ")
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Trouble {
    still: Option<Instant>,
    starved: Option<Instant>,
    busy: Option<Instant>,
    /// Shares of the time between the last two looks.
    waits: f64,
    works: f64,
}

impl LcoreTroubles {
    /// Takes in two looks. `lossy`: whether packets that came were lost between them.
    pub fn look(&mut self, last: Look<'_>, now: Look<'_>, lossy: bool) {
        let lcores = &now.counts.lcores[..];
        let seconds = now.at.duration_since(last.at).as_secs_f64().max(1e-9);
        self.troubles.resize_with(lcores.len(), Trouble::default);
        let pairs = last.counts.lcores.iter().zip(lcores);
        for ((before, lcore), trouble) in pairs.zip(&mut self.troubles) {
            let keep = |since: &mut Option<Instant>, holds: bool| {
                *since = holds.then(|| since.unwrap_or(last.at));
            };
            let waited = lcore.waited.zip(before.waited);
            // The kernel counts a wait when it is over.
            trouble.waits = waited.map_or(0.0, |(now, before)| ((now - before) / seconds).min(1.0));
            trouble.works = (lcore.worked - before.worked) / seconds;
            let still = lcore.turns.is_some() && lcore.turns == before.turns;
            // A thread that shares its CPU waits now and then, which costs nothing as a rule.
            let starved = trouble.waits >= WAITS && (lcore.polls || lossy);
            let busy = lcore.receives && trouble.works >= WORKS && !still && !starved;
            keep(&mut trouble.still, still);
            keep(&mut trouble.starved, starved);
            keep(&mut trouble.busy, busy);
        }
        let titles = |is: &dyn Fn(&Trouble, &LcoreCounts) -> bool| {
            let pairs = self.troubles.iter().zip(lcores);
            let pairs = pairs.filter(|(trouble, lcore)| is(trouble, lcore));
            pairs.map(|(_, lcore)| lcore.title()).collect::<Vec<_>>()
        };
        let without = titles(&|trouble, lcore| trouble.without_cpu(now.at, lcore).is_some());
        let busy = titles(&|trouble, _| trouble.busy(now.at).is_some());
        for (last, titles) in self.last.iter_mut().zip([without, busy]) {
            if !titles.is_empty() {
                *last = Some(LastTrouble { at: now.at, titles });
            }
        }
    }

    /// What there is to say at a moment.
    pub fn found(&self, now: Instant, lcores: &[LcoreCounts]) -> Vec<(Cause, FoundLoss)> {
        let pairs = || self.troubles.iter().zip(lcores);
        let without = pairs().filter_map(|(trouble, lcore)| trouble.without_cpu(now, lcore));
        let busy = pairs().filter_map(|(trouble, _)| trouble.busy(now));
        let wrong = |cause, since| {
            Some((
                cause,
                FoundLoss::Wrong {
                    since: since?,
                    lost: 0,
                },
            ))
        };
        let without = wrong(Cause::LcoreWithoutCpu, without.min());
        let busy = wrong(Cause::BusyLcore, busy.min());
        without.into_iter().chain(busy).collect()
    }

    /// Whether one that takes packets in had no time left between the last two looks.
    pub fn rx_has_no_time(&self, lcores: &[LcoreCounts]) -> bool {
        let mut pairs = self.troubles.iter().zip(lcores);
        pairs.any(|(trouble, lcore)| lcore.receives && trouble.works >= WORKS)
    }

    /// Whether one that takes packets in makes no turn.
    pub fn rx_stands_still(&self, now: Instant, lcores: &[LcoreCounts]) -> bool {
        let mut pairs = self.troubles.iter().zip(lcores);
        pairs.any(|(trouble, lcore)| lcore.receives && trouble.is_still(now, lcore))
    }

    /// Which lcores are without their CPUs, and how that shows; if none is, which were last.
    pub fn without_cpu(&self, now: Instant, lcores: &[LcoreCounts]) -> String {
        let pairs = self.troubles.iter().zip(lcores);
        let text = pairs.filter_map(|(trouble, lcore)| {
            trouble.without_cpu(now, lcore)?;
            let title = lcore.title();
            Some(match trouble.still {
                Some(since) if trouble.is_still(now, lcore) => {
                    let since = span(now.duration_since(since));
                    format!("{title} has made no turn for {since}")
                }
                _ => format!(
                    "{title} waits for its CPU for {:.0} % of the time",
                    100.0 * trouble.waits
                ),
            })
        });
        let text = text.collect::<Vec<_>>().join(", ");
        match &self.last[0] {
            Some(last) if text.is_empty() => last.words("without its CPU", now),
            _ => text,
        }
    }

    /// Which lcores are near their limits, and how near; if none is, which were last.
    pub fn busy(&self, now: Instant, lcores: &[LcoreCounts]) -> String {
        let pairs = self.troubles.iter().zip(lcores);
        let text = pairs.filter_map(|(trouble, lcore)| {
            trouble.busy(now)?;
            let works = 100.0 * trouble.works.min(1.0);
            Some(format!(
                "{} works for {works:.0} % of the time",
                lcore.title()
            ))
        });
        let text = text.collect::<Vec<_>>().join(", ");
        match &self.last[1] {
            Some(last) if text.is_empty() => last.words("near its limit", now),
            _ => text,
        }
    }
}

impl Trouble {
    fn is_still(&self, now: Instant, lcore: &LcoreCounts) -> bool {
        let [packets, other] = STILL;
        let limit = if lcore.receives || lcore.sends {
            packets
        } else {
            other
        };
        self.still
            .is_some_and(|since| now.duration_since(since) >= limit)
    }

    fn without_cpu(&self, now: Instant, lcore: &LcoreCounts) -> Option<Instant> {
        let starved = self
            .starved
            .filter(|&since| now.duration_since(since) >= FOR);
        let still = self.still.filter(|_| self.is_still(now, lcore));
        still.or(starved)
    }

    fn busy(&self, now: Instant) -> Option<Instant> {
        self.busy.filter(|&since| now.duration_since(since) >= FOR)
    }
}
