//! Statistics of the input in whole engines: of memory that the CPU reads, and of copies.

use std::sync::Arc;

use karoo::assembly::BackendKind;
use karoo::gpu::MemoryChoice;

use crate::support::rig;
use crate::support::rig::stand_in::BarStandIn;

#[test]
fn statistics_are_those_of_the_samples_in_memory_of_the_host() {
    rig::check_input_statistics(|config| {
        Some(rig::compute(config, BackendKind::Cpu, MemoryChoice::Auto).unwrap())
    });
}

#[test]
fn statistics_are_those_of_the_samples_where_the_cpu_reads_copies() {
    rig::check_input_statistics(|config| {
        let mut compute = rig::compute(config, BackendKind::Cpu, MemoryChoice::Auto).unwrap();
        compute.recv_memory = Arc::new(BarStandIn);
        Some(compute)
    });
}
