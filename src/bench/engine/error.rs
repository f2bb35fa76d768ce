//! Why a bench gives no result.

use dpdk::{DpdkError, EalError, LcorePanic};

use crate::assembly::{ComputeError, DemandError, StageError};
use crate::config::ConfigError;
use crate::memory::MemoryError;

/// Why the bench gave no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The options.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What should compute.
    #[error(transparent)]
    Compute(#[from] ComputeError),
    /// DPDK did not start.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// DPDK refused something.
    #[error(transparent)]
    Dpdk(#[from] DpdkError),
    /// Not enough memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// It would not fit.
    #[error(
        "{0}, or ask for fewer --engines or --rx-queues; huge pages are not counted. For packet buffers, {1}"
    )]
    NoRoom(DemandError, String),
    /// A stage of an engine failed.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// A generator or sink failed.
    #[error(transparent)]
    Lcore(#[from] LcorePanic),
    /// Nothing comes out.
    #[error("no output within {0} s of the first packet; try a lower --rate or smaller chunks")]
    NoOutput(u64),
    /// The engines cannot be shown.
    #[error("--viewers: {0}")]
    Shown(#[from] std::io::Error),
    /// Something hangs.
    #[error("the engines did not come to an end within {0} s; their lcores were told to give up")]
    Stuck(u64),
    /// The user asked.
    #[error("interrupted")]
    Interrupted,
}

impl BenchError {
    /// Whether it says why the bench ended early.
    pub(super) fn is_cause(&self) -> bool {
        matches!(self, Self::Stage(_) | Self::Lcore(_))
    }
}
