//! What nodes compute, as operations on runs of real numbers.

use std::fmt;
use std::sync::Arc;

use super::lane::bits;
use super::op::{Arithmetic, Op, Term};
use crate::literal::Literals;
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
    /// The same bits for all numbers.
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

/// Bits that are made of numbers.
type Make = dyn Fn(&Literals) -> Arc<[u64]> + Send + Sync;

/// How the numbers of a node become those of a run, or of a filter.
#[derive(Clone)]
pub(crate) struct Making(Arc<Make>);

impl Making {
    pub fn new(make: impl Fn(&Literals) -> Arc<[u64]> + Send + Sync + 'static) -> Making {
        Making(Arc::new(make))
    }

    pub fn make(&self, numbers: &Literals) -> Arc<[u64]> {
        (self.0)(numbers)
    }
}

impl fmt::Debug for Making {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Making")
    }
}

/// What changes with the numbers of a node.
#[derive(Clone, Debug)]
pub(crate) enum Changing {
    /// A run that is the same until then.
    Run(Reg),
    /// The taps of a term, packed.
    Taps(Arc<[u64]>),
}

/// What changes with the numbers of which node.
#[derive(Clone, Debug)]
pub(crate) struct Changeable {
    pub parameter: usize,
    pub what: Changing,
    pub making: Making,
}

/// The operations of nodes, in an order in which each follows what it needs.
#[derive(Clone, Debug, Default)]
pub struct Code {
    pub(crate) planes: Vec<Plane>,
    /// The bits of runs that are the same for ever.
    pub(crate) constants: Vec<Option<Arc<[u64]>>>,
    pub(crate) ops: Vec<Op<Reg>>,
    /// What may change while it runs.
    pub(crate) changeable: Vec<Changeable>,
    /// The number of the present node's parameter, if its numbers may change.
    pub(crate) parameter: Option<usize>,
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
        // Forget changeable numbers whose run was just removed.
        self.changeable.retain(|changeable| match changeable.what {
            Changing::Run(reg) => (reg.0 as usize) < planes,
            Changing::Taps(_) => true,
        });
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

    /// A run of these numbers, for ever or until they change.
    pub(crate) fn numbers(
        &mut self,
        scalar: Scalar,
        len: usize,
        numbers: &Literals,
        making: Making,
    ) -> Reg {
        // A number that may change is made for all samples: which of them a condition leaves is not
        // known before the run.
        let context = self.context.take_if(|_| self.parameter.is_some());
        let reg = self.reg(scalar, len);
        self.constants[reg.0 as usize] = Some(making.make(numbers));
        if let Some(parameter) = self.parameter {
            let what = Changing::Run(reg);
            self.changeable.push(Changeable {
                parameter,
                what,
                making,
            });
        }
        let Some(context) = context else {
            return reg;
        };
        self.context = Some(context);
        self.make(scalar, len, |d| Op::Compact { d, a: reg, context })
    }

    /// Whether a run is of a constant: it has as many samples as its reader makes.
    pub(crate) fn is_constant(&self, reg: Reg) -> bool {
        self.constants[reg.0 as usize].is_some()
    }

    /// Whether the numbers of a run may change.
    pub(crate) fn changes(&self, reg: Reg) -> bool {
        let is =
            |changeable: &Changeable| matches!(changeable.what, Changing::Run(own) if own == reg);
        self.changeable.iter().any(is)
    }

    /// A term of a filter with the taps that are made of numbers.
    pub(crate) fn term(
        &mut self,
        scalar: Scalar,
        numbers: &Literals,
        tap: fn(&(Number, Number), Scalar) -> Number,
        a: Reg,
    ) -> Term<Reg> {
        let making = Making::new(move |numbers: &Literals| {
            let taps = numbers.parts().iter();
            let taps: Vec<u64> = taps.map(|part| bits(tap(part, scalar), scalar)).collect();
            Term::new(scalar, &taps, ()).taps
        });
        let taps = making.make(numbers);
        if let Some(parameter) = self.parameter {
            let what = Changing::Taps(taps.clone());
            self.changeable.push(Changeable {
                parameter,
                what,
                making,
            });
        }
        let count = numbers.len();
        Term { taps, count, a }
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
