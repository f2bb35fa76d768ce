//! What nodes compute, as operations on runs of real numbers.

use std::sync::Arc;

use super::lane::bits;
use super::op::{Arithmetic, Op};
use crate::number::{Number, Rounding};
use crate::types::{Scalar, Type};
use crate::value::Value;

/// A run of real numbers of one type: so many for each sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(pub(crate) u32);

/// What a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plane {
    pub scalar: Scalar,
    /// Numbers of one sample.
    pub len: usize,
    /// Ticks between two samples.
    pub period: u64,
    /// The condition under which there is a sample; otherwise there is none.
    pub context: Option<usize>,
}

/// The runs of one port: real parts, and imaginary parts if there are any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planes {
    /// The type of the port.
    pub kind: Type,
    /// The real parts.
    pub re: Reg,
    /// The imaginary parts.
    pub im: Option<Reg>,
}

/// Numbers before the first sample, as bits in the low end of a word; the oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initial(InitialBits);

#[derive(Clone, Debug, PartialEq, Eq)]
enum InitialBits {
    All(u64),
    Each(Arc<[u64]>),
}

impl Initial {
    /// The same bits everywhere.
    pub fn all(bits: u64) -> Initial {
        Initial(InitialBits::All(bits))
    }

    /// These bits, for each number of each sample.
    pub fn each(bits: impl Into<Arc<[u64]>>) -> Initial {
        Initial(InitialBits::Each(bits.into()))
    }

    /// The bits of one number.
    pub fn at(&self, index: usize) -> u64 {
        match &self.0 {
            InitialBits::All(bits) => *bits,
            InitialBits::Each(bits) => bits.get(index).copied().unwrap_or(0),
        }
    }

    /// The real and the imaginary parts of samples, the oldest first.
    pub fn of(samples: &[Value]) -> (Initial, Initial) {
        let part = |part: fn(&Value) -> &[Number]| {
            let all: Vec<u64> = samples
                .iter()
                .flat_map(|sample| {
                    let scalar = sample.kind().scalar;
                    part(sample).iter().map(move |&number| bits(number, scalar))
                })
                .collect();
            match all.first() {
                Some(&first) if all.iter().all(|&bits| bits == first) => Initial::all(first),
                _ => Initial::each(all),
            }
        };
        (part(Value::re), part(Value::im))
    }
}

/// The operations of nodes, in an order in which each follows what it needs.
#[derive(Clone, Debug, Default)]
pub struct Code {
    pub(crate) planes: Vec<Plane>,
    /// The bits of runs that are the same for ever.
    pub(crate) constants: Vec<Option<Arc<[u64]>>>,
    pub(crate) ops: Vec<Op<Reg>>,
    /// Ticks between two samples of new runs, and their condition.
    pub(crate) period: u64,
    pub(crate) context: Option<usize>,
}

impl Code {
    pub(crate) fn reg(&mut self, scalar: Scalar, len: usize) -> Reg {
        self.planes.push(Plane {
            scalar,
            len,
            period: self.period,
            context: self.context,
        });
        self.constants.push(None);
        Reg(self.planes.len() as u32 - 1)
    }

    /// The runs of a port of some type.
    pub(crate) fn port(&mut self, kind: Type) -> Planes {
        Planes {
            kind,
            re: self.reg(kind.scalar, kind.len),
            im: kind.complex.then(|| self.reg(kind.scalar, kind.len)),
        }
    }

    pub(crate) fn plane(&self, reg: Reg) -> Plane {
        self.planes[reg.0 as usize]
    }

    pub(crate) fn set_period(&mut self, reg: Reg, period: u64) {
        self.planes[reg.0 as usize].period = period;
    }

    /// What there is so far, for [`back_to`](Code::back_to).
    pub(crate) fn mark(&self) -> (usize, usize) {
        (self.planes.len(), self.ops.len())
    }

    pub(crate) fn back_to(&mut self, (planes, ops): (usize, usize)) {
        self.planes.truncate(planes);
        self.constants.truncate(planes);
        self.ops.truncate(ops);
    }

    pub(crate) fn push(&mut self, op: Op<Reg>) {
        self.ops.push(op);
    }

    /// A run of these numbers for ever: one for all elements, or one for each.
    pub(crate) fn constant(&mut self, scalar: Scalar, len: usize, numbers: &[Number]) -> Reg {
        let bits: Vec<u64> = numbers.iter().map(|&number| bits(number, scalar)).collect();
        let reg = self.reg(scalar, len);
        self.constants[reg.0 as usize] = Some(bits.into());
        reg
    }

    /// A run of some type, of what `op` makes of it.
    pub(crate) fn make(
        &mut self,
        scalar: Scalar,
        len: usize,
        op: impl FnOnce(Reg) -> Op<Reg>,
    ) -> Reg {
        let d = self.reg(scalar, len);
        self.push(op(d));
        d
    }

    pub(crate) fn cast(&mut self, a: Reg, scalar: Scalar) -> Reg {
        let plane = self.plane(a);
        if plane.scalar == scalar {
            return a;
        }
        let rounding = Rounding::Zero;
        self.make(scalar, plane.len, |d| Op::Cast { d, a, rounding })
    }

    pub(crate) fn spread(&mut self, a: Reg, len: usize) -> Reg {
        let plane = self.plane(a);
        if plane.len == len {
            return a;
        }
        self.make(plane.scalar, len, |d| Op::Spread { d, a })
    }

    /// Casts and spreads.
    pub(crate) fn fit(&mut self, a: Reg, kind: Type) -> Reg {
        let a = self.cast(a, kind.scalar);
        self.spread(a, kind.len)
    }

    pub(crate) fn calculate(&mut self, with: Arithmetic, a: Reg, b: Reg) -> Reg {
        let plane = self.plane(a);
        self.make(plane.scalar, plane.len, |d| Op::Calculate { with, d, a, b })
    }

    pub(crate) fn negate(&mut self, a: Reg) -> Reg {
        let plane = self.plane(a);
        self.make(plane.scalar, plane.len, |d| Op::Negate { d, a })
    }

    /// `d` is `a`.
    pub(crate) fn alias(&mut self, d: Reg, a: Reg) {
        let initial = Initial::all(0);
        self.push(Op::Past {
            d,
            a,
            by: 0,
            initial,
        });
    }

    /// The output is these runs, cast.
    pub(crate) fn give(&mut self, d: Planes, re: Reg, im: Option<Reg>) {
        let re = self.fit(re, d.kind);
        self.alias(d.re, re);
        if let Some(out) = d.im {
            let im = match im {
                Some(im) => self.fit(im, d.kind),
                None => self.constant(d.kind.scalar, d.kind.len, &[Number::Int(0)]),
            };
            self.alias(out, im);
        }
    }

    /// A run of `by` samples ago.
    pub(crate) fn past(&mut self, a: Reg, by: usize, initial: Initial) -> Reg {
        let plane = self.plane(a);
        self.make(plane.scalar, plane.len, |d| Op::Past { d, a, by, initial })
    }
}
