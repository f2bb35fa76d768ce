//! Filters, inner products, tables and oscillators.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::arithmetic::{Element, element};
use super::source::zero;
use super::{elementwise, kept, named, want};
use crate::kernels::{Code, Planes};
use crate::literal::{Literals, counts};
use crate::node::{Mismatch, Node, Pure, Step, table};
use crate::number::Number;
use crate::types::{Scalar, Type};
use crate::value::Value;

/// `sum + a · b` in `scalar`: one fused multiply-add for each product of real numbers,
/// in the order re·re, im·im for the real part and re·im, im·re for the imaginary one.
fn accumulate(sum: (Number, Number), a: Element, b: Element, scalar: Scalar) -> (Number, Number) {
    let (mut re, mut im) = sum;
    re = a.0.mul_add(b.0, re, scalar);
    if let (Some(a_im), Some(b_im)) = (a.1, b.1) {
        re = a_im.neg(scalar).mul_add(b_im, re, scalar);
    }
    if let Some(b_im) = b.1 {
        im = a.0.mul_add(b_im, im, scalar);
    }
    if let Some(a_im) = a.1 {
        im = a_im.mul_add(b.0, im, scalar);
    }
    (re, im)
}

fn begin(scalar: Scalar) -> (Number, Number) {
    (Number::zero(scalar), Number::zero(scalar))
}

/// Filters by constant taps: output n is the sum of tap k times input n - k, from k = 0 up.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fir {
    /// The taps; the first goes with the newest sample.
    pub taps: Literals,
    /// The samples before the first, newest first: one number for all, or one for each tap but one.
    #[serde(default = "zero")]
    pub initial: Literals,
    /// The type to compute in, if not that of the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Scalar>,
}

fn scalar_input(kind: Type) -> Result<(), Mismatch> {
    if kind.len == 1 {
        return Ok(());
    }
    Err(Mismatch::of_size(format!(
        "takes {kind}: a filter takes a scalar"
    )))
}

pub(super) fn history(
    initial: &Literals,
    taps: usize,
    kind: Type,
) -> Result<VecDeque<Value>, Mismatch> {
    let past = taps - 1;
    if initial.len() != 1 && initial.len() != past {
        let text = format!(
            "{} initial samples for {taps} taps: give {}",
            initial.len(),
            counts(&[1, past])
        );
        return Err(Mismatch::of_parameter(text));
    }
    if initial.is_complex() && !kind.complex {
        return Err(Mismatch::of_parameter(format!(
            "complex initial samples for {kind}, which is real"
        )));
    }
    named("initial", initial.fit(kind.scalar)).map_err(Mismatch::of_parameter)?;
    Ok((0..past)
        .map(|index| Value::build(kind, |_| initial.at(index)))
        .collect())
}

impl Node for Fir {
    fn kind(&self) -> &str {
        "fir"
    }
    fn inputs(&self) -> usize {
        1
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        scalar_input(inputs[0])?;
        named("taps", self.taps.check()).map_err(Mismatch::of_parameter)?;
        history(&self.initial, self.taps.len(), inputs[0])?;
        let kind = elementwise(inputs, self.output)?;
        named("taps", self.taps.fit(kind.scalar)).map_err(Mismatch::of_parameter)?;
        Ok(vec![if self.taps.is_complex() {
            kind.complex()
        } else {
            kind
        }])
    }
    fn state_bytes(&self, inputs: &[Type], _: &[Type]) -> u64 {
        kept(self.taps.len() - 1, inputs.first())
    }
    fn start(&self, inputs: &[Type], outputs: &[Type]) -> Box<dyn Step> {
        let scalar = outputs[0].scalar;
        let past = history(&self.initial, self.taps.len(), inputs[0]).unwrap_or_default();
        Box::new(FirStep {
            taps: elements(&self.taps, self.taps.is_complex(), scalar),
            scalar,
            past,
        })
    }
    fn numbers(&self) -> Option<&Literals> {
        Some(&self.taps)
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::fir(self, code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

fn elements(taps: &Literals, complex: bool, scalar: Scalar) -> Vec<Element> {
    let tap = |&(re, im): &(Number, Number)| (re.cast(scalar), complex.then_some(im.cast(scalar)));
    taps.parts().iter().map(tap).collect()
}

struct FirStep {
    /// Constant taps; none where they come by the second input.
    taps: Vec<Element>,
    /// The type to compute in.
    scalar: Scalar,
    /// Newest first, without the present sample.
    past: VecDeque<Value>,
}

impl Step for FirStep {
    fn compute(&mut self, inputs: &[Value], outputs: &mut [Value]) {
        let scalar = self.scalar;
        let from_port: Vec<Element> = inputs.get(1).map_or(vec![], |taps| {
            (0..taps.kind().len).map(|at| element(taps, at)).collect()
        });
        let taps = if inputs.len() > 1 {
            &from_port
        } else {
            &self.taps
        };
        let samples = inputs[..1].iter().chain(&self.past);
        let sum = taps
            .iter()
            .zip(samples)
            .fold(begin(scalar), |sum, (&tap, sample)| {
                accumulate(sum, tap, element(sample, 0), scalar)
            });
        outputs[0] = Value::build(outputs[0].kind(), |_| sum);
    }
    fn update(&mut self, inputs: &[Value]) {
        if self.past.pop_back().is_some() {
            self.past.push_front(inputs[0].clone());
        }
    }
    fn change(&mut self, numbers: &Literals) {
        let complex = self.taps.iter().any(|tap| tap.1.is_some());
        self.taps = elements(numbers, complex, self.scalar);
    }
}

/// Filters by the taps that the second input carries. The samples before the first are 0.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirFromPort {
    /// The type to compute in, if not that of the inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Scalar>,
}

impl Node for FirFromPort {
    fn kind(&self) -> &str {
        "fir_from_port"
    }
    fn inputs(&self) -> usize {
        2
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        scalar_input(inputs[0])?;
        Ok(vec![elementwise(inputs, self.output)?.vector(1)])
    }
    fn state_bytes(&self, inputs: &[Type], _: &[Type]) -> u64 {
        kept(inputs[1].len - 1, inputs.first())
    }
    fn start(&self, inputs: &[Type], outputs: &[Type]) -> Box<dyn Step> {
        let past = (1..inputs[1].len).map(|_| Value::zero(inputs[0])).collect();
        Box::new(FirStep {
            taps: vec![],
            scalar: outputs[0].scalar,
            past,
        })
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// The inner product of two vectors.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dot {
    /// Whether the first vector is conjugated.
    #[serde(default)]
    pub conjugate: bool,
    /// The type to compute in, if not that of the inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Scalar>,
}

impl Node for Dot {
    fn kind(&self) -> &str {
        "dot"
    }
    fn inputs(&self) -> usize {
        2
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        if inputs[0].len != inputs[1].len {
            let text = format!(
                "the inputs are {} and {}: make their lengths equal",
                inputs[0], inputs[1]
            );
            return Err(Mismatch::of_size(text));
        }
        Ok(vec![elementwise(inputs, self.output)?.vector(1)])
    }
    fn start(&self, inputs: &[Type], outputs: &[Type]) -> Box<dyn Step> {
        let (len, scalar, conjugate) = (inputs[0].len, outputs[0].scalar, self.conjugate);
        Box::new(Pure(move |inputs: &[Value], outputs: &mut [Value]| {
            let sum = (0..len).fold(begin(scalar), |sum, index| {
                let (re, im) = element(&inputs[0], index);
                let im = im.map(|im| if conjugate { im.neg(scalar) } else { im });
                accumulate(sum, (re, im), element(&inputs[1], index), scalar)
            });
            outputs[0] = Value::build(outputs[0].kind(), |_| sum);
        }))
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::dot(self, code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// What a [`Lut`] does between its points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lookup {
    /// Takes the point below.
    #[default]
    Below,
    /// Takes the nearest point.
    Nearest,
    /// Interpolates linearly.
    Linear,
}

/// A table over evenly spaced points. Inputs outside take the table's end.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lut {
    /// The input that goes with the first entry.
    pub first: f64,
    /// The distance of the inputs that go with neighbouring entries.
    pub step: f64,
    /// The entries.
    pub table: Literals,
    /// What happens between the points.
    #[serde(default)]
    pub between: Lookup,
    /// The type of the output.
    pub output: Scalar,
}

impl Node for Lut {
    fn kind(&self) -> &str {
        "lut"
    }
    fn inputs(&self) -> usize {
        1
    }
    fn check(&self) -> Result<(), String> {
        if !(self.step > 0.0 && self.step.is_finite() && self.first.is_finite()) {
            return Err(format!(
                "first {} and step {}: both must be finite, and step above 0",
                self.first, self.step
            ));
        }
        if self.table.is_complex() && self.output == Scalar::Bool {
            return Err("a table of bool has no complex entries".into());
        }
        let fits = match self.between {
            // What comes out lies between entries, which are no outputs themselves.
            Lookup::Linear if !self.output.is_float() => self.table.check(),
            _ => self.table.fit(self.output),
        };
        named("table", fits)
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        want(inputs, "real", |kind| !kind.complex)?;
        Ok(vec![Type {
            scalar: self.output,
            complex: self.table.is_complex(),
            len: inputs[0].len,
        }])
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        let Lut {
            first,
            step,
            between,
            ..
        } = *self;
        let table = self.table.parts().to_vec();
        let last = table.len() - 1;
        Box::new(Pure(move |inputs: &[Value], outputs: &mut [Value]| {
            outputs[0] = Value::build(outputs[0].kind(), |index| {
                let at = (inputs[0].element(index).0.to_f64() - first) / step;
                // Casts saturate: below the table is 0, not-a-number too.
                let below = (at as usize).min(last);
                match between {
                    Lookup::Below => table[below],
                    Lookup::Nearest => table[((at + 0.5) as usize).min(last)],
                    Lookup::Linear => {
                        let (a, b) = (table[below], table[(below + 1).min(last)]);
                        let part = (at - below as f64).clamp(0.0, 1.0);
                        let mix = |a: Number, b: Number| {
                            Number::F64(a.to_f64() + part * (b.to_f64() - a.to_f64()))
                        };
                        (mix(a.0, b.0), mix(a.1, b.1))
                    }
                }
            });
        }))
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::lut(self, code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// A numerically controlled oscillator: cos and sin of a phase that grows by the input each sample.
///
/// The phase is counted in 2^-`bits` turns and wraps. The output is that of the phase before the
/// input is added: the oscillator may close a loop.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nco {
    /// Bits of the phase, 1 to 32.
    pub bits: u32,
    /// Bits of the phase that the output sees, at most `bits`.
    pub address_bits: u32,
    /// The phase of the first sample, below 2^`bits`.
    #[serde(default)]
    pub initial: u32,
    /// The type of the output's numbers.
    #[serde(default = "single")]
    pub output: Scalar,
}

fn single() -> Scalar {
    Scalar::F32
}

impl Node for Nco {
    fn kind(&self) -> &str {
        "nco"
    }
    fn inputs(&self) -> usize {
        1
    }
    fn check(&self) -> Result<(), String> {
        if !(1..=32).contains(&self.bits) || !(1..=self.bits).contains(&self.address_bits) {
            return Err(format!(
                "bits {} and address_bits {}: 1 ≤ address_bits ≤ bits ≤ 32",
                self.bits, self.address_bits
            ));
        }
        let most = u32::MAX >> (32 - self.bits);
        if self.initial > most {
            return Err(format!(
                "initial {} of a phase of {} bits: it must be at most {most}",
                self.initial, self.bits
            ));
        }
        if !self.output.is_float() {
            return Err(format!(
                "output {}: it must be f32 or f64",
                self.output.name()
            ));
        }
        Ok(())
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        want(inputs, "one real whole number", |kind| {
            kind.scalar.is_integer() && !kind.complex && kind.len == 1
        })?;
        Ok(vec![Type::of(self.output).complex()])
    }
    fn declared(&self) -> Option<Vec<Type>> {
        self.check().ok()?;
        Some(vec![Type::of(self.output).complex()])
    }
    fn direct(&self) -> bool {
        false
    }
    fn state_bytes(&self, _: &[Type], _: &[Type]) -> u64 {
        4
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        let mask = u32::MAX >> (32 - self.bits);
        let (drop, scale) = (
            self.bits - self.address_bits,
            f64::from(self.address_bits).exp2(),
        );
        Box::new(NcoStep {
            phase: self.initial & mask,
            mask,
            drop,
            scale,
        })
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::nco(self, code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

struct NcoStep {
    phase: u32,
    mask: u32,
    drop: u32,
    scale: f64,
}

impl Step for NcoStep {
    fn compute(&mut self, _: &[Value], outputs: &mut [Value]) {
        let angle = std::f64::consts::TAU * (f64::from(self.phase >> self.drop) / self.scale);
        outputs[0] = Value::build(outputs[0].kind(), |_| {
            (Number::F64(angle.cos()), Number::F64(angle.sin()))
        });
    }
    fn update(&mut self, inputs: &[Value]) {
        let step = super::logic::whole(inputs[0].first()) as u32;
        self.phase = self.phase.wrapping_add(step) & self.mask;
    }
}
