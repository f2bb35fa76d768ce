//! A port without a link, and what is lost of what it should have sent.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::MbufBatch;

/// Whether a port's link is known to be down, and what was lost meanwhile.
#[derive(Debug, Default)]
pub(super) struct Outage {
    lasts: AtomicBool,
    lost: AtomicU64,
}

impl Outage {
    /// Notes whether the link is up.
    pub(super) fn note_link(&self, up: bool) {
        self.lasts.store(!up, Ordering::Relaxed);
    }

    /// Loses a batch that the device does not take, if its link is down; returns how many packets.
    pub(super) fn lose<const N: usize>(&self, batch: &mut MbufBatch<N>) -> usize {
        if !self.lasts.load(Ordering::Relaxed) {
            return 0;
        }
        let packets = batch.len();
        batch.clear();
        self.lost.fetch_add(packets as u64, Ordering::Relaxed);
        packets
    }

    /// Packets that were lost so far.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}
