//! Units: time is a sample count.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Number of polarisations of an engine.
pub const N_POL: usize = 2;

/// Absolute time: ADC samples since the sync epoch, unwrapped to 64 bits.
///
/// Only the wire format knows about 48 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Range of timestamps on the wire.
    pub const WIRE_RANGE: u64 = 1 << 48;

    /// Timestamps are below this, so that adding a buffer or the delay that led to one stays in
    /// `i64`. It is 85 years at 1712 MHz: only timestamps that leap ahead again and again get here.
    pub const END: u64 = 1 << 62;

    /// The timestamp nearest to `near` whose low 48 bits are `low`.
    pub fn unwrap(low: u64, near: Self) -> Self {
        let near = near.0.min(u64::MAX / 2);
        let ahead = low.wrapping_sub(near) % Self::WIRE_RANGE;
        let later = near + ahead;
        if ahead < Self::WIRE_RANGE / 2 || later < Self::WIRE_RANGE {
            Self(later)
        } else {
            Self(later - Self::WIRE_RANGE)
        }
    }

    /// UNIX time in seconds of this sample.
    pub fn unix(self, clock: SampleClock) -> f64 {
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SampleClock {
    /// ADC sample rate in hertz.
    pub adc_sample_rate: f64,
    /// UNIX time of timestamp 0, in seconds.
    pub sync_time: f64,
}

impl SampleClock {
    /// Tolerance between heap time and host time. Digitisers synchronised to UNIX time are well
    /// within it. An unsynchronised one falls within it by chance, with a probability of
    /// 2 · 60 s · sample rate / 2⁴⁸.
    const AGREES: Duration = Duration::from_secs(60);

    /// The timestamp of a UNIX time, in seconds, if it has one.
    pub fn at(self, unix: f64) -> Option<Timestamp> {
        let samples = (unix - self.sync_time) * self.adc_sample_rate;
        let range = 0.0..Timestamp::END as f64;
        range
            .contains(&samples)
            .then_some(Timestamp(samples as u64))
    }

    /// The timestamp of this moment by the host's clock, if it has one.
    pub fn now(self) -> Option<Timestamp> {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        self.at(unix.as_secs_f64())
    }

    /// Of the timestamps with the low 48 bits `low`, the one that is within a minute of `moment`.
    pub fn agreeing(self, low: u64, moment: Timestamp) -> Option<Timestamp> {
        let timestamp = Timestamp::unwrap(low, moment);
        let apart = timestamp.0.abs_diff(moment.0) as f64;
        (apart <= Self::AGREES.as_secs_f64() * self.adc_sample_rate).then_some(timestamp)
    }
}

#[cfg(test)]
mod tests {
    use super::{SampleClock, Timestamp};

    #[test]
    fn wire_timestamps_are_unwrapped_to_the_nearest() {
        let range = Timestamp::WIRE_RANGE;
        let unwrap = |low, near| Timestamp::unwrap(low, Timestamp(near)).0;
        assert_eq!(unwrap(5, 0), 5);
        assert_eq!(unwrap(range - 1, 0), range - 1);
        assert_eq!(unwrap(5, range - 3), range + 5);
        assert_eq!(unwrap(range - 5, range + 3), range - 5);
        assert_eq!(unwrap(range - 5, 3 * range + 3), 3 * range - 5);
    }

    /// As in katgpucbf, differences are from −2⁴⁷ up to, but not, 2⁴⁷.
    #[test]
    fn of_two_timestamps_as_near_the_earlier_is_meant() {
        let range = Timestamp::WIRE_RANGE;
        let unwrap = |low, near| Timestamp::unwrap(low, Timestamp(near)).0;
        for near in [range, range + 77, 5 * range + range / 2 - 1] {
            let half = (near + range / 2) % range;
            assert_eq!(unwrap(half, near), near - range / 2);
            assert_eq!(
                unwrap((half + range - 1) % range, near),
                near + range / 2 - 1
            );
            assert_eq!(unwrap((half + 1) % range, near), near - range / 2 + 1);
        }
        // Nothing is before the first sample.
        assert_eq!(unwrap(range / 2, 0), range / 2);
    }

    #[test]
    fn a_moment_tells_which_timestamp_is_meant() {
        let clock = SampleClock {
            adc_sample_rate: 1e9,
            sync_time: 1000.0,
        };
        let range = Timestamp::WIRE_RANGE;
        assert_eq!(clock.at(1001.5), Some(Timestamp(1_500_000_000)));
        assert_eq!(clock.at(999.0), None);
        let moment = Timestamp(2 * range + 7);
        let whole = |low| clock.agreeing(low, moment);
        assert_eq!(whole(7), Some(moment));
        assert_eq!(
            whole(range - 1_000_000_000),
            Some(Timestamp(2 * range - 1_000_000_000))
        );
        assert_eq!(whole(61_000_000_000), None);
    }
}
