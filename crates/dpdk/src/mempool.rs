//! Pools of mbufs.

use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dpdk_sys::{rte_mbuf, rte_mempool};

use super::error::{DpdkError, Errno, c_name};
use super::{Eal, Mbuf, MbufBatch};

/// Bytes in front of a packet's data in every mbuf.
pub const HEADROOM: usize = 128;

/// Bytes of an mbuf and of the pool's own header, at least.
const MBUF: usize = 192;

/// Bytes of DPDK's memory that a pool takes for each mbuf beside its data room, rounded up: the
/// mbuf, headroom, mempool header, padding.
const BESIDE_DATA: usize = 512;

/// Bytes of DPDK's memory beside all pools: queues of ports, rings, EAL's own.
const BESIDE_POOLS: usize = 64 << 20;

/// Bytes of DPDK's memory that a pool of `mbufs` takes at most, each with `data_room` bytes.
pub fn pool_bytes(mbufs: usize, data_room: usize) -> usize {
    mbufs * (data_room + BESIDE_DATA)
}

/// Memory in MiB that EAL is to be started with for pools of `bytes` together ([`pool_bytes`]).
pub fn memory_mib(bytes: usize) -> usize {
    (BESIDE_POOLS + bytes).div_ceil(1 << 20)
}

/// Mbufs that rings with `descriptors` entries in all need, when bursts of `burst` are taken from
/// them: `max(1.5 × descriptors, descriptors + 2 × burst)`.
pub fn pool_size(descriptors: usize, burst: usize) -> usize {
    (descriptors + descriptors.div_ceil(2)).max(descriptors + 2 * burst)
}

/// Shape of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Mbufs.
    pub mbufs: usize,
    /// Mbufs that each lcore keeps for itself; at most 512 and `mbufs` / 1.5.
    pub cache: usize,
    /// Bytes of packet data that one mbuf holds, without [`HEADROOM`]; 0 for mbufs that only carry
    /// external buffers.
    pub data_room: usize,
    /// NUMA node; `None`: any.
    pub socket: Option<u32>,
}

/// A pool of mbufs. Clones share it.
#[derive(Clone, Debug)]
pub struct MbufPool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: NonNull<rte_mempool>,
    name: String,
    config: PoolConfig,
    eal: Option<Eal>,
}

// SAFETY: mempools are made for use by many threads: their ring is multi-producer and
// multi-consumer, and the caches belong to one lcore each.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl MbufPool {
    /// Makes a pool; names are unique in a process and have at most 26 bytes.
    pub fn new(eal: &Eal, name: &str, config: PoolConfig) -> Result<Self, DpdkError> {
        let c_name = c_name("mbuf pool name", name, 26)?;
        let room = if config.data_room == 0 {
            0
        } else {
            config.data_room + HEADROOM
        };
        let room = u16::try_from(room).map_err(|_| DpdkError::Value {
            what: "mbuf data room",
            value: config.data_room.to_string(),
            rule: "must be at most 65407 bytes (16 bits with the headroom)",
        })?;
        // SAFETY: EAL is up; the name is a C string that DPDK copies.
        let pool = unsafe {
            dpdk_sys::rte_pktmbuf_pool_create(
                c_name.as_ptr(),
                config.mbufs as u32,
                config.cache as u32,
                0,
                room,
                config.socket.map_or(-1, |socket| socket as i32),
            )
        };
        let pool = NonNull::new(pool).ok_or_else(|| {
            let errno = Errno::last();
            if errno.0 == libc::ENOMEM {
                return DpdkError::NoMemory {
                    what: format!("mbuf pool '{name}' of {} mbufs", config.mbufs),
                    needed_mib: (config.mbufs * (MBUF + usize::from(room))).div_ceil(1 << 20),
                    memory: eal.memory(),
                };
            }
            DpdkError::call(
                format!(
                    "rte_pktmbuf_pool_create({name}, n={}, cache={}, data_room={room}, socket={:?})",
                    config.mbufs, config.cache, config.socket
                ),
                errno,
            )
        })?;
        Ok(Self::own(eal, pool, name, config))
    }

    /// Takes over a pool that was just made.
    pub(super) fn own(
        eal: &Eal,
        pool: NonNull<rte_mempool>,
        name: &str,
        config: PoolConfig,
    ) -> Self {
        Self(Arc::new(Inner {
            pool,
            name: name.to_owned(),
            config,
            eal: Some(eal.clone()),
        }))
    }

    /// Name of the pool.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Shape of the pool.
    pub fn config(&self) -> PoolConfig {
        self.0.config
    }

    /// Mbufs that are in the pool now.
    pub fn available(&self) -> usize {
        // SAFETY: the pool lives as long as `self`.
        unsafe { dpdk_sys::rte_mempool_avail_count(self.0.pool.as_ptr()) as usize }
    }

    /// An empty mbuf with its whole data room free, or `None` when the pool is empty.
    #[inline]
    pub fn alloc(&self) -> Option<Mbuf> {
        // SAFETY: the pool lives as long as `self`; the new mbuf is nobody else's.
        unsafe { Mbuf::from_raw(dpdk_sys::karoo_pktmbuf_alloc(self.0.pool.as_ptr())) }
    }

    /// Fills `batch` with `count` more mbufs, all or none; false when the pool or the batch cannot.
    #[inline]
    pub fn alloc_bulk<const N: usize>(&self, batch: &mut MbufBatch<N>, count: usize) -> bool {
        if count > batch.room() {
            return false;
        }
        batch.extend_raw(|free: *mut *mut rte_mbuf, _| {
            // SAFETY: `free` has room for at least `count` pointers, and the pool lives as long as
            // `self`.
            let ret = unsafe {
                dpdk_sys::karoo_pktmbuf_alloc_bulk(self.0.pool.as_ptr(), free, count as u32)
            };
            if ret == 0 { count } else { 0 }
        }) == count
    }

    /// Refuses a pool that cannot keep rings of `descriptors` entries in all going with bursts of
    /// `burst`.
    pub fn check_size(&self, descriptors: usize, burst: usize) -> Result<(), DpdkError> {
        let needed = pool_size(descriptors, burst);
        if self.0.config.mbufs >= needed {
            return Ok(());
        }
        Err(DpdkError::PoolTooSmall {
            pool: self.0.name.clone(),
            mbufs: self.0.config.mbufs,
            descriptors,
            burst,
            needed,
        })
    }

    pub(super) fn as_ptr(&self) -> *mut rte_mempool {
        self.0.pool.as_ptr()
    }
}

impl Inner {
    /// Mbufs in use. While another thread frees mbufs, DPDK briefly reports fewer; so zero is read
    /// several times before it is believed.
    fn out(&self) -> u32 {
        const LOOKS: u32 = 8;
        const APART: Duration = Duration::from_micros(200);
        let look = |index| {
            if index > 0 {
                thread::sleep(APART);
            }
            // SAFETY: the pool is still there.
            unsafe { dpdk_sys::rte_mempool_in_use_count(self.pool.as_ptr()) }
        };
        (0..LOOKS).map(look).find(|&out| out > 0).unwrap_or(0)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let out = self.out();
        if out == 0 {
            // SAFETY: every mbuf is back and this was the last handle, so nothing can reach the
            // pool.
            unsafe { dpdk_sys::rte_mempool_free(self.pool.as_ptr()) };
        } else {
            // An mbuf returns to its pool when it is dropped, so the pool, and EAL under it, must
            // outlive it.
            tracing::warn!(
                pool = self.name,
                mbufs = out,
                "pool dropped before its mbufs: it is kept"
            );
            std::mem::forget(self.eal.take());
        }
    }
}
