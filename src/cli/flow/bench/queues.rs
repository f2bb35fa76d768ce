//! `karoo flow bench queues`.

use std::collections::BTreeSet;

use clap::Args;
use ground::counted;
use host::topology::{CpuList, Machine, Root};
use schemars::JsonSchema;
use serde::Serialize;

use super::{load, two_cpus};
use crate::bench::pairs::{PairsRow, measure_pairs};
use crate::bench::queues::{QueueRow, measure_queues};
use crate::cli::numbers::whole_number;
use crate::cli::{Failure, examples, print_json};
use crate::report::Documented;

/// Measure what a block takes from one CPU to another, by its size and the way that it passes
///
/// On a machine that does nothing else. Exit codes: 0 measured; 2 the command line is wrong.
#[derive(Debug, Args)]
#[command(after_help = examples::FLOW_BENCH_QUEUES, next_help_heading = "Bench")]
pub struct QueueArgs {
    /// The CPU that writes and the one that reads [default: the first two of this process]
    #[arg(long, value_name = "CPU,CPU")]
    cpus: Option<CpuList>,
    /// Pairs of CPUs, such as 0:4,1:5: the first alone, and then all at once
    #[arg(long, value_name = "CPU:CPU,…", value_delimiter = ',', conflicts_with = "cpus", value_parser = pair)]
    pairs: Vec<(usize, usize)>,
    /// Bytes of a block, multiples of 8 up to 1 MiB
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "8,64,512,4096,16384", value_parser = bytes)]
    bytes: Vec<usize>,
    /// Measurements of each: the fastest counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The CPU that writes, and the one that reads.
fn pair(text: &str) -> Result<(usize, usize), String> {
    let rule = "it must be two CPUs with a colon between them, such as 0:4";
    let (from, to) = text.split_once(':').ok_or_else(|| rule.to_owned())?;
    let (from, to) = (whole_number(from, rule)?, whole_number(to, rule)?);
    match from == to {
        true => Err("one CPU cannot be both ends: it would wait for itself".to_owned()),
        false => Ok((from, to)),
    }
}

fn bytes(text: &str) -> Result<usize, String> {
    let rule = "it must be a multiple of 8 from 8 to 1048576, such as 4096";
    let value: usize = whole_number(text, rule)?;
    match value.is_multiple_of(8) && (8..=1 << 20).contains(&value) {
        true => Ok(value),
        false => Err(rule.to_owned()),
    }
}

/// What came of all.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::cli) struct Report {
    /// The CPU that writes, and the one that reads.
    cpus: [usize; 2],
    /// The processor's name.
    model: String,
    rows: Vec<QueueRow>,
    /// All pairs of CPUs that were measured at once, each with the CPU that writes in front.
    pairs: Vec<[usize; 2]>,
    /// What passed in them; empty without pairs.
    at_once: Vec<PairsRow>,
}

impl Documented for Report {
    const NAME: &'static str = "flow-bench-queues";
    const TITLE: &'static str = "What karoo flow bench queues --json measured";
}

pub fn run(args: &QueueArgs) -> Result<(), Failure> {
    let all = args.pairs.iter().flat_map(|pair| [pair.0, pair.1]);
    load::check_allowed("--pairs", &all.collect())?;
    let cpus = match args.pairs.first() {
        Some(first) => *first,
        None => two_cpus(args.cpus.as_ref())?,
    };
    let mut known = BTreeSet::new();
    let ends = args.pairs.iter().flat_map(|pair| [pair.0, pair.1]);
    if args.pairs.len() > 1
        && let Some(cpu) = { ends }.find(|&cpu| !known.insert(cpu))
    {
        tracing::warn!("--pairs: CPU {cpu} is in several pairs, which take its time by turns");
    }
    let rounds = args.rounds.into();
    let report = Report {
        cpus: [cpus.0, cpus.1],
        model: Machine::read(&Root::host()).map_or(String::new(), |machine| machine.model),
        rows: measure_queues(cpus, &args.bytes, rounds),
        pairs: args.pairs.iter().map(|pair| [pair.0, pair.1]).collect(),
        at_once: match args.pairs.is_empty() {
            true => Vec::new(),
            false => measure_pairs(&args.pairs, &args.bytes, rounds).map_err(Failure::data)?,
        },
    };
    if args.json {
        print_json(&report)?;
        return Ok(());
    }
    tell_one(&report);
    if !report.pairs.is_empty() {
        tell_pairs(&report);
    }
    Ok(())
}

fn tell_one(report: &Report) {
    let [from, to] = report.cpus;
    println!("CPU {from} to CPU {to}");
    println!(
        "{:>8}  {:<14} {:>10} {:>8} {:>14}",
        "bytes", "", "ns", "GB/s", "and back, ns"
    );
    for row in &report.rows {
        let back = row
            .there_and_back_ns
            .map_or(String::new(), |ns| format!("{ns:.1}"));
        println!(
            "{:>8}  {:<14} {:>10.1} {:>8.2} {:>14}",
            row.bytes, row.transfer, row.ns, row.gigabytes_per_second, back
        );
    }
}

fn tell_pairs(report: &Report) {
    let count = counted(report.pairs.len() as u64, "pair");
    println!("\n{count} at once, GB/s");
    let column = |[from, to]: &[usize; 2]| format!(" {:>8}", format!("{from}:{to}"));
    let columns: String = report.pairs.iter().map(column).collect();
    println!(
        "{:>8}  {:<14} {:>11} {:>10}{columns}",
        "bytes", "", "first alone", "all"
    );
    for row in &report.at_once {
        let rate = |rate: &f64| format!(" {rate:>8.3}");
        let rates: String = row.gigabytes_per_second.iter().map(rate).collect();
        println!(
            "{:>8}  {:<14} {:>11.3} {:>10.3}{rates}",
            row.bytes, row.transfer, row.alone, row.sum
        );
    }
}
