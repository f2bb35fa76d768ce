//! Numbers of which a float or a square has not all digits: nodes have them all the same, whoever
//! runs them.

use karoo_flow::nodes::{Compare, Comparison, Criterion, Product, Switch};
use karoo_flow::{Builder, Executor, Graph, Interpreter, Number, Scalar, Settings, Type, Value};

use crate::fused::RELATIONS;

/// What interpreter and executor, which agree, put out.
fn run(graph: &Graph, inputs: &[Vec<Value>]) -> Vec<Vec<Value>> {
    let wanted = Interpreter::new(graph).unwrap().run(inputs).unwrap();
    let executor = Executor::new(graph, Settings::default()).unwrap();
    assert_eq!(executor.run_values(inputs).unwrap(), wanted);
    wanted
}

fn value(kind: Type, (re, im): (Number, Number)) -> Value {
    Value::build(kind, |_| (re, im))
}

fn real(scalar: Scalar, number: Number) -> Value {
    value(Type::of(scalar), (number, Number::Int(0)))
}

/// A whole number and a float as whole numbers of halves: what they are is in no doubt there.
fn holds(relation: Comparison, whole: i128, float: f64) -> bool {
    let (a, b) = (2 * whole, (2.0 * float) as i128);
    let known = !float.is_nan();
    match relation {
        Comparison::Less => known && a < b,
        Comparison::LessEqual => known && a <= b,
        Comparison::Greater => known && a > b,
        Comparison::GreaterEqual => known && a >= b,
        Comparison::Equal => known && a == b,
        Comparison::Unequal => !known || a != b,
    }
}

/// Whole numbers where floats have gaps, at their type's ends and elsewhere, beside floats that are
/// whole numbers of halves.
fn pairs(scalar: Scalar) -> Vec<(i128, f64)> {
    let ends = match scalar {
        Scalar::I64 => [i64::MIN.into(), i64::MAX.into()],
        _ => [0, i128::from(u64::MAX)],
    };
    let near = [0, 1i128 << 53, -(1i128 << 53), 1 << 62, ends[0], ends[1]];
    let far = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e30, -1e30];
    let mut all = Vec::new();
    for whole in near
        .iter()
        .flat_map(|near| (-3..=3).map(move |by| near + by))
    {
        if !(ends[0]..=ends[1]).contains(&whole) {
            continue;
        }
        let float = whole as f64;
        let beside = [
            float,
            float.next_up(),
            float.next_down(),
            float + 0.5,
            -float,
        ];
        // Finer ones are no whole numbers of halves.
        let fine = beside
            .into_iter()
            .filter(|float| (2.0 * float).fract() == 0.0);
        all.extend(fine.chain(far).map(|float| (whole, float)));
    }
    all
}

#[test]
fn whole_numbers_of_64_bits_compare_with_floats_by_value() {
    for long in [Scalar::I64, Scalar::U64] {
        for (float, turned, relation) in [Scalar::F32, Scalar::F64]
            .into_iter()
            .flat_map(|float| [false, true].map(|turned| (float, turned)))
            .flat_map(|(float, turned)| RELATIONS.map(|relation| (float, turned, relation)))
        {
            let g = Builder::new("compare");
            let (x, z) = (g.input("x", Type::of(long)), g.input("z", Type::of(float)));
            let ends = if turned { [z, x] } else { [x, z] };
            g.output("y", g.add(Compare { relation }, ends));
            let graph = g.build().unwrap();
            let has = |number: f64| float == Scalar::F64 || f64::from(number as f32) == number;
            let pairs = pairs(long).into_iter();
            let pairs: Vec<_> = pairs
                .filter(|pair| has(pair.1) || pair.1.is_nan())
                .collect();
            let whole = pairs.iter().map(|pair| real(long, Number::Int(pair.0)));
            let floats = pairs.iter().map(|pair| real(float, Number::F64(pair.1)));
            let out = run(&graph, &[whole.collect(), floats.collect()]).remove(0);
            let of_whole = match (turned, relation) {
                (true, Comparison::Less) => Comparison::Greater,
                (true, Comparison::LessEqual) => Comparison::GreaterEqual,
                (true, Comparison::Greater) => Comparison::Less,
                (true, Comparison::GreaterEqual) => Comparison::LessEqual,
                _ => relation,
            };
            for (&(whole, number), found) in pairs.iter().zip(out) {
                let wanted = Value::from(holds(of_whole, whole, number));
                assert_eq!(found, wanted, "{whole} {of_whole:?} {number:e}, {turned}");
            }
        }
    }
}

#[test]
fn a_switch_has_all_digits_of_a_whole_number_of_64_bits() {
    for long in [Scalar::I64, Scalar::U64] {
        for (criterion, relation) in [
            (Criterion::Above, Comparison::Greater),
            (Criterion::AtLeast, Comparison::GreaterEqual),
        ] {
            for threshold in pairs(long).into_iter().map(|pair| pair.1) {
                let g = Builder::new("switch");
                let x = g.input("x", Type::of(long));
                let [one, two] = [1, 2].map(|number| g.constant(Type::U8, number));
                let switch = Switch {
                    criterion,
                    threshold,
                    output: None,
                };
                g.output("y", g.add(switch, [one, x, two]));
                let mut whole: Vec<i128> = pairs(long).into_iter().map(|pair| pair.0).collect();
                whole.dedup();
                let values = whole.iter().map(|&whole| real(long, Number::Int(whole)));
                let out = run(&g.build().unwrap(), &[values.collect()]).remove(0);
                for (&whole, found) in whole.iter().zip(out) {
                    let passes = holds(relation, whole, threshold);
                    let wanted = Value::from(if passes { 1u8 } else { 2 });
                    assert_eq!(found, wanted, "{whole} {criterion:?} {threshold:e}");
                }
            }
        }
    }
}

/// A graph of `x / z`, and one that divides what it has by `z` and begins anew with `x` where that
/// is not 0.
fn quotients(kind: Type) -> [Graph; 2] {
    let quotient = || Product {
        operations: "*/".into(),
        output: None,
    };
    let plain = Builder::new("quotient");
    let (x, z) = (plain.input("x", kind), plain.input("z", kind));
    plain.output("y", plain.add(quotient(), [x, z]));
    let looped = Builder::new("looped");
    let (x, z) = (looped.input("x", kind), looped.input("z", kind));
    let past = looped.feedback("past", kind, 1, 0);
    // Nothing is kept: what was there is multiplied by 0.
    let sum = x + past.out().gain(0);
    let y = looped.add(quotient(), [sum, z]);
    past.close(y);
    looped.output("y", y);
    [plain, looped].map(|g| g.build().unwrap())
}

fn divided(scalar: Scalar, pairs: &[[(Number, Number); 2]]) -> Vec<(Number, Number)> {
    let kind = Type::of(scalar).complex();
    let stream = |which: usize| pairs.iter().map(|pair| value(kind, pair[which])).collect();
    let inputs: [Vec<Value>; 2] = [stream(0), stream(1)];
    let [plain, looped] = quotients(kind).map(|graph| run(&graph, &inputs).remove(0));
    assert_eq!(plain, looped);
    plain.iter().map(|value| value.element(0)).collect()
}

/// Quotients that are exact, by numbers of all sizes that a float has.
#[test]
fn complex_floats_divide_where_squares_overflow_or_vanish() {
    for (scalar, exponents) in [(Scalar::F32, -140..=120), (Scalar::F64, -1060..=1015)] {
        let power =
            |exponent: i32| f64::powi(2.0, exponent / 2) * f64::powi(2.0, exponent - exponent / 2);
        let ends = (*exponents.start(), *exponents.end());
        let places: Vec<i32> = exponents.step_by(20).chain([ends.0, ends.1]).collect();
        let (mut pairs, mut wanted) = (Vec::new(), Vec::new());
        for (n, &of_divisor) in places.iter().enumerate() {
            for &of_quotient in &places {
                let [p, q, r, s] = [n % 7, n % 5 + 1, n % 11 + 1, n % 3].map(|part| part as f64);
                let of_dividend = of_divisor + of_quotient;
                if !(ends.0..=ends.1).contains(&of_dividend) {
                    continue;
                }
                let number = |re: f64, im: f64, exponent| {
                    let [re, im] = [re, im].map(|part| Number::F64(part * power(exponent)));
                    (re, im)
                };
                // (p + qj)(r - sj), by (r - sj).
                let dividend = number(p * r + q * s, q * r - p * s, of_dividend);
                pairs.push([dividend, number(r, -s, of_divisor)]);
                wanted.push(number(p, q, of_quotient));
            }
        }
        for ((pair, wanted), (re, im)) in pairs.iter().zip(&wanted).zip(divided(scalar, &pairs)) {
            let found = (re.to_f64(), im.to_f64());
            assert_eq!(found, (wanted.0.to_f64(), wanted.1.to_f64()), "{pair:?}");
        }
    }
}

/// Where no square is far off, the formula's own bits come out, and what is no number stays so.
#[test]
fn complex_floats_near_1_divide_by_the_formula() {
    let part = |n: usize| (n.wrapping_mul(2_654_435_761) >> 7) as f64 % 1000.0 / 64.0 - 7.0;
    let parts = (0..200).map(|n| [0, 1, 2, 3].map(|which| part(4 * n + which)));
    let mut parts: Vec<[f64; 4]> = parts.collect();
    parts.extend([
        [0.0, 0.0, 3.0, -1.0],
        [1.0, 1.0, 0.0, 0.0],
        [f64::NAN, 1.0, 1.0, 1.0],
    ]);
    let pairs: Vec<_> = parts
        .iter()
        .map(|&[a, b, c, d]| [(a, b), (c, d)].map(|(re, im)| (Number::F64(re), Number::F64(im))))
        .collect();
    let found = |scalar, nan: bool| -> Vec<_> {
        let pairs = &pairs[..pairs.len() - if nan { 0 } else { 2 }];
        divided(scalar, pairs)
    };
    for (&[a, b, c, d], (re, im)) in parts.iter().zip(found(Scalar::F64, false)) {
        let norm = c * c + d * d;
        let wanted = ((a * c + b * d) / norm, (b * c - a * d) / norm);
        assert_eq!((re.to_f64(), im.to_f64()), wanted);
    }
    for (&parts, (re, im)) in parts.iter().zip(found(Scalar::F32, false)) {
        let [a, b, c, d] = parts.map(|part| part as f32);
        let norm = c * c + d * d;
        let wanted = ((a * c + b * d) / norm, (b * c - a * d) / norm);
        assert_eq!((re.to_f64() as f32, im.to_f64() as f32), wanted);
    }
    for [a, b] in pairs[pairs.len() - 2..].iter() {
        for scalar in [Scalar::F32, Scalar::F64] {
            let kind = Type::of(scalar).complex();
            let inputs = [vec![value(kind, *a)], vec![value(kind, *b)]];
            for graph in &quotients(kind) {
                let whole = Interpreter::new(graph).unwrap().run(&inputs).unwrap();
                let executor = Executor::new(graph, Settings::default()).unwrap();
                for out in [whole, executor.run_values(&inputs).unwrap()] {
                    let (re, im) = out[0][0].element(0);
                    assert!(re.to_f64().is_nan() && im.to_f64().is_nan());
                }
            }
        }
    }
}

fn whole(re: i128, im: i128) -> (Number, Number) {
    (Number::Int(re), Number::Int(im))
}

/// All of 8 bits in steps, by numbers that are wide enough.
#[test]
fn complex_whole_numbers_divide_as_if_nothing_wrapped() {
    for scalar in [Scalar::I8, Scalar::U8] {
        let parts: Vec<i128> = match scalar {
            Scalar::I8 => vec![-128, -127, -90, -11, -1, 0, 1, 7, 100, 127],
            _ => vec![0, 1, 2, 11, 90, 127, 128, 200, 254, 255],
        };
        let mut pairs = Vec::new();
        for n in 0..10_000 {
            let [a, b, c, d] = [n % 10, n / 10 % 10, n / 100 % 10, n / 1000].map(|at| parts[at]);
            pairs.push([whole(a, b), whole(c, d)]);
        }
        for (pair, found) in pairs.iter().zip(divided(scalar, &pairs)) {
            let [
                (Number::Int(a), Number::Int(b)),
                (Number::Int(c), Number::Int(d)),
            ] = *pair
            else {
                panic!("whole numbers")
            };
            let norm = c * c + d * d;
            let part = |part: i128| Number::Int(part.checked_div(norm).unwrap_or(0)).cast(scalar);
            assert_eq!(
                found,
                (part(a * c + b * d), part(b * c - a * d)),
                "{pair:?}"
            );
        }
    }
}

#[test]
fn complex_whole_numbers_of_64_bits_divide_as_if_nothing_wrapped() {
    let (least, most, all) = (i64::MIN.into(), i64::MAX.into(), i128::from(u64::MAX));
    let one = whole(1, 0);
    let signed = [
        ([whole(1000, 1000), whole(100, 0)], whole(10, 10)),
        ([whole(most, most), whole(most, most)], one),
        ([whole(least, least), whole(least, least)], one),
        ([whole(least, least), whole(least, 0)], whole(1, 1)),
        // By j, and by 1 + j.
        ([whole(most, -5), whole(0, 1)], whole(-5, -most)),
        ([whole(0, 1 << 62), whole(1, 1)], whole(1 << 61, 1 << 61)),
        ([whole(least, least), whole(-1, -1)], whole(least, 0)),
        ([whole(most, 1), whole(0, 0)], whole(0, 0)),
    ];
    let unsigned = [
        ([whole(all, all), whole(all, all)], one),
        // The square of the divisor has 128 bits, and the sum of products one more.
        ([whole(all, all), whole(9 << 60, 9 << 60)], one),
        ([whole(all, 0), whole(1, 0)], whole(all, 0)),
        ([whole(all, all), whole(1, 1)], whole(all, 0)),
        ([whole(all - 1, all), whole(all, all)], whole(0, 0)),
        // The quotient is j, and -j, which wraps.
        ([whole(0, all), whole(all, 0)], whole(0, 1)),
        ([whole(all, 0), whole(0, all)], whole(0, all)),
    ];
    for (scalar, cases) in [(Scalar::I64, &signed[..]), (Scalar::U64, &unsigned)] {
        let pairs: Vec<_> = cases.iter().map(|case| case.0).collect();
        for (case, found) in cases.iter().zip(divided(scalar, &pairs)) {
            assert_eq!(found, case.1, "{:?}", case.0);
        }
    }
}
