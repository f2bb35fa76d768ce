#![deny(unsafe_code)]
#![doc = include_str!("../README.md")]
//!
//! # Rooms
//!
//! A room imports from rooms on lower floors alone; Karoo's `tests/library/rooms.rs` reads this
//! table and holds it. From a graph to its run it goes up: `builder` or `file`, `check`, [`run`].
//!
//! | floor | room | what lives there |
//! |---|---|---|
//! | 11 | [`adapters`] | inputs and outputs by address: files, pipes, TCP, UDP, shared memory |
//! | 11 | [`place`] | which node runs on which core, with which blocks: costs, search, plans |
//! | 10 | [`run`] | the executor: a graph in partitions with queues between them, on threads |
//! | 10 | `builder` | graphs written in Rust |
//! | 10 | [`mod@file`] | graphs from files: TOML and Laminar's GraphML |
//! | 9 | `check` | what is wrong with a draft; one without mistakes becomes a graph |
//! | 9 | `interpreter` | the reference: one sample after the other, node after node |
//! | 8 | `graph` | drafts and graphs: nodes in nested subsystems, and wires between them |
//! | 7 | [`nodes`] | the library of nodes, each sample by sample and as operations |
//! | 6 | `node` | what a node is, and the registry of kinds |
//! | 5 | [`kernels`] | operations on many samples at once |
//! | 4 | `literal` | numbers in parameters, whose type comes from elsewhere |
//! | 3 | `operators` | relations, operations on bits and functions, which nodes and kernels share |
//! | 3 | `value` | samples |
//! | 2 | [`analysis`] | a network of partitions before it runs: deadlock, rate, latency, memory |
//! | 2 | `number` | real numbers with the arithmetic of their machine types |
//! | 1 | `quotient` | quotients of complex numbers |
//! | 1 | `types` | types of what ports carry |
//! | 1 | `ratio` | ratios of sample rates |
//! | 1 | `problem` | what is wrong with a graph: all at once, by path |
//! | 1 | `parameter` | what is wrong with a parameter of a file |
//! | 1 | `cycles` | loops in directed graphs |
//! | 1 | `picture` | boxes and arrows as SVG |
//! | 1 | `words` | numbers in words |
//! | 1 | [`queue`] | queues of blocks from one thread to another |

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
mod operators;
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
mod words;

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
