//! `karoo modem tx`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, ValueEnum};
use karoo_modem::formats::{Annotation, FullScale, SampleFormat};
use karoo_modem::tx::{Transmitter, blank_symbols};
use karoo_modem::waveform::{
    CheckField, FRAME_SYMBOLS, Frame, Header, Modulation, SAMPLES_PER_SYMBOL, Scrambler,
    pad_message,
};
use num_complex::Complex32;
use schemars::JsonSchema;
use serde::Serialize;

use super::samples::{self, Output, is_standard};
use crate::cli::Failure;
use crate::report::{Documented, to_json};

/// Blank symbols that are made at once.
const BLANKS: u64 = 1 << 14;
/// Frames that are labelled in metadata, at most.
const MOST_ANNOTATIONS: u64 = 100_000;

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
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    source: u8,
    /// Destination in headers
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    destination: u8,
    /// Network in headers
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    network: u16,
    /// Times that the input is sent, one behind the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    repeat: u64,
    /// Share of the time in which frames are sent: above 0, at most 1
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    duty: f64,
    /// Blank symbols before the first frame
    #[arg(long, value_name = "SYMBOLS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    lead: u64,
    /// Samples: raw, or SigMF by the names .sigmf-meta and .sigmf-data; - is standard output
    #[arg(short, long, value_name = "FILE", help_heading = "Samples")]
    output: PathBuf,
    /// Format of samples: cf32 or ci16 [default: by the file's name, else cf32]
    #[arg(long, value_name = "FORMAT", value_parser = SampleFormat::from_str, help_heading = "Samples")]
    format: Option<SampleFormat>,
    /// Value that 32767 stands for in ci16
    #[arg(long, value_name = "VALUE", default_value = "4", value_parser = samples::full_scale, help_heading = "Samples")]
    full_scale: FullScale,
    /// Gain in dB; at 0 frames have a mean power of 1
    #[arg(long, value_name = "DB", default_value_t = 0.0, allow_negative_numbers = true, value_parser = decibels, help_heading = "Samples")]
    gain: f64,
    /// Samples per second, for metadata
    #[arg(long, value_name = "HZ", value_parser = samples::rate, help_heading = "Samples")]
    sample_rate: Option<f64>,
    /// Print JSON
    #[arg(long, help_heading = "Samples")]
    json: bool,
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

fn decibels(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    match (-100.0..=100.0).contains(&value) {
        true => Ok(value),
        false => Err("it must be -100 to 100 dB".to_owned()),
    }
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
}

impl Documented for Sent {
    const NAME: &'static str = "modem-tx";
    const TITLE: &'static str = "What karoo modem tx --json sent";
}

/// What makes frames of bytes, and samples of frames.
struct Sender<'a> {
    args: &'a TxArgs,
    transmitter: Transmitter,
    output: Output,
    blanks: u64,
    frames: u64,
    bytes: u64,
    samples: Vec<Complex32>,
}

impl Sender<'_> {
    /// A frame with `message`, and the pause behind it.
    fn frame(&mut self, message: &[u8]) -> Result<(), Failure> {
        let args = self.args;
        let (mut payload, used) = pad_message(message, args.modulation);
        if args.scramble {
            Scrambler::demo().apply(&mut payload);
        }
        let header = Header {
            source: args.source,
            destination: args.destination,
            network: args.network,
            // A payload has at most 12 252 bytes.
            length: used as u16,
            ..Header::new(args.modulation)
        };
        let check = match args.check {
            Check::Crc => CheckField::Crc,
            Check::Pad => CheckField::Pad,
        };
        let frame = Frame::new(header, &payload, check).map_err(Failure::data)?;
        if self.output.has_metadata() && self.frames < MOST_ANNOTATIONS {
            let annotation = Annotation {
                sample_start: self.output.samples(),
                sample_count: Some((FRAME_SYMBOLS * SAMPLES_PER_SYMBOL) as u64),
                label: Some(args.modulation.to_string()),
            };
            self.output.recording.annotations.push(annotation);
        }
        self.samples.clear();
        self.transmitter.frame(&frame, &mut self.samples);
        self.output.write(&self.samples)?;
        self.frames += 1;
        self.bytes += used as u64;
        self.pause(self.blanks)
    }

    fn pause(&mut self, symbols: u64) -> Result<(), Failure> {
        let mut left = symbols;
        while left > 0 {
            let now = left.min(BLANKS);
            self.samples.clear();
            self.transmitter.blanks(now as usize, &mut self.samples);
            self.output.write(&self.samples)?;
            left -= now;
        }
        Ok(())
    }
}

/// Runs the command.
pub fn run(args: &TxArgs) -> Result<(), Failure> {
    let standard = is_standard(&args.output);
    if args.json && standard {
        let why = "--json with --output -: samples go to standard output; name a file";
        return Err(Failure::usage(why));
    }
    if args.repeat > 1 && is_standard(&args.input) {
        let why = format!("--repeat {} with --input -: name a file", args.repeat);
        return Err(Failure::usage(why));
    }
    let usage = |error| Failure::usage(format!("--duty: {error}"));
    let blanks = blank_symbols(args.duty).map_err(usage)?;
    // Before the output is made, so that nothing is left behind if there is no input.
    let mut input = open(&args.input)?;
    samples::not_the_same(&args.input, &args.output)?;
    let mut output = Output::create(&args.output, args.format, args.full_scale)?;
    output.recording.sample_rate = args.sample_rate;
    let mut sender = Sender {
        args,
        transmitter: Transmitter::new(10f64.powf(args.gain / 20.0) as f32),
        output,
        blanks,
        frames: 0,
        bytes: 0,
        samples: Vec::new(),
    };
    sender.pause(args.lead)?;
    for pass in 0..args.repeat {
        if pass > 0 {
            input = open(&args.input)?;
        }
        let mut message = Vec::new();
        loop {
            message.clear();
            let wanted = args.modulation.payload_bytes() as u64;
            let failed = |error| Failure::data(format!("{}: {error}", args.input.display()));
            (&mut input)
                .take(wanted)
                .read_to_end(&mut message)
                .map_err(failed)?;
            if message.is_empty() {
                break;
            }
            sender.frame(&message)?;
        }
    }
    sender.samples.clear();
    sender.transmitter.finish(&mut sender.samples);
    sender.output.write(&sender.samples)?;
    let (frames, bytes) = (sender.frames, sender.bytes);
    let counts = sender.output.finish()?;
    let sent = Sent {
        modulation: args.modulation,
        frames,
        bytes,
        samples: counts.samples,
        clipped: counts.clipped,
    };
    report(args, &sent)
}

fn open(path: &Path) -> Result<Box<dyn Read>, Failure> {
    if is_standard(path) {
        return Ok(Box::new(io::stdin().lock()));
    }
    let failed = |error| Failure::usage(format!("--input {}: {error}", path.display()));
    Ok(Box::new(File::open(path).map_err(failed)?))
}

fn report(args: &TxArgs, sent: &Sent) -> Result<(), Failure> {
    if args.json {
        let json = to_json(sent).map_err(Failure::data)?;
        println!("{json}");
        return Ok(());
    }
    let text = format!(
        "{} frames of {}, {} bytes, {} samples, {} parts clipped",
        sent.frames, sent.modulation, sent.bytes, sent.samples, sent.clipped
    );
    match is_standard(&args.output) {
        true => eprintln!("{text}"),
        false => println!("{text}"),
    }
    Ok(())
}
