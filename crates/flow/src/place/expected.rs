//! What to expect of a plan that is there: by other costs, or where CPUs compute at another pace.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use num_integer::{gcd, lcm};

use super::blocks::{CostNetwork, End, Link, Outside};
use super::cores::Cores;
use super::costs::{Cost, Costs};
use super::evaluate::Sizes;
use super::limit::Limit;
use super::model::Model;
use super::pace::{alone, measure_shared_paces};
use super::plan::{Plan, PlanError};
use crate::graph::Graph;
use crate::run::Settings;

/// The most blocks of the largest size that all blocks are multiples of, in a round of all.
const LONGEST_ROUND: u128 = 1 << 12;
/// The most ticks of a block, and blocks of a queue.
const MOST: u64 = 1 << 32;

impl Plan {
    /// The same plan with the times and the rate that these costs give, with its partitions on
    /// these cores. Paces count as they are. Partitions that a plan changed by hand has on one CPU
    /// count as one there. `proved` stays what it was for the costs that the plan was made of.
    ///
    /// # Errors
    ///
    /// The plan is of another graph, has a CPU that is not among the cores, no CPU for a partition,
    /// a copy on a CPU that is used already, or blocks that are too long or only have a very long
    /// round in common, or would stand still.
    pub fn expected(&self, graph: &Graph, costs: &Costs, cores: &Cores) -> Result<Plan, PlanError> {
        cores.check().map_err(PlanError::Cores)?;
        let settings = self.settings(graph)?;
        let of = settings.partitions.unwrap_or_default();
        let model = Model::of_partitions(graph, costs, &of).map_err(PlanError::Graph)?;
        let row = |cpu: Option<usize>| {
            let cpu = cpu.ok_or_else(|| no_cpu("no CPU"))?;
            let row = cores.cpus.iter().position(|&known| known == cpu);
            row.ok_or_else(|| no_cpu(&format!("CPU {cpu}, which is not among those given")))
        };
        let mut rows = BTreeMap::new();
        for partition in &self.partitions {
            rows.insert(partition.id, row(partition.cpu)?);
        }
        let place: Vec<usize> = model
            .items
            .iter()
            .map(|item| rows[&of[item.nodes[0].index()]])
            .collect();
        let sizes = Sizes {
            block: self.block.max(1),
            capacity: 2,
            step: self.step.max(1),
        };
        let outside = Outside::of(costs, self.block, cores, &self.cpus());
        let mut network = CostNetwork::new(&model, cores, &place, sizes, outside);
        self.queues_of(&mut network.links, &rows, model.round)?;
        let mut used: BTreeSet<usize> = rows.values().copied().collect();
        for partition in &self.partitions {
            let core = rows[&partition.id];
            if !partition.copies.is_empty() {
                network.share(core, 1 + partition.copies.len() as u64);
            }
            for &copy in &partition.copies {
                let on = row(copy)?;
                if !used.insert(on) {
                    return Err(no_cpu("a copy on a CPU that is used already"));
                }
                network.paces[core] = network.paces[core].min(cores.pace(on));
            }
        }
        let speed = network.speed();
        let limit = Limit::of(&network, &speed, self.partitions.len(), cores.cpus.len());
        if limit.period.is_infinite() {
            let text = "the plan would stand still: make its blocks shorter, or make it anew";
            return Err(PlanError::Other(text.into()));
        }
        let mut plan = self.clone();
        for partition in &mut plan.partitions {
            partition.busy_ns = speed.busy[rows[&partition.id]];
        }
        let critical =
            |partition: &&super::Partition| limit.critical.contains(&rows[&partition.id]);
        plan.critical = self
            .partitions
            .iter()
            .filter(critical)
            .map(|partition| partition.id)
            .collect();
        plan.period_ns = limit.period;
        plan.outside = limit.outside;
        plan.measured = costs.measured;
        Ok(plan)
    }

    /// Gives links the blocks that the executor gives the plan's queues: those of the outside have
    /// one size.
    fn queues_of(
        &self,
        links: &mut [Link],
        rows: &BTreeMap<u32, usize>,
        unit: u64,
    ) -> Result<(), PlanError> {
        let sizes = self
            .queues
            .iter()
            .flat_map(|queue| [queue.block, queue.capacity]);
        if let Some(most) = sizes.chain([self.block]).find(|&size| size > MOST) {
            let text = format!("the plan has a queue of size {most}: at most {MOST}");
            return Err(PlanError::Other(text));
        }
        let outer = self.outside().map(|queue| queue.capacity).next();
        let end = |partition: Option<u32>, outer: End| match partition {
            Some(partition) => rows.get(&partition).map(|&row| End::Core(row)),
            None => Some(outer),
        };
        for link in &mut *links {
            let queue = self.queues.iter().find(|queue| {
                end(queue.from, End::Inputs) == Some(link.from)
                    && end(queue.to, End::Outputs) == Some(link.to)
            });
            let inner = queue.filter(|queue| queue.from.is_some() && queue.to.is_some());
            let block = inner.map_or(self.block, |queue| queue.block);
            link.block = block.max(1).next_multiple_of(unit.max(1));
            let capacity = inner.map(|queue| queue.capacity).or(outer);
            let usual = || Settings::default().capacity as u64;
            link.capacity = capacity.unwrap_or_else(usual).max(1);
        }
        let blocks = || links.iter().map(|link| u128::from(link.block));
        let common = blocks().fold(0, gcd);
        let mut round = 1;
        for block in blocks() {
            round = lcm(round, block);
            if round > common * LONGEST_ROUND {
                let text = "the plan's blocks have no short round in common: let all be multiples \
                            of the shortest";
                return Err(PlanError::Other(text.into()));
            }
        }
        Ok(())
    }

    /// The same plan with the times and the rate that these costs give while its CPUs compute, each
    /// for as much of the time as the plan has work for it, with the others idle: that is measured
    /// for `time`.
    ///
    /// # Errors
    ///
    /// As [`expected`](Plan::expected).
    pub fn expected_at_work(
        &self,
        graph: &Graph,
        costs: &Costs,
        cores: &Cores,
        time: Duration,
    ) -> Result<Plan, PlanError> {
        let alike = self.expected(graph, costs, &cores.clone().with_paces(Vec::new()))?;
        self.expected(graph, costs, &alike.cores_at_work(cores, costs, time))
    }

    /// The CPUs of the plan, and free ones for the threads that read inputs and write outputs, as
    /// far as there are any, with their paces while each computes for as much of the time as there
    /// is work for it.
    pub fn cores_at_work(&self, cores: &Cores, costs: &Costs, time: Duration) -> Cores {
        let shares = self.shares_of_time(cores, costs);
        let of = costs.loops_per_second;
        let of = of.or_else(|| alone(*cores.cpus.first()?, time));
        let cpus: Vec<usize> = shares.keys().copied().collect();
        let cores = cores.only(&cpus);
        let shares: Vec<f64> = cores.cpus.iter().map(|cpu| shares[cpu]).collect();
        let paces = measure_shared_paces(&cores.cpus, &shares, of, time);
        cores.with_paces(paces)
    }

    /// The share of the time for which each CPU has work.
    fn shares_of_time(&self, cores: &Cores, costs: &Costs) -> BTreeMap<usize, f64> {
        let share = |busy: f64| busy / self.period_ns.max(f64::MIN_POSITIVE);
        let mut shares = BTreeMap::new();
        for partition in &self.partitions {
            let cpus = partition.copies.iter().chain([&partition.cpu]);
            let copies = 1 + partition.copies.len();
            for &cpu in cpus.flatten() {
                *shares.entry(cpu).or_insert(0.0) += share(partition.busy_ns / copies as f64);
            }
        }
        let busy = |cost: Cost| cost.per_tick + cost.per_step / self.step.max(1) as f64;
        let reads = self.queues.iter().any(|queue| queue.from.is_none());
        let writes = self.queues.iter().any(|queue| queue.to.is_none());
        let threads = [(reads, costs.inputs), (writes, costs.outputs)];
        let threads = threads.into_iter().filter(|(there, _)| *there);
        let threads: Vec<f64> = threads.map(|(_, cost)| share(busy(cost))).collect();
        let free = cores.cpus.iter().filter(|cpu| !shares.contains_key(cpu));
        let free: Vec<usize> = free.take(threads.len()).copied().collect();
        if free.is_empty() {
            // They run where partitions wait.
            let each = threads.iter().sum::<f64>() / shares.len().max(1) as f64;
            shares.values_mut().for_each(|share| *share += each);
        } else {
            for (cpu, own) in free.iter().cycle().zip(threads) {
                *shares.entry(*cpu).or_insert(0.0) += own;
            }
        }
        shares
    }

    /// The CPUs that partitions and their copies run on.
    pub fn cpus(&self) -> Vec<usize> {
        let partitions = self.partitions.iter();
        let own = partitions.flat_map(|partition| partition.copies.iter().chain([&partition.cpu]));
        let mut cpus: Vec<usize> = own.filter_map(|&cpu| cpu).collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }
}

fn no_cpu(what: &str) -> PlanError {
    PlanError::Cores(format!("the plan has a partition with {what}"))
}
