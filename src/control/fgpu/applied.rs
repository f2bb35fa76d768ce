//! Requests that took effect, in the log: what it takes to do the same in a replay.

use ground::SampleClock;

use super::requests::replay_lines;
use crate::config::EngineConfig;
use crate::engine::steer::{Applied, Change, EngineEvent, Published};

/// Gains of more channels make lines that only debug messages have.
const SHORT: usize = 16;

/// Logs the requests to an engine that took effect, as lines for `karoo replay --requests`.
#[derive(Clone, Debug)]
pub struct AppliedLog {
    /// Names of the outputs.
    streams: Vec<String>,
    clock: SampleClock,
}

impl AppliedLog {
    /// For an engine of `config`.
    pub fn new(config: &EngineConfig) -> Self {
        let names = config.outputs.iter().map(|output| output.name.clone());
        Self {
            streams: names.collect(),
            clock: config.clock,
        }
    }

    /// Logs one.
    pub fn note(&self, applied: &Applied) {
        let Some(stream) = self.streams.get(applied.output) else {
            return;
        };
        let gains = match &applied.change {
            Change::Gains(gains) => gains.iter().flatten().map(|g| g.values().len()).max(),
            Change::Delays { .. } | Change::Test(_) => None,
        };
        let gains = gains.unwrap_or_default();
        if gains <= SHORT {
            for request in replay_lines(stream, applied, self.clock) {
                tracing::info!(%request, "in effect");
            }
            return;
        }
        let from = applied.from.0;
        tracing::info!(
            stream,
            from,
            gains,
            "gains of many channels in effect; debug messages have them"
        );
        if tracing::enabled!(tracing::Level::DEBUG) {
            for request in replay_lines(stream, applied, self.clock) {
                tracing::debug!(%request, "in effect");
            }
        }
    }

    /// Logs those that nobody has taken; drops what else was published. For the end, when control
    /// no longer does it.
    pub fn note_rest(&self, published: &Published) {
        while let Some(event) = published.next_event() {
            if let EngineEvent::Applied(applied) = event {
                self.note(&applied);
            }
        }
    }
}
