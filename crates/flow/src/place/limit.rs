//! What sets the rate: a cycle of partitions, the outside, or the number of CPUs.

use super::blocks::{CostNetwork, End, Speed};

/// What sets the rate.
pub(super) struct Limit {
    /// Nanoseconds for each tick.
    pub period: f64,
    /// The cores of the critical cycle.
    pub critical: Vec<usize>,
    /// Whether the outside is in it, or the number of CPUs is the limit.
    pub outside: bool,
}

impl Limit {
    /// The limit of a network of so many partitions, with their copies and the threads of the
    /// outside, on so many CPUs.
    pub fn of(network: &CostNetwork, speed: &Speed, partitions: usize, cpus: usize) -> Limit {
        let reads = network.links.iter().any(|link| link.from == End::Inputs);
        let copies: u64 = network.sharers.iter().map(|sharers| sharers - 1).sum();
        let threads = partitions + copies as usize + usize::from(reads) + 1;
        // More threads than CPUs share them.
        let shared = match threads > cpus {
            true => speed.busy.iter().sum::<f64>() / cpus as f64,
            false => 0.0,
        };
        let core = |end: &End| match end {
            End::Core(core) => Some(*core),
            End::Inputs | End::Outputs => None,
        };
        let critical: Vec<usize> = speed.critical.iter().filter_map(core).collect();
        match shared > speed.period {
            true => Limit {
                period: shared,
                critical: Vec::new(),
                outside: true,
            },
            false => Limit {
                period: speed.period,
                outside: critical.len() < speed.critical.len(),
                critical,
            },
        }
    }
}
