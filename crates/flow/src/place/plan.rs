//! From a graph to a plan: partitions on CPUs, queues with their blocks, the rate to expect.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::blocks::{CostNetwork, End, Outside, Speed};
use super::cores::Cores;
use super::costs::Costs;
use super::evaluate::Sizes;
use super::free::{WORTH_A_CORE, apart, copy, fewer, left};
use super::limit::Limit;
use super::longest::longest_between;
use super::model::Model;
use super::pins::pin;
use super::placement::{Placement, place};
use super::still::still;
use super::transfers::fastest;
use super::wishes::Wishes;
use crate::graph::Graph;
use crate::problem::Problems;
use crate::run::{Between, Settings, Transfer, check_memory};

/// Version of a plan as JSON. Fields may be added within one.
pub const VERSION: u32 = 2;
/// What a written plan says that it is, behind `karoo/`.
pub const SCHEMA: &str = "flow-plan";

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq)]
pub enum PlanError {
    /// The graph cannot be placed.
    Graph(Problems),
    /// The cores cannot be used.
    Cores(String),
    /// A path that is to be pinned is not there, or its CPU is not.
    Pin(String),
    /// A plan that was read is of another graph.
    Other(String),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            PlanError::Graph(problems) => write!(f, "{problems}"),
            PlanError::Cores(text) | PlanError::Pin(text) | PlanError::Other(text) => {
                f.write_str(text)
            }
        }
    }
}

impl std::error::Error for PlanError {}

/// A partition of a plan.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    /// Its number, in [`Settings::partitions`].
    pub id: u32,
    /// The CPU of its thread; none: wherever the kernel puts it.
    pub cpu: Option<usize>,
    /// The CPUs of its copies, among which blocks go round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<Option<usize>>,
    /// The nodes, by path.
    pub nodes: Vec<String>,
    /// Nanoseconds for each tick, with its queues: of all copies together.
    pub busy_ns: f64,
}

/// A queue of a plan.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// The partition that writes; none: the inputs.
    pub from: Option<u32>,
    /// The partition that reads; none: the outputs.
    pub to: Option<u32>,
    /// Ticks in a block.
    pub block: u64,
    /// Blocks that it holds.
    pub capacity: u64,
    /// Blocks at the start. They follow from delays of the graph and from `block`.
    pub initial: u64,
    /// Bytes of a block.
    pub bytes: u64,
    /// How blocks pass: between partitions the way that was measured to be fastest for their size.
    /// Queues from the inputs and to the outputs all have one way.
    #[serde(default)]
    pub transfer: Transfer,
}

impl Queue {
    /// Whether it comes from the inputs or goes to the outputs.
    pub(super) fn is_outer(&self) -> bool {
        self.from.is_none() || self.to.is_none()
    }
}

fn schema_of_plans() -> String {
    format!("karoo/{SCHEMA}")
}

/// Which node runs where, with which blocks, and how fast that is to be. Can be written, changed by
/// hand and read again.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What this is: `karoo/flow-plan`.
    #[serde(default = "schema_of_plans")]
    pub schema: String,
    /// `VERSION`.
    pub version: u32,
    /// The graph's name.
    pub graph: String,
    /// Partitions.
    pub partitions: Vec<Partition>,
    /// Queues. If there is none, all have blocks of `block` ticks, and the usual capacity.
    #[serde(default)]
    pub queues: Vec<Queue>,
    /// Ticks in the blocks of queues from and to the outside.
    pub block: u64,
    /// The most ticks of a step.
    pub step: u64,
    /// Nanoseconds for each tick that are expected.
    pub period_ns: f64,
    /// The partitions whose cycle sets the period; one alone if it is the limit by itself. Empty:
    /// the outside is, or there are fewer CPUs than threads.
    pub critical: Vec<u32>,
    /// Whether the thread that reads inputs or writes outputs, or the number of CPUs, is the limit.
    pub outside: bool,
    /// Whether no other placement of these items is faster, by the model.
    pub proved: bool,
    /// Whether costs were measured: otherwise rates mean nothing.
    pub measured: bool,
}

/// The plan of a graph for these costs and cores. Paces of CPUs are rounded, so that few differ;
/// [`Plan::expected`] takes them as they are.
///
/// # Errors
///
/// The graph cannot be placed: also where pins, marks or blocks would let it stand still, and where
/// its queues would be beyond the memory that a run may have. Tables of the cores do not fit each
/// other, there are none, or a pin names what is not there.
pub fn plan(
    graph: &Graph,
    costs: &Costs,
    cores: &Cores,
    wishes: &Wishes,
) -> Result<Plan, PlanError> {
    cores.check().map_err(PlanError::Cores)?;
    // The last ones are those that are left free.
    let all = cores.clone().rounded().fastest_first();
    let cores = &left(graph, &all, wishes);
    let mut model = Model::of(graph, costs, wishes.grouping).map_err(PlanError::Graph)?;
    pin(&mut model, graph, cores, &wishes.pins)?;
    let planner = Planner {
        graph,
        costs,
        wishes,
        model: &model,
        cores,
        cpus: all.cpus.len(),
    };
    let mut best: Option<Candidate> = None;
    let mut stands_still = None;
    // Cores that are kept free for copies, as long as that helps.
    for free in 0..cores.cpus.len() {
        let kept = cores.only(&cores.cpus[..cores.cpus.len() - free]);
        let pinned = model.items.iter().filter_map(|item| item.pinned);
        if pinned.into_iter().any(|core| core >= kept.cpus.len()) {
            break;
        }
        let mut placement = place(&model, &kept, wishes);
        placement.proved &= free == 0;
        let sizes = placement.sizes;
        let used: Vec<usize> = placement.cores.iter().map(|&at| cores.cpus[at]).collect();
        let outside = Outside::of(costs, sizes.block, &all, &used);
        // Also with what has no state on a core of its own, which may have copies then.
        let apart = match wishes.copies {
            true => apart(&planner.network(&placement.cores, sizes, outside)),
            false => None,
        };
        let apart = apart.map(|cores| Placement {
            cores,
            sizes,
            proved: false,
        });
        let mut is_better = false;
        for placement in [Some(placement), apart].into_iter().flatten() {
            match planner.candidate(placement, outside) {
                Ok(made) if made.is_better_than(best.as_ref()) => {
                    best = Some(made);
                    is_better = true;
                }
                Ok(_) => {}
                Err(error) => {
                    stands_still.get_or_insert(error);
                }
            }
        }
        if !is_better || !wishes.copies {
            break;
        }
    }
    let none = || stands_still.unwrap_or_else(|| PlanError::Cores("there are no CPUs".into()));
    let plan = best.map(|best| best.plan).ok_or_else(none)?;
    check_memory(graph, &plan.settings(graph)?).map_err(PlanError::Graph)?;
    Ok(plan)
}

/// A plan that may become the one.
struct Candidate {
    plan: Plan,
    /// Its period before partitions were put together.
    split: f64,
}

impl Candidate {
    fn is_better_than(&self, best: Option<&Candidate>) -> bool {
        best.is_none_or(|best| self.plan.period_ns < best.split * 0.99)
    }
}

/// What plans are made of.
struct Planner<'a> {
    graph: &'a Graph,
    costs: &'a Costs,
    wishes: &'a Wishes,
    model: &'a Model,
    /// The cores for partitions.
    cores: &'a Cores,
    /// All CPUs, also those that are left free.
    cpus: usize,
}

impl<'a> Planner<'a> {
    fn network(&self, place: &'a [usize], sizes: Sizes, outside: Outside) -> CostNetwork<'a> {
        CostNetwork::new(self.model, self.cores, place, sizes, outside)
    }

    /// The speed of a network, with longer blocks where these help and are not given.
    fn lengthen(&self, network: &mut CostNetwork) -> Speed {
        match self.wishes.block {
            Some(_) => network.speed(),
            None => network.lengthen(longest_between(
                &self.model.signals,
                self.wishes.longest_block,
            )),
        }
    }

    /// The plan of a placement: with copies where these help, otherwise with as few partitions as
    /// are worth it. An error says why it would stand still.
    fn candidate(&self, placement: Placement, outside: Outside) -> Result<Candidate, PlanError> {
        let Placement {
            cores: place,
            sizes,
            mut proved,
        } = placement;
        let mut network = self.network(&place, sizes, outside);
        let copies = match self.wishes.copies {
            true => copy(&mut network, self.cpus),
            false => Vec::new(),
        };
        let merged = match copies.is_empty() {
            true => fewer(&network),
            false => place.clone(),
        };
        let mut speed = self.lengthen(&mut network);
        let split = speed.period;
        if merged != place {
            let mut together = self.network(&merged, sizes, outside);
            let slower = self.lengthen(&mut together);
            if slower.period * WORTH_A_CORE <= split {
                (network, speed, proved) = (together, slower, false);
            }
        }
        if speed.period.is_infinite() {
            return Err(still(self.graph, &network, self.wishes));
        }
        let limit = Limit::of(&network, &speed, network.used_cores().len(), self.cpus);
        let mut plan = Plan::new(self.graph, &network, &speed, &limit, &copies);
        plan.proved = proved;
        plan.measured = self.costs.measured;
        // Queues of the outside have one way, as they have one size: ends of threads that are no
        // partitions are not measured.
        for queue in plan.queues.iter_mut().filter(|queue| !queue.is_outer()) {
            queue.transfer = fastest(&self.costs.transfers, queue.bytes);
        }
        Ok(Candidate { plan, split })
    }
}

impl Plan {
    /// The plan of a network, neither proved nor measured.
    fn new(
        graph: &Graph,
        network: &CostNetwork,
        speed: &Speed,
        limit: &Limit,
        copies: &[(usize, Vec<usize>)],
    ) -> Plan {
        let (model, cores, place) = (network.model, network.cores, network.place);
        let used = network.used_cores();
        let id = |core: usize| used.binary_search(&core).unwrap_or(0) as u32;
        let partition = |&core: &usize| {
            let here = model.items.iter().zip(place).filter(|(_, at)| **at == core);
            Partition {
                id: id(core),
                cpu: Some(cores.cpus[core]),
                copies: copies
                    .iter()
                    .filter(|(of, _)| *of == core)
                    .flat_map(|(_, on)| on.iter().map(|&on| Some(cores.cpus[on])))
                    .collect(),
                nodes: here
                    .flat_map(|(item, _)| &item.nodes)
                    .map(|&node| graph.path(node))
                    .collect(),
                busy_ns: speed.busy[core],
            }
        };
        let end = |end: End| match end {
            End::Core(core) => Some(id(core)),
            End::Inputs | End::Outputs => None,
        };
        let outer = |end: End| !matches!(end, End::Core(_));
        let outside_blocks = network
            .links
            .iter()
            .filter(|link| outer(link.from) || outer(link.to))
            .map(|link| link.block);
        // All queues from inputs and to outputs get one block size, the shortest among them.
        let block = outside_blocks.min().unwrap_or_else(|| {
            network
                .links
                .iter()
                .map(|link| link.block)
                .max()
                .unwrap_or(network.step)
        });
        Plan {
            schema: schema_of_plans(),
            version: VERSION,
            graph: graph.name().into(),
            partitions: used.iter().map(partition).collect(),
            queues: network
                .links
                .iter()
                .map(|link| {
                    let mut link = link.clone();
                    if outer(link.from) || outer(link.to) {
                        link.block = block;
                    }
                    Queue {
                        from: end(link.from),
                        to: end(link.to),
                        block: link.block,
                        capacity: link.capacity,
                        initial: link.initial(),
                        bytes: link.bytes() as u64,
                        transfer: Transfer::default(),
                    }
                })
                .collect(),
            block,
            step: network.step,
            period_ns: limit.period,
            critical: limit.critical.iter().map(|&core| id(core)).collect(),
            outside: limit.outside,
            proved: false,
            measured: false,
        }
    }

    /// Reads a plan.
    pub fn from_json(text: &str) -> Result<Plan, PlanError> {
        let plan: Plan =
            serde_json::from_str(text).map_err(|error| PlanError::Other(error.to_string()))?;
        if plan.schema != schema_of_plans() {
            let text = format!(
                "this is {}, no plan: it must be {}",
                plan.schema,
                schema_of_plans()
            );
            return Err(PlanError::Other(text));
        }
        if plan.version != VERSION {
            let text = format!(
                "a plan of version {}: it must be {VERSION}; make it anew",
                plan.version
            );
            return Err(PlanError::Other(text));
        }
        Ok(plan)
    }

    /// The plan as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self)
            .unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"))
    }

    /// Ticks in a second that are expected.
    pub fn rate(&self) -> f64 {
        1e9 / self.period_ns
    }

    /// The settings with which an executor follows the plan; an error where it could not follow all
    /// of it.
    pub fn settings(&self, graph: &Graph) -> Result<Settings, PlanError> {
        self.check(graph).map_err(PlanError::Other)?;
        let mut known: BTreeMap<&str, u32> = BTreeMap::new();
        for partition in &self.partitions {
            for path in &partition.nodes {
                if known.insert(path.as_str(), partition.id).is_some() {
                    let text = format!("the plan has {path} twice: leave it in one partition");
                    return Err(PlanError::Other(text));
                }
            }
        }
        let mut partitions = Vec::with_capacity(graph.nodes().len());
        for id in graph.ids() {
            let path = graph.path(id);
            let node = &graph.node(id).node;
            let free = node.kind() == crate::nodes::INPUT
                || node.kind() == crate::nodes::OUTPUT
                || node.constant();
            match known.remove(path.as_str()) {
                Some(partition) => partitions.push(partition),
                None if free => partitions.push(0),
                None => {
                    let text = format!("the plan has no partition for {path}: make it anew");
                    return Err(PlanError::Other(text));
                }
            }
        }
        if let Some(path) = known.keys().next() {
            let text = format!("the plan has {path}, which the graph has not: make it anew");
            return Err(PlanError::Other(text));
        }
        self.check_queues(graph, &partitions)?;
        let between = self.queues.iter().filter_map(|queue| {
            Some(Between {
                from: queue.from?,
                to: queue.to?,
                block: queue.block,
                capacity: usize::try_from(queue.capacity).unwrap_or(usize::MAX),
                transfer: queue.transfer,
            })
        });
        let (capacity, transfer) = self
            .outside()
            .map(|queue| (queue.capacity, queue.transfer))
            .next()
            .unzip();
        Ok(Settings {
            block: self.block,
            capacity: capacity.map_or(Settings::default().capacity, |most| most as usize),
            step: self.step,
            transfer: transfer.unwrap_or_default(),
            copies: self
                .partitions
                .iter()
                .filter(|partition| !partition.copies.is_empty())
                .map(|partition| (partition.id, partition.copies.clone()))
                .collect(),
            between: between.collect(),
            partitions: Some(partitions),
            cpus: self
                .partitions
                .iter()
                .filter_map(|partition| Some((partition.id, partition.cpu?)))
                .collect(),
            ..Settings::default()
        })
    }
}
