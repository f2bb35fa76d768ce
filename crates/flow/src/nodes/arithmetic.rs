//! Sums, products, gains, limits and conversions, element by element.

use serde::{Deserialize, Serialize};

use super::{count, elementwise, named, want};
use crate::kernels::{Code, Planes};
use crate::literal::Literals;
use crate::node::{Mismatch, Node, Pure, Step, table};
use crate::number::{Number, Rounding};
use crate::types::{Scalar, Type};
use crate::value::Value;

/// A complex number, or a real one, whose imaginary part takes no part.
pub(super) type Element = (Number, Option<Number>);

pub(super) fn element(value: &Value, index: usize) -> Element {
    let (re, im) = value.element(index);
    (re, value.kind().complex.then_some(im))
}

/// The product of two numbers in `scalar`.
pub(super) fn multiply(a: Element, b: Element, scalar: Scalar) -> Element {
    match (a, b) {
        ((a, None), (b, None)) => (a.mul(b, scalar), None),
        ((a, None), (re, Some(im))) | ((re, Some(im)), (a, None)) => {
            (a.mul(re, scalar), Some(a.mul(im, scalar)))
        }
        ((a, Some(b)), (c, Some(d))) => {
            let re = a.mul(c, scalar).sub(b.mul(d, scalar), scalar);
            let im = a.mul(d, scalar).add(b.mul(c, scalar), scalar);
            (re, Some(im))
        }
    }
}

/// The quotient of two numbers in `scalar`.
fn divide(a: Element, b: Element, scalar: Scalar) -> Element {
    match (a, b) {
        ((a, None), (b, None)) => (a.div(b, scalar), None),
        ((re, Some(im)), (b, None)) => (re.div(b, scalar), Some(im.div(b, scalar))),
        ((re, im), (c, Some(d))) => {
            let im = im.unwrap_or(Number::zero(scalar));
            let [re, im] = Number::quotient([re, im], [c, d], scalar);
            (re, Some(im))
        }
    }
}

fn fill(output: &mut Value, mut each: impl FnMut(usize) -> Element) {
    *output = Value::build(output.kind(), |index| {
        let (re, im) = each(index);
        (re, im.unwrap_or(Number::Int(0)))
    });
}

/// Adds and subtracts its inputs, in their order. With one input: the sum of that vector's
/// elements.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sum {
    /// `+` or `-` for each input.
    pub signs: String,
    /// The type to compute in, if not that of the inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Scalar>,
}

impl Node for Sum {
    fn kind(&self) -> &str {
        "sum"
    }
    fn inputs(&self) -> usize {
        self.signs.len()
    }
    fn check(&self) -> Result<(), String> {
        if self.signs.bytes().any(|sign| !b"+-".contains(&sign)) {
            return Err(format!(
                "signs `{}`: give a `+` or a `-` for each input",
                self.signs
            ));
        }
        count(self.signs.len(), 1)
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        let kind = elementwise(inputs, self.output)?;
        Ok(vec![if inputs.len() == 1 {
            kind.vector(1)
        } else {
            kind
        }])
    }
    fn start(&self, _: &[Type], outputs: &[Type]) -> Box<dyn Step> {
        let minus: Vec<bool> = self.signs.bytes().map(|sign| sign == b'-').collect();
        let scalar = outputs[0].scalar;
        Box::new(Pure(move |inputs: &[Value], outputs: &mut [Value]| {
            let add = |sum: Number, term: Number, minus| {
                if minus {
                    sum.sub(term, scalar)
                } else {
                    sum.add(term, scalar)
                }
            };
            let begin = |term: Number, minus| {
                if minus {
                    term.neg(scalar)
                } else {
                    term.cast(scalar)
                }
            };
            let terms = |index: usize| -> Vec<((Number, Number), bool)> {
                match inputs {
                    [one] => (0..one.kind().len)
                        .map(|at| (one.element(at), minus[0]))
                        .collect(),
                    _ => inputs
                        .iter()
                        .map(|value| value.element(index))
                        .zip(minus.iter().copied())
                        .collect(),
                }
            };
            fill(&mut outputs[0], |index| {
                let terms = terms(index);
                let ((re, im), first) = terms[0];
                let (mut re, mut im) = (begin(re, first), begin(im, first));
                for &((more_re, more_im), minus) in &terms[1..] {
                    re = add(re, more_re, minus);
                    im = add(im, more_im, minus);
                }
                (re, Some(im))
            });
        }))
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::sum(self, code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// Multiplies and divides its inputs, in their order. With one input: the product of that vector's
/// elements.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Product {
    /// `*` or `/` for each input.
    pub operations: String,
    /// The type to compute in, if not that of the inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Scalar>,
}

impl Node for Product {
    fn kind(&self) -> &str {
        "product"
    }
    fn inputs(&self) -> usize {
        self.operations.len()
    }
    fn check(&self) -> Result<(), String> {
        if self
            .operations
            .bytes()
            .any(|operation| !b"*/".contains(&operation))
        {
            return Err(format!(
                "operations `{}`: give a `*` or a `/` for each input",
                self.operations
            ));
        }
        count(self.operations.len(), 1)
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        let kind = elementwise(inputs, self.output)?;
        Ok(vec![if inputs.len() == 1 {
            kind.vector(1)
        } else {
            kind
        }])
    }
    fn start(&self, _: &[Type], outputs: &[Type]) -> Box<dyn Step> {
        let divides: Vec<bool> = self
            .operations
            .bytes()
            .map(|operation| operation == b'/')
            .collect();
        let scalar = outputs[0].scalar;
        Box::new(Pure(move |inputs: &[Value], outputs: &mut [Value]| {
            fill(&mut outputs[0], |index| {
                let factors: Vec<(Element, bool)> = match inputs {
                    [one] => (0..one.kind().len)
                        .map(|at| (element(one, at), divides[0]))
                        .collect(),
                    _ => inputs
                        .iter()
                        .map(|value| element(value, index))
                        .zip(divides.iter().copied())
                        .collect(),
                };
                let (first, inverted) = factors[0];
                let one = (Number::Int(1), None);
                let first = if inverted {
                    divide(one, first, scalar)
                } else {
                    first
                };
                factors[1..]
                    .iter()
                    .fold(first, |product, &(factor, inverted)| {
                        if inverted {
                            divide(product, factor, scalar)
                        } else {
                            multiply(product, factor, scalar)
                        }
                    })
            });
        }))
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::product(self, code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// Multiplies by a constant.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gain {
    /// One factor, or one for each element.
    pub gain: Literals,
    /// The type to compute in, if not that of the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Scalar>,
}

impl Gain {
    fn factor(&self, scalar: Scalar) -> Type {
        Type {
            scalar,
            complex: self.gain.is_complex(),
            len: self.gain.len(),
        }
    }
}

impl Node for Gain {
    fn kind(&self) -> &str {
        "gain"
    }
    fn inputs(&self) -> usize {
        1
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        let scalar = self.output.unwrap_or(inputs[0].scalar);
        named("gain", self.gain.fit(scalar)).map_err(Mismatch::of_parameter)?;
        Ok(vec![elementwise(
            &[inputs[0], self.factor(scalar)],
            Some(scalar),
        )?])
    }
    fn numbers(&self) -> Option<&Literals> {
        Some(&self.gain)
    }
    fn start(&self, _: &[Type], outputs: &[Type]) -> Box<dyn Step> {
        let kind = self.factor(outputs[0].scalar);
        Box::new(GainStep(Value::build(kind, |index| self.gain.at(index))))
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::gain(self, code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

struct GainStep(Value);

impl Step for GainStep {
    fn compute(&mut self, inputs: &[Value], outputs: &mut [Value]) {
        let (gain, scalar) = (&self.0, self.0.kind().scalar);
        fill(&mut outputs[0], |index| {
            multiply(element(&inputs[0], index), element(gain, index), scalar)
        });
    }
    fn change(&mut self, numbers: &Literals) {
        self.0 = Value::build(self.0.kind(), |index| numbers.at(index));
    }
}

/// Limits real numbers to a range: whole numbers to the whole ones in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saturate {
    /// The smallest output.
    pub low: f64,
    /// The largest output.
    pub high: f64,
}

impl Saturate {
    /// The smallest and the largest output of a type; none where it has no number between the
    /// limits.
    pub(super) fn limits(&self, scalar: Scalar) -> Option<(Number, Number)> {
        let [low, high] = [self.low, self.high];
        if scalar.is_float() {
            return Some((
                Number::F64(low).cast(scalar),
                Number::F64(high).cast(scalar),
            ));
        }
        let [least, most] = [f64::NEG_INFINITY, f64::INFINITY].map(|end| {
            let end = Number::F64(end).cast(scalar);
            super::logic::whole(end)
        });
        let low = (low.ceil() as i128).max(least);
        let high = (high.floor() as i128).min(most);
        (low <= high).then_some((Number::Int(low), Number::Int(high)))
    }
}

impl Node for Saturate {
    fn kind(&self) -> &str {
        "saturate"
    }
    fn inputs(&self) -> usize {
        1
    }
    fn check(&self) -> Result<(), String> {
        if self.low <= self.high {
            return Ok(());
        }
        Err(format!(
            "low {} and high {}: low must not be above high",
            self.low, self.high
        ))
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        want(inputs, "real and a number", |kind| {
            !kind.complex && kind.scalar != Scalar::Bool
        })?;
        if self.limits(inputs[0].scalar).is_none() {
            return Err(Mismatch::of_parameter(format!(
                "low {} and high {}: no {} lies between; widen the limits, or convert the input",
                self.low,
                self.high,
                inputs[0].scalar.name()
            )));
        }
        Ok(vec![inputs[0]])
    }
    fn start(&self, _: &[Type], outputs: &[Type]) -> Box<dyn Step> {
        let scalar = outputs[0].scalar;
        let zero = Number::zero(scalar);
        let (low, high) = self.limits(scalar).unwrap_or((zero, zero));
        Box::new(Pure(move |inputs: &[Value], outputs: &mut [Value]| {
            fill(&mut outputs[0], |index| {
                let (value, _) = inputs[0].element(index);
                let below = value.compare(low).is_some_and(|order| order.is_lt());
                let above = value.compare(high).is_some_and(|order| order.is_gt());
                (
                    if below {
                        low
                    } else if above {
                        high
                    } else {
                        value
                    },
                    None,
                )
            });
        }))
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::saturate(self, code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// Converts to another element type. Whole numbers wrap, floats saturate, as `as` does in Rust.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Convert {
    /// The type of the output's numbers.
    pub to: Scalar,
    /// How fractions become whole numbers.
    #[serde(default)]
    pub rounding: Rounding,
}

impl Node for Convert {
    fn kind(&self) -> &str {
        "convert"
    }
    fn inputs(&self) -> usize {
        1
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        if self.to == Scalar::Bool {
            want(inputs, "real to become bool", |kind| !kind.complex)?;
        }
        Ok(vec![Type {
            scalar: self.to,
            ..inputs[0]
        }])
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        let rounding = self.rounding;
        Box::new(Pure(move |inputs: &[Value], outputs: &mut [Value]| {
            outputs[0] = inputs[0].cast_rounded(outputs[0].kind(), rounding);
        }))
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::convert(self, code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// Takes the bits of its input as another type of number of as many: `from_bits` and `to_bits` of
/// Rust. A not-a-number has the bits of the positive quiet one without a payload.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reinterpret {
    /// The type of the output's numbers.
    pub to: Scalar,
}

impl Node for Reinterpret {
    fn kind(&self) -> &str {
        "reinterpret"
    }
    fn inputs(&self) -> usize {
        1
    }
    fn check(&self) -> Result<(), String> {
        match self.to {
            Scalar::Bool => Err("to bool: not all bits are a bool; use `convert`".into()),
            _ => Ok(()),
        }
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        let (to, bytes) = (self.to.name(), self.to.bytes());
        let what = format!("a number of {bytes} bytes to become {to}");
        want(inputs, &what, |kind| {
            kind.scalar != Scalar::Bool && kind.scalar.bytes() == bytes
        })?;
        Ok(vec![Type {
            scalar: self.to,
            ..inputs[0]
        }])
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        let to = self.to;
        Box::new(Pure(move |inputs: &[Value], outputs: &mut [Value]| {
            outputs[0] = Value::build(outputs[0].kind(), |index| {
                let (re, im) = inputs[0].element(index);
                (re.reinterpreted(to), im.reinterpreted(to))
            });
        }))
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}
