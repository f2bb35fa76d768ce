//! A plan as text and as pictures.

use std::fmt::{self, Write};

use super::plan::{Partition, Plan, Queue};
use crate::analysis::quoted;
use crate::picture::{Arrow, Block, draw, some};
use crate::words::counted;

impl Plan {
    fn name(&self, id: Option<u32>, outside: &str) -> String {
        id.map_or_else(|| outside.into(), |id| format!("partition {id}"))
    }

    /// Whether a queue is on the cycle that sets the period: its reader waits for its blocks, or
    /// its writer for its room, where no queue goes the other way.
    fn is_critical(&self, from: Option<u32>, to: Option<u32>) -> bool {
        let (Some(from), Some(to)) = (from, to) else {
            return false;
        };
        let ids = self.critical.iter();
        let pairs = || ids.clone().zip(ids.clone().cycle().skip(1));
        let waits = |on: u32, waiting: u32| pairs().any(|pair| pair == (&on, &waiting));
        let back = |queue: &Queue| (queue.from, queue.to) == (Some(to), Some(from));
        from != to && (waits(from, to) || waits(to, from) && !self.queues.iter().any(back))
    }

    /// The plan as a picture in DOT: partitions with their nodes, what sets the period in red.
    pub fn to_dot(&self) -> String {
        let mut dot = String::from(
            "digraph plan {\n  rankdir=LR;\n  node [shape=box];\n  inputs [shape=plaintext];\n  \
             outputs [shape=plaintext];\n",
        );
        for partition in &self.partitions {
            let red = if self.critical.contains(&partition.id) {
                ", color=red"
            } else {
                ""
            };
            let cpu = place_of(partition);
            let label = format!(
                "partition {}{cpu}\n{:.3} ns a tick\n{}",
                partition.id,
                partition.busy_ns,
                some(&partition.nodes, 12).join("\n")
            );
            let _ = writeln!(dot, "  p{} [label={}{red}];", partition.id, quoted(&label));
        }
        let end = |id: Option<u32>, outside: &str| {
            id.map_or_else(|| outside.into(), |id| format!("p{id}"))
        };
        for queue in &self.queues {
            let red = if self.is_critical(queue.from, queue.to) {
                ", color=red"
            } else {
                ""
            };
            let label = format!(
                "{} x {} ticks\n{} B",
                queue.capacity, queue.block, queue.bytes
            );
            let _ = writeln!(
                dot,
                "  {} -> {} [label={}{red}];",
                end(queue.from, "inputs"),
                end(queue.to, "outputs"),
                quoted(&label)
            );
        }
        dot.push_str("}\n");
        dot
    }

    /// The plan as a picture in SVG: partitions from left to right as data goes, queues between
    /// them, what sets the period in red.
    pub fn to_svg(&self) -> String {
        let index = |id: Option<u32>, outside: usize| {
            let at = |id| {
                self.partitions
                    .iter()
                    .position(|partition| partition.id == id)
            };
            id.and_then(at).map_or(outside, |at| at + 1)
        };
        let plain = |name: &str| Block {
            lines: vec![name.into()],
            red: false,
        };
        let mut blocks = vec![plain("inputs")];
        for partition in &self.partitions {
            let cpu = place_of(partition);
            let mut lines = vec![
                format!("partition {}{cpu}", partition.id),
                format!("{:.3} ns a tick", partition.busy_ns),
            ];
            lines.extend(some(&partition.nodes, 10));
            let red = self.critical.contains(&partition.id);
            blocks.push(Block { lines, red });
        }
        blocks.push(plain("outputs"));
        let arrow = |queue: &Queue| Arrow {
            from: index(queue.from, 0),
            to: index(queue.to, self.partitions.len() + 1),
            label: format!("{} × {} ticks", queue.capacity, queue.block),
            red: self.is_critical(queue.from, queue.to),
        };
        let arrows: Vec<Arrow> = self.queues.iter().map(arrow).collect();
        draw(&blocks, &arrows)
    }
}

/// Where a partition and its copies run.
fn place_of(partition: &Partition) -> String {
    let cpus = partition
        .cpu
        .iter()
        .chain(partition.copies.iter().flatten());
    let cpus: Vec<String> = cpus.map(usize::to_string).collect();
    match (cpus.len(), partition.copies.len()) {
        (0, 0) => String::new(),
        (0, copies) => format!(", {} times", copies + 1),
        (1, _) => format!(" on CPU {}", cpus[0]),
        _ => format!(" on CPUs {}", cpus.join(", ")),
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for partition in &self.partitions {
            let cpu = place_of(partition);
            writeln!(
                f,
                "partition {}{cpu}: {:.3} ns a tick, {}: {}",
                partition.id,
                partition.busy_ns,
                counted(partition.nodes.len() as u64, "node"),
                some(&partition.nodes, 8).join(", ")
            )?;
        }
        for queue in &self.queues {
            writeln!(
                f,
                "{} -> {}: {} of {}, {} bytes each, {} at the start",
                self.name(queue.from, "inputs"),
                self.name(queue.to, "outputs"),
                counted(queue.capacity, "block"),
                counted(queue.block, "tick"),
                queue.bytes,
                queue.initial
            )?;
        }
        let limit = match (self.outside, self.critical.as_slice()) {
            (true, _) => "the outside, or the number of CPUs".into(),
            (false, ids) => {
                let names: Vec<String> = ids.iter().map(|id| format!("partition {id}")).collect();
                names.join(" -> ")
            }
        };
        let best = if self.proved {
            "no other placement is faster, by the model"
        } else {
            "the best of those that were tried"
        };
        let guess = if self.measured {
            ""
        } else {
            "; costs are guessed, rates mean nothing"
        };
        if self.period_ns == 0.0 {
            return writeln!(
                f,
                "expected: any rate, for no node has anything to compute{guess}"
            );
        }
        writeln!(
            f,
            "expected: {:.3} ns a tick, {} ticks a second, set by {limit}; {best}{guess}",
            self.period_ns,
            rate_in_words(self.rate())
        )
    }
}

/// A rate with three places, in millions or thousands where it has some.
pub fn rate_in_words(rate: f64) -> String {
    match rate {
        1e6.. => format!("{:.3} million", rate / 1e6),
        1e3.. => format!("{:.3} thousand", rate / 1e3),
        _ => format!("{rate:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::VERSION;
    use super::*;
    use crate::run::Transfer;

    #[test]
    fn a_queue_whose_room_sets_the_period_is_drawn_as_such() {
        let partition = |id: u32| Partition {
            id,
            cpu: None,
            copies: Vec::new(),
            nodes: Vec::new(),
            busy_ns: 1.0,
        };
        let queue = |(from, to): (u32, u32)| Queue {
            from: Some(from),
            to: Some(to),
            block: 1,
            capacity: 1,
            initial: 0,
            bytes: 64,
            transfer: Transfer::default(),
        };
        let red = |queues: &[(u32, u32)]| -> Vec<bool> {
            let plan = Plan {
                schema: String::new(),
                version: VERSION,
                graph: String::new(),
                partitions: [0, 1, 2].map(partition).to_vec(),
                queues: queues.iter().copied().map(queue).collect(),
                block: 1,
                step: 1,
                period_ns: 1.0,
                critical: vec![0, 1, 2],
                outside: false,
                proved: false,
                measured: false,
            };
            let dot = plan.to_dot();
            let arrows = dot.lines().filter(|line| line.contains("->"));
            arrows.map(|line| line.contains("color=red")).collect()
        };
        assert_eq!(red(&[(0, 1), (1, 2), (0, 2)]), [true, true, true]);
        assert_eq!(red(&[(0, 1), (1, 2), (2, 0)]), [true, true, true]);
        // Blocks go back by a queue of their own.
        let both = [(0, 1), (1, 2), (2, 0), (0, 2)];
        assert_eq!(red(&both), [true, true, true, false]);
    }

    #[test]
    fn small_rates_are_not_zero_millions() {
        let rates = [517_063_123.0, 1e6, 4_233.7, 12.5, 0.0].map(rate_in_words);
        let wanted = [
            "517.063 million",
            "1.000 million",
            "4.234 thousand",
            "12.500",
            "0.000",
        ];
        assert_eq!(rates, wanted);
    }
}
