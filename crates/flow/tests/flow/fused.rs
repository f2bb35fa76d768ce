//! What the executor makes one pass of, or one filter, has the interpreter's bytes at every level.

use karoo_flow::kernels::Level;
use karoo_flow::nodes::{Comparison, Criterion, Saturate, Sum, Switch};
use karoo_flow::{Builder, Executor, Graph, Interpreter, Settings, Type, Value, Wire};
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
    let wanted = bytes(&Interpreter::new(graph).unwrap().run(&inputs).unwrap());
    for level in Level::available() {
        for &step in steps {
            let settings = Settings {
                block: step,
                step,
                level: Some(level),
                ..Settings::default()
            };
            let executor = Executor::new(graph, settings).unwrap();
            let got = bytes(&executor.run_values(&inputs).unwrap());
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

/// A filter written as gains, delays and sums: with the delays in front or behind the gains.
fn written_out<'g>(x: Wire<'g>, taps: usize, behind: bool) -> Wire<'g> {
    let gain = |tap: usize| 0.3 - (tap * 5 % 7) as f64 * 0.11;
    let last = x.gain(gain(taps - 1));
    if behind {
        return (0..taps - 1)
            .rev()
            .fold(last, |sum, tap| sum.delay(1, 0) + x.gain(gain(tap)));
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
                g.output("y", written_out(g.input("x", kind), taps, behind));
                hold(&g.build().unwrap(), &[64, 250, 1000]);
            }
        }
    }
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
