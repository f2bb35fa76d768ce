//! Kernels from queue to queue, and whole graphs, on one core.
//!
//! `cargo bench -p karoo-flow --bench kernels -- [GRAPH.graphml …]` prints a line for each: the
//! time of a sample in the steps that telemetry looked at, the best and the median.

use std::io::{Read, sink};

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

fn measure(name: &str, graph: &Graph, settings: Settings) {
    let executor = match Executor::new(graph, settings.clone()) {
        Ok(executor) => executor,
        Err(problems) => return println!("{name}: {problems}"),
    };
    let readers = graph
        .inputs()
        .enumerate()
        .map(|(port, id)| {
            let kind = graph.node(id).outputs[0];
            // Behind the signal come settings: those of a gain control.
            let set = [0.0, 0.3, 0.01, 0.0, 5.0, -5.0]
                .get(port)
                .filter(|_| port > 0);
            Box::new(Noise::new(kind, set.copied())) as Box<dyn Read + Send>
        })
        .collect();
    let writers = graph.outputs().map(|_| Box::new(sink()) as _).collect();
    let run = executor
        .prepare(readers, writers)
        .expect("as many as there are");
    let outcome = run.run().expect("nothing fails");
    for part in outcome
        .telemetry
        .partitions
        .iter()
        .filter(|part| !part.units.is_empty())
    {
        let step: f64 = executor
            .to_string()
            .lines()
            .find(|line| line.starts_with(&part.name))
            .and_then(|line| line.split(' ').rev().nth(3)?.parse().ok())
            .unwrap_or(f64::NAN);
        println!(
            "{name}, {}: {:.3} ns a sample, {:.3} in half of the steps of {step}",
            part.name,
            part.steps.least as f64 / step,
            part.steps.median as f64 / step,
        );
        if std::env::var_os("KAROO_UNITS").is_some() {
            for (unit, time) in &part.units {
                println!("    {:8.3} {}", *time as f64 / step, unit);
            }
        }
    }
}

fn main() {
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
    for step in [64, 128, 256, 512, 1024] {
        measure(
            &format!("49 taps, complex, {step}"),
            &graph,
            Settings {
                step,
                ..settings.clone()
            },
        );
    }
    for path in std::env::args()
        .skip(1)
        .filter(|path| path.ends_with(".graphml"))
    {
        let text = std::fs::read_to_string(&path).expect("a file");
        match Graph::from_graphml(&text, &path) {
            Ok(loaded) => measure(&path, &loaded.graph, settings.clone()),
            Err(problems) => println!("{path}: {problems}"),
        }
    }
}
