//! Loops on words beside the same operations on lanes, one sample at a time.

use proptest::prelude::*;

use super::super::execute::{Memory, execute};
use super::super::places::Places;
use super::*;

/// Numbers of a lane in front of the first sample, and samples.
const BEFORE: usize = 32;
const COUNT: usize = 150;
const FLOATS: [Scalar; 2] = [Scalar::F32, Scalar::F64];
/// Lanes of each type that are read alone, and that are written too.
const READ: usize = 2;
const LANES: usize = READ + 8;

/// A lane of a type, some samples ago.
fn view(scalar: Scalar, number: usize, ago: usize) -> View {
    let kind = Scalar::ALL.iter().position(|&known| known == scalar);
    View {
        lane: kind.unwrap_or(0) * LANES + number,
        first: BEFORE - ago,
        len: 1,
        scalar,
    }
}

fn relation() -> impl Strategy<Value = Comparison> {
    prop::sample::select(vec![
        Comparison::Less,
        Comparison::LessEqual,
        Comparison::Greater,
        Comparison::GreaterEqual,
        Comparison::Equal,
        Comparison::Unequal,
    ])
}

/// An operation that writes lane `to` of its type, and reads any lane: those written too, at least
/// one sample ago.
fn operation(to: usize) -> impl Strategy<Value = Operation> {
    let any = prop::sample::select(Scalar::ALL.to_vec());
    let float = prop::sample::select(FLOATS.to_vec());
    let lane = (0..LANES, 1usize..9).prop_map(|(number, ago)| match number < READ {
        true => (number, ago - 1),
        false => (number, ago),
    });
    let with = prop::sample::select(vec![
        Arithmetic::Add,
        Arithmetic::Subtract,
        Arithmetic::Multiply,
        Arithmetic::Divide,
    ]);
    let fold = prop::sample::select(vec![Fold::Add, Fold::Less, Fold::From]);
    let bits = prop::sample::select(vec![BitwiseOp::And, BitwiseOp::Or, BitwiseOp::Xor]);
    let direction = prop::sample::select(vec![
        ShiftKind::Left,
        ShiftKind::RightArithmetic,
        ShiftKind::RightLogical,
    ]);
    let rounding = prop::sample::select(vec![Rounding::Zero, Rounding::Floor, Rounding::Nearest]);
    let function = prop::sample::select(vec![FunctionOf::Sin, FunctionOf::Ln, FunctionOf::Sqrt]);
    let choices = (with, fold, bits, direction, rounding, function, relation());
    let taps = prop::collection::vec(-2.0..2.0f64, 1..7);
    let flags = (prop::bool::ANY, prop::bool::ANY);
    let numbers = (0u32..70, taps, flags);
    let scalars = (any.clone(), any, float);
    (
        0..22,
        scalars,
        prop::array::uniform4(lane),
        choices,
        numbers,
    )
        .prop_map(
            move |(kind, (t, other, float), from, choices, (by, taps, (one, two)))| {
                let (with, fold, bits, direction, rounding, function, relation) = choices;
                let at = |scalar, operand: usize| view(scalar, from[operand].0, from[operand].1);
                let d = view(t, to, 0);
                let df = view(float, to, 0);
                let whole = if t.is_float() || t == Scalar::Bool {
                    Scalar::I16
                } else {
                    t
                };
                let dw = view(whole, to, 0);
                let term = |operand: usize| {
                    let bits: Vec<u64> = taps
                        .iter()
                        .map(|&tap| match t {
                            Scalar::F32 => (tap as f32).word(),
                            Scalar::F64 => tap.word(),
                            _ => (tap * 100.0) as i64 as u64,
                        })
                        .collect();
                    let (number, ago) = from[operand];
                    // The newest sample that a filter meets is there already.
                    Term::new(t, &bits, view(t, number, ago + taps.len() - 1))
                };
                match kind {
                    0 => Op::Copy { d, a: at(t, 0) },
                    1 => Op::Cast {
                        d,
                        a: at(other, 0),
                        rounding,
                    },
                    2 | 3 => Op::Calculate {
                        with,
                        d,
                        a: at(t, 0),
                        b: at(t, 1),
                    },
                    4 => Op::Quotient {
                        imaginary: one,
                        d,
                        a: [at(t, 0), at(t, 1)],
                        b: [at(t, 2), at(t, 3)],
                    },
                    5 => Op::Fold {
                        with: fold,
                        d,
                        a: at(t, 0),
                        b: at(t, 1),
                        c: at(t, 2),
                    },
                    6 => Op::Negate { d, a: at(t, 0) },
                    7 => Op::Compare {
                        relation,
                        d: view(Scalar::Bool, to, 0),
                        a: at(t, 0),
                        b: at(t, 1),
                    },
                    8 => Op::Bits {
                        with: bits,
                        d: dw,
                        a: at(whole, 0),
                        b: at(whole, 1),
                    },
                    9 => Op::Not {
                        d: dw,
                        a: at(whole, 0),
                    },
                    10 => Op::Not {
                        d: view(Scalar::Bool, to, 0),
                        a: at(Scalar::Bool, 0),
                    },
                    11 => Op::Shift {
                        direction,
                        by,
                        d: dw,
                        a: at(whole, 0),
                    },
                    12 => Op::Choose {
                        d,
                        c: at(Scalar::Bool, 0),
                        a: at(t, 1),
                        b: at(t, 2),
                    },
                    13 => Op::ChooseBy {
                        relation,
                        d: df,
                        x: at(float, 0),
                        y: at(float, 1),
                        a: at(float, 2),
                        b: at(float, 3),
                    },
                    14 => Op::Clamp {
                        d,
                        a: at(t, 0),
                        low: at(t, 1),
                        high: at(t, 2),
                    },
                    15 => {
                        let terms = if two {
                            vec![term(0), term(1)]
                        } else {
                            vec![term(0)]
                        };
                        Op::Fir {
                            d,
                            terms,
                            newest_first: one,
                            fused: by % 2 == 0,
                        }
                    }
                    16 => Op::Dot {
                        d,
                        terms: vec![(at(t, 0), at(t, 1), one), (at(t, 2), at(t, 3), two)],
                    },
                    17 => Op::Map {
                        d: df,
                        a: at(float, 0),
                        function,
                    },
                    18 => Op::Atan2 {
                        d: df,
                        y: at(float, 0),
                        x: at(float, 1),
                    },
                    19 => {
                        let places = Places {
                            nearest: one,
                            first: -1.0,
                            by: 2.0,
                            divide: two,
                            last: 6.0,
                        };
                        let table = (0..7).map(|entry| entry * 0x0123_4567_89ab_cdef).collect();
                        Op::Lut {
                            d,
                            a: at(float, 0),
                            lookup: Lookup { table, places },
                        }
                    }
                    20 => Op::Table {
                        d,
                        a: at(Scalar::I64, 0),
                        table: (3..8).collect(),
                    },
                    _ if one => Op::Accumulate {
                        d: view(Scalar::U32, to, 0),
                        a: at(Scalar::U32, 0),
                        mask: 0xffff,
                    },
                    _ => Op::Count {
                        d: view(Scalar::U64, to, 0),
                        period: u64::from(by) + 2,
                    },
                }
            },
        )
}

/// Lanes with numbers of all kinds, small and large ones, and what is not a number.
fn lanes(seed: u64) -> Vec<Lane> {
    let mut word = seed | 1;
    let mut next = || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word
    };
    let lane = |index: usize| {
        let scalar = Scalar::ALL[index / LANES];
        let mut lane = Lane::new((BEFORE + COUNT) * scalar.bytes());
        for place in 0..BEFORE + COUNT {
            let word = next();
            let small = (word >> 11) as f64 / (1u64 << 51) as f64 - 2.0;
            let bits = match (scalar, word % 11) {
                (Scalar::Bool, _) => word >> 8 & 1,
                // Counts of loops begin below their periods.
                (Scalar::U64, _) => word >> 40 & 1,
                (_, 0) => word,
                (Scalar::F32, _) => (small as f32).word(),
                (Scalar::F64, _) => small.word(),
                _ => (small * 40.0) as i64 as u64,
            };
            lane.set(scalar, place, bits);
        }
        lane
    };
    (0..Scalar::ALL.len() * LANES).map(lane).collect()
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    (1usize..8).prop_flat_map(|count| {
        let each: Vec<_> = (0..count).map(|index| operation(READ + index)).collect();
        each
    })
}

/// The bytes of a lane, with one form of what is not a number: which of two comes out of a sum is
/// the compiler's choice.
fn bytes(lane: &Lane, scalar: Scalar) -> Vec<u64> {
    let words = (0..BEFORE + COUNT).map(|place| match lane.get(scalar, place) {
        crate::Number::F32(x) if x.is_nan() => f32::NAN.word(),
        crate::Number::F64(x) if x.is_nan() => f64::NAN.word(),
        number => super::super::lane::bits(number, scalar),
    });
    words.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn loops_on_words_make_the_same_numbers(ops in operations(), seed in any::<u64>(), count in 1..=COUNT) {
        let mut on_words = SampleLoop::of(&ops).expect("all of these are known");
        for level in Level::available() {
            let (mut wanted, mut found) = (lanes(seed), lanes(seed));
            let mut memory = Memory {
                lanes: &mut wanted,
                lines: &mut [],
                contexts: &mut [],
                scratch: &mut Lane::new(1 << 12),
                at: 0,
                count: 1,
                level,
            };
            for at in 0..count {
                memory.at = at;
                execute(&ops, &mut memory);
            }
            on_words.run(&mut found, count, level);
            for (index, (wanted, found)) in wanted.iter().zip(&found).enumerate() {
                let scalar = Scalar::ALL[index / LANES];
                prop_assert_eq!(bytes(wanted, scalar), bytes(found, scalar), "{:?} {}", scalar, level);
            }
        }
    }
}

#[test]
fn loops_that_are_not_known_are_left() {
    let a = view(Scalar::F32, 0, 0);
    let d = view(Scalar::F32, READ, 0);
    let wide = View { len: 2, ..d };
    assert!(SampleLoop::of(&[Op::Copy { d, a }]).is_some());
    assert!(SampleLoop::of(&[Op::Copy { d: wide, a: wide }]).is_none());
    assert!(SampleLoop::of(&[Op::Recall { d, line: 0 }]).is_none());
    // One lane as numbers of two types.
    let other = View {
        scalar: Scalar::I32,
        ..a
    };
    assert!(SampleLoop::of(&[Op::Copy { d, a }, Op::Copy { d, a: other }]).is_none());
    let far = View {
        first: LONGEST + BEFORE + 1,
        ..a
    };
    assert!(SampleLoop::of(&[Op::Copy { d, a }, Op::Copy { d, a: far }]).is_none());
}
