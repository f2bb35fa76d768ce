//! The maximum cycle ratio: the period that a graph of partitions cannot beat.

use super::network::Network;

/// An arc of a timed event graph: `to` waits for `from`, `tokens` firings earlier, and `time`
/// later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependence {
    /// Where a result comes from.
    pub from: usize,
    /// What waits for it.
    pub to: usize,
    /// Nanoseconds from the start of `from`'s firing to the earliest start of `to`'s.
    pub time: u64,
    /// How many firings back it lies.
    pub tokens: u64,
}

/// A time over a number of firings, in nanoseconds. Compared exactly.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Period {
    /// The sum of times around the cycle.
    pub time: u64,
    /// The sum of tokens around it; at least 1.
    pub tokens: u64,
}

impl Period {
    /// Nanoseconds for one firing.
    pub fn nanoseconds(self) -> f64 {
        self.time as f64 / self.tokens as f64
    }
}

impl PartialOrd for Period {
    fn partial_cmp(&self, other: &Period) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Period {
    fn cmp(&self, other: &Period) -> std::cmp::Ordering {
        let left = u128::from(self.time) * u128::from(other.tokens);
        left.cmp(&(u128::from(other.time) * u128::from(self.tokens)))
    }
}

/// The largest time per token of all cycles, and one such cycle as indices of arcs. `None` without
/// cycles.
///
/// Every cycle must have a token. Lawler's problem solved by Newton's iteration: a cycle whose time
/// exceeds the present period times its tokens gives the next period; when Bellman and Ford find
/// none, the period is the largest. All is whole numbers: the result is exact.
pub fn maximum_cycle_ratio(nodes: usize, arcs: &[Dependence]) -> Option<(Period, Vec<usize>)> {
    let mut best: Option<(Period, Vec<usize>)> = None;
    loop {
        let period = best
            .as_ref()
            .map_or(Period { time: 0, tokens: 1 }, |(period, _)| *period);
        // Before the first cycle is known any will do, also one of no time at all.
        let weight = |arc: &Dependence| match best {
            None => i128::from(arc.time) * (1 << 40) + 1,
            Some(_) => {
                i128::from(arc.time) * i128::from(period.tokens)
                    - i128::from(arc.tokens) * i128::from(period.time)
            }
        };
        let Some(cycle) = positive_cycle(nodes, arcs, weight) else {
            return best;
        };
        let sum = |part: fn(&Dependence) -> u64| {
            cycle
                .iter()
                .map(|&arc| part(&arcs[arc]))
                .fold(0, u64::saturating_add)
        };
        let (time, tokens) = (sum(|arc| arc.time), sum(|arc| arc.tokens));
        if tokens == 0 {
            return None;
        }
        best = Some((Period { time, tokens }, cycle));
    }
}

/// A cycle whose weights sum to more than 0, as indices of arcs, by Bellman and Ford.
fn positive_cycle(
    nodes: usize,
    arcs: &[Dependence],
    weight: impl Fn(&Dependence) -> i128,
) -> Option<Vec<usize>> {
    let mut distance = vec![0i128; nodes];
    let mut by: Vec<Option<usize>> = vec![None; nodes];
    let mut last = None;
    for _ in 0..=nodes {
        last = None;
        for (index, arc) in arcs.iter().enumerate() {
            let reached = distance[arc.from] + weight(arc);
            if reached > distance[arc.to] {
                distance[arc.to] = reached;
                by[arc.to] = Some(index);
                last = Some(arc.to);
            }
        }
        last?;
    }
    // What is still improved after as many rounds as there are nodes hangs on a cycle: go back into
    // it.
    let mut node = last?;
    for _ in 0..nodes {
        node = arcs[by[node]?].from;
    }
    let start = node;
    let mut cycle = Vec::new();
    loop {
        let arc = by[node]?;
        cycle.push(arc);
        node = arcs[arc].from;
        if node == start {
            cycle.reverse();
            return Some(cycle);
        }
    }
}

impl Network {
    /// The arcs of the network: each partition after itself, each queue forward with what is in it
    /// at the start, and backward with the room that is left.
    pub fn dependences(&self) -> Vec<Dependence> {
        let busy = |partition: usize| self.partitions[partition].busy;
        let own = (0..self.partitions.len()).map(|at| Dependence {
            from: at,
            to: at,
            time: busy(at),
            tokens: 1,
        });
        let queues = self.queues.iter().flat_map(|queue| {
            let time = busy(queue.from).saturating_add(queue.latency);
            let forward = Dependence {
                from: queue.from,
                to: queue.to,
                time,
                tokens: queue.initial,
            };
            let time = busy(queue.to).saturating_add(queue.latency);
            let room = queue.capacity.saturating_sub(queue.initial);
            [
                forward,
                Dependence {
                    from: queue.to,
                    to: queue.from,
                    time,
                    tokens: room,
                },
            ]
        });
        own.chain(queues).collect()
    }
}
