//! Starting a device with a [`PortConfig`].

use std::sync::atomic::{AtomicU64, Ordering};

use super::device::{Device, driver_name};
use super::error::DpdkError;
use super::mempool::PoolConfig;
use super::port::{StartedPort, queues};
use super::{BURST, MbufPool};

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
    /// Have receive queues raise interrupts when a thread [sleeps](super::RxQueue::sleep) at them,
    /// if the driver can.
    pub rx_interrupts: bool,
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
            rx_interrupts: false,
            checksum: false,
        }
    }
}

impl Device {
    /// Configures and starts the port.
    ///
    /// Refuses more queues than there are, and pools that are too small for their queues.
    pub fn start(self, config: &PortConfig) -> Result<StartedPort, DpdkError> {
        let raw = self.raw_info()?;
        let mut pools = config.rx_pools.clone();
        let rings = self.has_rings();
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
        let mut interrupts = config.rx_interrupts;
        let descriptors = match self.bring_up(&raw, config, &pools, interrupts) {
            Err(error) if interrupts => {
                // Not every driver can, and none says so before.
                let port = &self.name;
                tracing::info!(%port, %error, "no receive interrupts: its queues are polled");
                interrupts = false;
                self.bring_up(&raw, config, &pools, interrupts)
            }
            done => done,
        }?;
        // Devices without filters refuse these, and need them not.
        // SAFETY: the port exists.
        unsafe {
            if config.promiscuous {
                dpdk_sys::rte_eth_promiscuous_enable(self.port);
            }
            dpdk_sys::rte_eth_allmulticast_enable(self.port);
        }
        drop(control);

        let tx_queues = config.tx_queues as u16;
        Ok(queues(self, pools, tx_queues, descriptors, interrupts))
    }

    /// Configures and starts the port, whose control lock is held; returns the descriptors of its
    /// receive queues and of its transmit queues.
    fn bring_up(
        &self,
        raw: &dpdk_sys::karoo_port_info,
        config: &PortConfig,
        pools: &[MbufPool],
        interrupts: bool,
    ) -> Result<(u16, u16), DpdkError> {
        let (rx_descriptors, tx_descriptors) = self.configure(raw, config, pools, interrupts)?;
        if !self.has_rings() {
            check_pools(pools, rx_descriptors)?;
        }
        self.set_up_queues(config.tx_queues, pools, rx_descriptors, tx_descriptors)?;
        // SAFETY: the port is configured and the control lock is held.
        let ret = unsafe { dpdk_sys::rte_eth_dev_start(self.port) };
        self.check(ret, || "rte_eth_dev_start".into())?;
        Ok((rx_descriptors, tx_descriptors))
    }

    fn configure(
        &self,
        raw: &dpdk_sys::karoo_port_info,
        config: &PortConfig,
        pools: &[MbufPool],
        interrupts: bool,
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
            interrupts: i32::from(interrupts),
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
