//! `karoo sink`: takes an output stream in, from an interface or a capture, and checks it.

mod live;
mod metrics;

use std::path::{Path, PathBuf};

use live::LiveArgs;

use super::{Failure, colour, examples, no_dash_to_read, print_json};
use crate::config::{SynthesisOptions, heading, with_output_keys};
use crate::sink::{self, SinkError, SinkOptions};

/// Take F-engine heaps in, from an interface while they come or from a capture, and check them
///
/// From a capture, spectra can also be written as arrays; where it has descriptors no option is
/// needed. Exit codes: 0 all that came was whole and right; 1 something is missing or wrong, or the
/// run failed; 2 the command line is wrong.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::SINK, after_long_help = with_output_keys(examples::SINK))]
#[group(id = "from", required = true, args = ["capture", "interface"])]
pub struct SinkArgs {
    /// Capture of the output (pcap or pcapng) [required, or --interface]
    #[arg(conflicts_with = "interface", value_parser = no_dash_to_read())]
    pub capture: Option<PathBuf>,
    /// Write NAME.npy (batch, channel, spectrum, pol, re/im), NAME.present.npy,
    /// NAME.timestamps.npy, NAME.spectrum.svg and NAME.json, which says what they are, of every
    /// stream here
    #[arg(long, value_name = "DIR", conflicts_with = "interface", help_heading = heading::RESULTS)]
    pub output_dir: Option<PathBuf>,
    /// Invert the filter bank of an oversampled output: write NAME.samples.npy (sample, pol) into
    /// the same folder; keys as the output had them: oversampling=M/N and, where they were given,
    /// taps, w_cutoff, window_function, decimation, pass_bandwidth; gain=X divides
    #[arg(long, value_name = "KEY=VALUE,…", requires = "output_dir", conflicts_with = "interface", help_heading = heading::RESULTS)]
    pub synthesis: Option<SynthesisOptions>,
    /// Print the report as JSON
    #[arg(long, help_heading = heading::RESULTS)]
    pub json: bool,
    /// Channels of streams without descriptors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "interface", help_heading = heading::CHECK)]
    pub channels: Option<u64>,
    /// Spectra per heap of streams without descriptors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "interface", help_heading = heading::CHECK)]
    pub spectra_per_heap: Option<u64>,
    /// Substreams of streams without descriptors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "interface", help_heading = heading::CHECK)]
    pub substreams: Option<u64>,
    /// F-engines in the array, the step of heap counts [default: from a capture, found out]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = heading::CHECK)]
    pub array_size: Option<u64>,
    #[command(flatten)]
    live: LiveArgs,
}

impl SinkArgs {
    /// Whether it receives from an interface.
    pub fn is_live(&self) -> bool {
        self.live.interface.is_some()
    }
}

/// Runs the command; the summary goes to standard output.
pub fn run(args: &SinkArgs) -> Result<(), Failure> {
    match (&args.live.interface, &args.capture) {
        (Some(interface), _) => live::run(args, interface),
        (None, Some(capture)) => read(args, capture),
        (None, None) => Err(Failure::usage("give a capture or --interface")),
    }
}

fn read(args: &SinkArgs, capture: &Path) -> Result<(), Failure> {
    let live = &args.live;
    check_beside(args)?;
    let options = SinkOptions {
        channels: args.channels,
        spectra_per_heap: args.spectra_per_heap,
        substreams: args.substreams,
        array_size: args.array_size,
        output_dir: args.output_dir.clone(),
        synthesis: args.synthesis,
        adc_sample_rate: live.adc_sample_rate,
        sync_time: live.sync_time,
        outputs: live.outputs()?,
    };
    let report = sink::read(capture, &options).map_err(|error| match error {
        SinkError::Unknown { .. }
        | SinkError::NotAFile(_)
        | SinkError::Option(_)
        | SinkError::AskedShape { .. }
        | SinkError::OtherOutput { .. }
        | SinkError::Synthesis { .. }
        | SinkError::OverCapture { .. } => Failure::usage(error),
        _ => Failure::data(error),
    })?;
    if args.json {
        print_json(&report)?;
    } else {
        println!("{}", coloured(&report, report.problems().count()));
    }
    problems(report.problems().count(), "capture")
}

/// Refuses options that say what stands beside the arrays of a capture where there are none.
fn check_beside(args: &SinkArgs) -> Result<(), Failure> {
    let live = &args.live;
    let given = [
        ("--adc-sample-rate", live.adc_sample_rate.is_some()),
        ("--sync-time", live.sync_time.is_some()),
        ("--wideband", !live.wideband.is_empty()),
        ("--narrowband", !live.narrowband.is_empty()),
    ];
    let mut given = given.into_iter().filter(|(_, given)| *given);
    match given.next() {
        Some((option, _)) if args.output_dir.is_none() => Err(Failure::usage(format!(
            "{option}: of a capture, says what stands beside its arrays; give --output-dir too"
        ))),
        _ => Ok(()),
    }
}

/// A report whose last line, the verdict, is in a colour.
fn coloured(report: &impl ToString, problems: usize) -> String {
    let style = if problems == 0 {
        colour::GOOD
    } else {
        colour::BAD
    };
    colour::last_line(&report.to_string(), style, colour::on_stdout())
}

fn problems(count: usize, of: &str) -> Result<(), Failure> {
    match count {
        0 => Ok(()),
        1 => Err(Failure::data(format!("1 problem in the {of}"))),
        n => Err(Failure::data(format!("{n} problems in the {of}"))),
    }
}
