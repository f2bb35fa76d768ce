//! Sensors of a device, the subscriptions to them, and sensors that sum up others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::message::{MessageBuilder, MessageKind};
use crate::number::format_float;
use crate::outbox::{ClientId, Outbox, SharedLine};
use crate::reading::{SensorInfo, SensorReading, SensorStatus, unix_now};
use crate::sampling::{Sampler, Strategy, StrategyError};
use crate::value::Value;

/// Deadlines further away than this do not come: a century. tokio's timers panic at the last time
/// of an [`Instant`].
const FAR: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// Number of a sensor among [`Sensors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SensorId(usize);

/// A sensor does not exist, or a strategy cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SensorError {
    /// No sensor has this name. Clients look for the first words of the message.
    #[error("Unknown sensor '{0}': ?sensor-list lists all")]
    Unknown(String),
    /// The strategy cannot be used for the sensor.
    #[error(transparent)]
    Strategy(#[from] StrategyError),
}

/// All sensors of a device. A cheap handle: clones share the sensors, and any thread may set them.
///
/// ```
/// use katcp::{SensorInfo, SensorReading, Sensors, Value, ValueType};
///
/// let sensors = Sensors::default();
/// let info = SensorInfo::new("azimuth", "Direction of the dish", "deg", ValueType::Float);
/// let azimuth = sensors.add(info, SensorReading::now(Value::Float(0.0)));
/// sensors.set(azimuth, SensorReading::now(Value::Float(12.5)));
/// assert_eq!(sensors.reading(azimuth).value, Value::Float(12.5));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Sensors(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    start: Instant,
    state: Mutex<State>,
    /// Told when a deadline is earlier than all before.
    earlier: Notify,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            state: Mutex::default(),
            earlier: Notify::new(),
        }
    }
}

impl Sensors {
    /// Sensors of which those whose names begin with `prefix` are reported less often: with the
    /// strategy `auto` no sooner after each other than `period`, or not at all if there is none.
    /// Nobody sees these then, and no other sensor sums them up.
    pub fn paced(prefix: &'static str, period: Option<Duration>) -> Self {
        let sensors = Self::default();
        sensors.state().pace = Some(Pace { prefix, period });
        sensors
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while it is held leaves every sensor whole.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn elapsed(&self) -> Duration {
        self.0.start.elapsed()
    }

    /// Adds a sensor. It replaces a sensor of the same name, whose subscriptions end.
    pub fn add(&self, info: SensorInfo, initial: SensorReading) -> SensorId {
        self.change(|state, now| {
            let sensor = state.add(info, initial);
            state.aggregate(now);
            sensor
        })
    }

    /// Adds a sensor of the type [`DEVICE_STATUS`](crate::reading::DEVICE_STATUS) that sums up all
    /// sensors for which `includes` is true, without other such sensors. It is `ok` as long as none
    /// of them is worse than nominal, and `degraded` otherwise.
    ///
    /// `includes` is called while the sensors are locked: it must not use them.
    pub fn add_aggregate(
        &self,
        info: SensorInfo,
        includes: impl Fn(&SensorInfo) -> bool + Send + 'static,
    ) -> SensorId {
        self.change(|state, now| {
            let reading = SensorReading::now(Value::Discrete("ok"));
            let target = state.add(info, reading);
            state.aggregates.push(Aggregate {
                target,
                includes: Box::new(includes),
            });
            state.aggregate(now);
            target
        })
    }

    /// Sets a sensor, and reports to the clients that subscribed to it.
    ///
    /// Does not check that the value is of the sensor's type.
    ///
    /// # Panics
    ///
    /// If the sensor is not one of these, but of other `Sensors`.
    pub fn set(&self, sensor: SensorId, reading: SensorReading) {
        self.change(|state, now| state.set(sensor, reading, now));
    }

    /// Finds a sensor by its name.
    pub fn find(&self, name: &str) -> Result<SensorId, SensorError> {
        self.state().find(name)
    }

    /// The present reading of a sensor.
    ///
    /// # Panics
    ///
    /// If the sensor is not one of these, but of other `Sensors`.
    pub fn reading(&self, sensor: SensorId) -> SensorReading {
        self.state().sensors[sensor.0].reading.clone()
    }

    /// Calls `visit` with each sensor whose name is `wanted`, in the order of names: with all
    /// readings as they are now, even if `visit` sets some.
    pub fn visit(
        &self,
        wanted: impl Fn(&str) -> bool,
        mut visit: impl FnMut(&SensorInfo, &SensorReading),
    ) {
        let state = self.state();
        let info = |&id: &SensorId| (id, state.sensors[id.0].info.clone());
        let mut chosen: Vec<_> = state.names.values().map(info).collect();
        drop(state);
        chosen.retain(|(_, info)| wanted(&info.name));
        // Readings may be long, as those of gains are.
        let state = self.state();
        let reading = |(id, _): &(SensorId, _)| state.sensors[id.0].reading.clone();
        let readings: Vec<_> = chosen.iter().map(reading).collect();
        drop(state);
        for ((_, info), reading) in chosen.iter().zip(&readings) {
            visit(info, reading);
        }
    }

    /// The strategy of a client for a sensor.
    pub(crate) fn strategy(&self, client: ClientId, name: &str) -> Result<Strategy, SensorError> {
        let state = self.state();
        let sensor = &state.sensors[state.find(name)?.0];
        let subscription = sensor.subscriptions.get(&client);
        Ok(subscription.map_or(Strategy::None, |s| s.sampler.strategy()))
    }

    /// Changes the strategy of a client for sensors, and reports each sensor once. Changes all
    /// strategies or none.
    ///
    /// Returns the strategy as the last sensor understood it.
    pub(crate) fn subscribe(
        &self,
        outbox: &Arc<Outbox>,
        names: &[&str],
        strategy: &[u8],
        parameters: &[impl AsRef<[u8]>],
    ) -> Result<Strategy, SensorError> {
        self.change(|state, now| {
            let mut wanted = Vec::with_capacity(names.len());
            for name in names {
                let sensor = state.find(name)?;
                let info = &state.sensors[sensor.0].info;
                wanted.push((sensor, Strategy::parse(strategy, parameters, info)?));
            }
            for &(sensor, strategy) in &wanted {
                state.subscribe(sensor, strategy, outbox, now);
            }
            Ok(wanted.last().map_or(Strategy::None, |(_, last)| *last))
        })
    }

    /// Whether a client has subscribed to any sensor.
    pub(crate) fn has_subscribed(&self, client: ClientId) -> bool {
        self.state().subscribed.contains_key(&client)
    }

    /// Ends all subscriptions of a client.
    pub(crate) fn forget(&self, client: ClientId) {
        let mut state = self.state();
        for sensor in state.subscribed.get(&client).cloned().unwrap_or_default() {
            state.unsubscribe(sensor, client);
        }
    }

    /// Changes the state, given the time, and wakes [`run`](Self::run) if something is due earlier
    /// than before.
    fn change<T>(&self, change: impl FnOnce(&mut State, Duration) -> T) -> T {
        let now = self.elapsed();
        let mut state = self.state();
        let before = state.next_deadline();
        let made = change(&mut state, now);
        let after = state.next_deadline();
        drop(state);
        if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
            self.0.earlier.notify_one();
        }
        made
    }

    /// Makes the reports that time brings. Never ends.
    pub(crate) async fn run(&self) {
        loop {
            let next = {
                let mut state = self.state();
                state.tick(self.elapsed());
                state.next_deadline()
            };
            tokio::select! {
                () = until(self.0.start, next) => {}
                () = self.0.earlier.notified() => {}
            }
        }
    }
}

/// Waits until `deadline` after `start`.
async fn until(start: Instant, deadline: Option<Duration>) {
    let near = deadline.filter(|deadline| *deadline <= FAR);
    match near.and_then(|near| start.checked_add(near)) {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

#[derive(Default)]
struct State {
    sensors: Vec<Sensor>,
    names: BTreeMap<String, SensorId>,
    aggregates: Vec<Aggregate>,
    pace: Option<Pace>,
    /// Deadlines of all samplers that have one.
    deadlines: BTreeSet<(Duration, SensorId, ClientId)>,
    /// Sensors that each client has subscribed to; clients without any are not there.
    subscribed: BTreeMap<ClientId, BTreeSet<SensorId>>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.sensors.iter().map(|s| (&s.info.name, &s.reading)))
            .finish()
    }
}

/// How often sensors whose names begin with a prefix are reported.
struct Pace {
    prefix: &'static str,
    /// `None`: they are hidden.
    period: Option<Duration>,
}

struct Sensor {
    info: Arc<SensorInfo>,
    /// Nobody finds it.
    hidden: bool,
    reading: SensorReading,
    subscriptions: BTreeMap<ClientId, Subscription>,
}

struct Subscription {
    sampler: Sampler,
    outbox: Arc<Outbox>,
}

struct Aggregate {
    target: SensorId,
    includes: Box<dyn Fn(&SensorInfo) -> bool + Send>,
}

impl Sensor {
    fn status_line(&self) -> SharedLine {
        let reading = &self.reading;
        MessageBuilder::new(MessageKind::Inform, "sensor-status", None)
            .argument(format_float(reading.timestamp))
            .argument("1")
            .argument(&self.info.name)
            .argument(reading.status.name())
            .argument(&*reading.value.encode())
            .finish()
            .into()
    }
}

impl State {
    fn add(&mut self, info: SensorInfo, reading: SensorReading) -> SensorId {
        let pace = self.pace.as_ref();
        let pace = pace.filter(|pace| info.name.starts_with(pace.prefix));
        let (info, hidden) = match pace.map(|pace| pace.period) {
            None => (info, false),
            Some(Some(period)) => (info.at_most_every(period), false),
            Some(None) => (info, true),
        };
        let sensor = Sensor {
            info: Arc::new(info),
            hidden,
            reading,
            subscriptions: BTreeMap::new(),
        };
        let name = sensor.info.name.clone();
        match self.names.get(&name) {
            Some(&id) => {
                let before = std::mem::replace(&mut self.sensors[id.0], sensor);
                self.deadlines.retain(|(_, sensor, _)| *sensor != id);
                for client in before.subscriptions.into_keys() {
                    self.forget_subscription(id, client);
                }
                id
            }
            None => {
                let id = SensorId(self.sensors.len());
                self.sensors.push(sensor);
                if !hidden {
                    self.names.insert(name, id);
                }
                id
            }
        }
    }

    fn find(&self, name: &str) -> Result<SensorId, SensorError> {
        let found = self.names.get(name).copied();
        found.ok_or_else(|| SensorError::Unknown(crate::value::excerpt(name.as_bytes())))
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(at, ..)| *at)
    }

    fn set(&mut self, id: SensorId, reading: SensorReading, now: Duration) {
        let sensor = &mut self.sensors[id.0];
        let changed = sensor.reading.status != reading.status;
        sensor.reading = reading;
        self.report(id, |sampler, reading| sampler.update(now, reading));
        if changed && self.aggregates.iter().all(|a| a.target != id) {
            self.aggregate(now);
        }
    }

    /// Reports a sensor to those subscribers for whom `due` is true.
    fn report(&mut self, id: SensorId, mut due: impl FnMut(&mut Sampler, &SensorReading) -> bool) {
        let sensor = &mut self.sensors[id.0];
        let mut told = Vec::new();
        for (&client, subscription) in &mut sensor.subscriptions {
            let before = subscription.sampler.deadline();
            if due(&mut subscription.sampler, &sensor.reading) {
                told.push(subscription.outbox.clone());
            }
            move_deadline(
                &mut self.deadlines,
                (id, client),
                before,
                subscription.sampler.deadline(),
            );
        }
        if !told.is_empty() {
            let line = sensor.status_line();
            for outbox in told {
                outbox.inform(line.clone());
            }
        }
    }

    fn tick(&mut self, now: Duration) {
        while let Some(&(at, id, _)) = self.deadlines.first() {
            if at > now {
                break;
            }
            self.report(id, |sampler, reading| sampler.tick(now, reading));
        }
    }

    fn subscribe(&mut self, id: SensorId, strategy: Strategy, outbox: &Arc<Outbox>, now: Duration) {
        let client = outbox.client();
        self.unsubscribe(id, client);
        let sensor = &mut self.sensors[id.0];
        let Some(sampler) = Sampler::new(strategy, &sensor.info, &sensor.reading, now) else {
            return;
        };
        outbox.push(sensor.status_line());
        move_deadline(&mut self.deadlines, (id, client), None, sampler.deadline());
        let outbox = outbox.clone();
        let subscription = Subscription { sampler, outbox };
        sensor.subscriptions.insert(client, subscription);
        self.subscribed.entry(client).or_default().insert(id);
    }

    fn unsubscribe(&mut self, id: SensorId, client: ClientId) {
        if let Some(old) = self.sensors[id.0].subscriptions.remove(&client) {
            let deadline = old.sampler.deadline();
            move_deadline(&mut self.deadlines, (id, client), deadline, None);
            self.forget_subscription(id, client);
        }
    }

    fn forget_subscription(&mut self, id: SensorId, client: ClientId) {
        if let Some(sensors) = self.subscribed.get_mut(&client) {
            sensors.remove(&id);
            if sensors.is_empty() {
                self.subscribed.remove(&client);
            }
        }
    }

    /// Brings the aggregates up to date.
    fn aggregate(&mut self, now: Duration) {
        for index in 0..self.aggregates.len() {
            let Aggregate { target, includes } = &self.aggregates[index];
            let is_aggregate = |id| self.aggregates.iter().any(|a| a.target.0 == id);
            let worst = self
                .sensors
                .iter()
                .enumerate()
                .filter(|(id, sensor)| {
                    !is_aggregate(*id) && !sensor.hidden && includes(&sensor.info)
                })
                .map(|(_, sensor)| sensor.reading.status)
                .max();
            let (status, word) = match worst.unwrap_or(SensorStatus::Nominal) {
                SensorStatus::Unknown | SensorStatus::Nominal => (SensorStatus::Nominal, "ok"),
                _ => (SensorStatus::Warn, "degraded"),
            };
            let target = *target;
            if self.sensors[target.0].reading.status != status {
                let reading = SensorReading::new(unix_now(), status, Value::Discrete(word));
                self.set(target, reading, now);
            }
        }
    }
}

fn move_deadline(
    deadlines: &mut BTreeSet<(Duration, SensorId, ClientId)>,
    (sensor, client): (SensorId, ClientId),
    from: Option<Duration>,
    to: Option<Duration>,
) {
    if from == to {
        return;
    }
    if let Some(from) = from {
        deadlines.remove(&(from, sensor, client));
    }
    if let Some(to) = to {
        deadlines.insert((to, sensor, client));
    }
}

#[cfg(test)]
#[path = "sensor_tests.rs"]
mod tests;
