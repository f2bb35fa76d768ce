//! Where a heap belongs, by its timestamp.

use ground::{SampleClock, Timestamp};
use spead::DigitiserHeap;

use super::cause::DropCause;
use super::window::END_OF_STREAM;
use crate::config::RecvConfig;

/// How to extend the first heap's 48-bit timestamp to 64 bits. Later heaps use the chunk that is
/// being filled.
#[derive(Clone, Copy, Debug, Default)]
pub enum EpochHint {
    /// The 48 bits are the timestamp.
    #[default]
    WireValue,
    /// The timestamp nearest to the host's clock, if the two agree within a minute; else the 48
    /// bits.
    HostClock(SampleClock),
    /// The timestamp nearest to this one.
    Near(Timestamp),
}

impl EpochHint {
    /// Where the first heap of a capture is looked for.
    pub fn first(self) -> Timestamp {
        match self {
            Self::Near(first) => first,
            Self::WireValue | Self::HostClock(_) => Timestamp::default(),
        }
    }
}

/// Where a heap belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapAddress {
    /// Id of the chunk.
    pub chunk: u64,
    /// Heap within the chunk.
    pub heap: usize,
}

impl HeapAddress {
    /// Where a heap's timestamp is looked for: at the `chunk` that lcores are filling; before there
    /// is any, at `first`.
    #[inline]
    pub fn near(
        recv: &RecvConfig,
        chunk: Option<u64>,
        first: impl FnOnce() -> Timestamp,
    ) -> Timestamp {
        let start = |chunk: u64| Timestamp(chunk.saturating_mul(recv.chunk_samples as u64));
        chunk.map_or_else(first, start)
    }

    /// Applies katgpucbf's acceptance rules, in its order, to a heap whose timestamp is unwrapped
    /// to the value nearest `near`. The window checks lateness.
    #[inline]
    pub fn of(
        recv: &RecvConfig,
        near: Timestamp,
        heap: &DigitiserHeap<'_>,
    ) -> Result<Self, DropCause> {
        if heap.heap_length() != recv.heap_bytes() {
            return Err(DropCause::WrongHeapLength);
        }
        let (chunk_samples, heap_samples) = (recv.chunk_samples as u64, recv.packet_samples as u64);
        let low = heap.timestamp().ok_or(DropCause::NoTimestamp)?;
        let mut timestamp = Timestamp::unwrap(low, near).0;
        if recv.mask_timestamp {
            timestamp &= !(heap_samples - 1);
        }
        let chunk = timestamp / chunk_samples;
        if !timestamp.is_multiple_of(heap_samples)
            || timestamp >= Timestamp::END
            || chunk >= END_OF_STREAM
        {
            return Err(DropCause::BadTimestamp);
        }
        Ok(Self {
            chunk,
            heap: (timestamp % chunk_samples / heap_samples) as usize,
        })
    }

    /// Number of the heap since the digitisers' sync time.
    pub(super) fn number(self, recv: &RecvConfig) -> u64 {
        self.chunk * recv.chunk_heaps() as u64 + self.heap as u64
    }
}
