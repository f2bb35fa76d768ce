//! Sensors of this machine's clock, for any device.

use std::time::Duration;

use ground::os::{ClockState, KernelClock};
use katcp::{SensorId, SensorInfo, SensorReading, SensorStatus, Sensors, Value, ValueType};

/// How often the clock is looked at.
const PERIOD: Duration = Duration::from_secs(10);

/// Estimated errors of the clock from which on it is a warning and an error, in seconds.
const ESTERROR: [f64; 2] = [1e-3, KernelClock::ERROR_LIMITS[0]];
/// The same for its greatest errors.
const MAXERROR: [f64; 2] = [10e-3, KernelClock::ERROR_LIMITS[1]];

const STATES: &[&str] = &["ok", "ins", "del", "oop", "wait", "error"];

/// `time.esterror`, `time.maxerror`, `time.state` and `time.synchronised`.
#[derive(Debug)]
pub struct TimeSensors {
    sensors: Sensors,
    esterror: SensorId,
    maxerror: SensorId,
    state: SensorId,
    synchronised: SensorId,
}

impl TimeSensors {
    /// Adds them; they are unknown.
    pub fn add(sensors: &Sensors) -> Self {
        let add = |name, description, units, of, value| {
            let info = SensorInfo::new(name, description, units, of);
            let initial = SensorReading {
                status: SensorStatus::Unknown,
                ..SensorReading::now(value)
            };
            sensors.add(info, initial)
        };
        Self {
            esterror: add(
                "time.esterror",
                "Estimated error of this host's clock",
                "s",
                ValueType::Float,
                Value::Float(0.0),
            ),
            maxerror: add(
                "time.maxerror",
                "Greatest possible error of this host's clock",
                "s",
                ValueType::Float,
                Value::Float(0.0),
            ),
            state: add(
                "time.state",
                "State of this host's clock",
                "",
                ValueType::Discrete(STATES),
                Value::Discrete("error"),
            ),
            synchronised: add(
                "time.synchronised",
                "Whether this host's clock is synchronised, by the three other time sensors",
                "",
                ValueType::Boolean,
                Value::Boolean(false),
            ),
            sensors: sensors.clone(),
        }
    }

    /// Keeps them up to date. Never ends.
    pub async fn run(self) {
        let mut ticks = tokio::time::interval(PERIOD);
        loop {
            ticks.tick().await;
            self.update(KernelClock::read().ok());
        }
    }

    /// Sets them to what the kernel says; without it they are inactive.
    pub fn update(&self, clock: Option<KernelClock>) {
        let Some(clock) = clock else {
            for sensor in [self.esterror, self.maxerror, self.state, self.synchronised] {
                let mut reading = self.sensors.reading(sensor);
                reading.status = SensorStatus::Inactive;
                self.sensors.set(sensor, reading);
            }
            return;
        };
        let state = match clock.state {
            ClockState::Ok => "ok",
            ClockState::InsertSecond => "ins",
            ClockState::DeleteSecond => "del",
            ClockState::LeapSecond => "oop",
            ClockState::LeapOver => "wait",
            ClockState::Unsynchronised => "error",
        };
        let state_status = match state {
            "ok" => SensorStatus::Nominal,
            "error" => SensorStatus::Error,
            _ => SensorStatus::Warn,
        };
        let esterror = error_status(clock.estimated_error, ESTERROR);
        let maxerror = error_status(clock.maximum_error, MAXERROR);
        let good = clock.is_synchronised();
        let good_status = if good {
            SensorStatus::Nominal
        } else {
            SensorStatus::Error
        };
        for (sensor, status, value) in [
            (self.esterror, esterror, Value::Float(clock.estimated_error)),
            (self.maxerror, maxerror, Value::Float(clock.maximum_error)),
            (self.state, state_status, Value::Discrete(state)),
            (self.synchronised, good_status, Value::Boolean(good)),
        ] {
            let reading = SensorReading::new(clock.unix_time, status, value);
            self.sensors.set(sensor, reading);
        }
    }
}

fn error_status(seconds: f64, [warn, error]: [f64; 2]) -> SensorStatus {
    if (0.0..warn).contains(&seconds) {
        SensorStatus::Nominal
    } else if (warn..error).contains(&seconds) {
        SensorStatus::Warn
    } else {
        SensorStatus::Error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(clock: Option<KernelClock>) -> Vec<(String, String, SensorStatus)> {
        let sensors = Sensors::default();
        TimeSensors::add(&sensors).update(clock);
        let mut readings = Vec::new();
        sensors.visit(
            |_| true,
            |info, reading| {
                let value = reading.value.encode().into_owned();
                readings.push((info.name.clone(), value, reading.status));
            },
        );
        readings
    }

    #[test]
    fn the_clock_is_judged_by_katgpucbfs_limits() {
        use SensorStatus::{Error, Nominal, Warn};
        for (estimated_error, maximum_error, state, expected) in [
            (
                0.0,
                0.0,
                ClockState::Ok,
                [Nominal, Nominal, Nominal, Nominal],
            ),
            (
                0.99e-3,
                9.9e-3,
                ClockState::Ok,
                [Nominal, Nominal, Nominal, Nominal],
            ),
            (
                1e-3,
                10e-3,
                ClockState::InsertSecond,
                [Warn, Warn, Warn, Nominal],
            ),
            (4.9e-3, 0.1, ClockState::Ok, [Warn, Error, Nominal, Error]),
            (
                5e-3,
                0.0,
                ClockState::LeapOver,
                [Error, Nominal, Warn, Error],
            ),
            (
                0.0,
                0.0,
                ClockState::Unsynchronised,
                [Nominal, Nominal, Error, Error],
            ),
        ] {
            let clock = KernelClock {
                unix_time: 5.0,
                state,
                estimated_error,
                maximum_error,
            };
            let found: Vec<_> = readings(Some(clock)).into_iter().map(|r| r.2).collect();
            assert_eq!(found, expected, "{clock:?}");
        }
    }

    #[test]
    fn a_host_that_does_not_tell_is_inactive() {
        assert!(readings(None).iter().all(|r| r.2 == SensorStatus::Inactive));
    }

    #[test]
    fn this_host_tells() {
        let clock = KernelClock::read().expect("Linux");
        let now = katcp::reading::unix_now();
        assert!((clock.unix_time - now).abs() < 5.0, "{clock:?} at {now}");
    }
}
