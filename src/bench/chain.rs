//! A chain of kernels: by threads written for it, and by flow.

use std::hint::black_box;
use std::io::Cursor;
use std::thread;
use std::time::Instant;

use ground::os::run_on;
use ground::stats;
use karoo_flow::queue::{Consumer, Producer, queue};
use karoo_flow::{Builder, Executor, Graph, Ratio, Settings, Type};
use schemars::JsonSchema;
use serde::Serialize;

use super::until;

/// Samples of a block, and blocks that a queue holds.
const BLOCK: usize = 4096;
const SLOTS: usize = 8;
const FACTOR: f32 = 0.999;
const OFFSET: f32 = 0.5;

/// What is measured.
pub struct Chain<'a> {
    /// Kernels in the chain.
    pub kernels: usize,
    /// How often a kernel multiplies and adds.
    pub cost: usize,
    /// Samples of a run.
    pub samples: usize,
    /// The CPUs to run on.
    pub cpus: &'a [usize],
}

/// What came of it, in samples a second.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ChainRow {
    /// Kernels in the chain.
    pub kernels: usize,
    /// Samples a second of threads written by hand: the median.
    pub by_hand: f64,
    /// Samples a second of flow: the median.
    pub flow: f64,
    /// The median over rounds of flow's rate over that of the threads.
    pub share: f64,
    /// Samples a second of flow without telemetry: the median.
    pub without_telemetry: f64,
    /// The share of the rate that telemetry takes, of the medians over rounds; below 0 where other
    /// things took more.
    pub telemetry_cost: f64,
    /// Samples a second of each round: threads, flow, flow without telemetry.
    pub rounds: Vec<[f64; 3]>,
}

/// Runs all in turn, so many times.
pub fn measure_chain(chain: &Chain, rounds: usize) -> Result<ChainRow, String> {
    let mut all = Vec::new();
    for _ in 0..rounds {
        all.push([
            by_hand(chain)?,
            by_flow(chain, true)?,
            by_flow(chain, false)?,
        ]);
    }
    let median = |of: &dyn Fn(&[f64; 3]) -> f64| stats::median(all.iter().map(of).collect());
    Ok(ChainRow {
        kernels: chain.kernels,
        by_hand: median(&|round| round[0]),
        flow: median(&|round| round[1]),
        share: median(&|round| round[1] / round[0]),
        without_telemetry: median(&|round| round[2]),
        telemetry_cost: 1.0 - median(&|round| round[1] / round[2]),
        rounds: all,
    })
}

impl Chain<'_> {
    fn blocks(&self) -> usize {
        self.samples / BLOCK
    }

    /// The kernels of each CPU.
    fn shares(&self) -> Vec<usize> {
        let cores = self.cpus.len().min(self.kernels).max(1);
        let until = |core: usize| core * self.kernels / cores;
        (0..cores)
            .map(|core| until(core + 1) - until(core))
            .collect()
    }

    fn rate(&self, begin: Instant) -> f64 {
        (self.blocks() * BLOCK) as f64 / begin.elapsed().as_secs_f64()
    }
}

/// A thread for each CPU, a fair share of the kernels in each, blocks worked on in place, flow's
/// queue between two.
fn by_hand(chain: &Chain) -> Result<f64, String> {
    let shares = chain.shares();
    let mut queues = Vec::new();
    for _ in 1..shares.len() {
        queues.push(queue::<f32>(SLOTS, BLOCK, &[])?);
    }
    let begin = Instant::now();
    thread::scope(|scope| {
        let mut from = None;
        let mut queues = queues.into_iter();
        for (&kernels, &cpu) in shares.iter().zip(chain.cpus) {
            let (to, next) = queues.next().unzip();
            let from = std::mem::replace(&mut from, next);
            scope.spawn(move || {
                let _ = run_on([cpu]);
                work(chain.blocks(), kernels * chain.cost, from, to);
            });
        }
    });
    Ok(chain.rate(begin))
}

fn work(
    blocks: usize,
    times: usize,
    mut from: Option<Consumer<f32>>,
    mut to: Option<Producer<f32>>,
) {
    let mut own = vec![0.0f32; BLOCK];
    for _ in 0..blocks {
        match &mut from {
            None => own.fill(black_box(0.0)),
            Some(from) => until(|| from.pop(&mut own) > 0),
        }
        for _ in 0..times {
            for sample in own.iter_mut() {
                *sample = *sample * FACTOR + OFFSET;
            }
            black_box(&mut own);
        }
        match &mut to {
            None => drop(black_box(&own)),
            Some(to) => until(|| to.push(&own) > 0),
        }
    }
}

/// The chain as a graph: a slow input is repeated and a slow output is taken, so that the outside
/// costs nothing.
fn graph(chain: &Chain) -> Result<Graph, String> {
    let g = Builder::new("chain");
    let slow = Ratio::new(1, BLOCK as u64).ok_or("a rate is not zero")?;
    let mut wire = g.input_at("x", Type::F32, slow);
    let shares = chain.shares();
    for (core, &kernels) in shares.iter().enumerate() {
        wire = g.scope(&format!("core{core}"), || {
            g.partition(core as u32);
            let mut wire = match core {
                0 => wire.repeat(BLOCK as u64),
                _ => wire,
            };
            for _ in 0..kernels * chain.cost {
                wire = wire.gain(FACTOR) + g.constant(Type::F32, OFFSET);
            }
            match core + 1 == shares.len() {
                true => wire.down(BLOCK as u64),
                false => wire,
            }
        });
    }
    g.output("y", wire);
    g.build().map_err(|problems| problems.to_string())
}

fn by_flow(chain: &Chain, telemetry: bool) -> Result<f64, String> {
    let graph = graph(chain)?;
    let cpus = chain.cpus.iter().copied();
    let settings = Settings {
        block: BLOCK as u64,
        capacity: SLOTS,
        telemetry,
        cpus: (0..).zip(cpus).take(chain.shares().len()).collect(),
        ..Settings::default()
    };
    let executor = Executor::new(&graph, settings).map_err(|problems| problems.to_string())?;
    let input = Cursor::new(vec![0; 4 * chain.blocks()]);
    let run = executor
        .prepare(vec![Box::new(input)], vec![Box::new(std::io::sink())])
        .map_err(|failure| failure.to_string())?;
    let begin = Instant::now();
    run.run().map_err(|failure| failure.to_string())?;
    Ok(chain.rate(begin))
}
