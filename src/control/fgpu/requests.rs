//! `?gain`, `?gain-all`, `?delays`, and Karoo's own: from a message to what is to be done, and
//! its answer.
//!
//! No clock, no network: `karoo replay --requests` uses the same.

use std::iter;

use dsp::delay::{DelayError, DelaySeconds, LinearDelay};
use dsp::level;
use ground::{N_POL, SampleClock};
use katcp::number::{format_complex, format_float, parse_complex};
use katcp::value::{excerpt, float, integer, string};
use katcp::{
    ArgumentError, Message, MessageBuilder, MessageKind, Parameters, RequestHelp, Response,
    ValueError,
};
use num_complex::Complex32;

use crate::engine::steer::{
    Applied, AskedDelays, Change, ControlHandle, EnqueueError, GainError, Gains, OutputHandle,
};
use crate::engine::{TestPattern, TestRequest};

/// The engine's own requests.
pub const HELP: &[RequestHelp] = &[
    RequestHelp {
        name: "delays",
        parameters: "stream start-time delay,rate:phase,phase-rate delay,rate:phase,phase-rate",
        summary: "Add a delay model per input, from a UNIX time on. Units: s, s/s, rad, rad/s; phase at the band centre.",
    },
    RequestHelp {
        name: "gain",
        parameters: "stream input [gain…]",
        summary: "Set or query the complex gains of one input: one for all channels, or one per channel.",
    },
    RequestHelp {
        name: "gain-all",
        parameters: "stream gain…|default",
        summary: "Set the complex gains of both inputs: one for all channels, one per channel, or those of the start.",
    },
    RequestHelp {
        name: "karoo-auto-gain",
        parameters: "stream [rms]",
        summary: "Set the gains of both inputs so that real and imaginary parts of each channel have this rms, in counts. Replies it, and the efficiency of quantisation.",
    },
    RequestHelp {
        name: "karoo-test",
        parameters: "stream ramp|constant|feng|off [seconds]",
        summary: "Send known values in place of spectra, for 60 s unless told otherwise.",
    },
];

/// A request that an engine cannot do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// An argument is missing, there are too many, or one cannot be read.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// There is no such request.
    #[error("unknown request {0}: requests of an engine are {requests}", requests = names())]
    Unknown(String),
    /// No output has this name.
    #[error("no output stream called '{given}': there is {there}")]
    Stream {
        /// The name.
        given: String,
        /// The names of all.
        there: String,
    },
    /// There is no such input.
    #[error("input {0} is out of range: it must be 0 or 1")]
    Input(i64),
    /// A gain cannot be read.
    #[error("gain of channel {channel}: {source}")]
    Gain {
        /// Whose, or 0 if it is for all.
        channel: usize,
        /// Why not.
        source: ValueError,
    },
    /// The gains cannot be used.
    #[error(transparent)]
    Gains(#[from] GainError),
    /// A model does not read as one.
    #[error("model of input {input}: {source}")]
    Model {
        /// Whose.
        input: usize,
        /// Why not.
        source: ValueError,
    },
    /// A model cannot be used.
    #[error("model of input {input}: {source}")]
    Delay {
        /// Whose.
        input: usize,
        /// Why not.
        source: DelayError,
    },
    /// Such a level cannot be had.
    #[error(
        "rms {rms:?}: must be at least {least} and below {limit}, the largest value; {best:.1} is good for noise",
        least = level::LEAST_RMS
    )]
    Rms {
        /// What was asked for.
        rms: f64,
        /// The quantiser's limit.
        limit: f32,
        /// What would be good.
        best: f64,
    },
    /// Gains by level, asked of an engine that has not begun.
    #[error(
        "no statistics of '{output}': requests of a replay are read before it begins; --gain auto makes gains of the capture's level, and an engine's log has those that came of this request, of many channels as debug messages"
    )]
    NoInput {
        /// Stream name.
        output: String,
    },
    /// Nothing says how high levels are.
    #[error(
        "no statistics of '{output}' with its present gains: they come with each period of input (--statistics-period)"
    )]
    NoStatistics {
        /// Stream name.
        output: String,
    },
    /// There is nothing to make louder.
    #[error(
        "no channel of '{output}' has power and a gain that is not 0: does the digitiser send zeros? ?gain-all {output} default sets gains anew"
    )]
    NothingToLevel {
        /// Stream name.
        output: String,
    },
    /// A pattern is to last too long, or not at all.
    #[error("{0} seconds: a test lasts more than 0 and at most 3600, and can be asked for again")]
    TestSeconds(f64),
    /// The engine cannot take it.
    #[error(transparent)]
    Steer(#[from] EnqueueError),
}

/// What a request asks of an engine. All its values have been checked.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Tell the gains of an input.
    QueryGains {
        /// Index of the output.
        output: usize,
        /// Input, which is a polarisation.
        pol: usize,
    },
    /// Set the gains of an input, or of both.
    SetGains {
        /// Index of the output.
        output: usize,
        /// Input; `None` for both.
        pol: Option<usize>,
        /// The gains.
        gains: Gains,
    },
    /// Add delay models.
    SetDelays {
        /// Index of the output.
        output: usize,
        /// One per input.
        models: [LinearDelay; N_POL],
        /// What they were made of.
        asked: AskedDelays,
    },
    /// Set gains that give each channel this level.
    LevelGains {
        /// Index of the output.
        output: usize,
        /// Of real and imaginary parts, in counts.
        rms: f64,
    },
    /// Send a test pattern, or no longer.
    Test {
        /// Index of the output.
        output: usize,
        /// What, and for how long.
        test: Option<TestRequest>,
    },
}

/// Seconds that a test pattern is sent unless told otherwise, and at most.
const TEST_SECONDS: (f64, f64) = (60.0, 3600.0);

fn names() -> String {
    let names: Vec<_> = HELP.iter().map(|help| help.name).collect();
    names.join(", ")
}

/// Understands a request. Changes nothing.
pub fn interpret(
    clock: SampleClock,
    steering: &ControlHandle,
    request: &Message<'_>,
) -> Result<Action, RequestError> {
    let mut parameters = Parameters::new(request);
    let mut stream = || {
        let name = parameters.required("stream", |name| string(name).map(str::to_owned))?;
        find(steering, &name)
    };
    match request.name() {
        "gain" => {
            let (output, steered) = stream()?;
            let input = parameters.required("input", integer)?;
            let pol = usize::try_from(input).ok().filter(|pol| *pol < N_POL);
            let pol = pol.ok_or(RequestError::Input(input))?;
            let values = parameters.rest();
            if values.len() == 0 {
                return Ok(Action::QueryGains { output, pol });
            }
            Ok(Action::SetGains {
                output,
                pol: Some(pol),
                gains: gains(steered.channels(), values)?,
            })
        }
        "gain-all" => {
            let (output, steered) = stream()?;
            let values = parameters.rest();
            let first = values.clone().next();
            let gains = match first.as_deref() {
                Some(b"default") if values.len() == 1 => steered.default_gains().clone(),
                _ => gains(steered.channels(), values)?,
            };
            let pol = None;
            Ok(Action::SetGains { output, pol, gains })
        }
        "delays" => {
            let (output, _) = stream()?;
            let start = parameters.required("start-time", float)?;
            let mut model = |input, name| {
                let text = parameters.required(name, |text| Ok(text.to_vec()))?;
                delay_model(clock, start, input, &text)
            };
            let [(x, asked_x), (y, asked_y)] =
                [model(0, "model of input 0")?, model(1, "model of input 1")?];
            parameters.end()?;
            Ok(Action::SetDelays {
                output,
                models: [x, y],
                asked: AskedDelays {
                    start_time: start,
                    models: [asked_x, asked_y],
                },
            })
        }
        "karoo-auto-gain" => {
            let (output, steered) = stream()?;
            let (bits, dither) = steered.quantiser();
            let rms = parameters.optional("rms", float)?;
            parameters.end()?;
            let (limit, best) = (bits.limit(), level::best_rms(bits, dither));
            let rms = rms.unwrap_or(best);
            if !(level::LEAST_RMS..f64::from(limit)).contains(&rms) {
                return Err(RequestError::Rms { rms, limit, best });
            }
            Ok(Action::LevelGains { output, rms })
        }
        "karoo-test" => {
            let (output, _) = stream()?;
            let pattern = parameters.required("pattern", test_pattern)?;
            let seconds = parameters.optional("seconds", float)?;
            parameters.end()?;
            let (usual, most) = TEST_SECONDS;
            let seconds = seconds.unwrap_or(usual);
            if !(seconds > 0.0 && seconds <= most) {
                return Err(RequestError::TestSeconds(seconds));
            }
            let samples = (seconds * clock.adc_sample_rate).round().max(1.0) as u64;
            let test = pattern.map(|pattern| TestRequest { pattern, samples });
            Ok(Action::Test { output, test })
        }
        name => Err(RequestError::Unknown(excerpt(name.as_bytes()))),
    }
}

fn test_pattern(text: &[u8]) -> Result<Option<TestPattern>, ValueError> {
    let name = string(text)?;
    if name == "off" {
        return Ok(None);
    }
    let pattern = name.parse();
    let pattern = pattern.map_err(|_| ValueError::new(text, "ramp, constant, feng or off"));
    pattern.map(Some)
}

fn find<'s>(
    steering: &'s ControlHandle,
    name: &str,
) -> Result<(usize, &'s OutputHandle), RequestError> {
    let outputs = steering.outputs();
    let found = outputs.iter().position(|output| output.name() == name);
    let index = found.ok_or_else(|| RequestError::Stream {
        given: excerpt(name.as_bytes()),
        there: outputs
            .iter()
            .map(OutputHandle::name)
            .collect::<Vec<_>>()
            .join(", "),
    })?;
    Ok((index, &outputs[index]))
}

fn gains<'a>(
    channels: usize,
    values: impl ExactSizeIterator<Item = std::borrow::Cow<'a, [u8]>>,
) -> Result<Gains, RequestError> {
    let given = values.len();
    // Before anything is read: a line may have millions.
    if given != 1 && given != channels {
        return Err(GainError::Count { given, channels }.into());
    }
    let mut gains = Vec::with_capacity(given);
    for (channel, text) in values.enumerate() {
        let gain = std::str::from_utf8(&text).ok().and_then(parse_complex);
        let gain = gain.ok_or_else(|| RequestError::Gain {
            channel,
            source: ValueError::new(&text, "a complex number such as 0.5-2j"),
        })?;
        gains.push(Complex32::new(gain.re as f32, gain.im as f32));
    }
    Ok(Gains::new(channels, &gains)?)
}

/// The model, and its four numbers as they are in `text`.
fn delay_model(
    clock: SampleClock,
    start: f64,
    input: usize,
    text: &[u8],
) -> Result<(LinearDelay, [f64; 4]), RequestError> {
    let malformed = || RequestError::Model {
        input,
        source: ValueError::new(text, "delay,rate:phase,phase-rate in s, s/s, rad, rad/s"),
    };
    let halves = string(text).ok().and_then(|text| text.split_once(':'));
    let (delay, phase) = halves.ok_or_else(malformed)?;
    let pair = |half: &str| {
        let (value, rate) = half.split_once(',').ok_or_else(malformed)?;
        let number = |text: &str| {
            float(text.as_bytes()).map_err(|source| RequestError::Model { input, source })
        };
        Ok::<_, RequestError>((number(value)?, number(rate)?))
    };
    let ((delay, rate), (phase, phase_rate)) = (pair(delay)?, pair(phase)?);
    let asked = [delay, rate, phase, phase_rate];
    let seconds = DelaySeconds {
        start_time: start,
        delay,
        rate,
        phase,
        phase_rate,
    };
    let model = LinearDelay::from_seconds(clock, seconds)
        .map_err(|source| RequestError::Delay { input, source })?;
    Ok((model, asked))
}

/// What an engine `applied` to `stream`, as lines for `karoo replay --requests` that have the same
/// effect. Delays that no client asked for have none.
pub fn replay_lines(stream: &str, applied: &Applied, clock: SampleClock) -> Vec<String> {
    let line = |name: &str, arguments: Vec<String>| {
        let line = MessageBuilder::new(MessageKind::Request, name, None).argument(stream);
        let line = arguments
            .iter()
            .fold(line, MessageBuilder::argument)
            .finish();
        let line = String::from_utf8_lossy(line.trim_ascii_end());
        format!("{} {line}", applied.from.0)
    };
    let values = |gains: &Gains| -> Vec<_> {
        let values = gains.values().iter();
        values.map(|gain| format_complex(*gain)).collect()
    };
    match &applied.change {
        Change::Gains([Some(x), Some(y)]) if x == y => vec![line("gain-all", values(x))],
        Change::Gains(gains) => {
            let given = gains.iter().enumerate();
            let given = given.filter_map(|(pol, gains)| Some((pol, gains.as_ref()?)));
            let lines = given
                .map(|(pol, gains)| line("gain", [vec![pol.to_string()], values(gains)].concat()));
            lines.collect()
        }
        Change::Test(None) => vec![line("karoo-test", vec!["off".to_owned()])],
        Change::Test(Some(test)) => {
            let seconds = format_float(test.samples as f64 / clock.adc_sample_rate);
            vec![line("karoo-test", vec![test.pattern.to_string(), seconds])]
        }
        Change::Delays { asked, .. } => {
            let lines = asked.iter().map(|asked| {
                let model = |numbers: &[f64; 4]| {
                    let [delay, rate, phase, phase_rate] = numbers.map(format_float);
                    format!("{delay},{rate}:{phase},{phase_rate}")
                };
                let models = asked.models.iter().map(model);
                let start = iter::once(format_float(asked.start_time));
                line("delays", start.chain(models).collect())
            });
            lines.collect()
        }
    }
}

impl Action {
    /// Index of the output that it is about.
    pub fn output(&self) -> usize {
        match self {
            Self::QueryGains { output, .. }
            | Self::SetGains { output, .. }
            | Self::SetDelays { output, .. }
            | Self::LevelGains { output, .. }
            | Self::Test { output, .. } => *output,
        }
    }

    /// Does it, and adds what there is to say to `response`. `steering` is that for which it was
    /// interpreted, perhaps [at](ControlHandle::at) some timestamp.
    pub fn perform(
        &self,
        steering: &ControlHandle,
        response: &mut Response,
    ) -> Result<(), RequestError> {
        let output = &steering.outputs()[self.output()];
        match self {
            Self::QueryGains { pol, .. } => {
                let gains = output.gains(*pol).ok_or(EnqueueError::Input(*pol))?;
                for gain in gains.values() {
                    response.argument(format_complex(*gain));
                }
            }
            Self::SetGains { pol, gains, .. } => {
                match pol {
                    Some(pol) => output.set_gains(*pol, gains.clone())?,
                    None => output.set_all_gains(gains.clone())?,
                };
                if gains.are_zero() {
                    let input = pol.map_or("0 and 1".to_owned(), |pol| pol.to_string());
                    tracing::warn!(
                        stream = output.name(),
                        input,
                        "gain 0: all that is sent will be zero, but for dither"
                    );
                }
            }
            Self::SetDelays { models, asked, .. } => {
                output.set_asked_delays(*models, *asked)?;
            }
            Self::LevelGains { rms, .. } => {
                let statistics = output.statistics_with_gains();
                let statistics = statistics.ok_or_else(|| RequestError::NoStatistics {
                    output: output.name().to_owned(),
                })?;
                let of = |pol| output.gains(pol).ok_or(EnqueueError::Input(pol));
                let before = [of(0)?, of(1)?];
                let levelled = statistics.level_gains([before[0].each(), before[1].each()], *rms);
                if levelled.iter().all(Option::is_none) {
                    return Err(RequestError::NothingToLevel {
                        output: output.name().to_owned(),
                    });
                }
                let mut gains = [None, None];
                for (pol, levelled) in levelled.iter().enumerate() {
                    match levelled {
                        Some(levelled) => {
                            gains[pol] = Some(Gains::new(output.channels(), levelled)?);
                        }
                        None => tracing::warn!(
                            stream = output.name(),
                            input = pol,
                            "an input keeps its gains: no channel has power and a gain that is not 0"
                        ),
                    }
                }
                output.change_gains(gains)?;
                let (bits, dither) = output.quantiser();
                let noise = level::quantised_noise(*rms, bits, dither);
                response.argument(format_float(*rms));
                response.argument(format_float(noise.efficiency));
            }
            Self::Test { test, .. } => {
                output.set_test(*test)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
