//! `karoo bench engine`: whole engines in one process, from a packet in to a packet out.
//!
//! ```text
//! generator lcores ─► ring port ─► rx lcores ─► engine ─► tx lcores ─► ring port ─► sink lcores
//! ```
//!
//! Generators send at a given rate whatever becomes of their packets, as digitisers do
//! (`generator`); packets that find a full ring are what a NIC would count as missed. The sinks
//! hold every header against what must come next and keep some heaps, which are compared with the
//! golden model afterwards (`sink`, `check`). Every packet is accounted for: offered = placed +
//! lost, by cause (`counts`).

mod check;
mod counts;
mod cpus;
mod error;
mod generator;
mod measure;
mod options;
mod report;
mod rig;
mod signal;
mod sink;
mod watched;

pub use check::BenchCheck;
pub use counts::BenchCounts;
pub use error::BenchError;
pub use options::BenchOptions;
pub use report::{CoreCount, EnergyRate, EngineBench, Latency, Probe, RxRate};
pub use watched::{LookCounts, WatchedBench, WatchedLatency, WatchedRound};

use cpus::Cpus;
use dpdk::{Eal, EalConfig, free_huge_pages_mib, have_huge_pages, plain_mib};
use ground::StopFlag;
use ground::os::run_on;
use measure::Bench;
use rig::Rig;
use watched::Servers;

use crate::assembly::{BackendRequest, Demand, EnergyMeter, on_signal, open_backend};
use crate::config::EngineConfig;
use crate::cpu::Workers;
use crate::gpu::Tune;

/// Runs the bench.
pub fn run(options: &BenchOptions) -> Result<EngineBench, BenchError> {
    let configs = options.configs()?;
    let cpus = Cpus::assign(options)?;
    let abort = StopFlag::default();
    let handler = abort.clone();
    if let Err(error) = on_signal(move || handler.set()) {
        tracing::warn!(%error, "an interrupt will end the process without a report");
    }
    let wanted = BackendRequest {
        backend: options.backend,
        gpu: None,
        memory: options.memory,
        bar_share: options.bar_share,
        spare_chunks: options.spare_chunks(),
        kernels: options.kernels.choice(Tune::Auto),
        live: true,
    };
    check_memory(options, &configs)?;
    let opened = open_backend(&wanted, &configs, || Workers::pinned(&cpus.workers))?;
    let gpu = opened.engines.first().and_then(|of| of.gpu.as_ref());
    let energy = EnergyMeter::open(gpu.map(|gpu| &*gpu.address));
    tracing::debug!("the backend was opened");
    let eal = Eal::init(&EalConfig {
        worker_cpus: cpus.lcores,
        memory_mib: Rig::memory_mib(options, &configs),
        ..EalConfig::default()
    })?;
    if let Some(main) = cpus.main {
        // Where the main thread cannot be pinned, it shares another CPU: slower, not wrong.
        let _ = run_on([main]);
    }
    tracing::debug!("DPDK was started");
    let rig = Rig::start(&eal, options, &configs, opened.engines, &abort);
    let rig = rig.inspect_err(|_| abort.set())?;
    let servers = options
        .is_watched()
        .then(|| Servers::start(rig.shown(&configs)));
    let bench = Bench {
        options,
        servers: servers.transpose().inspect_err(|_| abort.set())?,
        client_cpus: cpus.clients,
        rig,
        tsc: eal.tsc_clock(),
        energy,
    };
    let mut report = bench.run(&configs, &cpus.all)?;
    report.huge_pages = eal.huge_pages();
    report.chosen = opened.chosen;
    Ok(report)
}

/// Refuses what would not fit memory: it is only reserved when it is allocated, and the run would
/// be killed in its middle.
fn check_memory(options: &BenchOptions, configs: &[EngineConfig]) -> Result<(), BenchError> {
    let needed_mib = Rig::memory_mib(options, configs);
    let mut demands = Vec::new();
    for config in configs {
        demands.extend(Demand::of(config, options.spare_chunks(), options.workers));
    }
    if free_huge_pages_mib() < needed_mib {
        demands.push(Demand {
            what: "packet buffers of all engines".to_owned(),
            bytes: (plain_mib(needed_mib) as u64) << 20,
            option: "--rx-descriptors".to_owned(),
            value: options.rx_descriptors(),
        });
    }
    Demand::check(demands).map_err(|error| BenchError::NoRoom(error, have_huge_pages(needed_mib)))
}
