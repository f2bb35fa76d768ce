//! What looking cost.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use super::LookCounts;
use crate::bench::engine::counts::BenchCounts;
use crate::bench::engine::report::{Latency, Probe};

/// Rounds with and without somebody who looks, by turns, at one rate.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WatchedBench {
    /// Pages that were open of each engine.
    pub viewers: usize,
    /// Scrapes a second of each engine.
    pub scrapes: f64,
    /// Share of the rate found by the search, or of the one asked for.
    pub share: f64,
    /// The rounds.
    pub rounds: Vec<WatchedRound>,
    /// Latency of each engine over all rounds.
    pub latency: Vec<WatchedLatency>,
    /// What those who looked got.
    pub looks: LookCounts,
}

/// A stay without, and one with somebody who looks.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WatchedRound {
    /// Without.
    pub without: Probe,
    /// With.
    pub with: Probe,
    /// Latency of each engine.
    pub latency: Vec<WatchedLatency>,
}

/// Latencies of one engine.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct WatchedLatency {
    /// Without.
    pub without: Latency,
    /// With.
    pub with: Latency,
    /// Median, 99th and 99.9th percentile with, over those without; null where nothing was timed.
    #[schemars(with = "[Option<f64>; 3]")]
    pub ratio: [f64; 3],
}

impl WatchedLatency {
    /// Compares.
    pub fn new(without: Latency, with: Latency) -> Self {
        let of = |latency: &Latency| [latency.p50, latency.p99, latency.p99_9];
        let (before, after) = (of(&without), of(&with));
        Self {
            without,
            with,
            ratio: std::array::from_fn(|i| after[i] / before[i]),
        }
    }
}

impl WatchedBench {
    /// Counts of one engine over all rounds, without and with.
    fn counts(&self, engine: usize) -> [BenchCounts; 2] {
        let all = |of: fn(&WatchedRound) -> &Probe| {
            let counts = self
                .rounds
                .iter()
                .filter_map(|round| of(round).engines.get(engine));
            counts.fold(BenchCounts::default(), |all, counts| all.and(counts))
        };
        [all(|round| &round.without), all(|round| &round.with)]
    }

    fn kept_up(&self) -> bool {
        let mut rounds = self.rounds.iter();
        rounds.all(|round| round.without.kept_up() && round.with.kept_up())
    }
}

impl fmt::Display for WatchedBench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.rounds.first().map(|round| &round.without);
        let (rate, seconds) = first.map_or((0.0, 0.0), |probe| (probe.asked, probe.seconds));
        writeln!(
            f,
            "watched    {} rounds of twice {seconds:.1} s at {rate:.3} Gsample/s, without and with {} pages and {} scrapes/s of each engine",
            self.rounds.len(),
            self.viewers,
            self.scrapes
        )?;
        if !self.kept_up() {
            writeln!(
                f,
                "           the generators did not keep up: more --generators"
            )?;
        }
        for (engine, latency) in self.latency.iter().enumerate() {
            let counts = self.counts(engine);
            for (how, latency, counts) in [
                ("without", &latency.without, &counts[0]),
                ("with", &latency.with, &counts[1]),
            ] {
                writeln!(
                    f,
                    "{how:7}  {engine} {} heaps: p50 {:.3} ms, p99 {:.3}, p99.9 {:.3}, max {:.3}; {} packets, {}",
                    latency.heaps,
                    latency.p50,
                    latency.p99,
                    latency.p99_9,
                    latency.max,
                    counts.offered,
                    counts.losses()
                )?;
            }
            let [p50, p99, p99_9] = latency.ratio;
            let rounds = self.rounds.iter();
            let rounds = rounds.filter_map(|round| Some(round.latency.get(engine)?.ratio[2]));
            let rounds: Vec<_> = rounds.map(|ratio| format!("{ratio:.3}")).collect();
            writeln!(
                f,
                "ratio    {engine} p50 {p50:.3}, p99 {p99:.3}, p99.9 {p99_9:.3}; p99.9 by round {}",
                rounds.join(" ")
            )?;
        }
        let LookCounts {
            documents,
            scrapes,
            bytes,
            failed,
            slowest_scrape,
        } = self.looks;
        writeln!(
            f,
            "looks      {documents} documents, {scrapes} scrapes, {:.1} MB, {failed} failed; slowest scrape {:.1} ms",
            bytes as f64 * 1e-6,
            1e3 * slowest_scrape
        )
    }
}
