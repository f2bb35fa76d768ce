//! The lcores between the rx queues and the tx queues of one engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam::queue::ArrayQueue;
use dpdk::{BURST, DpdkError, LcoreHandle, LcorePanic, RxQueue, TxQueue};
use ground::stats::Latency;
use ground::{Bell, IdlePolicy, Ticks, TscClock};

use super::Threads;
use crate::config::EngineConfig;
use crate::engine::steer::RequestQueues;
use crate::engine::{Engine, EngineError, EngineParts, Finished, Intake, OutputParts, OutputStats};
use crate::net::FlowTable;
use crate::recv::{
    ChunkCollector, ChunkPatience, EpochHint, InputStats, ReceiveMemory, RxConfig, RxLcore, RxMode,
    RxParts, RxStats, Watermark,
};
use crate::send::{Pace, Packetiser, SourceAddress, TxLcore, TxOutput, TxPath, TxPools};

/// One rx queue of an engine.
#[derive(Debug)]
pub struct RxStage {
    /// Name of its lcore.
    pub name: String,
    /// The port that it is a queue of, as the user calls it.
    pub port: String,
    /// The queue.
    pub queue: RxQueue,
    /// Destinations that are ours, where nothing before the queue sees to that.
    pub ours: Option<FlowTable>,
    /// Watermarks for its lcore, which also end it.
    pub watermarks: Arc<ArrayQueue<Watermark>>,
}

/// Where an engine's packets come from.
pub struct Reception {
    /// rx queues, one lcore each.
    pub queues: Vec<RxStage>,
    /// Whether time goes on without the rx lcores. A live engine leaves lagging ones behind, and
    /// throws away what came before it started.
    pub mode: RxMode,
    /// As [`RxConfig::epoch`].
    pub epoch: EpochHint,
    /// Receive chunks beside those that the engine needs: how long it may be held up.
    pub spare_chunks: usize,
    /// As [`RxConfig::patience`].
    pub patience: ChunkPatience,
}

/// Where an engine's packets go.
pub struct Transmission {
    /// tx queues, one lcore each, at most [`MAX_TX_LCORES`](crate::send::MAX_TX_LCORES).
    pub queues: Vec<TxQueue>,
    /// Packets that a tx queue and all behind it may hold.
    pub queue_packets: usize,
    /// Source addresses, one per interface. Interface i gets a contiguous block of each
    /// output's substreams. Its tx queues share that block round-robin: `queues` is grouped by
    /// interface, with equally many for each.
    pub sources: Vec<SourceAddress>,
    /// Rate of each output as a multiple of its own; 0: as fast as the ports take packets.
    pub rate_factor: f64,
}

/// What the stages of one engine are made of.
pub(super) struct StageParts {
    pub prefix: String,
    pub memory: Arc<ReceiveMemory>,
    pub collector: ChunkCollector,
    pub intake: Box<dyn Intake>,
    pub outputs: Vec<OutputParts>,
    pub steered: RequestQueues,
    pub reception: Reception,
    pub transmission: Transmission,
    /// Output chunks of which fewer packets go through a tx queue are copied into mbufs.
    pub min_zero_copy_packets: usize,
    pub idle: StageIdle,
}

/// What each lcore does when there is nothing to do: one that has a CPU of its own polls, whatever
/// others share.
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
    watermarks: Vec<Arc<ArrayQueue<Watermark>>>,
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
    /// Lcores that an engine takes.
    pub fn lcore_count(rx_queues: usize, tx_queues: usize) -> usize {
        rx_queues + 1 + tx_queues
    }

    /// Starts all lcores of an engine, with paces that go by `ticks`.
    pub(super) fn start(
        ticks: &impl Ticks,
        threads: &mut Threads,
        config: &EngineConfig,
        parts: StageParts,
    ) -> Result<Self, DpdkError> {
        let chunks: usize = parts.outputs.iter().map(|o| o.pool.capacity()).sum();
        let output_stats: Vec<_> = parts.outputs.iter().map(|o| o.stats.clone()).collect();
        for stats in &output_stats {
            stats.expect_tx_lcores(parts.transmission.queues.len());
        }
        let finished = Arc::new(ArrayQueue::new(chunks + 1));
        let input_stats = parts.collector.stats();
        let running = Arc::new(AtomicUsize::new(0));
        let latencies: Vec<_> = config
            .outputs
            .iter()
            .map(|_| Arc::new(Latency::new(config.clock)))
            .collect();

        let bell = parts.steered.bell.clone();
        let start = Start {
            config,
            prefix: &parts.prefix,
            idle: &parts.idle,
            running: &running,
            bell: &bell,
        };
        let watermarks = parts.reception.queues.iter();
        let watermarks = watermarks.map(|rx| rx.watermarks.clone()).collect();
        let (mut lcores, rx_stats) = start.rx(threads, parts.reception, &parts.memory)?;
        let engine = EngineParts {
            collector: parts.collector,
            intake: parts.intake,
            outputs: parts.outputs,
            steered: parts.steered,
            finished: finished.clone(),
            idle: parts.idle.engine,
            abort: threads.abort().clone(),
        };
        let engine = start.engine(threads, engine)?;
        let tx = TxTeam {
            transmission: parts.transmission,
            min_zero_copy_packets: parts.min_zero_copy_packets,
            finished,
            stats: &output_stats,
            latencies: &latencies,
        };
        let (tx_lcores, tx_pools, sending) = start.tx(ticks, threads, tx)?;
        lcores.extend(tx_lcores);
        Ok(Self {
            engine,
            lcores,
            rx_stats,
            input_stats,
            output_stats,
            latencies,
            sending,
            tx_pools,
            watermarks,
            running,
        })
    }

    /// Lcores that have not ended.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Acquire)
    }

    /// Ends the input of a live engine: what is in chunks is still computed and sent, then the
    /// lcores end.
    pub fn stop(&self) {
        for watermarks in &self.watermarks {
            // Full only if the lcore is being stopped already.
            let _ = watermarks.push(Watermark::STOP);
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

/// What the lcores of an engine have in common when they start.
struct Start<'a> {
    config: &'a EngineConfig,
    prefix: &'a str,
    idle: &'a StageIdle,
    running: &'a Arc<AtomicUsize>,
    bell: &'a Arc<Bell>,
}

/// What the tx lcores of an engine send.
struct TxTeam<'a> {
    transmission: Transmission,
    min_zero_copy_packets: usize,
    finished: Arc<ArrayQueue<Finished>>,
    stats: &'a [Arc<OutputStats>],
    latencies: &'a [Arc<Latency>],
}

type RxLcores = (Vec<LcoreHandle<()>>, Vec<Arc<RxStats>>);
type TxLcores = (Vec<LcoreHandle<()>>, Vec<TxPools>, Arc<AtomicUsize>);

impl Start<'_> {
    fn rx(
        &self,
        threads: &mut Threads,
        reception: Reception,
        memory: &Arc<ReceiveMemory>,
    ) -> Result<RxLcores, DpdkError> {
        let (mut lcores, mut all_stats) = (Vec::new(), Vec::new());
        for (lane, rx) in reception.queues.into_iter().enumerate() {
            let config = RxConfig {
                recv: self.config.recv.clone(),
                mode: reception.mode,
                epoch: reception.epoch,
                ours: rx.ours,
                idle: *self.idle.rx.get(lane).unwrap_or(&self.idle.engine),
                patience: reception.patience,
            };
            let stats = Arc::new(RxStats::of_port(rx.port));
            all_stats.push(stats.clone());
            let parts = RxParts {
                queue: rx.queue,
                memory: memory.clone(),
                lane,
                watermarks: rx.watermarks,
                stats,
                bell: self.bell.clone(),
                abort: threads.abort().clone(),
            };
            let lcore = RxLcore::new(config, parts);
            let running = Count::of(self.running);
            let name = format!("{}{}", self.prefix, rx.name);
            lcores.push(threads.spawn(&name, move |timer| {
                let _running = running;
                lcore.run(timer);
            })?);
        }
        Ok((lcores, all_stats))
    }

    fn engine(
        &self,
        threads: &mut Threads,
        parts: EngineParts,
    ) -> Result<LcoreHandle<Result<Engine, EngineError>>, DpdkError> {
        let mut engine = Engine::new(self.config, parts);
        let running = Count::of(self.running);
        threads.spawn(&format!("{}engine", self.prefix), move |timer| {
            let _running = running;
            engine.run(timer).map(|()| engine)
        })
    }

    fn tx(
        &self,
        ticks: &impl Ticks,
        threads: &mut Threads,
        mut team: TxTeam<'_>,
    ) -> Result<TxLcores, DpdkError> {
        let sending = Arc::new(AtomicUsize::new(0));
        let copied = match team.min_zero_copy_packets {
            0 => 0,
            _ => self.config.send.packet_payload,
        };
        let queues = std::mem::take(&mut team.transmission.queues);
        let lcores = queues.len();
        let name = |index: usize| match lcores {
            1 => format!("{}tx", self.prefix),
            _ => format!("{}tx{index}", self.prefix),
        };
        let (mut all_pools, mut paths) = (Vec::new(), Vec::new());
        for (index, queue) in queues.into_iter().enumerate() {
            let packets = team.transmission.queue_packets;
            let pools = TxPools::new(threads.eal(), &name(index), packets, 2 * BURST, copied)?;
            pools.outlive(&queue);
            all_pools.push(pools.clone());
            paths.push(TxPath {
                queue,
                pools,
                outputs: self.tx_outputs(ticks, threads.eal().tsc_clock(), &team, (index, lcores)),
                idle: self.tx_idle(index),
            });
        }
        let team = TxLcore::team(
            team.finished,
            paths,
            team.min_zero_copy_packets,
            ticks,
            self.bell,
            threads.abort(),
        );
        let mut handles = Vec::new();
        for (index, tx) in team.into_iter().enumerate() {
            let counts = [Count::of(self.running), Count::of(&sending)];
            handles.push(threads.spawn(&name(index), move |timer| {
                let _counts = counts;
                tx.run(timer);
            })?);
        }
        Ok((handles, all_pools, sending))
    }

    fn tx_idle(&self, index: usize) -> IdlePolicy {
        *self.idle.tx.get(index).unwrap_or(&self.idle.engine)
    }

    /// What the tx lcore `index` of `lcores` sends of each output.
    fn tx_outputs(
        &self,
        ticks: &impl Ticks,
        tsc_clock: TscClock,
        team: &TxTeam<'_>,
        (index, lcores): (usize, usize),
    ) -> Vec<TxOutput> {
        let Transmission {
            sources,
            rate_factor,
            ..
        } = &team.transmission;
        let (interfaces, per_interface) = (sources.len(), lcores / sources.len());
        let interface = index / per_interface;
        let output = |output: usize| {
            let packetiser = Packetiser::new(self.config, output, sources[interface])
                .through(interface, interfaces)
                .share(index % per_interface, per_interface);
            let pace = match rate_factor * packetiser.rate() {
                rate if rate > 0.0 => {
                    let nap = self.tx_idle(index).longest_nap();
                    Pace::new(tsc_clock, rate, nap, ticks.now())
                }
                _ => Pace::UNLIMITED,
            };
            TxOutput {
                packetiser,
                pace,
                latency: team.latencies[output].clone(),
                stats: team.stats[output].clone(),
            }
        };
        (0..self.config.outputs.len()).map(output).collect()
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
