//! Search for graphs with more items than can be tried: clusters first, then moves of single
//! items, some of them to the worse.

use super::cores::Cores;
use super::evaluate::{Look, NOWHERE};
use super::exact::Best;
use super::model::Model;

/// A generator of numbers that look random: the same for the same seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// From 0 to 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

struct Annealing<'a> {
    model: &'a Model,
    look: &'a Look<'a>,
    /// All cores, fast ones first.
    order: Vec<usize>,
    /// How many of these are in use.
    cores: usize,
    dice: Dice,
    best: Best,
    left: u64,
}

/// A good placement, by at most about `most` looks.
pub(super) fn search(model: &Model, cores: &Cores, look: &Look, seed: u64, most: u64) -> Best {
    let count = model.items.len();
    let fixed = |mut place: Vec<usize>| {
        for (at, item) in place.iter_mut().zip(&model.items) {
            *at = item.pinned.unwrap_or(*at);
        }
        place
    };
    let mut search = Annealing {
        model,
        look,
        order: fast_first(cores),
        cores: cores.cpus.len(),
        dice: Dice(seed),
        best: Best {
            place: fixed(vec![0; count]),
            period: f64::INFINITY,
            proved: false,
        },
        left: most,
    };
    search.best.period = look.period(&search.best.place);
    for used in 1..=cores.cpus.len().min(count) {
        let place = fixed(search.contiguous(used));
        search.offer(place);
    }
    // Few cores first, then twice as many: moves to any of many cores rarely find what a few can
    // do.
    let few = std::iter::successors(Some(2), |used| Some(2 * used));
    let few = few.take_while(|used| *used < cores.cpus.len());
    let steps: Vec<usize> = few.chain([cores.cpus.len()]).collect();
    for (at, &used) in steps.iter().enumerate() {
        let steps_left = (steps.len() - at) as u64;
        let for_others = search.left * (steps_left - 1) / steps_left;
        search.left -= for_others;
        search.cores = used;
        // Clusters of items that share most, then each item by itself.
        for wanted in [used.saturating_mul(2), count] {
            let clusters = search.clusters(wanted.min(count));
            let start = search.best.place.clone();
            search.anneal(start, &clusters);
        }
        search.descend();
        search.left += for_others;
    }
    search.restart(&fixed);
    search.best
}

impl Annealing<'_> {
    fn any_core(&mut self) -> usize {
        self.order[self.dice.below(self.cores)]
    }

    /// Items in the order of data, cut where each core has its share of the work.
    fn contiguous(&self, used: usize) -> Vec<usize> {
        let step = self.look.sizes().step.min(self.look.sizes().block);
        let share = self.model.work(step) / used as f64;
        let mut done = 0.0;
        let place = |item: &super::model::Item| {
            let work = item.work(step);
            let at = (done + work / 2.0) / share.max(1e-12);
            done += work;
            (at as usize).min(used - 1)
        };
        self.model.items.iter().map(place).collect()
    }

    fn offer(&mut self, place: Vec<usize>) -> f64 {
        self.left = self.left.saturating_sub(1);
        let period = self.look.period(&place);
        if period < self.best.period {
            self.best.place = place;
            self.best.period = period;
        }
        period
    }

    /// About `wanted` clusters: the number of each item's. The heaviest signals are drawn together
    /// first, as long as no cluster is longer than a core's share.
    fn clusters(&self, wanted: usize) -> Vec<usize> {
        let step = self.look.sizes().step.min(self.look.sizes().block);
        let items = &self.model.items;
        let most = self.model.work(step) / self.cores as f64;
        let mut cluster: Vec<usize> = (0..items.len()).collect();
        let mut work: Vec<f64> = items.iter().map(|item| item.work(step)).collect();
        let mut count = items.len();
        let mut pairs: Vec<(f64, usize, usize)> = Vec::new();
        for signal in &self.model.signals {
            let Some(from) = signal.from else { continue };
            pairs.extend(
                signal
                    .to
                    .iter()
                    .filter(|&&to| to != from)
                    .map(|&to| (signal.bytes, from, to)),
            );
        }
        pairs.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        for (_, a, b) in pairs {
            let (a, b) = (cluster[a], cluster[b]);
            let pinned = |number: usize| {
                let of = cluster.iter().zip(items).filter(|(at, _)| **at == number);
                of.filter_map(|(_, item)| item.pinned).next()
            };
            if count <= wanted || a == b || work[a] + work[b] > most || pinned(a) != pinned(b) {
                continue;
            }
            work[a] += work[b];
            cluster
                .iter_mut()
                .filter(|at| **at == b)
                .for_each(|at| *at = a);
            count -= 1;
        }
        cluster
    }

    /// The period, and a little of how uneven the loads are: many placements have one period.
    fn energy(&self, place: &[usize], period: f64) -> f64 {
        let crossings = self.look.crossings(place);
        let loads = self.look.loads(place, &crossings);
        let block = self.look.sizes().block as f64;
        let square: f64 = loads.iter().map(|load| load * load).sum();
        period + 0.02 * (square / loads.len() as f64).sqrt() / block
    }

    fn anneal(&mut self, mut place: Vec<usize>, cluster: &[usize]) {
        let mut numbers: Vec<usize> = (0..cluster.len())
            .filter(|&item| cluster[item] == item && self.model.items[item].pinned.is_none())
            .collect();
        numbers.sort_unstable();
        if numbers.is_empty() || self.cores < 2 {
            return;
        }
        let mut energy = self.energy(&place, self.look.period(&place));
        let rounds = self.left / 3;
        // Everything on one core is possible, unless items are pinned so that nothing is.
        let scale = self.best.period;
        if !scale.is_finite() {
            return;
        }
        for round in 0..rounds {
            let heat = scale * 0.2 * (1.0 - round as f64 / rounds as f64).powi(2) + scale * 1e-5;
            let before = place.clone();
            match self.dice.below(8) {
                // Two cores change places.
                0 => {
                    let (a, b) = (self.any_core(), self.any_core());
                    for (at, item) in place.iter_mut().zip(&self.model.items) {
                        *at = match *at {
                            _ if item.pinned.is_some() => *at,
                            at if at == a => b,
                            at if at == b => a,
                            at => at,
                        };
                    }
                }
                // Two clusters change places.
                1 | 2 => {
                    let pick = |dice: &mut Dice| numbers[dice.below(numbers.len())];
                    let (a, b) = (pick(&mut self.dice), pick(&mut self.dice));
                    let (to_a, to_b) = (place[b], place[a]);
                    shift(&mut place, cluster, a, to_a);
                    shift(&mut place, cluster, b, to_b);
                }
                _ => {
                    let number = numbers[self.dice.below(numbers.len())];
                    let to = self.any_core();
                    shift(&mut place, cluster, number, to);
                }
            }
            if place == before {
                continue;
            }
            let period = self.offer(place.clone());
            let next = self.energy(&place, period);
            let accepted = next <= energy || self.dice.share() < (-(next - energy) / heat).exp();
            if accepted && next.is_finite() {
                energy = next;
            } else {
                place = before;
            }
        }
    }

    /// Moves and exchanges of single items, as long as one helps.
    fn descend(&mut self) {
        let free: Vec<usize> = (0..self.model.items.len())
            .filter(|&item| self.model.items[item].pinned.is_none())
            .collect();
        let mut energy = self.energy(&self.best.place, self.best.period);
        // The best placement, but for what is tried.
        let mut place = self.best.place.clone();
        loop {
            let begin = energy;
            for &item in &free {
                for at in 0..self.cores {
                    let core = self.order[at];
                    let own = std::mem::replace(&mut place[item], core);
                    if own == core {
                        continue;
                    }
                    if let Some(less) = self.take(&place, energy) {
                        energy = less;
                    } else {
                        place[item] = own;
                    }
                }
            }
            for (at, &a) in free.iter().enumerate() {
                for &b in &free[at + 1..] {
                    if place[a] == place[b] {
                        continue;
                    }
                    place.swap(a, b);
                    if let Some(less) = self.take(&place, energy) {
                        energy = less;
                    } else {
                        place.swap(a, b);
                    }
                    if self.left == 0 {
                        return;
                    }
                }
            }
            if energy >= begin || self.left == 0 {
                return;
            }
        }
    }

    /// Descends from other placements, half of them the best one with some items elsewhere, as long
    /// as there are looks.
    fn restart(&mut self, fixed: &impl Fn(Vec<usize>) -> Vec<usize>) {
        let count = self.best.place.len();
        if self.cores < 2 || count == 0 || !self.best.period.is_finite() {
            return;
        }
        let mut found = self.best.clone();
        while self.left > 0 {
            let mut place = found.place.clone();
            let moved = if self.dice.below(2) == 0 {
                count
            } else {
                2 + self.dice.below(3)
            };
            for at in 0..moved {
                let item = if moved == count {
                    at
                } else {
                    self.dice.below(count)
                };
                place[item] = self.any_core();
            }
            self.best.place = fixed(place);
            self.best.period = self.look.period(&self.best.place);
            self.left = self.left.saturating_sub(1);
            self.descend();
            if self.best.period < found.period {
                found = self.best.clone();
            }
        }
        self.best = found;
    }

    /// Takes a placement as the best if its energy is less and its period not more. Returns that
    /// energy.
    fn take(&mut self, place: &[usize], energy: f64) -> Option<f64> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        debug_assert!(!place.contains(&NOWHERE));
        let period = self.look.period(place);
        if period > self.best.period {
            return None;
        }
        let next = self.energy(place, period);
        if next >= energy {
            return None;
        }
        self.best.place = place.to_vec();
        self.best.period = period;
        Some(next)
    }
}

/// All cores: those before others that compute faster by a tenth or more, else as they are given.
fn fast_first(cores: &Cores) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cores.cpus.len()).collect();
    let tenths = |core: &usize| {
        cores
            .paces
            .get(*core)
            .map_or(10, |pace| (10.0 * pace) as i64)
    };
    order.sort_by_key(|core| std::cmp::Reverse(tenths(core)));
    order
}

fn shift(place: &mut [usize], cluster: &[usize], number: usize, to: usize) {
    for (at, of) in place.iter_mut().zip(cluster) {
        if *of == number {
            *at = to;
        }
    }
}
