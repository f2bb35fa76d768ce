//! Running dataflow graphs: their live page, and DPDK ports as their outside.

mod page;
mod ports;
mod run_watch;
mod verdict;

pub use ports::{OpenPorts, PortReader, PortWriter, open};
pub use run_watch::{RunWatch, Wait, Waiting};
