//! The verdict: of an engine, and as a sink gives it too.

use live::{CauseShown, LogEntry, State, Verdict};

use super::runbook;
use crate::losses::{ActiveLoss, LossRecord, LossStage, Severity};

/// The verdict on an engine, whose losses `record` has: as [`verdict_of`] its causes.
pub fn verdict(record: &LossRecord, has_come: bool) -> Verdict {
    verdict_of(record.active().iter().map(cause).collect(), has_come)
}

/// Whether all is well, or the first of `causes`, which has to be the worst: since when it is, and
/// what mends it. Before a heap `has_come` nothing is known to be well.
pub fn verdict_of(causes: Vec<CauseShown>, has_come: bool) -> Verdict {
    match causes.first() {
        None if !has_come => Verdict {
            text: "no heap yet".to_owned(),
            ..Verdict::new(State::Warning)
        },
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
pub fn log(record: &LossRecord) -> Vec<LogEntry> {
    let entry = |line: crate::losses::LossLine| LogEntry {
        time: line.time,
        who: line.cause.name().to_owned(),
        text: line.text,
        state: match line.stage {
            LossStage::Ends => State::Well,
            _ => state(line.cause.severity()),
        },
    };
    record.lines().into_iter().map(entry).collect()
}

fn state(severity: Severity) -> State {
    match severity {
        Severity::Warning => State::Warning,
        Severity::Loss => State::Bad,
    }
}

fn cause(active: &ActiveLoss) -> CauseShown {
    CauseShown {
        name: active.cause.name().to_owned(),
        state: state(active.cause.severity()),
        text: active.words.what.clone(),
        mends: active.words.mends.clone(),
        run_book: runbook::line(active.cause.name()).unwrap_or_default(),
        since: active.since,
        count: active.count,
    }
}
