//! The parts of operations that do several things to one number.

use super::op::Arithmetic;
use crate::operators::Comparison;

/// What comes in beside the number that a chain is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand<R> {
    /// The bits of a number for ever.
    Constant(u64),
    Run(R),
}

/// What a link of a chain makes of the number x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum With {
    /// x + a
    Add,
    /// x - a
    Subtract,
    /// a - x
    From,
    /// x a
    Multiply,
    /// x / a
    Divide,
    /// a / x
    Over,
    /// -x
    Negate,
    /// a b + x
    AddProduct,
    /// x - a b
    LessProduct,
    /// a b - x
    ProductLess,
}

impl With {
    /// What a calculation makes of its first number, and what of its second.
    pub fn sides(calculation: Arithmetic) -> (With, With) {
        match calculation {
            Arithmetic::Add => (With::Add, With::Add),
            Arithmetic::Subtract => (With::Subtract, With::From),
            Arithmetic::Multiply => (With::Multiply, With::Multiply),
            Arithmetic::Divide => (With::Divide, With::Over),
        }
    }
}

/// One operation of a chain. What it has no use for is a constant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link<R> {
    pub with: With,
    pub a: Operand<R>,
    pub b: Operand<R>,
}

impl<R: Copy> Operand<R> {
    fn run(self) -> Option<R> {
        match self {
            Operand::Run(run) => Some(run),
            Operand::Constant(_) => None,
        }
    }

    fn map<T>(self, f: impl Fn(R) -> T) -> Operand<T> {
        match self {
            Operand::Constant(bits) => Operand::Constant(bits),
            Operand::Run(run) => Operand::Run(f(run)),
        }
    }
}

impl<R: Copy> Link<R> {
    /// The runs that it reads.
    pub fn runs(&self) -> impl Iterator<Item = R> + use<R> {
        [self.a, self.b].into_iter().filter_map(Operand::run)
    }

    pub fn map<T>(self, f: impl Fn(R) -> T) -> Link<T> {
        Link {
            with: self.with,
            a: self.a.map(&f),
            b: self.b.map(&f),
        }
    }
}

/// What becomes of the number of a loop, x, from one sample to the next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turn<R> {
    Link(Link<R>),
    /// The first operand where its relation with x holds, otherwise the second where its does.
    Limit {
        first: (Comparison, Operand<R>),
        second: Option<(Comparison, Operand<R>)>,
    },
    /// What there was one sample ago where `c` is `when`.
    Keep {
        c: R,
        when: bool,
    },
    /// `a` where `c` is `when`.
    Set {
        c: R,
        when: bool,
        a: Operand<R>,
    },
}

impl<R: Copy> Turn<R> {
    /// What comes in as numbers.
    pub fn operands(&self) -> [Option<Operand<R>>; 2] {
        match *self {
            Turn::Link(link) => [Some(link.a), Some(link.b)],
            Turn::Limit { first, second } => [Some(first.1), second.map(|second| second.1)],
            Turn::Keep { .. } => [None, None],
            Turn::Set { a, .. } => [Some(a), None],
        }
    }

    /// The runs that it reads.
    pub fn runs(&self) -> impl Iterator<Item = R> + use<R> {
        let condition = match *self {
            Turn::Keep { c, .. } | Turn::Set { c, .. } => Some(c),
            _ => None,
        };
        let operands = self.operands().into_iter().flatten();
        operands.filter_map(Operand::run).chain(condition)
    }

    pub fn map<T>(self, f: impl Fn(R) -> T) -> Turn<T> {
        match self {
            Turn::Link(link) => Turn::Link(link.map(f)),
            Turn::Limit { first, second } => Turn::Limit {
                first: (first.0, first.1.map(&f)),
                second: second.map(|second| (second.0, second.1.map(&f))),
            },
            Turn::Keep { c, when } => Turn::Keep { c: f(c), when },
            Turn::Set { c, when, a } => Turn::Set {
                c: f(c),
                when,
                a: a.map(f),
            },
        }
    }
}
