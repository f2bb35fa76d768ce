//! Streams of samples on the command line: where they come from and go to.

use std::error::Error;
use std::fmt::Display;
use std::io::{BufWriter, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use clap::Args;
use ground::counted;
use ground::os::allowed_cpus;
use karoo_flow::adapters::{Address, Stop};
use karoo_modem::formats::{FullScale, PlanarReader, PlanarWriter, ReadCounts, SampleFormat};
use karoo_modem::vita::SampleRate;
use karoo_modem::waveform::{FRAME_SYMBOLS, RRC_TAPS, SAMPLES_PER_SYMBOL};
use num_complex::Complex32;

use super::samples::{Input, Output};
use crate::cli::numbers::number_within;
use crate::cli::waits::{FirstWaits, Way, tell_wait, wait_in_words};
use crate::cli::{Failure, is_pipe, with_causes};
use crate::modem::{
    Block, Intake, IntakeCounts, IntakeSettings, Outlet, OutletCounts, OutletSettings, Place,
    PlaceError, Taken,
};

/// Samples by which a frame's last pulse reaches behind its last symbol.
const PULSE_TAIL: u64 = (RRC_TAPS - 1) as u64;
/// How long a look for packets lasts.
const PATIENCE: Duration = Duration::from_millis(50);
/// The same for a link, whose frames somebody waits for.
const SHORT: Duration = Duration::from_millis(5);

/// How samples are laid out.
#[derive(Clone, Copy, Debug, Args)]
pub struct LayoutOptions {
    /// Blocks of 120 real and 120 imaginary parts, as between the original's programs: for shm:,
    /// tcp: and -
    #[arg(long)]
    planar: bool,
}

impl LayoutOptions {
    /// Refuses a place or a format that has no such blocks.
    fn check(self, place: &Place, format: Option<SampleFormat>) -> Result<(), Failure> {
        let is_file = place.has_packets() || place.file().is_some();
        if self.planar && is_file {
            let why = format!("--planar: {place} has none; it is for shm:, tcp: and -");
            return Err(Failure::usage(why));
        }
        if self.planar && format == Some(SampleFormat::Ci16) {
            let why = "--planar: parts are floats; leave --format out";
            return Err(Failure::usage(why));
        }
        Ok(())
    }
}

/// What holds for packets in both directions.
#[derive(Debug, Args)]
#[command(next_help_heading = "Packets")]
pub struct PacketOptions {
    /// Number of the stream [default: received, that of the first packet; sent, 0]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    stream: Option<u32>,
    /// Interface, by name or address, that a group of udp: is joined or sent by [default: as the
    /// system routes it]
    #[arg(long, value_name = "INTERFACE")]
    interface: Option<String>,
    /// CPU of the lcore of dpdk: [default: the last that this process may use]
    #[arg(long, value_name = "CPU", allow_negative_numbers = true)]
    cpu: Option<usize>,
}

impl PacketOptions {
    /// Refuses what nothing at a place follows.
    fn check(&self, option: &str, place: &Place) -> Result<(), Failure> {
        let stream = self.stream.map(|stream| format!("--stream {stream}"));
        let interface = self.interface.as_ref();
        let interface = interface.map(|name| format!("--interface {name}"));
        let cpu = self.cpu.map(|cpu| format!("--cpu {cpu}"));
        let is_socket = matches!(place, Place::Socket { .. });
        let is_port = matches!(place, Place::Port(_));
        let rules = [
            (stream, place.has_packets(), "udp:, dpdk: and captures"),
            (interface, is_socket, "udp:"),
            (cpu, is_port, "dpdk:"),
        ];
        for (given, is_followed, places) in rules {
            if let Some(given) = given.filter(|_| !is_followed) {
                return Err(Failure::usage(format!(
                    "{given}: {option} {place} has no use for it, which is for {places}; leave it out"
                )));
            }
        }
        Ok(())
    }

    fn cpu(&self) -> usize {
        self.cpu.or(allowed_cpus().last().copied()).unwrap_or(0)
    }
}

/// What is done to packets that are sent.
#[derive(Debug, Args)]
#[command(next_help_heading = "Packets")]
pub struct LossOptions {
    /// Share of the packets that are left out on purpose, to see what losses do
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share, allow_negative_numbers = true)]
    lose: f64,
    /// Which packets those are
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    lose_seed: u64,
}

fn share(text: &str) -> Result<f64, String> {
    number_within(text, 0.0..=1.0, "it must be 0 to 1, such as 0.001")
}

fn rate(hertz: f64) -> Result<SampleRate, Failure> {
    let failed = |error| Failure::usage(format!("--sample-rate: {error}"));
    SampleRate::new(hertz).map_err(failed)
}

/// What came of a look at a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Samples.
    Samples,
    /// Samples of a stream that has begun anew.
    Restart,
    /// None yet.
    Nothing,
    /// No more.
    End,
}

/// Refuses a capture that is a named pipe: whoever is waited for at its other end would keep a
/// signal waiting too.
fn no_pipe(option: &str, place: &Place) -> Result<(), Failure> {
    match place {
        Place::Capture { path, .. } if is_pipe(path) => Err(Failure::usage(format!(
            "{option} {place}: a capture is a file, and this is a named pipe; name a file"
        ))),
        _ => Ok(()),
    }
}

/// Why packets cannot be had at the place of an option.
fn failure(option: &str, place: &Place, error: &PlaceError) -> Failure {
    let text = format!("{option} {place}: {}", with_causes(error));
    match error.is_usage() {
        true => Failure::usage(text),
        false => Failure::data(text),
    }
}

/// A place that failed while packets came or went.
fn broken(place: &Place, error: &dyn Error) -> Failure {
    Failure::data(format!("{place}: {}", with_causes(error)))
}

/// Where samples come from.
pub enum Source {
    /// Bytes.
    Bytes(Box<Input>),
    /// Packets.
    Packets(Place, Box<Intake>, Block),
    /// Blocks of a link, their rate, and the full scale of its converter.
    Link(Receiver<Vec<Complex32>>, f64, Option<FullScale>),
}

impl Source {
    /// Opens it.
    pub fn open(
        place: &Place,
        packets: &PacketOptions,
        (format, scale, layout): (Option<SampleFormat>, Option<FullScale>, LayoutOptions),
        sample_rate: Option<f64>,
        stop: &Stop,
    ) -> Result<Source, Failure> {
        layout.check(place, format)?;
        packets.check("--input", place)?;
        no_pipe("--input", place)?;
        let failed = |error: &dyn Display| format!("--input {place}: {error}");
        let Place::Bytes(address) = place else {
            if let Some(format) = format {
                return Err(Failure::usage(failed(&format!(
                    "--format {format}: packets have 16-bit integers; leave the option out"
                ))));
            }
            let settings = IntakeSettings {
                stream: packets.stream,
                rate: sample_rate.map(rate).transpose()?,
                full_scale: scale.unwrap_or_default(),
                interface: packets.interface.clone(),
                cpu: packets.cpu(),
            };
            let intake = Intake::open(place, &settings);
            let intake = intake.map_err(|error| failure("--input", place, &error))?;
            if place.is_live() {
                tracing::info!(input = %place, "receiving");
            }
            let block = Block::default();
            return Ok(Source::Packets(place.clone(), Box::new(intake), block));
        };
        let input = match place.file() {
            Some(path) => Input::open(path, format, scale, stop)?,
            None => {
                let _told = wait_in_words("--input", address, Way::In).map(tell_wait);
                let source = address.reader(stop);
                let mut source: Box<dyn Read + Send> =
                    source.map_err(|error| Failure::data(failed(&error)))?;
                if layout.planar {
                    source = Box::new(PlanarReader::new(source));
                }
                Input::raw(&place.to_string(), source, format, scale)
            }
        };
        Ok(Source::Bytes(Box::new(input)))
    }

    /// Samples per second, as far as metadata or contexts say them by now.
    pub fn sample_rate(&self) -> Option<f64> {
        match self {
            Source::Bytes(input) => input.recording.as_ref()?.sample_rate,
            Source::Packets(_, intake, _) => Some(intake.context()?.sample_rate.hertz()),
            Source::Link(_, rate, _) => Some(*rate),
        }
    }

    /// Whether nothing said the format of the samples.
    pub fn is_guessed(&self) -> bool {
        match self {
            Source::Bytes(input) => input.is_guessed,
            Source::Packets(..) | Source::Link(..) => false,
        }
    }

    /// Value that is the samples' full scale, if it is known.
    pub fn full_scale(&self) -> Option<FullScale> {
        match self {
            Source::Bytes(input) => input.full_scale,
            Source::Packets(_, intake, _) => Some(intake.full_scale()),
            Source::Link(_, _, full_scale) => *full_scale,
        }
    }

    /// What has become of packets so far.
    pub fn counts(&self) -> Option<IntakeCounts> {
        match self {
            Source::Packets(_, intake, _) => Some(intake.counts()),
            _ => None,
        }
    }

    /// Looks for samples, and takes them in exchange for those of the block.
    pub fn next(&mut self, samples: &mut Vec<Complex32>) -> Result<Next, Failure> {
        samples.clear();
        match self {
            Source::Bytes(input) => match input.read(samples)? {
                0 => Ok(Next::End),
                _ => Ok(Next::Samples),
            },
            Source::Packets(_, intake, block) => match intake.take(block, PATIENCE) {
                Taken::Nothing => Ok(Next::Nothing),
                Taken::End => Ok(Next::End),
                Taken::Block => {
                    std::mem::swap(samples, &mut block.samples);
                    match block.restart {
                        true => Ok(Next::Restart),
                        false => Ok(Next::Samples),
                    }
                }
            },
            Source::Link(blocks, ..) => match blocks.recv_timeout(SHORT) {
                Ok(block) => {
                    *samples = block;
                    Ok(Next::Samples)
                }
                Err(RecvTimeoutError::Timeout) => Ok(Next::Nothing),
                Err(RecvTimeoutError::Disconnected) => Ok(Next::End),
            },
        }
    }

    /// Takes no more in; whether what was taken in until now still comes.
    pub fn stop(&self) -> bool {
        match self {
            Source::Packets(_, intake, _) => {
                intake.stop();
                true
            }
            Source::Bytes(_) | Source::Link(..) => false,
        }
    }

    /// Ends it, and says what has become of packets.
    pub fn finish(self) -> Result<Option<IntakeCounts>, Failure> {
        match self {
            Source::Bytes(_) | Source::Link(..) => Ok(None),
            Source::Packets(place, intake, _) => {
                let ended = intake.finish();
                Ok(Some(ended.map_err(|error| broken(&place, &error))?))
            }
        }
    }

    /// What has been read of bytes.
    pub fn read_counts(&self) -> ReadCounts {
        match self {
            Source::Bytes(input) => input.counts(),
            Source::Packets(..) | Source::Link(..) => ReadCounts::default(),
        }
    }
}

/// Where samples go.
pub enum Destination {
    /// Bytes.
    Bytes(Box<Output>),
    /// Packets.
    Packets(Place, Box<Outlet>, u64),
}

/// What has gone.
pub struct Gone {
    /// Samples.
    pub samples: u64,
    /// Real and imaginary parts that were clipped.
    pub clipped: u64,
    /// What was sent as packets.
    pub packets: Option<OutletCounts>,
}

impl Destination {
    /// Opens it.
    pub fn open(
        place: &Place,
        (packets, losses): (&PacketOptions, &LossOptions),
        (format, scale, layout): (Option<SampleFormat>, FullScale, LayoutOptions),
        sample_rate: Option<f64>,
        stop: &Stop,
    ) -> Result<Destination, Failure> {
        layout.check(place, format)?;
        packets.check("--output", place)?;
        no_pipe("--output", place)?;
        if place.idle().is_some() {
            let why = format!("--output {place}: idle= is for inputs; leave it out");
            return Err(Failure::usage(why));
        }
        let failed = |error: &dyn Display| format!("--output {place}: {error}");
        if let Place::Bytes(address) = place {
            if losses.lose > 0.0 {
                let why = format!("--lose {}: --output {place} has no packets", losses.lose);
                return Err(Failure::usage(why));
            }
            let text = wait_in_words("--output", address, Way::Out);
            // Shared memory is made at once; its first write waits for a reader.
            let is_shared = matches!(address, Address::Shared { .. });
            let (at_once, later) = match is_shared {
                true => (None, text),
                false => (text, None),
            };
            let _told = at_once.map(tell_wait);
            let mut output = match place.file() {
                Some(path) => Output::create(path, format, scale, stop)?,
                None => {
                    let sink = address.writer(stop);
                    let sink = sink.map_err(|error| Failure::data(failed(&error)))?;
                    let sink = FirstWaits::new(sink, move || later.map(tell_wait));
                    let mut sink: Box<dyn Write> = Box::new(BufWriter::new(sink));
                    if layout.planar {
                        sink = Box::new(PlanarWriter::new(sink));
                    }
                    Output::raw(&place.to_string(), sink, format, scale)
                }
            };
            output.recording.sample_rate = sample_rate;
            return Ok(Destination::Bytes(Box::new(output)));
        }
        if let Some(SampleFormat::Cf32) = format {
            let why = "--format cf32: packets have 16-bit integers; leave the option out";
            return Err(Failure::usage(failed(&why)));
        }
        let Some(hertz) = sample_rate else {
            let why = failed(&"packets need --sample-rate, such as 1M");
            return Err(Failure::usage(why));
        };
        let settings = OutletSettings {
            stream: packets.stream.unwrap_or_default(),
            rate: rate(hertz)?,
            full_scale: scale,
            interface: packets.interface.clone(),
            cpu: packets.cpu(),
            losses: losses.lose,
            seed: losses.lose_seed,
        };
        let outlet = Outlet::open(place, &settings);
        let outlet = outlet.map_err(|error| failure("--output", place, &error))?;
        Ok(Destination::Packets(place.clone(), Box::new(outlet), 0))
    }

    /// Tells that the next samples are a frame, up to the last pulse's tail.
    pub fn frame(&mut self, label: &str) {
        const SAMPLES: u64 = (FRAME_SYMBOLS * SAMPLES_PER_SYMBOL) as u64;
        match self {
            Destination::Bytes(output) => output.annotate(label, SAMPLES),
            Destination::Packets(_, outlet, from) => {
                outlet.frame(*from..*from + SAMPLES + PULSE_TAIL);
            }
        }
    }

    /// Writes samples.
    pub fn write(&mut self, samples: &[Complex32]) -> Result<(), Failure> {
        match self {
            Destination::Bytes(output) => output.write(samples),
            Destination::Packets(place, outlet, written) => {
                *written += samples.len() as u64;
                let written = outlet.write(samples);
                written.map_err(|error| broken(place, &error))
            }
        }
    }

    /// Ends it.
    pub fn finish(self) -> Result<Gone, Failure> {
        match self {
            Destination::Bytes(output) => {
                let counts = output.finish()?;
                Ok(Gone {
                    samples: counts.samples,
                    clipped: counts.clipped,
                    packets: None,
                })
            }
            Destination::Packets(place, outlet, samples) => {
                let packets = outlet.finish();
                let packets = packets.map_err(|error| broken(&place, &error))?;
                Ok(Gone {
                    samples,
                    clipped: packets.clipped,
                    packets: Some(packets),
                })
            }
        }
    }
}

/// What has become of packets, in lines.
pub fn words(packets: &IntakeCounts) -> String {
    let counts = &packets.stream;
    let mut text = format!(
        "\n{} of samples, {} of context",
        counted(counts.packets, "packet"),
        counts.contexts
    );
    let causes = [
        (counts.lost_samples, "samples lost, for which zeros stand"),
        (counts.gaps, "gaps"),
        (counts.out_of_sequence, "packets out of sequence"),
        (
            counts.late,
            "packets left out since they came late or twice",
        ),
        (counts.restarts, "times the stream began anew"),
        (counts.other_streams, "packets of other streams"),
        (
            counts.without_rate,
            "packets before any context; --sample-rate would do",
        ),
        (
            counts.refused,
            "packets that are none of VITA 49.2 and DIFI",
        ),
        (counts.contexts_refused, "contexts that cannot be used"),
        (packets.no_datagrams, "frames that are no UDP datagrams"),
        (
            packets.port_missed.unwrap_or_default(),
            "packets that found no room in the port",
        ),
    ];
    for (count, what) in causes.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!("\n{count} {what}");
    }
    if let Some(stream) = packets.stream_instead() {
        text +=
            &format!("\nthe newest of another stream is of {stream}: --stream {stream} takes it");
    }
    if packets.capture_cut {
        text += "\nthe capture ends within a record: its whole packets were received";
    }
    text
}
