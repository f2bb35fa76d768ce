//! Compares the counters of a live engine with what they were.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use dpdk::PortStats;
use ground::{N_POL, SampleClock};

use super::counts::{Look, LossCounts, UnexplainedCounts};
use super::explained::Unexplained;
use super::heldup::HeldUp;
use super::lcores::LcoreTroubles;
use super::levels::Levels;
use super::links::Outages;
use super::power::Powers;
use super::text::{Line, Words};
use super::time::Times;
use super::track::{FoundLoss, LossStage, Track};
use super::{Cause, LossEvent, rank, status};
use crate::config::RecvConfig;
use crate::recv::DropCause;

/// Between two looks.
pub const LOOK: Duration = Duration::from_secs(1);
/// A line so long after what it tells of is not about this moment: one look only confirms it.
const LATE: Duration = Duration::from_millis(1500);
/// Looks that the status is about.
const STATUS_LOOKS: usize = 5;
/// How long an engine may be up before it is said that no heap has come.
const FIRST: Duration = Duration::from_secs(5);
/// How long no heap, or none of one polarisation, comes before that is said.
const SILENCE: Duration = Duration::from_secs(2);
/// The same in heaps, for rates at which few come.
const SILENT_HEAPS: f64 = 100.0;
/// Looks that find chunks until these are whole, where heaps begin to come.
const RESUMES: usize = 2;

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// By the one that goes evenly.
    pub at: Instant,
    /// UNIX time in seconds.
    pub unix: f64,
}

/// What a watch knows of its engine.
#[derive(Clone, Debug)]
pub struct WatchedEngine {
    /// Geometry of heaps and chunks.
    pub recv: RecvConfig,
    /// What timestamps mean.
    pub clock: SampleClock,
    /// Digitisers' destinations as the operator gave them.
    pub source: String,
    /// Interfaces that they come through; none if input comes from a capture, which is not watched
    /// for silence and time.
    pub interfaces: Vec<String>,
}

impl WatchedEngine {
    /// Whether input comes when it likes.
    pub fn is_live(&self) -> bool {
        !self.interfaces.is_empty()
    }

    /// How long so many samples take.
    pub(super) fn seconds(&self, samples: f64) -> f64 {
        samples / self.clock.adc_sample_rate
    }

    /// How long an engine may be up before it is odd that no heap has come.
    pub fn patience(&self) -> Duration {
        FIRST.max(self.silence())
    }

    pub(super) fn chunk_samples(&self) -> f64 {
        self.recv.chunk_samples as f64
    }

    fn silence(&self) -> Duration {
        let heaps = self.seconds(SILENT_HEAPS * self.recv.packet_samples as f64);
        SILENCE.max(Duration::try_from_secs_f64(heaps).unwrap_or(Duration::MAX))
    }
}

/// Watches one engine.
#[derive(Debug)]
pub struct Watch {
    engine: WatchedEngine,
    tracks: BTreeMap<Cause, (Track, LossCounts)>,
    /// What there was to say at the last look that found something, and when that was.
    words: BTreeMap<Cause, (Words, Instant)>,
    recent: VecDeque<(Instant, LossCounts)>,
    /// When it was found that heaps had come since the look before, placed or dropped; at first,
    /// when it began.
    silent_since: Instant,
    /// Whether that is so long ago that no heap is expected at this moment.
    silent: bool,
    /// Silences since [`Cause::NoInput`] began.
    silences: usize,
    /// Looks of which the missing heaps are those of a silence, or of the start: the first chunks
    /// are not whole.
    resumes: usize,
    absent: [Option<Absent>; N_POL],
    times: Times,
    lcores: LcoreTroubles,
    levels: Levels,
    powers: Powers,
    outages: Outages,
    held_up: HeldUp,
    unexplained: Unexplained,
    /// The last time that a polarisation was absent for long.
    alone: Option<Alone>,
}

/// A polarisation of which no heap comes, while chunks do.
#[derive(Clone, Copy, Debug)]
struct Absent {
    since: Instant,
    missing: u64,
}

/// When one polarisation came alone.
#[derive(Clone, Copy, Debug)]
pub struct Alone {
    /// The other one.
    pub absent: usize,
    /// When its last heap came.
    pub since: Instant,
    /// When a look last found it absent.
    pub last: Instant,
    /// Whether both have come since then, or none.
    pub is_over: bool,
}

impl Watch {
    /// Watches from `now` on.
    pub fn new(engine: WatchedEngine, now: Instant, counts: LossCounts) -> Self {
        Self {
            engine,
            tracks: BTreeMap::new(),
            words: BTreeMap::new(),
            recent: VecDeque::from([(now, counts)]),
            silent_since: now,
            silent: false,
            silences: 0,
            resumes: RESUMES,
            absent: [None; N_POL],
            times: Times::new(now),
            lcores: LcoreTroubles::default(),
            levels: Levels::default(),
            powers: Powers::default(),
            outages: Outages::default(),
            held_up: HeldUp::default(),
            unexplained: Unexplained::default(),
            alone: None,
        }
    }

    /// Whether it is time for a look.
    pub fn is_due(&self, now: Instant) -> bool {
        let last = self.recent.back().map(|(at, _)| *at);
        last.is_none_or(|last| now.duration_since(last) >= LOOK)
    }

    /// Compares. Returns the lines that are due.
    pub fn look(&mut self, now: Moment, mut counts: LossCounts) -> Vec<LossEvent> {
        let Some((before, kept)) = self.recent.back().cloned() else {
            return Vec::new();
        };
        counts.keep_ports(&kept);
        let last = Look {
            at: before,
            counts: &kept,
        };
        let found = self.find(last, now, &counts);
        if self.resumes > 0 {
            self.unexplained.explain_all();
        }
        let this = Look {
            at: now.at,
            counts: &counts,
        };
        counts.unexplained = self.unexplained.look(last, this, &found);
        let known = found
            .iter()
            .filter(|(_, found)| *found != FoundLoss::Unknown);
        let lossy: Vec<Cause> = known.map(|(cause, _)| *cause).collect();
        for &cause in &lossy {
            self.tracks
                .entry(cause)
                .or_insert_with(|| (Track::default(), kept.clone()));
        }
        let mut known = lossy.clone();
        known.extend(self.active().map(|(cause, ..)| cause));
        known.sort_unstable();
        known.dedup();
        let lost_here = self.lost_here(&found);
        let mut events = Vec::new();
        for (&cause, (track, from)) in &mut self.tracks {
            let found = found.iter().find(|(other, _)| *other == cause);
            let found = found.map_or(FoundLoss::Lost(0), |(_, found)| *found);
            if !track.is_active() {
                from.clone_from(&kept);
            }
            let due = track.look(before, now.at, found);
            let Some(shown) = due.or_else(|| track.shown(before, now.at, found)) else {
                continue;
            };
            let line = Line {
                engine: &self.engine,
                cause,
                due: shown,
                lossy: &known,
                lost_here,
                last,
                from,
                now: now.at,
                silent_since: self.silent_since,
                silences: self.silences,
                counts: &counts,
                times: &self.times,
                lcores: &self.lcores,
                outages: &self.outages,
                held_up: &self.held_up,
                powers: &self.powers,
                alone: self.alone,
            };
            // What was over long before there was a line for it is said as it was then.
            let is_over = shown.stage == LossStage::Begins && found == FoundLoss::Lost(0);
            let words = match self.words.get(&cause) {
                Some((words, at)) if is_over && now.at.duration_since(*at) > LATE => words.clone(),
                _ => line.words(),
            };
            if let Some(due) = due {
                events.push(LossEvent {
                    cause,
                    stage: due.stage,
                    count: due.count,
                    text: words.line(),
                });
            }
            if due.is_some() || !is_over {
                self.words.insert(cause, (words, now.at));
            }
        }
        self.recent.push_back((now.at, counts));
        while self.recent.len() > STATUS_LOOKS + 1 {
            self.recent.pop_front();
        }
        events
    }

    /// Heaps, or packets that may have been heaps, that were lost here while their loss goes on,
    /// with what a look has `found`.
    fn lost_here(&self, found: &[(Cause, FoundLoss)]) -> u64 {
        let new = found.iter().map(|&(cause, found)| match found {
            FoundLoss::Lost(lost) | FoundLoss::Wrong { lost, .. } => (cause, lost),
            FoundLoss::Unknown => (cause, 0),
        });
        let before = self.tracks.iter();
        let before = before.map(|(&cause, (track, _))| (cause, track.count().unwrap_or(0)));
        let here = before.chain(new).filter(|(cause, _)| cause.is_lost_heap());
        here.map(|(_, count)| count).sum()
    }

    /// For how long no heap has been placed or dropped `now`, if that is so long that it is said.
    pub fn silence(&self, now: Instant) -> Option<Duration> {
        let silence = now.saturating_duration_since(self.silent_since);
        self.is_active(Cause::NoInput).then_some(silence)
    }

    /// What is being lost now, how many of it since it began, and what there is to say of it: the
    /// top cause first, by what was lost in the last seconds.
    pub fn active(&self) -> impl Iterator<Item = (Cause, u64, &Words)> {
        let shares = match (self.recent.front(), self.recent.back()) {
            (Some((_, before)), Some((_, after))) => rank::shares(before, after, self.is_missing()),
            _ => Vec::new(),
        };
        let share = |cause| {
            let of = shares.iter().find(|(other, _)| *other == cause);
            of.map_or(0.0, |(_, share)| *share)
        };
        let active = |(cause, (track, _)): (&Cause, &(Track, LossCounts))| {
            Some((*cause, track.count()?, &self.words.get(cause)?.0))
        };
        let mut active: Vec<_> = self.tracks.iter().filter_map(active).collect();
        active.sort_by_key(|&(cause, ..)| rank::place(cause, self.goes_on(cause), share(cause)));
        active.into_iter()
    }

    /// Heaps so far whose loss no other cause explains.
    pub fn unexplained(&self) -> UnexplainedCounts {
        let last = self.recent.back();
        last.map_or_else(UnexplainedCounts::default, |(_, last)| last.unexplained)
    }

    /// What the run came to by these counts; ports that were not read have those of the last look.
    pub fn summary(&self, mut counts: LossCounts) -> Vec<String> {
        if let Some((_, last)) = self.recent.back() {
            counts.keep_ports(last);
        }
        status::summary(&counts)
    }

    /// One line on the last seconds: input, loss and its top cause, output.
    pub fn status(&self) -> String {
        let (Some((from, before)), Some((to, after))) = (self.recent.front(), self.recent.back())
        else {
            return String::new();
        };
        let silent = self.silent.then(|| to.duration_since(self.silent_since));
        // What comes and is dropped has a share of its own.
        let silent = silent.filter(|silent| !silent.is_zero());
        let over = to.duration_since(*from);
        let goes_on = |cause| self.goes_on(cause);
        let mut line = status::status(before, after, over, silent, self.is_missing(), goes_on);
        // What has no share of its own.
        let states = Cause::all().filter(|cause| cause.is_state() && self.is_active(*cause));
        for cause in states {
            line.push_str(", ");
            line.push_str(cause.name());
        }
        line
    }

    /// What of this moment differs from the `last` look.
    fn find(
        &mut self,
        last: Look<'_>,
        now: Moment,
        counts: &LossCounts,
    ) -> Vec<(Cause, FoundLoss)> {
        let this = Look { at: now.at, counts };
        let mut found = Vec::new();
        let mut lost = |cause, count: u64| {
            if count > 0 {
                found.push((cause, FoundLoss::Lost(count)));
            }
        };
        for &cause in DropCause::ALL {
            let count = counts.lost(cause).saturating_sub(last.counts.lost(cause));
            lost(Cause::Dropped(cause), count);
        }
        let ports = |value: fn(&PortStats) -> u64| {
            let sum = |counts: &LossCounts| counts.ports.iter().map(|(_, port)| value(port)).sum();
            let (new, old): (u64, u64) = (sum(counts), sum(last.counts));
            new.saturating_sub(old)
        };
        lost(Cause::RxMissed, ports(|port| port.rx_missed));
        lost(Cause::RxNoBuffer, ports(|port| port.rx_no_mbuf));
        lost(Cause::RxErrors, ports(|port| port.rx_errors));
        lost(Cause::TxErrors, ports(|port| port.tx_errors));
        lost(Cause::NotSent, counts.not_sent_since(last.counts));
        let is_active = self.is_active(Cause::Dropped(DropCause::NoFreeChunk));
        self.held_up.look(last.counts, counts, is_active);
        let dropped = found
            .iter()
            .any(|(cause, _)| matches!(cause, Cause::Dropped(_)));
        // If no output chunk is free, sending is slow: then a loss for want of receive chunks does
        // not say that an lcore lacks its CPU.
        let sends_slowly = counts.outputs.iter().any(|output| output.free_chunks == 0);
        let lossy = found.iter().any(|(cause, _)| match cause {
            Cause::RxMissed | Cause::RxNoBuffer => true,
            Cause::Dropped(DropCause::NoFreeChunk) => !sends_slowly,
            _ => false,
        });
        self.lcores.look(last, this, lossy);
        let without = self.lcores.found(now.at, &counts.lcores);
        let slow = |(cause, _): &(Cause, FoundLoss)| {
            let full = Cause::Dropped(DropCause::NoFreeChunk);
            [Cause::LcoreWithoutCpu, Cause::BusyLcore, full].contains(cause)
        };
        let late = self.lcores.rx_has_no_time(&counts.lcores);
        if lossy || late || without.iter().chain(&found).any(slow) {
            self.times.note_slow(now.at);
        }
        found.extend(without);
        let is_active = self.is_active(Cause::LinkDown);
        let link_down = self.outages.look(last, this, is_active);
        found.extend(link_down.map(|found| (Cause::LinkDown, found)));
        found.extend(self.find_silence(last, this, dropped));
        let jump = self.times.find_jump(&self.engine, last.counts, now, counts);
        if jump.is_some() {
            // What was not sampled is not missing.
            self.resumes = RESUMES;
        }
        found.extend(jump);
        found.extend(self.find_missing(last, this));
        found.extend(self.times.find_off(&self.engine, last.counts, now, counts));
        found.extend(self.times.find_clock(&self.engine, now.at, counts));
        let heap_samples = self.engine.recv.packet_samples as u64;
        found.extend(self.levels.look(heap_samples, last, this));
        let clips = self.is_active(Cause::InputClipping);
        found.extend(self.powers.look(last, this, clips));
        found.retain(|(_, found)| *found != FoundLoss::Lost(0));
        found
    }

    /// Whether no heap comes. Where datagrams come that should be heaps, their causes say so.
    fn find_silence(
        &mut self,
        last: Look<'_>,
        now: Look<'_>,
        dropped: bool,
    ) -> Option<(Cause, FoundLoss)> {
        let counts = now.counts;
        if counts.placed > last.counts.placed {
            self.silent_since = now.at;
            self.silent = false;
            return None;
        }
        // Whether heaps came until the look before, all of them dropped.
        let again = self.silent && !dropped && self.silent_since == last.at;
        if dropped {
            self.silent_since = now.at;
        }
        let explained = dropped || self.lcores.rx_stands_still(now.at, &counts.lcores);
        let silence = match counts.placed {
            0 => self.engine.patience(),
            _ => self.engine.silence(),
        };
        let since = self.silent_since;
        let silent = now.at.duration_since(since) >= silence && !explained;
        if !self.engine.is_live() || !(self.silent || silent) {
            return None;
        }
        if !self.silent || again {
            let before = self.silences * usize::from(self.is_active(Cause::NoInput));
            (self.silent, self.silences) = (true, before + 1);
        }
        self.resumes = RESUMES;
        let found = match explained {
            // No heap is placed still, but what comes has other causes.
            true => FoundLoss::Unknown,
            false => FoundLoss::Wrong { since, lost: 0 },
        };
        Some((Cause::NoInput, found))
    }

    /// Heaps that chunks lack, and polarisations that they lack.
    fn find_missing(&mut self, last: Look<'_>, now: Look<'_>) -> Vec<(Cause, FoundLoss)> {
        let counts = now.counts;
        if counts.chunks == last.counts.chunks {
            if let Some(alone) = self.alone.as_mut().filter(|_| self.silent) {
                alone.is_over = true;
            }
            return vec![(Cause::OnePolarisation, FoundLoss::Unknown)];
        }
        let mut missing = 0;
        for pol in 0..N_POL {
            let new = counts.missing[pol].saturating_sub(last.counts.missing[pol]);
            if counts.heaps[pol] > last.counts.heaps[pol] {
                let absent = self.absent[pol].take();
                missing += new + absent.map_or(0, |absent| absent.missing);
            } else {
                let none = Absent {
                    since: last.at,
                    missing: 0,
                };
                self.absent[pol].get_or_insert(none).missing += new;
            }
        }
        let pols = self.absent.iter_mut().enumerate();
        let one = pols
            .filter_map(|(pol, absent)| Some((pol, absent.as_mut()?)))
            .next();
        let silence = self.engine.silence();
        let one = one.filter(|(_, absent)| now.at.duration_since(absent.since) >= silence);
        let mut found = Vec::new();
        match (one, &mut self.alone) {
            (Some((pol, absent)), alone) => {
                let (since, lost) = (absent.since, std::mem::take(&mut absent.missing));
                *alone = Some(Alone {
                    absent: pol,
                    since,
                    last: now.at,
                    is_over: false,
                });
                found.push((Cause::OnePolarisation, FoundLoss::Wrong { since, lost }));
            }
            (None, Some(alone)) => alone.is_over = true,
            (None, None) => {}
        }
        if self.resumes > 0 {
            self.resumes -= 1;
            // What cannot be judged is no end of it.
            found.push((Cause::MissingHeaps, FoundLoss::Unknown));
        } else if missing > 0 {
            found.push((Cause::MissingHeaps, FoundLoss::Lost(missing)));
        }
        found
    }

    /// Whether missing heaps are lost, rather than what a start costs.
    fn is_missing(&self) -> bool {
        self.is_active(Cause::MissingHeaps) || self.is_active(Cause::OnePolarisation)
    }

    fn is_active(&self, cause: Cause) -> bool {
        let track = self.tracks.get(&cause);
        track.is_some_and(|(track, _)| track.is_active())
    }

    /// Whether a cause is at work and something was lost for it in the last seconds.
    fn goes_on(&self, cause: Cause) -> bool {
        let Some((now, _)) = self.recent.back() else {
            return false;
        };
        let track = self.tracks.get(&cause);
        let none_for = track.and_then(|(track, _)| track.none_for(*now));
        none_for.is_some_and(|none_for| none_for < rank::GOES_ON)
    }
}
