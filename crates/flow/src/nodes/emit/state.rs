//! Delays, counters and rate changes.

use super::super::state::initial;
use super::super::{Counter, Delay, Order, TappedDelay};
use super::choose;
use crate::kernels::{Code, Initial, Op, Planes, Reg};
use crate::literal::Literals;
use crate::types::{Scalar, Type};

/// The most samples that are put into a vector one by one.
const FEW: usize = 32;

/// What is in a delay at the start, real and imaginary; one number for all is not written out.
fn held(literals: &Literals, samples: usize, kind: Type) -> Option<(Initial, Initial)> {
    let samples = if literals.len() == 1 {
        samples.min(1)
    } else {
        samples
    };
    initial(literals, samples, kind)
        .ok()
        .map(|values| Initial::of(&values))
}

/// Both parts of a port so many samples ago.
fn past(code: &mut Code, d: Planes, a: Planes, by: usize, (re, im): (Initial, Initial)) {
    code.push(Op::Past {
        d: d.re,
        a: a.re,
        by,
        initial: re,
    });
    if let (Some(d), Some(a)) = (d.im, a.im) {
        code.push(Op::Past {
            d,
            a,
            by,
            initial: im,
        });
    }
}

pub(in super::super) fn delay(
    node: &Delay,
    code: &mut Code,
    inputs: &[Planes],
    out: Planes,
) -> bool {
    let Some(held) = held(&node.initial, node.length, inputs[0].kind) else {
        return false;
    };
    past(code, out, inputs[0], node.length, held);
    true
}

pub(in super::super) fn tapped(
    node: &TappedDelay,
    code: &mut Code,
    inputs: &[Planes],
    out: Planes,
) -> bool {
    let kind = inputs[0].kind;
    if node.reset {
        return false;
    }
    if kind.len > 1 {
        return tapped_vectors(node, code, inputs[0], out);
    }
    let Some(held) = held(&node.initial, node.length, kind) else {
        return false;
    };
    let oldest = code.port(kind);
    past(code, oldest, inputs[0], node.length, held);
    let newest_first = node.order == Order::Newest;
    code.push(Op::Window {
        d: out.re,
        a: oldest.re,
        newest_first,
    });
    if let (Some(d), Some(a)) = (out.im, oldest.im) {
        code.push(Op::Window { d, a, newest_first });
    }
    true
}

/// The samples one by one: few, as each is an operation.
fn tapped_vectors(node: &TappedDelay, code: &mut Code, input: Planes, out: Planes) -> bool {
    if node.length > FEW {
        return false;
    }
    let Ok(values) = initial(&node.initial, node.length, input.kind) else {
        return false;
    };
    let put = |code: &mut Code, port: Planes, at: usize| {
        let at = match node.order {
            Order::Oldest => at,
            Order::Newest => node.len() - 1 - at,
        };
        choose::put(code, port, out, at * input.kind.len);
    };
    for at in 0..node.length {
        let port = code.port(input.kind);
        let held = Initial::of(&values[at..]);
        past(code, port, input, node.length - at, held);
        put(code, port, at);
    }
    if node.current {
        put(code, input, node.length);
    }
    true
}

pub(in super::super) fn counter(node: &Counter, code: &mut Code, out: Planes) -> bool {
    // The count before the first sample is one less than the first.
    let before = node.initial.checked_sub(1).unwrap_or(node.period - 1);
    let period = node.period;
    let count = code.make(Scalar::U64, 1, |d| Op::Count { d, period });
    // This asks for the room that the count before lies in.
    code.past(count, 1, Initial::all(before));
    code.give(out, count, None);
    true
}

pub(in super::super) fn down(by: u64, code: &mut Code, inputs: &[Planes], out: Planes) -> bool {
    // Of a constant there is as much as is put out.
    if by == 1 || code.is_constant(inputs[0].re) {
        return super::pass(code, inputs, out);
    }
    let by = by as usize;
    let mut down = |d: Reg, a: Reg| code.push(Op::Down { d, a, by });
    down(out.re, inputs[0].re);
    if let (Some(d), Some(a)) = (out.im, inputs[0].im) {
        down(d, a);
    }
    true
}

pub(in super::super) fn up(
    by: u64,
    zeros: bool,
    code: &mut Code,
    inputs: &[Planes],
    out: Planes,
) -> bool {
    let of_constant = code.is_constant(inputs[0].re);
    if by == 1 || of_constant && !zeros {
        return super::pass(code, inputs, out);
    }
    let by = by as usize;
    let mut up = |d: Reg, a: Reg| match of_constant {
        true => code.push(Op::Spaced { d, a, by }),
        false => code.push(Op::Up { d, a, by, zeros }),
    };
    up(out.re, inputs[0].re);
    if let (Some(d), Some(a)) = (out.im, inputs[0].im) {
        up(d, a);
    }
    true
}
