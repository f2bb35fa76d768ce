//! What plans expect beside what is measured, what telemetry costs, and how late outputs are.
//!
//! `cargo bench -p karoo-flow --bench plans -- [OPTIONS] [GRAPH.toml|GRAPH.graphml…]`, or the
//! program itself with `--bench`:
//!
//! * `--cpus 0,1`: all that there are, without it. `--seconds 0.5`: of each run. `--rounds N`: 5.
//!   `--for SECONDS`: no further round of plans begins after so many.
//! * `--line NS`, `--rate GB`: what a cache line takes from one CPU to another, and 10⁹ bytes a
//!   second that one reads of another's memory: as `karoo bench cores` tells them. 150 and 8.
//! * `--named TEXT`: those of the twenty that have it in their name.
//! * `--alike`: as if all CPUs computed as fast as the first one by itself.
//! * `--calibration 0.15`: seconds of each of the runs that costs are measured with.
//! * `--capacity N`: blocks of each queue of the plans, 8.
//! * `--only plans`, `telemetry` or `latency`.
//!
//! Without graphs there are twenty of its own. A plan is made once. Each of them runs in each
//! round, between measurements of its costs and its CPUs' paces. The rate that is expected of a run
//! follows from the costs just before and just behind it, and from the medians of all paces: CPUs
//! of virtual machines change several times a second, and the slowest of many CPUs at one moment is
//! slower than any of them is for long. The ratio is the median of those of all runs, beside the
//! least and the most. Telemetry is on and off in turn, and the ratio is that of the medians.

use std::time::{Duration, Instant};

use karoo_flow::nodes::{Comparison, Machine, Nco, Order, RealImag, TappedDelay};
use karoo_flow::place::{
    Calibration, Cores, Costs, Plan, Wishes, measure, measure_paces, plan, rate_on_noise,
    run_on_noise,
};
use karoo_flow::{Builder, Executor, Graph, Registry, Scalar, Settings, Type, Value};

struct Options {
    cpus: Vec<usize>,
    time: Duration,
    rounds: usize,
    turns: usize,
    longest: Duration,
    line: f64,
    rate: f64,
    only: Option<String>,
    named: Option<String>,
    paces: bool,
    calibration: Duration,
    capacity: u64,
    graphs: Vec<String>,
}

fn options() -> Options {
    let cpus = core_affinity::get_core_ids().unwrap_or_default();
    let mut options = Options {
        cpus: cpus.into_iter().map(|core| core.id).collect(),
        time: Duration::from_millis(500),
        rounds: 5,
        turns: 1,
        longest: Duration::MAX,
        line: 150.0,
        rate: 8.0,
        only: None,
        named: None,
        paces: true,
        calibration: Duration::from_millis(150),
        capacity: Wishes::default().capacity,
        graphs: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if !name.starts_with("--") {
            options.graphs.push(name);
            continue;
        }
        if name == "--bench" {
            continue;
        }
        if name == "--alike" {
            options.paces = false;
            continue;
        }
        let value = arguments.next().unwrap_or_default();
        let number = || -> f64 {
            let parsed = value.parse();
            parsed.unwrap_or_else(|_| panic!("{name} {value}: give a number"))
        };
        match name.as_str() {
            "--cpus" => {
                let cpus = value
                    .split(',')
                    .map(|cpu| cpu.parse().expect("a CPU is a number"));
                options.cpus = cpus.collect();
            }
            "--seconds" => options.time = Duration::from_secs_f64(number()),
            "--rounds" => options.rounds = number().max(1.0) as usize,
            "--turns" => options.turns = number().max(1.0) as usize,
            "--for" => options.longest = Duration::from_secs_f64(number()),
            "--line" => options.line = number(),
            "--rate" => options.rate = number(),
            "--calibration" => options.calibration = Duration::from_secs_f64(number()),
            "--capacity" => options.capacity = number().max(2.0) as u64,
            "--only" => options.only = Some(value),
            "--named" => options.named = Some(value),
            _ => panic!("{name}: no such option; see the head of benches/plans.rs"),
        }
    }
    options
}

fn taps(count: usize) -> Vec<f64> {
    (0..count).map(|k| 0.5 / (k + 1) as f64).collect()
}

/// A loop of `delay` samples around `taps` taps.
fn looped(name: &str, delay: usize, count: usize) -> Graph {
    let g = Builder::new(name);
    let x = g.input("x", Type::F32);
    let past = g.feedback("past", Type::F32, delay, 0);
    let sum = (x + past.out().gain(0.25)).fir(taps(count).as_slice());
    past.close(sum.gain(0.5));
    g.output("y", sum);
    g.build().expect("the graph is sound")
}

/// Filters one behind the other.
fn filters(name: &str, kind: Type, counts: &[usize]) -> Graph {
    let g = Builder::new(name);
    let mut wire = g.input("x", kind);
    for &count in counts {
        wire = wire.fir(taps(count).as_slice());
    }
    g.output("y", wire);
    g.build().expect("the graph is sound")
}

/// Gains and sums, and down and up again.
fn gains(name: &str, count: usize, down: u64) -> Graph {
    let g = Builder::new(name);
    let mut wire = g.input("x", Type::F32);
    for index in 0..count {
        wire = wire.gain(0.99) + g.constant(Type::F32, 0.01 * index as f64);
    }
    g.output("y", wire.down(down).fir(taps(31).as_slice()).repeat(down));
    g.build().expect("the graph is sound")
}

fn mixer(name: &str, count: usize) -> Graph {
    let g = Builder::new(name);
    let z = g.input("z", Type::F32.complex());
    let step = g.constant(Type::I16, 1234);
    let turn = step.then(Nco {
        bits: 16,
        address_bits: 10,
        initial: 0,
        output: Scalar::F32,
    });
    let low = (z * turn).fir(taps(count).as_slice());
    let parts = low.then(RealImag {});
    g.output("power", parts * parts + parts.port(1) * parts.port(1));
    g.build().expect("the graph is sound")
}

fn enabled(name: &str, count: usize) -> Graph {
    let g = Builder::new(name);
    let x = g.input("x", Type::F32);
    let on = x.compare(Comparison::Greater, g.constant(Type::F32, 0.0));
    let y = g.enabled("rare", on, || x.fir(taps(count).as_slice()).hold(0));
    g.output("y", y.fir(taps(count).as_slice()));
    g.build().expect("the graph is sound")
}

fn machine(name: &str) -> Graph {
    let g = Builder::new(name);
    let x = g.input("x", Type::F32);
    let own = Machine::new(
        "m",
        [Type::F32],
        [Type::F32],
        || 0f32,
        |sum, i, o| {
            *sum = (*sum + i[0].to_f64s()[0] as f32) / 2.0;
            o[0] = Value::from(*sum);
        },
    );
    g.output("y", g.add(own, [x.fir(taps(49).as_slice())]));
    g.build().expect("the graph is sound")
}

fn windows(name: &str, length: usize) -> Graph {
    let g = Builder::new(name);
    let x = g.input("x", Type::F32);
    let window = x.then(TappedDelay {
        length,
        current: true,
        order: Order::Newest,
        reset: false,
        initial: 0.into(),
        of: None,
    });
    let sum = (window * window).then(karoo_flow::nodes::Sum {
        signs: "+".into(),
        output: None,
    });
    g.output("y", sum);
    g.build().expect("the graph is sound")
}

fn twenty() -> Vec<Graph> {
    let complex = Type::F32.complex();
    vec![
        filters("one filter of 5 taps", Type::F32, &[5]),
        filters("one filter of 49 taps", Type::F32, &[49]),
        filters("one complex filter of 49 taps", complex, &[49]),
        filters("two filters of 49 taps", Type::F32, &[49, 49]),
        filters("filters of 200 and 20 taps", Type::F32, &[200, 20]),
        filters("two complex filters of 100 taps", complex, &[100, 100]),
        filters("six filters of 31 taps", Type::F32, &[31; 6]),
        filters("two filters of 49 taps, doubles", Type::F64, &[49, 49]),
        gains("8 gains", 8, 2),
        gains("64 gains", 64, 4),
        gains("400 gains", 400, 8),
        looped("a loop of 1 sample", 1, 1),
        looped("a loop of 7 samples, 5 taps", 7, 5),
        looped("a loop of 512 samples, 49 taps", 512, 49),
        looped("a loop of 8192 samples, 200 taps", 8192, 200),
        mixer("a mixer and 31 taps", 31),
        mixer("a mixer and 200 taps", 200),
        enabled("enabled half of the time, 49 taps", 49),
        machine("a machine of one's own"),
        windows("windows of 16", 16),
    ]
}

fn read(path: &str) -> Graph {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let graph = match path.ends_with(".toml") {
        true => Graph::from_toml(&text, path, &Registry::standard()),
        false => Graph::from_graphml(&text, path).map(|loaded| loaded.graph),
    };
    graph.unwrap_or_else(|problems| panic!("{path}: {problems}"))
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Ticks a second.
fn rate(graph: &Graph, executor: &Executor, time: Duration) -> f64 {
    let told = rate_on_noise(graph, executor, time);
    told.expect("a graph with a plan runs").0
}

/// How long all CPUs compute for their paces to be seen.
const PACE_TIME: Duration = Duration::from_millis(60);

fn costs(options: &Options, graph: &Graph) -> Costs {
    let calibration = Calibration {
        cpu: options.cpus.first().copied(),
        time: options.calibration,
    };
    measure(graph, calibration).expect("a graph can be measured")
}

/// A graph with its plan, and what was measured of it.
struct Planned<'a> {
    graph: &'a Graph,
    made: Plan,
    executor: Executor,
    costs: Vec<Costs>,
    /// Those of the plan, with their paces.
    cores: Vec<Cores>,
    /// Ticks a second of each run, with the place of the costs just before it.
    runs: Vec<(usize, f64)>,
}

impl Planned<'_> {
    /// Measures costs, and the paces of the plan's CPUs.
    fn measure(&mut self, options: &Options, cores: &Cores) {
        let costs = costs(options, self.graph);
        let alike = self.made.expected(self.graph, &costs, cores);
        let alike = alike.expect("the plan is of this graph");
        self.cores.push(match options.paces {
            true => alike.cores_at_work(cores, &costs, options.time),
            false => cores.clone(),
        });
        self.costs.push(costs);
    }

    /// Ticks a second that are expected of each run, and those that came.
    fn results(&self) -> Vec<(f64, f64)> {
        let mut cores = self.cores[0].clone();
        for (row, pace) in cores.paces.iter_mut().enumerate() {
            *pace = median(self.cores.iter().map(|cores| cores.paces[row]).collect());
        }
        let expected = |costs| {
            let plan = self.made.expected(self.graph, costs, &cores);
            plan.expect("the plan is of this graph").period_ns
        };
        let expected: Vec<f64> = self.costs.iter().map(expected).collect();
        let runs = self.runs.iter();
        let result = |&(at, came)| (2e9 / (expected[at] + expected[at + 1]), came);
        runs.map(result).collect()
    }
}

fn planned<'a>(options: &Options, cores: &Cores, graph: &'a Graph) -> Planned<'a> {
    let costs = costs(options, graph);
    let paces = match options.paces {
        true => measure_paces(&options.cpus, costs.loops_per_second, PACE_TIME),
        false => Vec::new(),
    };
    let wishes = Wishes {
        capacity: options.capacity,
        ..Wishes::default()
    };
    let paced = cores.clone().with_paces(paces);
    let made = plan(graph, &costs, &paced, &wishes).expect("there is a plan");
    let settings = made.settings(graph).expect("the plan is of this graph");
    Planned {
        graph,
        executor: Executor::new(graph, settings).expect("a plan can run"),
        made,
        costs: Vec::new(),
        cores: Vec::new(),
        runs: Vec::new(),
    }
}

/// All graphs in each round, so that a slow minute of the machine meets one round of each, not all
/// rounds of one.
fn plans(options: &Options, graphs: &[Graph]) {
    let cores = Cores::alike(options.cpus.clone(), options.line, options.rate);
    let planned = graphs.iter().map(|graph| planned(options, &cores, graph));
    let mut all: Vec<Planned> = planned.collect();
    let begin = Instant::now();
    for _ in 0..options.rounds {
        if begin.elapsed() > options.longest {
            break;
        }
        for one in &mut all {
            one.measure(options, &cores);
            for _ in 0..options.turns {
                let rate = rate(one.graph, &one.executor, options.time);
                one.runs.push((one.costs.len() - 1, rate));
                one.measure(options, &cores);
            }
        }
    }
    let runs = all.first().map_or(0, |one| one.runs.len());
    println!("medians of {runs} runs");
    println!(
        "{:<34} {:>5} {:>10} {:>10} {:>7} {:>13}",
        "graph", "parts", "expected", "measured", "ratio", "least to most"
    );
    println!("{:<34} {:>5} {:>10} {:>10}", "", "", "M/s", "M/s");
    let mut near = 0;
    for one in &all {
        let results = one.results();
        let ratios = results.iter().map(|(expected, came)| came / expected);
        let mut ratios: Vec<f64> = ratios.collect();
        ratios.sort_by(f64::total_cmp);
        let ratio = median(ratios.clone());
        near += usize::from((ratio - 1.0).abs() <= 0.1);
        println!(
            "{:<34} {:>5} {:>10.3} {:>10.3} {:>7.3} {:>6.2} {:>6.2}",
            one.graph.name(),
            one.made.partitions.len(),
            median(results.iter().map(|result| result.0).collect()) / 1e6,
            median(results.iter().map(|result| result.1).collect()) / 1e6,
            ratio,
            ratios[0],
            ratios[ratios.len() - 1],
        );
    }
    println!(
        "{near} of {} within 10 % of what was expected",
        graphs.len()
    );
}

fn telemetry(options: &Options, graphs: &[Graph]) {
    println!("{:<34} {:>10} {:>10} {:>8}", "graph", "on", "off", "cost");
    println!("{:<34} {:>10} {:>10}", "", "M/s", "M/s");
    for graph in graphs {
        let with = |telemetry: bool| Settings {
            telemetry,
            block: 256,
            step: 256,
            partitions: Some(vec![0; graph.nodes().len()]),
            cpus: options
                .cpus
                .first()
                .map(|&cpu| (0, cpu))
                .into_iter()
                .collect(),
            ..Settings::default()
        };
        let [on, off] =
            [true, false].map(|on| Executor::new(graph, with(on)).expect("one partition can run"));
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            with.push(rate(graph, &on, options.time));
            without.push(rate(graph, &off, options.time));
        }
        let (on, off) = (median(with), median(without));
        println!(
            "{:<34} {:>10.3} {:>10.3} {:>6.2} %",
            graph.name(),
            on / 1e6,
            off / 1e6,
            100.0 * (1.0 - on / off)
        );
    }
}

fn latency(options: &Options) {
    println!("two filters of 49 taps in two partitions, 4 blocks in each queue, inputs as fast as");
    println!("they are taken: from a block's reading to its writing; then the time of a step");
    println!(
        "{:>6} {:>10} {:>10} {:>10} {:>10} {:>12} {:>12}",
        "block", "median µs", "99 %", "99.999 %", "most", "step median", "step most"
    );
    let graph = filters("two filters of 49 taps", Type::F32, &[49, 49]);
    let filters: Vec<_> = graph
        .ids()
        .filter(|&id| graph.node(id).node.kind() == "fir")
        .collect();
    for block in [16, 64, 256, 1024, 4096] {
        let part = |id| u32::from(filters.get(1) == Some(&id));
        let settings = Settings {
            block,
            capacity: 4,
            partitions: Some(graph.ids().map(part).collect()),
            cpus: (0..2).zip(options.cpus.iter().copied()).collect(),
            ..Settings::default()
        };
        let executor = Executor::new(&graph, settings).expect("a chain can run");
        let time = 4 * options.time;
        let told = run_on_noise(&graph, &executor, time)
            .expect("it runs")
            .telemetry;
        let (late, us) = (told.latency, 1e-3);
        let steps = told
            .partitions
            .iter()
            .map(|part| part.steps)
            .max_by_key(|steps| steps.most);
        let steps = steps.unwrap_or_default();
        println!(
            "{block:>6} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>12.2} {:>12.1}",
            late.median as f64 * us,
            late.p99 as f64 * us,
            late.p99_999 as f64 * us,
            late.most as f64 * us,
            steps.median as f64 * us,
            steps.most as f64 * us
        );
    }
}

fn main() {
    let options = options();
    let named = |graph: &Graph| {
        let part = options.named.as_ref();
        part.is_none_or(|part| graph.name().contains(part.as_str()))
    };
    let graphs: Vec<Graph> = match options.graphs.is_empty() {
        true => twenty().into_iter().filter(named).collect(),
        false => options.graphs.iter().map(|path| read(path)).collect(),
    };
    let wanted = |what: &str| options.only.as_ref().is_none_or(|only| only == what);
    if wanted("plans") {
        plans(&options, &graphs);
    }
    if wanted("telemetry") {
        telemetry(&options, &graphs);
    }
    if wanted("latency") {
        latency(&options);
    }
}
