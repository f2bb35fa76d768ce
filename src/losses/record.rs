//! What is being lost at this moment, what was said of it, and what it came to so far: for whoever
//! shows it, by a page, metrics or sensors.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Cause, LossEvent, LossStage, Words};

/// Lines that are kept.
const KEPT: usize = 50;

/// What an engine loses, by cause. The thread that watches the engine writes it once a second, and
/// anybody reads it.
#[derive(Debug, Default)]
pub struct LossRecord(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    active: BTreeMap<Cause, Active>,
    lines: VecDeque<LossLine>,
    ended: BTreeMap<Cause, LossTotal>,
}

#[derive(Clone, Debug)]
struct Active {
    since: f64,
    count: u64,
    words: Words,
    line: Option<String>,
}

/// A cause that is at work.
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveLoss {
    /// What is lost, or wrong.
    pub cause: Cause,
    /// UNIX time at which it was found.
    pub since: f64,
    /// How many were lost since.
    pub count: u64,
    /// What there is to say of it now.
    pub words: Words,
    /// The last line about it, if there was one: a loss is said once a second look has found it.
    pub line: Option<String>,
}

/// A line about a loss.
#[derive(Clone, Debug, PartialEq)]
pub struct LossLine {
    /// UNIX time.
    pub time: f64,
    /// About what.
    pub cause: Cause,
    /// Whether it begins, goes on or ends.
    pub stage: LossStage,
    /// The line.
    pub text: String,
}

/// What one cause has come to since the engine is up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossTotal {
    /// How often it began.
    pub begun: u64,
    /// How many were lost; never falls.
    pub count: u64,
}

impl LossRecord {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what a look at this UNIX time found: all that is being lost, and the lines that
    /// were due.
    pub fn update<'a>(
        &self,
        time: f64,
        active: impl Iterator<Item = (Cause, u64, &'a Words)>,
        events: &[LossEvent],
    ) {
        let mut kept = self.lock();
        let mut before = std::mem::take(&mut kept.active);
        for (cause, count, words) in active {
            let mut active = before.remove(&cause).unwrap_or_else(|| Active {
                since: time,
                count,
                words: words.clone(),
                line: None,
            });
            active.count = count;
            active.words.clone_from(words);
            kept.active.insert(cause, active);
        }
        for (cause, over) in before {
            let total = kept.ended.entry(cause).or_default();
            total.begun += 1;
            total.count += over.count;
        }
        for event in events {
            let ends = event.stage == LossStage::Ends;
            if let Some(active) = kept.active.get_mut(&event.cause).filter(|_| !ends) {
                active.line = Some(event.text.clone());
            }
            kept.lines.push_front(LossLine {
                time,
                cause: event.cause,
                stage: event.stage,
                text: event.text.clone(),
            });
        }
        kept.lines.truncate(KEPT);
    }

    /// All causes at work: losses before warnings, and of the same severity what explains others
    /// before these.
    pub fn active(&self) -> Vec<ActiveLoss> {
        let kept = self.lock();
        let active = kept.active.iter().map(|(&cause, active)| ActiveLoss {
            cause,
            since: active.since,
            count: active.count,
            words: active.words.clone(),
            line: active.line.clone(),
        });
        let mut active: Vec<_> = active.collect();
        active.sort_by_key(|loss| std::cmp::Reverse(loss.cause.severity()));
        active
    }

    /// Lines, newest first.
    pub fn lines(&self) -> Vec<LossLine> {
        self.lock().lines.iter().cloned().collect()
    }

    /// For each of [`Cause::all`], whether it is at work and what it has come to so far.
    pub fn totals(&self) -> Vec<(Cause, bool, LossTotal)> {
        let kept = self.lock();
        let total = |cause| {
            let mut total = kept.ended.get(&cause).copied().unwrap_or_default();
            let active = kept.active.get(&cause);
            if let Some(active) = active {
                total.begun += 1;
                total.count += active.count;
            }
            (cause, active.is_some(), total)
        };
        Cause::all().map(total).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recv::DropCause;

    fn event(cause: Cause, stage: LossStage) -> LossEvent {
        LossEvent {
            cause,
            stage,
            count: 0,
            text: format!("{stage:?}"),
        }
    }

    #[test]
    fn totals_never_fall_and_causes_are_at_work_from_first_to_last() {
        let record = LossRecord::default();
        let words = Words::new("late", "look");
        let late = Cause::Dropped(DropCause::TooOld);
        let total = || {
            let of = record.totals();
            of.into_iter().find(|(cause, ..)| *cause == late).unwrap()
        };
        let at = |active, begun, count| (late, active, LossTotal { begun, count });
        assert_eq!(total(), at(false, 0, 0));
        record.update(1.0, [(late, 3, &words)].into_iter(), &[]);
        assert_eq!(total(), at(true, 1, 3));
        let begins = [event(late, LossStage::Begins)];
        record.update(2.0, [(late, 5, &words)].into_iter(), &begins);
        let active = record.active();
        assert_eq!((active[0].since, active[0].count), (1.0, 5));
        assert_eq!(active[0].line.as_deref(), Some("Begins"));
        assert_eq!(active[0].words, words);
        let ends = [event(late, LossStage::Ends)];
        record.update(9.0, std::iter::empty(), &ends);
        assert_eq!(total(), at(false, 1, 5));
        record.update(20.0, [(late, 1, &words)].into_iter(), &[]);
        assert_eq!(total(), at(true, 2, 6));
        assert_eq!(record.active()[0].line, None);
        let stages: Vec<_> = record.lines().iter().map(|line| line.stage).collect();
        assert_eq!(stages, [LossStage::Ends, LossStage::Begins]);
    }

    #[test]
    fn losses_come_before_warnings_and_causes_before_consequences() {
        let record = LossRecord::default();
        let found = [Cause::NotSent, Cause::WrongTime, Cause::NoInput];
        let words = Words::new("lost", "");
        record.update(1.0, found.map(|cause| (cause, 0, &words)).into_iter(), &[]);
        let order: Vec<_> = record.active().iter().map(|loss| loss.cause).collect();
        assert_eq!(order, [Cause::NoInput, Cause::NotSent, Cause::WrongTime]);
    }
}
