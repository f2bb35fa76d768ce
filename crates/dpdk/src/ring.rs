//! Lock-free rings of packets between lcores; also the cables of
//! [`Device::rings`](super::Device::rings).

use std::ptr::NonNull;
use std::sync::Arc;

use dpdk_sys::rte_ring;

use super::error::{DpdkError, Errno, c_name};
use super::{Eal, MbufBatch};

/// `RING_F_SP_ENQ | RING_F_SC_DEQ`.
const SINGLE: u32 = 0x1 | 0x2;

#[derive(Debug)]
pub(super) struct Ring {
    ring: NonNull<rte_ring>,
    _eal: Eal,
}

// SAFETY: rings are made for use between threads; single-producer and single-consumer rings are
// only reachable through one RingSender and one RingReceiver, which need `&mut`.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    fn new(eal: &Eal, name: &str, entries: usize, flags: u32) -> Result<Arc<Self>, DpdkError> {
        let c_name = c_name("ring name", name, 26)?;
        let size = entries.saturating_add(1).checked_next_power_of_two();
        let size = size
            .and_then(|size| u32::try_from(size).ok())
            .filter(|size| *size <= 1 << 20);
        let Some(size) = size else {
            return Err(DpdkError::Value {
                what: "ring entries",
                value: entries.to_string(),
                rule: "must be at most 1048575",
            });
        };
        let _control = eal.control();
        // SAFETY: EAL is up; the name is a C string that DPDK copies; the size is a power of two.
        let ring = unsafe { dpdk_sys::rte_ring_create(c_name.as_ptr(), size, -1, flags) };
        let ring = NonNull::new(ring).ok_or_else(|| {
            DpdkError::call(format!("rte_ring_create({name}, {size})"), Errno::last())
        })?;
        Ok(Arc::new(Self {
            ring,
            _eal: eal.clone(),
        }))
    }

    pub(super) fn as_ptr(&self) -> *mut rte_ring {
        self.ring.as_ptr()
    }

    /// Moves packets from the front of the batch into the ring.
    ///
    /// # Safety
    /// On a single-producer ring, nobody else enqueues at the same time.
    unsafe fn enqueue<const N: usize>(&self, batch: &mut MbufBatch<N>) -> usize {
        batch.take_raw(|mbufs, count| {
            // SAFETY: `mbufs` has `count` packets, which belong to the ring as far as it takes
            // them.
            unsafe {
                dpdk_sys::karoo_ring_enqueue_burst(self.as_ptr(), mbufs.cast(), count as u32)
                    as usize
            }
        })
    }

    /// Moves packets from the ring behind those in the batch.
    ///
    /// # Safety
    /// On a single-consumer ring, nobody else dequeues at the same time.
    unsafe fn dequeue<const N: usize>(&self, batch: &mut MbufBatch<N>) -> usize {
        batch.extend_raw(|free, room| {
            // SAFETY: `free` has room for `room` pointers; the ring holds owned packets and gives
            // them up.
            unsafe {
                dpdk_sys::karoo_ring_dequeue_burst(self.as_ptr(), free.cast(), room as u32) as usize
            }
        })
    }

    fn len(&self) -> usize {
        // SAFETY: the ring lives as long as `self`.
        unsafe { dpdk_sys::karoo_ring_count(self.as_ptr()) as usize }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut batch: MbufBatch = MbufBatch::new();
        // SAFETY: this was the last handle.
        while unsafe { self.dequeue(&mut batch) } > 0 {
            batch.clear();
        }
        let _control = self._eal.control();
        // SAFETY: the ring is empty and this was the last handle.
        unsafe { dpdk_sys::rte_ring_free(self.as_ptr()) };
    }
}

/// A ring with one producer and one consumer, of at least `entries` packets (a power of two less
/// one).
pub fn mbuf_ring(
    eal: &Eal,
    name: &str,
    entries: usize,
) -> Result<(RingSender, RingReceiver), DpdkError> {
    let ring = Ring::new(eal, name, entries, SINGLE)?;
    Ok((RingSender(Arc::clone(&ring)), RingReceiver(ring)))
}

/// The producing end of [`mbuf_ring`].
#[derive(Debug)]
pub struct RingSender(pub(super) Arc<Ring>);

impl RingSender {
    /// Moves packets from the front of the batch into the ring; returns how many fitted.
    #[inline]
    pub fn enqueue<const N: usize>(&mut self, batch: &mut MbufBatch<N>) -> usize {
        // SAFETY: this is the only producing end, borrowed uniquely.
        unsafe { self.0.enqueue(batch) }
    }

    /// Packets in the ring.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the ring has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Packets that the ring can hold.
    pub fn capacity(&self) -> usize {
        // SAFETY: the ring lives as long as `self`.
        unsafe { dpdk_sys::karoo_ring_capacity(self.0.as_ptr()) as usize }
    }
}

/// The consuming end of [`mbuf_ring`].
#[derive(Debug)]
pub struct RingReceiver(pub(super) Arc<Ring>);

impl RingReceiver {
    /// Moves packets from the ring behind those in the batch, as many as it has room for; returns
    /// how many.
    #[inline]
    pub fn dequeue<const N: usize>(&mut self, batch: &mut MbufBatch<N>) -> usize {
        // SAFETY: this is the only consuming end, borrowed uniquely.
        unsafe { self.0.dequeue(batch) }
    }

    /// Packets in the ring.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the ring has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A ring that any thread may put into and take from.
#[derive(Clone, Debug)]
pub struct SharedRing(Arc<Ring>);

impl SharedRing {
    /// A ring of at least `entries` packets (a power of two less one).
    pub fn new(eal: &Eal, name: &str, entries: usize) -> Result<Self, DpdkError> {
        Ring::new(eal, name, entries, 0).map(Self)
    }

    /// Moves packets from the front of the batch into the ring; returns how many fitted.
    #[inline]
    pub fn enqueue<const N: usize>(&self, batch: &mut MbufBatch<N>) -> usize {
        // SAFETY: the ring is multi-producer.
        unsafe { self.0.enqueue(batch) }
    }

    /// Moves packets from the ring behind those in the batch; returns how many.
    #[inline]
    pub fn dequeue<const N: usize>(&self, batch: &mut MbufBatch<N>) -> usize {
        // SAFETY: the ring is multi-consumer.
        unsafe { self.0.dequeue(batch) }
    }

    /// Packets in the ring.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the ring has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
