//! One receive chunk as the outputs see it: which samples it covers, and which heaps are there.

use ground::N_POL;

use crate::memory::FrozenChunk;

/// A received chunk, with the head of its successor behind it if that followed directly.
#[derive(Debug)]
pub struct ChunkPresence {
    start: u64,
    samples: usize,
    heap_samples: usize,
    /// Per polarisation, `absent[i]` heaps of the first `i` are absent.
    absent: [Vec<u32>; N_POL],
}

impl ChunkPresence {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::RecvConfig;
    use crate::memory::{Chunk, ChunkAllocator, ChunkLayout, HostAllocator, Purpose};
    use dsp::SampleBits;

    const HEAP: usize = 16;
    const HEAPS: usize = 4;
    /// One heap and a half.
    const TAIL: usize = 24;

    /// A chunk of heaps of which bit h of `present` says whether heap h of the polarisation is
    /// there.
    fn chunk(present: [u32; N_POL]) -> FrozenChunk {
        let config = RecvConfig {
            packet_samples: HEAP,
            sample_bits: SampleBits::new(8).unwrap(),
            chunk_samples: HEAPS * HEAP,
            mask_timestamp: false,
        };
        let layout = ChunkLayout::new(&config, TAIL);
        let memory = HostAllocator::default().allocate(Purpose::ReceiveChunk, layout.bytes());
        let chunk = Arc::new(Chunk::new(layout, 0, memory.unwrap()));
        for (pol, present) in present.into_iter().enumerate() {
            for heap in (0..HEAPS).filter(|heap| present >> heap & 1 == 1) {
                chunk.claim(pol, heap).unwrap().write(&[0; HEAP], 0);
            }
        }
        chunk.freeze().unwrap()
    }

    #[test]
    fn samples_are_present_when_each_of_them_is() {
        // Bits of the chunk's heaps, and behind them of those that the tail has a part of.
        for bits in 0..1u32 << (HEAPS + 2) {
            let heaps = [bits, !bits];
            let absent = [vec![7; 3], vec![]];
            let mut input = ChunkPresence::new(&chunk(heaps), 1000, HEAP, absent);
            assert_eq!((input.start(), input.end()), (1000, 1000 + 64));
            input.join(&chunk(heaps.map(|heaps| heaps >> HEAPS)));
            assert_eq!((input.samples(), input.end()), (64 + TAIL, 1000 + 88));
            for (pol, heaps) in heaps.into_iter().enumerate() {
                let here = |sample: usize| heaps >> (sample / HEAP) & 1 == 1;
                for first in 0..input.samples() {
                    for count in [1, 2, 15, 16, 17, 33, 47, 64, 88] {
                        let end = first + count;
                        if end <= input.samples() {
                            let expected = (first..end).all(here);
                            let got = input.present(pol, first, count);
                            assert_eq!(got, expected, "{first}..{end} of {heaps:b}, pol {pol}");
                        }
                    }
                }
            }
        }
    }
}
