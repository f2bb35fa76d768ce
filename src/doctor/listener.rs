//! UDP sockets that hear what is sent to the digitisers' destinations: all that a user without
//! rights can see.

use std::cell::Cell;
use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::net::if_::if_indextoname;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt, sockopt};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use super::look::Look;
use super::sight::Sight;
use crate::net::frame::HEADERS_LEN;
use crate::net::{HeaderTemplate, MacAddr};
use crate::ports::Interface;

/// Memberships of a socket, unless the system was told otherwise.
const GROUPS: usize = 20;

/// A socket of one UDP port.
pub struct Listener {
    socket: Socket,
    port: u16,
    /// Datagrams that it had no room for.
    missed: Cell<u64>,
}

impl Listener {
    /// Sockets for these destinations, members of their groups on the interfaces. Beside an engine
    /// they are members of none, and hear what comes for its sake.
    pub fn all(
        endpoints: &[SocketAddrV4],
        interfaces: &[&Interface],
        how: Look,
        patience: Duration,
    ) -> io::Result<Vec<Self>> {
        let mut ports: Vec<u16> = endpoints.iter().map(SocketAddrV4::port).collect();
        ports.sort_unstable();
        ports.dedup();
        let mut listeners = Vec::new();
        for port in ports {
            let groups = endpoints.iter().filter(|endpoint| endpoint.port() == port);
            let groups: Vec<_> = groups
                .map(|endpoint| *endpoint.ip())
                .filter(Ipv4Addr::is_multicast)
                .collect();
            let groups = if how.beside_engine { &[][..] } else { &groups };
            let open = || Self::open(port, patience);
            listeners.push(open()?);
            for part in groups.chunks((GROUPS / interfaces.len().max(1)).max(1)) {
                let listener = open()?;
                // Each socket hears only the groups that it joined itself, so no datagram is heard
                // twice.
                listener.socket.set_multicast_all_v4(false)?;
                for interface in interfaces {
                    let interface = InterfaceIndexOrAddress::Index(interface.index);
                    for group in part {
                        // Errors are ignored: an engine reports a group that cannot be joined.
                        let _ = listener.socket.join_multicast_v4_n(group, &interface);
                    }
                }
                listeners.push(listener);
            }
            if !groups.is_empty()
                && let Some(first) = listeners.iter().find(|listener| listener.port == port)
            {
                // It hears what is sent to this host alone.
                first.socket.set_multicast_all_v4(false)?;
            }
        }
        Ok(listeners)
    }

    fn open(port: u16, patience: Duration) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_reuse_address(true)?;
        socket.set_read_timeout(Some(patience))?;
        setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
        socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port).into())?;
        setsockopt(&socket, sockopt::RxqOvfl, &1)?;
        Ok(Self {
            socket,
            port,
            missed: Cell::new(0),
        })
    }

    /// Datagrams that it had no room for.
    pub fn missed(&self) -> u64 {
        self.missed.get()
    }

    /// Takes in a datagram, if one comes within the patience; false if none has.
    pub fn listen(&self, sight: &mut Sight, room: &mut [u8], unix: f64) -> io::Result<bool> {
        let mut control = nix::cmsg_space!(nix::libc::in_pktinfo, u32);
        let mut parts = [IoSliceMut::new(&mut room[HEADERS_LEN..])];
        let none = MsgFlags::empty();
        let socket = self.socket.as_raw_fd();
        let message = match recvmsg::<SockaddrIn>(socket, &mut parts, Some(&mut control), none) {
            Ok(message) => message,
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let mut told = None;
        for control in message.cmsgs()? {
            match control {
                ControlMessageOwned::Ipv4PacketInfo(info) => told = Some(info),
                ControlMessageOwned::RxqOvfl(missed) => self.missed.set(missed.into()),
                _ => {}
            }
        }
        let (Some(told), Some(source)) = (told, message.address) else {
            return Ok(true);
        };
        let bytes = message.bytes;
        let name = if_indextoname(told.ipi_ifindex as u32);
        let name = name.map_or(String::new(), |name| name.to_string_lossy().into_owned());
        let to = Ipv4Addr::from(told.ipi_addr.s_addr.to_ne_bytes());
        let (mac, to) = (MacAddr::default(), SocketAddrV4::new(to, self.port));
        let from = SocketAddrV4::new(source.ip(), source.port());
        if let Some(headers) = room.first_chunk_mut() {
            HeaderTemplate::new(mac, mac, from, to, 1).emit(bytes, headers);
        }
        sight.note(&name, None, &room[..HEADERS_LEN + bytes], unix);
        Ok(true)
    }
}
