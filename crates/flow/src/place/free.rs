//! Cores that are free: for threads of the outside, and for copies of partitions without state.

use super::blocks::{CostNetwork, End, Speed};
use super::cores::Cores;
use super::limit::Limit;
use super::wishes::Wishes;
use crate::graph::Graph;

/// From so many cores on, those of the threads that read and write are no large part.
const MANY_CORES: usize = 8;

/// The cores for partitions: all, or, where there are many, those that the threads leave which read
/// inputs and write outputs. A partition that shares its core with one of these threads waits for
/// its turn, and all that are behind it wait too.
pub(super) fn left(graph: &Graph, cores: &Cores, wishes: &Wishes) -> Cores {
    let threads = usize::from(graph.inputs().next().is_some())
        + usize::from(graph.outputs().next().is_some());
    let count = cores.cpus.len();
    match count >= MANY_CORES && wishes.pins.is_empty() {
        true => cores.only(&cores.cpus[..count - threads]),
        false => cores.clone(),
    }
}

/// Gives free cores to the partitions that limit the rate, as far as they have no state. The core
/// of each partition with the cores of its copies. Threads that are more than `cpus` share them.
pub(super) fn copy(network: &mut CostNetwork, cpus: usize) -> Vec<(usize, Vec<usize>)> {
    let partitions = network.used_cores().len();
    let limit_of =
        |network: &CostNetwork, speed: &Speed| Limit::of(network, speed, partitions, cpus).period;
    let mut free: Vec<usize> = (0..network.cores.cpus.len())
        .filter(|core| !network.place.contains(core))
        .collect();
    let mut copies: Vec<(usize, Vec<usize>)> = Vec::new();
    while !free.is_empty() {
        let speed = network.speed();
        let period = limit_of(network, &speed);
        let [End::Core(limit)] = speed.critical[..] else {
            break;
        };
        if !network.may_share(limit) {
            break;
        }
        let (before, pace) = (network.sharers[limit], network.paces[limit]);
        let kept = network.links.clone();
        // The fastest of those that are free, and of these the nearest.
        let cores = network.cores;
        let distance = |core: usize| cores.latency_ns[limit][core];
        let best = (0..free.len()).min_by(|&a, &b| {
            let (a, b) = (free[a], free[b]);
            let slower = cores.pace(b).total_cmp(&cores.pace(a));
            slower.then(distance(a).total_cmp(&distance(b)))
        });
        let best = best.unwrap_or(0);
        network.share(limit, before + 1);
        // Copies take turns.
        network.paces[limit] = pace.min(cores.pace(free[best]));
        if limit_of(network, &network.speed()) >= period * 0.98 {
            network.links = kept;
            network.sharers[limit] = before;
            network.paces[limit] = pace;
            break;
        }
        let core = free.swap_remove(best);
        match copies.iter_mut().find(|(of, _)| *of == limit) {
            Some((_, known)) => known.push(core),
            None => copies.push((limit, vec![core])),
        }
    }
    copies
}

/// How much faster a partition more has to make a plan: it takes a CPU, and the time of its queues
/// is known less well than that of nodes.
pub(super) const WORTH_A_CORE: f64 = 0.97;

/// The placement with as few partitions as are worth it: those between which there is a queue are
/// put together, as long as all of the loss is less than what one partition has to bring.
pub(super) fn fewer(network: &CostNetwork) -> Vec<usize> {
    let most = network.speed().period / WORTH_A_CORE;
    let mut place = network.place.to_vec();
    loop {
        let here = network.placed(&place);
        let ends = here
            .links
            .iter()
            .filter_map(|link| match (link.from, link.to) {
                (End::Core(from), End::Core(to)) => Some([(from, to), (to, from)]),
                _ => None,
            });
        let pinned = |core: usize| {
            let mut items = network.model.items.iter().zip(&place);
            items.any(|(item, &at)| at == core && item.pinned.is_some())
        };
        let mut best: Option<(f64, Vec<usize>)> = None;
        for (from, to) in ends.flatten().filter(|&(from, _)| !pinned(from)) {
            let moved = |&at: &usize| if at == from { to } else { at };
            let merged: Vec<usize> = place.iter().map(moved).collect();
            let period = network.placed(&merged).speed().period;
            if period <= best.as_ref().map_or(most, |best| best.0) {
                best = Some((period, merged));
            }
        }
        match best {
            Some((_, merged)) => place = merged,
            None => return place,
        }
    }
}

/// The placement that moves items without state to a core of their own, if they share the core that
/// limits the rate with items that have state. The extra queue alone may cost more than it gains,
/// but items without state can then have copies.
pub(super) fn apart(network: &CostNetwork) -> Option<Vec<usize>> {
    let [End::Core(limit)] = network.speed().critical[..] else {
        return None;
    };
    let core = (0..network.cores.cpus.len()).find(|core| !network.place.contains(core))?;
    let mut place = network.place.to_vec();
    let (mut moved, mut stays) = (false, false);
    let items = network.model.items.iter().zip(&mut place);
    for (item, at) in items.filter(|(_, at)| **at == limit) {
        if item.pure && item.pinned.is_none() {
            (*at, moved) = (core, true);
        } else {
            stays = true;
        }
    }
    (moved && stays).then_some(place)
}
