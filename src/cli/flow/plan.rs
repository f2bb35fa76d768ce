//! `karoo flow plan`.

use std::path::PathBuf;

use clap::Args;
use ground::files::write_whole;
use karoo_flow::place::{Cores, Costs, Grouping, Plan, PlanError, Wishes, longest_block, plan};
use karoo_flow::{Cause, Graph, Problems};

use super::load;
use crate::cli::{Failure, Files, unwritten};

/// The fewest placements that are looked at.
const LEAST_LOOKS: u64 = 100;
/// Nodes up to which the usual number of looks is over soon.
const QUICK_NODES: u64 = 60;

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct PlanArgs {
    /// The graph: TOML, or GraphML as Laminar's exporter writes it
    #[arg(help_heading = None::<&str>, value_name = "GRAPH")]
    graph: PathBuf,
    #[command(flatten)]
    wishes: WishOptions,
    #[command(flatten)]
    costs: load::CostOptions,
    #[command(flatten)]
    cores: load::CoreOptions,
    /// Print the plan as JSON, for karoo flow run --plan
    #[arg(long, group = "form")]
    json: bool,
    /// Print a picture of the plan in DOT
    #[arg(long, group = "form")]
    dot: bool,
    /// Print a picture of the plan as SVG
    #[arg(long, group = "form")]
    svg: bool,
    /// Write the plan to a file, for karoo flow run --plan
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What is wanted of a plan.
#[derive(Debug, Args)]
#[command(next_help_heading = "Placement")]
pub struct WishOptions {
    /// Keep the partitions that the graph is marked for together, and place these alone
    #[arg(long)]
    marked: bool,
    /// A node or a subsystem, and the CPU that it is to run on
    #[arg(long, value_name = "PATH=CPU", value_parser = pin)]
    pin: Vec<(String, usize)>,
    /// Ticks in the blocks of all queues [default: chosen, for each queue]
    #[arg(long, value_name = "TICKS", value_parser = clap::value_parser!(u64).range(1..=1 << 22))]
    block: Option<u64>,
    /// The most ticks in a block that is chosen; a signal has at most 1 MiB in one
    #[arg(long, value_name = "TICKS", default_value_t = Wishes::default().longest_block, value_parser = clap::value_parser!(u64).range(1..=1 << 22))]
    longest_block: u64,
    /// Blocks that each queue holds
    #[arg(long, value_name = "BLOCKS", default_value_t = Wishes::default().capacity, value_parser = clap::value_parser!(u64).range(2..=1 << 16))]
    capacity: u64,
    /// Give no copies to partitions without state
    #[arg(long)]
    no_copies: bool,
    /// Seed of the search: the same gives the same plan
    #[arg(long, value_name = "N", default_value_t = Wishes::default().seed)]
    seed: u64,
    /// Placements to look at, about; of guessed costs karoo flow run looks at fewer
    /// if there are many nodes
    #[arg(long, value_name = "N", default_value_t = Wishes::default().looks, value_parser = clap::value_parser!(u64).range(LEAST_LOOKS..=100_000_000))]
    looks: u64,
}

fn pin(text: &str) -> Result<(String, usize), String> {
    let wrong = || format!("`{text}`: write PATH=CPU, for example filter/fir=3");
    let (path, cpu) = text.rsplit_once('=').ok_or_else(wrong)?;
    Ok((path.to_owned(), cpu.parse().map_err(|_| wrong())?))
}

/// Placements to look at, of which each takes as long as a graph has nodes, so that it is over
/// soon: as many as are asked for, if that is not the usual number.
fn quick(looks: u64, nodes: usize) -> u64 {
    let usual = Wishes::default().looks;
    match looks == usual {
        true => (usual * QUICK_NODES / (nodes as u64).max(QUICK_NODES)).max(LEAST_LOOKS),
        false => looks,
    }
}

fn failure(error: PlanError) -> Failure {
    match error {
        PlanError::Graph(problems) => Failure::data(problems.to_string()),
        PlanError::Pin(text) => Failure::usage(format!("--pin: {text}")),
        error => Failure::usage(error),
    }
}

impl WishOptions {
    /// Ticks in a block, where no plan says it.
    pub fn block(&self, graph: &Graph) -> u64 {
        let chosen = || longest_block(graph, self.longest_block);
        self.block.unwrap_or_else(chosen)
    }

    /// Blocks that each queue holds.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// An option that nothing but a plan follows, if one is given. One that is as it would be
    /// without it asks for nothing.
    pub fn of_plans(&self) -> Option<String> {
        let usual = Wishes::default();
        let pin = self
            .pin
            .first()
            .map(|(path, cpu)| format!("--pin {path}={cpu}"));
        pin.or(self.marked.then(|| "--marked".to_owned()))
            .or(self.no_copies.then(|| "--no-copies".to_owned()))
            .or((self.seed != usual.seed).then(|| format!("--seed {}", self.seed)))
            .or((self.looks != usual.looks).then(|| format!("--looks {}", self.looks)))
    }

    /// The plan of a graph with these wishes.
    pub fn plan(&self, graph: &Graph, costs: &Costs, cores: &Cores) -> Result<Plan, Failure> {
        self.by_looks(graph, costs, cores, self.looks)
    }

    /// The plan of a graph by guessed costs, soon: of many nodes with fewer looks, each of which
    /// takes longer. A better plan would be one of guesses still.
    pub fn guessed(&self, graph: &Graph, cores: &Cores) -> Result<Plan, Failure> {
        let looks = quick(self.looks, graph.nodes().len());
        self.by_looks(graph, &Costs::guessed(graph), cores, looks)
    }

    fn by_looks(
        &self,
        graph: &Graph,
        costs: &Costs,
        cores: &Cores,
        looks: u64,
    ) -> Result<Plan, Failure> {
        let wishes = Wishes {
            grouping: if self.marked {
                Grouping::Marked
            } else {
                Grouping::Free
            },
            pins: self.pin.clone(),
            block: self.block,
            longest_block: self.longest_block,
            capacity: self.capacity,
            copies: !self.no_copies,
            seed: self.seed,
            looks,
            ..Wishes::default()
        };
        let stands_still = |problems: &Problems| problems.count(Cause::Loop) > 0;
        plan(graph, costs, cores, &wishes).map_err(|error| match (error, self.block) {
            (PlanError::Graph(problems), Some(block)) if stands_still(&problems) => {
                Failure::data(format!("--block {block}: {problems}"))
            }
            (error, _) => failure(error),
        })
    }

    /// The plan by costs that are kept or measured, and by how fast CPUs compute.
    pub fn measured(
        &self,
        graph: &Graph,
        costs: &load::CostOptions,
        options: &load::CoreOptions,
        cores: Cores,
    ) -> Result<Plan, Failure> {
        let costs = costs.costs(graph, cores.cpus.first().copied())?;
        let cores = options.with_paces(cores, &costs);
        let plan = self.plan(graph, &costs, &cores)?;
        Ok(options.expected(plan, graph, &costs, &cores))
    }
}

/// Runs the command.
pub fn run(args: &PlanArgs) -> Result<(), Failure> {
    let files = Files::default().reads("GRAPH", Some(&args.graph));
    let files = files.writes("--output", args.output.as_deref());
    args.costs.files(args.cores.files(files)).check()?;
    let loaded = load::graph(&args.graph)?;
    let cores = args.cores.cores()?;
    let plan = args
        .wishes
        .measured(&loaded.graph, &args.costs, &args.cores, cores)?;
    if let Some(path) = &args.output {
        let written = write_whole(path, plan.to_json());
        written.map_err(|error| unwritten("--output", path, &error))?;
    }
    match (args.json, args.dot, args.svg) {
        (true, ..) => println!("{}", plan.to_json()),
        (_, true, _) => print!("{}", plan.to_dot()),
        (_, _, true) => print!("{}", plan.to_svg()),
        _ => print!("{plan}"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_nodes_have_fewer_looks_unless_they_are_asked_for() {
        assert_eq!(quick(60_000, 10), 60_000);
        assert_eq!(quick(60_000, 6000), 600);
        assert_eq!(quick(60_000, 1 << 18), LEAST_LOOKS);
        assert_eq!(quick(500, 6000), 500);
    }
}
