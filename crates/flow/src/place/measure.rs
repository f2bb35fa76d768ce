//! A short run of a graph on one core, to see what its nodes cost.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use super::costs::{Cost, Costs, VERSION, fingerprint};
use super::longest::longest_block;
use super::model::QueueCosts;
use super::{pace, transfers};
use crate::builder::Builder;
use crate::graph::{Graph, NodeId};
use crate::queue::queue;
use crate::run::{Executor, Outcome, PartitionTelemetry, Settings, Telemetry};
use crate::types::{Scalar, Type};

/// Steps of each partition whose time is to be seen.
const ENOUGH: u64 = 16;
/// How many times as long a slow graph may run.
const LONGER: u32 = 20;
/// As long as this, if not one step was seen: the CPU may be another program's for a while.
const LONGEST: Duration = Duration::from_secs(10);
/// Nanoseconds of a step that may be the partition's own, beside nodes and queues. More is what
/// other programs took.
const MOST_BESIDE: f64 = 200.0;
/// How long threads run before their rate is measured.
const BEGINNING: Duration = Duration::from_millis(20);
/// How often the time is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// How costs are measured.
#[derive(Clone, Copy, Debug)]
pub struct Calibration {
    /// How long each of three runs goes on.
    pub time: Duration,
    /// The CPU that nodes run on; none: wherever the kernel puts them.
    pub cpu: Option<usize>,
}

impl Default for Calibration {
    fn default() -> Calibration {
        Calibration {
            time: Duration::from_millis(400),
            cpu: None,
        }
    }
}

/// Lets the graph run on one core, with noise at its inputs, and looks at the time of each node.
///
/// Two runs with steps of two lengths tell what a step costs apart from its samples; signals are
/// copied, so that nodes cost what they do where their numbers are near. A third run, in blocks,
/// tells how much of the copying is left. What nodes take that run together, sample by sample, is
/// dealt out evenly.
pub fn measure(graph: &Graph, calibration: Calibration) -> Result<Costs, String> {
    let long = Settings::default().step;
    // Just before and behind the run that counts most: the CPU may be another's in a moment.
    let loops = || pace::alone(calibration.cpu?, calibration.time / 8);
    let before = loops();
    let a = Measured::of(graph, calibration, long, false)?;
    let behind = loops();
    let b = Measured::of(graph, calibration, long / 4, false)?;
    let left = Measured::of(graph, calibration, long, true)?.left_of(&a);
    let mut costs = Costs {
        version: VERSION,
        graph: fingerprint(graph),
        measured: true,
        nodes: Default::default(),
        passes: Vec::new(),
        loops_per_second: before.zip(behind).map(|(a, b)| (a + b) / 2.0),
        queues: in_place(graph, queues(), &a, &b, left),
        transfers: transfers::measure(calibration.cpu),
        inputs: straight(&a, &b, |run| run.inputs),
        outputs: straight(&a, &b, |run| run.outputs),
    };
    costs.nodes = of_nodes(graph, &a, &b);
    if !a.units.is_empty() {
        let least = least(calibration)?;
        costs.share(a.units, least);
    }
    Ok(costs)
}

/// What nodes cost that two runs tell of.
fn of_nodes(graph: &Graph, a: &Measured, b: &Measured) -> BTreeMap<String, Cost> {
    let (in_a, in_b) = (a.by_path(), b.by_path());
    let cost = |id: NodeId| {
        let path = graph.path(id);
        let time = |all: &HashMap<&str, f64>| all.get(path.as_str()).copied().unwrap_or(0.0);
        let cost = line((a.step, time(&in_a)), (b.step, time(&in_b)));
        (cost != Cost::default()).then_some((path, cost))
    };
    graph.ids().filter_map(cost).collect()
}

/// What queues cost in the graph itself, where the other end is another thread: `alone` is what
/// they cost on one core, and the part `left` of the copying is done.
fn in_place(graph: &Graph, alone: QueueCosts, a: &Measured, b: &Measured, left: f64) -> QueueCosts {
    let periods = crate::interpreter::periods(graph).unwrap_or_default();
    let bytes = |id: NodeId, kind: Type| {
        let period = periods.get(id.index()).copied().unwrap_or(1).max(1);
        kind.bytes() as f64 / period as f64
    };
    let read: f64 = graph
        .inputs()
        .map(|id| bytes(id, graph.node(id).outputs[0]))
        .sum();
    let written: f64 = graph
        .outputs()
        .map(|id| bytes(id, graph.node(id).inputs[0]))
        .sum();
    let per_byte = |cost: Cost, bytes: f64| match bytes > 0.0 {
        true => left * cost.per_tick / bytes,
        false => 0.0,
    };
    let reading = straight(a, b, |run| run.reading);
    let writing = straight(a, b, |run| run.writing);
    QueueCosts {
        byte_ns: alone.byte_ns.max(per_byte(writing, written)),
        read_byte_ns: per_byte(reading, read),
        step_ns: reading.per_step + writing.per_step + a.beside,
        ..alone
    }
}

/// What a pass takes that does next to nothing: one gain of floats.
fn least(calibration: Calibration) -> Result<Cost, String> {
    let g = Builder::new("gain");
    g.output("y", g.input("x", Type::F32).gain(0.5));
    let graph = g.build().map_err(|problems| problems.to_string())?;
    let calibration = Calibration {
        time: calibration.time / 4,
        ..calibration
    };
    let long = Settings::default().step;
    let (a, b) = (
        Measured::of(&graph, calibration, long, false)?,
        Measured::of(&graph, calibration, long / 4, false)?,
    );
    let all = |run: &Measured| run.nodes.iter().map(|node| node.1).sum();
    Ok(straight(&a, &b, all))
}

/// What one run tells, in nanoseconds for each step.
struct Measured {
    step: u64,
    nodes: Vec<(String, f64)>,
    /// The nodes of units that have several.
    units: Vec<Vec<String>>,
    inputs: f64,
    outputs: f64,
    /// What goes into reading from queues and into writing to them, and what is left of a step
    /// beside these and the nodes.
    reading: f64,
    writing: f64,
    beside: f64,
}

/// The line through two runs.
fn straight(a: &Measured, b: &Measured, of: impl Fn(&Measured) -> f64) -> Cost {
    line((a.step, of(a)), (b.step, of(b)))
}

/// The line through the times of steps of two lengths.
fn line((a, long): (u64, f64), (b, short): (u64, f64)) -> Cost {
    if a == b {
        return Cost {
            per_tick: long.min(short) / a as f64,
            per_step: 0.0,
        };
    }
    let slope = (long - short) / (a as f64 - b as f64);
    let per_tick = slope.clamp(0.0, long / a as f64);
    Cost {
        per_tick,
        per_step: (long - per_tick * a as f64).max(0.0),
    }
}

impl Measured {
    /// The time of each node. One that is run in several parts has all of them.
    fn by_path(&self) -> HashMap<&str, f64> {
        let mut all = HashMap::new();
        for (path, time) in &self.nodes {
            *all.entry(path.as_str()).or_insert(0.0) += time;
        }
        all
    }

    /// The part of the copying of `copied` that is left in this run, whose signals are in blocks.
    fn left_of(&self, copied: &Measured) -> f64 {
        let nodes = |run: &Measured| run.nodes.iter().map(|node| node.1).sum::<f64>();
        let copying = |run: &Measured| run.reading + run.writing;
        // What nodes take more now, they take for numbers that are far.
        let now = nodes(self) + copying(self) - nodes(copied);
        (now / copying(copied).max(1.0)).clamp(0.0, 1.0)
    }

    fn of(
        graph: &Graph,
        calibration: Calibration,
        step: u64,
        in_blocks: bool,
    ) -> Result<Measured, String> {
        let settings = Settings {
            partitions: Some(vec![0; graph.nodes().len()]),
            step,
            in_blocks,
            block: longest_block(graph, Settings::default().block),
            cpus: calibration.cpu.map(|cpu| (0, cpu)).into_iter().collect(),
            ..Settings::default()
        };
        let executor = Executor::new(graph, settings).map_err(|problems| problems.to_string())?;
        let shape = executor.shape();
        // Slow graphs get longer: their steps have to be seen.
        let enough = |telemetry: &Telemetry, time: Duration| {
            let seen = |steps: u64| {
                let seen = |partition: &PartitionTelemetry| {
                    partition.units.is_empty() || partition.steps.count >= steps
                };
                telemetry.partitions.iter().all(seen)
            };
            let longer = calibration.time * LONGER;
            time >= calibration.time && seen(ENOUGH)
                || time >= longer && (seen(1) || time >= longer.max(LONGEST))
        };
        let outcome = noise(graph, &executor, enough)?;
        let telemetry = &outcome.telemetry;
        let (mut nodes, mut units) = (Vec::new(), Vec::new());
        let mut taken = step;
        let (mut reading, mut writing, mut beside) = (0.0, 0.0, 0.0);
        for (partition, times) in shape.partitions.iter().zip(&telemetry.partitions) {
            if partition.units.is_empty() {
                continue;
            }
            taken = partition.step;
            if times.steps.count == 0 {
                return Err(format!(
                    "{} has done {} ticks only: let the calibration take longer",
                    partition.name, times.ticks
                ));
            }
            let clock = clock();
            (reading, writing) = (times.reading as f64, times.writing as f64);
            let busy = times.busy as f64 / times.ticks.max(1) as f64 * partition.step as f64;
            let known = reading + writing + times.computing as f64;
            beside = (busy - known).clamp(0.0, MOST_BESIDE);
            let own: Vec<f64> = times
                .units
                .iter()
                .map(|unit| (unit.1 as f64 - clock).max(0.0))
                .collect();
            // The mean has what other programs took in it, the median has not.
            let reads = clock * (own.len() + 1) as f64;
            let whole = (times.steps.median as f64 - reads).max(1.0);
            let scale = (whole / own.iter().sum::<f64>().max(1.0)).min(1.0);
            let all: Vec<String> = partition.units.iter().flatten().cloned().collect();
            units.extend(
                partition
                    .units
                    .iter()
                    .filter(|unit| unit.len() > 1)
                    .cloned(),
            );
            for (unit, time) in partition.units.iter().zip(own) {
                // What is done for all nodes together.
                let unit = if unit.is_empty() { &all } else { unit };
                let share = time * scale / unit.len().max(1) as f64;
                nodes.extend(unit.iter().map(|path| (path.clone(), share)));
            }
        }
        let outside = |name: &str| {
            let partition = telemetry
                .partitions
                .iter()
                .find(|partition| partition.name == name);
            partition.map_or(0.0, |partition| {
                partition.busy as f64 / partition.ticks.max(1) as f64 * taken as f64
            })
        };
        Ok(Measured {
            step: taken,
            nodes,
            units,
            inputs: if graph.inputs().next().is_some() {
                outside("inputs")
            } else {
                0.0
            },
            outputs: outside("outputs"),
            reading,
            writing,
            beside,
        })
    }
}

/// Runs with noise at the inputs for some time; outputs go nowhere.
pub fn run_on_noise(graph: &Graph, executor: &Executor, time: Duration) -> Result<Outcome, String> {
    noise(graph, executor, |_, elapsed| elapsed >= time)
}

/// The same, with the ticks a second that come to the outputs while all threads run: what it takes
/// to begin and to end says nothing of the graph.
pub fn rate_on_noise(
    graph: &Graph,
    executor: &Executor,
    time: Duration,
) -> Result<(f64, Outcome), String> {
    let (mut first, mut last) = (None, (0, 0));
    let outcome = noise(graph, executor, |told, elapsed| {
        let outputs = told.partitions.iter().find(|own| own.name == "outputs");
        last = (outputs.map_or(0, |own| own.ticks), told.elapsed);
        if elapsed >= BEGINNING {
            first.get_or_insert(last);
        }
        elapsed >= BEGINNING + time
    })?;
    let first = first.unwrap_or_default();
    let elapsed = last.1.saturating_sub(first.1).max(1);
    let rate = last.0.saturating_sub(first.0) as f64 * 1e9 / elapsed as f64;
    Ok((rate, outcome))
}

/// The same until `enough` says so of the telemetry and the time.
fn noise(
    graph: &Graph,
    executor: &Executor,
    mut enough: impl FnMut(&Telemetry, Duration) -> bool + Send,
) -> Result<Outcome, String> {
    let readers = graph
        .inputs()
        .map(|id| Box::new(Noise::new(graph.node(id).outputs[0], id)) as Box<dyn Read + Send>)
        .collect();
    let writers = graph
        .outputs()
        .map(|_| Box::new(std::io::sink()) as Box<dyn std::io::Write>)
        .collect();
    let run = executor
        .prepare(readers, writers)
        .map_err(|failure| failure.to_string())?;
    let handle = run.handle();
    std::thread::scope(|scope| {
        let (ended, wait) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            let begin = Instant::now();
            while wait.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if enough(&handle.telemetry(), begin.elapsed()) {
                    handle.quit();
                }
            }
        });
        let outcome = run.run().map_err(|failure| failure.to_string());
        drop(ended);
        outcome
    })
}

/// Samples without end that look random: floats from -1 to 1, small whole numbers.
struct Noise {
    bytes: Vec<u8>,
    at: usize,
}

impl Noise {
    fn new(kind: Type, id: NodeId) -> Noise {
        let mut word = 0x9e37_79b9_7f4a_7c15 ^ (id.index() as u64) << 17;
        let mut next = || {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            word
        };
        let samples = (1usize << 16).div_ceil(kind.bytes()).next_multiple_of(8);
        let mut bytes = Vec::with_capacity(samples * kind.bytes());
        for _ in 0..samples * kind.len * (1 + usize::from(kind.complex)) {
            let word = next();
            let share = (word >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
            match kind.scalar {
                Scalar::F32 => bytes.extend((share as f32).to_le_bytes()),
                Scalar::F64 => bytes.extend(share.to_le_bytes()),
                Scalar::Bool => bytes.push((word >> 40 & 1) as u8),
                scalar => bytes.extend(&(word >> 40 & 3).to_le_bytes()[..scalar.bytes()]),
            }
        }
        Noise { bytes, at: 0 }
    }
}

impl Read for Noise {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(self.bytes.len() - self.at);
        buffer[..count].copy_from_slice(&self.bytes[self.at..][..count]);
        self.at = (self.at + count) % self.bytes.len();
        Ok(count)
    }
}

/// Nanoseconds that a look at the clock takes.
fn clock() -> f64 {
    let looks = 1000;
    let once = || {
        let begin = Instant::now();
        for _ in 0..looks {
            std::hint::black_box(Instant::now());
        }
        begin.elapsed().as_nanos() as f64 / f64::from(looks)
    };
    (0..5).map(|_| once()).fold(f64::INFINITY, f64::min)
}

/// What a queue costs on one core, where no cache line has to come from another.
fn queues() -> QueueCosts {
    let small = pass(8);
    let large = pass(2048);
    let byte = ((large - small) / (8.0 * (2048.0 - 8.0)) / 2.0).clamp(0.001, 1.0);
    let fixed = (small / 2.0).clamp(1.0, 1000.0);
    QueueCosts {
        send_ns: fixed,
        receive_ns: fixed,
        byte_ns: byte,
        read_byte_ns: 0.0,
        step_ns: 0.0,
    }
}

/// Nanoseconds of a block of so many words through a queue, both ends on this thread.
fn pass(words: usize) -> f64 {
    const BLOCKS: usize = 2000;
    let Ok((mut producer, mut consumer)) = queue::<u64>(8, words, &[]) else {
        return 0.0;
    };
    let (source, mut target) = (vec![1u64; words], vec![0u64; words]);
    let mut once = || {
        let begin = Instant::now();
        for _ in 0..BLOCKS {
            producer.push(&source);
            consumer.pop(&mut target);
            std::hint::black_box(&target);
        }
        begin.elapsed().as_nanos() as f64 / BLOCKS as f64
    };
    (0..7).map(|_| once()).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each node was looked for among all: that takes the better part of an hour here.
    #[test]
    fn what_many_nodes_cost_is_found_by_their_paths() {
        const MANY: usize = 200_000;
        let g = Builder::new("row");
        let mut wire = g.input("x", Type::F32);
        for _ in 0..MANY {
            wire = wire.gain(0.5);
        }
        g.output("y", wire);
        let graph = g.build().unwrap();
        let run = |step: u64, time: f64| {
            let gains = graph
                .ids()
                .filter(|&id| graph.node(id).node.kind() == "gain");
            // In two parts.
            let nodes =
                gains.flat_map(|id| [(graph.path(id), time / 2.0), (graph.path(id), time / 2.0)]);
            Measured {
                step,
                nodes: nodes.collect(),
                units: Vec::new(),
                inputs: 0.0,
                outputs: 0.0,
                reading: 0.0,
                writing: 0.0,
                beside: 0.0,
            }
        };
        let costs = of_nodes(&graph, &run(512, 522.0), &run(128, 138.0));
        assert_eq!(costs.len(), MANY);
        let wanted = Cost {
            per_tick: 1.0,
            per_step: 10.0,
        };
        assert!(costs.values().all(|cost| *cost == wanted));
    }
}
