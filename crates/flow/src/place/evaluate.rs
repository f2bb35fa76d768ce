//! How fast a placement can be: its cycle ratio, with what crosses from core to core.

use super::cores::Cores;
use super::model::Model;
use crate::analysis::{Dependence, Period, maximum_cycle_ratio};

/// An item that is not placed yet.
pub(super) const NOWHERE: usize = usize::MAX;

/// Sizes that hold for all queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Ticks of a block.
    pub block: u64,
    /// Blocks that a queue holds.
    pub capacity: u64,
    /// The most ticks of a step.
    pub step: u64,
}

/// A queue between two cores.
#[derive(Clone, Debug, PartialEq)]
pub struct Crossing {
    /// The core that writes, as an index of the cores' rows.
    pub from: usize,
    /// The core that reads.
    pub to: usize,
    /// Bytes of a block.
    pub bytes: f64,
    /// Blocks at the start.
    pub initial: u64,
}

/// What is known of a placement, also of a part of the items.
#[derive(Clone, Debug)]
pub(super) struct Look<'a> {
    model: &'a Model,
    cores: &'a Cores,
    sizes: Sizes,
}

impl<'a> Look<'a> {
    pub fn new(model: &'a Model, cores: &'a Cores, sizes: Sizes) -> Look<'a> {
        Look {
            model,
            cores,
            sizes,
        }
    }

    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// The queues between cores, by the cores that they go from and to.
    pub fn crossings(&self, place: &[usize]) -> Vec<Crossing> {
        let count = self.cores.cpus.len();
        let mut found: Vec<Option<Crossing>> = vec![None; count * count];
        let block = self.sizes.block;
        let mut targets: Vec<usize> = Vec::with_capacity(count);
        for signal in &self.model.signals {
            let Some(from) = signal.from.map(|item| place[item]) else {
                continue;
            };
            if from == NOWHERE {
                continue;
            }
            targets.clear();
            for &item in &signal.to {
                let to = place[item];
                if to != NOWHERE && !targets.contains(&to) {
                    targets.push(to);
                }
            }
            // A delay becomes content of a queue if nothing else reads it.
            let absorbed = targets.len() == 1 && !signal.out;
            for &to in targets.iter().filter(|&&to| to != from) {
                let kept = if absorbed { signal.delay / block } else { 0 };
                let kept = kept.min(self.sizes.capacity.saturating_sub(1));
                let bytes = signal.in_block(block);
                match &mut found[from * count + to] {
                    Some(known) => {
                        known.bytes += bytes;
                        known.initial = known.initial.min(kept);
                    }
                    none => {
                        *none = Some(Crossing {
                            from,
                            to,
                            bytes,
                            initial: kept,
                        });
                    }
                }
            }
        }
        found.into_iter().flatten().collect()
    }

    /// Nanoseconds of each core for one block: its items and what it does with queues.
    pub fn loads(&self, place: &[usize], crossings: &[Crossing]) -> Vec<f64> {
        let block = self.sizes.block as f64;
        let step = self.sizes.step.min(self.sizes.block);
        let mut loads = vec![0.0; self.cores.cpus.len()];
        for (item, &at) in self.model.items.iter().zip(place) {
            if at != NOWHERE {
                loads[at] += item.work(step) * block;
            }
        }
        for pass in &self.model.passes {
            for at in pass.cores(place).into_iter().filter(|&at| at != NOWHERE) {
                loads[at] += pass.work(step) * block;
            }
        }
        let costs = self.model.queues;
        for (core, load) in loads.iter_mut().enumerate() {
            if place.contains(&core) {
                *load += costs.step_ns * block / step as f64;
            }
        }
        for &Crossing {
            from, to, bytes, ..
        } in crossings
        {
            // Each end waits once for a cache line that the other has written.
            let line = self.cores.latency_ns[from][to];
            loads[from] += costs.send_ns + line + costs.byte_ns * bytes;
            let rate = self.cores.gigabytes_per_second[from][to];
            loads[to] += costs.receive_ns + line + bytes * costs.read_byte_ns.max(1.0 / rate);
        }
        // Queues from and to the outside.
        let mut outside = vec![(0.0, 0.0); loads.len()];
        for signal in &self.model.signals {
            let bytes = signal.in_block(self.sizes.block);
            match signal.from.map(|item| place[item]) {
                None => {
                    let mut seen: Vec<usize> = signal.to.iter().map(|&to| place[to]).collect();
                    seen.sort_unstable();
                    seen.dedup();
                    for at in seen.into_iter().filter(|&at| at != NOWHERE) {
                        outside[at].0 += bytes;
                    }
                }
                Some(at) if at != NOWHERE && signal.out => outside[at].1 += bytes,
                Some(_) => {}
            }
        }
        for (at, (read, written)) in outside.into_iter().enumerate() {
            if read > 0.0 {
                let rate = self.cores.gigabytes_per_second[at][at];
                loads[at] += costs.receive_ns + read * costs.read_byte_ns.max(1.0 / rate);
            }
            if written > 0.0 {
                loads[at] += costs.send_ns + costs.byte_ns * written;
            }
        }
        for (at, load) in loads.iter_mut().enumerate() {
            *load /= self.cores.pace(at);
        }
        loads
    }

    /// Nanoseconds for each tick that no run of this placement can beat; infinite where it would
    /// stand still. For a part of the items a bound of all that places the others too.
    pub fn period(&self, place: &[usize]) -> f64 {
        let crossings = self.crossings(place);
        let loads = self.loads(place, &crossings);
        // Initial blocks take room of a queue only where all is placed: one more reader of the
        // signal, and the delay is no content of the queue any more.
        let filled = !place.contains(&NOWHERE);
        let found = maximum_cycle_ratio(loads.len(), &self.arcs(&crossings, &loads, filled));
        // Every core waits for itself: without a ratio some loop has no block.
        let period = found.map_or(f64::INFINITY, |(period, _)| self.per_tick(period));
        // However little its ends have to do, a queue passes one block after the other.
        let through = crossings
            .iter()
            .map(|crossing| self.model.through(crossing.bytes));
        through.fold(period, |period, time| {
            period.max(time / self.sizes.block as f64)
        })
    }

    fn per_tick(&self, period: Period) -> f64 {
        period.nanoseconds() / 1000.0 / self.sizes.block as f64
    }

    /// The dependences of cores on one another, in picoseconds. Queues that are not `filled` have
    /// the room of their initial blocks too.
    fn arcs(&self, crossings: &[Crossing], loads: &[f64], filled: bool) -> Vec<Dependence> {
        let picoseconds = |time: f64| (time * 1000.0).round().clamp(0.0, 1e15) as u64;
        let own = loads.iter().enumerate().map(|(at, &load)| Dependence {
            from: at,
            to: at,
            time: picoseconds(load),
            tokens: 1,
        });
        let queues = crossings.iter().flat_map(|crossing| {
            let Crossing { from, to, .. } = *crossing;
            let arc = |from: usize, to: usize, tokens| Dependence {
                from,
                to,
                time: picoseconds(loads[from] + self.cores.latency_ns[from][to]),
                tokens,
            };
            let taken = if filled { crossing.initial } else { 0 };
            let room = self.sizes.capacity.saturating_sub(taken).max(1);
            [arc(from, to, crossing.initial), arc(to, from, room)]
        });
        own.chain(queues).collect()
    }
}
