//! One receive chunk as the outputs see it: samples, tail, and which heaps are there.

use crate::memory::FrozenChunk;
use crate::units::{N_POL, Timestamp};

use super::InputView;

/// A received chunk, with the head of its successor behind it if that followed directly.
#[derive(Debug)]
pub struct Input {
    chunk: FrozenChunk,
    start: u64,
    samples: usize,
    heap_samples: usize,
    /// Per polarisation, `absent[i]` heaps of the first `i` are absent.
    absent: [Vec<u32>; N_POL],
}

impl Input {
    /// The chunk that covers `start ..`, `next` being the chunk right behind it if there is one.
    ///
    /// `absent` are buffers to use, as [`into_parts`](Self::into_parts) gives them back.
    pub fn new(
        mut chunk: FrozenChunk,
        start: u64,
        heap_samples: usize,
        next: Option<&FrozenChunk>,
        mut absent: [Vec<u32>; N_POL],
    ) -> Self {
        let layout = *chunk.layout();
        let tail_heaps = layout.tail_samples.div_ceil(heap_samples);
        if let Some(next) = next {
            chunk.copy_tail(next);
        }
        for (pol, absent) in absent.iter_mut().enumerate() {
            let own = (0..layout.heaps).map(|heap| chunk.present(pol, heap));
            let tail = (0..tail_heaps).map(|heap| next.is_some_and(|next| next.present(pol, heap)));
            let mut count = 0;
            absent.clear();
            absent.push(0);
            absent.extend(own.chain(tail).map(|present| {
                count += u32::from(!present);
                count
            }));
        }
        let tail = if next.is_some() {
            layout.tail_samples
        } else {
            0
        };
        Self {
            chunk,
            start,
            samples: layout.samples + tail,
            heap_samples,
            absent,
        }
    }

    /// Timestamp of the first sample.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Timestamp behind the last usable sample.
    pub fn end(&self) -> u64 {
        self.start + self.samples as u64
    }

    /// What the backend reads.
    pub fn view(&self) -> InputView<'_> {
        self.chunk.view(Timestamp(self.start), self.samples)
    }

    /// Whether every heap that overlaps `samples` samples from index `first` is present.
    pub fn present(&self, pol: usize, first: usize, samples: usize) -> bool {
        let absent = &self.absent[pol];
        let from = first / self.heap_samples;
        let to = (first + samples).div_ceil(self.heap_samples);
        absent[from] == absent[to]
    }

    /// Gives the chunk back to the receivers' pool, and the buffers for the next input.
    pub fn into_parts(self) -> (FrozenChunk, [Vec<u32>; N_POL]) {
        (self.chunk, self.absent)
    }
}
