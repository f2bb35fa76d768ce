//! Filters, inner products, tables, oscillators and functions.

use std::f64::consts::TAU;

use super::super::filter::history;
use super::super::{
    Demodulate, Dot, Fir, Function, FunctionOf, Lookup, Lut, Modulate, Nco, ShiftKind,
};
use super::arithmetic::fitted;
use crate::kernels::lane::bits;
use crate::kernels::{self, Arithmetic, Code, Initial, Op, Planes, Reg};
use crate::number::Number;
use crate::types::{Scalar, Type};

/// Bits of a phase up to which cosine and sine come from a table.
const TABLE_BITS: u32 = 12;

pub(in super::super) fn fir(node: &Fir, code: &mut Code, inputs: &[Planes], out: Planes) -> bool {
    let (scalar, count) = (out.kind.scalar, node.taps.len());
    let Ok(past) = history(&node.initial, count, inputs[0].kind) else {
        return false;
    };
    let before: Vec<_> = past
        .iter()
        .rev()
        .map(|value| {
            value.cast(Type {
                scalar,
                ..value.kind()
            })
        })
        .collect();
    let (before_re, before_im) = Initial::of(&before);
    let mut oldest = |a: Reg, before: Initial| {
        let a = code.cast(a, scalar);
        code.past(a, count - 1, before)
    };
    let re = oldest(inputs[0].re, before_re);
    let im = inputs[0].im.map(|im| oldest(im, before_im));
    let mut term = |tap: fn(&(Number, Number), Scalar) -> Number, a: Reg| {
        code.term(scalar, &node.taps, tap, a)
    };
    let (mut res, mut ims) = (vec![term(|tap, _| tap.0, re)], vec![]);
    if node.taps.is_complex() {
        // The order is that of the interpreter: re re, im im; re im, im re.
        if let Some(im) = im {
            res.push(term(|tap, scalar| tap.1.neg(scalar), im));
            ims.push(term(|tap, _| tap.0, im));
        }
        ims.push(term(|tap, _| tap.1, re));
    } else if let Some(im) = im {
        ims.push(term(|tap, _| tap.0, im));
    }
    code.push(Op::Fir {
        d: out.re,
        terms: res,
        newest_first: true,
        fused: true,
    });
    if let Some(d) = out.im {
        code.push(Op::Fir {
            d,
            terms: ims,
            newest_first: true,
            fused: true,
        });
    }
    true
}

pub(in super::super) fn dot(node: &Dot, code: &mut Code, inputs: &[Planes], out: Planes) -> bool {
    let kind = out.kind.vector(inputs[0].kind.len);
    let (a_re, a_im) = fitted(code, inputs[0], kind);
    let (b_re, b_im) = fitted(code, inputs[1], kind);
    let conjugate = node.conjugate;
    let mut res = vec![(a_re, b_re, false)];
    let mut ims = vec![];
    if let (Some(a), Some(b)) = (a_im, b_im) {
        // The sign of the imaginary part is turned by the conjugate, and again by the product.
        res.push((a, b, !conjugate));
    }
    if let Some(b) = b_im {
        ims.push((a_re, b, false));
    }
    if let Some(a) = a_im {
        ims.push((a, b_re, conjugate));
    }
    code.push(Op::Dot {
        d: out.re,
        terms: res,
    });
    if let Some(d) = out.im {
        code.push(Op::Dot { d, terms: ims });
    }
    true
}

pub(in super::super) fn lut(node: &Lut, code: &mut Code, inputs: &[Planes], out: Planes) -> bool {
    let kind = Type {
        scalar: Scalar::F64,
        ..inputs[0].kind
    };
    let (len, scalar) = (kind.len, out.kind.scalar);
    // To divide by a power of two is to multiply by its inverse, to the bit.
    let inverse = node.step.recip();
    let exact = node.step.is_normal() && inverse.is_normal() && node.step.to_bits() << 12 == 0;
    let (by, divide) = if exact {
        (inverse, false)
    } else {
        (node.step, true)
    };
    let first = node.first;
    let place = if inputs[0].kind.scalar == Scalar::F32 && node.between != Lookup::Linear {
        inputs[0].re
    } else {
        code.cast(inputs[0].re, Scalar::F64)
    };
    let linear = (node.between == Lookup::Linear).then(|| {
        let first = code.constant(Scalar::F64, len, &[Number::F64(first)]);
        let from = code.calculate(Arithmetic::Subtract, place, first);
        let by = code.constant(Scalar::F64, len, &[Number::F64(by)]);
        let with = if divide {
            Arithmetic::Divide
        } else {
            Arithmetic::Multiply
        };
        code.calculate(with, from, by)
    });
    let mut look = |d: Reg, part: &dyn Fn(&(Number, Number)) -> Number| {
        let parts = node.table.parts().iter().map(part);
        if let Some(a) = linear {
            let table = parts.map(|number| number.to_f64()).collect();
            let mixed = code.make(Scalar::F64, len, |d| Op::Blend { d, a, table });
            let mixed = code.cast(mixed, scalar);
            code.alias(d, mixed);
        } else {
            let table = parts.map(|number| bits(number, scalar)).collect();
            let nearest = node.between == Lookup::Nearest;
            let places = kernels::Places {
                nearest,
                first,
                by,
                divide,
                last: (node.table.len() - 1) as f64,
            };
            let lookup = kernels::Lookup { table, places };
            code.push(Op::Lut {
                d,
                a: place,
                lookup,
            });
        }
    };
    look(out.re, &|entry| entry.0);
    if let Some(im) = out.im {
        look(im, &|entry| entry.1);
    }
    true
}

pub(in super::super) fn nco(node: &Nco, code: &mut Code, inputs: &[Planes], out: Planes) -> bool {
    let mask = u32::MAX >> (32 - node.bits);
    let a = code.cast(inputs[0].re, Scalar::U32);
    let sum = code.make(Scalar::U32, 1, |d| Op::Accumulate {
        d,
        a,
        mask: mask.into(),
    });
    let initial = Initial::all((node.initial & mask).into());
    let phase = code.past(sum, 1, initial);
    let (direction, by) = (ShiftKind::RightLogical, node.bits - node.address_bits);
    let address = code.make(Scalar::U32, 1, |d| Op::Shift {
        direction,
        by,
        d,
        a: phase,
    });
    let scale = f64::from(node.address_bits).exp2();
    let scalar = out.kind.scalar;
    let Some(im) = out.im else {
        return false;
    };
    let parts = [(out.re, FunctionOf::Cos), (im, FunctionOf::Sin)];
    if node.address_bits <= TABLE_BITS {
        let a = code.cast(address, Scalar::I64);
        for (d, function) in parts {
            let entry = |index: u32| {
                let angle = TAU * (f64::from(index) / scale);
                let value = if function == FunctionOf::Cos {
                    angle.cos()
                } else {
                    angle.sin()
                };
                bits(Number::F64(value), scalar)
            };
            let table = (0..1 << node.address_bits).map(entry).collect();
            code.push(Op::Table { d, a, table });
        }
        return true;
    }
    let turns = code.cast(address, Scalar::F64);
    let scale = code.constant(Scalar::F64, 1, &[Number::F64(scale)]);
    let turns = code.calculate(Arithmetic::Divide, turns, scale);
    let tau = code.constant(Scalar::F64, 1, &[Number::F64(TAU)]);
    let a = code.calculate(Arithmetic::Multiply, tau, turns);
    for (d, function) in parts {
        let value = code.make(Scalar::F64, 1, |d| Op::Map { d, a, function });
        let value = code.cast(value, scalar);
        code.alias(d, value);
    }
    true
}

pub(in super::super) fn function(
    node: &Function,
    code: &mut Code,
    inputs: &[Planes],
    out: Planes,
) -> bool {
    let (d, a, function) = (out.re, inputs[0].re, node.of);
    code.push(Op::Map { d, a, function });
    true
}

pub(in super::super) fn atan2(code: &mut Code, inputs: &[Planes], out: Planes) -> bool {
    let y = code.fit(inputs[0].re, out.kind);
    let x = code.fit(inputs[1].re, out.kind);
    code.push(Op::Atan2 { d: out.re, y, x });
    true
}

pub(in super::super) fn modulate(
    node: &Modulate,
    code: &mut Code,
    inputs: &[Planes],
    out: Planes,
) -> bool {
    if inputs[0].kind.scalar == Scalar::U64 {
        return false;
    }
    let scalar = out.kind.scalar;
    let a = code.cast(inputs[0].re, Scalar::I64);
    let mut look = |d: Reg, part: &dyn Fn(&(Number, Number)) -> Number| {
        let table = node
            .points
            .parts()
            .iter()
            .map(|point| bits(part(point), scalar))
            .collect();
        code.push(Op::Table { d, a, table });
    };
    look(out.re, &|point| point.0);
    if let Some(im) = out.im {
        look(im, &|point| point.1);
    }
    true
}

pub(in super::super) fn demodulate(
    node: &Demodulate,
    code: &mut Code,
    inputs: &[Planes],
    out: Planes,
) -> bool {
    let double = |code: &mut Code, reg: Reg| code.cast(reg, Scalar::F64);
    let re = double(code, inputs[0].re);
    let im = match inputs[0].im {
        Some(im) => double(code, im),
        None => code.constant(Scalar::F64, out.kind.len, &[Number::Int(0)]),
    };
    let points = node
        .points
        .parts()
        .iter()
        .map(|(re, im)| (re.to_f64(), im.to_f64()))
        .collect();
    let symbol = code.make(Scalar::I64, out.kind.len, |d| Op::Nearest {
        d,
        re,
        im,
        points,
    });
    code.give(out, symbol, None);
    true
}
