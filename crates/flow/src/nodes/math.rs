//! Functions of real numbers, and the points of modulations.

use serde::{Deserialize, Serialize};

use super::{common_len, named, want};
use crate::kernels::{Code, Planes};
use crate::literal::Literals;
use crate::node::{Mismatch, Node, Pure, Step, table};
use crate::number::Number;
use crate::operators::FunctionOf;
use crate::types::{Scalar, Type};
use crate::value::Value;

/// A function of each element, computed in double precision and rounded once to the type of the
/// input.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Function {
    /// The function that is computed.
    pub of: FunctionOf,
}

fn real_float(inputs: &[Type]) -> Result<(), Mismatch> {
    want(inputs, "a real f32 or f64", |kind| {
        kind.scalar.is_float() && !kind.complex
    })
}

impl Node for Function {
    fn kind(&self) -> &str {
        "function"
    }
    fn inputs(&self) -> usize {
        1
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        real_float(inputs)?;
        Ok(vec![inputs[0]])
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        let function = self.of.in_f64();
        Box::new(Pure(move |inputs: &[Value], outputs: &mut [Value]| {
            outputs[0] = Value::build(outputs[0].kind(), |index| {
                (
                    Number::F64(function(inputs[0].element(index).0.to_f64())),
                    Number::Int(0),
                )
            });
        }))
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::function(self, code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// The angle of (second input, first input), as `atan2(y, x)`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Atan2 {}

impl Node for Atan2 {
    fn kind(&self) -> &str {
        "atan2"
    }
    fn inputs(&self) -> usize {
        2
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        real_float(inputs)?;
        Ok(vec![super::elementwise(inputs, None)?])
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        Box::new(Pure(|inputs: &[Value], outputs: &mut [Value]| {
            outputs[0] = Value::build(outputs[0].kind(), |index| {
                let (y, x) = (
                    inputs[0].element(index).0.to_f64(),
                    inputs[1].element(index).0.to_f64(),
                );
                (Number::F64(y.atan2(x)), Number::Int(0))
            });
        }))
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::atan2(code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// The points of a square constellation of `bits` bits a symbol with mean power 1, Gray coded on
/// both axes: 1 is BPSK, 2 is QPSK, 4 is 16-QAM. The upper half of a symbol's bits is the real
/// part's.
pub fn constellation(bits: u32) -> Option<Literals> {
    if bits != 1 && (bits == 0 || bits % 2 == 1 || bits > 16) {
        return None;
    }
    let axis_bits = bits.div_ceil(2);
    let levels = 1u32 << axis_bits;
    let axis = |code: u32| {
        // The place of a Gray code is the running exclusive or of its bits.
        let place = (0..axis_bits).fold(0, |place, shift| place ^ (code >> shift));
        2.0 * f64::from(place) - f64::from(levels - 1)
    };
    let power = (f64::from(levels).powi(2) - 1.0) / 3.0 * if bits == 1 { 1.0 } else { 2.0 };
    let scale = power.sqrt().recip();
    let point = |symbol: u32| {
        let im = if bits == 1 {
            0.0
        } else {
            axis(symbol & (levels - 1))
        };
        let re = axis(if bits == 1 {
            symbol
        } else {
            symbol >> axis_bits
        });
        (Number::F64(re * scale), Number::F64(im * scale))
    };
    Literals::new((0..1 << bits).map(point).collect())
}

/// Turns symbol numbers into points. A symbol out of range takes the nearest number's point.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Modulate {
    /// The point of each symbol, for example those of [`constellation`].
    pub points: Literals,
    /// The type of the points' parts.
    pub output: Scalar,
}

impl Node for Modulate {
    fn kind(&self) -> &str {
        "modulate"
    }
    fn inputs(&self) -> usize {
        1
    }
    fn check(&self) -> Result<(), String> {
        if self.output == Scalar::Bool {
            Err("points are not bool".into())
        } else {
            named("points", self.points.fit(self.output))
        }
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        want(inputs, "a real whole number or bool", |kind| {
            !kind.scalar.is_float() && !kind.complex
        })?;
        Ok(vec![Type::of(self.output).complex().vector(inputs[0].len)])
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        let points = self.points.parts().to_vec();
        let last = points.len() as i128 - 1;
        Box::new(Pure(move |inputs: &[Value], outputs: &mut [Value]| {
            outputs[0] = Value::build(outputs[0].kind(), |index| {
                points[super::logic::whole(inputs[0].element(index).0).clamp(0, last) as usize]
            });
        }))
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::modulate(self, code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// Turns points into the numbers of the nearest symbols; of two equally near, the lower.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Demodulate {
    /// The point of each symbol.
    pub points: Literals,
    /// The type of the symbol numbers.
    pub output: Scalar,
}

impl Node for Demodulate {
    fn kind(&self) -> &str {
        "demodulate"
    }
    fn inputs(&self) -> usize {
        1
    }
    fn check(&self) -> Result<(), String> {
        named("points", self.points.check())?;
        let last = self.points.len() - 1;
        if Number::Int(last as i128).fits(self.output) {
            return Ok(());
        }
        Err(format!(
            "symbols up to {last}, which no {} is: give another type, or fewer points",
            self.output.name()
        ))
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        Ok(vec![Type::of(self.output).vector(common_len(inputs)?)])
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        let points: Vec<(f64, f64)> = self
            .points
            .parts()
            .iter()
            .map(|(re, im)| (re.to_f64(), im.to_f64()))
            .collect();
        Box::new(Pure(move |inputs: &[Value], outputs: &mut [Value]| {
            outputs[0] = Value::build(outputs[0].kind(), |index| {
                let (re, im) = inputs[0].element(index);
                let far = |point: &(f64, f64)| {
                    (re.to_f64() - point.0).powi(2) + (im.to_f64() - point.1).powi(2)
                };
                let nearest = points
                    .iter()
                    .map(far)
                    .enumerate()
                    .min_by(|a, b| a.1.total_cmp(&b.1));
                (
                    Number::Int(nearest.map_or(0, |(symbol, _)| symbol as i128)),
                    Number::Int(0),
                )
            });
        }))
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::demodulate(self, code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}
