//! Where signals lie in the blocks of a queue.

use std::ptr::NonNull;

use super::lane::{SignalShape, Store, first_byte};
use super::layout::Edge;
use crate::kernels::View;

/// Words in a cache line.
pub(super) const LINE_WORDS: usize = 8;

/// Where a signal lies in a block.
#[derive(Clone, Copy)]
pub(super) struct BlockSlice {
    pub signal: usize,
    /// The first word of its real parts, and of its imaginary parts.
    re: usize,
    im: Option<usize>,
    bytes: usize,
    period: u64,
    /// Whether the signal works in the block itself.
    pub in_block: bool,
}

/// The slices of an edge's signals, and the words of a block.
pub(super) fn slices(
    shapes: &[SignalShape],
    edge: &Edge,
    signal: impl Fn(usize) -> usize,
) -> (Vec<BlockSlice>, usize) {
    let mut words = 0;
    let mut next = |bytes: usize| {
        let first = words;
        words += bytes.div_ceil(8).next_multiple_of(LINE_WORDS);
        first
    };
    let slices = (0..edge.crossings.len())
        .map(|crossing| {
            let shape = &shapes[edge.crossings[crossing].to];
            let bytes = shape.lane_bytes();
            let lane = shape.samples(edge.block) * bytes;
            BlockSlice {
                signal: signal(crossing),
                re: next(lane),
                im: shape.kind.complex.then(|| next(lane)),
                bytes,
                period: shape.period,
                in_block: false,
            }
        })
        .collect();
    (slices, words)
}

impl BlockSlice {
    /// The first byte of some ticks within a run, and how many they are.
    pub fn run(&self, from: u64, ticks: u64) -> (usize, usize) {
        let first = (from / self.period) as usize * self.bytes;
        (first, (ticks / self.period) as usize * self.bytes)
    }

    pub fn write(&self, block: &mut [u64], store: &Store, from: u64, ticks: u64) {
        let (first, bytes) = self.run(from, ticks);
        let block: &mut [u8] = bytemuck::cast_slice_mut(block);
        let slot = store.slots[self.signal];
        let mut copy = |word: usize, view: View| {
            let lane = &store.lanes[view.lane].bytes()[first_byte(view)..];
            block[8 * word + first..][..bytes].copy_from_slice(&lane[..bytes]);
        };
        copy(self.re, slot.re);
        if let Some((word, view)) = self.im.zip(slot.im) {
            copy(word, view);
        }
    }

    pub fn read(&self, block: &[u64], store: &mut Store, from: u64, ticks: u64) {
        let (first, bytes) = self.run(from, ticks);
        let block: &[u8] = bytemuck::cast_slice(block);
        let slot = store.slots[self.signal];
        let mut copy = |word: usize, view: View| {
            let lane = &mut store.lanes[view.lane].bytes_mut()[first_byte(view)..];
            lane[..bytes].copy_from_slice(&block[8 * word + first..][..bytes]);
        };
        copy(self.re, slot.re);
        if let Some((word, view)) = self.im.zip(slot.im) {
            copy(word, view);
        }
    }

    /// Makes the signal 0.
    pub fn clear(&self, store: &mut Store) {
        for (view, _) in self.views(store) {
            store.lanes[view.lane].bytes_mut()[first_byte(view)..].fill(0);
        }
    }

    /// The views of the signal, and where each begins in a block, in words.
    pub fn views(&self, store: &Store) -> impl Iterator<Item = (View, usize)> + use<> {
        let slot = store.slots[self.signal];
        [(Some(slot.re), Some(self.re)), (slot.im, self.im)]
            .into_iter()
            .filter_map(|(view, word)| view.zip(word))
    }

    /// Whether the signal's memory is as long as its slice in a block has it for a step. In a block
    /// of several steps each must begin with a cache line.
    pub fn fits(&self, store: &Store, step: u64, block: u64) -> bool {
        let bytes = self.run(0, step).1;
        let lines = bytes.next_multiple_of(8 * LINE_WORDS);
        let apart = step == block || bytes == lines;
        let fits = |view: View| view.first == 0 && store.lanes[view.lane].bytes().len() == lines;
        apart && self.views(store).all(|(view, _)| fits(view))
    }

    /// Has the signal work in this block, from a tick on.
    ///
    /// # Safety
    ///
    /// That of [`Lane::lend`](crate::kernels::lane::Lane::lend): the block is this end's own until
    /// the signal is given back.
    pub unsafe fn lend(&self, block: NonNull<u64>, store: &mut Store, from: u64) {
        let (first, _) = self.run(from, 0);
        for (view, word) in self.views(store) {
            // SAFETY: the caller's; the signal has its slice within the block.
            unsafe { store.lanes[view.lane].lend(block.add(word).cast().add(first)) };
        }
    }

    pub fn give_back(&self, store: &mut Store) {
        for (view, _) in self.views(store) {
            store.lanes[view.lane].give_back();
        }
    }
}
