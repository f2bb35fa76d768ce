//! What no run may have.

use super::layout::{Edge, Layout, MAX_BLOCK};
use super::link::block_bytes;
use super::settings::Settings;
use crate::graph::Graph;
use crate::problem::{Cause, Problems};

/// The most bytes of state and queues that a run may have: 16 GiB.
pub const MAX_RUN_BYTES: u64 = 1 << 34;

/// Refuses graphs whose states and queues would take the machine's memory.
pub(super) fn memory(graph: &Graph, layout: &Layout) -> Result<(), Problems> {
    let queue =
        |edge: &Edge| (edge.capacity as u64).saturating_mul(block_bytes(layout, edge) as u64);
    // Capacities that cannot be are refused by themselves.
    let can_be = |edge: &&Edge| edge.capacity as u64 <= MAX_BLOCK;
    let queues = layout.edges.iter().filter(can_be).map(queue);
    let bytes = queues.fold(graph.state_bytes(), u64::saturating_add);
    if bytes <= MAX_RUN_BYTES {
        return Ok(());
    }
    let text = format!(
        "{bytes} bytes of state and queues: a run has at most {MAX_RUN_BYTES}; make delays, blocks \
         or queues shorter"
    );
    Err(Problems::one(Cause::Limit, graph.name(), text))
}

/// Refuses priorities that no thread may have, and CPUs that this thread may not use: those that it
/// starts have what it has.
pub(super) fn threads(settings: &Settings, name: &str) -> Result<(), Problems> {
    let mut problems = Problems::default();
    if let Some(priority) = settings.real_time
        && !(1..=99).contains(&priority)
    {
        let text = format!("a real-time priority of {priority}: it must be 1 to 99");
        problems.add(Cause::Parameter, name, text);
    }
    let cpus = core_affinity::get_core_ids().unwrap_or_default();
    let copies = settings.copies.iter();
    let copies =
        copies.flat_map(|(partition, cpus)| cpus.iter().flatten().map(move |cpu| (partition, cpu)));
    for (partition, cpu) in settings.cpus.iter().chain(copies) {
        if !cpus.iter().any(|known| known.id == *cpu) {
            let known: Vec<String> = cpus.iter().map(|cpu| cpu.id.to_string()).collect();
            let text = format!(
                "partition {partition} is to run on CPU {cpu}: the thread that makes the executor may \
                 use {}; let it use that CPU, or make the executor in a thread that may",
                known.join(", ")
            );
            problems.add(Cause::Limit, name, text);
        }
    }
    problems.unless(())
}
