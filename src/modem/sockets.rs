//! The kernel's UDP sockets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use ground::os::send_groups_through;
use karoo_flow::adapters::{first, resolve};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockRef, Socket, Type};

use crate::ports::Interface;

/// Bytes that may wait in a socket, as far as the kernel allows.
const BUFFER: usize = 32 << 20;
/// How long a socket waits before it looks whether it is to stop.
pub const LOOK: Duration = Duration::from_millis(50);

fn open(address: SocketAddr) -> io::Result<Socket> {
    Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )
}

/// Takes datagrams to a peer: an address of this host, or a group that is joined by an interface.
/// Of several addresses of a name, the first that can be had.
pub fn receiver(peer: &str, interface: Option<&Interface>) -> io::Result<UdpSocket> {
    first(&resolve(peer)?, |address| receiver_at(address, interface))
}

fn receiver_at(address: SocketAddr, interface: Option<&Interface>) -> io::Result<UdpSocket> {
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

/// Sends datagrams to a peer, to a group by an interface if one is named. Of several addresses of a
/// name, to the first to which there is a way.
pub fn sender(peer: &str, interface: Option<&Interface>) -> io::Result<UdpSocket> {
    first(&resolve(peer)?, |address| sender_at(address, interface))
}

fn sender_at(address: SocketAddr, interface: Option<&Interface>) -> io::Result<UdpSocket> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    if let Some(Interface { index, ip, .. }) = interface {
        match address {
            SocketAddr::V4(_) => send_groups_through(&socket, *index, *ip)?,
            SocketAddr::V6(_) => SockRef::from(&socket).set_multicast_if_v6(*index)?,
        }
    }
    socket.connect(address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_of_a_name_is_tried() {
        // The second is one of this host; the first is for documents alone.
        let addresses = ["192.0.2.1:0", "127.0.0.1:0"].map(|address| address.parse().unwrap());
        let socket = first(&addresses, |address| receiver_at(address, None)).unwrap();
        let here = socket.local_addr().unwrap();
        assert_eq!(here.ip(), addresses[1].ip());
        let sender = sender(&here.to_string(), None).unwrap();
        sender.send(b"samples").unwrap();
        let mut got = [0; 8];
        assert_eq!(socket.recv(&mut got).unwrap(), 7);
    }

    #[test]
    fn an_address_that_cannot_be_had_is_named() {
        let error = receiver("192.0.2.1:7000", None).unwrap_err().to_string();
        assert!(error.starts_with("192.0.2.1:7000: "), "{error}");
    }
}
