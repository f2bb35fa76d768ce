//! Branch and bound: the best placement of a few items, with proof.

use super::cores::Cores;
use super::evaluate::{Look, NOWHERE};
use super::model::Model;

/// The best placement found, and whether it is proved to be the best.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Best {
    pub place: Vec<usize>,
    /// Nanoseconds for each tick.
    pub period: f64,
    pub proved: bool,
}

struct Search<'a> {
    model: &'a Model,
    look: &'a Look<'a>,
    /// Items, the longest first.
    order: Vec<usize>,
    alikes: Vec<usize>,
    cores: usize,
    place: Vec<usize>,
    best: Best,
    /// Placements that may still be looked at.
    left: u64,
}

/// Beyond so many items no search of all placements comes to an end; each takes room of the stack.
const MOST_ITEMS: usize = 500;

/// Searches all placements for one that is faster than `best`, by at most `most` looks.
///
/// The period of some items is a bound for all: more items make loads longer, add queues, and leave
/// no more blocks in those that are there.
pub(super) fn improve(model: &Model, cores: &Cores, look: &Look, best: Best, most: u64) -> Best {
    if model.items.len() > MOST_ITEMS {
        return best;
    }
    let step = look.sizes().step.min(look.sizes().block);
    let mut order: Vec<usize> = (0..model.items.len()).collect();
    order.sort_by(|&a, &b| {
        let work = |item: usize| model.items[item].work(step);
        work(b).total_cmp(&work(a)).then(a.cmp(&b))
    });
    let mut search = Search {
        model,
        look,
        order,
        alikes: cores.alikes(),
        cores: cores.cpus.len(),
        place: vec![NOWHERE; model.items.len()],
        best,
        left: most,
    };
    search.best.proved = search.from(0);
    search.best
}

impl Search<'_> {
    /// Places the items from `depth` on. False if the search was given up.
    fn from(&mut self, depth: usize) -> bool {
        let Some(&item) = self.order.get(depth) else {
            return true;
        };
        let pinned = self.model.items[item].pinned;
        let mut choices = Vec::with_capacity(self.cores);
        for core in 0..self.cores {
            if pinned.is_some_and(|pinned| pinned != core) || !self.first_of_its_kind(core) {
                continue;
            }
            if self.left == 0 {
                return false;
            }
            self.left -= 1;
            self.place[item] = core;
            let bound = self.look.period(&self.place);
            if bound < self.best.period {
                choices.push((bound, core));
            }
        }
        choices.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let last = depth + 1 == self.order.len();
        for (bound, core) in choices {
            if bound >= self.best.period {
                break;
            }
            self.place[item] = core;
            if last {
                self.best.place.clone_from(&self.place);
                self.best.period = bound;
                break;
            }
            if !self.from(depth + 1) {
                self.place[item] = NOWHERE;
                return false;
            }
        }
        self.place[item] = NOWHERE;
        true
    }

    /// Whether a core is in use, or the first free one of those that could change places with it.
    fn first_of_its_kind(&self, core: usize) -> bool {
        let fixed = |core: usize| {
            self.place.contains(&core)
                || self
                    .model
                    .items
                    .iter()
                    .any(|item| item.pinned == Some(core))
        };
        let before = (0..core).filter(|&other| self.alikes[other] == self.alikes[core]);
        fixed(core) || before.into_iter().all(fixed)
    }
}
