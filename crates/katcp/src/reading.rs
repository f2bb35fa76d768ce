//! Readings of sensors, and descriptions of sensors.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::value::{Value, ValueType};

/// Quality of a reading, and what the reading says of the device. Worse is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SensorStatus {
    /// Nothing has been read.
    Unknown,
    /// The value is in the usual range.
    Nominal,
    /// The value is outside of the usual range.
    Warn,
    /// The value is outside of the allowed range.
    Error,
    /// The value could not be read.
    Failure,
    /// The part of the device that is read cannot be reached.
    Unreachable,
    /// There is nothing to read.
    Inactive,
}

impl SensorStatus {
    /// Name of the status in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Nominal => "nominal",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Failure => "failure",
            Self::Unreachable => "unreachable",
            Self::Inactive => "inactive",
        }
    }

    /// The status of this name, if there is one.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        [
            Self::Unknown,
            Self::Nominal,
            Self::Warn,
            Self::Error,
            Self::Failure,
            Self::Unreachable,
            Self::Inactive,
        ]
        .into_iter()
        .find(|status| status.name().as_bytes() == name)
    }
}

impl fmt::Display for SensorStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Value of a sensor at some time.
#[derive(Clone, Debug, PartialEq)]
pub struct SensorReading {
    /// UNIX time of the value, in seconds: for data, the time of the data.
    pub timestamp: f64,
    /// Quality of the value.
    pub status: SensorStatus,
    /// Value of the sensor.
    pub value: Value,
}

impl SensorReading {
    /// A reading of some time.
    pub fn new(timestamp: f64, status: SensorStatus, value: Value) -> Self {
        Self {
            timestamp,
            status,
            value,
        }
    }

    /// A nominal reading of the present time.
    pub fn now(value: Value) -> Self {
        Self::new(unix_now(), SensorStatus::Nominal, value)
    }
}

/// Returns the UNIX time in seconds, by the clock of this host.
pub fn unix_now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// Description of a sensor: the part that does not change.
#[derive(Clone, Debug)]
pub struct SensorInfo {
    /// Name of the sensor: words with dots between, such as `input0.rx.timestamp`.
    pub name: String,
    /// Meaning of the value, in one sentence.
    pub description: String,
    /// Units of the value, such as `Hz`; empty if there are none.
    pub units: &'static str,
    /// Type of the value.
    pub value_type: ValueType,
    /// Shortest time between reports of the strategy `auto`, which then reports changes only; zero
    /// where it reports every reading.
    pub auto_period: Duration,
}

impl SensorInfo {
    /// A sensor of which the strategy `auto` reports every reading.
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        units: &'static str,
        value_type: ValueType,
    ) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            units,
            value_type,
            auto_period: Duration::ZERO,
        }
    }

    /// The same sensor, of which the strategy `auto` reports changes only, at most one each second.
    pub fn rate_limited(self) -> Self {
        self.at_most_every(Duration::from_secs(1))
    }

    /// The same sensor, of which the strategy `auto` reports changes only, and no sooner after each
    /// other than this.
    pub fn at_most_every(self, period: Duration) -> Self {
        Self {
            auto_period: self.auto_period.max(period),
            ..self
        }
    }
}

/// Type of sensors that sum up the status of other sensors. This crate never uses `fail`.
pub const DEVICE_STATUS: ValueType = ValueType::Discrete(&["ok", "degraded", "fail"]);
