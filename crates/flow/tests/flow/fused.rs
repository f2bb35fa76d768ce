//! What the executor makes one pass of, or one filter, has the interpreter's bytes at every level.

use karoo_flow::kernels::Level;
use karoo_flow::nodes::{
    Comparison, Criterion, Logic, LogicOp, Lookup, Lut, Saturate, Sum, Switch,
};
use karoo_flow::{Builder, Executor, Graph, Interpreter, Ratio, Settings, Type, Value, Wire};
use proptest::prelude::*;

use crate::executor::samples;
use crate::partitionings::bytes;

/// Holds a graph of inputs of one type against the interpreter, at all levels and for steps of
/// several lengths.
fn hold(graph: &Graph, steps: &[u64]) {
    let inputs: Vec<Vec<Value>> = graph
        .inputs()
        .enumerate()
        .map(|(port, id)| {
            let kind = graph.node(id).outputs[0];
            let samples = samples(2500, port as u32 * 77_777);
            samples.iter().map(|value| value.cast(kind)).collect()
        })
        .collect();
    hold_for(graph, &inputs, steps);
}

/// As [`hold`], for these inputs.
fn hold_for(graph: &Graph, inputs: &[Vec<Value>], steps: &[u64]) {
    let wanted = bytes(&Interpreter::new(graph).unwrap().run(inputs).unwrap());
    for level in Level::available() {
        for &step in steps {
            let settings = Settings {
                block: step,
                step,
                level: Some(level),
                ..Settings::default()
            };
            let executor = Executor::new(graph, settings).unwrap();
            let got = bytes(&executor.run_values(inputs).unwrap());
            assert!(got == wanted, "{level}, steps of {step}: other bytes");
        }
    }
}

#[test]
fn filters_of_any_length_have_the_interpreters_bytes() {
    for kind in [Type::F32, Type::F64] {
        for taps in [1, 2, 7, 8, 9, 16, 17, 24, 31, 32, 40, 49, 64, 100, 129] {
            let g = Builder::new("filter");
            let x = g.input("x", kind);
            let taps: Vec<f64> = (0..taps).map(|tap| f64::from(tap * 7 % 11) - 5.3).collect();
            g.output("y", x.fir(taps.as_slice()));
            hold(&g.build().unwrap(), &[7, 100, 333, 1024]);
        }
    }
}

/// From 256 copies on, the operation that follows begins with the number that is repeated.
#[test]
fn passes_over_repeated_numbers_have_the_interpreters_bytes() {
    for kind in [Type::F32, Type::F64, Type::F32.complex()] {
        for by in [2, 255, 256, 259, 700] {
            let g = Builder::new("repeated");
            let slow = g.input_at("slow", kind, Ratio::new(1, by).unwrap());
            let fast = g.input("fast", kind);
            let three = g.constant(kind, 3.0);
            g.output("alone", slow.repeat(by).gain(0.7) + three);
            let both = slow.gain(1.1).repeat(by) * fast - three;
            g.output("both", both);
            // These need the repeated numbers themselves.
            let kept = slow.gain(1.3).repeat(by);
            g.output("ahead", kept.gain(0.3) - fast);
            g.output("kept", kept);
            let past = slow.gain(1.7).repeat(by);
            g.output("past", past.gain(0.3) - past.delay(5, 0));
            let late = slow.delay(1, 0).repeat(by);
            g.output("late", late.delay(3, 0) - fast);
            let inputs = [2500 / by + 1, 2500].map(|count| {
                let samples = samples(count as usize, 77_777);
                samples.iter().map(|value| value.cast(kind)).collect()
            });
            hold_for(&g.build().unwrap(), &inputs, &[by, 2 * by, 9 * by]);
        }
    }
}

/// A delay between two partitions is a part of their queue: the first sends on what it gets.
#[test]
fn chains_write_over_nothing_that_is_sent_or_read_later() {
    for kind in [Type::F32, Type::F64] {
        let g = Builder::new("sent");
        let x = g.input("x", kind);
        let (late, louder) = g.scope("first", || {
            g.partition(0);
            (x.delay(64, 0), x.gain(1.5).gain(0.3))
        });
        let late = g.scope("second", || {
            g.partition(1);
            late.gain(0.5).gain(7.0)
        });
        let again = louder.gain(1.1).gain(0.7);
        g.output("late", late);
        g.output("louder", louder);
        g.output("again", again);
        g.output("both", again.gain(0.9).gain(0.4) + louder + x);
        hold(&g.build().unwrap(), &[8, 32, 64]);
    }
}

/// A filter written as gains, delays and sums: with the delays in front of the gains or behind
/// them. Then `begins[k]` is what the delay in front of tap k has at first: 0 where none is given.
fn written_out<'g>(x: Wire<'g>, taps: usize, behind: bool, begins: &[f64]) -> Wire<'g> {
    let gain = |tap: usize| 0.3 - (tap * 5 % 7) as f64 * 0.11;
    let last = x.gain(gain(taps - 1));
    if behind {
        return (0..taps - 1).rev().fold(last, |sum, tap| {
            let begin = begins.get(tap).copied().unwrap_or(0.0);
            sum.delay(1, begin) + x.gain(gain(tap))
        });
    }
    let mut past = x;
    let mut sum = x.gain(gain(0));
    for tap in 1..taps {
        past = past.delay(1, 0);
        sum = sum + past.gain(gain(tap));
    }
    sum
}

#[test]
fn filters_that_are_written_out_have_the_interpreters_bytes() {
    for kind in [Type::F32, Type::F64] {
        for taps in [4, 8, 17, 25, 49, 60] {
            for behind in [false, true] {
                let g = Builder::new("written");
                g.output("y", written_out(g.input("x", kind), taps, behind, &[]));
                hold(&g.build().unwrap(), &[64, 250, 1000]);
            }
        }
    }
}

#[test]
fn filters_that_begin_with_numbers_have_the_interpreters_bytes() {
    let begins: &[&[f64]] = &[&[0.0, 1.0], &[-0.0; 70], &[0.5, -0.25, 0.0, 2.0, -0.0, 7.0]];
    for kind in [Type::F32, Type::F64] {
        for taps in [4, 8, 17, 60] {
            for begins in begins {
                let g = Builder::new("begins");
                let x = g.input("x", kind);
                let late = written_out(x.delay(3, 0.75), taps, true, begins);
                g.output("y", written_out(x, taps, true, begins));
                g.output("late", late);
                hold(&g.build().unwrap(), &[4, 7, 64, 250, 1000]);
            }
        }
    }
}

#[test]
fn sums_by_delays_of_any_length_have_the_interpreters_bytes() {
    let g = Builder::new("delays");
    let x = g.input("x", Type::F32);
    // The newest sample comes first, since sums are late by less than samples.
    let mut sum = x.gain(0.3);
    for tap in 1..12 {
        sum = sum.delay(1, f64::from(tap) * 0.4 - 2.0) + x.delay(2 * tap as usize, 0).gain(0.7);
    }
    g.output("newest first", sum);
    // Two samples at once, and two delays in a row.
    let mut sum = x.delay(1, 0.5).gain(0.2);
    for tap in 1..9 {
        let late = match tap % 2 {
            0 => sum.delay(2, 1.5),
            _ => sum.delay(1, -0.5).delay(1, 3.0),
        };
        sum = late + x.delay(tap as usize + 1, 0.5).gain(0.1 * f64::from(tap));
    }
    g.output("two at once", sum);
    hold(&g.build().unwrap(), &[1, 4, 7, 64, 250]);
}

#[test]
fn filters_with_infinite_taps_have_the_interpreters_bytes() {
    let g = Builder::new("infinite");
    let x = g.input("x", Type::F64);
    let mut sum = x.gain(f64::INFINITY);
    for tap in 1..6 {
        sum = sum.delay(1, 0) + x.gain(0.1 * f64::from(tap));
    }
    g.output("y", sum);
    // And one on the same samples whose first tap has the other sign.
    g.output("other", written_out(x.gain(1.0), 9, true, &[]));
    g.output("negative", written_out(x, 9, true, &[]).gain(-1.0));
    hold(&g.build().unwrap(), &[4, 7, 64, 250]);
}

#[test]
fn filters_of_enabled_subsystems_begin_with_their_numbers() {
    let g = Builder::new("enabled");
    let x = g.input("x", Type::F32);
    let on = x.compare(Comparison::Greater, g.constant(Type::F32, 0.2));
    let y = g.enabled("rare", on, || {
        written_out(x, 9, true, &[0.0, 1.0, -3.0, 0.5, 2.0]).hold(0)
    });
    g.output("y", y);
    hold(&g.build().unwrap(), &[1, 4, 7, 64, 250]);
}

/// One more operation on a number.
fn next<'g>(g: &'g Builder, wire: Wire<'g>, other: Wire<'g>, what: u8, number: f64) -> Wire<'g> {
    let kind = Type::F32;
    match what % 10 {
        0 => wire + g.constant(kind, number),
        1 => wire.gain(number),
        2 => g.constant(kind, number) - wire,
        3 => wire - other,
        4 => other - wire,
        5 => wire * other,
        6 => wire + other.gain(number),
        7 => other * other - wire,
        8 => wire.then(Sum {
            signs: "-".into(),
            output: None,
        }),
        _ => wire - other * g.constant(kind, number),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn operations_that_follow_each_other_have_the_interpreters_bytes(
        turns in prop::collection::vec((any::<u8>(), any::<u8>(), -2.0..2.0f64), 1..50),
        step in 1..700u64,
    ) {
        let g = Builder::new("chain");
        let (x, y) = (g.input("x", Type::F32), g.input("y", Type::F32));
        let mut wires = vec![x, y];
        for (index, &(what, other, number)) in turns.iter().enumerate() {
            let wire = wires[wires.len() - 1];
            let wire = if index % 16 == 15 {
                wire.then(Saturate { low: -9.0, high: 9.0 })
            } else {
                wire
            };
            // Most are read once; some wires are taken up again.
            let other = if other % 8 == 0 { wires[usize::from(other) % wires.len()] } else { y };
            wires.push(next(&g, wire, other, what, number));
        }
        g.output("z", wires[wires.len() - 1]);
        hold(&g.build().unwrap(), &[step, 1024]);
    }

    #[test]
    fn loops_through_one_number_have_the_interpreters_bytes(
        turns in prop::collection::vec((0..8u8, any::<bool>(), -2.0..2.0f64), 1..7),
        step in 1..300u64,
    ) {
        let g = Builder::new("loop");
        let (x, y) = (g.input("x", Type::F32), g.input("y", Type::F32));
        let on = x.compare(Comparison::Greater, y);
        let past = g.feedback("past", Type::F32, 1, 0.5);
        let switch = || Switch { criterion: Criterion::NotZero, threshold: 0.0, output: None };
        let mut wire = past.out().gain(0.5);
        let mut seen = vec![wire];
        for &(what, side, number) in &turns {
            let limit = g.constant(Type::F32, number);
            wire = match what {
                0 => wire + x,
                1 => y - wire,
                2 => wire.then(Saturate { low: number - 1.0, high: number + 1.0 }),
                // Above a limit the limit, below another one that.
                3 => {
                    let relation = if side { Comparison::Greater } else { Comparison::GreaterEqual };
                    let low = g.add(switch(), [y, wire.compare(Comparison::Less, y), wire]);
                    g.add(switch(), [limit, wire.compare(relation, limit), low])
                }
                4 => {
                    let relation = if side { Comparison::Less } else { Comparison::LessEqual };
                    g.add(switch(), [y, y.compare(relation, wire), wire])
                }
                5 if side => g.add(switch(), [past.out(), on, wire]),
                5 => g.add(switch(), [wire, on, past.out()]),
                6 if side => g.add(switch(), [y, on, wire]),
                6 => g.add(switch(), [wire, on, limit]),
                _ => wire * limit,
            };
            seen.push(wire);
        }
        // So that the loop stays within bounds.
        let closed = wire.then(Saturate { low: -50.0, high: 50.0 });
        past.close(closed);
        for (index, wire) in seen.into_iter().enumerate() {
            g.output(&format!("seen{index}"), wire);
        }
        g.output("z", closed);
        hold(&g.build().unwrap(), &[step, 512]);
    }
}

fn switch() -> Switch {
    Switch {
        criterion: Criterion::NotZero,
        threshold: 0.0,
        output: None,
    }
}

pub const RELATIONS: [Comparison; 6] = [
    Comparison::Less,
    Comparison::LessEqual,
    Comparison::Greater,
    Comparison::GreaterEqual,
    Comparison::Equal,
    Comparison::Unequal,
];

/// A table that is only asked for what is between two limits: outside, a number takes its place
/// before, and another one behind.
fn guarded<'g>(x: Wire<'g>, kind: Type, low: f64, high: f64, table: Lut) -> Wire<'g> {
    let g = x.builder();
    let number = |number: f64| g.constant(kind, number);
    let below = x.compare(Comparison::LessEqual, number(low));
    let above = x.compare(Comparison::GreaterEqual, number(high));
    let either = g.add(
        Logic {
            operation: LogicOp::Or,
            inputs: 2,
        },
        [above, below],
    );
    let safe = g.add(switch(), [number(low), either, x]);
    let found = safe.then(table);
    let found = g.add(switch(), [number(9.5), above, found]);
    g.add(switch(), [number(-9.5), below, found])
}

fn table(kind: Type, entries: u32, between: Lookup, step: f64) -> Lut {
    let entries: Vec<f64> = (0..entries).map(|at| f64::from(at * at) - 3.25).collect();
    Lut {
        first: -1.0,
        step,
        table: entries.as_slice().into(),
        between,
        output: kind.scalar,
    }
}

/// Numbers of all sizes, some of which are none.
fn odd(seed: u32) -> Vec<Value> {
    let number = |(n, value): (usize, Value)| match n % 23 {
        3 => f32::NAN,
        5 => f32::INFINITY,
        7 => f32::NEG_INFINITY,
        11 => -0.0,
        13 => 0.0,
        17 => f32::MAX,
        _ => value.to_f64s()[0] as f32,
    };
    let all = samples(1500, seed).into_iter().enumerate();
    all.map(|at| Value::from(number(at))).collect()
}

#[test]
fn guarded_tables_have_the_interpreters_bytes() {
    for kind in [Type::F32, Type::F64] {
        for (entries, between, step) in [
            (1, Lookup::Below, 0.25),
            (2, Lookup::Nearest, 0.3),
            (17, Lookup::Below, 0.125),
            (300, Lookup::Nearest, 0.01),
            (300, Lookup::Linear, 0.01),
        ] {
            let g = Builder::new("guarded");
            let x = g.input("x", kind);
            let table = table(kind, entries, between, step);
            g.output("guarded", guarded(x, kind, -0.75, 1.5, table.clone()));
            g.output("alone", x.then(table));
            let graph = g.build().unwrap();
            let inputs: Vec<Value> = odd(9).iter().map(|value| value.cast(kind)).collect();
            hold_for(&graph, &[inputs], &[1, 5, 64, 127, 640, 1024]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn choices_and_tables_have_the_interpreters_bytes(
        turns in prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>(), -2.0..2.0f64), 1..24),
        double in any::<bool>(),
        step in 1..700u64,
    ) {
        let kind = if double { Type::F64 } else { Type::F32 };
        let g = Builder::new("choices");
        let (x, y) = (g.input("x", kind), g.input("y", kind));
        let given = g.input("on", Type::BOOL);
        let mut wires = vec![x, y];
        let mut conditions = vec![given];
        for &(what, one, other, number) in &turns {
            // Mostly the last ones, so that much is read once.
            let pick = |from: &[Wire<'_>], which: u8| {
                let back = usize::from(which) % if which > 200 { 7 } else { 2 };
                from.len() - 1 - back.min(from.len() - 1)
            };
            let (a, b) = (wires[pick(&wires, one)], wires[pick(&wires, other)]);
            let c = conditions[pick(&conditions, other)];
            let constant = g.constant(kind, number);
            let relation = RELATIONS[usize::from(what / 16) % 6];
            match what % 13 {
                0 => conditions.push(a.compare(relation, b)),
                1 => conditions.push(a.compare(relation, constant)),
                2 => {
                    let operation = [LogicOp::And, LogicOp::Or, LogicOp::Xor, LogicOp::Nor];
                    let operation = operation[usize::from(what / 16) % 4];
                    let other = conditions[pick(&conditions, one)];
                    conditions.push(g.add(Logic { operation, inputs: 2 }, [c, other]));
                }
                3 => conditions.push(g.add(Logic { operation: LogicOp::Not, inputs: 1 }, [c])),
                4 | 5 => wires.push(g.add(switch(), [a, c, b])),
                6 => wires.push(g.add(switch(), [constant, c, b])),
                7 => wires.push(a.then(Saturate { low: number - 0.5, high: number + 0.5 })),
                8 => {
                    let between = [Lookup::Below, Lookup::Nearest][usize::from(what / 16) % 2];
                    wires.push(a.then(table(kind, 40, between, 0.1 + number.abs())));
                }
                9 => wires.push(guarded(a, kind, number - 1.0, number + 0.5, table(kind, 9, Lookup::Below, 0.25))),
                10 => wires.push(a + b),
                11 => wires.push(a * constant - b),
                _ => wires.push(a.delay(1, number)),
            }
        }
        let last = g.add(switch(), [wires[wires.len() - 1], conditions[conditions.len() - 1], x]);
        g.output("z", last);
        let on = samples(1500, 4).into_iter().map(|value| Value::from(value.to_f64s()[0] > 0.3));
        let inputs = [odd(1), odd(5_555_555)].map(|all| all.iter().map(|v| v.cast(kind)).collect());
        let inputs: Vec<Vec<Value>> = inputs.into_iter().chain([on.collect()]).collect();
        hold_for(&g.build().unwrap(), &inputs, &[step, 1024]);
    }

    #[test]
    fn limited_sums_have_the_interpreters_bytes(
        pull in prop::sample::select(vec![0.0, 0.01, -0.01, 2.5, -2.5]),
        frozen in prop::sample::select(vec![0usize, 1, 31, 64, 400, usize::MAX]),
        limits in 0..4u8,
        step in 1..700u64,
    ) {
        let g = Builder::new("integrator");
        let kind = Type::F32;
        let [x, high, low] = ["x", "high", "low"].map(|name| g.input(name, kind));
        let freeze = g.input("freeze", Type::BOOL);
        let (high, low) = match limits {
            0 => (g.constant(kind, 1.5), g.constant(kind, -1.25)),
            // The lower limit may be above the higher one, and either may be no number.
            _ => (high, low),
        };
        let feedback = g.feedback("past", kind, 1, 0.25);
        let past = feedback.out();
        let bounded = g.add(switch(), [low, past.compare(Comparison::Less, low), past]);
        let above = past.compare(Comparison::Greater, high);
        let bounded = g.add(switch(), [high, above, bounded]);
        let sum = bounded + x;
        feedback.close(if frozen == 0 { sum } else { g.add(switch(), [past, freeze, sum]) });
        g.output("y", bounded);
        g.output("z", past);
        let x: Vec<Value> = samples(1500, 3)
            .iter()
            .map(|value| Value::from((value.to_f64s()[0] * 0.2 + pull) as f32))
            .collect();
        let limit = |sign: f32, seed: u32| -> Vec<Value> {
            let of = |(n, value): (usize, Value)| {
                let random = value.to_f64s()[0] as f32;
                Value::from(match limits {
                    1 => sign * 1.5,
                    2 => sign * 1.5 + random * 0.01,
                    _ if n % 700 == 0 => f32::NAN,
                    _ => random,
                })
            };
            samples(1500, seed).into_iter().enumerate().map(of).collect()
        };
        let freeze = (0..1500).map(|n| Value::from(n / frozen.clamp(1, 1500) % 2 == 1)).collect();
        let inputs = [x, limit(1.0, 8), limit(-1.0, 999_999), freeze];
        hold_for(&g.build().unwrap(), &inputs, &[step, 33, 512]);
    }
}
