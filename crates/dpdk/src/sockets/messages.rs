//! Several datagrams in one system call: `recvmmsg` and `sendmmsg`.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::{mem, ptr};

use libc::{cmsghdr, in_pktinfo, iovec, mmsghdr, sockaddr_in};
use socket2::Socket;

use crate::BURST;

/// Room for what the kernel tells beside a datagram: to which address it came.
const CONTROL: usize = 64;

/// Parts of a datagram that is sent: what is in the header's mbuf, and what is chained to it.
pub(super) type Parts<'a> = [IoSlice<'a>; 2];

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub bytes: usize,
    pub source: SocketAddrV4,
    pub destination: Ipv4Addr,
    /// It had more bytes than there was room for.
    pub cut: bool,
}

/// What the kernel is handed for a burst, made once.
pub(super) struct Messages {
    headers: [mmsghdr; BURST],
    names: [sockaddr_in; BURST],
    controls: [Control; BURST],
}

/// Aligned as control messages have to be.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

// SAFETY: the pointers in the headers are set anew for each call, and not read between calls.
unsafe impl Send for Messages {}

impl std::fmt::Debug for Messages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Messages")
    }
}

impl Messages {
    pub fn new() -> Box<Self> {
        // SAFETY: integers and pointers, for which zero is a value.
        let (header, name) = unsafe { (mem::zeroed(), mem::zeroed()) };
        Box::new(Self {
            headers: [header; BURST],
            names: [name; BURST],
            controls: [Control([0; CONTROL]); BURST],
        })
    }

    /// Receives what is there, a datagram into each of `rooms`; tells of each in order and returns
    /// how many there were. Does not wait.
    pub fn receive(
        &mut self,
        socket: &Socket,
        rooms: &mut [IoSliceMut<'_>],
        mut each: impl FnMut(usize, Received),
    ) -> io::Result<usize> {
        let count = rooms.len().min(BURST);
        for (i, room) in rooms.iter_mut().enumerate().take(count) {
            let header = &mut self.headers[i].msg_hdr;
            header.msg_name = ptr::from_mut(&mut self.names[i]).cast();
            header.msg_namelen = mem::size_of::<sockaddr_in>() as u32;
            // IoSliceMut is laid out like iovec.
            header.msg_iov = ptr::from_mut(room).cast::<iovec>();
            header.msg_iovlen = 1;
            header.msg_control = self.controls[i].0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL as _;
            header.msg_flags = 0;
        }
        // SAFETY: `count` headers point to names, rooms and control buffers that live longer than
        // the call and are nobody else's.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as u32,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let received = check(received)?;
        for i in 0..received {
            let message = &self.headers[i];
            each(
                i,
                Received {
                    bytes: message.msg_len as usize,
                    source: endpoint(&self.names[i]),
                    destination: destination(&message.msg_hdr),
                    cut: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
                },
            );
        }
        Ok(received)
    }

    /// Sends datagrams to their destinations; returns how many of the first were taken. An error is
    /// about the first. Does not wait.
    pub fn send(
        &mut self,
        socket: &Socket,
        datagrams: &[(Parts<'_>, SocketAddrV4)],
    ) -> io::Result<usize> {
        let count = datagrams.len().min(BURST);
        for (i, (parts, to)) in datagrams.iter().enumerate().take(count) {
            self.names[i] = sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: to.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(to.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            let header = &mut self.headers[i].msg_hdr;
            header.msg_name = ptr::from_mut(&mut self.names[i]).cast();
            header.msg_namelen = mem::size_of::<sockaddr_in>() as u32;
            // IoSlice is laid out like iovec, which the kernel only reads here.
            header.msg_iov = parts.as_ptr().cast_mut().cast::<iovec>();
            header.msg_iovlen = parts.len() as _;
            header.msg_control = ptr::null_mut();
            header.msg_controllen = 0;
            header.msg_flags = 0;
        }
        // SAFETY: `count` headers point to names and parts that live longer than the call.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as u32,
                libc::MSG_DONTWAIT,
            )
        };
        check(sent)
    }
}

fn check(count: i32) -> io::Result<usize> {
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

fn endpoint(name: &sockaddr_in) -> SocketAddrV4 {
    let ip = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
    SocketAddrV4::new(ip, u16::from_be(name.sin_port))
}

/// To which address a datagram came, as its control messages tell.
fn destination(header: &libc::msghdr) -> Ipv4Addr {
    // SAFETY: the kernel has filled the control buffer and set its length; the macros stay within
    // it.
    unsafe {
        let mut control: *const cmsghdr = libc::CMSG_FIRSTHDR(header);
        while let Some(message) = control.as_ref() {
            if (message.cmsg_level, message.cmsg_type) == (libc::IPPROTO_IP, libc::IP_PKTINFO) {
                let info = libc::CMSG_DATA(control)
                    .cast::<in_pktinfo>()
                    .read_unaligned();
                return Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes());
            }
            control = libc::CMSG_NXTHDR(header, control);
        }
    }
    Ipv4Addr::UNSPECIFIED
}
