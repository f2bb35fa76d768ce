//! The lcores of a replay, the engine, and the report.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crossbeam::queue::ArrayQueue;
use dpdk::{
    BURST, Device, DpdkError, Eal, EalConfig, EalError, LcoreHandle, LcorePanic, MbufPool,
    PoolConfig, PortConfig, RingReceiver, mbuf_ring, pool_bytes, pool_size,
};
use dsp::power;
use ground::os::allowed_cpus;
use ground::{IdlePolicy, StopFlag, Timestamp};
use num_complex::Complex32;

use super::observer::SpectraObserver;
use super::plan::ReplayPlan;
use super::progress::ProgressBar;
use super::recorder::RecorderLcore;
use super::requests;
use crate::assembly::{
    BackendKind, BackendRequest, CaptureFeed, CaptureProgress, Compute, ComputeError, Demand,
    DemandError, EngineBuilder, Reception, RunningEngine, RxStage, SourceLcore, StageError, Stages,
    Threads, Transmission, open_backend, stop_on_signal,
};
use crate::cpu::Workers;
use crate::engine::steer::{ControlHandle, EnqueueError, Gains, Published, RequestQueues};
use crate::engine::{ChunkObserver, OutputStats, StatisticsBoard};
use crate::gpu::{KernelChoice, MemoryChoice};
use crate::memory::{BAR_SHARE, MemoryError};
use crate::net::capture::Precision;
use crate::net::{CaptureError, CaptureReader, CaptureWriter, MacAddr};
use crate::recv::{ChunkPatience, EpochHint, InputStats, RxMode, RxStats};
use crate::report::levels::{InputLevels, OutputLevels};
use crate::report::spectra::SpectraAccumulator;
use crate::report::{InputReport, OutputReport, RateReport, Reply, RunReport};
use crate::send::{SourceAddress, TxPools};

/// Packets that each rx ring holds: a power of two less one.
const RX_RING: usize = 511;
/// Packets that the tx ring holds: a power of two less one.
const TX_RING: usize = 1023;
/// Largest frame that fits an mbuf; larger ones exceed what receivers of this protocol take.
const FRAME_ROOM: usize = 9600;
/// A replay shares its cores: data threads nap when idle.
const IDLE: IdlePolicy = IdlePolicy::Share;
/// Where the packets of a replay say that they come from: a locally administered MAC address and an
/// address reserved for documentation.
const SOURCE: SourceAddress = SourceAddress {
    mac: MacAddr([0x02, 0x4b, 0x41, 0x52, 0x4f, 0x4f]),
    ip: std::net::Ipv4Addr::new(192, 0, 2, 1),
    port: 49152,
};

/// What to replay, and how.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// Capture to read.
    pub capture: PathBuf,
    /// Capture to write.
    pub output: PathBuf,
    /// What computes.
    pub backend: BackendKind,
    /// The kernels that compute on a GPU.
    pub kernels: KernelChoice,
    /// Where receive chunks are if a GPU computes.
    pub memory: MemoryChoice,
    /// Compute threads of the CPU backend; `None`: one per CPU.
    pub workers: Option<usize>,
    /// Draw a progress bar on standard error if that is a terminal.
    pub progress: bool,
}

/// Why a replay failed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// Reading or writing a capture.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// DPDK did not start.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// DPDK refused something.
    #[error(transparent)]
    Dpdk(#[from] DpdkError),
    /// The options ask for more memory than there is.
    #[error(transparent)]
    Demand(#[from] DemandError),
    /// Not enough memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// What should compute.
    #[error(transparent)]
    Compute(#[from] ComputeError),
    /// A stage failed.
    #[error("{0}; no output was written")]
    Stage(#[from] StageError),
    /// A request was not queued.
    #[error(transparent)]
    Steer(#[from] EnqueueError),
    /// The source or the recorder failed.
    #[error(transparent)]
    Lcore(#[from] LcorePanic),
    /// The user, or the system, asked it to stop.
    #[error("interrupted: no output was written")]
    Interrupted,
}

/// The pictures' data, per output.
pub type OutputSpectra = Vec<(String, SpectraAccumulator)>;

/// What an observer gathers.
type SharedSpectra = Arc<Mutex<SpectraAccumulator>>;

/// Runs a plan to its end and writes the output capture.
pub fn run(
    plan: &ReplayPlan,
    options: &ReplayOptions,
) -> Result<(RunReport, OutputSpectra), ReplayError> {
    let cpus = allowed_cpus();
    let workers = options.workers.unwrap_or(cpus.len());
    Demand::check(Demand::of(&plan.engine, 0, workers))?;
    let cores: Vec<usize> = (0..workers).map(|i| cpus[i % cpus.len()]).collect();
    let engines = std::slice::from_ref(&plan.engine);
    let wanted = BackendRequest {
        backend: options.backend,
        gpu: None,
        memory: options.memory,
        bar_share: BAR_SHARE,
        spare_chunks: 0,
        kernels: options.kernels.clone(),
        live: false,
    };
    let opened = open_backend(&wanted, engines, || Workers::pinned(&cores))?;
    let reader = CaptureReader::open(&options.capture)?;
    let abort = StopFlag::default();
    let create = || CaptureWriter::create(&options.output, Precision::Nanoseconds);
    let writer = match CaptureWriter::part_of(&options.output) {
        Some(part) => {
            stop_on_signal(&abort, Some(part));
            create()?
        }
        None => {
            // A pipe waits for its reader, and until that comes a signal ends the process.
            let writer = create()?;
            stop_on_signal(&abort, None);
            writer
        }
    };
    // The stages', the source and the recorder.
    let lcores = Stages::lcore_count(plan.queues.len(), 1) + 2;
    let eal = Eal::init(&EalConfig {
        worker_cpus: (0..lcores).map(|i| cpus[i % cpus.len()]).collect(),
        memory_mib: memory_mib(plan.queues.len()),
        ..EalConfig::default()
    })?;
    let mut engines = opened.engines;
    let compute = engines.swap_remove(0);
    let threads = Threads::new(&eal, abort.clone());
    let spectra = plan.engine.outputs.iter().map(SpectraObserver::new);
    let (observers, spectra): (Vec<_>, Vec<_>) = spectra.unzip();
    let parts = ReplayParts {
        reader,
        writer,
        compute,
        observers,
    };
    let run = Replay::start(plan, threads, parts).inspect_err(|_| abort.set());
    let mut report = run?.finish(plan, options, &spectra)?;
    report.chosen.extend(opened.chosen);
    let spectra = plan
        .engine
        .outputs
        .iter()
        .zip(spectra)
        .map(|(output, spectra)| {
            let spectra = ground::lock(&spectra).clone();
            (output.name.clone(), spectra)
        })
        .collect();
    Ok((report, spectra))
}

/// Mbufs that frames may be in: all rx rings, and a burst per rx lcore and the source's batches.
fn frame_mbufs(queues: usize) -> usize {
    pool_size(queues * RX_RING, queues * 2 * BURST)
}

fn memory_mib(queues: usize) -> usize {
    let frames = pool_bytes(frame_mbufs(queues), FRAME_ROOM);
    dpdk::memory_mib(frames + TxPools::bytes(TX_RING, 2 * BURST, 0))
}

/// Asks for the initial delays and gains and for what the requests say. Returns the engine's end
/// and the replies.
fn steer(plan: &ReplayPlan) -> Result<(RequestQueues, Vec<Reply>), EnqueueError> {
    let room = plan.delays.len() + plan.gains.len() + plan.requests.len();
    let (steering, steered) = ControlHandle::new(&plan.engine, room);
    for given in &plan.delays {
        if let Some(output) = steering.output(&given.stream) {
            output.set_delays(given.models)?;
        }
    }
    for (output, measured) in steering.outputs().iter().zip(&plan.gains) {
        let gains = measured.gains.each_ref().map(|gains| {
            let gains = gains.iter().map(|&gain| Complex32::from(gain));
            // As many as channels, and finite.
            Gains::new(output.channels(), &gains.collect::<Vec<_>>()).ok()
        });
        output.change_gains(gains)?;
    }
    let replies = plan.requests.ask(plan.engine.clock, &steering);
    Ok((steered, replies))
}

/// A replay under way.
struct Replay {
    threads: Threads,
    running: RunningEngine,
    /// Of what was not steered to an rx lcore.
    source_stats: Arc<RxStats>,
    progress: Arc<CaptureProgress>,
    capture_bytes: u64,
    source: LcoreHandle<Result<Vec<String>, CaptureError>>,
    recorder: LcoreHandle<Result<bool, CaptureError>>,
    /// To the requests.
    replies: Vec<Reply>,
    published: Arc<Published>,
    started: Instant,
}

/// What a replay is made of, beside its plan.
struct ReplayParts {
    reader: CaptureReader,
    writer: CaptureWriter,
    compute: Compute,
    observers: Vec<SpectraObserver>,
}

/// The port of a replay: what the source puts into rx rings is received, what is transmitted is
/// recorded.
struct RingPort {
    frames: MbufPool,
    feeds: Vec<CaptureFeed>,
    reception: Reception,
    transmission: Transmission,
    recorded: RingReceiver,
}

impl RingPort {
    /// Opens the port, with an rx queue for each of the plan's.
    fn open(eal: &Eal, plan: &ReplayPlan) -> Result<Self, DpdkError> {
        let queues = plan.queues.len();
        let pool = PoolConfig {
            mbufs: frame_mbufs(queues),
            cache: BURST,
            data_room: FRAME_ROOM,
            socket: None,
        };
        let frames = MbufPool::new(eal, "replay_frames", pool)?;
        frames.check_size(queues * RX_RING, queues * 2 * BURST)?;
        let (mut feeds, mut rx_ends, mut watermarks) = (Vec::new(), Vec::new(), Vec::new());
        for queue in 0..queues {
            let (sender, receiver) = mbuf_ring(eal, &format!("replay_rx{queue}"), RX_RING)?;
            let watermark = Arc::new(ArrayQueue::new(BURST));
            feeds.push(CaptureFeed::new(sender, watermark.clone()));
            rx_ends.push(receiver);
            watermarks.push(watermark);
        }
        let (tx_end, recorded) = mbuf_ring(eal, "replay_tx", TX_RING)?;
        let port = Device::rings(eal, "replay", rx_ends, vec![tx_end])?;
        let port = port.start(&PortConfig {
            rx_pools: vec![frames.clone(); queues],
            ..PortConfig::default()
        })?;
        let rx = port.rx.into_iter().zip(watermarks).zip(&plan.queues);
        let rx = rx.map(|((queue, watermarks), (pol, number))| RxStage {
            name: format!("rx-pol{pol}.{number}"),
            port: "capture".to_owned(),
            queue,
            ours: None,
            watermarks,
        });
        Ok(Self {
            frames,
            feeds,
            reception: Reception {
                queues: rx.collect(),
                mode: RxMode::Replay,
                epoch: EpochHint::Near(plan.first_timestamp),
                spare_chunks: 0,
                patience: ChunkPatience::NONE,
            },
            transmission: Transmission {
                queues: port.tx,
                queue_packets: TX_RING,
                sources: vec![SOURCE],
                rate_factor: 0.0,
            },
            recorded,
        })
    }
}

impl Replay {
    fn start(
        plan: &ReplayPlan,
        mut threads: Threads,
        parts: ReplayParts,
    ) -> Result<Self, ReplayError> {
        let config = &plan.engine;
        let (eal, abort) = (threads.eal().clone(), threads.abort().clone());
        let (steered, replies) = steer(plan)?;
        let published = steered.published.clone();
        published.statistics().keep_totals();
        let port = RingPort::open(&eal, plan)?;
        let observers = parts.observers.into_iter();
        let observers = observers.map(|observer| Box::new(observer) as Box<dyn ChunkObserver>);
        let built = EngineBuilder::new(config, parts.compute, port.reception, port.transmission)
            .steered(steered)
            .idle(IDLE)
            .observers(observers.collect())
            .keep_delays()
            .build(&eal)?;
        let started = Instant::now();
        let running = built.start(&mut threads)?;
        let recorder = RecorderLcore {
            ring: port.recorded,
            writer: parts.writer,
            clock: config.clock,
            start: plan.first_timestamp,
            sending: running.stages.sending().clone(),
            idle: IDLE,
            abort: abort.clone(),
        };
        let recorder = threads.spawn("recorder", move |timer| recorder.run(timer))?;

        let progress = Arc::new(CaptureProgress::default());
        let (_, capture_bytes) = parts.reader.progress();
        let source_stats = Arc::new(RxStats::default());
        let source = SourceLcore {
            reader: parts.reader,
            steering: plan.steering.clone(),
            recv: config.recv.clone(),
            first: plan.first_timestamp,
            feeds: port.feeds,
            pool: port.frames,
            stats: source_stats.clone(),
            progress: progress.clone(),
            stop: StopFlag::default(),
            idle: IDLE,
            abort,
        };
        let source = threads.spawn("source", move |timer| source.run(timer))?;
        Ok(Self {
            threads,
            running,
            source_stats,
            progress,
            capture_bytes,
            source,
            recorder,
            replies,
            published,
            started,
        })
    }

    /// Waits for the end, and reports.
    fn finish(
        self,
        plan: &ReplayPlan,
        options: &ReplayOptions,
        spectra: &[SharedSpectra],
    ) -> Result<RunReport, ReplayError> {
        let bar = options
            .progress
            .then(|| ProgressBar::show(&self.progress, self.capture_bytes));
        let input = self.running.stages.input_stats().clone();
        let outputs = self.running.stages.output_stats().to_vec();
        let mut drops = self.running.stages.rx_stats().to_vec();
        drops.push(self.source_stats);
        let source = self.source.join();
        let ended = self.running.stages.join();
        let recorder = self.recorder.join();
        drop(bar);
        let engine = ended?.engine;
        let notes = source??;
        let complete = recorder??;
        if !complete {
            return Err(ReplayError::Interrupted);
        }
        let seconds = self.started.elapsed().as_secs_f64();

        let datagrams = self.progress.frames.load(Ordering::Relaxed);
        let mut input = input_report(datagrams, &input, &drops);
        let (sums, measured) = outputs[0].power(&plan.engine.outputs[0]);
        for (pol, sum) in input.pols.iter_mut().zip(sums) {
            let dbfs = power::dbfs(sum, measured, plan.engine.recv.sample_bits);
            pol.power_dbfs = (measured > 0).then_some(dbfs);
        }
        let samples = input.pols.iter().map(|pol| pol.samples).max().unwrap_or(0);
        let samples_per_second = samples as f64 / seconds;
        let mut lcores = self.threads.reports();
        lcores.extend(engine.thread_reports());
        let requests = (!plan.requests.is_empty()).then(|| {
            let clock = self.threads.eal().tsc_clock();
            let end = output_end(plan, &outputs);
            requests::report(self.replies, &engine.request_stats(), end, clock)
        });
        let expected = engine.expected_batches();
        let reports = outputs.iter().zip(&plan.engine.outputs).zip(expected);
        let reports = reports.map(|((stats, output), expected)| {
            OutputReport::new(stats.counts(), expected.unwrap_or(0), output.dst.len())
        });
        let statistics = self.published.statistics();
        tracing::debug!(bytes = self.running.memory.bytes(), "receive memory");
        Ok(RunReport {
            karoo: ground::karoo_version().to_owned(),
            capture: options.capture.display().to_string(),
            capture_notes: notes,
            config: plan.engine.clone(),
            chosen: plan.chosen.clone(),
            gains: plan.gains.clone(),
            backend: engine.backend(),
            input,
            outputs: reports.collect(),
            input_levels: statistics.input_total().map(|of| InputLevels::of(&of)),
            levels: output_levels(plan, statistics, spectra),
            requests,
            rate: RateReport {
                seconds,
                samples_per_second,
                input_gbps: self.capture_bytes as f64 * 8e-9 / seconds,
                realtime: samples_per_second / plan.engine.clock.adc_sample_rate,
            },
            lcores,
        })
    }
}

/// What rx lcores counted of a capture's datagrams.
fn input_report(datagrams: u64, input: &InputStats, drops: &[Arc<RxStats>]) -> InputReport {
    let mut causes = BTreeMap::new();
    for stats in drops {
        stats.add_drops(&mut causes);
    }
    let metadata = drops.iter().map(|stats| stats.metadata()).sum();
    let span = input.span();
    InputReport {
        datagrams,
        drops: causes,
        metadata,
        chunks: input.chunks(),
        first_timestamp: input.first_timestamp(),
        span: (!span.is_empty()).then_some([span.start, span.end]),
        pols: input.pols(),
    }
}

/// Where the last batch of all outputs ends; `None` if none was made.
fn output_end(plan: &ReplayPlan, outputs: &[Arc<OutputStats>]) -> Option<Timestamp> {
    let outputs = outputs.iter().zip(&plan.engine.outputs);
    let ends = outputs.filter_map(|(stats, output)| {
        let last = stats.counts().last_timestamp?;
        Some(Timestamp(last + output.batch_samples() as u64))
    });
    ends.max()
}

/// Levels of those outputs of which statistics tell them.
fn output_levels(
    plan: &ReplayPlan,
    statistics: &StatisticsBoard,
    spectra: &[SharedSpectra],
) -> Vec<OutputLevels> {
    let outputs = plan.engine.outputs.iter().zip(spectra).enumerate();
    let levels = outputs.filter_map(|(index, (output, spectra))| {
        let total = statistics.output_total(index)?;
        let spectra = ground::lock(spectra);
        OutputLevels::of(output, &total, &spectra)
    });
    levels.collect()
}
