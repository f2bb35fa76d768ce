//! One heap as its packets come.

use spead::SpectraRepr;

use super::shape::Shape;
use crate::sink::ranges::Ranges;

/// What has come of a heap.
#[derive(Debug, Default)]
pub(super) enum Heap {
    /// Nothing.
    #[default]
    Nothing,
    /// Some of its packets.
    Open {
        /// Its heap count.
        count: u64,
        /// Which of its bytes.
        ranges: Ranges,
        /// Its bytes, if they are to be kept.
        data: Option<Vec<u8>>,
    },
    /// All; with its heap count.
    Whole(u64),
}

/// What became of a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Its bytes were there already, or do not fit.
    Duplicate,
    /// It is of another heap of the same timestamp and substream.
    OtherHeap,
    /// Its heap is not whole yet.
    Part,
    /// Its heap is whole now: with all bytes, if they were kept.
    Whole(Option<Vec<u8>>),
}

impl Heap {
    /// Whether all of it has come.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self, Self::Whole(_))
    }

    /// Heap count, if anything has come.
    pub(super) fn count(&self) -> Option<u64> {
        match self {
            Self::Nothing => None,
            Self::Open { count, .. } | Self::Whole(count) => Some(*count),
        }
    }

    /// Takes a packet in. The payload is kept if `keep` says so and nothing of the heap came
    /// before.
    pub(super) fn take(
        &mut self,
        spectra: &SpectraRepr,
        shape: Shape,
        payload: &[u8],
        keep: impl FnOnce() -> bool,
    ) -> Taken {
        if matches!(self, Self::Nothing) {
            *self = Self::Open {
                count: spectra.heap_count,
                ranges: Ranges::default(),
                data: keep().then(|| vec![0; shape.heap_bytes() as usize]),
            };
        }
        if self.count() != Some(spectra.heap_count) {
            return Taken::OtherHeap;
        }
        let Self::Open { ranges, data, .. } = self else {
            return Taken::Duplicate;
        };
        let start = spectra.payload_offset;
        let end = start + payload.len() as u64;
        if end > shape.heap_bytes() || !ranges.add(start, end) {
            return Taken::Duplicate;
        }
        if let Some(data) = data {
            data[start as usize..end as usize].copy_from_slice(payload);
        }
        if ranges.bytes() < shape.heap_bytes() {
            return Taken::Part;
        }
        let data = data.take();
        *self = Self::Whole(spectra.heap_count);
        Taken::Whole(data)
    }
}
