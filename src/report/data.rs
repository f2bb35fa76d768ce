//! The data of a run report: what `report.json` holds and `report.html` draws.

use std::collections::BTreeMap;

use ground::stats::ThreadReport;
use schemars::JsonSchema;
use serde::Serialize;

use super::levels::{InputLevels, OutputLevels};
use crate::config::{Decision, EngineConfig};
use crate::engine::OutputCounts;
use crate::recv::{DropCause, PolReport};

/// The name in reports of what senders of data send as well: a descriptor or stop heap.
pub const METADATA: &str = "descriptor or stop heap";

/// One run, from the capture's first frame to the last stop heap.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunReport {
    /// Version of Karoo that made it.
    pub karoo: String,
    /// Path of the capture as given.
    pub capture: String,
    /// What the file is, and whether its end is missing.
    pub capture_notes: Vec<String>,
    /// Configuration that ran.
    pub config: EngineConfig,
    /// Values picked from the capture because no option gave them.
    pub chosen: Vec<Decision>,
    /// Gains that were measured, of each output, if they were.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gains: Vec<MeasuredGains>,
    /// Names of the backends that computed, of each output if they differ.
    pub backend: String,
    /// Input side.
    pub input: InputReport,
    /// One per output stream.
    pub outputs: Vec<OutputReport>,
    /// Levels of the input, if statistics were taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_levels: Option<InputLevels>,
    /// Levels of the outputs that sent something, if statistics were taken; without outputs whose
    /// powers were too large for single precision.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<OutputLevels>,
    /// Requests to the engine, if it was to have any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<RequestsReport>,
    /// How fast it went.
    pub rate: RateReport,
    /// Time per data thread.
    pub lcores: Vec<ThreadReport>,
}

/// Gains of an output that were made of the level of a capture's start.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct MeasuredGains {
    /// Name of the stream.
    pub name: String,
    /// Rms of real and imaginary parts that they are for, in counts.
    pub rms: f64,
    /// Efficiency of the quantisation of noise with that rms.
    pub efficiency: f64,
    /// Spectra that were averaged.
    pub spectra: u64,
    /// The first sample that was looked at, and the first one behind the last.
    pub span: [u64; 2],
    /// One for each channel, per polarisation; 1 for channels without power.
    pub gains: [Vec<f32>; 2],
}

/// Input counters. `datagrams` = heaps placed + Σ drops.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct InputReport {
    /// Frames in the capture.
    pub datagrams: u64,
    /// Datagrams not placed, by cause.
    pub drops: BTreeMap<String, u64>,
    /// Those among them that are descriptor or stop heaps, under the cause `wrong-heap-length`.
    pub metadata: u64,
    /// Non-empty chunks.
    pub chunks: u64,
    /// First sample of the first non-empty chunk.
    pub first_timestamp: Option<u64>,
    /// First sample of the first heap placed, and the first one behind the last heap: what the
    /// capture spans.
    pub span: Option<[u64; 2]>,
    /// Per polarisation.
    pub pols: [PolReport; 2],
}

impl InputReport {
    /// Datagrams not placed, as people read it: by cause, descriptor and stop heaps apart, without
    /// causes of which there are none.
    pub fn not_placed(&self) -> Vec<(&str, u64)> {
        let wrong = DropCause::WrongHeapLength.name();
        let drops = self.drops.iter().map(|(cause, &count)| match &**cause {
            cause if cause == wrong => (cause, count.saturating_sub(self.metadata)),
            cause => (cause, count),
        });
        let all = drops.chain([(METADATA, self.metadata)]);
        all.filter(|&(_, count)| count > 0).collect()
    }
}

/// What became of one output stream. `expected_batches` = `batches` + `not_sent_batches`.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct OutputReport {
    /// What was sent.
    #[serde(flatten)]
    pub counts: OutputCounts,
    /// Batches whose whole input lies in the span of the capture.
    pub expected_batches: u64,
    /// Those among them that were not sent: some of their input is missing.
    pub not_sent_batches: u64,
    /// Their heaps, all substreams.
    pub skipped_heaps: u64,
}

impl OutputReport {
    /// Of an output with so many substreams, of which so many batches were expected.
    pub fn new(counts: OutputCounts, expected_batches: u64, substreams: usize) -> Self {
        let not_sent_batches = expected_batches.saturating_sub(counts.batches);
        Self {
            counts,
            expected_batches,
            not_sent_batches,
            skipped_heaps: not_sent_batches * substreams as u64,
        }
    }
}

/// Requests of a replay.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct RequestsReport {
    /// Changes that the output reached. Those that it did not are behind the end of the capture.
    pub applied: u64,
    /// Requests whose reply was not `ok`.
    pub failed: u64,
    /// Requests for timestamps behind the last batch: nothing that was sent shows them.
    pub behind: u64,
    /// How long they held up the engine's thread each time; all that are due at once count as one.
    pub stalls: StallReport,
    /// What each was replied, in the order in which they were asked.
    pub replies: Vec<Reply>,
}

/// A reply to a request.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Reply {
    /// Line of the file, from 1.
    pub line: usize,
    /// Timestamp for which it was asked.
    pub timestamp: u64,
    /// The KATCP message.
    pub reply: String,
}

impl Reply {
    /// Whether it says that nothing was done.
    pub fn failed(&self) -> bool {
        self.reply.split_ascii_whitespace().nth(1) != Some("ok")
    }
}

/// How long something took, in seconds.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct StallReport {
    /// Half took no longer.
    pub median: f64,
    /// One of a hundred took longer.
    pub p99: f64,
    /// The longest.
    pub max: f64,
    /// (upper bound in seconds, count) per bucket.
    pub histogram: Vec<(f64, u64)>,
}

/// How fast a run went.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct RateReport {
    /// Wall-clock seconds from first frame to last packet.
    pub seconds: f64,
    /// Samples per second and polarisation.
    pub samples_per_second: f64,
    /// Gigabits of capture per second.
    pub input_gbps: f64,
    /// Samples per second over the ADC sample rate.
    pub realtime: f64,
}
