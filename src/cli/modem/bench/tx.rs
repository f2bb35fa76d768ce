//! `karoo modem bench tx`.

use std::time::Duration;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::{CpuOptions, FrameOptions, Place, Shown, measure_all, mega, time};
use crate::bench::modem::{TxBench, TxRow, measure_transmitter};
use crate::cli::{Failure, examples};
use crate::report::Documented;

/// Measure how fast transmitters make samples, by modulation, duty cycle and threads
///
/// Each thread makes frames of payloads, with their check field, and samples of frames. Exit codes:
/// 0 measured; 2 the command line is wrong.
#[derive(Debug, Args)]
#[command(after_help = examples::MODEM_BENCH_TX)]
pub struct TxArgs {
    #[command(flatten)]
    frames: FrameOptions,
    /// Threads, each a transmitter by itself
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1024), allow_negative_numbers = true)]
    threads: Vec<u16>,
    /// Seconds of a round
    #[arg(long, value_name = "S", default_value = "0.3", value_parser = time, allow_negative_numbers = true)]
    seconds: Duration,
    /// Rounds: their median and their best are told
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000), allow_negative_numbers = true)]
    rounds: u16,
    #[command(flatten)]
    cpus: CpuOptions,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What came of all.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report {
    machine: Place,
    rows: Vec<TxRow>,
}

impl Documented for Report {
    const NAME: &'static str = "modem-bench-tx";
    const TITLE: &'static str = "What karoo modem bench tx --json measured";
}

fn head() -> String {
    format!(
        "{:10} {:>6} {:>7} {:>18} {:>18} {:>10} {:>12}\n{:25} {:>18} {:>18}\n",
        "modulation",
        "duty",
        "threads",
        "Msample/s",
        "per core",
        "Msymbol/s",
        "Mb/s payload",
        "",
        "median, best",
        "median, best",
    )
}

fn line(row: &TxRow) -> String {
    format!(
        "{:10} {:6} {:7} {:9.1}{:9.1} {:9.1}{:9.1} {:10.1} {:12.1}",
        row.modulation,
        row.duty,
        row.threads,
        mega(row.wall.median),
        mega(row.wall.best),
        mega(row.core.median),
        mega(row.core.best),
        mega(row.symbols),
        mega(row.goodput),
    )
}

pub fn run(args: &TxArgs) -> Result<(), Failure> {
    let mut benches = Vec::new();
    for (modulation, duty) in args.frames.each() {
        benches.extend(args.threads.iter().map(|&threads| TxBench {
            modulation,
            duty,
            threads: threads.into(),
            time: args.seconds,
            rounds: args.rounds.into(),
        }));
    }
    let shown = Shown {
        head: head(),
        row: line,
        lost: |_| 0,
    };
    let document = |machine, rows| Report { machine, rows };
    let how = (&args.cpus, args.json);
    measure_all(how, &benches, measure_transmitter, &shown, document)
}
