//! `karoo modem link`.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Instant;

use clap::Args;
use ground::counted;
use karoo_flow::adapters::Stop;
use karoo_modem::channel::Channel;
use karoo_modem::formats::FullScale;
use karoo_modem::rx::{Counts, RxConfig};
use karoo_modem::tx::{Transmitter, blank_symbols};
use karoo_modem::waveform::Modulation;
use num_complex::Complex32;
use schemars::JsonSchema;
use serde::Serialize;

use super::algorithms::{Algorithms, refused};
use super::channel::ChannelOptions;
use super::ending::{EndOptions, Watch};
use super::messages::{Check, FrameSettings, messages};
use super::samples::{self, goes_to_stdout, is_standard};
use super::sink::{self, NewOutput, Sink, SinkSettings};
use super::stream::Source;
use crate::cli::{Failure, print_json};
use crate::modem::{FirstSent, Pace, Watcher};
use crate::report::Documented;
use crate::report::modem::{Corrected, InputLevel, input_lines};

/// Samples that are given together, and how many such blocks may wait.
const BLOCK: usize = 4096;
const BLOCKS: usize = 16;
/// Blank symbols that are sent while there is nothing to send.
const BLANKS: usize = 400;
/// Seconds behind its time from which on the link is said to be late.
const LATE: f64 = 0.1;

#[derive(Debug, Args)]
#[command(next_help_heading = "Messages")]
pub struct LinkArgs {
    /// Bytes to send; - is standard input, which is sent as it comes
    #[arg(short, long, value_name = "FILE")]
    input: PathBuf,
    /// Where what is received goes; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Modulation: bpsk, qpsk, qam16, qam64 (not of the original) or qam256
    #[arg(short, long = "mod", value_name = "MODULATION", default_value_t = Modulation::Qpsk, value_parser = Modulation::from_str)]
    modulation: Modulation,
    /// What check fields have; pad checks nothing
    #[arg(long, value_enum, value_name = "FIELD", default_value_t)]
    check: Check,
    /// Send payloads as they are: without the scrambling of the original's demo, what repeats, as
    /// padding does, is a tone of its own power
    #[arg(long)]
    no_scramble: bool,
    /// Times that the input is sent, one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true)]
    repeat: u64,
    /// Share of the time in which frames are sent while there are any: 1e-12 to 1
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 1.0,
        allow_negative_numbers = true
    )]
    duty: f64,
    /// Samples per second, by the clock
    #[arg(long, value_name = "HZ", default_value = "1M", value_parser = samples::rate, allow_negative_numbers = true)]
    sample_rate: f64,
    /// Taps of the receiver's equaliser: a multiple of 8, from 8 to 128
    #[arg(
        long,
        value_name = "N",
        default_value_t = 16,
        allow_negative_numbers = true,
        help_heading = "Receiver"
    )]
    taps: usize,
    /// Threads that decode frames; 0 finds and decodes them on one thread, as the original's
    /// acquisition always does [default: 1]
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        help_heading = "Receiver"
    )]
    threads: Option<usize>,
    /// Port of a live page, and of /metrics for Prometheus
    #[arg(long, value_name = "PORT", allow_negative_numbers = true)]
    http: Option<u16>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "Receiver")]
    algorithms: Algorithms,
    #[command(flatten)]
    end: EndOptions,
    #[command(flatten)]
    channel: Box<ChannelOptions>,
}

/// What went over the link.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Linked {
    modulation: Modulation,
    sent: SentOver,
    seconds: f64,
    /// Bytes of payloads that were received.
    bytes: u64,
    counts: Counts,
    /// Level of the samples as they came.
    level: InputLevel,
    /// What --correct took off them.
    correction: Option<Corrected>,
}

/// What was sent over it.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
struct SentOver {
    frames: u64,
    bytes: u64,
    samples: u64,
    /// The most seconds that a sample came behind its time.
    most_late: f64,
}

impl Documented for Linked {
    const NAME: &'static str = "modem-link";
    const TITLE: &'static str = "What karoo modem link --json passed";
}

/// The transmitter's end, and the channel.
struct Near {
    messages: Receiver<Result<Vec<u8>, Failure>>,
    frames: FrameSettings,
    transmitter: Transmitter,
    channel: Option<Channel>,
    /// Symbols of the pause behind a frame, and how many are left of it.
    blanks: u64,
    pause: u64,
    pace: Pace,
    blocks: SyncSender<Vec<Complex32>>,
    stop: Stop,
    sent: SentOver,
    /// Tells the page, if there is one, that a frame was sent; none from then on.
    first_sent: Option<FirstSent>,
    air: Vec<Complex32>,
}

impl Near {
    /// Sends until there are no more messages, or nobody takes samples any more.
    fn run(mut self) -> Result<SentOver, Failure> {
        let mut samples = Vec::new();
        while !self.stop.is_set() {
            samples.clear();
            if self.pause > 0 {
                // In parts: it may be long.
                let now = self.pause.min(BLANKS as u64);
                self.pause -= now;
                self.transmitter.blanks(now as usize, &mut samples);
            } else {
                match self.messages.try_recv() {
                    Ok(message) => {
                        let (frame, used) = self.frames.frame(&message?, None);
                        if let Some(first) = self.first_sent.take() {
                            first.tell();
                        }
                        self.transmitter.frame(&frame, &mut samples);
                        self.pause = self.blanks;
                        self.sent.frames += 1;
                        self.sent.bytes += used as u64;
                    }
                    Err(TryRecvError::Empty) => self.transmitter.blanks(BLANKS, &mut samples),
                    Err(TryRecvError::Disconnected) => break,
                }
            }
            if !self.give(&samples) {
                break;
            }
        }
        samples.clear();
        self.transmitter.blanks(BLANKS, &mut samples);
        self.give(&samples);
        if let Some(channel) = self.channel.take() {
            channel.finish(&mut self.air);
        }
        self.give(&[]);
        self.sent.most_late = self.pace.most_late().as_secs_f64();
        Ok(self.sent)
    }

    /// Gives what the channel makes of samples, each block when it is due; false if nobody takes
    /// it, or somebody wants the end before.
    fn give(&mut self, samples: &[Complex32]) -> bool {
        if let Some(channel) = &mut self.channel {
            channel.push(samples, &mut self.air);
        }
        for block in self.air.chunks(BLOCK) {
            self.sent.samples += block.len() as u64;
            // A block is there when its last sample is.
            let is_due = self
                .pace
                .wait_unless(self.sent.samples, || self.stop.is_set());
            if !is_due || self.blocks.send(block.to_vec()).is_err() {
                self.air.clear();
                return false;
            }
        }
        self.air.clear();
        true
    }
}

/// Runs the command.
pub fn run(args: &LinkArgs) -> Result<(), Failure> {
    let to_standard = goes_to_stdout(&args.output);
    if args.json && to_standard {
        let why = "--json: payloads go to standard output; give --output FILE";
        return Err(Failure::usage(why));
    }
    let usage = |error| Failure::usage(format!("--duty: {error}"));
    let blanks = blank_symbols(args.duty).map_err(usage)?;
    args.algorithms.check()?;
    args.algorithms.check_threads(args.threads)?;
    let config = RxConfig {
        taps: args.taps,
        check: args.check.into(),
        threads: match args.algorithms.is_original() {
            true => 0,
            false => args.threads.unwrap_or(1),
        },
        points: args.http.is_some(),
        ..args.algorithms.config()
    };
    config.check().map_err(refused)?;
    let settings = args.channel.settings(Some(args.sample_rate))?;
    let refused_setting = |error| args.channel.refused(&error, Some(args.sample_rate));
    let channel = Channel::new(&settings).map_err(refused_setting)?;
    // What a channel can have, samples can.
    let clip = settings.converter.map(|converter| converter.full_scale);
    let full_scale = clip.and_then(|value| FullScale::new(value as f32).ok());
    samples::not_the_same(samples::file(&args.input), samples::file(&args.output))?;
    let payload = args.modulation.payload_bytes();
    let at_once = is_standard(&args.input);
    let messages = messages(&args.input, args.repeat, payload, at_once)?;
    let mut watch = Watch::start(args.http)?;
    let output = NewOutput::payloads(&args.output, watch.stop())?;
    watch.end_after(&args.end)?;
    let output = Some(output.begin()?);

    let watcher = watch.watcher(
        &format!("{} over a channel", args.modulation),
        config.threads,
    );
    let (blocks, taken) = sync_channel(BLOCKS);
    let near = Near {
        messages,
        frames: FrameSettings {
            check: args.check.into(),
            scramble: !args.no_scramble,
            ..FrameSettings::new(args.modulation)
        },
        transmitter: Transmitter::new(1.0),
        channel: Some(channel),
        blanks,
        pause: 0,
        pace: Pace::new(Instant::now(), args.sample_rate),
        blocks,
        stop: watch.stop().clone(),
        sent: SentOver::default(),
        first_sent: watcher.as_ref().map(Watcher::first_sent),
        air: Vec::new(),
    };
    let mut sink = Sink {
        settings: SinkSettings {
            prompt: true,
            scramble: !args.no_scramble,
            ..SinkSettings::default()
        },
        output,
        watcher,
        meter: sink::meter(full_scale),
        sample_rate: Some(args.sample_rate),
        ..Sink::default()
    };
    let begun = Instant::now();
    let near = thread::Builder::new()
        .name("near".to_owned())
        .spawn(move || near.run())
        .map_err(Failure::data)?;
    let mut source = Source::Link(taken, args.sample_rate, full_scale);
    let received = sink::receive(&config, &mut source, &mut sink, (&watch, &args.end));
    watch.stop().set();
    // Whoever waits to give samples goes on.
    drop(source);
    let sent = near
        .join()
        .map_err(|_| Failure::data("the thread that sends panicked"))??;
    watch.finish();
    let received = received?;
    let linked = Linked {
        modulation: args.modulation,
        sent,
        seconds: begun.elapsed().as_secs_f64(),
        bytes: sink.bytes,
        counts: received.counts,
        level: ground::lock(&sink.meter).level(),
        correction: received.correction.map(Corrected::from),
    };
    report(args, to_standard, &linked)
}

fn report(args: &LinkArgs, to_standard: bool, linked: &Linked) -> Result<(), Failure> {
    if args.json {
        print_json(linked)?;
        return Ok(());
    }
    let (sent, counts) = (&linked.sent, &linked.counts);
    let mut text = format!(
        "{} of {} sent, {} delivered; {} sent, {} received; {:.2} s",
        counted(sent.frames, "frame"),
        linked.modulation,
        counts.delivered,
        counted(sent.bytes, "byte"),
        linked.bytes,
        linked.seconds
    );
    text += &sink::lost_lines(counts);
    text += &input_lines(&linked.level, linked.correction.as_ref());
    if sent.most_late > LATE {
        text += &format!(
            "\nup to {:.1} s behind the clock: {} samples per second are too many here",
            sent.most_late, args.sample_rate
        );
    }
    match to_standard {
        true => eprintln!("{text}"),
        false => println!("{text}"),
    }
    Ok(())
}
