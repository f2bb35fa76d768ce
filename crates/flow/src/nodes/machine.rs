//! State machines written in Rust.

use std::fmt;
use std::sync::Arc;

use crate::node::{Mismatch, Node, Step};
use crate::types::Type;
use crate::value::Value;

type Advance<S> = dyn Fn(&mut S, &[Value], &mut [Value]) + Send + Sync;

/// A node of one's own: a state, and a function that takes inputs and state to outputs and the next
/// state.
///
/// Partitions go on in whole steps: behind the end of the inputs a machine gets zeros up to the end
/// of its step, and nothing is written of what it makes of them. One without outputs gets all
/// samples before the end, too.
///
/// For a kind that files can name too, implement [`Node`] and add it to a
/// [`Registry`](crate::Registry).
///
/// ```
/// use karoo_flow::{Builder, Interpreter, Type, Value, nodes::Machine};
///
/// // Puts out how many inputs in a row were true.
/// let run = Machine::new("run", [Type::BOOL], [Type::U32], || 0u32, |count, inputs, outputs| {
///     *count = if inputs[0].first().is_true() { *count + 1 } else { 0 };
///     outputs[0] = Value::from(*count);
/// });
/// let g = Builder::new("runs");
/// let flag = g.input("flag", Type::BOOL);
/// g.output("run", g.add(run, [flag]));
/// let mut interpreter = Interpreter::new(&g.build().unwrap()).unwrap();
/// let run = |flag: bool| Value::from(flag);
/// let out = interpreter.run(&[vec![run(true), run(true), run(false), run(true)]]).unwrap();
/// assert_eq!(out[0], [1u32, 2, 0, 1].map(Value::from));
/// ```
pub struct Machine<S> {
    name: String,
    inputs: Vec<Type>,
    outputs: Vec<Type>,
    initial: Arc<dyn Fn() -> S + Send + Sync>,
    advance: Arc<Advance<S>>,
}

impl<S: Send + 'static> Machine<S> {
    /// A machine with ports of these types. Outputs hold their last values when `advance` is
    /// called, and must have their types when it returns.
    pub fn new(
        name: impl Into<String>,
        inputs: impl Into<Vec<Type>>,
        outputs: impl Into<Vec<Type>>,
        initial: impl Fn() -> S + Send + Sync + 'static,
        advance: impl Fn(&mut S, &[Value], &mut [Value]) + Send + Sync + 'static,
    ) -> Machine<S> {
        Machine {
            name: name.into(),
            inputs: inputs.into(),
            outputs: outputs.into(),
            initial: Arc::new(initial),
            advance: Arc::new(advance),
        }
    }
}

impl<S> fmt::Debug for Machine<S> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Machine")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl<S: Send + 'static> Node for Machine<S> {
    fn kind(&self) -> &str {
        "machine"
    }
    fn inputs(&self) -> usize {
        self.inputs.len()
    }
    fn outputs(&self) -> usize {
        self.outputs.len()
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        if let Some(index) = (0..inputs.len()).find(|&index| inputs[index] != self.inputs[index]) {
            let (found, wanted) = (inputs[index], self.inputs[index]);
            let text = format!(
                "input {} of `{}` is {found}: it must be {wanted}",
                index + 1,
                self.name
            );
            let same = found.vector(1) == wanted.vector(1);
            return Err(if same {
                Mismatch::of_size(text)
            } else {
                Mismatch::of_type(text)
            });
        }
        Ok(self.outputs.clone())
    }
    fn declared(&self) -> Option<Vec<Type>> {
        Some(self.outputs.clone())
    }
    fn state_bytes(&self, _: &[Type], _: &[Type]) -> u64 {
        size_of::<S>() as u64
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        Box::new(Running {
            state: (self.initial)(),
            advance: self.advance.clone(),
        })
    }
    fn parameters(&self) -> Option<toml::Table> {
        None
    }
}

struct Running<S> {
    state: S,
    advance: Arc<Advance<S>>,
}

impl<S: Send> Step for Running<S> {
    fn compute(&mut self, inputs: &[Value], outputs: &mut [Value]) {
        (self.advance)(&mut self.state, inputs, outputs);
    }
}
