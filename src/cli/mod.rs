//! Command line: one file per command.
//!
//! Exit codes: 0 success; 1 the data was unusable or the run failed; 2 the command line was wrong;
//! 3 a device, such as the GPU, failed in the middle of a run.

mod bench;
mod dsim;
mod failure;
mod replay;
mod sink;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use failure::Failure;

/// F-engine appliance: channelises, corrects and multicasts radio-telescope voltages.
#[derive(Debug, Parser)]
#[command(name = "karoo", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Replay(Box<replay::ReplayArgs>),
    Dsim(Box<dsim::DsimArgs>),
    Sink(sink::SinkArgs),
    Bench(bench::BenchArgs),
}

/// Parses the command line, runs the command and maps its outcome to an exit code.
pub fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| "info,dpdk=warn".into()),
        )
        .with_writer(std::io::stderr)
        .without_time()
        .with_target(false)
        .init();
    let cli = Cli::parse();
    let outcome: Result<(), Failure> = match &cli.command {
        Command::Replay(args) => replay::run(args),
        Command::Dsim(args) => dsim::run(args),
        Command::Sink(args) => sink::run(args),
        Command::Bench(args) => bench::run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("karoo: {failure}");
            failure.exit_code()
        }
    }
}
