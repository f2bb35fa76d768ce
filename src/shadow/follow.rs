//! The client that takes over gains and delays of a running engine, when it starts and as they
//! change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
/// After a change the engine may take so long to say from when on all heaps have it.
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
        /// Its sensor.
        sensor: String,
        /// Why not.
        source: ToldError,
    },
    /// A sensor did not report.
    #[error("{address} did not say what {sensor} is within {} s", FIRST.as_secs())]
    Silent {
        /// The engine.
        address: String,
        /// Its sensor.
        sensor: String,
    },
}

/// What the engine has told, for who compares.
#[derive(Debug, Default)]
pub struct Followed {
    /// When gains and delays changed.
    pub changes: Changes,
    /// Changes of gains, and of delays.
    pub gains: AtomicU64,
    /// The same.
    pub delays: AtomicU64,
    /// Whether the engine cannot be asked.
    pub lost: AtomicBool,
    told: Mutex<Option<Instant>>,
}

impl Followed {
    /// When the engine was asked last of those times by which it has told everything.
    pub fn told(&self) -> Option<Instant> {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a sensor is about.
#[derive(Clone, Copy, Debug)]
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

/// A connection to an engine, and what it has said.
pub struct Follower {
    address: String,
    client: Client,
    clock: SampleClock,
    shapes: Vec<Shape>,
    sensors: BTreeMap<String, Subject>,
    settings: Vec<Setting>,
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
            seeds.push(parse_integer(&report.text()).map(|seed| seed as u64));
        }
        Ok(seeds.into_iter().collect())
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

    /// Asks the engine whether it has told everything, and follows it, until stopped. If it does
    /// not `follow`, changes are heard and left.
    pub fn run(
        mut self,
        steering: &ControlHandle,
        newest: &Newest,
        followed: &Arc<Followed>,
        follow: bool,
        stop: &StopFlag,
    ) {
        while !stop.is_set() {
            let outcome = self.look(steering, newest, followed, follow);
            let Err(error) = outcome else { continue };
            let lost = matches!(error, FollowError::Client(_));
            tracing::warn!(%error, "what the engine has cannot be followed");
            thread::sleep(AGAIN);
            if lost {
                followed.lost.store(true, Ordering::Relaxed);
                self.connect_again(steering, newest, followed, follow, stop);
            }
        }
    }

    /// Connects until it has heard all sensors: an engine that answers and does not tell what it
    /// has would be taken to have changed nothing.
    fn connect_again(
        &mut self,
        steering: &ControlHandle,
        newest: &Newest,
        followed: &Followed,
        follow: bool,
        stop: &StopFlag,
    ) {
        let mut said = String::new();
        while !stop.is_set() {
            let Err(error) = self.reconnect(steering, newest, followed, follow) else {
                followed.lost.store(false, Ordering::Relaxed);
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

    fn reconnect(
        &mut self,
        steering: &ControlHandle,
        newest: &Newest,
        followed: &Followed,
        follow: bool,
    ) -> Result<(), FollowError> {
        self.client = Client::connect(&self.address[..])?;
        for report in self.subscribe()? {
            self.apply(&report, steering, newest, followed, follow)?;
        }
        Ok(())
    }

    /// One question, and what comes of it and within a moment.
    fn look(
        &mut self,
        steering: &ControlHandle,
        newest: &Newest,
        followed: &Followed,
        follow: bool,
    ) -> Result<(), FollowError> {
        let asked = Instant::now();
        let steady = self.client.sensor_value(STEADY)?;
        let mut wait = Duration::ZERO;
        while let Some(report) = self.client.next_report(wait)? {
            self.apply(&report, steering, newest, followed, follow)?;
        }
        if let (Some(steady), Some(settled)) =
            (parse_integer(&steady.text()), asked.checked_sub(SETTLE))
        {
            followed.changes.steady(steady.max(0) as u64, settled);
        }
        *followed.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(asked);
        let now = Timestamp(self.sample_at(unix_now()));
        steering.tell_time(now);
        loop {
            wait = POLL.saturating_sub(asked.elapsed());
            match self.client.next_report(wait)? {
                Some(report) => self.apply(&report, steering, newest, followed, follow)?,
                None => return Ok(()),
            }
        }
    }

    /// Which sample the digitisers are at, by a clock.
    fn sample_at(&self, unix: f64) -> u64 {
        ((unix - self.clock.sync_time) * self.clock.adc_sample_rate) as u64
    }

    /// Does what a report says.
    fn apply(
        &mut self,
        report: &SensorReport,
        steering: &ControlHandle,
        newest: &Newest,
        followed: &Followed,
        follow: bool,
    ) -> Result<(), FollowError> {
        let Some(subject) = self.read(report)? else {
            return Ok(());
        };
        let Subject {
            output,
            pol,
            is_delay,
        } = subject;
        let (setting, shape) = (&self.settings[output], &self.shapes[output]);
        if !follow {
            tracing::info!(sensor = report.name, "has changed, which is not followed");
            return Ok(());
        }
        // The engine may have sent some of it by now.
        let now = Timestamp(self.sample_at(unix_now()));
        let newest = Timestamp::unwrap(newest[output].load(Ordering::Relaxed), now);
        let said = self.sample_at(report.timestamp);
        let mut from = newest.0.min(said).saturating_sub(shape.inside);
        let handle = &steering.outputs()[output];
        let done = match is_delay {
            true => {
                from = from.max(u64::try_from(setting.delays[pol].start()).unwrap_or_default());
                followed.delays.fetch_add(1, Ordering::Relaxed);
                handle.set_delays(setting.delays)
            }
            false => {
                followed.gains.fetch_add(1, Ordering::Relaxed);
                handle.set_gains(pol, setting.gains[pol].clone())
            }
        };
        let to = match done {
            Ok(to) => to.0.max(from) + shape.batch_samples,
            Err(error) => {
                tracing::warn!(sensor = report.name, %error, "the engine of this process did not take it");
                from
            }
        };
        followed.changes.begin(output, from, to, Instant::now());
        tracing::debug!(sensor = report.name, from, to, "followed");
        Ok(())
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
