//! Interfaces by the names that users give them, and the multicast groups that the system joins on
//! them.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::{fs, io};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use super::port::LARGEST_PACKET;
use super::preset::{Preset, PresetError};
use super::resolve::{Driver, LocateError, LocatedInterface, locate, pci_address};
use super::rights::Rights;

/// An interface that is up and has an IPv4 address, or a device that DPDK has for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name; a PCI address where the kernel has none for it.
    pub name: String,
    /// Its number; 0 where the kernel has none.
    pub index: u32,
    /// The first of its IPv4 addresses, or the one that was given.
    pub ip: Ipv4Addr,
    /// Its largest IP packet in bytes, if anybody tells.
    pub mtu: Option<usize>,
    /// What it is used with.
    pub driver: Driver,
    /// PCI address of its device.
    pub pci: Option<String>,
}

/// An interface that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// The system does not list its interfaces.
    #[error("cannot list the network interfaces: {0}")]
    List(#[source] nix::Error),
    /// There is nothing usable of that name.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// What a driver is to be told is unknown.
    #[error(transparent)]
    Preset(#[from] PresetError),
    /// No interface has that address.
    #[error("no interface has the address {ip}; there are {known}")]
    NoSuchAddress {
        /// The address as given.
        ip: Ipv4Addr,
        /// Those that there are, with their addresses.
        known: String,
    },
    /// The kernel has no interface, and so no address, for a device.
    #[error(
        "PCI device {pci} is DPDK's alone, so that nobody knows its IPv4 address: give it as {pci}@ADDRESS"
    )]
    AddressMissing {
        /// The device.
        pci: String,
    },
    /// The address of an interface is the kernel's business.
    #[error("interface '{name}' has the address {has}, not {given}: leave @{given} out")]
    AddressGiven {
        /// The name as given.
        name: String,
        /// What the kernel says.
        has: Ipv4Addr,
        /// What the user said.
        given: Ipv4Addr,
    },
    /// Two names of one interface, through which packets are sent once.
    #[error("--send-interface names '{name}' twice: give each interface once")]
    Twice {
        /// The interface's own name.
        name: String,
    },
    /// Not an address.
    #[error("interface '{name}': {text:?} is not an IPv4 address such as 10.1.0.2")]
    Address {
        /// The name as given.
        name: String,
        /// What is behind the @.
        text: String,
    },
    /// It has no address.
    #[error("interface '{name}' has no IPv4 address: ip address add ADDRESS/LENGTH dev {name}")]
    NoIpv4 {
        /// The name as given.
        name: String,
    },
    /// It is down.
    #[error("interface '{name}' is down: ip link set dev {name} up")]
    Down {
        /// The name as given.
        name: String,
    },
    /// Packets do not fit it.
    #[error(
        "interface '{name}' takes IP packets of {mtu} bytes, but {option} makes them {needed}: \
         ip link set dev {name} mtu 9000, or make {option} smaller"
    )]
    Mtu {
        /// The name as given.
        name: String,
        /// MTU of the interface.
        mtu: usize,
        /// Bytes of the largest packet.
        needed: usize,
        /// The option that says so.
        option: &'static str,
    },
    /// Packets do not fit the driver's frames.
    #[error(
        "{option} makes IP packets of {needed} bytes, but the driver of '{name}' takes {most} at most: make it smaller"
    )]
    TooLarge {
        /// The name as given.
        name: String,
        /// What the driver's buffers hold.
        most: usize,
        /// Bytes of the largest packet.
        needed: usize,
        /// The option that says so.
        option: &'static str,
    },
    /// The system did not join a group.
    #[error("cannot join group {group} on interface '{name}'")]
    Join {
        /// Group.
        group: Ipv4Addr,
        /// Interface.
        name: String,
        /// Why.
        source: io::Error,
    },
}

impl Interface {
    /// The interface behind a name of the kernel's, an IPv4 address or a PCI address; `PCI@ADDRESS`
    /// where only DPDK has the device. `af_packet:` or `udp:` in front leaves the kernel's driver
    /// in its place whatever there is, and whatever this process may.
    pub fn find(name: &str) -> Result<Self, InterfaceError> {
        let (forced, name) = forced_driver(name);
        let (name, given) = match name.split_once('@') {
            Some((device, text)) if pci_address(device).is_some() => {
                let ip = text.parse().map_err(|_| InterfaceError::Address {
                    name: name.to_owned(),
                    text: text.to_owned(),
                });
                (device, Some(ip?))
            }
            // Names of interfaces may have one.
            _ => (name, None),
        };
        let by_address;
        let name = match name.parse::<Ipv4Addr>() {
            Ok(ip) => {
                by_address = name_of(ip)?;
                &by_address
            }
            Err(_) => name,
        };
        let mut located = locate(Path::new("/"), name)?;
        if located.netdev.is_some() {
            let (driver, why) = match forced {
                Some(driver) => (driver, Some("its name says so".to_owned())),
                None => Rights::of_this_process().choose(located.driver),
            };
            if forced.is_none() && located.driver == Driver::Mlx5 && driver != Driver::Mlx5 {
                tracing::warn!(interface = name, ?why, "the NIC's own driver is not used");
            }
            located.driver = driver;
            located.why = why.unwrap_or(located.why);
        }
        Self::of(located, given)
    }

    fn of(located: LocatedInterface, given: Option<Ipv4Addr>) -> Result<Self, InterfaceError> {
        let LocatedInterface {
            netdev,
            pci,
            driver,
            why,
        } = located;
        tracing::info!(interface = netdev, pci, ?driver, why, "chosen");
        let Some(name) = netdev else {
            let pci = pci.unwrap_or_default();
            let mtu = Some(Preset::of(driver)?.mtu.into());
            let Some(ip) = given else {
                return Err(InterfaceError::AddressMissing { pci });
            };
            return Ok(Self {
                name: pci.clone(),
                index: 0,
                ip,
                mtu,
                driver,
                pci: Some(pci),
            });
        };
        let all: Vec<_> = getifaddrs().map_err(InterfaceError::List)?.collect();
        let ours = || all.iter().filter(|address| address.interface_name == name);
        if !ours().any(|address| address.flags.contains(InterfaceFlags::IFF_UP)) {
            return Err(InterfaceError::Down { name });
        }
        let ip = ours().find_map(|address| Some(address.address?.as_sockaddr_in()?.ip()));
        let Some(ip) = ip else {
            return Err(InterfaceError::NoIpv4 { name });
        };
        if let Some(given) = given.filter(|given| *given != ip) {
            return Err(InterfaceError::AddressGiven {
                name,
                has: ip,
                given,
            });
        }
        let mtu = fs::read_to_string(format!("/sys/class/net/{name}/mtu"));
        Ok(Self {
            index: if_nametoindex(&name[..]).map_err(InterfaceError::List)?,
            ip,
            mtu: mtu.ok().and_then(|mtu| mtu.trim().parse().ok()),
            name,
            driver,
            pci,
        })
    }

    /// Refuses UDP payloads of `bytes`, which follow from `option`, if they do not fit one packet.
    pub fn check_mtu(&self, bytes: usize, option: &'static str) -> Result<(), InterfaceError> {
        const IPV4_AND_UDP: usize = 28;
        let needed = bytes.saturating_add(IPV4_AND_UDP);
        if needed > LARGEST_PACKET {
            let (name, most) = (self.name.clone(), LARGEST_PACKET);
            return Err(InterfaceError::TooLarge {
                name,
                most,
                needed,
                option,
            });
        }
        match self.mtu {
            Some(mtu) if mtu < needed => Err(InterfaceError::Mtu {
                name: self.name.clone(),
                mtu,
                needed,
                option,
            }),
            _ => Ok(()),
        }
    }
}

/// The driver that a name asks for, and the rest of it.
fn forced_driver(name: &str) -> (Option<Driver>, &str) {
    match name.split_once(':') {
        Some(("af_packet", rest)) => (Some(Driver::AfPacket), rest),
        Some(("udp", rest)) => (Some(Driver::Udp), rest),
        _ => (None, name),
    }
}

/// A name as [`Interface::find`] takes it, without the driver that it asks for.
pub fn without_driver(name: &str) -> &str {
    forced_driver(name).1
}

/// The interface that has this address.
fn name_of(ip: Ipv4Addr) -> Result<String, InterfaceError> {
    let all = getifaddrs().map_err(InterfaceError::List)?;
    let addresses = all.filter_map(|a| Some((a.interface_name, a.address?.as_sockaddr_in()?.ip())));
    let addresses: Vec<_> = addresses.collect();
    match addresses.iter().find(|(_, address)| *address == ip) {
        Some((name, _)) => Ok(name.clone()),
        None => {
            let known = addresses
                .iter()
                .map(|(name, ip)| format!("{name} with {ip}"));
            let known = known.collect::<Vec<_>>().join(", ");
            Err(InterfaceError::NoSuchAddress { ip, known })
        }
    }
}

/// Keeps this host a member of multicast groups, so that switches, and the interface's own filter,
/// let them through. The sockets are bound to no port and receive nothing.
#[derive(Debug, Default)]
pub struct Memberships(Vec<Socket>);

impl Memberships {
    /// Joins the groups among `endpoints` on `interface`.
    pub fn join(
        &mut self,
        endpoints: &[SocketAddrV4],
        interface: &Interface,
    ) -> Result<(), InterfaceError> {
        let groups: BTreeSet<_> = endpoints
            .iter()
            .map(|e| *e.ip())
            .filter(Ipv4Addr::is_multicast)
            .collect();
        for group in groups {
            self.join_one(group, interface)
                .map_err(|source| InterfaceError::Join {
                    group,
                    name: interface.name.clone(),
                    source,
                })?;
        }
        Ok(())
    }

    fn join_one(&mut self, group: Ipv4Addr, interface: &Interface) -> io::Result<()> {
        let interface = InterfaceIndexOrAddress::Index(interface.index);
        let last = self
            .0
            .last()
            .map(|socket| socket.join_multicast_v4_n(&group, &interface));
        match last {
            // A socket has 20 memberships unless the system was told otherwise.
            Some(Err(error)) if error.raw_os_error() != Some(nix::libc::ENOBUFS) => Err(error),
            Some(Ok(())) => Ok(()),
            _ => {
                let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
                socket.join_multicast_v4_n(&group, &interface)?;
                self.0.push(socket);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_found_and_others_are_named() {
        let lo = Interface::find("lo").unwrap();
        assert_eq!(lo.ip, Ipv4Addr::LOCALHOST);
        assert_eq!(Interface::find("127.0.0.1").unwrap(), lo);
        let forced = |driver| Interface {
            driver,
            ..lo.clone()
        };
        let [packet, udp] = ["af_packet:lo", "udp:lo"].map(|name| Interface::find(name).unwrap());
        assert_eq!(packet, forced(Driver::AfPacket));
        assert_eq!(udp, forced(Driver::Udp));
        assert_eq!(without_driver("udp:lo"), "lo");
        assert_eq!(without_driver("0000:81:00.0"), "0000:81:00.0");
        let refused = |name: &str| Interface::find(name).unwrap_err().to_string();
        let error = refused("none0");
        assert!(error.contains("'none0'") && error.contains("lo"), "{error}");
        let error = refused("192.0.2.77");
        assert!(
            error.contains("192.0.2.77") && error.contains("lo with 127.0.0.1"),
            "{error}"
        );
        let error = refused("81:00.0@10.0.0");
        assert!(error.contains("\"10.0.0\""), "{error}");
    }

    /// Only DPDK has it: the user says what its address is.
    #[test]
    fn devices_without_an_interface_need_an_address() {
        let located = || LocatedInterface {
            netdev: None,
            pci: Some("0000:41:00.0".to_owned()),
            driver: Driver::Vfio,
            why: String::new(),
        };
        let error = Interface::of(located(), None).unwrap_err().to_string();
        assert!(error.contains("0000:41:00.0@ADDRESS"), "{error}");
        let found = Interface::of(located(), Some([10, 0, 0, 5].into())).unwrap();
        assert_eq!(
            (&found.name[..], found.index, found.mtu),
            ("0000:41:00.0", 0, Some(9000))
        );
        found.check_mtu(8972, "--send-packet-payload").unwrap();
        found.check_mtu(8973, "--send-packet-payload").unwrap_err();
    }

    #[test]
    fn packets_must_fit() {
        let lo = Interface {
            mtu: Some(1500),
            ..Interface::find("lo").unwrap()
        };
        lo.check_mtu(1472, "--send-packet-payload").unwrap();
        let error = lo
            .check_mtu(1473, "--send-packet-payload")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("1501") && error.contains("mtu 9000"),
            "{error}"
        );
        // Whatever the interface takes: longer frames would be lost on the way to it.
        let wide = Interface {
            mtu: Some(65535),
            ..lo
        };
        wide.check_mtu(LARGEST_PACKET - 28, "--send-packet-payload")
            .unwrap();
        let error = wide.check_mtu(LARGEST_PACKET - 27, "--send-packet-payload");
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("9089") && error.contains("--send-packet-payload"),
            "{error}"
        );
    }

    /// More groups than one socket takes by default, each in the system's own list.
    #[test]
    fn many_groups_are_joined_and_left() {
        let lo = Interface::find("lo").unwrap();
        let endpoints: Vec<_> = (0..45)
            .map(|i| SocketAddrV4::new([239, 77, 1, i].into(), 7148))
            .collect();
        let joined = || {
            let list = fs::read_to_string("/proc/self/net/igmp").unwrap();
            // Addresses there are in the machine's byte order.
            let ours = |e: &&SocketAddrV4| {
                list.contains(&format!("{:08X}", u32::from_ne_bytes(e.ip().octets())))
            };
            endpoints.iter().filter(ours).count()
        };
        let mut groups = Memberships::default();
        groups.join(&endpoints, &lo).unwrap();
        assert_eq!(joined(), 45);
        drop(groups);
        assert_eq!(joined(), 0);
    }
}
