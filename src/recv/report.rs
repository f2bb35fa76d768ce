//! Input counters of a run, as reports show them.

use schemars::JsonSchema;
use serde::Serialize;

/// Input counters of one polarisation.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct PolReport {
    /// Heaps placed.
    pub heaps: u64,
    /// Samples placed.
    pub samples: u64,
    /// Payload bytes placed.
    pub bytes: u64,
    /// Heaps that never came, or were not placed, between the first and the last heap of the
    /// capture.
    pub missing_heaps: u64,
    /// Samples that the digitiser flagged as saturated.
    pub clipped_samples: u64,
    /// Mean power relative to a full-scale sine, where measured.
    pub power_dbfs: Option<f64>,
    /// Presence of consecutive heaps as runs of `(present, heaps)`, from the first heap of the
    /// first chunk.
    pub presence: Vec<(bool, u64)>,
}
