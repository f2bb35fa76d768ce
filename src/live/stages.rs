//! The lcores between the rx queues and the tx queues of one engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam::queue::ArrayQueue;

use super::Threads;
use crate::config::EngineConfig;
use crate::dpdk::{BURST, DpdkError, IdlePolicy, LcoreHandle, LcorePanic, RxQueue, TxQueue};
use crate::engine::{Engine, EngineError, Intake, OutputParts, OutputStats};
use crate::recv::{
    Horizon, InputStats, ReceiveMemory, Receiver, RxConfig, RxLcore, RxStats, WhenFull,
};
use crate::send::{Packetiser, Source, TxLcore, TxPools};

/// One rx queue of an engine.
#[derive(Debug)]
pub struct RxStage {
    /// Name of its lcore.
    pub name: String,
    /// The queue.
    pub queue: RxQueue,
    /// How its lcore is told what not to wait for, and when to end.
    pub horizons: Arc<ArrayQueue<Horizon>>,
}

/// What the stages of one engine are made of.
pub struct StageParts {
    /// In front of the names of its lcores and pools, which are unique in a process: empty, or such as `e0-`.
    pub prefix: String,
    /// Receive chunks.
    pub memory: Arc<ReceiveMemory>,
    /// The engine's end of them.
    pub receiver: Receiver,
    /// What brings them to the pipelines.
    pub intake: Box<dyn Intake>,
    /// Outputs, each with its pipeline and chunks.
    pub outputs: Vec<OutputParts>,
    /// Where packets come from, one lcore each; as many as `memory` was made for.
    pub rx: Vec<RxStage>,
    /// What an rx lcore does when no chunk is free.
    pub when_full: WhenFull,
    /// Where packets go.
    pub tx: TxQueue,
    /// Packets that the tx queue and all behind it may hold.
    pub tx_packets: usize,
    /// Where packets say that they come from.
    pub source: Source,
    /// What the lcores do when there is nothing to do.
    pub idle: IdlePolicy,
}

/// Why stages ended before their input.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The backend failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An lcore panicked.
    #[error(transparent)]
    Lcore(#[from] LcorePanic),
}

/// The stages of one engine at work.
pub struct Stages {
    engine: LcoreHandle<Result<Engine, EngineError>>,
    lcores: Vec<LcoreHandle<()>>,
    rx_stats: Vec<Arc<RxStats>>,
    input_stats: Arc<InputStats>,
    output_stats: Vec<Arc<OutputStats>>,
    sending: Arc<AtomicUsize>,
    tx_pools: TxPools,
}

/// What is left of stages that have ended.
pub struct Ended {
    /// The engine, for its reports.
    pub engine: Engine,
    /// Kept until the last packet is gone.
    pub tx_pools: TxPools,
}

impl Stages {
    /// Lcores that [`start`](Self::start) takes for `rx_queues` queues.
    pub fn lcores(rx_queues: usize) -> usize {
        rx_queues + 2
    }

    /// Starts all lcores of an engine.
    ///
    /// On an error some may run already: abort and drop `threads`.
    pub fn start(
        threads: &mut Threads,
        config: &EngineConfig,
        parts: StageParts,
    ) -> Result<Self, DpdkError> {
        let abort = threads.abort().clone();
        let StageParts { prefix, idle, .. } = parts;
        let chunks: usize = parts.outputs.iter().map(|o| o.pool.capacity()).sum();
        let finished = Arc::new(ArrayQueue::new(chunks + 1));
        let output_stats = parts.outputs.iter().map(|o| o.stats.clone()).collect();
        let input_stats = parts.receiver.stats();
        let packetisers = (0..parts.outputs.len())
            .map(|index| Packetiser::new(config, index, parts.source))
            .collect();

        let rx_config = RxConfig {
            recv: config.recv.clone(),
            when_full: parts.when_full,
            idle,
        };
        let mut lcores = Vec::new();
        let mut rx_stats = Vec::new();
        for (lane, rx) in parts.rx.into_iter().enumerate() {
            let stats = Arc::new(RxStats::default());
            rx_stats.push(stats.clone());
            let lcore = RxLcore::new(
                rx_config.clone(),
                rx.queue,
                parts.memory.clone(),
                lane,
                Some(rx.horizons),
                stats,
                abort.clone(),
            );
            let name = format!("{prefix}{}", rx.name);
            lcores.push(threads.spawn(&name, move |clock| lcore.run(clock))?);
        }

        let mut engine = Engine::new(
            config,
            parts.receiver,
            parts.intake,
            parts.outputs,
            finished.clone(),
            idle,
            abort.clone(),
        );
        let engine = threads.spawn(&format!("{prefix}engine"), move |clock| {
            engine.run(clock).map(|()| engine)
        })?;

        let tx_pools = TxPools::new(threads.eal(), &prefix, parts.tx_packets, 2 * BURST)?;
        let (pools, queue) = (tx_pools.clone(), parts.tx);
        let tx = TxLcore::new(finished, packetisers, pools, queue, idle, abort.clone());
        let sending = Arc::new(AtomicUsize::new(1));
        let still = sending.clone();
        lcores.push(threads.spawn(&format!("{prefix}tx"), move |clock| {
            tx.run(clock);
            still.fetch_sub(1, Ordering::Release);
        })?);
        Ok(Self {
            engine,
            lcores,
            rx_stats,
            input_stats,
            output_stats,
            sending,
            tx_pools,
        })
    }

    /// Counters of each rx lcore.
    pub fn rx_stats(&self) -> &[Arc<RxStats>] {
        &self.rx_stats
    }

    /// Counters of the chunks that the engine collected.
    pub fn input_stats(&self) -> &Arc<InputStats> {
        &self.input_stats
    }

    /// Counters of each output.
    pub fn output_stats(&self) -> &[Arc<OutputStats>] {
        &self.output_stats
    }

    /// tx lcores that have not handed over their last packet.
    pub fn sending(&self) -> &Arc<AtomicUsize> {
        &self.sending
    }

    /// Waits for all lcores, which end when their input does or when something aborts them.
    pub fn join(self) -> Result<Ended, StageError> {
        let engine = self.engine.join();
        let lcores: Vec<_> = self.lcores.into_iter().map(LcoreHandle::join).collect();
        let engine = engine??;
        lcores.into_iter().collect::<Result<(), _>>()?;
        Ok(Ended {
            engine,
            tx_pools: self.tx_pools,
        })
    }
}
