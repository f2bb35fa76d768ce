//! The library of nodes.
//!
//! Two rules hold for all of them:
//!
//! * **No type changes by itself.** Inputs of arithmetic have one element type, unless the node
//!   names its `output` type: then each input is cast to that first, and all is computed there.
//! * **A scalar goes with a vector** in element-wise nodes, and a real number with a complex one.
//!
//! Sums of products ([`Fir`], [`Dot`]) are accumulated from the first element up, by one fused
//! multiply-add each: an executor that follows gives the same bits with any vector width.

mod arithmetic;
mod emit;
mod filter;
mod logic;
mod machine;
mod math;
mod rate;
mod route;
mod source;
mod state;

pub use arithmetic::{Convert, Gain, Product, Reinterpret, Saturate, Sum};
pub use filter::{Dot, Fir, FirFromPort, Lookup, Lut, Nco};
pub use logic::{Bitwise, Compare, Logic, LogicOp, Shift};
pub use machine::Machine;
pub use math::{Atan2, Demodulate, Function, Modulate, constellation};
pub use rate::{Down, Repeat, Up};
pub use route::{Complex, Concat, Criterion, Mux, RealImag, Select, SelectAt, Switch};
pub use source::{Constant, Hold, Input, Output, Pass, Unknown};
pub use state::{Counter, Delay, Order, TappedDelay};

pub use crate::operators::{BitwiseOp, Comparison, FunctionOf, ShiftKind};

use crate::node::{Mismatch, Registry};
use crate::types::{Scalar, Type};

impl Registry {
    /// All kinds of [`nodes`](crate::nodes).
    pub fn standard() -> Registry {
        let mut registry = Registry::new();
        register(&mut registry);
        registry
    }
}

/// The kind of [`Input`].
pub const INPUT: &str = "input";
/// The kind of [`Output`].
pub const OUTPUT: &str = "output";

/// Adds all kinds of this module.
pub fn register(registry: &mut Registry) {
    registry
        .add::<Input>(INPUT)
        .add::<Output>(OUTPUT)
        .add::<Constant>("constant")
        .add::<Pass>("pass")
        .add::<Hold>("hold")
        .add::<Unknown>("unknown")
        .add::<Sum>("sum")
        .add::<Product>("product")
        .add::<Gain>("gain")
        .add::<Saturate>("saturate")
        .add::<Convert>("convert")
        .add::<Reinterpret>("reinterpret")
        .add::<Compare>("compare")
        .add::<Logic>("logic")
        .add::<Bitwise>("bitwise")
        .add::<Shift>("shift")
        .add::<Mux>("mux")
        .add::<Switch>("switch")
        .add::<Select>("select")
        .add::<SelectAt>("select_at")
        .add::<Concat>("concat")
        .add::<RealImag>("real_imag")
        .add::<Complex>("complex")
        .add::<Delay>("delay")
        .add::<TappedDelay>("tapped_delay")
        .add::<Counter>("counter")
        .add::<Fir>("fir")
        .add::<FirFromPort>("fir_from_port")
        .add::<Dot>("dot")
        .add::<Lut>("lut")
        .add::<Nco>("nco")
        .add::<Function>("function")
        .add::<Atan2>("atan2")
        .add::<Modulate>("modulate")
        .add::<Demodulate>("demodulate")
        .add::<Down>("down")
        .add::<Up>("up")
        .add::<Repeat>("repeat");
}

/// The most inputs of one node.
pub const MAX_INPUTS: usize = 4096;

/// The common length of inputs, where scalars go with vectors.
fn common_len(inputs: &[Type]) -> Result<usize, Mismatch> {
    let mut len = 1;
    let mut first = 0;
    for (index, kind) in inputs.iter().enumerate() {
        if len == 1 {
            (len, first) = (kind.len, index);
        } else if kind.len != 1 && kind.len != len {
            return Err(Mismatch::of_size(format!(
                "input {} has {} elements where input {} has {len}: make them equal, or one of them a scalar",
                index + 1,
                kind.len,
                first + 1
            )));
        }
    }
    Ok(len)
}

/// The type of an element-wise node's output: that of its inputs, or in the type `output`.
fn elementwise(inputs: &[Type], output: Option<Scalar>) -> Result<Type, Mismatch> {
    let len = common_len(inputs)?;
    let complex = inputs.iter().any(|kind| kind.complex);
    let scalar = match (output, inputs.first()) {
        (Some(output), _) => output,
        (None, None) => {
            return Err(Mismatch::of_parameter(
                "a node without inputs needs an `output` type",
            ));
        }
        (None, Some(first)) => {
            if let Some(index) = inputs.iter().position(|kind| kind.scalar != first.scalar) {
                return Err(Mismatch::of_type(format!(
                    "input {} is {} where input 1 is {first}: convert one, or give `output`",
                    index + 1,
                    inputs[index]
                )));
            }
            first.scalar
        }
    };
    if scalar == Scalar::Bool {
        return Err(Mismatch::of_type(
            "bool has no arithmetic: use `logic`, or give `output` a number type",
        ));
    }
    Ok(Type {
        scalar,
        complex,
        len,
    })
}

/// Refuses inputs that `wanted` does not hold for.
fn want(inputs: &[Type], what: &str, wanted: impl Fn(Type) -> bool) -> Result<(), Mismatch> {
    match inputs.iter().position(|&kind| !wanted(kind)) {
        Some(index) => Err(Mismatch::of_type(format!(
            "input {} is {}: it must be {what}",
            index + 1,
            inputs[index]
        ))),
        None => Ok(()),
    }
}

/// Refuses a number of inputs out of range.
fn count(inputs: usize, least: usize) -> Result<(), String> {
    if (least..=MAX_INPUTS).contains(&inputs) {
        return Ok(());
    }
    Err(format!(
        "{inputs} inputs: there must be {least} to {MAX_INPUTS}"
    ))
}

/// Puts the name of a parameter in front of what is wrong with its numbers.
fn named<T>(parameter: &str, checked: Result<T, String>) -> Result<T, String> {
    checked.map_err(|text| format!("{parameter}: {text}"))
}

/// The bytes of samples kept.
fn kept(samples: usize, kind: Option<&Type>) -> u64 {
    samples as u64 * kind.map_or(0, |kind| kind.bytes() as u64)
}
