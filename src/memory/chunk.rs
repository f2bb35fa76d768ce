//! A receive chunk: samples, presence flags and saturation counts.

use std::marker::PhantomData;
use std::sync::Arc;

use dsp::SampleBits;
use ground::os::Region;
use ground::{N_POL, Timestamp};

use super::copies::{BEHIND_HEAP, CopyPlace, StatisticsCopies};
use super::sync::{AtomicBool, AtomicU8, AtomicU16, Ordering, spin_loop};
use super::{ChunkMemory, MemoryKind, SampleView, Store};
use crate::config::RecvConfig;

const ABSENT: u8 = 0;
const CLAIMED: u8 = 1;
const PRESENT: u8 = 2;
const WITHHELD: u8 = 3;

/// Sizes of a chunk, all per polarisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLayout {
    /// Samples.
    pub samples: usize,
    /// Heaps.
    pub heaps: usize,
    /// Payload bytes of one heap.
    pub heap_bytes: usize,
    /// Bytes between the two polarisations: samples, tail and padding.
    pub stride: usize,
    /// Samples of the next chunk that fit behind this one's.
    pub tail_samples: usize,
    sample_bits: usize,
}

impl ChunkLayout {
    /// The layout for chunks of `config` followed by a tail of `tail_samples`, a multiple of 8.
    pub fn new(config: &RecvConfig, tail_samples: usize) -> Self {
        let bytes = config
            .sample_bits
            .bytes(config.chunk_samples + tail_samples);
        Self {
            samples: config.chunk_samples,
            heaps: config.chunk_heaps(),
            heap_bytes: config.heap_bytes(),
            stride: (bytes + SampleView::PADDING).next_multiple_of(Region::ALIGNMENT),
            tail_samples,
            sample_bits: config.sample_bits.get() as usize,
        }
    }

    /// Bytes of one chunk, both polarisations.
    pub fn bytes(&self) -> usize {
        N_POL * self.stride
    }

    /// Bytes of the samples of one polarisation: where its tail begins.
    pub fn sample_bytes(&self) -> usize {
        self.samples * self.sample_bits / 8
    }

    /// Bytes of the tail of one polarisation.
    pub fn tail_bytes(&self) -> usize {
        (self.tail_samples * self.sample_bits).div_ceil(8)
    }
}

/// Where a GPU reads packed samples: a device address of each polarisation, and how many are there.
///
/// No view outlives that from which it has them:
///
/// ```compile_fail
/// fn kept(view: karoo::memory::SampleView<'_>) -> karoo::memory::SampleView<'static> {
///     karoo::memory::SampleView { pol: [&[]; 2], ..view }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DeviceSamples<'a> {
    addresses: [u64; N_POL],
    bytes: usize,
    borrowed: PhantomData<&'a ()>,
}

impl DeviceSamples<'_> {
    /// # Safety
    ///
    /// While a value lives, kernels that are issued to the GPU whose pipelines are given it can
    /// read `bytes` bytes of packed samples at each address, and [`SampleView::PADDING`] bytes
    /// behind them, until they have run.
    pub unsafe fn new(addresses: [u64; N_POL], bytes: usize) -> Self {
        Self {
            addresses,
            bytes,
            borrowed: PhantomData,
        }
    }

    /// The addresses.
    pub fn addresses(self) -> [u64; N_POL] {
        self.addresses
    }

    /// Whole samples of so many bits at each address.
    pub fn count(self, bits: SampleBits) -> usize {
        self.bytes.saturating_mul(8) / bits.get() as usize
    }
}

/// One chunk buffer. Shared by the rx lcores while it fills.
#[derive(Debug)]
pub struct Chunk {
    number: u16,
    layout: ChunkLayout,
    memory: Box<dyn ChunkMemory>,
    /// Per (pol, heap).
    presence: Box<[AtomicU8]>,
    /// Per (pol, heap): samples that the digitiser flagged as saturated.
    saturated: Box<[AtomicU16]>,
    /// Copies of heaps for statistics, if the CPU does not read `memory`.
    copies: Option<StatisticsCopies>,
    frozen: AtomicBool,
}

impl Chunk {
    /// An empty chunk in `memory`, the `number`th of its pool.
    ///
    /// # Panics
    ///
    /// If `memory` has less than [`ChunkLayout::bytes`], or heaps or the tail reach beyond a
    /// polarisation's stride.
    pub fn new(layout: ChunkLayout, number: u16, memory: Box<dyn ChunkMemory>) -> Self {
        // Divided, not multiplied: N_POL · stride could overflow.
        assert!(layout.stride <= memory.region().len() / N_POL);
        let heaps = layout.heaps.checked_mul(layout.heap_bytes);
        assert!(
            heaps.is_some_and(|bytes| bytes <= layout.stride),
            "heaps beyond the memory"
        );
        assert!(layout.sample_bytes() + layout.tail_bytes() <= layout.stride);
        let flags = N_POL * layout.heaps;
        Self {
            number,
            layout,
            memory,
            presence: (0..flags).map(|_| AtomicU8::new(ABSENT)).collect(),
            saturated: (0..flags).map(|_| AtomicU16::new(0)).collect(),
            copies: None,
            frozen: AtomicBool::new(false),
        }
    }

    /// Bytes of memory for [`with_copies`](Self::with_copies).
    pub fn copies_bytes(layout: &ChunkLayout) -> usize {
        StatisticsCopies::bytes(layout)
    }

    /// Keeps copies of the heaps that statistics take, in `memory` of the host.
    ///
    /// # Panics
    ///
    /// If `memory` has less than [`copies_bytes`](Self::copies_bytes), or if the CPU does not read
    /// it.
    pub fn with_copies(self, memory: Box<dyn ChunkMemory>) -> Self {
        let copies = Some(StatisticsCopies::new(&self.layout, memory));
        Self { copies, ..self }
    }

    /// Sizes of the chunk.
    pub fn layout(&self) -> &ChunkLayout {
        &self.layout
    }

    /// The kind of its memory.
    pub fn kind(&self) -> MemoryKind {
        self.memory.kind()
    }

    /// Claims the place of one heap. `None` if it has been claimed before: a duplicate.
    ///
    /// # Panics
    ///
    /// If `pol` or `heap` is outside the layout.
    pub fn claim(&self, pol: usize, heap: usize) -> Option<HeapSlot<'_>> {
        assert!(
            pol < N_POL && heap < self.layout.heaps,
            "heap outside the chunk"
        );
        let index = pol * self.layout.heaps + heap;
        self.presence[index]
            .compare_exchange(ABSENT, CLAIMED, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| HeapSlot {
                chunk: self,
                index,
                pol,
                heap,
                copy: None,
            })
    }

    /// Ends the filling and gives the chunk to one reader. `None` if it is frozen already.
    ///
    /// Heaps that are being placed at this moment are waited for.
    pub fn freeze(self: Arc<Self>) -> Option<FrozenChunk> {
        if self.frozen.swap(true, Ordering::AcqRel) {
            return None;
        }
        for flag in &self.presence {
            let withhold =
                || flag.compare_exchange(ABSENT, WITHHELD, Ordering::Acquire, Ordering::Acquire);
            while withhold() == Err(CLAIMED) {
                spin_loop();
            }
        }
        Some(FrozenChunk { chunk: self })
    }
}

/// The right to write one heap. Dropped unwritten, the heap stays absent.
#[derive(Debug)]
pub struct HeapSlot<'a> {
    chunk: &'a Chunk,
    index: usize,
    pol: usize,
    heap: usize,
    /// Where a copy goes.
    copy: Option<CopyPlace>,
}

impl<'a> HeapSlot<'a> {
    /// Has the payload copied, too, if the chunk keeps copies: statistics
    /// [take the heap](super::is_for_statistics).
    pub fn copied_for_statistics(mut self) -> Self {
        let copies = self.chunk.copies.as_ref();
        self.copy = copies.and_then(|copies| copies.claim(self.pol, self.heap));
        self
    }

    /// Stores the payload and publishes it at once.
    ///
    /// # Panics
    ///
    /// If `payload` is not exactly one heap.
    pub fn write(self, payload: &[u8], saturated: u16) {
        let stored = self.store(payload, saturated);
        Store::fence();
        stored.set_present();
    }

    /// Bytes of the payload.
    pub fn heap_bytes(&self) -> usize {
        self.chunk.layout.heap_bytes
    }

    fn offset(&self) -> usize {
        let layout = &self.chunk.layout;
        self.pol * layout.stride + self.heap * layout.heap_bytes
    }

    /// Puts the payload into place and notes the digitiser's saturation count. It is to be
    /// published.
    ///
    /// # Panics
    ///
    /// If `payload` is not exactly one heap.
    pub fn store(self, payload: &[u8], saturated: u16) -> StoredHeap<'a> {
        self.store_prefetching(payload, saturated, None)
    }

    /// As [`store`](Self::store), and asks the CPU to bring `next` closer meanwhile: the payload
    /// that is to be stored after this one, if it is known.
    ///
    /// # Panics
    ///
    /// If `payload` is not exactly one heap.
    pub fn store_prefetching(
        self,
        payload: &[u8],
        saturated: u16,
        next: Option<&[u8]>,
    ) -> StoredHeap<'a> {
        assert_eq!(payload.len(), self.heap_bytes());
        let memory = &self.chunk.memory;
        // SAFETY: the range is inside the region by the layout; it belongs to this heap alone, and
        // this slot is the only claim on the heap until the flag is reset with exclusive access.
        unsafe {
            let place = memory.region().as_ptr().cast::<u8>().add(self.offset());
            let next = next.unwrap_or(payload);
            memory.store().copy(place, payload, next.as_ptr());
        }
        if let (Some(copies), Some(place)) = (&self.chunk.copies, &self.copy) {
            copies.store(place, payload);
        }
        self.chunk.saturated[self.index].store(saturated, Ordering::Relaxed);
        StoredHeap(self, PhantomData)
    }
}

/// For heaps that a GPU moves into place (`gpu::Gather`).
#[cfg(feature = "nic")]
impl<'a> HeapSlot<'a> {
    /// Where the GPU has the payload's place, if the chunk is in its memory.
    pub fn device_address(&self) -> Option<u64> {
        let start = self.chunk.memory.device_address()?;
        Some(start + self.offset() as u64)
    }

    /// Notes that the GPU put the payload into place, and the digitiser's saturation count.
    pub fn placed_by_gpu(self, saturated: u16) -> StoredHeap<'a> {
        self.chunk.saturated[self.index].store(saturated, Ordering::Relaxed);
        StoredHeap(self, PhantomData)
    }
}

impl Drop for HeapSlot<'_> {
    fn drop(&mut self) {
        if let (Some(copies), Some(place)) = (&self.chunk.copies, &self.copy) {
            copies.release(place);
        }
        // Nothing was written: the bytes are of the chunk's earlier use, so the heap is absent.
        self.chunk.presence[self.index].store(ABSENT, Ordering::Release);
    }
}

/// A heap that is in place, but not present before it is published, by the thread that stored it.
/// Dropped, it stays absent.
#[derive(Debug)]
pub struct StoredHeap<'a>(HeapSlot<'a>, PhantomData<*const ()>);

impl StoredHeap<'_> {
    /// Only after a fence.
    fn set_present(self) {
        self.0.chunk.presence[self.0.index].store(PRESENT, Ordering::Release);
        std::mem::forget(self);
    }
}

impl Drop for StoredHeap<'_> {
    fn drop(&mut self) {
        // Streaming stores may still be on their way: without the fence they could overwrite what
        // is stored here next.
        Store::fence();
    }
}

/// Publishes heaps that this thread has stored. One fence serves all of them: it waits until the
/// CPU's store buffers have drained.
///
/// A chunk cannot be frozen while heaps of it are stored and not published.
pub fn publish(stored: &mut Vec<StoredHeap<'_>>) {
    if !stored.is_empty() {
        Store::fence();
        stored.drain(..).for_each(StoredHeap::set_present);
    }
}

/// A chunk that no rx lcore can write any more, with the head of the next chunk as its tail.
#[derive(Debug)]
pub struct FrozenChunk {
    chunk: Arc<Chunk>,
}

impl FrozenChunk {
    /// Number of the chunk in the pool.
    pub fn number(&self) -> u16 {
        self.chunk.number
    }

    /// The layout.
    pub fn layout(&self) -> &ChunkLayout {
        &self.chunk.layout
    }

    /// Whether a heap is present.
    ///
    /// # Panics
    ///
    /// If `pol` or `heap` is outside the layout.
    pub fn present(&self, pol: usize, heap: usize) -> bool {
        let heaps = self.chunk.layout.heaps;
        assert!(pol < N_POL && heap < heaps, "heap outside the chunk");
        self.chunk.presence[pol * heaps + heap].load(Ordering::Relaxed) == PRESENT
    }

    /// The digitiser's saturation count of a heap, zero if it is absent.
    ///
    /// # Panics
    ///
    /// As [`present`](Self::present).
    pub fn saturated(&self, pol: usize, heap: usize) -> u16 {
        if self.present(pol, heap) {
            self.chunk.saturated[pol * self.chunk.layout.heaps + heap].load(Ordering::Relaxed)
        } else {
            0
        }
    }

    /// The kind of its memory.
    pub fn kind(&self) -> MemoryKind {
        self.chunk.kind()
    }

    /// One polarisation: packed samples, tail and padding. Slow unless [`MemoryKind::is_host`].
    ///
    /// # Panics
    ///
    /// If there is no such polarisation.
    pub fn pol(&self, pol: usize) -> &[u8] {
        let stride = self.chunk.layout.stride;
        let start = self.pol_offset(pol);
        // SAFETY: inside the region by the layout; no heap slot of a frozen chunk is left, and the
        // tail is written through `&mut self` only.
        unsafe { std::slice::from_raw_parts(self.start().add(start), stride) }
    }

    /// Where a polarisation begins in the chunk's memory.
    fn pol_offset(&self, pol: usize) -> usize {
        assert!(pol < N_POL, "polarisation outside the chunk");
        pol * self.chunk.layout.stride
    }

    /// The packed samples of a heap, and `BEHIND_HEAP` bytes behind them, where the CPU reads
    /// them at its ease: in place, or a copy. `None` if the heap is absent, or if no copy was kept.
    ///
    /// # Panics
    ///
    /// As [`present`](Self::present).
    pub fn readable(&self, pol: usize, heap: usize) -> Option<&[u8]> {
        if !self.present(pol, heap) {
            return None;
        }
        if !self.kind().is_host() {
            return self.chunk.copies.as_ref()?.heap(pol, heap);
        }
        let bytes = self.chunk.layout.heap_bytes;
        // There is padding behind the last heap.
        Some(&self.pol(pol)[heap * bytes..][..bytes + BEHIND_HEAP])
    }

    /// Where the GPU reads one polarisation in place, laid out as [`pol`](Self::pol); a multiple of
    /// [`CHUNK_ALIGNMENT`](super::CHUNK_ALIGNMENT). `None` if the chunk is to be copied first.
    ///
    /// # Panics
    ///
    /// If there is no such polarisation.
    pub fn device_address(&self, pol: usize) -> Option<u64> {
        let offset = self.pol_offset(pol);
        let start = self.chunk.memory.device_address()?;
        Some(start + offset as u64)
    }

    fn start(&self) -> *mut u8 {
        self.chunk.memory.region().as_ptr().cast()
    }

    /// Copies the head of the following chunk behind the samples of this one, with the CPU.
    ///
    /// Not for GPU memory, which the CPU must not read in the data path: there the backend copies
    /// [`ChunkLayout::tail_bytes`] from the [`device_address`](Self::device_address) of `next` to
    /// [`ChunkLayout::sample_bytes`] behind that of this chunk.
    pub fn copy_tail(&mut self, next: &FrozenChunk) {
        let layout = self.chunk.layout;
        let bytes = layout.tail_bytes();
        for pol in 0..N_POL {
            let source = &next.pol(pol)[..bytes];
            let offset = pol * layout.stride + layout.sample_bytes();
            // SAFETY: the tail lies inside the region behind the last heap, so no heap slot covers
            // it, and this is the only `FrozenChunk` of the chunk, held exclusively. `next` is
            // another chunk.
            unsafe {
                self.start()
                    .add(offset)
                    .copy_from_nonoverlapping(source.as_ptr(), bytes);
            }
        }
    }

    /// What a backend reads: `samples` usable samples from timestamp `start`.
    pub fn view(&self, start: Timestamp, samples: usize) -> SampleView<'_> {
        SampleView {
            start,
            samples,
            pol: [self.pol(0), self.pol(1)],
            device: None,
        }
    }

    /// Empties the chunk for its next use.
    pub fn recycle(self) {
        if let Some(copies) = &self.chunk.copies {
            copies.recycle();
        }
        for flag in &self.chunk.presence {
            flag.store(ABSENT, Ordering::Release);
        }
        self.chunk.frozen.store(false, Ordering::Release);
    }
}
