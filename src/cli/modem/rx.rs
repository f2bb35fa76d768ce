//! `karoo modem rx`.

use std::path::PathBuf;
use std::str::FromStr;
use std::thread;
use std::time::Instant;

use clap::Args;
use ground::counted;
use karoo_flow::adapters::Stop;
use karoo_modem::formats::{FullScale, ReadCounts, SampleFormat};
use karoo_modem::graph::Received;
use karoo_modem::rx::{Acquisition, Counts, RxConfig, SequenceGaps};
use karoo_modem::waveform::ModeSet;
use schemars::JsonSchema;
use serde::Serialize;

use super::algorithms::{Algorithms, refused};
use super::ending::{EndOptions, Watch, after};
use super::graph;
use super::messages::Check;
use super::samples::{self, goes_to_stdout};
use super::sink::{self, FrameDone, Gatherer, NewOutput, Sink, SinkSettings};
use super::soft::SoftOutput;
use super::stream::{self, LayoutOptions, PacketOptions, Source};
use crate::cli::{Failure, Files, in_utf8, make_folder, no_dash_to_write, print_json};
use crate::modem::{IntakeCounts, Place};
use crate::report::Documented;
use crate::report::modem::{Corrected, InputLevel, ModemRun, input_lines};

#[derive(Debug, Args)]
#[command(next_help_heading = "Samples")]
pub struct RxArgs {
    /// Samples, three a symbol: a raw file, or SigMF by the names .sigmf-meta and .sigmf-data; - is
    /// standard input; tcp:HOST:PORT, tcp-listen:ADDRESS:PORT; shm:NAME; or packets of VITA 49.2,
    /// as DIFI has them: udp:ADDRESS:PORT, dpdk:INTERFACE:GROUP:PORT, a capture FILE.pcap
    #[arg(short, long, value_name = "PLACE", value_parser = in_utf8(Place::from_str))]
    input: Place,
    /// Format of samples: cf32 or ci16 [default: by the file's name, else cf32]
    #[arg(long, value_name = "FORMAT", value_parser = SampleFormat::from_str)]
    format: Option<SampleFormat>,
    #[command(flatten)]
    layout: LayoutOptions,
    /// Value that 32767 stands for in ci16, and at which the converter of cf32 clipped [default:
    /// what metadata say, else 4 for ci16]
    #[arg(long, value_name = "VALUE", value_parser = samples::full_scale, allow_negative_numbers = true)]
    full_scale: Option<FullScale>,
    /// Samples per second, for frequencies in Hz [default: what metadata or context packets say]
    #[arg(long, value_name = "HZ", value_parser = samples::rate, allow_negative_numbers = true)]
    sample_rate: Option<f64>,
    /// Payloads, one after the other: of each frame as many bytes as its header says; - is
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
    /// Read frames' numbers, as tx --sequence and the original's demo give them, and count what is
    /// missing
    #[arg(long, help_heading = "Frames")]
    sequence: bool,
    /// Expect the original's modulations alone, without 64-QAM
    #[arg(long, help_heading = "Frames")]
    cyclops: bool,
    /// Soft values of the bits of bodies as little-endian floats, ln P(0)/P(1), in transmission
    /// order; of frames that are delivered or whose check field is wrong, as scrambled as they came
    #[arg(
        long,
        value_name = "FILE",
        value_parser = no_dash_to_write(),
        conflicts_with = "graph",
        help_heading = "Frames"
    )]
    soft: Option<PathBuf>,
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
        help_heading = "Receiver",
        allow_negative_numbers = true
    )]
    taps: usize,
    /// Receive bytes by a dataflow graph; without --threads, its placement says how many threads
    /// decode
    #[arg(long, conflicts_with = "http", help_heading = "Receiver")]
    graph: bool,
    /// Threads that decode frames; 0 finds and decodes them on one thread, as the original's
    /// acquisition always does [default: as many as there are CPUs, less one]
    #[arg(
        long,
        value_name = "N",
        help_heading = "Receiver",
        allow_negative_numbers = true
    )]
    threads: Option<usize>,
    #[command(flatten)]
    packets: PacketOptions,
    #[command(flatten)]
    end: EndOptions,
    /// Port of a live page, and of /metrics for Prometheus
    #[arg(
        long,
        value_name = "PORT",
        help_heading = "Frames",
        allow_negative_numbers = true
    )]
    http: Option<u16>,
}

impl RxArgs {
    /// Refuses what the receiver would not follow.
    fn check(&self) -> Result<(), Failure> {
        self.algorithms.check()?;
        self.algorithms.check_threads(self.threads)
    }
}

/// What was received.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Done {
    seconds: f64,
    bytes: u64,
    cut_bytes: u64,
    counts: Counts,
    /// Numbers that are missing between delivered frames, if frames have numbers.
    missing: Option<u64>,
    /// Level of the samples as they came.
    level: InputLevel,
    /// What --correct took off them.
    correction: Option<Corrected>,
    /// What has become of packets, if samples came in packets.
    packets: Option<IntakeCounts>,
    frames: Vec<FrameDone>,
}

impl Documented for Done {
    const NAME: &'static str = "modem-rx";
    const TITLE: &'static str = "What karoo modem rx --json received";
}

fn config(args: &RxArgs) -> Result<RxConfig, Failure> {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let config = RxConfig {
        taps: args.taps,
        modes: if args.cyclops {
            ModeSet::Cyclops
        } else {
            ModeSet::WithQam64
        },
        check: args.check.into(),
        soft: args.soft.is_some(),
        points: args.report.is_some() || args.http.is_some(),
        threads: match args.algorithms.acquisition() {
            Acquisition::Original { .. } => 0,
            Acquisition::Fits => args.threads.unwrap_or(cpus - 1),
        },
        ..args.algorithms.config()
    };
    config.check().map_err(refused)?;
    Ok(config)
}

/// Opens where payloads and soft values go: what was in files stays until they begin.
fn outputs(args: &RxArgs, stop: &Stop) -> Result<[Option<NewOutput>; 2], Failure> {
    let payloads = args.output.as_deref();
    let payloads = payloads.map(|path| NewOutput::payloads(path, stop));
    let payloads = payloads.transpose()?;
    let soft = args.soft.as_deref();
    let soft = soft.map(|path| NewOutput::file("--soft", path, stop));
    Ok([payloads, soft.transpose()?])
}

/// Writes the page with pictures, if one is wanted.
fn write_page(args: &RxArgs, config: &RxConfig, sink: &Sink, done: &Done) -> Result<(), Failure> {
    let (Some(dir), Some(gatherer)) = (&args.report, &sink.gatherer) else {
        return Ok(());
    };
    let run = ModemRun {
        input: args.input.to_string(),
        sample_rate: sink.sample_rate,
        seconds: done.seconds,
        bytes: done.bytes,
        level: done.level,
        correction: done.correction,
        machine: match args.graph {
            true => format!("{}, by a graph", config.level),
            false => format!("{}, {} decoding threads", config.level, config.threads),
        },
    };
    let written = ground::lock(gatherer).write(dir, &run, &done.counts);
    written.map_err(Failure::data)
}

/// Receives until the end. A source whose end has to be waited for is given back.
fn receive(
    args: &RxArgs,
    config: &RxConfig,
    mut source: Source,
    (sink, watch): (&mut Sink, &Watch),
) -> Result<(Received, ReadCounts, Option<Source>), Failure> {
    let ends = (watch, &args.end);
    if args.graph {
        let (received, read) = graph::receive(config, args.threads, source, sink, ends)?;
        return Ok((received, read, None));
    }
    let received = sink::receive(config, &mut source, sink, ends)?;
    Ok((received, source.read_counts(), Some(source)))
}

/// Runs the command.
pub fn run(args: &RxArgs) -> Result<(), Failure> {
    let standard = args.output.as_deref().filter(|path| goes_to_stdout(path));
    let to_standard = standard.is_some();
    if let Some(path) = standard.filter(|_| args.json) {
        return Err(Failure::usage(format!(
            "--json with --output {}: payloads go to standard output; name a file",
            path.display()
        )));
    }
    args.check()?;
    let config = config(args)?;
    let mut watch = Watch::start(args.http)?;
    watch.end_after(&args.end)?;
    let formats = (args.format, args.full_scale, args.layout);
    let awaited = samples::awaited(args.input.file())?;
    // Seen also while the input waits for its peer.
    let watcher = watch.watcher(&args.input.to_string(), config.threads);
    if let Some(watcher) = &watcher {
        // A counter is there before it counts.
        watcher.missing(args.sequence.then_some(0));
    }
    let source = Source::open(
        &args.input,
        &args.packets,
        formats,
        args.sample_rate,
        watch.stop(),
    )?;
    let files = samples::reads(Files::default(), args.input.file());
    files
        .writes("--output", args.output.as_deref().and_then(samples::file))
        .writes("--soft", args.soft.as_deref())
        .writes_into("--report", args.report.as_deref(), &["report.html"])
        .check()?;
    if let Some(folder) = &args.report {
        // Before the run, so that a wrong folder is refused at once.
        make_folder("--report", folder)?;
    }
    let [output, soft] = outputs(args, watch.stop())?;
    samples::wait(awaited, watch.stop())?;
    // All is open: what was in files goes.
    let output = output.map(NewOutput::begin).transpose()?;
    let soft = soft.map(NewOutput::begin).transpose()?;
    let mut sink = Sink {
        settings: SinkSettings {
            keep_failed: args.keep_failed,
            scramble: args.scramble,
            keep_frames: args.json,
            prompt: args.input.is_live() || args.input.is_standard(),
        },
        output,
        soft: soft.map(SoftOutput::new),
        gatherer: args.report.is_some().then(Gatherer::default),
        watcher,
        meter: sink::meter(source.full_scale()),
        sample_rate: args.sample_rate.or(source.sample_rate()),
        gaps: args.sequence.then(SequenceGaps::default),
        ..Sink::default()
    };
    let is_guessed = source.is_guessed();
    let begun = Instant::now();
    let (received, read, source) = receive(args, &config, source, (&mut sink, &watch))
        .map_err(|failure| after(failure, &sink.words()))?;
    let seconds = begun.elapsed().as_secs_f64();
    // As many frames as are wanted are all, whatever came meanwhile.
    let whole = match args.input.file().is_some() && !sink.is_full() {
        true => watch.whole(),
        false => Ok(()),
    };
    watch.finish();
    let mut counts = received.counts;
    // Some were taken for 0 when they were read.
    counts.bad_samples += read.not_finite;
    let packets = match source {
        Some(source) => {
            let ended = source.finish();
            ended.map_err(|failure| after(failure, &sink.words()))?
        }
        None => None,
    };
    let done = Done {
        seconds,
        bytes: sink.bytes,
        cut_bytes: read.cut_bytes,
        counts,
        missing: sink.gaps.map(|gaps| gaps.missing()),
        level: ground::lock(&sink.meter).level(),
        correction: received.correction.map(Corrected::from),
        packets,
        frames: std::mem::take(&mut sink.done),
    };
    let written = write_page(args, &config, &sink, &done);
    let hints = hints(args, is_guessed, &sink, &done);
    report(args, to_standard, (&done, &hints))?;
    // Whatever becomes of the page, what was received is told.
    written?;
    whole
}

/// What may be wrong with samples of which nothing can be made, and the way out.
fn hints(args: &RxArgs, is_guessed: bool, sink: &Sink, done: &Done) -> Vec<String> {
    /// Share of the samples that are none, and decibels, that floats do not have.
    const BAD: f64 = 0.1;
    const FAINT: f64 = -200.0;
    let counts = &done.counts;
    let none = counts.bad_samples as f64 > BAD * counts.samples as f64;
    let faint = done.level.decibels.is_some_and(|level| level < FAINT);
    let mut hints = Vec::new();
    if is_guessed && (none || faint) {
        let hint = "cf32 was taken for the format, and these are no such floats: if they are \
                    integers, try --format ci16";
        hints.push(hint.to_owned());
    }
    if counts.frames() == 0 && !args.algorithms.correct {
        hints.extend(ground::lock(&sink.meter).mean_warning());
    }
    hints
}

fn report(
    args: &RxArgs,
    to_standard: bool,
    (done, hints): (&Done, &[String]),
) -> Result<(), Failure> {
    if args.json {
        print_json(done)?;
        return Ok(());
    }
    let counts = &done.counts;
    let mut text = format!(
        "{} delivered, {}, {} in {:.2} s",
        counted(counts.delivered, "frame"),
        counted(done.bytes, "byte"),
        counted(counts.samples, "sample"),
        done.seconds
    );
    text += &sink::lost_lines(counts);
    if let Some(missing) = done.missing {
        let numbers = counted(missing, "number");
        text += &format!("\n{numbers} missing between delivered frames");
    }
    if done.cut_bytes > 0 {
        text += &format!("\n{} bytes after the last whole sample", done.cut_bytes);
    }
    text += &input_lines(&done.level, done.correction.as_ref());
    if let Some(packets) = &done.packets {
        text += &stream::words(packets);
    }
    for hint in hints {
        text += &format!("\n{hint}");
    }
    match to_standard {
        true => eprintln!("{text}"),
        false => println!("{text}"),
    }
    Ok(())
}
