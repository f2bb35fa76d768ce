//! The interpreter against definitions: recursion over samples, convolution, and streams written
//! out.

use karoo_flow::nodes::{Comparison, Unknown};
use karoo_flow::{Builder, Interpreter, Type, Value, Wire};
use proptest::prelude::*;

fn values<T: Into<Value> + Clone>(items: &[T]) -> Vec<Value> {
    items.iter().cloned().map(Into::into).collect()
}

fn run(g: Builder, inputs: &[Vec<Value>]) -> Vec<Vec<Value>> {
    Interpreter::new(&g.build().unwrap())
        .unwrap()
        .run(inputs)
        .unwrap()
}

#[test]
fn initial_samples_come_out_of_a_delay_in_their_order() {
    let g = Builder::new("delays");
    let x = g.input("x", Type::I32);
    g.output("three", x.delay(3, [7, 8, 9]));
    g.output("none", x.delay(0, 0));
    g.output("two", x.delay(1, 5).delay(1, 6));
    let out = run(g, &[values(&[1, 2, 3, 4])]);
    assert_eq!(out[0], values(&[7, 8, 9, 1]));
    assert_eq!(out[1], values(&[1, 2, 3, 4]));
    assert_eq!(out[2], values(&[6, 5, 1, 2]));
}

#[test]
fn vectors_have_initial_samples_of_their_own() {
    let g = Builder::new("vectors");
    let x = g.input("x", Type::F32.vector(2));
    g.output("same", x.delay(2, [1, 2]));
    g.output("each", x.delay(2, [1, 2, 3, 4]));
    let zero = Value::zero(Type::F32.vector(2));
    let out = run(g, &[vec![zero.clone(), zero]]);
    let shown: Vec<Vec<f64>> = out.iter().flatten().map(Value::to_f64s).collect();
    assert_eq!(shown, [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [3.0, 4.0]]);
}

#[test]
fn a_disabled_subsystem_stands_still_and_holds_its_outputs() {
    let g = Builder::new("enabled");
    let x = g.input("x", Type::I32);
    let on = g.input("on", Type::BOOL);
    let y = g.enabled("sub", on, || x.delay(1, 100).hold(-1));
    g.output("y", y);
    g.output("past", y.delay(1, 0));
    let out = run(
        g,
        &[
            values(&[1, 2, 3, 4, 5, 6]),
            values(&[false, true, true, false, false, true]),
        ],
    );
    assert_eq!(out[0], values(&[-1, 100, 2, 2, 2, 3]));
    assert_eq!(out[1], values(&[0, -1, 100, 2, 2, 2]));
}

#[test]
fn nested_subsystems_run_when_all_around_them_do() {
    let g = Builder::new("nested");
    let (x, a, b) = (
        g.input("x", Type::I32),
        g.input("a", Type::BOOL),
        g.input("b", Type::BOOL),
    );
    let y = g.enabled("outer", a, || {
        let inner = g.enabled("inner", b, || x.hold(0));
        (inner + x).hold(0)
    });
    g.output("y", y);
    let (a, b) = ([true, true, false, true], [true, false, true, true]);
    let out = run(g, &[values(&[1, 2, 3, 4]), values(&a), values(&b)]);
    assert_eq!(out[0], values(&[2, 3, 3, 8]));
}

#[test]
fn rates_change_by_whole_factors() {
    let g = Builder::new("rates");
    let x = g.input("x", Type::I32);
    g.output("down", x.down(3));
    g.output("up", x.up(2));
    g.output("repeat", x.down(2).repeat(3));
    g.output("back", x.up(6).down(6));
    let out = run(g, &[values(&[1, 2, 3, 4, 5])]);
    assert_eq!(out[0], values(&[1, 4]));
    assert_eq!(out[1], values(&[1, 0, 2, 0, 3, 0, 4, 0, 5, 0]));
    assert_eq!(out[2][..6], values(&[1, 1, 1, 3, 3, 3]));
    assert_eq!(out[3], values(&[1, 2, 3, 4, 5]));
}

#[test]
fn a_mux_takes_the_nearest_of_what_there_is() {
    let g = Builder::new("mux");
    let s = g.input("s", Type::I8);
    g.output(
        "y",
        s.mux([10, 20, 30].map(|value| g.constant(Type::U8, value))),
    );
    let out = run(g, &[values(&[0i8, 1, 2, 3, -1])]);
    assert_eq!(out[0], values(&[10u8, 20, 30, 30, 10]));
}

#[test]
fn reset_brings_the_start_back_and_a_second_run_goes_on() {
    let g = Builder::new("sum");
    let x = g.input("x", Type::F64);
    let past = g.feedback("past", Type::F64, 1, 1);
    let y = x + past.out();
    past.close(y);
    g.output("y", y);
    let mut interpreter = Interpreter::new(&g.build().unwrap()).unwrap();
    let ones = [values(&[1.0, 1.0])];
    assert_eq!(interpreter.run(&ones).unwrap()[0], values(&[2.0, 3.0]));
    assert_eq!(interpreter.run(&ones).unwrap()[0], values(&[4.0, 5.0]));
    interpreter.reset();
    assert_eq!(interpreter.run(&ones).unwrap()[0], values(&[2.0, 3.0]));
}

#[test]
fn unknown_nodes_and_wrong_samples_are_named() {
    let g = Builder::new("unknown");
    let x = g.input("x", Type::F32);
    g.output(
        "y",
        x.then(Unknown {
            called: "Warp".into(),
            inputs: 1,
            outputs: vec![Type::F32],
        })
        .named("w"),
    );
    let problems = Interpreter::new(&g.build().unwrap()).err().unwrap();
    assert!(
        problems
            .to_string()
            .starts_with("w: there is no node of the kind \"Warp\""),
        "{problems}"
    );

    let g = Builder::new("samples");
    g.output("y", g.input("x", Type::F32));
    let mut interpreter = Interpreter::new(&g.build().unwrap()).unwrap();
    let problems = interpreter.run(&[values(&[1.0f64])]).unwrap_err();
    assert_eq!(problems.to_string(), "x: a sample is f64: the input is f32");
}

/// One node of a random graph: it reads nodes by number, delays also later ones.
#[derive(Clone, Debug)]
enum Random {
    Input,
    Sum(usize, usize),
    Gain(usize, i32),
    Delay(usize, usize, i32),
    Larger(usize, usize),
}

fn random(count: usize) -> impl Strategy<Value = Vec<Random>> {
    let node = |at: usize| {
        let (before, all) = (0..at.max(1), 0..count);
        let sum = (before.clone(), before.clone()).prop_map(|(a, b)| Random::Sum(a, b));
        let gain = (before.clone(), -9..9).prop_map(|(a, k)| Random::Gain(a, k));
        let larger = (before.clone(), before).prop_map(|(a, b)| Random::Larger(a, b));
        let delay =
            (all, 1..4usize, -9..9).prop_map(|(a, length, start)| Random::Delay(a, length, start));
        if at == 0 {
            Just(Random::Input).boxed()
        } else {
            prop_oneof![sum, gain, delay, larger].boxed()
        }
    };
    (0..count).map(node).collect::<Vec<_>>()
}

/// The value of a node at a sample, straight from the definition.
fn defined(
    nodes: &[Random],
    input: &[i32],
    at: usize,
    sample: usize,
    seen: &mut Vec<Vec<Option<i32>>>,
) -> i32 {
    if let Some(value) = seen[at][sample] {
        return value;
    }
    let mut value = |at| defined(nodes, input, at, sample, seen);
    let value = match nodes[at] {
        Random::Input => input[sample],
        Random::Sum(a, b) => value(a).wrapping_add(value(b)),
        Random::Gain(a, k) => value(a).wrapping_mul(k),
        Random::Larger(a, b) => value(a).max(value(b)),
        Random::Delay(_, length, start) if sample < length => start,
        Random::Delay(a, length, _) => defined(nodes, input, a, sample - length, seen),
    };
    seen[at][sample] = Some(value);
    value
}

fn build<'g>(g: &'g Builder, nodes: &[Random]) -> Vec<Wire<'g>> {
    let mut wires: Vec<Wire> = Vec::new();
    let mut open = Vec::new();
    for node in nodes {
        wires.push(match *node {
            Random::Input => g.input("x", Type::I32),
            Random::Sum(a, b) => wires[a] + wires[b],
            Random::Gain(a, k) => wires[a].gain(k),
            Random::Larger(a, b) => wires[a]
                .compare(Comparison::Less, wires[b])
                .mux([wires[a], wires[b]]),
            Random::Delay(a, length, start) => {
                let past = g.feedback(&format!("past{}", wires.len()), Type::I32, length, start);
                let out = past.out();
                open.push((past, a));
                out
            }
        });
    }
    for (past, a) in open {
        past.close(wires[a]);
    }
    wires
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_sample_is_what_recursion_over_samples_gives(
        nodes in random(12), input in proptest::collection::vec(any::<i32>(), 1..9)
    ) {
        let g = Builder::new("random");
        for (at, wire) in build(&g, &nodes).into_iter().enumerate() {
            g.output(&format!("out{at}"), wire);
        }
        let out = run(g, &[values(&input)]);
        let mut seen = vec![vec![None; input.len()]; nodes.len()];
        for at in 0..nodes.len() {
            let wanted: Vec<i32> = (0..input.len()).map(|n| defined(&nodes, &input, at, n, &mut seen)).collect();
            prop_assert_eq!(&out[at], &values(&wanted), "node {}: {:?}", at, nodes[at]);
        }
    }
}
