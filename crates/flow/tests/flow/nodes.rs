//! Each node of the library against its definition.

use karoo_flow::nodes::{self, Bitwise, BitwiseOp, Lookup, Order, Shift, ShiftKind};
use karoo_flow::{Builder, Interpreter, Literals, Node, Number, Scalar, Type, Value};

/// One sample of `node` for these inputs.
fn once(node: impl Node + 'static, inputs: &[Value]) -> Value {
    stream(
        node,
        &inputs
            .iter()
            .map(|value| vec![value.clone()])
            .collect::<Vec<_>>(),
    )
    .remove(0)
}

fn stream(node: impl Node + 'static, inputs: &[Vec<Value>]) -> Vec<Value> {
    let g = Builder::new("one");
    let wires: Vec<_> = inputs
        .iter()
        .enumerate()
        .map(|(at, stream)| g.input(&format!("in{at}"), stream[0].kind()))
        .collect();
    g.output("out", g.add(node, wires));
    Interpreter::new(&g.build().unwrap())
        .unwrap()
        .run(inputs)
        .unwrap()
        .remove(0)
}

fn complex(parts: &[(f64, f64)]) -> Value {
    let kind = Type::F64.complex().vector(parts.len());
    Value::build(kind, |at| {
        (Number::F64(parts[at].0), Number::F64(parts[at].1))
    })
}

fn vector(parts: &[f64]) -> Value {
    Value::build(Type::F64.vector(parts.len()), |at| {
        (Number::F64(parts[at]), Number::Int(0))
    })
}

fn parts(value: &Value) -> Vec<(f64, f64)> {
    (0..value.kind().len)
        .map(|at| value.element(at))
        .map(|(re, im)| (re.to_f64(), im.to_f64()))
        .collect()
}

#[test]
fn whole_numbers_are_limited_to_those_between_the_limits() {
    let saturate = |low, high| nodes::Saturate { low, high };
    for (low, high, least, most) in [
        (0.5, 7.5, 1, 7),
        (-7.5, -0.5, -7, -1),
        (-1e9, 3.0, -128, 3),
        (f64::NEG_INFINITY, f64::INFINITY, -128, 127),
    ] {
        assert_eq!(
            once(saturate(low, high), &[Value::from(-128i8)]),
            Value::from(least as i8)
        );
        assert_eq!(
            once(saturate(low, high), &[Value::from(127i8)]),
            Value::from(most as i8)
        );
    }
    for (low, high) in [(0.2, 0.8), (300.0, 400.0), (-9.0, -1.0)] {
        let g = Builder::new("none");
        g.output(
            "y",
            g.input("x", Type::U8).then(saturate(low, high)).named("s"),
        );
        let problems = g.build().unwrap_err().to_string();
        assert!(problems.contains("no u8 lies between"), "{problems}");
    }
}

#[test]
fn complex_numbers_multiply_and_divide() {
    let (a, b) = (complex(&[(1.0, 2.0)]), complex(&[(3.0, -1.0)]));
    let product = nodes::Product {
        operations: "**".into(),
        output: None,
    };
    assert_eq!(
        parts(&once(product.clone(), &[a.clone(), b.clone()])),
        [(5.0, 5.0)]
    );
    let quotient = nodes::Product {
        operations: "*/".into(),
        output: None,
    };
    assert_eq!(
        parts(&once(quotient, &[complex(&[(5.0, 5.0)]), b])),
        [(1.0, 2.0)]
    );
    // A real factor leaves an infinite part alone.
    assert_eq!(
        parts(&once(product, &[a, vector(&[f64::INFINITY])])),
        [(f64::INFINITY, f64::INFINITY)]
    );
}

#[test]
fn sums_and_products_run_over_a_single_vector() {
    let v = vector(&[1.0, 2.0, 4.0]);
    assert_eq!(
        once(
            nodes::Sum {
                signs: "-".into(),
                output: None
            },
            std::slice::from_ref(&v)
        )
        .to_f64s(),
        [-7.0]
    );
    assert_eq!(
        once(
            nodes::Product {
                operations: "*".into(),
                output: None
            },
            &[v]
        )
        .to_f64s(),
        [8.0]
    );
}

#[test]
fn sums_in_a_wider_type_do_not_wrap() {
    let sum = |output| nodes::Sum {
        signs: "++".into(),
        output,
    };
    let inputs = [Value::from(200u8), Value::from(100u8)];
    assert_eq!(once(sum(None), &inputs), Value::from(44u8));
    assert_eq!(once(sum(Some(Scalar::U16)), &inputs), Value::from(300u16));
}

#[test]
fn a_filter_is_a_convolution() {
    let input = [1.0, -2.0, 3.0, 0.5, 0.25];
    let taps = [0.5, 0.25, -1.0];
    let x: Vec<Value> = input.iter().map(|&v| Value::from(v)).collect();
    let fir = nodes::Fir {
        taps: taps.into(),
        initial: [10.0, 20.0].into(),
        output: None,
    };
    // Samples before the first are 10, then 20.
    let at = |n: i32| {
        if n >= 0 {
            input[n as usize]
        } else {
            [10.0, 20.0][(-1 - n) as usize]
        }
    };
    let wanted: Vec<Value> = (0..5)
        .map(|n| Value::from((0..3).map(|k| taps[k as usize] * at(n - k)).sum::<f64>()))
        .collect();
    assert_eq!(stream(fir, std::slice::from_ref(&x)), wanted);
    let from_port = stream(nodes::FirFromPort::default(), &[x, vec![vector(&taps); 5]]);
    assert_eq!(from_port[2..], wanted[2..]);
}

#[test]
fn complex_taps_make_real_samples_complex() {
    let taps: Literals = Literals::new(vec![
        (Number::F64(0.5), Number::F64(0.5)),
        (Number::Int(0), Number::Int(2)),
    ])
    .unwrap();
    let fir = nodes::Fir {
        taps,
        initial: 0.into(),
        output: None,
    };
    let out = stream(fir, &[vec![Value::from(1.0), Value::from(3.0)]]);
    assert_eq!(parts(&out[0]), [(0.5, 0.5)]);
    assert_eq!(parts(&out[1]), [(1.5, 3.5)]);
}

#[test]
fn the_first_vector_of_an_inner_product_is_conjugated_if_wanted() {
    let (a, b) = (
        complex(&[(1.0, 2.0), (0.0, 1.0)]),
        complex(&[(3.0, 1.0), (2.0, 0.0)]),
    );
    let dot = |conjugate| nodes::Dot {
        conjugate,
        output: None,
    };
    assert_eq!(
        parts(&once(dot(false), &[a.clone(), b.clone()])),
        [(1.0, 9.0)]
    );
    assert_eq!(parts(&once(dot(true), &[a, b])), [(5.0, -7.0)]);
}

#[test]
fn tables_are_read_below_nearest_and_between() {
    let lut = |between| nodes::Lut {
        first: -1.0,
        step: 0.5,
        table: [10, 20, 30].into(),
        between,
        output: Scalar::F64,
    };
    let x = vector(&[-9.0, -1.0, -0.6, -0.5, -0.25, 0.0, 7.0, f64::NAN]);
    assert_eq!(
        once(lut(Lookup::Below), std::slice::from_ref(&x)).to_f64s(),
        [10., 10., 10., 20., 20., 30., 30., 10.]
    );
    assert_eq!(
        once(lut(Lookup::Nearest), std::slice::from_ref(&x)).to_f64s(),
        [10., 10., 20., 20., 30., 30., 30., 10.]
    );
    let linear = once(lut(Lookup::Linear), &[x]).to_f64s();
    assert_eq!(linear[3..7], [20., 25., 30., 30.]);
}

#[test]
fn an_oscillator_turns_by_its_input() {
    let nco = nodes::Nco {
        bits: 8,
        address_bits: 2,
        initial: 0,
        output: Scalar::F64,
    };
    let out = stream(nco, &[vec![Value::from(64u8); 5]]);
    let turns: Vec<(i32, i32)> = out
        .iter()
        .map(|v| parts(v)[0])
        .map(|(re, im)| (re.round() as i32, im.round() as i32))
        .collect();
    assert_eq!(turns, [(1, 0), (0, 1), (-1, 0), (0, -1), (1, 0)]);
}

#[test]
fn tapped_delays_have_their_order_and_the_present_sample() {
    let x: Vec<Value> = [1, 2, 3].map(|v: i32| Value::from(v)).to_vec();
    let tapped = |current, order| nodes::TappedDelay {
        length: 2,
        current,
        order,
        reset: false,
        initial: [8, 9].into(),
        of: None,
    };
    let last = |node| {
        stream(node, std::slice::from_ref(&x))
            .iter()
            .map(Value::to_f64s)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        last(tapped(false, Order::Oldest)),
        [[8., 9.], [9., 1.], [1., 2.]]
    );
    assert_eq!(
        last(tapped(true, Order::Newest)),
        [[1., 9., 8.], [2., 1., 9.], [3., 2., 1.]]
    );
    // A reset counts in its own cycle, and what comes in then is kept.
    let resets = [false, false, true].map(Value::from).to_vec();
    let reset = |current| nodes::TappedDelay {
        reset: true,
        ..tapped(current, Order::Oldest)
    };
    let parts = |node| {
        let out = stream(node, &[x.clone(), resets.clone()]);
        out.iter().map(Value::to_f64s).collect::<Vec<_>>()
    };
    assert_eq!(parts(reset(false)), [[8., 9.], [9., 1.], [8., 9.]]);
    assert_eq!(
        parts(reset(true)),
        [[8., 9., 1.], [9., 1., 2.], [8., 9., 3.]]
    );
}

#[test]
fn tapped_delays_of_vectors_put_one_behind_the_other() {
    let pair = |a: i32| {
        Value::build(Type::I32.vector(2), |at| {
            (Number::Int((a + 10 * at as i32).into()), Number::Int(0))
        })
    };
    let x: Vec<Value> = [1, 2].map(pair).to_vec();
    let tapped = |order| nodes::TappedDelay {
        length: 2,
        current: true,
        order,
        reset: false,
        initial: [7, 8].into(),
        of: None,
    };
    let parts = |node| {
        let out = stream(node, std::slice::from_ref(&x));
        out.iter().map(Value::to_f64s).collect::<Vec<_>>()
    };
    assert_eq!(
        parts(tapped(Order::Oldest)),
        [[7., 8., 7., 8., 1., 11.], [7., 8., 1., 11., 2., 12.]]
    );
    assert_eq!(
        parts(tapped(Order::Newest)),
        [[1., 11., 7., 8., 7., 8.], [2., 12., 1., 11., 7., 8.]]
    );
}

#[test]
fn reinterpreted_numbers_have_the_bits_of_others() {
    let bits = |to, value| once(nodes::Reinterpret { to }, &[value]);
    assert_eq!(
        bits(Scalar::U32, Value::from(1.0f32)),
        Value::from(0x3f80_0000u32)
    );
    assert_eq!(
        bits(Scalar::I64, Value::from(-0.0f64)),
        Value::from(i64::MIN)
    );
    assert_eq!(
        bits(Scalar::F32, Value::from(-0x4000_0000i32)),
        Value::from(-2.0f32)
    );
    assert_eq!(bits(Scalar::U8, Value::from(-1i8)), Value::from(255u8));
    assert_eq!(
        bits(Scalar::I32, Value::from(-f32::NAN)),
        Value::from(0x7fc0_0000i32)
    );
    assert!(nodes::Reinterpret { to: Scalar::Bool }.check().is_err());
    let wide = nodes::Reinterpret { to: Scalar::U32 };
    assert!(wide.types(&[Type::F64]).is_err());
}

#[test]
fn bits_shift_and_combine_in_their_type() {
    let shift = |direction| once(Shift { direction, by: 1 }, &[Value::from(-127i8)]);
    assert_eq!(shift(ShiftKind::Left), Value::from(2i8));
    assert_eq!(shift(ShiftKind::RightArithmetic), Value::from(-64i8));
    assert_eq!(shift(ShiftKind::RightLogical), Value::from(64i8));
    let bitwise = |operation, mask| Bitwise {
        operation,
        inputs: 1,
        mask,
    };
    assert_eq!(
        once(bitwise(BitwiseOp::And, Some(217)), &[Value::from(-2i8)]),
        Value::from(-40i8)
    );
    assert_eq!(
        once(bitwise(BitwiseOp::Not, None), &[Value::from(5u8)]),
        Value::from(250u8)
    );
}

#[test]
fn elements_are_selected_by_constants_and_by_signals() {
    let x = vector(&[10.0, 11.0, 12.0, 13.0]);
    let at = |first, length, index: &[f64]| {
        once(
            nodes::SelectAt { first, length },
            &[x.clone(), vector(index)],
        )
        .to_f64s()
    };
    assert_eq!(
        once(
            nodes::Select {
                indices: vec![3, 0]
            },
            std::slice::from_ref(&x)
        )
        .to_f64s(),
        [13.0, 10.0]
    );
    assert_eq!(
        at(1, None, &[1.0, 4.0, 9.0, -9.0]),
        [10.0, 13.0, 13.0, 10.0]
    );
    assert_eq!(at(0, Some(3), &[1.0]), [11.0, 12.0, 13.0]);
    assert_eq!(at(0, Some(3), &[9.0]), [11.0, 12.0, 13.0]);
}

#[test]
fn symbols_come_back_from_their_points_with_neighbours_one_bit_apart() {
    for bits in [1, 2, 4, 6] {
        let points = nodes::constellation(bits).unwrap();
        let power: f64 = points
            .parts()
            .iter()
            .map(|(re, im)| re.to_f64().powi(2) + im.to_f64().powi(2))
            .sum();
        assert!(
            (power / f64::from(1 << bits) - 1.0).abs() < 1e-12,
            "{bits} bits have power {power}"
        );
        let nearest = 2.0
            * points
                .parts()
                .iter()
                .map(|(re, _)| re.to_f64().abs())
                .fold(f64::INFINITY, f64::min);
        for a in 0..1u32 << bits {
            let point = once(
                nodes::Modulate {
                    points: points.clone(),
                    output: Scalar::F64,
                },
                &[Value::from(a)],
            );
            let back = once(
                nodes::Demodulate {
                    points: points.clone(),
                    output: Scalar::U32,
                },
                &[point],
            );
            assert_eq!(back, Value::from(a));
            for b in 0..a {
                let [(x, y), (u, v)] = [a, b]
                    .map(|s| points.at(s as usize))
                    .map(|(re, im)| (re.to_f64(), im.to_f64()));
                if ((x - u).powi(2) + (y - v).powi(2)).sqrt() < 1.01 * nearest {
                    assert_eq!((a ^ b).count_ones(), 1, "{a} and {b} of {bits} bits");
                }
            }
        }
    }
}
