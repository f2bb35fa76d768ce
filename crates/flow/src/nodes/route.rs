//! Nodes that choose and rearrange.

use serde::{Deserialize, Serialize};

use super::logic::whole;
use super::{common_len, count, want};
use crate::kernels::{Code, Planes};
use crate::node::{Mismatch, Node, Pure, Step, table};
use crate::number::Number;
use crate::operators::Comparison;
use crate::types::{Scalar, Type};
use crate::value::Value;

/// The common type of data inputs that are passed on as they are, or cast to `output`.
fn data(inputs: &[Type], output: Option<Scalar>) -> Result<Type, Mismatch> {
    let len = common_len(inputs)?;
    let complex = inputs.iter().any(|kind| kind.complex);
    let scalar = output.unwrap_or(inputs[0].scalar);
    if output.is_none() && inputs.iter().any(|kind| kind.scalar != scalar) {
        let all: Vec<String> = inputs.iter().map(Type::to_string).collect();
        let text = format!(
            "the data inputs are {}: convert them to one type, or give `output`",
            all.join(", ")
        );
        return Err(Mismatch::of_type(text));
    }
    Ok(Type {
        scalar,
        complex,
        len,
    })
}

/// Passes on the data input that the first input selects. An index out of range selects the
/// nearest.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mux {
    /// How many data inputs there are, after the selector.
    pub choices: usize,
    /// The number that selects the first.
    #[serde(default)]
    pub first: i64,
    /// The type of the output's numbers, if the data inputs differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Scalar>,
}

impl Node for Mux {
    fn kind(&self) -> &str {
        "mux"
    }
    fn inputs(&self) -> usize {
        self.choices.min(super::MAX_INPUTS) + 1
    }
    fn check(&self) -> Result<(), String> {
        count(self.choices, 1)
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        want(&inputs[..1], "one real number to select", |kind| {
            !kind.complex && kind.len == 1
        })?;
        Ok(vec![data(&inputs[1..], self.output)?])
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        let (first, last) = (i128::from(self.first), self.choices as i128 - 1);
        Box::new(Pure(move |inputs: &[Value], outputs: &mut [Value]| {
            let choice = whole(inputs[0].first())
                .saturating_sub(first)
                .clamp(0, last) as usize;
            outputs[0] = inputs[1 + choice].cast(outputs[0].kind());
        }))
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::mux(self, code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// What the control input of a [`Switch`] must be for the first input to pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Criterion {
    /// Above the threshold.
    Above,
    /// At or above the threshold.
    AtLeast,
    /// Not equal to 0, or true.
    NotZero,
}

/// Passes on the first input or the third, as the second decides, element by element.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// When the first input passes.
    pub criterion: Criterion,
    /// What the control input is compared with; 0 for [`Criterion::NotZero`].
    #[serde(default)]
    pub threshold: f64,
    /// The type of the output's numbers, if the data inputs differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Scalar>,
}

impl Node for Switch {
    fn kind(&self) -> &str {
        "switch"
    }
    fn inputs(&self) -> usize {
        3
    }
    fn check(&self) -> Result<(), String> {
        if self.criterion != Criterion::NotZero || self.threshold == 0.0 {
            return Ok(());
        }
        Err(format!(
            "threshold {:?} with the criterion not_zero, which has none: leave it out",
            self.threshold
        ))
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        if inputs[1].complex {
            return Err(Mismatch::of_type(format!(
                "input 2 is {}: the control must be real",
                inputs[1]
            )));
        }
        let kind = data(&[inputs[0], inputs[2]], self.output)?;
        Ok(vec![kind.vector(common_len(inputs)?)])
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        let (criterion, threshold) = (self.criterion, Number::F64(self.threshold));
        Box::new(Pure(move |inputs: &[Value], outputs: &mut [Value]| {
            outputs[0] = Value::build(outputs[0].kind(), |index| {
                let control = inputs[1].element(index).0;
                let passes = match criterion {
                    Criterion::Above => Comparison::Greater.holds(control, threshold),
                    Criterion::AtLeast => Comparison::GreaterEqual.holds(control, threshold),
                    Criterion::NotZero => control.is_true(),
                };
                inputs[if passes { 0 } else { 2 }].element(index)
            });
        }))
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::switch(self, code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// Elements of a vector, by indices from 0.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Select {
    /// Which elements, in the order of the output.
    pub indices: Vec<usize>,
}

impl Node for Select {
    fn kind(&self) -> &str {
        "select"
    }
    fn inputs(&self) -> usize {
        1
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        if let Some(index) = self.indices.iter().find(|&&index| index >= inputs[0].len) {
            let last = inputs[0].len - 1;
            return Err(Mismatch::of_size(format!(
                "index {index} of a vector whose last element is {last}"
            )));
        }
        Ok(vec![inputs[0].vector(self.indices.len())])
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        let indices = self.indices.clone();
        Box::new(Pure(move |inputs: &[Value], outputs: &mut [Value]| {
            outputs[0] = Value::build(outputs[0].kind(), |index| inputs[0].element(indices[index]));
        }))
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::select(self, code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// Elements of a vector, by indices that the second input gives. An index out of range gives the
/// nearest element.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SelectAt {
    /// The number that means the first element.
    #[serde(default)]
    pub first: i64,
    /// If given: so many neighbours from the one index on. Otherwise each element of the second
    /// input is an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<usize>,
}

impl Node for SelectAt {
    fn kind(&self) -> &str {
        "select_at"
    }
    fn inputs(&self) -> usize {
        2
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        want(&inputs[1..], "real to be an index", |kind| !kind.complex)?;
        match self.length {
            Some(length) if inputs[1].len != 1 || length > inputs[0].len => {
                Err(Mismatch::of_size(format!(
                    "{length} neighbours of {} from the index {}: give one index, and no more than there are",
                    inputs[0], inputs[1]
                )))
            }
            Some(length) => Ok(vec![inputs[0].vector(length)]),
            None => Ok(vec![inputs[0].vector(inputs[1].len)]),
        }
    }
    fn start(&self, inputs: &[Type], _: &[Type]) -> Box<dyn Step> {
        let SelectAt { first, length } = *self;
        let last = inputs[0].len as i128 - 1;
        Box::new(Pure(move |inputs: &[Value], outputs: &mut [Value]| {
            let at = |index: usize| whole(inputs[1].element(index).0).saturating_sub(first.into());
            outputs[0] = Value::build(outputs[0].kind(), |index| {
                let wanted = match length {
                    Some(length) => at(0).clamp(0, last + 1 - length as i128) + index as i128,
                    None => at(index),
                };
                inputs[0].element(wanted.clamp(0, last) as usize)
            });
        }))
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// Joins vectors and scalars to one vector.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Concat {
    /// How many inputs there are.
    pub inputs: usize,
}

impl Node for Concat {
    fn kind(&self) -> &str {
        "concat"
    }
    fn inputs(&self) -> usize {
        self.inputs.min(super::MAX_INPUTS)
    }
    fn check(&self) -> Result<(), String> {
        count(self.inputs, 1)
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        let first = inputs[0];
        want(
            inputs,
            &format!("{}, as input 1", first.vector(1)),
            |kind| kind.vector(1) == first.vector(1),
        )?;
        Ok(vec![first.vector(inputs.iter().map(|kind| kind.len).sum())])
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        Box::new(Pure(move |inputs: &[Value], outputs: &mut [Value]| {
            let mut all = inputs
                .iter()
                .flat_map(|value| (0..value.kind().len).map(|index| value.element(index)));
            outputs[0] = Value::build(outputs[0].kind(), |_| {
                all.next().unwrap_or((Number::Int(0), Number::Int(0)))
            });
        }))
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::concat(code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// Splits complex numbers: real parts at the first output, imaginary parts at the second.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RealImag {}

impl Node for RealImag {
    fn kind(&self) -> &str {
        "real_imag"
    }
    fn inputs(&self) -> usize {
        1
    }
    fn outputs(&self) -> usize {
        2
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        want(inputs, "complex", |kind| kind.complex)?;
        Ok(vec![inputs[0].real(); 2])
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        Box::new(Pure(|inputs: &[Value], outputs: &mut [Value]| {
            let kind = outputs[0].kind();
            outputs[0] = Value::build(kind, |index| (inputs[0].element(index).0, Number::Int(0)));
            outputs[1] = Value::build(kind, |index| (inputs[0].element(index).1, Number::Int(0)));
        }))
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::real_imag(code, inputs, outputs)
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// Joins real parts at the first input and imaginary parts at the second.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Complex {}

impl Node for Complex {
    fn kind(&self) -> &str {
        "complex"
    }
    fn inputs(&self) -> usize {
        2
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        want(inputs, "real", |kind| !kind.complex)?;
        Ok(vec![super::elementwise(inputs, None)?.complex()])
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        Box::new(Pure(|inputs: &[Value], outputs: &mut [Value]| {
            outputs[0] = Value::build(outputs[0].kind(), |index| {
                (inputs[0].element(index).0, inputs[1].element(index).0)
            });
        }))
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::complex(code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}
