//! Devices: found by name or made.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex, PoisonError};

use super::Eal;
use super::dma::Mapping;
use super::error::{DpdkError, Errno, c_args, c_name};
use super::packet_socket::PacketSockets;
use super::ring::{Ring, RingReceiver, RingSender};

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
    pub(super) name: String,
    owned: DeviceOrigin,
    /// Sockets of the AF_PACKET driver.
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

    /// Name of the port.
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

    /// Whether its queues are rings.
    pub(super) fn has_rings(&self) -> bool {
        matches!(self.owned, DeviceOrigin::Rings { .. })
    }

    /// Keeps memory mapped until the port is stopped.
    pub(super) fn keep(&self, mappings: Vec<Mapping>) {
        ground::lock(&self.mappings).extend(mappings);
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
        // The device layer returns -errno. Some drivers return -1 (EPERM) for any failure.
        Err(DpdkError::call(
            format!("{} on port '{}'", call(), self.name),
            Errno(-ret),
        ))
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

pub(super) fn driver_name(raw: &dpdk_sys::karoo_port_info) -> String {
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
