//! Kernels from queue to queue, and whole graphs, on one core.
//!
//! A line for each: the time of a sample in the steps that telemetry looked at, reading and
//! computing, the best and the median, and what writing to the queue takes in the mean. Files of
//! graphs (GraphML) may be given. With `--rates CPU` there is a line for each of these files alone:
//! the rate of whole runs, whose partition is on that CPU, and whose threads that read and write
//! are on any of those of the program (`taskset`). `KAROO_UNITS=1` adds what the time goes to.

use std::hint::black_box;
use std::io::{Read, sink};
use std::time::Instant;

use karoo_flow::kernels::Level;
use karoo_flow::run::Telemetry;
use karoo_flow::{Builder, Executor, Graph, Settings, Type};

/// Numbers between −1 and 1 without a pattern, again and again.
struct Noise {
    bytes: Vec<u8>,
    at: usize,
}

impl Noise {
    fn new(kind: Type, set: Option<f32>) -> Noise {
        let mut state = 1u32;
        let mut next = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            set.unwrap_or((state >> 9) as f32 / 4_194_304.0 - 1.0)
        };
        let parts = kind.len * if kind.complex { 2 } else { 1 };
        let mut bytes = Vec::new();
        for _ in 0..parts << 14 {
            match kind.scalar {
                karoo_flow::Scalar::F32 => bytes.extend(next().to_le_bytes()),
                karoo_flow::Scalar::F64 => bytes.extend(f64::from(next()).to_le_bytes()),
                _ => bytes.extend(vec![0; kind.scalar.bytes()]),
            }
        }
        Noise { bytes, at: 0 }
    }
}

impl Read for Noise {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let count = to.len().min(self.bytes.len() - self.at);
        to[..count].copy_from_slice(&self.bytes[self.at..][..count]);
        self.at = (self.at + count) % self.bytes.len();
        Ok(count)
    }
}

/// The best time of a sample, in nanoseconds; none if the graph does not run.
fn measure(name: &str, graph: &Graph, settings: Settings) -> Option<f64> {
    let executor = match Executor::new(graph, settings) {
        Ok(executor) => executor,
        Err(problems) => {
            println!("{name}: {problems}");
            return None;
        }
    };
    let shape = executor.shape();
    let mut found: Option<f64> = None;
    for _ in 0..3 {
        let writers = graph.outputs().map(|_| Box::new(sink()) as _).collect();
        let run = executor
            .prepare(readers(graph), writers)
            .expect("as many as there are");
        let outcome = run.run().expect("nothing fails");
        let parts = shape.partitions.iter().zip(&outcome.telemetry.partitions);
        for (part, told) in parts.filter(|(_, told)| !told.units.is_empty()) {
            let step = part.step as f64;
            let writing = told.writing as f64 / step;
            let best = told.steps.least as f64 / step;
            println!(
                "{name}, {}: {best:.3} ns a sample, {:.3} in half of the steps of {step}, and \
                 {writing:.3} for writing",
                told.name,
                told.steps.median as f64 / step,
            );
            if std::env::var_os("KAROO_UNITS").is_some() {
                for (unit, time) in &told.units {
                    println!("    {:8.3} {}", *time as f64 / step, unit);
                }
            }
            let all = best + writing;
            found = Some(found.map_or(all, |found| found.min(all)));
        }
    }
    found
}

/// Noise, and behind it the settings of a gain control.
fn readers(graph: &Graph) -> Vec<Box<dyn Read + Send>> {
    let ports = graph.inputs().enumerate();
    let noise = ports.map(|(port, id)| {
        let set = [0.0, 0.3, 0.01, 0.0, 5.0, -5.0].get(port);
        let set = set.filter(|_| port > 0);
        Box::new(Noise::new(graph.node(id).outputs[0], set.copied())) as Box<dyn Read + Send>
    });
    noise.collect()
}

/// What a step's time goes to, in nanoseconds a sample.
fn shares(told: &Telemetry, step: u64) {
    for part in &told.partitions {
        let of = |time: u64| time as f64 / step as f64;
        let waits = |time: u64| time as f64 / part.ticks.max(1) as f64;
        println!(
            "    {}: {:.2} for reading, {:.2} for computing, {:.2} for writing; waits {:.2} for \
             samples and {:.2} for room",
            part.name,
            of(part.reading),
            of(part.computing),
            of(part.writing),
            waits(part.waiting_to_read),
            waits(part.waiting_to_write),
        );
    }
}

/// The rates of whole runs, in millions of samples a second: the median of three for each step.
fn rates(files: &[String], cpu: usize) {
    for path in files {
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let loaded =
            Graph::from_graphml(&text, path).unwrap_or_else(|told| panic!("{path}: {told}"));
        let graph = loaded.graph;
        for step in [512, 1024, 2048, 4096] {
            let settings = Settings {
                block: step,
                step,
                limit: Some(1 << 27),
                cpus: [(0, cpu)].into_iter().collect(),
                partitions: Some(vec![0; graph.nodes().len()]),
                ..Settings::default()
            };
            let executor = Executor::new(&graph, settings).expect("one partition can run");
            let mut found: Vec<f64> = (0..3)
                .map(|_| {
                    let writers = graph.outputs().map(|_| Box::new(sink()) as _).collect();
                    let run = executor.prepare(readers(&graph), writers);
                    let outcome = run.expect("as many as there are").run();
                    let outcome = outcome.expect("nothing fails");
                    if std::env::var_os("KAROO_UNITS").is_some() {
                        shares(&outcome.telemetry, step);
                    }
                    outcome.ticks as f64 * 1e3 / outcome.telemetry.elapsed.max(1) as f64
                })
                .collect();
            found.sort_by(f64::total_cmp);
            println!(
                "{path}: {:.1} M samples a second in steps of {step}",
                found[1]
            );
        }
    }
}

/// The filter of 49 taps, as a share of what the processor's multipliers and adders could do, and
/// whatever graphs are given.
pub fn run(files: &[String]) {
    if let [name, cpu, files @ ..] = files
        && name == "--rates"
    {
        let cpu = cpu
            .parse()
            .unwrap_or_else(|_| panic!("--rates {cpu}: give a CPU's number"));
        return rates(files, cpu);
    }
    let settings = Settings {
        block: 2048,
        limit: Some(1 << 24),
        ..Settings::default()
    };
    let g = Builder::new("fir");
    let taps: Vec<f64> = (0..49).map(|tap| (f64::from(tap) - 24.0).cos()).collect();
    let x = g.input("x", Type::F32.complex());
    g.output("y", x.fir(taps.as_slice()));
    let graph = g.build().expect("a filter is right");
    for (step, level) in [64, 128, 256, 512, 1024, 2048, 4096, 8192]
        .into_iter()
        .flat_map(|step| {
            Level::available()
                .into_iter()
                .map(move |level| (step, level))
        })
        .filter(|&(step, level)| step >= 512 || level == Level::detect())
        .filter(|&(_, level)| level != Level::PORTABLE)
    {
        let settings = Settings {
            block: step.max(2048),
            step,
            level: Some(level),
            ..settings.clone()
        };
        let name = format!("49 taps, complex, {level}");
        let peak = peak();
        if let Some(time) = measure(&name, &graph, settings) {
            println!(
                "{name}, from queue to queue: {time:.3} ns a sample, {:.0} % of the peak of \
                 {peak:.1} G multiplications and additions a second",
                100.0 * 98.0 / time / peak
            );
        }
    }
    for path in files {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                println!("{path}: {error}");
                continue;
            }
        };
        match Graph::from_graphml(&text, path) {
            Ok(loaded) => {
                for step in [512, 1024, 2048] {
                    let settings = Settings {
                        step,
                        ..settings.clone()
                    };
                    measure(path, &loaded.graph, settings);
                }
            }
            Err(problems) => println!("{path}: {problems}"),
        }
    }
}

/// Fused multiply-adds of floats a second that this processor does at its best, in thousands of
/// millions: independent sums in registers.
fn peak() -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        let best = |f: &dyn Fn()| {
            (0..200)
                .map(|_| {
                    let begin = Instant::now();
                    f();
                    begin.elapsed().as_secs_f64()
                })
                .fold(f64::INFINITY, f64::min)
        };
        let lanes = |count: usize| (count * SUMS * TURNS) as f64 / 1e9;
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has been asked.
            return lanes(16) / best(&|| unsafe { peak512() });
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: as above.
            return lanes(8) / best(&|| unsafe { peak256() });
        }
    }
    f64::NAN
}

#[cfg(target_arch = "x86_64")]
const SUMS: usize = 12;
#[cfg(target_arch = "x86_64")]
const TURNS: usize = 4000;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn peak512() {
    use std::arch::x86_64::*;
    let (a, b) = (
        _mm512_set1_ps(black_box(0.999)),
        _mm512_set1_ps(black_box(0.5)),
    );
    let mut sums = [b; SUMS];
    for _ in 0..TURNS {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, a, b);
        }
    }
    black_box(sums);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn peak256() {
    use std::arch::x86_64::*;
    let (a, b) = (
        _mm256_set1_ps(black_box(0.999)),
        _mm256_set1_ps(black_box(0.5)),
    );
    let mut sums = [b; SUMS];
    for _ in 0..TURNS {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, a, b);
        }
    }
    black_box(sums);
}
