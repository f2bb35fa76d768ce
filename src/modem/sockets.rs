//! The kernel's UDP sockets.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockRef, Socket, Type};

use crate::ports::Interface;

/// Bytes that may wait in a socket, as far as the kernel allows.
const BUFFER: usize = 32 << 20;
/// How long a socket waits before it looks whether it is to stop.
pub const LOOK: Duration = Duration::from_millis(50);

/// The first address of a name.
fn resolve(peer: &str) -> io::Result<SocketAddr> {
    let none = || io::Error::new(ErrorKind::NotFound, format!("{peer} has no address"));
    peer.to_socket_addrs()?.next().ok_or_else(none)
}

fn open(address: SocketAddr) -> io::Result<Socket> {
    Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )
}

/// Takes datagrams to a peer: an address of this host, or a group that is joined by an interface.
pub fn receiver(peer: &str, interface: Option<&Interface>) -> io::Result<UdpSocket> {
    let address = resolve(peer)?;
    let socket = open(address)?;
    let is_group = address.ip().is_multicast();
    if is_group {
        // Others of this host may listen to the group too.
        socket.set_reuse_address(true)?;
    }
    // What the kernel's limit does not hold for needs rights.
    if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).is_err() {
        socket.set_recv_buffer_size(BUFFER)?;
    }
    socket.bind(&address.into())?;
    let index = interface.map_or(0, |interface| interface.index);
    match address.ip() {
        IpAddr::V4(group) if is_group => {
            socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(index))?;
        }
        IpAddr::V6(group) if is_group => socket.join_multicast_v6(&group, index)?,
        _ => {}
    }
    socket.set_read_timeout(Some(LOOK))?;
    Ok(socket.into())
}

/// Sends datagrams to a peer, to a group by an interface if one is named.
pub fn sender(peer: &str, interface: Option<&Interface>) -> io::Result<UdpSocket> {
    let address = resolve(peer)?;
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    if let Some(interface) = interface {
        let socket = SockRef::from(&socket);
        match address {
            SocketAddr::V4(_) => socket.set_multicast_if_v4(&interface.ip)?,
            SocketAddr::V6(_) => socket.set_multicast_if_v6(interface.index)?,
        }
    }
    socket.connect(address)?;
    Ok(socket)
}
