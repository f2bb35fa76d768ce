//! Interfaces to DPDK ports. The one driver so far is AF_PACKET, which works on any interface of the kernel and leaves
//! it there.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::interface::Interface;
use crate::dpdk::{
    BURST, Device, DpdkError, Eal, MbufPool, PoolConfig, PortConfig, StartedPort, pool_size,
};

/// Bytes of a frame in AF_PACKET's rings, headers of the ring included; larger packets are lost.
const FRAME: usize = 9216;
/// IP packets that fit such a frame behind the headers of ring and Ethernet.
pub const LARGEST_PACKET: usize = FRAME - 128;
/// Bytes of a block of them: whole frames and whole pages.
const BLOCK: usize = 36864;
/// Frames of a ring, at least and at most: rings are memory of the kernel, locked.
const FRAMES: std::ops::RangeInclusive<usize> = 128..=4096;
/// Room of an mbuf, which must hold a frame.
const DATA_ROOM: usize = FRAME + 128;
/// Descriptors of a queue; AF_PACKET has its rings instead.
const DESCRIPTORS: u16 = 512;

/// What an interface is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortUse {
    /// Receive queues, among which the packets of a flow stay together.
    pub rx_queues: usize,
    /// Bytes of packets that each of them may hold.
    pub rx_bytes: usize,
    /// Whether packets are sent through it.
    pub tx: bool,
    /// Bytes of packets that may wait to be sent.
    pub tx_bytes: usize,
}

/// An interface without a port.
#[derive(Debug, thiserror::Error)]
#[error("interface '{interface}' (AF_PACKET, needs CAP_NET_RAW and locked memory)")]
pub struct PortError {
    interface: String,
    source: DpdkError,
}

impl PortUse {
    /// DPDK's memory for it.
    pub fn mbuf_bytes(&self) -> usize {
        const MBUF: usize = 512;
        self.rx_queues * pool_size(DESCRIPTORS.into(), 2 * BURST) * (DATA_ROOM + MBUF)
    }

    /// The kernel's memory for its rings: one to receive and one to send for each queue.
    pub fn ring_bytes(&self) -> usize {
        2 * self.rx_queues.max(1) * self.frames() * FRAME
    }

    /// Packets that its transmit queue holds.
    pub fn tx_packets(&self) -> usize {
        self.frames()
    }

    /// Frames of each ring; all rings of a device have the same.
    fn frames(&self) -> usize {
        let bytes = self.rx_bytes.max(self.tx_bytes);
        let per_block = BLOCK / FRAME;
        let frames = (bytes / FRAME).clamp(*FRAMES.start(), *FRAMES.end());
        frames.next_multiple_of(per_block)
    }

    /// Opens and starts the interface's port, which has one transmit queue if it has any.
    ///
    /// The interface's own MTU holds: setting another through the port would change the interface.
    pub fn open(&self, eal: &Eal, interface: &Interface) -> Result<StartedPort, PortError> {
        let failed = |source| PortError {
            interface: interface.name.clone(),
            source,
        };
        self.start(eal, interface).map_err(failed)
    }

    fn start(&self, eal: &Eal, interface: &Interface) -> Result<StartedPort, DpdkError> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // The kernel spreads packets over all queues, so there must be no more than are received from.
        let queues = self.rx_queues.max(1);
        let args = format!(
            "iface={},qpairs={queues},blocksz={BLOCK},framesz={FRAME},framecnt={}",
            interface.name,
            self.frames(),
        );
        // The name says which interface it is, and the driver goes by its beginning.
        let name = format!("net_af_packet_{}", interface.name);
        let device = Device::vdev(eal, &name, &args)?;
        let pool = |queue| {
            let config = PoolConfig {
                mbufs: pool_size(DESCRIPTORS.into(), 2 * BURST),
                cache: BURST,
                data_room: DATA_ROOM,
                socket: None,
            };
            MbufPool::new(eal, &format!("port{number}_rx{queue}"), config)
        };
        device.start(&PortConfig {
            rx_pools: (0..self.rx_queues).map(pool).collect::<Result<_, _>>()?,
            tx_queues: usize::from(self.tx),
            rx_descriptors: DESCRIPTORS,
            tx_descriptors: DESCRIPTORS,
            mtu: None,
            // The kernel has joined the groups.
            promiscuous: false,
            checksum: true,
        })
    }
}
