//! A running graph as a source of pages.

use karoo_flow::place::rate_in_words;
use karoo_flow::run::{Handle, Shape, Telemetry};
use katcp::reading::unix_now;
use live::{
    Array, Arrow, Bar, Body, Document, Figure, History, Node, Panel, Part, Source, State, Verdict,
};

/// Seconds between two points of the last hour, and how many points it has.
const HOUR: (f64, usize) = (10.0, 360);
/// Nodes whose names a box has.
const NAMES: usize = 4;

/// The page of a running graph.
pub struct FlowPage {
    name: String,
    shape: Shape,
    handle: Handle,
    last: Telemetry,
    now: Telemetry,
    rates: History,
}

impl FlowPage {
    /// A page of the run that `handle` holds.
    pub fn new(name: &str, shape: Shape, handle: Handle) -> Self {
        let rates = ["rate".to_owned()];
        Self {
            name: name.to_owned(),
            shape,
            handle,
            last: Telemetry::default(),
            now: Telemetry::default(),
            rates: History::new(rates, HOUR.0, HOUR.1),
        }
    }

    /// Nanoseconds between the last two looks.
    fn span(&self) -> f64 {
        self.now.elapsed.saturating_sub(self.last.elapsed).max(1) as f64
    }

    /// Ticks a second that came out between the last two looks.
    fn rate(&self) -> f64 {
        let ticks = |telemetry: &Telemetry| {
            let out = telemetry
                .partitions
                .iter()
                .find(|part| part.name == "outputs");
            out.map_or(0, |part| part.ticks)
        };
        ticks(&self.now).saturating_sub(ticks(&self.last)) as f64 * 1e9 / self.span()
    }

    /// The share of the time between the last two looks that a partition did not wait. One that
    /// does not run is not busy.
    fn busy(&self, index: usize) -> f64 {
        let worked =
            |telemetry: &Telemetry| telemetry.partitions.get(index).map_or(0, |part| part.busy);
        let worked = worked(&self.now).saturating_sub(worked(&self.last)) as f64;
        (worked / self.span()).clamp(0.0, 1.0)
    }

    /// The partition that waits least, of those with nodes.
    fn bottleneck(&self) -> Option<usize> {
        let inner = (0..self.now.partitions.len()).filter(|&at| {
            self.shape
                .partitions
                .get(at)
                .is_some_and(|part| part.id.is_some())
        });
        inner.max_by(|&a, &b| self.busy(a).total_cmp(&self.busy(b)))
    }

    fn picture(&self) -> Body {
        let limit = self.bottleneck();
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
            Node {
                name: part.name.clone(),
                lines,
                share: self.busy(index),
                marked: limit == Some(index),
            }
        };
        let arrow = |(index, queue): (usize, &karoo_flow::run::QueueShape)| {
            let fill = self
                .now
                .queues
                .get(index)
                .map_or(0, |times| times.fill.median);
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

    fn verdict(&self) -> Verdict {
        let rate = format!("{} ticks a second", rate_in_words(self.rate()));
        let text = match self.bottleneck() {
            Some(at) if self.busy(at) > 0.9 => {
                let name = &self.shape.partitions[at].name;
                format!(
                    "{rate}; the limit is {name}, {:.0} % busy",
                    100.0 * self.busy(at)
                )
            }
            Some(_) => format!("{rate}; the limit is outside: no partition is always busy"),
            None => rate,
        };
        Verdict {
            text,
            ..Verdict::new(State::Well)
        }
    }

    fn bars(&self) -> Body {
        let bar = |(index, part): (usize, &karoo_flow::run::PartitionShape)| {
            let share =
                |of: &dyn Fn(&karoo_flow::run::QueueTelemetry) -> u64,
                 own: &dyn Fn(&karoo_flow::run::QueueShape) -> usize| {
                    let queues = self.shape.queues.iter().enumerate();
                    let here = queues.filter(|(_, queue)| own(queue) == index);
                    let time =
                        |telemetry: &Telemetry, at: usize| telemetry.queues.get(at).map_or(0, of);
                    let spans = here
                        .map(|(at, _)| time(&self.now, at).saturating_sub(time(&self.last, at)));
                    (spans.sum::<u64>() as f64 / self.span()).min(1.0)
                };
            let parts = [
                ("working", self.busy(index)),
                (
                    "waiting for input",
                    share(&|times| times.empty, &|queue| queue.to),
                ),
                (
                    "waiting for room",
                    share(&|times| times.full, &|queue| queue.from),
                ),
            ];
            Bar {
                name: part.name.clone(),
                parts: parts
                    .into_iter()
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
            "blocks in it",
            "of",
        ];
        let row = |(index, queue): (usize, &karoo_flow::run::QueueTelemetry)| {
            let last = self.last.queues.get(index);
            let share = |of: &dyn Fn(&karoo_flow::run::QueueTelemetry) -> u64| {
                let time = of(queue).saturating_sub(last.map_or(0, of)) as f64;
                format!("{:.0}", 100.0 * (time / self.span()).min(1.0))
            };
            vec![
                queue.from.clone(),
                queue.to.clone(),
                share(&|times| times.full),
                share(&|times| times.empty),
                queue.fill.median.to_string(),
                queue.capacity.to_string(),
            ]
        };
        Body::Table {
            columns: columns.map(str::to_owned).to_vec(),
            rows: self.now.queues.iter().enumerate().map(row).collect(),
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
        let row = |part: &karoo_flow::run::PartitionTelemetry| {
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
            rows: self.now.partitions.iter().map(row).collect(),
        }
    }
}

impl Source for FlowPage {
    fn note(&mut self) {
        self.last = std::mem::replace(&mut self.now, self.handle.telemetry());
        self.rates.note(unix_now(), &[self.rate()]);
    }

    fn document(&mut self) -> Document {
        let latency = &self.now.latency;
        let figures = vec![
            Figure::new("ticks a second", self.rate(), ""),
            Figure::new("seconds", self.now.elapsed as f64 * 1e-9, "s"),
            Figure::new("latency", latency.median as f64 * 1e-9, "s"),
            Figure::new("latency, 99 %", latency.p99 as f64 * 1e-9, "s"),
            Figure::new("latency at most", latency.most as f64 * 1e-9, "s"),
        ];
        let panels = vec![
            Panel::new("verdict", "Run", Body::Verdict(self.verdict())),
            Panel::new("figures", "Figures", Body::Figures { figures }),
            Panel::new("graph", "Graph", self.picture()).with_note(
                "Boxes fill as partitions work, arrows as queues fill; the limit is marked.",
            ),
            Panel::new("time", "Time", self.bars()),
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
        let mut page = FlowPage::new("aside", executor.shape(), run.handle());
        run.run().unwrap();
        page.note();
        assert_eq!(page.shape.partitions[3].name, "partition 1");
        assert_eq!(page.busy(3), 0.0);
        assert!(page.busy(2) > 0.0);
        assert_eq!(page.bottleneck(), Some(2));
    }
}
