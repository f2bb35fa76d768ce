//! `karoo bench`: what this machine can do.

use clap::{Args, Subcommand};

use super::Failure;

/// Measure what this machine can do
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Measure whole engines, from a packet in to a packet out
    Engine,
}

/// Runs the command.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    match &args.what {
        Bench::Engine => Err(Failure::usage("bench engine is not part of this build yet")),
    }
}
