//! What a node is: its ports, its types, whether outputs depend on inputs of the same cycle, its
//! state.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::kernels::{Code, Planes};
use crate::literal::Literals;
use crate::problem::Cause;
use crate::ratio::Ratio;
use crate::types::Type;
use crate::value::Value;

/// Why a node refuses its input types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// [`Cause::Type`] or [`Cause::Size`], or [`Cause::Parameter`] where a parameter does not fit
    /// the types.
    pub cause: Cause,
    /// What does not go together, and the way out.
    pub text: String,
}

impl Mismatch {
    /// Element types that do not go together.
    pub fn of_type(text: impl Into<String>) -> Mismatch {
        Mismatch {
            cause: Cause::Type,
            text: text.into(),
        }
    }

    /// Vector lengths that do not go together.
    pub fn of_size(text: impl Into<String>) -> Mismatch {
        Mismatch {
            cause: Cause::Size,
            text: text.into(),
        }
    }

    /// A parameter that does not fit the types.
    pub fn of_parameter(text: impl Into<String>) -> Mismatch {
        Mismatch {
            cause: Cause::Parameter,
            text: text.into(),
        }
    }
}

/// A kind of node with its parameters. Immutable: what changes from sample to sample is in its
/// [`Step`].
pub trait Node: Any + fmt::Debug + Send + Sync {
    /// The name of the kind, in a [`Registry`] and in files.
    fn kind(&self) -> &str;

    /// How many inputs the node has.
    fn inputs(&self) -> usize;

    /// How many outputs the node has.
    fn outputs(&self) -> usize {
        1
    }

    /// What is wrong with the parameters by themselves.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// The types of the outputs for these types of the inputs, or why the inputs are refused.
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch>;

    /// The types of the outputs, where they follow from the parameters alone.
    /// A loop needs one node that is not [`direct`](Node::direct) and has them.
    fn declared(&self) -> Option<Vec<Type>> {
        None
    }

    /// Whether outputs depend on the inputs of the same cycle. Where not, the node may close a
    /// loop.
    fn direct(&self) -> bool {
        true
    }

    /// Samples put out for each sample taken in. Other than 1 only for rate changes.
    fn ratio(&self) -> Ratio {
        Ratio::ONE
    }

    /// Whether the output is the same for ever, so that it goes with any rate.
    fn constant(&self) -> bool {
        false
    }

    /// Whether the node keeps its outputs for the outside while its enabled subsystem is disabled.
    fn holds(&self) -> bool {
        false
    }

    /// Whether the node can run. A reader makes nodes that cannot, of kinds that it does not know.
    fn runs(&self) -> bool {
        true
    }

    /// Samples by which the node delays its input, for nodes that do nothing else.
    fn delay(&self) -> Option<usize> {
        None
    }

    /// The numbers that others may take the place of while the node runs: the value of a constant,
    /// the factor of a gain, the taps of a filter.
    fn numbers(&self) -> Option<&Literals> {
        None
    }

    /// Whether these numbers may take that place, or why not.
    fn takes(&self, numbers: &Literals) -> Result<(), String> {
        match self.numbers() {
            Some(own) => own.replaced_by(numbers),
            None => Err("has no numbers that can be changed".into()),
        }
    }

    /// What the outputs are until the node has run once.
    fn rest(&self, outputs: &[Type]) -> Vec<Value> {
        outputs.iter().map(|&kind| Value::zero(kind)).collect()
    }

    /// Bytes of state for these types, for reports and limits.
    fn state_bytes(&self, _inputs: &[Type], _outputs: &[Type]) -> u64 {
        0
    }

    /// Whether the node keeps nothing from one sample to the next, so that copies of it may share
    /// its samples. Kinds of the library show that by their state; others have to say so.
    fn stateless(&self) -> bool {
        false
    }

    /// The node in its initial state, for types that [`types`](Node::types) has accepted. An
    /// executor calls it in each run, on the thread that the node then runs on; a panic ends the
    /// run and is told with the node's path.
    fn start(&self, inputs: &[Type], outputs: &[Type]) -> Box<dyn Step>;

    /// The node in its initial state as work on bytes, for samples that are too large to be taken
    /// apart into numbers: then [`start`](Node::start) is [`ByBytes`] of the same. For nodes with
    /// real ports of one rate. An executor also calls it to find out whether there is such work,
    /// and drops what it gets.
    fn start_bytes(&self, _inputs: &[Type], _outputs: &[Type]) -> Option<Box<dyn ByteStep>> {
        None
    }

    /// The node as operations on many samples, written to `outputs`. They must give the bits of
    /// [`start`](Node::start)'s step. False where there are none for these types: then the node
    /// goes step by step, which is slow.
    fn emit(&self, _code: &mut Code, _inputs: &[Planes], _outputs: &[Planes]) -> bool {
        false
    }

    /// The parameters for a file. `None` if the node cannot be written to one, as a closure cannot.
    fn parameters(&self) -> Option<toml::Table>;
}

/// Whether copies of a node may share its samples: nothing of one sample reaches the next.
pub(crate) fn can_be_copied(node: &dyn Node, inputs: &[Type], outputs: &[Type]) -> bool {
    static LIBRARY: LazyLock<Registry> = LazyLock::new(Registry::standard);
    // A node of one's own may have the name of a kind of the library.
    let own = (node as &dyn Any).type_id();
    let is_of_library = || LIBRARY.0.values().any(|kind| kind.node == own);
    let keeps_nothing = node.state_bytes(inputs, outputs) == 0 && is_of_library();
    node.direct() && (node.stateless() || keeps_nothing)
}

/// A running node: one sample at a time, in two phases.
///
/// In each cycle `compute` is called for every node in an order that follows the data, then
/// `update` for every node.
pub trait Step: Send {
    /// Computes the outputs. `inputs` is empty if the node is not [`direct`](Node::direct).
    fn compute(&mut self, inputs: &[Value], outputs: &mut [Value]);

    /// Takes the cycle's inputs into the state.
    fn update(&mut self, _inputs: &[Value]) {}

    /// Goes on with other numbers, which [`Node::takes`] has accepted. The state stays.
    fn change(&mut self, _numbers: &Literals) {}
}

/// A running node that takes samples as they lie in memory: the little-endian numbers of a vector,
/// one behind the other, from an address that suits the type on.
pub trait ByteStep: Send {
    /// Computes one sample of each output from one of each input, and takes these into the state.
    /// Outputs have any values before; all of them must be written.
    fn compute(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]);
}

/// A [`ByteStep`] as a [`Step`], by way of its samples' bytes. For real ports.
pub struct ByBytes<B>(pub B);

impl<B: ByteStep> Step for ByBytes<B> {
    fn compute(&mut self, inputs: &[Value], outputs: &mut [Value]) {
        let inputs: Vec<Vec<u8>> = inputs.iter().map(bytes_of).collect();
        let mut made: Vec<Vec<u8>> = outputs.iter().map(bytes_of).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let mut all: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
        self.0.compute(&inputs, &mut all);
        for (output, bytes) in outputs.iter_mut().zip(&made) {
            if let Some(value) = Value::read(output.kind(), bytes) {
                *output = value;
            }
        }
    }
}

impl ByteStep for Box<dyn ByteStep> {
    fn compute(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.as_mut().compute(inputs, outputs);
    }
}

fn bytes_of(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(value.kind().bytes());
    value.write(&mut bytes);
    bytes
}

/// A [`Step`] without state.
pub struct Pure<F>(pub F);

impl<F: Fn(&[Value], &mut [Value]) + Send> Step for Pure<F> {
    fn compute(&mut self, inputs: &[Value], outputs: &mut [Value]) {
        (self.0)(inputs, outputs);
    }
}

/// The parameters of a node that serialises to a table.
pub fn table<T: Serialize>(node: &T) -> Option<toml::Table> {
    toml::Table::try_from(node).ok()
}

/// How nodes of a kind are made.
#[derive(Clone)]
struct Kind {
    /// The type of the nodes.
    node: TypeId,
    make: fn(toml::Table) -> Result<Arc<dyn Node>, String>,
}

/// Kinds of nodes that files may name.
///
/// ```
/// use karoo_flow::{Registry, nodes::Gain};
///
/// let registry = Registry::standard();
/// let gain = registry.make("gain", toml::toml! { gain = 0.5 }).unwrap();
/// assert_eq!(gain.kind(), "gain");
/// assert!(registry.make("gian", toml::Table::new()).unwrap_err().contains("gain"));
/// ```
#[derive(Clone, Default)]
pub struct Registry(BTreeMap<String, Kind>);

impl Registry {
    /// No kinds at all.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// Adds a kind. Its parameters are the fields of `T`.
    pub fn add<T: Node + DeserializeOwned + 'static>(&mut self, kind: &str) -> &mut Registry {
        let made = Kind {
            node: TypeId::of::<T>(),
            make: |table| Ok(Arc::new(crate::parameter::read::<T>(table)?)),
        };
        self.0.insert(kind.into(), made);
        self
    }

    /// The names of all kinds.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// A node of `kind` with these parameters.
    pub fn make(&self, kind: &str, parameters: toml::Table) -> Result<Arc<dyn Node>, String> {
        let Some(Kind { make, .. }) = self.0.get(kind) else {
            let kinds: Vec<&str> = self.kinds().collect();
            return Err(format!(
                "there is no kind `{kind}`: the kinds are {}",
                kinds.join(", ")
            ));
        };
        make(parameters).map_err(|error| format!("{kind}: {error}"))
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_set().entries(self.kinds()).finish()
    }
}
