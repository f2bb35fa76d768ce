//! `karoo modem rx`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::Instant;

use clap::{Args, ValueEnum};
use karoo_modem::formats::{FullScale, SampleFormat};
use karoo_modem::rx::{Counts, Level, ModeVote, Outcome, ReceivedFrame, Receiver, RxConfig};
use karoo_modem::waveform::{CheckField, ModeSet, Modulation, Scrambler};
use num_complex::Complex32;
use schemars::JsonSchema;
use serde::Serialize;

use super::algorithms::{Algorithms, refused};
use super::samples::{self, Input, is_standard};
use crate::cli::Failure;
use crate::report::modem::{ModemGatherer, ModemRun};
use crate::report::{Documented, to_json};

#[derive(Debug, Args)]
#[command(next_help_heading = "Samples")]
pub struct RxArgs {
    /// Samples, three a symbol: raw, or SigMF by the names .sigmf-meta and .sigmf-data; - is
    /// standard input
    #[arg(short, long, value_name = "FILE")]
    input: PathBuf,
    /// Format of samples: cf32 or ci16 [default: by the file's name, else cf32]
    #[arg(long, value_name = "FORMAT", value_parser = SampleFormat::from_str)]
    format: Option<SampleFormat>,
    /// Value that 32767 stands for in ci16 [default: what metadata say, else 4]
    #[arg(long, value_name = "VALUE", value_parser = samples::full_scale)]
    full_scale: Option<FullScale>,
    /// Samples per second, for frequencies in Hz [default: what metadata say]
    #[arg(long, value_name = "HZ", value_parser = samples::rate)]
    sample_rate: Option<f64>,
    /// Payloads, one behind the other: of each frame as many bytes as its header says; - is
    /// standard output
    #[arg(short, long, value_name = "FILE", help_heading = "Frames")]
    output: Option<PathBuf>,
    /// Write payloads of frames whose check field is wrong too
    #[arg(long, help_heading = "Frames")]
    keep_failed: bool,
    /// What check fields have; pad checks nothing
    #[arg(
        long,
        value_enum,
        value_name = "FIELD",
        default_value_t,
        help_heading = "Frames"
    )]
    check: Check,
    /// Take the scrambling of the original's demo off payloads
    #[arg(long, help_heading = "Frames")]
    scramble: bool,
    /// Expect the original's modulations alone, without 64-QAM
    #[arg(long, help_heading = "Frames")]
    cyclops: bool,
    /// Folder for report.html, a page with pictures
    #[arg(long, value_name = "DIR", help_heading = "Frames")]
    report: Option<PathBuf>,
    /// Print JSON, with all that is known of each frame
    #[arg(long, help_heading = "Frames")]
    json: bool,
    #[command(flatten, next_help_heading = "Receiver")]
    algorithms: Algorithms,
    /// Taps of the equaliser, one a symbol: a multiple of 8, from 8 to 128
    #[arg(
        long,
        value_name = "N",
        default_value_t = 16,
        help_heading = "Receiver"
    )]
    taps: usize,
    /// Step by which taps follow decisions, from 0 to 0.01; 0.0005 follows slow fading
    #[arg(
        long,
        value_name = "STEP",
        default_value_t = 0.0,
        help_heading = "Receiver"
    )]
    step: f32,
    /// How the modulation is read from its three copies
    #[arg(
        long,
        value_enum,
        value_name = "WAY",
        default_value_t,
        help_heading = "Receiver"
    )]
    vote: Vote,
    /// Threads that decode frames; 0 finds and decodes them on one thread [default: as many as
    /// there are CPUs, less one]
    #[arg(long, value_name = "N", help_heading = "Receiver")]
    threads: Option<usize>,
}

/// What check fields have.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Check {
    /// A checksum of header and payload
    #[default]
    Crc,
    /// Padding, as in the original's demo
    Pad,
}

/// How the modulation is read.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Vote {
    /// Values are added up before a decision
    #[default]
    Soft,
    /// The majority of decided bits, as in the original
    Majority,
}

/// A frame in JSON.
#[derive(Debug, Serialize, JsonSchema)]
struct FrameDone {
    /// Sample of its start, and what is left to the exact one.
    sample: u64,
    fraction: f64,
    mode: Modulation,
    /// Bytes of the payload that are used.
    bytes: usize,
    outcome: Outcome,
    check_passed: bool,
    kind: u8,
    source: u8,
    destination: u8,
    network: u16,
    snr_db: f64,
    evm: f64,
    /// Carrier offset in cycles per sample, and in Hz if the rate is known.
    cfo_cycles_per_sample: f64,
    cfo_hz: Option<f64>,
    clock_ppm: f64,
}

/// What was received.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Done {
    seconds: f64,
    bytes: u64,
    cut_bytes: u64,
    counts: Counts,
    frames: Vec<FrameDone>,
}

impl Documented for Done {
    const NAME: &'static str = "modem-rx";
    const TITLE: &'static str = "What karoo modem rx --json received";
}

/// Where frames go.
struct Sink<'a> {
    args: &'a RxArgs,
    output: Option<Box<dyn Write>>,
    gatherer: Option<ModemGatherer>,
    sample_rate: Option<f64>,
    bytes: u64,
    done: Vec<FrameDone>,
}

impl Sink<'_> {
    fn frames(&mut self, frames: &mut Vec<ReceivedFrame>) -> Result<(), Failure> {
        for mut frame in frames.drain(..) {
            if let Some(gatherer) = &mut self.gatherer {
                gatherer.frame(&frame);
            }
            if self.args.json {
                self.done.push(self.done(&frame));
            }
            let write = match frame.outcome {
                Outcome::Delivered => true,
                Outcome::Check => self.args.keep_failed,
                Outcome::Mode | Outcome::Length => false,
            };
            if !write {
                continue;
            }
            if self.args.scramble {
                let whole = frame.modulation().payload_bytes();
                Scrambler::demo().apply(&mut frame.body[..whole]);
            }
            let payload = frame.payload();
            self.bytes += payload.len() as u64;
            if let Some(output) = &mut self.output {
                output
                    .write_all(payload)
                    .map_err(|error| written(self.args, &error))?;
            }
        }
        Ok(())
    }

    fn done(&self, frame: &ReceivedFrame) -> FrameDone {
        let header = &frame.header;
        FrameDone {
            sample: frame.start,
            fraction: frame.start_fraction,
            mode: frame.modulation(),
            bytes: frame.payload().len(),
            outcome: frame.outcome,
            check_passed: frame.check_passed(),
            kind: header.kind,
            source: header.source,
            destination: header.destination,
            network: header.network,
            snr_db: frame.snr_db,
            evm: frame.evm,
            cfo_cycles_per_sample: frame.frequency,
            cfo_hz: self.sample_rate.map(|rate| rate * frame.frequency),
            clock_ppm: frame.clock_ppm,
        }
    }
}

fn written(args: &RxArgs, error: &io::Error) -> Failure {
    let path = args.output.as_deref().unwrap_or(Path::new("-"));
    Failure::data(format!("{}: {error}", path.display()))
}

fn config(args: &RxArgs) -> Result<RxConfig, Failure> {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let config = RxConfig {
        acquisition: args.algorithms.acquisition(),
        taps: args.taps,
        equaliser: args.algorithms.equaliser(),
        step: args.step,
        vote: match args.vote {
            Vote::Soft => ModeVote::Soft,
            Vote::Majority => ModeVote::Majority,
        },
        modes: if args.cyclops {
            ModeSet::Cyclops
        } else {
            ModeSet::WithQam64
        },
        check: match args.check {
            Check::Crc => CheckField::Crc,
            Check::Pad => CheckField::Pad,
        },
        soft: false,
        points: args.report.is_some(),
        threads: args.threads.unwrap_or(cpus - 1),
        level: Level::detect(),
    };
    config.check().map_err(refused)?;
    Ok(config)
}

/// Runs the command.
pub fn run(args: &RxArgs) -> Result<(), Failure> {
    let to_standard = args.output.as_deref().is_some_and(is_standard);
    if args.json && to_standard {
        let why = "--json with --output -: payloads go to standard output; name a file";
        return Err(Failure::usage(why));
    }
    let config = config(args)?;
    let mut input = Input::open(&args.input, args.format, args.full_scale)?;
    let of_recording = input
        .recording
        .as_ref()
        .and_then(|recording| recording.sample_rate);
    let sample_rate = args.sample_rate.or(of_recording);
    let output = match args.output.as_deref() {
        None => None,
        Some(path) if is_standard(path) => Some(Box::new(io::stdout().lock()) as Box<dyn Write>),
        Some(path) => {
            samples::not_the_same(&args.input, path)?;
            let failed = |error| Failure::usage(format!("--output {}: {error}", path.display()));
            Some(Box::new(BufWriter::new(File::create(path).map_err(failed)?)) as Box<dyn Write>)
        }
    };
    let mut receiver = Receiver::new(&config).map_err(refused)?;
    let mut sink = Sink {
        args,
        output,
        gatherer: args.report.is_some().then(ModemGatherer::default),
        sample_rate,
        bytes: 0,
        done: Vec::new(),
    };
    let begun = Instant::now();
    let (mut block, mut frames): (Vec<Complex32>, Vec<ReceivedFrame>) = Default::default();
    while input.read(&mut block)? > 0 {
        if let Some(gatherer) = &mut sink.gatherer {
            gatherer.samples(&block);
        }
        receiver.push(&block, &mut frames);
        sink.frames(&mut frames)?;
        block.clear();
    }
    receiver.finish(&mut frames);
    sink.frames(&mut frames)?;
    if let Some(output) = &mut sink.output {
        output.flush().map_err(|error| written(args, &error))?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    // Some were taken for 0 when they were read.
    let mut counts = receiver.counts();
    counts.bad_samples += input.counts().not_finite;
    if let (Some(dir), Some(gatherer)) = (&args.report, &sink.gatherer) {
        let run = ModemRun {
            input: args.input.display().to_string(),
            sample_rate,
            seconds,
            bytes: sink.bytes,
            machine: format!("{}, {} decoding threads", config.level, config.threads),
        };
        gatherer.write(dir, &run, &counts).map_err(Failure::data)?;
    }
    let done = Done {
        seconds,
        bytes: sink.bytes,
        cut_bytes: input.counts().cut_bytes,
        counts,
        frames: sink.done,
    };
    report(args, to_standard, &done)
}

fn report(args: &RxArgs, to_standard: bool, done: &Done) -> Result<(), Failure> {
    if args.json {
        let json = to_json(done).map_err(Failure::data)?;
        println!("{json}");
        return Ok(());
    }
    let counts = &done.counts;
    let mut text = format!(
        "{} frame{} delivered, {} bytes, {} samples in {:.2} s",
        counts.delivered,
        if counts.delivered == 1 { "" } else { "s" },
        done.bytes,
        counts.samples,
        done.seconds
    );
    let lost = [
        (counts.check, "with a wrong check field"),
        (counts.length, "with a length that is too large"),
        (counts.mode, "with a mode byte that is none"),
        (counts.cut, "cut by the end of the samples"),
        (counts.not_acquired, "that look like a frame's begin alone"),
        (counts.bad_samples, "samples that are no numbers"),
        (done.cut_bytes, "bytes behind the last whole sample"),
    ];
    for (count, what) in lost.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!("\nnot delivered: {count} {what}");
    }
    match to_standard {
        true => eprintln!("{text}"),
        false => println!("{text}"),
    }
    Ok(())
}
