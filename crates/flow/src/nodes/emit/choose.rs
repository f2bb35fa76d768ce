//! Choices, and what only moves.

use super::super::Comparison;
use super::super::logic::whole;
use super::super::{Criterion, Mux, Select, Switch};
use super::MOST;
use crate::kernels::{Code, Op, Planes, Reg};
use crate::number::Number;
use crate::types::Scalar;

/// `a` where `c` is true, otherwise `b`; all fitted to the output.
fn choose(code: &mut Code, c: Reg, a: Planes, b: Planes, out: Planes) {
    let c = code.spread(c, out.kind.len);
    let [a, b] = [a, b].map(|port| {
        let re = code.fit(port.re, out.kind);
        let im = out.im.map(|_| match port.im {
            Some(im) => code.fit(im, out.kind),
            None => code.constant(out.kind.scalar, out.kind.len, &[Number::Int(0)]),
        });
        (re, im)
    });
    code.push(Op::Choose {
        d: out.re,
        c,
        a: a.0,
        b: b.0,
    });
    if let (Some(d), Some(a), Some(b)) = (out.im, a.1, b.1) {
        code.push(Op::Choose { d, c, a, b });
    }
}

pub(in super::super) fn mux(node: &Mux, code: &mut Code, inputs: &[Planes], out: Planes) -> bool {
    let selector = inputs[0];
    let far = node.first.unsigned_abs() > 1 << 31;
    if selector.kind.scalar == Scalar::U64 || far || node.choices > MOST {
        return false;
    }
    let mut chosen = inputs[1];
    for choice in 1..node.choices {
        let passed = if selector.kind.scalar == Scalar::Bool && choice == 1 && node.first == 0 {
            selector.re
        } else {
            let a = code.cast(selector.re, Scalar::I64);
            let least = Number::Int(i128::from(node.first) + choice as i128);
            let b = code.constant(Scalar::I64, 1, &[least]);
            let relation = Comparison::GreaterEqual;
            code.make(Scalar::Bool, 1, |d| Op::Compare { relation, d, a, b })
        };
        let next = code.port(out.kind);
        choose(code, passed, inputs[1 + choice], chosen, next);
        chosen = next;
    }
    code.give(out, chosen.re, chosen.im);
    true
}

/// What a whole number of 64 bits is compared with in the place of a threshold. As a float the
/// number may be another one.
fn whole_threshold(of: Scalar, criterion: Criterion, threshold: f64) -> (Comparison, Number) {
    let ends = [f64::NEG_INFINITY, f64::INFINITY];
    let [least, most] = ends.map(|end| whole(Number::F64(end).cast(of)));
    // The least whole number that passes.
    let passes = match criterion {
        Criterion::Above => (threshold.floor() as i128).saturating_add(1),
        _ => threshold.ceil() as i128,
    };
    if threshold.is_nan() || passes > most {
        return (Comparison::Greater, Number::Int(most));
    }
    (Comparison::GreaterEqual, Number::Int(passes.max(least)))
}

pub(in super::super) fn switch(
    node: &Switch,
    code: &mut Code,
    inputs: &[Planes],
    out: Planes,
) -> bool {
    let control = inputs[1];
    let relation = match node.criterion {
        Criterion::Above => Comparison::Greater,
        Criterion::AtLeast => Comparison::GreaterEqual,
        Criterion::NotZero => Comparison::Unequal,
    };
    let threshold = node.threshold;
    let sign = control.kind.scalar == Scalar::Bool
        && match node.criterion {
            Criterion::NotZero => true,
            Criterion::Above => (0.0..1.0).contains(&threshold),
            Criterion::AtLeast => threshold > 0.0 && threshold <= 1.0,
        };
    let passes = if sign {
        control.re
    } else if node.criterion == Criterion::NotZero {
        code.cast(control.re, Scalar::Bool)
    } else {
        let of = control.kind.scalar;
        let (relation, scalar, threshold) = match of {
            Scalar::I64 | Scalar::U64 => {
                let (relation, whole) = whole_threshold(of, node.criterion, threshold);
                (relation, of, whole)
            }
            // A threshold that single precision has compares there as it does in double.
            Scalar::F32 if f64::from(threshold as f32) == threshold => {
                (relation, of, Number::F64(threshold))
            }
            _ => (relation, Scalar::F64, Number::F64(threshold)),
        };
        let len = control.kind.len;
        let a = code.cast(control.re, scalar);
        let b = code.constant(scalar, len, &[threshold]);
        code.make(Scalar::Bool, len, |d| Op::Compare { relation, d, a, b })
    };
    choose(code, passes, inputs[0], inputs[2], out);
    true
}

/// What a node without work puts out.
pub(in super::super) fn pass(code: &mut Code, inputs: &[Planes], out: Planes) -> bool {
    code.alias(out.re, inputs[0].re);
    if let (Some(d), Some(a)) = (out.im, inputs[0].im) {
        code.alias(d, a);
    }
    true
}

pub(in super::super) fn select(
    node: &Select,
    code: &mut Code,
    inputs: &[Planes],
    out: Planes,
) -> bool {
    let from: Vec<u32> = node.indices.iter().map(|&index| index as u32).collect();
    let mut gather = |d: Reg, a: Reg| {
        code.push(Op::Gather {
            d,
            a,
            from: from.as_slice().into(),
        })
    };
    gather(out.re, inputs[0].re);
    if let (Some(d), Some(a)) = (out.im, inputs[0].im) {
        gather(d, a);
    }
    true
}

/// Puts the numbers of `port` into `out`, from number `first` on.
pub(super) fn put(code: &mut Code, port: Planes, out: Planes, first: usize) {
    code.push(Op::Put {
        d: out.re,
        a: port.re,
        first,
    });
    if let (Some(d), Some(a)) = (out.im, port.im) {
        code.push(Op::Put { d, a, first });
    }
}

pub(in super::super) fn concat(code: &mut Code, inputs: &[Planes], out: Planes) -> bool {
    let mut first = 0;
    for port in inputs {
        put(code, *port, out, first);
        first += port.kind.len;
    }
    true
}

pub(in super::super) fn real_imag(code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
    let Some(im) = inputs[0].im else {
        return false;
    };
    code.alias(outputs[0].re, inputs[0].re);
    code.alias(outputs[1].re, im);
    true
}

pub(in super::super) fn complex(code: &mut Code, inputs: &[Planes], out: Planes) -> bool {
    let re = code.fit(inputs[0].re, out.kind);
    let im = code.fit(inputs[1].re, out.kind);
    code.give(out, re, Some(im));
    true
}
