//! How a graph is to run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::kernels::Level;

/// How a block passes a queue. What comes out does not depend on it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transfer {
    /// Each end works in the slots of the ring. Nothing is copied but what goes from signal to
    /// slot; a slot is held for as long as its block is worked on.
    #[default]
    InPlace,
    /// Each end has a block of its own and copies it whole. A slot is held for the copy alone.
    Copying,
    /// The same, copied past the writer's caches.
    Streaming,
    /// In place, in a ring whose slots tell themselves that they are full.
    Marked,
    /// Copied, through such a ring.
    MarkedCopying,
}

impl Transfer {
    /// All that there are.
    pub const ALL: [Transfer; 5] = [
        Transfer::InPlace,
        Transfer::Copying,
        Transfer::Streaming,
        Transfer::Marked,
        Transfer::MarkedCopying,
    ];

    /// Whether each end has a block of its own.
    pub fn copies(self) -> bool {
        match self {
            Transfer::InPlace | Transfer::Marked => false,
            Transfer::Copying | Transfer::Streaming | Transfer::MarkedCopying => true,
        }
    }

    /// Whether slots tell themselves that they are full.
    pub fn marks(self) -> bool {
        matches!(self, Transfer::Marked | Transfer::MarkedCopying)
    }
}

/// What differs for the queue between two partitions.
#[derive(Clone, Copy, Debug)]
pub struct Between {
    /// The partition that writes.
    pub from: u32,
    /// The partition that reads.
    pub to: u32,
    /// Ticks in one block.
    pub block: u64,
    /// Blocks that the queue holds.
    pub capacity: usize,
    /// How blocks pass.
    pub transfer: Transfer,
}

/// What a thread does while a queue keeps it waiting: looks again at once, then with a pause for
/// the processor in between, then sleeps until the other end has done something.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Looks without a pause.
    pub spins: u32,
    /// Looks with a pause each.
    pub pauses: u32,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            spins: 64,
            pauses: 2048,
        }
    }
}

/// How a graph is to run. Every number of ticks is rounded up to what the rates of the graph need.
///
/// A tick is a sample of the fastest clock that all rates have in common: one sample, if all is at
/// the base rate.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Ticks in one block of each queue.
    pub block: u64,
    /// Whether signals work in the blocks that they come in, where they can. Otherwise all are
    /// copied: then what queues take can be told from what nodes take.
    pub in_blocks: bool,
    /// Blocks that each queue holds. Queues of the inputs and outputs hold up to 32 KiB where that
    /// is more, and at most 512 blocks.
    pub capacity: usize,
    /// The most ticks that a partition works on at once. Fewer are taken where the signals would
    /// not fit the nearest cache.
    pub step: u64,
    /// How blocks pass the queues.
    pub transfer: Transfer,
    /// Queues that differ.
    pub between: Vec<Between>,
    /// The partition of each node, by its index; otherwise the marks of the graph decide. Inputs,
    /// outputs and constants are in none, whatever is said here.
    pub partitions: Option<Vec<u32>>,
    /// The CPU for the thread of a partition: one that the thread which makes the executor may use.
    /// Whoever pins that thread makes the executor first, or in another one.
    pub cpus: BTreeMap<u32, usize>,
    /// The real-time priority, 1 to 99, of threads that have a CPU of their own. Where the process
    /// may not have it, the run goes on without, and its telemetry says so.
    pub real_time: Option<u8>,
    /// Further copies of partitions without state, each with its CPU if it has one. Blocks go round
    /// among a partition and its copies, and come together again in their order.
    pub copies: BTreeMap<u32, Vec<Option<usize>>>,
    /// The tick before which the run ends, if no input ends earlier.
    pub limit: Option<u64>,
    /// The instructions that kernels use. `None`: the best that this machine has. The results are
    /// the same.
    pub level: Option<Level>,
    /// Whether loops become machine code, where that can be made. The results are the same.
    pub compile: bool,
    /// The paths of constants, gains and filters whose numbers may be changed during the run, by
    /// [`Handle::change`](super::Handle::change).
    pub changeable: Vec<String>,
    /// Whether partitions count their ticks and time some of their steps. Without, a run tells only
    /// where it waits.
    pub telemetry: bool,
    /// What threads do while they wait. `None`: they sleep at once if there are more threads than
    /// CPUs.
    pub patience: Option<Patience>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            block: 1024,
            in_blocks: true,
            capacity: 8,
            step: 512,
            transfer: Transfer::default(),
            between: Vec::new(),
            partitions: None,
            cpus: BTreeMap::new(),
            real_time: None,
            copies: BTreeMap::new(),
            limit: None,
            level: None,
            compile: true,
            changeable: Vec::new(),
            telemetry: true,
            patience: None,
        }
    }
}
