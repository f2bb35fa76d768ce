//! The CUDA backend. Without a CUDA device, the tests say so and pass.

#[path = "../support/mod.rs"]
mod support;

mod batches;
mod case;
mod floor;
mod input_statistics;
mod narrowband;
mod shapes;
mod statistics;
mod stream;
