//! Devices: found by name or made, then started with a [`PortConfig`].

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::dma::Mapping;
use super::error::{DpdkError, Errno, c_args, c_name};
use super::mempool::PoolConfig;
use super::packet_socket::PacketSockets;
use super::port::{StartedPort, queues};
use super::ring::{Ring, RingReceiver, RingSender};
use super::{BURST, Eal, MbufPool};

/// How a port is set up.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// Pool that feeds each receive queue; may be the same one. May be empty for [`Device::rings`].
    pub rx_pools: Vec<MbufPool>,
    /// Transmit queues.
    pub tx_queues: usize,
    /// Descriptors of each receive queue; the driver may adjust it.
    pub rx_descriptors: u16,
    /// Descriptors of each transmit queue; the driver may adjust it.
    pub tx_descriptors: u16,
    /// Largest IP packet in bytes; `None`: the device's default.
    pub mtu: Option<u16>,
    /// Take every frame, whatever its destination. Multicast is always taken.
    pub promiscuous: bool,
    /// Have checksums verified, if the device can: packets with wrong ones [say
    /// so](super::Mbuf::has_bad_checksum).
    pub checksum: bool,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            rx_pools: Vec::new(),
            tx_queues: 1,
            rx_descriptors: 1024,
            tx_descriptors: 1024,
            mtu: None,
            promiscuous: true,
            checksum: false,
        }
    }
}

/// What a device says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Driver, such as `net_mlx5`.
    pub driver: String,
    /// Most receive queues.
    pub max_rx_queues: u16,
    /// Most transmit queues.
    pub max_tx_queues: u16,
    /// Largest MTU.
    pub max_mtu: u32,
    /// Chained mbufs can be transmitted as they are.
    pub multi_segment_tx: bool,
    /// Checksums of what is received can be verified.
    pub rx_checksum: bool,
    /// Packets can be stamped when they are received.
    pub rx_timestamp: bool,
    /// Packets can be sent at a given time.
    pub tx_timestamp: bool,
}

/// A device that is not started.
#[derive(Debug)]
pub struct Device {
    pub(super) port: u16,
    name: String,
    owned: DeviceOrigin,
    /// Of the AF_PACKET driver.
    pub(super) sockets: PacketSockets,
    pub(super) eal: Eal,
    /// Memory that it reaches by DMA, beside DPDK's.
    mappings: Mutex<Vec<Mapping>>,
    /// Set before the start if packets are to be split.
    #[cfg(feature = "nic")]
    pub(super) split: Option<super::split::Split>,
}

/// What has to go when the port is closed.
#[derive(Debug)]
enum DeviceOrigin {
    /// The device was there before.
    Nothing,
    /// A virtual device of this name.
    Vdev(CString),
    /// As above, and its rings.
    Rings {
        vdev: CString,
        _rings: Vec<Arc<Ring>>,
    },
}

impl Device {
    /// Names of the devices that EAL found or was told to make.
    pub fn list(eal: &Eal) -> Vec<String> {
        let _control = eal.control();
        names()
    }

    /// A device that EAL found, by its PCI address or virtual device name.
    pub fn by_name(eal: &Eal, name: &str) -> Result<Self, DpdkError> {
        let c_name = c_args("port name", name)?;
        Self::find(
            eal,
            &mut eal.control(),
            name,
            &c_name,
            DeviceOrigin::Nothing,
        )
    }

    /// Makes a virtual device, such as `net_pcap0` with `rx_pcap=in.pcap,tx_pcap=out.pcap`.
    pub fn vdev(eal: &Eal, name: &str, args: &str) -> Result<Self, DpdkError> {
        let c_name = c_args("virtual device name", name)?;
        let c_args = c_args("virtual device arguments", args)?;
        let mut taken = eal.control();
        // SAFETY: EAL is up; the strings are C strings that DPDK copies; the control lock
        // serialises devices.
        let add = || unsafe {
            dpdk_sys::rte_eal_hotplug_add(c"vdev".as_ptr(), c_name.as_ptr(), c_args.as_ptr())
        };
        let (ret, sockets) = PacketSockets::opened_by(add);
        if ret < 0 {
            return Err(DpdkError::call(
                format!("rte_eal_hotplug_add(vdev, {name}, {args})"),
                Errno::from_return(ret),
            ));
        }
        let owned = DeviceOrigin::Vdev(c_name.clone());
        let mut device = Self::find(eal, &mut taken, name, &c_name, owned)?;
        device.sockets = sockets;
        Ok(device)
    }

    /// Makes a port out of rings: what is put into `rx[i]`'s other end is received on queue i, and
    /// what is transmitted on queue i comes out of `tx[i]`'s other end. Both ends of one ring make
    /// a loopback.
    pub fn rings(
        eal: &Eal,
        name: &str,
        rx: Vec<RingReceiver>,
        tx: Vec<RingSender>,
    ) -> Result<Self, DpdkError> {
        let short = c_name("ring port name", name, 22)?;
        let mut rx: Vec<_> = rx.into_iter().map(|end| end.0).collect();
        let tx: Vec<_> = tx.into_iter().map(|end| end.0).collect();
        let rx_pointers: Vec<_> = rx.iter().map(|ring| ring.as_ptr()).collect();
        let tx_pointers: Vec<_> = tx.iter().map(|ring| ring.as_ptr()).collect();
        let mut control = eal.control();
        // SAFETY: the arrays hold live rings, which `DeviceOrigin::Rings` keeps for as long as the
        // port; the driver is the only user of these ends because they were given away.
        let ret = unsafe {
            dpdk_sys::rte_eth_from_rings(
                short.as_ptr(),
                rx_pointers.as_ptr(),
                rx.len() as u32,
                tx_pointers.as_ptr(),
                tx.len() as u32,
                0,
            )
        };
        let Ok(port) = u16::try_from(ret) else {
            drop(control);
            return Err(DpdkError::call(
                format!(
                    "rte_eth_from_rings({name}, {} rx, {} tx)",
                    rx.len(),
                    tx.len()
                ),
                Errno::last(),
            ));
        };
        control.insert(port);
        drop(control);
        rx.extend(tx);
        Ok(Self {
            port,
            name: format!("net_ring_{name}"),
            owned: DeviceOrigin::Rings {
                vdev: c_args("ring port name", &format!("net_ring_{name}"))?,
                _rings: rx,
            },
            sockets: PacketSockets::default(),
            eal: eal.clone(),
            mappings: Mutex::default(),
            #[cfg(feature = "nic")]
            split: None,
        })
    }

    /// The port of this name, which nobody else may have.
    fn find(
        eal: &Eal,
        taken: &mut HashSet<u16>,
        name: &str,
        c_name: &CStr,
        owned: DeviceOrigin,
    ) -> Result<Self, DpdkError> {
        let mut port = 0;
        // SAFETY: EAL is up; the name is a C string.
        if unsafe { dpdk_sys::rte_eth_dev_get_port_by_name(c_name.as_ptr(), &mut port) } != 0 {
            return Err(DpdkError::NoSuchPort {
                name: name.to_owned(),
                known: names().join(", "),
            });
        }
        if !taken.insert(port) {
            return Err(DpdkError::Taken {
                name: name.to_owned(),
            });
        }
        Ok(Self {
            port,
            name: name.to_owned(),
            owned,
            sockets: PacketSockets::default(),
            eal: eal.clone(),
            mappings: Mutex::default(),
            #[cfg(feature = "nic")]
            split: None,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it can do.
    pub fn info(&self) -> Result<DeviceInfo, DpdkError> {
        let raw = self.raw_info()?;
        Ok(DeviceInfo {
            driver: driver_name(&raw),
            max_rx_queues: raw.max_rx_queues,
            max_tx_queues: raw.max_tx_queues,
            max_mtu: raw.max_mtu,
            multi_segment_tx: raw.tx_multi_segs != 0,
            rx_checksum: raw.rx_checksum != 0,
            rx_timestamp: raw.rx_timestamp != 0,
            tx_timestamp: raw.tx_timestamp != 0,
        })
    }

    /// Whether it is a driver's alone, with no device behind it that reaches memory by itself.
    pub(super) fn is_virtual(&self) -> bool {
        !matches!(self.owned, DeviceOrigin::Nothing)
    }

    /// Keeps memory mapped until the port is stopped.
    pub(super) fn keep(&self, mappings: Vec<Mapping>) {
        let kept = self.mappings.lock();
        kept.unwrap_or_else(PoisonError::into_inner)
            .extend(mappings);
    }

    pub(super) fn raw_info(&self) -> Result<dpdk_sys::karoo_port_info, DpdkError> {
        let mut raw = dpdk_sys::karoo_port_info::default();
        // SAFETY: the port exists; `raw` is writable.
        let ret = unsafe { dpdk_sys::karoo_port_info(self.port, &mut raw) };
        self.check(ret, || "rte_eth_dev_info_get".into())?;
        Ok(raw)
    }

    pub(super) fn check(&self, ret: i32, call: impl FnOnce() -> String) -> Result<(), DpdkError> {
        if ret >= 0 {
            return Ok(());
        }
        // The device layer returns -errno: -1 is EPERM. A driver may say it of anything.
        Err(DpdkError::call(
            format!("{} on port '{}'", call(), self.name),
            Errno(-ret),
        ))
    }

    /// Configures and starts the port.
    ///
    /// Refuses more queues than there are, and pools that are too small for their queues.
    pub fn start(self, config: &PortConfig) -> Result<StartedPort, DpdkError> {
        let raw = self.raw_info()?;
        let mut pools = config.rx_pools.clone();
        let rings = matches!(self.owned, DeviceOrigin::Rings { .. });
        if rings && pools.is_empty() && raw.max_rx_queues > 0 {
            // Ring ports receive what others allocated; the queue set-up asks for a pool all the
            // same. It goes when its port is closed, whose number another may have by then.
            static POOLS: AtomicU64 = AtomicU64::new(0);
            let name = format!("unused-{}", POOLS.fetch_add(1, Ordering::Relaxed));
            let unused = PoolConfig {
                mbufs: 1,
                cache: 0,
                data_room: 128,
                socket: None,
            };
            let pool = MbufPool::new(&self.eal, &name, unused)?;
            pools = vec![pool; raw.max_rx_queues.into()];
        }
        for (direction, asked, max) in [
            ("rx", pools.len(), raw.max_rx_queues),
            ("tx", config.tx_queues, raw.max_tx_queues),
        ] {
            if asked > max.into() {
                return Err(DpdkError::Queues {
                    port: self.name.clone(),
                    driver: driver_name(&raw),
                    direction,
                    max,
                    asked,
                });
            }
        }
        let control = self.eal.control();
        let (rx_descriptors, tx_descriptors) = self.configure(&raw, config, &pools)?;
        if !rings {
            check_pools(&pools, rx_descriptors)?;
        }
        self.set_up_queues(config.tx_queues, &pools, rx_descriptors, tx_descriptors)?;
        // SAFETY: the port is configured and the control lock is held.
        let ret = unsafe { dpdk_sys::rte_eth_dev_start(self.port) };
        self.check(ret, || "rte_eth_dev_start".into())?;
        // Devices without filters refuse these, and need them not.
        // SAFETY: the port exists.
        unsafe {
            if config.promiscuous {
                dpdk_sys::rte_eth_promiscuous_enable(self.port);
            }
            dpdk_sys::rte_eth_allmulticast_enable(self.port);
        }
        drop(control);

        Ok(queues(self, pools, config.tx_queues as u16, tx_descriptors))
    }

    fn configure(
        &self,
        raw: &dpdk_sys::karoo_port_info,
        config: &PortConfig,
        pools: &[MbufPool],
    ) -> Result<(u16, u16), DpdkError> {
        let frame = usize::from(config.mtu.unwrap_or(1500)) + 18;
        let options = dpdk_sys::karoo_port_options {
            rx_queues: pools.len() as u16,
            tx_queues: config.tx_queues as u16,
            mtu: config.mtu.map_or(0, u32::from),
            scatter: i32::from(
                raw.rx_scatter != 0 && pools.iter().any(|pool| pool.config().data_room < frame),
            ),
            split: i32::from(self.payloads(0).is_some()),
            multi_segs: raw.tx_multi_segs,
            checksum: i32::from(config.checksum && raw.rx_checksum != 0),
        };
        // SAFETY: the port exists and is stopped.
        let ret = unsafe { dpdk_sys::karoo_port_configure(self.port, &options) };
        self.check(ret, || {
            format!(
                "rte_eth_dev_configure({} rx, {} tx, mtu {:?})",
                options.rx_queues, options.tx_queues, config.mtu
            )
        })?;
        let (mut rx, mut tx) = (config.rx_descriptors, config.tx_descriptors);
        // SAFETY: the port is configured; both counts are writable.
        let ret =
            unsafe { dpdk_sys::rte_eth_dev_adjust_nb_rx_tx_desc(self.port, &mut rx, &mut tx) };
        self.check(ret, || "rte_eth_dev_adjust_nb_rx_tx_desc".into())?;
        Ok((rx, tx))
    }

    /// Length of the headers, and the pool for what is behind them, if packets of this queue are to
    /// be split.
    fn payloads(&self, queue: u16) -> Option<(u16, &MbufPool)> {
        #[cfg(feature = "nic")]
        return self.split.as_ref()?.payloads(queue);
        #[cfg(not(feature = "nic"))]
        {
            let _ = queue;
            None
        }
    }

    fn set_up_queues(
        &self,
        tx_queues: usize,
        pools: &[MbufPool],
        rx: u16,
        tx: u16,
    ) -> Result<(), DpdkError> {
        /// Any NUMA node.
        const ANY: u32 = u32::MAX;
        for (queue, pool) in pools.iter().enumerate() {
            let socket = pool.config().socket.unwrap_or(ANY);
            // SAFETY: the port is configured with this many queues; the pool outlives the port
            // (`Inner`).
            let ret = unsafe {
                let (queue, headers) = (queue as u16, pool.as_ptr());
                match self.payloads(queue) {
                    None => {
                        let conf = std::ptr::null();
                        dpdk_sys::rte_eth_rx_queue_setup(
                            self.port, queue, rx, socket, conf, headers,
                        )
                    }
                    Some((length, payloads)) => dpdk_sys::karoo_rx_queue_setup_split(
                        self.port,
                        queue,
                        rx,
                        socket,
                        headers,
                        length,
                        payloads.as_ptr(),
                    ),
                }
            };
            self.check(ret, || {
                format!(
                    "rte_eth_rx_queue_setup({queue}, {rx} descriptors, pool {})",
                    pool.name()
                )
            })?;
        }
        for queue in 0..tx_queues {
            // SAFETY: the port is configured with this many queues.
            let ret = unsafe {
                dpdk_sys::rte_eth_tx_queue_setup(self.port, queue as u16, tx, ANY, std::ptr::null())
            };
            self.check(ret, || {
                format!("rte_eth_tx_queue_setup({queue}, {tx} descriptors)")
            })?;
        }
        Ok(())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let mut taken = self.eal.control();
        // SAFETY: the queues are gone, so no lcore is inside a burst. Stopping a stopped port does
        // nothing.
        unsafe { dpdk_sys::rte_eth_dev_stop(self.port) };
        // A port that is stopped needs the memory no more; one that is closed may have left the
        // IOMMU already.
        let mappings = self.mappings.get_mut();
        mappings.unwrap_or_else(PoisonError::into_inner).clear();
        // SAFETY: the port exists.
        if unsafe { dpdk_sys::rte_eth_dev_close(self.port) } != 0 {
            tracing::warn!(port = self.name, "port did not close: {}", Errno::last());
        }
        if let DeviceOrigin::Vdev(vdev) | DeviceOrigin::Rings { vdev, .. } = &self.owned {
            // SAFETY: the name is a C string; the port is closed.
            unsafe { dpdk_sys::rte_eal_hotplug_remove(c"vdev".as_ptr(), vdev.as_ptr()) };
        }
        taken.remove(&self.port);
    }
}

fn driver_name(raw: &dpdk_sys::karoo_port_info) -> String {
    // SAFETY: the shim ends the text with a NUL inside the array.
    let text = unsafe { CStr::from_ptr(raw.driver.as_ptr()) };
    text.to_string_lossy().into_owned()
}

fn names() -> Vec<String> {
    let mut names = Vec::new();
    let mut port = 0;
    loop {
        // SAFETY: EAL is up; owner 0 is nobody.
        let next = unsafe { dpdk_sys::rte_eth_find_next_owned_by(port, 0) };
        let Some(found) = u16::try_from(next).ok().filter(|found| *found < 32) else {
            return names;
        };
        let mut name = [0; 64];
        // SAFETY: the array has RTE_ETH_NAME_MAX_LEN bytes, and DPDK ends the text with a NUL.
        if unsafe { dpdk_sys::rte_eth_dev_get_name_by_port(found, name.as_mut_ptr()) } == 0 {
            // SAFETY: as above.
            let text = unsafe { CStr::from_ptr(name.as_ptr()) };
            names.push(text.to_string_lossy().into_owned());
        }
        port = found + 1;
    }
}

/// Checks every distinct pool against all queues that it feeds.
fn check_pools(pools: &[MbufPool], descriptors: u16) -> Result<(), DpdkError> {
    for pool in pools {
        let queues = pools
            .iter()
            .filter(|other| other.as_ptr() == pool.as_ptr())
            .count();
        pool.check_size(queues * usize::from(descriptors), BURST)?;
    }
    Ok(())
}
