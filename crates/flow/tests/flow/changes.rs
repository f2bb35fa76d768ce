//! Numbers of nodes that change at a tick, and runs that begin anew.

use std::io::{Cursor, Read, Write};
use std::sync::{Arc, Mutex};

use karoo_flow::kernels::Level;
use karoo_flow::nodes::{Hold, Machine};
use karoo_flow::run::{ChangeError, Transfer};
use karoo_flow::{Builder, Executor, Graph, Interpreter, Literals, Number, Settings, Type, Value};
use proptest::prelude::*;

use crate::executor::samples;
use crate::partitionings::bytes;

/// The paths of all that changes here, and how many numbers each has.
const NODES: [(&str, usize); 12] = [
    ("front/gain", 1),
    ("front/low", 5),
    ("offset", 1),
    ("weighted/weights", 3),
    ("enabled/inner", 1),
    ("enabled/smooth", 3),
    ("loop/decay", 1),
    ("slow/after", 1),
    ("slow/taps", 70),
    ("rates/level", 1),
    ("rates/vector", 3),
    ("stepping/inside", 1),
];

/// Gains, filters and constants: outside of loops, in a loop, at half the rate, in an enabled
/// subsystem, beside a node of one's own.
fn graph() -> Graph {
    let g = Builder::new("changing");
    let x = g.input("x", Type::F32);
    let offset = g.constant(Type::F32, 0.5).named("offset");
    let front = g.scope("front", || {
        g.partition(0);
        let low = x.fir([0.1, 0.2, 0.4, 0.2, 0.1]).named("low");
        (low.gain(2).named("gain") + offset).delay(3, 1)
    });
    let weighted = g.scope("weighted", || {
        g.partition(0);
        let weights = g.constant(Type::F32.vector(3), [1, 2, 3]).named("weights");
        // A constant that is also read late.
        let late = g.scope("late", || offset.then(karoo_flow::nodes::Pass {}));
        weights * front + late
    });
    let on = x.compare(
        karoo_flow::nodes::Comparison::Greater,
        g.constant(Type::F32, 0.25),
    );
    let held = g.enabled("enabled", on, || {
        g.partition(1);
        let smooth = front.fir([0.25, 0.5, 0.25]).named("smooth");
        let past = g.feedback("past", Type::F32, 2, 0);
        let sum = smooth.gain(0.5).named("inner") + past.out().gain(0.25);
        past.close(sum);
        (sum * offset).then(Hold { initial: 0.into() })
    });
    let looped = g.scope("loop", || {
        g.partition(2);
        let past = g.feedback("past", Type::F32, 1, 0);
        let sum = front + past.out().gain(0.5).named("decay") * offset;
        past.close(sum);
        sum
    });
    let slow = g.scope("slow", || {
        g.partition(1);
        let taps: [f64; 70] = std::array::from_fn(|k| 1.0 / (k + 1) as f64);
        let machine = Machine::new(
            "m",
            [Type::F32, Type::F32],
            [Type::F32],
            || 0f32,
            |sum, i, o| {
                let [a, b] = [0, 1].map(|at| i[at].to_f64s()[0] as f32);
                *sum = *sum / 2.0 + a * b;
                o[0] = Value::from(*sum);
            },
        );
        let down = looped.down(2).fir(taps).named("taps");
        let both = g.add(machine, [down.gain(0.125).named("after"), offset]);
        both.repeat(2)
    });
    // Constants have a value at every tick, also behind a change of the rate.
    let (rates, vectors) = g.scope("rates", || {
        g.partition(0);
        let level = g.constant(Type::F32, 0.75).named("level");
        let vector = g.constant(Type::F32.vector(3), [1, 2, 3]).named("vector");
        let halved = (x.down(2) * level.down(2)).repeat(2);
        let rates = x + level.repeat(3) + level.up(3) + halved;
        (rates, vector.repeat(5) + vector.up(4) * x)
    });
    // Each sample by itself: a loop with changes of the rate, also by one.
    let stepping = g.scope("stepping", || {
        g.partition(2);
        let past = g.feedback("past", Type::F32, 1, 0);
        let inside = (looped.down(2) + past.out()).gain(0.5).named("inside");
        let fast = inside.repeat(2);
        past.close(fast.down(2).down(1).gain(0.25));
        fast
    });
    for (name, wire) in [
        ("front", front),
        ("weighted", weighted),
        ("held", held),
        ("looped", looped),
        ("slow", slow),
        ("rates", rates),
        ("vectors", vectors),
        ("stepping", stepping),
    ] {
        g.output(&format!("y {name}"), wire);
    }
    g.build().unwrap()
}

/// Numbers for a node, from some bits.
fn numbers(count: usize, seed: u16) -> Literals {
    let one = |at: usize| {
        let bits = (at as u32 + 1)
            .wrapping_mul(40_503)
            .wrapping_add(seed.into())
            % 1000;
        (Number::F64(f64::from(bits) / 1000.0 - 0.5), Number::Int(0))
    };
    Literals::new((0..count).map(one).collect()).unwrap()
}

/// Output bytes of a run with changes that are put in before it begins.
fn run(
    graph: &Graph,
    settings: Settings,
    input: &[Value],
    changes: &[(&str, Literals, u64)],
) -> Vec<Vec<u8>> {
    let executor = Executor::new(graph, settings).unwrap();
    let mut out = vec![Vec::new(); graph.outputs().count()];
    let writers = out.iter_mut().map(|out| Box::new(out) as Box<dyn Write>);
    let input = bytes(&[input.to_vec()]).swap_remove(0);
    let run = executor
        .prepare(vec![Box::new(Cursor::new(input))], writers.collect())
        .unwrap();
    let handle = run.handle();
    for (path, numbers, at) in changes {
        assert_eq!(handle.change(path, numbers.clone(), *at), Ok(*at));
    }
    run.run().unwrap();
    out
}

fn changeable() -> Vec<String> {
    NODES.iter().map(|node| node.0.to_string()).collect()
}

fn wanted(graph: &Graph, input: &[Value], changes: &[(&str, Literals, u64)]) -> Vec<Vec<u8>> {
    let mut interpreter = Interpreter::new(graph).unwrap();
    for (path, numbers, at) in changes {
        interpreter.change_at(path, numbers.clone(), *at).unwrap();
    }
    bytes(&interpreter.run(&[input.to_vec()]).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::partitionings::cases(60)))]

    #[test]
    fn changes_have_the_interpreters_bytes_for_any_partitioning(
        changes in proptest::collection::vec((0..NODES.len(), 0..900u64, any::<u16>()), 0..12),
        marks in proptest::option::of(proptest::collection::vec(0..4u32, 1..9)),
        block in 1..90u64, step in 1..60u64, capacity in 2..5usize,
        kind in 0..Transfer::ALL.len(), compile: bool, level in 0..4usize,
    ) {
        let graph = graph();
        let input = samples(800, 3);
        let changes: Vec<_> = changes
            .into_iter()
            .map(|(node, at, seed)| (NODES[node].0, numbers(NODES[node].1, seed), at))
            .collect();
        let levels = Level::available();
        let settings = Settings {
            block,
            step,
            capacity,
            compile,
            transfer: Transfer::ALL[kind],
            level: Some(levels[level % levels.len()]),
            partitions: marks.map(|marks| {
                (0..graph.nodes().len()).map(|node| marks[node / 4 % marks.len()]).collect()
            }),
            changeable: changeable(),
            ..Settings::default()
        };
        // Loops of few samples go in one partition alone.
        let settings = match Executor::new(&graph, settings.clone()) {
            Ok(_) => settings,
            Err(_) => Settings { partitions: None, ..settings },
        };
        prop_assert_eq!(run(&graph, settings, &input, &changes), wanted(&graph, &input, &changes));
    }
}

#[test]
fn a_complex_gain_and_a_complex_filter_change_both_parts() {
    let g = Builder::new("complex");
    let z = g.input("z", Type::F32.complex());
    let complex = |parts: &[(f64, f64)]| {
        let part = |&(re, im): &(f64, f64)| (Number::F64(re), Number::F64(im));
        Literals::new(parts.iter().map(part).collect()).unwrap()
    };
    let turned = z.gain(complex(&[(0.5, -1.0)])).named("turn");
    g.output(
        "y",
        turned
            .fir(complex(&[(1.0, 0.5), (0.25, -0.75)]))
            .named("low"),
    );
    let graph = g.build().unwrap();
    let input: Vec<Value> = samples(400, 5)
        .chunks_exact(2)
        .map(|pair| Value::build(Type::F32.complex(), |_| (pair[0].re()[0], pair[1].re()[0])))
        .collect();
    // Real numbers in the place of complex ones have an imaginary part of 0.
    let changes = [
        ("turn", complex(&[(-0.0, 2.0)]), 33),
        ("low", complex(&[(0.0, 1.0), (2.0, 3.0)]), 50),
        ("turn", 3.into(), 120),
        ("low", [1.5, -0.5].into(), 121),
    ];
    let settings = Settings {
        block: 64,
        step: 16,
        changeable: vec!["turn".into(), "low".into()],
        ..Settings::default()
    };
    assert_eq!(
        run(&graph, settings, &input, &changes),
        wanted(&graph, &input, &changes)
    );
}

#[test]
fn copies_of_a_partition_change_at_the_same_tick() {
    let g = Builder::new("copied");
    let x = g.input("x", Type::F32);
    let y = g.scope("middle", || {
        g.partition(1);
        (x.gain(2).named("gain") * x).gain(0.5)
    });
    g.output("y", y);
    let graph = g.build().unwrap();
    let input = samples(3000, 3);
    let changes: Vec<_> = [0, 31, 64, 100, 101, 1000, 2999]
        .map(|at| ("middle/gain", numbers(1, at as u16), at))
        .into();
    for copies in 1..4 {
        let settings = Settings {
            block: 64,
            step: 16,
            copies: [(1, vec![None; copies])].into(),
            changeable: vec!["middle/gain".into()],
            ..Settings::default()
        };
        assert_eq!(
            run(&graph, settings, &input, &changes),
            wanted(&graph, &input, &changes)
        );
    }
}

/// Samples 1, one after the other, without end.
struct Ones;

impl Read for Ones {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let whole = buffer.len() / 4 * 4;
        for chunk in buffer[..whole].chunks_exact_mut(4) {
            chunk.copy_from_slice(&1f32.to_le_bytes());
        }
        Ok(whole)
    }
}

/// Bytes that another thread may look at.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_change_while_a_run_goes_on_is_exactly_at_the_tick_that_it_tells() {
    let g = Builder::new("on");
    let x = g.input("x", Type::F32);
    let a = g.scope("a", || {
        g.partition(0);
        x.gain(1).named("gain")
    });
    let b = g.scope("b", || {
        g.partition(1);
        x.gain(1).named("gain")
    });
    g.output("y a", a);
    g.output("y b", b);
    let graph = g.build().unwrap();
    let settings = Settings {
        changeable: vec!["a/gain".into(), "b/gain".into()],
        ..Settings::default()
    };
    let executor = Executor::new(&graph, settings).unwrap();
    let outs = [Shared::default(), Shared::default()];
    let writers = outs
        .iter()
        .map(|out| Box::new(out.clone()) as Box<dyn Write>);
    let run = executor
        .prepare(vec![Box::new(Ones)], writers.collect())
        .unwrap();
    let handle = run.handle();
    let mut told = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut last = 0;
            for factor in 2..200 {
                let at = handle.change("a/gain", factor, None).unwrap();
                // The other one may have been begun already, or not.
                match handle.change("b/gain", factor, at) {
                    Ok(same) => assert_eq!(same, at),
                    Err(ChangeError::Late { first, .. }) => assert!(first > at),
                    Err(other) => panic!("{other}"),
                }
                told.push((at, factor as f32));
                while handle.telemetry().partitions[2].ticks < last + 4000 {
                    std::thread::yield_now();
                }
                last = handle.telemetry().partitions[2].ticks;
            }
            handle.quit();
        });
        run.run().unwrap();
    });
    let a = outs[0].0.lock().unwrap();
    let found = a
        .chunks_exact(4)
        .map(|four| f32::from_le_bytes(four.try_into().unwrap()));
    for (tick, found) in found.enumerate() {
        let due = told.iter().rev().find(|change| change.0 <= tick as u64);
        assert_eq!(found, due.map_or(1.0, |change| change.1), "tick {tick}");
    }
}

#[test]
fn what_cannot_be_changed_is_refused_with_the_way_out() {
    let graph = graph();
    let refused = |changeable: &str| {
        let settings = Settings {
            changeable: vec![changeable.into()],
            ..Settings::default()
        };
        Executor::new(&graph, settings).unwrap_err().to_string()
    };
    assert!(refused("front/gian").contains("there is no such node"));
    assert!(refused("x").contains("no constant, no gain and no filter"));
    let settings = Settings {
        changeable: changeable(),
        ..Settings::default()
    };
    let executor = Executor::new(&graph, settings).unwrap();
    let writers = graph
        .outputs()
        .map(|_| Box::new(std::io::sink()) as Box<dyn Write>);
    let run = executor
        .prepare(vec![Box::new(Ones)], writers.collect())
        .unwrap();
    let handle = run.handle();
    let refused =
        |path: &str, numbers: Literals| handle.change(path, numbers, 7).unwrap_err().to_string();
    assert!(refused("front/low", [1, 2].into()).contains("2 numbers are given: give 5"));
    assert!(refused("loop/past", 1.into()).contains("the changeable nodes, which are front/gain"));
    let complex = Literals::new(vec![(Number::Int(0), Number::Int(1))]).unwrap();
    assert!(refused("offset", complex).contains("complex"));
    let g = Builder::new("plain");
    g.output("y", g.constant(Type::I16, 3).named("three"));
    let alone = Executor::new(
        &g.build().unwrap(),
        Settings {
            changeable: vec!["three".into()],
            ..Settings::default()
        },
    );
    assert!(
        alone
            .unwrap_err()
            .to_string()
            .contains("put a `pass` between them")
    );
}

#[test]
fn numbers_that_a_type_has_not_are_refused_by_the_interpreter_too() {
    let g = Builder::new("whole");
    g.output("y", g.input("x", Type::I16).gain(3).named("gain"));
    let mut interpreter = Interpreter::new(&g.build().unwrap()).unwrap();
    let refused = interpreter.change_at("gain", 0.5.into(), 7).unwrap_err();
    assert!(refused.to_string().contains("which no i16 is"), "{refused}");
    interpreter.change_at("gain", 2.into(), 7).unwrap();
}

#[test]
fn every_run_of_an_executor_begins_anew() {
    let graph = graph();
    let input = samples(700, 9);
    let settings = Settings {
        changeable: changeable(),
        ..Settings::default()
    };
    let executor = Executor::new(&graph, settings).unwrap();
    let mut interpreter = Interpreter::new(&graph).unwrap();
    for length in [700, 300, 1] {
        let inputs = [input[..length].to_vec()];
        let wanted = bytes(&interpreter.run(&inputs).unwrap());
        assert_eq!(bytes(&executor.run_values(&inputs).unwrap()), wanted);
        interpreter.reset();
    }
}
