//! From what an engine publishes to sensors and the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dsp::delay::LinearDelay;
use ground::{N_POL, SampleClock, Timestamp};
use katcp::reading::unix_now;
use katcp::{SensorId, SensorReading, SensorStatus, Value};

use super::applied::AppliedLog;
use super::reason::StatusReason;
use super::sensors::{FgpuSensors, delay_text};
use crate::config::{EngineConfig, OutputConfig};
use crate::engine::TestPattern;
use crate::engine::steer::{
    ActiveDelay, EngineEvent, PowerLevel, Published, Received, Sent, TestChange,
};
use crate::losses::INPUT_DBFS;

/// How often events are looked for. Sensors carry the time of the data, so that nothing but
/// promptness depends on it.
const PERIOD: Duration = Duration::from_millis(20);
/// The same of an engine that has told nothing for so long: nobody waits for more.
const IDLE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// How often it is told for which share of the time a device was busy.
const BUSY_WINDOW: Duration = Duration::from_secs(1);

/// Digitiser power that is nominal, in dBFS, bounds included.
const POWER_NOMINAL: [f64; 2] = [-30.0, -10.0];
/// Digitiser power beyond which it is an error, in dBFS, bounds included.
const POWER_ERROR: [f64; 2] = INPUT_DBFS;

/// Sets sensors from what an engine publishes, and logs which requests took effect.
#[derive(Debug)]
pub struct SensorFeed {
    clock: SampleClock,
    published: Arc<Published>,
    sensors: FgpuSensors,
    /// Received sensors change their status this long after the last update, and their timestamps
    /// by as much.
    timeout: Duration,
    timeouts: Vec<Timeout>,
    missing: [u64; N_POL],
    overwritten: u64,
    /// Shown by the delay sensors, per output.
    delays: Vec<[LinearDelay; N_POL]>,
    busy: Vec<Busy>,
    outputs: Vec<OutputConfig>,
    /// End of the statistics that are shown, per output.
    shown: Vec<Option<Timestamp>>,
    /// The test that the sensor shows, per output.
    tested: Vec<Option<TestPattern>>,
    log: AppliedLog,
    reason: Option<StatusReason>,
}

/// A device that is busy for some of the time.
#[derive(Debug)]
struct Busy {
    sensor: SensorId,
    nanoseconds: Arc<AtomicU64>,
    /// When the window began, and what the counter was then.
    since: (Instant, u64),
}

/// What becomes of a sensor that is no longer updated.
#[derive(Clone, Copy, Debug)]
struct Timeout {
    sensor: SensorId,
    status: SensorStatus,
    /// When it was last updated, until it timed out.
    updated: Option<Instant>,
}

impl SensorFeed {
    /// From an engine of `config`.
    pub fn new(config: &EngineConfig, published: Arc<Published>, sensors: FgpuSensors) -> Self {
        let chunk = config.recv.chunk_samples as f64 / config.clock.adc_sample_rate;
        let timeouts = sensors.inputs.iter().flat_map(|input| {
            // Errors first, so that they are never all nominal when data stop.
            [
                (input.timestamp, SensorStatus::Error),
                (input.unixtime, SensorStatus::Error),
                (input.missing, SensorStatus::Nominal),
            ]
        });
        let timeouts = timeouts.map(|(sensor, status)| Timeout {
            sensor,
            status,
            updated: None,
        });
        Self {
            clock: config.clock,
            published,
            // A day is as good as never.
            timeout: Duration::from_secs_f64((10.0 * chunk).clamp(1.0, 86400.0)),
            timeouts: timeouts.collect(),
            missing: [0; N_POL],
            overwritten: 0,
            delays: vec![[LinearDelay::ZERO; N_POL]; sensors.outputs.len()],
            busy: Vec::new(),
            outputs: config.outputs.clone(),
            shown: vec![None; config.outputs.len()],
            tested: vec![None; config.outputs.len()],
            sensors,
            log: AppliedLog::new(config),
            reason: None,
        }
    }

    /// Shows also for which share of the last second a device was busy; `nanoseconds` counts how
    /// long, from `now` on.
    pub fn watch(&mut self, sensor: SensorId, nanoseconds: Arc<AtomicU64>, now: Instant) {
        let since = (now, nanoseconds.load(Ordering::Relaxed));
        self.busy.push(Busy {
            sensor,
            nanoseconds,
            since,
        });
    }

    /// Keeps this reason up to date as well.
    pub fn explain(&mut self, reason: StatusReason) {
        self.reason = Some(reason);
    }

    /// Keeps the sensors up to date. Never ends.
    pub async fn run(mut self) {
        let (period, after) = IDLE;
        let mut told = Instant::now();
        loop {
            let now = Instant::now();
            if self.update(now) {
                told = now;
            }
            let is_idle = now.saturating_duration_since(told) >= after;
            tokio::time::sleep(if is_idle { period } else { PERIOD }).await;
        }
    }

    /// Shows all that was published, and what has not been for too long. It is `now`. Returns
    /// whether the engine has told anything.
    pub fn update(&mut self, now: Instant) -> bool {
        let mut told = false;
        while let Some(event) = self.published.next_event() {
            told = true;
            match event {
                EngineEvent::Received(received) => self.received(&received, now),
                EngineEvent::Sent(sent) => self.sent(&sent),
                EngineEvent::Delay(delay) => self.delay(delay),
                EngineEvent::Power(level) => self.power(&level),
                EngineEvent::Applied(applied) => self.log.note(&applied),
                EngineEvent::Test(change) => self.test(&change),
            }
        }
        let overwritten = self.published.overwritten();
        if overwritten != self.overwritten {
            tracing::warn!(
                events = overwritten - self.overwritten,
                "control was too slow to see all that its engine published; the latest is shown, and requests that took effect \
                 may lack in the log"
            );
            self.overwritten = overwritten;
            for output in 0..self.delays.len() {
                self.repair_test(output);
                for pol in 0..N_POL {
                    let model = self.published.delay(output, pol);
                    let shown = self.delays[output][pol];
                    if let Some(model) = model.filter(|model| *model != shown) {
                        self.delay(ActiveDelay { output, pol, model });
                    }
                }
            }
        }
        self.statistics();
        self.time_out(now);
        for busy in &mut self.busy {
            busy.update(&self.sensors, now);
        }
        // Last, because the reason is made of the other sensors.
        if let Some(reason) = &mut self.reason {
            reason.update(now);
        }
        told
    }

    fn set(&self, sensor: SensorId, timestamp: f64, status: SensorStatus, value: Value) {
        let reading = SensorReading::new(timestamp, status, value);
        self.sensors.sensors.set(sensor, reading);
    }

    /// Sets a sensor that times out.
    fn set_timed(&mut self, sensor: SensorId, reading: SensorReading, now: Instant) {
        for timeout in self.timeouts.iter_mut().filter(|t| t.sensor == sensor) {
            timeout.updated = Some(now);
        }
        self.sensors.sensors.set(sensor, reading);
    }

    fn received(&mut self, chunk: &Received, now: Instant) {
        let start = chunk.start.unix(self.clock);
        let time = Value::Timestamp(start);
        let inputs = self.sensors.inputs;
        // Before the others, so that they are never all nominal when the first chunk lacks
        // something.
        for (pol, input) in inputs.iter().enumerate() {
            if chunk.missing_heaps[pol] > self.missing[pol] {
                self.missing[pol] = chunk.missing_heaps[pol];
                let reading = SensorReading::new(start, SensorStatus::Error, time.clone());
                self.set_timed(input.missing, reading, now);
            }
        }
        for (pol, input) in inputs.iter().enumerate() {
            let nominal = |value| SensorReading::new(start, SensorStatus::Nominal, value);
            let timestamp = Value::Integer(chunk.start.0 as i64);
            self.set_timed(input.timestamp, nominal(timestamp), now);
            self.set_timed(input.unixtime, nominal(time.clone()), now);
            let clipped = Value::Integer(chunk.clipped_samples[pol] as i64);
            let end = chunk.end.unix(self.clock);
            self.set(input.clip_count, end, SensorStatus::Nominal, clipped);
        }
    }

    fn sent(&self, chunk: &Sent) {
        let Some(output) = self.sensors.outputs.get(chunk.output) else {
            return;
        };
        let end = chunk.nominal_end.unix(self.clock);
        for (sensors, clipped) in output.iter().zip(chunk.clipped_samples) {
            let clipped = Value::Integer(clipped as i64);
            self.set(sensors.clip_count, end, SensorStatus::Nominal, clipped);
        }
        // What was not sent has no age.
        if chunk.batches == 0 {
            return;
        }
        let end = chunk.end.unix(self.clock);
        let age = Value::Float(unix_now() - end);
        let sensor = self.sensors.latencies[chunk.output];
        self.set(sensor, end, SensorStatus::Nominal, age);
    }

    fn delay(&mut self, delay: ActiveDelay) {
        let ActiveDelay { output, pol, model } = delay;
        let shown = self
            .delays
            .get_mut(output)
            .and_then(|pols| pols.get_mut(pol));
        let Some(shown) = shown else {
            return;
        };
        *shown = model;
        let text = Value::String(delay_text(&model, self.clock).into());
        let sensor = self.sensors.outputs[output][pol].delay;
        self.sensors.sensors.set(sensor, SensorReading::now(text));
    }

    fn power(&self, level: &PowerLevel) {
        let end = level.end.unix(self.clock);
        for (pol, input) in self.sensors.inputs.iter().enumerate() {
            let (status, dbfs) = match level.dbfs {
                Some(dbfs) => (power_status(dbfs[pol]), dbfs[pol]),
                None => (SensorStatus::Failure, f64::MIN),
            };
            self.set(input.power, end, status, Value::Float(dbfs));
        }
    }

    /// Shows statistics that are new.
    fn statistics(&mut self) {
        for (index, output) in self.outputs.iter().enumerate() {
            let Some(of) = self.published.statistics().output(index) else {
                continue;
            };
            if self.shown[index].replace(of.end) == Some(of.end) {
                continue;
            }
            let end = of.end.unix(self.clock);
            for (pol, sensors) in self.sensors.levels[index].iter().enumerate() {
                let show = |sensor, value| {
                    self.set(sensor, end, SensorStatus::Nominal, Value::Float(value));
                };
                show(sensors.rms, of.rms(pol));
                show(sensors.clipped, of.clipped_share(pol));
                if let Some(flags) = of.kurtosis_flags(pol, output) {
                    show(sensors.flagged, flags.share());
                }
            }
        }
    }

    /// Shows which test there is where the events that told may have been displaced.
    fn repair_test(&mut self, output: usize) {
        let shown = self.tested[output];
        if let Some(pattern) = self.published.test(output).filter(|now| *now != shown) {
            self.show_test(output, pattern, unix_now());
        }
    }

    fn show_test(&mut self, output: usize, pattern: Option<TestPattern>, at: f64) {
        self.tested[output] = pattern;
        let (status, name) = match pattern {
            Some(pattern) => (SensorStatus::Warn, pattern.name()),
            None => (SensorStatus::Nominal, "off"),
        };
        let value = Value::String(name.into());
        self.set(self.sensors.tests[output], at, status, value);
    }

    fn test(&mut self, change: &TestChange) {
        let from = change.from.unix(self.clock);
        self.show_test(change.output, change.pattern, from);
        let stream = &self.outputs[change.output].name[..];
        let timestamp = change.from.0;
        match change.pattern {
            Some(pattern) => tracing::warn!(
                stream,
                timestamp,
                %pattern,
                "known values are sent in place of spectra: a test was asked for"
            ),
            None => tracing::info!(
                stream,
                timestamp,
                "spectra are sent again: the test is over"
            ),
        }
    }

    fn time_out(&mut self, now: Instant) {
        let sensors = &self.sensors.sensors;
        for timeout in &mut self.timeouts {
            let over = |since| now.saturating_duration_since(since) >= self.timeout;
            if timeout.updated.is_some_and(over) {
                timeout.updated = None;
                let mut reading = sensors.reading(timeout.sensor);
                reading.timestamp += self.timeout.as_secs_f64();
                reading.status = timeout.status;
                sensors.set(timeout.sensor, reading);
            }
        }
    }
}

impl Busy {
    fn update(&mut self, sensors: &FgpuSensors, now: Instant) {
        let (begun, before) = self.since;
        let window = now.saturating_duration_since(begun);
        if window < BUSY_WINDOW {
            return;
        }
        let count = self.nanoseconds.load(Ordering::Relaxed);
        self.since = (now, count);
        let share = count.saturating_sub(before) as f64 * 1e-9 / window.as_secs_f64();
        let reading = SensorReading::now(Value::Float(share.min(1.0)));
        sensors.sensors.set(self.sensor, reading);
    }
}

fn power_status(dbfs: f64) -> SensorStatus {
    let [low, high] = POWER_NOMINAL;
    let [too_low, too_high] = POWER_ERROR;
    if (low..=high).contains(&dbfs) {
        SensorStatus::Nominal
    } else if too_low < dbfs && dbfs < too_high {
        SensorStatus::Warn
    } else {
        SensorStatus::Error
    }
}

#[cfg(test)]
#[path = "feed_tests.rs"]
mod tests;
