//! Raw bindings to the system's DPDK.
