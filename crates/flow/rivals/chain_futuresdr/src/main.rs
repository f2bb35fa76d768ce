//! A chain of kernels in FutureSDR, as `benches/speed` measures it in flow.
//!
//! `chain_futuresdr STAGES SAMPLES COST CORES` prints millions of samples a second, on the first
//! CORES CPUs: the highest of its two schedulers, the one with neighbours in the chain on one
//! worker. It takes part only where COST is 1, where the compiler can make vectors of it.

use std::env;
use std::error::Error;
use std::time::Instant;

use futuresdr::blocks::{Apply, Head, NullSink, NullSource};
use futuresdr::prelude::*;
use futuresdr::runtime::BlockId;
use futuresdr::runtime::scheduler::{FlowScheduler, Scheduler, SmolScheduler};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The chain, and its blocks in order.
fn chain(stages: usize, samples: u64) -> Result<(Flowgraph, Vec<BlockId>), Box<dyn Error>> {
    let mut graph = Flowgraph::new();
    let source = graph.add(NullSource::<f32>::new())?;
    let head = graph.add(Head::<f32>::new(samples))?;
    graph.stream(
        &source,
        |block| block.output(),
        &head,
        |block| block.input(),
    )?;
    let mut blocks = vec![source.id(), head.id()];
    let kernel = || Apply::new(|sample: &f32| sample * 0.999 + 0.5);
    let mut last = graph.add(kernel())?;
    graph.stream(&head, |block| block.output(), &last, |block| block.input())?;
    blocks.push(last.id());
    for _ in 1..stages {
        let next = graph.add(kernel())?;
        graph.stream(&last, |block| block.output(), &next, |block| block.input())?;
        blocks.push(next.id());
        last = next;
    }
    let sink = graph.add(NullSink::<f32>::new())?;
    graph.stream(&last, |block| block.output(), &sink, |block| block.input())?;
    blocks.push(sink.id());
    Ok((graph, blocks))
}

/// Millions of samples a second.
fn rate<S: Scheduler + Sync>(
    graph: Flowgraph,
    samples: u64,
    scheduler: S,
) -> Result<f64, Box<dyn Error>> {
    let runtime = Runtime::with_scheduler(scheduler);
    let begin = Instant::now();
    runtime.run(graph)?;
    Ok(samples as f64 / begin.elapsed().as_secs_f64() / 1e6)
}

fn main() -> Result<(), Box<dyn Error>> {
    let numbers = env::args().skip(1).map(|number| number.parse::<usize>());
    let numbers = numbers.collect::<Result<Vec<_>, _>>()?;
    let &[stages, samples, cost, cores] = &numbers[..] else {
        return Err("give STAGES SAMPLES COST CORES".into());
    };
    if cost != 1 {
        return Ok(());
    }
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let mut cpus = CpuSet::new();
    let all = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false));
    for cpu in all.take(cores) {
        cpus.set(cpu)?;
    }
    sched_setaffinity(Pid::from_raw(0), &cpus)?;

    let samples = samples as u64;
    let (graph, _) = chain(stages, samples)?;
    let smol = rate(graph, samples, SmolScheduler::with_config(cores, true))?;
    let (graph, blocks) = chain(stages, samples)?;
    let share = blocks.len().div_ceil(cores);
    let workers = blocks.chunks(share).map(<[_]>::to_vec).collect();
    let flow = rate(graph, samples, FlowScheduler::with_pinned_blocks(workers))?;
    eprintln!("smol {smol:.3}, flow {flow:.3}");
    println!("{:.3}", smol.max(flow));
    Ok(())
}
