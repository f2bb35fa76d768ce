//! `karoo modem ber`.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::Instant;

use clap::Args;
use ground::files::write_whole;
use karoo_modem::channel::{ChannelSettings, Fading, Profile};
use karoo_modem::rx::{Acquisition, Equaliser, ModeVote, RxConfig};
use karoo_modem::theory::required_eb_n0;
use karoo_modem::trials::{Trial, TrialPoint, run_trials};
use karoo_modem::waveform::Modulation;
use schemars::JsonSchema;
use serde::Serialize;

use super::algorithms::{self, Algorithms};
use super::channel::{self, FrontEndOptions, Given};
use super::samples;
use crate::cli::numbers::number_within;
use crate::cli::{Failure, Files, NewFile, make_folder, print_json};
use crate::config::units::hertz;
use crate::report::Documented;
use crate::report::error_rates::error_rates_svg;
use crate::report::modem::{RatesRun, bit_rates, write_rates};

/// Samples of delay before the signal, besides a random part of a symbol.
const DELAY: f64 = 500.0;
/// Bits after which a point is done where nothing else says so.
const MOST_BITS: u64 = 100_000_000;
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
    /// Points where theory has these bit error rates, in place of --eb-n0
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "eb_n0", value_parser = rate, allow_negative_numbers = true)]
    rates: Vec<f64>,
    /// Wrong bits after which a point is done; 0 waits for --bits or --frames whatever is wrong
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        allow_negative_numbers = true
    )]
    errors: u64,
    /// Bits after which a point is done [default: 1e8, or any number with --frames]
    #[arg(long, value_name = "N", value_parser = bits, allow_negative_numbers = true)]
    bits: Option<u64>,
    /// Frames after which a point is done [default: as many as have the bits]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true)]
    frames: Option<u64>,
    /// Seed of payloads, delays, phases and noise
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    seed: u64,
    /// Threads, each at another point [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), allow_negative_numbers = true)]
    threads: Option<u16>,
    /// Samples per second, by which the frequency offset is meant
    #[arg(long, value_name = "HZ", default_value = "80M", value_parser = samples::rate, help_heading = "Channel", allow_negative_numbers = true)]
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
    /// A path: samples of delay, gain in dB, and phase in degrees; may be given again
    #[arg(long, value_name = "DELAY:DB[:DEGREES]", value_parser = channel::path, conflicts_with = "profile", help_heading = "Channel")]
    path: Vec<karoo_modem::channel::Path>,
    /// Rayleigh fading of each path, with this greatest Doppler frequency
    #[arg(long, value_name = "HZ", value_parser = hertz, allow_hyphen_values = true, help_heading = "Channel")]
    doppler: Option<f64>,
    #[command(flatten, next_help_heading = "Channel")]
    front_end: FrontEndOptions,
    /// Taps of the receiver's equaliser: a multiple of 8, from 8 to 128
    #[arg(
        long,
        value_name = "N",
        default_value_t = 16,
        help_heading = "Receiver",
        allow_negative_numbers = true
    )]
    taps: usize,
    #[command(flatten, next_help_heading = "Receiver")]
    algorithms: Algorithms,
    /// Print JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Draw the points on theory's curves, as SVG
    #[arg(long, value_name = "FILE.svg", help_heading = "Output")]
    svg: Option<PathBuf>,
    /// Folder for report.html, a page with curves and tables
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    report: Option<PathBuf>,
}

/// Ratios of energy to noise density in dB.
#[derive(Clone, Debug)]
struct Ratios(Vec<f64>);

fn ratios(text: &str) -> Result<Ratios, String> {
    let number = |text: &str| {
        let rule = "it must be -30 to 60 dB, such as 6 or 0:8";
        number_within(text.trim(), -30.0..=60.0, rule)
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

fn bits(text: &str) -> Result<u64, String> {
    let bits = number_within(text, 1.0..=1e15, "it must be 1 to 1e15, such as 1e8")?;
    Ok(bits.round() as u64)
}

fn rate(text: &str) -> Result<f64, String> {
    number_within(text, 1e-12..=0.4, "it must be 1e-12 to 0.4, such as 1e-5")
}

/// Eb/N0 in dB of a rate that an option may have.
fn needed(modulation: Modulation, rate: f64) -> f64 {
    required_eb_n0(modulation, rate).expect("rates of 1e-12 to 0.4 are within theory")
}

/// Whole decibels at which theory has error rates of 10⁻² to 10⁻⁵.
fn usual(modulation: Modulation) -> Vec<f64> {
    let ends = [1e-2, 1e-5].map(|rate| needed(modulation, rate));
    let (from, to) = (ends[0].ceil() as i32, ends[1].floor() as i32);
    (from..=to).map(f64::from).collect()
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Curves<'a> {
    points: &'a [TrialPoint],
}

impl Documented for Curves<'_> {
    const NAME: &'static str = "modem-ber";
    const TITLE: &'static str = "What karoo modem ber --json measured";
}

impl BerArgs {
    /// Frames after which a point is done, however few bits are wrong.
    fn most_frames(&self, modulation: Modulation) -> u64 {
        let of = |bits: u64| bits.div_ceil(8 * modulation.body_bytes() as u64);
        match (self.bits, self.frames) {
            (None, None) => of(MOST_BITS),
            (None, Some(frames)) => frames,
            (Some(bits), frames) => of(bits).min(frames.unwrap_or(u64::MAX)),
        }
    }

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
                paths: channel::paths(&self.path, self.profile, self.doppler.is_some()),
                fading: self.doppler.map(|doppler| Fading {
                    doppler: doppler / self.sample_rate,
                }),
                iq: self.front_end.iq(),
                dc: self.front_end.dc(),
                ..ChannelSettings::default()
            },
            receiver: RxConfig {
                taps: self.taps,
                ..self.algorithms.config()
            },
            frames: self.most_frames(modulation),
            errors: match self.errors {
                0 => u64::MAX,
                errors => errors,
            },
            seed: self.seed,
        };
        let of = |modulation: Modulation| {
            let at = |rate: &f64| needed(modulation, *rate);
            let ratios = match &self.eb_n0 {
                Some(ratios) => ratios.0.clone(),
                None if self.rates.is_empty() => usual(modulation),
                None => self.rates.iter().map(at).collect(),
            };
            let points = ratios
                .into_iter()
                .map(move |ratio| trial(modulation, ratio));
            points.collect::<Vec<_>>()
        };
        modulations.into_iter().flat_map(of).collect()
    }
}

fn print(point: &TrialPoint) {
    let result = &point.result;
    let interval = match &result.interval {
        Some(interval) => format!("{:.1e} to {:.1e}", interval.low, interval.high),
        None => "none".to_owned(),
    };
    let loss = match (point.loss_db, point.loss_interval_db) {
        (Some(loss), Some(ends)) => format!("{loss:.2} ({:.2} to {:.2})", ends.low, ends.high),
        (Some(loss), None) => format!("{loss:.2}"),
        (None, _) if result.errors > 0 => "beyond theory".to_owned(),
        (None, _) => "none".to_owned(),
    };
    println!(
        "{:10} {:6.2} {:11} {:7} {:9.2e} {interval:>18} {:9.2e} {loss:>21} {:6} {:4} {:5} {:8.1}",
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

impl BerArgs {
    /// Whether there is nothing but white noise, which theory is of.
    fn is_white(&self) -> bool {
        let straight = self.profile == Profile::None && self.path.is_empty();
        straight && self.doppler.is_none() && self.front_end.words().is_none()
    }

    /// Channel and receiver, in words.
    fn setting(&self) -> String {
        let vote = match self.algorithms.vote() {
            ModeVote::Majority => "majority of the mode's copies",
            ModeVote::Soft => "soft values of the mode",
        };
        let mut setting = format!(
            "carrier {} Hz of {} Msample/s · clock {} ppm · paths {} · {} taps · {vote}",
            self.frequency,
            self.sample_rate / 1e6,
            self.clock,
            match self.path.len() {
                0 => self.profile.to_string(),
                paths => format!("{paths} of their own"),
            },
            self.taps,
        );
        if let Some(doppler) = self.doppler {
            setting += &format!(" · fading of {doppler} Hz");
        }
        if let Acquisition::Original { feedback } = self.algorithms.acquisition() {
            setting += &format!(" · the original's acquisition, {feedback} samples of feedback");
        }
        if self.algorithms.equaliser() == Equaliser::Lms {
            setting += " · least mean squares";
        }
        if self.algorithms.step > 0.0 {
            setting += &format!(" · steps of at most {}", self.algorithms.step);
        }
        if let Some(faults) = self.front_end.words() {
            setting += &format!(" · {faults}");
        }
        if self.algorithms.correct {
            setting += " · DC and IQ imbalance taken off";
        }
        setting
    }

    fn write_report(&self, dir: &Path, seconds: f64, points: &[TrialPoint]) -> Result<(), Failure> {
        let run = RatesRun {
            setting: self.setting(),
            white: self.is_white(),
            vote: self.algorithms.vote(),
            seconds,
        };
        write_rates(dir, &run, points).map_err(Failure::data)
    }
}

/// A picture that is to be drawn.
struct Picture<'a>(&'a Path);

impl<'a> Picture<'a> {
    /// Tries its path before the trials, so that a wrong one is refused at once.
    fn new(path: &'a Path) -> Result<Picture<'a>, Failure> {
        const OTHERS: [&str; 6] = ["png", "jpg", "jpeg", "gif", "pdf", "eps"];
        let end = path.extension().and_then(|end| end.to_str());
        let end = end.map(str::to_ascii_lowercase);
        if end.is_some_and(|end| OTHERS.contains(&end.as_str())) {
            let name = path.with_extension("svg");
            return Err(Failure::usage(format!(
                "--svg {}: it is written as SVG; name it {}",
                path.display(),
                name.display()
            )));
        }
        let failed = |error| Failure::usage(format!("--svg {}: {error}", path.display()));
        NewFile::check(path).map_err(failed)?;
        Ok(Picture(path))
    }

    fn draw(self, points: &[TrialPoint]) -> Result<(), Failure> {
        let failed =
            |why: &dyn Display| Failure::data(format!("--svg {}: {why}", self.0.display()));
        let Some(svg) = error_rates_svg(&bit_rates(points)) else {
            return Err(failed(&"no frame was found: nothing to draw"));
        };
        write_whole(self.0, svg).map_err(|error| failed(&error))
    }
}

/// Runs the command.
pub fn run(args: &BerArgs) -> Result<(), Failure> {
    Files::default()
        .writes("--svg", args.svg.as_deref())
        .writes_into("--report", args.report.as_deref(), &["report.html"])
        .check()?;
    args.algorithms.check()?;
    let trials = args.trials();
    if let Some(trial) = trials.first() {
        let given = Given {
            sample_rate: args.sample_rate,
            frequency: args.frequency,
            doppler: args.doppler.unwrap_or_default(),
            ..Given::default()
        };
        let refused = |error| channel::refused(&error, &given);
        trial.channel.check().map_err(refused)?;
        trial.receiver.check().map_err(algorithms::refused)?;
    }
    if let Some(folder) = &args.report {
        make_folder("--report", folder)?;
    }
    let picture = args.svg.as_deref().map(Picture::new).transpose()?;
    let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get());
    let threads = args.threads.map_or(cpus, usize::from);
    if !args.json {
        println!(
            "{:10} {:>6} {:>11} {:>7} {:>9} {:>18} {:>9} {:>21} {:>6} {:>4} {:>5} {:>8}",
            "modulation",
            "Eb/N0",
            "bits",
            "wrong",
            "rate",
            "95 % interval",
            "theory",
            "loss, dB",
            "frames",
            "lost",
            "mode",
            "expected",
        );
    }
    let begun = Instant::now();
    let shown = |point: &TrialPoint| {
        if !args.json {
            print(point);
        }
    };
    let points = run_trials(&trials, threads, shown).map_err(Failure::data)?;
    if !args.json && !args.is_white() {
        println!("theory, and with it the loss, is of white noise alone");
    }
    if args.json {
        let curves = Curves { points: &points };
        print_json(&curves)?;
    }
    let drawn = picture.map_or(Ok(()), |picture| picture.draw(&points));
    if let Some(dir) = &args.report {
        args.write_report(dir, begun.elapsed().as_secs_f64(), &points)?;
    }
    drawn
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        ber: BerArgs,
    }

    /// A body of 256-QAM has 98 048 bits.
    #[test]
    fn a_point_has_the_frames_that_are_asked_for() {
        let rows: [(&[&str], u64); 5] = [
            (&[], 1020),
            (&["--frames", "10000"], 10_000),
            (&["--bits", "98049"], 2),
            (&["--frames", "2", "--bits", "1"], 1),
            (&["--frames", "2", "--bits", "1e12"], 2),
        ];
        for (options, frames) in rows {
            let line = ["ber", "--mod", "qam256", "--eb-n0", "20"];
            let line = Line::try_parse_from(line.iter().chain(options)).unwrap();
            assert_eq!(line.ber.trials()[0].frames, frames, "{options:?}");
        }
    }

    #[test]
    fn a_picture_is_no_file_before_there_is_something_to_draw() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("curves.svg");
        assert!(Picture::new(&path).unwrap().draw(&[]).is_err());
        assert!(!path.exists());
        assert!(Picture::new(&path.join("below")).is_err());
        let other = Picture::new(&folder.path().join("curves.PNG"))
            .err()
            .unwrap();
        assert!(other.to_string().contains("curves.svg"), "{other}");
    }
}
