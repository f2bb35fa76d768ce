//! Buffer split: the NIC puts each packet's headers into the host's memory and its payload into
//! memory that the CPU need not be able to read, such as a GPU's.
//!
//! [`DmaMemory`] → [`PayloadPool`] → [`Device::start_split`] → [`SplitQueue::rx_burst`] →
//! [`SplitPacket`]. Nothing here hands out a payload as a slice.

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use super::dma::{Mapping, RegisteredRange};
use super::error::{DpdkError, Errno, c_name};
use super::mempool::PoolConfig;
use super::port::{Port, RxQueue, StartedPort, TxQueue};
use super::{BURST, Device, Eal, Mbuf, MbufBatch, MbufPool, PortConfig};

/// Memory that a NIC can be allowed to write.
///
/// # Safety
/// [`address`](Self::address) and [`len`](Self::len) name the same range for the life of the value,
/// also when the value moves. NICs may write it at any time, and nobody refers to it by a Rust
/// reference.
pub unsafe trait DmaMemory: Send + Sync + fmt::Debug + 'static {
    /// First byte; a multiple of [`page`](Self::page).
    fn address(&self) -> u64;

    /// Bytes; a multiple of [`page`](Self::page).
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of a page as the NIC sees it: 4 KiB in the host, 64 KiB in a GPU.
    fn page(&self) -> usize;
}

/// A pool whose mbufs have their data in [`DmaMemory`]. Clones share it.
#[derive(Clone, Debug)]
pub struct PayloadPool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: MbufPool,
    /// `None` only while it is dropped.
    memory: Option<RegisteredMemory>,
}

/// Memory that EAL knows: it is forgotten first.
#[derive(Debug)]
struct RegisteredMemory {
    known: RegisteredRange,
    _memory: Box<dyn DmaMemory>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.pool.available() < self.pool.config().mbufs {
            // Mbufs outlive their pool (`MbufPool` keeps it then), and so must what they point to.
            std::mem::forget(self.memory.take());
        }
    }
}

impl PayloadPool {
    /// Makes a pool over `memory`, of as many mbufs of `data_room` bytes as it holds.
    pub fn new(
        eal: &Eal,
        name: &str,
        data_room: u16,
        memory: impl DmaMemory,
    ) -> Result<Self, DpdkError> {
        let memory = Box::new(memory);
        let (address, length) = (memory.address() as *mut c_void, memory.len());
        let mbufs = length.checked_div(data_room.into()).unwrap_or(0);
        if mbufs == 0 {
            return Err(DpdkError::Value {
                what: "payload data room",
                value: data_room.to_string(),
                rule: "must be at least 1 byte and at most the memory's",
            });
        }
        let (start, page) = (memory.address() as usize, memory.page());
        // SAFETY: the memory stays until EAL has forgotten it (`RegisteredMemory`).
        let known = unsafe { RegisteredRange::new(eal, start, length, page) }?;
        let memory = Some(RegisteredMemory {
            known,
            _memory: memory,
        });
        let config = PoolConfig {
            mbufs,
            cache: 0,
            data_room: data_room.into(),
            socket: None,
        };
        let range = dpdk_sys::rte_pktmbuf_extmem {
            buf_ptr: address,
            buf_iova: address as u64,
            buf_len: length,
            elt_size: data_room,
        };
        let c_name = c_name("mbuf pool name", name, 26)?;
        // SAFETY: EAL is up; DPDK copies name and range. It writes addresses into mbufs, nothing
        // into the memory.
        let pool = unsafe {
            dpdk_sys::rte_pktmbuf_pool_create_extbuf(
                c_name.as_ptr(),
                mbufs as u32,
                0,
                0,
                data_room,
                -1,
                &raw const range,
                1,
            )
        };
        let pool = NonNull::new(pool).ok_or_else(|| {
            DpdkError::call(
                format!("rte_pktmbuf_pool_create_extbuf({name}, n={mbufs}, data_room={data_room})"),
                Errno::last(),
            )
        })?;
        let pool = MbufPool::own(eal, pool, name, config);
        Ok(Self(Arc::new(Inner { pool, memory })))
    }

    /// Whether both are the same.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Mbufs.
    pub fn mbufs(&self) -> usize {
        self.0.pool.config().mbufs
    }

    /// Mbufs that are in the pool now.
    pub fn available(&self) -> usize {
        self.0.pool.available()
    }

    fn known(&self) -> Option<&RegisteredRange> {
        self.0.memory.as_ref().map(|lent| &lent.known)
    }

    /// A packet as a splitting NIC would deliver it, `payload` bytes long behind its headers. For
    /// tests and simulations; `None` if the pool is empty or the payload too long.
    pub fn behind(&self, mut headers: Mbuf, payload: u16) -> Option<SplitMbuf> {
        let second = self.0.pool.alloc()?;
        // SAFETY: the mbuf is new and ours. Only the first segment has headroom. DPDK moves the end
        // of its data, and null says that there is no room.
        let grown = unsafe {
            let mbuf = second.as_ptr();
            let data_off = mbuf
                .cast::<u8>()
                .add(dpdk_sys::KAROO_MBUF_DATA_OFF as usize);
            data_off.cast::<u16>().write(0);
            dpdk_sys::karoo_pktmbuf_append(mbuf, payload)
        };
        if grown.is_null() || headers.nb_segs() != 1 {
            return None;
        }
        headers.chain(second).ok()?;
        Some(SplitMbuf(headers))
    }
}

/// How a port splits packets.
#[derive(Clone, Debug)]
pub struct SplitConfig {
    /// Bytes that go to the host: frame headers and SPEAD items.
    pub header_bytes: u16,
    /// One pool per receive queue; may be the same one. [`PortConfig::rx_pools`] are for the
    /// headers.
    pub payload_pools: Vec<PayloadPool>,
}

/// What a device that splits has to keep.
#[derive(Debug)]
pub(super) struct Split(SplitConfig);

impl Split {
    pub(super) fn payloads(&self, queue: u16) -> Option<(u16, &MbufPool)> {
        let pool = self.0.payload_pools.get(usize::from(queue))?;
        Some((self.0.header_bytes, &pool.0.pool))
    }
}

/// A started port that splits, with its queues.
#[derive(Debug)]
pub struct SplitPort {
    /// For control.
    pub port: Port,
    /// Receive queues, in order of [`PortConfig::rx_pools`].
    pub rx: Vec<SplitQueue>,
    /// Transmit queues.
    pub tx: Vec<TxQueue>,
}

impl Device {
    /// Configures and starts the port, splitting what it receives.
    ///
    /// Refuses devices that cannot split or cannot reach the memory, and what
    /// [`start`](Self::start) refuses.
    pub fn start_split(
        mut self,
        config: &PortConfig,
        split: SplitConfig,
    ) -> Result<SplitPort, DpdkError> {
        let raw = self.raw_info()?;
        if raw.rx_split == 0 {
            return Err(DpdkError::Value {
                what: "port with split packets",
                value: self.name().to_owned(),
                rule: "must be a NIC with buffer split over two pools (mlx5): use --memory bar or pinned with others",
            });
        }
        if split.payload_pools.len() != config.rx_pools.len() {
            return Err(DpdkError::Value {
                what: "payload pools",
                value: split.payload_pools.len().to_string(),
                rule: "must be as many as pools for headers",
            });
        }
        let pools = &split.payload_pools;
        let is_first =
            |&(index, pool): &(usize, &PayloadPool)| pools[..index].iter().all(|p| !p.is(pool));
        let map = |(_, pool): (_, &PayloadPool)| {
            let known = pool.known()?;
            Some(Mapping::new(&self, known, pool.clone()))
        };
        let distinct = pools.iter().enumerate().filter(is_first);
        let mappings = distinct.filter_map(map).collect::<Result<_, _>>()?;
        self.keep(mappings);
        self.split = Some(Split(split));
        let StartedPort { port, rx, tx, .. } = self.start(config)?;
        let rx = rx.into_iter().map(SplitQueue).collect();
        Ok(SplitPort { port, rx, tx })
    }
}

/// A receive queue of a port that splits.
#[derive(Debug)]
pub struct SplitQueue(RxQueue);

impl SplitQueue {
    /// Receives behind the packets in the batch, as many as it has room for; returns how many.
    #[inline]
    pub fn rx_burst<const N: usize>(&mut self, batch: &mut SplitBatch<N>) -> usize {
        self.0.rx_burst(&mut batch.0)
    }
}

/// A split packet on its own.
#[derive(Debug)]
pub struct SplitMbuf(Mbuf);

/// Split packets of one burst. Their payloads stay where they are until the batch is cleared or
/// dropped.
#[derive(Debug, Default)]
pub struct SplitBatch<const N: usize = BURST>(MbufBatch<N>);

impl<const N: usize> SplitBatch<N> {
    /// Packets in it.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a packet; gives it back if the batch is full.
    pub fn push(&mut self, packet: SplitMbuf) -> Result<(), SplitMbuf> {
        self.0.push(packet.0).map_err(SplitMbuf)
    }

    /// The packets in order.
    pub fn iter(&self) -> impl Iterator<Item = SplitPacket<'_>> {
        self.0.iter().map(SplitPacket)
    }

    /// Frees all packets.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct SplitPacket<'a>(&'a Mbuf);

impl<'a> SplitPacket<'a> {
    /// The bytes that went to the host.
    pub fn headers(&self) -> &'a [u8] {
        self.0.data()
    }

    /// Address and length of the payload; `None` if the packet ended in its headers or has more
    /// segments.
    pub fn payload(&self) -> Option<(u64, usize)> {
        self.0.second_of_two()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mbuf_ring;
    use ground::os::Region;

    /// Memory of the host in the part of a GPU's.
    #[derive(Debug)]
    struct HostMemory(Region);

    // SAFETY: a region is one mapping for its life, and no reference to it is made.
    unsafe impl DmaMemory for HostMemory {
        fn address(&self) -> u64 {
            self.0.as_ptr().addr().get() as u64
        }

        fn len(&self) -> usize {
            self.0.as_ptr().len()
        }

        fn page(&self) -> usize {
            Region::ALIGNMENT
        }
    }

    const DATA_ROOM: u16 = 5120;

    fn pool(name: &str) -> (PayloadPool, u64) {
        let memory = HostMemory(Region::new(20 * usize::from(DATA_ROOM)).unwrap());
        let address = memory.address();
        let pool = PayloadPool::new(Eal::for_tests(), name, DATA_ROOM, memory).unwrap();
        (pool, address)
    }

    fn headers(name: &str) -> MbufPool {
        let config = PoolConfig {
            mbufs: 64,
            cache: 0,
            data_room: 256,
            socket: None,
        };
        MbufPool::new(Eal::for_tests(), name, config).unwrap()
    }

    #[test]
    fn payloads_lie_apart_in_the_memory_and_come_back() {
        let (pool, start) = pool("split_payload");
        let headers = headers("split_headers");
        assert_eq!(pool.mbufs(), 20);
        let mut batch = SplitBatch::<32>::default();
        for i in 0..20 {
            let mut head = headers.alloc().unwrap();
            head.append(114).unwrap().fill(i);
            batch.push(pool.behind(head, 5000).unwrap()).unwrap();
        }
        assert!(pool.behind(headers.alloc().unwrap(), 1).is_none());
        let mut starts: Vec<u64> = batch
            .iter()
            .zip(0..)
            .map(|(packet, i)| {
                assert_eq!(packet.headers(), [i; 114]);
                let (address, length) = packet.payload().unwrap();
                assert_eq!(length, 5000);
                address - start
            })
            .collect();
        starts.sort_unstable();
        let expected: Vec<u64> = (0..20).map(|i| i * u64::from(DATA_ROOM)).collect();
        assert_eq!(starts, expected);
        batch.clear();
        assert_eq!((pool.available(), headers.available()), (20, 64));
    }

    #[test]
    fn a_payload_longer_than_the_data_room_is_refused() {
        let (pool, _) = pool("split_long");
        let headers = headers("split_long_headers");
        let head = headers.alloc().unwrap();
        assert!(pool.behind(head, DATA_ROOM + 1).is_none());
        assert_eq!((pool.available(), headers.available()), (20, 64));
    }

    #[test]
    fn a_device_that_cannot_split_is_refused() {
        let eal = Eal::for_tests();
        let (sender, receiver) = mbuf_ring(eal, "split_ring", 63).unwrap();
        let device = Device::rings(eal, "split", vec![receiver], vec![sender]).unwrap();
        let (pool, _) = pool("split_refused");
        let config = PortConfig {
            rx_pools: vec![headers("split_refused_h")],
            ..PortConfig::default()
        };
        let split = SplitConfig {
            header_bytes: 114,
            payload_pools: vec![pool],
        };
        let error = device.start_split(&config, split).unwrap_err().to_string();
        assert!(error.contains("net_ring_split") && error.contains("--memory bar"));
    }

    #[test]
    fn memory_that_holds_no_payload_is_refused() {
        let memory = HostMemory(Region::new(1).unwrap());
        let error = PayloadPool::new(Eal::for_tests(), "split_small", DATA_ROOM, memory);
        assert!(error.unwrap_err().to_string().contains("data room"));
    }
}
