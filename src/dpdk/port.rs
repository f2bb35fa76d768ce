//! Ports: a [`Device`] is found or made, started with a [`PortConfig`], and then used queue by queue.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use super::error::{DpdkError, Errno, c_args, c_name};
use super::extbuf::{ExtMemory, ExtPool, Region};
use super::mempool::PoolConfig;
use super::ring::{Ring, RingReceiver, RingSender};
use super::{BURST, Eal, MbufBatch, MbufPool};

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
}

/// A device that is not started.
#[derive(Debug)]
pub struct Device {
    port: u16,
    name: String,
    owned: Owned,
    eal: Eal,
}

/// What has to go when the port is closed.
#[derive(Debug)]
enum Owned {
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

/// A started port, for control; it is closed when this and all its queues are gone.
#[derive(Clone, Debug)]
pub struct Port(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    device: Device,
    _pools: Vec<MbufPool>,
}

/// A started port with its queues.
#[derive(Debug)]
pub struct StartedPort {
    /// For control.
    pub port: Port,
    /// Receive queues, in order of [`PortConfig::rx_pools`].
    pub rx: Vec<RxQueue>,
    /// Transmit queues.
    pub tx: Vec<TxQueue>,
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
        let _control = eal.control();
        Self::find(eal, name, &c_name, Owned::Nothing)
    }

    /// Makes a virtual device, such as `net_pcap0` with `rx_pcap=in.pcap,tx_pcap=out.pcap`.
    pub fn vdev(eal: &Eal, name: &str, args: &str) -> Result<Self, DpdkError> {
        let c_name = c_args("virtual device name", name)?;
        let c_args = c_args("virtual device arguments", args)?;
        let _control = eal.control();
        // SAFETY: EAL is up; the strings are C strings that DPDK copies; the control lock serialises devices.
        let ret = unsafe {
            dpdk_sys::rte_eal_hotplug_add(c"vdev".as_ptr(), c_name.as_ptr(), c_args.as_ptr())
        };
        if ret < 0 {
            return Err(DpdkError::call(
                format!("rte_eal_hotplug_add(vdev, {name}, {args})"),
                Errno::from_return(ret),
            ));
        }
        Self::find(eal, name, &c_name, Owned::Vdev(c_name.clone()))
    }

    /// Makes a port out of rings: what is put into `rx[i]`'s other end is received on queue i, and what is
    /// transmitted on queue i comes out of `tx[i]`'s other end. Both ends of one ring make a loopback.
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
        let control = eal.control();
        // SAFETY: the arrays hold live rings, which `Owned::Rings` keeps for as long as the port; the driver is the
        // only user of these ends because they were given away.
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
        drop(control);
        rx.extend(tx);
        Ok(Self {
            port,
            name: format!("net_ring_{name}"),
            owned: Owned::Rings {
                vdev: c_args("ring port name", &format!("net_ring_{name}"))?,
                _rings: rx,
            },
            eal: eal.clone(),
        })
    }

    fn find(eal: &Eal, name: &str, c_name: &CStr, owned: Owned) -> Result<Self, DpdkError> {
        let mut port = 0;
        // SAFETY: EAL is up; the name is a C string.
        if unsafe { dpdk_sys::rte_eth_dev_get_port_by_name(c_name.as_ptr(), &mut port) } != 0 {
            return Err(DpdkError::NoSuchPort {
                name: name.to_owned(),
                known: names().join(", "),
            });
        }
        Ok(Self {
            port,
            name: name.to_owned(),
            owned,
            eal: eal.clone(),
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
        })
    }

    fn raw_info(&self) -> Result<dpdk_sys::karoo_port_info, DpdkError> {
        let mut raw = dpdk_sys::karoo_port_info::default();
        // SAFETY: the port exists; `raw` is writable.
        let ret = unsafe { dpdk_sys::karoo_port_info(self.port, &mut raw) };
        self.check(ret, || "rte_eth_dev_info_get".into())?;
        Ok(raw)
    }

    fn check(&self, ret: i32, call: impl FnOnce() -> String) -> Result<(), DpdkError> {
        if ret >= 0 {
            return Ok(());
        }
        Err(DpdkError::call(
            format!("{} on port '{}'", call(), self.name),
            Errno::from_return(ret),
        ))
    }

    /// Configures and starts the port.
    ///
    /// Refuses more queues than there are, and pools that are too small for their queues.
    pub fn start(self, config: &PortConfig) -> Result<StartedPort, DpdkError> {
        let raw = self.raw_info()?;
        let mut pools = config.rx_pools.clone();
        let rings = matches!(self.owned, Owned::Rings { .. });
        if rings && pools.is_empty() && raw.max_rx_queues > 0 {
            // Ring ports receive what others allocated; the queue set-up asks for a pool all the same.
            let unused = PoolConfig {
                mbufs: 1,
                cache: 0,
                data_room: 128,
                socket: None,
            };
            let pool = MbufPool::new(&self.eal, &format!("{}-rx", self.port), unused)?;
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

        let rx_queues = pools.len() as u16;
        let inner = Arc::new(Inner {
            device: self,
            _pools: pools,
        });
        let handle = |queue| QueueId {
            queue,
            inner: Arc::clone(&inner),
        };
        Ok(StartedPort {
            rx: (0..rx_queues).map(|queue| RxQueue(handle(queue))).collect(),
            tx: (0..config.tx_queues as u16)
                .map(|queue| TxQueue(handle(queue)))
                .collect(),
            port: Port(Arc::clone(&inner)),
        })
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
            multi_segs: raw.tx_multi_segs,
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
            // SAFETY: the port is configured with this many queues; the pool outlives the port (`Inner`).
            let ret = unsafe {
                dpdk_sys::rte_eth_rx_queue_setup(
                    self.port,
                    queue as u16,
                    rx,
                    socket,
                    std::ptr::null(),
                    pool.as_ptr(),
                )
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
        let _control = self.eal.control();
        // SAFETY: the queues are gone, so no lcore is inside a burst. Stopping a stopped port does nothing.
        unsafe {
            dpdk_sys::rte_eth_dev_stop(self.port);
            if dpdk_sys::rte_eth_dev_close(self.port) != 0 {
                tracing::warn!(port = self.name, "port did not close: {}", Errno::last());
            }
        }
        if let Owned::Vdev(vdev) | Owned::Rings { vdev, .. } = &self.owned {
            // SAFETY: the name is a C string; the port is closed.
            unsafe { dpdk_sys::rte_eal_hotplug_remove(c"vdev".as_ptr(), vdev.as_ptr()) };
        }
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

#[derive(Debug)]
struct QueueId {
    queue: u16,
    inner: Arc<Inner>,
}

/// A receive queue; one thread at a time, by `&mut`.
#[derive(Debug)]
pub struct RxQueue(QueueId);

impl RxQueue {
    /// Receives behind the packets in the batch, as many as it has room for; returns how many.
    #[inline]
    pub fn rx_burst<const N: usize>(&mut self, batch: &mut MbufBatch<N>) -> usize {
        batch.extend_raw(|free, room| {
            let room = room.min(u16::MAX.into()) as u16;
            // SAFETY: the port is started while `inner` lives; this handle is the queue's only one; `free` has room
            // for `room` pointers.
            unsafe {
                dpdk_sys::karoo_eth_rx_burst(self.0.inner.device.port, self.0.queue, free, room)
                    .into()
            }
        })
    }

    /// Its number.
    pub fn index(&self) -> u16 {
        self.0.queue
    }

    /// Its port.
    pub fn port(&self) -> Port {
        Port(Arc::clone(&self.0.inner))
    }
}

/// A transmit queue; one thread at a time, by `&mut`.
#[derive(Debug)]
pub struct TxQueue(QueueId);

impl TxQueue {
    /// Hands packets from the front of the batch to the device; returns how many it took. The others stay.
    ///
    /// An empty batch makes drivers free what has been sent.
    #[inline]
    pub fn tx_burst<const N: usize>(&mut self, batch: &mut MbufBatch<N>) -> usize {
        batch.take_raw(|mbufs, count| {
            let count = count.min(u16::MAX.into()) as u16;
            // SAFETY: the port is started while `inner` lives; this handle is the queue's only one; the packets
            // belong to the device as far as it takes them.
            unsafe {
                dpdk_sys::karoo_eth_tx_burst(self.0.inner.device.port, self.0.queue, mbufs, count)
                    .into()
            }
        })
    }

    /// Its number.
    pub fn index(&self) -> u16 {
        self.0.queue
    }

    /// Its port.
    pub fn port(&self) -> Port {
        Port(Arc::clone(&self.0.inner))
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
    /// Packets that the device dropped because no descriptor was free (`imissed`).
    pub rx_missed: u64,
    /// Packets received with errors.
    pub rx_errors: u64,
    /// Packets that could not be transmitted.
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
    /// Its name.
    pub fn name(&self) -> &str {
        self.0.device.name()
    }

    /// What the device can do.
    pub fn info(&self) -> Result<DeviceInfo, DpdkError> {
        self.0.device.info()
    }

    /// Its hardware address.
    pub fn mac(&self) -> Result<[u8; 6], DpdkError> {
        let mut address = dpdk_sys::rte_ether_addr::default();
        // SAFETY: the port exists; `address` is writable.
        let ret = unsafe { dpdk_sys::rte_eth_macaddr_get(self.0.device.port, &mut address) };
        self.0.device.check(ret, || "rte_eth_macaddr_get".into())?;
        Ok(address.addr_bytes)
    }

    /// State of the link now.
    pub fn link(&self) -> Result<Link, DpdkError> {
        let mut link = dpdk_sys::karoo_link::default();
        // SAFETY: the port exists; `link` is writable.
        let ret = unsafe { dpdk_sys::karoo_port_link(self.0.device.port, &mut link) };
        self.0
            .device
            .check(ret, || "rte_eth_link_get_nowait".into())?;
        Ok(Link {
            up: link.up != 0,
            // 0 is "none", all ones "unknown".
            speed_mbps: (link.speed_mbps != 0 && link.speed_mbps != u32::MAX)
                .then_some(link.speed_mbps),
        })
    }

    /// Counters since the start.
    pub fn stats(&self) -> Result<PortStats, DpdkError> {
        let mut raw = dpdk_sys::rte_eth_stats::default();
        // SAFETY: the port exists; `raw` is writable.
        let ret = unsafe { dpdk_sys::rte_eth_stats_get(self.0.device.port, &mut raw) };
        self.0.device.check(ret, || "rte_eth_stats_get".into())?;
        Ok(PortStats {
            rx_packets: raw.ipackets,
            tx_packets: raw.opackets,
            rx_bytes: raw.ibytes,
            tx_bytes: raw.obytes,
            rx_missed: raw.imissed,
            rx_errors: raw.ierrors,
            tx_errors: raw.oerrors,
            rx_no_mbuf: raw.rx_nombuf,
        })
    }

    /// The driver's own counters, by name.
    pub fn xstats(&self) -> Result<Vec<(String, u64)>, DpdkError> {
        let port = self.0.device.port;
        // SAFETY: a null array asks for the number.
        let count = unsafe { dpdk_sys::rte_eth_xstats_get(port, std::ptr::null_mut(), 0) };
        self.0.device.check(count, || "rte_eth_xstats_get".into())?;
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
        self.0
            .device
            .check(named.min(valued), || "rte_eth_xstats_get".into())?;
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

    /// Lets the device read the pool's buffers by DMA, which NICs such as mlx5 require before they transmit from
    /// memory that is not DPDK's. Buffers must start and end on page boundaries. Virtual devices need it not.
    pub fn register<T: ExtMemory>(&self, pool: &ExtPool<T>) -> Result<Registration<T>, DpdkError> {
        let mut registration = Registration {
            port: self.clone(),
            pool: pool.clone(),
            mapped: Vec::new(),
        };
        let device = self.0.device.raw_info()?.device;
        let _control = self.0.device.eal.control();
        for &region in pool.regions() {
            /// Smallest page, of which every larger one is a multiple.
            const PAGE: usize = 4096;
            let (address, length) = (region.address as *mut _, region.length);
            // SAFETY: the region belongs to `pool`, which the registration keeps.
            let ret = unsafe {
                dpdk_sys::rte_extmem_register(address, length, std::ptr::null_mut(), 0, PAGE)
            };
            if ret != 0 && Errno::last() != Errno(libc::EEXIST) {
                return Err(DpdkError::call(
                    format!("rte_extmem_register({address:p}, {length})"),
                    Errno::last(),
                ));
            }
            registration.mapped.push((region, ret == 0));
            // SAFETY: as above; the device belongs to a started port.
            let ret = unsafe {
                dpdk_sys::rte_dev_dma_map(device, address, region.address as u64, length)
            };
            if ret != 0 && Errno::last() != Errno(libc::ENOTSUP) {
                return Err(DpdkError::call(
                    format!("rte_dev_dma_map({}, {address:p}, {length})", self.name()),
                    Errno::last(),
                ));
            }
        }
        Ok(registration)
    }
}

/// Keeps a pool's buffers registered with a port.
#[derive(Debug)]
pub struct Registration<T: ExtMemory> {
    port: Port,
    pool: ExtPool<T>,
    /// Regions, and whether this registration made them known to EAL.
    mapped: Vec<(Region, bool)>,
}

impl<T: ExtMemory> Registration<T> {
    /// The pool whose buffers are registered.
    pub fn pool(&self) -> &ExtPool<T> {
        &self.pool
    }
}

impl<T: ExtMemory> Drop for Registration<T> {
    fn drop(&mut self) {
        let Ok(raw) = self.port.0.device.raw_info() else {
            return;
        };
        let _control = self.port.0.device.eal.control();
        for (region, ours) in &self.mapped {
            let address = region.address as *mut _;
            // SAFETY: the region was registered by `register` and is still there, since `pool` keeps it.
            unsafe {
                dpdk_sys::rte_dev_dma_unmap(
                    raw.device,
                    address,
                    region.address as u64,
                    region.length,
                );
                if *ours {
                    dpdk_sys::rte_extmem_unregister(address, region.length);
                }
            }
        }
    }
}
