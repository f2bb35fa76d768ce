//! Counters of an output stream, as reports show them.

use schemars::JsonSchema;
use serde::Serialize;

/// What was sent of one output stream.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct OutputCounts {
    /// Stream name.
    pub name: String,
    /// Batches sent.
    pub batches: u64,
    /// Data heaps sent, all substreams.
    pub heaps: u64,
    /// Payload bytes sent.
    pub bytes: u64,
    /// Complex samples in batches sent that quantisation clipped, per polarisation.
    pub clipped_samples: [u64; 2],
    /// Timestamp of the first batch sent.
    pub first_timestamp: Option<u64>,
    /// Timestamp of the last batch sent.
    pub last_timestamp: Option<u64>,
}
