//! Telemetry as tables, as metrics, and as a picture.

use std::fmt::Write as _;

use super::bottleneck::Limit;
use super::moment::Moment;
use super::telemetry::{Quantiles, Telemetry};

/// Puts text together; writing to a string does not fail.
macro_rules! put {
    ($text:expr, $($rest:tt)*) => {
        let _ = writeln!($text, $($rest)*);
    };
}

/// A label's value.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', " ")
}

/// A field of a table: in quotes where it has a comma.
fn field(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn quantiles(text: &mut String, name: &str, labels: &str, spread: Quantiles, scale: f64) {
    // What was not looked at is not known, and is no 0.
    if spread.count == 0 {
        return;
    }
    let comma = if labels.is_empty() { "" } else { "," };
    for (quantile, value) in [
        ("0", spread.least),
        ("0.5", spread.median),
        ("0.99", spread.p99),
        ("0.99999", spread.p99_999),
        ("1", spread.most),
    ] {
        put!(
            text,
            "{name}{{{labels}{comma}quantile=\"{quantile}\"}} {}",
            value as f64 * scale
        );
    }
}

/// Numbers as fields of a table: empty where nothing was looked at.
fn fields<const N: usize>(known: bool, numbers: [u64; N]) -> String {
    let field = |number: u64| match known {
        true => format!(",{number}"),
        false => ",".to_owned(),
    };
    numbers.into_iter().map(field).collect()
}

impl Moment {
    /// The titles of [`to_csv`](Moment::to_csv)'s columns. Those that begin with `interval` are of
    /// the time since the moment before, all others of the run so far.
    pub const CSV: &str = "elapsed_ns,partition,ticks,busy_ns,waiting_to_read_ns,waiting_to_write_ns,\
                           interval_ns,interval_ticks_per_second,interval_busy_percent,\
                           interval_waiting_to_read_percent,interval_waiting_to_write_percent,\
                           interval_step_reading_ns,interval_step_computing_ns,\
                           interval_step_writing_ns,interval_step_median_ns,interval_step_p99_ns,\
                           interval_step_most_ns,interval_latency_median_ns,\
                           interval_latency_p99_ns,interval_latency_most_ns";

    /// A line for each partition, without titles: lines of many moments make a table, each with the
    /// moment `before`.
    pub fn to_csv(&self, before: &Moment) -> String {
        let mut text = String::new();
        let (all, interval) = (&self.telemetry, self.since(before));
        let latency = interval.latency;
        let latency = fields(
            latency.count > 0,
            [latency.median, latency.p99, latency.most],
        );
        let percent = |time: u64| 100.0 * interval.share(time);
        let seconds = interval.elapsed.max(1) as f64 * 1e-9;
        for (partition, new) in all.partitions.iter().zip(&interval.partitions) {
            let steps = new.steps;
            let steps = fields(
                steps.count > 0,
                [
                    new.reading,
                    new.computing,
                    new.writing,
                    steps.median,
                    steps.p99,
                    steps.most,
                ],
            );
            put!(
                text,
                "{},{},{},{},{},{},{},{:.1},{:.2},{:.2},{:.2}{steps}{latency}",
                all.elapsed,
                field(&partition.name),
                partition.ticks,
                partition.busy,
                partition.waiting_to_read,
                partition.waiting_to_write,
                interval.elapsed,
                new.ticks as f64 / seconds,
                percent(new.busy),
                percent(new.waiting_to_read),
                percent(new.waiting_to_write)
            );
        }
        text
    }
}

impl Telemetry {
    /// The counts in Prometheus's text format.
    pub fn to_prometheus(&self) -> String {
        let mut text = String::new();
        let seconds = 1e-9;
        let head = |text: &mut String, name: &str, kind: &str, help: &str| {
            put!(text, "# HELP {name} {help}");
            put!(text, "# TYPE {name} {kind}");
        };
        head(
            &mut text,
            "flow_ticks_total",
            "counter",
            "Ticks done by a partition.",
        );
        for partition in &self.partitions {
            put!(
                text,
                "flow_ticks_total{{partition=\"{}\"}} {}",
                quoted(&partition.name),
                partition.ticks
            );
        }
        head(
            &mut text,
            "flow_seconds_total",
            "counter",
            "Seconds of a partition by phase.",
        );
        for partition in &self.partitions {
            let name = quoted(&partition.name);
            for (phase, time) in [
                ("busy", partition.busy),
                ("waiting_to_read", partition.waiting_to_read),
                ("waiting_to_write", partition.waiting_to_write),
            ] {
                let time = time as f64 * seconds;
                put!(
                    text,
                    "flow_seconds_total{{partition=\"{name}\",phase=\"{phase}\"}} {time}"
                );
            }
        }
        head(
            &mut text,
            "flow_step_seconds",
            "summary",
            "Seconds of a step without waiting.",
        );
        for partition in &self.partitions {
            let labels = format!("partition=\"{}\"", quoted(&partition.name));
            quantiles(
                &mut text,
                "flow_step_seconds",
                &labels,
                partition.steps,
                seconds,
            );
        }
        head(
            &mut text,
            "flow_step_phase_seconds",
            "gauge",
            "Seconds of a step by phase, on average of the steps that were timed.",
        );
        for partition in &self.partitions {
            let name = quoted(&partition.name);
            for (phase, time) in [
                ("reading", partition.reading),
                ("computing", partition.computing),
                ("writing", partition.writing),
            ] {
                let time = time as f64 * seconds;
                put!(
                    text,
                    "flow_step_phase_seconds{{partition=\"{name}\",phase=\"{phase}\"}} {time}"
                );
            }
        }
        head(
            &mut text,
            "flow_queue_seconds_total",
            "counter",
            "Seconds that an end of a queue waited: its writer for room, its reader for a block.",
        );
        for queue in &self.queues {
            let labels = format!(
                "from=\"{}\",to=\"{}\"",
                quoted(&queue.from),
                quoted(&queue.to)
            );
            let (full, empty) = (queue.full as f64 * seconds, queue.empty as f64 * seconds);
            put!(
                text,
                "flow_queue_seconds_total{{{labels},end=\"writer\"}} {full}"
            );
            put!(
                text,
                "flow_queue_seconds_total{{{labels},end=\"reader\"}} {empty}"
            );
        }
        head(
            &mut text,
            "flow_queue_blocks",
            "summary",
            "Blocks that a reader found in its queue.",
        );
        for queue in &self.queues {
            let labels = format!(
                "from=\"{}\",to=\"{}\"",
                quoted(&queue.from),
                quoted(&queue.to)
            );
            quantiles(&mut text, "flow_queue_blocks", &labels, queue.fill, 1.0);
        }
        head(
            &mut text,
            "flow_latency_seconds",
            "summary",
            "Seconds from a block's input to its output.",
        );
        quantiles(&mut text, "flow_latency_seconds", "", self.latency, seconds);
        text
    }

    /// A picture of partitions and queues in DOT, the limit in red if it is one of them.
    pub fn to_dot(&self) -> String {
        let mut text = String::from("digraph flow {\n  rankdir=LR;\n  node [shape=box];\n");
        let limit = self.limit().and_then(Limit::partition);
        let percent = |time: u64| 100.0 * time as f64 / self.elapsed.max(1) as f64;
        for (index, partition) in self.partitions.iter().enumerate() {
            let colour = if limit == Some(index) {
                ", color=red, penwidth=3"
            } else {
                ""
            };
            put!(
                text,
                "  \"{0}\" [label=\"{0}\\n{1:.0} % busy\"{colour}];",
                quoted(&partition.name),
                percent(partition.busy)
            );
        }
        for queue in &self.queues {
            put!(
                text,
                "  \"{}\" -> \"{}\" [label=\"{}/{}, writer waits {:.0} %, reader waits {:.0} %\"];",
                quoted(&queue.from),
                quoted(&queue.to),
                queue.fill.median,
                queue.capacity,
                percent(queue.full),
                percent(queue.empty)
            );
        }
        text.push_str("}\n");
        text
    }
}
