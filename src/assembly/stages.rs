//! The lcores between the rx queues and the tx queues of one engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam::queue::ArrayQueue;
use dpdk::{BURST, DpdkError, LcoreHandle, LcorePanic, RxQueue, TxQueue};
use ground::stats::Latency;
use ground::{IdlePolicy, Ticks, Tsc};

use super::Threads;
use crate::config::EngineConfig;
use crate::engine::steer::Steered;
use crate::engine::{Engine, EngineError, EngineParts, Intake, OutputParts, OutputStats};
use crate::net::FlowTable;
use crate::recv::{
    Horizon, InputStats, Meant, ReceiveMemory, Receiver, RxConfig, RxLcore, RxStats, WhenFull,
};
use crate::send::{Pace, Packetiser, Source, TxLcore, TxOutput, TxPath, TxPools};

/// One rx queue of an engine.
#[derive(Debug)]
pub struct RxStage {
    /// Name of its lcore.
    pub name: String,
    /// The queue.
    pub queue: RxQueue,
    /// Destinations that are ours, where nothing before the queue sees to that.
    pub ours: Option<FlowTable>,
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
    /// How control steers them.
    pub steered: Steered,
    /// Where packets come from, one lcore each; as many as `memory` was made for.
    pub rx: Vec<RxStage>,
    /// What an rx lcore does when no chunk is free.
    pub when_full: WhenFull,
    /// As [`RxConfig::meant`].
    pub meant: Meant,
    /// Where packets go: one lcore each, at most [`MAX_TX_LCORES`](crate::send::MAX_TX_LCORES).
    pub tx: Vec<TxQueue>,
    /// Packets that a tx queue and all behind it may hold.
    pub tx_packets: usize,
    /// Output chunks of which fewer packets go through a tx queue are copied into mbufs, the others are read where they
    /// are: 0 copies none, `usize::MAX` all.
    pub copied_below: usize,
    /// Where packets say that they come from, per interface. Every output's substreams are divided in blocks over the
    /// interfaces, whose tx queues follow one another in `tx`, as many for each; each block is dealt out among them.
    pub sources: Vec<Source>,
    /// Rate of each output as a multiple of its own; 0: as fast as the ports take packets.
    pub rate_factor: f64,
    /// What the lcores do when there is nothing to do.
    pub idle: StageIdle,
}

/// What each lcore does when there is nothing to do: one that has a CPU of its own polls, whatever others share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageIdle {
    /// Each rx lcore.
    pub rx: Vec<IdlePolicy>,
    /// The engine's lcore, and those that the lists do not reach.
    pub engine: IdlePolicy,
    /// Each tx lcore.
    pub tx: Vec<IdlePolicy>,
}

impl From<IdlePolicy> for StageIdle {
    /// All lcores alike.
    fn from(engine: IdlePolicy) -> Self {
        let (rx, tx) = (Vec::new(), Vec::new());
        Self { rx, engine, tx }
    }
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
    latencies: Vec<Arc<Latency>>,
    sending: Arc<AtomicUsize>,
    tx_pools: Vec<TxPools>,
    horizons: Vec<Arc<ArrayQueue<Horizon>>>,
    running: Arc<AtomicUsize>,
}

/// What is left of stages that have ended.
pub struct FinishedStages {
    /// The engine, for its reports.
    pub engine: Engine,
    /// Kept until the last packet is gone.
    pub tx_pools: Vec<TxPools>,
}

impl Stages {
    /// Lcores that [`start`](Self::start) takes.
    pub fn lcores(rx_queues: usize, tx_queues: usize) -> usize {
        rx_queues + 1 + tx_queues
    }

    /// Starts all lcores of an engine.
    ///
    /// On an error some may run already: abort and drop `threads`.
    pub fn start(
        threads: &mut Threads,
        config: &EngineConfig,
        parts: StageParts,
    ) -> Result<Self, DpdkError> {
        Self::start_by(&Tsc, threads, config, parts)
    }

    /// The same with paces that go by other `ticks` than the time-stamp counter's, as many to a second.
    pub fn start_by(
        ticks: &impl Ticks,
        threads: &mut Threads,
        config: &EngineConfig,
        parts: StageParts,
    ) -> Result<Self, DpdkError> {
        let abort = threads.abort().clone();
        let StageParts { prefix, idle, .. } = parts;
        let chunks: usize = parts.outputs.iter().map(|o| o.pool.capacity()).sum();
        let finished = Arc::new(ArrayQueue::new(chunks + 1));
        let output_stats: Vec<_> = parts.outputs.iter().map(|o| o.stats.clone()).collect();
        for stats in &output_stats {
            stats.expect_departures(parts.tx.len());
        }
        let input_stats = parts.receiver.stats();
        let running = Arc::new(AtomicUsize::new(0));
        let sending = Arc::new(AtomicUsize::new(0));

        let rx_config = RxConfig {
            recv: config.recv.clone(),
            when_full: parts.when_full,
            meant: parts.meant,
            ours: None,
            idle: idle.engine,
        };
        let horizons = parts.rx.iter().map(|rx| rx.horizons.clone()).collect();
        let mut lcores = Vec::new();
        let mut rx_stats = Vec::new();
        for (lane, rx) in parts.rx.into_iter().enumerate() {
            let stats = Arc::new(RxStats::default());
            rx_stats.push(stats.clone());
            let lcore = RxLcore::new(
                RxConfig {
                    ours: rx.ours,
                    idle: *idle.rx.get(lane).unwrap_or(&idle.engine),
                    ..rx_config.clone()
                },
                rx.queue,
                parts.memory.clone(),
                lane,
                Some(rx.horizons),
                stats,
                abort.clone(),
            );
            let running = Count::of(&running);
            lcores.push(
                threads.spawn(&format!("{prefix}{}", rx.name), move |clock| {
                    let _running = running;
                    lcore.run(clock);
                })?,
            );
        }

        let engine = EngineParts {
            receiver: parts.receiver,
            intake: parts.intake,
            outputs: parts.outputs,
            steered: parts.steered,
            finished: finished.clone(),
            idle: idle.engine,
            abort: abort.clone(),
        };
        let mut engine = Engine::new(config, engine);
        let still = Count::of(&running);
        let engine = threads.spawn(&format!("{prefix}engine"), move |clock| {
            let _still = still;
            engine.run(clock).map(|()| engine)
        })?;

        let tx_lcores = parts.tx.len();
        let tx_name = |index: usize| match tx_lcores {
            1 => format!("{prefix}tx"),
            _ => format!("{prefix}tx{index}"),
        };
        let latencies: Vec<_> = config
            .outputs
            .iter()
            .map(|_| Arc::new(Latency::new(config.clock)))
            .collect();
        let tsc_clock = threads.eal().tsc_clock();
        let (interfaces, per_interface) = (parts.sources.len(), tx_lcores / parts.sources.len());
        let tx_idle = |index: usize| *idle.tx.get(index).unwrap_or(&idle.engine);
        let outputs = |index: usize| {
            let interface = index / per_interface;
            let output = |output| {
                let packetiser = Packetiser::new(config, output, parts.sources[interface])
                    .through(interface, interfaces)
                    .share(index % per_interface, per_interface);
                let pace = match parts.rate_factor * packetiser.rate() {
                    rate if rate > 0.0 => {
                        Pace::new(tsc_clock, rate, tx_idle(index).longest_nap(), ticks.now())
                    }
                    _ => Pace::UNLIMITED,
                };
                TxOutput {
                    packetiser,
                    pace,
                    latency: latencies[output].clone(),
                    stats: output_stats[output].clone(),
                }
            };
            (0..config.outputs.len()).map(output).collect()
        };
        let copied = match parts.copied_below {
            0 => 0,
            _ => config.send.packet_payload,
        };
        let mut tx_pools = Vec::new();
        let mut paths = Vec::new();
        for (index, queue) in parts.tx.into_iter().enumerate() {
            let name = tx_name(index);
            let pools = TxPools::new(threads.eal(), &name, parts.tx_packets, 2 * BURST, copied)?;
            pools.outlive(&queue);
            tx_pools.push(pools.clone());
            paths.push(TxPath {
                queue,
                pools,
                outputs: outputs(index),
                idle: tx_idle(index),
            });
        }
        let team = TxLcore::team(finished, paths, parts.copied_below, ticks, &abort);
        for (index, tx) in team.into_iter().enumerate() {
            let counts = [Count::of(&running), Count::of(&sending)];
            lcores.push(threads.spawn(&tx_name(index), move |clock| {
                let _counts = counts;
                tx.run(clock);
            })?);
        }
        Ok(Self {
            engine,
            lcores,
            rx_stats,
            input_stats,
            output_stats,
            latencies,
            sending,
            tx_pools,
            horizons,
            running,
        })
    }

    /// Lcores that have not ended.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Acquire)
    }

    /// Ends the input of a live engine: what is in chunks is still computed and sent, then the lcores end.
    pub fn stop(&self) {
        for horizons in &self.horizons {
            // Full only if the lcore is being stopped already.
            let _ = horizons.push(Horizon::STOP);
        }
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

    /// How old data was when it left, of each output.
    pub fn latencies(&self) -> &[Arc<Latency>] {
        &self.latencies
    }

    /// tx lcores that have not handed over their last packet.
    pub fn sending(&self) -> &Arc<AtomicUsize> {
        &self.sending
    }

    /// Waits for all lcores, which end when their input does or when something aborts them.
    pub fn join(self) -> Result<FinishedStages, StageError> {
        let engine = self.engine.join();
        let lcores: Vec<_> = self.lcores.into_iter().map(LcoreHandle::join).collect();
        let engine = engine??;
        lcores.into_iter().collect::<Result<(), _>>()?;
        Ok(FinishedStages {
            engine,
            tx_pools: self.tx_pools,
        })
    }
}

/// One of a number of lcores, until it is dropped.
struct Count(Arc<AtomicUsize>);

impl Count {
    fn of(counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter.clone())
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}
