//! `karoo fgpu`: a live engine in place of katgpucbf's.

use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ContextKind;
use clap::{ArgMatches, Args, Command};
use ground::N_POL;
use ground::files::read_text;
use host::placement::{Memory, Wishes};

use super::command_line::completed;
use super::log::{self, LogTo};
use super::plan::PlaceOptions;
use super::{Failure, examples, frame, with_katgpucbf_syntax};
use crate::assembly::{BackendKind, Demand};
use crate::config::units::within;
use crate::config::{
    FgpuConfig, FgpuOptions, InputConfig, arguments, heading, to_toml, with_output_keys,
};
use crate::gpu::{KernelOptions, MemoryChoice};

mod footprint;
pub(super) mod launch;
mod settled;

use footprint::Footprint;
pub(super) use settled::{Beside, Settled};

/// Run an F-engine: receive digitiser packets, channelise, and multicast spectra until told to end
///
/// Takes the command line of katgpucbf's fgpu. SIGINT, SIGTERM and ?halt let what was received come
/// out and end with stop heaps; a second signal ends at once. Exit codes: 0 ended as told, or at
/// the end of a capture; 1 the run failed; 2 the command line or the configuration file is wrong; 3
/// a device failed; 129, 130, 143 ended by a second signal.
#[derive(Debug, Args)]
#[command(
    after_help = examples::FGPU,
    after_long_help = with_output_keys(examples::FGPU)
)]
pub struct FgpuArgs {
    #[command(flatten)]
    options: FgpuOptions,
    /// File with further options: keys are their long names; what the command line says counts more
    #[arg(long, value_name = "FILE.toml", help_heading = heading::CONFIGURATION)]
    config: Option<PathBuf>,
    /// Print what would run as such a file, and end
    #[arg(long, help_heading = heading::CONFIGURATION)]
    print_config: bool,
    /// What computes
    #[arg(long, value_enum, default_value_t = BackendKind::Auto, help_heading = heading::COMPUTE)]
    backend: BackendKind,
    #[command(flatten)]
    kernels: KernelOptions,
    /// Where receive chunks are if a GPU computes
    #[arg(long, value_enum, default_value_t = MemoryChoice::Auto, help_heading = heading::COMPUTE)]
    memory: MemoryChoice,
    /// Compute threads of the CPU backend; as many as cores are left unless given
    #[arg(long, value_name = "N", help_heading = heading::COMPUTE, value_parser = within(1..=1024_u32, "must be 1 to 1024", "4"))]
    workers: Option<u32>,
    /// Receive chunks beside those that the engine needs: how long it may be held up without loss
    /// [default: 50 ms' worth, at most 64]
    #[arg(long, value_name = "N", help_heading = heading::RECEIVE, value_parser = within(0..=1024_u16, "must be 0 to 1024", "4"))]
    recv_spare_chunks: Option<u16>,
    #[command(flatten)]
    place: PlaceOptions,
    /// Print which thread would run on which CPU, and which buffer would be where, and why, and end
    #[arg(long, help_heading = heading::PLACE)]
    print_plan: bool,
    /// Seconds between reports of Karoo's own sensors (karoo.…) to clients that leave the pace to
    /// them (strategy auto); 0: no such sensors
    #[arg(long, value_name = "S", default_value_t = 10, help_heading = heading::CONTROL, value_parser = within(0..=86400_u32, "must be 0 to 86400 seconds", "10"))]
    karoo_sensors_period: u32,
    /// Where log messages go
    #[arg(long, value_enum, default_value_t, help_heading = heading::CONTROL)]
    log: LogTo,
}

impl FgpuArgs {
    /// Where log messages go.
    pub fn log(&self) -> LogTo {
        self.log
    }

    /// The options that katgpucbf has.
    pub fn options(&self) -> &FgpuOptions {
        &self.options
    }
}

/// The command with katgpucbf's defaults, and its ways to write options.
pub fn command(command: Command) -> Command {
    with_katgpucbf_syntax(FgpuOptions::with_defaults(command))
}

/// Splices the options of the `--config` file into `args`, or returns `None` if there is no
/// `--config`. `given` is the parsed form of `args`.
pub fn with_file(
    command: &Command,
    args: &[OsString],
    given: &ArgMatches,
) -> Result<Option<Vec<OsString>>, Failure> {
    let Some(path) = given.get_one::<PathBuf>("config") else {
        return Ok(None);
    };
    let text = read_text(path)
        .map_err(|error| Failure::usage(format!("--config {}: {error}", path.display())))?;
    let file = arguments(&text, command, given)
        .map_err(|error| Failure::usage(format!("--config {}: {error}", path.display())))?;
    // Behind the name of the command, before which there may be global options.
    let name = command.get_name();
    let at = args.iter().skip(1).position(|arg| arg == name);
    let behind = at.map_or(args.len(), |at| at + 2);
    let (names, rest) = args.split_at(behind);
    let file = file.into_iter().map(OsString::from);
    // SRC stands last.
    let (options, src): (Vec<_>, Vec<_>) =
        file.partition(|arg| arg.as_encoded_bytes().starts_with(b"--"));
    let args = names.iter().cloned().chain(options);
    Ok(Some(args.chain(rest.iter().cloned()).chain(src).collect()))
}

/// What the parser refused that only a `--config` file said, in the words of the file. `given` is
/// the command line without it.
pub fn mistake_in_file(given: &ArgMatches, error: &clap::Error) -> Failure {
    let file = given.get_one::<PathBuf>("config");
    let file = file.map_or(String::new(), |path| {
        format!("--config {}: ", path.display())
    });
    let context = |kind| error.get(kind).map(ToString::to_string);
    let argument = context(ContextKind::InvalidArg).unwrap_or_default();
    let key = argument
        .trim_matches(['-', '<', '>', '[', ']'])
        .split(' ')
        .next();
    let key = key.unwrap_or_default().to_lowercase();
    let value = context(ContextKind::InvalidValue).unwrap_or_default();
    let rule = error.source().map(ToString::to_string);
    Failure::usage(match rule {
        // Rules of outputs name option and key themselves.
        Some(rule) if rule.starts_with("--") => format!("{file}{rule}"),
        Some(rule) => format!("{file}{key} = '{value}': {rule}"),
        None => {
            let text = error.to_string();
            let text = text.split("\n\n").next().unwrap_or_default();
            format!("{file}{}", text.trim_start_matches("error: "))
        }
    })
}

/// The engine that the options ask for. A refusal for what is missing has the whole command line.
pub fn resolved(args: &FgpuArgs) -> Result<FgpuConfig, Failure> {
    args.options.resolve().map_err(|error| {
        let missing = args.options.missing();
        if missing.is_empty() {
            return Failure::usage(error);
        }
        let given: Vec<_> = std::env::args_os().collect();
        // SRC stands last.
        let (src, options): (Vec<_>, Vec<_>) = missing
            .into_iter()
            .partition(|(option, _)| *option == "SRC");
        let more = options.into_iter().chain(src);
        let more = more.flat_map(|(_, words)| words.iter().copied());
        let line = completed(given.iter().map(OsString::as_os_str), more);
        Failure::usage(format!(
            "{error}\n\nAll of it, with examples for what is missing:\n  {line}"
        ))
    })
}

/// Runs the command. `matches` is the parsed form of `args`, needed by `--print-config`.
pub fn run(args: &FgpuArgs, command: &Command, matches: &ArgMatches) -> Result<(), Failure> {
    let config = resolved(args)?;
    args.options.serve.check().map_err(Failure::usage)?;
    if args.print_config {
        print!("{}", to_toml(command, matches, &config));
        return Ok(());
    }
    let level = log::start(args.log);
    if (f64::MIN_POSITIVE..1.0).contains(&args.options.send_rate_factor) {
        let factor = args.options.send_rate_factor;
        tracing::warn!(
            "--send-rate-factor {factor}: output is sent more slowly than it comes to be"
        );
    }
    let Some(settled) = Settled::find(args, matches, config, |_, _| Ok(Beside::default()))? else {
        return Ok(());
    };
    let (katcp, sockets) = frame::bind(&args.options.serve)?;
    let serving = settled.serve(sockets, level)?;
    settled.launch(args).run(serving, katcp)
}

/// Receive chunks that may fill while the engine is held up: on shared machines stalls of some 25
/// ms were seen.
fn spare_chunks(args: &FgpuArgs, config: &FgpuConfig) -> usize {
    const STALL: f64 = 0.05;
    let chunks =
        STALL * config.engine.clock.adc_sample_rate / config.engine.recv.chunk_samples as f64;
    args.recv_spare_chunks
        .map_or((chunks.ceil() as usize).min(64), usize::from)
}

/// What the engine needs placed.
fn wishes(args: &FgpuArgs, config: &FgpuConfig, footprint: &Footprint) -> Wishes {
    let (rx, recv_interfaces, source) = match &config.input {
        InputConfig::Live {
            cpus, interfaces, ..
        } => (cpus.clone(), interfaces.clone(), false),
        InputConfig::Capture { cpu, .. } => (vec![*cpu], Vec::new(), true),
    };
    let (recv, rate) = (&config.engine.recv, config.engine.clock.adc_sample_rate);
    let bits = N_POL as f64 * rate * f64::from(recv.sample_bits.get());
    let memory = |demand: &Demand| Memory {
        what: demand.what.clone(),
        bytes: demand.bytes,
    };
    Wishes {
        rx,
        tx: config.egress.cpu,
        // Without interfaces there is still one tx lcore, which sends nowhere.
        tx_lcores: config.egress.interfaces.len().max(1),
        source,
        workers: args.workers.map(|workers| workers as usize),
        // The plan of all engines says so.
        shares_cpus: false,
        input_gbps: (!source).then_some(bits / 1e9),
        recv_interfaces,
        send_interfaces: config.egress.interfaces.clone(),
        memory: footprint.host().iter().map(memory).collect(),
        starting: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn global_options_may_stand_before_the_command() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fgpu");
        std::fs::write(&path, "feng-id = 3\nlog-format = 'text'").unwrap();
        let command = super::super::command();
        let parse = |args: &[OsString]| command.clone().try_get_matches_from(args).unwrap();
        for (front, format) in [
            (&[][..], "text"),
            (&["--log-format", "json"], "json"),
            (&["--log-format=json"], "json"),
        ] {
            let args = [&["karoo"], front, &["fgpu", "--config"]].concat();
            let mut args: Vec<_> = args.into_iter().map(OsString::from).collect();
            args.push(path.clone().into());
            let matches = parse(&args);
            let (name, given) = matches.subcommand().unwrap();
            let fgpu = command.find_subcommand(name).unwrap();
            let args = with_file(fgpu, &args, given);
            let args = args.unwrap_or_else(|error| panic!("{error}")).unwrap();
            let matches = parse(&args);
            let (_, matches) = matches.subcommand().unwrap();
            let raw = |id| matches.get_raw(id).unwrap().collect::<Vec<_>>();
            assert_eq!(raw("feng_id"), ["3"]);
            assert_eq!(raw("log_format"), [format], "{args:?}");
        }
    }
}
