//! The executor against the interpreter, byte for byte, and how runs end.

use std::collections::BTreeMap;
use std::io::{Cursor, Read, Write};

use karoo_flow::nodes::{
    Compare, Comparison, Complex, Counter, Hold, Logic, LogicOp, Machine, Nco, Order, RealImag,
    Saturate, TappedDelay,
};
use karoo_flow::run::{Between, Failure, Patience, Transfer};
use karoo_flow::{
    Builder, Cause, Executor, Graph, Interpreter, Scalar, Settings, Type, Value, Wire,
};
use proptest::prelude::*;

fn bytes(streams: &[Vec<Value>]) -> Vec<Vec<u8>> {
    let bytes = |stream: &Vec<Value>| {
        let mut bytes = Vec::new();
        stream.iter().for_each(|value| value.write(&mut bytes));
        bytes
    };
    streams.iter().map(bytes).collect()
}

fn samples(count: usize, seed: u32) -> Vec<Value> {
    let next = |n: usize| (n as u32).wrapping_mul(2_654_435_761).wrapping_add(seed) >> 12;
    (0..count)
        .map(|n| Value::from(next(n) as f32 / 262_144.0 - 2.0))
        .collect()
}

/// One turn of the making of a random graph: what to make, of which wires, with which number.
type Turn = (u8, u8, u8, u16);

/// Wires of one type and rate, to be chosen from.
struct Wires<'g> {
    real: Vec<Wire<'g>>,
    slow: Vec<Wire<'g>>,
    complex: Vec<Wire<'g>>,
    whole: Vec<Wire<'g>>,
    bits: Vec<Wire<'g>>,
    vectors: Vec<Wire<'g>>,
}

fn pick<'g>(wires: &[Wire<'g>], which: u8) -> Wire<'g> {
    wires[usize::from(which) % wires.len()]
}

/// Keeps numbers in a range in which no sum is infinite.
fn tame(wire: Wire<'_>) -> Wire<'_> {
    wire.then(Saturate {
        low: -8.0,
        high: 8.0,
    })
}

impl<'g> Wires<'g> {
    fn turn(&mut self, g: &'g Builder, (what, a, b, number): Turn) {
        let (x, y) = (pick(&self.real, a), pick(&self.real, b));
        let factor = f64::from(number) / 32768.0 - 1.0;
        let length = usize::from(number % 90);
        match what % 24 {
            0 => self.real.push(tame(x + y)),
            1 => self.real.push(tame(x * y)),
            2 => self.real.push(x.gain(factor)),
            3 => self.real.push(x.delay(length, factor)),
            4 => self.real.push(x.delay(3, [1, 2, 3])),
            5 => {
                let taps: Vec<f64> = (0..length + 1).map(|k| factor / (k + 1) as f64).collect();
                self.real.push(tame(x.fir(taps.as_slice())));
            }
            6 => self.slow.push(x.delay(usize::from(number % 3), 0).down(2)),
            7 if !self.slow.is_empty() => self.real.push(pick(&self.slow, a).repeat(2)),
            8 if !self.slow.is_empty() => self.real.push(pick(&self.slow, a).up(2)),
            9 if !self.slow.is_empty() => {
                let sum = tame(pick(&self.slow, a) - pick(&self.slow, b));
                self.slow.push(sum.delay(usize::from(number % 60), 1));
            }
            10 => self.complex.push(g.add(Complex {}, [x, y])),
            11 if !self.complex.is_empty() => {
                let z = pick(&self.complex, a);
                self.complex
                    .push(z.fir([0.5, -0.25, 0.125]).delay(length, 0));
                let parts = (z * pick(&self.complex, b)).then(RealImag {});
                self.real.extend([tame(parts), tame(parts.port(1))]);
            }
            12 => self.whole.push(x.gain(100).to(Scalar::I16)),
            13 => self.whole.push(g.add(
                Counter {
                    period: u64::from(number % 50) + 1,
                    initial: 0,
                    output: Scalar::I16,
                },
                [],
            )),
            14 if !self.whole.is_empty() => {
                let sum = pick(&self.whole, a) * pick(&self.whole, b) - pick(&self.whole, a);
                self.real.push(tame(sum.to(Scalar::F32)));
                self.whole.push(sum);
            }
            15 => self.bits.push(x.compare(Comparison::Greater, y)),
            16 if !self.bits.is_empty() => {
                let (p, q) = (pick(&self.bits, a), pick(&self.bits, b));
                let logic = Logic {
                    operation: LogicOp::Xor,
                    inputs: 2,
                };
                self.bits.push(g.add(logic, [p, q]));
                self.real.push(p.mux([x, y]));
            }
            17 if !self.bits.is_empty() => {
                let on = pick(&self.bits, a);
                let name = format!("on{number}.{}", self.real.len());
                let out = g.enabled(&name, on, || {
                    let past = g.feedback("past", Type::F32, 1 + length % 4, 1);
                    let sum = tame(x + past.out().gain(0.5));
                    past.close(sum);
                    sum.then(Hold {
                        initial: factor.into(),
                    })
                });
                self.real.push(out);
            }
            18 => {
                let past = g.feedback(
                    &format!("past{number}.{}", self.real.len()),
                    Type::F32,
                    1 + length,
                    0.25,
                );
                let sum = tame(x + past.out().gain(factor));
                past.close(sum.delay(usize::from(b % 3) * 40, 0.5));
                self.real.push(sum);
            }
            19 => self.vectors.push(x.then(TappedDelay {
                length: 4 - usize::from(number % 2),
                current: number % 2 == 1,
                order: Order::Newest,
                initial: 0.into(),
                of: None,
            })),
            20 if !self.vectors.is_empty() => {
                let v = pick(&self.vectors, a);
                let w = tame((v + x) * pick(&self.vectors, b)).delay(length, 0);
                self.real.push(tame(w.then(karoo_flow::nodes::Sum {
                    signs: "+".into(),
                    output: None,
                })));
                self.vectors.push(w);
            }
            21 => {
                let machine = Machine::new(
                    "m",
                    [Type::F32],
                    [Type::F32],
                    || 0f32,
                    |sum, i, o| {
                        *sum = (*sum + i[0].to_f64s()[0] as f32) / 2.0;
                        o[0] = Value::from(*sum);
                    },
                );
                self.real.push(g.add(machine, [x]));
            }
            22 if !self.whole.is_empty() => self.complex.push(pick(&self.whole, a).then(Nco {
                bits: 16,
                address_bits: 8,
                initial: 5,
                output: Scalar::F32,
            })),
            23 => self.real.push(tame(x - g.constant(Type::F32, factor))),
            _ => self.real.push(x.delay(usize::from(a) * 3, 2)),
        }
    }
}

fn random_graph(turns: &[Turn], loops: &[(u8, u8)]) -> Graph {
    let g = Builder::new("random");
    let mut wires = Wires {
        real: vec![g.input("x", Type::F32), g.input("y", Type::F32)],
        slow: vec![],
        complex: vec![],
        whole: vec![],
        bits: vec![],
        vectors: vec![],
    };
    let mut open = Vec::new();
    for (index, &(length, _)) in loops.iter().enumerate() {
        let past = g.feedback(
            &format!("loop{index}"),
            Type::F32,
            1 + usize::from(length),
            1,
        );
        wires.real.push(past.out());
        open.push(past);
    }
    turns.iter().for_each(|&turn| wires.turn(&g, turn));
    for (past, &(_, which)) in open.into_iter().zip(loops) {
        past.close(tame(pick(&wires.real, which).gain(0.5)));
    }
    let Wires {
        real,
        slow,
        complex,
        whole,
        bits,
        vectors,
    } = wires;
    let last = real.into_iter().rev().take(6);
    for (index, wire) in last
        .chain(slow.last().copied())
        .chain(complex.last().copied())
        .chain(whole.last().copied())
        .chain(bits.last().copied())
        .chain(vectors.last().copied())
        .enumerate()
    {
        g.output(&format!("out{index}"), wire);
    }
    g.build().expect("all turns make graphs that check")
}

fn settings() -> impl Strategy<Value = Settings> {
    let between = (0..4u32, 0..4u32, 1..200u64, 2..6usize, any::<bool>());
    (
        1..150u64,
        2..6usize,
        1..80u64,
        any::<bool>(),
        proptest::collection::vec(between, 0..4),
        any::<bool>(),
    )
        .prop_map(|(block, capacity, step, copying, between, polite)| {
            let transfer = |copying| {
                if copying {
                    Transfer::Copying
                } else {
                    Transfer::InPlace
                }
            };
            let between = between
                .into_iter()
                .map(|(from, to, times, capacity, copying)| Between {
                    from,
                    to,
                    // Sizes that divide one another: a round stays short.
                    block: block * (1 + times % 4),
                    capacity,
                    transfer: transfer(copying),
                });
            Settings {
                block,
                capacity,
                step,
                transfer: transfer(copying),
                between: between.collect(),
                patience: polite.then_some(Patience {
                    spins: 0,
                    pauses: 0,
                }),
                ..Settings::default()
            }
        })
}

fn cases(count: u32) -> ProptestConfig {
    let given = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|text| text.parse().ok());
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(given.unwrap_or(count))
    }
}

proptest! {
    #![proptest_config(cases(150))]

    /// Any partitions, sizes, and kinds of queues give the interpreter's bytes, or are refused
    /// because they would stand still.
    #[test]
    fn any_partitioning_gives_the_interpreters_bytes(
        turns in proptest::collection::vec(any::<Turn>(), 1..24),
        loops in proptest::collection::vec(any::<(u8, u8)>(), 0..3),
        marks in proptest::collection::vec(0..4u32, 1..9),
        runs in proptest::collection::vec(any::<u8>(), 4),
        mut settings in settings(),
        lengths in (0..700usize, 0..700usize),
    ) {
        let graph = random_graph(&turns, &loops);
        let inputs = [samples(lengths.0, 1), samples(lengths.1, 77)];
        let wanted = Interpreter::new(&graph).unwrap().run(&inputs).unwrap();
        // Neighbours share a partition now and then, as in a graph made by hand.
        let run = usize::from(runs[0] % 12) + 1;
        let mark = |node: usize| marks[node / run % marks.len()];
        settings.partitions = Some((0..graph.nodes().len()).map(mark).collect());
        let executor = match Executor::new(&graph, settings.clone()) {
            Ok(executor) => executor,
            Err(problems) => {
                prop_assert_eq!(problems.count(Cause::Loop), 1, "{}", problems);
                // In one partition nothing can stand still.
                settings.partitions = Some(vec![0; graph.nodes().len()]);
                Executor::new(&graph, settings).unwrap()
            }
        };
        let found = executor.run_values(&inputs).unwrap();
        for (index, (found, wanted)) in bytes(&found).iter().zip(bytes(&wanted)).enumerate() {
            prop_assert!(*found == wanted, "output {} of\n{}", index, executor);
        }
    }
}

/// x -> a -> b -> y in two partitions, with a loop of `length` samples through both.
fn looped(length: usize) -> Graph {
    let g = Builder::new("loop");
    let x = g.input("x", Type::F32);
    let past = g.scope("b", || {
        g.partition(1);
        g.feedback("past", Type::F32, length, 0)
    });
    let sum = g.scope("a", || {
        g.partition(0);
        x + past.out()
    });
    let half = g.scope("b2", || {
        g.partition(1);
        sum.gain(0.5)
    });
    past.close(half);
    g.output("y", half);
    g.build().unwrap()
}

#[test]
fn delays_become_initial_blocks_by_whole_blocks_alone() {
    for (block, initial) in [(24, Some(2)), (50, Some(1)), (64, None)] {
        let settings = Settings {
            block,
            ..Settings::default()
        };
        let graph = looped(50);
        match (Executor::new(&graph, settings), initial) {
            (Ok(executor), Some(initial)) => {
                let text = executor.to_string();
                let line = format!(
                    "partition 1 -> partition 0: 1 signals, 8 blocks of {block} ticks, {initial} at the start"
                );
                assert!(text.contains(&line), "{text}");
                let inputs = [samples(333, 5)];
                let wanted = Interpreter::new(&graph).unwrap().run(&inputs).unwrap();
                assert_eq!(executor.run_values(&inputs).unwrap(), wanted);
            }
            (Err(problems), None) => {
                let text = problems.to_string();
                assert!(
                    text.contains("partition 0, partition 1 wait for one another"),
                    "{text}"
                );
                assert!(
                    text.contains("partition 1 -> partition 0 has no block of 64 ticks"),
                    "{text}"
                );
            }
            (found, _) => panic!("{block}: {found:?}"),
        }
    }
}

#[test]
fn a_queue_that_holds_too_little_is_refused_and_a_longer_one_runs() {
    // Two ways from a to c, one of them 3 blocks late: the other must hold as many.
    let make = |capacity| {
        let g = Builder::new("ways");
        let x = g.input("x", Type::F32);
        let a = g.scope("a", || {
            g.partition(0);
            x.gain(2)
        });
        let b = g.scope("b", || {
            g.partition(1);
            a.gain(3)
        });
        let c = g.scope("c", || {
            g.partition(2);
            b + a.delay(30, 1)
        });
        g.output("y", c);
        let settings = Settings {
            block: 10,
            capacity,
            ..Settings::default()
        };
        let graph = g.build().unwrap();
        let executor = Executor::new(&graph, settings).unwrap();
        let inputs = [samples(200, 9)];
        let wanted = Interpreter::new(&graph).unwrap().run(&inputs).unwrap();
        assert_eq!(executor.run_values(&inputs).unwrap(), wanted, "{capacity}");
    };
    (1..6).for_each(make);
}

#[test]
fn a_graph_without_inputs_runs_up_to_its_limit() {
    let g = Builder::new("count");
    let count = g.add(
        Counter {
            period: 7,
            initial: 3,
            output: Scalar::U8,
        },
        [],
    );
    g.output("count", count);
    g.output("two", g.constant(Type::I16, 2));
    let graph = g.build().unwrap();
    let settings = |limit| Settings {
        block: 32,
        limit,
        ..Settings::default()
    };
    let out = Executor::new(&graph, settings(Some(100)))
        .unwrap()
        .run_values(&[])
        .unwrap();
    assert_eq!(out, Interpreter::new(&graph).unwrap().run_for(100));
    let failure = Executor::new(&graph, settings(None))
        .unwrap()
        .run_values(&[])
        .unwrap_err();
    assert!(failure.text.contains("give `limit`"), "{failure}");
}

#[test]
fn a_limit_ends_a_run_at_its_sample() {
    let graph = looped(50);
    for limit in [0, 1, 10, 11, 499] {
        let settings = Settings {
            block: 10,
            limit: Some(limit),
            ..Settings::default()
        };
        let inputs = samples(300, 4);
        let out = Executor::new(&graph, settings)
            .unwrap()
            .run_values(std::slice::from_ref(&inputs))
            .unwrap();
        let kept = &inputs[..(limit as usize).min(300)];
        assert_eq!(
            out,
            Interpreter::new(&graph)
                .unwrap()
                .run(&[kept.to_vec()])
                .unwrap()
        );
    }
}

/// 0 for ever.
struct Endless;

impl Read for Endless {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        bytes.fill(0);
        Ok(bytes.len())
    }
}

/// A chain of two partitions, the second with a machine that does `step`.
fn with_machine(step: impl Fn(&mut u32, &mut [Value]) + Send + Sync + 'static) -> Executor {
    let g = Builder::new("chain");
    let x = g.input("x", Type::F32);
    let first = g.scope("first", || {
        g.partition(0);
        x.gain(2)
    });
    let y = g.scope("second", || {
        g.partition(1);
        let machine = Machine::new(
            "m",
            [Type::F32],
            [Type::F32],
            || 0,
            move |n, _, o| step(n, o),
        );
        g.add(machine, [first]).named("machine")
    });
    g.output("y", y);
    Executor::new(&g.build().unwrap(), Settings::default()).unwrap()
}

fn run_endless(executor: &Executor, writer: Box<dyn Write>) -> Failure {
    executor
        .prepare(vec![Box::new(Endless)], vec![writer])
        .unwrap()
        .run()
        .unwrap_err()
}

#[test]
fn what_fails_is_named_and_everything_ends() {
    let panics = with_machine(|count, _| {
        *count += 1;
        assert!(*count < 5000, "counted too far");
    });
    let failure = run_endless(&panics, Box::new(std::io::sink()));
    assert_eq!(failure.path, "second/machine");
    assert!(failure.text.contains("counted too far"), "{failure}");

    let changes = with_machine(|_, outputs| outputs[0] = Value::from(1u8));
    let failure = run_endless(&changes, Box::new(std::io::sink()));
    assert_eq!(
        failure.to_string(),
        "second/machine: put out u8 where its output is f32"
    );

    let fine = with_machine(|_, _| {});
    let full: &mut [u8] = Box::leak(Box::new([0; 100]));
    let failure = run_endless(&fine, Box::new(Cursor::new(full)));
    assert!(
        failure.to_string().starts_with("y: cannot be written"),
        "{failure}"
    );

    let torn = fine.prepare(
        vec![Box::new(Cursor::new(vec![0; 4002]))],
        vec![Box::new(std::io::sink())],
    );
    let failure = torn.unwrap().run().unwrap_err();
    assert_eq!(
        failure.to_string(),
        "x: ends 2 bytes into a sample of 4: give whole samples"
    );
}

/// A writer that ends the run once it has written so much.
struct Quits(std::rc::Rc<std::cell::RefCell<(Option<karoo_flow::run::Handle>, usize)>>);

impl Write for Quits {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut state = self.0.borrow_mut();
        state.1 += bytes.len();
        if state.1 > 100_000
            && let Some(handle) = &state.0
        {
            handle.quit();
        }
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_run_that_is_to_quit_drains() {
    let executor = with_machine(|_, _| {});
    let written = std::rc::Rc::new(std::cell::RefCell::new((None, 0)));
    let run = executor
        .prepare(
            vec![Box::new(Endless)],
            vec![Box::new(Quits(written.clone()))],
        )
        .unwrap();
    written.borrow_mut().0 = Some(run.handle());
    let outcome = run.run().unwrap();
    assert_eq!(written.borrow().1 as u64, 4 * outcome.ticks);
    assert!(outcome.ticks.is_multiple_of(1024));
}

#[test]
fn telemetry_tells_ticks_of_each_partition_and_names_units() {
    let executor = with_machine(|_, _| {});
    let run = executor
        .prepare(
            vec![Box::new(Endless.take(4 * 1024 * 200))],
            vec![Box::new(std::io::sink())],
        )
        .unwrap();
    let outcome = run.run().unwrap();
    let telemetry = outcome.telemetry;
    assert_eq!(outcome.ticks, 1024 * 200);
    let names: Vec<&str> = telemetry
        .partitions
        .iter()
        .map(|part| part.name.as_str())
        .collect();
    assert_eq!(names, ["inputs", "outputs", "partition 0", "partition 1"]);
    for part in &telemetry.partitions {
        assert!(part.ticks >= outcome.ticks, "{part:?}");
        assert_eq!(
            part.busy + part.waiting,
            telemetry.elapsed.max(part.waiting),
            "{part:?}"
        );
    }
    assert_eq!(telemetry.partitions[3].units[0].0, "second/machine");
    assert!(telemetry.partitions[3].steps.count > 0);
    assert!(telemetry.latency.count > 0 && telemetry.latency.least > 0);
    assert_eq!(telemetry.queues.len(), 3);
    assert!(
        telemetry
            .queues
            .iter()
            .all(|queue| queue.fill.count > 0 && queue.fill.most <= 8)
    );
    let limit = telemetry.bottleneck().map(|part| part.name.as_str());
    assert!(limit.is_some_and(|name| name.starts_with("partition")));
    let json: serde_json::Value = serde_json::from_str(&telemetry.to_json()).unwrap();
    assert_eq!(json["queues"][0]["capacity"], 8);
}

#[test]
fn a_cpu_that_there_is_not_is_refused() {
    let settings = Settings {
        cpus: BTreeMap::from([(0, 100_000)]),
        ..Settings::default()
    };
    let problems = Executor::new(&looped(2000), settings).unwrap_err();
    assert!(problems.to_string().contains("CPU 100000"), "{problems}");
}

#[test]
fn partitions_run_on_the_cpus_they_are_given() {
    let cpu = core_affinity::get_core_ids().unwrap().last().unwrap().id;
    let settings = Settings {
        cpus: BTreeMap::from([(0, cpu), (1, cpu)]),
        ..Settings::default()
    };
    let graph = looped(2000);
    let inputs = [samples(5000, 6)];
    let out = Executor::new(&graph, settings)
        .unwrap()
        .run_values(&inputs)
        .unwrap();
    assert_eq!(out, Interpreter::new(&graph).unwrap().run(&inputs).unwrap());
}

#[test]
fn a_comparison_of_two_kinds_crosses_partitions() {
    // An enable signal from another partition, and a subsystem in two of them.
    let g = Builder::new("enabled");
    let x = g.input("x", Type::F32);
    let on = g.scope("control", || {
        g.partition(0);
        g.add(
            Compare {
                relation: Comparison::Less,
            },
            [x, x.delay(1, 0)],
        )
    });
    let y = g.enabled("sub", on, || {
        let twice = g.scope("one", || {
            g.partition(1);
            x.gain(2).delay(2, 9)
        });
        g.scope("two", || {
            g.partition(2);
            (twice + x).hold(-3)
        })
    });
    g.output("y", y);
    let graph = g.build().unwrap();
    let inputs = [samples(1000, 3)];
    let settings = Settings {
        block: 48,
        step: 16,
        ..Settings::default()
    };
    let out = Executor::new(&graph, settings)
        .unwrap()
        .run_values(&inputs)
        .unwrap();
    assert_eq!(out, Interpreter::new(&graph).unwrap().run(&inputs).unwrap());
}
