//! `karoo flow bench`.

mod chain;
mod queues;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use ground::os::allowed_cpus;
use ground::stats::median;
use host::topology::CpuList;
use karoo_flow::Executor;
use karoo_flow::place::{Plan, rate_on_noise};
use schemars::JsonSchema;
use serde::Serialize;

use super::{load, plan};
use crate::cli::{Failure, Files, examples, print_json};
use crate::report::Documented;

pub(in crate::cli) use chain::Report as ChainReport;
pub(in crate::cli) use queues::Report as QueuesReport;

#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Run graphs on noise, and print the rate that the plan expects beside the one that is
    /// measured
    ///
    /// On a machine that does nothing else. Exit codes: 0 measured; 1 a graph cannot run; 2 the
    /// command line is wrong.
    #[command(after_help = examples::FLOW_BENCH)]
    Graph(GraphArgs),
    Queues(queues::QueueArgs),
    Chain(chain::ChainArgs),
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Bench")]
struct GraphArgs {
    /// Graphs: TOML, or GraphML as Laminar's exporter writes it
    #[arg(help_heading = None::<&str>, value_name = "GRAPH", required = true)]
    graphs: Vec<PathBuf>,
    /// Seconds that each graph runs for
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Runs of each graph: the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    #[command(flatten)]
    wishes: plan::WishOptions,
    #[command(flatten)]
    costs: load::CostOptions,
    #[command(flatten)]
    cores: load::CoreOptions,
    #[command(flatten)]
    priority: load::PriorityOptions,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let value = crate::config::units::seconds(text).map_err(|error| error.to_string())?;
    match (0.01..=3600.0).contains(&value) {
        true => Ok(value),
        false => Err("it must be 0.01 to 3600 seconds".to_owned()),
    }
}

/// What came of one graph.
#[derive(Debug, Serialize, JsonSchema)]
struct Measured {
    /// The graph's name.
    graph: String,
    partitions: usize,
    /// Ticks a second by the plan.
    expected: f64,
    /// Ticks a second of each run.
    runs: Vec<f64>,
    /// The median of them.
    measured: f64,
    /// Measured over expected.
    ratio: f64,
    /// Nanoseconds from the reading of inputs to the writing of outputs of the same ticks, in the
    /// last run.
    #[schemars(with = "serde_json::Value")]
    latency: karoo_flow::run::Quantiles,
    /// As karoo flow plan --json prints it.
    #[schemars(with = "serde_json::Value")]
    plan: Plan,
}

/// What came of all.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::cli) struct Report {
    /// CPUs that plans may use.
    cpus: Vec<usize>,
    /// The processor's name.
    model: String,
    graphs: Vec<Measured>,
}

impl Documented for Report {
    const NAME: &'static str = "flow-bench-graph";
    const TITLE: &'static str = "What karoo flow bench graph --json measured";
}

/// The CPUs that are given, or those of this process.
fn cpus(given: Option<&CpuList>) -> Result<Vec<usize>, Failure> {
    match given {
        Some(cpus) => load::check_allowed("--cpus", cpus).map(|()| cpus.iter().collect()),
        None => Ok(allowed_cpus()),
    }
}

/// Two CPUs: those that are given, or the first two of this process, or one twice.
fn two_cpus(given: Option<&CpuList>) -> Result<(usize, usize), Failure> {
    let cpus = cpus(given)?;
    match (cpus.as_slice(), given) {
        ([from, to], _) | ([from, to, ..], None) => Ok((*from, *to)),
        ([one], None) => Ok((*one, *one)),
        _ => Err(Failure::usage(format!(
            "--cpus {}: must be two, the one that writes and the one that reads",
            cpus.into_iter().collect::<CpuList>()
        ))),
    }
}

/// Runs the command.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    match &args.what {
        Bench::Graph(args) => graphs(args),
        Bench::Queues(args) => queues::run(args),
        Bench::Chain(args) => chain::run(args),
    }
}

fn graphs(args: &GraphArgs) -> Result<(), Failure> {
    let read = |files: Files, path: &PathBuf| files.reads("GRAPH", Some(path));
    let files = args.graphs.iter().fold(Files::default(), read);
    args.costs.files(args.cores.files(files)).check()?;
    let cores = args.cores.cores()?;
    let mut report = Report {
        cpus: cores.cpus.clone(),
        model: cores.model.clone(),
        graphs: Vec::new(),
    };
    if !args.json {
        println!(
            "{:<32} {:>4} {:>12} {:>12} {:>7} {:>12}",
            "graph", "part", "expected", "measured", "ratio", "latency"
        );
        println!(
            "{:<32} {:>4} {:>12} {:>12} {:>7} {:>12}",
            "", "", "M/s", "M/s", "", "µs"
        );
    }
    for path in &args.graphs {
        let measured = graph(args, path, &cores)?;
        if !args.json {
            println!(
                "{:<32} {:>4} {:>12.3} {:>12.3} {:>7.3} {:>12.1}",
                measured.graph,
                measured.partitions,
                measured.expected / 1e6,
                measured.measured / 1e6,
                measured.ratio,
                measured.latency.median as f64 / 1e3
            );
        }
        report.graphs.push(measured);
    }
    if args.json {
        print_json(&report)?;
    } else {
        let near = report
            .graphs
            .iter()
            .filter(|graph| (graph.ratio - 1.0).abs() <= 0.1)
            .count();
        println!(
            "{near} of {} within 10 % of what was expected",
            report.graphs.len()
        );
    }
    Ok(())
}

fn graph(
    args: &GraphArgs,
    path: &Path,
    cores: &karoo_flow::place::Cores,
) -> Result<Measured, Failure> {
    let loaded = load::to_run(path)?;
    let graph = &loaded.graph;
    let (costs, options) = (&args.costs, &args.cores);
    let plan = args.wishes.measured(graph, costs, options, cores.clone())?;
    let mut settings = plan.settings(graph).map_err(Failure::usage)?;
    args.priority.give(&mut settings)?;
    let executor = Executor::new(graph, settings).map_err(|p| Failure::data(p.to_string()))?;
    let time = Duration::from_secs_f64(args.seconds);
    let (mut runs, mut latency) = (Vec::new(), karoo_flow::run::Quantiles::default());
    for _ in 0..args.runs {
        let (rate, outcome) = rate_on_noise(graph, &executor, time).map_err(Failure::data)?;
        runs.push(rate);
        latency = outcome.telemetry.latency;
        for note in &outcome.telemetry.notes {
            tracing::warn!("{note}");
        }
    }
    let measured = median(runs.clone());
    Ok(Measured {
        graph: graph.name().to_owned(),
        partitions: plan.partitions.len(),
        expected: plan.rate(),
        ratio: measured / plan.rate(),
        runs,
        measured,
        latency,
        plan,
    })
}
