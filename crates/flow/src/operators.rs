//! Relations, operations on bits and functions: what nodes ask for and kernels do.

use serde::{Deserialize, Serialize};

use crate::number::Number;

/// A relation of two numbers. All but `Unequal` are false for not-a-number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Comparison {
    /// a < b
    #[serde(rename = "<")]
    Less,
    /// a ≤ b
    #[serde(rename = "<=")]
    LessEqual,
    /// a > b
    #[serde(rename = ">")]
    Greater,
    /// a ≥ b
    #[serde(rename = ">=")]
    GreaterEqual,
    /// a = b
    #[serde(rename = "==")]
    Equal,
    /// a ≠ b
    #[serde(rename = "!=")]
    Unequal,
}

impl Comparison {
    /// The relation of b to a that holds where this one of a to b does.
    pub(crate) fn turned(self) -> Comparison {
        match self {
            Comparison::Less => Comparison::Greater,
            Comparison::LessEqual => Comparison::GreaterEqual,
            Comparison::Greater => Comparison::Less,
            Comparison::GreaterEqual => Comparison::LessEqual,
            Comparison::Equal | Comparison::Unequal => self,
        }
    }

    /// Whether the relation holds.
    pub fn holds(self, a: Number, b: Number) -> bool {
        let order = a.compare(b);
        match self {
            Comparison::Less => order.is_some_and(|o| o.is_lt()),
            Comparison::LessEqual => order.is_some_and(|o| o.is_le()),
            Comparison::Greater => order.is_some_and(|o| o.is_gt()),
            Comparison::GreaterEqual => order.is_some_and(|o| o.is_ge()),
            Comparison::Equal => order.is_some_and(|o| o.is_eq()),
            Comparison::Unequal => !order.is_some_and(|o| o.is_eq()),
        }
    }
}

/// An operation on bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BitwiseOp {
    /// Bits that are set in all inputs.
    And,
    /// Bits that are set in any input.
    Or,
    /// Bits that are set in an odd number of inputs.
    Xor,
    /// Bits that are not set in the one input.
    Not,
}

/// A direction of a shift, and what comes in on the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShiftKind {
    /// Up, zeros in.
    Left,
    /// Down, copies of the sign in.
    RightArithmetic,
    /// Down, zeros in.
    RightLogical,
}

/// A function of one real number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FunctionOf {
    /// Sine.
    Sin,
    /// Cosine.
    Cos,
    /// Arc tangent.
    Atan,
    /// e to the power of the input.
    Exp,
    /// Natural logarithm.
    Ln,
    /// Square root.
    Sqrt,
}

impl FunctionOf {
    /// The function in double precision.
    pub(crate) fn in_f64(self) -> fn(f64) -> f64 {
        match self {
            FunctionOf::Sin => f64::sin,
            FunctionOf::Cos => f64::cos,
            FunctionOf::Atan => f64::atan,
            FunctionOf::Exp => f64::exp,
            FunctionOf::Ln => f64::ln,
            FunctionOf::Sqrt => f64::sqrt,
        }
    }
}
