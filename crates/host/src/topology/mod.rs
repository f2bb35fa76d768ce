//! What a host is made of: CPUs, caches, NUMA nodes, NICs and GPUs, from its `/sys` and `/proc` or
//! from a recorded copy of them.
//!
//! * [`Root`]: where `/sys` and `/proc` are;
//! * [`Machine`]: the topology, with [`Nic`]s and [`Gpu`]s and the links that lead to them;
//! * [`CpuList`]: a set of CPUs, as the kernel writes it;
//! * [`CoreTimes`]: what `karoo bench cores` measured between CPUs.

mod cores;
mod cpus;
mod machine;
mod pci;
mod root;

pub use cores::{CoreTimes, CoresError, Distances};
pub use cpus::{CpuList, CpuListError};
pub use machine::{Cpu, Machine, MachineError, Node, Processor};
pub use pci::{Gpu, Link, Nic, PciDevice, is_address};
pub use root::Root;
