//! Which heaps are of the present time, and which wait for others of theirs.

use super::waiting::{FAR, Settled, WaitingHeaps};
use super::window::END_OF_STREAM;

/// What is known of time in one lane: which chunk its heaps are at, and which of its heaps, each as
/// a `T`, wait for others of their time.
///
/// An rx lcore decides by it what is placed and when. The source of a replay and the measuring of
/// gains decide by the same type, since they have to come to the same end.
#[derive(Debug)]
pub struct LaneTime<T> {
    /// Newest chunk that the lane had a heap of. A floor tells less: the collector raises it before
    /// it moves the window.
    pub(super) newest: Option<u64>,
    /// Heaps far ahead of this time, and the first ones, until enough of them agree.
    waiting: WaitingHeaps<T>,
}

/// The chunk that a floor tells of: none before there is any.
pub(super) fn told_by(floor: u64) -> Option<u64> {
    (floor > 0).then_some(floor)
}

impl<T> Default for LaneTime<T> {
    fn default() -> Self {
        Self {
            newest: None,
            waiting: WaitingHeaps::default(),
        }
    }
}

impl<T> LaneTime<T> {
    /// The newest chunk that the lane had a heap of, or that it was `told` of.
    pub fn newest_of_all(&self, told: Option<u64>) -> Option<u64> {
        self.newest.max(told)
    }

    /// Whether heaps wait for others of their time.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a heap of `chunk` is to [`wait`](Self::wait): it is far ahead of the newest chunk
    /// that the lane had a heap of or is `told` of, or there is none.
    #[inline]
    pub fn is_ahead(&self, chunk: u64, told: impl FnOnce() -> Option<u64>) -> bool {
        self.newest.is_none_or(|newest| chunk >= newest + FAR) && self.is_ahead_of_all(chunk, told)
    }

    #[cold]
    fn is_ahead_of_all(&self, chunk: u64, told: impl FnOnce() -> Option<u64>) -> bool {
        let newest = self.newest_of_all(told());
        newest.is_none_or(|newest| chunk >= newest + FAR)
    }

    /// A heap that is ahead waits for others of its time. Tells what is to be placed, in this
    /// order, now that it came.
    pub fn wait(&mut self, chunk: u64, heap: T) -> Settled<T> {
        self.waiting.add(chunk, heap)
    }

    /// A heap of `chunk` came that is neither ahead nor too old. Tells what is to be placed before
    /// it.
    pub fn note_present(&mut self, chunk: u64) -> Settled<T> {
        self.waiting.note_present(chunk)
    }

    /// The lane had a heap of `chunk`, placed or not, that does not wait.
    #[inline]
    pub fn note_heap(&mut self, chunk: u64) {
        self.newest = self.newest.max(Some(chunk));
    }

    /// No heap of a chunk below `floor` comes any more. Tells what is to be placed: heaps near the
    /// floor; at [`END_OF_STREAM`], and without a floor because nothing comes, those that agree
    /// with others; at the end also the only one that waits, if the lane had no other heap.
    pub fn settle(&mut self, floor: Option<u64>) -> Settled<T> {
        match floor {
            Some(floor) if floor < END_OF_STREAM => self.waiting.note_present(floor),
            end => self.waiting.settle(end.is_some() && self.newest.is_none()),
        }
    }
}
