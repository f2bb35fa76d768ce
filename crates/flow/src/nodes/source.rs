//! Ends of the graph, constants, and nodes that only pass on.

use serde::{Deserialize, Serialize};

use super::{INPUT, OUTPUT, named};
use crate::kernels::{Code, Planes};
use crate::literal::Literals;
use crate::node::{Mismatch, Node, Pure, Step, table};
use crate::problem::Cause;
use crate::ratio::Ratio;
use crate::types::Type;
use crate::value::Value;

/// Where samples come in. Has no inputs; whoever runs the graph sets the output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// The type of the samples.
    pub of: Type,
    /// Samples for each sample of the base rate.
    #[serde(default = "base", skip_serializing_if = "is_base")]
    pub rate: Ratio,
}

fn base() -> Ratio {
    Ratio::ONE
}

fn is_base(rate: &Ratio) -> bool {
    *rate == Ratio::ONE
}

impl Input {
    /// The declared rate, if the node is an input.
    pub(crate) fn rate_of(node: &dyn Node) -> Option<Ratio> {
        if node.kind() != INPUT {
            return None;
        }
        node.parameters()?
            .try_into::<Input>()
            .ok()
            .map(|input| input.rate)
    }
}

impl Node for Input {
    fn kind(&self) -> &str {
        INPUT
    }
    fn inputs(&self) -> usize {
        0
    }
    fn check(&self) -> Result<(), String> {
        self.of.check()
    }
    fn types(&self, _: &[Type]) -> Result<Vec<Type>, Mismatch> {
        Ok(vec![self.of])
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        Box::new(Pure(|_: &[Value], _: &mut [Value]| {}))
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// Where samples go out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {}

impl Node for Output {
    fn kind(&self) -> &str {
        OUTPUT
    }
    fn inputs(&self) -> usize {
        1
    }
    fn outputs(&self) -> usize {
        0
    }
    fn types(&self, _: &[Type]) -> Result<Vec<Type>, Mismatch> {
        Ok(vec![])
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        Box::new(Pure(|_: &[Value], _: &mut [Value]| {}))
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// A source of the same value for ever, at any rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// The type.
    pub of: Type,
    /// One number for all elements, or one for each.
    pub value: Literals,
}

impl Node for Constant {
    fn kind(&self) -> &str {
        "constant"
    }
    fn inputs(&self) -> usize {
        0
    }
    fn check(&self) -> Result<(), String> {
        self.of.check()?;
        named("value", self.value.value(self.of)).map(|_| ())
    }
    fn types(&self, _: &[Type]) -> Result<Vec<Type>, Mismatch> {
        Ok(vec![self.of])
    }
    fn constant(&self) -> bool {
        true
    }
    fn rest(&self, _: &[Type]) -> Vec<Value> {
        vec![
            self.value
                .value(self.of)
                .unwrap_or_else(|_| Value::zero(self.of)),
        ]
    }
    fn numbers(&self) -> Option<&Literals> {
        Some(&self.value)
    }
    fn takes(&self, numbers: &Literals) -> Result<(), String> {
        numbers.value(self.of).map(|_| ())
    }
    fn start(&self, _: &[Type], outputs: &[Type]) -> Box<dyn Step> {
        Box::new(ConstantStep(self.rest(outputs).swap_remove(0)))
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

struct ConstantStep(Value);

impl Step for ConstantStep {
    fn compute(&mut self, _: &[Value], outputs: &mut [Value]) {
        outputs[0].clone_from(&self.0);
    }
    fn change(&mut self, numbers: &Literals) {
        if let Ok(value) = numbers.value(self.0.kind()) {
            self.0 = value;
        }
    }
}

/// Puts out what it takes in. Gives a wire a name, or a border a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pass {}

fn pass() -> Box<dyn Step> {
    Box::new(Pure(|inputs: &[Value], outputs: &mut [Value]| {
        outputs[0].clone_from(&inputs[0])
    }))
}

impl Node for Pass {
    fn kind(&self) -> &str {
        "pass"
    }
    fn inputs(&self) -> usize {
        1
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        Ok(vec![inputs[0]])
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        pass()
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::pass(code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// Passes a signal out of an enabled subsystem, and its last value while that is disabled.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// The value before the subsystem has been enabled for the first time.
    #[serde(default = "zero")]
    pub initial: Literals,
}

pub(super) fn zero() -> Literals {
    0.into()
}

impl Node for Hold {
    fn kind(&self) -> &str {
        "hold"
    }
    fn inputs(&self) -> usize {
        1
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        named("initial", self.initial.value(inputs[0])).map_err(Mismatch::of_parameter)?;
        Ok(vec![inputs[0]])
    }
    fn holds(&self) -> bool {
        true
    }
    fn rest(&self, outputs: &[Type]) -> Vec<Value> {
        outputs
            .iter()
            .map(|&kind| {
                self.initial
                    .value(kind)
                    .unwrap_or_else(|_| Value::zero(kind))
            })
            .collect()
    }
    fn state_bytes(&self, inputs: &[Type], _: &[Type]) -> u64 {
        super::kept(1, inputs.first())
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        pass()
    }
    fn emit(&self, code: &mut Code, inputs: &[Planes], outputs: &[Planes]) -> bool {
        super::emit::pass(code, inputs, outputs[0])
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}

/// A node of a kind that a reader does not know. Its graph loads and can be looked at; it does not
/// run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unknown {
    /// What the file calls it.
    pub called: String,
    /// How many inputs it has.
    pub inputs: usize,
    /// The types of its outputs, as the file has them.
    pub outputs: Vec<Type>,
}

impl Node for Unknown {
    fn kind(&self) -> &str {
        "unknown"
    }
    fn inputs(&self) -> usize {
        self.inputs.min(super::MAX_INPUTS)
    }
    fn outputs(&self) -> usize {
        self.outputs.len()
    }
    fn check(&self) -> Result<(), String> {
        super::count(self.inputs, 0)?;
        super::count(self.outputs.len(), 0)?;
        self.outputs.iter().try_for_each(|kind| kind.check())
    }
    fn types(&self, _: &[Type]) -> Result<Vec<Type>, Mismatch> {
        match self.check() {
            Ok(()) => Ok(self.outputs.clone()),
            Err(text) => Err(Mismatch {
                cause: Cause::Parameter,
                text,
            }),
        }
    }
    fn declared(&self) -> Option<Vec<Type>> {
        Some(self.outputs.clone())
    }
    fn runs(&self) -> bool {
        false
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        Box::new(Pure(|_: &[Value], _: &mut [Value]| {}))
    }
    fn parameters(&self) -> Option<toml::Table> {
        table(self)
    }
}
