//! The CUDA backend and memory that a GPU reads. Without a CUDA device, the tests say so and pass.

#[path = "../support/mod.rs"]
mod support;

mod batches;
mod case;
mod chunk_memory;
mod narrowband;
mod shapes;
mod stream;
