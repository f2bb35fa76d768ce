//! Command line: one file per command.
//!
//! Exit codes: 0 success; 1 the data was unusable or the run failed; 2 the command line was wrong;
//! 3 a device, such as the GPU, failed in the middle of a run; 129, 130, 143 a second SIGHUP,
//! SIGINT, SIGTERM ended at once what runs for long.

/// The standard library's `print!`, but through [`put`].
macro_rules! print {
    ($($text:tt)*) => { $crate::cli::put(format_args!($($text)*)) };
}

/// As that of the standard library, by [`put`].
macro_rules! println {
    ($($text:tt)*) => { $crate::cli::put(format_args!("{}\n", format_args!($($text)*))) };
}

/// As that of the standard library, but nobody need read it: a panic would hide how a run ended.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::cli::put_error(format_args!("{}\n", format_args!($($text)*))) };
}

mod bench;
mod colour;
mod command_line;
mod doctor;
mod dsim;
mod examples;
mod failure;
mod fgpu;
mod files;
mod flow;
mod frame;
mod gelf;
mod help;
mod journal;
mod log;
mod losses;
mod manual;
mod modem;
mod numbers;
mod plan;
mod qualify;
mod replay;
mod schema;
mod serve;
mod service;
mod shadow;
mod sink;
mod top;
mod tune;
mod waits;

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use ground::{karoo_version, set_commit};

pub use failure::Failure;
use failure::with_causes;
use files::{
    Files, NewFile, in_utf8, is_pipe, make_folder, no_dash_to_read, no_dash_to_write, unwritten,
};
use log::LogFormat;

use crate::config::heading;
use crate::net::is_stdout;
use crate::report::{Documented, to_json};

/// Colours of help and of errors, where a terminal shows them.
const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Variable of the environment in place of `--log-format`.
const LOG_FORMAT: &str = "KAROO_LOG_FORMAT";

/// F-engine appliance: channelises, corrects and multicasts radio-telescope voltages
#[derive(Debug, Parser)]
#[command(
    name = "karoo",
    version = karoo_version(),
    max_term_width = 100,
    styles = STYLES,
    after_help = examples::KAROO
)]
struct Cli {
    /// What log messages look like on standard error
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "FORMAT",
        default_value_t,
        env = LOG_FORMAT,
        help_heading = heading::CONTROL
    )]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Fgpu(Box<fgpu::FgpuArgs>),
    Doctor(Box<doctor::DoctorArgs>),
    Shadow(Box<shadow::ShadowArgs>),
    Replay(Box<replay::ReplayArgs>),
    Qualify(qualify::QualifyArgs),
    Dsim(Box<dsim::DsimArgs>),
    Sink(Box<sink::SinkArgs>),
    Top(top::TopArgs),
    Bench(bench::BenchArgs),
    Flow(flow::FlowArgs),
    Modem(modem::ModemArgs),
    Plan(plan::PlanArgs),
    Tune(tune::TuneArgs),
    Schema(schema::SchemaArgs),
    Man(manual::ManArgs),
    Completions(manual::CompletionsArgs),
}

impl Command {
    /// Whether it starts its log by itself.
    fn runs_for_long(&self) -> bool {
        match self {
            Self::Fgpu(_) | Self::Shadow(_) => true,
            Self::Dsim(args) => args.is_live(),
            Self::Sink(args) => args.is_live(),
            Self::Flow(args) => args.runs_for_long(),
            Self::Modem(args) => args.runs_for_long(),
            _ => false,
        }
    }
}

/// Prints. Nobody need read it: a panic would end what is under way, and hide how it ended.
fn put(text: fmt::Arguments<'_>) {
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout.write_fmt(text).and_then(|()| stdout.flush())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let _only_the_first = UNPRINTED.set(error);
    }
}

/// Writes to standard error, if anybody can read that.
fn put_error(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// Prints a document as JSON, for `--json`.
fn print_json(document: &impl Documented) -> Result<(), Failure> {
    println!("{}", to_json(document).map_err(Failure::data)?);
    Ok(())
}

/// Why not all was printed.
static UNPRINTED: OnceLock<io::Error> = OnceLock::new();

/// Says why the command fails, if anybody can read it: its exit code counts.
fn complain(why: fmt::Arguments<'_>) {
    if !log::is_json() || !gelf::is_on() {
        gelf::complain(&why.to_string());
    }
    if log::is_json() {
        log::begin();
        tracing::error!("{why}");
        return;
    }
    let error = colour::paint(*STYLES.get_error(), "error:", colour::on_stderr());
    eprintln!("{error} {why}");
}

/// Parses the command line, runs the command and maps its outcome to an exit code. `commit` is that
/// of the sources, empty if it is not known.
pub fn main(commit: &'static str) -> ExitCode {
    set_commit(commit);
    let done = run(arguments(std::env::args_os().collect()));
    if let Err(failure) = &done {
        complain(format_args!("{failure}"));
    }
    let unprinted = UNPRINTED.get();
    if let Some(error) = unprinted {
        complain(format_args!("cannot print: {error}"));
    }
    match (done, unprinted) {
        (Err(failure), _) => failure.exit_code(),
        (Ok(()), Some(_)) => ExitCode::FAILURE,
        (Ok(()), None) => ExitCode::SUCCESS,
    }
}

/// The process's arguments. Called by the name of one of katgpucbf's programs, it is that command.
fn arguments(mut args: Vec<OsString>) -> Vec<OsString> {
    let name = args
        .first()
        .and_then(|program| Path::new(program).file_name());
    let programs = ["fgpu", "dsim"].into_iter();
    if let Some(command) = programs
        .into_iter()
        .find(|program| name.is_some_and(|name| name == *program))
    {
        // Usage puts the program's name before the command's, which says it already. An empty path
        // has none.
        args[0] = OsString::new();
        args.insert(1, command.into());
    }
    args
}

/// katgpucbf's ways to write options: shortened, and the last of each counts.
fn with_katgpucbf_syntax(command: clap::Command) -> clap::Command {
    command
        .version(karoo_version())
        .infer_long_args(true)
        .args_override_self(true)
}

/// Takes what looks like a negative number as the value of the option before it, as argparse does:
/// the option's rule refuses it then. Else it would be an unknown option, which tells nothing.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let takes = !arg.is_positional() && arg.get_action().takes_values();
        match takes {
            true => arg.allow_negative_numbers(true),
            false => arg,
        }
    });
    command.mut_subcommands(with_negative_numbers)
}

/// The whole command line.
fn command() -> clap::Command {
    let mut command = Cli::command();
    // An empty variable is one that is not set, as for RUST_LOG.
    if std::env::var_os(LOG_FORMAT).is_some_and(|format| format.is_empty()) {
        command = command.mut_arg("log_format", |format| format.env(None::<&str>));
    }
    // Also a key of configuration files, which know the options of fgpu itself.
    let global = command.get_arguments().filter(|arg| arg.is_global_set());
    let global: Vec<_> = global.cloned().collect();
    let command = command
        .mut_subcommand("fgpu", |fgpu| fgpu::command(fgpu.args(&global)))
        .mut_subcommand("doctor", |doctor| doctor::command(doctor.args(&global)))
        .mut_subcommand("shadow", |shadow| shadow::command(shadow.args(&global)))
        .mut_subcommand("dsim", with_katgpucbf_syntax);
    with_negative_numbers(help::mark_required(command))
}

fn run(args: Vec<OsString>) -> Result<(), Failure> {
    let command = command();
    let parsed = command.clone().try_get_matches_from(&args);
    let mut matches = parsed.unwrap_or_else(|error| {
        if error.use_stderr() {
            gelf::complain(&error.to_string());
        }
        error.exit()
    });
    if let Some((name @ ("fgpu" | "doctor" | "shadow"), given)) = matches.subcommand()
        && let Some(engine) = command.find_subcommand(name)
        && let Some(args) = fgpu::with_file(engine, &args, given)?
    {
        let parsed = command.clone().try_get_matches_from(args);
        matches = parsed.map_err(|error| fgpu::mistake_in_file(given, &error))?;
    }
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    log::set_format(cli.log_format);
    if !cli.command.runs_for_long() {
        log::to_terminal();
    }
    match &cli.command {
        Command::Fgpu(args) => match (command.find_subcommand("fgpu"), matches.subcommand()) {
            (Some(command), Some((_, matches))) => fgpu::run(args, command, matches),
            _ => Ok(()),
        },
        Command::Doctor(args) => doctor::run(args),
        Command::Shadow(args) => match matches.subcommand() {
            Some((_, matches)) => shadow::run(args, matches),
            None => Ok(()),
        },
        Command::Replay(args) => replay::run(args),
        Command::Qualify(args) => qualify::run(args),
        Command::Dsim(args) => dsim::run(args),
        Command::Sink(args) => sink::run(args),
        Command::Top(args) => top::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Flow(args) => flow::run(args),
        Command::Modem(args) => modem::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Tune(args) => tune::run(args),
        Command::Schema(args) => schema::run(args),
        Command::Man(args) => manual::write_pages(args, command),
        Command::Completions(args) => {
            manual::print_completions(args, command);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_has_the_name_of_a_link_once() {
        for name in ["fgpu", "dsim"] {
            let link = format!("/usr/lib/karoo/{name}");
            let args = arguments(vec![link.into(), "--help".into()]);
            let help = Cli::command().try_get_matches_from(args);
            let help = help.expect_err("help").to_string();
            assert!(help.contains(&format!("Usage: {name} [")), "{help}");
        }
        let args: Vec<OsString> = vec!["/usr/bin/karoo".into(), "fgpu".into()];
        assert_eq!(arguments(args.clone()), args);
    }

    /// Of no option of the commands that stand in for katgpucbf's, nor of those beside them, do
    /// users read the words of the library that parses numbers.
    #[test]
    fn numbers_are_refused_by_the_options_own_rules() {
        let commands = command();
        for name in ["fgpu", "dsim", "replay", "doctor", "shadow"] {
            let options = commands.find_subcommand(name).expect(name);
            let options = options.get_arguments().filter(|arg| !arg.is_positional());
            let options = options.filter(|arg| arg.get_action().takes_values());
            for long in options.filter_map(|option| option.get_long()) {
                for value in ["x", "-5", "1.5", "1e99", "99999999999999999999"] {
                    let option = format!("--{long}");
                    let args = ["karoo", name, &option, value];
                    let Err(refused) = commands.clone().try_get_matches_from(args) else {
                        continue;
                    };
                    let refused = refused.to_string();
                    for words in [
                        "invalid digit",
                        "invalid float",
                        "number too large",
                        "is not in",
                        "unexpected argument '-5'",
                    ] {
                        assert!(!refused.contains(words), "{option} {value}: {refused}");
                    }
                }
            }
        }
        let args = ["karoo", "fgpu", "--max-delay-diff", "-5"];
        let refused = commands.try_get_matches_from(args).expect_err("refused");
        let refused = refused.to_string();
        let begins = "error: invalid value '-5' for '--max-delay-diff <N>': must be a whole number";
        assert!(refused.starts_with(begins), "{refused}");
        assert!(refused.contains("; try 1Mi"), "{refused}");
    }

    #[test]
    fn addresses_that_are_no_utf_8_are_refused_with_a_way_out() {
        use std::os::unix::ffi::OsStringExt;
        let path = OsString::from_vec(b"/tmp/a\xff".to_vec());
        for (command, option) in [
            (&["karoo", "modem", "rx"][..], "--input"),
            (&["karoo", "modem", "tx"], "--output"),
            (&["karoo", "flow", "run", "a.toml"], "--input"),
            (&["karoo", "flow", "run", "a.toml"], "--output"),
        ] {
            let args = command.iter().copied().chain([option]).map(OsString::from);
            let refused = Cli::command().try_get_matches_from(args.chain([path.clone()]));
            let refused = refused.expect_err("refused").to_string();
            assert!(
                refused.contains(option) && refused.contains("ln -s"),
                "{refused}"
            );
        }
    }
}
