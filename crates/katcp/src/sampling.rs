//! Sampling strategies: when a client that subscribed to a sensor gets a report.
//!
//! A [`Sampler`] is a state machine over the readings and the time since some start. It has no
//! clock: its owner calls [`Sampler::update`] with each new reading, and [`Sampler::tick`] at the
//! sampler's [`deadline`](Sampler::deadline).

use std::time::Duration;

use crate::number::format_float;
use crate::reading::{SensorInfo, SensorReading};
use crate::value::{ValueError, ValueType, excerpt, float, integer};

/// Shortest time between two reports of a sensor to a client that asks for a rate.
pub const SHORTEST: Duration = Duration::from_millis(10);

/// Sampling strategy: which readings of a sensor a client asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Strategy {
    /// No reports.
    None,
    /// Reports as the sensor prefers, which is every reading if the sensor is not limited.
    Auto,
    /// A report every so many seconds.
    Period(f64),
    /// A report at each change of value or status.
    Event,
    /// A report at each change of the status, and at each change of the value by more than this
    /// since the last report.
    Differential(Difference),
    /// Reports of changes at least `min` seconds apart, and a report after `max` seconds without.
    EventRate(Rate),
    /// As [`EventRate`](Self::EventRate), for changes of the value by more than this.
    DifferentialRate(Difference, Rate),
}

/// Change of a value that is not worth a report. Its type is that of the sensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Difference {
    /// Difference of an integer sensor.
    Integer(i64),
    /// Difference of a float sensor.
    Float(f64),
}

impl Difference {
    fn size(self) -> f64 {
        match self {
            Self::Integer(size) => size as f64,
            Self::Float(size) => size,
        }
    }

    fn encode(self) -> String {
        match self {
            Self::Integer(size) => size.to_string(),
            Self::Float(size) => format_float(size),
        }
    }
}

/// Seconds between reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Shortest time; 0 for none.
    pub min: f64,
    /// Longest time; may be infinite.
    pub max: f64,
}

/// A strategy cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StrategyError {
    /// No strategy has this name.
    #[error(
        "there is no strategy '{0}': none, auto, period, event, differential, event-rate and differential-rate \
         are strategies"
    )]
    Unknown(String),
    /// The strategy takes another number of parameters.
    #[error("{strategy} takes {expected}, not {found} parameters")]
    Parameters {
        /// Name of the strategy.
        strategy: &'static str,
        /// The parameters that the strategy takes.
        expected: &'static str,
        /// Count of the parameters that were given.
        found: usize,
    },
    /// A parameter does not read as a number.
    #[error("{name}: {source}")]
    Value {
        /// Name of the parameter.
        name: &'static str,
        /// The reason.
        source: ValueError,
    },
    /// A period is out of range.
    #[error("{name} {} must be {rule} (seconds)", format_float(*value))]
    Period {
        /// Name of the parameter.
        name: &'static str,
        /// The period, in seconds.
        value: f64,
        /// The rule that the period breaks.
        rule: &'static str,
    },
    /// The values of the sensor have no differences.
    #[error(
        "sensor '{sensor}' is of type {of}; differential strategies are for integer and float sensors"
    )]
    NoDifference {
        /// Name of the sensor.
        sensor: String,
        /// Type of the sensor.
        of: &'static str,
    },
}

impl Strategy {
    /// Reads a strategy for `sensor` from its name and its parameters.
    pub fn parse(
        name: &[u8],
        parameters: &[impl AsRef<[u8]>],
        sensor: &SensorInfo,
    ) -> Result<Self, StrategyError> {
        let texts: Vec<&[u8]> = parameters.iter().map(AsRef::as_ref).collect();
        Ok(match (name, &texts[..]) {
            (b"none", []) => Self::None,
            (b"auto", []) => Self::Auto,
            (b"event", []) => Self::Event,
            (b"period", [period]) => Self::Period(longest("period", period)?),
            (b"differential", [by]) => Self::Differential(difference(by, sensor)?),
            (b"event-rate", [min, max]) => Self::EventRate(rate(min, max)?),
            (b"differential-rate", [by, min, max]) => {
                Self::DifferentialRate(difference(by, sensor)?, rate(min, max)?)
            }
            _ => {
                let (strategy, expected) = match name {
                    b"none" => ("none", "no parameters"),
                    b"auto" => ("auto", "no parameters"),
                    b"event" => ("event", "no parameters"),
                    b"period" => ("period", "the period in seconds"),
                    b"differential" => ("differential", "the difference"),
                    b"event-rate" => ("event-rate", "the shortest and the longest period"),
                    b"differential-rate" => (
                        "differential-rate",
                        "the difference, the shortest and the longest period",
                    ),
                    _ => return Err(StrategyError::Unknown(excerpt(name))),
                };
                return Err(StrategyError::Parameters {
                    strategy,
                    expected,
                    found: texts.len(),
                });
            }
        })
    }

    /// Writes the strategy: its name, then its parameters.
    pub fn encode(self) -> Vec<String> {
        let word = str::to_owned;
        match self {
            Self::None => vec![word("none")],
            Self::Auto => vec![word("auto")],
            Self::Event => vec![word("event")],
            Self::Period(period) => vec![word("period"), format_float(period)],
            Self::Differential(by) => vec![word("differential"), by.encode()],
            Self::EventRate(rate) => {
                vec![
                    word("event-rate"),
                    format_float(rate.min),
                    format_float(rate.max),
                ]
            }
            Self::DifferentialRate(by, rate) => vec![
                word("differential-rate"),
                by.encode(),
                format_float(rate.min),
                format_float(rate.max),
            ],
        }
    }
}

fn difference(text: &[u8], sensor: &SensorInfo) -> Result<Difference, StrategyError> {
    let bad = |source| StrategyError::Value {
        name: "difference",
        source,
    };
    match sensor.value_type {
        ValueType::Integer => integer(text).map(Difference::Integer).map_err(bad),
        ValueType::Float => float(text).map(Difference::Float).map_err(bad),
        other => Err(StrategyError::NoDifference {
            sensor: sensor.name.clone(),
            of: other.name(),
        }),
    }
}

fn rate(min: &[u8], max: &[u8]) -> Result<Rate, StrategyError> {
    let value = seconds("shortest period", min)?;
    if !(value.is_finite() && value >= 0.0) {
        return Err(StrategyError::Period {
            name: "shortest period",
            value,
            rule: "0 or more, and finite",
        });
    }
    Ok(Rate {
        min: value,
        max: longest("longest period", max)?,
    })
}

fn longest(name: &'static str, text: &[u8]) -> Result<f64, StrategyError> {
    let value = seconds(name, text)?;
    if value > 0.0 {
        return Ok(value);
    }
    let rule = "positive";
    Err(StrategyError::Period { name, value, rule })
}

fn seconds(name: &'static str, text: &[u8]) -> Result<f64, StrategyError> {
    float(text).map_err(|source| StrategyError::Value { name, source })
}

/// Subscription of a client to a sensor.
#[derive(Clone, Debug)]
pub struct Sampler {
    strategy: Strategy,
    every_update: bool,
    difference: Option<f64>,
    /// Shortest time between reports; zero without a limit.
    shortest: Duration,
    longest: Option<Duration>,
    /// The last report, and when that was due.
    reported: SensorReading,
    at: Duration,
    /// A report is due as soon as `shortest` is over.
    pending: bool,
}

impl Sampler {
    /// A subscription that begins at `now` with a report of `current`, which the caller makes.
    /// `None` for [`Strategy::None`].
    pub fn new(
        strategy: Strategy,
        sensor: &SensorInfo,
        current: &SensorReading,
        now: Duration,
    ) -> Option<Self> {
        let preferred = match strategy {
            // Changes only.
            Strategy::Auto if !sensor.auto_period.is_zero() => Strategy::EventRate(Rate {
                min: sensor.auto_period.as_secs_f64(),
                max: f64::INFINITY,
            }),
            other => other,
        };
        let (difference, rate) = match preferred {
            Strategy::None => return None,
            Strategy::Auto | Strategy::Event => (None, None),
            Strategy::Differential(by) => (Some(by), None),
            Strategy::EventRate(rate) => (None, Some(rate)),
            Strategy::DifferentialRate(by, rate) => (Some(by), Some(rate)),
            Strategy::Period(max) => (None, Some(Rate { min: max, max })),
        };
        // A time that is longer than a Duration holds never comes.
        let duration = |seconds: f64| Duration::try_from_secs_f64(seconds).ok();
        let limited = |seconds: f64| match duration(seconds) {
            _ if seconds == 0.0 => Duration::ZERO,
            Some(period) => period.max(SHORTEST),
            None => Duration::MAX,
        };
        Some(Self {
            strategy,
            every_update: preferred == Strategy::Auto,
            difference: difference.map(Difference::size),
            shortest: rate.map_or(Duration::ZERO, |rate| limited(rate.min)),
            longest: rate.and_then(|rate| duration(rate.max).map(|longest| longest.max(SHORTEST))),
            reported: current.clone(),
            at: now,
            pending: false,
        })
    }

    /// The strategy that the client asked for.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// Takes a new reading of the sensor. True if a report of it is due now.
    pub fn update(&mut self, now: Duration, reading: &SensorReading) -> bool {
        if self.pending || !self.is_news(reading) {
            return false;
        }
        if !self.shortest.is_zero() && now < self.at.saturating_add(self.shortest) {
            self.pending = true;
            return false;
        }
        self.report(now, reading);
        true
    }

    fn is_news(&self, reading: &SensorReading) -> bool {
        let last = &self.reported;
        let changed = match self.difference {
            Some(difference) => reading.value.distance(&last.value) > difference,
            None => reading.value != last.value,
        };
        self.every_update || changed || reading.status != last.status
    }

    fn report(&mut self, due: Duration, reading: &SensorReading) {
        self.at = due;
        self.reported = reading.clone();
        self.pending = false;
    }

    /// When [`tick`](Self::tick) has a report, if there is no new reading before.
    pub fn deadline(&self) -> Option<Duration> {
        match self.pending {
            true => self.at.checked_add(self.shortest),
            false => self.at.checked_add(self.longest?),
        }
    }

    /// Takes the time, and the reading that the sensor has. True if a report of it is due now.
    pub fn tick(&mut self, now: Duration, current: &SensorReading) -> bool {
        let Some(due) = self.deadline().filter(|due| *due <= now) else {
            return false;
        };
        // Reports keep their rhythm, unless whole periods were missed.
        let missed = self
            .longest
            .is_some_and(|longest| now >= due.saturating_add(longest));
        self.report(if missed { now } else { due }, current);
        true
    }
}

#[cfg(test)]
#[path = "sampling_tests.rs"]
mod tests;
