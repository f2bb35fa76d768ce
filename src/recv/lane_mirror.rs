//! What the source of a replay knows of an rx lcore.

use ground::Timestamp;
use spead::DigitiserHeap;

use super::address::HeapAddress;
use super::lane_time::{LaneTime, told_by};
use super::memory::{MAX_LAG, floor_after};
use crate::config::RecvConfig;

/// What an rx lcore of a replay knows of time, and where its floor is, once it has had all frames
/// so far.
///
/// It decides as the lcore does. If the source missed a heap that the lcore is to place, it would
/// not have others follow, and the lcore would wait for ever for the window to move.
#[derive(Debug, Default)]
pub struct LaneMirror {
    pub(super) time: LaneTime<u64>,
    /// First chunk that the lcore still fills; 0 before there is any.
    pub(super) floor: u64,
}

impl LaneMirror {
    /// A datagram's `payload` comes, with the first heap looked for at `first`, as the lcore is
    /// told ([`EpochHint`](super::EpochHint)). Returns the newest chunk that it has the lcore fill,
    /// if it has.
    pub fn take(&mut self, recv: &RecvConfig, first: Timestamp, payload: &[u8]) -> Option<u64> {
        let heap = DigitiserHeap::new_checked(payload).ok()?;
        let near = HeapAddress::near(recv, told_by(self.floor), || first);
        let address = HeapAddress::of(recv, near, &heap).ok()?;
        if address.chunk < self.floor {
            return None;
        }
        self.note(address.chunk)
    }

    /// A heap of `chunk` comes, which is not too old.
    fn note(&mut self, chunk: u64) -> Option<u64> {
        let placed = if self.time.is_ahead(chunk, || told_by(self.floor)) {
            self.time.wait(chunk, chunk).right.into_iter().max()
        } else {
            let waited = self.time.note_present(chunk).right;
            waited.into_iter().max().max(Some(chunk))
        };
        placed.inspect(|&newest| self.have(newest))
    }

    /// The floor of a watermark that keeps the lcore from holding up the others, whose newest chunk
    /// is `newest`; `None` if it does not. The lcore is to have the watermark.
    pub fn follow(&mut self, newest: u64) -> Option<u64> {
        let lags = self.floor + MAX_LAG < floor_after(newest);
        lags.then(|| {
            let floor = newest - MAX_LAG;
            self.raise(floor);
            floor
        })
    }

    /// Chunks below `floor` are waited for no more, behind all frames so far.
    fn raise(&mut self, floor: u64) {
        self.floor = floor;
        let placed = self.time.settle(Some(floor)).right;
        if let Some(newest) = placed.into_iter().max() {
            self.have(newest);
        }
    }

    fn have(&mut self, newest: u64) {
        self.time.note_heap(newest);
        self.floor = self.floor.max(floor_after(newest));
    }
}

#[cfg(test)]
#[path = "lane_mirror_tests.rs"]
mod tests;
