//! The best placement that is found, over all block sizes that are tried.

use super::cores::Cores;
use super::evaluate::{Look, Sizes};
use super::exact::{Best, improve};
use super::longest::longest_between;
use super::model::Model;
use super::search::search;
use super::wishes::Wishes;

/// Items that all looks together go over at most: the time of a look grows with them.
const MOST_WORK: u64 = 1 << 28;

/// Which item is on which core, by a search.
pub(super) struct Placement {
    /// The core of each item, as an index of the cores' rows.
    pub cores: Vec<usize>,
    /// The sizes that it was found with.
    pub sizes: Sizes,
    /// Whether no other is faster.
    pub proved: bool,
}

/// The best placement of a model that is found.
pub(super) fn place(model: &Model, cores: &Cores, wishes: &Wishes) -> Placement {
    let sizes = |block: u64| Sizes {
        block,
        capacity: wishes.capacity.max(2),
        step: wishes.step.max(1),
    };
    let mut best: Option<(Best, Sizes)> = None;
    let blocks = block_sizes(model, wishes);
    let most = (MOST_WORK / model.items.len().max(1) as u64).min(wishes.looks);
    let share = (most / blocks.len() as u64).max(100);
    let mut proved = true;
    for &block in &blocks {
        let sizes = sizes(block);
        let look = Look::new(model, cores, sizes);
        let mut found = search(model, cores, &look, wishes.seed, share);
        if let Some((known, _)) = &best
            && known.period <= found.period
        {
            found = known.clone();
        }
        let found = improve(model, cores, &look, found, share);
        proved &= found.proved;
        // Shorter blocks have to be worth it: longer ones are searched first.
        if best
            .as_ref()
            .is_none_or(|(known, _)| found.period < known.period)
        {
            best = Some((found, sizes));
        }
    }
    let (best, sizes) = best.unwrap_or_else(|| {
        let place = vec![0; model.items.len()];
        let none = Best {
            place,
            period: f64::INFINITY,
            proved: false,
        };
        (none, sizes(model.round))
    });
    Placement {
        cores: best.place,
        sizes,
        proved,
    }
}

/// The block sizes that are tried: powers of two, and parts of delays, that loops may hold whole
/// blocks. The longest first.
fn block_sizes(model: &Model, wishes: &Wishes) -> Vec<u64> {
    let round = model.round.max(1);
    if let Some(block) = wishes.block {
        return vec![block.max(1).next_multiple_of(round)];
    }
    let most = longest_between(&model.signals, wishes.longest_block).max(round);
    let loops = model.signals.iter().any(|signal| signal.delay > 0);
    if !loops {
        // Nothing is gained by shorter blocks.
        return vec![most / round * round];
    }
    let mut sizes: Vec<u64> = (0..)
        .map(|power| (most / round * round) >> power)
        .take_while(|&block| block >= round && block >= most / 1024)
        .map(|block| block / round * round)
        .collect();
    for signal in model.signals.iter().filter(|signal| signal.delay > 0) {
        for parts in 1..=3 {
            let block = signal.delay / parts / round * round;
            sizes.extend((block >= round && block <= most).then_some(block));
        }
    }
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes.dedup();
    // Enough of them, from the longest to the shortest.
    let step = sizes.len().div_ceil(16);
    sizes.into_iter().step_by(step.max(1)).collect()
}
