//! Packets whose payload lies in memory that is not DPDK's: an output chunk is filled once, then
//! every packet's payload segment points into it, and it comes back to its pool when the last of
//! them has left.
//!
//! A buffer is in one of three states, each a type: in its [`ExtPool`]; [`ExtBuffer`], one owner,
//! writable; [`SharedBuffer`], frozen, packets point into it. Reference counting uses one
//! `rte_mbuf_ext_shared_info` per buffer, made with the pool: nothing is allocated later.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use crossbeam::queue::ArrayQueue;
use dpdk_sys::rte_mbuf_ext_shared_info;

use super::dma::RegisteredRange;
use super::error::DpdkError;
use super::{Eal, Mbuf, MbufPool};

/// Memory that packets can point into, with whatever else belongs to it.
///
/// # Safety
/// [`region`](Self::region) is the same initialised memory for the life of the value, also when the
/// value moves, and its bytes change only through `&mut self`. Neither [`Writer`](Self::Writer) nor
/// [`recycled`](Self::recycled) exchanges the value for another.
pub unsafe trait ExtMemory: Send + Sync + 'static {
    /// What the owner of a buffer changes it through. No `&mut Self`: with that, the memory could
    /// be exchanged and freed, which devices may know.
    type Writer<'a>;

    /// Gives what changes the memory.
    fn writer(&mut self) -> Self::Writer<'_>;

    /// The memory.
    fn region(&self) -> NonNull<[u8]>;

    /// Called once each time the last packet that points into the memory is gone, on the thread
    /// that freed it.
    fn recycled(&mut self) {}
}

// SAFETY: a boxed slice stays where it is, and its bytes change only through `&mut`.
unsafe impl ExtMemory for Box<[u8]> {
    type Writer<'a> = &'a mut [u8];

    fn writer(&mut self) -> &mut [u8] {
        self
    }

    fn region(&self) -> NonNull<[u8]> {
        NonNull::from(&**self)
    }
}

/// Handles that a [`SharedBuffer`] may have.
pub const MAX_HANDLES: usize = 128;
/// References beyond which no packet is made. Each handle may raise the count by one after it has
/// looked.
const REFERENCES: u16 = u16::MAX - MAX_HANDLES as u16;

/// Why no packet was made. Nothing changed: try again later, or split the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// The mbuf pool is empty; packets in flight will refill it.
    #[error("the mbuf pool for external segments is empty")]
    PoolEmpty,
    /// The range is empty, too long for one segment, or outside the buffer.
    #[error(
        "bytes {start}..{end} are not a segment (1 to 65535 bytes) of a buffer of {length} bytes"
    )]
    Range {
        /// First byte.
        start: usize,
        /// Behind the last byte.
        end: usize,
        /// Size of the buffer.
        length: usize,
    },
    /// DPDK counts references in 16 bits.
    #[error("65407 packets point into this buffer already: use smaller chunks or larger packets")]
    References,
}

/// A fixed set of buffers.
pub struct ExtPool<T: ExtMemory>(Arc<PoolInner<T>>);

struct PoolInner<T: ExtMemory> {
    /// The buffers' memory, once a device was to read it. Goes before the buffers.
    known: OnceLock<Vec<RegisteredRange>>,
    free: ArrayQueue<Box<PoolSlot<T>>>,
    /// Address and length of each buffer.
    regions: Vec<(usize, usize)>,
    eal: Eal,
}

struct PoolSlot<T: ExtMemory> {
    shared: rte_mbuf_ext_shared_info,
    memory: T,
    /// Set while the buffer is out of its pool.
    home: Option<Arc<PoolInner<T>>>,
}

// SAFETY: the shared info's pointers are used only by the callback, which may run on any thread; T
// is Send.
unsafe impl<T: ExtMemory> Send for PoolSlot<T> {}
// SAFETY: `&PoolSlot` gives access to `&T` alone, and T is Sync.
unsafe impl<T: ExtMemory> Sync for PoolSlot<T> {}

impl<T: ExtMemory> Clone for ExtPool<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: ExtMemory> ExtPool<T> {
    /// A pool of these buffers.
    pub fn new(eal: &Eal, buffers: impl IntoIterator<Item = T>) -> Self {
        let slots: Vec<Box<PoolSlot<T>>> = buffers
            .into_iter()
            .map(|memory| {
                Box::new(PoolSlot {
                    shared: rte_mbuf_ext_shared_info::default(),
                    memory,
                    home: None,
                })
            })
            .collect();
        let home = PoolInner {
            known: OnceLock::new(),
            free: ArrayQueue::new(slots.len().max(1)),
            regions: slots
                .iter()
                .map(|slot| slot.memory.region())
                .map(|region| (region.addr().get(), region.len()))
                .collect(),
            eal: eal.clone(),
        };
        for slot in slots {
            // The queue was made for exactly these.
            let _ = home.free.push(slot);
        }
        Self(Arc::new(home))
    }

    /// A buffer that nothing points into, if there is one.
    pub fn take(&self) -> Option<ExtBuffer<T>> {
        let mut slot = self.0.free.pop()?;
        slot.home = Some(Arc::clone(&self.0));
        Some(ExtBuffer { slot: Some(slot) })
    }

    /// Buffers in the pool now.
    pub fn available(&self) -> usize {
        self.0.free.len()
    }

    /// Buffers in all.
    pub fn capacity(&self) -> usize {
        self.0.regions.len()
    }

    /// The buffers' memory as EAL knows it, told of it now unless it was before. To be called under
    /// EAL's control lock.
    ///
    /// Refuses buffers that are not whole pages.
    pub(super) fn known(&self) -> Result<&[RegisteredRange], DpdkError> {
        /// Smallest page, of which every larger one is a multiple.
        const PAGE: usize = 4096;
        let PoolInner {
            known,
            regions,
            eal,
            ..
        } = &*self.0;
        if known.get().is_none() {
            // SAFETY: a region stays where it is for as long as its buffer, and buffers stay as
            // long as their pool.
            let tell =
                |&(address, length)| unsafe { RegisteredRange::new(eal, address, length, PAGE) };
            let told = regions.iter().map(tell).collect::<Result<_, _>>()?;
            known.get_or_init(|| told);
        }
        Ok(known.get().map_or(&[], |known| known))
    }
}

impl<T: ExtMemory> fmt::Debug for ExtPool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtPool")
            .field("available", &self.available())
            .field("capacity", &self.capacity())
            .finish()
    }
}

/// A buffer with one owner. Dereferences to its memory, which [`writer`](Self::writer) changes;
/// returns to its pool on drop.
pub struct ExtBuffer<T: ExtMemory> {
    /// `None` only inside `share` and `drop`.
    slot: Option<Box<PoolSlot<T>>>,
}

impl<T: ExtMemory> ExtBuffer<T> {
    /// A buffer of no pool: it is freed when it would return to one.
    pub fn lone(memory: T) -> Self {
        Self {
            slot: Some(Box::new(PoolSlot {
                shared: rte_mbuf_ext_shared_info::default(),
                memory,
                home: None,
            })),
        }
    }

    /// What changes the memory.
    pub fn writer(&mut self) -> T::Writer<'_> {
        let slot = self.slot.as_mut();
        slot.expect("a buffer has its slot until it is given away")
            .memory
            .writer()
    }

    /// Freezes the buffer, so that packets can point into it.
    pub fn share(self) -> SharedBuffer<T> {
        self.share_with(0, |_, _| ())
    }

    /// The same with `others` more handles, for other threads to make packets from: `give` passes
    /// each on, by its number. They are all counted before the first is given, so that packets
    /// which its owner makes take none away.
    ///
    /// # Panics
    /// If that is more than [`MAX_HANDLES`] in all.
    pub fn share_with(
        mut self,
        others: usize,
        mut give: impl FnMut(usize, SharedBuffer<T>),
    ) -> SharedBuffer<T> {
        assert!(
            others < MAX_HANDLES,
            "a buffer has at most {MAX_HANDLES} handles"
        );
        let slot = self.slot.take().map(Box::into_raw);
        let slot = slot
            .and_then(NonNull::new)
            .expect("a buffer has its slot until it is given away");
        // SAFETY: the slot was just turned into a pointer, and nobody else has it.
        unsafe {
            let shared = &raw mut (*slot.as_ptr()).shared;
            (*shared).free_cb = Some(last_reference_gone::<T>);
            (*shared).fcb_opaque = slot.as_ptr().cast();
            dpdk_sys::karoo_ext_refcnt_set(shared, 1 + others as u16);
        }
        // Each is one of the references just counted.
        let handle = || SharedBuffer {
            slot,
            _owns: PhantomData,
        };
        (0..others).for_each(|other| give(other, handle()));
        handle()
    }
}

impl<T: ExtMemory> Deref for ExtBuffer<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self
            .slot
            .as_ref()
            .expect("a buffer has its slot until it is given away")
            .memory
    }
}

impl<T: ExtMemory> Drop for ExtBuffer<T> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            go_home(slot);
        }
    }
}

impl<T: ExtMemory + fmt::Debug> fmt::Debug for ExtBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExtBuffer").field(&**self).finish()
    }
}

/// A frozen buffer. It goes back to its pool when this handle and all packets made from it are
/// gone.
pub struct SharedBuffer<T: ExtMemory> {
    slot: NonNull<PoolSlot<T>>,
    _owns: PhantomData<PoolSlot<T>>,
}

// SAFETY: the handle is one counted reference on a PoolSlot, which is Send and Sync.
unsafe impl<T: ExtMemory> Send for SharedBuffer<T> {}
// SAFETY: as above; `&SharedBuffer` only reads.
unsafe impl<T: ExtMemory> Sync for SharedBuffer<T> {}

impl<T: ExtMemory> SharedBuffer<T> {
    /// A one-segment packet whose data are these bytes of the buffer; its mbuf comes from `pool`,
    /// whose data room is not used.
    #[inline]
    pub fn attach(&mut self, pool: &MbufPool, range: Range<usize>) -> Result<Mbuf, AttachError> {
        let region = self.deref().region();
        let length = range.end.wrapping_sub(range.start);
        if range.end > region.len() || range.start >= range.end || length > usize::from(u16::MAX) {
            return Err(AttachError::Range {
                start: range.start,
                end: range.end,
                length: region.len(),
            });
        }
        // SAFETY: field of a live slot; the reference count inside is only used through DPDK's
        // atomics.
        let shared = unsafe { &raw mut (*self.slot.as_ptr()).shared };
        // SAFETY: as above. Other handles may raise the count meanwhile, but not past 16 bits.
        if unsafe { dpdk_sys::karoo_ext_refcnt_read(shared) } >= REFERENCES {
            return Err(AttachError::References);
        }
        let mbuf = pool.alloc().ok_or(AttachError::PoolEmpty)?;
        // SAFETY: the new mbuf is ours and direct; the range is inside the region, which stays
        // until the count that is raised here has been lowered again. DPDK's update is not atomic
        // when the count is 1, but then this handle, borrowed uniquely, is the only one.
        unsafe {
            dpdk_sys::karoo_ext_refcnt_update(shared, 1);
            let start = region.as_ptr().cast::<u8>().add(range.start);
            dpdk_sys::karoo_pktmbuf_attach_extbuf(
                mbuf.as_ptr(),
                start.cast(),
                length as u16,
                shared,
            );
        }
        Ok(mbuf)
    }

    /// The whole buffer.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: this handle keeps the memory, and nobody writes to it while it is shared
        // (`ExtMemory`).
        unsafe { self.deref().region().as_ref() }
    }

    /// Packets that point into the buffer now.
    pub fn packets(&self) -> usize {
        // SAFETY: this handle keeps the slot alive.
        let count =
            unsafe { dpdk_sys::karoo_ext_refcnt_read(&raw const (*self.slot.as_ptr()).shared) };
        usize::from(count).saturating_sub(1)
    }
}

impl<T: ExtMemory> Deref for SharedBuffer<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this handle keeps the slot alive, and nobody has its memory mutably while it is
        // shared. Of the slot only that is borrowed: the count beside it changes.
        unsafe { &(*self.slot.as_ptr()).memory }
    }
}

impl<T: ExtMemory> Drop for SharedBuffer<T> {
    fn drop(&mut self) {
        // SAFETY: this handle is one reference; whoever lowers the count to 0 takes the slot.
        unsafe {
            let shared = &raw mut (*self.slot.as_ptr()).shared;
            if dpdk_sys::karoo_ext_refcnt_update(shared, -1) == 0 {
                go_home(Box::from_raw(self.slot.as_ptr()));
            }
        }
    }
}

impl<T: ExtMemory> fmt::Debug for SharedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBuffer")
            .field("packets", &self.packets())
            .finish()
    }
}

/// DPDK's callback for the last segment's end.
unsafe extern "C" fn last_reference_gone<T: ExtMemory>(_address: *mut c_void, slot: *mut c_void) {
    // SAFETY: `share` stored the pointer of a boxed PoolSlot<T>; the count reached 0, so it is
    // nobody else's.
    go_home(unsafe { Box::from_raw(slot.cast::<PoolSlot<T>>()) });
}

fn go_home<T: ExtMemory>(mut slot: Box<PoolSlot<T>>) {
    slot.memory.recycled();
    if let Some(home) = slot.home.take() {
        // There is room for all buffers of the pool, so this cannot fail.
        let _ = home.free.push(slot);
    }
}
