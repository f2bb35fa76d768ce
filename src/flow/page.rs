//! A running graph as a source of pages.

use karoo_flow::run::{Limit, Moment, PartitionTelemetry, Shape, Telemetry};
use katcp::reading::unix_now;
use live::{Array, Arrow, Bar, Body, Document, Figure, History, Node, Panel, Part, Source, Within};

use super::run_watch::RunWatch;
use super::verdict::{Progress, ticks_out, waiting};

/// Seconds between two points of the last hour, and how many points it has.
const HOUR: (f64, usize) = (10.0, 360);
/// Nodes whose names a box has.
const NAMES: usize = 4;
/// The index of the inputs among partitions.
const IN: usize = 0;
/// What inputs and outputs do that do nothing.
const SILENT: &str = "waits for samples";
const FULL: &str = "waits for readers";

/// The share of the time that a partition works, by phases of the steps that were timed. Without
/// such steps it is one.
fn phases(times: &PartitionTelemetry, working: f64) -> Vec<(&'static str, f64)> {
    let all = times.reading + times.computing + times.writing;
    if times.steps.count == 0 || all == 0 {
        return vec![("working", working)];
    }
    let share = |time: u64| working * time as f64 / all as f64;
    vec![
        ("reading queues", share(times.reading)),
        ("computing", share(times.computing)),
        ("writing queues", share(times.writing)),
    ]
}

/// The page of a running graph.
pub struct FlowPage {
    name: String,
    shape: Shape,
    run: RunWatch,
    now: Moment,
    /// What was done between the last two looks.
    span: Telemetry,
    /// UNIX time of the last look.
    time: f64,
    progress: Progress,
    rates: History,
}

impl FlowPage {
    /// A page of a run, which need not have begun.
    pub fn new(name: &str, shape: Shape, run: RunWatch) -> Self {
        let rates = ["rate".to_owned()];
        Self {
            name: name.to_owned(),
            shape,
            run,
            now: Moment::default(),
            span: Telemetry::default(),
            time: unix_now(),
            progress: Progress::new(unix_now()),
            rates: History::new(rates, HOUR.0, HOUR.1).keeping(Within::Mean),
        }
    }

    /// Ticks a second that came out between the last two looks.
    fn rate(&self) -> f64 {
        ticks_out(&self.span) as f64 * 1e9 / self.span.elapsed.max(1) as f64
    }

    /// The share of the time between the last two looks that a partition did not wait. One that
    /// does not run is not busy.
    fn busy(&self, index: usize) -> f64 {
        let part = self.span.partitions.get(index);
        part.map_or(0.0, |part| self.span.share(part.busy))
    }

    /// What a partition does, and how much of its time. Inputs and outputs that wait for what is
    /// outside do nothing, which no count tells from reading and writing.
    fn does(&self, index: usize) -> (&'static str, f64) {
        let busy = self.busy(index);
        let parts = (
            self.shape.partitions.get(index),
            self.span.partitions.get(index),
        );
        let outer = parts.0.is_some_and(|part| part.id.is_none());
        // A blocked read or write takes all of the time and brings no tick.
        let blocked = busy > 0.5 && parts.1.is_some_and(|part| part.ticks == 0);
        match (outer, index == IN) {
            (false, _) => ("busy", busy),
            (true, true) if blocked => (SILENT, 0.0),
            (true, false) if blocked => (FULL, 0.0),
            (true, true) => ("reading", busy),
            (true, false) => ("writing", busy),
        }
    }

    fn picture(&self) -> Body {
        let limit = self.span.limit().and_then(Limit::partition);
        let node = |(index, part): (usize, &karoo_flow::run::PartitionShape)| {
            let names: Vec<&str> = part.units.iter().flatten().map(String::as_str).collect();
            let mut lines: Vec<String> = names
                .iter()
                .take(NAMES)
                .map(|name| (*name).to_owned())
                .collect();
            if names.len() > NAMES {
                lines.push(format!("and {} more", names.len() - NAMES));
            }
            let (does, share) = self.does(index);
            let says = match does {
                SILENT | FULL => does.to_owned(),
                _ => format!("{:.0} % {does}", 100.0 * share),
            };
            Node {
                name: part.name.clone(),
                says,
                lines,
                share,
                marked: limit == Some(index),
            }
        };
        let arrow = |(index, queue): (usize, &karoo_flow::run::QueueShape)| {
            let fill = self
                .now
                .telemetry
                .queues
                .get(index)
                .map_or(0, |times| times.held);
            Arrow {
                from: queue.from,
                to: queue.to,
                label: format!("{fill} of {} × {}", queue.capacity, queue.block),
                share: fill as f64 / queue.capacity.max(1) as f64,
            }
        };
        Body::Network {
            nodes: self.shape.partitions.iter().enumerate().map(node).collect(),
            arrows: self.shape.queues.iter().enumerate().map(arrow).collect(),
        }
    }

    fn bars(&self) -> Body {
        let bar = |(index, part): (usize, &karoo_flow::run::PartitionShape)| {
            let times = self.span.partitions.get(index);
            let share = |of: &dyn Fn(&PartitionTelemetry) -> u64| {
                times.map_or(0.0, |times| self.span.share(of(times)))
            };
            let (_, does_for) = self.does(index);
            let outside = self.busy(index) - does_for;
            let does = match (part.id, index == IN) {
                (Some(_), _) => times.map_or_else(Vec::new, |times| phases(times, does_for)),
                (None, true) => vec![("reading", does_for)],
                (None, false) => vec![("writing", does_for)],
            };
            let waits = [
                ("waiting for what is outside", outside),
                ("waiting for input", share(&|times| times.waiting_to_read)),
                ("waiting for room", share(&|times| times.waiting_to_write)),
            ];
            let parts = does.into_iter().chain(waits);
            let parts = parts.filter(|(_, share)| *share > 0.0);
            Bar {
                name: part.name.clone(),
                parts: parts
                    .map(|(name, share)| Part {
                        name: name.to_owned(),
                        share,
                    })
                    .collect(),
            }
        };
        Body::Bars {
            bars: self.shape.partitions.iter().enumerate().map(bar).collect(),
        }
    }

    /// How long the ends of each queue waited for it between the last two looks.
    fn queues(&self) -> Body {
        let columns = [
            "from",
            "to",
            "writer waits, %",
            "reader waits, %",
            "blocks in it now",
            "of",
        ];
        let share = |time: u64| format!("{:.0}", 100.0 * self.span.share(time));
        let row = |queue: &karoo_flow::run::QueueTelemetry| {
            vec![
                queue.from.clone(),
                queue.to.clone(),
                share(queue.full),
                share(queue.empty),
                queue.held.to_string(),
                queue.capacity.to_string(),
            ]
        };
        Body::Table {
            columns: columns.map(str::to_owned).to_vec(),
            rows: self.span.queues.iter().map(row).collect(),
        }
    }

    fn table(&self) -> Body {
        let columns = [
            "partition",
            "ticks",
            "a step, ns",
            "99 %, ns",
            "at most, ns",
        ];
        let row = |part: &PartitionTelemetry| {
            let numbers = [
                part.ticks,
                part.steps.median,
                part.steps.p99,
                part.steps.most,
            ];
            let cells = numbers.iter().map(u64::to_string);
            std::iter::once(part.name.clone()).chain(cells).collect()
        };
        Body::Table {
            columns: columns.map(str::to_owned).to_vec(),
            rows: self.now.telemetry.partitions.iter().map(row).collect(),
        }
    }
}

impl Source for FlowPage {
    fn note(&mut self) {
        let before = std::mem::replace(&mut self.now, self.run.moment());
        self.time = unix_now();
        self.span = self.now.since(&before);
        let (before, now) = (&before.telemetry, &self.now.telemetry);
        self.progress.note(self.time, before, now);
        self.rates.note(self.time, &[self.rate()]);
    }

    fn document(&mut self) -> Document {
        let latency = self.now.telemetry.latency;
        // What was not measured is not known, and is no 0.
        let late = |nanoseconds: u64| match latency.count {
            0 => f64::NAN,
            _ => nanoseconds as f64 * 1e-9,
        };
        let figures = vec![
            Figure::new("ticks a second", self.rate(), ""),
            Figure::new("seconds", self.now.telemetry.elapsed as f64 * 1e-9, "s"),
            Figure::new("latency", late(latency.median), "s"),
            Figure::new("latency, 99 %", late(latency.p99), "s"),
            Figure::new("latency at most", late(latency.most), "s"),
        ];
        let verdict = waiting(self.run.waits());
        let verdict = verdict.unwrap_or_else(|| self.progress.verdict(&self.span));
        let panels = vec![
            Panel::new("verdict", "Run", Body::Verdict(verdict)),
            Panel::new("figures", "Figures", Body::Figures { figures }),
            Panel::new("graph", "Graph", self.picture()).with_note(
                "Boxes fill as partitions work, arrows as queues fill. What holds the rate back is \
                 marked.",
            ),
            Panel::new("time", "Time", self.bars()).with_note(
                "Of inputs and outputs, reading and writing count the time in which what is \
                 outside is waited for. The work of partitions is dealt out as in the steps that \
                 were timed.",
            ),
            Panel::new("queues", "Waiting, by queue", self.queues()),
            Panel::new("steps", "Steps", self.table()),
            Panel::new(
                "hour",
                "Last hour",
                Body::TimeSeries(self.rates.time_series("ticks/s")),
            ),
        ];
        Document::new(self.name.clone(), panels)
    }

    fn array(&mut self, _name: &str) -> Option<Array> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use karoo_flow::nodes::Counter;
    use karoo_flow::{Builder, Executor, Scalar, Settings, Type};

    use super::*;

    #[test]
    fn a_latency_that_was_not_measured_is_not_known() {
        let g = Builder::new("source");
        let counter = Counter {
            period: 9,
            initial: 0,
            output: Scalar::U32,
        };
        g.output("y", g.add(counter, []).gain(2));
        let executor = Executor::new(&g.build().unwrap(), Settings::default()).unwrap();
        let mut page = FlowPage::new("source", executor.shape(), RunWatch::default());
        let document = page.document();
        let figures = document.panels.iter().find_map(|panel| match &panel.body {
            Body::Figures { figures } => Some(figures),
            _ => None,
        });
        let figures = figures.unwrap().iter();
        let known = |figure: &&Figure| figure.value.is_some();
        let names: Vec<&str> = figures
            .filter(known)
            .map(|figure| &figure.name[..])
            .collect();
        assert_eq!(names, ["ticks a second", "seconds"]);
    }

    #[test]
    fn the_work_of_a_partition_is_dealt_out_by_its_phases() {
        let mut times = PartitionTelemetry {
            reading: 100,
            computing: 700,
            writing: 200,
            ..PartitionTelemetry::default()
        };
        assert_eq!(phases(&times, 0.5), [("working", 0.5)]);
        times.steps.count = 3;
        let parts = phases(&times, 0.5);
        let names: Vec<&str> = parts.iter().map(|part| part.0).collect();
        assert_eq!(names, ["reading queues", "computing", "writing queues"]);
        for ((_, share), wanted) in parts.into_iter().zip([0.05, 0.35, 0.1]) {
            assert!((share - wanted).abs() < 1e-12, "{share}");
        }
    }

    #[test]
    fn a_partition_that_does_not_run_is_not_busy() {
        let g = Builder::new("aside");
        let x = g.input("x", Type::F32);
        let y = g.scope("way", || {
            g.partition(0);
            x.fir([0.5; 31])
        });
        // Nobody hears of it.
        g.scope("aside", || {
            g.partition(1);
            let counter = Counter {
                period: 9,
                initial: 0,
                output: Scalar::U32,
            };
            g.add(counter, []).gain(2);
        });
        g.output("y", y);
        let executor = Executor::new(&g.build().unwrap(), Settings::default()).unwrap();
        let writer: Box<dyn Write> = Box::new(std::io::sink());
        let reader = Box::new(Cursor::new(vec![0; 1 << 20]));
        let run = executor.prepare(vec![reader], vec![writer]).unwrap();
        let seen = RunWatch::default();
        seen.begin(run.handle());
        let mut page = FlowPage::new("aside", executor.shape(), seen);
        run.run().unwrap();
        page.note();
        assert_eq!(page.shape.partitions[3].name, "partition 1");
        assert_eq!(page.busy(3), 0.0);
        assert!(page.busy(2) > 0.0);
        assert_ne!(page.span.limit(), Some(Limit::Partition(3)));
    }
}
