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
    /// The IPv4 address that it was named by, if it was; else its first.
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
    /// The kernel's own drivers need an interface of the kernel's, which a device has not.
    #[error(
        "PCI device {pci} is DPDK's alone: the kernel has no interface for it, so that it cannot be used through \
         {driver}; leave out what is in front of its address"
    )]
    NoKernelInterface {
        /// The device.
        pci: String,
        /// The driver that its name asks for.
        driver: &'static str,
    },
    /// The addresses of an interface are the kernel's business.
    #[error("interface '{name}' has {has}, not {given}: leave @{given} out")]
    AddressGiven {
        /// The name as given.
        name: String,
        /// What the kernel says.
        has: String,
        /// What the user said.
        given: Ipv4Addr,
    },
    /// Two names of one interface, through which packets are sent once.
    #[error("--send-interface names '{name}' twice: give each interface once")]
    Twice {
        /// The interface's own name.
        name: String,
    },
    /// Two names of one interface, which ask for different drivers.
    #[error(
        "interface '{name}' is named for {first} and for {second}, and has one port: name it alike, for example udp:{name}"
    )]
    Drivers {
        /// The interface's own name.
        name: String,
        /// What the first name says.
        first: &'static str,
        /// What another says.
        second: &'static str,
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
        let (name, given) = match name.parse::<Ipv4Addr>() {
            Ok(ip) => {
                by_address = name_of(ip)?;
                (&by_address[..], Some(ip))
            }
            Err(_) => (name, given),
        };
        let located = locate(Path::new("/"), name)?;
        Self::of(driven(located, forced)?, given)
    }

    /// Refuses another name's finding of this same interface if it is to have another driver.
    pub fn check_driver(&self, other: &Self) -> Result<(), InterfaceError> {
        if self.driver == other.driver {
            return Ok(());
        }
        Err(InterfaceError::Drivers {
            name: self.name.clone(),
            first: self.driver.label(),
            second: other.driver.label(),
        })
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
        let ours = || {
            let all = all.iter();
            all.filter(|address| own_name(&address.interface_name) == name)
        };
        if !ours().any(|address| address.flags.contains(InterfaceFlags::IFF_UP)) {
            return Err(InterfaceError::Down { name });
        }
        let ips = ours().filter_map(|address| Some(address.address?.as_sockaddr_in()?.ip()));
        let ip = address_of(&name, &ips.collect::<Vec<_>>(), given)?;
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
        check_mtu(&self.name, self.mtu, bytes, option)
    }
}

/// Refuses UDP payloads of `bytes`, which follow from `option`, if they do not fit one packet of an
/// interface with this MTU, if it is known.
pub fn check_mtu(
    name: &str,
    mtu: Option<usize>,
    bytes: usize,
    option: &'static str,
) -> Result<(), InterfaceError> {
    const IPV4_AND_UDP: usize = 28;
    let needed = bytes.saturating_add(IPV4_AND_UDP);
    let name = name.to_owned();
    if needed > LARGEST_PACKET {
        let most = LARGEST_PACKET;
        return Err(InterfaceError::TooLarge {
            name,
            most,
            needed,
            option,
        });
    }
    match mtu {
        Some(mtu) if mtu < needed => Err(InterfaceError::Mtu {
            name,
            mtu,
            needed,
            option,
        }),
        _ => Ok(()),
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

/// A device with the driver that its name asks for, or else the best that this process may use.
fn driven(
    mut located: LocatedInterface,
    forced: Option<Driver>,
) -> Result<LocatedInterface, InterfaceError> {
    let Some(name) = &located.netdev else {
        return match forced {
            None => Ok(located),
            Some(driver) => Err(InterfaceError::NoKernelInterface {
                pci: located.pci.unwrap_or_default(),
                driver: driver.label(),
            }),
        };
    };
    let (driver, why) = match forced {
        Some(driver) => (driver, Some("its name says so".to_owned())),
        None => Rights::of_this_process().choose(located.driver),
    };
    if forced.is_none() && located.driver == Driver::Mlx5 && driver != Driver::Mlx5 {
        tracing::warn!(interface = name, ?why, "the NIC's own driver is not used");
    }
    located.driver = driver;
    located.why = why.unwrap_or(located.why);
    Ok(located)
}

/// An interface's name where the system says the label of one of its addresses, `eth0:1`.
fn own_name(label: &str) -> &str {
    label.split_once(':').map_or(label, |(name, _)| name)
}

/// The address that was given if it is among those of an interface, or the first of them.
fn address_of(
    name: &str,
    all: &[Ipv4Addr],
    given: Option<Ipv4Addr>,
) -> Result<Ipv4Addr, InterfaceError> {
    let name = name.to_owned();
    match (all, given) {
        ([], _) => Err(InterfaceError::NoIpv4 { name }),
        ([first, ..], None) => Ok(*first),
        (all, Some(given)) if all.contains(&given) => Ok(given),
        (all, Some(given)) => {
            let all: Vec<_> = all.iter().map(Ipv4Addr::to_string).collect();
            let has = all.join(", ");
            Err(InterfaceError::AddressGiven { name, has, given })
        }
    }
}

/// All IPv4 addresses, each with the name of its interface.
pub fn addresses() -> Result<Vec<(String, Ipv4Addr)>, InterfaceError> {
    let all = getifaddrs().map_err(InterfaceError::List)?;
    let addresses = all.filter_map(|a| {
        let name = own_name(&a.interface_name).to_owned();
        Some((name, a.address?.as_sockaddr_in()?.ip()))
    });
    Ok(addresses.collect())
}

/// The interface that has this address.
fn name_of(ip: Ipv4Addr) -> Result<String, InterfaceError> {
    let addresses = addresses()?;
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
#[path = "interface_tests.rs"]
mod tests;
