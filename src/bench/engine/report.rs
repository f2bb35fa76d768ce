//! What `karoo bench engine` says.

use std::collections::BTreeSet;
use std::fmt;

use ground::stats::ThreadReport;
use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;

use super::check::BenchCheck;
use super::counts::BenchCounts;
use super::watched::WatchedBench;
use crate::bench::search::FoundRate;
use crate::config::{Decision, EngineConfig};
use crate::report::Documented;

/// One stay at one rate.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Probe {
    /// Rate asked for, in Gsample/s per polarisation.
    pub asked: f64,
    /// Rate that the generators reached.
    pub reached: f64,
    /// How long.
    pub seconds: f64,
    /// Per engine.
    pub engines: Vec<BenchCounts>,
}

impl Probe {
    /// Whether the generators kept up and nothing was lost.
    pub fn passed(&self) -> bool {
        self.kept_up() && self.engines.iter().all(BenchCounts::lossless)
    }

    /// Whether the generators sent what was asked for.
    pub fn kept_up(&self) -> bool {
        self.reached > 0.999 * self.asked
    }
}

/// Milliseconds from packet to packet.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct Latency {
    /// Output heaps timed.
    pub heaps: u64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p99_9: f64,
    /// Longest.
    pub max: f64,
}

impl Latency {
    /// The latency that a histogram in nanoseconds has.
    pub(super) fn of(nanoseconds: &Histogram<u64>) -> Self {
        let at = |quantile| nanoseconds.value_at_quantile(quantile) as f64 * 1e-6;
        Self {
            heaps: nanoseconds.len(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: nanoseconds.max() as f64 * 1e-6,
        }
    }
}

/// One rx lcore.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RxRate {
    /// Its name.
    pub name: String,
    /// Gb/s of payload placed.
    pub gbps: f64,
    /// Gb/s of payload per second at work: what it could place; null of one that did no work.
    #[schemars(with = "Option<f64>")]
    pub gbps_at_work: f64,
}

/// What a device took while measured.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct EnergyRate {
    /// Its name: `gpu` and its PCI address, or a processor package's.
    pub device: String,
    /// Mean power of the whole device, whoever else used it.
    pub watts: f64,
    /// Joules per 10⁹ samples of both polarisations, of all engines together.
    pub joules_per_gigasample: f64,
}

/// CPUs that engines run on, generators and sinks aside.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CoreCount {
    /// CPUs with any rx, engine or tx lcore.
    pub cpus: usize,
    /// How many that is for each engine.
    pub per_engine: f64,
    /// CPUs for whose time they were at work, summed over all these lcores.
    pub at_work: f64,
}

impl CoreCount {
    /// Of the lcores of a bench, by their names.
    pub(super) fn of(lcores: &[ThreadReport]) -> Self {
        let name = |lcore: &ThreadReport| {
            let name = lcore.name.rsplit('-').next().unwrap_or_default();
            name.trim_end_matches(|c: char| c.is_ascii_digit())
                .to_owned()
        };
        let ours = |lcore: &&ThreadReport| {
            lcore.core.is_some() && matches!(&*name(lcore), "rx" | "engine" | "tx")
        };
        let ours: Vec<_> = lcores.iter().filter(ours).collect();
        let cpus: BTreeSet<_> = ours.iter().filter_map(|lcore| lcore.core).collect();
        let engines = ours.iter().filter(|lcore| name(lcore) == "engine").count();
        let at_work = |lcore: &&ThreadReport| -> f64 {
            let all: f64 = lcore.phases.iter().map(|phase| phase.1).sum();
            let works = |phase: &&(String, f64)| phase.0 == "work" || phase.0 == "compute";
            let worked: f64 = lcore.phases.iter().filter(works).map(|phase| phase.1).sum();
            worked / all.max(1e-9)
        };
        Self {
            cpus: cpus.len(),
            per_engine: cpus.len() as f64 / engines.max(1) as f64,
            at_work: ours.iter().map(at_work).sum(),
        }
    }
}

/// A whole run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct EngineBench {
    /// Version of Karoo.
    pub karoo: String,
    /// What ran, one per engine.
    pub config: Vec<EngineConfig>,
    /// What computed.
    pub backend: String,
    /// Kind of the receive chunks' memory.
    pub memory: String,
    /// What was chosen, and why.
    pub chosen: Vec<Decision>,
    /// Whether DPDK had huge pages.
    pub huge_pages: bool,
    /// Rates tried by the search.
    pub search: Vec<Probe>,
    /// What repeated trials found, if they were asked for.
    pub found: Option<FoundRate>,
    /// Before anything was measured: start-up, warm-up, search.
    pub start_up: Vec<BenchCounts>,
    /// The measurement.
    pub measured: Probe,
    /// Latency per engine while measured.
    pub latency: Vec<Latency>,
    /// With and without somebody who looked, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watched: Option<WatchedBench>,
    /// The whole run, drained.
    pub total: Vec<BenchCounts>,
    /// Contents.
    pub checked: BenchCheck,
    /// What was wrong with the first wrong packet.
    pub first_wrong: Option<String>,
    /// Seconds per data thread and device while measured.
    pub lcores: Vec<ThreadReport>,
    /// Threads of the CPU backend, over the whole run.
    pub compute: Vec<ThreadReport>,
    /// Rx lcores while measured.
    pub rx: Vec<RxRate>,
    /// What devices took while measured, as far as they tell.
    pub energy: Vec<EnergyRate>,
    /// CPUs of the engines.
    pub cores: CoreCount,
}

impl Documented for EngineBench {
    const NAME: &'static str = "bench-engine";
    const TITLE: &'static str = "What karoo bench engine --json measured";
}

impl EngineBench {
    /// Whether all packets are accounted for and all contents right; losses are allowed.
    pub fn is_right(&self) -> bool {
        let counts = |counts: &BenchCounts| counts.adds_up() && counts.wrong_packets == 0;
        self.total.iter().all(counts) && self.checked.is_right()
    }
}

impl fmt::Display for EngineBench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.config[0];
        let output = &config.outputs[0];
        let bits = config.recv.sample_bits.get();
        writeln!(
            f,
            "backend    {}, {} memory, huge pages: {}",
            self.backend, self.memory, self.huge_pages
        )?;
        for chosen in &self.chosen {
            writeln!(
                f,
                "           picked {} {} ({})",
                chosen.option, chosen.value, chosen.why
            )?;
        }
        writeln!(
            f,
            "engines    {} with {} channels, {} taps, {bits} bits, chunks of {} samples and {} Jones vectors",
            self.config.len(),
            output.channels,
            output.taps,
            config.recv.chunk_samples,
            config.send.chunk_jones
        )?;
        for probe in &self.search {
            let verdict = if probe.passed() { "passed" } else { "failed" };
            writeln!(
                f,
                "tried      {:.3} Gsample/s: {verdict}, reached {:.3}",
                probe.asked, probe.reached
            )?;
            for counts in probe.engines.iter().filter(|counts| !counts.lossless()) {
                writeln!(f, "           {}", counts.losses())?;
            }
        }
        if let Some(found) = &self.found {
            for tried in &found.tried {
                writeln!(
                    f,
                    "chances    {:.3} Gsample/s: {} of {} trials passed",
                    tried.rate, tried.passed, tried.trials
                )?;
            }
            let confidence = found.confidence.unwrap_or(0.0);
            match found.rate {
                Some(rate) => writeln!(
                    f,
                    "highest    {rate:.3} Gsample/s without loss, with confidence {confidence:.3}"
                )?,
                None => writeln!(f, "highest    none, with confidence {confidence:.3}")?,
            }
        }
        for counts in &self.start_up {
            writeln!(
                f,
                "start-up   {} packets, {}",
                counts.offered,
                counts.losses()
            )?;
        }
        let Probe {
            asked,
            reached,
            seconds,
            engines,
        } = &self.measured;
        let gbps = 2.0 * reached * f64::from(bits);
        writeln!(
            f,
            "measured   {asked:.3} Gsample/s per polarisation and engine asked, {reached:.3} reached, {gbps:.1} Gb/s of payload each, {seconds:.1} s",
        )?;
        if !self.measured.kept_up() {
            writeln!(
                f,
                "           the generators did not keep up: more --generators"
            )?;
        }
        for (engine, (counts, latency)) in engines.iter().zip(&self.latency).enumerate() {
            writeln!(
                f,
                "engine {engine}   {} packets, {}",
                counts.offered,
                counts.losses()
            )?;
            writeln!(
                f,
                "latency    {} heaps: p50 {:.3} ms, p90 {:.3}, p99 {:.3}, p99.9 {:.3}, max {:.3}",
                latency.heaps, latency.p50, latency.p90, latency.p99, latency.p99_9, latency.max
            )?;
        }
        if let Some(watched) = &self.watched {
            write!(f, "{watched}")?;
        }
        let sums = if self.total.iter().all(BenchCounts::adds_up) {
            "every packet accounted for"
        } else {
            "SUMS DO NOT ADD UP"
        };
        let BenchCheck {
            heaps,
            bytes,
            differing,
            worst,
        } = self.checked;
        let right = if self.checked.is_right() {
            "right"
        } else {
            "WRONG"
        };
        writeln!(
            f,
            "checked    {sums}; {heaps} heaps {right}: {differing} of {bytes} bytes differ, by {worst} at most"
        )?;
        if let Some(wrong) = &self.first_wrong {
            writeln!(f, "           WRONG: {wrong}")?;
        }
        let CoreCount {
            cpus,
            per_engine,
            at_work,
        } = self.cores;
        writeln!(
            f,
            "cores      {cpus} of engines, {per_engine:.2} each, at work as much as {at_work:.2}"
        )?;
        for taken in &self.energy {
            writeln!(
                f,
                "energy     {}: {:.1} W, {:.2} J per Gsample of both polarisations",
                taken.device, taken.watts, taken.joules_per_gigasample
            )?;
        }
        for rx in &self.rx {
            writeln!(
                f,
                "{:10} {:6.2} Gb/s placed, {:6.2} Gb/s while at work",
                rx.name, rx.gbps, rx.gbps_at_work
            )?;
        }
        for lcore in self.lcores.iter().chain(&self.compute) {
            let total: f64 = lcore.phases.iter().map(|phase| phase.1).sum();
            let core = lcore.core.map_or("-".into(), |core| core.to_string());
            write!(f, "{:12} cpu {core:>3} ", lcore.name)?;
            for (phase, seconds) in &lcore.phases {
                write!(f, " {phase} {:5.1} %", 100.0 * seconds / total.max(1e-9))?;
            }
            if let Some(turn) = lcore.longest_turn {
                write!(f, "  longest turn {:7.3} ms", 1e3 * turn)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lcores_that_wait_or_sleep_are_not_at_work() {
        let lcore = |name: &str, core, seconds: [f64; 5]| {
            let names = ["wait-in", "work", "compute", "wait-out", "sleep"].map(str::to_owned);
            ThreadReport {
                name: name.to_owned(),
                core,
                phases: names.into_iter().zip(seconds).collect(),
                ..ThreadReport::default()
            }
        };
        let lcores = [
            lcore("rx0", Some(0), [1.0, 2.0, 0.0, 0.0, 5.0]),
            lcore("engine", Some(1), [1.0, 1.0, 1.0, 1.0, 0.0]),
            lcore("tx", Some(1), [0.0, 0.0, 0.0, 0.0, 3.0]),
            lcore("control", Some(2), [0.0, 9.0, 0.0, 0.0, 0.0]),
        ];
        let count = CoreCount::of(&lcores);
        assert_eq!(
            (count.cpus, count.per_engine, count.at_work),
            (2, 2.0, 0.75)
        );
    }
}
