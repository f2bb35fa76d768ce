//! The client that takes over gains and delays of a running engine, when it starts and as they
//! change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use dsp::delay::LinearDelay;
use ground::{N_POL, SampleClock, StopFlag, Timestamp};
use katcp::number::parse_integer;
use katcp::reading::unix_now;
use katcp::{Client, ClientError, SensorReport, Strategy};

use super::changes::Changes;
use super::listen::Newest;
use super::told::{self, ToldError};
use crate::config::EngineConfig;
use crate::engine::steer::{ControlHandle, EnqueueError, Gains};

/// How often the engine is asked whether it has told everything.
const POLL: Duration = Duration::from_millis(200);
/// How long the engine may take, after a change, to tell the timestamp from which all heaps have
/// it.
const SETTLE: Duration = Duration::from_millis(500);
/// How long to wait before connecting again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long an engine has to say what its sensors are.
const FIRST: Duration = Duration::from_secs(10);
/// Seconds of samples that an engine may have in it, beside those of chunks.
const INSIDE: f64 = 1.0;
/// From this timestamp on heaps have all changes.
const STEADY: &str = "steady-state-timestamp";

/// An engine that cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// KATCP.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The engine has no output of that name.
    #[error(
        "{address} has no output stream called '{given}': there is {there}; give the outputs as the engine has them"
    )]
    Stream {
        /// The engine.
        address: String,
        /// The name.
        given: String,
        /// The names of all.
        there: String,
    },
    /// A sensor has no reading that could be used.
    #[error("{address}, sensor {sensor}: {source}")]
    Told {
        /// The engine.
        address: String,
        /// The sensor.
        sensor: String,
        /// Why not.
        source: ToldError,
    },
    /// A sensor did not report.
    #[error("{address} did not say what {sensor} is within {} s", FIRST.as_secs())]
    Silent {
        /// The engine.
        address: String,
        /// The sensor.
        sensor: String,
    },
}

/// What the engine has told, for who compares.
#[derive(Debug, Default)]
pub struct Followed {
    /// When gains and delays changed.
    pub changes: Changes,
    /// Changes of gains.
    pub gains: AtomicU64,
    /// Changes of delays.
    pub delays: AtomicU64,
    /// Whether the engine cannot be asked.
    pub lost: AtomicBool,
    told: Mutex<Option<Instant>>,
}

impl Followed {
    /// When the engine was asked last of those times by which it has told everything.
    pub fn told(&self) -> Option<Instant> {
        *ground::lock(&self.told)
    }
}

/// What a sensor is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    output: usize,
    pol: usize,
    is_delay: bool,
}

/// What an output has.
#[derive(Clone, Debug)]
struct Setting {
    gains: [Gains; N_POL],
    delays: [LinearDelay; N_POL],
}

/// What an output is, as far as it matters here.
#[derive(Clone, Debug)]
struct Shape {
    channels: usize,
    batch_samples: u64,
    /// ADC samples that an engine may have in it.
    inside: u64,
}

/// Where it goes what an engine tells.
#[derive(Clone, Debug)]
pub struct Target {
    /// The engine of this process.
    pub steering: ControlHandle,
    /// Newest timestamps of heaps that came.
    pub newest: Newest,
    /// For who compares.
    pub followed: Arc<Followed>,
    /// Whether changes are given to the engine of this process, or heard and left.
    pub follow: bool,
}

/// A connection to an engine, and what it has said.
pub struct Follower {
    address: String,
    client: Client,
    clock: SampleClock,
    shapes: Vec<Shape>,
    sensors: BTreeMap<String, Subject>,
    settings: Vec<Setting>,
    /// Sensors of which the last reading could not be used.
    unusable: BTreeSet<String>,
    /// What the engine of this process had no room for, and from which sample on the other may
    /// have it.
    refused: BTreeMap<Subject, u64>,
}

impl Follower {
    /// Connects to the engine at `address`, and reads the gains and delays of all outputs of
    /// `config`.
    pub fn connect(address: &str, config: &EngineConfig) -> Result<Self, FollowError> {
        let mut client = Client::connect(address)?;
        check_streams(address, &mut client, config)?;
        let mut sensors = BTreeMap::new();
        for (output, of) in config.outputs.iter().enumerate() {
            for (pol, is_delay) in [(0, false), (1, false), (0, true), (1, true)] {
                let sensor = if is_delay { "delay" } else { "eq" };
                let subject = Subject {
                    output,
                    pol,
                    is_delay,
                };
                sensors.insert(format!("{}.input{pol}.{sensor}", of.name), subject);
            }
        }
        let shape = |output: &crate::config::OutputConfig| {
            let chunk = config.send.chunk_jones / output.channels * output.spectrum_samples();
            let inside = INSIDE * config.clock.adc_sample_rate;
            Shape {
                channels: output.channels,
                batch_samples: output.batch_samples() as u64,
                inside: inside as u64 + (chunk + 2 * config.recv.chunk_samples) as u64,
            }
        };
        let setting = |output: &crate::config::OutputConfig| {
            let gains = Gains::uniform(output.channels, (config.gain as f32).into());
            Setting {
                gains: [gains.clone(), gains],
                delays: [LinearDelay::ZERO; N_POL],
            }
        };
        let mut follower = Self {
            address: address.to_owned(),
            client,
            clock: config.clock,
            shapes: config.outputs.iter().map(shape).collect(),
            settings: config.outputs.iter().map(setting).collect(),
            sensors,
            unusable: BTreeSet::new(),
            refused: BTreeMap::new(),
        };
        for report in follower.subscribe()? {
            follower.read(&report)?;
        }
        Ok(follower)
    }

    /// Seeds of the outputs' dither, if the engine is one of Karoo's: then dither is the same.
    pub fn dither_seeds(&mut self, config: &EngineConfig) -> Result<Option<Vec<u64>>, FollowError> {
        if self.client.sensor_list("/^karoo.backend$/")?.is_empty() {
            return Ok(None);
        }
        let mut seeds = Vec::new();
        for output in &config.outputs {
            let sensor = format!("{}.dither-seed", output.name);
            let report = self.client.sensor_value(&sensor)?;
            let seed = told::seed(&report.text()).map_err(|source| FollowError::Told {
                address: self.address.clone(),
                sensor,
                source,
            })?;
            seeds.push(seed);
        }
        Ok(Some(seeds))
    }

    /// Subscribes to all sensors. Returns the first report of each.
    fn subscribe(&mut self) -> Result<Vec<SensorReport>, FollowError> {
        let names: Vec<_> = self.sensors.keys().map(String::as_str).collect();
        self.client.sample(&names, Strategy::Event)?;
        let mut first = BTreeMap::new();
        while let Some(missing) = self.sensors.keys().find(|name| !first.contains_key(*name)) {
            match self.client.next_report(FIRST)? {
                Some(report) => _ = first.insert(report.name.clone(), report),
                None => {
                    let (address, sensor) = (self.address.clone(), missing.clone());
                    return Err(FollowError::Silent { address, sensor });
                }
            }
        }
        Ok(first.into_values().collect())
    }

    /// Notes what a report says. Returns what it is about, if it is news.
    fn read(&mut self, report: &SensorReport) -> Result<Option<Subject>, FollowError> {
        let Some(&subject) = self.sensors.get(&report.name) else {
            return Ok(None);
        };
        let Subject {
            output,
            pol,
            is_delay,
        } = subject;
        let told = |source| FollowError::Told {
            address: self.address.clone(),
            sensor: report.name.clone(),
            source,
        };
        let setting = &mut self.settings[output];
        let text = report.text();
        let is_news = match is_delay {
            false => {
                let gains = told::gains(&text, self.shapes[output].channels).map_err(told)?;
                let before = std::mem::replace(&mut setting.gains[pol], gains);
                before != setting.gains[pol]
            }
            true => {
                let delay = told::delay(&text, self.clock).map_err(told)?;
                let before = std::mem::replace(&mut setting.delays[pol], delay);
                before != delay
            }
        };
        Ok(is_news.then_some(subject))
    }

    /// Gives all gains and delays to an engine of this process that has not begun.
    pub fn take_over(&self, steering: &ControlHandle) -> Result<(), EnqueueError> {
        for (output, setting) in steering.outputs().iter().zip(&self.settings) {
            output.change_gains(setting.gains.clone().map(Some))?;
            if setting.delays != [LinearDelay::ZERO; N_POL] {
                output.set_delays(setting.delays)?;
            }
        }
        Ok(())
    }

    /// Asks the engine whether it has told everything, and follows it, until stopped.
    pub fn run(mut self, target: &Target, stop: &StopFlag) {
        while !stop.is_set() {
            if let Err(error) = self.look(target) {
                tracing::warn!(%error, "what the engine has cannot be followed");
                thread::sleep(AGAIN);
                target.followed.lost.store(true, Ordering::Relaxed);
                self.connect_again(target, stop);
            }
        }
    }

    /// Connects until it has heard all sensors: an engine that answers and does not tell what it
    /// has would be taken to have changed nothing.
    fn connect_again(&mut self, target: &Target, stop: &StopFlag) {
        let mut said = String::new();
        while !stop.is_set() {
            let Err(error) = self.reconnect(target) else {
                target.followed.lost.store(false, Ordering::Relaxed);
                tracing::info!(engine = self.address, "connected again");
                return;
            };
            let error = error.to_string();
            if said != error {
                tracing::warn!(error, "cannot connect again");
                said = error;
            }
            thread::sleep(AGAIN);
        }
    }

    fn reconnect(&mut self, target: &Target) -> Result<(), FollowError> {
        self.client = Client::connect(&self.address[..])?;
        for report in self.subscribe()? {
            self.apply(&report, target);
        }
        Ok(())
    }

    /// One question, and what comes of it and within a moment.
    fn look(&mut self, target: &Target) -> Result<(), ClientError> {
        let asked = Instant::now();
        let steady = self.client.sensor_value(STEADY)?;
        let mut wait = Duration::ZERO;
        while let Some(report) = self.client.next_report(wait)? {
            self.apply(&report, target);
        }
        self.give_again(target);
        let followed = &target.followed;
        if let (Some(steady), Some(settled)) =
            (parse_integer(&steady.text()), asked.checked_sub(SETTLE))
        {
            followed.changes.steady(steady.max(0) as u64, settled);
        }
        if self.has_all(target) {
            *ground::lock(&followed.told) = Some(asked);
        }
        let now = Timestamp(self.sample_at(unix_now()));
        target.steering.tell_time(now);
        loop {
            wait = POLL.saturating_sub(asked.elapsed());
            match self.client.next_report(wait)? {
                Some(report) => self.apply(&report, target),
                None => return Ok(()),
            }
        }
    }

    /// Whether the engine of this process has been given all that the other has told.
    fn has_all(&self, target: &Target) -> bool {
        !target.follow || (self.unusable.is_empty() && self.refused.is_empty())
    }

    /// Which sample the digitisers are at, by a clock.
    fn sample_at(&self, unix: f64) -> u64 {
        ((unix - self.clock.sync_time) * self.clock.adc_sample_rate) as u64
    }

    /// Does what a report says.
    fn apply(&mut self, report: &SensorReport, target: &Target) {
        let sensor = &report.name;
        let subject = match self.read(report) {
            Ok(subject) => {
                self.unusable.remove(sensor);
                subject
            }
            Err(error) => {
                tracing::warn!(%error, "what the engine has cannot be followed");
                self.unusable.insert(sensor.clone());
                return;
            }
        };
        let Some(subject) = subject else { return };
        if !target.follow {
            tracing::info!(sensor, "has changed, which is not followed");
            return;
        }
        let Subject {
            output,
            pol,
            is_delay,
        } = subject;
        // The engine may have sent some of it by now.
        let now = Timestamp(self.sample_at(unix_now()));
        let newest = Timestamp::unwrap(target.newest[output].load(Ordering::Relaxed), now);
        let said = self.sample_at(report.timestamp);
        let inside = self.shapes[output].inside;
        let from = newest.0.min(said).saturating_sub(inside);
        let (from, count) = match is_delay {
            true => (from.max(self.begins(output, pol)), &target.followed.delays),
            false => (from, &target.followed.gains),
        };
        count.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.give(subject, from, target) {
            tracing::warn!(
                sensor,
                %error,
                "the engine of this process did not take it: it is given again"
            );
        }
    }

    /// Sample at which a delay model begins.
    fn begins(&self, output: usize, pol: usize) -> u64 {
        let start = self.settings[output].delays[pol].start();
        u64::try_from(start).unwrap_or_default()
    }

    /// Gives what the engine has now to that of this process. The other may have had it, or what
    /// was refused before, `from` that sample on.
    fn give(&mut self, subject: Subject, from: u64, target: &Target) -> Result<(), EnqueueError> {
        let Subject {
            output,
            pol,
            is_delay,
        } = subject;
        let before = self.refused.remove(&subject);
        let from = before.map_or(from, |before| before.min(from));
        let (setting, handle) = (&self.settings[output], &target.steering.outputs()[output]);
        let done = match is_delay {
            true => handle.set_delays(setting.delays),
            false => handle.set_gains(pol, setting.gains[pol].clone()),
        };
        let taken = match done {
            Ok(taken) => taken.0,
            Err(error) => {
                self.refused.insert(subject, from);
                return Err(error);
            }
        };
        let begins = match is_delay {
            true => self.begins(output, pol),
            false => from,
        };
        let to = taken.max(from).max(begins) + self.shapes[output].batch_samples;
        let changes = &target.followed.changes;
        changes.begin(output, from, to, Instant::now());
        tracing::debug!(output, pol, is_delay, from, to, "followed");
        Ok(())
    }

    /// Gives again what was refused.
    fn give_again(&mut self, target: &Target) {
        for (subject, from) in self.refused.clone() {
            if self.give(subject, from, target).is_ok() {
                tracing::info!(?subject, "taken now");
            }
        }
    }
}

/// Refuses outputs that the engine does not have, and says which of its are not compared.
fn check_streams(
    address: &str,
    client: &mut Client,
    config: &EngineConfig,
) -> Result<(), FollowError> {
    let listed = client.sensor_list("/\\.input0\\.eq$/")?;
    let names = listed
        .iter()
        .filter_map(|s| s.name.strip_suffix(".input0.eq"));
    let mut there: BTreeSet<_> = names.collect();
    let all = there.iter().copied().collect::<Vec<_>>().join(", ");
    for output in &config.outputs {
        if !there.remove(&output.name[..]) {
            return Err(FollowError::Stream {
                address: address.to_owned(),
                given: output.name.clone(),
                there: if all.is_empty() {
                    "none".to_owned()
                } else {
                    all
                },
            });
        }
    }
    for stream in there {
        tracing::warn!(
            stream,
            "the engine's output is not compared: no option names it"
        );
    }
    Ok(())
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
