//! Engines put together: chunks, outputs and lcores, between rx queues and tx queues.
//!
//! Live engines, replays and benches differ in where packets come from and where they go
//! ([`Reception`], [`Transmission`]), and in little else.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use dpdk::{DpdkError, Eal, ExtPool, TxQueue};
use ground::{IdlePolicy, Ticks, Tsc};

use super::compute::outputs;
use super::stages::{Reception, StageIdle, StageParts, Stages, Transmission};
use super::{Compute, Threads};
use crate::config::EngineConfig;
use crate::engine::ChunkObserver;
use crate::engine::steer::RequestQueues;
use crate::memory::{MemoryError, OutputMemory};
use crate::recv::{ReceiveMemory, ReceiveOptions, RxMode, receive_memory};

/// An engine to be built: its configuration, what computes, and what is before and behind it.
pub struct EngineBuilder<'a> {
    config: &'a EngineConfig,
    compute: Compute,
    reception: Reception,
    transmission: Transmission,
    steered: Option<RequestQueues>,
    prefix: String,
    idle: StageIdle,
    observers: Vec<Box<dyn ChunkObserver>>,
    keeps_delays: bool,
}

impl<'a> EngineBuilder<'a> {
    /// An engine without control, whose lcores share their CPUs.
    pub fn new(
        config: &'a EngineConfig,
        compute: Compute,
        reception: Reception,
        transmission: Transmission,
    ) -> Self {
        Self {
            config,
            compute,
            reception,
            transmission,
            steered: None,
            prefix: String::new(),
            idle: IdlePolicy::Share.into(),
            observers: Vec::new(),
            keeps_delays: false,
        }
    }

    /// Lets control steer the engine.
    pub fn steered(mut self, steered: RequestQueues) -> Self {
        self.steered = Some(steered);
        self
    }

    /// Puts `prefix` in front of the names of lcores and pools, which are unique in a process.
    pub fn prefix(mut self, prefix: String) -> Self {
        self.prefix = prefix;
        self
    }

    /// Sets what lcores do when there is nothing to do.
    pub fn idle(mut self, idle: impl Into<StageIdle>) -> Self {
        self.idle = idle.into();
        self
    }

    /// Shows the chunks of each output to an observer, in the order of the configuration.
    pub fn observers(mut self, observers: Vec<Box<dyn ChunkObserver>>) -> Self {
        self.observers = observers;
        self
    }

    /// Keeps all delay models: for replays, whose end says what should have been sent.
    pub fn keep_delays(mut self) -> Self {
        self.keeps_delays = true;
        self
    }

    /// Allocates receive and output chunks. Nothing runs yet.
    pub fn build(self, eal: &Eal) -> Result<BuiltEngine<'a>, MemoryError> {
        let (memory, mut collector) = receive_memory(
            &self.config.recv,
            ReceiveOptions {
                lanes: self.reception.queues.len(),
                tail_samples: self.config.tail_samples(),
                spare_chunks: self.reception.spare_chunks,
                takes_statistics: self.config.statistics_samples().is_some(),
            },
            &*self.compute.recv_memory,
        )?;
        if self.reception.mode == RxMode::Live {
            collector.allow_leaving_behind();
        }
        let busy = self.compute.backend.busy();
        let (pipelines, send_memory) = (self.compute.backend.pipelines, self.compute.send_memory);
        let mut outputs = outputs(eal, self.config, pipelines, &*send_memory)?;
        for (output, observer) in outputs.iter_mut().zip(self.observers) {
            output.observer = Some(observer);
        }
        for output in &mut outputs {
            output.keeps_delays = self.keeps_delays;
        }
        let pools = outputs.iter();
        let pools = pools.map(|output| (output.config.name.clone(), output.pool.clone()));
        Ok(BuiltEngine {
            config: self.config,
            pools: pools.collect(),
            busy,
            parts: StageParts {
                prefix: self.prefix,
                memory,
                collector,
                intake: self.compute.backend.intake,
                outputs,
                steered: self
                    .steered
                    .unwrap_or_else(|| RequestQueues::alone(self.config)),
                reception: self.reception,
                transmission: self.transmission,
                min_zero_copy_packets: 0,
                idle: self.idle,
            },
        })
    }
}

/// An engine that has all of its memory, before it runs.
pub struct BuiltEngine<'a> {
    config: &'a EngineConfig,
    pools: OutputPools,
    busy: BusyTimes,
    parts: StageParts,
}

/// Output chunks, by stream.
pub type OutputPools = Vec<(String, ExtPool<OutputMemory>)>;

/// Nanoseconds that devices were busy, by what they did; anyone may read them at any time.
pub type BusyTimes = Vec<(String, Arc<AtomicU64>)>;

impl BuiltEngine<'_> {
    /// Output chunks, by stream.
    pub fn output_pools(&self) -> &OutputPools {
        &self.pools
    }

    /// tx queues.
    pub fn tx_queues(&self) -> &[TxQueue] {
        &self.parts.transmission.queues
    }

    /// Copies output chunks of which fewer than `packets` go through a tx queue into mbufs; others
    /// are read where they are. 0 copies none, `usize::MAX` all.
    pub fn set_min_zero_copy_packets(&mut self, packets: usize) {
        self.parts.min_zero_copy_packets = packets;
    }

    /// Starts all lcores of the engine.
    ///
    /// On an error some may run already: abort and drop `threads`.
    pub fn start(self, threads: &mut Threads) -> Result<RunningEngine, DpdkError> {
        self.start_by(&Tsc, threads)
    }

    /// Starts the engine with paces that go by `ticks`, which are as many to a second as those of
    /// the time-stamp counter.
    pub fn start_by(
        mut self,
        ticks: &impl Ticks,
        threads: &mut Threads,
    ) -> Result<RunningEngine, DpdkError> {
        if self.parts.reception.mode == RxMode::Live {
            // Buffers and kernels have taken seconds.
            let queues = self.parts.reception.queues.iter_mut();
            queues.for_each(|rx| rx.queue.discard());
        }
        let memory = self.parts.memory.clone();
        Ok(RunningEngine {
            stages: Stages::start(ticks, threads, self.config, self.parts)?,
            memory,
            output_pools: self.pools,
            busy: self.busy,
        })
    }
}

/// An engine at work.
pub struct RunningEngine {
    /// Lcores of the engine, and their counters.
    pub stages: Stages,
    /// Receive chunks.
    pub memory: Arc<ReceiveMemory>,
    /// Output chunks, by stream.
    pub output_pools: OutputPools,
    /// Nanoseconds that devices were busy.
    pub busy: BusyTimes,
}
