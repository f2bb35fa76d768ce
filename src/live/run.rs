//! One engine on live ports, or fed from a capture file, from its start to its last stop heap.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crossbeam::queue::ArrayQueue;

use super::interface::{Interface, InterfaceError};
use super::port::{Membership, PortError, PortUse};
use super::preset::{PresetError, devices};
use super::source::{Feed, SourceLcore};
use super::{
    Compute, Demand, Driver, Links, OUTPUT_CHUNKS, RxStage, StageError, StageIdle, StageParts,
    Stages, Threads, outputs,
};
use crate::config::{EngineConfig, FgpuConfig, InputConfig, OutputConfig};
use crate::dpdk::{
    Abort, BURST, Device, DpdkError, Eal, ExtPool, HugePages, IdlePolicy, LcoreHandle, LcorePanic,
    MbufPool, PoolConfig, Port, PortConfig, RingSender, RxQueue, TxQueue, mbuf_ring, pool_size,
};
use crate::engine::steer::Steered;
use crate::memory::{MemoryError, OutputMemory};
use crate::net::{CaptureError, CaptureReader, FlowRule, QueueId, Steering};
use crate::plan::{EnginePlan, Role};
use crate::recv::{ReceiveMemory, RxStats, WhenFull, receive_memory_with_spare};
use crate::send::{Source, TxPools};
use crate::spead::{digitiser, spectra};

/// UDP port that the first output's packets come from.
const SOURCE_PORT: u16 = 49152;
/// Packets between the lcore that reads a capture and the one that receives: a power of two less one.
const CAPTURE_RING: usize = 511;
/// Largest frame of a capture that fits an mbuf.
const CAPTURE_FRAME: usize = 9600;
/// How long devices have for the last packets, whose end drivers do not tell.
const LINGER: Duration = Duration::from_millis(50);
/// Memory for DPDK beside mbuf pools, in bytes.
const DPDK_BYTES: usize = 64 << 20;

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

/// The interfaces of an engine, and what each is for.
#[derive(Clone, Debug)]
pub struct Interfaces {
    uses: Vec<(Interface, PortUse)>,
}

impl Interfaces {
    /// Finds them, and sees to it that packets fit them. From then on the configuration calls each by its own name,
    /// whatever the user called it.
    pub fn find(config: &mut FgpuConfig) -> Result<Self, InterfaceError> {
        let mut found: BTreeMap<String, Interface> = BTreeMap::new();
        let mut given: BTreeMap<String, String> = BTreeMap::new();
        let mut resolve = |names: &mut Vec<String>| {
            for name in names {
                let own = match given.get(name) {
                    Some(own) => own.clone(),
                    None => {
                        let interface = Interface::find(name)?;
                        let own = interface.name.clone();
                        given.insert(name.clone(), own.clone());
                        found.entry(own.clone()).or_insert(interface);
                        own
                    }
                };
                *name = own;
            }
            Ok::<_, InterfaceError>(())
        };
        resolve(&mut config.egress.interfaces)?;
        if let InputConfig::Live { interfaces, .. } = &mut config.input {
            resolve(interfaces)?;
        }
        let mut uses: BTreeMap<&str, PortUse> = BTreeMap::new();
        let egress = &config.egress;
        for name in &egress.interfaces {
            let port = uses.entry(name).or_default();
            if port.tx {
                return Err(InterfaceError::Twice { name: name.clone() });
            }
            port.tx = true;
            port.tx_bytes = egress.buffer / egress.interfaces.len();
            port.chunk_packets = chunk_packets(&config.engine, egress.interfaces.len());
        }
        if let InputConfig::Live {
            interfaces, buffer, ..
        } = &config.input
        {
            for name in interfaces {
                let port = uses.entry(name).or_default();
                port.rx_queues += 1;
                port.rx_bytes = buffer / interfaces.len();
            }
        }
        let check = |(name, port): (&str, PortUse)| {
            let interface = found[name].clone();
            if port.rx_queues > 0 {
                let heap = digitiser::PREAMBLE_LEN + config.engine.recv.heap_bytes();
                interface.check_mtu(heap, "--recv-packet-samples")?;
            }
            if port.tx {
                let packet = spectra::PREAMBLE_LEN + config.engine.send.packet_payload;
                interface.check_mtu(packet, "--send-packet-payload")?;
            }
            Ok::<_, InterfaceError>((interface, port))
        };
        let uses = uses.into_iter().map(check).collect::<Result<_, _>>()?;
        Ok(Self { uses })
    }

    /// PCI devices that DPDK is to drive, with their drivers' options, and whether they need huge pages.
    pub fn devices(&self) -> Result<(Vec<String>, HugePages), PresetError> {
        devices(self.uses.iter().map(|(interface, _)| interface))
    }

    /// Packets that a transmit queue holds, at most.
    fn tx_packets(&self) -> usize {
        let packets = self.uses.iter().map(|(i, port)| port.tx_packets(i));
        packets.max().unwrap_or_default()
    }

    /// Lets the devices of `queues` read output chunks. Returns of how many packets a chunk must be to be read where it is:
    /// smaller ones might all be in a queue whose driver waits for more, and none left to be filled.
    fn let_read(&self, queues: &[TxQueue], pools: &[(String, ExtPool<OutputMemory>)]) -> usize {
        let ports = queues.iter().map(TxQueue::port);
        for port in ports.filter(|port| !port.is_virtual()) {
            for (output, pool) in pools {
                if let Err(error) = port.register(pool) {
                    let port = port.name();
                    tracing::warn!(port, output, %error, "the device cannot read output chunks: packets are copied");
                    return usize::MAX;
                }
            }
        }
        let kept = queues.iter().map(TxQueue::keeps).max().unwrap_or(0);
        let least = kept.div_ceil(OUTPUT_CHUNKS - 1);
        let packets = self.uses.iter().filter(|(_, port)| port.tx);
        let packets = packets.map(|(_, port)| port.chunk_packets).min();
        match packets.unwrap_or(0) {
            _ if least == 0 => {}
            packets if packets < least => tracing::warn!(
                packets,
                least,
                "output chunks are of fewer packets than the device's queue needs: they are copied; raise --send-chunk-jones"
            ),
            packets => tracing::info!(packets, least, "the device reads output chunks in place"),
        }
        least
    }

    /// All memory for packets.
    pub fn demand(&self, config: &FgpuConfig) -> Demand {
        let rings: usize = self.uses.iter().map(|(i, port)| port.ring_bytes(i)).sum();
        let sent = ("--send-buffer", config.egress.buffer);
        let (option, value) = match config.input {
            InputConfig::Live { buffer, .. } if buffer >= sent.1 => ("--recv-buffer", buffer),
            _ => sent,
        };
        Demand {
            what: "packet buffers".to_owned(),
            bytes: (rings as u64).saturating_add((self.memory_mib(config) as u64) << 20),
            option: option.to_owned(),
            value,
        }
    }

    /// Memory for DPDK, in MiB.
    pub fn memory_mib(&self, config: &FgpuConfig) -> usize {
        const MBUF: usize = 512;
        let rx: usize = self.uses.iter().map(|(i, port)| port.mbuf_bytes(i)).sum();
        let tx = config.egress.interfaces.len() * pool_size(self.tx_packets(), 2 * BURST);
        let by_dma = |(i, port): &(Interface, PortUse)| port.tx && i.driver != Driver::AfPacket;
        let copied = match self.uses.iter().any(by_dma) {
            true => config.engine.send.packet_payload,
            false => 0,
        };
        let tx = tx * (TxPools::bytes_per_packet(copied) + 2 * MBUF);
        let capture = match config.input {
            InputConfig::Capture { .. } => capture_mbufs() * (CAPTURE_FRAME + MBUF),
            InputConfig::Live { .. } => 0,
        };
        (DPDK_BYTES + rx + tx + capture).div_ceil(1 << 20)
    }
}

/// What a live engine is made of, beside its configuration.
pub struct LiveParts {
    /// What computes.
    pub compute: Compute,
    /// How control steers it.
    pub steered: Steered,
    /// Receive chunks beside those that it needs: how long it may be held up.
    pub spare_chunks: usize,
}

/// One engine at work.
pub struct LiveEngine {
    stages: Stages,
    threads: Threads,
    memory: Arc<ReceiveMemory>,
    pools: Vec<(String, ExtPool<OutputMemory>)>,
    links: Links,
    capture: Option<Capture>,
    busy: Vec<(String, Arc<AtomicU64>)>,
    /// Whether packets may be under way when the lcores have ended.
    lingers: bool,
    _memberships: Vec<Membership>,
}

/// The lcore that reads a capture.
struct Capture {
    lcore: LcoreHandle<Result<Vec<String>, CaptureError>>,
    stop: Abort,
    /// Of what it does not pass on.
    stats: Arc<RxStats>,
}

impl LiveEngine {
    /// Starts everything, then lets packets in.
    ///
    /// `threads` has an lcore for each of the plan's. On an error some may run already: they are aborted.
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
        let LiveParts {
            compute,
            steered,
            spare_chunks,
        } = parts;
        let (eal, engine) = (threads.eal().clone(), &config.engine);
        let mut ends = Ends::open(&eal, config, interfaces)?;
        let reader = match &config.input {
            InputConfig::Live { .. } => None,
            InputConfig::Capture { path, .. } => Some(CaptureReader::open(path)?),
        };
        let feed = reader.map(|reader| Ok::<_, DpdkError>((reader, ends.add_capture(&eal)?)));
        let feed = feed.transpose()?;

        let (lanes, tail) = (ends.rx.len(), engine.tail_samples());
        let (memory, mut receiver) = receive_memory_with_spare(
            &engine.recv,
            tail,
            lanes,
            &*compute.recv_memory,
            spare_chunks,
        )?;
        let (when_full, names) = match &config.input {
            InputConfig::Live { interfaces, .. } => {
                receiver.leave_behind();
                (WhenFull::Drop, &interfaces[..])
            }
            InputConfig::Capture { .. } => (WhenFull::Wait, &[][..]),
        };
        let through = |name: &String| Steering::from_sources(&config.input.endpoints_of(name), 1);
        let horizons: Vec<_> = (0..lanes)
            .map(|_| Arc::new(ArrayQueue::new(BURST)))
            .collect();
        let rx = ends.rx.into_iter().zip(&horizons).enumerate();
        let rx = rx.map(|(lane, (queue, horizons))| RxStage {
            name: format!("rx{lane}"),
            queue,
            ours: names.get(lane).map(through),
            horizons: horizons.clone(),
        });
        let (intake, pipelines) = (&compute.backend.intake, &compute.backend.pipelines);
        let busy = pipelines.iter().filter_map(|pipeline| pipeline.busy());
        let busy = intake.busy().into_iter().chain(busy).collect();
        let outputs = outputs(
            &eal,
            engine,
            compute.backend.pipelines,
            &*compute.send_memory,
        )?;
        let pools: Vec<_> = outputs
            .iter()
            .map(|o| (o.config.name.clone(), o.pool.clone()))
            .collect();
        let copied_below = interfaces.let_read(&ends.tx, &pools);
        let parts = StageParts {
            prefix: String::new(),
            memory: memory.clone(),
            receiver,
            intake: compute.backend.intake,
            outputs,
            steered,
            rx: rx.collect(),
            when_full,
            tx: ends.tx,
            tx_packets: interfaces.tx_packets(),
            copied_below,
            sources: ends.sources,
            rate_factor: config.egress.rate_factor,
            idle: idle(plan),
        };
        let lingers = parts.tx.iter().any(|queue| queue.keeps() > 0);
        let stages = Stages::start(&mut threads, engine, parts)?;
        let mut memberships = ends.memberships;
        for ((interface, _), membership) in interfaces.uses.iter().zip(&mut memberships) {
            membership.join(&config.input.endpoints_of(&interface.name), interface)?;
        }
        let capture = feed.map(|(reader, (ring, pool))| {
            let (stop, stats) = (Abort::default(), Arc::new(RxStats::default()));
            let source = SourceLcore {
                reader,
                steering: everything(),
                recv: engine.recv.clone(),
                feeds: vec![Feed::new(ring, horizons[0].clone())],
                pool,
                stats: stats.clone(),
                progress: Arc::default(),
                stop: stop.clone(),
                idle: one(&plan.idle(|role| role == Role::Source)),
                abort: threads.abort().clone(),
            };
            let lcore = threads.spawn("capture", move |clock| source.run(clock))?;
            Ok::<_, DpdkError>(Capture { lcore, stop, stats })
        });
        Ok(Self {
            capture: capture.transpose()?,
            busy,
            stages,
            threads,
            memory,
            pools,
            lingers,
            links: Links::new(
                ends.ports
                    .into_iter()
                    .zip(interfaces.uses.iter().map(|(i, _)| i)),
            ),
            _memberships: memberships,
        })
    }

    /// Whether any of its lcores is at work: they end by themselves with a capture, or when one of them fails.
    pub fn is_running(&self) -> bool {
        self.stages.running() > 0
    }

    /// Whether it was aborted, by a stage that failed or from outside.
    pub fn is_aborted(&self) -> bool {
        self.threads.abort().is_set()
    }

    /// Ends its input. What was received is still computed and sent, then stop heaps, then its lcores end.
    pub fn stop(&self) {
        match &self.capture {
            Some(capture) => capture.stop.set(),
            None => self.stages.stop(),
        }
    }

    /// Ends all lcores as they are: nothing more is sent.
    pub fn abort(&self) {
        self.threads.abort().set();
    }

    /// Lcores that have not ended.
    pub fn running(&self) -> usize {
        self.stages.running()
    }

    /// Receive chunks.
    pub fn memory(&self) -> &Arc<ReceiveMemory> {
        &self.memory
    }

    /// Output chunks, by stream.
    pub fn output_pools(&self) -> &[(String, ExtPool<OutputMemory>)] {
        &self.pools
    }

    /// Nanoseconds that devices were busy, by what they did.
    pub fn busy(&self) -> &[(String, Arc<AtomicU64>)] {
        &self.busy
    }

    /// Its ports and their links.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Its lcores' counters.
    pub fn stages(&self) -> &Stages {
        &self.stages
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
        let ended = self.stages.join()?;
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

/// Packets of an output chunk that go through each of `interfaces`, of the output that has the fewest.
fn chunk_packets(engine: &EngineConfig, interfaces: usize) -> usize {
    let packets = |output: &OutputConfig| {
        let substreams = (output.dst.len() / interfaces).max(1);
        let heap = output.heap_bytes().div_ceil(engine.send.packet_payload);
        engine.send.chunk_jones / output.jones_per_batch * substreams * heap
    };
    engine.outputs.iter().map(packets).min().unwrap_or(0)
}

/// What the lcores of the stages do when idle.
fn idle(plan: &EnginePlan) -> StageIdle {
    StageIdle {
        rx: plan.idle(|role| matches!(role, Role::Rx(_))),
        engine: one(&plan.idle(|role| role == Role::Engine)),
        tx: plan.idle(|role| matches!(role, Role::Tx(_))),
    }
}

/// That of the only lcore of its kind.
fn one(idle: &[IdlePolicy]) -> IdlePolicy {
    *idle.first().unwrap_or(&IdlePolicy::Share)
}

/// Where packets come from and go to, before there are stages.
struct Ends {
    rx: Vec<RxQueue>,
    tx: Vec<TxQueue>,
    sources: Vec<Source>,
    ports: Vec<Port>,
    /// One for each interface.
    memberships: Vec<Membership>,
}

impl Ends {
    /// Starts the port of each interface, and puts its queues in the order in which the configuration names it.
    fn open(eal: &Eal, config: &FgpuConfig, interfaces: &Interfaces) -> Result<Self, LiveError> {
        let mut started = BTreeMap::new();
        let (mut ports, mut memberships) = (Vec::new(), Vec::new());
        for (interface, port_use) in &interfaces.uses {
            let steering = config.input.steering_of(&interface.name);
            let port = port_use.open(eal, interface, &steering)?;
            ports.push(port.port);
            memberships.push(port.membership);
            started.insert(
                &interface.name[..],
                (interface, port.mac, port.rx.into_iter(), port.tx),
            );
        }
        let mut ends = Self {
            rx: Vec::new(),
            tx: Vec::new(),
            sources: Vec::new(),
            ports,
            memberships,
        };
        if let InputConfig::Live { interfaces, .. } = &config.input {
            for name in interfaces {
                ends.rx
                    .extend(started.get_mut(&name[..]).and_then(|(.., rx, _)| rx.next()));
            }
        }
        for name in &config.egress.interfaces {
            if let Some((interface, mac, _, tx)) = started.get_mut(&name[..]) {
                ends.tx.append(tx);
                ends.sources.push(Source {
                    mac: *mac,
                    ip: interface.ip,
                    port: SOURCE_PORT,
                });
            }
        }
        Ok(ends)
    }

    /// A receive queue that a capture is put into: the other end, and the mbufs for its frames.
    fn add_capture(&mut self, eal: &Eal) -> Result<(RingSender, MbufPool), DpdkError> {
        let pool = PoolConfig {
            mbufs: capture_mbufs(),
            cache: BURST,
            data_room: CAPTURE_FRAME,
            socket: None,
        };
        let pool = MbufPool::new(eal, "capture_frames", pool)?;
        let (sender, receiver) = mbuf_ring(eal, "capture", CAPTURE_RING)?;
        // DPDK's ring ports have both; nothing is sent.
        let (unused, _) = mbuf_ring(eal, "capture_unused", 1)?;
        let port = Device::rings(eal, "capture", vec![receiver], vec![unused])?;
        let port = port.start(&PortConfig {
            rx_pools: vec![pool.clone()],
            ..PortConfig::default()
        })?;
        self.rx.extend(port.rx);
        Ok((sender, pool))
    }
}

/// Mbufs for the frames of a capture: the ring's, and a burst for either lcore.
fn capture_mbufs() -> usize {
    pool_size(CAPTURE_RING, 2 * BURST)
}

/// All datagrams, whatever their destination: a capture is ours.
fn everything() -> Steering {
    Steering::new(vec![FlowRule {
        dst: Ipv4Addr::UNSPECIFIED..=Ipv4Addr::BROADCAST,
        udp_port: None,
        queue: QueueId(0),
    }])
}
