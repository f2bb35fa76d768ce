//! One engine on live ports, or fed from a capture file, from its start to its last stop heap.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crossbeam::queue::ArrayQueue;
use dpdk::{BURST, DpdkError, FlowRule, LcoreHandle, LcorePanic, QueueId, RxQueue};
use ground::{IdlePolicy, StopFlag};
use host::placement::{EnginePlan, Role};

use super::interfaces::{Interfaces, OpenPorts};
use crate::assembly::{
    CaptureFeed, CaptureScan, Compute, EngineBuilder, Reception, RunningEngine, RxStage,
    SourceLcore, StageError, StageIdle, Threads, Transmission,
};
use crate::config::{FgpuConfig, InputConfig};
use crate::engine::ChunkObserver;
use crate::engine::steer::RequestQueues;
use crate::memory::MemoryError;
use crate::net::{CaptureError, CaptureReader, FlowTable};
use crate::ports::{InterfaceError, Links, Membership, PortError};
use crate::recv::{EpochHint, RxMode, RxStats, chunk_patience};

/// How long devices get to send the last packets: drivers do not tell when these have left.
const LINGER: Duration = Duration::from_millis(50);

/// Why a live engine did not start, or ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// An interface cannot be used.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// An interface has no port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// DPDK refused something.
    #[error(transparent)]
    Dpdk(#[from] DpdkError),
    /// Not enough memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The capture cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A stage failed.
    #[error(transparent)]
    Stage(#[from] StageError),
}

impl From<LcorePanic> for LiveError {
    fn from(panic: LcorePanic) -> Self {
        Self::Stage(panic.into())
    }
}

/// What a live engine is made of, beside its configuration.
pub struct LiveParts {
    /// What computes.
    pub compute: Compute,
    /// Requests of control.
    pub steered: RequestQueues,
    /// Receive chunks beside those that it needs: how long it may be held up.
    pub spare_chunks: usize,
    /// Who looks at the chunks of each output, if anyone.
    pub observers: Vec<Box<dyn ChunkObserver>>,
}

/// One engine at work.
pub struct LiveEngine {
    running: RunningEngine,
    threads: Threads,
    links: Links,
    capture: Option<Capture>,
    /// Whether packets may be under way when the lcores have ended.
    lingers: bool,
    _memberships: Vec<Membership>,
}

/// The lcore that reads a capture.
struct Capture {
    lcore: LcoreHandle<Result<Vec<String>, CaptureError>>,
    stop: StopFlag,
    /// Counters of datagrams that the lcore does not pass on.
    stats: Arc<RxStats>,
}

impl LiveEngine {
    /// Starts everything, then lets packets in.
    ///
    /// `threads` has an lcore for each of the plan's. On an error some may run already: they are
    /// aborted.
    pub fn start(
        config: &FgpuConfig,
        interfaces: &Interfaces,
        threads: Threads,
        parts: LiveParts,
        plan: &EnginePlan,
    ) -> Result<Self, LiveError> {
        let abort = threads.abort().clone();
        Self::try_start(config, interfaces, threads, parts, plan).inspect_err(|_| abort.set())
    }

    fn try_start(
        config: &FgpuConfig,
        interfaces: &Interfaces,
        mut threads: Threads,
        parts: LiveParts,
        plan: &EnginePlan,
    ) -> Result<Self, LiveError> {
        let (eal, engine) = (threads.eal().clone(), &config.engine);
        let mut open = OpenPorts::open(&eal, config, interfaces)?;
        if open.tx.is_empty() {
            open.add_nowhere(&eal)?;
        }
        let reader = match &config.input {
            InputConfig::Live { .. } => None,
            InputConfig::Capture { path, .. } => Some(CaptureReader::open(path)?),
        };
        let epoch = epoch(config);
        let feed = reader.map(|reader| Ok::<_, DpdkError>((reader, open.add_capture(&eal)?)));
        let feed = feed.transpose()?;
        let rx = (open.rx, open.rx_packets);
        let reception = reception(config, rx, epoch, parts.spare_chunks);
        let watermarks = reception.queues[0].watermarks.clone();
        let lingers = open.tx.iter().any(|queue| queue.keeps() > 0);
        let transmission = Transmission {
            queues: open.tx,
            queue_packets: interfaces.tx_packets(),
            sources: open.sources,
            rate_factor: config.egress.rate_factor,
        };
        let mut built = EngineBuilder::new(engine, parts.compute, reception, transmission)
            .steered(parts.steered)
            .idle(idle(plan))
            .observers(parts.observers)
            .build(&eal)?;
        let min_zero_copy_packets =
            interfaces.map_output_chunks_for_dma(built.tx_queues(), built.output_pools());
        built.set_min_zero_copy_packets(min_zero_copy_packets);
        let running = built.start(&mut threads)?;
        let mut memberships = open.memberships;
        for ((interface, _), membership) in interfaces.uses.iter().zip(&mut memberships) {
            membership.join(&config.input.endpoints_of(&interface.name), interface)?;
        }
        let capture = feed.map(|(reader, (ring, pool))| {
            let (stop, stats) = (StopFlag::default(), Arc::new(RxStats::default()));
            let source = SourceLcore {
                reader,
                steering: everything(),
                recv: engine.recv.clone(),
                first: epoch.first(),
                feeds: vec![CaptureFeed::new(ring, watermarks)],
                pool,
                stats: stats.clone(),
                progress: Arc::default(),
                stop: stop.clone(),
                idle: first_or_share(&plan.idle(|role| role == Role::Source)),
                abort: threads.abort().clone(),
            };
            let lcore = threads.spawn("capture", move |timer| source.run(timer))?;
            Ok::<_, DpdkError>(Capture { lcore, stop, stats })
        });
        Ok(Self {
            capture: capture.transpose()?,
            running,
            threads,
            lingers,
            links: Links::new(
                open.ports
                    .into_iter()
                    .zip(interfaces.uses.iter().map(|(i, _)| i)),
            )
            // The losses room says what changes.
            .silent(),
            _memberships: memberships,
        })
    }

    /// Whether any of its lcores is at work: they end by themselves with a capture, or when one of
    /// them fails.
    pub fn is_running(&self) -> bool {
        self.running.stages.running() > 0
    }

    /// Whether it was aborted, by a stage that failed or from outside.
    pub fn is_aborted(&self) -> bool {
        self.threads.abort().is_set()
    }

    /// Ends the engine's input. What was received is still computed and sent, then stop heaps, then
    /// the engine's lcores end.
    pub fn stop(&self) {
        match &self.capture {
            Some(capture) => capture.stop.set(),
            None => self.running.stages.stop(),
        }
    }

    /// Ends all lcores as they are: nothing more is sent.
    pub fn abort(&self) {
        self.threads.abort().set();
    }

    /// Lcores that have not ended.
    pub fn running(&self) -> usize {
        self.running.stages.running()
    }

    /// Nanoseconds that devices were busy, by what they did.
    pub fn busy(&self) -> &[(String, Arc<AtomicU64>)] {
        &self.running.busy
    }

    /// Ports of the engine, and their links.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// What is at work between its ports.
    pub fn engine(&self) -> &RunningEngine {
        &self.running
    }

    /// Where the time of its lcores goes.
    pub fn threads(&self) -> &Threads {
        &self.threads
    }

    /// Counters of a capture's frames that are no datagrams.
    pub fn capture_stats(&self) -> Option<&Arc<RxStats>> {
        self.capture.as_ref().map(|capture| &capture.stats)
    }

    /// Waits for all lcores. The first failure of a stage, if there was one, is returned.
    pub fn join(self) -> Result<(), LiveError> {
        let capture = self.capture.map(|capture| capture.lcore.join());
        let ended = self.running.stages.join()?;
        for note in capture.transpose()?.transpose()?.unwrap_or_default() {
            tracing::info!(note, "capture");
        }
        if self.lingers {
            std::thread::sleep(LINGER);
        }
        // Packets in flight are done before their pools go.
        drop(ended);
        Ok(())
    }
}

/// Where packets come from: the ports' rx queues, or the ring that a capture is read into; with how
/// many packets may wait at each.
fn reception(
    config: &FgpuConfig,
    (queues, packets): (Vec<RxQueue>, usize),
    epoch: EpochHint,
    spare_chunks: usize,
) -> Reception {
    let (names, mode) = match &config.input {
        InputConfig::Live { interfaces, .. } => (&interfaces[..], RxMode::Live),
        InputConfig::Capture { .. } => (&[][..], RxMode::Replay),
    };
    let (recv, rate) = (&config.engine.recv, config.engine.clock.adc_sample_rate);
    let patience = chunk_patience(recv, rate, queues.len(), packets, spare_chunks);
    let through = |name: &String| FlowTable::from_sources(&config.input.endpoints_of(name), 1);
    let queues = queues.into_iter().enumerate();
    let queues = queues.map(|(lane, queue)| RxStage {
        name: format!("rx{lane}"),
        port: names.get(lane).map_or("capture", String::as_str).to_owned(),
        queue,
        ours: names.get(lane).map(through),
        watermarks: Arc::new(ArrayQueue::new(BURST)),
    });
    Reception {
        queues: queues.collect(),
        mode,
        epoch,
        spare_chunks,
        patience,
    }
}

/// What tells the first heap's timestamp: the host's clock, or the frames' times in a capture.
fn epoch(config: &FgpuConfig) -> EpochHint {
    let clock = config.engine.clock;
    match &config.input {
        InputConfig::Live { .. } => EpochHint::HostClock(clock),
        // Errors are ignored here: the capture's source reports them.
        InputConfig::Capture { path, .. } => CaptureScan::new(path)
            .map_or(EpochHint::WireValue, |scan| {
                EpochHint::Near(scan.first_whole(clock))
            }),
    }
}

/// What the lcores of the stages do when idle.
fn idle(plan: &EnginePlan) -> StageIdle {
    StageIdle {
        rx: plan.idle(|role| matches!(role, Role::Rx(_))),
        engine: first_or_share(&plan.idle(|role| role == Role::Engine)),
        tx: plan.idle(|role| matches!(role, Role::Tx(_))),
    }
}

/// Idle policy of the only lcore of its kind; `Share` if there is none.
fn first_or_share(idle: &[IdlePolicy]) -> IdlePolicy {
    *idle.first().unwrap_or(&IdlePolicy::Share)
}

/// All datagrams, whatever their destination: a capture is ours.
fn everything() -> FlowTable {
    FlowTable::new(vec![FlowRule {
        dst: Ipv4Addr::UNSPECIFIED..=Ipv4Addr::BROADCAST,
        udp_port: None,
        queue: QueueId(0),
    }])
}
