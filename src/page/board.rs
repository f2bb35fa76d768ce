//! The verdict on an engine.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use live::{CauseShown, LogEntry, State, Verdict};

use crate::losses::{Cause, LossEvent, LossStage};
use crate::recv::DropCause;

/// Lines about losses that are kept.
const KEPT: usize = 50;

/// What an engine loses now, and what was said of it.
#[derive(Debug, Default)]
pub struct LossBoard(Mutex<Shown>);

#[derive(Debug, Default)]
struct Shown {
    causes: BTreeMap<Cause, Active>,
    log: VecDeque<LogEntry>,
}

#[derive(Clone, Debug)]
struct Active {
    since: f64,
    count: u64,
    /// The last line about it.
    line: Option<String>,
}

impl LossBoard {
    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what a look at this UNIX time found: all that is being lost, and the lines that
    /// were due.
    pub fn update(
        &self,
        time: f64,
        active: impl Iterator<Item = (Cause, u64)>,
        events: &[LossEvent],
    ) {
        let mut shown = self.lock();
        let mut before = std::mem::take(&mut shown.causes);
        for (cause, count) in active {
            let mut active = before.remove(&cause).unwrap_or(Active {
                since: time,
                count,
                line: None,
            });
            active.count = count;
            shown.causes.insert(cause, active);
        }
        for event in events {
            let ends = event.stage == LossStage::Ends;
            if let Some(active) = shown.causes.get_mut(&event.cause).filter(|_| !ends) {
                active.line = Some(event.text.clone());
            }
            shown.log.push_front(LogEntry {
                time,
                who: event.cause.name().to_owned(),
                text: event.text.clone(),
                state: if ends {
                    State::Well
                } else {
                    severity(event.cause)
                },
            });
        }
        shown.log.truncate(KEPT);
    }

    /// Whether all is well, or the top cause, since when, and what mends it.
    pub fn verdict(&self) -> Verdict {
        let shown = self.lock();
        let mut causes: Vec<_> = shown.causes.iter().map(|(c, a)| cause(*c, a)).collect();
        // Of the same severity, what explains the others comes first.
        causes.sort_by_key(|cause| std::cmp::Reverse(cause.state));
        match causes.first() {
            None => Verdict {
                text: "all well".to_owned(),
                ..Verdict::new(State::Well)
            },
            Some(top) => Verdict {
                state: top.state,
                text: top.text.clone(),
                since: Some(top.since),
                mends: top.mends.clone(),
                causes,
            },
        }
    }

    /// Lines about losses, newest first.
    pub fn log(&self) -> Vec<LogEntry> {
        self.lock().log.iter().cloned().collect()
    }
}

fn severity(cause: Cause) -> State {
    match cause {
        // Nothing is lost by it.
        Cause::Dropped(DropCause::Duplicate) | Cause::WrongTime => State::Warning,
        _ => State::Bad,
    }
}

fn cause(cause: Cause, active: &Active) -> CauseShown {
    // Lines end with what mends a loss.
    let line = active.line.as_deref().unwrap_or(cause.name());
    let (text, mends) = line.rsplit_once(": ").unwrap_or((line, ""));
    CauseShown {
        name: cause.name().to_owned(),
        state: severity(cause),
        text: text.to_owned(),
        mends: mends.to_owned(),
        since: active.since,
        count: active.count,
    }
}
