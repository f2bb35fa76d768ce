//! Requests that took effect, in the log: what it takes to do the same in a replay.

use ground::SampleClock;

use super::requests::replay_lines;
use crate::config::EngineConfig;
use crate::engine::steer::{Applied, Change, EngineEvent, Published};

/// Gains of more channels make lines that only debug messages have.
const SHORT: usize = 16;
/// Target of those messages, by which `RUST_LOG` can ask for them alone.
const WHOLE: &str = "karoo::requests";

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
        if tracing::enabled!(target: WHOLE, tracing::Level::DEBUG) {
            for request in replay_lines(stream, applied, self.clock) {
                tracing::debug!(target: WHOLE, %request, "in effect");
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ground::Timestamp;
    use num_complex::Complex32;
    use tracing_subscriber::EnvFilter;
    use tracing_subscriber::fmt::Subscriber;

    use super::*;
    use crate::engine::steer::Gains;

    /// What a log of this filter has of gains that differ over 64 channels.
    fn logged(filter: &str) -> String {
        let config = crate::config::tests::engine(
            "name=w,channels=64,dst=239.10.1.0,jones_per_batch=2048",
            |_| {},
        );
        let gains: Vec<_> = (0..64).map(|n| Complex32::new(n as f32, 0.0)).collect();
        let applied = Applied {
            output: 0,
            from: Timestamp(4096),
            change: Change::Gains([Some(Gains::new(64, &gains).expect("gains")), None]),
        };
        let file = tempfile::NamedTempFile::new().expect("a file");
        let log = Subscriber::builder()
            .with_ansi(false)
            .with_env_filter(EnvFilter::new(filter))
            .with_writer(Arc::new(file.reopen().expect("the file")))
            .finish();
        tracing::subscriber::with_default(log, || AppliedLog::new(&config).note(&applied));
        std::fs::read_to_string(file.path()).expect("the file")
    }

    #[test]
    fn whole_gains_can_be_asked_for_alone() {
        let (short, whole) = (logged("info"), logged("info,karoo::requests=debug"));
        assert!(short.contains("gains=64"), "{short}");
        assert!(!short.contains(" 63+0j"), "{short}");
        for part in ["request=4096 ?gain w 0 ", " 63+0j"] {
            assert!(whole.contains(part), "{whole}");
        }
    }
}
