//! `karoo flow bench chain`.

use clap::Args;
use host::topology::{CpuList, Machine, Root};
use schemars::JsonSchema;
use serde::Serialize;

use crate::bench::chain::{Chain, ChainRow, measure_chain};
use crate::cli::{Failure, examples, print_json};
use crate::report::Documented;

/// Measure a chain of kernels on several CPUs, beside threads that are written by hand for it
///
/// A kernel multiplies each sample and adds to it. Exit codes: 0 measured; 1 the chain cannot run;
/// 2 the command line is wrong.
#[derive(Debug, Args)]
#[command(after_help = examples::FLOW_BENCH_CHAIN, next_help_heading = "Bench")]
pub struct ChainArgs {
    /// CPUs to run on [default: those of this process]
    #[arg(long, value_name = "CPU,…")]
    cpus: Option<CpuList>,
    /// Kernels in the chain [default: one, two, three and six times the CPUs]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=4096))]
    kernels: Vec<u16>,
    /// How often a kernel multiplies and adds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    cost: u16,
    /// Samples of each run
    #[arg(long, value_name = "N", default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(4096..=1 << 40))]
    samples: u64,
    /// Runs of each, in turn: the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What came of all.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::cli) struct Report {
    /// The CPUs of the chain.
    cpus: Vec<usize>,
    /// The processor's name.
    model: String,
    /// How often a kernel multiplies and adds.
    cost: u16,
    rows: Vec<ChainRow>,
}

impl Documented for Report {
    const NAME: &'static str = "flow-bench-chain";
    const TITLE: &'static str = "What karoo flow bench chain --json measured";
}

pub fn run(args: &ChainArgs) -> Result<(), Failure> {
    let cpus = super::cpus(args.cpus.as_ref())?;
    let kernels: Vec<usize> = match args.kernels.is_empty() {
        true => [1, 2, 3, 6].map(|times| times * cpus.len()).to_vec(),
        false => args.kernels.iter().copied().map(usize::from).collect(),
    };
    let mut rows = Vec::new();
    for kernels in kernels {
        let chain = Chain {
            kernels,
            cost: args.cost.into(),
            samples: args.samples as usize,
            cpus: &cpus,
        };
        rows.push(measure_chain(&chain, args.rounds.into()).map_err(Failure::data)?);
    }
    let report = Report {
        cpus,
        model: Machine::read(&Root::host()).map_or(String::new(), |machine| machine.model),
        cost: args.cost,
        rows,
    };
    if args.json {
        print_json(&report)?;
        return Ok(());
    }
    println!(
        "{:>8} {:>14} {:>12} {:>8} {:>14}",
        "kernels", "by hand, M/s", "flow, M/s", "share", "telemetry"
    );
    for row in &report.rows {
        println!(
            "{:>8} {:>14.1} {:>12.1} {:>6.0} % {:>12.2} %",
            row.kernels,
            row.by_hand / 1e6,
            row.flow / 1e6,
            100.0 * row.share,
            100.0 * row.telemetry_cost
        );
    }
    Ok(())
}
