//! `karoo fgpu`: a live engine in place of katgpucbf's.

use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::error::ContextKind;
use clap::{ArgMatches, Args, Command};
use dpdk::{Eal, EalConfig};
use ground::files::read_text;
use ground::os::{allowed_cpus, prefer_node, run_on};
use ground::{N_POL, StopFlag};
use host::placement::{EnginePlan, HostPlan, Lcore, Memory, Wishes};
use katcp::reading::unix_now;
use katcp::{ReservedAddress, SensorInfo, Sensors, ValueType};

use super::command_line::completed;
use super::frame::{self, StopReason};
use super::log::{self, LogTo};
use super::losses::Losses;
use super::plan::PlaceOptions;
use super::serve::Serving;
use super::service::{self, Service};
use super::{Failure, examples, with_katgpucbf_syntax};
use crate::assembly::{
    BackendKind, BackendRequest, Compute, Demand, StageError, Threads, Throttle, drain,
    open_backend,
};
use crate::config::{
    Decision, FgpuConfig, FgpuOptions, InputConfig, arguments, heading, to_toml, with_output_keys,
};
use crate::control;
use crate::control::fgpu::{AppliedLog, EngineControl, RequestRecord};
use crate::cpu::Workers;
use crate::engine::steer::{ControlHandle, Published, REQUESTS};
use crate::fgpu::{Interfaces, LiveEngine, LiveError, LiveParts};
use crate::gpu::{KernelOptions, MemoryChoice, Tune};
use crate::losses::{Counters, LossRecord};
use crate::metrics::{EngineMetrics, EngineState, site};
use crate::page::{EnginePage, EngineParts};

/// Run an F-engine: receive digitiser packets, channelise, and multicast spectra until told to end
///
/// Takes the command line of katgpucbf's fgpu. SIGINT, SIGTERM and ?halt let what was received come
/// out and end with stop heaps; a second signal ends at once. Exit codes: 0 ended as told, or at
/// the end of a capture; 1 the run failed; 2 the command line or the configuration file is wrong; 3
/// a device failed; 129, 130, 143 ended by a second signal.
#[derive(Debug, Args)]
#[command(
    after_help = examples::FGPU,
    after_long_help = with_output_keys(examples::FGPU)
)]
pub struct FgpuArgs {
    #[command(flatten)]
    options: FgpuOptions,
    /// File with further options: keys are their long names; what the command line says counts more
    #[arg(long, value_name = "FILE.toml", help_heading = heading::CONFIGURATION)]
    config: Option<PathBuf>,
    /// Print what would run as such a file, and end
    #[arg(long, help_heading = heading::CONFIGURATION)]
    print_config: bool,
    /// What computes
    #[arg(long, value_enum, default_value_t = BackendKind::Auto, help_heading = heading::COMPUTE)]
    backend: BackendKind,
    #[command(flatten)]
    kernels: KernelOptions,
    /// Where receive chunks are if a GPU computes
    #[arg(long, value_enum, default_value_t = MemoryChoice::Auto, help_heading = heading::COMPUTE)]
    memory: MemoryChoice,
    /// Compute threads of the CPU backend; as many as cores are left unless given
    #[arg(long, value_name = "N", help_heading = heading::COMPUTE, value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Option<u32>,
    /// Receive chunks beside those that it needs [default: 50 ms' worth, at most 64]
    #[arg(long, value_name = "N", help_heading = heading::RECEIVE, value_parser = clap::value_parser!(u16).range(..=1024))]
    recv_spare_chunks: Option<u16>,
    #[command(flatten)]
    place: PlaceOptions,
    /// Print which thread would run on which CPU, and which buffer would be where, and why, and end
    #[arg(long, help_heading = heading::PLACE)]
    print_plan: bool,
    /// Where log messages go
    #[arg(long, value_enum, default_value_t, help_heading = heading::CONTROL)]
    log: LogTo,
}

impl FgpuArgs {
    /// The options that katgpucbf has.
    pub fn options(&self) -> &FgpuOptions {
        &self.options
    }
}

/// The command with katgpucbf's defaults, and its ways to write options.
pub fn command(command: Command) -> Command {
    with_katgpucbf_syntax(FgpuOptions::with_defaults(command))
}

/// Splices the options of the `--config` file into `args`, or returns `None` if there is no
/// `--config`. `given` is the parsed form of `args`.
pub fn with_file(
    command: &Command,
    args: &[OsString],
    given: &ArgMatches,
) -> Result<Option<Vec<OsString>>, Failure> {
    let Some(path) = given.get_one::<PathBuf>("config") else {
        return Ok(None);
    };
    let text = read_text(path)
        .map_err(|error| Failure::usage(format!("--config {}: {error}", path.display())))?;
    let file = arguments(&text, command, given)
        .map_err(|error| Failure::usage(format!("--config {}: {error}", path.display())))?;
    // Behind the names of program and command.
    let (names, rest) = args.split_at(args.len().min(2));
    let file = file.into_iter().map(OsString::from);
    Ok(Some(
        names
            .iter()
            .cloned()
            .chain(file)
            .chain(rest.iter().cloned())
            .collect(),
    ))
}

/// What the parser refused that only a `--config` file said, in the words of the file. `given` is
/// the command line without it.
pub fn mistake_in_file(given: &ArgMatches, error: &clap::Error) -> Failure {
    let file = given.get_one::<PathBuf>("config");
    let file = file.map_or(String::new(), |path| {
        format!("--config {}: ", path.display())
    });
    let context = |kind| error.get(kind).map(ToString::to_string);
    let argument = context(ContextKind::InvalidArg).unwrap_or_default();
    let key = argument
        .trim_matches(['-', '<', '>', '[', ']'])
        .split(' ')
        .next();
    let key = key.unwrap_or_default().to_lowercase();
    let value = context(ContextKind::InvalidValue).unwrap_or_default();
    let rule = error.source().map(ToString::to_string);
    Failure::usage(match rule {
        // Rules of outputs name option and key themselves.
        Some(rule) if rule.starts_with("--") => format!("{file}{rule}"),
        Some(rule) => format!("{file}{key} = '{value}': {rule}"),
        None => {
            let text = error.to_string();
            let text = text.split("\n\n").next().unwrap_or_default();
            format!("{file}{}", text.trim_start_matches("error: "))
        }
    })
}

/// The engine that the options ask for. A refusal for what is missing has the whole command line.
pub fn resolved(args: &FgpuArgs) -> Result<FgpuConfig, Failure> {
    args.options.resolve().map_err(|error| {
        let missing = args.options.missing();
        if missing.is_empty() {
            return Failure::usage(error);
        }
        let given: Vec<_> = std::env::args_os().collect();
        // SRC stands last.
        let (src, options): (Vec<_>, Vec<_>) = missing
            .into_iter()
            .partition(|(option, _)| *option == "SRC");
        let more = options.into_iter().chain(src);
        let more = more.flat_map(|(_, words)| words.iter().copied());
        let line = completed(given.iter().map(OsString::as_os_str), more);
        Failure::usage(format!(
            "{error}\n\nAll of it, with examples for what is missing:\n  {line}"
        ))
    })
}

/// Runs the command. `matches` is the parsed form of `args`, needed by `--print-config`.
pub fn run(args: &FgpuArgs, command: &Command, matches: &ArgMatches) -> Result<(), Failure> {
    let mut config = resolved(args)?;
    if args.print_config {
        print!("{}", to_toml(command, matches, &config));
        return Ok(());
    }
    let level = log::start(args.log);
    for doubt in config.engine.doubts(Some(unix_now())) {
        tracing::warn!("{doubt}");
    }
    if (f64::MIN_POSITIVE..1.0).contains(&args.options.send_rate_factor) {
        let factor = args.options.send_rate_factor;
        tracing::warn!(
            "--send-rate-factor {factor}: output is sent more slowly than it comes to be"
        );
    }
    if let Some(throttle) = Throttle::find() {
        throttle.evade();
    }
    let ignored = args.options.ignored.given();
    if !ignored.is_empty() {
        let options = ignored.join(" ");
        tracing::info!(options, "taken for compatibility, without effect");
    }
    if let Some(text) = args.options.unused_interfaces() {
        tracing::warn!("{text}");
    }
    let interfaces = Interfaces::find(&mut config).map_err(Failure::usage)?;
    let spare_chunks = spare_chunks(args, &config);
    let wishes = wishes(args, &config, &interfaces, spare_chunks);
    let (plan, number) = args.place.plan(wishes)?;
    if args.print_plan {
        print!("{}", super::plan::coloured(&plan));
        return Ok(());
    }
    for warning in &plan.warnings {
        tracing::warn!(rule = warning.rule, "{}", warning.text);
    }
    let placement = &plan.engines[number];
    let mut demands = Demand::of(&config.engine, spare_chunks, placement.workers.len());
    demands.extend(interfaces.demands(&config));
    Demand::check(demands).map_err(Failure::usage)?;
    let (katcp, sockets) = frame::bind(&args.options.serve)?;
    run_on(placement.housekeeping.iter()).map_err(Failure::data)?;
    let serving = Serving::start(sockets, level)?;
    let launch = Launch {
        args,
        config: &config,
        interfaces: &interfaces,
        plan: &plan,
        placement,
        number,
        spare_chunks,
    };
    launch.run(serving, katcp)
}

/// An engine whose configuration and placement are settled.
struct Launch<'a> {
    args: &'a FgpuArgs,
    config: &'a FgpuConfig,
    interfaces: &'a Interfaces,
    plan: &'a HostPlan,
    placement: &'a EnginePlan,
    number: usize,
    spare_chunks: usize,
}

impl Launch<'_> {
    /// Runs the engine from its start to its last stop heap.
    fn run(&self, mut serving: Serving, katcp: ReservedAddress) -> Result<(), Failure> {
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
        let (steering, steered) = ControlHandle::new(&config.engine, REQUESTS);
        let published = steered.published.clone();
        let log = AppliedLog::new(&config.engine);
        let threads = Threads::new(&eal, StopFlag::default());
        let parts = LiveParts {
            compute,
            steered,
            spare_chunks: self.spare_chunks,
        };
        let engine = LiveEngine::start(config, self.interfaces, threads, parts, self.placement);
        let engine = engine.map_err(failure)?;
        let record = Arc::<RequestRecord>::default();
        let lost = Arc::<LossRecord>::default();
        let page = self.page(&engine, &steering, &published, &lost, &record);
        let sensors = Sensors::default();
        let state = EngineState {
            backend: if gpu.is_some() { "cuda" } else { "cpu" },
            gpu: gpu.unwrap_or_default(),
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
        let mut losses = Losses::watch(config, source, &engine, self.placement, lost);
        let why = wait(&serving, &engine, &mut losses);
        tracing::info!(%why, "ending");
        let limit = drain(&config.engine, config.egress.rate_factor);
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
    fn page(
        &self,
        engine: &LiveEngine,
        steering: &ControlHandle,
        published: &Arc<Published>,
        losses: &Arc<LossRecord>,
        record: &Arc<RequestRecord>,
    ) -> EnginePage {
        let config = &self.config.engine;
        let outputs = config.outputs.iter().map(|output| &output.name[..]);
        let outputs = outputs.collect::<Vec<_>>().join(", ");
        EnginePage::new(EngineParts {
            name: format!("F-engine {}: {outputs}", config.feng_id),
            config: config.clone(),
            counters: Counters::of(
                config,
                engine.engine(),
                engine.capture_stats(),
                engine.links(),
            ),
            losses: losses.clone(),
            published: published.clone(),
            steering: steering.clone(),
            record: record.clone(),
            latencies: engine.stages().latencies().to_vec(),
            busy: engine.busy().to_vec(),
            memory: engine.memory().clone(),
            pools: engine.output_pools().to_vec(),
            links: engine.links().clone(),
            times: engine.threads().times().to_vec(),
            clock: engine.threads().clock(),
        })
    }

    /// Opens what computes, then DPDK; or returns why the engine is to end before it is up.
    fn prepare(&self, serving: &Serving) -> Result<Result<(Compute, Eal), StopReason>, Failure> {
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
            spare_chunks: self.spare_chunks,
            kernels: args.kernels.kernels(Tune::Auto),
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
fn ended_early(serving: Serving, why: &StopReason) {
    tracing::info!(%why, "ended before it was up");
    service::stopping(&format!("Ended early: {why}"), Duration::ZERO);
    serving.stop();
}

/// Waits until the engine is to end, or does.
fn wait(serving: &Serving, engine: &LiveEngine, losses: &mut Losses) -> StopReason {
    let mut service = Service::ready(engine, &losses.status());
    serving.wait(|| {
        let now = Instant::now();
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

/// Receive chunks that may fill while the engine is held up: on shared machines stalls of some 25
/// ms were seen.
fn spare_chunks(args: &FgpuArgs, config: &FgpuConfig) -> usize {
    const STALL: f64 = 0.05;
    let chunks =
        STALL * config.engine.clock.adc_sample_rate / config.engine.recv.chunk_samples as f64;
    args.recv_spare_chunks
        .map_or((chunks.ceil() as usize).min(64), usize::from)
}

/// What the engine needs placed.
fn wishes(
    args: &FgpuArgs,
    config: &FgpuConfig,
    interfaces: &Interfaces,
    spare_chunks: usize,
) -> Wishes {
    let (rx, recv_interfaces, source) = match &config.input {
        InputConfig::Live {
            cpus, interfaces, ..
        } => (cpus.clone(), interfaces.clone(), false),
        InputConfig::Capture { cpu, .. } => (vec![*cpu], Vec::new(), true),
    };
    let (recv, rate) = (&config.engine.recv, config.engine.clock.adc_sample_rate);
    let bits = N_POL as f64 * rate * f64::from(recv.sample_bits.get());
    let mut demands = Demand::of(&config.engine, spare_chunks, 0);
    demands.extend(interfaces.demands(config));
    let memory = |demand: Demand| Memory {
        what: demand.what,
        bytes: demand.bytes,
    };
    Wishes {
        rx,
        tx: config.egress.cpu,
        tx_lcores: config.egress.interfaces.len(),
        source,
        workers: args.workers.map(|workers| workers as usize),
        input_gbps: (!source).then_some(bits / 1e9),
        recv_interfaces,
        send_interfaces: config.egress.interfaces.clone(),
        memory: demands.into_iter().map(memory).collect(),
    }
}

/// Ends an engine that nobody can talk to.
fn give_up(engine: LiveEngine, failure: Failure) -> Failure {
    engine.abort();
    if let Err(error) = engine.join() {
        tracing::error!(%error, "while giving up");
    }
    failure
}

/// Lets what is under way come out within the `limit`.
fn finish(engine: LiveEngine, limit: Duration) -> Result<(), Failure> {
    engine.stop();
    let begun = Instant::now();
    while engine.is_running() && !engine.is_aborted() && begun.elapsed() < limit {
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

fn failure(error: LiveError) -> Failure {
    match error {
        LiveError::Interface(_) | LiveError::Port(_) => Failure::usage(error),
        LiveError::Stage(StageError::Engine(_)) => Failure::device(error),
        _ => Failure::data(error),
    }
}
