//! Statistics of the input of engines that compute on a GPU, in each kind of memory.

use karoo::assembly::{BackendKind, ComputeError};
use karoo::gpu::MemoryChoice;
use karoo::memory::MemoryKind;

use crate::support::{device, left_out, rig};

/// In `bar` memory they are those of copies, in mixed memory some are.
#[test]
fn statistics_of_input_are_those_of_its_samples_in_every_memory() {
    if device().is_none() {
        return;
    }
    for (choice, kind) in [
        (MemoryChoice::Pinned, MemoryKind::Pinned),
        (MemoryChoice::Bar, MemoryKind::Bar),
        (MemoryChoice::Mixed, MemoryKind::Mixed),
    ] {
        rig::check_input_statistics(|config| {
            match rig::compute(config, BackendKind::Cuda, choice) {
                Ok(compute) => {
                    assert_eq!(compute.recv_memory.kind(), kind);
                    Some(compute)
                }
                Err(ComputeError::Bar(error)) => {
                    left_out(&format!("no {kind} memory: {error}"));
                    None
                }
                Err(error) => panic!("{error}"),
            }
        });
    }
}
