//! Sums, products, gains, limits and conversions.

use super::super::{Convert, Gain, Product, Saturate, Sum};
use super::MOST;
use crate::kernels::lane::bits;
use crate::kernels::{Arithmetic, Code, Making, Op, Planes, Reg};
use crate::literal::Literals;
use crate::number::Number;
use crate::types::{Scalar, Type};

/// A complex run, or a real one, whose imaginary part takes no part.
pub(super) type Element = (Reg, Option<Reg>);

/// A port in the type to compute in.
pub(super) fn fitted(code: &mut Code, port: Planes, kind: Type) -> Element {
    let re = code.fit(port.re, kind);
    (re, port.im.map(|im| code.fit(im, kind)))
}

/// One element of each sample of a port.
fn picked(code: &mut Code, port: Planes, index: usize, scalar: Scalar) -> Element {
    let mut pick = |a: Reg| {
        let from = [index as u32].into();
        let a = code.make(port.kind.scalar, 1, |d| Op::Gather { d, a, from });
        code.cast(a, scalar)
    };
    (pick(port.re), port.im.map(pick))
}

/// The operands of a sum or a product: the inputs, or the elements of the one input.
fn operands(code: &mut Code, inputs: &[Planes], kind: Type) -> Option<Vec<Element>> {
    match inputs {
        [one] if one.kind.len > MOST => None,
        [one] => {
            let picks = (0..one.kind.len).map(|index| picked(code, *one, index, kind.scalar));
            Some(picks.collect())
        }
        _ => Some(
            inputs
                .iter()
                .map(|&port| fitted(code, port, kind))
                .collect(),
        ),
    }
}

pub(in super::super) fn sum(node: &Sum, code: &mut Code, inputs: &[Planes], out: Planes) -> bool {
    let kind = out.kind;
    let Some(terms) = operands(code, inputs, kind) else {
        return false;
    };
    let signs = node.signs.as_bytes();
    let minus = |index: usize| signs[index.min(signs.len() - 1)] == b'-';
    let minus = |index: usize| minus(if inputs.len() == 1 { 0 } else { index });
    let mut add = |part: &dyn Fn(&Element) -> Option<Reg>| {
        let zero = code.constant(kind.scalar, kind.len, &[Number::Int(0)]);
        let parts: Vec<Reg> = terms
            .iter()
            .map(|term| part(term).unwrap_or(zero))
            .collect();
        let first = if minus(0) {
            code.negate(parts[0])
        } else {
            parts[0]
        };
        parts
            .iter()
            .enumerate()
            .skip(1)
            .fold(first, |sum, (index, &term)| {
                let with = if minus(index) {
                    Arithmetic::Subtract
                } else {
                    Arithmetic::Add
                };
                code.calculate(with, sum, term)
            })
    };
    let re = add(&|term| Some(term.0));
    let im = kind.complex.then(|| add(&|term| term.1));
    code.give(out, re, im);
    true
}

fn multiply(code: &mut Code, a: Element, b: Element) -> Element {
    use Arithmetic::{Add, Multiply, Subtract};
    let mut times = |a, b| code.calculate(Multiply, a, b);
    match (a, b) {
        ((a, None), (b, None)) => (times(a, b), None),
        ((a, None), (re, Some(im))) | ((re, Some(im)), (a, None)) => {
            (times(a, re), Some(times(a, im)))
        }
        ((a, Some(b)), (c, Some(d))) => {
            let (ac, bd, ad, bc) = (times(a, c), times(b, d), times(a, d), times(b, c));
            (
                code.calculate(Subtract, ac, bd),
                Some(code.calculate(Add, ad, bc)),
            )
        }
    }
}

fn divide(code: &mut Code, a: Element, b: Element) -> Element {
    match (a, b) {
        ((a, im), (b, None)) => (
            code.calculate(Arithmetic::Divide, a, b),
            im.map(|im| code.calculate(Arithmetic::Divide, im, b)),
        ),
        ((re, im), (c, Some(d))) => {
            let plane = code.plane(re);
            let zero = [Number::Int(0)];
            let im = im.unwrap_or_else(|| code.constant(plane.scalar, plane.len, &zero));
            let (a, b) = ([re, im], [c, d]);
            let [re, im] = [false, true].map(|imaginary| {
                code.make(plane.scalar, plane.len, |d| Op::Quotient {
                    imaginary,
                    d,
                    a,
                    b,
                })
            });
            (re, Some(im))
        }
    }
}

pub(in super::super) fn product(
    node: &Product,
    code: &mut Code,
    inputs: &[Planes],
    out: Planes,
) -> bool {
    let kind = out.kind;
    let Some(factors) = operands(code, inputs, kind) else {
        return false;
    };
    let operations = node.operations.as_bytes();
    let inverted = |index: usize| operations[if inputs.len() == 1 { 0 } else { index }] == b'/';
    let first = if inverted(0) {
        let one = code.constant(kind.scalar, kind.len, &[Number::Int(1)]);
        divide(code, (one, None), factors[0])
    } else {
        factors[0]
    };
    let (re, im) = factors
        .iter()
        .enumerate()
        .skip(1)
        .fold(first, |product, (index, &factor)| {
            if inverted(index) {
                divide(code, product, factor)
            } else {
                multiply(code, product, factor)
            }
        });
    code.give(out, re, im);
    true
}

pub(in super::super) fn gain(node: &Gain, code: &mut Code, inputs: &[Planes], out: Planes) -> bool {
    let kind = out.kind;
    let mut run = |part: fn(&(Number, Number)) -> Number| {
        let making = Making::new(move |numbers: &Literals| {
            let parts = numbers.parts().iter().map(part);
            parts.map(|number| bits(number, kind.scalar)).collect()
        });
        code.numbers(kind.scalar, kind.len, &node.gain, making)
    };
    let re = run(|&(re, _)| re);
    let im = node.gain.is_complex().then(|| run(|&(_, im)| im));
    let input = fitted(code, inputs[0], kind);
    let (re, im) = multiply(code, input, (re, im));
    code.give(out, re, im);
    true
}

pub(in super::super) fn saturate(
    node: &Saturate,
    code: &mut Code,
    inputs: &[Planes],
    out: Planes,
) -> bool {
    let (scalar, len) = (out.kind.scalar, out.kind.len);
    let Some((low, high)) = node.limits(scalar) else {
        return false;
    };
    let [low, high] = [low, high].map(|limit| code.constant(scalar, len, &[limit]));
    let (d, a) = (out.re, inputs[0].re);
    code.push(Op::Clamp { d, a, low, high });
    true
}

pub(in super::super) fn convert(
    node: &Convert,
    code: &mut Code,
    inputs: &[Planes],
    out: Planes,
) -> bool {
    let rounding = node.rounding;
    let mut convert = |d: Reg, a: Reg| {
        if code.plane(a).scalar == code.plane(d).scalar {
            code.alias(d, a);
        } else {
            code.push(Op::Cast { d, a, rounding });
        }
    };
    convert(out.re, inputs[0].re);
    if let (Some(d), Some(a)) = (out.im, inputs[0].im) {
        convert(d, a);
    }
    true
}
