//! Running dataflow graphs: their live page, and DPDK ports as their outside.

mod page;
mod ports;

pub use page::FlowPage;
pub use ports::{OpenPorts, PortReader, PortWriter, open};
