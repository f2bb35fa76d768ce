//! All findings about a network, as text, JSON and a picture.

use std::fmt::{self, Write};

use serde::Serialize;

use super::cycles::Cycle;
use super::latency::Latency;
use super::network::{Network, Queue};
use super::ratio::{Period, maximum_cycle_ratio};
use crate::picture::{Arrow, Block, draw};
use crate::problem::Problems;
use crate::words::counted;

/// What is found about a live network.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What it is about.
    pub network: Network,
    /// The period that no run can beat.
    pub period: Period,
    /// The partitions of the cycle that sets it; one alone if that partition is the limit.
    pub critical: Vec<usize>,
    /// The queues of that cycle: those whose blocks are waited for, and those whose room is.
    #[serde(skip)]
    pub critical_queues: Vec<usize>,
    /// The cycles of queues, those that lack most blocks first.
    pub cycles: Vec<Cycle>,
    /// Whether `cycles` are all of them.
    pub complete: bool,
    /// From each end to each other end that it reaches.
    pub latencies: Vec<Latency>,
    /// Whether `latencies` are all of them.
    pub latencies_complete: bool,
    /// Bytes of all queues.
    pub memory: u64,
}

impl Network {
    /// Analyses the network, or tells what is wrong with it and where it would stand still.
    ///
    /// `wanted` is the period in nanoseconds for which missing blocks are counted; without it, that
    /// of the busiest partition.
    pub fn analyse(&self, wanted: Option<u64>) -> Result<Report, Problems> {
        self.check()?;
        self.live()?;
        let arcs = self.dependences();
        let found = maximum_cycle_ratio(self.partitions.len(), &arcs);
        let (period, cycle) = found.unwrap_or((Period { time: 0, tokens: 1 }, vec![]));
        let busiest = self
            .partitions
            .iter()
            .map(|partition| partition.busy)
            .max()
            .unwrap_or(0);
        let target = Period {
            time: wanted.unwrap_or(busiest).max(1),
            tokens: 1,
        };
        let (cycles, complete) = self.cycles(target);
        let (latencies, latencies_complete) = self.latencies(period);
        // Behind an arc of each partition, two of each queue.
        let queue = |&arc: &usize| Some(arc.checked_sub(self.partitions.len())? / 2);
        Ok(Report {
            network: self.clone(),
            period,
            critical: cycle.iter().map(|&arc| arcs[arc].from).collect(),
            critical_queues: cycle.iter().filter_map(queue).collect(),
            cycles,
            complete,
            latencies,
            latencies_complete,
            memory: self.memory(),
        })
    }
}

impl Report {
    fn name(&self, partition: usize) -> &str {
        &self.network.partitions[partition].name
    }

    fn names(&self, partitions: impl IntoIterator<Item = usize>) -> String {
        let names: Vec<&str> = partitions.into_iter().map(|at| self.name(at)).collect();
        names.join(" -> ")
    }

    /// The report as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self)
            .unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"))
    }

    /// The network as a picture in DOT, the cycle that sets the period in red.
    pub fn to_dot(&self) -> String {
        let mut dot = String::from("digraph network {\n  rankdir=LR;\n  node [shape=box];\n");
        for (index, partition) in self.network.partitions.iter().enumerate() {
            let color = if self.critical.contains(&index) {
                ", color=red"
            } else {
                ""
            };
            let name = format!("{}\n{} ns", partition.name, partition.busy);
            let _ = writeln!(dot, "  p{index} [label={}{color}];", quoted(&name));
        }
        for (index, queue) in self.network.queues.iter().enumerate() {
            let color = if self.critical_queues.contains(&index) {
                ", color=red"
            } else {
                ""
            };
            let _ = writeln!(
                dot,
                "  p{} -> p{} [label=\"{}/{}\"{color}];",
                queue.from, queue.to, queue.initial, queue.capacity
            );
        }
        dot.push_str("}\n");
        dot
    }
}

impl Report {
    /// The network as a picture in SVG, the cycle that sets the period in red.
    pub fn to_svg(&self) -> String {
        let partitions = self.network.partitions.iter().enumerate();
        let blocks: Vec<Block> = partitions
            .map(|(index, partition)| Block {
                lines: vec![partition.name.clone(), format!("{} ns", partition.busy)],
                red: self.critical.contains(&index),
            })
            .collect();
        let arrow = |(index, queue): (usize, &Queue)| Arrow {
            from: queue.from,
            to: queue.to,
            label: format!("{}/{}", queue.initial, queue.capacity),
            red: self.critical_queues.contains(&index),
        };
        let queues = self.network.queues.iter().enumerate();
        let arrows: Vec<Arrow> = queues.map(arrow).collect();
        draw(&blocks, &arrows)
    }
}

/// A string of DOT.
pub(crate) fn quoted(text: &str) -> String {
    format!(
        "\"{}\"",
        text.replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
    )
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let critical = self.critical.iter().copied().chain(
            self.critical
                .first()
                .copied()
                .filter(|_| self.critical.len() > 1),
        );
        match self.critical.is_empty() {
            true => writeln!(f, "period   none: no node has anything to compute")?,
            false => writeln!(
                f,
                "period   {:.1} ns a block, set by {}",
                self.period.nanoseconds(),
                self.names(critical)
            )?,
        }
        writeln!(
            f,
            "memory   {} bytes in {}",
            self.memory,
            counted(self.network.queues.len() as u64, "queue")
        )?;
        for latency in &self.latencies {
            write!(
                f,
                "latency  {} to {}: {} ns with empty queues, {:.0} ns with full ones",
                self.name(latency.from),
                self.name(latency.to),
                latency.empty,
                latency.full
            )?;
            writeln!(
                f,
                "{}",
                if latency.blocks > 0 {
                    format!(", {} later", counted(latency.blocks, "block"))
                } else {
                    String::new()
                }
            )?;
        }
        if !self.latencies_complete {
            writeln!(f, "latency  there are more than are listed")?;
        }
        for cycle in &self.cycles {
            let ring = cycle
                .partitions
                .iter()
                .copied()
                .chain(cycle.partitions.first().copied());
            write!(
                f,
                "cycle    {}: {}, {:.2} a partition, {:.1} ns",
                self.names(ring),
                counted(cycle.blocks, "block"),
                cycle.blocks_per_partition(),
                cycle.period.nanoseconds()
            )?;
            writeln!(
                f,
                "{}",
                match cycle.missing {
                    0 => String::new(),
                    1 => "; 1 more is needed".to_owned(),
                    missing => format!("; {missing} more are needed"),
                }
            )?;
        }
        if !self.complete {
            writeln!(f, "cycle    there are more than are listed")?;
        }
        Ok(())
    }
}
