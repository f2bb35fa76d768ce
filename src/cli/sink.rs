//! `karoo sink`: reads an output stream back from a capture.

use std::path::PathBuf;

use super::Failure;
use crate::sink::{self, SinkError, SinkOptions};

/// Read F-engine heaps back from a capture, check them, and write the spectra as arrays.
///
/// Exit code 1 when anything is missing or wrong. Where the capture has descriptors no option is needed.
#[derive(Debug, clap::Args)]
pub struct SinkArgs {
    /// Capture of the output (pcap or pcapng)
    pub capture: PathBuf,
    /// Write NAME.npy (batch, channel, spectrum, pol, re/im), NAME.present.npy, NAME.timestamps.npy and
    /// NAME.spectrum.svg of every stream here
    #[arg(long, value_name = "DIR")]
    pub output_dir: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Channels of streams without descriptors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub channels: Option<u64>,
    /// Spectra per heap of streams without descriptors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub spectra_per_heap: Option<u64>,
    /// Substreams of streams without descriptors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub substreams: Option<u64>,
    /// F-engines in the array, the step of heap counts [default: found out]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub array_size: Option<u64>,
}

/// Runs the command; the summary goes to standard output.
pub fn run(args: &SinkArgs) -> Result<(), Failure> {
    let options = SinkOptions {
        channels: args.channels,
        spectra_per_heap: args.spectra_per_heap,
        substreams: args.substreams,
        array_size: args.array_size,
        output_dir: args.output_dir.clone(),
    };
    let report = sink::read(&args.capture, &options).map_err(|error| match error {
        SinkError::Unknown { .. } => Failure::usage(error),
        _ => Failure::data(error),
    })?;
    if args.json {
        println!(
            "{}",
            serde_json::to_string_pretty(&report).map_err(Failure::data)?
        );
    } else {
        println!("{report}");
    }
    match report.problems().count() {
        0 => Ok(()),
        1 => Err(Failure::data("1 problem in the capture")),
        n => Err(Failure::data(format!("{n} problems in the capture"))),
    }
}
