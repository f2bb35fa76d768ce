//! What the bench found.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use crate::bench::search::FoundRate;
use crate::report::Documented;

/// One trial.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct PortTrial {
    /// Gb/s of UDP payload that were asked for.
    pub rate: f64,
    /// Gb/s at which the port took them.
    pub reached: f64,
    /// Packets that the port took.
    pub sent: u64,
    /// Packets that came.
    pub received: u64,
    /// Bytes by which the packets that came were ahead of the rate, at most: the depth of a bucket
    /// that leaks at it.
    pub burst_bytes: u64,
}

impl PortTrial {
    /// One whose packets the port did not take in time.
    pub(super) fn unsent(rate: f64) -> Self {
        Self {
            rate,
            reached: 0.0,
            sent: 0,
            received: 0,
            burst_bytes: 0,
        }
    }

    /// Nothing was lost, and the rate was reached but for one in a hundred.
    pub fn passed(&self) -> bool {
        self.received == self.sent && self.reached >= 0.99 * self.rate
    }
}

/// What the bench found.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PortsReport {
    /// Names of the ports: sending, receiving.
    pub ports: [String; 2],
    /// Bytes of UDP payload.
    pub payload: usize,
    /// Seconds of a trial.
    pub seconds: f64,
    /// What the search found, if there was one.
    pub found: Option<FoundRate>,
    /// Every trial, in order.
    pub trials: Vec<PortTrial>,
}

impl Documented for PortsReport {
    const NAME: &'static str = "bench-ports";
    const TITLE: &'static str = "What karoo bench ports --json measured";
}

impl fmt::Display for PortsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [from, to] = &self.ports;
        writeln!(
            f,
            "{from} to {to}: {} bytes of UDP payload, trials of {} s",
            self.payload, self.seconds
        )?;
        for trial in &self.trials {
            let verdict = if trial.passed() { "passed" } else { "failed" };
            writeln!(
                f,
                "  {:.4} Gb/s: {verdict}, {:.4} reached, {} of {} packets, {} bytes ahead of the rate at most",
                trial.rate, trial.reached, trial.received, trial.sent, trial.burst_bytes
            )?;
        }
        let Some(found) = &self.found else {
            return Ok(());
        };
        for tried in &found.tried {
            writeln!(
                f,
                "  {:.4} Gb/s: {} of {} trials passed",
                tried.rate, tried.passed, tried.trials
            )?;
        }
        let sure = found
            .confidence
            .map(|p| format!(" with confidence {p:.3}"))
            .unwrap_or_default();
        match found.rate {
            Some(rate) => writeln!(f, "highest rate without loss: {rate:.4} Gb/s{sure}"),
            None => writeln!(f, "no rate without loss{sure}: try a lower --lowest"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many came as were sent, none, yet the rate was not reached.
    #[test]
    fn a_trial_that_was_not_sent_failed() {
        let trial = PortTrial::unsent(10.0);
        assert!(!trial.passed());
        assert_eq!((trial.sent, trial.received, trial.reached), (0, 0, 0.0));
    }
}
