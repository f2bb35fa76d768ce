//! The engine's end of the chunk window: completed chunks in order, accounted for.

use std::sync::Arc;

use super::input_stats::InputStats;
use super::memory::{OPEN_CHUNKS, ReceiveMemory, WindowOf};
use super::placer::LAG;
use super::waiting::FAR;
use super::window::{END_OF_STREAM, WindowCollector};
use crate::config::RecvConfig;
use crate::memory::FrozenChunk;

/// What the engine gets from the rx lcores.
#[derive(Debug)]
pub enum Collected {
    /// The next non-empty chunk, with its id.
    Chunk(u64, FrozenChunk),
    /// Nothing yet.
    Nothing,
    /// All lcores have ended.
    End,
}

/// Takes chunks from the rx lcores when they are complete, and gives them back for their next use.
/// Receive memory has one.
#[derive(Debug)]
pub struct ChunkCollector {
    window: WindowCollector<WindowOf>,
    memory: Arc<ReceiveMemory>,
    stats: Arc<InputStats>,
    /// Id behind the last chunk collected.
    next: Option<u64>,
    /// Chunks that a lane may be behind the foremost one.
    patience: Option<u64>,
}

impl ChunkCollector {
    /// The collector of `memory`, which is to have no other one.
    pub(super) fn new(config: &RecvConfig, memory: Arc<ReceiveMemory>) -> Self {
        Self {
            window: WindowCollector::new(WindowOf(memory.clone())),
            memory,
            stats: Arc::new(InputStats::new(config)),
            next: None,
            patience: None,
        }
    }

    /// Stops waiting for rx lcores that get no packets. Not for a replay, whose outcome must not
    /// depend on time.
    ///
    /// They are left behind only when the others have a chunk's time until their window is
    /// exhausted: an lcore that has lost its CPU for a while still has its packets in its ring, so
    /// that spare chunks are patience as well. Behind the first heap, and behind a leap of far more
    /// than the window, they follow at once: the whole window is for what comes then.
    pub fn allow_leaving_behind(&mut self) {
        let slots = self.memory.window().slots() as u64;
        self.patience = Some(slots - OPEN_CHUNKS as u64 - 1);
    }

    /// The next completed chunk, if there is one.
    pub fn poll(&mut self) -> Collected {
        let Some((id, buffer)) = self.window.poll() else {
            if let Some(lag) = self.patience {
                let far = FAR.max(2 * self.memory.window().slots() as u64);
                self.window.advance_laggards(far, LAG);
                self.window.advance_laggards(lag, lag);
            }
            let ended = self.window.head() >= END_OF_STREAM;
            return if ended {
                Collected::End
            } else {
                Collected::Nothing
            };
        };
        let chunk = self.memory.chunk(buffer).clone();
        let chunk = chunk
            .freeze()
            .expect("the window gives each chunk to its collector once");
        let lost = self.next.map_or(0, |next| id - next);
        self.stats.note_chunk(id, lost, &chunk);
        self.next = Some(id + 1);
        Collected::Chunk(id, chunk)
    }

    /// Takes a chunk back for its next use.
    pub fn recycle(&self, chunk: FrozenChunk) {
        let number = chunk.number();
        chunk.recycle();
        self.memory.give(number);
    }

    /// Counters of what was collected.
    pub fn stats(&self) -> Arc<InputStats> {
        self.stats.clone()
    }
}

#[cfg(test)]
mod tests {
    use dsp::SampleBits;
    use ground::N_POL;
    use proptest::prelude::*;

    use super::*;
    use crate::memory::HostAllocator;
    use crate::recv::memory::{ReceiveOptions, receive_memory};
    use crate::recv::window::{LocatedChunk, WindowLane};

    const HEAPS: usize = 4;

    /// Heaps of 64 samples in 80 bytes.
    fn recv() -> RecvConfig {
        RecvConfig {
            packet_samples: 64,
            sample_bits: SampleBits::new(10).unwrap(),
            chunk_samples: 64 * HEAPS,
            mask_timestamp: false,
        }
    }

    /// One chunk: how many chunks before it have no heaps, and what each heap says was clipped.
    type Filled = (u64, [[Option<u8>; HEAPS]; N_POL]);

    fn filled() -> impl Strategy<Value = Filled> {
        let gap = prop_oneof![3 => Just(0), 1 => 1..9u64];
        let heap = proptest::option::weighted(0.7, any::<u8>());
        let pols = proptest::array::uniform2(proptest::array::uniform4(heap));
        (gap, pols)
    }

    proptest! {
        /// What is counted of chunks is what a list of all heaps tells.
        #[test]
        fn chunks_count_as_their_heaps_do(chunks in proptest::collection::vec(filled(), 0..12)) {
            let host = HostAllocator::default();
            let (memory, mut collector) = receive_memory(&recv(), ReceiveOptions::for_lanes(1), &host).unwrap();
            let free = memory.free_chunks();
            let mut writer = WindowLane::new(WindowOf(memory.clone()), 0);
            let mut collected = Vec::new();
            let mut collect = |collector: &mut ChunkCollector| loop {
                match collector.poll() {
                    Collected::Chunk(id, chunk) => {
                        collected.push(id);
                        collector.recycle(chunk);
                    }
                    Collected::Nothing => break false,
                    Collected::End => break true,
                }
            };
            // From the first chunk that has heaps to the last.
            let mut heaps: [Vec<Option<u8>>; N_POL] = Default::default();
            let (mut ids, mut id) = (Vec::new(), 0);
            for (gap, pols) in chunks {
                id += gap;
                if pols.iter().flatten().any(Option::is_some) {
                    let buffer = loop {
                        writer.begin();
                        let located = writer.locate(id, || memory.take());
                        writer.end();
                        match located {
                            LocatedChunk::Buffer(buffer) => break buffer,
                            _ => collect(&mut collector),
                        };
                    };
                    let before = id - ids.last().map_or(id, |last| last + 1);
                    for (pol, said) in pols.iter().enumerate() {
                        heaps[pol].extend(std::iter::repeat_n(None, before as usize * HEAPS));
                        heaps[pol].extend(said);
                        for (heap, said) in said.iter().enumerate() {
                            if let Some(clipped) = said {
                                let slot = memory.chunk(buffer).claim(pol, heap).unwrap();
                                slot.write(&[0; 80], (*clipped).into());
                            }
                        }
                    }
                    ids.push(id);
                    prop_assert_eq!(memory.newest_chunk(), (id > 1).then_some(id));
                }
                id += 1;
            }
            writer.begin();
            writer.raise(END_OF_STREAM);
            writer.end();
            prop_assert!(collect(&mut collector));
            prop_assert_eq!(&collected, &ids);
            prop_assert_eq!(memory.free_chunks(), free);

            let stats = collector.stats();
            let count = |heaps: &[Option<u8>]| heaps.iter().flatten().count() as u64;
            let present = heaps.each_ref().map(|heaps| count(heaps));
            let all = heaps[0].len() as u64;
            let clipped = |heaps: &Vec<Option<u8>>| heaps.iter().flatten().map(|&c| u64::from(c)).sum();
            let clipped: [u64; N_POL] = heaps.each_ref().map(clipped);
            prop_assert_eq!(stats.chunks(), ids.len() as u64);
            prop_assert_eq!(stats.heaps(), present);
            prop_assert_eq!(stats.missing_heaps(), present.map(|present| all - present));
            prop_assert_eq!(stats.clipped_samples(), clipped);
            let begin = ids.first().map(|first| first * 64 * HEAPS as u64);
            prop_assert_eq!(stats.first_timestamp(), begin);
            let either: Vec<_> = heaps[0].iter().zip(&heaps[1]).map(|(x, y)| x.or(*y)).collect();
            let first = either.iter().position(Option::is_some).unwrap_or(0);
            let end = either.iter().rposition(Option::is_some).map_or(first, |last| last + 1);
            let begin = begin.unwrap_or(0);
            prop_assert_eq!(stats.span(), begin + 64 * first as u64..begin + 64 * end as u64);
            for (pol, told) in stats.pols().into_iter().enumerate() {
                let span = &heaps[pol][first..end];
                let runs = span.chunk_by(|a, b| a.is_some() == b.is_some());
                let runs: Vec<_> = runs.map(|run| (run[0].is_some(), run.len() as u64)).collect();
                let last = heaps[pol].iter().rposition(Option::is_some);
                let end = last.map(|last| begin + 64 * (last as u64 + 1));
                prop_assert_eq!(stats.ends()[pol], end);
                prop_assert_eq!(told.heaps, present[pol]);
                prop_assert_eq!([told.samples, told.bytes], [64, 80].map(|of| of * present[pol]));
                prop_assert_eq!(told.missing_heaps, span.len() as u64 - count(span));
                prop_assert_eq!(told.clipped_samples, clipped[pol]);
                prop_assert_eq!(told.presence, runs);
                prop_assert_eq!(told.power_dbfs, None);
            }
        }
    }
}
