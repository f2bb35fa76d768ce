//! Why `device-status` is what it is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use katcp::reading::DEVICE_STATUS;
use katcp::{SensorId, SensorInfo, SensorReading, SensorStatus, Sensors, Value, ValueType};

use crate::losses::{LossRecord, Severity};

/// Its name.
const NAME: &str = "karoo.device-status-reason";
/// What it says where there is nothing to say.
const WELL: &str = "all sensors are nominal";
/// How often it is looked whether it has changed.
const PERIOD: Duration = Duration::from_secs(1);

/// The sensor that says in words why an engine is degraded: the lines about what is being lost,
/// then the sensors that are not nominal. It is itself a reason, as long as there is such a line.
#[derive(Debug)]
pub struct StatusReason {
    sensors: Sensors,
    sensor: SensorId,
    losses: Arc<LossRecord>,
    next: Option<Instant>,
}

impl StatusReason {
    /// Adds it to `sensors`.
    pub fn add(sensors: &Sensors, losses: Arc<LossRecord>) -> Self {
        let info = SensorInfo::new(
            NAME,
            "Why device-status is degraded: what is being lost and what mends it, then sensors that are not nominal",
            "",
            ValueType::String,
        );
        let sensor = sensors.add(info, SensorReading::now(Value::String(WELL.into())));
        Self {
            sensors: sensors.clone(),
            sensor,
            losses,
            next: None,
        }
    }

    /// Looks whether it has changed, if it is time for that.
    pub fn update(&mut self, now: Instant) {
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        self.next = Some(now + PERIOD);
        let losses = self.losses.active();
        let status = match losses.first().map(|loss| loss.cause.severity()) {
            None => SensorStatus::Nominal,
            Some(Severity::Warning) => SensorStatus::Warn,
            Some(Severity::Loss) => SensorStatus::Error,
        };
        let line = |loss: crate::losses::ActiveLoss| {
            let name = loss.cause.name().to_owned();
            loss.line.unwrap_or(name)
        };
        let mut reasons: Vec<_> = losses.into_iter().map(line).collect();
        self.sensors.visit(
            |name| name != NAME,
            |info, reading| {
                if reading.status > SensorStatus::Nominal && info.value_type != DEVICE_STATUS {
                    reasons.push(format!("{} is {}", info.name, reading.status.name()));
                }
            },
        );
        let text = match reasons.is_empty() {
            true => WELL.to_owned(),
            false => reasons.join("; "),
        };
        let value = Value::String(text.into());
        let before = self.sensors.reading(self.sensor);
        if (before.status, &before.value) != (status, &value) {
            let reading = SensorReading {
                status,
                ..SensorReading::now(value)
            };
            self.sensors.set(self.sensor, reading);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::losses::{Cause, LossEvent, LossStage, Words};

    #[test]
    fn losses_and_sensors_that_are_not_nominal_are_the_reason() {
        let (sensors, losses) = (Sensors::default(), Arc::<LossRecord>::default());
        let level = SensorInfo::new("level", "", "", ValueType::Integer);
        let level = sensors.add(level, SensorReading::now(Value::Integer(0)));
        let device = SensorInfo::new("device-status", "", "", DEVICE_STATUS);
        let device = sensors.add_aggregate(device, |_| true);
        let mut reason = StatusReason::add(&sensors, losses.clone());
        let mut now = Instant::now();
        let mut is = |text: &str, status, sum: &str| {
            now += PERIOD;
            reason.update(now);
            let found = sensors.reading(reason.sensor);
            assert_eq!((found.value.encode(), found.status), (text.into(), status));
            assert_eq!(sensors.reading(device).value.encode(), sum);
        };
        is(WELL, SensorStatus::Nominal, "ok");
        let bad = SensorReading {
            status: SensorStatus::Warn,
            ..SensorReading::now(Value::Integer(9))
        };
        sensors.set(level, bad);
        is("level is warn", SensorStatus::Nominal, "degraded");
        sensors.set(level, SensorReading::now(Value::Integer(0)));
        let event = LossEvent {
            cause: Cause::NoInput,
            stage: LossStage::Begins,
            count: 0,
            text: "no heap comes".to_owned(),
        };
        let words = Words {
            what: "no heap comes".to_owned(),
            mends: String::new(),
        };
        losses.update(1.0, [(Cause::NoInput, 0, &words)].into_iter(), &[event]);
        is("no heap comes", SensorStatus::Error, "degraded");
        losses.update(9.0, std::iter::empty(), &[]);
        is(WELL, SensorStatus::Nominal, "ok");
    }
}
