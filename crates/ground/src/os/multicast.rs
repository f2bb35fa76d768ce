//! The way of what goes to groups.

use std::io;
use std::mem::size_of;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};

/// Has a socket send to groups through the interface of this number, for several may have one
/// address, and from this address if the socket is bound to none.
pub fn send_groups_through(socket: &impl AsFd, interface: u32, from: Ipv4Addr) -> io::Result<()> {
    let request = libc::ip_mreqn {
        imr_multiaddr: libc::in_addr {
            s_addr: libc::INADDR_ANY,
        },
        imr_address: libc::in_addr {
            s_addr: u32::from(from).to_be(),
        },
        imr_ifindex: interface as i32,
    };
    // SAFETY: the kernel reads the request, of the length that it is told.
    let ret = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_MULTICAST_IF,
            std::ptr::from_ref(&request).cast(),
            size_of::<libc::ip_mreqn>() as u32,
        )
    };
    match ret {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
