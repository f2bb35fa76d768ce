//! The F-engine as a KATCP device: katgpucbf's requests, sensors and names.

mod applied;
mod feed;
mod reason;
mod record;
mod requests;
mod sensors;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

pub use applied::AppliedLog;
pub use feed::SensorFeed;
pub use reason::StatusReason;
pub use record::{RecordedRequest, RequestRecord};
pub use requests::{Action, RequestError, interpret, replay_lines};
pub use sensors::{FgpuSensors, delay_text, gains_text};

use ground::{SampleClock, Timestamp};
use katcp::reading::unix_now;
use katcp::{
    Device, Message, Refusal, RequestHelp, ReservedAddress, Response, RoomFuture, SensorInfo,
    SensorReading, Sensors, ServerLimits, Value, ValueType,
};

use super::{Control, ControlEnd, ControlError, build};
use crate::config::EngineConfig;
use crate::engine::steer::{ControlHandle, OutputHandle, Published};
use crate::losses::LossRecord;

/// The interface that it has, which is katgpucbf's.
const VERSION: &str = "katgpucbf-fgpu-1.0";
/// How long a request waits for its place in an engine's queue, which a healthy engine empties
/// within a block, and how often it looks.
const ROOM: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(1));
/// The request that needs statistics.
const AUTO_GAIN: &str = "karoo-auto-gain";

/// An F-engine that can be controlled.
pub struct Fgpu {
    clock: SampleClock,
    steering: ControlHandle,
    sensors: FgpuSensors,
    record: Arc<RequestRecord>,
    /// How long a request waits for statistics; not at all if none are taken.
    statistics_patience: Option<Duration>,
}

impl Fgpu {
    /// The engine of `config` behind `steering`; adds its sensors.
    pub fn new(config: &EngineConfig, steering: ControlHandle, sensors: &Sensors) -> Self {
        Self {
            clock: config.clock,
            sensors: FgpuSensors::add(sensors, config, &steering),
            steering,
            record: Arc::default(),
            statistics_patience: (config.statistics_period > 0.0)
                .then(|| Duration::from_secs_f64(2.0 * config.statistics_period + 1.0)),
        }
    }

    /// The same, with its requests on `record`.
    #[must_use]
    pub fn recorded(mut self, record: Arc<RequestRecord>) -> Self {
        self.record = record;
        self
    }

    /// Its sensors.
    pub fn sensors(&self) -> &FgpuSensors {
        &self.sensors
    }
}

impl Fgpu {
    /// Time for statistics with the present gains to come, and then for a place.
    fn statistics_room(&self, request: &Message<'_>) -> Option<RoomFuture> {
        let action = interpret(self.clock, &self.steering, request).ok()?;
        let output = self.steering.outputs()[action.output()].clone();
        let patience = self.statistics_patience?;
        Some(Box::pin(async move {
            let until = tokio::time::Instant::now() + patience;
            while output.statistics_with_gains().is_none() && tokio::time::Instant::now() < until {
                tokio::time::sleep(ROOM.1).await;
            }
            place(output).await;
        }))
    }
}

/// Waits for a place in an output's queue, as long as a request does.
async fn place(output: OutputHandle) {
    let (patience, between) = ROOM;
    let until = tokio::time::Instant::now() + patience;
    while output.is_full() && tokio::time::Instant::now() < until {
        tokio::time::sleep(between).await;
    }
}

impl Device for Fgpu {
    fn version(&self) -> &str {
        VERSION
    }

    fn build(&self) -> &str {
        build()
    }

    fn requests(&self) -> &'static [RequestHelp] {
        requests::HELP
    }

    fn room(&self, request: &Message<'_>) -> Option<RoomFuture> {
        let outputs = self.steering.outputs();
        if request.name() == AUTO_GAIN {
            return self.statistics_room(request);
        }
        // Understanding a request takes longer.
        if !outputs.iter().any(OutputHandle::is_full) {
            return None;
        }
        let output = match interpret(self.clock, &self.steering, request).ok()? {
            Action::QueryGains { .. } => return None,
            action => outputs[action.output()].clone(),
        };
        Some(Box::pin(place(output)))
    }

    fn handle(&self, request: &Message<'_>, response: &mut Response) -> Result<(), Refusal> {
        let action = interpret(self.clock, &self.steering, request)?;
        if let Action::SetDelays { .. } = action {
            let since = (unix_now() - self.clock.sync_time) * self.clock.adc_sample_rate;
            self.steering.tell_time(Timestamp(since as u64));
        }
        action.perform(&self.steering, response)?;
        self.sensors.acted(&action, &self.steering);
        Ok(())
    }

    fn answered(&self, client: SocketAddr, request: &Message<'_>, lines: &[u8]) {
        let own = requests::HELP
            .iter()
            .any(|help| help.name == request.name());
        // Who only asks what gains are changes nothing.
        let asks = request.name() == "gain" && request.arguments().len() <= 2;
        if request.name() == "halt" || own && !asks {
            self.record.note(client, request, lines);
        }
    }
}

/// What control has of an engine.
pub struct EngineControl<'a> {
    /// The engine's configuration.
    pub config: &'a EngineConfig,
    /// Where requests go.
    pub steering: ControlHandle,
    /// What the engine publishes, shown as sensors.
    pub published: Arc<Published>,
    /// Karoo's own sensors, with what they say.
    pub constants: Vec<(SensorInfo, String)>,
    /// Nanoseconds that devices were busy, by what they did.
    pub busy: &'a [(String, Arc<AtomicU64>)],
    /// Where requests are noted.
    pub record: Arc<RequestRecord>,
    /// What is being lost.
    pub losses: Arc<LossRecord>,
    /// Where its sensors are added.
    pub sensors: Sensors,
}

/// Starts control of an engine: serves it at `address`.
///
/// `on_end` is called once if control wants the engine to end.
pub fn start(
    address: ReservedAddress,
    engine: EngineControl<'_>,
    on_end: impl FnOnce(ControlEnd) + Send + 'static,
) -> Result<Control, ControlError> {
    let EngineControl {
        config,
        steering,
        published,
        constants,
        busy,
        record,
        losses,
        sensors,
    } = engine;
    let fgpu = Fgpu::new(config, steering, &sensors).recorded(record);
    for (info, text) in constants {
        debug_assert_eq!(info.value_type, ValueType::String);
        sensors.add(info, SensorReading::now(Value::String(text.into())));
    }
    let mut feed = SensorFeed::new(config, published, fgpu.sensors().clone());
    feed.explain(StatusReason::add(&sensors, losses));
    for (stage, nanoseconds) in busy {
        let info = SensorInfo::new(
            format!("karoo.{stage}.busy"),
            "Share of the last second for which the GPU was busy with this",
            "",
            ValueType::Float,
        );
        let sensor = sensors.add(info, SensorReading::now(Value::Float(0.0)));
        feed.watch(sensor, nanoseconds.clone(), Instant::now());
    }
    Control::start(
        address,
        Arc::new(fgpu),
        sensors,
        ServerLimits::default(),
        feed.run(),
        on_end,
    )
}
