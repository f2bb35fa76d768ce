//! Started ports: bursts queue by queue, counters, and registration of memory.

use std::collections::HashSet;
use std::ffi::CStr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::device::{Device, DeviceInfo};
use super::dma::Mapping;
use super::error::DpdkError;
use super::extbuf::{ExtMemory, ExtPool};
use super::outage::Outage;
use super::sockets::{ReceiveSockets, SendSockets, Sockets};
use super::{BURST, MbufBatch, MbufPool};

/// A started port, for control; it is closed when this and all its queues are gone.
#[derive(Clone, Debug)]
pub struct Port(Behind);

/// What is behind a port.
#[derive(Clone, Debug)]
enum Behind {
    Device(Arc<Inner>),
    Sockets(Arc<Sockets>),
}

#[derive(Debug)]
struct Inner {
    device: Device,
    tx_descriptors: u16,
    /// Those of mbufs that it may have; they go after it.
    pools: Mutex<Vec<MbufPool>>,
    outage: Outage,
}

/// A started port with its queues.
#[derive(Debug)]
pub struct StartedPort {
    /// For control.
    pub port: Port,
    /// Receive queues, in order of [`PortConfig::rx_pools`](super::PortConfig::rx_pools).
    pub rx: Vec<RxQueue>,
    /// Descriptors of each receive queue of a device; 0 of sockets.
    pub rx_descriptors: u16,
    /// Transmit queues.
    pub tx: Vec<TxQueue>,
}

/// The handles of a device that was started with one receive queue per pool.
pub(super) fn queues(
    device: Device,
    pools: Vec<MbufPool>,
    tx_queues: u16,
    (rx_descriptors, tx_descriptors): (u16, u16),
    interrupts: bool,
) -> StartedPort {
    let rx_queues = pools.len() as u16;
    let inner = Arc::new(Inner {
        device,
        tx_descriptors,
        pools: Mutex::new(pools),
        outage: Outage::default(),
    });
    let handle = |queue| QueueId {
        queue,
        inner: Arc::clone(&inner),
    };
    let (rx, tx) = (0..rx_queues, 0..tx_queues);
    StartedPort {
        rx: rx
            .map(|queue| RxQueue(RxEnd::Device(handle(queue), Interrupts::of(interrupts))))
            .collect(),
        rx_descriptors,
        tx: tx
            .map(|queue| TxQueue(TxEnd::Device(handle(queue))))
            .collect(),
        port: Port(Behind::Device(Arc::clone(&inner))),
    }
}

/// The handles of a port of sockets.
pub(super) fn socket_queues(
    sockets: Sockets,
    rx: Vec<ReceiveSockets>,
    tx: Vec<SendSockets>,
) -> StartedPort {
    let sockets = Arc::new(sockets);
    let (rx, tx) = (rx.into_iter().zip(0..), tx.into_iter().zip(0..));
    let of = |queue| (queue, Arc::clone(&sockets));
    StartedPort {
        rx: rx
            .map(|(end, queue)| RxQueue(RxEnd::Sockets(Box::new(end), of(queue))))
            .collect(),
        rx_descriptors: 0,
        tx: tx
            .map(|(end, queue)| TxQueue(TxEnd::Sockets(Box::new(end), of(queue))))
            .collect(),
        port: Port(Behind::Sockets(Arc::clone(&sockets))),
    }
}

#[derive(Debug)]
struct QueueId {
    queue: u16,
    inner: Arc<Inner>,
}

impl QueueId {
    /// Has this thread wait for the receive queue's interrupts; false if the driver cannot.
    fn await_interrupts(&self) -> bool {
        let _control = self.inner.device.eal.control();
        // SAFETY: the port is started while `inner` lives, and has the queue.
        unsafe { dpdk_sys::karoo_rx_interrupt_add(self.inner.device.port, self.queue) == 0 }
    }

    /// Has the receive queue raise an interrupt for the next packet; false if the driver cannot.
    fn enable_interrupts(&self) -> bool {
        // SAFETY: the port is started while `inner` lives, and has the queue.
        unsafe { dpdk_sys::rte_eth_dev_rx_intr_enable(self.inner.device.port, self.queue) == 0 }
    }
}

#[derive(Debug)]
enum RxEnd {
    Device(QueueId, Interrupts),
    /// With number and port.
    Sockets(Box<ReceiveSockets>, (u16, Arc<Sockets>)),
}

/// Interrupts of a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interrupts {
    /// It raises none.
    None,
    /// The thread that waits for them is to be told.
    New,
    /// It was told.
    Awaited,
}

impl Interrupts {
    fn of(wanted: bool) -> Self {
        if wanted { Self::New } else { Self::None }
    }
}

#[derive(Debug)]
enum TxEnd {
    Device(QueueId),
    /// With number and port.
    Sockets(Box<SendSockets>, (u16, Arc<Sockets>)),
}

/// A receive queue; one thread at a time, by `&mut`.
#[derive(Debug)]
pub struct RxQueue(RxEnd);

impl RxQueue {
    /// Receives behind the packets in the batch, as many as it has room for; returns how many.
    #[inline]
    pub fn rx_burst<const N: usize>(&mut self, batch: &mut MbufBatch<N>) -> usize {
        let QueueId { queue, inner } = match &mut self.0 {
            RxEnd::Device(id, _) => id,
            RxEnd::Sockets(sockets, _) => return sockets.rx_burst(batch),
        };
        batch.extend_raw(|free, room| {
            let room = room.min(u16::MAX.into()) as u16;
            // SAFETY: the port is started while `inner` lives; this handle is the queue's only one;
            // `free` has room for `room` pointers.
            unsafe { dpdk_sys::karoo_eth_rx_burst(inner.device.port, *queue, free, room).into() }
        })
    }

    /// Whether a packet that comes wakes a thread that [sleeps](Self::sleep) here. A queue that
    /// wakes nobody has to be polled.
    pub fn wakes(&self) -> bool {
        match &self.0 {
            RxEnd::Sockets(sockets, _) => sockets.wakes(),
            RxEnd::Device(id, Interrupts::None) => id.inner.device.sockets.wake(),
            RxEnd::Device(..) => true,
        }
    }

    /// Sleeps until a packet comes, for so long at most, and receives as
    /// [`rx_burst`](Self::rx_burst) does. Only receives if the queue [wakes](Self::wakes) nobody.
    /// Always to be called on the same thread.
    pub fn sleep<const N: usize>(&mut self, batch: &mut MbufBatch<N>, most: Duration) -> usize {
        match &mut self.0 {
            RxEnd::Sockets(sockets, _) => sockets.wait(most),
            RxEnd::Device(id, Interrupts::None) => id.inner.device.sockets.wait(most),
            RxEnd::Device(id, interrupts) => {
                let awaited = *interrupts == Interrupts::Awaited || id.await_interrupts();
                *interrupts = match awaited && id.enable_interrupts() {
                    true => Interrupts::Awaited,
                    false => Interrupts::None,
                };
                if *interrupts == Interrupts::Awaited {
                    return self.sleep_on_interrupts(batch, most);
                }
                let port = id.inner.device.name();
                let queue = id.queue;
                tracing::warn!(
                    port,
                    queue,
                    "no interrupts can be had: it is polled for ever"
                );
            }
        }
        self.rx_burst(batch)
    }

    /// Interrupts are on. What came before raises none: it is looked for before the thread sleeps.
    fn sleep_on_interrupts<const N: usize>(
        &mut self,
        batch: &mut MbufBatch<N>,
        most: Duration,
    ) -> usize {
        let mut received = self.rx_burst(batch);
        if received == 0 {
            let milliseconds = i32::try_from(most.as_millis()).unwrap_or(i32::MAX);
            // SAFETY: this thread was told what to wait for.
            unsafe { dpdk_sys::karoo_rx_interrupt_wait(milliseconds) };
            received = self.rx_burst(batch);
        }
        if let RxEnd::Device(id, _) = &self.0 {
            // SAFETY: the port is started while `inner` lives, and has the queue.
            unsafe { dpdk_sys::rte_eth_dev_rx_intr_disable(id.inner.device.port, id.queue) };
        }
        received
    }

    /// Throws away what came while nobody received: a ring that was full has a gap behind it, and
    /// an AF_PACKET socket has packets of every interface from before it was bound to one.
    pub fn discard(&mut self) {
        /// More than a ring holds, where packets come as fast as they are thrown away.
        const MOST: usize = 1 << 17;
        let mut batch: MbufBatch = MbufBatch::new();
        for _ in 0..MOST / BURST {
            if self.rx_burst(&mut batch) == 0 {
                break;
            }
            batch.clear();
        }
    }

    /// Number of the queue.
    pub fn index(&self) -> u16 {
        match &self.0 {
            RxEnd::Device(id, _) => id.queue,
            RxEnd::Sockets(_, (queue, _)) => *queue,
        }
    }

    /// Port of the queue.
    pub fn port(&self) -> Port {
        Port(match &self.0 {
            RxEnd::Device(id, _) => Behind::Device(Arc::clone(&id.inner)),
            RxEnd::Sockets(_, (_, sockets)) => Behind::Sockets(Arc::clone(sockets)),
        })
    }
}

/// A transmit queue; one thread at a time, by `&mut`.
#[derive(Debug)]
pub struct TxQueue(TxEnd);

impl TxQueue {
    /// Packets that the driver may keep after they were sent, until it is given others; 0 if it
    /// keeps none.
    pub fn keeps(&self) -> usize {
        match &self.0 {
            TxEnd::Device(id) if !id.inner.device.is_virtual() => id.inner.tx_descriptors.into(),
            _ => 0,
        }
    }

    /// Hands packets from the front of the batch to the device; returns how many it took. The
    /// others stay.
    ///
    /// Drivers free what has been sent when they are given more, some only when they run short of
    /// descriptors.
    #[inline]
    pub fn tx_burst<const N: usize>(&mut self, batch: &mut MbufBatch<N>) -> usize {
        let QueueId { queue, inner } = match &mut self.0 {
            TxEnd::Device(id) => id,
            TxEnd::Sockets(sockets, _) => return sockets.tx_burst(batch),
        };
        batch.take_raw(|mbufs, count| {
            let count = count.min(u16::MAX.into()) as u16;
            // SAFETY: the port is started while `inner` lives; this handle is the queue's only one;
            // the packets belong to the device as far as it takes them.
            unsafe { dpdk_sys::karoo_eth_tx_burst(inner.device.port, *queue, mbufs, count).into() }
        })
    }

    /// The same, where the packets are lost if the device takes none of them and its link [is known
    /// to be down](Port::note_link): a full ring of a port without a link holds up nobody.
    #[inline]
    pub fn tx_burst_or_lose<const N: usize>(&mut self, batch: &mut MbufBatch<N>) -> usize {
        match (self.tx_burst(batch), &self.0) {
            (0, TxEnd::Device(id)) => id.inner.outage.lose(batch),
            (taken, _) => taken,
        }
    }

    /// Keeps a pool until the port is closed: the driver may have mbufs of it until then.
    pub fn keep(&self, pool: MbufPool) {
        if let TxEnd::Device(id) = &self.0 {
            ground::lock(&id.inner.pools).push(pool);
        }
    }

    /// Number of the queue.
    pub fn index(&self) -> u16 {
        match &self.0 {
            TxEnd::Device(id) => id.queue,
            TxEnd::Sockets(_, (queue, _)) => *queue,
        }
    }

    /// Port of the queue.
    pub fn port(&self) -> Port {
        Port(match &self.0 {
            TxEnd::Device(id) => Behind::Device(Arc::clone(&id.inner)),
            TxEnd::Sockets(_, (_, sockets)) => Behind::Sockets(Arc::clone(sockets)),
        })
    }
}

/// Counters of a port since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets transmitted.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes transmitted.
    pub tx_bytes: u64,
    /// Packets that the device dropped because no descriptor was free (`imissed`), or the kernel
    /// because AF_PACKET's ring was full (`tp_drops`), or a UDP socket was, or a checksum was wrong
    /// there.
    pub rx_missed: u64,
    /// Packets received with errors.
    pub rx_errors: u64,
    /// Packets that could not be transmitted, or were lost without a link.
    pub tx_errors: u64,
    /// Failures to get an mbuf for receiving (`rx_nombuf`).
    pub rx_no_mbuf: u64,
}

/// State of a port's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Whether it is up.
    pub up: bool,
    /// Megabits per second; `None` if the device does not know.
    pub speed_mbps: Option<u32>,
}

impl Port {
    /// Name of the port.
    pub fn name(&self) -> &str {
        match &self.0 {
            Behind::Device(inner) => inner.device.name(),
            Behind::Sockets(sockets) => sockets.name(),
        }
    }

    fn device(&self) -> Option<&Device> {
        match &self.0 {
            Behind::Device(inner) => Some(&inner.device),
            Behind::Sockets(_) => None,
        }
    }

    /// Its device's number, and what serialises what DPDK leaves unprotected, if it has a device.
    pub(super) fn control(&self) -> Option<(u16, MutexGuard<'_, HashSet<u16>>)> {
        let device = self.device()?;
        Some((device.port, device.eal.control()))
    }

    /// What the device can do.
    pub fn info(&self) -> Result<DeviceInfo, DpdkError> {
        match &self.0 {
            Behind::Device(inner) => inner.device.info(),
            Behind::Sockets(sockets) => Ok(sockets.info()),
        }
    }

    /// Its hardware address; zeros where frames are the kernel's to make.
    pub fn mac(&self) -> Result<[u8; 6], DpdkError> {
        let mut address = dpdk_sys::rte_ether_addr::default();
        if let Some(device) = self.device() {
            // SAFETY: the port exists; `address` is writable.
            let ret = unsafe { dpdk_sys::rte_eth_macaddr_get(device.port, &mut address) };
            device.check(ret, || "rte_eth_macaddr_get".into())?;
        }
        Ok(address.addr_bytes)
    }

    /// State of the link now.
    pub fn link(&self) -> Result<Link, DpdkError> {
        let Some(device) = self.device() else {
            // The kernel tells of its interface.
            return Ok(Link {
                up: true,
                speed_mbps: None,
            });
        };
        // Drivers fold registers into counts of their own: one thread at a time.
        let _control = device.eal.control();
        let mut link = dpdk_sys::karoo_link::default();
        // SAFETY: the port exists; `link` is writable.
        let ret = unsafe { dpdk_sys::karoo_port_link(device.port, &mut link) };
        device.check(ret, || "rte_eth_link_get_nowait".into())?;
        Ok(Link {
            up: link.up != 0,
            // 0 is "none", all ones "unknown".
            speed_mbps: (link.speed_mbps != 0 && link.speed_mbps != u32::MAX)
                .then_some(link.speed_mbps),
        })
    }

    /// Tells the port's queues whether its link is up, as who knows it found it. Sockets lose what
    /// the kernel does not send by themselves.
    pub fn note_link(&self, up: bool) {
        if let Behind::Device(inner) = &self.0 {
            inner.outage.note_link(up);
        }
    }

    /// Counters since the start.
    pub fn stats(&self) -> Result<PortStats, DpdkError> {
        let Inner { device, outage, .. } = match &self.0 {
            Behind::Device(inner) => &**inner,
            Behind::Sockets(sockets) => return Ok(sockets.stats()),
        };
        // Drivers fold registers into counts of their own: one thread at a time.
        let _control = device.eal.control();
        let mut raw = dpdk_sys::rte_eth_stats::default();
        // SAFETY: the port exists; `raw` is writable.
        let ret = unsafe { dpdk_sys::rte_eth_stats_get(device.port, &mut raw) };
        device.check(ret, || "rte_eth_stats_get".into())?;
        Ok(PortStats {
            rx_packets: raw.ipackets,
            tx_packets: raw.opackets,
            rx_bytes: raw.ibytes,
            tx_bytes: raw.obytes,
            rx_missed: raw.imissed + device.sockets.dropped(),
            rx_errors: raw.ierrors,
            tx_errors: raw.oerrors + outage.lost(),
            rx_no_mbuf: raw.rx_nombuf,
        })
    }

    /// The driver's own counters, by name.
    pub fn xstats(&self) -> Result<Vec<(String, u64)>, DpdkError> {
        let Some(device) = self.device() else {
            return Ok(Vec::new());
        };
        // Drivers fold registers into counts of their own: one thread at a time.
        let _control = device.eal.control();
        let port = device.port;
        // SAFETY: a null array asks for the number.
        let count = unsafe { dpdk_sys::rte_eth_xstats_get(port, std::ptr::null_mut(), 0) };
        device.check(count, || "rte_eth_xstats_get".into())?;
        let count = count as usize;
        let mut names = vec![dpdk_sys::rte_eth_xstat_name::default(); count];
        let mut values = vec![dpdk_sys::rte_eth_xstat::default(); count];
        // SAFETY: both arrays have `count` elements.
        let (named, valued) = unsafe {
            (
                dpdk_sys::rte_eth_xstats_get_names(port, names.as_mut_ptr(), count as u32),
                dpdk_sys::rte_eth_xstats_get(port, values.as_mut_ptr(), count as u32),
            )
        };
        device.check(named.min(valued), || "rte_eth_xstats_get".into())?;
        // SAFETY: DPDK ends every name with a NUL inside its array.
        let text =
            |name: &dpdk_sys::rte_eth_xstat_name| unsafe { CStr::from_ptr(name.name.as_ptr()) };
        Ok(values
            .iter()
            .take(valued as usize)
            .filter_map(|value| {
                let name = names.get(value.id as usize)?;
                Some((text(name).to_string_lossy().into_owned(), value.value))
            })
            .collect())
    }

    /// Whether it is a driver's alone, or the kernel's: packets that it was given are copied, or
    /// passed on, by the CPU.
    pub fn is_virtual(&self) -> bool {
        self.device().is_none_or(Device::is_virtual)
    }

    /// Lets the device read the pool's buffers by DMA from now on, which every port that is not
    /// [virtual](Self::is_virtual) requires before it transmits from memory that is not DPDK's.
    ///
    /// Refuses buffers that are not whole pages, EAL in IOVA-as-PA mode, and what the device or its
    /// IOMMU refuses.
    pub fn register<T: ExtMemory>(&self, pool: &ExtPool<T>) -> Result<(), DpdkError> {
        let Some(device) = self.device() else {
            return Ok(());
        };
        let _control = device.eal.control();
        let map = |range| Mapping::new(device, range, pool.clone());
        let mapped = pool.known()?.iter().map(map).collect::<Result<_, _>>()?;
        device.keep(mapped);
        Ok(())
    }
}
