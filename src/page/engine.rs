//! An engine as a source of pages.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ground::Timestamp;
use katcp::reading::unix_now;
use live::{Array, Bar, Body, Document, Download, Figure, History, Panel, Part, Source, Within};

use super::fresh::Fresh;
use super::{board, drops, lost_percent, spectra, tables, time};
use crate::assembly::{EngineReadings, RunningEngine, Threads};
use crate::config::{EngineConfig, OutputConfig};
use crate::control::fgpu::RequestRecord;
use crate::engine::steer::{ControlHandle, Published};
use crate::engine::{InputStatistics, OutputStatistics};
use crate::losses::{Cause, Counters, LossCounts, LossRecord, Severity};
use crate::ports::Links;
use crate::recv::RxStats;

/// Seconds between two points of the last hour, and how many points it has.
const HOUR: (f64, usize) = (10.0, 360);

/// What of an engine its page shows beside what the engine counts.
pub struct EngineSeen {
    /// What is being lost.
    pub losses: Arc<LossRecord>,
    /// What the engine publishes.
    pub published: Arc<Published>,
    /// What was asked of the engine.
    pub steering: ControlHandle,
    /// Who asked.
    pub record: Arc<RequestRecord>,
}

/// What an engine's page is made of.
pub struct EnginePageParts {
    /// Name of the engine.
    pub name: String,
    /// Configuration of the engine.
    pub config: EngineConfig,
    /// Where the engine's counters are.
    pub counters: Counters,
    /// Those of each rx lcore, which have copies of what was dropped.
    pub rx: Vec<Arc<RxStats>>,
    /// What the engine does not count.
    pub seen: EngineSeen,
    /// What else is read of the running engine.
    pub readings: EngineReadings,
}

impl EnginePageParts {
    /// Those of `engine`, which is called `name`, behind these ports.
    pub fn of(
        name: String,
        config: &EngineConfig,
        engine: &RunningEngine,
        counters: Counters,
        links: &Links,
        threads: &Threads,
        seen: EngineSeen,
    ) -> Self {
        Self {
            name,
            config: config.clone(),
            counters,
            rx: engine.stages.rx_stats().to_vec(),
            seen,
            readings: EngineReadings::of(engine, links, threads),
        }
    }
}

/// The page of an engine.
pub struct EnginePage {
    parts: EnginePageParts,
    rates: History,
    /// Losses of each cause.
    losses: History,
    latency: History,
    /// The newest p99.9 of each output's latency, and when that was.
    worst: Vec<Option<(f64, f64)>>,
    /// Statistics of the input.
    input: Fresh,
    last: Look,
    /// The look before the first one of this point of the last hour: points are means.
    point: Look,
    figures: Vec<Figure>,
    bars: Vec<Bar>,
}

/// What the counters were at a UNIX time.
#[derive(Clone)]
struct Look {
    time: f64,
    at: Instant,
    counts: LossCounts,
    /// What was lost so far, of each cause that loses something.
    lost: Vec<u64>,
    phases: Vec<time::Phases>,
    busy: Vec<u64>,
}

impl EnginePage {
    /// A page of these parts.
    pub fn new(parts: EnginePageParts) -> Self {
        let rates = ["placed", "missing", "dropped", "sent", "not sent"];
        let rates = History::new(rates.map(str::to_owned), HOUR.0, HOUR.1);
        let outputs = parts.config.outputs.iter();
        let quantiles =
            outputs.flat_map(|o| [format!("{} p50", o.name), format!("{} p99.9", o.name)]);
        let causes = Cause::all().filter(|cause| loses(*cause));
        let causes = causes.map(|cause| cause.name().to_owned());
        Self {
            losses: History::new(causes, HOUR.0, HOUR.1),
            latency: History::new(quantiles, HOUR.0, HOUR.1).keeping(Within::Greatest),
            worst: vec![None; parts.config.outputs.len()],
            input: Fresh::default(),
            rates,
            last: look(&parts),
            point: look(&parts),
            figures: Vec::new(),
            bars: Vec::new(),
            parts,
        }
    }

    /// Spectra of each output, and what the input is like.
    fn seen(&self) -> Vec<Panel> {
        let EnginePageParts { config, seen, .. } = &self.parts;
        let (clock, statistics) = (config.clock, seen.published.statistics());
        let mut panels: Vec<_> = tables::statistics_off(config).into_iter().collect();
        for (index, output) in config.outputs.iter().enumerate() {
            if let Some(statistics) = statistics.output(index).filter(|s| s.spectra > 0) {
                panels.extend(spectra::panels(output, &config.outputs, clock, &statistics));
            }
        }
        if let Some(input) = statistics.input().filter(|of| of.has_samples()) {
            panels.push(spectra::histogram(&input, clock));
            panels.push(spectra::snapshot(&input, &config.outputs, clock));
        }
        panels
    }

    /// What came and went in the last hour, and how late.
    fn last_hour(&self) -> [Panel; 3] {
        let series = |id: &str, title: &str, history: &History, unit: &str| {
            Panel::new(id, title, Body::TimeSeries(history.time_series(unit)))
        };
        let rates = series("rates", "Heaps in the last hour", &self.rates, "/s");
        let latency = series("latency", "Latency in the last hour", &self.latency, "s")
            .with_note("The longest of each 10 s.");
        [rates, self.losses_by_cause(), latency]
    }

    /// Time of threads, what is in force, and what was said.
    fn in_force(&self) -> [Panel; 5] {
        let parts = &self.parts;
        let bars = Body::Bars {
            bars: self.bars.clone(),
        };
        let entries = board::log(&parts.seen.losses);
        [
            Panel::new("time", "Time of each lcore and GPU", bars),
            tables::host(&parts.readings.links),
            tables::steering(
                &parts.seen.steering,
                &parts.seen.published,
                parts.config.clock,
            ),
            Panel::new("losses", "Losses", Body::Log { entries }),
            tables::requests(&parts.seen.record),
        ]
    }

    /// Causes that lost something.
    fn losses_by_cause(&self) -> Panel {
        let mut all = self.losses.time_series("/s");
        let lost = |value: &Option<f32>| value.is_some_and(|value| value > 0.0);
        all.series.retain(|of| of.values.iter().any(lost));
        Panel::new("lost", "Losses in the last hour", Body::TimeSeries(all))
            .with_note(
                "A curve for each cause that lost something: heaps, datagrams or packets a second. \
             The file has the latest datagrams of each drop cause, for Wireshark.",
            )
            .with_file(drops::FILE)
    }

    fn figures(&self, before: &Look, now: &Look, rates: &[f64; 5]) -> Vec<Figure> {
        let seconds = now.since(before);
        let [placed, missing, dropped, sent, not_sent] = *rates;
        let lost = lost_percent(placed, missing.max(dropped));
        let mut figures = vec![
            Figure::new("heaps in", placed, "/s"),
            Figure::new("lost", lost, "%"),
            Figure::new("heaps out", sent, "/s"),
            Figure::new("not sent", lost_percent(sent, not_sent), "%"),
        ];
        let newest = now.counts.newest.map(|newest| {
            let end = newest + self.parts.config.recv.chunk_samples as u64;
            now.time - Timestamp(end).unix(self.parts.config.clock)
        });
        // The newest chunk is not at its end yet.
        let age = newest.map_or(f64::NAN, |age| age.max(0.0));
        figures.push(Figure::new("age of input", age, "s"));
        let free = self.parts.readings.memory.free_chunks() as f64;
        figures.push(Figure::new("free receive chunks", free, ""));
        for (name, pool) in &self.parts.readings.pools {
            let title = format!("free chunks of {name}, of {}", pool.capacity());
            figures.push(Figure::new(title, pool.available() as f64, ""));
        }
        for (index, (name, _)) in self.parts.readings.busy.iter().enumerate() {
            let busy = now.busy[index].saturating_sub(before.busy[index]);
            let share = 100.0 * busy as f64 * 1e-9 / seconds;
            figures.push(Figure::new(format!("GPU, {name}"), share, "%"));
        }
        let input = self.parts.seen.published.statistics().input();
        if let Some(input) = input.filter(|of| of.has_samples()) {
            figures.extend(spectra::levels(&input, self.input.is_old(now.time)));
        }
        figures
    }
}

impl Look {
    /// Seconds from another look to this one.
    fn since(&self, before: &Look) -> f64 {
        time::seconds_between(before.at, self.at)
    }
}

/// Whether something is lost by it, rather than only not as it should be.
fn loses(cause: Cause) -> bool {
    cause.severity() == Severity::Loss
}

fn look(parts: &EnginePageParts) -> Look {
    let (busy, lost) = (parts.readings.busy.iter(), parts.seen.losses.totals());
    Look {
        time: unix_now(),
        at: Instant::now(),
        counts: parts.counters.read_without_ports(),
        lost: lost
            .iter()
            .filter(|(cause, ..)| loses(*cause))
            .map(|(.., total)| total.count)
            .collect(),
        phases: time::phases(&parts.readings.times, parts.readings.clock),
        busy: busy.map(|(_, busy)| busy.load(Ordering::Relaxed)).collect(),
    }
}

/// Heaps a second between two looks: placed, missing, dropped, sent, not sent.
fn rates(before: &Look, now: &Look) -> [f64; 5] {
    let seconds = now.since(before);
    let all = |look: &Look| {
        let counts = &look.counts;
        let drops = crate::recv::DropCause::ALL.iter();
        let drops = drops.filter(|&&cause| loses(Cause::Dropped(cause)));
        let not_sent = counts.outputs.iter().map(|output| output.not_sent);
        [
            counts.placed,
            counts.missing.iter().sum(),
            drops.map(|&cause| counts.lost(cause)).sum(),
            counts.sent(),
            not_sent.sum(),
        ]
    };
    let (before, now): ([u64; 5], [u64; 5]) = (all(before), all(now));
    std::array::from_fn(|i| now[i].saturating_sub(before[i]) as f64 / seconds)
}

/// Losses a second between two looks, of each cause.
fn loss_rates(before: &Look, now: &Look) -> Vec<f64> {
    let seconds = now.since(before);
    let lost = now.lost.iter().zip(&before.lost);
    let rates = lost.map(|(now, before)| now.saturating_sub(*before) as f64 / seconds);
    rates.collect()
}

/// Shares of time between two looks: of each lcore by what it did, of a GPU by what it was busy
/// with.
fn bars(parts: &EnginePageParts, before: &Look, now: &Look) -> Vec<Bar> {
    let mut bars = time::bars(&parts.readings.times, &before.phases, &now.phases);
    let seconds = now.since(before);
    let busy = before.busy.iter().zip(&now.busy);
    bars.extend(
        parts
            .readings
            .busy
            .iter()
            .zip(busy)
            .map(|((name, _), (before, now))| {
                let share = now.saturating_sub(*before) as f64 * 1e-9 / seconds;
                let busy = Part {
                    name: "busy".to_owned(),
                    share: share.min(1.0),
                };
                Bar {
                    name: name.clone(),
                    parts: vec![busy],
                }
            }),
    );
    bars
}

impl Source for EnginePage {
    fn note(&mut self) {
        let now = look(&self.parts);
        let rates = rates(&self.last, &now);
        let point = |look: &Look| (look.time / HOUR.0) as u64;
        if point(&now) != point(&self.last) {
            self.point = self.last.clone();
        }
        let heaps = self::rates(&self.point, &now);
        self.rates.note(now.time, &heaps);
        self.losses.note(now.time, &loss_rates(&self.point, &now));
        let latencies = self.parts.readings.latencies.iter();
        let quantiles: Vec<_> = latencies
            .map(|latency| latency.take_quantiles([0.5, 0.999]))
            .collect();
        let each = quantiles.iter();
        let each = each.flat_map(|taken| taken.map_or([f64::NAN; 2], |(quantiles, _)| quantiles));
        let each: Vec<_> = each.collect();
        self.latency.note(now.time, &each);
        let input = self.parts.seen.published.statistics().input();
        let period = |input: &InputStatistics| spectra::period(input, self.parts.config.clock);
        let period = input.as_ref().map_or(0.0, |input| period(input));
        let newest = input.as_ref().map(|input| input.end.0);
        self.input.note(now.time, newest, period);
        self.figures = self.figures(&self.last, &now, &rates);
        for (index, output) in self.parts.config.outputs.iter().enumerate() {
            // A batch of many channels takes longer than a look.
            let newest = each.get(2 * index + 1).filter(|worst| worst.is_finite());
            let worst = &mut self.worst[index];
            *worst = newest.map(|newest| (now.time, *newest)).or(*worst);
            let worst = worst.filter(|(time, _)| now.time - time < HOUR.0);
            let worst = worst.map_or(f64::NAN, |(_, worst)| worst);
            let title = format!("latency p99.9 of {}", output.name);
            self.figures.push(Figure::new(title, worst, "s"));
        }
        self.bars = bars(&self.parts, &self.last, &now);
        self.last = now;
    }

    fn document(&mut self) -> Document {
        let has_come = self.last.counts.placed > 0;
        let verdict = Body::Verdict(board::verdict(&self.parts.seen.losses, has_come));
        let figures = Body::Figures {
            figures: self.figures.clone(),
        };
        let mut panels = vec![
            Panel::new("verdict", "Verdict", verdict),
            Panel::new("figures", "Now", figures),
        ];
        panels.extend(self.seen());
        panels.extend(self.last_hour());
        panels.extend(self.in_force());
        let mut document = Document::new(&self.parts.name, panels);
        document.program = format!("karoo fgpu {}", ground::karoo_version());
        document
    }

    fn array(&mut self, name: &str) -> Option<Array> {
        let found = array_of(&self.parts.config.outputs, name);
        let board = self.parts.seen.published.statistics();
        let Some((index, values)) = found else {
            let input = board
                .input()
                .filter(|of| name == spectra::SNAPSHOT && of.has_samples())?;
            return Some(spectra::snapshot_array(&input));
        };
        let statistics = board.output(index)?;
        Some(spectra::array([0, 1].map(|pol| values(&statistics, pol))))
    }

    fn file(&mut self, name: &str) -> Option<Download> {
        (name == drops::FILE).then(|| drops::download(&self.parts.rx))
    }
}

/// A value for each channel of one polarisation.
type Values = fn(&OutputStatistics, usize) -> Vec<f64>;

/// Which output's values the array of this name has, and which values.
fn array_of(outputs: &[OutputConfig], name: &str) -> Option<(usize, Values)> {
    let find = |name: &str| outputs.iter().position(|output| output.name == name);
    // A stream's own name may end as that of its kurtosis would.
    if let Some(index) = find(name) {
        return Some((index, spectra::powers));
    }
    Some((find(name.strip_suffix(".kurtosis")?)?, spectra::kurtosis))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn arrays_are_found_whatever_streams_are_called() {
        let output = |name: &str| {
            let wideband = format!("name={name},channels=64,dst=239.10.1.0");
            crate::config::tests::engine(&wideband, |_| {})
                .outputs
                .remove(0)
        };
        let outputs = ["w", "w.kurtosis", "v"].map(output);
        let kurtosis: Values = spectra::kurtosis;
        let found = |name: &str| {
            let (index, values) = array_of(&outputs, name)?;
            Some((index, std::ptr::fn_addr_eq(values, kurtosis)))
        };
        assert_eq!(found("w"), Some((0, false)));
        assert_eq!(found("w.kurtosis"), Some((1, false)));
        assert_eq!(found("w.kurtosis.kurtosis"), Some((1, true)));
        assert_eq!(found("v.kurtosis"), Some((2, true)));
        assert_eq!((found("x"), found("v.power")), (None, None));
    }

    #[test]
    fn rates_do_not_depend_on_a_clock_that_is_set() {
        let before = Look {
            time: 1000.0,
            at: Instant::now(),
            counts: LossCounts::default(),
            lost: vec![5],
            phases: Vec::new(),
            busy: Vec::new(),
        };
        for time in [0.0, 1002.0, 1e9] {
            let mut now = Look {
                time,
                at: before.at + Duration::from_secs(2),
                lost: vec![9],
                ..before.clone()
            };
            now.counts.placed = 20;
            assert_eq!(rates(&before, &now)[0], 10.0);
            assert_eq!(loss_rates(&before, &now), [2.0]);
        }
    }

    #[test]
    fn a_second_copy_is_no_heap_that_is_lost() {
        use crate::recv::DropCause::{Duplicate, NotOurs, TooOld, WrongHeapLength};
        let before = Look {
            time: 1000.0,
            at: Instant::now(),
            counts: LossCounts::default(),
            lost: Vec::new(),
            phases: Vec::new(),
            busy: Vec::new(),
        };
        let mut now = Look {
            at: before.at + Duration::from_secs(1),
            ..before.clone()
        };
        for (cause, count) in [(Duplicate, 40), (NotOurs, 7)] {
            now.counts.drops[cause as usize] = count;
        }
        assert_eq!(rates(&before, &now)[2], 0.0);
        // Descriptors are no data.
        for (cause, count) in [(TooOld, 3), (WrongHeapLength, 5)] {
            now.counts.drops[cause as usize] = count;
        }
        now.counts.metadata = 1;
        assert_eq!(rates(&before, &now)[2], 7.0);
    }
}
