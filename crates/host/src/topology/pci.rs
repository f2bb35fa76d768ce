//! NICs and GPUs, and how the PCI bus leads to them.

use serde::Serialize;

use super::Root;

const DEVICES: &str = "/sys/bus/pci/devices";

/// A place on the PCI bus.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PciDevice {
    /// Address, such as `0000:41:00.0`.
    pub address: String,
    /// The host bridge that it is behind, such as `pci0000:40`: on EPYC, a quadrant of the I/O die.
    pub root: String,
    /// NUMA node, if the firmware says.
    pub node: Option<usize>,
    /// Rate of its link as it is, each way.
    pub link: Option<Link>,
    /// Rate of its link at best.
    pub best_link: Option<Link>,
}

/// A PCIe link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Link {
    /// Transfers per second and lane, in units of 10⁹.
    pub gigatransfers: f64,
    /// Lanes.
    pub lanes: u32,
}

impl Link {
    /// 10⁹ bytes per second each way, behind the line code and before packet headers.
    pub fn gigabytes(self) -> f64 {
        let code = if self.gigatransfers < 8.0 {
            8.0 / 10.0
        } else {
            128.0 / 130.0
        };
        self.gigatransfers * f64::from(self.lanes) * code / 8.0
    }
}

/// A network device on a bus.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Nic {
    /// Name of its interface; its address where the kernel has none.
    pub name: String,
    /// Its driver.
    pub driver: String,
    /// 10⁶ bits per second, if its link is up and the kernel says: it does not for those of virtual
    /// machines.
    pub megabits: Option<u64>,
    /// Whether its link is up, if the kernel says.
    pub up: Option<bool>,
    /// Where it is.
    pub pci: PciDevice,
}

impl Nic {
    /// Whether it is fit for digitiser data: it is fast, or a driver for DPDK holds it.
    pub fn is_for_data(&self) -> bool {
        self.megabits.is_some_and(|rate| rate >= 10_000) || self.driver == "vfio-pci"
    }
}

/// An NVIDIA GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gpu {
    /// Its name, if the driver says.
    pub name: String,
    /// By which `CUDA_VISIBLE_DEVICES` knows it, if the driver says.
    pub uuid: Option<String>,
    /// Where it is.
    pub pci: PciDevice,
}

/// All network devices on a bus.
pub fn nics(root: &Root) -> Vec<Nic> {
    const NET: &str = "/sys/class/net";
    let interfaces: Vec<_> = root
        .list(NET)
        .into_iter()
        .filter_map(|name| {
            let device = root.resolve(format!("{NET}/{name}/device"))?;
            let mut parts = device.iter().rev().filter_map(|part| part.to_str());
            let address = parts.find(|part| is_address(part))?.to_owned();
            Some((name, address))
        })
        .collect();
    let of_class = devices(root, |class| class.starts_with("0x0200"));
    let mut nics = Vec::new();
    for pci in of_class {
        let driver = driver(root, &pci.address);
        let names = interfaces.iter().filter(|(_, at)| *at == pci.address);
        let names: Vec<_> = names.map(|(name, _)| name.clone()).collect();
        let nic = |name: String| Nic {
            megabits: root.parse(format!("{NET}/{name}/speed")),
            up: link_is_up(root, &format!("{NET}/{name}")),
            name,
            driver: driver.clone(),
            pci: pci.clone(),
        };
        if names.is_empty() {
            nics.push(nic(pci.address.clone()));
        }
        nics.extend(names.into_iter().map(nic));
    }
    nics
}

/// Whether the link of the interface in `folder` is up. An interface that is shut has no carrier
/// that can be read.
fn link_is_up(root: &Root, folder: &str) -> Option<bool> {
    let carrier = root.parse::<u8>(format!("{folder}/carrier"));
    if let Some(carrier) = carrier {
        return Some(carrier == 1);
    }
    match root.read(format!("{folder}/operstate"))?.as_str() {
        "up" => Some(true),
        "down" | "lowerlayerdown" | "notpresent" => Some(false),
        _ => None,
    }
}

/// All NVIDIA GPUs.
pub fn gpus(root: &Root) -> Vec<Gpu> {
    let is_nvidia = |pci: &PciDevice| {
        root.read(format!("{DEVICES}/{}/vendor", pci.address)) == Some("0x10de".into())
    };
    let gpus = devices(root, |class| class.starts_with("0x03"));
    let gpu = |pci: PciDevice| {
        let path = format!("/proc/driver/nvidia/gpus/{}/information", pci.address);
        let information = root.read(path).unwrap_or_default();
        let field = |name: &str| {
            information.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim().to_owned())
            })
        };
        Gpu {
            name: field("Model").unwrap_or_else(|| "NVIDIA GPU".to_owned()),
            uuid: field("GPU UUID"),
            pci,
        }
    };
    gpus.into_iter().filter(is_nvidia).map(gpu).collect()
}

fn devices(root: &Root, wanted: impl Fn(&str) -> bool) -> Vec<PciDevice> {
    let of_class = |address: &String| {
        let class = root.read(format!("{DEVICES}/{address}/class"));
        class.is_some_and(|class| wanted(&class))
    };
    let addresses = root.list(DEVICES).into_iter().filter(of_class);
    addresses.map(|address| device(root, address)).collect()
}

fn device(root: &Root, address: String) -> PciDevice {
    let path = root.resolve(format!("{DEVICES}/{address}"));
    let bridge = path.as_ref().and_then(|path| {
        let mut parts = path.iter().filter_map(|part| part.to_str());
        parts.find(|part| part.starts_with("pci"))
    });
    let attribute = |name: &str| root.read(format!("{DEVICES}/{address}/{name}"));
    let link = |which: &str| {
        let speed = attribute(&format!("{which}_link_speed"))?;
        let gigatransfers = speed.split_whitespace().next()?.parse().ok()?;
        let lanes = attribute(&format!("{which}_link_width"))?.parse().ok()?;
        (lanes > 0).then_some(Link {
            gigatransfers,
            lanes,
        })
    };
    PciDevice {
        root: bridge.unwrap_or("unknown").to_owned(),
        node: attribute("numa_node").and_then(|node| node.parse().ok()),
        link: link("current"),
        best_link: link("max"),
        address,
    }
}

/// The driver that holds a device; empty without one.
fn driver(root: &Root, address: &str) -> String {
    let link = root.path(format!("{DEVICES}/{address}/driver"));
    let target = std::fs::read_link(link).unwrap_or_default();
    let name = target.file_name().and_then(|name| name.to_str());
    name.unwrap_or_default().to_owned()
}

/// Whether this is an address such as `0000:41:00.0`.
pub fn is_address(text: &str) -> bool {
    let parts: Vec<_> = text.split([':', '.']).collect();
    let hex =
        |part: &&str, digits| part.len() == digits && part.bytes().all(|b| b.is_ascii_hexdigit());
    matches!(&parts[..], [domain, bus, device, function]
        if domain.len() >= 4 && hex(bus, 2) && hex(device, 2) && hex(function, 1))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_link_without_a_speed_may_be_up() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let link = |carrier: &str, operstate: &str| {
            fs::write(folder.path().join("carrier"), carrier).unwrap();
            fs::write(folder.path().join("operstate"), operstate).unwrap();
            link_is_up(&root, "/")
        };
        assert_eq!(link_is_up(&root, "/"), None);
        assert_eq!(link("1\n", "unknown\n"), Some(true));
        assert_eq!(link("0\n", "down\n"), Some(false));
        assert_eq!(link("\n", "down\n"), Some(false));
        assert_eq!(link("\n", "up\n"), Some(true));
        assert_eq!(link("\n", "unknown\n"), None);
    }
}
