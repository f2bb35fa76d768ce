//! One run of a live engine: from opening what computes to the last stop heap.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dpdk::{Eal, EalConfig};
use ground::StopFlag;
use ground::os::{allowed_cpus, prefer_node, run_on};
use host::placement::{EnginePlan, HostPlan, Lcore};
use katcp::{ReservedAddress, SensorInfo, Sensors, ValueType};

use super::FgpuArgs;
use crate::assembly::{
    BackendRequest, Compute, EnergyMeter, StageError, Threads, drain, open_backend,
};
use crate::cli::Failure;
use crate::cli::frame::StopReason;
use crate::cli::losses::Losses;
use crate::cli::serve::Serving;
use crate::cli::service::{self, Service};
use crate::config::{Decision, FgpuConfig};
use crate::control;
use crate::control::fgpu::{AppliedLog, EngineControl, RequestRecord};
use crate::cpu::Workers;
use crate::engine::steer::{ControlHandle, REQUESTS};
use crate::fgpu::{Interfaces, LiveEngine, LiveError, LiveParts};
use crate::gpu::{MemoryChoice, Tune};
use crate::losses::{Counters, LevelSource, LossRecord};
use crate::memory::BAR_SHARE;
use crate::metrics::{EngineMetrics, EngineState, site};
use crate::page::{EnginePage, EnginePageParts, EngineSeen};

/// Between two looks at the ports' links: for so long one that goes down may hold up the others.
const LINKS: Duration = Duration::from_millis(100);
/// Between two readings of energy: at 300 W a counter wraps after a quarter of an hour.
const ENERGY: Duration = Duration::from_secs(60);

/// An engine whose configuration and placement are settled.
pub(in crate::cli) struct Launch<'a> {
    pub args: &'a FgpuArgs,
    pub config: &'a FgpuConfig,
    pub interfaces: &'a Interfaces,
    pub plan: &'a HostPlan,
    pub placement: &'a EnginePlan,
    pub number: usize,
    pub spare_chunks: usize,
}

impl Launch<'_> {
    /// Runs the engine from its start to its last stop heap.
    pub fn run(&self, mut serving: Serving, katcp: ReservedAddress) -> Result<(), Failure> {
        tracing::info!(version = ground::karoo_version(), "starting");
        let (compute, eal) = match self.prepare(&serving)? {
            Ok(prepared) => prepared,
            Err(why) => {
                ended_early(serving, &why);
                return Ok(());
            }
        };
        let config = self.config;
        let constants = constants(&compute);
        let gpu = compute.gpu.clone();
        let energy = EnergyMeter::open(gpu.as_ref().map(|gpu| &*gpu.address));
        let energy = Arc::new(energy);
        let (steering, steered) = ControlHandle::new(&config.engine, REQUESTS);
        let published = steered.published.clone();
        let log = AppliedLog::new(&config.engine);
        let threads = Threads::new(&eal, StopFlag::default());
        let parts = LiveParts {
            compute,
            steered,
            spare_chunks: self.spare_chunks,
            observers: Vec::new(),
        };
        let engine = LiveEngine::start(config, self.interfaces, threads, parts, self.placement);
        let engine = engine.map_err(failure)?;
        let record = Arc::<RequestRecord>::default();
        let lost = Arc::<LossRecord>::default();
        let seen = EngineSeen {
            losses: lost.clone(),
            published: published.clone(),
            steering: steering.clone(),
            record: record.clone(),
        };
        let page = self.page(&engine, seen);
        let period = self.args.karoo_sensors_period;
        let period = (period > 0).then(|| Duration::from_secs(period.into()));
        let sensors = Sensors::paced("karoo.", period);
        let state = EngineState {
            backend: if gpu.is_some() { "cuda" } else { "cpu" },
            gpu: gpu.map(|gpu| gpu.to_string()).unwrap_or_default(),
            energy: energy.clone(),
            published: published.clone(),
            sensors: sensors.clone(),
            losses: lost.clone(),
        };
        serving.show(site(Arc::new(metrics(config, &engine, state))).source(page));
        // Last: who waits for this port finds the engine at work.
        let control = control::fgpu::start(
            katcp,
            EngineControl {
                config: &config.engine,
                steering,
                published: published.clone(),
                constants,
                busy: engine.busy(),
                record,
                losses: lost.clone(),
                sensors,
            },
            serving.on_control_end(),
        );
        let control = match control {
            Ok(control) => control,
            Err(error) => return Err(give_up(engine, Failure::usage(error))),
        };
        tracing::info!("up");

        let source = self.args.options.src.as_deref().unwrap_or_default();
        let mut losses = Losses::watch(config, source, &engine, self.placement, lost)
            .with_levels(LevelSource::new(&config.engine, published.clone()));
        let why = wait(&serving, &engine, &mut losses, &energy);
        tracing::info!(%why, "ending");
        let limit = drain(&config.engine, config.egress.rate_factor, self.spare_chunks);
        service::stopping(&format!("Ending: {why}"), limit);
        control.stop();
        // Signals are heard until the last stop heap: a second one ends at once.
        let finished = finish(engine, limit);
        log.note_rest(&published);
        losses.sum_up();
        serving.stop();
        finished?;
        why.outcome()
    }

    /// What a browser is shown of the engine.
    fn page(&self, live: &LiveEngine, seen: EngineSeen) -> EnginePage {
        let config = &self.config.engine;
        let outputs = config.outputs.iter().map(|output| &output.name[..]);
        let outputs = outputs.collect::<Vec<_>>().join(", ");
        let name = format!("F-engine {}: {outputs}", config.feng_id);
        let (engine, links, threads) = (live.engine(), live.links(), live.threads());
        let counters = Counters::of(config, engine, live.capture_stats(), links);
        EnginePage::new(EnginePageParts::of(
            name, config, engine, counters, links, threads, seen,
        ))
    }

    /// Opens what computes, then DPDK; or returns why the engine is to end before it is up.
    pub fn prepare(
        &self,
        serving: &Serving,
    ) -> Result<Result<(Compute, Eal), StopReason>, Failure> {
        service::status("Starting: what computes");
        if self.plan.machine.nodes.len() > 1
            && let Err(error) = prefer_node(self.placement.node)
        {
            let node = self.placement.node;
            tracing::warn!(node, %error, "memory may come from any NUMA node");
        }
        let compute = self.compute()?;
        if let Some(why) = serving.told_to_end() {
            return Ok(Err(why));
        }
        service::status("Starting: ports");
        let eal = start_dpdk(self.config, self.interfaces, self.placement)?;
        Ok(match serving.told_to_end() {
            Some(why) => Err(why),
            None => Ok((compute, eal)),
        })
    }

    /// Opens the backend, leaving this thread on the CPUs for housekeeping and compute threads.
    fn compute(&self) -> Result<Compute, Failure> {
        let args = self.args;
        // Who set this chose already.
        let gpu = match std::env::var_os("CUDA_VISIBLE_DEVICES") {
            Some(_) => None,
            None => self.plan.gpu(self.number).map(str::to_owned),
        };
        let request = BackendRequest {
            backend: args.backend,
            gpu,
            memory: if args.options.use_vkgdr {
                MemoryChoice::Bar
            } else {
                args.memory
            },
            bar_share: BAR_SHARE,
            spare_chunks: self.spare_chunks,
            kernels: args.kernels.choice(Tune::Auto),
            live: true,
        };
        // What starts threads of its own leaves the lcores alone.
        let workers = self.placement.worker_cpus();
        let housekeeping = self.placement.housekeeping.iter();
        run_on(housekeeping.chain(workers.iter().copied())).map_err(Failure::usage)?;
        let workers = || Workers::pinned(&workers);
        let opened = open_backend(&request, std::slice::from_ref(&self.config.engine), workers);
        let opened = opened.map_err(Failure::usage)?;
        for Decision { option, value, why } in &opened.chosen {
            tracing::info!(option, value, why, "chosen");
        }
        let mut engines = opened.engines.into_iter();
        engines
            .next()
            .ok_or_else(|| Failure::data("nothing computes"))
    }
}

/// Ends before there is an engine: nothing has been sent.
pub(in crate::cli) fn ended_early(serving: Serving, why: &StopReason) {
    tracing::info!(%why, "ended before it was up");
    service::stopping(&format!("Ended early: {why}"), Duration::ZERO);
    serving.stop();
}

/// Waits until the engine is to end, or does.
fn wait(
    serving: &Serving,
    engine: &LiveEngine,
    losses: &mut Losses,
    energy: &EnergyMeter,
) -> StopReason {
    let mut service = Service::ready(engine, &losses.status());
    let mut looked = Instant::now();
    let mut read = looked;
    serving.wait(|| {
        let now = Instant::now();
        if now.duration_since(looked) >= LINKS {
            looked = now;
            engine.links().look();
        }
        if now.duration_since(read) >= ENERGY {
            read = now;
            // Its counters wrap, and metrics may be asked for by nobody.
            energy.read();
        }
        losses.tend(now);
        service.tend(now, || losses.status());
        match () {
            () if engine.is_aborted() => Some(StopReason::Stage),
            () if !engine.is_running() => Some(StopReason::Input),
            () => None,
        }
    })
}

/// Starts DPDK, and leaves the calling thread on the CPUs for housekeeping.
fn start_dpdk(
    config: &FgpuConfig,
    interfaces: &Interfaces,
    placement: &EnginePlan,
) -> Result<Eal, Failure> {
    for Lcore {
        name,
        cpu,
        idle,
        why,
        ..
    } in &placement.lcores
    {
        tracing::info!(name, cpu, ?idle, why, "lcore");
    }
    let (workers, housekeeping) = (placement.worker_cpus(), &placement.housekeeping);
    tracing::info!(?workers, %housekeeping, "other threads");
    // The plan may name CPUs that this process was not started on.
    run_on(allowed_cpus().into_iter().chain(placement.lcore_cpus())).map_err(Failure::usage)?;
    let (devices, huge_pages) = interfaces.devices().map_err(Failure::usage)?;
    let eal = Eal::init(&EalConfig {
        worker_cpus: placement.lcore_cpus(),
        memory_mib: interfaces.memory_mib(config),
        devices,
        huge_pages,
        ..EalConfig::default()
    });
    let eal = eal.map_err(Failure::usage)?;
    run_on(housekeeping.iter()).map_err(Failure::data)?;
    Ok(eal)
}

/// What is scraped of an engine.
fn metrics(config: &FgpuConfig, engine: &LiveEngine, state: EngineState) -> EngineMetrics {
    let (capture, links) = (engine.capture_stats(), engine.links());
    EngineMetrics::of(
        &config.engine,
        engine.engine(),
        capture,
        links,
        engine.threads(),
        state,
    )
}

/// What a client is told about this engine, beside what katgpucbf tells.
fn constants(compute: &Compute) -> Vec<(SensorInfo, String)> {
    let constant = |name: &str, what: &str, value: String| {
        (SensorInfo::new(name, what, "", ValueType::String), value)
    };
    let pipelines = compute
        .backend
        .pipelines
        .iter()
        .map(|pipeline| pipeline.name());
    let backend = pipelines
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect::<Vec<_>>()
        .join(" and ");
    let memory = compute.recv_memory.kind().to_string();
    vec![
        constant("karoo.backend", "What computes", backend),
        constant("karoo.receive-memory", "Where receive chunks are", memory),
    ]
}

/// Ends an engine that is of no use to anybody.
pub(in crate::cli) fn give_up(engine: LiveEngine, failure: Failure) -> Failure {
    engine.abort();
    if let Err(error) = engine.join() {
        tracing::error!(%error, "while giving up");
    }
    failure
}

/// Lets what is under way come out within the `limit`.
pub(in crate::cli) fn finish(engine: LiveEngine, limit: Duration) -> Result<(), Failure> {
    engine.stop();
    let begun = Instant::now();
    while engine.is_running() && !engine.is_aborted() && begun.elapsed() < limit {
        engine.links().look();
        std::thread::sleep(Duration::from_millis(5));
    }
    let late = engine.running();
    if engine.is_running() && !engine.is_aborted() {
        engine.abort();
        engine.join().map_err(failure)?;
        let text = format!(
            "{late} lcores were still at work {limit:.1?} after the end: what they had was not sent"
        );
        return Err(Failure::data(text));
    }
    engine.join().map_err(failure)
}

/// Whose turn it is when an engine fails.
pub(in crate::cli) fn failure(error: LiveError) -> Failure {
    match error {
        LiveError::Interface(_) | LiveError::Port(_) => Failure::usage(error),
        LiveError::Stage(StageError::Engine(_)) => Failure::device(error),
        _ => Failure::data(error),
    }
}
