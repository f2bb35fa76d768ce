//! The bench assembled: generators, engines and sinks, and the rings between them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam::queue::ArrayQueue;
use dpdk::{
    BURST, Device, Eal, LcoreHandle, MbufPool, PoolConfig, Port, PortConfig, RingReceiver, TxQueue,
    mbuf_ring, memory_mib, pool_bytes, pool_size,
};
use ground::StopFlag;
use katcp::Sensors;
use spead::digitiser::PREAMBLE_LEN;

use super::BenchError;
use super::counts::BenchCounts;
use super::generator::{
    FeedStats, GeneratorFeed, GeneratorLcore, GeneratorPace, HEADER_BYTES, Stamps, prepare,
};
use super::options::BenchOptions;
use super::signal::BenchSignal;
use super::sink::{BenchSinkLcore, MeasuredSpan, SinkFindings, SinkStats, Sinks, Stream};
use super::watched::ShownEngine;
use crate::assembly::{
    Compute, EngineBuilder, Reception, RunningEngine, RxStage, Threads, Transmission,
};
use crate::config::EngineConfig;
use crate::engine::Engine;
use crate::engine::steer::{ControlHandle, Published, REQUESTS};
use crate::losses::{Counters, LossRecord};
use crate::metrics::{EngineMetrics, EngineState};
use crate::net::frame::HEADERS_LEN;
use crate::net::{HeaderTemplate, MacAddr};
use crate::page::{EnginePageParts, EngineSeen};
use crate::ports::Links;
use crate::recv::{ChunkPatience, EpochHint, RxMode};
use crate::send::{SourceAddress, TxPools};

/// How long packets and chunks under way may take to come through at the end.
const DRAIN: Duration = Duration::from_secs(10);
/// Where packets say that they come from: a locally administered MAC address and addresses reserved
/// for documentation.
const SOURCE: SourceAddress = SourceAddress {
    mac: MacAddr([0x02, 0x4b, 0x41, 0x52, 0x4f, 0x4f]),
    ip: std::net::Ipv4Addr::new(192, 0, 2, 1),
    port: 49152,
};
const DIGITISER: &str = "192.0.2.2:49152";
const DIGITISER_GROUP: &str = "239.102.0.64:7148";

/// What the bench has running for one engine.
struct Running {
    engine: RunningEngine,
    /// Its ends that control would have, and its port: for those who look.
    steering: ControlHandle,
    published: Arc<Published>,
    links: Links,
    feeds: Vec<Arc<FeedStats>>,
    sinks: Vec<Arc<SinkStats>>,
}

impl Running {
    /// What is to be seen of the engine with this number.
    fn shown(&self, number: usize, config: &EngineConfig, rig: &Rig) -> ShownEngine {
        let (engine, links) = (&self.engine, &self.links);
        let counters = || Counters::of(config, engine, None, links);
        let losses = Arc::<LossRecord>::default();
        let state = EngineState {
            backend: "",
            gpu: String::new(),
            energy: Arc::default(),
            published: self.published.clone(),
            sensors: Sensors::default(),
            losses: losses.clone(),
        };
        let seen = EngineSeen {
            losses,
            published: self.published.clone(),
            steering: self.steering.clone(),
            record: Arc::default(),
        };
        let (name, threads) = (
            format!("engine {number} of karoo bench engine"),
            &rig.threads,
        );
        ShownEngine {
            metrics: EngineMetrics::of(config, engine, None, links, threads, state),
            counters: counters(),
            parts: EnginePageParts::of(name, config, engine, counters(), links, threads, seen),
        }
    }

    fn counts(&self) -> BenchCounts {
        let mut counts = BenchCounts::default();
        for feed in &self.feeds {
            counts.offered += feed.offered.load(Ordering::Relaxed);
            counts.ring_full += feed.ring_full.load(Ordering::Relaxed);
            counts.no_buffer += feed.no_buffer.load(Ordering::Relaxed);
        }
        for rx in self.engine.stages.rx_stats() {
            counts.placed += rx.placed();
            rx.add_drops(&mut counts.drops);
        }
        for output in self.engine.stages.output_stats() {
            counts.heaps_sent += output.counts().heaps;
            counts.heaps_skipped += output.skipped_heaps();
        }
        for sink in &self.sinks {
            counts.heaps_received += sink.heaps.load(Ordering::Relaxed);
            counts.batches_missing += sink.missing_batches.load(Ordering::Relaxed);
            counts.wrong_packets += sink.wrong.load(Ordering::Relaxed);
        }
        counts
    }
}

/// The bench at work.
pub struct Rig {
    pub threads: Threads,
    pub pace: Arc<GeneratorPace>,
    pub window: Arc<MeasuredSpan>,
    pub signal: Arc<BenchSignal>,
    pub memory: String,
    engines: Vec<Running>,
    generators: Vec<LcoreHandle<()>>,
    sinks: Vec<LcoreHandle<Vec<SinkFindings>>>,
}

/// What is left when it has ended.
pub struct Remains {
    /// Engines, for their reports.
    pub engines: Vec<Engine>,
    /// What the sinks found.
    pub found: Vec<SinkFindings>,
    /// Counts of the whole run, per engine.
    pub counts: Vec<BenchCounts>,
}

impl Rig {
    /// Memory for DPDK.
    pub fn memory_mib(options: &BenchOptions, configs: &[EngineConfig]) -> usize {
        let frame = HEADER_BYTES + configs[0].recv.heap_bytes();
        let rx = options.rx_queues * pool_bytes(feed_mbufs(options), frame);
        let tx = options.tx_queues * TxPools::bytes(options.tx_descriptors, 2 * BURST, 0);
        memory_mib(options.engines * (rx + tx))
    }

    /// Starts everything; nothing is sent yet.
    pub fn start(
        eal: &Eal,
        options: &BenchOptions,
        configs: &[EngineConfig],
        compute: Vec<Compute>,
        abort: &StopFlag,
    ) -> Result<Self, BenchError> {
        let mut threads = Threads::new(eal, abort.clone());
        let idle = options.idle();
        let mut around = Around {
            eal,
            options,
            signal: Arc::new(BenchSignal::new(&configs[0].recv, options.rx_queues)),
            window: Arc::new(MeasuredSpan::default()),
            feeds: deal(options.generators),
            streams: deal(options.sinks),
        };
        let (mut engines, mut memory) = (Vec::new(), String::new());
        for (number, (config, compute)) in configs.iter().zip(compute).enumerate() {
            let (engine, kind) = around.engine(number, config, compute, &mut threads)?;
            memory = kind;
            engines.push(engine);
            tracing::debug!(number, "an engine was started");
        }
        let pace = Arc::new(GeneratorPace::default());
        let sending = engines.iter();
        let sending = sending.map(|of: &Running| of.engine.stages.sending().clone());
        let sending: Vec<_> = sending.collect();
        let (signal, window) = (around.signal, around.window);
        let mut generators = Vec::new();
        for (number, feeds) in around.feeds.into_iter().enumerate() {
            let generator = GeneratorLcore {
                feeds,
                signal: signal.clone(),
                pace: pace.clone(),
                idle,
                abort: abort.clone(),
            };
            let name = format!("generator{number}");
            generators.push(threads.spawn(&name, move |timer| generator.run(timer))?);
        }
        let mut sinks = Vec::new();
        for (number, streams) in around.streams.into_iter().enumerate() {
            let sink = BenchSinkLcore {
                streams,
                sending: sending.clone(),
                idle,
                abort: abort.clone(),
            };
            let name = format!("sink{number}");
            sinks.push(threads.spawn(&name, move |timer| sink.run(timer))?);
        }
        Ok(Self {
            threads,
            pace,
            window,
            signal,
            memory,
            engines,
            generators,
            sinks,
        })
    }

    /// What is to be seen of each engine.
    pub fn shown(&self, configs: &[EngineConfig]) -> Vec<ShownEngine> {
        let engines = self.engines.iter().zip(configs).enumerate();
        let shown = engines.map(|(number, (running, config))| running.shown(number, config, self));
        shown.collect()
    }

    /// What happened so far, per engine.
    pub fn counts(&self) -> Vec<BenchCounts> {
        self.engines.iter().map(Running::counts).collect()
    }

    /// Heaps placed by each rx lcore so far, all engines.
    pub fn placed(&self) -> Vec<u64> {
        let stats = self.engines.iter();
        let stats = stats.flat_map(|of| of.engine.stages.rx_stats());
        stats.map(|stats| stats.placed()).collect()
    }

    /// Nanoseconds so far that devices were busy, by name, engine after engine.
    pub fn devices(&self) -> Vec<(String, u64)> {
        let devices = self.engines.iter().flat_map(|of| &of.engine.busy);
        devices
            .map(|(name, busy)| (name.clone(), busy.load(Ordering::Relaxed)))
            .collect()
    }

    /// The number of the next packet of the queue that is ahead of all others.
    pub fn next_packet(&self) -> u64 {
        let feeds = self.engines.iter().flat_map(|engine| &engine.feeds);
        let next = feeds.map(|feed| feed.next.load(Ordering::Relaxed));
        next.max().unwrap_or(0)
    }

    /// Ends the generators, lets everything under way come through, and ends the rest.
    pub fn drain(self) -> Result<Remains, BenchError> {
        let abort = self.threads.abort().clone();
        let deadline = Instant::now() + DRAIN;
        self.pace.stop();
        let generators: Vec<_> = self.generators.into_iter().map(LcoreHandle::join).collect();
        let wait = |done: &dyn Fn() -> bool| {
            while !done() && !abort.is_set() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        wait(&|| {
            let handed = |c: &BenchCounts| c.offered - c.ring_full - c.no_buffer;
            let seen = |c: &BenchCounts| c.placed + c.drops.values().sum::<u64>();
            self.engines
                .iter()
                .map(Running::counts)
                .all(|counts| seen(&counts) >= handed(&counts))
        });
        for running in &self.engines {
            running.engine.stages.stop();
        }
        let at_work = |running: &Running| running.engine.stages.running() > 0;
        wait(&|| !self.engines.iter().any(at_work));
        let late = self.engines.iter().any(at_work);
        if late {
            abort.set();
        }
        let aborted = abort.is_set();
        let sinks: Vec<_> = self.sinks.into_iter().map(LcoreHandle::join).collect();
        let mut remains = Remains {
            engines: Vec::new(),
            found: Vec::new(),
            counts: Vec::new(),
        };
        let mut outcomes = Vec::new();
        for running in self.engines {
            remains.counts.push(running.counts());
            outcomes.push(running.engine.stages.join());
        }
        for outcome in outcomes {
            remains.engines.push(outcome?.engine);
        }
        generators.into_iter().collect::<Result<(), _>>()?;
        for found in sinks {
            remains.found.extend(found?);
        }
        match (late, aborted) {
            (true, _) => Err(BenchError::Stuck(DRAIN.as_secs())),
            (false, true) => Err(BenchError::Interrupted),
            (false, false) => Ok(remains),
        }
    }
}

/// What is around the engines: generators' feeds before them, sinks' streams behind them.
struct Around<'a> {
    eal: &'a Eal,
    options: &'a BenchOptions,
    signal: Arc<BenchSignal>,
    window: Arc<MeasuredSpan>,
    /// By generator.
    feeds: Vec<Vec<GeneratorFeed>>,
    /// By sink.
    streams: Vec<Vec<Stream>>,
}

/// The ports of one engine, and the counters of what is at their other ends.
struct Ports {
    port: Port,
    rx: Vec<RxStage>,
    tx: Vec<TxQueue>,
    feeds: Vec<Arc<FeedStats>>,
    sinks: Vec<Arc<SinkStats>>,
}

impl Around<'_> {
    /// Starts the engine `number` between its feeds and streams. Tells the kind of its receive
    /// memory, too.
    fn engine(
        &mut self,
        number: usize,
        config: &EngineConfig,
        compute: Compute,
        threads: &mut Threads,
    ) -> Result<(Running, String), BenchError> {
        let ports = self.ports(number, config)?;
        let reception = Reception {
            queues: ports.rx,
            mode: RxMode::Live,
            epoch: EpochHint::WireValue,
            spare_chunks: self.options.spare_chunks(),
            // What an engine loses is measured, not what its queues hold back.
            patience: ChunkPatience::NONE,
        };
        let transmission = Transmission {
            queues: ports.tx,
            queue_packets: self.options.tx_descriptors,
            sources: vec![SOURCE],
            rate_factor: 0.0,
        };
        let prefix = match self.options.engines {
            1 => String::new(),
            _ => prefix(number),
        };
        let (steering, steered) = ControlHandle::new(config, REQUESTS);
        let published = steered.published.clone();
        let engine = EngineBuilder::new(config, compute, reception, transmission)
            .steered(steered)
            .prefix(prefix)
            .idle(self.options.engine_idle())
            .build(self.eal)?
            .start(threads)?;
        let kind = engine.memory.kind().to_string();
        let running = Running {
            engine,
            steering,
            published,
            links: Links::without_interfaces([ports.port]),
            feeds: ports.feeds,
            sinks: ports.sinks,
        };
        Ok((running, kind))
    }

    /// Puts feeds and streams around the engine `number`.
    fn ports(&mut self, number: usize, config: &EngineConfig) -> Result<Ports, BenchError> {
        let stamps = Arc::new(Stamps::new());
        let (mut rx_ends, mut pools, mut feeds) = (Vec::new(), Vec::new(), Vec::new());
        for queue in 0..self.options.rx_queues {
            let (receiver, feed) = self.feed(number, queue, config, &stamps)?;
            rx_ends.push(receiver);
            pools.push(feed.pool.clone());
            feeds.push(feed.stats.clone());
            let turn = (number * self.options.rx_queues + queue) % self.feeds.len();
            self.feeds[turn].push(feed);
        }
        let (mut tx_ends, mut sinks) = (Vec::new(), Vec::new());
        for queue in 0..self.options.tx_queues {
            let name = format!("{}tx{queue}", prefix(number));
            let (sender, ring) = mbuf_ring(self.eal, &name, self.options.tx_descriptors)?;
            let common = Sinks {
                window: self.window.clone(),
                slots: self.options.latency_slots(),
                signal: self.signal.clone(),
                stamps: stamps.clone(),
                tsc: self.eal.tsc_clock(),
            };
            let share = (queue, self.options.tx_queues);
            let stream = Stream::new(config, number, share, ring, &common);
            tx_ends.push(sender);
            sinks.push(stream.stats().clone());
            let turn = (number * self.options.tx_queues + queue) % self.streams.len();
            self.streams[turn].push(stream);
        }
        let port = Device::rings(self.eal, &format!("bench{number}"), rx_ends, tx_ends)?;
        let port = port.start(&PortConfig {
            rx_pools: pools,
            tx_queues: self.options.tx_queues,
            ..PortConfig::default()
        })?;
        let rx = port.rx.into_iter().enumerate().map(|(queue, rx)| RxStage {
            name: format!("rx{queue}"),
            port: format!("bench{number}"),
            queue: rx,
            ours: None,
            watermarks: Arc::new(ArrayQueue::new(1)),
        });
        Ok(Ports {
            port: port.port,
            rx: rx.collect(),
            tx: port.tx,
            feeds,
            sinks,
        })
    }

    /// The feed of one rx queue, and the end of its ring that the engine receives from.
    fn feed(
        &self,
        number: usize,
        queue: usize,
        config: &EngineConfig,
        stamps: &Arc<Stamps>,
    ) -> Result<(RingReceiver, GeneratorFeed), BenchError> {
        let name = format!("{}rx{queue}", prefix(number));
        let (ring, receiver) = mbuf_ring(self.eal, &name, self.options.rx_descriptors())?;
        let heap_bytes = config.recv.heap_bytes();
        let pool = PoolConfig {
            mbufs: feed_mbufs(self.options),
            cache: BURST,
            data_room: HEADER_BYTES + heap_bytes,
            socket: None,
        };
        let pool = MbufPool::new(self.eal, &name, pool)?;
        prepare(&pool, self.signal.prepared(queue));
        let feed = GeneratorFeed {
            queue: queue as u64,
            queues: self.options.rx_queues as u64,
            ring,
            pool,
            headers: headers(heap_bytes),
            heap_bytes,
            stats: Arc::new(FeedStats::default()),
            stamps: stamps.clone(),
        };
        Ok((receiver, feed))
    }
}

/// What is in front of the names of an engine's lcores, pools and rings.
fn prefix(number: usize) -> String {
    format!("e{number}-")
}

/// Empty hands to deal to.
fn deal<T>(hands: usize) -> Vec<Vec<T>> {
    (0..hands).map(|_| Vec::new()).collect()
}

/// Buffers of one rx queue: the ring's, a burst on either side, and what the caches of the lcores
/// hold.
fn feed_mbufs(options: &BenchOptions) -> usize {
    pool_size(options.rx_descriptors(), 4 * BURST)
}

/// Ethernet, IPv4 and UDP headers of a digitiser's packets.
fn headers(heap_bytes: usize) -> [u8; HEADERS_LEN] {
    let endpoint = |text: &str| text.parse().expect("a constant endpoint");
    let mac = MacAddr([0x02, 0x44, 0x49, 0x47, 0x49, 0x54]);
    let (src, dst) = (endpoint(DIGITISER), endpoint(DIGITISER_GROUP));
    let template = HeaderTemplate::multicast(mac, src, dst, 4).expect("a constant group");
    let mut headers = [0; HEADERS_LEN];
    template.emit(PREAMBLE_LEN + heap_bytes, &mut headers);
    headers
}
