//! What is required of an engine that runs: how soon it does what it is asked, and what its sensors
//! say of delays.

use std::collections::BTreeMap;
use std::f64::consts::PI;
use std::thread;
use std::time::{Duration, Instant};

use ground::StopFlag;
use katcp::number::parse_float;
use katcp::reading::unix_now;
use katcp::{Client, ClientError};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::delays::{DELAY, PHASE_RATE, RATE};
use super::numbers::largest;
use crate::report::qualification::{Checked, Requirement};

/// Seconds in which a request has to be done.
const ANSWER: f64 = 1.0 / 0.167;
/// Seconds from a request to the time at which its models begin.
const AHEAD: f64 = 2.0;
/// Seconds that an engine's sensors may be behind that time.
const BEHIND: f64 = 10.0;
/// Parts of a value by which its sensor may be off.
const PRECISION: f64 = 1e-9;
/// How often sensors are asked.
const ASK: Duration = Duration::from_millis(50);
const NONE: &str = "0,0:0,0";

/// An engine that could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// KATCP.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A sensor has no delay model.
    #[error("sensor {sensor} says '{text}', which is no delay model")]
    Model {
        /// The sensor.
        sensor: String,
        /// What it says.
        text: String,
    },
    /// Delay models do not begin.
    #[error(
        "no delay model has begun {BEHIND} s after its time: see that the engine receives, and that this host's clock is right"
    )]
    Late,
    /// A signal came.
    #[error("interrupted")]
    Interrupted,
    /// The engine has no outputs.
    #[error("{0} has no output stream: it has no sensor that ends in .input0.delay")]
    NoOutput(String),
}

/// A requirement of engines that run.
pub struct LiveRule {
    /// Name of the requirement.
    pub name: &'static str,
    /// What it says.
    pub title: &'static str,
    /// Numbers of SARAO's requirements that it is of.
    pub numbers: &'static [&'static str],
    /// How it is measured.
    pub method: &'static str,
    measure: fn(&mut Client, &str, &StopFlag) -> Result<Vec<Checked>, LiveError>,
}

/// All of them.
pub const LIVE_RULES: [LiveRule; 2] = [
    LiveRule {
        name: "request-time",
        title: "Delays are switched on and off soon",
        numbers: &[
            "CBF-REQ-0066",
            "CBF-REQ-0110",
            "CBF-REQ-0187",
            "CBF-REQ-0188",
        ],
        method: "The request ?delays for a phase, for a delay, and for none: how long the engine takes to reply.",
        measure: request_time,
    },
    LiveRule {
        name: "delay-sensors",
        title: "Sensors have the delay models that apply",
        numbers: &[],
        method: "Models of any delay, phase and rates that MeerKAT asks for, to begin in two seconds: sensors have them from \
                 then on, and not before.",
        measure: delay_sensors,
    },
];

/// Names of the outputs of the engine at `address`.
pub fn outputs(client: &mut Client, address: &str) -> Result<Vec<String>, LiveError> {
    const SENSOR: &str = ".input0.delay";
    let listed = client.sensor_list("/\\.input0\\.delay$/")?;
    let names = listed
        .iter()
        .filter_map(|sensor| sensor.name.strip_suffix(SENSOR));
    let names: Vec<_> = names.map(str::to_owned).collect();
    match names.is_empty() {
        true => Err(LiveError::NoOutput(address.to_owned())),
        false => Ok(names),
    }
}

impl LiveRule {
    /// Measures an output of the engine, which has no delays then, also where `stop` ends it.
    pub fn measure(&self, client: &mut Client, output: &str, stop: &StopFlag) -> Requirement {
        let measured = (self.measure)(client, output, stop);
        let after = set(client, output, unix_now(), [NONE, NONE]);
        let measured = measured.and_then(|figures| after.map(|_| figures));
        let (figures, error) = match measured {
            Ok(figures) => (figures, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        Requirement {
            name: self.name.to_owned(),
            title: self.title.to_owned(),
            numbers: self.numbers.iter().map(|&n| n.to_owned()).collect(),
            output: output.to_owned(),
            method: self.method.to_owned(),
            figures,
            curves: Vec::new(),
            error,
        }
    }
}

/// Asks for delay models from a UNIX time on. Returns how many seconds that took.
fn set(
    client: &mut Client,
    output: &str,
    at: f64,
    [one, other]: [&str; 2],
) -> Result<f64, LiveError> {
    let begun = Instant::now();
    client.request("delays", &[output, &at.to_string(), one, other])?;
    Ok(begun.elapsed().as_secs_f64())
}

fn request_time(
    client: &mut Client,
    output: &str,
    _: &StopFlag,
) -> Result<Vec<Checked>, LiveError> {
    let (phase, delay) = (format!("0,0:{},0", PI / 2.0), format!("{DELAY},0:0,0"));
    let models = [("a phase", &phase[..]), ("a delay", &delay), ("none", NONE)];
    let figure = |(name, model)| {
        let took = set(client, output, unix_now(), [NONE, model])?;
        let name = format!("reply to ?delays for {name}");
        Ok(Checked::at_most(name, took, ANSWER, "s"))
    };
    models.into_iter().map(figure).collect()
}

/// Delay, rate, phase and its rate, as the sensor of an input has them.
fn shown(client: &mut Client, output: &str, pol: usize) -> Result<[f64; 4], LiveError> {
    let sensor = format!("{output}.input{pol}.delay");
    let report = client.sensor_value(&sensor)?;
    let text = report.text().into_owned();
    let inner = text.trim().strip_prefix('(');
    let inner = inner.and_then(|text| text.strip_suffix(')'));
    let parts = inner.unwrap_or_default().split(',');
    let parts: Option<Vec<f64>> = parts.map(|part| parse_float(part.trim())).collect();
    match parts.as_deref() {
        Some(&[_, delay, rate, phase, phase_rate]) => Ok([delay, rate, phase, phase_rate]),
        _ => Err(LiveError::Model { sensor, text }),
    }
}

/// The largest part of a value by which one differs from what it should be.
fn off(found: [f64; 4], wanted: [f64; 4]) -> f64 {
    let parts = found.iter().zip(wanted);
    largest(parts.map(|(found, wanted)| (found - wanted) / wanted))
}

fn delay_sensors(
    client: &mut Client,
    output: &str,
    stop: &StopFlag,
) -> Result<Vec<Checked>, LiveError> {
    let mut dice = ChaCha8Rng::seed_from_u64(31);
    let models = [0, 1].map(|_| {
        let limits = [DELAY, RATE, PI, PHASE_RATE];
        limits.map(|limit| dice.random_range(-limit..limit))
    });
    let text = models.map(|[delay, rate, phase, turn]| format!("{delay},{rate}:{phase},{turn}"));
    let at = unix_now() + AHEAD;
    set(client, output, at, [&text[0], &text[1]])?;
    let (mut early, mut asked) = (0, 0);
    let mut seen = BTreeMap::new();
    while seen.len() < models.len() {
        for (pol, &model) in models.iter().enumerate() {
            let error = off(shown(client, output, pol)?, model);
            let now = unix_now();
            asked += usize::from(now < at);
            // About the same, whatever its precision is.
            if error < 1e-3 {
                early += usize::from(now < at);
                seen.entry(pol).or_insert((error, now - at));
            }
        }
        if stop.is_set() {
            return Err(LiveError::Interrupted);
        }
        if unix_now() > at + BEHIND {
            return Err(LiveError::Late);
        }
        thread::sleep(ASK);
    }
    let error = largest(seen.values().map(|seen| seen.0));
    let behind = seen.values().map(|seen| seen.1).fold(f64::MIN, f64::max);
    Ok(vec![
        Checked::at_most(
            format!("readings of {asked} that have a model before its time"),
            early as f64,
            0.0,
            "",
        ),
        Checked::at_most("largest part by which a value is off", error, PRECISION, ""),
        Checked::told("sensors behind the time of the models", behind, "s"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sensor may say so of a part of a model.
    #[test]
    fn what_is_no_number_is_not_right() {
        let wanted = [1e-9, 2e-9, 0.5, -3.0];
        assert_eq!(off(wanted, wanted), 0.0);
        for part in 0..wanted.len() {
            let mut found = wanted;
            found[part] = f64::NAN;
            assert!(off(found, wanted).is_nan(), "{found:?}");
        }
    }
}
