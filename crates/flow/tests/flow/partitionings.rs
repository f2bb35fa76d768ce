//! Random graphs in random partitions, sizes and kinds of queues: the executor has the
//! interpreter's bytes.

use karoo_flow::kernels::Level;
use karoo_flow::nodes::{
    Comparison, Complex, Counter, Hold, Logic, LogicOp, Machine, Nco, Order, RealImag, Saturate,
    TappedDelay,
};
use karoo_flow::run::{Between, Patience, Transfer};
use karoo_flow::{
    Builder, Cause, Executor, Graph, Interpreter, Scalar, Settings, Type, Value, Wire,
};
use proptest::prelude::*;

use crate::executor::samples;

pub fn bytes(streams: &[Vec<Value>]) -> Vec<Vec<u8>> {
    let bytes = |stream: &Vec<Value>| {
        let mut bytes = Vec::new();
        stream.iter().for_each(|value| value.write(&mut bytes));
        bytes
    };
    streams.iter().map(bytes).collect()
}

/// One turn of the making of a random graph: what to make, of which wires, with which number.
pub type Turn = (u8, u8, u8, u16);

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
        match what {
            // Rates that stay, and those of constants, which have none of their own.
            248.. if number % 2 == 0 => return self.real.push(x.down(1).repeat(1).up(1)),
            244.. => {
                let constant = g.constant(Type::F32, factor);
                let by = 2 + u64::from(b % 3);
                self.real
                    .push(tame(x + constant.repeat(by) - constant.up(by)));
                if !self.slow.is_empty() {
                    let sum = pick(&self.slow, a) + constant.down(by);
                    self.slow.push(tame(sum));
                }
                return;
            }
            _ => {}
        }
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
                reset: false,
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

pub fn random_graph(turns: &[Turn], loops: &[(u8, u8)]) -> Graph {
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

pub fn settings() -> impl Strategy<Value = Settings> {
    let kind = || 0..Transfer::ALL.len();
    let between = (0..4u32, 0..4u32, 1..200u64, 2..6usize, kind());
    (
        1..150u64,
        2..6usize,
        1..80u64,
        kind(),
        proptest::collection::vec(between, 0..6),
        any::<bool>(),
        (0..4usize, any::<bool>()),
    )
        .prop_map(
            |(block, capacity, step, kind, between, polite, (level, compile))| {
                let levels = Level::available();
                let between = between
                    .into_iter()
                    .map(|(from, to, times, capacity, kind)| Between {
                        from,
                        to,
                        // Sizes that divide one another: a round stays short.
                        block: block * (1 + times % 4),
                        capacity,
                        transfer: Transfer::ALL[kind],
                    });
                Settings {
                    block,
                    capacity,
                    step,
                    transfer: Transfer::ALL[kind],
                    between: between.collect(),
                    patience: polite.then_some(Patience {
                        spins: 0,
                        pauses: 0,
                    }),
                    level: Some(levels[level % levels.len()]),
                    compile,
                    ..Settings::default()
                }
            },
        )
}

/// How many graphs are made: a few, or as many as `KAROO_FLOW_CASES` says. `scripts/flow-cases`
/// makes a thousand.
pub fn cases(few: u32) -> u32 {
    let asked = std::env::var("KAROO_FLOW_CASES");
    asked.ok().and_then(|text| text.parse().ok()).unwrap_or(few)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(100)))]

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
                // Or its sizes have no common round, which is said.
                let refused = problems.count(Cause::Loop) + problems.count(Cause::Limit);
                prop_assert_eq!(refused, 1, "{}", problems);
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

#[test]
fn filters_written_as_products_and_sums_have_the_interpreters_bits() {
    let mut input: Vec<Value> = samples(300, 8);
    for index in [0, 1, 2, 5, 6, 7, 8, 9, 60] {
        input[index] = Value::from(if index % 2 == 0 { -0.0f32 } else { 0.0 });
    }
    for taps in [
        [0.5, -1.0, 2.0, 0.25, -3.0],
        [-0.5, -1.0, -2.0, -0.25, -3.0],
        [0.5, 1.0, -2.0, 0.0, 3.0],
        [0.5, 1.0, -2.0, 3.0, -0.0],
    ] {
        let g = Builder::new("filters");
        let x = g.input("x", Type::F32);
        // From the newest sample on, from the oldest on, and with delayed sums.
        let direct = (1..5).fold(x.gain(taps[0]), |sum, tap| {
            sum + x.delay(tap, 0).gain(taps[tap])
        });
        let oldest = (0..4).rev().fold(x.delay(4, 0).gain(taps[4]), |sum, tap| {
            x.delay(tap, 0).gain(taps[tap]) + sum
        });
        let transposed = (0..4).rev().fold(x.gain(taps[4]), |sum, tap| {
            x.gain(taps[tap]) + sum.delay(1, 0)
        });
        // One that does not begin with 0, and one whose sum is read elsewhere too.
        let begun = (0..4).rev().fold(x.gain(taps[4]), |sum, tap| {
            x.gain(taps[tap]) + sum.delay(1, 7)
        });
        let half = x.gain(taps[1]) + x.gain(taps[2]).delay(1, 0);
        let shared = x.gain(taps[0]) + half.delay(1, 0);
        for (name, wire) in [
            ("direct", direct),
            ("oldest", oldest),
            ("transposed", transposed),
            ("begun", begun),
            ("half", half),
            ("shared", shared),
        ] {
            g.output(name, wire);
        }
        let graph = g.build().unwrap();
        let inputs = [input.clone()];
        let wanted = bytes(&Interpreter::new(&graph).unwrap().run(&inputs).unwrap());
        for step in [1, 3, 64, 512] {
            let settings = Settings {
                step,
                block: 192,
                ..Settings::default()
            };
            let executor = Executor::new(&graph, settings).unwrap();
            let found = bytes(&executor.run_values(&inputs).unwrap());
            for (index, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                assert_eq!(found, wanted, "output {index}, {taps:?}, step {step}");
            }
        }
    }
}
