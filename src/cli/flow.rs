//! `karoo flow`: dataflow graphs, checked, planned, run and measured.

mod bench;
mod change;
mod check;
mod ends;
mod load;
mod open;
mod plan;
mod run;
mod watch;

pub(in crate::cli) use bench::{ChainReport, QueuesReport, Report as GraphReport};
pub(in crate::cli) use check::Checked;
pub(in crate::cli) use run::Done;

use clap::{Args, Subcommand};

use super::{Failure, examples};

/// Check, place, run and measure dataflow graphs
#[derive(Debug, Args)]
pub struct FlowArgs {
    #[command(subcommand)]
    what: Flow,
}

#[derive(Debug, Subcommand)]
enum Flow {
    /// Tell what a graph is, what is wrong with it, and how it would run in its marked partitions
    ///
    /// Reads TOML, or Laminar's GraphML. Exit codes: 0 the graph can run; 1 it cannot; 2 the
    /// command line is wrong.
    #[command(after_help = examples::FLOW_CHECK)]
    Check(check::CheckArgs),
    /// Find which node is to run on which CPU, with which blocks between them, and the rate to
    /// expect
    ///
    /// Lets the graph run for a moment to see what its nodes cost, unless that is known. Exit
    /// codes: 0 there is a plan; 1 there is none; 2 the command line is wrong.
    #[command(after_help = examples::FLOW_PLAN)]
    Plan(plan::PlanArgs),
    /// Run a graph from inputs to outputs
    ///
    /// Samples are raw and little-endian, complex numbers interleaved unless planar= says
    /// otherwise. Ends with the first input that ends, or at SIGINT, after all that has come in; a
    /// second signal ends at once. Exit codes: 0 all that came in came out; 1 a node, an input or
    /// an output failed; 2 the command line is wrong.
    #[command(after_help = examples::FLOW_RUN)]
    Run(run::RunArgs),
    /// Measure queues, chains of kernels, or a graph beside what its plan expects
    #[command(after_help = examples::FLOW_BENCH)]
    Bench(bench::BenchArgs),
}

impl FlowArgs {
    /// Whether the command starts its log by itself.
    pub fn runs_for_long(&self) -> bool {
        matches!(self.what, Flow::Run(_))
    }
}

/// Runs the command.
pub fn run(args: &FlowArgs) -> Result<(), Failure> {
    match &args.what {
        Flow::Check(args) => check::run(args),
        Flow::Plan(args) => plan::run(args),
        Flow::Run(args) => run::run(args),
        Flow::Bench(args) => bench::run(args),
    }
}
