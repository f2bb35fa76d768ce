//! Trials beside theory, several at a time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use serde::Serialize;

use super::run::{Trial, TrialError, TrialResult};
use crate::rx::RxConfig;
use crate::theory::{Interval, mode_error_rate, required_eb_n0};
use crate::waveform::Modulation;

/// A point of a curve over Eb/N0.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialPoint {
    /// Modulation of the frames.
    pub modulation: Modulation,
    /// Bit energy by noise density, in dB.
    pub eb_n0_db: f64,
    /// What came of it.
    #[serde(flatten)]
    pub result: TrialResult,
    /// Decibels that a perfect receiver in white noise needs less; none without errors, and where
    /// so many bits are wrong that none is as bad.
    pub loss_db: Option<f64>,
    /// The same for the ends of the rate's interval.
    pub loss_interval_db: Option<Interval>,
    /// Frames whose modulation a perfect receiver reads wrongly, of those that were found.
    pub mode_expected: f64,
}

impl TrialPoint {
    /// What came of a trial, beside theory.
    pub fn new(trial: &Trial, result: TrialResult) -> TrialPoint {
        let found = (result.sent - result.lost) as f64;
        let loss = |rate: f64| Some(trial.eb_n0_db - required_eb_n0(trial.modulation, rate)?);
        let RxConfig { vote, modes, .. } = trial.receiver;
        let rate = mode_error_rate(vote, modes, trial.modulation, trial.es_n0_db());
        let some = (result.errors > 0).then_some(());
        TrialPoint {
            modulation: trial.modulation,
            eb_n0_db: trial.eb_n0_db,
            loss_db: some.and_then(|()| loss(result.rate)),
            loss_interval_db: some.and(result.interval).and_then(|interval| {
                let (low, high) = (loss(interval.low)?, loss(interval.high)?);
                Some(Interval { low, high })
            }),
            mode_expected: found * rate,
            result,
        }
    }
}

/// Runs trials on threads, at least one, each on another, and tells each point in their order as
/// soon as all before it are there.
pub fn run_trials(
    trials: &[Trial],
    threads: usize,
    mut done: impl FnMut(&TrialPoint),
) -> Result<Vec<TrialPoint>, TrialError> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let mut points = Vec::new();
    thread::scope(|scope| {
        for _ in 0..threads.max(1).min(trials.len()) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some((number, trial)) = {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    trials.get(number).map(|trial| (number, trial))
                } {
                    // Nobody receives any more if a trial failed.
                    if sender.send((number, trial.run())).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut early = BTreeMap::new();
        for (number, result) in receiver {
            early.insert(number, result);
            while let Some(result) = early.remove(&points.len()) {
                let point = TrialPoint::new(&trials[points.len()], result?);
                done(&point);
                points.push(point);
            }
        }
        Ok(points)
    })
}
