//! Network interfaces as the system knows them, and the multicast groups that it joins on them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use super::port::LARGEST_PACKET;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

/// An interface that is up and has an IPv4 address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// The first of its IPv4 addresses.
    pub ip: Ipv4Addr,
    /// Its largest IP packet in bytes, if the system tells.
    pub mtu: Option<usize>,
}

/// An interface that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// The system does not list its interfaces.
    #[error("cannot list the network interfaces: {0}")]
    List(#[source] nix::Error),
    /// There is none of that name.
    #[error("interface '{name}': there is none of that name; there are {known}")]
    Unknown {
        /// As given.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// It has no address.
    #[error("interface '{name}' has no IPv4 address: ip address add ADDRESS/LENGTH dev {name}")]
    NoIpv4 {
        /// As given.
        name: String,
    },
    /// It is down.
    #[error("interface '{name}' is down: ip link set dev {name} up")]
    Down {
        /// As given.
        name: String,
    },
    /// Packets do not fit it.
    #[error(
        "interface '{name}' takes IP packets of {mtu} bytes, but {option} makes them {needed}: \
         ip link set dev {name} mtu 9000, or make {option} smaller"
    )]
    Mtu {
        /// As given.
        name: String,
        /// Its MTU.
        mtu: usize,
        /// Bytes of the largest packet.
        needed: usize,
        /// The option that says so.
        option: &'static str,
    },
    /// Packets do not fit the driver's frames.
    #[error(
        "{option} makes IP packets of {needed} bytes, but AF_PACKET takes {LARGEST_PACKET} at most: make it smaller"
    )]
    TooLarge {
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
    /// The interface of this name.
    pub fn find(name: &str) -> Result<Self, InterfaceError> {
        let all: Vec<_> = getifaddrs().map_err(InterfaceError::List)?.collect();
        let ours = || all.iter().filter(|address| address.interface_name == name);
        let name = name.to_owned();
        let Some(first) = ours().next() else {
            let known: BTreeSet<_> = all.iter().map(|a| &a.interface_name[..]).collect();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            return Err(InterfaceError::Unknown { name, known });
        };
        if !first.flags.contains(InterfaceFlags::IFF_UP) {
            return Err(InterfaceError::Down { name });
        }
        let ip = ours().find_map(|address| Some(address.address?.as_sockaddr_in()?.ip()));
        let Some(ip) = ip else {
            return Err(InterfaceError::NoIpv4 { name });
        };
        let mtu = fs::read_to_string(format!("/sys/class/net/{name}/mtu"));
        Ok(Self {
            index: if_nametoindex(&name[..]).map_err(InterfaceError::List)?,
            ip,
            mtu: mtu.ok().and_then(|mtu| mtu.trim().parse().ok()),
            name,
        })
    }

    /// Refuses UDP payloads of `bytes`, which follow from `option`, if they do not fit one packet.
    pub fn check_mtu(&self, bytes: usize, option: &'static str) -> Result<(), InterfaceError> {
        const IPV4_AND_UDP: usize = 28;
        let needed = bytes + IPV4_AND_UDP;
        if needed > LARGEST_PACKET {
            return Err(InterfaceError::TooLarge { needed, option });
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

/// Keeps this host a member of multicast groups, so that switches, and the interface's own filter, let them through.
/// The sockets are bound to no port and receive nothing.
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
        let error = Interface::find("none0").unwrap_err().to_string();
        assert!(error.contains("'none0'") && error.contains("lo"), "{error}");
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
