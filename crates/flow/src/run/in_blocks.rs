//! Signals that work in the blocks of queues: what comes is not copied before it is read.

use std::collections::HashSet;

use super::code::PartitionCode;
use super::worker::PartitionQueues;

#[cfg(test)]
#[path = "in_blocks_tests.rs"]
mod tests;

/// Finds the signals that can work in the blocks that they come in. Such a signal must not be
/// wanted behind the step, as samples are that stay in memory for filters and delays, nor be sent
/// on: its block goes back before anything is sent.
pub(super) fn find(queues: &mut PartitionQueues, code: &PartitionCode) {
    let store = &code.store;
    let past: HashSet<usize> = code.moved().collect();
    let sent = queues.senders.iter().flat_map(|end| end.lanes(store));
    let sent: HashSet<usize> = sent.collect();
    for receiver in &mut queues.receivers {
        receiver.use_blocks(store, |lane| !past.contains(&lane) && !sent.contains(&lane));
    }
}
