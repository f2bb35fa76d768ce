//! `karoo doctor`: why nothing comes.

use std::time::Duration;

use clap::{Args, Command};
use ground::StopFlag;

use super::{Failure, examples, fgpu, print_json, with_katgpucbf_syntax};
use crate::assembly::stop_on_signal;
use crate::config::units::seconds;
use crate::config::{FgpuOptions, heading};
use crate::doctor::{Asked, Look, examine};

/// Options of `fgpu` that say what should come, and so are named by help. All others are taken.
const NAMED: [&str; 15] = [
    "src",
    "recv_interface",
    "send_interface",
    "adc_sample_rate",
    "sync_time",
    "wideband",
    "narrowband",
    "dig_sample_bits",
    "recv_packet_samples",
    "mask_timestamp",
    "send_packet_payload",
    "config",
    "seconds",
    "json",
    "help",
];
/// What help says of some of them here.
const HELP: [(&str, &str); 4] = [
    (
        "src",
        "Where digitiser packets should come: multicast groups of both polarisations [required]",
    ),
    ("recv_interface", "Interfaces to receive on [required]"),
    (
        "wideband",
        "An output of the whole band, as karoo fgpu takes it",
    ),
    (
        "narrowband",
        "An output of a part of the band, as karoo fgpu takes it",
    ),
];

/// Say why nothing comes to an engine, or why nothing of what comes is placed
///
/// Takes the command line of `karoo fgpu` with another word in its place: all its options, of which
/// those below say what should come. Looks at the wire, at interfaces and at the kernel for some
/// seconds, joins the groups meanwhile, and changes nothing. A running engine loses nothing by it.
/// A signal cuts the look short: what was seen until then is told.
/// Exit codes: 0 nothing wrong was found; 1 something was, or the look failed; 2 the command line
/// is wrong.
#[derive(Debug, Args)]
#[command(after_help = examples::DOCTOR, after_long_help = examples::DOCTOR)]
pub struct DoctorArgs {
    #[command(flatten)]
    engine: fgpu::FgpuArgs,
    /// Seconds to look, 0.1 to 3600; an IGMP querier asks every 125 s as a rule
    #[arg(
        long = "for",
        value_name = "SECONDS",
        default_value_t = 5.0,
        value_parser = seconds,
        help_heading = heading::LOOK
    )]
    seconds: f64,
    /// Print findings as JSON
    #[arg(long, help_heading = heading::LOOK)]
    json: bool,
}

/// The command with katgpucbf's defaults and ways to write options, and help on what matters here.
pub fn command(command: Command) -> Command {
    let command = with_katgpucbf_syntax(FgpuOptions::with_fallbacks(command));
    let command = command.mut_args(|arg| match NAMED.contains(&arg.get_id().as_str()) {
        true => arg,
        false => arg.hide(true),
    });
    HELP.iter().fold(command, |command, (id, text)| {
        command.mut_arg(*id, |arg| arg.help(*text))
    })
}

/// Runs the command.
pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let options = args.engine.options();
    if !(0.1..=3600.0).contains(&args.seconds) {
        let text = format!("--for {}: must be 0.1 to 3600 seconds; try 5", args.seconds);
        return Err(Failure::usage(text));
    }
    let asked = Asked::of_options(options).map_err(Failure::usage)?;
    if options.missing().is_empty() {
        // What an engine would refuse.
        fgpu::resolved(&args.engine)?;
    }
    let look = Look {
        time: Duration::from_secs_f64(args.seconds),
        beside_engine: false,
    };
    let stop = StopFlag::default();
    stop_on_signal(&stop, None);
    let report = examine(&asked, look, &stop).map_err(Failure::data)?;
    match args.json {
        true => print_json(&report)?,
        false => print!("{report}"),
    }
    let codes = report.findings.iter().map(|finding| finding.code.name());
    let mut codes: Vec<_> = codes.collect();
    codes.dedup();
    match codes {
        codes if codes.is_empty() => Ok(()),
        codes => Err(Failure::data(format!("found: {}", codes.join(", ")))),
    }
}
