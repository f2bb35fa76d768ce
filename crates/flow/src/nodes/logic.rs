//! Comparisons, logic and bits.

use serde::{Deserialize, Serialize};

use super::{common_len, count, want};
use crate::kernels::{Code, Planes};
use crate::node::{Mismatch, Node, Pure, Step, table};
use crate::number::Number;
use crate::operators::{BitwiseOp, Comparison, ShiftKind};
use crate::types::Type;
use crate::value::Value;

/// Compares two inputs by value, whatever their types.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compare {
    /// The relation of the first input to the second.
    pub relation: Comparison,
}

impl Node for Compare {
    fn kind(&self) -> &str {
        "compare"
    }
    fn inputs(&self) -> usize {
        2
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        use Comparison::{Equal, Unequal};
        let equality = matches!(self.relation, Equal | Unequal);
        want(inputs, "real to be ordered", |kind| {
            equality || !kind.complex
        })?;
        Ok(vec![Type::BOOL.vector(common_len(inputs)?)])
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        let relation = self.relation;
        Box::new(Pure(move |inputs: &[Value], outputs: &mut [Value]| {
            outputs[0] = Value::build(outputs[0].kind(), |index| {
                let ((a, a_im), (b, b_im)) = (inputs[0].element(index), inputs[1].element(index));
                // Imaginary parts matter to equality alone; real inputs have zeros there.
                let holds = match relation {
                    Comparison::Unequal => relation.holds(a, b) || relation.holds(a_im, b_im),
                    Comparison::Equal => relation.holds(a, b) && relation.holds(a_im, b_im),
                    _ => relation.holds(a, b),
                };
                (Number::Int(holds.into()), Number::Int(0))
            });
        }))
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::compare(self, code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// An operation on booleans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogicOp {
    /// All are true.
    And,
    /// One at least is true.
    Or,
    /// Not all are true.
    Nand,
    /// None is true.
    Nor,
    /// An odd number is true.
    Xor,
    /// An even number is true.
    Nxor,
    /// The one input is false.
    Not,
}

/// Logic of booleans; of numbers too, where anything but 0 is true.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Logic {
    /// The operation.
    pub operation: LogicOp,
    /// How many inputs there are.
    pub inputs: usize,
}

impl Node for Logic {
    fn kind(&self) -> &str {
        "logic"
    }
    fn inputs(&self) -> usize {
        self.inputs.min(super::MAX_INPUTS)
    }
    fn check(&self) -> Result<(), String> {
        if self.operation == LogicOp::Not && self.inputs != 1 {
            return Err(format!("`not` with {} inputs: it has one", self.inputs));
        }
        count(self.inputs, 1)
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        want(inputs, "real", |kind| !kind.complex)?;
        Ok(vec![Type::BOOL.vector(common_len(inputs)?)])
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        let operation = self.operation;
        Box::new(Pure(move |inputs: &[Value], outputs: &mut [Value]| {
            outputs[0] = Value::build(outputs[0].kind(), |index| {
                let trues = inputs
                    .iter()
                    .filter(|value| value.element(index).0.is_true())
                    .count();
                let result = match operation {
                    LogicOp::And => trues == inputs.len(),
                    LogicOp::Or => trues > 0,
                    LogicOp::Nand => trues < inputs.len(),
                    LogicOp::Nor | LogicOp::Not => trues == 0,
                    LogicOp::Xor => trues % 2 == 1,
                    LogicOp::Nxor => trues % 2 == 0,
                };
                (Number::Int(result.into()), Number::Int(0))
            });
        }))
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::logic(self, code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// Combines the bits of whole numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bitwise {
    /// The operation.
    pub operation: BitwiseOp,
    /// How many inputs there are.
    pub inputs: usize,
    /// One more operand, a constant: as many bits as the inputs have, with or without a sign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<i64>,
}

impl Node for Bitwise {
    fn kind(&self) -> &str {
        "bitwise"
    }
    fn inputs(&self) -> usize {
        self.inputs.min(super::MAX_INPUTS)
    }
    fn check(&self) -> Result<(), String> {
        if self.operation == BitwiseOp::Not && (self.inputs != 1 || self.mask.is_some()) {
            return Err("`not` has one input and no mask".into());
        }
        count(self.inputs, 1)
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        want(inputs, "a real whole number", |kind| {
            kind.scalar.is_integer() && !kind.complex
        })?;
        let kind = super::elementwise(inputs, None)?;
        let bits = 8 * kind.scalar.bytes();
        let (least, most) = (-1i128 << (bits - 1), (1i128 << bits) - 1);
        let out = |mask: &i64| !(least..=most).contains(&i128::from(*mask));
        if let Some(mask) = self.mask.filter(out) {
            let name = kind.scalar.name();
            return Err(Mismatch::of_parameter(format!(
                "mask {mask} for the {bits} bits of {name}: it must be {least} to {most}"
            )));
        }
        Ok(vec![kind])
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        let Bitwise {
            operation, mask, ..
        } = *self;
        Box::new(Pure(move |inputs: &[Value], outputs: &mut [Value]| {
            outputs[0] = Value::build(outputs[0].kind(), |index| {
                let operands = inputs
                    .iter()
                    .map(|value| whole(value.element(index).0))
                    .chain(mask.map(i128::from));
                let result = match operation {
                    BitwiseOp::And => operands.fold(-1, |a, b| a & b),
                    BitwiseOp::Or => operands.fold(0, |a, b| a | b),
                    BitwiseOp::Xor => operands.fold(0, |a, b| a ^ b),
                    BitwiseOp::Not => !operands.fold(0, |a, b| a | b),
                };
                (Number::Int(result), Number::Int(0))
            });
        }))
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::bitwise(self, code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// The number as a whole one.
pub(super) fn whole(number: Number) -> i128 {
    match number {
        Number::Int(value) => value,
        float => float.to_f64() as i128,
    }
}

/// Shifts the bits of a whole number.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shift {
    /// The direction.
    pub direction: ShiftKind,
    /// How many places.
    pub by: u32,
}

impl Node for Shift {
    fn kind(&self) -> &str {
        "shift"
    }
    fn inputs(&self) -> usize {
        1
    }
    fn check(&self) -> Result<(), String> {
        if self.by < 64 {
            Ok(())
        } else {
            Err(format!("a shift by {}: it must be below 64", self.by))
        }
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        want(inputs, "a real whole number", |kind| {
            kind.scalar.is_integer() && !kind.complex
        })?;
        Ok(vec![inputs[0]])
    }
    fn start(&self, _: &[Type], outputs: &[Type]) -> Box<dyn Step> {
        let Shift { direction, by } = *self;
        let bits = 8 * outputs[0].scalar.bytes() as u32;
        Box::new(Pure(move |inputs: &[Value], outputs: &mut [Value]| {
            outputs[0] = Value::build(outputs[0].kind(), |index| {
                let value = whole(inputs[0].element(index).0);
                let result = match direction {
                    ShiftKind::Left => value << by,
                    ShiftKind::RightArithmetic => value >> by,
                    ShiftKind::RightLogical => (value & ((1 << bits) - 1)) >> by,
                };
                (Number::Int(result), Number::Int(0))
            });
        }))
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::shift(self, code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}
