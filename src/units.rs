//! Units: time is a sample count.

use std::fmt;
use std::ops::{Add, Sub};

/// Number of polarisations of an engine.
pub const N_POL: usize = 2;

/// Absolute time: ADC samples since the sync epoch, unwrapped to 64 bits.
///
/// Only the wire format knows about 48 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// UNIX time in seconds of this sample.
    pub fn unix(self, clock: Clock) -> f64 {
        self.0 as f64 / clock.adc_sample_rate + clock.sync_time
    }
}

impl Add<u64> for Timestamp {
    type Output = Self;
    fn add(self, samples: u64) -> Self {
        Self(self.0 + samples)
    }
}

impl Sub for Timestamp {
    type Output = u64;
    fn sub(self, earlier: Self) -> u64 {
        self.0 - earlier.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The relation between sample counts and UNIX time.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Clock {
    /// ADC sample rate in hertz.
    pub adc_sample_rate: f64,
    /// UNIX time of timestamp 0, in seconds.
    pub sync_time: f64,
}
