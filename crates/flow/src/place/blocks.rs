//! A block size for each queue, and the period with all of them: exact, by as many copies of each
//! partition as it works in one round of all blocks.

use super::cores::Cores;
use super::costs::{Cost, Costs};
use super::evaluate::Sizes;
use super::model::{Model, in_block};
use super::round::{Round, once_round};
use crate::analysis::{Dependence, maximum_cycle_ratio};
use crate::cycles;

/// The most blocks of the shortest queue in one of the longest.
const MOST_RATIO: u64 = 32;

/// Where a queue ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    Inputs,
    Outputs,
    /// A core, as an index of the cores' rows.
    Core(usize),
}

/// A queue with its signals: bytes for each tick, and ticks of delay that it may absorb. Complex
/// ones are two of half the bytes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Link {
    pub from: End,
    pub to: End,
    pub signals: Vec<(f64, u64)>,
    /// Ticks of a block.
    pub block: u64,
    pub capacity: u64,
}

impl Link {
    pub fn bytes(&self) -> f64 {
        let bytes = |signal: &(f64, u64)| in_block(signal.0, self.block);
        self.signals.iter().map(bytes).sum()
    }

    /// Lets it absorb no delays.
    pub fn absorb_nothing(&mut self) {
        self.signals.iter_mut().for_each(|signal| signal.1 = 0);
    }

    /// Blocks at the start.
    pub fn initial(&self) -> u64 {
        let blocks = self.signals.iter().map(|signal| signal.1 / self.block);
        blocks
            .min()
            .unwrap_or(0)
            .min(self.capacity.saturating_sub(1))
    }
}

/// The queues of a placement, by their ends.
pub(super) fn links(model: &Model, place: &[usize], sizes: Sizes) -> Vec<Link> {
    let mut links: Vec<Link> = Vec::new();
    for signal in &model.signals {
        let from = signal
            .from
            .map_or(End::Inputs, |item| End::Core(place[item]));
        let mut targets: Vec<End> = signal.to.iter().map(|&to| End::Core(place[to])).collect();
        targets.extend(signal.out.then_some(End::Outputs));
        targets.sort_unstable();
        targets.dedup();
        let absorbed = targets.len() == 1 && from != End::Inputs && !signal.out;
        for to in targets.into_iter().filter(|&to| to != from) {
            let delay = if absorbed { signal.delay } else { 0 };
            let ports = match signal.complex {
                true => vec![(signal.bytes / 2.0, delay); 2],
                false => vec![(signal.bytes, delay)],
            };
            match links
                .iter_mut()
                .find(|link| link.from == from && link.to == to)
            {
                Some(link) => link.signals.extend(ports),
                None => links.push(Link {
                    from,
                    to,
                    signals: ports,
                    block: sizes.block,
                    capacity: sizes.capacity,
                }),
            }
        }
    }
    links.sort_by_key(|link| (link.from, link.to));
    links
}

/// Times of the outside for each tick: reading inputs and writing outputs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outside {
    pub inputs: f64,
    pub outputs: f64,
}

impl Outside {
    /// The times with such blocks, where partitions use these CPUs: the threads have others if
    /// there are any, whichever the kernel takes.
    pub fn of(costs: &Costs, block: u64, cores: &Cores, used: &[usize]) -> Outside {
        let paces = |free: bool| -> Vec<f64> {
            let rows = 0..cores.cpus.len();
            let rows = rows.filter(|&row| !free || !used.contains(&cores.cpus[row]));
            rows.map(|row| cores.pace(row)).collect()
        };
        let mut known = paces(true);
        if known.is_empty() {
            known = paces(false);
        }
        known.sort_by(f64::total_cmp);
        let median = known.get(known.len().saturating_sub(1) / 2);
        let pace = median.copied().unwrap_or(1.0);
        let time = |cost: Cost| (cost.per_tick + cost.per_step / block.max(1) as f64) / pace;
        Outside {
            inputs: time(costs.inputs),
            outputs: time(costs.outputs),
        }
    }
}

/// A placement with its queues.
pub(super) struct CostNetwork<'a> {
    pub model: &'a Model,
    pub cores: &'a Cores,
    pub place: &'a [usize],
    pub step: u64,
    sizes: Sizes,
    pub links: Vec<Link>,
    pub outside: Outside,
    /// Cores that each core's partition runs on, this one included: 1 but for those with copies.
    pub sharers: Vec<u64>,
    /// How fast each core's partition computes: as fast as the slowest core that it runs on.
    pub paces: Vec<f64>,
}

/// How fast it can be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Speed {
    /// Nanoseconds for each tick; infinite where it would stand still.
    pub period: f64,
    /// The ends of the cycle that sets it.
    pub critical: Vec<End>,
    /// Nanoseconds of each core for each tick, then those of the inputs and of the outputs.
    pub busy: Vec<f64>,
}

impl<'a> CostNetwork<'a> {
    /// The same placement without copies, with blocks of another size.
    pub fn with_blocks(&self, block: u64) -> CostNetwork<'a> {
        let sizes = Sizes {
            block: block.next_multiple_of(self.model.round.max(1)),
            ..self.sizes
        };
        CostNetwork::new(self.model, self.cores, self.place, sizes, self.outside)
    }

    /// The same items at other places, without copies, with blocks of the first size.
    pub fn placed<'b>(&'b self, place: &'b [usize]) -> CostNetwork<'b> {
        CostNetwork::new(self.model, self.cores, place, self.sizes, self.outside)
    }

    pub fn new(
        model: &'a Model,
        cores: &'a Cores,
        place: &'a [usize],
        sizes: Sizes,
        outside: Outside,
    ) -> CostNetwork<'a> {
        CostNetwork {
            model,
            cores,
            place,
            step: sizes.step,
            sizes,
            links: links(model, place, sizes),
            outside,
            sharers: vec![1; cores.cpus.len()],
            paces: (0..cores.cpus.len()).map(|core| cores.pace(core)).collect(),
        }
    }

    /// The cores that have a partition.
    pub fn used_cores(&self) -> Vec<usize> {
        let mut used = self.place.to_vec();
        used.sort_unstable();
        used.dedup();
        used
    }

    fn sharers(&self, end: usize) -> u64 {
        self.sharers.get(end).copied().unwrap_or(1)
    }

    /// Copies a core's partition, so that so many cores share its blocks. Its queues absorb no
    /// delays then.
    pub fn share(&mut self, core: usize, sharers: u64) {
        self.sharers[core] = sharers;
        let own = |link: &&mut Link| link.from == End::Core(core) || link.to == End::Core(core);
        for link in self.links.iter_mut().filter(own) {
            link.absorb_nothing();
        }
    }

    /// Whether a core's partition may have copies: no state, no queue to itself.
    pub fn may_share(&self, core: usize) -> bool {
        let mut here = self
            .model
            .items
            .iter()
            .zip(self.place)
            .filter(|(_, at)| **at == core);
        let next_to_shared = self.links.iter().any(|link| {
            let other = match (link.from, link.to) {
                (End::Core(from), End::Core(to)) if from == core => to,
                (End::Core(from), End::Core(to)) if to == core => from,
                _ => return false,
            };
            self.sharers[other] > 1
        });
        here.all(|(item, _)| item.pure) && !next_to_shared
    }

    /// The place of an end in lists of all: cores, then inputs and outputs.
    pub fn index(&self, end: End) -> usize {
        match end {
            End::Core(core) => core,
            End::Inputs => self.cores.cpus.len(),
            End::Outputs => self.cores.cpus.len() + 1,
        }
    }

    fn end(&self, index: usize) -> End {
        match index - index.min(self.cores.cpus.len()) {
            0 if index < self.cores.cpus.len() => End::Core(index),
            0 => End::Inputs,
            _ => End::Outputs,
        }
    }

    /// Nanoseconds that a byte of a link takes its reader.
    fn read_ns(&self, link: &Link) -> f64 {
        let rates = &self.cores.gigabytes_per_second;
        let rate = match (link.from, link.to) {
            (End::Core(from), End::Core(to)) => rates[from][to],
            (_, End::Core(core)) | (End::Core(core), _) => rates[core][core],
            _ => 1.0,
        };
        self.model.queues.read_byte_ns.max(1.0 / rate)
    }

    fn latency(&self, from: End, to: End) -> f64 {
        match (from, to) {
            (End::Core(from), End::Core(to)) => self.cores.latency_ns[from][to],
            _ => 0.0,
        }
    }

    /// Groups of links whose blocks go together: those of a loop of cores, and each other by
    /// itself.
    fn groups(&self) -> Vec<Vec<usize>> {
        let mut next = vec![Vec::new(); self.cores.cpus.len() + 2];
        for link in &self.links {
            next[self.index(link.from)].push(self.index(link.to));
        }
        let loops = cycles::components(&next);
        let of = |link: &Link| {
            let ends = [self.index(link.from), self.index(link.to)];
            loops
                .iter()
                .position(|part| ends.iter().all(|end| part.binary_search(end).is_ok()))
        };
        let mut groups: Vec<Vec<usize>> = vec![Vec::new(); loops.len()];
        for (index, link) in self.links.iter().enumerate() {
            match of(link) {
                Some(group) => groups[group].push(index),
                None => groups.push(vec![index]),
            }
        }
        groups.retain(|group| !group.is_empty());
        groups
    }

    /// Makes blocks longer where that helps. All stay multiples of the shortest.
    pub fn lengthen(&mut self, most: u64) -> Speed {
        let mut best = self.speed();
        for group in self.groups() {
            // All queues of a partition with copies have one size.
            let shared = |&link: &usize| {
                let ends = [self.links[link].from, self.links[link].to];
                ends.iter().any(|&end| self.sharers(self.index(end)) > 1)
            };
            if group.iter().any(shared) {
                continue;
            }
            let begin = self.links[group[0]].block;
            let mut kept = begin;
            let mut block = begin;
            while block * 2 <= most && block * 2 <= begin * MOST_RATIO {
                block *= 2;
                group
                    .iter()
                    .for_each(|&link| self.links[link].block = block);
                let speed = self.speed();
                // Longer blocks take memory and time: for nothing they are not taken.
                if speed.period < best.period * 0.998 {
                    (best, kept) = (speed, block);
                }
            }
            group.iter().for_each(|&link| self.links[link].block = kept);
        }
        best
    }

    /// The exact period with these blocks.
    pub fn speed(&self) -> Speed {
        let round = Round::new(self);
        let busy = self.busy(&round.units);
        let arcs = self.arcs(&round, &busy);
        let (period, critical) = match maximum_cycle_ratio(round.nodes, &arcs) {
            Some((period, cycle)) => {
                let firings = cycle.into_iter().map(|arc| arcs[arc].from);
                let ends = once_round(firings.map(|node| round.end(node)).collect());
                let critical = ends.into_iter().map(|end| self.end(end)).collect();
                // Times of arcs are in picoseconds.
                (period.nanoseconds() / 1000.0 / round.ticks as f64, critical)
            }
            None => (f64::INFINITY, Vec::new()),
        };
        let mut speed = Speed {
            period,
            critical,
            busy,
        };
        // However little its ends have to do, a queue passes one block after the other.
        for link in &self.links {
            let through = self.through(link);
            if through > speed.period {
                speed.period = through;
                speed.critical = vec![link.from, link.to];
            }
        }
        speed
    }

    /// What the firings of a round wait for, where ends take such times for each tick: earlier
    /// firings of the same end, blocks of its inputs, and room for those of its outputs.
    fn arcs(&self, round: &Round, busy: &[f64]) -> Vec<Dependence> {
        let time = |end: usize| busy[end] * round.units[end] as f64;
        let mut arcs = Vec::new();
        for end in 0..busy.len() {
            let firings = round.firings(end);
            // With copies, a firing waits for the one that many before.
            let sharers = self.sharers(end) as usize;
            for firing in 0..firings {
                arcs.push(Dependence {
                    from: round.first[end] + firing,
                    to: round.first[end] + (firing + sharers) % firings,
                    time: picoseconds(time(end)),
                    tokens: ((firing + sharers) / firings) as u64,
                });
            }
        }
        for link in &self.links {
            let (from, to) = (self.index(link.from), self.index(link.to));
            let latency = self.latency(link.from, link.to);
            let [written, read] = [from, to].map(|end| picoseconds(time(end) + latency));
            for block in 0..round.ticks / link.block {
                // The reader's first firing of a block waits until it is written.
                let begin = block * link.block;
                let behind = block as i64 + 1 - link.initial() as i64;
                let end = behind * link.block as i64;
                arcs.push(round.arc((to, begin), (from, end), written));
                // The writer's last firing of a block waits for room.
                let begin = (block + 1) * link.block - round.units[from];
                let free = block as i64 + 1 + link.initial() as i64 - link.capacity as i64;
                let end = free * link.block as i64;
                arcs.push(round.arc((from, begin), (to, end), read));
            }
        }
        arcs
    }

    /// Nanoseconds for each tick that a link between cores takes at least. Blocks of partitions
    /// with copies go through several queues.
    fn through(&self, link: &Link) -> f64 {
        match (link.from, link.to) {
            (End::Core(from), End::Core(to)) => {
                let queues = self.sharers[from].max(self.sharers[to]);
                self.model.through(link.bytes()) / (link.block * queues) as f64
            }
            _ => 0.0,
        }
    }

    /// Nanoseconds of each end for each tick.
    fn busy(&self, unit: &[u64]) -> Vec<f64> {
        let mut busy = vec![0.0; unit.len()];
        for (item, &at) in self.model.items.iter().zip(self.place) {
            busy[at] += item.work(self.step.min(unit[at]));
        }
        for pass in &self.model.passes {
            for at in pass.cores(self.place) {
                busy[at] += pass.work(self.step.min(unit[at]));
            }
        }
        let costs = self.model.queues;
        for (core, busy) in busy.iter_mut().enumerate() {
            if self.place.contains(&core) {
                *busy += costs.step_ns / self.step.min(unit[core]) as f64;
            }
        }
        busy[self.index(End::Inputs)] = self.outside.inputs;
        busy[self.index(End::Outputs)] = self.outside.outputs;
        for link in &self.links {
            let (bytes, block) = (link.bytes(), link.block as f64);
            // What threads of the outside do with queues is in what was measured of them.
            let line = self.latency(link.from, link.to);
            if let End::Core(core) = link.from {
                busy[core] += (costs.send_ns + line + costs.byte_ns * bytes) / block;
            }
            if let End::Core(core) = link.to {
                let read = self.read_ns(link) * bytes;
                busy[core] += (costs.receive_ns + line + read) / block;
            }
        }
        for (busy, pace) in busy.iter_mut().zip(&self.paces) {
            *busy /= pace;
        }
        busy
    }
}

/// Nanoseconds as whole picoseconds.
fn picoseconds(time: f64) -> u64 {
    (time * 1000.0).round().clamp(0.0, 1e15) as u64
}
