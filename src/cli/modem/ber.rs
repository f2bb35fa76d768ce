//! `karoo modem ber`.

use std::fs;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use clap::Args;
use karoo_modem::channel::{ChannelSettings, Profile};
use karoo_modem::rx::{ModeVote, RxConfig};
use karoo_modem::theory::{mode_error_rate, required_eb_n0};
use karoo_modem::trials::{Trial, TrialError, TrialResult};
use karoo_modem::waveform::Modulation;
use schemars::JsonSchema;
use serde::Serialize;

use super::algorithms::{self, Algorithms};
use super::samples;
use crate::cli::Failure;
use crate::config::units::hertz;
use crate::report::error_rates::{MeasuredRate, error_rates_svg};
use crate::report::{Documented, to_json};

/// Samples of delay before the signal, besides a random part of a symbol.
const DELAY: f64 = 500.0;
/// Points of a curve, at most.
const MOST_POINTS: usize = 200;

#[derive(Debug, Args)]
#[command(next_help_heading = "Trials")]
pub struct BerArgs {
    /// Modulation, bpsk, qpsk, qam16, qam64 or qam256; may be given again [default: all that the
    /// original has]
    #[arg(short, long = "mod", value_name = "MODULATION", value_parser = Modulation::from_str)]
    modulations: Vec<Modulation>,
    /// Eb/N0 in dB: numbers, or ranges in steps of 1 such as 4:9, with commas between [default: as
    /// far as theory has error rates of 1e-2 to 1e-5]
    #[arg(long, value_name = "DB", allow_hyphen_values = true, value_parser = ratios)]
    eb_n0: Option<Ratios>,
    /// Wrong bits after which a point is done
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    errors: u64,
    /// Frames after which a point is done
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    frames: u64,
    /// Seed of payloads, delays, phases and noise
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// Threads, each at another point [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Samples per second, by which the frequency offset is meant
    #[arg(long, value_name = "HZ", default_value = "80M", value_parser = samples::rate, help_heading = "Channel")]
    sample_rate: f64,
    /// Carrier frequency offset
    #[arg(long, value_name = "HZ", default_value = "0", allow_hyphen_values = true, value_parser = hertz, help_heading = "Channel")]
    frequency: f64,
    /// Error of the sample clock in parts per million
    #[arg(
        long,
        value_name = "PPM",
        default_value_t = 0.0,
        allow_negative_numbers = true,
        help_heading = "Channel"
    )]
    clock: f64,
    /// Paths by name: none, manual or cost207RAx4
    #[arg(long, value_name = "NAME", default_value_t = Profile::None, value_parser = Profile::from_str, help_heading = "Channel")]
    profile: Profile,
    /// Taps of the receiver's equaliser: a multiple of 8, from 8 to 128
    #[arg(
        long,
        value_name = "N",
        default_value_t = 16,
        help_heading = "Receiver"
    )]
    taps: usize,
    #[command(flatten, next_help_heading = "Receiver")]
    algorithms: Algorithms,
    /// Read the modulation by the original's majority instead of soft values
    #[arg(long, help_heading = "Receiver")]
    majority: bool,
    /// Print JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Draw the points on theory's curves, as SVG
    #[arg(long, value_name = "FILE.svg", help_heading = "Output")]
    svg: Option<PathBuf>,
}

/// Ratios of energy to noise density in dB.
#[derive(Clone, Debug)]
struct Ratios(Vec<f64>);

fn ratios(text: &str) -> Result<Ratios, String> {
    let number = |text: &str| -> Result<f64, String> {
        let value: f64 = text
            .trim()
            .parse()
            .map_err(|_| format!("`{text}` is no number"))?;
        match (-30.0..=60.0).contains(&value) {
            true => Ok(value),
            false => Err("it must be -30 to 60 dB".to_owned()),
        }
    };
    let mut ratios = Vec::new();
    for part in text.split(',') {
        match part.split_once(':') {
            None => ratios.push(number(part)?),
            Some((from, to)) => {
                let (from, to) = (number(from)?, number(to)?);
                let steps = (to - from).floor() as i32;
                if steps < 0 {
                    return Err(format!(
                        "`{part}` has its larger end first; try {to}:{from}"
                    ));
                }
                ratios.extend((0..=steps).map(|step| from + f64::from(step)));
            }
        }
    }
    match ratios.len() <= MOST_POINTS {
        true => Ok(Ratios(ratios)),
        false => Err(format!("at most {MOST_POINTS} points")),
    }
}

/// Whole decibels at which theory has error rates of 10⁻² to 10⁻⁵.
fn usual(modulation: Modulation) -> Vec<f64> {
    let ends = [1e-2, 1e-5].map(|rate| required_eb_n0(modulation, rate));
    let (from, to) = (ends[0].ceil() as i32, ends[1].floor() as i32);
    (from..=to).map(f64::from).collect()
}

/// A point of a curve.
#[derive(Debug, Serialize, JsonSchema)]
struct Point {
    modulation: Modulation,
    eb_n0_db: f64,
    #[serde(flatten)]
    result: TrialResult,
    /// Decibels that a perfect receiver needs less; none without errors.
    loss_db: Option<f64>,
    /// Frames whose modulation a perfect receiver reads wrongly, of those that were found.
    mode_expected: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Curves<'a> {
    points: &'a [Point],
}

impl Documented for Curves<'_> {
    const NAME: &'static str = "modem-ber";
    const TITLE: &'static str = "What karoo modem ber --json measured";
}

impl BerArgs {
    fn trials(&self) -> Vec<Trial> {
        let modulations = match self.modulations.is_empty() {
            true => Modulation::CYCLOPS.to_vec(),
            false => self.modulations.clone(),
        };
        let trial = |modulation: Modulation, eb_n0_db: f64| Trial {
            modulation,
            eb_n0_db,
            channel: ChannelSettings {
                delay: DELAY,
                clock_ppm: self.clock,
                frequency: self.frequency / self.sample_rate,
                paths: self.profile.paths(),
                ..ChannelSettings::default()
            },
            receiver: RxConfig {
                acquisition: self.algorithms.acquisition(),
                equaliser: self.algorithms.equaliser(),
                taps: self.taps,
                vote: match self.majority {
                    true => ModeVote::Majority,
                    false => ModeVote::Soft,
                },
                ..RxConfig::default()
            },
            frames: self.frames,
            errors: self.errors,
            seed: self.seed,
        };
        let of = |modulation: Modulation| {
            let ratios = match &self.eb_n0 {
                Some(ratios) => ratios.0.clone(),
                None => usual(modulation),
            };
            let points = ratios
                .into_iter()
                .map(move |ratio| trial(modulation, ratio));
            points.collect::<Vec<_>>()
        };
        modulations.into_iter().flat_map(of).collect()
    }
}

fn point(trial: &Trial, result: TrialResult) -> Point {
    let es_n0_db = trial.eb_n0_db + 10.0 * (trial.modulation.bits() as f64).log10();
    let found = (result.sent - result.lost) as f64;
    let needed = || trial.eb_n0_db - required_eb_n0(trial.modulation, result.rate);
    Point {
        modulation: trial.modulation,
        eb_n0_db: trial.eb_n0_db,
        loss_db: (result.errors > 0).then(needed),
        mode_expected: found * mode_error_rate(trial.receiver.vote, es_n0_db),
        result,
    }
}

fn print(point: &Point) {
    let result = &point.result;
    let interval = match &result.interval {
        Some(interval) => format!("{:.1e} to {:.1e}", interval.low, interval.high),
        None => "none".to_owned(),
    };
    let loss = match point.loss_db {
        Some(loss) => format!("{loss:.2}"),
        None => "none".to_owned(),
    };
    println!(
        "{:10} {:6.1} {:11} {:7} {:9.2e} {interval:>18} {:9.2e} {loss:>5} {:6} {:4} {:5} {:8.1}",
        point.modulation,
        point.eb_n0_db,
        result.bits,
        result.errors,
        result.rate,
        result.theory,
        result.sent,
        result.lost,
        result.wrong_mode,
        point.mode_expected,
    );
}

/// Runs trials on threads, and gives points in their order as soon as there are all before them.
fn measure(
    trials: &[Trial],
    threads: usize,
    mut done: impl FnMut(&Point),
) -> Result<Vec<Point>, TrialError> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let mut points = Vec::new();
    thread::scope(|scope| {
        for _ in 0..threads.min(trials.len()) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some((number, trial)) = {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    trials.get(number).map(|trial| (number, trial))
                } {
                    // Nobody receives any more if a trial failed.
                    if sender.send((number, trial.run())).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut early = std::collections::BTreeMap::new();
        for (number, result) in receiver {
            early.insert(number, result);
            while let Some(result) = early.remove(&points.len()) {
                let point = point(&trials[points.len()], result?);
                done(&point);
                points.push(point);
            }
        }
        Ok(points)
    })
}

/// Runs the command.
pub fn run(args: &BerArgs) -> Result<(), Failure> {
    let trials = args.trials();
    if let Some(trial) = trials.first() {
        trial.channel.check().map_err(Failure::usage)?;
        trial.receiver.check().map_err(algorithms::refused)?;
    }
    let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get());
    let threads = args.threads.map_or(cpus, usize::from);
    if !args.json {
        println!(
            "{:10} {:>6} {:>11} {:>7} {:>9} {:>18} {:>9} {:>5} {:>6} {:>4} {:>5} {:>8}",
            "modulation",
            "Eb/N0",
            "bits",
            "wrong",
            "rate",
            "95 % interval",
            "theory",
            "loss",
            "frames",
            "lost",
            "mode",
            "expected",
        );
    }
    let shown = |point: &Point| {
        if !args.json {
            print(point);
        }
    };
    let points = measure(&trials, threads, shown).map_err(Failure::data)?;
    if args.json {
        let curves = Curves { points: &points };
        let json = to_json(&curves).map_err(Failure::data)?;
        println!("{json}");
    }
    let Some(path) = &args.svg else {
        return Ok(());
    };
    let measured = points.iter().filter_map(|point| {
        let interval = point.result.interval?;
        Some(MeasuredRate {
            modulation: point.modulation,
            eb_n0_db: point.eb_n0_db,
            rate: point.result.rate,
            interval: (interval.low, interval.high),
        })
    });
    let measured: Vec<_> = measured.collect();
    let Some(svg) = error_rates_svg(&measured) else {
        let why = format!(
            "--svg {}: no frame was found: nothing to draw",
            path.display()
        );
        return Err(Failure::data(why));
    };
    let failed = |error| Failure::data(format!("--svg {}: {error}", path.display()));
    fs::write(path, svg).map_err(failed)
}
