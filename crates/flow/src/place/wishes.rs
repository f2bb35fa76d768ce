//! What is wanted of a plan.

use super::model::Grouping;
use crate::run::Settings;

/// What is wanted of a plan.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// What stays together in any case.
    pub grouping: Grouping,
    /// Paths of nodes or subsystems, and the CPUs that they are to run on.
    pub pins: Vec<(String, usize)>,
    /// Ticks in a block, if they are not to be chosen.
    pub block: Option<u64>,
    /// The most ticks in a block that is chosen, and fewer where samples are long.
    pub longest_block: u64,
    /// Blocks that each queue holds.
    pub capacity: u64,
    /// The most ticks of a step.
    pub step: u64,
    /// Whether partitions without state may have copies on cores that are free.
    pub copies: bool,
    /// The same seed gives the same plan.
    pub seed: u64,
    /// Placements that are looked at, about: as many again to prove that none is better.
    pub looks: u64,
}

impl Default for Wishes {
    fn default() -> Wishes {
        let Settings {
            block,
            capacity,
            step,
            ..
        } = Settings::default();
        Wishes {
            grouping: Grouping::Free,
            pins: Vec::new(),
            block: None,
            longest_block: block,
            capacity: capacity as u64,
            step,
            copies: true,
            seed: 1,
            looks: 60_000,
        }
    }
}
