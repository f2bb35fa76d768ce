//! Comparisons, logic and bits.

use super::super::{Bitwise, BitwiseOp, Compare, Comparison, Logic, LogicOp, Shift};
use crate::kernels::{Code, Op, Planes, Reg};
use crate::number::Number;
use crate::types::Scalar;

/// The type in which two numbers compare as their values do.
fn common(a: Scalar, b: Scalar) -> Option<Scalar> {
    if a == b {
        return Some(a);
    }
    if a.is_float() || b.is_float() {
        return Some(Scalar::F64);
    }
    match (a, b) {
        (Scalar::U64, other) | (other, Scalar::U64) => (!other.is_signed()).then_some(Scalar::U64),
        _ => Some(Scalar::I64),
    }
}

fn bits(code: &mut Code, with: BitwiseOp, a: Reg, b: Reg) -> Reg {
    let plane = code.plane(a);
    code.make(plane.scalar, plane.len, |d| Op::Bits { with, d, a, b })
}

pub(in super::super) fn compare(
    node: &Compare,
    code: &mut Code,
    inputs: &[Planes],
    out: Planes,
) -> bool {
    let Some(scalar) = common(inputs[0].kind.scalar, inputs[1].kind.scalar) else {
        return false;
    };
    let len = out.kind.len;
    let relation = node.relation;
    let mut holds = |a: Reg, b: Reg| {
        let mut fit = |reg: Reg| {
            let reg = code.cast(reg, scalar);
            code.spread(reg, len)
        };
        let (a, b) = (fit(a), fit(b));
        code.make(Scalar::Bool, len, |d| Op::Compare { relation, d, a, b })
    };
    let re = holds(inputs[0].re, inputs[1].re);
    let complex = inputs.iter().any(|port| port.im.is_some());
    let result = match relation {
        Comparison::Equal | Comparison::Unequal if complex => {
            let zero = code.constant(scalar, len, &[Number::Int(0)]);
            let [a, b] = [0, 1].map(|input: usize| {
                inputs[input].im.map_or(zero, |im| {
                    let im = code.cast(im, scalar);
                    code.spread(im, len)
                })
            });
            let im = code.make(Scalar::Bool, len, |d| Op::Compare { relation, d, a, b });
            let with = if relation == Comparison::Equal {
                BitwiseOp::And
            } else {
                BitwiseOp::Or
            };
            bits(code, with, re, im)
        }
        _ => re,
    };
    code.give(out, result, None);
    true
}

pub(in super::super) fn logic(
    node: &Logic,
    code: &mut Code,
    inputs: &[Planes],
    out: Planes,
) -> bool {
    let parts: Vec<Reg> = inputs
        .iter()
        .map(|port| code.fit(port.re, out.kind))
        .collect();
    let (with, not) = match node.operation {
        LogicOp::And => (BitwiseOp::And, false),
        LogicOp::Or => (BitwiseOp::Or, false),
        LogicOp::Nand => (BitwiseOp::And, true),
        LogicOp::Nor | LogicOp::Not => (BitwiseOp::Or, true),
        LogicOp::Xor => (BitwiseOp::Xor, false),
        LogicOp::Nxor => (BitwiseOp::Xor, true),
    };
    let all = parts[1..]
        .iter()
        .fold(parts[0], |all, &part| bits(code, with, all, part));
    let all = if not {
        code.make(Scalar::Bool, out.kind.len, |d| Op::Not { d, a: all })
    } else {
        all
    };
    code.give(out, all, None);
    true
}

pub(in super::super) fn bitwise(
    node: &Bitwise,
    code: &mut Code,
    inputs: &[Planes],
    out: Planes,
) -> bool {
    let mut parts: Vec<Reg> = inputs
        .iter()
        .map(|port| code.fit(port.re, out.kind))
        .collect();
    if let Some(mask) = node.mask {
        parts.push(code.constant(out.kind.scalar, out.kind.len, &[Number::Int(mask.into())]));
    }
    let with = node.operation;
    let all = match with {
        BitwiseOp::Not => {
            let a = parts[0];
            code.make(out.kind.scalar, out.kind.len, |d| Op::Not { d, a })
        }
        _ => parts[1..]
            .iter()
            .fold(parts[0], |all, &part| bits(code, with, all, part)),
    };
    code.give(out, all, None);
    true
}

pub(in super::super) fn shift(
    node: &Shift,
    code: &mut Code,
    inputs: &[Planes],
    out: Planes,
) -> bool {
    let (direction, by) = (node.direction, node.by);
    let (d, a) = (out.re, inputs[0].re);
    code.push(Op::Shift {
        direction,
        by,
        d,
        a,
    });
    true
}
