//! Comparisons, logic and bits.

use super::super::{Bitwise, BitwiseOp, Compare, Comparison, Logic, LogicOp, Shift};
use crate::kernels::{Code, Op, Planes, Reg};
use crate::number::Number;
use crate::types::Scalar;

/// The type in which two numbers compare as their values do, where neither is a whole number of 64
/// bits beside a float.
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

/// Whether a relation of two runs holds, for so many numbers of a sample; none where no operations
/// tell.
fn holds(code: &mut Code, relation: Comparison, [a, b]: [Reg; 2], len: usize) -> Option<Reg> {
    let [of_a, of_b] = [a, b].map(|reg| code.plane(reg).scalar);
    let is_long = |scalar| matches!(scalar, Scalar::I64 | Scalar::U64);
    let [a, b] = [a, b].map(|reg| code.spread(reg, len));
    if is_long(of_a) && of_b.is_float() {
        return Some(holds_of_long(code, relation, a, b));
    }
    if of_a.is_float() && is_long(of_b) {
        return Some(holds_of_long(code, relation.turned(), b, a));
    }
    let scalar = common(of_a, of_b)?;
    let [a, b] = [a, b].map(|reg| code.cast(reg, scalar));
    Some(compared(code, relation, a, b))
}

fn compared(code: &mut Code, relation: Comparison, a: Reg, b: Reg) -> Reg {
    let len = code.plane(a).len;
    code.make(Scalar::Bool, len, |d| Op::Compare { relation, d, a, b })
}

/// The same for a whole number of 64 bits and a float. As a float the whole number may be another
/// one, on the same side of all floats but for the one that it becomes. That one is a whole number:
/// with it the relation decides as of whole numbers, where the type has it.
fn holds_of_long(code: &mut Code, relation: Comparison, whole: Reg, float: Reg) -> Reg {
    use Comparison::{Equal, Greater, GreaterEqual, Less, LessEqual, Unequal};
    let plane = code.plane(whole);
    let (near, float) = (code.cast(whole, Scalar::F64), code.cast(float, Scalar::F64));
    let cut = code.cast(float, plane.scalar);
    let same = compared(code, Equal, near, float);
    // One above the greatest number of the type, as which it is cut.
    let above = match plane.scalar {
        Scalar::I64 => 1i128 << 63,
        _ => 1i128 << 64,
    };
    let above = code.constant(Scalar::F64, plane.len, &[Number::Int(above)]);
    let of_cut = |code: &mut Code, relation| compared(code, relation, whole, cut);
    let tie = match relation {
        LessEqual | Greater => of_cut(code, relation),
        Less => {
            let (less, is_above) = (of_cut(code, Less), compared(code, Equal, float, above));
            bits(code, BitwiseOp::Or, less, is_above)
        }
        Equal | Unequal | GreaterEqual => {
            let relation = if relation == GreaterEqual {
                GreaterEqual
            } else {
                Equal
            };
            let (holds, is_below) = (of_cut(code, relation), compared(code, Less, float, above));
            bits(code, BitwiseOp::And, holds, is_below)
        }
    };
    let tie = bits(code, BitwiseOp::And, same, tie);
    match relation {
        Equal => tie,
        Unequal => code.make(Scalar::Bool, plane.len, |d| Op::Not { d, a: tie }),
        Less | LessEqual => {
            let less = compared(code, Less, near, float);
            bits(code, BitwiseOp::Or, less, tie)
        }
        Greater | GreaterEqual => {
            let greater = compared(code, Greater, near, float);
            bits(code, BitwiseOp::Or, greater, tie)
        }
    }
}

pub(in super::super) fn compare(
    node: &Compare,
    code: &mut Code,
    inputs: &[Planes],
    out: Planes,
) -> bool {
    let len = out.kind.len;
    let relation = node.relation;
    let [x, y] = [inputs[0], inputs[1]];
    let Some(re) = holds(code, relation, [x.re, y.re], len) else {
        return false;
    };
    let complex = inputs.iter().any(|port| port.im.is_some());
    let with = match relation {
        Comparison::Equal => BitwiseOp::And,
        _ => BitwiseOp::Or,
    };
    let result = match relation {
        Comparison::Equal | Comparison::Unequal if complex => {
            let both = [x, y].map(|port| {
                let zero = [Number::Int(0)];
                port.im
                    .unwrap_or_else(|| code.constant(port.kind.scalar, port.kind.len, &zero))
            });
            let Some(im) = holds(code, relation, both, len) else {
                return false;
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
