//! The sensors of an F-engine, with katgpucbf's names, types and initial states.

use std::sync::Arc;

use dsp::delay::LinearDelay;
use ground::{N_POL, SampleClock};
use katcp::number::{format_complex, format_float};
use katcp::reading::DEVICE_STATUS;
use katcp::{SensorId, SensorInfo, SensorReading, SensorStatus, Sensors, Value, ValueType};

use super::requests::Action;
use crate::config::EngineConfig;
use crate::engine::steer::{ControlHandle, Gains};

/// The sensors of an engine; a cheap handle.
#[derive(Clone, Debug)]
pub struct FgpuSensors {
    /// Where they are.
    pub sensors: Sensors,
    /// `steady-state-timestamp`.
    pub steady_state: SensorId,
    /// `input0…` and `input1…`.
    pub inputs: [InputSensors; N_POL],
    /// One per output and input.
    pub outputs: Arc<[[OutputSensors; N_POL]]>,
    /// `karoo.….latency`, one per output.
    pub latencies: Arc<[SensorId]>,
    /// `karoo.….test-pattern`, one per output.
    pub tests: Arc<[SensorId]>,
    /// What statistics come to, one per output and input.
    pub levels: Arc<[[LevelSensors; N_POL]]>,
}

/// What is published of one input.
#[derive(Clone, Copy, Debug)]
pub struct InputSensors {
    /// `dig-clip-cnt`.
    pub clip_count: SensorId,
    /// `dig-rms-dbfs`.
    pub power: SensorId,
    /// `rx.timestamp`.
    pub timestamp: SensorId,
    /// `rx.unixtime`.
    pub unixtime: SensorId,
    /// `rx.missing-unixtime`.
    pub missing: SensorId,
}

/// What is published of one input of one output.
#[derive(Clone, Copy, Debug)]
pub struct OutputSensors {
    /// `eq`.
    pub gains: SensorId,
    /// `delay`.
    pub delay: SensorId,
    /// `feng-clip-cnt`.
    pub clip_count: SensorId,
}

/// What statistics of one input of one output come to.
#[derive(Clone, Copy, Debug)]
pub struct LevelSensors {
    /// `rms`.
    pub rms: SensorId,
    /// `clipped-share`.
    pub clipped: SensorId,
    /// `kurtosis-flagged-share`.
    pub flagged: SensorId,
}

impl FgpuSensors {
    /// Adds them, in their initial states.
    pub fn add(sensors: &Sensors, config: &EngineConfig, steering: &ControlHandle) -> Self {
        let nominal = |info, value| sensors.add(info, SensorReading::now(value));
        let steady_state = nominal(
            SensorInfo::new(
                "steady-state-timestamp",
                "Heaps with this timestamp or a later one reflect all requests so far",
                "",
                ValueType::Integer,
            ),
            Value::Integer(0),
        );
        let inputs = [0, 1].map(|pol| InputSensors::add(sensors, pol));
        let outputs = config.outputs.iter().zip(steering.outputs());
        let outputs = outputs.map(|(output, steered)| {
            nominal(
                SensorInfo::new(
                    format!("{}.dither-seed", output.name),
                    "Key of the generator of dither",
                    "",
                    ValueType::String,
                ),
                Value::String(output.dither_seed.to_string().into()),
            );
            let (pfb, ddc) = (output.pfb_group_delay(), output.ddc_group_delay());
            for (filter, of, delay) in [
                ("pfb", "the polyphase filter bank", pfb),
                ("ddc", "the down-conversion's filter", ddc),
                ("filter", "all filters", pfb + ddc),
            ] {
                nominal(
                    SensorInfo::new(
                        format!("karoo.{}.{filter}-group-delay", output.name),
                        format!("Group delay of {of}, for which timestamps are not corrected"),
                        "samples",
                        ValueType::Float,
                    ),
                    Value::Float(delay),
                );
            }
            [0, 1].map(|pol| {
                let gains = steered.gains(pol);
                let gains = gains.unwrap_or_else(|| steered.default_gains().clone());
                OutputSensors::add(sensors, &output.name, pol, &gains)
            })
        });
        let outputs = outputs.collect();
        let latencies = config.outputs.iter().map(|output| {
            let info = SensorInfo::new(
                format!("karoo.{}.latency", output.name),
                "Age of the last sample of an output chunk when it is sent, by this host's clock",
                "s",
                ValueType::Float,
            );
            let initial = SensorReading {
                status: SensorStatus::Unknown,
                ..SensorReading::now(Value::Float(0.0))
            };
            sensors.add(info.rate_limited(), initial)
        });
        let latencies = latencies.collect();
        let tests = config.outputs.iter().map(|output| {
            let info = SensorInfo::new(
                format!("karoo.{}.test-pattern", output.name),
                "Known values that are sent in place of spectra, or off",
                "",
                ValueType::String,
            );
            nominal(info, Value::String("off".into()))
        });
        let tests = tests.collect();
        let levels = config.outputs.iter();
        let levels = levels.map(|of| [0, 1].map(|pol| LevelSensors::add(sensors, &of.name, pol)));
        let levels = levels.collect();
        let status = |name, description| SensorInfo::new(name, description, "", DEVICE_STATUS);
        sensors.add_aggregate(
            status("rx.device-status", "Whether data are received without loss"),
            |info| info.name.starts_with("input") && info.name.contains(".rx."),
        );
        sensors.add_aggregate(
            status("device-status", "Whether all sensors are nominal"),
            |_| true,
        );
        Self {
            sensors: sensors.clone(),
            steady_state,
            inputs,
            outputs,
            latencies,
            tests,
            levels,
        }
    }

    /// Shows what an action changed.
    pub fn acted(&self, action: &Action, steering: &ControlHandle) {
        let steady = Value::Integer(steering.steady_state().0 as i64);
        match action {
            Action::QueryGains { .. } => return,
            Action::SetGains { output, pol, gains } => {
                let text = Value::String(gains_text(gains).into());
                for input in (0..N_POL).filter(|input| pol.is_none_or(|pol| pol == *input)) {
                    let sensor = self.outputs[*output][input].gains;
                    self.sensors.set(sensor, SensorReading::now(text.clone()));
                }
            }
            Action::LevelGains { output, .. } => {
                for (pol, sensors) in self.outputs[*output].iter().enumerate() {
                    if let Some(gains) = steering.outputs()[*output].gains(pol) {
                        let text = Value::String(gains_text(&gains).into());
                        self.sensors.set(sensors.gains, SensorReading::now(text));
                    }
                }
            }
            // Shown when a model becomes active, or a pattern is sent.
            Action::SetDelays { .. } | Action::Test { .. } => {}
        }
        self.sensors
            .set(self.steady_state, SensorReading::now(steady));
    }
}

impl InputSensors {
    fn add(sensors: &Sensors, pol: usize) -> Self {
        let info = |name, description, units, of| {
            SensorInfo::new(format!("input{pol}.{name}"), description, units, of)
        };
        let add = |info, status, value| {
            sensors.add(
                info,
                SensorReading {
                    status,
                    ..SensorReading::now(value)
                },
            )
        };
        Self {
            clip_count: add(
                info(
                    "dig-clip-cnt",
                    "Saturated samples of the digitiser so far",
                    "",
                    ValueType::Integer,
                )
                .rate_limited(),
                SensorStatus::Nominal,
                Value::Integer(0),
            ),
            power: add(
                info(
                    "dig-rms-dbfs",
                    "Power of the digitiser's samples over the last window, relative to a full-scale sine",
                    "dBFS",
                    ValueType::Float,
                ),
                SensorStatus::Unknown,
                Value::Float(0.0),
            ),
            timestamp: add(
                info(
                    "rx.timestamp",
                    "Timestamp of the last receive chunk",
                    "",
                    ValueType::Integer,
                )
                .rate_limited(),
                SensorStatus::Error,
                Value::Integer(-1),
            ),
            unixtime: add(
                info(
                    "rx.unixtime",
                    "UNIX time of the last receive chunk",
                    "",
                    ValueType::Timestamp,
                )
                .rate_limited(),
                SensorStatus::Error,
                Value::Timestamp(-1.0),
            ),
            missing: add(
                info(
                    "rx.missing-unixtime",
                    "UNIX time of the last receive chunk that lacked data",
                    "",
                    ValueType::Timestamp,
                )
                .rate_limited(),
                SensorStatus::Nominal,
                Value::Timestamp(-1.0),
            ),
        }
    }
}

impl OutputSensors {
    fn add(sensors: &Sensors, stream: &str, pol: usize, gains: &Gains) -> Self {
        let info = |name, description, of| {
            SensorInfo::new(format!("{stream}.input{pol}.{name}"), description, "", of)
        };
        let add = |info, value| sensors.add(info, SensorReading::now(value));
        Self {
            gains: add(
                info(
                    "eq",
                    "Complex gains: one for all channels, or one per channel",
                    ValueType::String,
                ),
                Value::String(gains_text(gains).into()),
            ),
            delay: add(
                info(
                    "delay",
                    "The active delay model: start timestamp, delay (s), rate, phase (rad), phase rate (rad/s)",
                    ValueType::String,
                ),
                // The zero model reads the same with any clock.
                Value::String("(-1, 0.0, 0.0, 0.0, 0.0)".into()),
            ),
            clip_count: add(
                info(
                    "feng-clip-cnt",
                    "Clipped output samples sent so far",
                    ValueType::Integer,
                )
                .rate_limited(),
                Value::Integer(0),
            ),
        }
    }
}

impl LevelSensors {
    fn add(sensors: &Sensors, stream: &str, pol: usize) -> Self {
        let add = |name, description, units| {
            let info = SensorInfo::new(
                format!("karoo.{stream}.input{pol}.{name}"),
                description,
                units,
                ValueType::Float,
            );
            let initial = SensorReading {
                status: SensorStatus::Unknown,
                ..SensorReading::now(Value::Float(0.0))
            };
            sensors.add(info.rate_limited(), initial)
        };
        Self {
            rms: add(
                "rms",
                "Rms of real and imaginary parts before quantisation, over all channels",
                "counts",
            ),
            clipped: add(
                "clipped-share",
                "Share of complex samples that quantisation clamped",
                "",
            ),
            flagged: add(
                "kurtosis-flagged-share",
                "Share of channels whose kurtosis is not that of noise; noise alone has 0.0027",
                "",
            ),
        }
    }
}

/// Gains as the `eq` sensor has them.
pub fn gains_text(gains: &Gains) -> String {
    let gains: Vec<_> = gains
        .values()
        .iter()
        .map(|gain| format_complex(*gain))
        .collect();
    format!("[{}]", gains.join(", "))
}

/// A model as the `delay` sensor has it: start timestamp, then delay in seconds, rate, phase in
/// radians and phase rate in radians per second.
pub fn delay_text(model: &LinearDelay, clock: SampleClock) -> String {
    format!(
        "({}, {}, {}, {}, {})",
        model.start(),
        format_float(model.delay() / clock.adc_sample_rate),
        format_float(model.rate()),
        format_float(model.phase()),
        format_float(model.phase_rate() * clock.adc_sample_rate),
    )
}
