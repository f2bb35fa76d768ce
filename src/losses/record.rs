//! What is being lost at this moment, what was said of it, and what it came to so far: for whoever
//! shows it, by a page, metrics or sensors.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Cause, LossEvent, LossStage, UnexplainedCounts, Words};

/// Lines that are kept.
const KEPT: usize = 50;

/// What an engine loses, by cause. The thread that watches the engine writes it once a second, and
/// anybody reads it.
#[derive(Debug, Default)]
pub struct LossRecord(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// The top cause first.
    active: Vec<(Cause, Active)>,
    lines: VecDeque<LossLine>,
    ended: BTreeMap<Cause, LossTotal>,
    unexplained: UnexplainedCounts,
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

    /// Takes over what a look at this UNIX time found: all that is being lost, the top cause first,
    /// and the lines that were due.
    pub fn update<'a>(
        &self,
        time: f64,
        active: impl Iterator<Item = (Cause, u64, &'a Words)>,
        events: &[LossEvent],
    ) {
        let mut kept = self.lock();
        let before = std::mem::take(&mut kept.active);
        let mut before: BTreeMap<_, _> = before.into_iter().collect();
        for (cause, count, words) in active {
            let mut active = before.remove(&cause).unwrap_or_else(|| Active {
                since: time,
                count,
                words: words.clone(),
                line: None,
            });
            active.count = count;
            active.words.clone_from(words);
            kept.active.push((cause, active));
        }
        for (cause, over) in before {
            let total = kept.ended.entry(cause).or_default();
            total.begun += 1;
            total.count += over.count;
        }
        for event in events {
            let ends = event.stage == LossStage::Ends;
            let mut active = kept.active.iter_mut();
            let active = active.find(|(cause, _)| *cause == event.cause && !ends);
            if let Some((_, active)) = active {
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

    /// Takes over heaps whose loss no other cause explains.
    pub fn note_unexplained(&self, unexplained: UnexplainedCounts) {
        self.lock().unexplained = unexplained;
    }

    /// Heaps so far whose loss no other cause explains.
    pub fn unexplained(&self) -> UnexplainedCounts {
        self.lock().unexplained
    }

    /// All causes at work, the top cause first.
    pub fn active(&self) -> Vec<ActiveLoss> {
        let kept = self.lock();
        let active = kept.active.iter().map(|(cause, active)| ActiveLoss {
            cause: *cause,
            since: active.since,
            count: active.count,
            words: active.words.clone(),
            line: active.line.clone(),
        });
        active.collect()
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
            let active = kept.active.iter().find(|(other, _)| *other == cause);
            if let Some((_, active)) = active {
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
    fn causes_keep_the_order_in_which_they_are_told() {
        let record = LossRecord::default();
        let found = [Cause::NotSent, Cause::WrongTime, Cause::NoInput];
        let words = Words::new("lost", "");
        for order in [found, [found[2], found[0], found[1]]] {
            record.update(1.0, order.map(|cause| (cause, 0, &words)).into_iter(), &[]);
            let told: Vec<_> = record.active().iter().map(|loss| loss.cause).collect();
            assert_eq!(told, order);
        }
    }
}
