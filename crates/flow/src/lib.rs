#![deny(unsafe_code)]
#![doc = include_str!("../README.md")]

pub mod adapters;
pub mod analysis;
mod builder;
mod check;
mod cycles;
pub mod file;
mod graph;
mod interpreter;
pub mod kernels;
mod literal;
mod node;
pub mod nodes;
mod number;
mod parameter;
mod picture;
pub mod place;
mod problem;
pub mod queue;
mod quotient;
mod ratio;
pub mod run;
mod types;
mod value;

pub use builder::{Builder, Feedback, Wire};
pub use file::Loaded;
pub use graph::{Draft, DraftNode, Graph, NodeId, Placed, Scope, ScopeId, Source};
pub use interpreter::{Interpreter, MAX_STATE_BYTES, MAX_TICKS};
pub use literal::{Literals, MAX_LITERALS};
pub use node::{ByBytes, ByteStep, Mismatch, Node, Pure, Registry, Step, table};
pub use number::{Number, Rounding};
pub use problem::{Cause, Problem, Problems};
pub use ratio::Ratio;
pub use run::{Executor, Settings};
pub use types::{MAX_LEN, Scalar, Type};
pub use value::Value;

/// The guide's examples, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/flow/examples.md")]
struct GuideExamples;
