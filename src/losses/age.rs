//! When what was measured is no longer of now.

use std::time::Duration;

use crate::config::{EngineConfig, OutputConfig};

/// Seconds after which a measurement may be old, however often there is another.
const LEAST: f64 = 5.0;
/// Periods without another measurement after which one is old.
const PERIODS: f64 = 3.0;
/// A day is as good as never.
const MOST: f64 = 86400.0;

/// Time after which a measurement is old, if it takes so many seconds until there is another.
pub fn old_after(period: f64) -> Duration {
    let periods = (PERIODS * period).min(MOST);
    Duration::from_secs_f64(periods.max(LEAST))
}

/// How long the last level of an engine's input is that of now.
pub fn old_level(config: &EngineConfig) -> Duration {
    let batches = config.outputs.iter().map(OutputConfig::batch_samples);
    old_after(batches.max().unwrap_or(0) as f64 / config.clock.adc_sample_rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_old_after_three_periods_and_five_seconds() {
        for (period, seconds) in [
            (0.0, 5),
            (1.0, 5),
            (10.0, 30),
            (f64::INFINITY, 86400),
            (f64::NAN, 86400),
        ] {
            assert_eq!(old_after(period), Duration::from_secs(seconds), "{period}");
        }
    }
}
