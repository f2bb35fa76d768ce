//! Interfaces to DPDK ports, by the driver that is best for each.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicUsize, Ordering};

use dpdk::{
    BURST, Device, DpdkError, Eal, Flows, MbufPool, PoolConfig, Port, PortConfig, RxQueue,
    SocketConfig, SocketGroups, SocketPort, StartedPort, TxQueue, pool_bytes, pool_size,
};

use super::igmp::{ControlQueues, IgmpThread};
use super::interface::{Interface, InterfaceError, Memberships};
use super::port_error::{OpenError, PortError};
use super::preset::Preset;
use super::resolve::Driver;
use super::rights::Rights;
use crate::memory::OUTPUT_CHUNKS;
use crate::net::{FlowTable, MacAddr};

/// Bytes of a frame in AF_PACKET's rings, headers of the ring included; larger packets are lost.
/// The preset of AF_PACKET has the same number.
pub(super) const FRAME: usize = 9216;
/// IP packets that fit such a frame behind the headers of ring and Ethernet; other drivers' buffers
/// are as large.
pub const LARGEST_PACKET: usize = FRAME - 128;
/// Bytes of a block of them: whole frames and whole pages.
pub(super) const BLOCK: usize = 36864;
/// Frames of a ring, at least and at most: rings are memory of the kernel, locked.
const FRAMES: std::ops::RangeInclusive<usize> = 128..=4096;
/// Room of an mbuf, which must hold a frame.
const DATA_ROOM: usize = FRAME + 128;
/// Descriptors of a queue of AF_PACKET's, which has its rings instead.
const DESCRIPTORS: usize = 512;
/// Packets that a queue of sockets holds beside those of a burst: none, the kernel has the others.
const SOCKET_PACKETS: usize = BURST;
/// Longest frame that reports memberships.
const REPORT_ROOM: usize = 2048;

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
    /// Packets of each output chunk that go through it; 0 where they come from elsewhere.
    pub chunk_packets: usize,
    /// What tells it from another port of the same interface, in the name of a port of sockets.
    pub label: &'static str,
}

/// An interface's port, open.
#[derive(Debug)]
pub struct OpenPort {
    /// For control.
    pub port: Port,
    /// Receive queues for data.
    pub rx: Vec<RxQueue>,
    /// Packets that may wait at each of them, at least.
    pub rx_packets: usize,
    /// Transmit queues for data.
    pub tx: Vec<TxQueue>,
    /// Hardware address of the port.
    pub mac: MacAddr,
    /// What keeps packets coming; to be kept as long as they are wanted.
    pub membership: Membership,
}

/// Rules of a port, and its memberships in groups where the kernel does not see to them.
#[derive(Debug, Default)]
pub struct Membership {
    _flows: Option<Flows>,
    igmp: Option<IgmpThread>,
    /// Of the kernel, where it has the interface.
    kernel: Option<Memberships>,
    /// Memberships of sockets that receive.
    sockets: Option<SocketGroups>,
}

impl Membership {
    /// Joins the groups among `endpoints`.
    pub fn join(
        &mut self,
        endpoints: &[SocketAddrV4],
        interface: &Interface,
    ) -> Result<(), InterfaceError> {
        if let Some(igmp) = &self.igmp {
            igmp.join(endpoints.iter().map(|endpoint| *endpoint.ip()));
        }
        if let Some(sockets) = &self.sockets {
            let groups = endpoints.iter().map(|endpoint| *endpoint.ip());
            for group in groups.filter(Ipv4Addr::is_multicast) {
                sockets.join(group).map_err(|source| InterfaceError::Join {
                    group,
                    name: interface.name.clone(),
                    source,
                })?;
            }
        }
        match &mut self.kernel {
            Some(kernel) => kernel.join(endpoints, interface),
            None => Ok(()),
        }
    }
}

impl PortUse {
    /// DPDK's memory for it.
    pub fn mbuf_bytes(&self, interface: &Interface) -> usize {
        let rx = pool_size(self.descriptors(interface), 2 * BURST);
        let tx = pool_size(self.tx_descriptors(interface).into(), 2 * BURST);
        // Nobody else reports its memberships.
        let (control, reports) = match interface.driver {
            Driver::Vfio => (1, pool_bytes(tx, REPORT_ROOM)),
            _ => (0, 0),
        };
        pool_bytes((self.rx_queues + control) * rx, DATA_ROOM) + reports
    }

    /// The kernel's memory for its rings: one to receive and one to send for each queue. Those of a
    /// NIC that DPDK shares with the kernel are left out, though it may not take the NIC after all:
    /// that turns out later.
    pub fn ring_bytes(&self, interface: &Interface) -> usize {
        match interface.driver {
            Driver::AfPacket => 2 * self.rx_queues.max(1) * self.frames() * FRAME,
            Driver::Udp => self.rx_queues * granted(self.rx_bytes) + self.tx_bytes,
            _ => 0,
        }
    }

    /// Packets that its transmit queue holds.
    pub fn tx_packets(&self, interface: &Interface) -> usize {
        let frames = match interface.driver {
            Driver::Udp => 0,
            _ => self.frames(),
        };
        frames.max(self.tx_descriptors(interface).into())
    }

    /// Frames of each ring; all rings of a device have the same.
    fn frames(&self) -> usize {
        let bytes = self.rx_bytes.max(self.tx_bytes);
        let per_block = BLOCK / FRAME;
        let frames = (bytes / FRAME).clamp(*FRAMES.start(), *FRAMES.end());
        frames.next_multiple_of(per_block)
    }

    /// Descriptors of each queue: as the preset says, or what holds the bytes.
    fn descriptors(&self, interface: &Interface) -> usize {
        match interface.driver {
            Driver::AfPacket => DESCRIPTORS,
            Driver::Udp => SOCKET_PACKETS,
            driver => Preset::of(driver).map_or(1024, |preset| preset.descriptors.into()),
        }
    }

    /// Descriptors of the transmit queue. Drivers keep what was sent until they are given more: so
    /// few that three chunks fill the queue, and the engine always has a fourth.
    fn tx_descriptors(&self, interface: &Interface) -> u16 {
        /// With fewer some drivers do not start.
        const FEWEST: usize = 64;
        let all = self.descriptors(interface);
        let few = match (interface.driver, self.chunk_packets) {
            (Driver::AfPacket | Driver::Udp, _) | (_, 0) => all,
            // Some drivers take powers of two only, and round up.
            (_, packets) => 1 << ((OUTPUT_CHUNKS - 1) * packets).ilog2(),
        };
        few.max(FEWEST).min(all) as u16
    }

    /// Opens and starts the interface's port, which has one transmit queue if it has any. Datagrams
    /// come to its queues by `steering`, if the device can do that; if not, to any, and whoever
    /// receives looks at them.
    ///
    /// The interface's own MTU holds: setting another through the port would change the interface.
    pub fn open(
        &self,
        eal: &Eal,
        interface: &Interface,
        steering: &FlowTable,
    ) -> Result<OpenPort, PortError> {
        let name = &interface.name;
        let (driver, device) = match (interface.driver, &interface.pci) {
            (Driver::Udp, _) => (Driver::Udp, None),
            (Driver::AfPacket, _) | (_, None) => (Driver::AfPacket, None),
            (driver, Some(pci)) => match Device::by_name(eal, pci) {
                Ok(device) => (driver, Some(device)),
                // Drivers say why in DPDK's log.
                Err(error) if driver.leaves_to_kernel() => {
                    let (driver, _) = Rights::of_this_process().choose(Driver::AfPacket);
                    let label = driver.label();
                    tracing::warn!(interface = name, %error, "DPDK does not take it: using {label}");
                    (driver, None)
                }
                Err(error) => return Err(OpenError::from(error).of(name, driver)),
            },
        };
        let preset = Preset::of(driver)?;
        let opened = match device {
            Some(device) => self.open_device(eal, interface, &preset, device, steering),
            None if driver == Driver::Udp => self.open_sockets(eal, interface, steering),
            None => self.open_af_packet(eal, interface, &preset),
        };
        opened.map_err(|error| error.of(name, driver))
    }

    fn open_af_packet(
        &self,
        eal: &Eal,
        interface: &Interface,
        preset: &Preset,
    ) -> Result<OpenPort, OpenError> {
        // The kernel spreads packets over all queues, so there must be no more than are received
        // from.
        let queues = self.rx_queues.max(1);
        if Rights::of_this_process()
            .missing(Driver::AfPacket)
            .is_some()
        {
            return Err(OpenError::Rights);
        }
        let vdev = preset.vdev(&interface.name, queues, self.frames());
        let (name, options) = vdev.unwrap_or_default();
        let device = Device::vdev(eal, &name, &options)?;
        let port = device.start(&PortConfig {
            rx_pools: pools(eal, self.rx_queues, DESCRIPTORS, DATA_ROOM)?,
            tx_queues: usize::from(self.tx),
            rx_descriptors: DESCRIPTORS as u16,
            tx_descriptors: DESCRIPTORS as u16,
            mtu: None,
            // The kernel has joined the groups.
            promiscuous: false,
            // The driver has none: its sockets wake who waits.
            rx_interrupts: false,
            checksum: true,
        })?;
        Ok(OpenPort {
            mac: MacAddr(port.port.mac()?),
            rx_packets: self.frames(),
            port: port.port,
            rx: port.rx,
            tx: port.tx,
            membership: Membership {
                kernel: Some(Memberships::default()),
                ..Membership::default()
            },
        })
    }

    fn open_sockets(
        &self,
        eal: &Eal,
        interface: &Interface,
        steering: &FlowTable,
    ) -> Result<OpenPort, OpenError> {
        let pools = pools(eal, self.rx_queues, SOCKET_PACKETS, DATA_ROOM)?;
        let queues = pools.into_iter().enumerate();
        let rx = queues.map(|(queue, pool)| (pool, steering.destinations(queue)));
        let opened = SocketPort::open(
            eal,
            SocketConfig {
                name: &format!("udp_{}{}", interface.name, self.label),
                interface: interface.index,
                ip: interface.ip,
                rx: rx.collect(),
                rx_bytes: self.rx_bytes,
                tx_queues: usize::from(self.tx),
                tx_bytes: self.tx_bytes,
            },
        )?;
        if self.rx_queues > 0 && opened.rx_bytes < self.rx_bytes {
            tracing::warn!(
                interface = %interface.name,
                granted = opened.rx_bytes,
                asked = self.rx_bytes,
                "few packets may wait: the next are lost while nobody takes them; \
                 sysctl net.core.rmem_max={}",
                self.rx_bytes
            );
        }
        Ok(OpenPort {
            mac: MacAddr(opened.started.port.mac()?),
            rx_packets: opened.rx_bytes / FRAME,
            port: opened.started.port,
            rx: opened.started.rx,
            tx: opened.started.tx,
            membership: Membership {
                sockets: Some(opened.groups),
                ..Membership::default()
            },
        })
    }

    fn open_device(
        &self,
        eal: &Eal,
        interface: &Interface,
        preset: &Preset,
        device: Device,
        steering: &FlowTable,
    ) -> Result<OpenPort, OpenError> {
        let info = device.info()?;
        let shared = interface.driver.leaves_to_kernel();
        let isolation = shared.then(|| device.isolate());
        if let Some(Err(error)) = &isolation {
            tracing::warn!(%error, "the kernel gets none of this port's packets");
        }
        // Behind the queues for data: queries that come, reports that go.
        let room = usize::from(info.max_rx_queues) > self.rx_queues
            && usize::from(info.max_tx_queues) > usize::from(self.tx);
        // Hypervisors deal packets out over all queues that are in use, data too.
        let apart = room && interface.driver != Driver::Virtio;
        let control = usize::from(!shared && apart);
        if !shared && !apart {
            tracing::warn!(
                interface = %interface.name,
                queues = info.max_rx_queues,
                "no queue can be had for IGMP alone: memberships are not reported, the switch has to flood"
            );
        }
        // Mbufs of which several make one packet, in whichever queue, slow the whole port down.
        let queues = self.rx_queues + control;
        let started = device.start(&PortConfig {
            rx_pools: pools(eal, queues, preset.descriptors.into(), DATA_ROOM)?,
            tx_queues: usize::from(self.tx) + control,
            rx_descriptors: preset.descriptors,
            tx_descriptors: self.tx_descriptors(interface),
            mtu: interface.mtu.and_then(|mtu| mtu.try_into().ok()),
            promiscuous: false,
            rx_interrupts: preset.rx_interrupts,
            checksum: info.rx_checksum,
        })?;
        let StartedPort {
            port,
            mut rx,
            rx_descriptors,
            mut tx,
        } = started;
        let mac = MacAddr(port.mac()?);
        let wakes = rx.iter().all(RxQueue::wakes);
        let igmp = (control > 0).then_some(self.rx_queues as u16);
        let flows = steer(&port, steering, igmp, isolation == Some(Ok(())))?;
        tracing::info!(
            port = port.name(),
            driver = info.driver,
            checksums = info.rx_checksum,
            receive_timestamps = info.rx_timestamp,
            send_at_timestamps = info.tx_timestamp,
            receive_interrupts = wakes,
            "what the device does by itself"
        );
        let igmp = match (
            control,
            rx.pop_if(|_| control > 0),
            tx.pop_if(|_| control > 0),
        ) {
            (1, Some(rx), Some(tx)) => {
                let pool = report_pool(eal, tx.keeps())?;
                tx.keep(pool.clone());
                let queues = ControlQueues { rx, tx, pool };
                Some(IgmpThread::start(queues, mac, interface.ip))
            }
            _ => None,
        };
        Ok(OpenPort {
            membership: Membership {
                _flows: flows,
                igmp: igmp.transpose()?,
                kernel: shared.then(Memberships::default),
                sockets: None,
            },
            rx_packets: rx_descriptors.into(),
            port,
            rx,
            tx,
            mac,
        })
    }
}

/// Has a port steer what is to be received, and IGMP to a queue if one is named. `None` where
/// software has to: a port that is `isolated` would then be given nothing.
fn steer(
    port: &Port,
    steering: &FlowTable,
    igmp: Option<u16>,
    isolated: bool,
) -> Result<Option<Flows>, OpenError> {
    match Flows::steer(port, steering.rules(), igmp) {
        Ok(flows) => {
            tracing::info!(
                port = port.name(),
                rules = flows.len(),
                "packets are steered by the device"
            );
            Ok(Some(flows))
        }
        Err(error) if isolated => Err(OpenError::Rules(error)),
        Err(error) => {
            tracing::warn!(%error, "packets are steered by software");
            Ok(None)
        }
    }
}

/// Bytes that may wait in a UDP socket of so many that are asked for.
fn granted(bytes: usize) -> usize {
    let most = std::fs::read_to_string("/proc/sys/net/core/rmem_max");
    let most = most.ok().and_then(|most| most.trim().parse().ok());
    match most {
        Some(most) if !Rights::of_this_process().net_admin => bytes.min(most),
        _ => bytes,
    }
}

/// A pool for reports through a queue whose driver `keeps` so many packets that were sent until it
/// is given others: a pool of fewer would run dry for good.
fn report_pool(eal: &Eal, keeps: usize) -> Result<MbufPool, DpdkError> {
    pool(eal, keeps, REPORT_ROOM)
}

/// A pool for each queue.
fn pools(
    eal: &Eal,
    queues: usize,
    descriptors: usize,
    data_room: usize,
) -> Result<Vec<MbufPool>, DpdkError> {
    let pool = |_| pool(eal, descriptors, data_room);
    (0..queues).map(pool).collect()
}

/// A pool for a queue with so many descriptors.
fn pool(eal: &Eal, descriptors: usize, data_room: usize) -> Result<MbufPool, DpdkError> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let config = PoolConfig {
        mbufs: pool_size(descriptors, 2 * BURST),
        cache: BURST,
        data_room,
        socket: None,
    };
    MbufPool::new(eal, &format!("port_pool{number}"), config)
}

#[cfg(test)]
#[path = "port_tests.rs"]
mod tests;
