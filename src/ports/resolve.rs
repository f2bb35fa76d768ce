//! Which device of this machine is behind a name, and which of DPDK's drivers is best for it.
//! Decided from sysfs alone.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

/// DPDK's drivers, as Karoo uses them, and what takes their place where there are no rights. Each
/// has a preset of its name in `dpdk-config/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The kernel's driver and its AF_PACKET rings: works on any interface.
    AfPacket,
    /// The kernel's driver and its UDP sockets: works on any interface, and for anybody.
    Udp,
    /// NVIDIA's NICs, which DPDK and the kernel share: flows that are ours go past the kernel.
    Mlx5,
    /// A NIC that is bound to `vfio-pci` or the like, and is DPDK's alone.
    Vfio,
    /// A virtual machine's NIC that is DPDK's alone.
    Virtio,
}

impl Driver {
    /// Whether the kernel still has an interface for it: addresses, MTU, memberships in groups.
    pub fn leaves_to_kernel(self) -> bool {
        matches!(self, Self::AfPacket | Self::Udp | Self::Mlx5)
    }

    /// Whether a device reads what is sent from memory by itself; the CPU copies it otherwise.
    pub fn reads_memory(self) -> bool {
        matches!(self, Self::Mlx5 | Self::Vfio | Self::Virtio)
    }

    /// What users call it.
    pub fn label(self) -> &'static str {
        match self {
            Self::AfPacket => "AF_PACKET",
            Self::Udp => "UDP sockets",
            Self::Mlx5 => "mlx5",
            Self::Vfio => "vfio-pci",
            Self::Virtio => "virtio",
        }
    }
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedInterface {
    /// The kernel's interface, if it has one.
    pub netdev: Option<String>,
    /// PCI address, if it has one.
    pub pci: Option<String>,
    /// What to use it with.
    pub driver: Driver,
    /// Why.
    pub why: String,
}

/// A name with no usable device behind it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocateError {
    /// No such interface.
    #[error("interface '{name}': there is none of that name; there are {known}")]
    NoInterface {
        /// The name as given.
        name: String,
        /// The interfaces that there are.
        known: String,
    },
    /// No such PCI device.
    #[error("PCI device {address}: there is none at that address; network devices are at {known}")]
    NoDevice {
        /// The address as given, in full.
        address: String,
        /// The network devices that there are.
        known: String,
    },
    /// Something else than a NIC.
    #[error(
        "PCI device {address} has class {class}, which is no network device's; those are at {known}"
    )]
    NotNetwork {
        /// The address as given, in full.
        address: String,
        /// Class of the device.
        class: String,
        /// The network devices that there are.
        known: String,
    },
    /// Nobody drives it.
    #[error(
        "PCI device {address} is bound to {driver}, and has no interface: bind it to vfio-pci \
         (dpdk-devbind.py --bind=vfio-pci {address}) or to its kernel driver"
    )]
    Unbound {
        /// The address as given, in full.
        address: String,
        /// The driver, or `no driver`.
        driver: String,
    },
}

/// Drivers that leave a device to programs.
const USER_DRIVERS: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];
/// PCI vendor of virtual machines' devices.
const VIRTIO: &str = "0x1af4";
/// Class of network devices.
const NETWORK: &str = "0x02";

/// A PCI address in full, `0000:81:00.0`, if `text` is one, with or without its domain.
pub fn pci_address(text: &str) -> Option<String> {
    let hex = |part: &str, digits: usize| {
        part.len() == digits && part.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let (front, function) = text.split_once('.')?;
    let parts: Vec<_> = front.split(':').collect();
    let (domain, bus, device) = match parts[..] {
        [bus, device] => ("0000", bus, device),
        [domain, bus, device] => (domain, bus, device),
        _ => return None,
    };
    let is_one = hex(domain, 4)
        && hex(bus, 2)
        && hex(device, 2)
        && matches!(function, "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7");
    is_one.then(|| format!("{domain}:{bus}:{device}.{function}").to_lowercase())
}

/// The device behind an interface's name or a PCI address, in the machine whose file system begins
/// at `root`.
pub fn locate(root: &Path, name: &str) -> Result<LocatedInterface, LocateError> {
    match pci_address(name) {
        Some(address) => by_pci(root, &address),
        None => by_interface(root, name),
    }
}

fn by_interface(root: &Path, name: &str) -> Result<LocatedInterface, LocateError> {
    let net = root.join("sys/class/net");
    let folder = net.join(name);
    let is_name = !name.contains('/') && !["", ".", ".."].contains(&name);
    if !is_name || !folder.exists() {
        return Err(LocateError::NoInterface {
            name: name.to_owned(),
            known: names(&net).join(", "),
        });
    }
    let device = folder.join("device");
    let pci = last(&device).and_then(|last| pci_address(&last));
    let (driver, why) = match (last(&device.join("driver")), &pci) {
        (Some(driver), Some(_)) if driver == "mlx5_core" => mlx5(&device),
        (Some(driver), _) => (
            Driver::AfPacket,
            format!("the kernel's driver {driver} has it, and does not share it with DPDK"),
        ),
        (None, _) => (Driver::AfPacket, "it is no hardware of its own".to_owned()),
    };
    Ok(LocatedInterface {
        netdev: Some(name.to_owned()),
        pci,
        driver,
        why,
    })
}

fn by_pci(root: &Path, address: &str) -> Result<LocatedInterface, LocateError> {
    let devices = root.join("sys/bus/pci/devices");
    let device = devices.join(address);
    let class = |address: &str| read(&devices.join(address).join("class"));
    let known = || {
        let nics = names(&devices).into_iter();
        let nics: Vec<_> = nics.filter(|a| class(a).starts_with(NETWORK)).collect();
        if nics.is_empty() {
            "no address".to_owned()
        } else {
            nics.join(", ")
        }
    };
    let address = address.to_owned();
    if !device.exists() {
        return Err(LocateError::NoDevice {
            known: known(),
            address,
        });
    }
    let class = class(&address);
    if !class.starts_with(NETWORK) {
        return Err(LocateError::NotNetwork {
            known: known(),
            address,
            class,
        });
    }
    let driver = last(&device.join("driver"));
    if let Some(user) = driver.as_deref().filter(|d| USER_DRIVERS.contains(d)) {
        let vendor = read(&device.join("vendor"));
        let driver = if vendor == VIRTIO {
            Driver::Virtio
        } else {
            Driver::Vfio
        };
        return Ok(LocatedInterface {
            netdev: None,
            why: format!("it is bound to {user}"),
            pci: Some(address),
            driver,
        });
    }
    // Virtio devices have another one between.
    let below = names(&device)
        .into_iter()
        .filter(|name| name.starts_with("virtio"));
    let folders = [device.join("net")]
        .into_iter()
        .chain(below.map(|b| device.join(b).join("net")));
    let netdev = folders
        .into_iter()
        .find_map(|folder| names(&folder).into_iter().next());
    let Some(netdev) = netdev else {
        let driver = driver.unwrap_or_else(|| "no driver".to_owned());
        return Err(LocateError::Unbound { address, driver });
    };
    let found = by_interface(root, &netdev)?;
    Ok(LocatedInterface {
        pci: Some(address),
        ..found
    })
}

/// Whether DPDK can drive a device beside `mlx5_core`.
fn mlx5(device: &Path) -> (Driver, String) {
    if names(&device.join("infiniband")).is_empty() {
        let why = "the kernel's mlx5_ib has no verbs device for it: modprobe mlx5_ib ib_uverbs";
        return (Driver::AfPacket, why.to_owned());
    }
    let why = "mlx5_core shares it: flows that are ours go past the kernel, which keeps the rest";
    (Driver::Mlx5, why.to_owned())
}

/// Last component of what a link points to.
fn last(link: &Path) -> Option<String> {
    let target = fs::read_link(link).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

fn read(path: &Path) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// What is in a folder, in order; nothing if there is none.
fn names(folder: &Path) -> Vec<String> {
    let list = || -> io::Result<BTreeSet<String>> {
        let entries = fs::read_dir(folder)?.flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        Ok(names.collect())
    };
    list().unwrap_or_default().into_iter().collect()
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
