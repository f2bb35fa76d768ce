//! What nodes compute, as operations on runs of real numbers.

use std::sync::Arc;

use super::lane::bits;
use crate::nodes::{BitwiseOp, Comparison, FunctionOf, ShiftKind};
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

/// One product of a sum of products.
#[derive(Clone, Debug)]
pub(crate) struct Term<R> {
    /// The taps, in the order in which they are added: numbers of the output's type, packed.
    pub taps: Arc<[u64]>,
    pub count: usize,
    /// The oldest sample that they meet.
    pub a: R,
}

impl<R> Term<R> {
    /// A term of taps given by their bits.
    pub fn new(scalar: Scalar, taps: &[u64], a: R) -> Term<R> {
        let size = scalar.bytes();
        let bytes: Vec<u8> = taps
            .iter()
            .flat_map(|tap| tap.to_le_bytes()[..size].to_vec())
            .collect();
        let words = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        Term {
            taps: words.collect(),
            count: taps.len(),
            a,
        }
    }
}

/// An operation of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// What a product is summed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fold {
    /// a b + c
    Add,
    /// a b - c
    Less,
    /// c - a b
    From,
}

/// An operation: `d` is what comes out.
#[derive(Clone, Debug)]
pub(crate) enum Op<R> {
    /// `a` of `by` samples ago. Takes no work where memory is laid out for it.
    Past {
        d: R,
        a: R,
        by: usize,
        initial: Initial,
    },
    Copy {
        d: R,
        a: R,
    },
    /// A delay too long to be moved along: what is held goes out.
    Recall {
        d: R,
        line: usize,
    },
    /// The same delay takes in.
    Remember {
        a: R,
        line: usize,
    },
    /// The same delay in one, where its output is not needed before its input.
    Pass {
        d: R,
        a: R,
        line: usize,
    },
    Cast {
        d: R,
        a: R,
        rounding: Rounding,
    },
    Calculate {
        with: Arithmetic,
        d: R,
        a: R,
        b: R,
    },
    /// A product, rounded, and then a sum.
    Fold {
        with: Fold,
        d: R,
        a: R,
        b: R,
        c: R,
    },
    Negate {
        d: R,
        a: R,
    },
    Compare {
        relation: Comparison,
        d: R,
        a: R,
        b: R,
    },
    Bits {
        with: BitwiseOp,
        d: R,
        a: R,
        b: R,
    },
    Not {
        d: R,
        a: R,
    },
    Shift {
        direction: ShiftKind,
        by: u32,
        d: R,
        a: R,
    },
    /// `a` where `c` is true, otherwise `b`.
    Choose {
        d: R,
        c: R,
        a: R,
        b: R,
    },
    /// `a` where the relation of `x` to `y` holds, otherwise `b`. All are numbers of one size.
    ChooseBy {
        relation: Comparison,
        d: R,
        x: R,
        y: R,
        a: R,
        b: R,
    },
    Clamp {
        d: R,
        a: R,
        low: R,
        high: R,
    },
    /// The one number of each sample, for each element.
    Spread {
        d: R,
        a: R,
    },
    /// Elements of `a` by index.
    Gather {
        d: R,
        a: R,
        from: Arc<[u32]>,
    },
    /// `a` as the elements of `d` from `first` on.
    Put {
        d: R,
        a: R,
        first: usize,
    },
    /// The last samples as elements, from the oldest, `a`, on.
    Window {
        d: R,
        a: R,
        newest_first: bool,
    },
    /// A sum of products with windows of samples: one fused multiply-add after the other, all terms
    /// of the first tap first. The window is passed from the newest sample on, or from the oldest.
    Fir {
        d: R,
        terms: Vec<Term<R>>,
        newest_first: bool,
    },
    /// The inner product of the elements of two runs, the same way; some products are negative.
    Dot {
        d: R,
        terms: Vec<(R, R, bool)>,
    },
    Map {
        d: R,
        a: R,
        function: FunctionOf,
    },
    Atan2 {
        d: R,
        y: R,
        x: R,
    },
    /// Entries by a place in double precision.
    Lut {
        d: R,
        a: R,
        table: Arc<[u64]>,
        nearest: bool,
    },
    /// The same, interpolated in double precision.
    Blend {
        d: R,
        a: R,
        table: Arc<[f64]>,
    },
    /// Entries by a whole number.
    Table {
        d: R,
        a: R,
        table: Arc<[u64]>,
    },
    /// The index of the nearest point.
    Nearest {
        d: R,
        re: R,
        im: R,
        points: Arc<[(f64, f64)]>,
    },
    /// The sum of `a` and of `d` one sample ago, in the bits of a mask.
    Accumulate {
        d: R,
        a: R,
        mask: u64,
    },
    /// One more than one sample ago, below a period.
    Count {
        d: R,
        period: u64,
    },
    Down {
        d: R,
        a: R,
        by: usize,
    },
    /// Finds the samples in which all of `from` are true.
    Enable {
        context: usize,
        from: Vec<R>,
    },
    /// Those samples of `a`.
    Compact {
        d: R,
        a: R,
        context: usize,
    },
    /// For all samples the last one that there was.
    Expand {
        d: R,
        a: R,
        context: usize,
    },
    /// Each sample, and `by - 1` zeros or copies.
    Up {
        d: R,
        a: R,
        by: usize,
        zeros: bool,
    },
}

impl<R: Copy> Op<R> {
    /// What comes out, and what goes in.
    pub fn ends(&self) -> (Option<R>, Vec<R>) {
        use Op::*;
        match self {
            Past { d, a, .. }
            | Copy { d, a }
            | Pass { d, a, .. }
            | Cast { d, a, .. }
            | Negate { d, a }
            | Not { d, a }
            | Shift { d, a, .. }
            | Spread { d, a }
            | Gather { d, a, .. }
            | Put { d, a, .. }
            | Window { d, a, .. }
            | Map { d, a, .. }
            | Lut { d, a, .. }
            | Blend { d, a, .. }
            | Table { d, a, .. }
            | Accumulate { d, a, .. }
            | Down { d, a, .. }
            | Compact { d, a, .. }
            | Expand { d, a, .. }
            | Up { d, a, .. } => (Some(*d), vec![*a]),
            Recall { d, .. } | Count { d, .. } => (Some(*d), vec![]),
            Remember { a, .. } => (None, vec![*a]),
            Enable { from, .. } => (None, from.clone()),
            Calculate { d, a, b, .. } | Compare { d, a, b, .. } | Bits { d, a, b, .. } => {
                (Some(*d), vec![*a, *b])
            }
            Choose { d, c, a, b } => (Some(*d), vec![*c, *a, *b]),
            Fold { d, a, b, c, .. } => (Some(*d), vec![*a, *b, *c]),
            ChooseBy { d, x, y, a, b, .. } => (Some(*d), vec![*x, *y, *a, *b]),
            Clamp { d, a, low, high } => (Some(*d), vec![*a, *low, *high]),
            Fir { d, terms, .. } => (Some(*d), terms.iter().map(|term| term.a).collect()),
            Dot { d, terms } => (
                Some(*d),
                terms.iter().flat_map(|&(a, b, _)| [a, b]).collect(),
            ),
            Atan2 { d, y, x } => (Some(*d), vec![*y, *x]),
            Nearest { d, re, im, .. } => (Some(*d), vec![*re, *im]),
        }
    }

    /// The same operation with other operands.
    pub fn map<T>(&self, f: impl Fn(R) -> T) -> Op<T> {
        use Op::*;
        match self.clone() {
            Past { d, a, by, initial } => Past {
                d: f(d),
                a: f(a),
                by,
                initial,
            },
            Copy { d, a } => Copy { d: f(d), a: f(a) },
            Recall { d, line } => Recall { d: f(d), line },
            Remember { a, line } => Remember { a: f(a), line },
            Pass { d, a, line } => Pass {
                d: f(d),
                a: f(a),
                line,
            },
            Cast { d, a, rounding } => Cast {
                d: f(d),
                a: f(a),
                rounding,
            },
            Calculate { with, d, a, b } => Calculate {
                with,
                d: f(d),
                a: f(a),
                b: f(b),
            },
            Fold { with, d, a, b, c } => Fold {
                with,
                d: f(d),
                a: f(a),
                b: f(b),
                c: f(c),
            },
            ChooseBy {
                relation,
                d,
                x,
                y,
                a,
                b,
            } => ChooseBy {
                relation,
                d: f(d),
                x: f(x),
                y: f(y),
                a: f(a),
                b: f(b),
            },
            Negate { d, a } => Negate { d: f(d), a: f(a) },
            Compare { relation, d, a, b } => Compare {
                relation,
                d: f(d),
                a: f(a),
                b: f(b),
            },
            Bits { with, d, a, b } => Bits {
                with,
                d: f(d),
                a: f(a),
                b: f(b),
            },
            Not { d, a } => Not { d: f(d), a: f(a) },
            Shift {
                direction,
                by,
                d,
                a,
            } => Shift {
                direction,
                by,
                d: f(d),
                a: f(a),
            },
            Choose { d, c, a, b } => Choose {
                d: f(d),
                c: f(c),
                a: f(a),
                b: f(b),
            },
            Clamp { d, a, low, high } => Clamp {
                d: f(d),
                a: f(a),
                low: f(low),
                high: f(high),
            },
            Spread { d, a } => Spread { d: f(d), a: f(a) },
            Gather { d, a, from } => Gather {
                d: f(d),
                a: f(a),
                from,
            },
            Put { d, a, first } => Put {
                d: f(d),
                a: f(a),
                first,
            },
            Window { d, a, newest_first } => Window {
                d: f(d),
                a: f(a),
                newest_first,
            },
            Fir {
                d,
                terms,
                newest_first,
            } => Fir {
                d: f(d),
                terms: terms
                    .into_iter()
                    .map(|t| Term {
                        taps: t.taps,
                        count: t.count,
                        a: f(t.a),
                    })
                    .collect(),
                newest_first,
            },
            Dot { d, terms } => Dot {
                d: f(d),
                terms: terms
                    .into_iter()
                    .map(|(a, b, minus)| (f(a), f(b), minus))
                    .collect(),
            },
            Map { d, a, function } => Map {
                d: f(d),
                a: f(a),
                function,
            },
            Atan2 { d, y, x } => Atan2 {
                d: f(d),
                y: f(y),
                x: f(x),
            },
            Lut {
                d,
                a,
                table,
                nearest,
            } => Lut {
                d: f(d),
                a: f(a),
                table,
                nearest,
            },
            Blend { d, a, table } => Blend {
                d: f(d),
                a: f(a),
                table,
            },
            Table { d, a, table } => Table {
                d: f(d),
                a: f(a),
                table,
            },
            Nearest { d, re, im, points } => Nearest {
                d: f(d),
                re: f(re),
                im: f(im),
                points,
            },
            Accumulate { d, a, mask } => Accumulate {
                d: f(d),
                a: f(a),
                mask,
            },
            Count { d, period } => Count { d: f(d), period },
            Down { d, a, by } => Down {
                d: f(d),
                a: f(a),
                by,
            },
            Enable { context, from } => Enable {
                context,
                from: from.into_iter().map(&f).collect(),
            },
            Compact { d, a, context } => Compact {
                d: f(d),
                a: f(a),
                context,
            },
            Expand { d, a, context } => Expand {
                d: f(d),
                a: f(a),
                context,
            },
            Up { d, a, by, zeros } => Up {
                d: f(d),
                a: f(a),
                by,
                zeros,
            },
        }
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
