//! A chain of kernels on several cores: bare threads, flow's executor, and other runtimes, in one
//! run.
//!
//! Options, after `chain`:
//!
//! * `--cores N`: all that there are, without it. `--rounds N`: 5. `--costs 1,16`: how often a
//!   kernel multiplies a sample and adds to it. `--stages 2,4`: one, two, three and six times the
//!   cores. `--samples N`: 200 million, so that a run's start takes next to nothing of it. `--block
//!   N`: samples of a block, 4096.
//! * `--capacity N`: blocks of each queue, of those of bare threads too, 8.
//! * `--rival NAME=PROGRAM`: another program takes part, called as `PROGRAM STAGES SAMPLES COST
//!   CORES`; it prints millions of samples a second. See `rivals/`.
//!
//! Bare threads are what one would write by hand for these very kernels: a thread pinned to each
//! core, a fair share of the kernels in it, blocks of as many samples worked on in place, with the
//! widest vectors of the processor, and the same queue as flow's between two threads. Printed is
//! the highest rate of the rounds, and the median.

use std::hint::{black_box, spin_loop};
use std::io::Cursor;
use std::process::Command;
use std::time::Instant;

use karoo_flow::queue::{Consumer, Producer, queue};
use karoo_flow::run::{Between, Patience, Transfer};
use karoo_flow::{Builder, Executor, Graph, Ratio, Settings, Type};

const FACTOR: f32 = 0.999;
const OFFSET: f32 = 0.5;

struct Chain {
    stages: usize,
    samples: usize,
    cost: usize,
    cores: usize,
    /// Samples of a block.
    block: usize,
    /// Blocks of a queue.
    capacity: usize,
}

impl Chain {
    /// The kernels of each core.
    fn shares(&self) -> Vec<usize> {
        let cores = self.cores.min(self.stages);
        (0..cores)
            .map(|core| (core + 1) * self.stages / cores - core * self.stages / cores)
            .collect()
    }
}

fn pin(cpu: usize) {
    core_affinity::set_for_current(core_affinity::CoreId { id: cpu });
}

#[inline(always)]
fn passes(samples: &mut [f32], cost: usize) {
    for _ in 0..cost {
        for sample in samples.iter_mut() {
            *sample = *sample * FACTOR + OFFSET;
        }
        black_box(&mut *samples);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(samples: &mut [f32], cost: usize) {
    passes(samples, cost);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512(samples: &mut [f32], cost: usize) {
    passes(samples, cost);
}

fn kernel(samples: &mut [f32], cost: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has been asked.
            return unsafe { avx512(samples, cost) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { avx2(samples, cost) };
        }
    }
    passes(samples, cost);
}

/// One thread by hand. The first one makes the samples, the last one drops them.
fn by_hand(
    (blocks, block): (usize, usize),
    kernels: usize,
    cost: usize,
    mut from: Option<Consumer<f32>>,
    mut to: Option<Producer<f32>>,
) {
    let mut own = vec![0.0; block];
    for _ in 0..blocks {
        match &mut from {
            None => own.fill(black_box(0.0)),
            Some(from) => {
                while from.pop(&mut own) == 0 {
                    spin_loop();
                }
            }
        }
        for _ in 0..kernels {
            kernel(&mut own, cost);
        }
        match &mut to {
            None => drop(black_box(&own)),
            Some(to) => {
                while to.push(&own) == 0 {
                    spin_loop();
                }
            }
        }
    }
}

fn bare(chain: &Chain) -> f64 {
    let (block, cost) = (chain.block, chain.cost);
    let blocks = chain.samples / block;
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let mut from = None;
        let shares = chain.shares();
        for (core, &kernels) in shares.iter().enumerate() {
            let (to, next) = if core + 1 < shares.len() {
                let (to, next) = queue(chain.capacity, block, &[]).expect("sizes are fixed");
                (Some(to), Some(next))
            } else {
                (None, None)
            };
            let from = std::mem::replace(&mut from, next);
            scope.spawn(move || {
                pin(core);
                by_hand((blocks, block), kernels, cost, from, to);
            });
        }
    });
    (blocks * block) as f64 / begin.elapsed().as_secs_f64() / 1e6
}

/// The same chain as a graph. A slow input is repeated and a slow output is taken, so that reading
/// and writing cost nothing.
fn graph(chain: &Chain) -> Graph {
    let g = Builder::new("chain");
    let slow = Ratio::new(1, chain.block as _).expect("a rate is not zero");
    let mut wire = g.input_at("x", Type::F32, slow);
    let shares = chain.shares();
    for (core, &kernels) in shares.iter().enumerate() {
        wire = g.scope(&format!("core{core}"), || {
            g.partition(core as u32);
            let mut wire = if core == 0 {
                wire.repeat(chain.block as u64)
            } else {
                wire
            };
            for _ in 0..kernels * chain.cost {
                wire = wire.gain(FACTOR) + g.constant(Type::F32, OFFSET);
            }
            if core + 1 == shares.len() {
                wire.down(chain.block as u64)
            } else {
                wire
            }
        });
    }
    g.output("y", wire);
    g.build().expect("the chain is sound")
}

/// `steps`: the longest step, in blocks. `outside`: samples of the slow input in a block.
fn flow(chain: &Chain, steps: f64, outside: usize, patience: Option<Patience>) -> f64 {
    let graph = graph(chain);
    let cores = chain.shares().len();
    let step = (steps * chain.block as f64) as u64;
    let between = (1..cores as u32).map(|core| Between {
        from: core - 1,
        to: core,
        block: chain.block as u64,
        capacity: chain.capacity,
        transfer: Transfer::default(),
    });
    let settings = Settings {
        block: (outside * chain.block) as u64,
        between: between.collect(),
        capacity: chain.capacity,
        step,
        cpus: (0..cores).map(|core| (core as u32, core)).collect(),
        patience,
        ..Settings::default()
    };
    let executor = Executor::new(&graph, settings).expect("the chain can run");
    let input = vec![0; 4 * (chain.samples / chain.block)];
    let mut output = Vec::with_capacity(input.len());
    let run = executor
        .prepare(
            vec![Box::new(Cursor::new(input))],
            vec![Box::new(&mut output)],
        )
        .expect("the chain can run");
    let begin = Instant::now();
    run.run().expect("the chain runs to its end");
    let seconds = begin.elapsed().as_secs_f64();
    (chain.samples / chain.block * chain.block) as f64 / seconds / 1e6
}

fn rival(program: &str, chain: &Chain) -> Option<f64> {
    let numbers = [chain.stages, chain.samples, chain.cost, chain.cores];
    let output = Command::new(program)
        .args(numbers.map(|number| number.to_string()))
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().last()?.parse().ok()
}

struct Options {
    cores: usize,
    rounds: usize,
    costs: Vec<usize>,
    stages: Vec<usize>,
    samples: usize,
    block: usize,
    capacity: usize,
    rivals: Vec<(String, String)>,
}

fn options(arguments: &[String]) -> Options {
    let all = std::thread::available_parallelism().map_or(1, |all| all.get());
    let mut options = Options {
        cores: all,
        rounds: 5,
        costs: vec![1, 16],
        stages: Vec::new(),
        samples: 200_000_000,
        block: 4096,
        capacity: 8,
        rivals: Vec::new(),
    };
    let mut arguments = arguments.iter();
    while let Some(name) = arguments.next() {
        let value = arguments.next().cloned().unwrap_or_default();
        let numbers = || -> Vec<usize> {
            let parts = value.split(',').map(|part| part.trim().parse());
            parts.collect::<Result<_, _>>().unwrap_or_else(|_| {
                panic!("{name} {value}: give whole numbers with commas between them")
            })
        };
        match name.as_str() {
            "--cores" => options.cores = numbers()[0].clamp(1, all),
            "--rounds" => options.rounds = numbers()[0].max(1),
            "--costs" => options.costs = numbers(),
            "--stages" => options.stages = numbers(),
            "--samples" => options.samples = numbers()[0].max(1),
            "--block" => options.block = numbers()[0].max(16),
            "--capacity" => options.capacity = numbers()[0].max(1),
            "--rival" => {
                let (name, program) = value
                    .split_once('=')
                    .unwrap_or_else(|| panic!("--rival {value}: give NAME=PROGRAM"));
                options.rivals.push((name.into(), program.into()));
            }
            _ => panic!("{name}: no such option; see the head of benches/speed/chain.rs"),
        }
    }
    if options.stages.is_empty() {
        options.stages = [1, 2, 3, 6].map(|times| times * options.cores).to_vec();
    }
    options
}

/// Runs all that is asked for.
pub fn run(arguments: &[String]) {
    let options = options(arguments);
    for &cost in &options.costs {
        for &stages in &options.stages {
            let chain = Chain {
                stages,
                samples: (options.samples / cost).max(options.block),
                cost,
                cores: options.cores,
                block: options.block,
                capacity: options.capacity,
            };
            show(&chain, &options);
        }
    }
}

type Runtime<'a> = (String, Box<dyn Fn(&Chain) -> Option<f64> + 'a>);

fn show(chain: &Chain, options: &Options) {
    let mut all: Vec<Runtime> = vec![
        ("bare threads".into(), Box::new(|chain| Some(bare(chain)))),
        (
            "flow, steps of a block".into(),
            Box::new(|chain| Some(flow(chain, 1.0, 1, Some(Patience::default())))),
        ),
        (
            "flow, long blocks outside".into(),
            Box::new(|chain| Some(flow(chain, 2.0, 64, Some(Patience::default())))),
        ),
        (
            "flow, four steps a block".into(),
            Box::new(|chain| Some(flow(chain, 0.25, 1, Some(Patience::default())))),
        ),
        (
            "flow, waits as it likes".into(),
            Box::new(|chain| Some(flow(chain, 1.0, 1, None))),
        ),
    ];
    let own = all.len();
    for (name, program) in &options.rivals {
        all.push((name.clone(), Box::new(|chain| rival(program, chain))));
    }
    let mut rates = vec![Vec::new(); all.len()];
    for _ in 0..options.rounds {
        for (rates, (_, run)) in rates.iter_mut().zip(&all) {
            rates.extend(run(chain));
        }
    }
    println!(
        "\n{} kernels of {} multiplications and additions, {} cores",
        chain.stages, chain.cost, chain.cores
    );
    let highest = |rates: &[f64]| rates.iter().copied().fold(f64::NAN, f64::max);
    for (rates, (name, _)) in rates.iter_mut().zip(&all) {
        rates.sort_by(f64::total_cmp);
        if let Some(median) = rates.get(rates.len() / 2) {
            println!(
                "    {name:24} {:9.2} million samples/s   median {median:9.2}",
                highest(rates)
            );
        }
    }
    let flow = rates[1..own].iter().map(|rates| highest(rates));
    let flow = flow.fold(f64::NAN, f64::max);
    let others = rates[own..].iter().map(|rates| highest(rates));
    let other = others.fold(f64::NAN, f64::max);
    println!(
        "    flow is at {:.0} % of bare threads, and {:.2} times the best other runtime",
        100.0 * flow / highest(&rates[0]),
        flow / other
    );
}
