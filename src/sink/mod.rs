//! The consumer's side of an output stream: reads F-engine heaps back from a capture, checks them
//! and puts the spectra together.
//!
//! A capture is read twice. The first pass ([`layout`]) finds the streams: which destinations carry
//! them, their shape (from the descriptors), and which batches there are. The second (`assemble`)
//! puts every packet where it belongs, straight into the output file, so that memory holds no
//! spectra: only a few bytes for each heap, and what arrived of the heaps that are not complete.
//!
//! Streams that come from a port cannot be read twice: [`live`].

mod assemble;
pub mod counts;
mod files;
pub mod grid;
mod group;
pub mod layout;
pub mod live;
pub mod metadata;
mod output;
mod problems;
mod ranges;
pub mod report;
pub mod spectrum;
pub mod synthesis;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};

use dsp::synthesis::SynthesisError;
use spead::{Descriptor, Packet, SpectraRepr, StopRepr, descriptor};

use crate::config::{ConfigError, OutputConfig, SynthesisOptions, check_rate, check_sync_time};
use crate::net::{CaptureError, CaptureReader, Datagram, is_read_once};
use crate::recv::DropCause;

pub use report::{SinkReport, StreamReport, SynthesisReport};

/// What the capture does not say, and where to write.
#[derive(Clone, Debug, Default)]
pub struct SinkOptions {
    /// Channels of streams that have no descriptors.
    pub channels: Option<u64>,
    /// Spectra per heap of streams that have no descriptors.
    pub spectra_per_heap: Option<u64>,
    /// Substreams of streams that have no descriptors.
    pub substreams: Option<u64>,
    /// Step of heap counts; found out where not given.
    pub array_size: Option<u64>,
    /// Folder for arrays and pictures; nothing is written where not given.
    pub output_dir: Option<PathBuf>,
    /// The filter bank that is to be inverted, if any; what comes of it goes to the same folder.
    pub synthesis: Option<SynthesisOptions>,
    /// ADC sample rate of the digitiser in hertz, for frequencies beside the arrays.
    pub adc_sample_rate: Option<f64>,
    /// UNIX time of timestamp 0, which stands beside the arrays.
    pub sync_time: Option<f64>,
    /// Outputs that streams may be of, by their destinations: for names and bands beside the
    /// arrays.
    pub outputs: Vec<OutputConfig>,
}

/// Why a capture gives no spectra.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The file cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// It can be read only once.
    #[error("{0} is not a regular file; a sink reads its capture twice: save it to a file first")]
    NotAFile(String),
    /// An option is wrong, whatever the capture holds.
    #[error(transparent)]
    Option(#[from] ConfigError),
    /// Options give a stream a shape that is not an F-engine's.
    #[error(
        "{options}: the stream at {dst}, which has no descriptors, would have {what}; {rule}; \
         give the values that the engine has"
    )]
    AskedShape {
        /// The options that gave the shape, with their values.
        options: String,
        /// First destination.
        dst: SocketAddrV4,
        /// What follows from them.
        what: String,
        /// What must hold.
        rule: &'static str,
    },
    /// Nothing of ours in it.
    #[error(
        "{path}: none of its {frames} frames is an F-engine heap ({seen}); \
         a capture of the output's multicast groups is needed"
    )]
    NoSpectra {
        /// The file.
        path: String,
        /// Frames in it.
        frames: u64,
        /// What they are instead.
        seen: String,
    },
    /// No descriptors and no options that take their place.
    #[error("the stream at {dst} has no descriptors: give {option}")]
    Unknown {
        /// First destination.
        dst: SocketAddrV4,
        /// Option that would help.
        option: &'static str,
    },
    /// A shape that is not an F-engine's.
    #[error("the stream at {dst} has {what}; {rule}")]
    Shape {
        /// First destination.
        dst: SocketAddrV4,
        /// What was found.
        what: String,
        /// What must hold.
        rule: &'static str,
    },
    /// An output of the options has the destination of a stream, but other heaps.
    #[error(
        "output '{output}' has {asked} channels in each substream, and the stream to its \
         destinations has {found}; give the output as the engine has it"
    )]
    OtherOutput {
        /// Name of the output.
        output: String,
        /// Channels of its substreams.
        asked: u64,
        /// Channels of the stream's substreams.
        found: u64,
    },
    /// The filter bank has no inverse.
    #[error("--synthesis: a stream of {channels} channels: {source}")]
    Synthesis {
        /// Channels of the stream.
        channels: u64,
        /// Why.
        source: SynthesisError,
    },
    /// An output file is the capture itself.
    #[error(
        "--output-dir: {written} is the capture {capture}, which would be lost; \
         name another folder"
    )]
    OverCapture {
        /// The file that would be written.
        written: String,
        /// The capture.
        capture: String,
    },
    /// An output file cannot be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
}

impl SinkOptions {
    /// Refuses what no stream can have.
    fn check(&self) -> Result<(), ConfigError> {
        self.adc_sample_rate.map_or(Ok(()), check_rate)?;
        self.sync_time.map_or(Ok(()), check_sync_time)?;
        match (self.channels, self.substreams) {
            (Some(channels), Some(substreams)) if !substreams_divide(channels, substreams) => {
                let rule = format!("must divide the {channels} of --channels");
                let way_out = "give both as the engine has them";
                Err(ConfigError::new("--substreams", substreams, rule, way_out))
            }
            _ => Ok(()),
        }
    }

    /// Those that give streams a shape, as they are typed.
    fn of_shape(&self) -> String {
        let options = [
            ("--channels", self.channels),
            ("--spectra-per-heap", self.spectra_per_heap),
            ("--substreams", self.substreams),
        ];
        let given = options.into_iter();
        let given = given.filter_map(|(name, value)| Some(format!("{name} {}", value?)));
        given.collect::<Vec<_>>().join(", ")
    }
}

/// Whether each substream has the same number of channels, one at least.
fn substreams_divide(channels: u64, substreams: u64) -> bool {
    channels > 0 && channels.checked_rem(substreams) == Some(0)
}

/// Reads a capture's streams, checks them, and writes arrays and pictures if there is a folder for
/// them.
pub fn read(capture: &Path, options: &SinkOptions) -> Result<SinkReport, SinkError> {
    options.check()?;
    if is_read_once(capture) {
        return Err(SinkError::NotAFile(capture.display().to_string()));
    }
    let (layouts, mut report) = layout::survey(capture, options)?;
    metadata::check(&layouts, options)?;
    output::spare(capture, &layouts, options)?;
    let mut streams = layouts
        .into_iter()
        .map(|layout| assemble::Assembler::new(layout, options))
        .collect::<Result<Vec<_>, _>>()?;
    // Several engines may have one source address.
    let mut by_route: BTreeMap<Route, Vec<(usize, usize)>> = BTreeMap::new();
    for (i, stream) in streams.iter().enumerate() {
        for (sub, route) in stream.routes() {
            by_route.entry(route).or_default().push((i, sub));
        }
    }
    walk(capture, |heap| {
        if let Ok((route, kind)) = heap
            && let Some(places) = by_route.get(&route)
        {
            let own = places.iter().find(|&&(i, _)| streams[i].is_of(&kind));
            // What is of no engine is counted with the first.
            if let Some(&(i, sub)) = own.or(places.first()) {
                streams[i].add(sub, &kind)?;
            }
        }
        Ok(())
    })?;
    let finished = streams.into_iter().map(assemble::Assembler::finish);
    let finished: Vec<_> = finished.collect::<Result<_, _>>()?;
    let files: Vec<_>;
    (report.streams, files) = finished.into_iter().unzip();
    // Not before all of it is there: what an earlier run left is whole.
    files.into_iter().try_for_each(output::Unfinished::finish)?;
    output::remove_old(capture, &report.streams, options)?;
    Ok(report)
}

/// Where a datagram came from, and where it went.
pub type Route = (std::net::Ipv4Addr, SocketAddrV4);

/// What a datagram carries.
pub enum Kind<'a> {
    /// Part of a heap of spectra, and its payload.
    Spectra(SpectraRepr, &'a [u8]),
    /// A descriptor heap with this heap count.
    Descriptors(u64, Vec<Descriptor>),
    /// A stop heap with this heap count.
    Stop(u64),
    /// Sound SPEAD, but none of these.
    Other,
}

/// Whether the capture is whole, and what kind of file it is.
struct Walked {
    format: &'static str,
    truncated: bool,
}

/// Calls `visit` for every frame; with the cause where it is not a SPEAD datagram.
fn walk(
    capture: &Path,
    mut visit: impl FnMut(Result<(Route, Kind<'_>), &'static str>) -> Result<(), SinkError>,
) -> Result<Walked, SinkError> {
    let mut reader = CaptureReader::open(capture)?;
    while let Some(frame) = reader.next_frame()? {
        visit(classify(frame.bytes))?;
    }
    Ok(Walked {
        format: reader.format(),
        truncated: reader.truncated(),
    })
}

/// What a frame carries; the cause where it is not a SPEAD datagram.
pub fn classify(frame: &[u8]) -> Result<(Route, Kind<'_>), &'static str> {
    let datagram = Datagram::new_checked(frame).map_err(|e| DropCause::from(&e).name())?;
    let packet = Packet::new_checked(datagram.payload()).map_err(|e| e.cause())?;
    let route = (*datagram.src().ip(), datagram.dst());
    if let Some(stop) = StopRepr::parse(&packet) {
        return Ok((route, Kind::Stop(stop.heap_count)));
    }
    if let Some(spectra) = SpectraRepr::parse(&packet).map_err(|e| e.cause())? {
        return Ok((route, Kind::Spectra(spectra, packet.payload())));
    }
    let descriptors = descriptor::parse_heap(&packet)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| e.cause())?;
    let kind = if descriptors.is_empty() {
        Kind::Other
    } else {
        Kind::Descriptors(packet.heap_count(), descriptors)
    };
    Ok((route, kind))
}
