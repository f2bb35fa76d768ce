//! Running dataflow graphs: their live page, and DPDK ports as their outside.

mod page;
mod ports;
mod verdict;

pub use page::FlowPage;
pub use ports::{OpenPorts, PortReader, PortWriter, open};
