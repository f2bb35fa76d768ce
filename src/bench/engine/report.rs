//! What `karoo bench engine` says.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ground::stats::ThreadReport;
use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;

use super::check::BenchCheck;
use super::watched::WatchedBench;
use crate::bench::search::FoundRate;
use crate::config::{Decision, EngineConfig};
use crate::report::Documented;

/// What happened to the packets of one engine.
///
/// Of a whole run, offered = ring_full + no_buffer + placed + Σ drops. Of a part of it this holds
/// but for the packets that are on their way at its ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BenchCounts {
    /// Packets that were due.
    pub offered: u64,
    /// Packets lost because the rx queue was full.
    pub ring_full: u64,
    /// Packets lost because all buffers of the queue were in use.
    pub no_buffer: u64,
    /// Heaps placed in chunks.
    pub placed: u64,
    /// Packets dropped by the rx lcores, by cause.
    pub drops: BTreeMap<String, u64>,
    /// Output heaps sent.
    pub heaps_sent: u64,
    /// Output heaps not sent because of missing input.
    pub heaps_skipped: u64,
    /// Output heaps that came whole.
    pub heaps_received: u64,
    /// Batches between the first and the last that did not come, summed over tx queues.
    pub batches_missing: u64,
    /// Output packets that were not what should have come.
    pub wrong_packets: u64,
}

impl BenchCounts {
    /// Input packets lost.
    pub fn lost(&self) -> u64 {
        self.ring_full + self.no_buffer + self.drops.values().sum::<u64>()
    }

    /// Whether nothing was lost, in or out.
    pub fn lossless(&self) -> bool {
        self.lost() == 0 && self.batches_missing == 0 && self.wrong_packets == 0
    }

    /// Whether every packet of a whole run is accounted for once.
    pub fn adds_up(&self) -> bool {
        self.offered == self.placed + self.lost() && self.heaps_sent == self.heaps_received
    }

    /// The difference to an earlier state.
    pub fn since(&self, before: &Self) -> Self {
        let drops = self.drops.iter().map(|(cause, count)| {
            let before = before.drops.get(cause).copied().unwrap_or(0);
            (cause.clone(), count - before)
        });
        Self {
            offered: self.offered - before.offered,
            ring_full: self.ring_full - before.ring_full,
            no_buffer: self.no_buffer - before.no_buffer,
            placed: self.placed - before.placed,
            drops: drops.filter(|(_, count)| *count > 0).collect(),
            heaps_sent: self.heaps_sent - before.heaps_sent,
            heaps_skipped: self.heaps_skipped - before.heaps_skipped,
            heaps_received: self.heaps_received - before.heaps_received,
            batches_missing: self.batches_missing - before.batches_missing,
            wrong_packets: self.wrong_packets - before.wrong_packets,
        }
    }

    /// Those of two parts of a run together.
    pub(super) fn and(mut self, other: &Self) -> Self {
        for (cause, count) in &other.drops {
            *self.drops.entry(cause.clone()).or_default() += count;
        }
        Self {
            offered: self.offered + other.offered,
            ring_full: self.ring_full + other.ring_full,
            no_buffer: self.no_buffer + other.no_buffer,
            placed: self.placed + other.placed,
            drops: self.drops,
            heaps_sent: self.heaps_sent + other.heaps_sent,
            heaps_skipped: self.heaps_skipped + other.heaps_skipped,
            heaps_received: self.heaps_received + other.heaps_received,
            batches_missing: self.batches_missing + other.batches_missing,
            wrong_packets: self.wrong_packets + other.wrong_packets,
        }
    }

    /// In words.
    pub(super) fn losses(&self) -> String {
        let mut causes = vec![
            ("ring full".to_owned(), self.ring_full),
            ("no buffer".to_owned(), self.no_buffer),
        ];
        causes.extend(
            self.drops
                .iter()
                .map(|(cause, &count)| (cause.clone(), count)),
        );
        causes.push(("output heaps skipped".to_owned(), self.heaps_skipped));
        causes.push(("batches missing".to_owned(), self.batches_missing));
        causes.push(("wrong packets".to_owned(), self.wrong_packets));
        causes.retain(|(_, count)| *count > 0);
        let causes: Vec<_> = causes
            .iter()
            .map(|(cause, count)| format!("{count} {cause}"))
            .collect();
        if causes.is_empty() {
            "nothing lost".to_owned()
        } else {
            format!("lost: {}", causes.join(", "))
        }
    }
}

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

    #[test]
    fn parts_of_a_run_add_up_to_it() {
        let drops = |old, full| {
            BTreeMap::from([
                ("too-old".to_owned(), old),
                ("no-free-chunk".to_owned(), full),
            ])
        };
        let before = BenchCounts {
            offered: 10,
            placed: 7,
            drops: drops(1, 2),
            ..BenchCounts::default()
        };
        let after = BenchCounts {
            offered: 30,
            placed: 22,
            ring_full: 3,
            drops: drops(1, 4),
            ..BenchCounts::default()
        };
        let part = after.since(&before);
        assert_eq!((part.offered, part.placed, part.lost()), (20, 15, 5));
        assert_eq!(part.drops.get("too-old"), None);
        assert!(before.adds_up() && after.adds_up() && part.adds_up());
        assert!(!part.lossless() && after.since(&after).lossless());
        assert!(
            !BenchCounts {
                placed: 6,
                ..before
            }
            .adds_up()
        );
    }
}
