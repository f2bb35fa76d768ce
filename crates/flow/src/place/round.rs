//! One round of all blocks of a placement, firing by firing.

use num_integer::{gcd, lcm};

use super::blocks::CostNetwork;
use crate::analysis::Dependence;

/// The fewest ticks that are whole blocks of each queue, as a timed event graph. A node is one
/// firing of one end, and an arc is what a firing waits for.
pub(super) struct Round {
    pub ticks: u64,
    /// Ticks of a firing, by end: the most of which each block of its queues is a multiple.
    pub units: Vec<u64>,
    /// The first node, by end: an end's firings are in the order of their ticks.
    pub first: Vec<usize>,
    pub nodes: usize,
}

impl Round {
    pub fn new(network: &CostNetwork) -> Self {
        let mut units = vec![0u64; network.cores.cpus.len() + 2];
        let mut ticks = 1u64;
        for link in &network.links {
            for end in [network.index(link.from), network.index(link.to)] {
                units[end] = gcd(units[end], link.block);
            }
            ticks = lcm(ticks, link.block);
        }
        // An end without queues does all in one go.
        for unit in units.iter_mut().filter(|unit| **unit == 0) {
            *unit = ticks;
        }
        let (mut first, mut nodes) = (Vec::with_capacity(units.len()), 0);
        for unit in &units {
            first.push(nodes);
            nodes += (ticks / unit) as usize;
        }
        Self {
            ticks,
            units,
            first,
            nodes,
        }
    }

    /// How often an end fires.
    pub fn firings(&self, end: usize) -> usize {
        (self.ticks / self.units[end]) as usize
    }

    /// The end whose firing a node is.
    pub fn end(&self, node: usize) -> usize {
        self.first.partition_point(|&first| first <= node) - 1
    }

    /// That the firing of `end` which begins at a tick waits for the one of `on` which ends at a
    /// tick, perhaps some rounds back: it begins `time` later than that one.
    pub fn arc(
        &self,
        (end, begin): (usize, u64),
        (on, stop): (usize, i64),
        time: u64,
    ) -> Dependence {
        let ticks = self.ticks as i64;
        let rounds = (-(stop - 1).div_euclid(ticks)).max(0);
        let stop = (stop + rounds * ticks) as u64;
        Dependence {
            from: self.first[on] + (stop / self.units[on]) as usize - 1,
            to: self.first[end] + (begin / self.units[end]) as usize,
            time,
            tokens: rounds as u64,
        }
    }
}

/// The ends on a way round, once where their firings follow one another: the shortest part that
/// all of it repeats.
pub(super) fn once_round(mut ends: Vec<usize>) -> Vec<usize> {
    ends.dedup();
    if ends.len() > 1 && ends.first() == ends.last() {
        ends.pop();
    }
    let repeats = |part: &usize| {
        let len = ends.len();
        len.is_multiple_of(*part) && (*part..len).all(|at| ends[at] == ends[at - part])
    };
    let part = (1..ends.len()).find(repeats).unwrap_or(ends.len());
    ends.truncate(part);
    ends
}

#[cfg(test)]
mod tests {
    use super::once_round;

    #[test]
    fn a_way_that_repeats_is_told_once() {
        assert_eq!(once_round([1, 0].repeat(32)), [1, 0]);
        assert_eq!(once_round([2, 0, 1, 0].repeat(3)), [2, 0, 1, 0]);
        assert_eq!(once_round(vec![1, 1, 0, 0, 0, 1]), [1, 0]);
        assert_eq!(once_round(vec![3]), [3]);
        assert_eq!(once_round(vec![3, 3]), [3]);
        assert_eq!(once_round(vec![]), Vec::<usize>::new());
    }
}
