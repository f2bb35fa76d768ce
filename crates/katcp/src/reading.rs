//! Readings of sensors, and what does not change of a sensor.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::value::{Value, ValueType};

/// How well a reading can be relied on, and what it says of the device; the worse the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SensorStatus {
    /// Nothing has been read.
    Unknown,
    /// As it should be.
    Nominal,
    /// Outside of the usual range.
    Warn,
    /// Outside of the allowed range.
    Error,
    /// The reading failed.
    Failure,
    /// What is read cannot be reached.
    Unreachable,
    /// There is nothing to read.
    Inactive,
}

impl SensorStatus {
    /// Its name in the protocol.
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
}

impl fmt::Display for SensorStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A sensor's value at some time.
#[derive(Clone, Debug, PartialEq)]
pub struct SensorReading {
    /// UNIX time of what was read, in seconds.
    pub timestamp: f64,
    /// How good it is.
    pub status: SensorStatus,
    /// The value.
    pub value: Value,
}

impl SensorReading {
    /// A reading.
    pub fn new(timestamp: f64, status: SensorStatus, value: Value) -> Self {
        Self {
            timestamp,
            status,
            value,
        }
    }

    /// A nominal reading of now.
    pub fn now(value: Value) -> Self {
        Self::new(unix_now(), SensorStatus::Nominal, value)
    }
}

/// UNIX time in seconds.
pub fn unix_now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// What does not change of a sensor.
#[derive(Clone, Debug)]
pub struct SensorInfo {
    /// Name: words with dots between.
    pub name: String,
    /// One sentence.
    pub description: String,
    /// Units of the value; empty if it has none.
    pub units: &'static str,
    /// ValueType of the value.
    pub of: ValueType,
    /// Whether the strategy `auto` reports changes only, and at most one a second.
    pub rate_limited: bool,
}

impl SensorInfo {
    /// A sensor of which `auto` reports every assignment.
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        units: &'static str,
        of: ValueType,
    ) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            units,
            of,
            rate_limited: false,
        }
    }

    /// The same, limited in its rate.
    pub fn rate_limited(self) -> Self {
        let rate_limited = true;
        Self {
            rate_limited,
            ..self
        }
    }
}

/// Values of sensors that add up the status of others. `fail` is never used.
pub const DEVICE_STATUS: ValueType = ValueType::Discrete(&["ok", "degraded", "fail"]);
