//! Delays and counters.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::source::zero;
use super::{kept, named};
use crate::kernels::{Code, Planes};
use crate::literal::{Literals, counts};
use crate::node::{Mismatch, Node, Pure, Step, table};
use crate::number::Number;
use crate::types::{Scalar, Type};
use crate::value::Value;

/// The longest delay, in samples.
pub const MAX_DELAY: usize = 1 << 24;

/// Initial samples, oldest first: one number for all, one for each sample of a scalar,
/// one for each element of every sample, or one for each element of each sample.
pub(super) fn initial(
    literals: &Literals,
    samples: usize,
    kind: Type,
) -> Result<Vec<Value>, String> {
    fit(literals, samples, kind)?;
    let each = |sample: usize| -> usize {
        if literals.len() == kind.len {
            0
        } else {
            sample * kind.len
        }
    };
    Ok((0..samples)
        .map(|s| Value::build(kind, |index| literals.at(each(s) + index)))
        .collect())
}

/// Whether there are as many initial numbers as `initial` takes, without making the samples.
fn fit(literals: &Literals, samples: usize, kind: Type) -> Result<(), String> {
    let given = literals.len();
    if given != 1 && given != kind.len && given != samples.saturating_mul(kind.len) {
        let all = samples.saturating_mul(kind.len);
        return Err(format!(
            "{given} initial numbers for {samples} samples of {kind}: give {}",
            counts(&[1, kind.len, all])
        ));
    }
    if literals.is_complex() && !kind.complex {
        return Err(format!("complex initial numbers for {kind}, which is real"));
    }
    named("initial", literals.fit(kind.scalar))
}

/// Puts out its input of `length` samples ago. What is there at the start comes out first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delay {
    /// How many samples. With 0 the input passes at once.
    pub length: usize,
    /// The samples that are in the delay at the start, the first to come out first.
    #[serde(default = "zero")]
    pub initial: Literals,
    /// The type, where it cannot be found because the delay closes a loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<Type>,
}

impl Delay {
    /// What each of the samples is that are in the delay at the start, where all are alike.
    pub(crate) fn alike(&self, kind: Type) -> Option<Value> {
        let alike = [1, kind.len].contains(&self.initial.len());
        let samples = alike.then(|| initial(&self.initial, 1, kind).ok())?;
        samples?.pop()
    }
}

impl Node for Delay {
    fn kind(&self) -> &str {
        "delay"
    }
    fn inputs(&self) -> usize {
        1
    }
    fn check(&self) -> Result<(), String> {
        if self.length > MAX_DELAY {
            return Err(format!(
                "a delay of {} samples: it must be at most {MAX_DELAY}",
                self.length
            ));
        }
        named("initial", self.initial.check())?;
        self.of.map_or(Ok(()), Type::check)
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        same(self.of, inputs[0])?;
        if self.length > 0 {
            fit(&self.initial, self.length, inputs[0]).map_err(Mismatch::of_parameter)?;
        }
        Ok(vec![inputs[0]])
    }
    fn declared(&self) -> Option<Vec<Type>> {
        self.of.map(|kind| vec![kind])
    }
    fn direct(&self) -> bool {
        self.length == 0
    }
    fn delay(&self) -> Option<usize> {
        Some(self.length)
    }
    fn state_bytes(&self, inputs: &[Type], _: &[Type]) -> u64 {
        kept(self.length, inputs.first())
    }
    fn start(&self, inputs: &[Type], _: &[Type]) -> Box<dyn Step> {
        if self.length == 0 {
            return Box::new(Pure(|inputs: &[Value], outputs: &mut [Value]| {
                outputs[0].clone_from(&inputs[0])
            }));
        }
        let values = initial(&self.initial, self.length, inputs[0]);
        let values = values.unwrap_or_else(|_| vec![Value::zero(inputs[0]); self.length]);
        Box::new(DelayStep {
            line: values.into(),
        })
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::delay(self, code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

fn same(of: Option<Type>, input: Type) -> Result<(), Mismatch> {
    match of {
        Some(of) if of.len != input.len => Err(Mismatch::of_size(format!(
            "takes {input} where it is of {of}: give both the same length"
        ))),
        Some(of) if of != input => Err(Mismatch::of_type(format!(
            "takes {input} where it is of {of}: convert, or change `of`"
        ))),
        _ => Ok(()),
    }
}

struct DelayStep {
    /// Oldest first.
    line: VecDeque<Value>,
}

impl Step for DelayStep {
    fn compute(&mut self, _: &[Value], outputs: &mut [Value]) {
        outputs[0].clone_from(&self.line[0]);
    }
    fn update(&mut self, inputs: &[Value]) {
        self.line.pop_front();
        self.line.push_back(inputs[0].clone());
    }
}

/// The order of samples in a vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The oldest sample first.
    #[default]
    Oldest,
    /// The newest sample first.
    Newest,
}

/// Puts out its last `length` input samples as a vector; of vectors, one behind the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TappedDelay {
    /// How many earlier samples.
    pub length: usize,
    /// Whether the present sample is there too. Then the output depends on the input of the same
    /// cycle.
    #[serde(default)]
    pub current: bool,
    /// Which sample comes first in the vector.
    #[serde(default)]
    pub order: Order,
    /// Whether there is a second input, a boolean. In a cycle in which it is true the earlier
    /// samples are `initial` again; the output depends on it in the same cycle.
    #[serde(default)]
    pub reset: bool,
    /// The earlier samples at the start, oldest first: one number for all, or one for each, and of
    /// vectors one for each element of every sample, or of each sample.
    #[serde(default = "zero")]
    pub initial: Literals,
    /// The type of the input, where it cannot be found because the delay closes a loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<Type>,
}

impl TappedDelay {
    /// How many samples are put out.
    pub(super) fn len(&self) -> usize {
        self.length + usize::from(self.current)
    }

    /// The type of the output for this type of samples.
    fn output(&self, kind: Type) -> Type {
        kind.vector(kind.len.saturating_mul(self.len()))
    }
}

impl Node for TappedDelay {
    fn kind(&self) -> &str {
        "tapped_delay"
    }
    fn inputs(&self) -> usize {
        1 + usize::from(self.reset)
    }
    fn check(&self) -> Result<(), String> {
        if self.length == 0 || self.length >= crate::types::MAX_LEN {
            let most = crate::types::MAX_LEN - 1;
            return Err(format!(
                "a tapped delay of {} samples: it must be 1 to {most}",
                self.length
            ));
        }
        self.of.map_or(Ok(()), Type::check)
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        same(self.of, inputs[0])?;
        if let Some(reset) = inputs.get(1).filter(|kind| **kind != Type::BOOL) {
            return Err(Mismatch::of_type(format!(
                "input 2 is {reset}: a reset is one bool, or in GraphML one real number; \
                 convert it"
            )));
        }
        self.check().map_err(Mismatch::of_parameter)?;
        fit(&self.initial, self.length, inputs[0]).map_err(Mismatch::of_parameter)?;
        let output = self.output(inputs[0]);
        output.check().map_err(Mismatch::of_size)?;
        Ok(vec![output])
    }
    fn declared(&self) -> Option<Vec<Type>> {
        self.check().ok()?;
        self.of.map(|kind| vec![self.output(kind)])
    }
    fn direct(&self) -> bool {
        self.current || self.reset
    }
    fn state_bytes(&self, inputs: &[Type], _: &[Type]) -> u64 {
        kept(self.length, inputs.first())
    }
    fn start(&self, inputs: &[Type], _: &[Type]) -> Box<dyn Step> {
        let values = initial(&self.initial, self.length, inputs[0]);
        let values = values.unwrap_or_else(|_| vec![Value::zero(inputs[0]); self.length]);
        Box::new(TappedStep {
            initial: if self.reset { values.clone() } else { vec![] },
            line: values.into(),
            current: self.current,
            order: self.order,
        })
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::tapped(self, code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

struct TappedStep {
    /// Oldest first, without the present sample.
    line: VecDeque<Value>,
    /// What a reset puts there.
    initial: Vec<Value>,
    current: bool,
    order: Order,
}

impl Step for TappedStep {
    fn compute(&mut self, inputs: &[Value], outputs: &mut [Value]) {
        if inputs.get(1).is_some_and(|reset| reset.first().is_true()) {
            self.line = self.initial.clone().into();
        }
        let current = inputs.first().filter(|_| self.current);
        let line: Vec<&Value> = self.line.iter().chain(current).collect();
        let (last, len) = (line.len() - 1, line[0].kind().len);
        outputs[0] = Value::build(outputs[0].kind(), |index| {
            let (sample, element) = (index / len, index % len);
            let sample = match self.order {
                Order::Oldest => sample,
                Order::Newest => last - sample,
            };
            line[sample].element(element)
        });
    }
    fn update(&mut self, inputs: &[Value]) {
        self.line.pop_front();
        self.line.push_back(inputs[0].clone());
    }
}

/// Counts samples from 0 to below `period`, again and again. Has no inputs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counter {
    /// How many values there are: below 2^63, as files have no larger numbers.
    pub period: u64,
    /// The first value.
    #[serde(default)]
    pub initial: u64,
    /// The type of the output.
    pub output: Scalar,
}

impl Node for Counter {
    fn kind(&self) -> &str {
        "counter"
    }
    fn inputs(&self) -> usize {
        0
    }
    fn check(&self) -> Result<(), String> {
        if i64::try_from(self.period).is_err() {
            return Err(format!(
                "a period of {}: it must be at most {}",
                self.period,
                i64::MAX
            ));
        }
        if self.initial < self.period {
            return Ok(());
        }
        Err(format!(
            "initial {} and period {}: initial must be below period",
            self.initial, self.period
        ))
    }
    fn types(&self, _: &[Type]) -> Result<Vec<Type>, Mismatch> {
        let last = Number::Int(i128::from(self.period) - 1);
        if !last.fits(self.output) {
            return Err(Mismatch::of_parameter(format!(
                "counts to {}, which no {} is: give another type, or a shorter period",
                self.period - 1,
                self.output.name()
            )));
        }
        Ok(vec![Type::of(self.output)])
    }
    fn state_bytes(&self, _: &[Type], _: &[Type]) -> u64 {
        8
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        Box::new(CounterStep {
            count: self.initial,
            period: self.period,
        })
    }
    fn emit(&self, code: &mut Code, _: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::counter(self, code, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

struct CounterStep {
    count: u64,
    period: u64,
}

impl Step for CounterStep {
    fn compute(&mut self, _: &[Value], outputs: &mut [Value]) {
        outputs[0] = Value::build(outputs[0].kind(), |_| {
            (Number::Int(self.count.into()), Number::Int(0))
        });
    }
    fn update(&mut self, _: &[Value]) {
        self.count = if self.count + 1 == self.period {
            0
        } else {
            self.count + 1
        };
    }
}
