//! Sensors of a server, as a client sees them.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use super::{Client, ClientError};
use crate::device::{ArgumentError, Parameters};
use crate::message::OwnedMessage;
use crate::reading::SensorStatus;
use crate::sampling::Strategy;
use crate::value::{Value, ValueError, ValueType, float, integer, text};

/// Description of a server's sensor, as `?sensor-list` gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SensorListing {
    /// Name of the sensor.
    pub name: String,
    /// Meaning of the value, in one sentence.
    pub description: String,
    /// Units of the value; empty if there are none.
    pub units: String,
    /// Name of the value's type, such as `integer` or `discrete`.
    pub value_type: String,
    /// Parameters of the type: for `discrete`, the words that the value can be.
    pub parameters: Vec<String>,
}

/// Reading of a server's sensor, as `#sensor-status` and `?sensor-value` give it.
#[derive(Clone, Debug, PartialEq)]
pub struct SensorReport {
    /// UNIX time of the value, in seconds.
    pub timestamp: f64,
    /// Name of the sensor.
    pub name: String,
    /// Quality of the value.
    pub status: SensorStatus,
    /// The value, unescaped.
    pub value: Vec<u8>,
}

impl SensorReport {
    /// The value as text. Bytes that are not UTF-8 become U+FFFD.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.value)
    }

    /// Reads the value as one of this type.
    pub fn parse(&self, value_type: ValueType) -> Result<Value, ValueError> {
        value_type.parse(&self.value)
    }
}

impl Client {
    /// Lists sensors by `?sensor-list`: one by its name, or those that `/EXPRESSION/` matches.
    /// `/./` stands for all sensors.
    pub fn sensor_list(&mut self, pattern: &str) -> Result<Vec<SensorListing>, ClientError> {
        let reply = self.request("sensor-list", &[pattern])?;
        reply.informs().iter().map(listing).collect()
    }

    /// Reads sensors by `?sensor-value`; `pattern` as in [`sensor_list`](Self::sensor_list).
    pub fn sensor_values(&mut self, pattern: &str) -> Result<Vec<SensorReport>, ClientError> {
        let reply = self.request("sensor-value", &[pattern])?;
        let mut values = Vec::new();
        for inform in reply.informs() {
            values.extend(reports(inform)?);
        }
        Ok(values)
    }

    /// Reads the sensor of this name by `?sensor-value`.
    pub fn sensor_value(&mut self, name: &str) -> Result<SensorReport, ClientError> {
        let values = self.sensor_values(name)?;
        let found = values.into_iter().next();
        found.ok_or_else(|| ClientError::Argument {
            message: "!sensor-value".to_owned(),
            source: ArgumentError::Missing {
                request: "sensor-value".to_owned(),
                name: "the sensor",
            },
        })
    }

    /// Subscribes to sensors by `?sensor-sampling`, or ends subscriptions by [`Strategy::None`].
    ///
    /// Reports come by [`next_report`](Self::next_report) and [`reports`](Self::reports), the first
    /// of each sensor at once.
    pub fn sample(&mut self, names: &[&str], strategy: Strategy) -> Result<(), ClientError> {
        let words = strategy.encode();
        // Servers without bulk sampling take one sensor at a time.
        let requests = match self.protocol.has_bulk {
            true => vec![names.join(",")],
            false => names.iter().map(|&name| name.to_owned()).collect(),
        };
        for names in &requests {
            let words = words.iter().map(|word| &**word);
            let arguments: Vec<&str> = [&**names].into_iter().chain(words).collect();
            self.request("sensor-sampling", &arguments)?;
        }
        Ok(())
    }

    /// Waits for a report of a sensor that the client has subscribed to. `None` if none comes
    /// within this time; zero asks without waiting.
    pub fn next_report(&mut self, within: Duration) -> Result<Option<SensorReport>, ClientError> {
        self.wait(Some(within), Self::take_report)
    }

    /// Iterates over reports of sensors, and waits for each. Ends after an error, such as the end
    /// of the connection.
    pub fn reports(&mut self) -> impl Iterator<Item = Result<SensorReport, ClientError>> + '_ {
        let mut failed = false;
        std::iter::from_fn(move || {
            let next = (!failed).then(|| self.wait(None, Self::take_report).transpose())??;
            failed = next.is_err();
            Some(next)
        })
    }

    fn take_report(&mut self) -> Option<Result<SensorReport, ClientError>> {
        loop {
            if let Some(report) = self.bulk.pop_front() {
                return Some(Ok(report));
            }
            match reports(&self.reports.pop()?) {
                Ok(all) => self.bulk = all,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Reads `TIMESTAMP COUNT`, then `NAME STATUS VALUE` so many times.
fn reports(inform: &OwnedMessage) -> Result<VecDeque<SensorReport>, ClientError> {
    let read = || {
        let mut parameters = Parameters::new(&inform.view());
        let timestamp = parameters.required("timestamp", float)?;
        let count = parameters.required("count", integer)?;
        let mut reports = VecDeque::new();
        for _ in 0..count {
            reports.push_back(SensorReport {
                timestamp,
                name: parameters.required("name", text)?,
                status: parameters.required("status", status)?,
                value: parameters.required("value", |value| Ok(value.to_vec()))?,
            });
        }
        parameters.end()?;
        Ok(reports)
    };
    read().map_err(|source| unreadable(inform, source))
}

fn status(name: &[u8]) -> Result<SensorStatus, ValueError> {
    let status = SensorStatus::from_name(name);
    status.ok_or_else(|| ValueError::new(name, "a status such as nominal"))
}

fn listing(inform: &OwnedMessage) -> Result<SensorListing, ClientError> {
    let read = || {
        let mut parameters = Parameters::new(&inform.view());
        Ok(SensorListing {
            name: parameters.required("name", text)?,
            description: parameters.required("description", text)?,
            units: parameters.required("units", text)?,
            value_type: parameters.required("type", text)?,
            parameters: parameters.rest().texts(),
        })
    };
    read().map_err(|source| unreadable(inform, source))
}

fn unreadable(inform: &OwnedMessage, source: ArgumentError) -> ClientError {
    let message = format!("#{}", inform.name());
    ClientError::Argument { message, source }
}
