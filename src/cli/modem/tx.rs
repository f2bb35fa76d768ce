//! `karoo modem tx`.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, TryRecvError};

use clap::Args;
use ground::counted;
use karoo_modem::formats::{FullScale, SampleFormat};
use karoo_modem::tx::{Transmitter, blank_symbols};
use karoo_modem::waveform::{BLANK_SYMBOLS, Modulation, SEQUENCE_NUMBERS};
use num_complex::Complex32;
use schemars::JsonSchema;
use serde::Serialize;

use super::ending::{Watch, after};
use super::graph;
use super::messages::{Check, FrameSettings, messages, next_message};
use super::samples::{self, goes_to_stdout, is_standard};
use super::stream::{Destination, LayoutOptions, LossOptions, PacketOptions};
use crate::cli::numbers::number_within;
use crate::cli::{Failure, in_utf8, is_pipe, print_json};
use crate::modem::{OutletCounts, Place};
use crate::report::Documented;

/// Blank symbols that are made at once.
const BLANKS: u64 = 1 << 14;
/// Blank symbols behind a frame with which a receiver has all that the frame's end reaches into.
const BEHIND: u64 = 400;
/// Seconds behind its time from which on a stream of packets is said to be late.
const LATE: f64 = 0.01;

#[derive(Debug, Args)]
#[command(next_help_heading = "Frames")]
pub struct TxArgs {
    /// Bytes to send; - is standard input
    #[arg(short, long, value_name = "FILE")]
    input: PathBuf,
    /// Modulation: bpsk, qpsk, qam16, qam64 (not of the original) or qam256
    #[arg(short, long = "mod", value_name = "MODULATION", default_value_t = Modulation::Qpsk, value_parser = Modulation::from_str)]
    modulation: Modulation,
    /// Check field of frames
    #[arg(long, value_enum, value_name = "FIELD", default_value_t)]
    check: Check,
    /// XOR payloads with the stream of the original's demo
    #[arg(long)]
    scramble: bool,
    /// Source in headers
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    source: u8,
    /// Destination in headers
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    destination: u8,
    /// Network in headers
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    network: u16,
    /// Number frames from 0 to 63 in turn, in source, destination and network alike, as the
    /// original's demo does; rx --sequence says what is missing
    #[arg(long, conflicts_with_all = ["source", "destination", "network", "graph"])]
    sequence: bool,
    /// Times that the input is sent, one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000), allow_negative_numbers = true)]
    repeat: u64,
    /// Share of the time in which frames are sent: 1e-12 to 1
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 1.0,
        allow_negative_numbers = true
    )]
    duty: f64,
    /// Blank symbols before the first frame
    #[arg(long, value_name = "SYMBOLS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000_000), allow_negative_numbers = true)]
    lead: u64,
    /// Send by a dataflow graph, which makes frames on several threads
    #[arg(long)]
    graph: bool,
    /// Threads that make frames [default: what the graph's placement gives them]
    #[arg(long, value_name = "N", requires = "graph", value_parser = clap::value_parser!(u16).range(1..=1024), allow_negative_numbers = true)]
    threads: Option<u16>,
    /// Samples: a raw file, or SigMF by the names .sigmf-meta and .sigmf-data; - is standard
    /// output; tcp:HOST:PORT, tcp-listen:ADDRESS:PORT; shm:NAME; or packets of VITA 49.2, as DIFI
    /// has them: udp:ADDRESS:PORT, dpdk:INTERFACE:GROUP:PORT, a capture FILE.pcap
    #[arg(short, long, value_name = "PLACE", value_parser = in_utf8(Place::from_str), help_heading = "Samples")]
    output: Place,
    /// Format of samples: cf32 or ci16 [default: by the file's name, else cf32]
    #[arg(long, value_name = "FORMAT", value_parser = SampleFormat::from_str, help_heading = "Samples")]
    format: Option<SampleFormat>,
    /// Value that 32767 stands for in ci16
    #[arg(long, value_name = "VALUE", default_value = "4", value_parser = samples::full_scale, help_heading = "Samples", allow_negative_numbers = true)]
    full_scale: FullScale,
    /// Gain in dB; at 0 frames have a mean power of 1
    #[arg(long, value_name = "DB", default_value_t = 0.0, allow_negative_numbers = true, value_parser = decibels, help_heading = "Samples")]
    gain: f64,
    /// Samples per second, for metadata; packets are sent at this pace
    #[arg(long, value_name = "HZ", value_parser = samples::rate, help_heading = "Samples", allow_negative_numbers = true)]
    sample_rate: Option<f64>,
    /// Print JSON
    #[arg(long, help_heading = "Samples")]
    json: bool,
    #[command(flatten, next_help_heading = "Samples")]
    layout: LayoutOptions,
    #[command(flatten)]
    packets: PacketOptions,
    #[command(flatten)]
    losses: LossOptions,
}

impl TxArgs {
    /// Whether the end of its input is not the only one that is in order.
    fn goes_on(&self) -> bool {
        self.output.is_live() || is_standard(&self.input)
    }

    /// Whether samples go to standard output, by whatever name.
    fn to_standard(&self) -> bool {
        self.output.is_standard() || self.output.file().is_some_and(goes_to_stdout)
    }

    /// Whether samples go to standard output or into a named pipe.
    fn to_pipe(&self) -> bool {
        self.to_standard() || self.output.file().is_some_and(is_pipe)
    }

    fn amplitude(&self) -> f32 {
        10f64.powf(self.gain / 20.0) as f32
    }
}

fn decibels(text: &str) -> Result<f64, String> {
    number_within(
        text,
        -100.0..=100.0,
        "it must be -100 to 100 dB, such as -3",
    )
}

/// What was sent.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Sent {
    modulation: Modulation,
    frames: u64,
    /// Bytes of the input, as often as they were sent.
    bytes: u64,
    samples: u64,
    /// Real and imaginary parts that did not fit into the format.
    clipped: u64,
    /// What became of samples that were sent as packets.
    packets: Option<OutletCounts>,
}

impl Documented for Sent {
    const NAME: &'static str = "modem-tx";
    const TITLE: &'static str = "What karoo modem tx --json sent";
}

/// What makes frames of bytes, and samples of frames.
struct Sender<'a> {
    args: &'a TxArgs,
    transmitter: Transmitter,
    frame_settings: FrameSettings,
    output: Destination,
    watch: Watch,
    /// Blank symbols behind a frame, and how many are still to come before the next.
    blanks: u64,
    owed: u64,
    /// Whether all messages were sent.
    complete: bool,
    frames: u64,
    bytes: u64,
    samples: Vec<Complex32>,
}

impl Sender<'_> {
    /// A frame with `message`, and the blanks that fill its last block.
    fn frame(&mut self, message: &[u8]) -> Result<(), Failure> {
        let number = (self.frames % u64::from(SEQUENCE_NUMBERS)) as u8;
        let number = self.args.sequence.then_some(number);
        let (frame, used) = self.frame_settings.frame(message, number);
        let mut samples = std::mem::take(&mut self.samples);
        samples.clear();
        self.transmitter.frame(&frame, &mut samples);
        let written = self.write_frame(&samples, used);
        self.samples = samples;
        written?;
        self.pause(BLANK_SYMBOLS as u64)?;
        self.owe()
    }

    /// What is left of the pause behind a frame: at once where samples have a time, else only if
    /// another frame comes. Whoever reads a pipe has at once what the frame cannot be received
    /// without, for the other frame may be long in coming.
    fn owe(&mut self) -> Result<(), Failure> {
        let left = self.blanks - BLANK_SYMBOLS as u64;
        let at_once = match self.args.output.is_live() {
            true => left,
            false if self.args.to_pipe() => left.min(BEHIND),
            false => 0,
        };
        self.owed = left - at_once;
        self.pause(at_once)
    }

    /// Sends what is owed of a pause before another frame; false if somebody wants the end in it.
    fn pay(&mut self) -> Result<bool, Failure> {
        let owed = std::mem::take(&mut self.owed);
        self.pause(owed)?;
        Ok(owed == 0 || !self.watch.has_ended())
    }

    /// A frame's samples, with `used` bytes of a message in it.
    fn write_frame(&mut self, samples: &[Complex32], used: usize) -> Result<(), Failure> {
        self.output.frame(self.args.modulation.name());
        self.output.write(samples)?;
        self.frames += 1;
        self.bytes += used as u64;
        Ok(())
    }

    fn pause(&mut self, symbols: u64) -> Result<(), Failure> {
        let mut left = symbols;
        while left > 0 && !self.watch.has_ended() {
            let now = left.min(BLANKS);
            self.samples.clear();
            self.transmitter.blanks(now as usize, &mut self.samples);
            self.output.write(&self.samples)?;
            left -= now;
        }
        Ok(())
    }

    /// All messages by a graph, until somebody wants the end.
    fn all_by_graph(
        &mut self,
        messages: Receiver<Result<Vec<u8>, Failure>>,
    ) -> Result<(), Failure> {
        let node = self.frame_settings.node(self.args.amplitude());
        let stop = self.watch.stop().clone();
        let threads = self.args.threads.map(usize::from);
        graph::send(&node, threads, messages, stop, |samples, used| {
            if !self.pay()? {
                return Ok(());
            }
            // They end with the blanks that fill a frame's last block.
            self.write_frame(samples, used)?;
            self.owe()
        })
    }

    /// All messages, until somebody wants the end.
    fn all(&mut self, messages: &Receiver<Result<Vec<u8>, Failure>>) -> Result<(), Failure> {
        while let Some(message) = next_message(messages, || self.watch.has_ended())? {
            if !self.pay()? {
                return Ok(());
            }
            self.frame(&message)?;
        }
        // If somebody wants the end, it may be behind the last one.
        self.complete = messages
            .try_recv()
            .is_err_and(|error| error == TryRecvError::Disconnected);
        Ok(())
    }

    fn words(&self) -> String {
        let (frames, bytes) = (counted(self.frames, "frame"), counted(self.bytes, "byte"));
        format!("{frames}, {bytes} sent")
    }

    fn finish(mut self) -> Result<Sent, Failure> {
        self.samples.clear();
        if self.args.output.is_live() {
            // A receiver waits for what the last frame's end reaches into, and there is no end.
            self.transmitter.blanks(BEHIND as usize, &mut self.samples);
        }
        self.transmitter.finish(&mut self.samples);
        self.output.write(&self.samples)?;
        let gone = self.output.finish()?;
        self.watch.finish();
        Ok(Sent {
            modulation: self.args.modulation,
            frames: self.frames,
            bytes: self.bytes,
            samples: gone.samples,
            clipped: gone.clipped,
            packets: gone.packets,
        })
    }
}

/// Runs the command.
pub fn run(args: &TxArgs) -> Result<(), Failure> {
    let standard = args.to_standard();
    if args.json && standard {
        return Err(Failure::usage(format!(
            "--json with --output {}: samples go to standard output; name a file",
            args.output
        )));
    }
    let usage = |error| Failure::usage(format!("--duty: {error}"));
    let blanks = blank_symbols(args.duty).map_err(usage)?;
    // Before the output is made, so that nothing is left behind if there is no input.
    let payload = args.modulation.payload_bytes();
    let messages = messages(&args.input, args.repeat, payload, false)?;
    samples::not_the_same(samples::file(&args.input), args.output.file())?;
    let watch = Watch::start(None)?;
    let output = Destination::open(
        &args.output,
        (&args.packets, &args.losses),
        (args.format, args.full_scale, args.layout),
        args.sample_rate,
        watch.stop(),
    )?;
    let frame_settings = FrameSettings {
        check: args.check.into(),
        scramble: args.scramble,
        source: args.source,
        destination: args.destination,
        network: args.network,
        ..FrameSettings::new(args.modulation)
    };
    let mut sender = Sender {
        args,
        frame_settings,
        transmitter: Transmitter::new(args.amplitude()),
        output,
        watch,
        blanks,
        owed: 0,
        complete: false,
        frames: 0,
        bytes: 0,
        samples: Vec::new(),
    };
    let done = sender.pause(args.lead).and_then(|()| match args.graph {
        true => sender.all_by_graph(messages),
        false => sender.all(&messages),
    });
    let words = sender.words();
    done.map_err(|failure| after(failure, &words))?;
    let whole = match args.goes_on() || sender.complete {
        true => Ok(()),
        false => sender.watch.whole(),
    };
    let sent = sender.finish();
    report(args, &sent.map_err(|failure| after(failure, &words))?)?;
    whole
}

fn report(args: &TxArgs, sent: &Sent) -> Result<(), Failure> {
    if args.json {
        print_json(sent)?;
        return Ok(());
    }
    let mut text = format!(
        "{} of {}, {}, {}, {} clipped",
        counted(sent.frames, "frame"),
        sent.modulation,
        counted(sent.bytes, "byte"),
        counted(sent.samples, "sample"),
        counted(sent.clipped, "part")
    );
    if let Some(packets) = &sent.packets {
        let left_out = &packets.left_out;
        text += &format!("; {}", counted(packets.packets, "packet"));
        if left_out.packets > 0 {
            text += &format!(
                ", {} left out, which touches {}",
                left_out.packets,
                counted(left_out.frames, "frame")
            );
        }
        if packets.most_late > LATE {
            text += &format!("; up to {:.3} s behind the sample rate", packets.most_late);
        }
    }
    match args.to_standard() {
        true => eprintln!("{text}"),
        false => println!("{text}"),
    }
    Ok(())
}
