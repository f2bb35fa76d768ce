//! Measurements of this machine, for `karoo bench`.

pub mod engine;
pub mod kernels;
