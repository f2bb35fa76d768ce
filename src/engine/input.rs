//! One receive chunk as the outputs see it: which samples it covers, and which heaps are there.

use crate::memory::FrozenChunk;
use crate::units::N_POL;

/// A received chunk, with the head of its successor behind it if that followed directly.
#[derive(Debug)]
pub struct Input {
    start: u64,
    samples: usize,
    heap_samples: usize,
    /// Per polarisation, `absent[i]` heaps of the first `i` are absent.
    absent: [Vec<u32>; N_POL],
}

impl Input {
    /// The chunk that covers `start ..`, alone. `absent` are buffers to use.
    pub fn new(
        chunk: &FrozenChunk,
        start: u64,
        heap_samples: usize,
        mut absent: [Vec<u32>; N_POL],
    ) -> Self {
        let layout = chunk.layout();
        for (pol, absent) in absent.iter_mut().enumerate() {
            absent.clear();
            absent.push(0);
            append(absent, (0..layout.heaps).map(|h| chunk.present(pol, h)));
        }
        Self {
            start,
            samples: layout.samples,
            heap_samples,
            absent,
        }
    }

    /// Adds the head of the chunk right behind.
    pub fn join(&mut self, next: &FrozenChunk) {
        let layout = next.layout();
        let heaps = layout.tail_samples.div_ceil(self.heap_samples);
        for (pol, absent) in self.absent.iter_mut().enumerate() {
            append(absent, (0..heaps).map(|h| next.present(pol, h)));
        }
        self.samples += layout.tail_samples;
    }

    /// Timestamp of the first sample.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Timestamp behind the last usable sample.
    pub fn end(&self) -> u64 {
        self.start + self.samples as u64
    }

    /// Usable samples per polarisation.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Whether every heap that overlaps `samples` samples from index `first` is present.
    pub fn present(&self, pol: usize, first: usize, samples: usize) -> bool {
        let absent = &self.absent[pol];
        let from = first / self.heap_samples;
        let to = (first + samples).div_ceil(self.heap_samples);
        absent[from] == absent[to]
    }

    /// Gives the buffers back, for another chunk.
    pub fn into_buffers(self) -> [Vec<u32>; N_POL] {
        self.absent
    }
}

fn append(absent: &mut Vec<u32>, present: impl Iterator<Item = bool>) {
    let mut count = absent.last().copied().unwrap_or(0);
    absent.extend(present.map(|present| {
        count += u32::from(!present);
        count
    }));
}
