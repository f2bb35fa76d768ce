//! Copies of heaps, apart from the source, which a model of loom compiles as well.

use dsp::SampleBits;
use ground::N_POL;

use super::copies::{BEHIND_HEAP, STATISTICS_EVERY, StatisticsCopies};
use super::{ChunkAllocator, ChunkLayout, HostAllocator, Purpose};
use crate::config::RecvConfig;

/// Heaps of which statistics take three of each polarisation.
const HEAPS: usize = 2 * STATISTICS_EVERY as usize + 1;

#[test]
fn copies_lie_apart_with_room_behind_each() {
    let config = RecvConfig {
        packet_samples: 512,
        sample_bits: SampleBits::new(10).unwrap(),
        chunk_samples: 512 * HEAPS,
        mask_timestamp: false,
    };
    let layout = ChunkLayout::new(&config, 0);
    // Heaps of 640 bytes, and the next multiple of lines of 64 behind the bytes behind.
    assert_eq!(StatisticsCopies::bytes(&layout), 2 * 3 * 704);
    let memory = HostAllocator::default().allocate(Purpose::ReceiveChunk, 2 * 3 * 704);
    let copies = StatisticsCopies::new(&layout, memory.unwrap());
    let places: Vec<_> = (0..N_POL)
        .flat_map(|pol| [0, 257, 514].map(|heap| (pol, heap)))
        .collect();
    for (value, &(pol, heap)) in places.iter().enumerate() {
        let place = copies.claim(pol, heap).unwrap();
        copies.store(&place, &[value as u8 + 1; 640]);
    }
    for (value, &(pol, heap)) in places.iter().enumerate() {
        let (copy, behind) = copies.heap(pol, heap).unwrap().split_at(640);
        assert_eq!(copy, [value as u8 + 1; 640]);
        assert_eq!(behind, [0; BEHIND_HEAP]);
    }
}
