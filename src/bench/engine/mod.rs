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
//! lost, by cause.

mod check;
mod cpus;
mod generator;
mod options;
mod report;
mod rig;
mod signal;
mod sink;

use std::time::Duration;

use rayon::prelude::*;

pub use check::BenchCheck;
pub use options::BenchOptions;
pub use report::{BenchCounts, EngineBench, Latency, Probe, RxRate};

use cpus::Cpus;
use dpdk::{DpdkError, Eal, EalConfig, EalError, LcorePanic, free_huge_pages_mib, plain_mib};
use generator::Schedule;
use ground::os::run_on;
use ground::stats::ThreadReport;
use ground::{N_POL, StopFlag, TscClock, tsc};
use rig::{Remains, Rig};

use super::search::{FoundRate, Method, ladder};
use crate::assembly::{
    BackendRequest, ComputeError, Demand, DemandError, StageError, open_backend,
};
use crate::config::{ConfigError, EngineConfig};
use crate::cpu::Workers;
use crate::gpu::Tune;
use crate::memory::MemoryError;

/// How long the first output may take.
const FIRST_OUTPUT: Duration = Duration::from_secs(30);
/// How long a new rate is left alone before it is measured.
const SETTLE: f64 = 0.5;
/// Chunks that must have come through before it is measured.
const SETTLE_CHUNKS: f64 = 16.0;
/// The search ends when the next step would be less than this share of the highest rate.
const RESOLUTION: f64 = 0.01;
/// Of the noisy search: the lowest rate as a share of the highest, the step between rates as a
/// share, and the chance that a trial says the opposite of what is so.
const LOWEST: f64 = 1.0 / 32.0;
const STEP: f64 = 0.02;
const ERROR: f64 = 0.1;
/// When the rate found does not hold for the whole measurement: how often, and to how much, it is
/// lowered.
const RETRIES: usize = 4;
const STEP_DOWN: f64 = 0.97;

/// Why the bench gave no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The options.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What should compute.
    #[error(transparent)]
    Compute(#[from] ComputeError),
    /// DPDK did not start.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// DPDK refused something.
    #[error(transparent)]
    Dpdk(#[from] DpdkError),
    /// Not enough memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// It would not fit.
    #[error(
        "{0}, or ask for fewer --engines or --rx-queues; huge pages are not counted: sysctl vm.nr_hugepages={pages} would \
         have room for the packet buffers",
        pages = .1
    )]
    NoRoom(DemandError, usize),
    /// A stage of an engine failed.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// A generator or sink failed.
    #[error(transparent)]
    Lcore(#[from] LcorePanic),
    /// Nothing comes out.
    #[error("no output within {0} s of the first packet; try a lower --rate or smaller chunks")]
    NoOutput(u64),
    /// Something hangs.
    #[error("the engines did not come to an end within {0} s; their lcores were told to give up")]
    Stuck(u64),
    /// The user asked.
    #[error("interrupted")]
    Interrupted,
}

/// Runs the bench.
pub fn run(options: &BenchOptions) -> Result<EngineBench, BenchError> {
    let configs = options.configs()?;
    let cpus = Cpus::assign(options)?;
    let abort = StopFlag::default();
    let handler = abort.clone();
    if let Err(error) = ctrlc::set_handler(move || handler.set()) {
        tracing::warn!(%error, "an interrupt will end the process without a report");
    }
    let wanted = BackendRequest {
        backend: options.backend,
        gpu: None,
        memory: options.memory,
        spare_chunks: options.spare_chunks(),
        kernels: options.kernels.kernels(Tune::Auto),
        live: true,
    };
    check_memory(options, &configs)?;
    let opened = open_backend(&wanted, &configs, || Workers::pinned(&cpus.workers))?;
    let eal = Eal::init(&EalConfig {
        worker_cpus: cpus.lcores,
        memory_mib: Rig::memory_mib(options, &configs),
        ..EalConfig::default()
    })?;
    if let Some(main) = cpus.main {
        // Where the main thread cannot be pinned, it shares another CPU: slower, not wrong.
        let _ = run_on([main]);
    }
    let all = cpus.all;
    let rig = Rig::start(&eal, options, &configs, opened.engines, &abort);
    let bench = Bench {
        options,
        rig: rig.inspect_err(|_| abort.set())?,
        tsc: eal.tsc_clock(),
    };
    let mut report = bench.run(&configs, &all)?;
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
    let pages = needed_mib.div_ceil(2);
    Demand::check(demands).map_err(|error| BenchError::NoRoom(error, pages))
}

/// A rig under the stopwatch.
struct Bench<'a> {
    options: &'a BenchOptions,
    rig: Rig,
    tsc: TscClock,
}

/// What came of all measurements.
struct Outcome {
    search: Vec<Probe>,
    found: Option<FoundRate>,
    start_up: Vec<BenchCounts>,
    measured: Measured,
}

/// One measurement, with what is only looked at in the last one.
struct Measured {
    probe: Probe,
    lcores: Vec<ThreadReport>,
    placed: Vec<u64>,
}

impl Bench<'_> {
    /// `cpus` are those that the whole bench may use.
    fn run(self, configs: &[EngineConfig], cpus: &[usize]) -> Result<EngineBench, BenchError> {
        let outcome = self.measure_all();
        if outcome.is_err() {
            self.rig.threads.abort().set();
        }
        let (signal, memory) = (self.rig.signal.clone(), self.rig.memory.clone());
        let drained = self.rig.drain();
        let Outcome {
            search,
            found: search_found,
            start_up,
            measured,
        } = match outcome {
            Ok(outcome) => outcome,
            // What ended the stages says more than that they ended.
            Err(error) => return Err(drained.err().filter(BenchError::is_cause).unwrap_or(error)),
        };
        let Remains {
            engines,
            found,
            counts,
        } = drained?;
        // The lcores have ended. Threads that compare have the CPUs of the thread that starts them,
        // which had one alone.
        if let Err(error) = run_on(cpus.iter().copied()) {
            tracing::debug!(%error, "spectra are compared on one CPU");
        }
        let compare = |found: &sink::SinkFindings| {
            check::check(&configs[found.engine], found.output, &signal, &found.kept)
        };
        let checked = found
            .par_iter()
            .map(compare)
            .reduce(BenchCheck::default, BenchCheck::and);
        Ok(EngineBench {
            karoo: env!("CARGO_PKG_VERSION").to_owned(),
            backend: engines[0].backend(),
            memory,
            chosen: Vec::new(),
            huge_pages: false,
            search,
            found: search_found,
            start_up,
            rx: rx_rates(&measured, &configs[0]),
            measured: measured.probe,
            latency: (0..configs.len())
                .map(|number| latency(number, &found))
                .collect(),
            total: counts,
            checked,
            first_wrong: found.iter().find_map(|found| found.first_wrong.clone()),
            lcores: measured.lcores,
            compute: engines
                .iter()
                .flat_map(|engine| engine.lcores())
                .filter(|lcore| lcore.core.is_some())
                .collect(),
            config: configs.to_vec(),
        })
    }

    fn measure_all(&self) -> Result<Outcome, BenchError> {
        let options = self.options;
        self.set_rate(if options.search {
            options.rate / 4.0
        } else {
            options.rate
        });
        self.wait_for_output()?;
        let mut search = Vec::new();
        let mut found = None;
        let mut rate = options.rate;
        match options.confidence {
            Some(confidence) if options.search => {
                let noisy = self.noisy_search(confidence, &mut search)?;
                rate = noisy.rate.unwrap_or(options.rate * LOWEST);
                found = Some(noisy);
            }
            _ if options.search => rate = self.search(&mut search)?,
            _ => {}
        }
        let mut left = if options.search { RETRIES } else { 0 };
        loop {
            self.set_rate(rate);
            self.settle(rate)?;
            let start_up = self.rig.counts();
            let measured = self.measure(rate, options.seconds)?;
            if left == 0 || measured.probe.passed() {
                return Ok(Outcome {
                    search,
                    found,
                    start_up,
                    measured,
                });
            }
            left -= 1;
            search.push(measured.probe);
            rate *= STEP_DOWN;
        }
    }

    /// Repeats trials until the rate is known well enough.
    fn noisy_search(
        &self,
        confidence: f64,
        probes: &mut Vec<Probe>,
    ) -> Result<FoundRate, BenchError> {
        let method = Method::Noisy {
            confidence,
            error: ERROR,
            trials: self.options.trials,
        };
        let rates = ladder(self.options.rate * LOWEST, self.options.rate, STEP);
        method.search(&rates, |rate| {
            self.set_rate(rate);
            self.settle(rate)?;
            let probe = self.measure(rate, self.options.probe_seconds)?.probe;
            let passed = probe.passed();
            probes.push(probe);
            Ok(passed)
        })
    }

    /// Halves the distance between a rate that passed and one that did not.
    fn search(&self, probes: &mut Vec<Probe>) -> Result<f64, BenchError> {
        let (mut passed, mut failed) = (0.0, self.options.rate);
        let mut rate = self.options.rate;
        while failed - passed > RESOLUTION * self.options.rate {
            self.set_rate(rate);
            self.settle(rate)?;
            let probe = self.measure(rate, self.options.probe_seconds)?.probe;
            if probe.passed() {
                passed = rate;
            } else {
                failed = rate;
            }
            probes.push(probe);
            if passed == failed {
                break;
            }
            rate = (passed + failed) / 2.0;
        }
        Ok(if passed > 0.0 { passed } else { failed / 2.0 })
    }

    /// Makes `rate` Gsample/s per polarisation the rate of all generators.
    fn set_rate(&self, rate: f64) {
        // Far enough ahead for all of them to take it up together.
        let next = self.rig.next_packet();
        let margin = (N_POL * self.options.rx_queues * dpdk::BURST) as u64;
        let first = if next == 0 { 0 } else { next + margin };
        let packets = N_POL as f64 * rate * 1e9 / self.options.recv_packet_samples as f64;
        self.rig.pace.set(Schedule {
            first: first.next_multiple_of(N_POL as u64),
            start: tsc() + self.tsc.ticks(Duration::from_millis(1)),
            packets_per_tick: packets / self.tsc.hz() as f64,
        });
    }

    fn wait_for_output(&self) -> Result<(), BenchError> {
        let deadline = tsc() + self.tsc.ticks(FIRST_OUTPUT);
        while self
            .rig
            .counts()
            .iter()
            .any(|counts| counts.heaps_received == 0)
        {
            if tsc() > deadline {
                return Err(BenchError::NoOutput(FIRST_OUTPUT.as_secs()));
            }
            self.pause(0.01)?;
        }
        Ok(())
    }

    /// Waits until what was under way before has gone and the pipeline is full at `rate`.
    fn settle(&self, rate: f64) -> Result<(), BenchError> {
        let chunk = self.options.recv_chunk_samples as f64 / (rate * 1e9);
        self.pause(SETTLE.max(SETTLE_CHUNKS * chunk))
    }

    fn measure(&self, rate: f64, seconds: f64) -> Result<Measured, BenchError> {
        let rig = &self.rig;
        let (counts, placed, devices) = (rig.counts(), rig.placed(), rig.devices());
        let before = rig.threads.reports();
        let start = tsc();
        rig.threads.forget_longest_turns();
        rig.window.open();
        let paused = self.pause(seconds);
        rig.window.close();
        let seconds = self.tsc.seconds(tsc() - start);
        let after = rig.threads.reports();
        let devices = rig
            .devices()
            .into_iter()
            .zip(&devices)
            .map(|((name, now), (_, before))| device(name, now - before, seconds));
        let engines: Vec<_> = rig
            .counts()
            .iter()
            .zip(&counts)
            .map(|(now, before)| now.since(before))
            .collect();
        paused?;
        let samples = engines.iter().map(|counts| counts.offered).sum::<u64>() as f64
            * self.options.recv_packet_samples as f64
            / (N_POL * engines.len()) as f64;
        Ok(Measured {
            probe: Probe {
                asked: rate,
                reached: samples / seconds * 1e-9,
                seconds,
                engines,
            },
            lcores: after
                .iter()
                .zip(&before)
                .map(since)
                .chain(devices)
                .collect(),
            placed: rig
                .placed()
                .iter()
                .zip(&placed)
                .map(|(now, before)| now - before)
                .collect(),
        })
    }

    /// Sleeps, unless something ends the bench.
    fn pause(&self, seconds: f64) -> Result<(), BenchError> {
        let end = tsc() + (seconds * self.tsc.hz() as f64) as u64;
        loop {
            if self.rig.threads.abort().is_set() {
                return Err(BenchError::Interrupted);
            }
            let left = self.tsc.seconds(end.saturating_sub(tsc()));
            if left == 0.0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_secs_f64(left.min(0.01)));
        }
    }
}

impl BenchError {
    /// Whether it says why the bench ended early.
    fn is_cause(&self) -> bool {
        matches!(self, Self::Stage(_) | Self::Lcore(_))
    }
}

/// What a thread did between two reports.
fn since((now, before): (&ThreadReport, &ThreadReport)) -> ThreadReport {
    let phases = now.phases.iter().zip(&before.phases);
    ThreadReport {
        phases: phases
            .map(|(now, before)| (now.0.clone(), now.1 - before.1))
            .collect(),
        ..now.clone()
    }
}

/// What a device did in `seconds`, busy for some nanoseconds.
fn device(name: String, busy: u64, seconds: f64) -> ThreadReport {
    let busy = busy as f64 * 1e-9;
    ThreadReport {
        name,
        core: None,
        phases: vec![
            ("busy".to_owned(), busy),
            ("idle".to_owned(), (seconds - busy).max(0.0)),
        ],
        longest_turn: None,
    }
}

/// Latency of the engine `number`, through its first output: windows of narrowband are longer.
fn latency(number: usize, found: &[sink::SinkFindings]) -> Latency {
    let mut all = hdrhistogram::Histogram::new(3).expect("three digits are allowed");
    for found in found
        .iter()
        .filter(|of| of.engine == number && of.output == 0)
    {
        // An automatically sized histogram takes any value.
        let _ = all.add(&found.latency);
    }
    Latency::of(&all)
}

/// The rx lcores are those called so; their order is that of `placed`.
fn rx_rates(measured: &Measured, config: &EngineConfig) -> Vec<RxRate> {
    let lcores = measured.lcores.iter();
    let rx = lcores.filter(|lcore| {
        lcore
            .name
            .split('-')
            .next_back()
            .is_some_and(|name| name.starts_with("rx"))
    });
    rx.zip(&measured.placed)
        .map(|(lcore, &heaps)| {
            let gigabits = (heaps as usize * config.recv.heap_bytes() * 8) as f64 * 1e-9;
            let work = lcore.phases.iter().find(|phase| phase.0 == "work");
            RxRate {
                name: lcore.name.clone(),
                gbps: gigabits / measured.probe.seconds,
                gbps_at_work: gigabits / work.map_or(f64::NAN, |phase| phase.1),
            }
        })
        .collect()
}
