//! What a running engine shows of itself while it runs.

use std::sync::Arc;

use ground::TscClock;
use ground::stats::PhaseTimes;
use ground::stats::latency::Latency;

use super::{BusyTimes, OutputPools, RunningEngine, Threads};
use crate::ports::Links;
use crate::recv::ReceiveMemory;

/// What metrics and pages read of a running engine, beside the counters of its stages.
pub struct EngineReadings {
    /// How old data was when it left, of each output.
    pub latencies: Vec<Arc<Latency>>,
    /// Nanoseconds that devices were busy, by what they did.
    pub busy: BusyTimes,
    /// Receive chunks.
    pub memory: Arc<ReceiveMemory>,
    /// Output chunks, by stream.
    pub pools: OutputPools,
    /// Ports.
    pub links: Links,
    /// Time of each lcore.
    pub times: Vec<Arc<PhaseTimes>>,
    /// Clock of those times' ticks.
    pub clock: TscClock,
}

impl EngineReadings {
    /// Those of `engine`, on these threads and behind these ports.
    pub fn of(engine: &RunningEngine, links: &Links, threads: &Threads) -> Self {
        Self {
            latencies: engine.stages.latencies().to_vec(),
            busy: engine.busy.clone(),
            memory: engine.memory.clone(),
            pools: engine.output_pools.clone(),
            links: links.clone(),
            times: threads.times().to_vec(),
            clock: threads.clock(),
        }
    }
}
