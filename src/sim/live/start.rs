//! When a live digitiser begins.

use std::time::Duration;

use crate::sim::config::DigitiserConfig;

/// Samples since timestamp 0 that a digitiser may begin behind: it can then go on for as long.
const MOST_SAMPLES: f64 = (1u64 << 63) as f64;
/// Longest wait for the first sample, in seconds: three thousand years, which any clock can tell.
const LONGEST_WAIT: f64 = 1e11;

/// When a digitiser begins: its first timestamp, and when that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// A multiple of the longest period, so that all digitisers of one sync time are in step.
    pub timestamp: u64,
    /// Nanoseconds from `now` until then.
    pub wait: Duration,
}

/// Why a digitiser cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum StartError {
    /// It would have to wait for timestamp 0.
    #[error("--sync-time {sync_time} must not be later than now, which is {now}")]
    SyncTime {
        /// UNIX time of timestamp 0.
        sync_time: f64,
        /// UNIX time.
        now: f64,
    },
    /// Its timestamp has no room in its type.
    #[error(
        "--sync-time {sync_time}: more than 2^63 samples of {rate} Hz have been taken since; give a later time, or leave it out"
    )]
    Timestamp {
        /// UNIX time of timestamp 0.
        sync_time: f64,
        /// Hertz.
        rate: f64,
    },
    /// Its first heap comes later than clocks can tell.
    #[error(
        "--adc-sample-rate {rate}: the next multiple of --max-period {max_period} samples would come in {wait:.1e} s; give a higher rate"
    )]
    Wait {
        /// Hertz.
        rate: f64,
        /// Samples.
        max_period: u64,
        /// Seconds until the first heap.
        wait: f64,
    },
}

impl Start {
    /// The first start at or after `now`.
    pub fn after(config: &DigitiserConfig, now: f64) -> Result<Self, StartError> {
        let (sync_time, rate) = (config.clock.sync_time, config.clock.adc_sample_rate);
        let max_period = config.max_period;
        let since = now - sync_time;
        if since < 0.0 {
            return Err(StartError::SyncTime { sync_time, now });
        }
        let periods = (since * rate / max_period as f64).ceil();
        if periods * max_period as f64 > MOST_SAMPLES {
            return Err(StartError::Timestamp { sync_time, rate });
        }
        let timestamp = periods as u64 * max_period;
        let wait = (timestamp as f64 / rate - since).max(0.0);
        if wait > LONGEST_WAIT {
            return Err(StartError::Wait {
                rate,
                max_period,
                wait,
            });
        }
        Ok(Self {
            timestamp,
            wait: Duration::from_secs_f64(wait),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::live::tests::config;

    /// The next multiple of the longest period, and how long it is until then.
    #[test]
    fn starts_are_in_step() {
        let start = Start::after(&config(1000.0), 1003.0).unwrap();
        assert_eq!(start.timestamp, 3 << 20);
        let wait = (3 << 20) as f64 * 1e-6 - 3.0;
        assert!((start.wait.as_secs_f64() - wait).abs() < 1e-9, "{start:?}");
        let now = Start::after(&config(1000.0), 1000.0).unwrap();
        assert_eq!((now.timestamp, now.wait), (0, Duration::ZERO));
    }

    #[test]
    fn each_failure_to_begin_has_its_own_message() {
        let fails = |sync_time: f64, rate: f64, words: &str| {
            let mut config = config(sync_time);
            config.clock.adc_sample_rate = rate;
            let error = Start::after(&config, 1.8e9).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        fails(
            1.9e9,
            1e6,
            "--sync-time 1900000000 must not be later than now",
        );
        fails(0.0, 1e12, "--sync-time 0: more than 2^63 samples");
        fails(
            0.0,
            1e-14,
            "--max-period 1048576 samples would come in 1.0e20 s",
        );
        // As late as can be, and as slow.
        let mut config = config(1.8e9 - 9e6);
        config.clock.adc_sample_rate = 1e12;
        assert!(Start::after(&config, 1.8e9).is_ok());
        config.clock.adc_sample_rate = 1e-4;
        let slow = Start::after(&config, 1.8e9).unwrap();
        assert!(std::time::Instant::now().checked_add(slow.wait).is_some());
    }
}
