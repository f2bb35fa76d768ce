//! What the tests of the CUDA backend share.

use std::sync::Arc;

use dsp::SampleBits;
use karoo::config::RecvConfig;
use karoo::engine::{Intake, Pipeline};
use karoo::memory::{BatchStats, Chunk, ChunkAllocator, ChunkLayout, FrozenChunk, Purpose};

use super::contents;

pub const FENG_ID: u64 = 3;
pub const HEAP_SAMPLES: usize = 512;
/// Output chunks under way, as in a replay.
pub const CHUNKS: usize = 4;

pub type Contents = (Vec<u8>, Vec<BatchStats>);

pub fn layout(bits: SampleBits, chunk_samples: usize, tail_samples: usize) -> ChunkLayout {
    let recv = RecvConfig {
        packet_samples: HEAP_SAMPLES,
        sample_bits: bits,
        chunk_samples,
        mask_timestamp: false,
    };
    ChunkLayout::new(&recv, tail_samples)
}

/// A chunk with these packed samples, all there.
pub fn chunk(
    layout: ChunkLayout,
    allocator: &dyn ChunkAllocator,
    packed: [&[u8]; 2],
) -> FrozenChunk {
    let memory = allocator.allocate(Purpose::ReceiveChunk, layout.bytes());
    let chunk = Arc::new(Chunk::new(layout, 0, memory.unwrap()));
    for (pol, packed) in packed.into_iter().enumerate() {
        for (heap, payload) in packed
            .chunks_exact(layout.heap_bytes)
            .take(layout.heaps)
            .enumerate()
        {
            chunk.claim(pol, heap).unwrap().write(payload, 0);
        }
    }
    chunk.freeze().unwrap()
}

/// The next complete chunk.
pub fn next_complete(pipeline: &mut dyn Pipeline) -> Contents {
    loop {
        if let Some(chunk) = pipeline.poll_finished().unwrap() {
            return contents(&chunk);
        }
        std::thread::yield_now();
    }
}

/// Everything that computes one output stream.
pub struct Rig {
    pub intake: Box<dyn Intake>,
    pub pipeline: Box<dyn Pipeline>,
}

/// At most one byte in a thousand is off, by one; power is exact; of clamped samples one, or one in
/// a thousand, is at the limit itself and may be counted or not.
pub fn assert_agree(what: &str, got: &Contents, want: &Contents) {
    // A zip ends with the shorter one.
    assert!(!want.0.is_empty(), "{what}: nothing to compare");
    let lengths = |contents: &Contents| (contents.0.len(), contents.1.len());
    assert_eq!(lengths(got), lengths(want), "{what}");
    let off: Vec<u8> = got
        .0
        .iter()
        .zip(&want.0)
        .map(|(&a, &b)| (a as i8).abs_diff(b as i8))
        .collect();
    let differ = off.iter().filter(|&&d| d > 0).count();
    assert!(off.iter().all(|&d| d <= 1), "{what}: off by more than 1");
    assert!(
        1000 * differ <= off.len(),
        "{what}: {differ} of {} differ",
        off.len()
    );
    for (got, want) in got.1.iter().zip(&want.1) {
        assert_eq!(got.power, want.power, "{what}");
        for pol in 0..2 {
            let difference = got.clipped[pol].abs_diff(want.clipped[pol]);
            let most = (want.clipped[pol] / 1000).max(1);
            assert!(difference <= most, "{what}: {got:?} {want:?}");
        }
    }
}
