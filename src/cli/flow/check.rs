//! `karoo flow check`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use ground::counted;
use ground::files::write_whole;
use karoo_flow::analysis::{Network, Report};
use karoo_flow::place::{Costs, longest_block, network};
use karoo_flow::run::{PartitionShape, QueueShape, Shape, UNMARKED};
use karoo_flow::{Graph, NodeId, Problems, Settings};
use schemars::JsonSchema;
use serde::Serialize;

use super::load;
use crate::cli::{Failure, Files, print_json, unwritten};
use crate::report::Documented;

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct CheckArgs {
    /// The graph: TOML, or GraphML as Laminar's exporter writes it
    #[arg(help_heading = None::<&str>, value_name = "GRAPH")]
    graph: PathBuf,
    /// Ticks in the blocks of queues [default: 1024, or fewer where samples are long]
    #[arg(long, value_name = "TICKS", value_parser = clap::value_parser!(u64).range(1..=1 << 22))]
    block: Option<u64>,
    /// Blocks that each queue holds
    #[arg(long, value_name = "BLOCKS", default_value_t = Settings::default().capacity as u64, value_parser = clap::value_parser!(u64).range(2..=1 << 16))]
    capacity: u64,
    /// Nanoseconds for a block that are wanted: loops that lack initial blocks for it are told
    #[arg(long, value_name = "NS", value_parser = clap::value_parser!(u64).range(1..))]
    period: Option<u64>,
    #[command(flatten)]
    costs: load::CostOptions,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Draw the partitions, in DOT
    #[arg(long, value_name = "FILE.dot")]
    dot: Option<PathBuf>,
    /// Draw the partitions, as SVG
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
}

/// A port of the outside.
#[derive(Debug, Serialize, JsonSchema)]
struct Port {
    name: String,
    /// The type of a sample.
    of: String,
    /// Samples for each sample of the base rate.
    rate: String,
    bytes: usize,
}

/// A partition as it would run.
#[derive(Debug, Serialize, JsonSchema)]
struct CheckedPartition {
    name: String,
    /// Its nodes by kind, constants left out.
    kinds: BTreeMap<String, usize>,
    /// Ticks that it works on at once.
    step: u64,
    /// Cycles of queues that it is in, of those in `report`.
    cycles: usize,
    /// The fewest blocks for each partition in one of them, counted in the longest blocks: below 1,
    /// not all of its partitions can work at once.
    least_blocks_per_partition: Option<f64>,
}

/// A queue as it would run, also one from the inputs or to the outputs.
#[derive(Debug, Serialize, JsonSchema)]
struct CheckedQueue {
    /// The partition that writes.
    from: String,
    /// The partition that reads.
    to: String,
    /// Signals that cross by it.
    signals: usize,
    /// Ticks in a block.
    block: u64,
    /// Blocks that it holds.
    capacity: usize,
    /// Bytes of a block in memory, whole cache lines.
    bytes: usize,
    /// Blocks at the start.
    initial: usize,
}

/// What a graph is, and how it would run.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Checked {
    /// Whether the file was read. If not, `problems` say why, `graph` is the file, and all else is
    /// empty.
    read: bool,
    graph: String,
    nodes: usize,
    subsystems: usize,
    state_bytes: u64,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    notes: Vec<String>,
    /// Why it cannot run; empty if it can.
    problems: Vec<String>,
    /// Its partitions, without inputs and outputs; empty if it cannot run.
    partitions: Vec<CheckedPartition>,
    /// Its queues; empty if it cannot run.
    queues: Vec<CheckedQueue>,
    /// Whether times were measured.
    measured: bool,
    report: Option<Report>,
}

impl Documented for Checked {
    const NAME: &'static str = "flow-check";
    const TITLE: &'static str = "What karoo flow check --json tells of a graph";
}

/// Runs the command.
pub fn run(args: &CheckArgs) -> Result<(), Failure> {
    let files = Files::default().reads("GRAPH", Some(&args.graph));
    let files = files
        .writes("--dot", args.dot.as_deref())
        .writes("--svg", args.svg.as_deref());
    args.costs.files(files).check()?;
    let loaded = match load::read(&args.graph)? {
        Ok(loaded) => loaded,
        Err(problems) if args.json => {
            let checked = Checked {
                graph: args.graph.display().to_string(),
                problems: texts(&problems),
                ..Checked::default()
            };
            print_json(&checked)?;
            return done(args, &checked);
        }
        Err(problems) => return Err(Failure::data(problems.to_string())),
    };
    let graph = &loaded.graph;
    let chosen = || longest_block(graph, Settings::default().block);
    let settings = Settings {
        block: args.block.unwrap_or_else(chosen),
        capacity: args.capacity as usize,
        ..Settings::default()
    };
    let executor = load::executor(graph, settings, false);
    let (mut problems, mut report, mut measured) = (Vec::new(), None, false);
    let mut shape = Shape {
        partitions: Vec::new(),
        queues: Vec::new(),
    };
    match &executor {
        Err(found) => problems = texts(found),
        Ok(executor) => {
            let costs = match args.costs.costs(graph, None) {
                Ok(costs) => costs,
                // It can run: what that takes is not known then.
                Err(Failure::Data(error)) => {
                    tracing::warn!(%error, "costs are guessed");
                    Costs::guessed(graph)
                }
                Err(failure) => return Err(failure),
            };
            measured = costs.measured;
            shape = executor.shape();
            let network: Network = network(&shape, &costs);
            match network.analyse(args.period) {
                Ok(found) => report = Some(found),
                Err(found) => problems = texts(&found),
            }
        }
    }
    if let Some(report) = &report {
        let pictures = [
            (&args.dot, "--dot", report.to_dot()),
            (&args.svg, "--svg", report.to_svg()),
        ];
        for (path, option, text) in pictures {
            if let Some(path) = path {
                write_whole(path, text).map_err(|error| unwritten(option, path, &error))?;
            }
        }
    }
    let checked = Checked {
        read: true,
        graph: graph.name().to_owned(),
        nodes: graph.nodes().len(),
        subsystems: graph.scopes().len() - 1,
        state_bytes: graph.state_bytes(),
        inputs: ports(graph, graph.inputs(), true),
        outputs: ports(graph, graph.outputs(), false),
        notes: loaded.notes.clone(),
        problems,
        partitions: partitions(graph, &shape, report.as_ref()),
        queues: queues(&shape),
        measured,
        report,
    };
    if args.json {
        print_json(&checked)?;
    } else {
        show(&checked);
    }
    done(args, &checked)
}

fn texts(problems: &Problems) -> Vec<String> {
    problems.0.iter().map(ToString::to_string).collect()
}

/// How the command ends once all is told.
fn done(args: &CheckArgs, checked: &Checked) -> Result<(), Failure> {
    match checked.problems.first() {
        None => Ok(()),
        Some(_) if !args.json => Err(Failure::data("the graph cannot run: see above")),
        Some(first) => Err(Failure::data(format!("the graph cannot run: {first}"))),
    }
}

fn ports(graph: &Graph, ids: impl Iterator<Item = NodeId>, input: bool) -> Vec<Port> {
    let port = |id: NodeId| {
        let node = graph.node(id);
        let of = if input {
            node.outputs[0]
        } else {
            node.inputs[0]
        };
        Port {
            name: graph.path(id),
            of: of.to_string(),
            rate: node.rate.map_or("any".to_owned(), |rate| rate.to_string()),
            bytes: of.bytes(),
        }
    };
    ids.map(port).collect()
}

/// The partitions that compute, with what the report says of their cycles.
fn partitions(graph: &Graph, shape: &Shape, report: Option<&Report>) -> Vec<CheckedPartition> {
    let mut kinds: BTreeMap<u32, BTreeMap<String, usize>> = BTreeMap::new();
    for at in graph.ids() {
        let node = &graph.node(at).node;
        let outer = ["input", "output"].contains(&node.kind()) || node.constant();
        if !outer {
            let kinds = kinds.entry(graph.partition(at).unwrap_or(UNMARKED));
            let count = kinds.or_default().entry(node.kind().to_owned());
            *count.or_default() += 1;
        }
    }
    let partition = |(index, (id, part)): (usize, (u32, &PartitionShape))| {
        let cycles = report.iter().flat_map(|report| &report.cycles);
        let own = cycles.filter(|cycle| cycle.partitions.contains(&index));
        let blocks: Vec<f64> = own.map(|cycle| cycle.blocks_per_partition()).collect();
        CheckedPartition {
            name: part.name.clone(),
            kinds: kinds.remove(&id).unwrap_or_default(),
            step: part.step,
            cycles: blocks.len(),
            least_blocks_per_partition: blocks.into_iter().reduce(f64::min),
        }
    };
    shape
        .partitions
        .iter()
        .filter_map(|part| Some((part.id?, part)))
        .enumerate()
        .map(partition)
        .collect()
}

fn queues(shape: &Shape) -> Vec<CheckedQueue> {
    let name = |at: usize| shape.partitions[at].name.clone();
    let queue = |queue: &QueueShape| CheckedQueue {
        from: name(queue.from),
        to: name(queue.to),
        signals: queue.signals,
        block: queue.block,
        capacity: queue.capacity,
        bytes: queue.bytes,
        initial: queue.initial,
    };
    shape.queues.iter().map(queue).collect()
}

fn show(checked: &Checked) {
    println!(
        "{}: {} in {}, {} of state",
        checked.graph,
        counted(checked.nodes as u64, "node"),
        counted(checked.subsystems as u64, "subsystem"),
        counted(checked.state_bytes, "byte")
    );
    for (what, ports) in [("input", &checked.inputs), ("output", &checked.outputs)] {
        for port in ports {
            println!(
                "{what:<8} {}: {}, {}, at rate {}",
                port.name,
                port.of,
                counted(port.bytes as u64, "byte"),
                port.rate
            );
        }
    }
    for note in &checked.notes {
        println!("note     {note}");
    }
    for problem in &checked.problems {
        println!("wrong    {problem}");
    }
    // The search for cycles is bounded.
    let is_complete = checked.report.as_ref().is_none_or(|report| report.complete);
    let at_least = if is_complete { "" } else { "at least " };
    for partition in &checked.partitions {
        let kinds = partition.kinds.iter();
        let kinds: Vec<String> = kinds
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        let cycles = partition.least_blocks_per_partition.map(|least| {
            let cycles = counted(partition.cycles as u64, "cycle");
            let of = if is_complete { "" } else { " of those found" };
            format!("; in {at_least}{cycles}, the least{of} has {least:.2} blocks a partition")
        });
        println!(
            "nodes    {}: {}; {} at once{}",
            partition.name,
            kinds.join(", "),
            counted(partition.step, "tick"),
            cycles.unwrap_or_default()
        );
    }
    for queue in &checked.queues {
        println!(
            "queue    {} -> {}: {}, {} of {}, {} each, {} at the start",
            queue.from,
            queue.to,
            counted(queue.signals as u64, "signal"),
            counted(queue.capacity as u64, "block"),
            counted(queue.block, "tick"),
            counted(queue.bytes as u64, "byte"),
            queue.initial
        );
    }
    if let Some(report) = &checked.report {
        print!("{report}");
        if !checked.measured {
            println!("note     costs are guessed: times mean nothing");
        }
    }
}
