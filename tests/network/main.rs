//! Interfaces of the kernel in network namespaces. Needs root; where there are no namespaces, tests
//! say so and pass.

#[path = "../support/mod.rs"]
mod support;

mod addresses;
mod fgpu;
mod flow;
mod modem;
mod tutorial;
mod veth;
