//! Options of sockets.

use std::io;
use std::mem;
use std::os::fd::AsRawFd;

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use crate::packet_socket::option;

/// The kernel doubles it, in a signed integer.
const MOST_BUFFER: usize = 1 << 29;

/// A UDP socket whose address others of the same option may have too.
pub(super) fn udp() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    Ok(socket)
}

/// Asks for room for so many bytes of packets that wait to be received; beyond the system's limit
/// with the right to (CAP_NET_ADMIN).
pub(super) fn ask_receive_buffer(socket: &Socket, bytes: usize) -> io::Result<()> {
    let bytes = bytes.min(MOST_BUFFER);
    match setsockopt(socket, sockopt::RcvBufForce, &bytes) {
        Ok(()) => Ok(()),
        Err(_) => socket.set_recv_buffer_size(bytes),
    }
}

/// The same of packets that wait to be sent.
pub(super) fn ask_send_buffer(socket: &Socket, bytes: usize) -> io::Result<()> {
    let bytes = bytes.min(MOST_BUFFER);
    match setsockopt(socket, sockopt::SndBufForce, &bytes) {
        Ok(()) => Ok(()),
        Err(_) => socket.set_send_buffer_size(bytes),
    }
}

/// What was granted. The kernel grants twice as much, half of it for what it keeps beside packets.
pub(super) fn receive_buffer(socket: &Socket) -> usize {
    socket.recv_buffer_size().map_or(0, |bytes| bytes / 2)
}

/// Sends without UDP checksums, as the other ports do, and without fragments.
pub(super) fn send_as_ports_do(socket: &Socket) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1)?;
    let discover = libc::IP_PMTUDISC_PROBE;
    set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, discover)
}

fn set<T: Copy>(socket: &Socket, level: i32, name: i32, value: T) -> io::Result<()> {
    // SAFETY: the kernel reads the value, of the length that it is told.
    let ret = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(&value).cast(),
            mem::size_of::<T>() as u32,
        )
    };
    match ret {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Datagrams that a socket has dropped: it was full, or their checksum was wrong. The kernel counts
/// them modulo 2³².
pub(super) fn dropped(socket: &Socket) -> u32 {
    /// `SK_MEMINFO_DROPS`.
    const DROPS: usize = 8;
    let mut info = [0u32; DROPS + 1];
    // Kernels before 4.12 do not tell.
    match option(
        socket.as_raw_fd(),
        libc::SOL_SOCKET,
        libc::SO_MEMINFO,
        &mut info,
    ) {
        true => info[DROPS],
        false => 0,
    }
}
