//! Measurements of this machine, for `karoo bench`.

pub mod chain;
pub mod cores;
pub mod engine;
pub mod kernels;
pub mod ports;
pub mod queues;
pub mod search;
