//! Every kind of chunk memory, stored in every way that this CPU has, passes one suite.
//!
//! What was written is read as its user does: by the CPU for `host`, through the GPU's copy engines
//! for the others. Without a CUDA device these say so and pass; `bar` says what it lacks.

mod support;

use std::sync::{Arc, Barrier};
use std::thread;

use cudarc::driver::CudaContext;
use dsp::SampleBits;
use karoo::config::RecvConfig;
use karoo::gpu::{self, BarAllocator, BarError, Gpu, PinnedAllocator};
use karoo::memory::{
    Chunk, ChunkAllocator, ChunkLayout, FrozenChunk, HostAllocator, MemoryKind, OutputMemory,
    Purpose, Store, publish,
};
use karoo::recv::{ReceiveOptions, receive_bytes, receive_memory};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use support::{device, left_out};

/// One allocator under test.
struct Subject {
    name: String,
    allocator: Box<dyn ChunkAllocator>,
    gpu: Option<Arc<Gpu>>,
}

impl Subject {
    fn new(store: Store, allocator: impl ChunkAllocator + 'static, gpu: Option<&Arc<Gpu>>) -> Self {
        Self {
            name: format!("{}, {store}", allocator.kind()),
            allocator: Box::new(allocator),
            gpu: gpu.cloned(),
        }
    }

    fn chunk(&self, layout: ChunkLayout) -> Arc<Chunk> {
        let memory = self
            .allocator
            .allocate(Purpose::ReceiveChunk, layout.bytes());
        Arc::new(Chunk::new(layout, 0, memory.unwrap()))
    }

    /// One polarisation, read as the memory's user reads it.
    fn read(&self, chunk: &FrozenChunk, pol: usize) -> Vec<u8> {
        match &self.gpu {
            Some(gpu) => gpu::read_back(gpu, chunk, pol).unwrap(),
            None => chunk.pol(pol).to_vec(),
        }
    }
}

fn host() -> Vec<Subject> {
    Store::all()
        .map(|store| {
            Subject::new(
                store,
                HostAllocator {
                    store,
                    ..HostAllocator::default()
                },
                None,
            )
        })
        .collect()
}

fn pinned() -> Vec<Subject> {
    let Some(gpu) = device() else { return vec![] };
    let pinned = |store| PinnedAllocator::new(&gpu).with_store(store);
    Store::all()
        .map(|store| Subject::new(store, pinned(store), Some(&gpu)))
        .collect()
}

fn bar() -> Vec<Subject> {
    let Some(gpu) = device() else { return vec![] };
    let mut subjects = Vec::new();
    for store in Store::all() {
        match BarAllocator::open(&gpu, 0) {
            Ok(bar) => subjects.push(Subject::new(store, bar.with_store(store), Some(&gpu))),
            Err(error @ (BarError::NoLoader(_) | BarError::NoDevice { .. })) => {
                left_out(&format!("no bar memory: {error}"));
                return vec![];
            }
            Err(error) => panic!("{error}"),
        }
    }
    subjects
}

/// Chunks of `heaps` heaps with a tail of 16 samples.
fn layout(bits: u32, heap_samples: usize, heaps: usize) -> ChunkLayout {
    let config = RecvConfig {
        packet_samples: heap_samples,
        sample_bits: SampleBits::new(bits).unwrap(),
        chunk_samples: heap_samples * heaps,
        mask_timestamp: false,
    };
    ChunkLayout::new(&config, 16)
}

/// Bytes that no other heap of the same round has.
fn payload(round: u64, pol: usize, heap: usize, bytes: usize) -> Vec<u8> {
    let stream = (heap * 2 + pol) as u64;
    let mut rng = ChaCha8Rng::seed_from_u64(round);
    rng.set_stream(stream);
    (0..bytes).map(|_| rng.random_range(1..=255)).collect()
}

/// Heaps of many lengths, so that they begin and end anywhere in a cache line, from sources that do
/// too. What no heap covers stays zero: absent heaps, tail and padding.
fn heaps_land_in_their_own_bytes(subject: &Subject) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for (bits, heap_samples) in [
        (2, 8),
        (3, 8),
        (10, 56),
        (7, 64),
        (12, 104),
        (16, 200),
        (10, 4096),
    ] {
        let layout = layout(bits, heap_samples, 64);
        let chunk = subject.chunk(layout);
        let mut expected = [vec![0; layout.stride], vec![0; layout.stride]];
        for (pol, expected) in expected.iter_mut().enumerate() {
            for heap in 0..layout.heaps {
                if rng.random_bool(0.4) {
                    continue;
                }
                let bytes = payload(0, pol, heap, layout.heap_bytes);
                let shift = rng.random_range(0..64);
                let mut source = vec![0xEE; shift];
                source.extend(&bytes);
                let slot = chunk.claim(pol, heap).unwrap();
                slot.write(&source[shift..], 3);
                expected[heap * layout.heap_bytes..][..layout.heap_bytes].copy_from_slice(&bytes);
            }
        }
        let frozen = chunk.freeze().unwrap();
        for (pol, expected) in expected.iter().enumerate() {
            let read = subject.read(&frozen, pol);
            assert!(read == *expected, "{}: {layout:?}", subject.name);
        }
    }
}

/// Two threads write every other heap each, so that they share every line where heaps meet.
fn neighbours_can_be_written_at_once(subject: &Subject) {
    let layout = layout(10, 56, 512);
    let chunk = subject.chunk(layout);
    for round in 0..20 {
        let payloads: Vec<_> = (0..layout.heaps)
            .map(|heap| payload(round, 0, heap, layout.heap_bytes))
            .collect();
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            for parity in 0..2 {
                let (chunk, payloads, barrier) = (&chunk, &payloads, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for heap in (parity..layout.heaps).step_by(2) {
                        chunk.claim(0, heap).unwrap().write(&payloads[heap], 0);
                    }
                });
            }
        });
        let frozen = chunk.clone().freeze().unwrap();
        let read = subject.read(&frozen, 0);
        assert!(
            read[..layout.sample_bytes()] == payloads.concat(),
            "{}, round {round}",
            subject.name
        );
        frozen.recycle();
    }
}

/// Freezing waits for a heap that is being written. As soon as that is present, it is there to the
/// last byte.
fn a_present_heap_is_whole(subject: &Subject) {
    let layout = layout(10, 4096, 1);
    let chunk = subject.chunk(layout);
    for round in 1..=250 {
        let payload = vec![round; layout.heap_bytes];
        let slot = chunk.claim(1, 0).unwrap();
        let barrier = Barrier::new(2);
        let frozen = thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                publish(&mut vec![slot.store(&payload, 0)]);
            });
            barrier.wait();
            let frozen = chunk.clone().freeze().unwrap();
            assert!(frozen.present(1, 0));
            // Before the writer is joined, which would order its stores, and the last bytes first.
            let whole = |bytes: &[u8]| {
                let heap = &bytes[..layout.heap_bytes];
                heap.iter().rev().all(|&byte| byte == round)
            };
            let whole = match &subject.gpu {
                None => whole(frozen.pol(1)),
                Some(_) => whole(&subject.read(&frozen, 1)),
            };
            assert!(whole, "{}, round {round}", subject.name);
            frozen
        });
        frozen.recycle();
    }
}

/// Heaps of one use are absent in the next, and give way to its heaps.
fn chunks_are_used_again(subject: &Subject) {
    let layout = layout(12, 104, 16);
    let chunk = subject.chunk(layout);
    for round in 0..3 {
        let heap = round as usize;
        let bytes = payload(round, 1, 9, layout.heap_bytes);
        chunk.claim(1, heap).unwrap().write(&[5; 156], 1);
        chunk.claim(1, 9).unwrap().write(&bytes, 2);
        let frozen = chunk.clone().freeze().unwrap();
        let present: Vec<_> = (0..16).filter(|&heap| frozen.present(1, heap)).collect();
        assert_eq!(present, [heap, 9], "{}", subject.name);
        let read = subject.read(&frozen, 1);
        assert!(read[9 * 156..][..156] == bytes, "{}", subject.name);
        frozen.recycle();
    }
}

/// The chunks of a receiver are apart, and so are their polarisations.
fn chunks_are_apart(subject: &Subject) {
    let config = RecvConfig {
        packet_samples: 4096,
        sample_bits: SampleBits::new(10).unwrap(),
        chunk_samples: 1 << 16,
        mask_timestamp: false,
    };
    let allocator = &*subject.allocator;
    let options = ReceiveOptions {
        tail_samples: 64,
        ..ReceiveOptions::for_lanes(1)
    };
    let (memory, _collector) = receive_memory(&config, options, allocator).unwrap();
    assert_eq!(memory.kind(), allocator.kind());
    assert!(memory.bytes() as u64 <= receive_bytes(&config, 64, allocator.kind()));
    let chunks: Vec<_> = std::iter::from_fn(|| memory.take())
        .map(|number| memory.chunk(number).clone())
        .collect();
    let layout = *chunks[0].layout();
    let bytes = |chunk: usize, pol| payload(chunk as u64, pol, 0, layout.heap_bytes);
    for heap in 0..layout.heaps {
        for (number, chunk) in chunks.iter().enumerate() {
            for pol in 0..2 {
                let slot = chunk.claim(pol, heap).unwrap();
                slot.write(&bytes(number, pol), 0);
            }
        }
    }
    for (number, chunk) in chunks.into_iter().enumerate() {
        let frozen = chunk.freeze().unwrap();
        for pol in 0..2 {
            let read = subject.read(&frozen, pol);
            let expected = bytes(number, pol).repeat(layout.heaps);
            let same = read[..layout.sample_bytes()] == expected;
            assert!(same, "{}, chunk {number}", subject.name);
        }
    }
}

/// Two polarisations of 512 MiB, of which the ends are written.
fn chunks_can_be_large(subject: &Subject) {
    let layout = layout(16, 1 << 20, 256);
    let chunk = subject.chunk(layout);
    let ends = [0, layout.heaps - 1];
    for pol in 0..2 {
        for heap in ends {
            let bytes = payload(0, pol, heap, layout.heap_bytes);
            chunk.claim(pol, heap).unwrap().write(&bytes, 0);
        }
    }
    let frozen = chunk.freeze().unwrap();
    for pol in 0..2 {
        let read = subject.read(&frozen, pol);
        for heap in ends {
            let expected = payload(0, pol, heap, layout.heap_bytes);
            let there = &read[heap * layout.heap_bytes..][..layout.heap_bytes];
            assert!(there == expected, "{}, {pol}, {heap}", subject.name);
        }
        let between = &read[layout.heap_bytes..][..layout.heap_bytes];
        assert!(between.iter().all(|&byte| byte == 0), "{}", subject.name);
    }
}

/// A refusal names the kind and the option that lowers the demand. Output chunks need memory that
/// the CPU can read.
fn refusals_tell_the_way_out(subject: &Subject) {
    let allocator = &*subject.allocator;
    let kind = allocator.kind().to_string();
    for (purpose, option) in [
        (Purpose::ReceiveChunk, "lower --recv-chunk-samples"),
        (Purpose::OutputChunk, "lower --send-chunk-jones"),
    ] {
        for bytes in [1 << 60, usize::MAX] {
            let text = allocator.allocate(purpose, bytes).unwrap_err().to_string();
            let told = text.contains(&format!("{kind} memory")) && text.contains(option);
            assert!(told && text.contains(&bytes.to_string()), "{text}");
        }
    }
    let output = OutputMemory::new(4, 4096, allocator);
    match allocator.kind() {
        MemoryKind::Host | MemoryKind::Pinned => assert_eq!(output.unwrap().capacity(), 4),
        _ => assert!(output.unwrap_err().to_string().contains("by the CPU")),
    }
}

macro_rules! suite {
    ($kind:ident: $($test:ident)*) => {
        mod $kind {
            $(#[test]
            fn $test() {
                for subject in super::$kind() {
                    super::$test(&subject);
                }
            })*
        }
    };
    ($($kind:ident)*) => {
        $(suite! { $kind:
            heaps_land_in_their_own_bytes
            neighbours_can_be_written_at_once
            a_present_heap_is_whole
            chunks_are_used_again
            chunks_are_apart
            refusals_tell_the_way_out
        })*
    };
}

suite! { host pinned bar }

mod large {
    use super::*;

    /// With the kind's own store: all of them would take minutes.
    fn last(subjects: Vec<Subject>) {
        if let Some(subject) = subjects.last() {
            chunks_can_be_large(subject);
        }
    }

    #[test]
    fn host() {
        last(super::host());
    }

    #[test]
    fn pinned() {
        last(super::pinned());
    }

    #[test]
    fn bar() {
        last(super::bar());
    }
}

/// Other tests have less than half of what would be gone.
#[test]
fn bar_memory_comes_back() {
    const CHUNK: usize = 1 << 30;
    const CHUNKS: usize = 12;
    let Some(subject) = bar().pop() else { return };
    let context = CudaContext::new(0).unwrap();
    let free = || context.mem_get_info().unwrap().0;
    let before = free();
    for _ in 0..CHUNKS {
        let memory = subject.allocator.allocate(Purpose::ReceiveChunk, CHUNK);
        assert!(memory.unwrap().device_address().is_some());
    }
    let gone = before.saturating_sub(free());
    assert!(gone < CHUNKS / 2 * CHUNK, "{gone} bytes");
}

/// Drivers have hung where one thread ended while another closed the GPU.
#[test]
fn bar_memory_is_had_by_threads_that_end() {
    const ROUNDS: usize = 3;
    let threads = (0..8).map(|_| {
        thread::spawn(|| {
            for subject in (0..ROUNDS).filter_map(|_| bar().pop()) {
                let memory = subject.allocator.allocate(Purpose::ReceiveChunk, 4096);
                assert!(memory.unwrap().device_address().is_some());
            }
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().unwrap();
    }
}

#[test]
fn a_bar_that_is_too_small_is_refused_with_the_numbers() {
    let Some(gpu) = device() else { return };
    match BarAllocator::open(&gpu, 1 << 60) {
        Err(BarError::NoLoader(_) | BarError::NoDevice { .. }) => left_out("no bar memory"),
        Err(error @ BarError::TooSmall { .. }) => {
            let text = error.to_string();
            let told = text.contains("1099511627776 MiB") && text.contains("--memory pinned");
            assert!(told, "{text}");
        }
        other => panic!("{other:?}"),
    }
}
