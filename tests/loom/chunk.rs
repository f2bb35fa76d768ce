//! Model checks of a receive chunk: whoever reads a frozen chunk sees all of the heaps that are
//! present, and nobody writes to it any more.
//!
//! Its memory here is like that of a GPU: what is stored stays on its way until the thread's next
//! fence.

#[allow(dead_code, missing_docs, unused_imports)]
#[path = "../../src/memory/chunk.rs"]
mod source;

#[allow(dead_code, missing_docs)]
#[path = "../../src/memory/copies.rs"]
mod copies;

mod sync {
    pub use loom::hint::spin_loop;
    pub use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, Ordering};
}

use std::cell::RefCell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use dsp::SampleBits;
use ground::os::Region;
use karoo::config::RecvConfig;
use karoo::memory::{CHUNK_ALIGNMENT, MemoryKind, SampleView};
use loom::cell::UnsafeCell;
use loom::thread;
use source::{Chunk, ChunkLayout, FrozenChunk, publish};

/// Heaps of a polarisation, and bytes of each.
const HEAPS: usize = 2;
const HEAP_BYTES: usize = 8;

trait ChunkMemory: Send + Sync + fmt::Debug {
    fn kind(&self) -> MemoryKind;
    fn region(&self) -> NonNull<[u8]>;
    fn device_address(&self) -> Option<u64>;
    fn store(&self) -> Store;
}

/// Memory, and a cell for each heap of the first polarisation by which loom tells whether accesses
/// are ordered.
struct Lines {
    memory: Region,
    heaps: [UnsafeCell<()>; HEAPS],
}

impl Lines {
    fn heap(&self, place: *const u8) -> &UnsafeCell<()> {
        let offset = place as usize - self.memory.as_ptr().cast::<u8>().as_ptr() as usize;
        &self.heaps[offset / HEAP_BYTES]
    }
}

/// Shared with the stores that are on their way.
struct Memory(Arc<Lines>, MemoryKind);

// SAFETY: loom runs one thread at a time, and reports accesses to the cells that are not ordered.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}

impl ChunkMemory for Memory {
    fn kind(&self) -> MemoryKind {
        self.1
    }
    fn region(&self) -> NonNull<[u8]> {
        self.0.memory.as_ptr()
    }
    fn device_address(&self) -> Option<u64> {
        None
    }
    fn store(&self) -> Store {
        Store(self.0.clone())
    }
}

/// A heap's bytes that are on their way to a place.
type OnItsWay = (Arc<Lines>, *mut u8, Vec<u8>);

loom::thread_local! {
    static ON_THEIR_WAY: RefCell<Vec<OnItsWay>> = RefCell::default();
}

struct Store(Arc<Lines>);

impl Store {
    unsafe fn copy(self, to: *mut u8, from: &[u8], _next: *const u8) {
        ON_THEIR_WAY.with(|all| all.borrow_mut().push((self.0, to, from.to_vec())));
    }

    fn fence() {
        let arrived = ON_THEIR_WAY.with(|all| std::mem::take(&mut *all.borrow_mut()));
        for (lines, to, bytes) in arrived {
            lines.heap(to).with_mut(|_| {
                // SAFETY: the chunk vouches for the place, and loom reports any access that is not
                // ordered with this one.
                unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
            });
        }
    }
}

fn layout() -> ChunkLayout {
    let config = RecvConfig {
        packet_samples: 8,
        sample_bits: SampleBits::new(8).unwrap(),
        chunk_samples: 8 * HEAPS,
        mask_timestamp: false,
    };
    ChunkLayout::new(&config, 0)
}

fn lines(bytes: usize) -> Arc<Lines> {
    // Its cells are loom's own, which checks every access to them.
    #[allow(clippy::arc_with_non_send_sync)]
    Arc::new(Lines {
        memory: Region::new(bytes).unwrap(),
        heaps: [0; HEAPS].map(|_| UnsafeCell::new(())),
    })
}

fn memory() -> (Chunk, Arc<Lines>) {
    let lines = lines(layout().bytes());
    let memory = Box::new(Memory(lines.clone(), MemoryKind::Bar));
    (Chunk::new(layout(), 0, memory), lines)
}

fn chunk() -> (Arc<Chunk>, Arc<Lines>) {
    let (chunk, lines) = memory();
    (Arc::new(chunk), lines)
}

/// A chunk that keeps copies, and their memory.
fn with_copies() -> (Arc<Chunk>, Arc<Lines>) {
    let copies = lines(Chunk::copies_bytes(&layout()));
    let memory = Box::new(Memory(copies.clone(), MemoryKind::Host));
    (Arc::new(self::memory().0.with_copies(memory)), copies)
}

/// The copy of heap 0 of a frozen chunk, if there is one.
fn copy(chunk: &FrozenChunk, copies: &Lines) -> Option<[u8; HEAP_BYTES]> {
    let bytes = chunk.readable(0, 0)?;
    let copied = copies.heap(bytes.as_ptr());
    Some(copied.with(|_| bytes[..HEAP_BYTES].try_into().unwrap()))
}

/// A heap of a frozen chunk, if it is present.
fn read(chunk: &FrozenChunk, lines: &Lines, heap: usize) -> Option<[u8; HEAP_BYTES]> {
    chunk.present(0, heap).then(|| {
        let bytes = &chunk.pol(0)[heap * HEAP_BYTES..][..HEAP_BYTES];
        lines
            .heap(bytes.as_ptr())
            .with(|_| bytes.try_into().unwrap())
    })
}

#[test]
fn a_heap_that_is_present_is_all_there() {
    loom::model(|| {
        let (chunk, lines) = chunk();
        let rx = {
            let chunk = chunk.clone();
            thread::spawn(move || {
                let slots = [0, 1].map(|heap| chunk.claim(0, heap));
                let stored = slots.into_iter().zip([7, 8]);
                let mut stored: Vec<_> = stored
                    .filter_map(|(slot, byte)| Some(slot?.store(&[byte; HEAP_BYTES], 0)))
                    .collect();
                let heaps = stored.len();
                publish(&mut stored);
                heaps
            })
        };
        let frozen = chunk.freeze().unwrap();
        let seen = [0, 1].map(|heap| read(&frozen, &lines, heap));
        for (seen, byte) in seen.iter().zip([7, 8]) {
            assert!(
                seen.is_none_or(|bytes| bytes == [byte; HEAP_BYTES]),
                "{seen:?}"
            );
        }
        // All that was claimed was waited for.
        assert_eq!(rx.join().unwrap(), seen.iter().flatten().count());
        assert_eq!([0, 1].map(|heap| read(&frozen, &lines, heap)), seen);
    });
}

#[test]
fn a_heap_that_is_written_at_once_is_all_there() {
    loom::model(|| {
        let (chunk, lines) = chunk();
        let rx = {
            let chunk = chunk.clone();
            thread::spawn(move || {
                if let Some(slot) = chunk.claim(0, 0) {
                    slot.write(&[7; HEAP_BYTES], 0);
                }
            })
        };
        let frozen = chunk.freeze().unwrap();
        let seen = read(&frozen, &lines, 0);
        assert!(
            seen.is_none_or(|bytes| bytes == [7; HEAP_BYTES]),
            "{seen:?}"
        );
        rx.join().unwrap();
    });
}

/// A lane that gives a heap up, and another to which it comes once more.
#[test]
fn what_is_given_up_does_not_overwrite_what_comes_next() {
    loom::model(|| {
        let (chunk, lines) = chunk();
        let other = {
            let chunk = chunk.clone();
            thread::spawn(move || {
                let given_up = chunk
                    .claim(0, 0)
                    .map(|slot| slot.store(&[1; HEAP_BYTES], 0));
                drop(given_up);
                let mut stored = chunk
                    .claim(0, 1)
                    .map(|slot| slot.store(&[2; HEAP_BYTES], 0));
                publish(&mut stored.take().into_iter().collect());
            })
        };
        let mut mine: Vec<_> = chunk
            .claim(0, 0)
            .map(|slot| slot.store(&[3; HEAP_BYTES], 0))
            .into_iter()
            .collect();
        let placed = mine.len();
        publish(&mut mine);
        drop(mine);
        other.join().unwrap();
        let frozen = chunk.freeze().unwrap();
        let expected = (placed > 0).then_some([3; HEAP_BYTES]);
        assert_eq!(read(&frozen, &lines, 0), expected);
        assert_eq!(read(&frozen, &lines, 1), Some([2; HEAP_BYTES]));
    });
}

#[test]
fn the_copy_of_a_heap_that_is_present_is_all_there() {
    loom::model(|| {
        let (chunk, copies) = with_copies();
        let rx = {
            let chunk = chunk.clone();
            thread::spawn(move || {
                let stored = chunk
                    .claim(0, 0)
                    .map(|slot| slot.copied_for_statistics().store(&[7; HEAP_BYTES], 0));
                publish(&mut stored.into_iter().collect());
            })
        };
        let frozen = chunk.freeze().unwrap();
        let seen = copy(&frozen, &copies);
        assert_eq!(seen.is_some(), frozen.present(0, 0));
        assert!(
            seen.is_none_or(|bytes| bytes == [7; HEAP_BYTES]),
            "{seen:?}"
        );
        rx.join().unwrap();
    });
}

/// Two lanes have the same heap, and one gives it up; or two heaps of one place, which a chunk does
/// not have if lcores go by the rule.
#[test]
fn copies_are_those_of_the_heap_that_is_present() {
    for other_heap in [0, 1] {
        loom::model(move || {
            let (chunk, copies) = with_copies();
            let other = {
                let chunk = chunk.clone();
                thread::spawn(move || {
                    let slot = chunk.claim(0, other_heap);
                    drop(slot.map(|slot| slot.copied_for_statistics().store(&[1; HEAP_BYTES], 0)));
                })
            };
            let mine = chunk
                .claim(0, 0)
                .map(|slot| slot.copied_for_statistics().store(&[3; HEAP_BYTES], 0));
            let placed = mine.is_some();
            publish(&mut mine.into_iter().collect());
            other.join().unwrap();
            let frozen = chunk.clone().freeze().unwrap();
            assert_eq!(frozen.present(0, 0), placed);
            // Another heap's copy may have been there.
            let seen = copy(&frozen, &copies);
            assert!(seen.is_none_or(|bytes| placed && bytes == [3; HEAP_BYTES]));
            assert!(seen.is_some() || !placed || other_heap == 1);
            // The next heaps find room.
            frozen.recycle();
            let slot = chunk.claim(0, 0).unwrap().copied_for_statistics();
            slot.write(&[5; HEAP_BYTES], 0);
            let frozen = chunk.freeze().unwrap();
            assert_eq!(copy(&frozen, &copies), Some([5; HEAP_BYTES]));
        });
    }
}
