//! What a driver of DPDK's is to be told: the files of `dpdk-config/`, which say when each is for.

use std::path::{Path, PathBuf};

use dpdk::HugePages;
use ground::files::read_text;
use serde::Deserialize;

use super::interface::Interface;
use super::port::{BLOCK, FRAME};
use super::resolve::Driver;

/// Files of this name in this folder are taken in place of those that the program was built with.
const FOLDER: &str = "/etc/karoo/dpdk-config";
/// The file for AF_PACKET.
const AF_PACKET: &str = "af_packet";

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// PCI devices with their drivers' options (EAL's `-a`); `{pci}` is the address.
    pub devices: Vec<String>,
    /// Virtual devices, `NAME,OPTIONS` (EAL's `--vdev`), made when they are needed. `{interface}`,
    /// `{queues}` and `{frames}` are filled in.
    pub vdevs: Vec<String>,
    /// Whether it works without huge pages.
    pub huge_pages: Pages,
    /// Largest IP packet, where no kernel interface tells.
    #[serde(default = "jumbo")]
    pub mtu: u16,
    /// Descriptors of each queue.
    #[serde(default = "descriptors")]
    pub descriptors: u16,
    /// Whether receive queues raise interrupts, if the driver can, so that an idle engine sleeps.
    #[serde(default = "yes")]
    pub rx_interrupts: bool,
}

/// Whether huge pages are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pages {
    /// If there are enough.
    Auto,
    /// Nothing works without.
    Require,
}

impl From<Pages> for HugePages {
    fn from(pages: Pages) -> Self {
        match pages {
            Pages::Auto => Self::Auto,
            Pages::Require => Self::Require,
        }
    }
}

fn jumbo() -> u16 {
    9000
}

fn descriptors() -> u16 {
    1024
}

fn yes() -> bool {
    true
}

/// A preset that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("preset {}: {why}; the one that came with the program is in dpdk-config/", path.display())]
pub struct PresetError {
    path: PathBuf,
    why: String,
}

impl Preset {
    /// The one for a driver.
    pub fn of(driver: Driver) -> Result<Self, PresetError> {
        let (name, built_in) = match driver {
            Driver::AfPacket => (AF_PACKET, include_str!("../../dpdk-config/af_packet.toml")),
            Driver::Udp => ("udp", include_str!("../../dpdk-config/udp.toml")),
            Driver::Mlx5 => ("mlx5", include_str!("../../dpdk-config/mlx5.toml")),
            Driver::Vfio => ("vfio-pci", include_str!("../../dpdk-config/vfio-pci.toml")),
            Driver::Virtio => ("virtio", include_str!("../../dpdk-config/virtio.toml")),
        };
        Self::load(Path::new(FOLDER), name, built_in)
    }

    fn load(folder: &Path, name: &str, built_in: &str) -> Result<Self, PresetError> {
        let path = folder.join(name).with_extension("toml");
        let failed = |why: String| PresetError {
            path: path.clone(),
            why,
        };
        let text = match read_text(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => built_in.to_owned(),
            Err(error) => return Err(failed(error.to_string())),
        };
        let preset: Self =
            toml::from_str(&text).map_err(|error| failed(error.message().to_owned()))?;
        if name == AF_PACKET {
            preset.check_frames().map_err(failed)?;
        }
        Ok(preset)
    }

    /// Refuses rings of AF_PACKET's with other frames than the program counts on: packets that it
    /// takes for short enough would be lost, and memory be too little.
    fn check_frames(&self) -> Result<(), String> {
        let options = self.vdevs.iter().flat_map(|vdev| vdev.split(','));
        let mut options = options.filter_map(|option| option.split_once('='));
        for (key, needed) in [("blocksz", BLOCK), ("framesz", FRAME)] {
            let found = options.clone().find(|(name, _)| *name == key);
            let value = found.map_or("missing", |(_, value)| value);
            if value != needed.to_string() {
                return Err(format!("{key} in vdevs is {value}: it must be {needed}"));
            }
        }
        match options.any(|option| option == ("framecnt", "{frames}")) {
            true => Ok(()),
            false => Err("framecnt in vdevs must be {frames}".to_owned()),
        }
    }

    /// The device at a PCI address, as EAL takes it.
    pub fn device(&self, pci: &str) -> Option<String> {
        Some(self.devices.first()?.replace("{pci}", pci))
    }

    /// Name and options of the virtual device for an interface.
    pub fn vdev(&self, interface: &str, queues: usize, frames: usize) -> Option<(String, String)> {
        let vdev = self.vdevs.first()?;
        let vdev = vdev
            .replace("{interface}", interface)
            .replace("{queues}", &queues.to_string())
            .replace("{frames}", &frames.to_string());
        let (name, options) = vdev.split_once(',').unwrap_or((&vdev, ""));
        Some((name.to_owned(), options.to_owned()))
    }
}

/// PCI devices that DPDK is to drive, as EAL takes them, and whether they need huge pages.
pub fn devices<'a>(
    interfaces: impl IntoIterator<Item = &'a Interface>,
) -> Result<(Vec<String>, HugePages), PresetError> {
    let mut devices = Vec::new();
    let mut pages = HugePages::Auto;
    for interface in interfaces {
        let Some(pci) = interface
            .pci
            .as_ref()
            .filter(|_| interface.driver.reads_memory())
        else {
            continue;
        };
        let preset = Preset::of(interface.driver)?;
        if preset.huge_pages == Pages::Require {
            pages = HugePages::Require;
        }
        devices.extend(preset.device(pci));
    }
    Ok((devices, pages))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn presets_make_devices() {
        let (name, options) = Preset::of(Driver::AfPacket)
            .unwrap()
            .vdev("eth1", 2, 512)
            .unwrap();
        assert_eq!(name, "net_af_packet_eth1");
        let expected = format!("iface=eth1,qpairs=2,blocksz={BLOCK},framesz={FRAME},framecnt=512");
        assert_eq!(options, expected);
        for driver in [Driver::Mlx5, Driver::Vfio, Driver::Virtio] {
            let preset = Preset::of(driver).unwrap();
            let device = preset.device("0000:81:00.0").unwrap();
            assert!(device.starts_with("0000:81:00.0"), "{device}");
            assert_eq!((preset.huge_pages, preset.mtu), (Pages::Require, 9000));
        }
    }

    /// Devices that stay with the kernel are none of EAL's.
    #[test]
    fn eal_is_told_of_devices_that_are_dpdks() {
        let interface = |driver, pci: &str| Interface {
            name: "x".to_owned(),
            index: 1,
            ip: [10, 0, 0, 1].into(),
            mtu: None,
            driver,
            pci: Some(pci.to_owned()),
        };
        let kernel = interface(Driver::AfPacket, "0000:01:00.0");
        assert_eq!(devices([&kernel]).unwrap(), (vec![], HugePages::Auto));
        let shared = interface(Driver::Mlx5, "0000:81:00.0");
        let (found, pages) = devices([&kernel, &shared]).unwrap();
        assert_eq!((found.len(), pages), (1, HugePages::Require));
        assert!(found[0].starts_with("0000:81:00.0,"), "{found:?}");
    }

    /// All files in the folder, also those that no program reads.
    #[test]
    fn all_presets_are_well_formed() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("dpdk-config");
        let mut read = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "toml") {
                let text = fs::read_to_string(&path).unwrap();
                let preset: Result<Preset, _> = toml::from_str(&text);
                assert!(preset.is_ok(), "{}: {preset:?}", path.display());
                assert!(text.starts_with("# "), "{}", path.display());
                read += 1;
            }
        }
        assert_eq!(read, 8);
    }

    #[test]
    fn a_host_may_have_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let built_in = include_str!("../../dpdk-config/vfio-pci.toml");
        let load = || Preset::load(folder.path(), "vfio-pci", built_in);
        let keys = || load().map(|preset| (preset.descriptors, preset.rx_interrupts));
        assert_eq!(keys().unwrap(), (1024, true));
        let own = folder.path().join("vfio-pci.toml");
        let more = "descriptors = 4096\nrx_interrupts = false\nvdevs";
        fs::write(&own, built_in.replace("vdevs", more)).unwrap();
        assert_eq!(keys().unwrap(), (4096, false));
        fs::write(&own, "device = []").unwrap();
        let error = load().unwrap_err().to_string();
        assert!(
            error.contains("vfio-pci.toml") && error.contains("`device`"),
            "{error}"
        );
    }

    /// Limits and memory are those of the program's frames.
    #[test]
    fn frames_of_af_packet_are_those_that_packets_are_measured_by() {
        let folder = tempfile::tempdir().unwrap();
        let built_in = include_str!("../../dpdk-config/af_packet.toml");
        let own = folder.path().join("af_packet.toml");
        let load = |from: &str, to: &str| {
            fs::write(&own, built_in.replace(from, to)).unwrap();
            let loaded = Preset::load(folder.path(), AF_PACKET, built_in);
            loaded.map_err(|error| error.to_string())
        };
        assert!(load("qpairs", "qdisc_bypass=0,qpairs").is_ok());
        for (from, to, word) in [
            ("framesz=9216", "framesz=16384", "16384: it must be 9216"),
            (",framesz=9216", "", "framesz in vdevs is missing"),
            ("blocksz=36864", "blocksz=65536", "it must be 36864"),
            ("{frames}", "512", "framecnt"),
        ] {
            let error = load(from, to).unwrap_err();
            assert!(error.contains("af_packet.toml"), "{error}");
            assert!(error.contains(word), "{error}");
        }
    }
}
