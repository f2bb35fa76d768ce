//! One receive chunk: what is claimed, stored and published.

use std::ptr::NonNull;
use std::sync::Arc;

use dsp::SampleBits;

use super::chunk::{Chunk, ChunkLayout, DeviceSamples, publish};
use super::copies::BEHIND_HEAP;
use crate::config::RecvConfig;
use crate::memory::{ChunkAllocator, ChunkMemory, HostAllocator, MemoryKind, Purpose, Store};

fn chunk() -> Arc<Chunk> {
    let config = RecvConfig {
        packet_samples: 64,
        sample_bits: SampleBits::new(10).unwrap(),
        chunk_samples: 256,
        mask_timestamp: false,
    };
    let layout = ChunkLayout::new(&config, 16);
    let memory = HostAllocator::default().allocate(Purpose::ReceiveChunk, layout.bytes());
    Arc::new(Chunk::new(layout, 0, memory.unwrap()))
}

/// Each heap is whole bytes, so that small ones of few bits take more than their samples.
#[test]
#[should_panic(expected = "heaps")]
fn heaps_beyond_the_memory_are_refused() {
    let config = RecvConfig {
        packet_samples: 1,
        sample_bits: SampleBits::new(2).unwrap(),
        chunk_samples: 1 << 20,
        mask_timestamp: false,
    };
    let layout = ChunkLayout::new(&config, 0);
    let memory = HostAllocator::default().allocate(Purpose::ReceiveChunk, layout.bytes());
    Chunk::new(layout, 0, memory.unwrap());
}

#[test]
fn heaps_land_in_their_own_bytes() {
    let chunk = chunk();
    chunk.claim(1, 2).unwrap().write(&[7; 80], 5);
    assert!(chunk.claim(1, 2).is_none(), "a second claim is a duplicate");
    let frozen = chunk.freeze().unwrap();
    assert!(frozen.present(1, 2) && !frozen.present(0, 2) && !frozen.present(1, 1));
    assert_eq!((frozen.saturated(1, 2), frozen.saturated(1, 1)), (5, 0));
    let bytes = frozen.pol(1);
    assert!(bytes[..160].iter().chain(&bytes[240..]).all(|&b| b == 0));
    assert!(bytes[160..240].iter().all(|&b| b == 7));
    let readable = frozen.readable(1, 2).unwrap();
    assert_eq!(readable, &bytes[160..240 + BEHIND_HEAP]);
}

/// Memory ends behind the last polarisation.
#[test]
fn there_are_no_other_polarisations_or_heaps() {
    let frozen = chunk().freeze().unwrap();
    let heaps = frozen.layout().heaps;
    fn refuses<T>(look: impl Fn() -> T) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(look)).is_err()
    }
    for pol in [2, 1 << 24, usize::MAX] {
        assert!(refuses(|| frozen.pol(pol).len()), "{pol}");
        assert!(refuses(|| frozen.device_address(pol)), "{pol}");
        assert!(refuses(|| frozen.present(pol, 0)), "{pol}");
    }
    // This would be the first heap of the other polarisation.
    assert!(refuses(|| frozen.present(0, heaps)));
    assert!(refuses(|| frozen.saturated(0, heaps)));
}

#[test]
fn a_heap_that_was_claimed_but_not_written_is_absent() {
    let chunk = chunk();
    drop(chunk.claim(0, 1));
    chunk.claim(0, 1).unwrap().write(&[1; 80], 0);
    drop(chunk.claim(1, 1));
    let frozen = chunk.freeze().unwrap();
    assert!(frozen.present(0, 1) && !frozen.present(1, 1));
}

#[test]
fn a_heap_that_was_stored_is_present_once_it_is_published() {
    let chunk = chunk();
    let mut stored = vec![chunk.claim(0, 1).unwrap().store(&[3; 80], 4)];
    assert!(chunk.claim(0, 1).is_none());
    publish(&mut stored);
    drop(chunk.claim(0, 2).unwrap().store(&[3; 80], 4));
    assert!(stored.is_empty());
    let frozen = chunk.clone().freeze().unwrap();
    assert!(frozen.present(0, 1) && !frozen.present(0, 2));
    assert_eq!(frozen.saturated(0, 1), 4);
}

#[test]
fn a_frozen_chunk_takes_no_heaps_until_recycled() {
    let chunk = chunk();
    let frozen = chunk.clone().freeze().unwrap();
    assert!(chunk.claim(0, 0).is_none());
    assert!(chunk.clone().freeze().is_none());
    frozen.recycle();
    assert!(chunk.claim(0, 0).is_some());
}

#[test]
fn the_tail_is_the_head_of_the_next_chunk() {
    let (first, next) = (chunk(), chunk());
    next.claim(0, 0)
        .unwrap()
        .write(&std::array::from_fn::<u8, 80, _>(|i| i as u8), 0);
    let mut first = first.freeze().unwrap();
    first.copy_tail(&next.freeze().unwrap());
    let bytes: Vec<u8> = (0..20).collect();
    assert_eq!(first.pol(0)[320..340], bytes);
    assert_eq!(first.pol(0)[340], 0);
}

/// Memory that a GPU has at an address of its own.
#[derive(Debug)]
struct OfGpu(Box<dyn ChunkMemory>);

impl OfGpu {
    const ADDRESS: u64 = 1 << 40;
}

// SAFETY: the memory is that of the value inside.
unsafe impl ChunkMemory for OfGpu {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Bar
    }
    fn region(&self) -> NonNull<[u8]> {
        self.0.region()
    }
    fn device_address(&self) -> Option<u64> {
        Some(Self::ADDRESS)
    }
    fn store(&self) -> Store {
        self.0.store()
    }
}

#[test]
fn a_gpu_finds_each_polarisation() {
    let layout = *chunk().layout();
    assert_eq!(chunk().freeze().unwrap().device_address(0), None);
    let memory = HostAllocator::default().allocate(Purpose::ReceiveChunk, layout.bytes());
    let memory = OfGpu(memory.unwrap());
    let chunk = Arc::new(Chunk::new(layout, 0, Box::new(memory)));
    #[cfg(feature = "nic")]
    {
        let slot = chunk.claim(1, 2).unwrap();
        let address = OfGpu::ADDRESS + (layout.stride + 2 * 80) as u64;
        assert_eq!(slot.device_address(), Some(address));
        publish(&mut vec![slot.placed_by_gpu(7)]);
    }
    let frozen = chunk.freeze().unwrap();
    let addresses = [0, 1].map(|pol| frozen.device_address(pol));
    let second = OfGpu::ADDRESS + layout.stride as u64;
    assert_eq!(addresses, [Some(OfGpu::ADDRESS), Some(second)]);
    #[cfg(feature = "nic")]
    assert_eq!((frozen.present(1, 2), frozen.saturated(1, 2)), (true, 7));
    // SAFETY: nothing reads at these addresses.
    let samples = unsafe { DeviceSamples::new([3, 5], 70) };
    assert_eq!(samples.addresses(), [3, 5]);
    let counts = [8, 10, 12].map(|bits| samples.count(SampleBits::new(bits).unwrap()));
    assert_eq!(counts, [70, 56, 46]);
}
