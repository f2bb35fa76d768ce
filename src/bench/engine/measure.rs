//! Measurements of engines at work.

use std::time::Duration;

use ground::os::run_on;
use ground::stats::ThreadReport;
use ground::{N_POL, TscClock, tsc};
use rayon::prelude::*;

use super::generator::Schedule;
use super::rig::{Remains, Rig};
use super::sink::SinkFindings;
use super::watched::{Clients, Servers, WatchedBench, WatchedLatency, WatchedRound, slot};
use super::{
    BenchCheck, BenchCounts, BenchError, BenchOptions, CoreCount, EnergyRate, EngineBench, Latency,
    LookCounts, Probe, RxRate, check,
};
use crate::assembly::{DeviceEnergy, EnergyMeter};
use crate::bench::search::{FoundRate, Method, ladder};
use crate::config::EngineConfig;

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

/// Number of the latency histogram of measurements beside the rounds.
const ALONE: usize = 0;

/// A rig under the stopwatch.
pub struct Bench<'a> {
    pub options: &'a BenchOptions,
    pub rig: Rig,
    /// What shows the engines, if somebody is to look.
    pub servers: Option<Servers>,
    /// CPUs of those who look; none if there are none left.
    pub client_cpus: Vec<usize>,
    pub tsc: TscClock,
    pub energy: EnergyMeter,
}

/// What came of all measurements.
struct Outcome {
    search: Vec<Probe>,
    found: Option<FoundRate>,
    start_up: Vec<BenchCounts>,
    measured: Measured,
    /// Rounds with and without somebody who looks, and what those got.
    rounds: Vec<[Probe; 2]>,
    looks: LookCounts,
}

/// One measurement, with what is only looked at in the last one.
struct Measured {
    probe: Probe,
    lcores: Vec<ThreadReport>,
    placed: Vec<u64>,
    energy: Vec<DeviceEnergy>,
}

impl Bench<'_> {
    /// `cpus` are those that the whole bench may use.
    pub fn run(
        mut self,
        configs: &[EngineConfig],
        cpus: &[usize],
    ) -> Result<EngineBench, BenchError> {
        let outcome = self.measure_all();
        // Ports close when nobody looks at them.
        self.servers.take().into_iter().for_each(Servers::stop);
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
            rounds,
            looks,
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
        let compare = |found: &SinkFindings| {
            check::check(&configs[found.engine], found.output, &signal, &found.kept)
        };
        let checked = found
            .par_iter()
            .map(compare)
            .reduce(BenchCheck::default, BenchCheck::and);
        Ok(EngineBench {
            karoo: ground::karoo_version().to_owned(),
            backend: engines[0].backend(),
            memory,
            chosen: Vec::new(),
            huge_pages: false,
            search,
            found: search_found,
            start_up,
            rx: rx_rates(&measured, &configs[0]),
            energy: energy_rates(&measured),
            cores: CoreCount::of(&measured.lcores),
            measured: measured.probe,
            latency: latencies(configs.len(), &found, &[ALONE]),
            watched: self
                .options
                .is_watched()
                .then(|| watched(self.options, rounds, looks, &found)),
            total: counts,
            checked,
            first_wrong: found.iter().find_map(|found| found.first_wrong.clone()),
            lcores: measured.lcores,
            compute: engines
                .iter()
                .flat_map(|engine| engine.thread_reports())
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
            let measured = self.measure(rate, options.seconds, ALONE)?;
            if left == 0 || measured.probe.passed() {
                let (rounds, looks) = self.rounds(rate)?;
                return Ok(Outcome {
                    search,
                    found,
                    start_up,
                    measured,
                    rounds,
                    looks,
                });
            }
            left -= 1;
            search.push(measured.probe);
            rate *= STEP_DOWN;
        }
    }

    /// Rounds at a share of `rate`: each without and with somebody who looks, by turns first.
    fn rounds(&self, rate: f64) -> Result<(Vec<[Probe; 2]>, LookCounts), BenchError> {
        let (options, mut looks) = (self.options, LookCounts::default());
        let Some(servers) = &self.servers else {
            return Ok((Vec::new(), looks));
        };
        let rate = rate * options.watched_share;
        self.set_rate(rate);
        let mut rounds = Vec::new();
        for number in 0..options.rounds {
            let mut round = [Probe::default(), Probe::default()];
            for turn in 0..2 {
                let watched = (number + turn) % 2 == 1;
                let clients = watched.then(|| {
                    let (viewers, scrapes) = (options.viewers, options.scrapes);
                    Clients::open(servers.addresses(), viewers, scrapes, &self.client_cpus)
                });
                let clients = clients.transpose()?;
                while clients.as_ref().is_some_and(|clients| !clients.are_open()) {
                    self.pause(0.01)?;
                }
                self.settle(rate)?;
                let measured = self.measure(rate, options.seconds, slot(number, watched))?;
                round[usize::from(watched)] = measured.probe;
                if let Some(clients) = clients {
                    looks.add(&clients.close());
                }
            }
            rounds.push(round);
        }
        Ok((rounds, looks))
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
            let probe = self.measure(rate, self.options.probe_seconds, ALONE)?.probe;
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
            let probe = self.measure(rate, self.options.probe_seconds, ALONE)?.probe;
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

    /// Latencies go into the histogram with number `slot`.
    fn measure(&self, rate: f64, seconds: f64, slot: usize) -> Result<Measured, BenchError> {
        let rig = &self.rig;
        let (counts, placed, devices) = (rig.counts(), rig.placed(), rig.devices());
        let (before, joules) = (rig.threads.reports(), self.energy.read());
        let start = tsc();
        rig.threads.forget_longest_turns();
        rig.window.open(slot);
        let paused = self.pause(seconds);
        rig.window.close();
        let seconds = self.tsc.seconds(tsc() - start);
        let (after, energy) = (rig.threads.reports(), self.energy.read());
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
            energy: DeviceEnergy::between(&joules, &energy),
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

/// Latency of each of so many engines through its first output, of these histograms together:
/// windows of narrowband are longer.
fn latencies(engines: usize, found: &[SinkFindings], slots: &[usize]) -> Vec<Latency> {
    let latency = |number: usize| {
        let mut all = hdrhistogram::Histogram::new(3).expect("three digits are allowed");
        let of = |of: &&SinkFindings| of.engine == number && of.output == 0;
        for found in found.iter().filter(of) {
            for &slot in slots {
                // An automatically sized histogram takes any value.
                let _ = all.add(&found.latencies[slot]);
            }
        }
        Latency::of(&all)
    };
    (0..engines).map(latency).collect()
}

/// What looking cost.
fn watched(
    options: &BenchOptions,
    rounds: Vec<[Probe; 2]>,
    looks: LookCounts,
    found: &[SinkFindings],
) -> WatchedBench {
    let compare = |numbers: std::ops::Range<usize>| -> Vec<WatchedLatency> {
        let of = |watched| {
            let slots: Vec<_> = numbers.clone().map(|n| slot(n, watched)).collect();
            latencies(options.engines, found, &slots)
        };
        let both = of(false).into_iter().zip(of(true));
        both.map(|(without, with)| WatchedLatency::new(without, with))
            .collect()
    };
    let latency = compare(0..rounds.len());
    let round = |(number, [without, with]): (usize, [Probe; 2])| WatchedRound {
        without,
        with,
        latency: compare(number..number + 1),
    };
    WatchedBench {
        viewers: options.viewers,
        scrapes: options.scrapes,
        share: options.watched_share,
        rounds: rounds.into_iter().enumerate().map(round).collect(),
        latency,
        looks,
    }
}

/// What each device took for the samples of all engines.
fn energy_rates(measured: &Measured) -> Vec<EnergyRate> {
    let Probe {
        reached,
        seconds,
        engines,
        ..
    } = &measured.probe;
    let gigasamples = reached * seconds * engines.len() as f64;
    let rate = |taken: &DeviceEnergy| EnergyRate {
        device: taken.device.clone(),
        watts: taken.joules / seconds,
        joules_per_gigasample: taken.joules / gigasamples,
    };
    measured.energy.iter().map(rate).collect()
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
